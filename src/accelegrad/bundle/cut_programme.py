r"""The quadratic programme of a bundle method with many cuts: their shortest sum.

For vectors :math:`a_i` (slopes of affine functions below a function) with Gram matrix K and
numbers :math:`e_i \ge 0` it finds

.. math:: \min_{\lambda \ge 0}\ \tfrac12 \Bigl\|\sum_i \lambda_i a_i\Bigr\|^2 + \sum_i \lambda_i e_i
          \quad\text{where } \sum_i \lambda_i = 1.

It is Wolfe's algorithm for the point of a polytope nearest to zero (P. Wolfe, Math. Program. 11,
1976), with a linear term: a linear system gives the best positive weights, and one vector enters or
leaves at a time. The factor of that system is kept from one call to the next, because only a few
vectors change. DAQP, which always starts from scratch, takes ten times as long with hundreds of
active cuts. The result need not be exact: any weights prove a lower bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.linalg.blas import ddot, dtrsv  # @ takes longer to begin
from scipy.linalg.lapack import dpotrf, dtpqrt

from accelegrad.errors import Vector

#: Most changes of the active set in one call: more gain less than the next cut does (with 40
#: instead of no limit, functions of 500 separate kinks take a seventh of the time and no more
#: calls).
MOST_CHANGES = 40
#: Added to the diagonal, as a share of it, so that dependent vectors can be factored: some hundred
#: units of rounding
RIDGE = 1e-13
SMALLEST = float(np.finfo(np.float64).tiny)
#: A vector enters if that lowers the sum by more than this share of it.
WORTH_ENTERING = 1e-11
#: Columns per LAPACK block when a vector leaves (measured: 4 to 8 are fastest)
REMOVED_BLOCK = 8


class CutProgramme:
    """The programme, with the active vectors and their factor of the last call."""

    def __init__(self) -> None:
        self._active = np.empty(0, dtype=np.intp)
        #: the lower Cholesky factor of K + ones, active rows; below, rows of the identity, so that
        #: vectors enter in place and LAPACK takes the whole (transposed: it expects columns)
        self._factor: np.ndarray | None = None
        self._scale = 0.0
        #: the factor's inverse times minus the linear term, and times ones: of one call
        self._free = self._level = np.empty(0)

    @property
    def active(self) -> list[int]:
        """The vectors whose weights were positive last."""
        return [int(i) for i in self._active]

    def renumber(self, active: Sequence[int] | np.ndarray) -> None:
        """Continue with other vectors, or with vectors that have new numbers."""
        self._active, self._factor = np.array(active, dtype=np.intp), None

    def state(self) -> dict[str, Any]:
        """Return all that a checkpoint has to keep, bit for bit."""
        factor = None if self._factor is None else self._factor.copy()
        return {"active": self._active, "factor": factor, "scale": self._scale}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint."""
        self.renumber(state["active"])
        self._scale, factor = state["scale"], state["factor"]
        self._factor = None if factor is None else np.array(factor, order="C")

    def weights(self, K: np.ndarray, linear: Vector, last: Vector) -> Vector:
        """Return the weights, starting from those of the last call (`last`; 0 for new vectors).

        K is the Gram matrix; columns beyond its rows are ignored. `linear` holds the e_i.
        """
        weights = self._start(K, linear, last)
        if self._factor is None and not self._factored(K):
            return weights
        self._improve(K[:, : linear.size], linear, weights)
        weights /= np.add.reduce(weights)
        return weights

    def _improve(self, K: np.ndarray, linear: Vector, weights: Vector) -> None:
        """Let vectors enter and leave until the weights are best, or `MOST_CHANGES` times."""
        # As weights add up to 1, a constant may be subtracted; a large one would take all digits.
        linear = linear - linear[self._active].min()
        self._solve(linear)
        for _ in range(MOST_CHANGES):
            best = self._best_of_active()
            if best is None:
                break
            if best[best.argmin()] > 0.0:
                weights[self._active] = best
                entering = self._entering(K, linear, weights)
                if entering is None or weights[entering] > 0.0:
                    break
                self._enter(K, linear, entering)
            elif not self._leave(linear, weights, best):
                break

    def _start(self, K: np.ndarray, linear: Vector, last: Vector) -> Vector:
        """Return weights to start with: the last ones, or all of it on one vector."""
        if not self._active.size:
            self.renumber([int((0.5 * K.diagonal() + linear).argmin())])
        active = self._active
        # Of the active vectors alone: others may be much longer, and drown them in rounding.
        squares = K[active, active]
        scale = float(np.add.reduce(squares)) / active.size or float(K.diagonal().max()) or 1.0
        if not 0.01 * scale <= self._scale <= 100.0 * scale:
            self._scale, self._factor = scale, None
        weights = np.zeros(linear.size)
        begun = last[active]
        total = float(np.add.reduce(begun))
        weights[active] = begun / total if total > 0.0 else 1.0 / active.size
        return weights

    def _factored(self, K: np.ndarray) -> bool:
        active, n = self._active, self._active.size
        matrix = K[active[:, None], active]
        matrix += self._scale
        matrix.flat[:: n + 1] *= 1.0 + RIDGE
        factor, info = dpotrf(matrix.T, lower=0, clean=1, overwrite_a=1)
        if info != 0:
            self.renumber([])
            return False
        self._factor = self._spread(factor.T)
        return True

    def _spread(self, factor: np.ndarray) -> np.ndarray:
        """Return a factor in a larger one, the rest of which is the identity."""
        n = self._active.size
        rows = 2 * n + REMOVED_BLOCK
        spread = np.zeros((rows, rows))
        spread.flat[:: rows + 1] = 1.0
        spread[:n, :n] = factor[:n, :n]
        return spread

    # One right side at a time: with two, LAPACK starts threads, which may be slow.

    def _solve(self, linear: Vector) -> None:
        assert self._factor is not None
        n, rows = self._active.size, self._factor.shape[0]
        right = np.zeros((2, rows))
        free, level = right
        np.negative(linear[self._active], out=free[:n])
        level[:n] = 1.0
        self._free = dtrsv(self._factor.T, free, trans=1, overwrite_x=1)
        self._level = dtrsv(self._factor.T, level, trans=1, overwrite_x=1)

    def _best_of_active(self) -> Vector | None:
        """Return the best weights of the active vectors, of any sign, that add up to 1."""
        free, level = self._free, self._level
        square = ddot(level, level)
        if not (square > 0.0 and math.isfinite(square)):
            return None
        right = level * ((1.0 - ddot(level, free)) / square)
        right += free
        assert self._factor is not None
        solved = dtrsv(self._factor.T, right, overwrite_x=1)
        best: Vector = solved[: self._active.size]
        return best if math.isfinite(ddot(best, best)) else None

    def _entering(self, K: np.ndarray, linear: Vector, weights: Vector) -> int | None:
        """Return the vector that lowers the sum most when it enters; None if there is none."""
        active = self._active
        best = weights[active]
        reduced = best @ K[active]
        reduced += linear
        level = ddot(reduced[active], best)
        entering = int(reduced.argmin())
        return entering if reduced[entering] < level - WORTH_ENTERING * abs(level) else None

    def _enter(self, K: np.ndarray, linear: Vector, entering: int) -> None:
        assert self._factor is not None
        active, n = self._active, self._active.size
        rows = self._factor.shape[0]
        right = np.zeros(rows)
        np.add(K[entering, active], self._scale, out=right[:n])
        row = dtrsv(self._factor.T, right, trans=1, overwrite_x=1)
        size = (float(K[entering, entering]) + self._scale) * (1.0 + RIDGE)
        last = math.sqrt(max(size - ddot(row, row), 1e-2 * RIDGE * size, SMALLEST))
        free, level = self._free, self._level
        free[n] = (-linear[entering] - ddot(row, free)) / last
        level[n] = (1.0 - ddot(row, level)) / last
        self._factor[n, :n], self._factor[n, n] = row[:n], last
        self._active = np.concatenate((active, (entering,)))
        if n + 1 == rows:
            self._factor = self._spread(self._factor)
            spare = np.zeros(self._factor.shape[0] - rows)
            self._free, self._level = (np.concatenate((part, spare)) for part in (free, level))

    def _leave(self, linear: Vector, weights: Vector, best: Vector) -> bool:
        """Go towards the best weights until the first one is zero, and let its vector leave."""
        active = self._active
        old = weights[active]
        (falling,) = (best <= 0.0).nonzero()
        lost = old[falling]
        shares = lost / np.maximum(lost - best[falling], 1e-300)
        place = int(shares.argmin())
        moved = np.maximum(old + min(float(shares[place]), 1.0) * (best - old), 0.0)
        moved[falling[place]] = 0.0
        if not moved.any():
            return False
        weights[active] = moved
        (gone,) = (moved == 0.0).nonzero()
        for left, each in enumerate(gone[::-1].tolist()):
            self._remove(each, active.size - left)
        self._active = active[moved > 0.0]
        self._solve(linear)
        return True

    def _remove(self, place: int, n: int) -> None:
        """Remove a vector's row from the n rows of the factor; the last becomes the identity's.

        The rows below are then those of the factor of B B' + b b', with B the part of the factor
        below and b the removed column.
        """
        factor = self._factor
        assert factor is not None
        if place < n - 1:
            below = slice(place + 1, n)
            column = factor[below, place].copy()
            factor[place : n - 1, :place] = factor[below, :place]
            block = min(REMOVED_BLOCK, n - 1 - place)
            triangle, _, _, _ = dtpqrt(0, block, factor[below, below].T, column[None])
            factor[place : n - 1, place : n - 1] = triangle.T
        factor[n - 1, : n - 1] = 0.0
        factor[n - 1, n - 1] = 1.0
