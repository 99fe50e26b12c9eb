"""The minimum of a quadratic function with an l1 term in a box, by Newton steps on its faces.

Only the matrix of the free coordinates is factored, by LAPACK, so that nothing has to be compiled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrs

from accelegrad.errors import Vector
from accelegrad.linalg import UNIT, cholesky_factor, with_unit_diagonal
from accelegrad.models.matrix import Matrix

#: The least share of the promised fall that a step has to gain: Armijo's rule, usual constant.
DESCENT = 1e-4
#: The most Newton steps: a handful is usual, and the next quadratic continues.
MOST_STEPS = 100
MOST_HALVINGS = 10
#: Added to a diagonal of ones: more after a step that was too long, up to gradient descent.
LEAST_SHIFT, SHIFT_GROWTH = 1e-13, 100.0
#: A step that had to be made shorter than this was too long.
SHORT = 0.1
#: Slopes below this many units of rounding of their terms count as 0 (with 8, steps continue where
#: rounding hides all falls).
SLOPE_ROUNDING = 32.0


class Limits(NamedTuple):
    """The factors of the l1 norm, and the ends of the box, one per coordinate."""

    l1: Vector
    lower: Vector
    upper: Vector

    def at(self, chosen: Any) -> Limits:
        """Return the limits of some coordinates."""
        return Limits(self.l1[chosen], self.lower[chosen], self.upper[chosen])

    def in_units(self, units: Vector) -> Limits:
        """Return the limits for coordinates measured in these units."""
        return Limits(self.l1 * units, self.lower / units, self.upper / units)


class Minimum(NamedTuple):
    """The minimum, and the fall of the function from the start to it."""

    point: Vector
    fall: float


def box_minimum(matrix: Matrix, slope: Vector, limits: Limits, start: Vector) -> Minimum:
    r"""Return the minimum of g'(u - s) + (u - s)'C(u - s)/2 + sum_j l1_j |u_j| over a box.

    C is positive semidefinite; a coordinate with a zero on the diagonal has no other entry. The
    start s is in the box, and g is the gradient of the quadratic part there.

    The method is projected Newton. Between kinks (0 with an l1 term, and the ends of the box) the
    function is smooth. Coordinates at a kink that would rise on both sides stay; all others take a
    Newton step, each stopped at its next kink, and halved until the function falls.

    References
    ----------
    D. P. Bertsekas: Projected Newton methods for optimization problems with simple constraints.
    SIAM Journal on Control and Optimization 20, 1982.
    """
    units, scaled = with_unit_diagonal(matrix)
    if units.all():
        found, fall = _minimum(scaled, units * slope, limits.in_units(units), start / units)
        return Minimum(np.minimum(np.maximum(units * found, limits.lower), limits.upper), fall)
    # Coordinates that only the limits move.
    nearest = np.minimum(np.maximum(0.0, limits.lower), limits.upper)
    point = np.where(limits.l1 > 0.0, nearest, start)
    curved = np.flatnonzero(units)
    rest = np.flatnonzero(units == 0.0)
    fall = float(limits.l1[rest] @ (np.abs(start[rest]) - np.abs(point[rest])))
    if curved.size:
        inner = box_minimum(
            matrix[np.ix_(curved, curved)], slope[curved], limits.at(curved), start[curved]
        )
        point[curved] = inner.point
        fall += inner.fall
    return Minimum(point, fall)


def _minimum(matrix: Matrix, slope: Vector, limits: Limits, start: Vector) -> Minimum:
    """Return the minimum for a matrix with ones on the diagonal."""
    l1, lower, upper = limits
    kinked = l1 > 0.0
    # The ends of the piece on either side of 0.
    above = np.where(kinked, np.maximum(lower, 0.0), lower)
    below = np.where(kinked, np.minimum(upper, 0.0), upper)
    u, r, fallen, shift = start, slope, 0.0, LEAST_SHIFT
    steepest = np.abs(slope) + l1
    for _ in range(MOST_STEPS):
        # The side of 0 that a coordinate is on, or goes to.
        signs = np.copysign(1.0, np.where(u == 0.0, -r, u))
        rises = signs > 0.0
        slopes = r + l1 * signs
        low, high = np.where(rises, above, lower), np.where(rises, upper, below)
        least = SLOPE_ROUNDING * UNIT * (steepest + float(np.abs(u - start).sum()))
        free = _free(slopes, u <= low, u >= high, least)
        if free.size == 0:
            break
        move = _newton_step(matrix, slopes, free, shift)
        found = _stopped_at_kinks(matrix, slopes, u, move, free, low, high)
        if found.share <= SHORT:
            if shift > 1.0 / LEAST_SHIFT:  # rounding hides any further fall
                break
            shift *= SHIFT_GROWTH
        else:
            shift = max(shift / SHIFT_GROWTH, LEAST_SHIFT)
        u, r, fallen = found.point, r + found.change, fallen + found.fall
    return Minimum(u, fallen)


def _free(slopes: Vector, at_low: Any, at_high: Any, least: Vector) -> Any:
    """Return the coordinates that move; none at the minimum, where slopes are at most `least`.

    Those that would fall from a kink wait while one between kinks is steeper than all of them.
    """
    falls = np.where(at_low, -slopes, np.where(at_high, slopes, np.abs(slopes)))
    # No fall between two kinks in one place, or if rounding hides the slope.
    falls[(at_low & at_high) | (falls <= least)] = 0.0
    at_kink = at_low | at_high
    leaving = falls * at_kink
    steepest, steep = float(leaving.max()), float((falls - leaving).max())
    if steepest == steep == 0.0:
        return np.empty(0, dtype=np.intp)
    if steepest < steep or steepest == 0.0:
        return np.flatnonzero(~at_kink)
    return np.flatnonzero(~at_kink | (leaving > 0.0))


def _newton_step(matrix: Matrix, slopes: Vector, free: Any, shift: float) -> Vector:
    part = matrix.copy() if free.size == len(matrix) else matrix[free][:, free]
    if shift > LEAST_SHIFT:
        part.flat[:: free.size + 1] += shift
    step: Vector = dpotrs(cholesky_factor(part), -slopes[free], lower=1, overwrite_b=1)[0]
    return step


class Stopped(NamedTuple):
    """The point after a step, C times the step, the fall, and the share of the step done."""

    point: Vector
    change: Vector
    fall: float
    share: float


def _stopped_at_kinks(
    matrix: Matrix, slopes: Vector, u: Vector, move: Vector, free: Any, low: Vector, high: Vector
) -> Stopped:
    """Do as much of a step as lets the function fall."""
    start, low, high, slope = u[free], low[free], high[free], slopes[free]
    columns = matrix if free.size == len(matrix) else matrix[:, free]
    t = 1.0
    for _ in range(MOST_HALVINGS):
        there = np.minimum(np.maximum(start + t * move, low), high)
        step = there - start
        promised = -float(slope @ step)
        if promised > 0.0:
            change = columns @ step
            fall = promised - 0.5 * float(step @ change[free])
            if fall >= DESCENT * promised:
                reached = u.copy()
                reached[free] = there
                return Stopped(reached, change, fall, t)
        t *= 0.5
    return Stopped(u, np.zeros_like(u), 0.0, 0.0)
