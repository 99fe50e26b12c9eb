r"""The highest of some cuts as a model of a function, and its minimum near a centre.

With slopes :math:`g_i` and the distances :math:`e_i \ge 0` of the cuts below the value at the
centre, the weights solve

.. math:: \min_{\lambda \ge 0}\ \tfrac t2 \Bigl\|\sum_i \lambda_i g_i\Bigr\|^2
          + \sum_i \lambda_i e_i \quad\text{where } \sum_i \lambda_i = 1,

by DAQP if there are few cuts. The weights need not be exact: any on the simplex prove a lower
bound. With a feasible set or a penalty, projections or proximal maps suffice to find the lowest
point.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import ddot  # @ takes longer to begin

from accelegrad.bundle.cut_memory import CutMemory
from accelegrad.bundle.cut_programme import shortest_sum
from accelegrad.errors import Vector
from accelegrad.geometry.nearest_point import Rows, lowest_of_cuts
from accelegrad.rules.base import Evaluated, Projection, Prox

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
