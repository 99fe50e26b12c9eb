r"""The quadratic programme of a bundle method with many cuts: their shortest sum.

For vectors :math:`a_i` (slopes of affine functions below a function) with Gram matrix K and
numbers :math:`e_i \ge 0` it finds

.. math:: \min_{\lambda \ge 0}\ \tfrac12 \Bigl\|\sum_i \lambda_i a_i\Bigr\|^2 + \sum_i \lambda_i e_i
          \quad\text{where } \sum_i \lambda_i = 1.

It is Wolfe's algorithm for the point of a polytope nearest to zero (P. Wolfe, Math. Program. 11,
1976), with a linear term: a linear system gives the best positive weights, and one vector enters or
leaves at a time, by an update of the system's factor. A call starts from the weights of the last
one, because only a few vectors change. DAQP, which always starts from scratch, takes ten times as
long with hundreds of active cuts. The result need not be exact: any weights prove a lower bound.
"""

from __future__ import annotations

import math

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


def shortest_sum(K: np.ndarray, linear: Vector, last: Vector) -> Vector:
    """Return the weights, starting from those of the last call (`last`; 0 for new vectors).

    K is the Gram matrix; columns beyond its rows are ignored. `linear` holds the e_i.
    """
    programme = _Programme(K[:, : linear.size], linear)
    (active,) = last.nonzero()
    if not (active.size and programme.begin(active, last[active])):
        programme.begin(np.array([(0.5 * K.diagonal() + linear).argmin()]), np.ones(1))
    programme.improve()
    weights = programme.weights
    weights /= np.add.reduce(weights)
    return weights


class _Programme:
    """The programme, with the active vectors, whose weights are positive, and their factor."""

    def __init__(self, K: np.ndarray, linear: Vector) -> None:
        self.K, self.linear = K, linear

    def begin(self, active: np.ndarray, weights: Vector) -> bool:
        """Begin with the weights of some vectors; return whether these have a factor."""
        K, n = self.K, active.size
        self.active, self.weights = active, np.zeros(self.linear.size)
        self.weights[active] = weights / np.add.reduce(weights)
        # Of the active vectors alone: others may be much longer, and drown them in rounding.
        mean = float(np.add.reduce(K[active, active])) / n
        self.scale = mean or float(K.diagonal().max()) or 1.0
        matrix = K[active[:, None], active]
        matrix += self.scale
        matrix.flat[:: n + 1] *= 1.0 + RIDGE
        factor, info = dpotrf(matrix.T, lower=0, clean=1, overwrite_a=1)
        if info != 0:
            return False
        #: the lower Cholesky factor of K + scale, active rows; below, rows of the identity, so that
        #: vectors enter in place and LAPACK takes the whole (transposed: it expects columns)
        self.factor = np.eye(n + MOST_CHANGES)
        self.factor[:n, :n] = factor.T
        return True

    def improve(self) -> None:
        """Let vectors enter and leave until the weights are best, or `MOST_CHANGES` times."""
        # As weights add up to 1, a constant may be subtracted; a large one would take all digits.
        self.linear = self.linear - self.linear[self.active].min()
        self._solve()
        for _ in range(MOST_CHANGES):
            best = self._best_of_active()
            if best is None:
                break
            if best[best.argmin()] > 0.0:
                self.weights[self.active] = best
                entering = self._entering()
                if entering is None or self.weights[entering] > 0.0:
                    break
                self._enter(entering)
            elif not self._leave(best):
                break

    # One right side at a time: with two, LAPACK starts threads, which may be slow.

    def _solve(self) -> None:
        """Compute the factor's inverse times minus the linear term, and times ones."""
        n = self.active.size
        free, level = np.zeros((2, self.factor.shape[0]))
        np.negative(self.linear[self.active], out=free[:n])
        level[:n] = 1.0
        self.free = dtrsv(self.factor.T, free, trans=1, overwrite_x=1)
        self.level = dtrsv(self.factor.T, level, trans=1, overwrite_x=1)

    def _best_of_active(self) -> Vector | None:
        """Return the best weights of the active vectors, of any sign, that add up to 1."""
        free, level = self.free, self.level
        square = ddot(level, level)
        if not (square > 0.0 and math.isfinite(square)):
            return None
        right = level * ((1.0 - ddot(level, free)) / square)
        right += free
        solved = dtrsv(self.factor.T, right, overwrite_x=1)
        best: Vector = solved[: self.active.size]
        return best if math.isfinite(ddot(best, best)) else None

    def _entering(self) -> int | None:
        """Return the vector that lowers the sum most when it enters; None if there is none."""
        active = self.active
        best = self.weights[active]
        reduced = best @ self.K[active]
        reduced += self.linear
        level = ddot(reduced[active], best)
        entering = int(reduced.argmin())
        return entering if reduced[entering] < level - WORTH_ENTERING * abs(level) else None

    def _enter(self, entering: int) -> None:
        K, n = self.K, self.active.size
        right = np.zeros(self.factor.shape[0])
        np.add(K[entering, self.active], self.scale, out=right[:n])
        row = dtrsv(self.factor.T, right, trans=1, overwrite_x=1)
        size = (float(K[entering, entering]) + self.scale) * (1.0 + RIDGE)
        last = math.sqrt(max(size - ddot(row, row), 1e-2 * RIDGE * size, SMALLEST))
        self.free[n] = (-self.linear[entering] - ddot(row, self.free)) / last
        self.level[n] = (1.0 - ddot(row, self.level)) / last
        self.factor[n, :n], self.factor[n, n] = row[:n], last
        self.active = np.concatenate((self.active, (entering,)))

    def _leave(self, best: Vector) -> bool:
        """Go towards the best weights until the first one is zero, and let its vector leave."""
        active = self.active
        old = self.weights[active]
        (falling,) = (best <= 0.0).nonzero()
        lost = old[falling]
        shares = lost / np.maximum(lost - best[falling], 1e-300)
        place = int(shares.argmin())
        moved = np.maximum(old + min(float(shares[place]), 1.0) * (best - old), 0.0)
        moved[falling[place]] = 0.0
        if not moved.any():
            return False
        self.weights[active] = moved
        (gone,) = (moved == 0.0).nonzero()
        for left, each in enumerate(gone[::-1].tolist()):
            self._remove(each, active.size - left)
        self.active = active[moved > 0.0]
        self._solve()
        return True

    def _remove(self, place: int, n: int) -> None:
        """Remove a vector's row from the n rows of the factor; the last becomes the identity's.

        The rows below are then those of the factor of B B' + b b', with B the part of the factor
        below and b the removed column.
        """
        factor = self.factor
        if place < n - 1:
            below = slice(place + 1, n)
            column = factor[below, place].copy()
            factor[place : n - 1, :place] = factor[below, :place]
            block = min(REMOVED_BLOCK, n - 1 - place)
            triangle, _, _, _ = dtpqrt(0, block, factor[below, below].T, column[None])
            factor[place : n - 1, place : n - 1] = triangle.T
        factor[n - 1, : n - 1] = 0.0
        factor[n - 1, n - 1] = 1.0
