"""The second derivatives of a linear model from a sample of its rows, and what they cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dpotrf, dpotrs

from accelegrad import kernels
from accelegrad.errors import NonFiniteError, Vector
from accelegrad.problems.linear_model import Evaluation as ModelEvaluation
from accelegrad.problems.linear_model import LinearModel
from accelegrad.problems.losses import Loss
from accelegrad.proofs.null_space import with_unit_diagonal

Matrix = npt.NDArray[np.float64]
Rows: TypeAlias = npt.NDArray[np.int64] | None  # None: all of them

# Seconds, measured, of which only the ratios matter. Of an evaluation: an entry of X, and a row.
DENSE_ENTRY, SPARSE_ENTRY, ROW = 0.6e-9, 1.5e-9, 1.5e-8
LEAST_EVALUATION = 5e-5  # of whatever size
LEAST_ROW = 1e-10  # of a Gram matrix of empty rows: it takes no time, but is not divided by
# Of a copy of some rows and products with them, of which there are some: in evaluations of so many
# rows, and beside that.
PRODUCTS, LEAST_PRODUCTS = 10.0, 5e-4
# Of a Gram matrix: an entry of a row in dense and in sparse storage, and a product, by BLAS; and a
# product of two entries by the kernel for short sparse rows. Of a factorisation: a product.
SCALED, FILLED_IN, BLAS_PRODUCT, PAIR, FACTOR_PRODUCT = 3e-9, 1e-8, 3e-11, 1.1e-9, 5e-11
#: The least number of rows of a sample, a parameter; more while it costs no more than so many
#: evaluations. Each sample is so many times as large as the one before.
SAMPLED, CHEAP, GROWTH = 15, 1.0, 3
#: Of the rows: to draw and copy more takes as long as all of them, which tell more.
MOST_SAMPLED = 0.3
#: In evaluations: curvature that costs more is a last resort; that of a smoothed loss pays sooner.
DEAREST, DEAREST_SMOOTHED = 12.0, 60.0
#: What is beyond all bounds, in evaluations and in parameters.
TOO_DEAR, TOO_MANY = 300.0, 3000
#: A column that bends less than this share of the one that bends most may have been missed.
RARE = 1e-3
#: Of the loss's largest curvature: no coordinate is taken to bend less, whatever rows say here.
FLATTEST = 1e-8
# Entries of a block of rows that is copied for BLAS: the processor's cache holds it.
_BLOCK_ENTRIES = 1 << 15
# What is added to a diagonal of ones, until the matrix has a Cholesky factor.
_SHIFTS = (1e-13, 1e-11, 1e-9, 1e-7, 1e-5, 1e-3)


class Factored:
    """A matrix of second derivatives, factored; `cost` is what the next one takes."""

    scaled = True

    def __init__(self, matrix: Matrix, cost: float, patience: float) -> None:
        self._units, scaled = with_unit_diagonal(matrix)
        self._factor = _factor(scaled)
        self.cost, self.patience = cost, patience

    def solve(self, vector: Vector) -> Vector:
        """Return the inverse times a vector."""
        # LAPACK itself: what SciPy's functions do beside takes longer, where matrices are small.
        solution: Vector = dpotrs(self._factor, self._units * vector, lower=1, overwrite_b=1)[0]
        return self._units * solution


def _factor(matrix: Matrix) -> Matrix:
    """Return the Cholesky factor of a matrix that may be singular, up to rounding or a bit more."""
    ends = np.arange(len(matrix))
    for shift in _SHIFTS:
        matrix[ends, ends] += shift
        factor: Matrix
        factor, failed = dpotrf(matrix, lower=1, clean=0)
        if not failed:
            return factor
    raise NonFiniteError("the second derivatives are not finite")


class Diagonal:
    """A number a coordinate, of which only the proportions mean something."""

    scaled = False

    def __init__(self, diagonal: Callable[[], Vector], cost: float, patience: float) -> None:
        self._diagonal = diagonal
        self.cost, self.patience = cost, patience

    @cached_property
    def _numbers(self) -> Vector:
        return self._diagonal()  # a pass over the data, where it is asked for

    def solve(self, vector: Vector) -> Vector:
        """Return the inverse times a vector."""
        return vector / self._numbers


class Costs(NamedTuple):
    """What curvature costs, in seconds on some machine, of which only the ratios matter."""

    n_samples: int
    n_parameters: int
    evaluation: float
    row: float
    factor: float
    constant: bool  # whether the curvature is the same everywhere
    dearest: float  # in evaluations: what costs more is a last resort

    @classmethod
    def of(cls, model: LinearModel) -> Costs:
        """Estimate them from the shape of the data."""
        entry = DENSE_ENTRY if isinstance(model.X, np.ndarray) else SPARSE_ENTRY
        seconds = entry * stored_entries(model) + ROW * model.n_samples
        return cls(
            n_samples=model.n_samples,
            n_parameters=model.n_parameters,
            evaluation=max(seconds, LEAST_EVALUATION),
            row=min(_blas_row(model), _pairs_row(model)),
            factor=FACTOR_PRODUCT * model.n_parameters**3 / 3,
            constant=model.loss.name == "squared",
            dearest=DEAREST_SMOOTHED if model.loss.smoothing > 0.0 else DEAREST,
        )

    def of_sample(self, size: int) -> float:
        """Return the cost of the curvature of a sample, in evaluations."""
        return (size * self.row + self.factor) / self.evaluation

    def of_products(self, size: int) -> float:
        """Return the cost of some products with a sample, in evaluations."""
        return PRODUCTS * size / self.n_samples + LEAST_PRODUCTS / self.evaluation

    @property
    def least(self) -> int:
        """The rows of the smallest sample that is of use; 0 where curvature is a last resort."""
        return self._fewest if self.of_sample(self._fewest) <= self.dearest else 0

    @property
    def _fewest(self) -> int:
        return min(self.n_samples, SAMPLED * self.n_parameters)

    @property
    def _is_beyond_bounds(self) -> bool:
        dear = self.of_sample(self._fewest) > max(self.dearest, TOO_DEAR)
        return dear or self.n_parameters > TOO_MANY

    def sample(self, number: int) -> int:
        """Return how many rows to take for the first time (1), the second, and so on; 0: none."""
        n = self.n_samples
        if self.constant and self.of_sample(n) <= self.dearest:
            return n
        if self._is_beyond_bounds:
            return 0
        cheap = int((CHEAP * self.evaluation - self.factor) / max(self.row, LEAST_ROW))
        size = max(self._fewest, cheap) * int(GROWTH ** min(number - 1, 20))
        return size if size <= MOST_SAMPLED * n else n

    def price(self, number: int, bent: int | None = None) -> tuple[float, float]:
        """Return the cost of the `number`-th sample's curvature, and how long to do without.

        Parameters
        ----------
        number : int
            The sample's.
        bent : int, optional
            How many rows bend, as far as known: others cost nothing.
        """
        size = self.sample(number)
        if self.constant and size == self.n_samples:
            return 0.0, 0.0  # one step with it, and the minimum is found
        if bent is not None:
            size = min(size, max(bent, 1))
        cost = self.of_sample(size) if size else math.inf
        return cost, 0.0 if cost <= self.dearest else cost


def stored_entries(model: LinearModel) -> int:
    """Return how many entries of X are stored."""
    X: Any = model.X
    return int(X.size if isinstance(X, np.ndarray) else X.nnz)


def _blas_row(model: LinearModel) -> float:
    """Return what a row costs in a Gram matrix by BLAS."""
    d = model.n_parameters
    return d * ((SCALED if isinstance(model.X, np.ndarray) else FILLED_IN) + BLAS_PRODUCT * d)


def _pairs_row(model: LinearModel) -> float:
    """Return what a row costs, on the average, where each pair of entries is taken by itself."""
    X: Any = model.X
    if isinstance(X, np.ndarray) or not kernels.wanted_for_rows(kernels.readable(X)):
        return math.inf
    if model not in _pairs:
        lengths = np.diff(X.indptr).astype(np.float64)
        _pairs[model] = float((lengths * (lengths + 1.0)).mean()) / 2.0
    return PAIR * _pairs[model]


# Pairs of entries of a row, on the average: asked for at every matrix, and rows are many.
_pairs: WeakKeyDictionary[LinearModel, float] = WeakKeyDictionary()


def bent_rows(at: ModelEvaluation) -> npt.NDArray[np.bool_]:
    """Tell which rows' losses, linear beyond corners and parabolas between, are bent just here."""
    loss, theta = at.model.loss, at.derivatives
    if loss.classification:  # one end of the domain is 0
        sizes = np.abs(theta)
        return np.asarray((sizes > 0.0) & (sizes < loss.lipschitz))
    low, high = loss.domain(at.model.y)
    bent = (theta > low) & (theta < high)
    if loss.shape.epsilon > 0.0:  # the zone without cost
        bent &= theta != 0.0
    return np.asarray(bent)


