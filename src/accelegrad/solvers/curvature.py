"""Second-order models of a sum over rows: their cost and minimum, and how much of a step to do.

`DirectNewton` minimises small sums by them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.linalg.lapack import dpotrs

from accelegrad.errors import NonFiniteError, Vector
from accelegrad.linalg import UNIT, cholesky_factor, with_unit_diagonal
from accelegrad.models.linear_model import LinearModel, ModelPoint
from accelegrad.models.matrix import MOST_SAMPLED, CurvedRows, Matrix, blas_seconds
from accelegrad.proofs.fenchel import ColumnSums, Reach, Terms
from accelegrad.proofs.model_dual import ModelDual
from accelegrad.solvers.quadratic import DESCENT, Limits, Minimum, box_minimum

# Measured seconds, of which only the ratios matter (see also `accelegrad.models.matrix`): of an
# evaluation per dense entry, sparse entry and row, and the least; of a factorisation, per product.
DENSE_ENTRY, SPARSE_ENTRY, ROW, LEAST_EVALUATION = 0.6e-9, 1.5e-9, 1.5e-8, 5e-5
FACTOR_PRODUCT = 5e-11
#: The least sample size per parameter, and the growth factor from one sample to the next (half and
#: twice as much change nothing on 19 problems).
SAMPLED_PER_PARAMETER, SAMPLE_GROWTH = 15, 3
#: In evaluations: curvature that costs more is a last resort (with half of it, columns of very
#: different sizes take 8 times as long).
MOST_COSTLY = 12.0
#: In evaluations: curvature that costs more is never used (with twice as much, sparse least squares
#: take 6 times as long).
NEVER_BEYOND_COST = 300.0
#: The most entries of rows that are copied for a sample: 32 MB.
COPIED_ENTRIES = 1 << 22
#: The most parameters, or columns that move at a time: a matrix of their curvature takes 72 MB.
MOST_PARAMETERS = 3000
#: Up to this many columns, all may move; of more, those not at a kink and as many others, at least
#: this many. Chosen; `accelegrad bench --everyday --only l1` times the whole method.
FEW_COLUMNS = 100
#: A column whose curvature is below this share of the largest may have been missed by the sample.
RARE_COLUMN = 1e-3
#: A column varies if at least this share of its sum of squares is around its mean: some tens of
#: units of rounding.
CONSTANT = 1e-14
#: The least curvature of a coordinate, as a share of the loss's largest curvature.
FLATTEST = 1e-8
#: If a step this short gains nothing, rounding hides any further fall.
SHORTEST_STEP = 1e-12
#: Caution is divided by this after a step that was not too long, and multiplied otherwise; below
#: the least it is 0 (with 0.01, one-vs-rest on digits takes more than 60 steps).
CAUTION_FACTOR, LEAST_CAUTION = 10.0, 0.03
#: A bound is computed if the estimated gap is at most this many times the wanted one; chosen (half
#: and twice as much change nothing).
PROMISING = 10.0
#: Limit in seconds, by the estimates of `Costs`, for a matrix of second derivatives of all rows and
#: its factors (with 2.5e-3 20 shapes take 0.2 to 0.9 of the time of a run, with 5e-3 up to 1.8).
MOST_STEP_SECONDS = 3e-3
#: A value by products of columns counts if its relative error is at most this; chosen.
ACCURATE = 1e-9
#: What a line search says that finds no lower value.
NO_FALL = (
    "the value falls no further along the direction of descent: what is left is below rounding "
    "error, or the gradient is wrong."
)


#: Maps the value at a point to the wanted gap, 0 for none.
Goal: TypeAlias = Callable[[float], float]


class Factored:
    """A factored matrix of second derivatives; `cost` is that of the next one."""

    scaled = True

    def __init__(self, matrix: Matrix, cost: float = 0.0, patience: float = 0.0) -> None:
        self._units, scaled = with_unit_diagonal(matrix)
        self._factor = cholesky_factor(scaled)
        self.cost, self.patience = cost, patience

    def solve(self, vector: Vector) -> Vector:
        """Return the inverse times a vector."""
        # LAPACK directly: for small matrices the checks of SciPy's functions take longer.
        solution: Vector = dpotrs(self._factor, self._units * vector, lower=1, overwrite_b=1)[0]
        return self._units * solution


class Diagonal:
    """One number per coordinate, which evens out half of its scale."""

    scaled = False

    def __init__(self, model: LinearModel, cost: float, patience: float) -> None:
        self._model = model
        self.cost, self.patience = cost, patience

    @cached_property
    def _numbers(self) -> Vector:
        model, squares = self._model, self._model.column_squares()
        if model.fit_intercept:
            squares = np.append(squares, 1.0)
        curvatures = model.loss.curvature * squares + model.l2
        largest = float(curvatures.max())
        if not largest > 0.0:
            return curvatures + 1.0
        # Full scaling suits badly scaled data, none suits rarely used columns (measured). A column
        # without curvature has no slope either, and stays.
        return np.sqrt(np.where(curvatures > 0.0, curvatures, largest)) * math.sqrt(largest)

    def solve(self, vector: Vector) -> Vector:
        """Return the inverse times a vector."""
        return vector / self._numbers


class Sample(NamedTuple):
    """A sample of rows, and its curvature's cost in evaluations and the steps before it pays."""

    size: int  # 0: none
    cost: float
    patience: float


