r"""The nearest point of a polyhedron, and the multipliers that prove it nearest.

For the rows :math:`l \le A u \le h` and the box :math:`B` the offset :math:`z = u - x` solves

.. math:: \min_z \tfrac12 \|z\|^2 \quad\text{with}\quad l - A x \le A z \le h - A x,
          \quad x + z \in B.

Three solvers share the work (measured: 20 to 60 coordinates, up to 120 rows):

- DAQP, a dual active-set method: 5 to 400 microseconds, exact to rounding. It factors products of
  rows, so it can fail on nearly parallel rows.
- SciPy's NNLS (Lawson and Hanson's method): 2 to 10 ms. It factors the rows themselves. Of 62
  ill-conditioned projections DAQP alone failed in 21, DAQP and PIQP in 5, DAQP and NNLS in none.
- PIQP, an interior-point method, comes first in high dimensions with many active bounds, which
  active-set methods add one by one.

There are no warm starts: the result depends only on the rows and x, so a resumed run repeats the
steps of an uninterrupted one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from accelegrad.errors import NonFiniteError, Vector
from accelegrad.linalg import UNIT, growth, norm

#: In more dimensions the interior-point method comes first (measured on the simplex: DAQP takes 2.5
#: ms for 200 coordinates and 57 ms for 500, PIQP 1 ms).
MOST_COORDINATES = 200
#: Where projections have a formula, projected steps find the minimum of a quadratic model faster
#: from so many coordinates on (at 50 DAQP takes 0.7 of their time, at 80 two to three times).
MANY_COORDINATES = 60
#: By how much DAQP may violate a row, relative to the violation at x: first, and after a failure.
#: The first is below PROVED (with 1e-9, 2 of 60 random problems were not proved), the last is
#: DAQP's default; projecting again removes the remainder.
TOLERANCES = (1e-12, 1e-6)
#: Smaller numbers and pivots count as zero in DAQP. Its defaults, 1e-11 and 3.7e-11, exceed the
#: tolerance: 75 of 400 projections onto degenerate rows failed, with these none.
SINGULAR = 1e-14
#: The same for PIQP, which only has to identify the active rows
INTERIOR_TOLERANCE = 1e-10
#: An active row may be violated by this many times the rounding error: less changes only the last
#: digits, and correcting it takes longer than DAQP. Chosen.
NOTICED = 100.0
#: The inverse of the term added to the problem of the lowest cut, in units in which the model's
#: value is at least -2: steps are shorter by at most a fifth, and rows are of similar length.
ADDED = 10.0
#: The share of a model's predicted decrease that may be missed, and the most units that are tried;
#: chosen (0.05: 1.02 times as many calls on 758 functions with bounds)
MISSED, MOST_UNITS = 1e-3, 3
#: DAQP's code of an equation
EQUATION = np.intc(5)
#: How often the active equations are solved: the second time removes rounding errors, the third
#: serves nearly dependent equations.
SOLVED = 3
#: How often a point is moved to the rows again: each time gains sixteen digits, and points are at
#: most 1e100 away.
MOST_REFINEMENTS = 7
#: A row is satisfied if rounding can explain this part of its violation.
EXPLAINED = 4.0
#: The largest relative difference of a squared distance and its lower bound
PROVED = 1e-11


class Rows:
    """Rows l <= A u <= h and bounds of single coordinates.

    `quick` says whether projected steps minimise a quadratic function over them faster than DAQP.
    """

    def __init__(
        self,
        A: Vector,
        low: Vector,
        high: Vector,
        box_low: Vector,
        box_high: Vector,
        *,
        quick: bool = False,
    ) -> None:
        self.quick = quick
        self.A, self.low, self.high = np.ascontiguousarray(A), low, high
        self.box_low, self.box_high = box_low, box_high
        #: the limits of coordinates and, after them, of rows
        self.all_low, self.all_high = np.append(box_low, low), np.append(box_high, high)
        self.equations = low == high
        self._senses = np.where(self.all_low == self.all_high, EQUATION, np.intc(0))
        self._sizes = EXPLAINED * growth(A.shape[1]) * np.abs(A)

    @property
    def senses(self) -> npt.NDArray[np.intc]:
        """DAQP's code for each coordinate and row; a copy, because DAQP may write to it."""
        return self._senses.copy()

    def clip(self, z: Vector) -> Vector:
        """Return the nearest point of the box."""
        clipped: Vector = np.maximum(z, self.box_low)
        np.minimum(clipped, self.box_high, out=clipped)
        return clipped

    def excess(self, product: Vector) -> Vector:
        """Return how far A u is above each upper limit, or (negative) below each lower one."""
        return np.maximum(product - self.high, 0.0) + np.minimum(product - self.low, 0.0)

    def nearer_limit(self, product: Vector) -> Vector:
        """Return for each row the limit that A u, the product, exceeds, or the nearer one."""
        return np.where(product - self.high > self.low - product, self.high, self.low)

    def rounding(self, size: Vector, product: Vector) -> Vector:
        """Return bounds of the rounding errors of A u, the product, where |u| is at most `size`.

        Only the nearer limit counts: a large one on the other side of a cone's row must not hide
        that a tiny point lies outside.
        """
        rounding: Vector = self._sizes @ size
        rounding += EXPLAINED * UNIT * np.abs(self.nearer_limit(product))
        return rounding

    def meets(self, u: Vector) -> bool:
        """Return whether a point of the box satisfies the rows, up to rounding."""
        product = self.A @ u
        excess = self.excess(product)
        if not excess.any():
            return True
        return bool((np.abs(excess) <= self.rounding(np.abs(u), product)).all())


