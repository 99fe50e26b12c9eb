"""An interior-point method for losses with one kink, for several targets of the same rows at once.

Such a loss, like hinge and quantile loss, is l(m) = max theta (m - y) over low <= theta <= high. A
barrier keeps each row's slope theta between its ends, and Newton's method follows the minimum as
the barrier vanishes (Mehrotra's predictor and corrector): ten to thirty steps, whatever the data's
scale, each with the Gram matrix of all rows. So it is for rows that are few and short.

An l1 term is the same once more: l1 |w_j| is the loss of a row that has nothing but a 1 in column
j, with the target 0 and slopes between -l1 and l1. So each weight has a row more.

All targets share the products with X: their parameters are the rows of a matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accelegrad.errors import NonFiniteError, Vector
from accelegrad.problems.gram import Matrix, Storage, gram_matrix
from accelegrad.problems.linear_model import LinearModel
from accelegrad.problems.losses import Loss
from accelegrad.rows.curvature import Factored

#: A Gram matrix may take this many seconds, by the estimates of `accelegrad.problems.gram`: the
#: smoothed loss of more rows, or longer ones, is minimised faster (measured on eight data sets).
MOST_GRAM_SECONDS = 3e-3
#: Of dense rows that are at least as many as the columns, and at most this many times as many, it
#: may take more: samples of so few rows say little, and ascent on the dual needs thousands of
#: epochs and often misses `tol` (benchmarks/few_rows.py). From twice as many rows as columns on it
#: took at most 0.8 of the others' time; with 1.5 times as many, 1 to 4.5 for the hinge loss.
MOST_ROWS_PER_COLUMN, MOST_GRAM_SECONDS_OF_FEW = 10.0, 1.0
#: Margins and slopes of at most this many rows and targets are held at a time.
MOST_ENTRIES = 1 << 18
#: What has not ended after so many steps does not get any further.
MOST_STEPS = 60
#: The first barrier in units of the mean loss: with more of it the first steps are longer.
FIRST_BARRIER = 10.0
#: The share of the way to the nearest end that a step goes.
TOWARDS_END = 0.99
#: A proof is asked for where the estimated gap is this share of what is allowed.
ESTIMATED = 0.9
#: A weight is 0 where its slope is further from both ends than this share of the way between them:
#: with an l1 term, it is one or the other.
INSIDE = 1e-3
#: The power of the share of the barrier that the predictor leaves, for the corrector (Mehrotra's).
CENTRING = 3

Targets = npt.NDArray[np.intp]
#: From the values and the estimated lower bounds of all targets to the gap that each may have.
Allowed = Callable[[Vector, Vector], Vector]


class InteriorPoint(NamedTuple):
    """The parameters that were found, and slopes of the rows that prove them good."""

    parameters: Vector
    slopes: Vector
    steps: int


#: Whether a target's point is proved to have no more than this gap: else there are further steps.
Proved = Callable[[int, InteriorPoint, float], bool]


def has_one_kink(loss: Loss) -> bool:
    """Return whether a loss is linear on either side of its target, the only kink."""
    return loss.curvature == np.inf and loss.shape.epsilon == 0.0 and loss.lipschitz < np.inf


def serves(model: LinearModel, l1: float = 0.0) -> bool:
    """Return whether the method is the right one for a model, with an l1 term or without."""
    if not (has_one_kink(model.loss) and model.l2 + l1 > 0.0 and model.in_memory is not None):
        return False
    dense = isinstance(model.X, np.ndarray)
    storage = Storage(model.X.size if dense else model.X.nnz, dense, np.inf)
    n, d = model.n_samples, model.n_parameters
    few_rows = dense and d <= n <= MOST_ROWS_PER_COLUMN * d
    most = MOST_GRAM_SECONDS_OF_FEW if few_rows else MOST_GRAM_SECONDS
    return n * storage.gram_seconds_per_row(d) <= most and n <= MOST_ENTRIES


def interior_points(
    models: Sequence[LinearModel],
    l1: float,
    starts: Sequence[Vector],
    allowed: Allowed,
    proved: Proved,
    most_steps: int,
) -> None:
    """Go on with each model until it is proved to be good enough, or rounding puts an end to it.

    Parameters
    ----------
    models : sequence of LinearModel
        They differ in nothing but their targets.
    l1 : float
        The factor of an l1 term; there is that, an l2 term, or both.
    starts : sequence of Vector
        Parameters to start from. Only intercepts are of use: good weights with slopes that do not
        fit them are further from the middle than none.
    allowed, proved : callable
        The gaps that would do, and whether a point has that: asked once its estimated gap does.
    most_steps : int
        How many steps to do at most.
    """
    values, bounds = np.full(len(models), np.inf), np.zeros(len(models))
    group = max(1, MOST_ENTRIES // models[0].n_samples)
    for first in range(0, len(models), group):
        active = np.arange(first, min(first + group, len(models)))
        part = slice(first, first + group)
        with np.errstate(all="ignore"):
            rows = _Rows(models[first], l1)
            state = _State.first(rows, models[part], starts[part])
            for step in range(min(most_steps, MOST_STEPS)):
                values[active], bounds[active] = state.values_and_bounds(rows)
                gaps = allowed(values, bounds)[active]
                done = values[active] - bounds[active] <= ESTIMATED * gaps
                for place in np.flatnonzero(done).tolist():
                    point = state.point(rows, place, step)
                    done[place] = proved(int(active[place]), point, float(gaps[place]))
                going = ~done & np.isfinite(values[active])
                if not going.all():
                    state, active = state.of(going), active[going]
                if not active.size:
                    break
                try:
                    state = state.advanced(rows)
                except NonFiniteError:
                    break


class _Rows:
    """The rows that all targets share, with a 1 at the end of each where there is an intercept.

    After them there is one for each weight where there is an l1 term, of the rows' mean share. So
    the barrier is the same for all.
    """

    def __init__(self, model: LinearModel, l1: float) -> None:
        self._model = model
        self.count, self.l1, self.l2 = model.n_samples, l1, model.l2
        self.n_features, self.intercept = model.n_features, model.fit_intercept
        self.penalties = np.append(
            np.full(model.n_features, model.l2), np.zeros(int(self.intercept))
        )
        added = model.n_features if l1 > 0.0 else 0
        self.shares = np.append(model.shares, np.full(added, 1.0 / self.count))

    def with_weights(self, numbers: Matrix, weights: float) -> Matrix:
        """Return numbers of the rows with the same number for each row that a weight has."""
        added = self.shares.size - self.count
        return np.hstack([numbers, np.full((len(numbers), added), weights)])

    def forward(self, w: Matrix) -> Matrix:
        """Return the margins for each row of parameters."""
        d = self.n_features
        margins = np.ascontiguousarray(self._model.products.forward(w[:, :d].T).T)
        if self.intercept:
            margins += w[:, d:]
        return np.hstack([margins, w[:, :d]]) if self.l1 > 0.0 else margins

    def backward(self, slopes: Matrix) -> Matrix:
        """Return the sum of the rows by each target's slopes and the shares."""
        weighted = slopes * self.shares
        of_rows = weighted[:, : self.count]
        products: Matrix = self._model.products.backward(of_rows.T).T
        if self.l1 > 0.0:
            products = products + weighted[:, self.count :]
        if not self.intercept:
            return products
        return np.column_stack([products, of_rows.sum(axis=1)])

    def factored(self, curvatures: Vector) -> Factored:
        """Return the second derivatives of one target's losses and terms, factored."""
        weights = self.shares * curvatures
        X, n = self._model.X, self.count
        matrix = gram_matrix(X, None, weights[:n], intercept=self.intercept)
        ends = np.arange(len(matrix))
        matrix[ends, ends] += self.penalties
        if self.l1 > 0.0:
            ends = ends[: self.n_features]
            matrix[ends, ends] += weights[n:]
        return Factored(matrix, 0.0, 0.0)