def second_derivatives(loss: Loss, at: ModelEvaluation, caution: float) -> Vector:
    """Return l'' at the rows' margins, for all losses but the logistic one a constant or 0.

    With caution they are not 0 beyond a corner, but that share of what bends a parabola with its
    lowest point where the loss is lowest and the same slope here: with all of it no step is too
    long.
    """
    theta, y, margins = at.derivatives, at.model.y, at.margins
    if loss.name == "logistic":
        size = np.abs(theta)
        return size * (1.0 - size)
    bent = bent_rows(at)
    derivatives = np.where(bent, loss.curvature, 0.0)
    if caution == 0.0:
        return derivatives
    distance = y * margins - 1.0 if loss.classification else margins - y
    with np.errstate(divide="ignore", invalid="ignore"):
        secant = np.abs(theta / distance)
    beyond = ~bent & (theta != 0.0) & (secant < loss.curvature)
    return np.where(beyond, caution * secant, derivatives)


def drawn(
    weights: Vector, size: int, generator: Callable[[], np.random.Generator]
) -> tuple[Rows, Vector]:
    """Return rows and weights that stand for all: None and the weights themselves if few enough.

    Rows are drawn by their weights, and then weigh the same, so that none is wasted on a row that
    does not bend. The generator is made where it is needed.
    """
    bent = np.flatnonzero(weights)
    if bent.size <= min(size, MOST_SAMPLED * weights.size):
        return bent, weights[bent]
    if size >= bent.size:
        return None, weights
    ends = np.cumsum(weights)
    # One from each of so many parts of equal weight: in order, and with less noise.
    places = (np.arange(size) + generator().random(size)) * (ends[-1] / size)
    chosen = np.searchsorted(ends, places, side="right")
    return np.minimum(chosen, weights.size - 1), np.full(size, ends[-1] / size)