class Costs(NamedTuple):
    """The cost of curvature, in seconds of which only the ratios matter."""

    n_samples: int
    evaluation: float
    row: float
    factor: float
    fewest: int  # the rows of the smallest useful sample
    least: int  # the same, but 0 if curvature is a last resort
    never: bool  # whether curvature costs too much for that
    constant: bool  # whether the curvature is the same everywhere
    at_once: bool  # whether it is taken from all rows at once

    @classmethod
    def of(cls, model: LinearModel) -> Costs:
        """Estimate the costs from the shape of the data."""
        storage, n, d = model.storage, model.n_samples, model.n_parameters
        entry = DENSE_ENTRY if storage.dense else SPARSE_ENTRY
        evaluation = max(entry * storage.entries + ROW * n, LEAST_EVALUATION)
        row = min(blas_seconds(d, storage.dense), storage.pair * storage.pairs_per_row)
        factor = FACTOR_PRODUCT * d**3 / 3
        fewest, constant = min(n, SAMPLED_PER_PARAMETER * d), model.loss.name == "squared"
        cost_of_fewest = (fewest * row + factor) / evaluation
        return cls(
            n_samples=n,
            evaluation=evaluation,
            row=row,
            factor=factor,
            fewest=fewest,
            least=fewest if cost_of_fewest <= MOST_COSTLY else 0,
            never=d > MOST_PARAMETERS or cost_of_fewest > NEVER_BEYOND_COST,
            constant=constant,
            at_once=constant and (n * row + factor) / evaluation <= MOST_COSTLY,
        )

    @property
    def all_curvature(self) -> float:
        """That of second derivatives from all rows, and their factors."""
        return self.n_samples * self.row + self.factor

    def sample(self, number: int, n_curved: int | None = None) -> Sample:
        """Return the `number`-th sample, counted from 1, of `n_curved` rows with curvature."""
        n, size = self.n_samples, 0
        if self.at_once:
            size = n
        elif not self.never:
            # A sample may take as long as an evaluation.
            rest = max(self.evaluation - self.factor, 0.0)
            cheap = int(rest / self.row) if self.row * n > rest else n
            size = max(self.fewest, cheap) * int(SAMPLE_GROWTH ** min(number - 1, 20))
            size = size if size <= MOST_SAMPLED * n else n
        if self.constant and size == n:
            return Sample(n, 0.0, 0.0)  # one step with it finds the minimum
        drawn = size if n_curved is None else min(size, max(n_curved, 1))
        cost = (drawn * self.row + self.factor) / self.evaluation if size else math.inf
        return Sample(size, cost, 0.0 if cost <= MOST_COSTLY else cost)


