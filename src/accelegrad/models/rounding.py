r"""How far rounding can take the sums of a linear model from their true values.

A lower bound is a proof only if rounding cannot lift it above the minimum, so every bound is
lowered by what rounding can amount to: see `accelegrad.rounding`. Sizes of terms are bounded by
norms that are known, of the slopes and of the columns x_j, where rows count by their shares p_i:

    ||theta||^2 = sum_i p_i theta_i^2,   ||x_j||^2 = sum_i p_i x_ij^2,
    sum_i p_i |theta_i| sum_j |x_ij| |w_j| <= ||theta|| sum_j ||x_j|| |w_j|.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from accelegrad.errors import Vector
from accelegrad.models.losses import Loss
from accelegrad.models.matrix import column_squares
from accelegrad.norms import norm
from accelegrad.rounding import SMALLEST, growth


class PointRounding(NamedTuple):
    """How far what is computed at a point can be off."""

    value: float  # of the objective
    gradient: float  # the norm of the gradient's error
    level: float  # of sum_i p_i (l(m_i) - l'(m_i) m_i), from loss and gradient


def few_bits_rounding(unit: float, size: float, steep: float, point: Vector) -> PointRounding:
    """Return how far a function of the user's can be off that computes with few bits.

    Value and gradient, of these sizes, are taken to be right to some units of rounding; and they
    are those at the nearest point that has so few bits.
    """
    share = growth(point.size, unit)
    value = share * size + unit * steep * norm(point)
    return PointRounding(value, share * steep, value)


class DataRounding:
    """Bounds on the rounding of products with the rows of a linear model.

    They follow from the norms of the columns, so that the units of these do not matter; `squares`
    are sum_i p_i x_ij^2, up to rounding, where they are known.
    """

    def __init__(
        self, X: Any, shares: Vector, *, intercept: bool, squares: Vector | None = None
    ) -> None:
        self.n_samples, self.n_features = (int(size) for size in X.shape)
        #: the norms of the columns, rounded up
        self.columns = _column_norms(X, shares, squares)
        #: the norm of the data, without the intercept's column
        self.size = norm(self.columns)
        self._whole = math.hypot(self.size, float(intercept))
        # Asked for at every step of a run.
        self._of_rows, self._of_weights = growth(self.n_samples), growth(self.n_features)
        self._of_margins = growth(self.n_features + 1)
        self._of_products = growth(self.n_samples + self.n_features)

    def combination(self, slopes_norm: float) -> Vector:
        """Return how far each entry of the computed sum_i p_i theta_i a_i can be off."""
        return self._of_rows * slopes_norm * self.columns + SMALLEST

    def at(
        self, loss: Loss, mean_loss: float, weights: Vector, intercept: float, l2: float
    ) -> PointRounding:
        """Return how far value, gradient and level at a point can be off."""
        length = norm(weights)
        steep = slopes_norm(loss, mean_loss)
        # The norm, by shares, of sum_j |x_ij| |w_j|.
        sizes = float(np.abs(weights) @ self.columns)
        margins = self._of_margins * (sizes + abs(intercept))
        moved = steep * margins
        if math.isfinite(loss.curvature):
            moved += 0.5 * loss.curvature * margins * margins
        lost = self._of_rows * mean_loss
        lost += self.n_samples * SMALLEST if mean_loss > 0.0 else 0.0
        value = moved + lost + self._of_weights * 0.5 * l2 * length * length
        if length > 0.0:  # whose square may vanish
            value += self.n_features * SMALLEST * max(l2, 1.0)
        gradient = self._of_rows * self._whole * steep + growth(0) * l2 * length
        products = self._of_products * steep * sizes
        level = moved + lost + products + self._of_weights * l2 * length * length
        return PointRounding(value, gradient + self.n_features * SMALLEST, level)


def slopes_norm(loss: Loss, mean_loss: float) -> float:
    """Return a bound on the norm of the slopes where the mean loss is known.

    A nonnegative loss whose slope changes by at most `curvature` has l'^2 <= 2 curvature l.
    """
    smooth = math.inf
    if math.isfinite(loss.curvature):
        smooth = math.sqrt(2.0 * loss.curvature) * math.sqrt(max(mean_loss, 0.0))
    return min(loss.lipschitz, smooth)


def _column_norms(X: Any, shares: Vector, squares: Vector | None) -> Vector:
    """Return the roots of sum_i p_i x_ij^2, rounded up."""
    if squares is None:
        with np.errstate(over="ignore"):
            squares = column_squares(X, shares)
    norms: Vector = (1.0 + 1e-3) * np.sqrt(squares)
    lost = np.flatnonzero(~((squares > 1e-200) & (squares < 1e200)))
    if lost.size:
        norms[lost] = largest_entries(X, lost)
    return norms


def largest_entries(X: Any, columns: Any) -> Vector:
    """Return the largest absolute value of some columns, or more where entries are in pieces."""
    if hasattr(X, "largest_entries"):  # rows that are not here
        found: Vector = X.largest_entries(columns)
        return found
    if hasattr(X, "chunks"):
        return np.asarray(
            np.max([largest_entries(part, columns) for _, part in X.chunks()], axis=0)
        )
    if isinstance(X, np.ndarray):
        some = X[:, columns]
        dense: Vector = np.maximum(some.max(axis=0), -some.min(axis=0)).astype(np.float64)
        return dense
    chosen = np.zeros(X.shape[1], dtype=bool)
    chosen[columns] = True
    if not chosen[X.indices].any():  # columns without entries, as text often has them
        return np.zeros(columns.size)
    entries = abs(X[:, columns]).astype(np.float64)
    entries.sum_duplicates()
    return np.asarray(entries.max(axis=0).toarray(), dtype=np.float64).ravel()
