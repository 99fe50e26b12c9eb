"""Newton's method for multinomial logistic regression, with directions by conjugate gradients.

With s_i the distribution of row i over the classes, the second derivatives are the l2 term plus
sum_i p_i (diag(s_i) - s_i s_i') between classes, times a_i a_i': their products take one with X and
one with its transpose. Rows whose class is clear hardly count, and are left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.lapack import dtrtri

from accelegrad import kernels
from accelegrad.errors import LineSearchError, Vector
from accelegrad.linalg import UNIT, cholesky_factor, norm, with_unit_diagonal
from accelegrad.models.matrix import Products, RowNumbers, column_squares, gram_matrix
from accelegrad.models.multinomial import (
    ClassesPoint,
    Matrix,
    MultinomialModel,
    PartedClasses,
    softmax,
)
from accelegrad.rules.base import Array, Evaluated, Oracle, Step, StepRule, inner
from accelegrad.solvers.curvature import COPIED_ENTRIES, NO_FALL

# Measured on seven data sets of several classes with alpha = 1e-5 and 1e-3, unless it says chosen.
#: The largest share of the gradient that a direction leaves (less for small gradients), and of the
#: curvature that is left out per unit of that (0.1 to 0.5 take as long).
LEFT, LEFT_OUT = 0.25, 0.04
#: Most products with the second derivatives per direction; chosen.
MOST_PRODUCTS = 250
#: The share of the first slope at which a line search ends, and its most trials; chosen.
FLAT, TRIALS = 0.1, 30
#: Most rows per parameter of a class for a block of curvature.
ROWS_PER_PARAMETER = 30
#: Rows in parts are sampled, to bound the memory: at least this many rows, and at least
#: `ROWS_PER_PARAMETER` per parameter. Chosen.
LEAST_SAMPLE = 1 << 14
#: Blocks are renewed after so many products (digits: 1.3 times as long with 8, 1.1 with 40, 2.2
#: without blocks).
PRODUCTS_WITH_BLOCKS = 16


class TruncatedNewtonState(NamedTuple):
    """The last point, and the size of the first gradient."""

    iteration: int
    point: Array
    value: float
    gradient: Array
    first_residual: float
    step_size: float


@dataclass(frozen=True)
class TruncatedNewton(StepRule):
    r"""Newton's method with preconditioned conjugate gradients and an exact line search.

    A direction d is the result of conjugate gradients for :math:`H d = -g`. These end when the
    preconditioned residual is at most the share :math:`\min(1/4, \sqrt{\|g\| / \|g_0\|})` of the
    first one. The step ends where the slope along d is a tenth of the first one.

    References
    ----------
    R. S. Dembo, S. C. Eisenstat, T. Steihaug: Inexact Newton methods. SIAM Journal on Numerical
    Analysis 19, 1982. C.-J. Lin, R. C. Weng, S. S. Keerthi: Trust region Newton method for
    large-scale logistic regression. Journal of Machine Learning Research 9, 2008.
    """

    title = "Newton"

    curved: CurvedClasses

    def init(self, x0: Array) -> TruncatedNewtonState:
        """Return the state before the first evaluation."""
        return TruncatedNewtonState(0, x0, math.inf, 0 * x0, 0.0, 0.0)

    def step(self, state: TruncatedNewtonState, oracle: Oracle) -> Step:
        """Evaluate the start, or go to the lowest point along the next direction."""
        if state.iteration == 0:
            found = oracle(state.point)
            residual = self.curved.residual(found.point, found.gradient)
            return Step(self._at(state, found)._replace(first_residual=residual), found, 0.0)
        direction = self._direction(state)
        slope = -inner(state.gradient, direction)
        if not slope > 0.0:
            raise LineSearchError("no direction leads down: rounding error allows no more.")
        t, trial = self._lowest(state, direction, slope, oracle)
        return Step(self._at(state, trial)._replace(step_size=t), trial, 0.0)

    def _lowest(
        self, state: TruncatedNewtonState, direction: Array, slope: float, oracle: Oracle
    ) -> tuple[float, Evaluated]:
        """Return a nearly optimal step length, and the evaluation there."""
        line = self.curved.along(state.point, direction)
        for highest in (FLAT, 0.0):
            t = _flat(line, slope, highest)
            trial = oracle(state.point + t * direction)
            if _acceptable(state, trial):
                return t, trial
        raise LineSearchError(NO_FALL)

    def _at(self, state: TruncatedNewtonState, found: Evaluated) -> TruncatedNewtonState:
        return state._replace(
            iteration=state.iteration + 1,
            point=found.point,
            value=found.value,
            gradient=found.gradient,
        )

    def _direction(self, state: TruncatedNewtonState) -> Array:
        size = self.curved.residual(state.point, state.gradient)
        left = min(LEFT, math.sqrt(size / state.first_residual)) if size > 0.0 else LEFT
        quadratic = self.curved.quadratic(state.point, LEFT_OUT * left)
        residual = -quadratic.arranged(state.gradient)
        conjugate = quadratic.precondition(residual)
        square = first = inner(residual, conjugate)
        direction = 0.0 * residual
        for _ in range(MOST_PRODUCTS):
            product = quadratic.product(conjugate)
            bend = inner(conjugate, product)
            if not 0.0 < bend < math.inf:
                break
            direction += square / bend * conjugate
            product *= square / bend
            residual -= product
            solved = quadratic.precondition(residual)
            before, square = square, inner(residual, solved)
            if not square > left * left * first:
                break
            conjugate *= square / before
            conjugate += solved
        return quadratic.vector(direction)

    def output(self, state: TruncatedNewtonState) -> Array:
        """Return the last point."""
        return state.point


def _acceptable(state: TruncatedNewtonState, trial: Evaluated) -> bool:
    if trial.value < state.value:
        return True
    # If values differ only by rounding, a smaller gradient shows that the trial is better.
    near = trial.value <= state.value + 2.0 * UNIT * abs(state.value)
    return near and 4.0 * trial.squared_norm <= inner(state.gradient, state.gradient)


def _flat(line: ClassesLine, slope: float, highest: float) -> float:
    """Return where the slope, -`slope` at 0, is from -`FLAT` to `highest` times `slope`."""
    low, high, t = 0.0, math.inf, 1.0
    for _ in range(TRIALS):
        first, second = line.derivatives(t)
        if -FLAT * slope <= first <= highest * slope:
            return t
        low, high = (t, high) if first < 0.0 else (low, t)
        middle = 2.0 * t if math.isinf(high) else 0.5 * (low + high)
        newton = t - first / second if second > 0.0 else math.nan
        t = newton if low < newton < min(high, 10.0 * t) else middle
    return low if low > 0.0 else t


class CurvedClasses:
    """Curvature of a multinomial model with l2 > 0; caches the last point and preconditioner."""

    def __init__(self, model: MultinomialModel) -> None:
        self.model = model
        self._at: ClassesPoint | None = None
        # The mean row of each class, as columns, weighted by the rows' curvature.
        self._means: Matrix | None = None
        self._blocks: Matrix | None = None
        self.n_products = 0  # with second derivatives, since blocks were made
        self._entries = model.rows.storage.entries
        # Whether all rows and new blocks cost little: weights then equal repeated rows.
        self._has_few_entries = self._entries < kernels.FEW_ENTRIES
        self._size = model.n_features + int(model.rows.fit_intercept)

    def value_and_gradient(self, x: Vector) -> tuple[float, Vector]:
        """Return value and gradient, and keep what is known at the point."""
        self._at, self._means = self.model.at(x), None
        return self._at.value, self._at.gradient

    def residual(self, point: Vector, gradient: Vector) -> float:
        """Return about the norm of the gradient at the best intercepts, which dual points need."""
        model = self.model
        W, b = model.split(gradient)
        if not model.rows.fit_intercept:
            return norm(W.ravel())
        at = self._known(point)
        if self._means is None:
            sums, rows = model.total("curvature", _curved_sums, at)
            self._means = rows / np.maximum(sums, np.finfo(np.float64).tiny)
        return norm((W - b[:, None] * self._means.T).ravel())

    def expected_gap(self, point: Vector) -> float:
        """Return the gap that the dual is expected to prove at a point."""
        residual = self.residual(point, self._known(point).gradient)
        return residual * residual / (2.0 * self.model.l2)

    def along(self, point: Vector, direction: Vector) -> ClassesLine:
        """Return the function along a direction: one pass, then none over X."""
        model, W, D = self.model, *(self.model.split(x)[0] for x in (point, direction))
        terms = model.l2 * float(np.vdot(W, D)), model.l2 * float(np.vdot(D, D))
        return ClassesLine(model, self._known(point), model.at(point + direction), *terms)

    def quadratic(self, point: Vector, left_out: float) -> LocalClasses:
        """Return the second derivatives at a point, except for the share `left_out`."""
        model, at = self.model, self._known(point)
        s, weights = at.distributions, _weights(at)
        lengths = model.rows.row_squares() + float(model.rows.fit_intercept)
        importance = weights.sum(axis=1) * lengths
        rows = self._rows_that_count(importance, left_out)
        products = None if rows is None else Products(model.rows.X[rows])
        kept = slice(None) if rows is None else rows
        inverse = self._preconditioner(weights, importance, rows)
        shares = model.rows.shares[kept, None]
        return LocalClasses(self, products, s[kept], shares, inverse)

    def _known(self, point: Vector) -> ClassesPoint:
        if self._at is None or not np.array_equal(self._at.point, point):
            self.value_and_gradient(point)
        assert self._at is not None
        return self._at

    def _rows_that_count(self, importance: Vector, left_out: float) -> RowNumbers | None:
        """Return the rows without the least important ones; None: all rows."""
        model = self.model
        if self._has_few_entries:
            return None
        order = np.argsort(importance)
        sums = np.cumsum(importance[order])
        first = int(np.searchsorted(sums, left_out * sums[-1]))
        count = model.n_samples - first
        entries = self._entries * count / model.n_samples
        if count == model.n_samples or entries > COPIED_ENTRIES:
            return None
        return np.sort(order[first:])

    def _preconditioner(
        self, weights: Matrix, importance: Vector, rows: RowNumbers | None
    ) -> Matrix:
        """Return factored blocks of curvature per class, or one number per parameter."""
        if self.model.n_classes * self._size**2 > max(COPIED_ENTRIES, self._entries):
            return self._diagonal(weights, rows)
        if self._has_few_entries or self._blocks is None or self.n_products >= PRODUCTS_WITH_BLOCKS:
            self._blocks, self.n_products = self._factored(weights, importance), 0
        return self._blocks

    def _diagonal(self, weights: Matrix, rows: RowNumbers | None) -> Matrix:
        model = self.model
        X, weights = (
            (model.rows.X, weights) if rows is None else (model.rows.X[rows], weights[rows])
        )
        total = model.l2 + np.array([column_squares(X, of_class) for of_class in weights.T]).T
        if model.rows.fit_intercept:
            total = np.vstack([total, np.maximum(weights.sum(axis=0), np.finfo(np.float64).tiny)])
        return np.asarray(1.0 / total.T)

    def _factored(self, weights: Matrix, importance: Vector) -> Matrix:
        """Return the inverse Cholesky factors of the classes' blocks, one if all agree."""
        model, X = self.model, self.model.rows.X
        rows, times = _drawn(importance, ROWS_PER_PARAMETER * self._size)
        alike = bool((weights == weights[:, :1]).all())
        drawn = weights[rows] * times[:, None]
        blocks = []
        for c in range(1 if alike else model.n_classes):
            matrix = gram_matrix(X, rows, drawn[:, c], intercept=model.rows.fit_intercept)
            ends = np.arange(model.n_features)
            matrix[ends, ends] += model.l2
            blocks.append(_inverse_factor(matrix))
        return np.array(blocks)


