r"""How far rounding can take the sums of a linear model from their true values.

A lower bound is a proof only if rounding cannot lift it above the minimum, so every bound is
lowered by what rounding can amount to. A sum of k products is off by at most k u / (1 - k u) times
the sum of their sizes, whatever the order of summation, with u = 2^-53. Sizes are bounded by norms
that are known, of the slopes and of the columns x_j, where rows count by their shares p_i:

    ||theta||^2 = sum_i p_i theta_i^2,   ||x_j||^2 = sum_i p_i x_ij^2,
    sum_i p_i |theta_i| sum_j |x_ij| |w_j| <= ||theta|| sum_j ||x_j|| |w_j|.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accelegrad.errors import Vector
from accelegrad.problems.losses import Loss
from accelegrad.problems.squares import column_squares, norm

UNIT = float(np.finfo(np.float64).eps)
#: What is lost to underflow in one operation, at most.
SMALLEST = float(np.nextafter(0.0, 1.0))
#: Units of rounding that cover the few operations around a sum: logarithms, divisions, a norm.
FEW = 8.0
#: l* of a loss with logarithms is off by up to so many units of rounding times |theta|, near the
#: ends of its domain.
STEEPEST_LOGARITHM = 40.0


def growth(terms: int) -> float:
    """Return how far a sum can be off, relative to the sum of the sizes of its terms."""
    return (FEW + 0.5 * terms) * UNIT


def pairwise_growth(terms: int) -> float:
    """Return the same for sums in pairs, such as NumPy's own over contiguous arrays.

    NumPy adds up to 128 numbers one after the other, in eight sums, before it adds in pairs.
    """
    return (FEW + 8.0 + 0.5 * math.log2(max(terms, 1))) * UNIT


def tree_growth(terms: int) -> float:
    """Return the same for `sum_in_pairs` of products."""
    return (2.0 + 0.5 * math.log2(max(terms, 1))) * UNIT


def sum_in_pairs(rows: npt.NDArray[np.float64]) -> Vector:
    """Return the sum of the rows, each of which is rounded about log2(rows) times at most."""
    while len(rows) > 1:
        half = len(rows) // 2
        pairs = rows[:half] + rows[half : 2 * half]
        rows = np.concatenate([pairs, rows[2 * half :]]) if len(rows) % 2 else pairs
    total: Vector = rows[0]
    return total


class PointRounding(NamedTuple):
    """How far what is computed at a point can be off."""

    value: float  # of the objective
    gradient: float  # the norm of the gradient's error
    level: float  # of sum_i p_i (l(m_i) - l'(m_i) m_i), from loss and gradient


class DataRounding:
    """Bounds on the rounding of products with the rows of a linear model.

    They go by the norms of the columns, so that it does not matter in which units these are.

    Parameters
    ----------
    X : array or CSR matrix
        The data.
    shares : Vector
        The weights p_i of the rows.
    intercept : bool
        Whether rows have a 1 for an intercept besides.
    """

    def __init__(self, X: Any, shares: Vector, *, intercept: bool) -> None:
        self.n_samples, self.n_features = (int(size) for size in X.shape)
        #: the norms of the columns, rounded up
        self.columns = _column_norms(X, shares)
        #: the norm of the data, without the intercept's column
        self.size = norm(self.columns)
        self._whole = math.hypot(self.size, float(intercept))

    def combination(self, slopes_norm: float) -> Vector:
        """Return how far each entry of the computed sum_i p_i theta_i a_i can be off."""
        return growth(self.n_samples) * slopes_norm * self.columns + SMALLEST

    def at(
        self, loss: Loss, mean_loss: float, weights: Vector, intercept: float, l2: float
    ) -> PointRounding:
        """Return how far value, gradient and level at a point can be off."""
        length = norm(weights)
        steep = slopes_norm(loss, mean_loss)
        # The norm, by shares, of sum_j |x_ij| |w_j|.
        sizes = float(np.abs(weights) @ self.columns)
        margins = growth(self.n_features + 1) * (sizes + abs(intercept))
        bend = 0.5 * loss.curvature * margins * margins if math.isfinite(loss.curvature) else 0.0
        moved = steep * margins + bend
        lost = growth(self.n_samples) * mean_loss
        lost += self.n_samples * SMALLEST if mean_loss > 0.0 else 0.0
        value = moved + lost + growth(self.n_features) * 0.5 * l2 * length * length
        if length > 0.0:  # whose square may vanish
            value += self.n_features * SMALLEST * max(l2, 1.0)
        gradient = growth(self.n_samples) * self._whole * steep + growth(0) * l2 * length
        products = growth(self.n_samples + self.n_features) * steep * sizes
        level = moved + lost + products + growth(self.n_features) * l2 * length * length
        return PointRounding(value, gradient + self.n_features * SMALLEST, level)


def slopes_norm(loss: Loss, mean_loss: float) -> float:
    """Return a bound on the norm of the slopes where the mean loss is known.

    A nonnegative loss whose slope changes by at most `curvature` has l'^2 <= 2 curvature l.
    """
    smooth = math.inf
    if math.isfinite(loss.curvature):
        smooth = math.sqrt(2.0 * loss.curvature) * math.sqrt(max(mean_loss, 0.0))
    return min(loss.lipschitz, smooth)


def level(loss: Loss, shares: Vector, theta: Vector, y: Vector) -> tuple[float, float]:
    """Return -sum_i p_i l*(theta_i), and how far it can be off.

    It is minus infinity where a slope (of a row that has weight) is outside the domain.
    """
    if not theta.any():
        return 0.0, 0.0
    counts = shares > 0.0
    conjugates = np.where(counts, loss.conjugate(theta, y), 0.0)
    total = -float(np.sum(shares * conjugates))
    if not math.isfinite(total):
        return -math.inf, 0.0
    steepest = loss.shape.epsilon + (STEEPEST_LOGARITHM if loss.has_logarithms else 0.0)
    sizes = np.abs(theta)
    sizes = np.abs(conjugates) + sizes * (sizes + np.abs(y) + steepest)
    return total, pairwise_growth(theta.size) * float(
        np.sum(shares * sizes)
    ) + theta.size * SMALLEST


class Labels(NamedTuple):
    """What the rows' targets say about the intercept of a minimiser."""

    least_share: float  # of the rows of one class, by their shares; labels only
    targets_norm: float  # the root of sum_i p_i y_i^2

    @classmethod
    def of(cls, loss: Loss, shares: Vector, y: Vector) -> Labels:
        """Return it for rows."""
        if not loss.classification:
            return cls(1.0, norm(np.sqrt(shares) * y))
        return cls(min(float(shares @ (y > 0.0)), float(shares @ (y < 0.0))), 1.0)


