"""The second derivatives of a sum over rows from a sample of them, and their cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrs

from accelegrad.errors import Vector
from accelegrad.linalg import cholesky_factor, with_unit_diagonal
from accelegrad.models.linear_model import LinearModel
from accelegrad.models.matrix import MOST_SAMPLED, CurvedRows, Matrix

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
#: A column whose curvature is below this share of the largest may have been missed by the sample.
RARE_COLUMN = 1e-3
#: The least curvature of a coordinate, as a share of the loss's largest curvature.
FLATTEST = 1e-8


class Factored:
    """A factored matrix of second derivatives; `cost` is that of the next one."""

    scaled = True

    def __init__(self, matrix: Matrix, cost: float, patience: float) -> None:
        self._units, scaled = with_unit_diagonal(matrix)
        self._factor = cholesky_factor(scaled)
        self.cost, self.patience = cost, patience

    def solve(self, vector: Vector) -> Vector:
        """Return the inverse times a vector."""
        # LAPACK directly: for small matrices the checks of SciPy's functions take longer.
        solution: Vector = dpotrs(self._factor, self._units * vector, lower=1, overwrite_b=1)[0]
        return self._units * solution


class Diagonal:
    """One number per coordinate, of which only the proportions matter."""

    scaled = False

    def __init__(self, diagonal: Callable[[], Vector], cost: float, patience: float) -> None:
        self._diagonal = diagonal
        self.cost, self.patience = cost, patience

    @cached_property
    def _numbers(self) -> Vector:
        return self._diagonal()  # a pass over the data, only when needed

    def solve(self, vector: Vector) -> Vector:
        """Return the inverse times a vector."""
        return vector / self._numbers


class Costs(NamedTuple):
    """The cost of curvature, in seconds of which only the ratios matter."""

    n_samples: int
    n_parameters: int
    evaluation: float
    row: float
    factor: float
    fewest: int  # the rows of the smallest useful sample
    constant: bool  # whether the curvature is the same everywhere

    @classmethod
    def of(cls, model: LinearModel) -> Costs:
        """Estimate the costs from the shape of the data."""
        storage, n, d = model.storage, model.n_samples, model.n_parameters
        entry = DENSE_ENTRY if storage.dense else SPARSE_ENTRY
        return cls(
            n_samples=n,
            n_parameters=d,
            evaluation=max(entry * storage.entries + ROW * n, LEAST_EVALUATION),
            row=storage.gram_seconds_per_row(d),
            factor=FACTOR_PRODUCT * d**3 / 3,
            fewest=min(n, SAMPLED_PER_PARAMETER * d),
            constant=model.loss.name == "squared",
        )

    def of_sample(self, size: int) -> float:
        """Return the cost of the curvature of a sample, in evaluations."""
        return (size * self.row + self.factor) / self.evaluation

    @property
    def least(self) -> int:
        """The rows of the smallest useful sample; 0 if curvature is a last resort."""
        return self.fewest if self.of_sample(self.fewest) <= MOST_COSTLY else 0

    def sample(self, number: int) -> int:
        """Return the size of the `number`-th sample, counted from 1; 0: none."""
        n = self.n_samples
        if self.constant and self.of_sample(n) <= MOST_COSTLY:
            return n
        if self.n_parameters > MOST_PARAMETERS or self.of_sample(self.fewest) > NEVER_BEYOND_COST:
            return 0
        # A sample may take as long as an evaluation.
        rest = max(self.evaluation - self.factor, 0.0)
        cheap = int(rest / self.row) if self.row * n > rest else n
        size = max(self.fewest, cheap) * int(SAMPLE_GROWTH ** min(number - 1, 20))
        return size if size <= MOST_SAMPLED * n else n

    def price(self, number: int, n_curved: int | None = None) -> tuple[float, float]:
        """Return the cost of the `number`-th sample's curvature, and the steps before it pays."""
        size = self.sample(number)
        if self.constant and size == self.n_samples:
            return 0.0, 0.0  # one step with it finds the minimum
        if n_curved is not None:
            size = min(size, max(n_curved, 1))
        cost = self.of_sample(size) if size else math.inf
        return cost, 0.0 if cost <= MOST_COSTLY else cost


def second_derivative_matrix(model: LinearModel, rows: CurvedRows) -> Matrix:
    """Return second derivatives from drawn rows; columns that the sample misses get some too."""
    matrix = rows.gram()
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


def coordinate_curvatures(model: LinearModel) -> Vector:
    """Return one number per coordinate that evens out half of its scale."""
    squares = model.column_squares()
    if model.fit_intercept:
        squares = np.append(squares, 1.0)
    curvatures = model.loss.curvature * squares + model.l2
    largest = float(curvatures.max())
    if not largest > 0.0:
        return curvatures + 1.0
    # Full scaling suits badly scaled data, none suits rarely used columns (measured). A column
    # without curvature has no slope either, and stays.
    return np.sqrt(np.where(curvatures > 0.0, curvatures, largest)) * math.sqrt(largest)
