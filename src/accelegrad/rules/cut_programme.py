r"""A small quadratic programme: the shortest sum of cuts, in the sense of a bundle method.

For vectors :math:`a_i` (slopes of affine functions below a function) with Gram matrix K and
numbers :math:`e_i \ge 0` it finds

.. math:: \min_{\lambda \ge 0}\ \tfrac12 \Bigl\|\sum_i \lambda_i a_i\Bigr\|^2 + \sum_i \lambda_i e_i
          \quad\text{where } \sum_i \lambda_i = 1.

It is Wolfe's algorithm for the point of a polytope nearest to zero (P. Wolfe, Math. Program. 11,
1976), with a linear term: some weights are positive, all others zero; a linear system gives the
best positive weights; one vector enters or leaves at a time. The factor of that system and its
vectors are kept from one call to the next, because only a few of them change.

The result need not be exact: any weights on the simplex prove a lower bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs, dtrtrs

from accelegrad.errors import Vector

#: Changes of the active set in one call: more gain less than the next cut does (measured: with 40
#: instead of no limit, functions of 500 separate kinks take a seventh of the time and no more
#: calls).
MOST_CHANGES = 40
#: Added to the diagonal, as a share of it, so that dependent vectors can be factored
RIDGE = 1e-13
SMALLEST = float(np.finfo(np.float64).tiny)
#: A vector enters if that lowers the sum by more than this share of its terms; these are taken to
#: be no smaller than the second number times the largest square.
WORTH_ENTERING, SMALL_TERMS = 1e-11, 1e-3


class CutProgramme:
    """The programme, with the active vectors and their factor of the last call.

    Attributes
    ----------
    active : list of int
        The vectors whose weights were positive last.
    """

    def __init__(self) -> None:
        self.active: list[int] = []
        self._factor: np.ndarray | None = None  # lower Cholesky factor of K + ones, active rows
        self._scale = 0.0

    def renumber(self, active: list[int]) -> None:
        """Go on with vectors that have other numbers now."""
        self.active, self._factor = active, None

    def state(self) -> dict[str, Any]:
        """Return all that has to be kept to go on, bit for bit."""
        active = np.array(self.active, dtype=np.int64)
        return {"active": active, "factor": self._factor, "scale": self._scale}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.active, self._scale = [int(i) for i in state["active"]], state["scale"]
        factor = state["factor"]
        self._factor = None if factor is None else np.asfortranarray(factor)

    def weights(self, K: np.ndarray, linear: Vector, last: Vector) -> Vector:
        """Return the weights, from those of the last call on.

        Parameters
        ----------
        K : array of shape (n, n)
            The Gram matrix.
        linear : array of shape (n,)
            The numbers e_i.
        last : array of shape (n,)
            The weights of the last call, zero for new vectors.
        """
        weights = self._start(K, linear, last)
        if self._factor is None and not self._factored(K):
            return weights
        for _ in range(MOST_CHANGES):
            best = self._best_of_active(linear)
            if best is None:
                break
            if best.min() > 0.0:
                weights[self.active] = best
                entering = self._entering(K, linear, best)
                if entering is None or weights[entering] > 0.0:
                    break
                self._enter(K, entering)
            elif not self._leave(K, weights, best):
                break
        total: Vector = weights / weights.sum()
        return total

    def corrected(self, weights: Vector, slopes: Vector) -> Vector:
        """Return better weights, given the sum's slopes along the vectors, to more digits.

        Sums of products of long vectors lose half of the digits of a short sum. Slopes that were
        computed with the sum itself have them, and the factor is good enough to use them.
        """
        active = self.active
        if self._factor is None or len(active) < 2:
            return weights
        right = np.empty((len(active), 2), order="F")
        right[:, 0], right[:, 1] = -slopes[active], 1.0
        solved, _ = dpotrs(self._factor, right, lower=1)
        change = solved[:, 0] - solved[:, 0].sum() / solved[:, 1].sum() * solved[:, 1]
        better = weights.copy()
        better[active] += change
        good = np.isfinite(change).all() and better[active].min() > 0.0
        return better / better.sum() if good else weights

    def _start(self, K: np.ndarray, linear: Vector, last: Vector) -> Vector:
        """Return weights to begin with: the last ones, or all of it on one vector."""
        diagonal = K.diagonal()
        if not self.active:
            self.renumber([int((0.5 * diagonal + linear).argmin())])
        # Of the active vectors alone: others may be much longer, and would drown them in rounding.
        scale = float(diagonal[self.active].mean()) or float(diagonal.max()) or 1.0
        if not 0.01 * scale <= self._scale <= 100.0 * scale:
            self._scale, self._factor = scale, None
        weights = np.zeros(linear.size)
        weights[self.active] = last[self.active]
        total = float(weights.sum())
        if not total > 0.0:
            weights[self.active], total = 1.0, float(len(self.active))
        return weights / total

    def _factored(self, K: np.ndarray) -> bool:
        """Factor the active part anew, and say whether that is possible."""
        active = self.active
        matrix = K[np.ix_(active, active)] + self._scale
        matrix.flat[:: len(active) + 1] *= 1.0 + RIDGE
        factor, info = dpotrf(matrix, lower=1, clean=1)
        self._factor = factor if info == 0 else None
        if info != 0:
            self.active = []
        return bool(info == 0)

    def _best_of_active(self, linear: Vector) -> Vector | None:
        """Return the best weights of the active vectors, of any sign, that add up to 1."""
        right = np.empty((len(self.active), 2), order="F")
        # As weights add up to 1, a constant may be taken off; a large one would take all digits.
        active = linear[self.active]
        right[:, 0], right[:, 1] = active.min() - active, 1.0
        solved, _ = dpotrs(self._factor, right, lower=1)
        free, level = solved[:, 0], solved[:, 1]
        total = float(level.sum())
        if not (total > 0.0 and math.isfinite(total)):
            return None
        with np.errstate(over="ignore", invalid="ignore"):
            best: Vector = free + (1.0 - float(free.sum())) / total * level
        return best if np.isfinite(best).all() else None

    def _entering(self, K: np.ndarray, linear: Vector, best: Vector) -> int | None:
        """Return the vector that lowers the sum most when it enters; None if there is none."""
        reduced = K[:, self.active] @ best + linear
        level = float(reduced[self.active] @ best)
        entering = int(reduced.argmin())
        terms = abs(level) + SMALL_TERMS * self._scale
        return entering if reduced[entering] < level - WORTH_ENTERING * terms else None

    def _enter(self, K: np.ndarray, entering: int) -> None:
        """Add a row to the factor."""
        assert self._factor is not None
        active, n = self.active, len(self.active)
        row, _ = dtrtrs(self._factor, K[active, entering] + self._scale, lower=1)
        size = (K[entering, entering] + self._scale) * (1.0 + RIDGE)
        square = max(size - float(row @ row), 1e-2 * RIDGE * size, SMALLEST)
        factor = np.zeros((n + 1, n + 1), order="F")
        factor[:n, :n] = self._factor
        factor[n, :n] = row
        factor[n, n] = math.sqrt(square)
        self._factor = factor
        active.append(entering)

    def _leave(self, K: np.ndarray, weights: Vector, best: Vector) -> bool:
        """Go towards the best weights until the first one is zero, and let its vector leave."""
        active = self.active
        old = weights[active]
        falling = best <= 0.0
        share = np.full(len(active), math.inf)
        share[falling] = old[falling] / np.maximum(old[falling] - best[falling], 1e-300)
        first = int(share.argmin())
        moved = np.maximum(old + min(float(share[first]), 1.0) * (best - old), 0.0)
        moved[first] = 0.0
        if not moved.any():
            return False
        weights[active] = moved
        self.active = [i for i, weight in zip(active, moved, strict=True) if weight > 0.0]
        return self._factored(K)
