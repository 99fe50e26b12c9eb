r"""The average of cuts that proves most, to all digits that the cuts have.

For slopes :math:`a_i` and numbers :math:`e_i \ge 0` it minimises

.. math:: \tfrac12 \Bigl\|\sum_i \lambda_i a_i\Bigr\|^2 + \sum_i \lambda_i e_i
          \quad\text{where } \lambda \ge 0,\ \sum_i \lambda_i = 1,

as `accelegrad.bundle.cut_programme` does, but from the slopes themselves. Their Gram matrix holds
squares: a sum of cuts that is 1e-8 of their length is lost in its rounding, and over a ball of
radius R nothing is proved beyond 1e-8 R. With QR factorisations of the slopes that limit is 1e-16.
This is too expensive for every step, but affordable for the last proofs. Any weights prove a bound.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import qr
from scipy.linalg.lapack import dtrtrs

from accelegrad.errors import Vector
from accelegrad.linalg import UNIT

#: Most changes of the active set per cut, each of which enters and leaves about once, and most
#: multiplications in all, about two seconds. Chosen.
CHANGES, MOST_WORK = 3, 1e10
#: A slope depends on others if the rest of it is a smaller share of its length.
DEPENDENT = 100 * UNIT


def sharp_average(slopes: np.ndarray, linear: Vector, weights: Vector) -> Vector:
    """Return the best weights, by Wolfe's algorithm (Math. Program. 11, 1976) with a linear term.

    Cuts enter and leave the set with positive weights until no other one lowers the sum. Their
    slopes, each with the same number on top, are the columns of a matrix M = Q R. `slopes` has one
    row per cut, `linear` holds the e_i, and `weights`, nonnegative and not all zero, is where to
    begin.
    """
    active = np.flatnonzero(weights > 0.0)
    positive = weights[active] / weights[active].sum()
    top = float(np.linalg.norm(slopes[active], axis=1).mean()) or 1.0  # as large as the slopes
    # Rotated into the span of all slopes, which usually has far fewer dimensions.
    (turned,) = qr(slopes.T, mode="r", check_finite=False)
    columns = np.vstack([np.full(len(slopes), top), turned[: len(slopes)]])
    heaviest = np.argsort(-positive, kind="stable")[: len(columns)]
    active, positive = active[heaviest], positive[heaviest]
    work, lowest = 0.0, np.inf
    for _ in range(CHANGES * len(slopes) + 2):
        work += 2.0 * len(columns) * active.size**2
        if work > MOST_WORK:
            break
        q, r = qr(columns[:, active], mode="economic", check_finite=False)
        direction = _dependence(r, linear[active])
        if direction is None:
            best = _best(q, r, linear[active])
            if not np.isfinite(best).all():
                break
            if best.min() > 0.0:
                positive = best / best.sum()
                slope = positive @ slopes[active]
                total = 0.5 * float(slope @ slope) + float(positive @ linear[active])
                if not total < lowest:
                    break  # rounding goes round in circles
                lowest, entering = total, _entering(slopes, linear, active, positive)
                if entering is None:
                    break
                active, positive = np.append(active, entering), np.append(positive, 0.0)
                continue
            direction = best - positive
        falling = np.flatnonzero(direction < 0.0)
        if not falling.size or active.size == 1:
            break
        # Weights change until the first of them is zero; its cut leaves.
        shares = positive[falling] / -direction[falling]
        leaving = int(falling[shares.argmin()])
        positive = np.maximum(positive + float(shares.min()) * direction, 0.0)
        active, positive = np.delete(active, leaving), np.delete(positive, leaving)
    found = np.zeros_like(linear)
    found[active] = positive / (positive.sum() or 1.0)
    return found


def _dependence(r: np.ndarray, linear: Vector) -> Vector | None:
    """Return a change of dependent weights that keeps the sum of slopes, or None."""
    count = r.shape[1]
    sizes = np.linalg.norm(r, axis=0)
    diagonal = np.zeros(count)
    diagonal[: len(r)] = np.abs(r.diagonal())
    dependent = np.flatnonzero(~(diagonal > DEPENDENT * sizes))
    if not dependent.size:
        return None
    column, direction = int(dependent[0]), np.zeros(count)
    if column:
        direction[:column], _ = dtrtrs(r[:column, :column], r[:column, column])
    direction[column] = -1.0
    return -direction if float(linear @ direction) > 0.0 else direction


def _best(q: np.ndarray, r: np.ndarray, linear: Vector) -> Vector:
    """Return the active cuts' best weights, of any sign, that add up to 1.

    They solve M'M w = c 1 - e for some c. As M'(1, 0, ..., 0) is a multiple of 1, the first row of
    Q stands for R'^-1 1, to all digits.
    """
    shares, _ = dtrtrs(r, linear, trans=1)
    free, _ = dtrtrs(r, -shares)
    level, _ = dtrtrs(r, q[0])
    best: Vector = free + (1.0 - free.sum()) / level.sum() * level
    return best


def _entering(
    slopes: np.ndarray, linear: Vector, active: np.ndarray, weights: Vector
) -> int | None:
    """Return the cut that lowers the sum most when it enters; None if there is none."""
    slope = weights @ slopes[active]
    reduced = slopes @ slope + linear
    level, entering = float(reduced[active] @ weights), int(reduced.argmin())
    length, steep = np.linalg.norm(slope), np.linalg.norm(slopes[entering])
    lost = 2.0 * UNIT * length * steep  # the rounding of the product
    if entering in active or not reduced[entering] < level - lost:
        return None
    return entering