class Nearest(NamedTuple):
    """The nearest point, and the multipliers of the rows: point = P_B(x - A' y)."""

    point: Vector
    multipliers: Vector


def nearest_point(rows: Rows, x: Vector) -> Nearest:
    """Return the point nearest to x that satisfies the rows; an infeasible one if none does.

    Raises NonFiniteError if x is not finite.
    """
    require_finite(x)
    offset = _offset(rows, x)
    best, least = Nearest(rows.clip(x), np.zeros(rows.low.size)), (True, math.inf)
    if offset is None:
        return best
    many = x.size > MOST_COORDINATES
    for solve in (_by_piqp, _by_daqp, _by_nnls) if many else (_by_daqp, _by_nnls):
        found = _refined(solve, rows, x, offset)
        if found is None:
            continue
        met = rows.meets(found.point)
        if met and _is_nearest(rows, x, found):
            return found
        badness = not met, norm(found.point - x if met else rows.excess(rows.A @ found.point))
        if badness < least:
            best, least = found, badness
    return best


def require_finite(x: Vector) -> None:
    """Raise NonFiniteError if an entry is infinite or NaN: no point of a set is nearest then."""
    if not norm(x) < math.inf and not np.isfinite(x).all():
        first = int(np.argmin(np.isfinite(x)))
        raise NonFiniteError(f"the point to project has entry {first} = {x[first]}")


def roughly_nearest(rows: Rows, x: Vector) -> Nearest:
    """Return an approximately nearest point with multipliers, which suffices for a lower bound."""
    offset = _offset(rows, x)
    found = None if offset is None else _to_rows(_by_daqp, rows, x, offset, exactly=False)
    return nearest_point(rows, x) if found is None else found


class Offset(NamedTuple):
    """The limits of z = (u - x) / scale, those of coordinates before those of rows."""

    low: Vector
    high: Vector
    scale: float  # the largest violation at x
    rounding: float  # a bound of the rows' rounding errors, in these units


#: Returns about the shortest offset with its multipliers, or None after a failure.
Solver: TypeAlias = Callable[[Rows, Vector, Offset], tuple[Vector, Vector] | None]


def _refined(solve: Solver, rows: Rows, x: Vector, offset: Offset) -> Nearest | None:
    """Return the nearest point, moved to the rows again to remove rounding errors."""
    found = _to_rows(solve, rows, x, offset)
    if found is None:
        return None
    point = found.point
    for _ in range(MOST_REFINEMENTS):
        # Starting far away, each pass leaves the rounding error of large numbers.
        if rows.meets(point) or (left := _offset(rows, point)) is None:
            break
        moved = _to_rows(solve, rows, point, left)
        if moved is None:
            break
        point = moved.point
    return Nearest(point, found.multipliers)


