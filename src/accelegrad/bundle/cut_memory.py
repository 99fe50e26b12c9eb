r"""Cuts, affine functions below a function, and the highest of them as a model of it.

A cut :math:`f(u) \ge h + \langle g, u - x_0\rangle` is stored as (g, h). The model is lowest near a
centre where, with slopes :math:`g_i` and the distances :math:`e_i \ge 0` of the cuts below the
value at the centre, the weights solve

.. math:: \min_{\lambda \ge 0}\ \tfrac t2 \Bigl\|\sum_i \lambda_i g_i\Bigr\|^2
          + \sum_i \lambda_i e_i \quad\text{where } \sum_i \lambda_i = 1,

by DAQP if there are few cuts. The weights need not be exact: any on the simplex prove a lower
bound. With a feasible set or a penalty, projections or proximal maps suffice to find the lowest
point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.blas import ddot  # @ takes longer to begin

from accelegrad.bundle.cut_programme import shortest_sum
from accelegrad.errors import Vector
from accelegrad.geometry.nearest_point import Rows, lowest_of_cuts
from accelegrad.linalg import FEW, SMALLEST, UNIT, norm
from accelegrad.rules.base import Evaluated, Projection, Prox

#: The memory that cuts take by default, in bytes; chosen
DEFAULT_BYTES = 64 * 2**20
#: Points of cuts, for certificates, are kept if those of all cuts take at most these bytes; chosen
POINT_BYTES = 32 * 2**20
#: Cuts beyond the dimension that are kept by default: up to d + 1 can be active at a minimiser of a
#: max-type function (with 30 in 40 dimensions the last digits are lost).
SPARE_CUTS = 20
#: The fewest cuts that a bundle works with: the newest, an older one, and their sum
FEWEST_CUTS = 4
#: The sum of smaller weights loses its digits.
SMALLEST_TOTAL = 1e-200
#: The share of the memory that is kept when it is full; chosen
KEPT_SHARE = 0.8
#: With a set or a term: most rounds of Newton's method, the share of the model's promise that may
#: be missed, and most trials of a round's step; chosen
MOST_ROUNDS, MISSED, MOST_TRIALS = 12, 0.05, 6
#: The highest cuts that a round considers beyond those with a weight; chosen
MORE_CUTS = 10
#: DAQP finds the weights of at most this many cuts, `shortest_sum` of more (500 separate kinks: a
#: tenth of the time).
MOST_AT_ONCE = 100
#: The relative length of a difference that shows how a projection moves: near the root of the
#: rounding, where both of its errors are small
DIFFERENCE = 1e-6


def default_size(dimension: int) -> int:
    """Return the default number of cuts."""
    return max(FEWEST_CUTS, min(dimension + SPARE_CUTS, DEFAULT_BYTES // (8 * dimension)))


#: The numbers of a cut: its value at the origin; its weight in the last combination; when it was
#: added; the size of the terms of its value; the length of its slope; and how far value and slope
#: can be off, because of adding cuts or of low precision.
LEVEL, WEIGHT, ADDED, SIZE, LENGTH, LOST, BLURRED = NUMBERS = range(7)


class Piece(NamedTuple):
    """A cut as it was evaluated, with its share of an average."""

    share: float
    point: Vector
    value: float
    slope: Vector


class Average(NamedTuple):
    """An average of cuts: weights, sources (see `CutMemory`) and slopes."""

    weights: Vector
    sources: list[Any]
    slopes: np.ndarray

    def pieces(self) -> list[Piece] | None:
        """Return the cuts as they were evaluated; None if they are not all known."""
        found: list[Piece] = []
        shares = (self.weights / self.weights.sum()).tolist()
        for share, source, slope in zip(shares, self.sources, self.slopes, strict=True):
            if source is None:
                return None
            if isinstance(source, list):
                found += [piece._replace(share=share * piece.share) for piece in source]
            else:
                found.append(Piece(share, source[0], source[1], slope))
        return found


class CutMemory:
    """At most `size` cuts around `origin`, x0."""

    def __init__(self, origin: Vector, size: int) -> None:
        self.origin, self.size = origin, size
        self.count = 0
        rows = min(size, default_size(origin.size))  # more if they are needed
        self._slopes = np.empty((rows, origin.size))
        self._numbers = np.zeros((rows, len(NUMBERS)))
        self._gram = np.zeros((0, 0))
        self._gram_rows = 0  # rows that are up to date
        self.added = 0  # cuts so far
        #: the last point whose values were asked for, the cuts added by then, and the values
        self._known: tuple[Any, int, Vector] = (None, 0, origin)
        #: of each cut the point and value, or the pieces of an average; None: not known
        self._sources: list[Any] = []
        self._keeps_points = 8 * origin.size * size <= POINT_BYTES

    @property
    def slopes(self) -> np.ndarray:
        """The slopes of the cuts, one per row."""
        return self._slopes[: self.count]

    @property
    def lengths(self) -> Vector:
        """The lengths of the slopes."""
        return self._numbers[: self.count, LENGTH]

    @property
    def last_weights(self) -> Vector:
        """The weights of the last combination; all are 0 if there was none."""
        return self._numbers[: self.count, WEIGHT]

    def take(self, evaluation: Evaluated) -> None:
        """Keep the cut at an evaluation: that of the function alone, without a penalty."""
        slope, term = evaluation.gradient, evaluation.penalty
        offset = evaluation.point - self.origin
        length, away = norm(slope), norm(offset)
        size = abs(evaluation.value) + abs(term) + length * away
        # Lowered by its rounding: one from 1e20 away may else lie thousands above the function.
        level = evaluation.value - term - ddot(slope, offset) - UNIT * size
        off, blurred = evaluation.lost
        source = (evaluation.point, evaluation.value - term) if self._keeps_points else None
        self._add(slope, (level, 0.0, 0.0, size, length, off + blurred * away, blurred), source)

    def blur(self, share: float) -> None:
        """Add this share of value, rise and slope to the errors of the cuts so far."""
        numbers = self._numbers[: self.count]
        numbers[:, LOST] += share * (numbers[:, SIZE] + numbers[:, LENGTH] * norm(self.origin))
        numbers[:, BLURRED] += share * numbers[:, LENGTH]

    def _add(self, slope: Vector, numbers: tuple[float, ...], source: Any) -> None:
        """Keep a cut unless it repeats the newest; if memory is full, drop the least important."""
        if self.count:
            last = self._numbers[self.count - 1]
            size = max(last[SIZE], numbers[SIZE])
            same = abs(last[LEVEL] - numbers[LEVEL]) <= FEW * UNIT * size
            if same and np.array_equal(self._slopes[self.count - 1], slope):
                return
        if self.count == self.size:
            self._make_room()
        if self.count == len(self._numbers):
            self._grow()
        i = self.count
        self.added += 1
        self._slopes[i], self._numbers[i] = slope, numbers
        self._numbers[i, ADDED] = self.added
        self._sources.append(source)
        self.count = i + 1

    def values_at(self, point: Vector) -> Vector:
        """Return the cuts at a point."""
        known_at, added, values = self._known
        if known_at is not point or added != self.added:
            n = self.count
            values = self._slopes[:n].dot(point - self.origin)
            values += self._numbers[:n, LEVEL]
            self._known = point, self.added, values
        return values

    def combined_slope(self, weights: Vector) -> Vector:
        """Return the weighted sum of the slopes."""
        (active,) = weights.nonzero()
        slope: Vector = weights[active].dot(self._slopes.take(active, axis=0))
        return slope

    def products(self) -> np.ndarray:
        """Return the inner products of all slopes, computing those that are missing."""
        known, n = self._gram_rows, self.count
        if len(self._gram) < n:
            gram, self._gram = self._gram, np.zeros((len(self._numbers), len(self._numbers)))
            self._gram[:known, :known] = gram[:known, :known]
        if known < n:
            rows = self._slopes[known:n] @ self._slopes[:n].T
            self._gram[known:n, :n] = rows
            self._gram[:n, known:n] = rows.T
            self._gram_rows = n
        return self._gram[:n]

    def keep_weights(self, weights: Vector) -> None:
        """Store weights to start the next combination; cuts with a weight are kept longest."""
        self._numbers[: self.count, WEIGHT] = weights

    def mean(self, weights: Vector) -> tuple[Vector, tuple[float, ...]] | None:
        """Return the mean of the cuts, as slope and numbers; None if no weight is positive.

        It is a cut of the function whatever the weights add up to: dividing k of them by their sum
        leaves shares that add up to 1 within (k + 1) / 2 units of rounding, and their sum with the
        cuts is off by k / 2 units more, relative to the sizes of its terms. The sizes are sums too,
        so twice as much is allowed for, plus products that underflow.
        """
        positive = np.maximum(weights, 0.0)
        total = float(np.add.reduce(positive))
        if not (SMALLEST_TOTAL < total < math.inf):
            return None
        shares = positive / total
        numbers = shares.dot(self._numbers[: self.count]).tolist()
        level, _, _, size, length, lost, blurred = numbers
        slope = self.combined_slope(shares)
        count = np.count_nonzero(shares) + 1
        rounded, vanished = 2 * count * UNIT, count * SMALLEST
        lost += rounded * (size + lost) + vanished
        blurred += rounded * (length + blurred) + slope.size * vanished
        return slope, (level, 0.0, 0.0, size + vanished, length + vanished, lost, blurred)

    def average(self, weights: Vector) -> Average:
        """Return what is known of the cuts of an average."""
        active = np.flatnonzero(weights > 0.0)
        sources = [self._sources[place] for place in active.tolist()]
        return Average(weights[active], sources, self._slopes[active])

    def _grow(self) -> None:
        rows, n = min(self.size, 2 * len(self._numbers)), self.count
        slopes, self._slopes = self._slopes, np.empty((rows, self.origin.size))
        self._slopes[:n] = slopes[:n]
        numbers, self._numbers = self._numbers, np.zeros((rows, len(NUMBERS)))
        self._numbers[:n] = numbers[:n]

    def _make_room(self) -> None:
        """Drop cuts without weight, the oldest first; one cut, their mean, replaces them."""
        kept = max(FEWEST_CUTS - 2, int(KEPT_SHARE * self.size) - 1)
        weights = self.last_weights.copy()
        order = np.lexsort((self._numbers[: self.count, ADDED], weights))[::-1]
        keep = np.sort(order[:kept])
        total, source = self.mean(weights), self.average(weights).pieces()
        n = len(keep)
        known = int(np.searchsorted(keep, self._gram_rows))  # whose products are up to date
        self._gram[:known, :known] = self._gram[keep[:known, None], keep[:known]]
        for new, old in enumerate(keep.tolist()):  # in place: all at once would be copied twice
            if new < old:
                self._slopes[new] = self._slopes[old]
        self._numbers[:n] = self._numbers[keep]
        self._sources = [self._sources[old] for old in keep.tolist()]
        self.count, self._gram_rows = n, known
        if total is not None:
            self._add(*total, source if source is None or len(source) <= self.size else None)

    def state(self) -> dict[str, Any]:
        """Return all that a checkpoint has to keep, bit for bit."""
        n, known = self.count, self._gram_rows
        return {
            "slopes": self._slopes[:n].copy(),
            "numbers": self._numbers[:n].copy(),
            "gram": self._gram[:known, :known].copy(),
            "added": self.added,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint."""
        n = len(state["slopes"])
        self.count = 0
        while len(self._numbers) < n:
            self._grow()
        self.count, self.added, self._sources = n, int(state["added"]), [None] * n
        self._slopes[:n], self._numbers[:n] = state["slopes"], state["numbers"]
        self._gram, self._gram_rows = np.array(state["gram"]), len(state["gram"])