class SampledClasses(CurvedClasses):
    """`CurvedClasses` of rows in parts, by a sample in memory; a step takes two passes."""

    model: PartedClasses

    def __init__(self, model: PartedClasses) -> None:
        super().__init__(model)
        self._sample: CurvedClasses | None = None

    def quadratic(self, point: Vector, left_out: float) -> LocalClasses:
        """Return the second derivatives at a point from rows in memory, the same at all points."""
        if self._sample is None:
            model, n = self.model, self.model.n_samples
            most = COPIED_ENTRIES * n // max(1, self._entries + n * model.n_classes)
            count = max(1, min(most, max(LEAST_SAMPLE, ROWS_PER_PARAMETER * self._size)))
            rows = np.arange(n)
            if count < n:
                rows = np.unique(np.random.default_rng(0).integers(n, size=count))
            self._sample = CurvedClasses(model.of_rows(rows, model.l2))
        return self._sample.quadratic(point, left_out)


class LocalClasses:
    """The second derivatives at a point, from the rows that count (`products`; None: all)."""

    def __init__(
        self,
        curved: CurvedClasses,
        products: Products | None,
        distributions: Matrix,
        shares: Matrix,
        inverse: Matrix,
    ) -> None:
        self._curved, self._model = curved, curved.model
        self._products = curved.model.rows.products if products is None else products
        self.distributions, self._weighted = distributions, shares * distributions
        #: the preconditioner: blocks, or numbers
        self._inverse = inverse if inverse.ndim == 3 else np.ascontiguousarray(inverse.T)

    # Arrays are transposed, as sparse products need them, with the intercepts last.

    def arranged(self, vector: Vector) -> Matrix:
        """Return a vector as a matrix with one column per class."""
        W, b = self._model.split(vector)
        intercept = self._model.rows.fit_intercept
        return np.ascontiguousarray((np.column_stack([W, b]) if intercept else W).T)

    def vector(self, arranged: Matrix) -> Vector:
        """Return the vector of a matrix from `arranged`."""
        d = self._model.n_features
        return np.concatenate([arranged[:d].T.ravel(), arranged[d:].ravel()])

    def product(self, direction: Matrix) -> Matrix:
        """Return the second derivatives times a direction."""
        model, s, d = self._model, self.distributions, self._model.n_features
        self._curved.n_products += 1
        slopes = self._products.forward(direction[:d])
        if len(direction) > d:
            slopes += direction[d]
        means = np.einsum("ij,ij->i", s, slopes)
        slopes -= means[:, None]
        slopes *= self._weighted
        result = np.empty_like(direction)
        np.multiply(direction[:d], model.l2, out=result[:d])
        result[:d] += self._products.backward(slopes)
        if len(direction) > d:
            result[d] = slopes.sum(axis=0)
        return result

    def precondition(self, gradient: Matrix) -> Matrix:
        """Return an approximation of the inverse second derivatives times a gradient."""
        inverse, d = self._inverse, self._model.n_features
        ones = np.full(gradient.shape[1], 1.0 / gradient.shape[1])
        common = gradient @ ones
        solved = gradient - common[:, None]
        if inverse.ndim == 2:
            solved *= inverse
        else:
            parts = np.matmul(inverse, solved.T[:, :, None])
            solved = np.matmul(inverse.transpose(0, 2, 1), parts)[:, :, 0].T.copy()
        # A common change of all classes' parameters leaves differences of margins unchanged: its
        # curvature is exactly l2, and 0 for intercepts.
        common /= self._model.l2
        common[d:] = 0.0
        solved += (common - solved @ ones)[:, None]
        return np.asarray(solved)