class _Direction(NamedTuple):
    """How everything moves."""

    w: Matrix
    margins: Matrix
    slopes: Matrix
    above: Matrix
    below: Matrix


@dataclass(frozen=True)
class _State:
    """All targets: a row of parameters for each, and a row of what the data's rows have.

    `margins` are those beyond the kinks, m - y. At the minimum they are `above` - `below`, where
    `above` is 0 unless the slope is at its upper end, and `below` unless it is at its lower end;
    before, above * to_high and below * to_low are the barrier, and both sides of that differ.
    """

    w: Matrix
    kinks: Matrix
    low: Matrix
    high: Matrix
    margins: Matrix
    to_low: Matrix  # slope - low
    to_high: Matrix  # high - slope
    above: Matrix
    below: Matrix

    @classmethod
    def first(cls, rows: _Rows, models: Sequence[LinearModel], starts: Sequence[Vector]) -> _State:
        """Return slopes half-way between their ends."""
        targets = np.array([model.y for model in models])
        ends = (np.broadcast_to(end, targets.shape) for end in models[0].loss.domain(targets))
        kinks = rows.with_weights(targets, 0.0)
        steepest = rows.l1 * rows.count  # a share of it is l1
        low, high = (
            rows.with_weights(end, sign * steepest)
            for end, sign in zip(ends, (-1.0, 1.0), strict=True)
        )
        w = np.zeros((len(models), len(rows.penalties)))
        if rows.intercept:
            w[:, -1] = [start[-1] for start in starts]
        margins = rows.forward(w) - kinks
        half = 0.5 * (high - low)
        barrier = FIRST_BARRIER * 0.5 * _means(rows, half * np.abs(margins))
        above, below = (
            np.maximum(part, 0.0) + barrier[:, None] / half for part in (margins, -margins)
        )
        return cls(w, kinks, low, high, margins, half, half, above, below)

    def of(self, chosen: Any) -> _State:
        """Return the state of some targets."""
        return _State(*(part[chosen] for part in vars(self).values()))

    def point(self, rows: _Rows, place: int, steps: int) -> InteriorPoint:
        """Return what is found for a target."""
        w, slopes, n = self.w[place].copy(), self.slopes[place], rows.count
        if rows.l1 > 0.0:
            nearer = np.minimum(self.to_low, self.to_high)[place, n:]
            inside = nearer > INSIDE * (self.high - self.low)[place, n:]
            w[: rows.n_features][inside] = 0.0
        return InteriorPoint(w, slopes[:n].copy(), steps)

    @property
    def slopes(self) -> Matrix:
        """The slopes, as exactly as the distance to the nearer end is known."""
        near = self.to_low < self.to_high
        return np.where(near, self.low + self.to_low, self.high - self.to_high)

    def values_and_bounds(self, rows: _Rows) -> tuple[Vector, Vector]:
        """Return the objectives, and estimates of the bounds that the slopes prove."""
        m, slopes, d = self.margins, self.slopes, rows.n_features
        weights = self.w[:, :d]
        losses = _means(rows, np.maximum(self.high * m, self.low * m))
        values = losses + 0.5 * rows.l2 * (weights * weights).sum(axis=1)
        sums = rows.backward(slopes)
        bounds = -_means(rows, slopes * self.kinks)
        if rows.l2 > 0.0:
            bounds = bounds - 0.5 * (sums[:, :d] ** 2).sum(axis=1) / rows.l2
        else:  # slopes are scaled down until the l1 term holds what they leave
            held = slopes[:, rows.count :] * rows.shares[rows.count :]
            bounds = bounds / np.maximum(np.abs(sums[:, :d] - held).max(axis=1) / rows.l1, 1.0)
        if rows.intercept:  # slopes of one side are scaled down until their mean is 0
            size = np.abs(self.kinks).max(axis=1) + np.abs(self.w[:, -1])
            bounds = bounds - np.abs(sums[:, -1]) * size
        return values, np.maximum(bounds, 0.0)

    def advanced(self, rows: _Rows) -> _State:
        """Return the state after a step."""
        curvatures = 1.0 / (self.above / self.to_high + self.below / self.to_low)
        factors = [rows.factored(row) for row in curvatures]
        stationary = rows.penalties * self.w + rows.backward(self.slopes)

        def direction(high: Any, low: Any) -> _Direction:
            """Return where the products with the distances to the ends become these."""
            more = high / self.to_high - low / self.to_low - self.margins
            right = rows.backward(curvatures * more) - stationary
            w = np.array([f.solve(part) for f, part in zip(factors, right, strict=True)])
            margins = rows.forward(w)
            slopes = curvatures * (margins - more)
            above = (high + self.above * slopes) / self.to_high - self.above
            below = (low - self.below * slopes) / self.to_low - self.below
            return _Direction(w, margins, slopes, above, below)

        barrier = self._barrier(rows)
        guess = direction(0.0, 0.0)
        left = self._moved(guess, self._longest(guess))._barrier(rows)
        aim = (barrier * (left / barrier) ** CENTRING)[:, None]
        chosen = direction(aim + guess.slopes * guess.above, aim - guess.slopes * guess.below)
        return self._moved(chosen, TOWARDS_END * self._longest(chosen))

    def _barrier(self, rows: _Rows) -> Vector:
        """Return what the products of distances and multipliers are in the mean."""
        return 0.5 * _means(rows, self.to_high * self.above + self.to_low * self.below)

    def _longest(self, move: _Direction) -> Vector:
        """Return how much of a move, at most all of it, keeps everything positive."""
        falls = (
            move.slopes / self.to_high,
            -move.slopes / self.to_low,
            -move.above / self.above,
            -move.below / self.below,
        )
        steepest = np.max([fall.max(axis=1) for fall in falls], axis=0)
        return np.asarray(1.0 / np.maximum(steepest, 1.0))

    def _moved(self, move: _Direction, shares: Vector) -> _State:
        t = shares[:, None]
        return _State(
            self.w + t * move.w,
            self.kinks,
            self.low,
            self.high,
            self.margins + t * move.margins,
            self.to_low + t * move.slopes,
            self.to_high - t * move.slopes,
            self.above + t * move.above,
            self.below + t * move.below,
        )


def _means(rows: _Rows, numbers: Matrix) -> Vector:
    """Return the mean of each row of a matrix by the data's weights."""
    return np.asarray(numbers @ rows.shares)
