r"""The average of cuts that proves most, to all digits that the cuts have.

For slopes :math:`a_i` and numbers :math:`e_i \ge 0` it minimises

.. math:: \tfrac12 \Bigl\|\sum_i \lambda_i a_i\Bigr\|^2 + \sum_i \lambda_i e_i
          \quad\text{where } \lambda \ge 0,\ \sum_i \lambda_i = 1,

as `accelegrad.bundle.cut_programme` does, but from the slopes themselves. Their Gram matrix holds
squares: a sum of cuts that is 1e-8 of their length is lost in its rounding, and over a ball of
radius R nothing is proved beyond 1e-8 R. With a QR factorisation of the slopes it is lost at 1e-16.
That is too expensive for every step of a method, and little for its last proofs.

Whatever comes out of it, weights prove something.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import qr, qr_delete, qr_insert
from scipy.linalg.lapack import dtrtrs

from accelegrad.errors import Vector
from accelegrad.rounding import UNIT

#: Changes of the active set at most, per dimension and at least (each cut enters and leaves about
#: once; more of them are rounding that goes round in circles), and numbers of Q that they may
#: touch: about a second
CHANGES, FEWEST_CHANGES, MOST_TOUCHED = 2, 20, 3e8
#: A slope depends on others where the rest of it is a smaller share of its length.
DEPENDENT = 100 * UNIT
#: A cut enters if that lowers the sum by more than this share of it, and by more than rounding.
WORTH_ENTERING = 1e-12


class SharpAverage:
    """Wolfe's algorithm (Math. Program. 11, 1976) with a linear term, by QR.

    Some weights are positive, all others zero. Their slopes, each with the same number on top, are
    the columns of a matrix M = Q R that follows where a cut enters or leaves.

    Parameters
    ----------
    slopes : array of shape (n, d)
        The cuts' slopes, one a row.
    linear : array of shape (n,)
        The numbers e_i.
    weights : array of shape (n,)
        Where to begin: nonnegative, not all zero.
    """

    def __init__(self, slopes: np.ndarray, linear: Vector, weights: Vector) -> None:
        self._slopes, self._linear = slopes, linear
        self._active = np.flatnonzero(weights > 0.0)
        self._positive = weights[self._active] / weights[self._active].sum()
        #: the number on top: about as large as the slopes
        self._top = float(np.linalg.norm(slopes[self._active], axis=1).mean()) or 1.0
        self._q: np.ndarray = np.empty((slopes.shape[1] + 1, 0))
        self._r: np.ndarray = np.empty((0, 0))

    def improve(self) -> Vector:
        """Return better weights: cuts enter and leave until they are the best, or often enough."""
        self._begin()
        most = max(FEWEST_CHANGES, CHANGES * self._slopes.shape[1])
        for _ in range(min(most, int(MOST_TOUCHED / self._slopes.size) + 1)):
            best = self._best_of_active()
            if not np.isfinite(best).all():
                break
            if best.min() > 0.0:
                self._positive = best / best.sum()
                entering = self._entering()
                if entering is None or not self._enter(entering):
                    break
            elif not self._leave_along(best - self._positive):
                break
        weights = np.zeros_like(self._linear)
        weights[self._active] = self._positive
        return weights

    def _begin(self) -> None:
        """Factor the columns; those that depend on others leave."""
        heaviest = np.argsort(-self._positive, kind="stable")[: len(self._q)]
        self._active, self._positive = self._active[heaviest], self._positive[heaviest]
        columns = np.empty((len(self._q), self._active.size))
        columns[0], columns[1:] = self._top, self._slopes[self._active].T
        self._q, self._r = qr(columns, mode="economic", check_finite=False)
        while (column := self._dependent()) is not None:
            direction = np.zeros(self._active.size)
            direction[:column], _ = dtrtrs(self._r[:column, :column], self._r[:column, column])
            direction[column] = -1.0
            self._leave_along(direction)
        self._positive /= self._positive.sum()

    def _dependent(self) -> int | None:
        """Return the first column that depends on those before, None if there is none."""
        sizes = np.linalg.norm(self._r, axis=0)
        dependent = np.flatnonzero(~(np.abs(self._r.diagonal()) > DEPENDENT * sizes))
        return int(dependent[0]) if dependent.size else None

    def _best_of_active(self) -> Vector:
        """Return the active cuts' best weights, of any sign, that add up to 1.

        They solve M'M w = c 1 - e for some c. As M'(1, 0, ..., 0) is a multiple of 1, the first row
        of Q stands for R'^-1 1, to all digits.
        """
        shares, _ = dtrtrs(self._r, self._linear[self._active], trans=1)
        free, _ = dtrtrs(self._r, -shares)
        level, _ = dtrtrs(self._r, self._q[0])
        best: Vector = free + (1.0 - free.sum()) / level.sum() * level
        return best

    def _entering(self) -> int | None:
        """Return the cut that lowers the sum most when it enters; None if there is none."""
        active, weights = self._active, self._positive
        slope = weights @ self._slopes[active]
        reduced = self._slopes @ slope + self._linear
        level, entering = float(reduced[active] @ weights), int(reduced.argmin())
        length, steep = np.linalg.norm(slope), np.linalg.norm(self._slopes[entering])
        lost = WORTH_ENTERING * length**2 + 2.0 * UNIT * length * steep
        if entering in active or not reduced[entering] < level - lost:
            return None
        return entering

    def _enter(self, entering: int) -> bool:
        """Let a cut enter; where its column depends on the others, some of them leave for it."""
        column = np.concatenate(((self._top,), self._slopes[entering]))
        while self._depends(column):
            instead, _ = dtrtrs(self._r, column @ self._q)
            # its weight grows while theirs fall: no sum changes but that of the linear term
            if not self._leave_along(-instead):
                return False
        n = self._active.size
        self._q, self._r = qr_insert(self._q, self._r, column, n, which="col", check_finite=False)
        self._active = np.append(self._active, entering)
        self._positive = np.append(self._positive, max(0.0, 1.0 - self._positive.sum()))
        return True

    def _depends(self, column: Vector) -> bool:
        """Return whether a column is a sum of the active ones, but for rounding."""
        if self._active.size == column.size:
            return True
        rest = column - self._q @ (column @ self._q)
        rest -= self._q @ (rest @ self._q)
        return not np.linalg.norm(rest) > DEPENDENT * np.linalg.norm(column)

    def _leave_along(self, direction: Vector) -> bool:
        """Change weights until the first is zero, whose cut leaves; False where none ever is."""
        falling = np.flatnonzero(direction < 0.0)
        if not falling.size:
            return False
        shares = self._positive[falling] / -direction[falling]
        place = int(shares.argmin())
        moved = np.maximum(self._positive + float(shares[place]) * direction, 0.0)
        leaving = int(falling[place])
        self._active = np.delete(self._active, leaving)
        self._positive = np.delete(moved, leaving)
        if self._active.size == 0:
            return False
        q, r = qr_delete(self._q, self._r, leaving, which="col", check_finite=False)
        n = self._active.size  # of a square matrix all columns of Q stay
        self._q, self._r = q[:, :n], r[:n]
        return True