class ClassesLine(NamedTuple):
    """The model along the line from one point to another, by their margins."""

    model: MultinomialModel
    p: Any
    q: Any
    straight: float  # the slope at 0 of the l2 term
    bend: float  # its second derivative

    def derivatives(self, t: float) -> tuple[float, float]:
        """Return the first and the second derivative at t."""
        first, second = self.model.total("line-search", _slope_between, self.p, self.q, t)
        return first + self.straight + t * self.bend, second + self.bend


def _slope_between(
    part: Any,  # noqa: ARG001
    p: ClassesPoint,
    q: ClassesPoint,
    t: float,
) -> tuple[float, float]:
    """Return the derivatives of the mean loss at p + t (q - p), along q - p."""
    change, shares = q.margins - p.margins, p.model.rows.shares
    own = change[np.arange(len(change)), p.model.classes]
    s, _ = softmax(p.margins + t * change)
    s *= change
    means = s.sum(axis=1)
    s *= change
    spread = s.sum(axis=1) - means * means
    return float(shares @ (means - own)), float(shares @ spread)


def _weights(at: ClassesPoint) -> Matrix:
    weights = at.distributions * (1.0 - at.distributions)
    weights *= at.model.rows.shares[:, None]
    return weights


def _curved_sums(part: Any, at: ClassesPoint) -> tuple[Vector, Matrix]:  # noqa: ARG001
    """Return the rows' curvature for each class, and the sum of the rows by it."""
    weights = _weights(at)
    return weights.sum(axis=0), at.model.rows.products.backward(weights)


def _drawn(importance: Vector, count: int) -> tuple[RowNumbers, Vector]:
    """Return rows evenly spread over the cumulative importance, and how many each stands for."""
    sums = np.cumsum(importance)
    total = float(sums[-1])
    if count >= np.count_nonzero(importance) or not total > 0.0:
        rows = np.flatnonzero(importance)
        return rows, np.ones(rows.size)
    places = np.searchsorted(sums, (np.arange(count) + 0.5) * (total / count))
    rows, times = np.unique(np.minimum(places, importance.size - 1), return_counts=True)
    return rows, times * (total / count) / importance[rows]


def _inverse_factor(matrix: Matrix) -> Matrix:
    """Return the inverse of the Cholesky factor of a matrix that may be singular."""
    units, scaled = with_unit_diagonal(matrix)
    inverse: Matrix = dtrtri(cholesky_factor(scaled, clean=True), lower=1)[0]
    return inverse * units