def _to_rows(
    solve: Solver, rows: Rows, x: Vector, offset: Offset, *, exactly: bool = True
) -> Nearest | None:
    """Return the point that a solver finds; `exactly`: to all digits."""
    found = solve(rows, x, offset)
    if found is None:
        return None
    z, multipliers = found
    on_box, m = multipliers[: x.size], offset.scale * multipliers[x.size :]
    point = _on_bounds(rows, x + offset.scale * z, on_box)
    if exactly:
        # Far away, the offset has the rounding error of large numbers.
        product = rows.A @ point
        slack = np.where(m > 0.0, rows.high, rows.low) - product
        slack[m == 0.0] = 0.0
        noticed = NOTICED * rows.rounding(np.abs(point), product)
        if (np.abs(slack) > noticed).any() or not rows.meets(point):
            point = _polished(rows, x, point, on_box, m)
    return Nearest(point, m)


def _offset(rows: Rows, x: Vector) -> Offset | None:
    """Return the limits of the offset; None if x is feasible or not finite."""
    product = rows.A @ x
    at = np.concatenate((x, product))
    low, high = rows.all_low - at, rows.all_high - at
    scale = max(float(low.max()), -float(high.min()))
    if not 0.0 < scale < math.inf:
        return None
    with np.errstate(over="ignore"):  # far limits overflow beside a tiny offset
        low /= scale
        high /= scale
    # Rounding matters only in rows that x violates, or may violate.
    rounding = rows.rounding(np.abs(x), product)
    room = np.minimum(-low, high)[x.size :] * scale
    explained = rounding.max(initial=0.0, where=room <= rounding)
    return Offset(low, high, scale, float(explained) / scale)


def _is_nearest(rows: Rows, x: Vector, found: Nearest) -> bool:
    """Return whether the multipliers prove that no point is much nearer."""
    z = found.point - x
    length = norm(z)
    if not 0.0 < length < math.inf:
        return length == 0.0
    # In units of the distance: squares of larger numbers overflow.
    m, product = found.multipliers / length, rows.A @ x
    lowest = (rows.clip(x - found.multipliers @ rows.A) - x) / length
    limits = np.where(m > 0.0, rows.high, rows.low)
    limits = np.where(m == 0.0, 0.0, limits - product) / length
    terms = m * (rows.A @ lowest - limits)
    least = 0.5 * float(lowest @ lowest)
    size = 0.5 + least + float(np.abs(terms).sum())
    return 0.5 - least - float(terms.sum()) <= PROVED * size


class LowestOfCuts(NamedTuple):
    """Weights of cuts, multipliers, and the step of the proximal problem that they solve."""

    weights: Vector
    step: float
    on_box: Vector  # multipliers of the coordinates' bounds, positive at the upper ones
    multipliers: Vector  # those of the rows
    offset: Vector


def lowest_of_cuts(
    rows: Rows | None, center: Vector, slopes: Vector, below: Vector, step: float
) -> LowestOfCuts | None:
    r"""Return the weights of cuts where the highest cut is lowest near a point of a polyhedron.

    The problem is to minimise :math:`\max_i (\langle g_i, z \rangle - e_i) + \|z\|^2 / (2 t)` over
    the offsets z from the centre, with slopes :math:`g_i` and values :math:`e_i \ge 0` below the
    one at the centre. With the model's value :math:`\tau` as a coordinate and :math:`\epsilon
    \tau^2 / 2` added it is a nearest-point problem, whose weights sum to :math:`1 + \epsilon \tau`.
    Divided by their sum, they solve the problem for the step :math:`t (1 + \epsilon \tau)` exactly.
    None: DAQP fails, or would take long.

    DAQP finds about twelve digits of a unit. The first unit suits a single cut. If that is too
    large for the predicted decrease, the weights miss some of it, and the problem is solved again
    in a smaller unit.
    """
    if center.size > MOST_COORDINATES:  # DAQP's memory is quadratic in the dimension
        return None
    unit, found, missed = step * norm(slopes[int(below.argmin())]) ** 2, None, math.inf
    for _ in range(MOST_UNITS):
        if not (0.0 < unit * step < math.inf and 0.0 < unit / step < math.inf):
            break
        better = _lowest_in_unit(rows, center, slopes, below, step, unit)
        if better is None:
            break
        heights = slopes.dot(better.offset) - below
        highest = float(heights.max())
        left = highest - float(better.weights.dot(heights))
        if not left < missed or (found is not None and better.step < 0.5 * step):
            break  # the prediction is rounding
        found, missed = better, left
        if missed <= MISSED * -highest:
            break
        unit = ADDED * (missed - highest)
    return found