def intercept_reach(
    loss: Loss, labels: Labels, value: float, size: float, farthest: float
) -> float:
    """Return how large the intercept of a minimiser can be, infinite where nothing is known.

    By Jensen's inequality the loss at the mean margin of a class is at most the objective over the
    class's share, and losses of labels are at least -y m; other losses at the mean residual are at
    most the objective.

    Parameters
    ----------
    loss : Loss
        The loss.
    labels : Labels
        What is known of the targets.
    value : float
        The objective at some point, and so no less than the minimum.
    size : float
        The norm of the data.
    farthest : float
        How large the weights of a minimiser can be, as a norm.
    """
    share = labels.least_share
    if share == 0.0:
        return math.inf
    moved = size * farthest / math.sqrt(share)
    if loss.classification:
        return 1.01 * (value / share + moved)
    return 1.01 * (labels.targets_norm + loss.reach(value) + moved)


def imbalance(shares: Vector, theta: Vector) -> float:
    """Return how far the mean slope can be from 0."""
    weighted = shares * theta
    rounding = pairwise_growth(theta.size) * float(np.sum(np.abs(weighted)))
    return abs(float(np.sum(weighted))) + rounding


def scaled_bound(level: float, norm: float, l2: float) -> float:
    """Return the largest of c level - c^2 norm^2 / (2 l2) over 0 <= c <= 1.

    For slopes theta of that level, whose rows combine to a vector of at most that norm, the dual
    value at c theta is at least that: conjugates are convex and zero at zero. It is at least 0.
    """
    if not level > 0.0 or not math.isfinite(norm):
        return 0.0
    curvature = norm * (norm / l2)
    c = 1.0 if level >= curvature else level / curvature
    return max(c * (level - 0.5 * c * curvature) * (1.0 - FEW * UNIT) - SMALLEST, 0.0)


def _column_norms(X: Any, shares: Vector) -> Vector:
    """Return the roots of sum_i p_i x_ij^2, rounded up."""
    with np.errstate(over="ignore"):
        squares = column_squares(X, shares)
    norms: Vector = (1.0 + 1e-3) * np.sqrt(squares)
    if not ((squares > 1e-200) & (squares < 1e200)).all():
        norms = np.where((squares > 1e-200) & (squares < 1e200), norms, _largest_entries(X))
    return norms


def _largest_entries(X: Any) -> Vector:
    """Return the largest absolute value of each column, or more where entries are in pieces."""
    if hasattr(X, "chunks"):
        return np.asarray(np.max([_largest_entries(part) for _, part in X.chunks()], axis=0))
    if isinstance(X, np.ndarray):
        dense: Vector = np.maximum(X.max(axis=0), -X.min(axis=0)).astype(np.float64)
        return dense
    entries = abs(X).astype(np.float64)
    entries.sum_duplicates()
    return np.asarray(entries.max(axis=0).toarray(), dtype=np.float64).ravel()
