"""Second-order models of a sum over rows: their cost and minimum, and how much of a step to do."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrs

from accelegrad.errors import Vector
from accelegrad.linalg import cholesky_factor, with_unit_diagonal
from accelegrad.models.linear_model import LinearModel
from accelegrad.models.matrix import MOST_SAMPLED, PAIR, CurvedRows, Matrix, blas_seconds
from accelegrad.proofs.fenchel import Terms
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
#: Two units of rounding: values that differ by less may be equal.
VALUE_ROUNDING = 4e-16
#: Caution is divided by this after a step that was not too long, and multiplied otherwise; below
#: the least it is 0 (with 0.01, one-vs-rest on digits takes more than 60 steps).
CAUTION_FACTOR, LEAST_CAUTION = 10.0, 0.03
#: What a line search says that finds no lower value.
NO_FALL = (
    "the value falls no further along the direction of descent: what is left is below rounding "
    "error, or the gradient is wrong."
)


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
        row = min(blas_seconds(d, storage.dense), PAIR * storage.pairs_per_row)
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
    rounding = VALUE_ROUNDING * abs(value)  # a fall within rounding need not happen
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
