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
from accelegrad.norms import norm
from accelegrad.problems.rounding import UNIT, growth

#: Newton's steps at most; chosen. Where rows nearly depend on each other it may take hundreds, and
#: the other method is faster.
MOST_STEPS = 100
#: After so many steps a row that is missed is held only when those held before are met. Steps are
#: more then, but no set of held rows comes twice, so that they end.
EASY_STEPS = 30
#: What is added to the diagonal of Newton's equations, whose rows may depend on each other
DIAGONAL = 1e-10
#: How often the equations that hold are solved: the second time removes what rounding of the first
#: time left, and the third is for equations that nearly depend on each other.
SOLVED = 3
#: How often the other method is scaled anew, and beyond what length of its answer.
MOST_SCALINGS, LONG = 4, 100.0
#: Changes of the rows that it holds, at most, per row; chosen.
MOST_CHANGES = 3
#: How far a distance found may be from its lower bound, relative to the terms of both.
PROVED = 1e-11
#: How often a point is moved to the rows again: each time takes sixteen digits off what is missed,
#: and points are 1e100 away at most.
MOST_REFINEMENTS = 7
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
    found = _refined(_solved, rows, x)
    done = _is_done(rows, found.point)
    if done and _is_nearest(rows, x, found):
        return found
    other = _refined(_least_distance, rows, x)
    if done and _is_done(rows, other.point):
        return min(found, other, key=lambda each: norm(each.point - x))
    return min(found, other, key=lambda each: norm(rows.excess(each.point)))


def _is_nearest(rows: Rows, x: Vector, found: Nearest) -> bool:
    """Say whether the multipliers prove that no point is much nearer."""
    if not found.multipliers.any():
        return True  # of all the points of the box it is the nearest
    held = found.multipliers != 0.0
    m, A = found.multipliers[held], rows.A[held]
    with np.errstate(over="ignore", invalid="ignore"):
        lowest = rows.clip(x - A.T @ m)
        limits = m * np.where(m > 0.0, rows.high[held], rows.low[held])
        rises = m * (A @ lowest)
        square, least = (0.5 * norm(u - x) ** 2 for u in (found.point, lowest))
        terms = square + least + float(np.abs(rises).sum() + np.abs(limits).sum())
        return bool(square - least - float((rises - limits).sum()) <= PROVED * terms)


def _is_done(rows: Rows, point: Vector) -> bool:
    """Say whether a point found meets the rows, up to rounding, or can't be made to."""
    return not np.isfinite(point).all() or rows.meets(point)


def _refined(solve: Callable[[Rows, Vector], Nearest], rows: Rows, x: Vector) -> Nearest:
    """Return the nearest point, moved to the rows again where rounding took it off them."""
    found = solve(rows, x)
    point = found.point
    for _ in range(MOST_REFINEMENTS):
        # From far away the first time leaves the rounding of large numbers, and so on.
        if _is_done(rows, point):
            break
        point = solve(rows, point).point
    return Nearest(point, found.multipliers)


def _least_distance(rows: Rows, x: Vector) -> Nearest:
    """Return the same by Lawson and Hanson's method for the shortest z with G z >= e.

    It takes one problem of least squares with bounds, min ||(G' y, <e, y> - 1)|| over y >= 0 (any
    y for equations), whose residual has the direction (z, -1). An active-set method solves that,
    which ends, and stands rows that nearly depend on each other; Newton's method is faster. The
    scale s of z = s w is chosen such that w is about as long as 1: else digits are lost.
    """
    sides = _sides(rows)
    e = sides.limits - sides.G @ x
    scale = float(np.where(sides.free, np.abs(e), e).max(initial=0.0))
    nothing = Nearest(rows.clip(x), np.zeros(rows.low.size))
    if not 0.0 < scale < math.inf:
        return nothing
    target = np.append(np.zeros(x.size), 1.0)
    for _ in range(MOST_SCALINGS):
        matrix = np.vstack([sides.G.T, e / scale])
        y = _nonnegative(matrix, target, sides.free)
        along, rest = sides.G.T @ y, 1.0 - float(e / scale @ y)
        if not rest > 0.0:  # no point meets the rows
            return nothing
        length = norm(along) / rest
        if length <= LONG:
            break
        scale *= length
    if not scale / rest < math.inf:
        return nothing
    y *= scale / rest
    m, on_box = y @ sides.of_row, y @ sides.of_bound
    u = np.where(
        on_box > 0.0, rows.box_high, np.where(on_box < 0.0, rows.box_low, x - rows.A.T @ m)
    )
    held = (m != 0.0) | (rows.low == rows.high)
    return Nearest(_polished(rows, x, on_box == 0.0, rows.clip(u), held, m > 0.0), m)


def _nonnegative(matrix: Vector, target: Vector, free: Mask) -> Vector:
    """Return the y of least ||matrix y - target|| whose entries are nonnegative, but for free ones.

    Lawson and Hanson's method; SciPy's squares the condition of the matrix and loses digits.
    """

    def solved(held: Mask) -> Vector:
        y = np.zeros(free.size)
        y[held] = np.linalg.lstsq(matrix[:, held], target, rcond=None)[0]
        return y

    held = free.copy()
    y = solved(held) if held.any() else np.zeros(free.size)
    refused = np.zeros(free.size, dtype=bool)
    for _ in range(MOST_CHANGES * free.size):
        rest = target - matrix @ y
        slope = np.where(held | refused, 0.0, matrix.T @ rest)
        enters = int(slope.argmax())
        if not slope[enters] > growth(target.size) * norm(rest):
            break
        held[enters] = True
        following = solved(held)
        if not following[enters] > 0.0:  # rounding: it would leave at once
            held[enters], refused[enters] = False, True
            continue
        while (below := held & ~free & (following <= 0.0)).any():
            share = float((y[below] / (y[below] - following[below])).min())
            y = y + share * (following - y)
            held &= free | ~(below & (y <= UNIT * np.abs(y).max()))
            y[~held] = 0.0
            following = solved(held)
        y = following
        refused[:] = False
    return y


class Sides(NamedTuple):
    """All constraints as G u >= limits, with equality where `free`, and what each of them is."""

    G: Vector
    limits: Vector
    free: Mask
    of_row: Vector  # -1 where it is the lower side of a row, 1 where it is the upper one
    of_bound: Vector  # the same for bounds of coordinates


def _sides(rows: Rows) -> Sides:
    """Return the constraints one by one."""
    count, size = rows.A.shape
    both = np.vstack([rows.A, np.eye(size)])
    low, high = np.append(rows.low, rows.box_low), np.append(rows.high, rows.box_high)
    equal = low == high
    below, above = np.isfinite(low), np.isfinite(high) & ~equal
    signs = np.vstack([-np.eye(count + size)[below], np.eye(count + size)[above]])
    limits = np.append(low[below], -high[above])
    free = np.append(equal[below], np.zeros(np.count_nonzero(above), dtype=bool))
    return Sides(-signs @ both, limits, free, signs[:, :count], signs[:, count:])


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
    free = (z > rows.box_low) & (z < rows.box_high)
    return Nearest(_polished(rows, x, free, u, (y != 0.0) | equal, y > 0.0), y)


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


def _polished(rows: Rows, x: Vector, free: Mask, u: Vector, held: Mask, at_high: Mask) -> Vector:
    """Return the nearest point that meets the rows held as equations, if it meets the rest."""
    if not held.any():
        return u
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