def _lowest_in_unit(
    rows: Rows | None, center: Vector, slopes: Vector, below: Vector, step: float, unit: float
) -> LowestOfCuts | None:
    """Solve `lowest_of_cuts` with values divided by a unit; None if DAQP fails."""
    count, size = slopes.shape
    length, bend = math.sqrt(unit * step), math.sqrt(unit / step)  # units of offsets and slopes
    matrix, low = np.empty((count, size + 1)), np.empty(count)
    low.fill(-math.inf)
    with np.errstate(over="ignore", invalid="ignore"):
        np.divide(slopes, bend, out=matrix[:, :size])
        high = below / unit - ADDED
    matrix[:, size] = -math.sqrt(ADDED)
    if not norm(matrix.ravel()) + norm(high) < math.inf:
        return None
    senses = np.zeros(count, dtype=np.intc)
    before = 0
    if rows is not None:
        before = size + 1  # coordinates come first; tau is free
        matrix = np.vstack((matrix, np.column_stack((rows.A, np.zeros(len(rows.A))))))
        at = np.concatenate((center, rows.A @ center))
        limits, free = (rows.all_low - at, rows.all_high - at), np.array([math.inf])
        low = np.concatenate((limits[0][:size] / length, -free, low, limits[0][size:] / length))
        high = np.concatenate((limits[1][:size] / length, free, high, limits[1][size:] / length))
        given, none = rows.senses, np.zeros(1, dtype=np.intc)
        senses = np.concatenate((given[:size], none, senses, given[size:]))
    answer = _shortest(matrix, low, high, senses)
    if answer is None:
        return None
    z, found = answer
    weights = np.maximum(found[before : before + count], 0.0)
    total = float(np.add.reduce(weights))
    if not total > 0.0:
        return None
    found *= bend / total
    on_box, m = found[: max(before - 1, 0)], found[before + count :]
    return LowestOfCuts(weights / total, step * total, on_box, m, length * z[:size])


def lowest_of_quadratic(rows: Rows, center: Vector, g: Vector, matrix: Vector) -> Vector | None:
    """Return the minimiser of <g, z> + <z, matrix z> / 2 over the rows, as center + z, by DAQP.

    It is feasible up to DAQP's tolerance. None: DAQP fails, or would take long.
    """
    if center.size > MOST_COORDINATES:
        return None
    import daqp

    at = np.concatenate((center, rows.A @ center))
    low, high = rows.all_low - at, rows.all_high - at
    z, _, status, _ = daqp.solve(matrix, g, rows.A, high, low, rows.senses)
    return center + z if status == 1 and np.isfinite(z).all() else None


# -- solvers --------------------------------------------------------------------------------------


def _shortest(
    A: Vector, low: Vector, high: Vector, senses: npt.NDArray[np.intc], rounding: float = 0.0
) -> tuple[Vector, Vector] | None:
    """Return the shortest z by DAQP, with multipliers: z = -(on_box + A' m); None: it failed."""
    import daqp

    first, last = TOLERANCES
    # The rounding of a large row must not hide what a small one misses: it counts after a failure.
    for tolerance in dict.fromkeys((first, max(first, rounding), max(last, rounding))):
        # Without matrix and linear term DAQP minimises the norm. Its reduction of equations gives
        # wrong multipliers.
        z, _, status, info = daqp.solve(
            *(None, None, A, high, low, senses),
            primal_tol=tolerance,
            zero_tol=SINGULAR,
            sing_tol=SINGULAR,
            eq_reduction=-1,
        )
        if status == 1:  # optimal
            return z, info["lam"]
    return None


