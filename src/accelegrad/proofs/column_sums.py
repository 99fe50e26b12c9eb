r"""Least squares from products of columns: value and slope sums at any point, without the rows.

With the columns N = [X, 1, y] (1 for an intercept) and z = (w, b, -1) the residuals, which are also
the slopes, are r = N z. Value and Fenchel bound need only M = N'PN:

    sum_i p_i r_i^2 = z'Mz,    sum_i p_i r_i N_ij = (Mz)_j .

Differences of such sums cancel, so errors are relative to S = sum_j |z_j| ||N_j||: an entry of M is
off by at most ||N_j|| ||N_k|| times the error of a sum of n products, hence (Mz)_j by ||N_j|| S and
z'Mz by S^2 times that error.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from accelegrad.errors import Vector
from accelegrad.linalg import SMALLEST, growth, norm
from accelegrad.models.linear_model import LinearModel
from accelegrad.proofs.fenchel import SIZE_ROUNDED_UP, SlopeSums


class SumsAtPoint(NamedTuple):
    """Mean loss and slope sums at a point."""

    mean_loss: float
    error: float  # of the mean loss, by rounding
    slopes: SlopeSums


class ColumnSums:
    """Sums over the rows of a least-squares model in memory, from products of its columns."""

    def __init__(self, model: LinearModel) -> None:
        y, shares, self._d = model.y, model.shares, model.n_features
        size = model.n_parameters
        products = np.empty((size + 1, size + 1))
        products[:size, :size] = model.gram_of_columns()
        products[size, :size] = products[:size, size] = model.combination(y)
        products[size, size] = float(shares @ (y * y))
        self._products = products
        ones = [SIZE_ROUNDED_UP] * model.fit_intercept
        target_size = SIZE_ROUNDED_UP * norm(np.sqrt(shares) * y)
        self._sizes = np.concatenate([model.rounding.columns, ones, [target_size]])
        # The first for the products, the second for sums of them.
        self._growth = growth(model.n_samples) + growth(size + 1)
        self._lost = (model.n_samples + size) * SMALLEST
        self._fit_intercept = model.fit_intercept

    def slopes_at_zero(self) -> Vector:
        """Return the gradient of the mean loss at zero."""
        return -self._products[-1, :-1]

    def at(self, x: Vector) -> SumsAtPoint:
        """Return the sums at a point; overflow makes some of them not finite."""
        d, z = self._d, np.append(x, -1.0)
        sizes = np.abs(z)
        whole = float(sizes @ self._sizes)
        lost = self._lost * (1.0 + float(sizes.sum()))
        combination = self._products @ z
        off = self._growth * whole * self._sizes + lost
        square = float(z @ combination)
        half_error = 0.5 * ((self._growth + growth(z.size)) * whole * whole + lost * whole)
        by_targets = float(combination[-1])
        level = -0.5 * square - by_targets
        level_error = half_error + float(off[-1]) + growth(0) * (abs(square) + abs(by_targets))
        mean = mean_error = 0.0
        if self._fit_intercept:
            mean, mean_error = float(combination[d]), float(off[d])
        sums = SlopeSums(level, level_error, mean, mean_error, combination[:d], off[:d])
        return SumsAtPoint(max(0.5 * square, 0.0), half_error, sums)

    @staticmethod
    def are_finite(known: SumsAtPoint) -> bool:
        """Tell whether nothing has overflowed."""
        return math.isfinite(known.mean_loss) and math.isfinite(known.slopes.level_error)