def second_derivative_matrix(
    model: LinearModel,
    bends: Vector,
    squares: Callable[[], Vector],
    rows: Rows,
    weights: Vector,
) -> Matrix:
    """Return the objective's second derivatives, from rows and weights that stand for all.

    Parameters
    ----------
    model : LinearModel
        The model.
    bends : Vector
        p_i l'' of all rows.
    squares : callable
        Returns the columns' mean squares: a column that the sample misses, or only rows beyond a
        corner have, still bends something.
    rows, weights
        As `drawn` returns them.
    """
    matrix = gram(model, rows, weights)
    ends = np.arange(model.n_parameters)
    seen = matrix[ends, ends]
    if not seen.min() > RARE * seen.max():
        sizes = np.append(squares(), np.ones(int(model.fit_intercept)))
        mean = FLATTEST * model.loss.curvature
        if rows is not None and rows.size < np.count_nonzero(bends):
            mean = max(mean, float(bends.sum()))
        matrix[ends, ends] = np.maximum(seen, mean * sizes)
    ends = ends[: model.n_features]
    matrix[ends, ends] += model.l2
    return matrix


def gram(model: LinearModel, rows: Rows, weights: Vector) -> Matrix:
    """Return sum_k weights_k a_i a_i' over some rows, with a 1 in each row for an intercept."""
    d, X = model.n_features, model.X
    matrix = np.zeros((model.n_parameters, model.n_parameters), order="F")
    by_pairs = _pairs_row(model) < _blas_row(model)
    matrix[:d, :d] = (_sparse_gram if by_pairs else _blocked_gram)(model, rows, weights)
    if model.fit_intercept:
        matrix[d, :d] = matrix[:d, d] = _combination(X, rows, weights)
        matrix[d, d] = weights.sum()
    return matrix


def _combination(X: Any, rows: Rows, weights: Vector) -> Vector:
    """Return the sum of some rows by their weights, without copying many of them."""
    if rows is not None and rows.size >= X.shape[0] // 10:
        weights = np.bincount(rows, weights, X.shape[0]).astype(np.float64, copy=False)
        rows = None
    total: Vector = weights @ (X if rows is None else X[rows])
    return total


def _sparse_gram(model: LinearModel, rows: Rows, weights: Vector) -> Matrix:
    from accelegrad.kernels.arrays import read_only
    from accelegrad.kernels.gram import add_gram

    half = np.zeros((model.n_features, model.n_features))
    chosen = np.arange(model.n_samples) if rows is None else rows
    data, indices, indptr = model.kernel_data().matrix
    add_gram(data, indices, indptr, read_only(chosen), read_only(weights), half)
    diagonal = np.diag(half).copy()
    half += half.T
    np.fill_diagonal(half, diagonal)
    return half


def _blocked_gram(model: LinearModel, rows: Rows, weights: Vector) -> Matrix:
    """Add up the Gram matrices of blocks of rows, each copied."""
    n, d = weights.size, model.n_features
    if rows is None and isinstance(model.X, np.ndarray) and model.dtype == np.float64:
        least = float(weights.min())
        if least == weights.max():  # as those of least squares are
            return least * (model.X.T @ model.X)
    total, roots = np.zeros((d, d)), np.sqrt(weights)
    length = max(1, _BLOCK_ENTRIES // d)
    room = np.empty((min(length, n), d))
    for first in range(0, n, length):
        part = slice(first, first + length)
        scaled = room[: min(length, n - first)]
        chosen: Any = part if rows is None else rows[part]
        if rows is not None and isinstance(model.X, np.ndarray) and model.dtype == np.float64:
            np.take(model.X, chosen, axis=0, out=scaled, mode="clip")  # faster than indexing
            scaled *= roots[part, None]
        else:
            block: Any = model.X[chosen]
            dense = block if isinstance(block, np.ndarray) else block.toarray()
            np.multiply(dense, roots[part, None], out=scaled)
        total += scaled.T @ scaled
    return total


def coordinate_curvatures(model: LinearModel, squares: Vector) -> Vector:
    """Return numbers a coordinate that even out its scale by half.

    Between the mean squares of columns, which suit badly scaled data, and no scaling at all, which
    suits columns that differ because some are rarely used (measured).
    """
    if model.fit_intercept:
        squares = np.append(squares, 1.0)
    bends = model.loss.curvature * squares + model.l2
    largest = float(bends.max())
    return np.sqrt(np.maximum(bends, 1e-12 * largest) * largest) if largest > 0 else bends + 1.0