def _by_daqp(rows: Rows, x: Vector, offset: Offset) -> tuple[Vector, Vector] | None:  # noqa: ARG001
    return _shortest(rows.A, offset.low, offset.high, rows.senses, offset.rounding)


def _by_nnls(rows: Rows, x: Vector, offset: Offset) -> tuple[Vector, Vector] | None:
    """Find the shortest z with G z >= e by Lawson and Hanson's method.

    It solves min ||(G' y, <e, y> - 1)|| over y >= 0, whose residual has the direction (z, -1). The
    limits are relaxed by rounding: a single feasible point could otherwise be lost.
    """
    from scipy.optimize import nnls

    low, high, _, rounding = offset
    size, below, above = x.size, np.isfinite(low), np.isfinite(high)
    both = np.vstack([np.eye(size), rows.A])
    G = np.vstack([both[below], -both[above]])
    e = np.concatenate([low[below], -high[above]]) - rounding
    try:
        y, _ = nnls(np.vstack([G.T, e]), np.append(np.zeros(size), 1.0))
    except RuntimeError:  # too many steps
        return None
    rest = 1.0 - float(e @ y)
    if not rest > 0.0:  # infeasible
        return None
    y /= rest
    multipliers = np.zeros(low.size)
    multipliers[above] += y[np.count_nonzero(below) :]
    multipliers[below] -= y[: np.count_nonzero(below)]
    return -multipliers @ both, multipliers


def _by_piqp(rows: Rows, x: Vector, offset: Offset) -> tuple[Vector, Vector] | None:
    import piqp
    import scipy.sparse as sp

    low, high, _, _ = offset
    size, equal = x.size, rows.equations
    solver: Any = piqp.SparseSolver()
    solver.settings.eps_abs = solver.settings.eps_rel = INTERIOR_TOLERANCE
    A, row_low, row_high = sp.csc_matrix(rows.A), low[size:], high[size:]
    solver.setup(
        *(sp.identity(size, format="csc"), np.zeros(size)),
        *(A[equal], row_low[equal]),
        *(A[~equal], row_low[~equal], row_high[~equal]),
        *(low[:size], high[:size]),
    )
    solver.solve()
    result = solver.result
    z = np.asarray(result.x)
    multipliers = np.zeros(low.size)
    multipliers[:size] = result.z_bu - result.z_bl
    multipliers[size:][equal] = result.y
    multipliers[size:][~equal] = result.z_u - result.z_l
    if not (np.isfinite(z).all() and np.isfinite(multipliers).all()):
        return None
    # A constraint is active if its multiplier exceeds the distance from the limit.
    at = np.concatenate((z, rows.A @ z))
    room = np.where(multipliers > 0.0, high - at, at - low)
    multipliers[(np.abs(multipliers) <= room) & (low != high)] = 0.0
    return z, multipliers


def _on_bounds(rows: Rows, u: Vector, on_box: Vector) -> Vector:
    np.copyto(u, rows.box_high, where=on_box > 0.0)
    np.copyto(u, rows.box_low, where=on_box < 0.0)
    return rows.clip(u)


def _polished(rows: Rows, x: Vector, u: Vector, on_box: Vector, m: Vector) -> Vector:
    """Return the nearest point on the active constraints, or u in the box if it is infeasible."""
    free = on_box == 0.0
    u = _on_bounds(rows, u, on_box)
    held = (m != 0.0) | rows.equations
    if not held.any():
        return u
    equations = rows.A[held]
    target = np.where(m > 0.0, rows.high, rows.low)[held]
    part = equations[:, free]
    point = np.where(free, x, u)
    for _ in range(SOLVED):
        missed = equations @ point - target
        point[free] -= np.linalg.lstsq(part, missed, rcond=None)[0]
    point = rows.clip(point)
    product, sizes = rows.A @ point, np.abs(point) + np.abs(x)
    allowed = np.maximum(np.abs(rows.excess(rows.A @ u)), rows.rounding(sizes, product))
    worse = np.abs(rows.excess(product)) > allowed
    return u if worse.any() or not np.isfinite(point).all() else point