def second_derivative_matrix(model: LinearModel, rows: CurvedRows) -> Matrix:
    """Return second derivatives from drawn rows; columns that the sample misses get some too."""
    matrix = rows.gram
    ends = np.arange(model.n_parameters)
    seen = matrix[ends, ends]
    if not seen.min() > RARE_COLUMN * seen.max():
        sizes = np.append(model.column_squares(), np.ones(int(model.fit_intercept)))
        mean = FLATTEST * model.loss.curvature
        if rows.n_drawn < rows.n_curved:
            mean = max(mean, rows.weight)
        matrix[ends, ends] = np.maximum(seen, mean * sizes)
    matrix.flat[: model.n_features * len(matrix) : len(matrix) + 1] += model.l2
    return matrix


def least_squares_matrix(model: LinearModel, l2: float) -> Matrix:
    """Return the second derivatives of least squares with this l2 term, the same everywhere."""
    matrix = model.gram_of_columns().copy()
    matrix.flat[: model.n_features * len(matrix) : len(matrix) + 1] += l2
    return matrix


def minimum_of_columns(
    terms: Terms, columns: Any, matrix: Matrix, gradient: Vector, point: Vector
) -> Minimum:
    """Return the minimum of a quadratic model; a free intercept is eliminated.

    `matrix` is for `columns` (None: all) and the intercept; the vectors are for all parameters.
    """
    d, target = terms.n_features, point.copy()
    if columns is None and terms.feasible_set is None and not terms.has_l1:
        move = Factored(matrix).solve(gradient)  # nothing has a kink
        return Minimum(point - move, 0.5 * float(gradient @ move))
    places: Any = np.arange(d) if columns is None else columns
    free = terms.fit_intercept and terms.intercept_is_free
    if terms.fit_intercept and not free:
        places = np.append(places, d)
    limits = Limits(np.append(np.full(d, terms.l1), 0.0)[places], *terms.ends[:, places])
    start, slopes = point[places], gradient[places]
    if not free:
        found = box_minimum(matrix, slopes, limits, start)
        target[places] = found.point
        return Minimum(target, found.fall)
    sums, total, slope = matrix[:-1, -1], float(matrix[-1, -1]), float(gradient[-1])
    reduced = matrix[:-1, :-1] - np.outer(sums, sums / total)
    # The intercept does all that a constant column can: what is left of it is rounding.
    constant = reduced.diagonal() <= CONSTANT * matrix.diagonal()[:-1]
    if constant.any():
        reduced[constant] = reduced[:, constant] = 0.0
    found = box_minimum(reduced, slopes - sums * (slope / total), limits, start)
    target[places] = found.point
    target[-1] = point[-1] - (slope + float(sums @ (found.point - start))) / total
    return Minimum(target, found.fall + 0.5 * slope * (slope / total))


def falls_enough(before: float, value: float, fall: float, share: float) -> bool:
    """Return whether a share of a step, with the promise `fall` in all, satisfies Armijo's rule."""
    rounding = 2.0 * UNIT * abs(value)  # a fall within rounding need not happen
    return value <= before + (rounding if fall <= rounding else -DESCENT * share * fall)


def shorter_share(value_at: Callable[[float], float], before: float, fall: float) -> float:
    """Return the first of 1/2, 1/4, ... of a step that lowers the value enough; 0 if none does."""
    share = 0.5
    while share >= SHORTEST_STEP:
        if falls_enough(before, value_at(share), fall, share):
            return share
        share *= 0.5
    return 0.0


def next_caution(caution: float, share: float) -> float:
    """Return the caution after a step of which this share was done."""
    if share < 1.0:
        return min(max(CAUTION_FACTOR * caution, LEAST_CAUTION), 1.0)
    return caution / CAUTION_FACTOR if caution > LEAST_CAUTION else 0.0


class DirectMinimum(NamedTuple):
    """A minimum, and the lower bound that proves it good enough."""

    point: Vector
    value: float
    bound: float
    steps: int
    slopes: Vector | None = None  # that prove the bound; None: those of least squares at the point


