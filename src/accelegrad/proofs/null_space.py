"""Lower bounds of the minimum of a linear model without an l2 term.

For P(w) = sum_i p_i l(m_i, y_i), m = X w (+ intercept), and any slopes theta with

    sum_i p_i theta_i a_i = 0                                                        (balance)

where a_i is the i-th row of X (with a 1 for the intercept), Fenchel's inequality
l(m) >= theta m - l*(theta) gives  min P >= D(theta) = -sum_i p_i l*(theta_i). Slopes from a run are
only nearly balanced; here they are balanced without leaving the domain of the conjugates:

- `NullSpace.project` projects onto the null space, at two products with the data. That suffices
  where the conjugate is finite everywhere; otherwise all slopes are scaled down into the domain.
- `NullSpace.correct` moves each slope in proportion to the room inside its interval, as
  affine-scaling methods do. That costs a Gram matrix of the rows with room, and loses much less.

For losses with kinks, only about as many rows as there are parameters have room near a minimiser,
those with margins next to a kink. `DualBounds.near` therefore fixes all other slopes.

For least squares, each weight may have a sign. With w_j >= 0 the j-th sum need only be at least 0:
`NullSpace.project` moves it there, by more than all rounding, if it is negative.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from accelegrad.errors import NonFiniteError, Vector
from accelegrad.linalg import SMALLEST, UNIT, cholesky_factor, growth, with_unit_diagonal
from accelegrad.models.losses import Loss
from accelegrad.models.matrix import BLOCK_ENTRIES, Matrix, Products, RowNumbers, gram_matrix, runs
from accelegrad.proofs.fenchel import level

# Gram matrices are factorised, so the parameters have to be few.
MOST_PARAMETERS = 1000
# The multiplications, n d^2, that a Gram matrix may take: these, about a second ...
_SECONDS_WORK = 1e10
# ... or this many per stored entry: about the time of fifty gradients of dense data.
_WORK_PER_ENTRY = 512
# Norms of columns whose squares, and sums of them, neither overflow nor underflow, are at most this
# and at least its inverse.
_LARGEST_COLUMN = 1e140
# Above this condition number the Gram matrix lacks digits, and the rows are factorised instead.
_WELL_CONDITIONED = 1e10
# Directions in which the data are this small, relative to the largest, are rounding.
_RANK_TOLERANCE = 1e-13
# Sums that should not change count as unchanged below this, for columns of norm 1. Chosen.
_NEGLIGIBLE = 1e-6
# The most corrections with a new Gram matrix. Chosen: with 6 or 24, 50 fits without a penalty take
# the same steps.
_ROUNDS = 12
# Corrections with the same Gram matrix: each removes most of the rounding of the one before.
_REFINEMENTS = 3
# A smaller imbalance, relative to the slopes and to columns of norm 1, is rounding.
_BALANCED = 1e-12
# Units of rounding, relative to the terms, that count as none.
_ROUNDOFFS = 64.0
# Margins of labels at a minimiser are assumed to be smaller, as a root mean square.
_FARTHEST_MARGIN = 1e3


def tree_growth(terms: int) -> float:
    """Return the error bound of `sum_in_pairs` of products, relative to the sum of sizes."""
    return (2.0 + 0.5 * math.log2(max(terms, 1))) * UNIT


def sum_in_pairs(rows: Matrix) -> Vector:
    """Return the sum of the rows, with about log2(rows) roundings of each."""
    while len(rows) > 1:
        half = len(rows) // 2
        pairs = rows[:half] + rows[half : 2 * half]
        rows = np.concatenate([pairs, rows[2 * half :]]) if len(rows) % 2 else pairs
    total: Vector = rows[0]
    return total


def obstacle(X: Any, n_parameters: int, norms: Vector) -> str | None:
    """Return why there is no affordable bound for such data, or None if there is one.

    It needs the Gram matrix once, n d^2 multiplications: about d/10 gradients of dense data. With
    more than a thousand parameters factorising such matrices for every bound takes too long. With n
    <= d independent rows only theta = 0 is balanced, so the bound would be 0. `norms` are the
    columns'.
    """
    n_samples = int(X.shape[0])
    if n_parameters > MOST_PARAMETERS:
        return f"it takes at most {MOST_PARAMETERS} parameters, but there are {n_parameters}"
    if n_samples <= n_parameters:
        return f"it takes more rows than parameters, but there are {n_samples} and {n_parameters}"
    entries = int(getattr(X, "nnz", n_samples * n_parameters))
    work = n_samples * n_parameters**2
    if work > max(_SECONDS_WORK, _WORK_PER_ENTRY * entries):
        return (
            f"its Gram matrix of {n_parameters} x {n_parameters} would take {work:.1g} "
            f"multiplications for the {entries} entries of X"
        )
    sizes = norms[norms > 0.0]
    if not ((sizes > 1.0 / _LARGEST_COLUMN) & (sizes < _LARGEST_COLUMN)).all():
        return "the squares of a column of X overflow or vanish"
    return None


class NullSpace:
    """The balanced slopes of a linear model: theta with sum_i p_i theta_i a_i = 0.

    Everything is computed in float64, in blocks of rows, without a copy of X. `shares` are the
    weights p_i of the rows, which sum to 1.
    """

    def __init__(self, X: Any, shares: Vector, fit_intercept: bool) -> None:
        self.X, self.shares, self.fit_intercept = X, shares, fit_intercept
        self.n_samples, self.n_features = map(int, X.shape)
        self.n_parameters = self.n_features + fit_intercept
        self.products = Products(X)
        #: factors that scale the columns to norm 1; 0 for a column of zeros
        self.scale, gram = with_unit_diagonal(self.plain_gram(shares))
        mixing = _inverse_root(gram)
        #: coordinates in which the columns are orthonormal in the inner product by p
        self._mixing: Matrix = self._factorised() if mixing is None else mixing
        #: the dimension of the span of the columns: `n_parameters` unless they are dependent
        self.rank = int(self._mixing.shape[1])

    @cached_property
    def stretch(self) -> float:
        """The norm of the change of coordinates, at most that of well-conditioned data."""
        largest = float(scipy.linalg.norm(self._mixing, 2)) if self._mixing.size else 0.0
        return min(largest, math.sqrt(_WELL_CONDITIONED))

    def largest_imbalance(self, theta: Vector, signs: Vector | None = None) -> float:
        """Return the most that -sum_i p_i theta_i m_i can be for margins with sum_i p_i m_i^2 = 1.

        It is only rounding for balanced theta, and infinite if rounding cannot explain it. `signs`
        are 1 or -1 for weights with a sign.
        """
        imbalance, size = self._exact_imbalance(theta), self.size(theta)
        # As columns have norm 1, this bounds the error of each entry of the imbalance.
        lost = tree_growth(self.n_samples) * size
        if signs is not None:
            if (signs * imbalance < lost)[signs != 0.0].any():
                return math.inf
            if signs.all():
                return 0.0
            imbalance[signs != 0.0] = 0.0
        if _norm(imbalance) > _BALANCED * size:
            return math.inf
        rounding = lost * math.sqrt(self.n_parameters) * self.stretch
        return _norm(self._mixing.T @ imbalance) + rounding

    def distance(self, combination: Vector) -> float:
        """Return the distance from balance of slopes with sum_i p_i theta_i a_i = `combination`."""
        return _norm(self._mixing.T @ (self.scale * combination))

    def project(self, theta: Vector, signs: Vector | None = None) -> Vector:
        """Return the nearest balanced slopes, in the norm with weights p_i.

        With signs, a sum on the right side of 0 stays unchanged; others are moved there.
        """
        for _ in range(_REFINEMENTS):
            imbalance, size = self._imbalance(theta), self.size(theta)
            if signs is not None:
                lost = self.aim(size)
                wrong = signs * imbalance < 0.5 * lost
                imbalance = np.where(wrong | (signs == 0.0), imbalance - lost * signs, 0.0)
            if _norm(imbalance) <= UNIT * size:
                break
            theta = theta - self._forward(self._inverse_times(imbalance))
        return theta

    def aim(self, size: float) -> float:
        """Return how far beyond 0 sums are moved, for columns of norm 1 and slopes of this size."""
        return 2.0 * growth(self.n_samples) * size

    def can_reach(self, signs: Vector) -> bool:
        """Return whether the sums of all columns can be on the right side of 0 at once.

        With an intercept, also whether its sum, or that of a constant column, can change alone:
        only then do the margins bound the intercept of weights with signs.
        """
        gram = self.scale[:, None] * self.plain_gram(self.shares) * self.scale
        reached = signs * (gram @ self._inverse_times(signs))
        if (reached[signs != 0.0] <= 0.5).any():
            return False
        alone = np.where(signs == 0.0, gram[-1], 0.0)
        change = np.abs(gram @ self._inverse_times(alone) - alone)
        return not self.fit_intercept or float(change.max()) <= _NEGLIGIBLE

    def _inverse_times(self, vector: Vector) -> Vector:
        product: Vector = self._mixing @ (self._mixing.T @ vector)
        return product

    def size(self, theta: Vector) -> float:
        """Return the norm of theta with weights p_i."""
        return _norm(np.sqrt(self.shares) * theta)

    def correct(self, theta: Vector, low: Vector, high: Vector) -> tuple[Vector, bool]:
        """Return slopes between `low` and `high`, and whether they are balanced.

        Each round solves for steps in proportion to the room between the ends (later to its square,
        which keeps off the ends). Slopes that would leave stay at the end.
        """
        theta = np.clip(theta, low, high)
        missing = -self._imbalance(theta)
        for count in range(_ROUNDS):
            room = _room(theta, low, high)
            room = room if count == 0 else room * room
            try:
                solve = _solver(self.plain_gram(self.shares * room), self.scale)
            except NonFiniteError:
                break
            progress = False
            for _ in range(_REFINEMENTS):
                step = room * self._forward(solve(missing))
                moved = np.clip(theta + step, low, high)
                remaining = -self._imbalance(moved)
                if not _norm(remaining) < _norm(missing):  # also true for nan
                    break
                theta, missing, progress = moved, remaining, True
            if _norm(missing) <= _ROUNDOFFS * UNIT * self.size(theta):
                return theta, self.largest_imbalance(theta) < math.inf
            if not progress:
                break
        return theta, False

    def _imbalance(self, theta: Vector) -> Vector:
        """Return sum_i p_i theta_i a_i for columns scaled to norm 1."""
        weighted = self.shares * theta
        imbalance: Vector = self.products.backward(weighted)
        if self.fit_intercept:
            imbalance = np.append(imbalance, weighted.sum())
        return self.scale * imbalance

    def _exact_imbalance(self, theta: Vector) -> Vector:
        """Return `_imbalance`, more accurately, by pairwise sums."""
        weighted = self.shares * theta
        parts = [
            sum_in_pairs(self._dense(self.X[some]) * weighted[some, None])
            for some in runs(self.n_samples, BLOCK_ENTRIES // self.n_parameters)
        ]
        return sum_in_pairs(np.array(parts))

    def _factorised(self) -> Matrix:
        """Return the coordinates from a QR factorisation, without dependent directions."""
        factor, roots = np.empty((0, self.n_parameters)), np.sqrt(self.shares)
        for some in runs(self.n_samples, max(BLOCK_ENTRIES // self.n_parameters, 1)):
            block = self._dense(self.X[some]) * roots[some, None]
            factor = np.asarray(np.linalg.qr(np.concatenate([factor, block]), mode="r"))
        _, sizes, directions = scipy.linalg.svd(factor, check_finite=False)
        sizes = sizes[sizes > _RANK_TOLERANCE * sizes.max(initial=0.0)]
        return np.asarray(directions[: sizes.size].T / sizes)

    def plain_gram(self, weights: Vector) -> Matrix:
        """Return sum_i weights_i a_i a_i', for unscaled columns."""
        rows = np.flatnonzero(weights)
        if rows.size == self.n_samples:
            return gram_matrix(self.X, None, weights, intercept=self.fit_intercept)
        return gram_matrix(self.X, rows, weights[rows], intercept=self.fit_intercept)

    def _dense(self, block: Any) -> Matrix:
        rows = np.ones((block.shape[0], self.n_parameters))
        rows[:, : self.n_features] = _as_dense(block)
        rows *= self.scale
        return rows

    def _forward(self, scaled: Vector) -> Vector:
        """Return the margins at a point, for columns scaled to norm 1."""
        w = self.scale * scaled
        margins: Vector = self.products.forward(w[: self.n_features])
        if self.fit_intercept:
            margins += w[-1]
        return margins


