"""A linear model's dual, for coordinate ascent."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import brentq

from accelegrad import kernels
from accelegrad.errors import Vector
from accelegrad.problems.linear_model import LinearModel
from accelegrad.problems.losses import Loss
from accelegrad.problems.row_sum import RowSum
from accelegrad.problems.squares import row_squares
from accelegrad.proofs.certificate import LateBound
from accelegrad.proofs.fenchel import level
from accelegrad.rows.row_oracle import Goal, RowOracle, rows_in_memory
from accelegrad.run.oracle import QUIET, Evaluation

# How exactly margins are found, relative to their size: four units of rounding.
_PRECISION = 4 * float(np.finfo(np.float64).eps)


class DualOracle(RowOracle):
    """A linear model's objective, and epochs of coordinate ascent on its dual.

    An epoch goes through all rows, which are in memory, in a new random order; `njev` counts it as
    a gradient. It is compiled for dense data in C order and for CSR data; see `accelegrad.kernels`.

    Parameters
    ----------
    model, rng, goal
        As for `RowOracle`; the model has an l2 term and no intercept.
    """

    needs_rows_in_memory = True
    model: LinearModel

    def __init__(self, model: RowSum, rng: np.random.Generator, goal: Goal | None = None) -> None:
        super().__init__(model, rng, goal)
        if model.l2 == 0.0:
            raise ValueError(
                "the dual can be climbed only with an l2 term: model must have an l2 term, but its "
                "l2 is 0; give l2 > 0."
            )
        if model.fit_intercept:
            raise ValueError(
                "the dual can be climbed only without an intercept: model must have no intercept, "
                "which has no l2 term, but it has one; give fit_intercept=False."
            )
        self.model = rows_in_memory(model)
        self._squares = row_squares(self.model.X)

    def feasible(self, x0: Vector) -> tuple[Vector, Vector]:
        """Return the slopes at x0, or zeros if those are better, with the point they stand for."""
        model = self.model
        slopes = np.zeros(model.n_samples)
        if not x0.any():
            return slopes, np.zeros(model.n_parameters)
        at = model.at(x0)
        self.points += 1
        self.nfev += 1
        if model.dual_value_at(at.derivatives) > 0.0:
            slopes = at.derivatives.copy()
        return slopes, model.combination(slopes) / -model.l2

    def ascend(self, slopes: Vector, point: Vector) -> tuple[Vector, Vector]:
        """Return slopes and point after an epoch."""
        order = self.rng.permutation(self.model.n_samples)
        self.njev += 1
        theta, w = slopes.copy(), point.copy()
        with np.errstate(**QUIET):
            if kernels.wanted_for_rows(kernels.readable(self.model.X)):
                self._compiled_epoch(theta, w, order)
            else:
                self._plain_epoch(theta, w, order)
        return theta, w

    def _plain_epoch(self, theta: Vector, w: Vector, order: Any) -> None:
        """Change slopes and weights in place."""
        model = self.model
        for i in order:
            block, row = model.block(np.array([i])), slice(i, i + 1)
            share = float(model.shares[i]) / model.l2
            q = share * float(self._squares[i])
            z = block.margins(w) + q * theta[row]
            best = proximal_slopes(model.loss, z, q, model.y[row])
            block.add_combination(share * (theta[row] - best), w)
            theta[row] = best

    def _compiled_epoch(self, theta: Vector, w: Vector, order: Any) -> None:
        from accelegrad.kernels import dual_ascent
        from accelegrad.kernels.arrays import read_only

        data = self.model.kernel_data()
        given = dual_ascent.DualRows(data.y, data.shares, data.loss)
        rest = (given, read_only(self._squares), self.model.l2, theta, w, read_only(order))
        if len(data.matrix) == 1:
            dual_ascent.dense_ascent(data.matrix[0], *rest)
        else:
            entries, indices, indptr = data.matrix
            dual_ascent.sparse_ascent(entries, indices, indptr, *rest)

    def minorant(self, slopes: Vector, at: Evaluation) -> Evaluation:
        """Return the evaluation with a lower bound of the minimum.

        The slopes' combination of rows is -l2 w up to the rounding of all steps so far, which gives
        an estimate of the gap. Only if that may end the run, a product with the data proves it.
        """
        model = self.model
        height, _ = level(model.loss, model.shares, slopes, model.y)
        estimate = at.value - (height - 0.5 * model.l2 * float(at.point @ at.point))
        if estimate <= self.goal(at.value):
            at.dual_value = model.dual.bound(slopes)
        else:
            at.late_bound = LateBound(model, slopes=slopes)
        return at


def proximal_slopes(loss: Loss, z: Vector, q: float, y: Vector) -> Vector:
    """Return the slopes theta = l'(z - q theta): those at z of the loss's Moreau envelope."""
    if loss.has_logarithms:
        pairs = zip(z, y, strict=True)
        return np.array([_logistic_slope(loss, float(one), q, float(of)) for one, of in pairs])
    return loss.envelope(q).derivative(z, y).astype(np.float64, copy=False)


def _logistic_slope(loss: Loss, z: float, q: float, y: float) -> float:
    def slope(margin: float) -> float:
        return float(loss.derivative(margin, y))

    def rest(margin: float) -> float:
        return margin + q * slope(margin) - z

    # The margin m = z - q theta is between these two.
    other = z - q * slope(z)
    if rest(other) * rest(z) >= 0.0:  # the slope is the same all the way, up to rounding
        return slope(other)
    ends = min(z, other), max(z, other)
    return slope(brentq(rest, *ends, xtol=1e-300, rtol=_PRECISION, maxiter=500, disp=False))
