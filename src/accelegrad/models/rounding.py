"""Bounds on the rounding errors of the sums of a linear model.

Every lower bound is lowered by its possible rounding error: see `accelegrad.linalg`. Terms are
bounded by norms of the slopes and of the columns x_j, weighted by the shares p_i:

    ||theta||^2 = sum_i p_i theta_i^2,   ||x_j||^2 = sum_i p_i x_ij^2,
    sum_i p_i |theta_i| sum_j |x_ij| |w_j| <= ||theta|| sum_j ||x_j|| |w_j|.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from accelegrad.errors import Vector
from accelegrad.linalg import SMALLEST, growth, norm
from accelegrad.models.losses import Loss

if TYPE_CHECKING:
    from accelegrad.models.linear_model import LinearModel


class PointRounding(NamedTuple):
    """Bounds on the rounding errors at a point."""

    value: float  # of the objective
    gradient: float  # the norm of the gradient's error
    level: float  # of sum_i p_i (l(m_i) - l'(m_i) m_i), from loss and gradient


def few_bits_rounding(unit: float, size: float, steep: float, point: Vector) -> PointRounding:
    """Return error bounds of a function exact to some units at the nearest representable point."""
    share = growth(point.size, unit)
    value = share * size + unit * steep * norm(point)
    return PointRounding(value, share * steep, value)


class DataRounding:
    """Bounds on the rounding of products with the rows of a model."""

    def __init__(self, model: LinearModel) -> None:
        self.n_samples, self.n_features = model.n_samples, model.n_features
        with np.errstate(over="ignore"):
            squares = model.column_squares()
        #: the norms of the columns, rounded up
        self.columns: Vector = (1.0 + 1e-3) * np.sqrt(squares)
        lost = np.flatnonzero(~((squares > 1e-200) & (squares < 1e200)))
        if lost.size:
            found = model.over_chunks(partial(_largest_entries, columns=lost))
            self.columns[lost] = np.max(list(found), axis=0)
        #: the norm of the data, without the intercept's column
        self.size = norm(self.columns)
        self._whole = math.hypot(self.size, float(model.fit_intercept))
        self._of_rows, self._of_weights = growth(self.n_samples), growth(self.n_features)
        self._of_margins = growth(self.n_features + 1)
        self._of_products = growth(self.n_samples + self.n_features)

    def combination(self, slopes_norm: float) -> Vector:
        """Return error bounds for the entries of the computed sum_i p_i theta_i a_i."""
        return self._of_rows * slopes_norm * self.columns + SMALLEST

    def at(
        self, loss: Loss, mean_loss: float, weights: Vector, intercept: float, l2: float
    ) -> PointRounding:
        """Return error bounds for value, gradient and level at a point."""
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
        if length > 0.0:  # its square may underflow
            value += self.n_features * SMALLEST * max(l2, 1.0)
        gradient = self._of_rows * self._whole * steep + growth(0) * l2 * length
        products = self._of_products * steep * sizes
        level = moved + lost + products + self._of_weights * l2 * length * length
        return PointRounding(value, gradient + self.n_features * SMALLEST, level)


def slopes_norm(loss: Loss, mean_loss: float) -> float:
    """Return a bound on the norm of the slopes; nonnegative losses have l'^2 <= 2 curvature l."""
    smooth = math.inf
    if math.isfinite(loss.curvature):
        smooth = math.sqrt(2.0 * loss.curvature) * math.sqrt(max(mean_loss, 0.0))
    return min(loss.lipschitz, smooth)


def _largest_entries(X: Any, shares: Vector, columns: Any) -> Vector:  # noqa: ARG001
    """Return the largest absolute value of some columns; an upper bound with duplicate entries."""
    if isinstance(X, np.ndarray):
        some = X[:, columns]
        dense: Vector = np.maximum(some.max(axis=0), -some.min(axis=0)).astype(np.float64)
        return dense
    chosen = np.zeros(X.shape[1], dtype=bool)
    chosen[columns] = True
    if not chosen[X.indices].any():  # empty columns, common in text data
        return np.zeros(columns.size)
    entries = abs(X[:, columns]).astype(np.float64)
    entries.sum_duplicates()
    return np.asarray(entries.max(axis=0).toarray(), dtype=np.float64).ravel()