def _solver(gram: Matrix, scale: Vector) -> Callable[[Vector], Vector]:
    """Return a solver for a Gram matrix of scaled columns, which may be zero or dependent."""
    units, matrix = with_unit_diagonal(gram)
    factor = cholesky_factor(matrix)
    back = np.divide(units, scale, out=np.zeros_like(units), where=scale > 0.0)

    def solve(missing: Vector) -> Vector:
        solution = scipy.linalg.cho_solve((factor, True), back * missing, check_finite=False)
        return np.asarray(back * solution)

    return solve


def _as_dense(block: Any) -> Matrix:
    dense: Matrix = block if isinstance(block, np.ndarray) else block.toarray()
    return dense


def needed_signs(space: NullSpace, lower: Vector, upper: Vector) -> Vector:
    """Return the sign that the sum of each column needs if its weight lies on one side of 0.

    It is 0 (any sign) for an intercept, for a column of zeros, and for a constant column beside an
    intercept, as the minimum is the same with its weight at 0.
    """
    signs = np.where((lower == 0.0) & (upper == np.inf), 1.0, -1.0)
    if space.fit_intercept:
        first = _as_dense(space.X[[0]])[0]
        for column in np.flatnonzero(first):
            signs[column] *= (_as_dense(space.X[:, [column]]) != first[column]).any()
    signs[space.scale[: space.n_features] == 0.0] = 0.0
    return np.append(signs, [0.0] * space.fit_intercept)