# -- the model -----------------------------------------------------------------------------------


class Lowest(NamedTuple):
    """The model's minimum near a centre, with the sum of cuts that proves it: a cut again."""

    point: Vector
    promise: float  # how far the model lies below the value at the centre
    weights: Vector  # of the cuts; they add up to 1
    slope: Vector  # of their sum, with that of a set's or term's cut, if any
    error: float  # how far their sum is below the value at the centre
    missed: float = 0.0  # what the promise may lack, with a set or a term

    @property
    def is_rough(self) -> bool:
        """Whether more may be missing than is promised: the step is too long."""
        return self.missed > max(self.promise, 0.0)


class DualPoint(NamedTuple):
    """The point given by weights of cuts, with a set or a term."""

    weights: Vector
    target: Vector  # before projection or prox
    point: Vector
    term: float
    cuts: Vector  # the cuts there
    value: float  # of the dual: the minimum of weighted cuts, term and distance together

    @property
    def missed(self) -> float:
        """How far the model at the point may be above its minimum."""
        return float(self.cuts.max() - self.weights @ self.cuts)


class CutModel(NamedTuple):
    """Cuts, with a set and a term given by projection and proximal map."""

    cuts: CutMemory
    project: Projection | None = None
    prox: Prox | None = None
    term: Callable[[Vector], float] | None = None
    rows: Rows | None = None  # that describe the set, if they do

    def lowest(self, center: Evaluated, step: float) -> Lowest:
        """Minimise the model plus ||u - center||^2 / (2 step)."""
        cuts, point = self.cuts, center.point
        if not (self.project is None and self.prox is None):
            return self._lowest_feasible(center, step)
        apart = center.value - cuts.values_at(point)
        below, found = np.maximum(apart, 0.0), None
        if below.size <= MOST_AT_ONCE:
            found = lowest_of_cuts(None, point, cuts.slopes, below, step)
        if found is None:
            weights = shortest_sum(cuts.products(), below / step, cuts.last_weights)
        else:
            weights, step = found.weights, found.step
        slope = cuts.combined_slope(weights)
        error, square = ddot(weights, below), step * ddot(slope, slope)
        # Cuts are above the value at the centre if rounding has lowered it, perhaps by as much as
        # the others promise: then there is no promise.
        left = ddot(weights, apart) + square
        promise = left if left <= 0.0 else error + square
        return Lowest(point - step * slope, promise, weights, slope, error)

    def _lowest_feasible(self, center: Evaluated, step: float) -> Lowest:
        """Maximise the dual over weights of the cuts, by Newton's method.

        The cuts at the point given by the weights are the dual's slopes. The movement of the
        projection along the cuts' slopes shows how they change with the weights.
        """
        weights, step = self._first_weights(center, step)
        at = self._dual(center, step, weights)
        for _ in range(MOST_ROUNDS):
            promise = center.value - float(at.cuts.max()) - at.term
            if at.missed <= MISSED * max(promise, 0.0):
                break
            following = self._round(center, step, at)
            if following is None:
                break
            at = following
        promise = center.value - float(at.cuts.max()) - at.term
        slope = (center.point - at.point) / step
        # what weighted cuts and the term's cut at the point leave below the value at the centre
        rise = float(slope @ (center.point - at.point))
        error = max(center.value - float(at.weights @ at.cuts) - at.term - rise, 0.0)
        return Lowest(at.point, promise, at.weights, slope, error, at.missed)

    def _first_weights(self, center: Evaluated, step: float) -> tuple[Vector, float]:
        """Return DAQP's weights and step if the set has rows, else the last weights."""
        if self.rows is not None and self.prox is None:
            below = np.maximum(center.value - self.cuts.values_at(center.point), 0.0)
            found = lowest_of_cuts(self.rows, center.point, self.cuts.slopes, below, step)
            if found is not None:
                return found.weights, found.step
        last = self.cuts.last_weights
        if last.any():
            return last / last.sum(), step
        weights = np.zeros(self.cuts.count)
        weights[self.cuts.values_at(center.point).argmax()] = 1.0
        return weights, step

    def _dual(self, center: Evaluated, step: float, weights: Vector) -> DualPoint:
        target = center.point - step * (weights @ self.cuts.slopes)
        point = self.feasible(target, step)
        term = 0.0 if self.term is None else float(self.term(point))
        values = self.cuts.values_at(point)
        offset = point - center.point
        value = float(weights @ values) + term + float(offset @ offset) / (2.0 * step)
        return DualPoint(weights, target, point, term, values, value)

    def feasible(self, target: Vector, step: float) -> Vector:
        """Return the point of the set, or the prox, nearest to a target."""
        point = target if self.prox is None else self.prox(target, step)
        return point if self.project is None else self.project(point)

    def _round(self, center: Evaluated, step: float, at: DualPoint) -> DualPoint | None:
        active = at.weights > 0.0
        order = np.argsort(at.cuts)[::-1]
        considered = np.union1d(np.flatnonzero(active), order[:MORE_CUTS])
        slopes, weights = self.cuts.slopes[considered], at.weights[considered]
        moved = self._moved(at, step, slopes)
        gram = slopes @ moved.T
        gram = 0.5 * (gram + gram.T)
        # Differences are not exact: squares may come out negative.
        gram.flat[:: len(considered) + 1] = np.maximum(gram.diagonal(), 0.0)
        best = shortest_sum(gram, -(at.cuts[considered] / step + gram @ weights), weights)
        direction = np.zeros_like(at.weights)
        direction[considered] = best - weights
        slope = float(direction @ at.cuts)
        share = 1.0
        for _ in range(MOST_TRIALS):
            found = self._dual(center, step, np.maximum(at.weights + share * direction, 0.0))
            if found.value > at.value:
                return found
            # The slope falls along the line, and has fallen below zero: a secant finds its root.
            fallen = slope - float(direction @ found.cuts)
            share *= slope / fallen if fallen > slope > 0.0 else 0.25
        return None

    def _moved(self, at: DualPoint, step: float, slopes: np.ndarray) -> np.ndarray:
        """Return how the feasible point moves when the target moves along slopes."""
        size = max(float(np.abs(at.target - at.point).max()), float(np.abs(at.point).max()), 1e-300)
        moved = np.empty_like(slopes)
        for row, slope in zip(moved, slopes, strict=True):
            length = math.sqrt(float(slope @ slope)) or 1.0
            share = DIFFERENCE * size / length
            row[:] = (self.feasible(at.target + share * slope, step) - at.point) / share
        return moved
