r"""The nearest point of a polyhedron, by Newton's method on the dual of that problem.

For the rows :math:`l \le A u \le h` and the box :math:`B` the dual has one multiplier per row. With
:math:`u(y) = P_B(x - A^T y)` its negative,

.. math:: \phi(y) = \sum_i \max(y_i l_i, y_i h_i) - \min_{u \in B}
          \bigl(\tfrac12 \|u - x\|^2 + y^T A u\bigr),

is convex and made of quadratic pieces, with slope :math:`t_i - (A u(y))_i` where row i is held at
its limit :math:`t_i`. A Newton step is exact on its piece, and a line search that knows where the
pieces end goes on to the next one, so that few steps are needed. At the end the equations that hold
are known, and solving these alone gives all digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from accelegrad.errors import Vector
from accelegrad.problems.rounding import UNIT, growth

#: Newton's steps at most: random and degenerate polyhedra of up to 60 rows took up to 300.
MOST_STEPS = 1000
#: After so many steps a row that is missed is held only when those held before are met. Steps are
#: more then, but no set of held rows comes twice, so that they end.
EASY_STEPS = 30
#: What is added to the diagonal of Newton's equations, whose rows may depend on each other
DIAGONAL = 1e-10
#: How often the equations that hold are solved: the second time removes what rounding of the first
#: time left, and the third is for equations that nearly depend on each other.
SOLVED = 3
#: A row is met if rounding can explain this part of what it is missed by.
EXPLAINED = 4.0


Mask: TypeAlias = npt.NDArray[np.bool_]


class Rows(NamedTuple):
    """Rows l <= A u <= h and bounds of single coordinates."""

    A: Vector
    low: Vector
    high: Vector
    box_low: Vector
    box_high: Vector

    def clip(self, z: Vector) -> Vector:
        """Return the nearest point of the box."""
        clipped: Vector = np.maximum(z, self.box_low)
        np.minimum(clipped, self.box_high, out=clipped)
        return clipped

    def excess(self, u: Vector) -> Vector:
        """Return how far each row is above its upper limit, or (negative) below its lower one."""
        product = self.A @ u
        return np.maximum(product - self.high, 0.0) + np.minimum(product - self.low, 0.0)

    def rounding(self, u: Vector) -> Vector:
        """Return what rounding can amount to in each row of A u, its limits included."""
        limits = np.maximum(_finite_size(self.low), _finite_size(self.high))
        return EXPLAINED * (growth(u.size) * (np.abs(self.A) @ np.abs(u)) + UNIT * limits)

    def meets(self, u: Vector) -> bool:
        """Say whether a point of the box meets the rows, up to rounding."""
        return bool((np.abs(self.excess(u)) <= self.rounding(u)).all())


class Nearest(NamedTuple):
    """The nearest point, and the multipliers of the rows: point = P_B(x - A' y)."""

    point: Vector
    multipliers: Vector


def nearest_point(rows: Rows, x: Vector) -> Nearest:
    """Return the point nearest to x that meets the rows.

    Where there is none, one comes back that misses some of them.
    """
    found = _solved(rows, x)
    point = found.point
    for _ in range(2):
        # From far away the first time leaves the rounding of large numbers.
        if rows.meets(point) or not np.isfinite(point).all():
            break
        point = _solved(rows, point).point
    return Nearest(point, found.multipliers)


def _solved(rows: Rows, x: Vector) -> Nearest:
    y = np.zeros(rows.low.size)
    equal = rows.low == rows.high
    z, u = x, rows.clip(x)
    for count in range(MOST_STEPS):
        product = rows.A @ u
        upper = (y > 0.0) | ((y == 0.0) & (product > rows.high))
        lower = (y < 0.0) | ((y == 0.0) & (product < rows.low))
        target = np.where(upper, rows.high, rows.low)
        held = upper | lower | equal
        over = np.where(held, product - np.where(held, target, 0.0), 0.0)
        terms = np.abs(u) + np.abs(x) + np.abs(rows.A).T @ np.abs(y)
        missed = np.abs(over) > rows.rounding(terms)
        if not missed.any():
            break
        inside = (y != 0.0) | equal
        if count >= EASY_STEPS and (missed & inside).any():
            held = inside
        free = (z > rows.box_low) & (z < rows.box_high)
        step = _newton_step(rows.A, free, np.where(held, over, 0.0), held, ~inside)
        length = _line_search(rows, z, y, step)
        if not 0.0 < length < math.inf:
            break
        y = _moved(y, step, length)
        z = x - rows.A.T @ y
        u = rows.clip(z)
    return Nearest(_polished(rows, x, z, u, (y != 0.0) | equal, y > 0.0), y)


def _newton_step(A: Vector, free: Mask, over: Vector, held: Mask, at_zero: Mask) -> Vector:
    """Return the step of the multipliers of the rows held.

    A multiplier at zero may leave it on the side of its row's limit only, else it stays there.
    """
    step = np.zeros(over.size)
    columns = A[:, free]
    while held.any():
        part = columns[held]
        gram = part @ part.T
        size = max(1.0, float(np.trace(gram)) / len(gram))
        gram[np.diag_indices_from(gram)] += DIAGONAL * size
        step[:] = 0.0
        step[held] = np.linalg.solve(gram, over[held])
        wrong = held & at_zero & (step * over <= 0.0)
        if not wrong.any():
            break
        held = held & ~wrong
    return step


def _line_search(rows: Rows, z: Vector, y: Vector, step: Vector) -> float:
    """Return the length at which the slope along the step changes its sign, inf if it never does.

    The slope is linear but for the ends of pieces: where a coordinate meets or leaves its bound,
    and where a multiplier passes zero.
    """
    way = rows.A.T @ step

    def slope(length: float) -> float:
        moved = _moved(y, step, length)
        ahead = np.where(moved == 0.0, step, moved)  # a multiplier at zero is about to leave it
        limits = np.where(ahead > 0.0, rows.high, rows.low)[step != 0.0]
        least = float(step[step != 0.0] @ limits)
        return least - float(way @ rows.clip(z - length * way))

    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ends = np.concatenate([(z - rows.box_low) / way, (z - rows.box_high) / way, -y / step])
    ends = np.unique(ends[(ends > 0.0) & np.isfinite(ends)])
    if not slope(0.0) < 0.0:
        return 0.0
    first, last = 0, ends.size  # the slope is negative before `first`
    while first < last:
        middle = (first + last) // 2
        if slope(float(ends[middle])) < 0.0:
            first = middle + 1
        else:
            last = middle
    before = float(ends[first - 1]) if first else 0.0
    after = float(ends[first]) if first < ends.size else 2.0 * max(before, 1.0)
    return _root(slope, before, after, beyond=first == ends.size)


def _root(slope: Callable[[float], float], before: float, after: float, *, beyond: bool) -> float:
    """Return where a slope that is linear between two lengths is zero, or the second one."""
    inside = before + 0.5 * (after - before)
    if not before < inside < after:
        return after
    low, middle = slope(before), slope(inside)
    rise = (middle - low) / (inside - before)
    if not rise > 0.0:
        return math.inf if beyond else after
    root = before - low / rise
    return float(root if beyond else min(root, after))


def _moved(y: Vector, step: Vector, length: float) -> Vector:
    """Return y + length * step, exactly zero where a multiplier arrives there."""
    moved = y + length * step
    with np.errstate(divide="ignore", invalid="ignore"):
        arrives = (y != 0.0) & (np.abs(-y / step - length) <= UNIT * length)
    moved[arrives] = 0.0
    return moved


def _polished(rows: Rows, x: Vector, z: Vector, u: Vector, held: Mask, at_high: Mask) -> Vector:
    """Return the nearest point that meets the rows held as equations, if it meets the rest."""
    if not held.any():
        return u
    free = (z > rows.box_low) & (z < rows.box_high)
    equations = rows.A[held]
    target = np.where(at_high, rows.high, rows.low)[held]
    part = equations[:, free]
    point = np.where(free, x, u)
    for _ in range(SOLVED):
        missed = equations @ point - target
        point[free] -= np.linalg.lstsq(part, missed, rcond=None)[0]
    point = rows.clip(point)
    worse = np.abs(rows.excess(point)) > np.maximum(
        np.abs(rows.excess(u)), rows.rounding(np.abs(x) + np.abs(point))
    )
    return u if worse.any() or not np.isfinite(point).all() else point


def _finite_size(limits: Vector) -> Vector:
    return np.where(np.isfinite(limits), np.abs(limits), 0.0)