class Proof(NamedTuple):
    """A lower bound and its slopes; without slopes, they are 0."""

    bound: float
    slopes: Vector | None


NO_PROOF = Proof(0.0, None)


class DualBounds:
    """Lower bounds of min P without an l2 term; `signs` are those of `needed_signs`, if any."""

    def __init__(
        self, space: NullSpace, loss: Loss, y: Vector, signs: Vector | None = None
    ) -> None:
        self.space, self.loss, self.y, self.signs = space, loss, y, signs
        self.proof = NO_PROOF  # the best so far
        self._weighs = space.shares > 0.0
        low, high = loss.domain(y)
        # The slope of a row without weight is 0.
        self.low = np.where(self._weighs, low, 0.0)
        self.high = np.where(self._weighs, high, 0.0)
        self._unbounded = bool(np.isinf(low).all() and np.isinf(high).all())
        self._around_zero = bool((np.max(low) < 0.0) and (np.min(high) > 0.0))

    @cached_property
    def gets_tight(self) -> bool:
        """Whether bounds approach the minimum: not if columns with signs cancel each other."""
        return self.signs is None or self.space.can_reach(self.signs)

    def resolution(self, steep: float, w: Vector) -> float:
        """Return what rounding costs at w if weights have signs, for slopes with norm `steep`."""
        space = self.space
        norms = np.divide(1.0, space.scale, out=np.zeros_like(w), where=space.scale > 0.0)
        aimed = space.aim(steep) * float(np.abs(w[: space.n_features]) @ norms[: space.n_features])
        if not space.fit_intercept:
            return aimed
        lost = tree_growth(space.n_samples) * steep * math.sqrt(space.n_parameters)
        return aimed + lost * space.stretch * self._reach

    def at(self, theta: Vector) -> float:
        """Return the best bound from slopes close to theta, at least 0."""
        theta = np.clip(np.where(self._weighs, theta, 0.0), self.low, self.high)
        projected, factor = self._scaled_down(theta)
        bound = self._value(projected) if factor > 0.0 else 0.0
        if factor < 1.0:
            corrected, found = self.space.correct(theta, self.low, self.high)
            bound = max(bound, self._value(corrected)) if found else bound
        return bound

    def near(self, margins: Vector, derivatives: Vector) -> float:
        """Return the best bound found at a point, given its margins and slopes.

        For a loss with kinks, slopes differ from the loss's only at rows next to a kink: within
        `width` of the margin it takes slopes between l'(m - width) and l'(m + width).
        If these intervals contain balanced ones, P at the point exceeds their bound by at most
        `width` times the mean length of the intervals. Bisection over the number of freed rows
        finds the least such width, which is small near a minimiser.
        """
        if math.isfinite(self.loss.curvature):
            return self.at(derivatives)
        distances = np.abs(np.abs(margins - self.y) - self.loss.shape.epsilon)
        distances[~self._weighs] = np.inf
        theta, widths = derivatives, self._widths(distances)
        found, first, last = False, 0, len(widths) - 1
        while first <= last:
            # The least width is tried first: it is right at a vertex, and costs least.
            middle = (first + last) // 2 if first > 0 else 0
            rows = np.flatnonzero(distances <= widths[middle])
            trial, success = self._freed(margins, derivatives, rows, widths[middle])
            if success or not found:
                theta, found = trial, success
            first, last = (first, middle - 1) if success else (middle + 1, last)
        return self._value(theta if found else self._scaled_down(theta)[0])

    def _widths(self, distances: Vector) -> list[float]:
        """Return widths that free as many rows as there are parameters, and ever more."""
        rank = max(self.space.rank, 1)
        most = int(np.count_nonzero(self._weighs)) - 1
        doublings = max(math.log2(max(most, 1) / rank), 0.0)
        counts = [int(rank * 2.0 ** (k / 2)) for k in range(int(2.0 * doublings) + 1)]
        nearest = np.partition(distances, counts)
        rounding = _ROUNDOFFS * UNIT * float(np.max(np.abs(self.y)) + distances.min()) + SMALLEST
        widths = (0.5 * float(nearest[k - 1] + nearest[k]) for k in counts)
        return [max(width, rounding) for width in widths if width < math.inf]

    def _freed(
        self, margins: Vector, derivatives: Vector, rows: RowNumbers, width: float
    ) -> tuple[Vector, bool]:
        """Return slopes that the loss takes within `width` of the margins, balanced if possible."""
        m, y = margins[rows], self.y[rows]
        (below, least), (above, greatest) = (
            self.loss.value_and_derivative(m + side, y) for side in (-width, width)
        )
        theta, low, high = (derivatives.copy() for _ in range(3))
        theta[rows] = (above - below) / (2.0 * width)  # the mean of the slopes in between
        low[rows], high[rows] = least, greatest
        return self.space.correct(theta, low, high)

    def _scaled_down(self, theta: Vector) -> tuple[Vector, float]:
        """Return the projection of theta, scaled into the domain, and the factor."""
        theta = np.where(self._weighs, self.space.project(theta, self.signs), 0.0)
        if self._unbounded:
            return theta, 1.0
        slack = _ROUNDOFFS * UNIT * np.abs(theta)
        if (theta >= self.low - slack).all() and (theta <= self.high + slack).all():
            return np.clip(theta, self.low, self.high), 1.0
        if not self._around_zero:
            return np.zeros_like(theta), 0.0
        ends = np.where(theta > 0.0, self.high, self.low)
        factor = 1.0 / max(float(np.max(theta / np.where(ends == 0.0, 1.0, ends))), 1.0)
        return np.clip(factor * theta, self.low, self.high), factor

    def _value(self, theta: Vector) -> float:
        imbalance = self.space.largest_imbalance(theta, self.signs)
        if imbalance == math.inf:
            return 0.0
        height, error = level(self.loss, self.space.shares, theta, self.y)
        bound = max(height - error - imbalance * self._reach, 0.0)
        if bound > self.proof.bound:
            self.proof = Proof(bound, theta)
        return bound

    @cached_property
    def _reach(self) -> float:
        """Return a bound on the margins at a minimiser, as a norm weighted by shares.

        The mean loss there is at most P(0), which keeps predictions near their targets. Margins of
        labels have no such bound: a minimiser is assumed to be within `_FARTHEST_MARGIN`, beyond
        which all losses are next to 0 or huge.
        """
        if self.loss.classification:
            return _FARTHEST_MARGIN
        shares, y = self.space.shares[self._weighs], self.y[self._weighs]
        value, least = float(shares @ self.loss.value(0.0 * y, y)), float(shares.min())
        residuals = self.loss.reach(value) + math.sqrt(least) * self.loss.reach(value / least)
        return 1.01 * (self.space.size(self.y) + residuals)


def _norm(vector: Vector) -> float:
    return float(scipy.linalg.norm(vector, check_finite=False))  # also of no numbers


def _inverse_root(gram: Matrix) -> Matrix | None:
    """Return W with W^T gram W = I, or None if the matrix is nearly singular."""
    try:
        lower = scipy.linalg.cholesky(gram, lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        return None
    identity = np.eye(len(gram))
    root = scipy.linalg.solve_triangular(lower, identity, lower=True, check_finite=False).T
    condition = float(np.sum(root * root)) * float(np.abs(gram).sum(axis=0).max())  # an upper bound
    return root if condition <= _WELL_CONDITIONED else None


def _room(theta: Vector, low: Vector, high: Vector) -> Vector:
    """Return half the harmonic mean of the distances to both ends, which may be infinite."""
    below, above = theta - low, high - theta
    inside = (below > 0.0) & (above > 0.0)
    below, above = np.where(inside, below, 1.0), np.where(inside, above, 1.0)
    with np.errstate(over="ignore"):
        return np.where(inside, 1.0 / (1.0 / below + 1.0 / above), 0.0)