class DirectNewton:
    """Minima of a small smooth sum over rows for one set of terms after another, without a run.

    A step goes from w to the minimum of the second-order model around it. The slopes predicted
    there (`ModelPoint.slopes_at`) satisfy its optimality conditions, so they prove a gap an order
    smaller than the slopes at the point. Least squares take one step, and one Gram matrix serves
    all terms.
    """

    def __init__(self, model: LinearModel) -> None:
        self._is_least_squares = model.loss.name == "squared"
        # Without kernels: one Gram matrix does not pay for compiling; one per step does.
        self._rows = model.of_columns(None, model.l2) if self._is_least_squares else model
        self._first_reach: Reach | None = None

    @staticmethod
    def serves(model: LinearModel, terms: Terms) -> bool:
        """Return whether these steps are the fastest way to the minimum."""
        if not model.in_memory:
            return False
        if model.loss.name == "squared":  # one step, whatever it costs
            held = terms.hold_each_weight or terms.has_only_signs
            return held and model.n_features <= FEW_COLUMNS
        if not terms.hold_each_weight or math.isinf(model.loss.curvature):
            return False
        return Costs.of(model).all_curvature <= MOST_STEP_SECONDS

    def minimum(
        self, terms: Terms, start: Vector, goal: Goal, most_steps: int = 100
    ) -> DirectMinimum | None:
        """Return a minimum that is proved good enough; None if these steps find none.

        NumPy may warn of overflow, which is for the caller to ignore.
        """
        found = self._by_products(terms, start, goal) if self._is_least_squares else None
        if found is not None:
            return found
        model = self._rows if self._rows.l2 == terms.l2 else self._rows.with_l2(terms.l2)
        dual = ModelDual(model, terms)

        def value_between(start: ModelPoint, end: ModelPoint, share: float) -> float:
            between = model.between(start, end, share)
            return terms.objective(between.mean_loss, between.w)

        at, caution, bound = ModelPoint(model, start), 1.0, 0.0
        value = terms.objective(at.mean_loss, start)
        for number in range(1, most_steps + 1):
            try:
                if self._is_least_squares:
                    matrix = least_squares_matrix(self._rows, terms.l2)
                else:
                    rows = model.sampled(model.n_samples, 0, at, caution)
                    matrix = second_derivative_matrix(model, rows)
                aim = minimum_of_columns(terms, None, matrix, at.gradient, at.w)
            except NonFiniteError:
                return None
            whole = ModelPoint(model, aim.point)
            lower, share = terms.objective(whole.mean_loss, whole.w), 1.0
            wanted = goal(lower)
            if self._is_least_squares or aim.fall <= PROMISING * wanted:
                bound = max(bound, dual.at_slopes(at.slopes_at(whole, caution)))
                if lower - bound <= wanted:
                    return DirectMinimum(whole.w, lower, bound, number, dual.proof.slopes)
            if self._is_least_squares and not lower < value:
                return None  # this is the minimum up to rounding, and it is not proved
            if falls_enough(value, lower, aim.fall, 1.0):
                at, value = whole, lower
            else:
                share = shorter_share(partial(value_between, at, whole), value, aim.fall)
                if share == 0.0:
                    return None
                at = ModelPoint(model, at.w + share * (whole.w - at.w))
                value = terms.objective(at.mean_loss, at.w)
                if value - bound <= goal(value):
                    return DirectMinimum(at.w, value, bound, number, dual.proof.slopes)
            caution = next_caution(caution, share)
        return None

    @cached_property
    def _sums(self) -> ColumnSums:
        return ColumnSums(self._rows)

    def _by_products(self, terms: Terms, start: Vector, goal: Goal) -> DirectMinimum | None:
        """Return a minimum proved by products of columns; None if that is not enough."""
        if not (terms.gets_tight and terms.holds_origin and terms.intercept_is_free):
            return None
        matrix = least_squares_matrix(self._rows, terms.l2)
        slopes = self._sums.slopes_at_zero + matrix @ start
        point = minimum_of_columns(terms, None, matrix, slopes, start).point
        known = self._sums.at(point)
        value = terms.objective(known.mean_loss, point)
        if not known.error <= ACCURATE * value < math.inf:  # also if something has overflowed
            return None
        # The value may be too low by its error, which the gap has to cover.
        bound = terms.lower_bound(known.slopes, lambda: self._reach(terms)) - known.error
        return DirectMinimum(point, value, bound, 1) if value - bound <= goal(value) else None

    def _reach(self, terms: Terms) -> Reach:
        if self._first_reach is None:
            self._first_reach = ModelDual(self._rows, terms).reach()
        return replace(self._first_reach, terms=terms)
