r"""The nearest point of a polyhedron, and the multipliers that prove it nearest.

For the rows :math:`l \le A u \le h` and the box :math:`B` the offset :math:`z = u - x` solves

.. math:: \min_z \tfrac12 \|z\|^2 \quad\text{with}\quad l - A x \le A z \le h - A x,
          \quad x + z \in B.

Three solvers share the work. Measured on random rows (20 to 60 coordinates, up to 120 rows):

- DAQP, a dual active-set method, takes 5 to 400 microseconds and is exact to rounding. It factors
  products of rows, so it can fail where rows are nearly parallel.
- SciPy's NNLS (Lawson and Hanson's method) factors the rows themselves. It takes 2 to 10 ms. Of 62
  projections onto nearly parallel rows and rows with columns of all sizes, DAQP alone failed in 21,
  DAQP and PIQP in 5, DAQP and NNLS in none.
- PIQP, an interior-point method, comes first in high dimensions, where many bounds hold at the
  nearest point: active-set methods add them one by one.

Every problem is solved from scratch: the result depends on nothing but the rows and x, so that a
resumed run repeats the steps of an uninterrupted one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from accelegrad.errors import Vector
from accelegrad.norms import norm
from accelegrad.rounding import UNIT, growth

#: In more dimensions the interior-point method comes first (measured on the simplex: DAQP takes
#: 2.5 ms for 200 coordinates and 57 ms for 500, PIQP 1 ms).
MOST_COORDINATES = 200
#: By how much DAQP may miss a row, relative to what x misses, and where that fails. The first is
#: below what PROVED allows (with 1e-9, 2 of 60 random problems were not proved), the last is DAQP's
#: own default; what it leaves is removed by projecting again.
TOLERANCES = (1e-12, 1e-6)
#: Smaller numbers and pivots count as zero in DAQP. With its own choices, 1e-11 and 3.7e-11, which
#: are above the tolerance, it failed where rows are equations, duplicates or meet at small angles
#: (measured: 75 of 400 projections of one run; with these in none).
SINGULAR = 1e-14
#: The same for PIQP, which only has to tell the rows that hold with equality from the others
INTERIOR_TOLERANCE = 1e-10
#: A row that holds may be missed by this many times what rounding can explain: less changes nothing
#: but the last digits, and solving for it takes longer than DAQP. Chosen.
NOTICED = 100.0
#: The inverse of what is added to the problem of the lowest cut, in units in which the model's
#: value is at least -2: steps are shorter by a fifth at most, and rows are of similar length.
ADDED = 10.0
#: The share of its unit that a model of cuts promises at least, and how often the unit is changed
#: (500 functions: without it 5 proofs of 1e-8 are lost, and 1 of 1e-4).
CANCELLED, MOST_UNITS = 1e-4, 3
#: DAQP's code of an equation
EQUATION = np.intc(5)
#: How often the equations that hold are solved: the second time removes what rounding of the first
#: time left, and the third is for equations that nearly depend on each other.
SOLVED = 3
#: How often a point is moved to the rows again: each time takes sixteen digits off what is missed,
#: and points are 1e100 away at most.
MOST_REFINEMENTS = 7
#: A row is met if rounding can explain this part of what it is missed by.
EXPLAINED = 4.0
#: How far a squared distance found may be from its lower bound, relative to the terms of both
PROVED = 1e-11

Mask: TypeAlias = npt.NDArray[np.bool_]


class Rows:
    """Rows l <= A u <= h and bounds of single coordinates."""

    def __init__(
        self, A: Vector, low: Vector, high: Vector, box_low: Vector, box_high: Vector
    ) -> None:
        self.A, self.low, self.high = np.ascontiguousarray(A), low, high
        self.box_low, self.box_high = box_low, box_high
        #: the limits of coordinates and, after them, of rows
        self.all_low, self.all_high = np.append(box_low, low), np.append(box_high, high)
        self.equations = low == high
        self._senses = np.where(self.all_low == self.all_high, EQUATION, np.intc(0))
        self._sizes = EXPLAINED * growth(A.shape[1]) * np.abs(A)

    @property
    def senses(self) -> npt.NDArray[np.intc]:
        """What DAQP is told of each coordinate and row; a copy, because DAQP may write to it."""
        return self._senses.copy()

    def clip(self, z: Vector) -> Vector:
        """Return the nearest point of the box."""
        clipped: Vector = np.maximum(z, self.box_low)
        np.minimum(clipped, self.box_high, out=clipped)
        return clipped

    def excess(self, u: Vector) -> Vector:
        """Return how far each row is above its upper limit, or (negative) below its lower one."""
        product = self.A @ u
        return np.maximum(product - self.high, 0.0) + np.minimum(product - self.low, 0.0)

    def nearer_limit(self, u: Vector) -> Vector:
        """Return for each row the limit that A u exceeds, or else is nearer to."""
        product = self.A @ u
        return np.where(product - self.high > self.low - product, self.high, self.low)

    def rounding(self, u: Vector, x: Vector | float = 0.0) -> Vector:
        """Return what rounding can amount to in each row of A u, and in A x, which led to u.

        Of the two limits only the nearer one counts: a large one on the other side of a cone's
        row must not hide that a tiny point lies outside.
        """
        rounding: Vector = self._sizes @ (np.abs(u) + np.abs(x))
        rounding += EXPLAINED * UNIT * np.abs(self.nearer_limit(u))
        return rounding

    def meets(self, u: Vector) -> bool:
        """Say whether a point of the box meets the rows, up to rounding."""
        excess = self.excess(u)
        return not excess.any() or bool((np.abs(excess) <= self.rounding(u)).all())


class Nearest(NamedTuple):
    """The nearest point, and the multipliers of the rows: point = P_B(x - A' y)."""

    point: Vector
    multipliers: Vector


def nearest_point(rows: Rows, x: Vector) -> Nearest:
    """Return the point nearest to x that meets the rows.

    Where there is none, one comes back that misses some of them.
    """
    many = x.size > MOST_COORDINATES
    solvers = (_by_piqp, _by_daqp, _by_nnls) if many else (_by_daqp, _by_nnls)
    found: list[Nearest] = []
    for solve in solvers:
        candidate = _refined(solve, rows, x)
        if candidate is None:
            continue
        if rows.meets(candidate.point) and _is_nearest(rows, x, candidate):
            return candidate
        found.append(candidate)
    if not found:
        return Nearest(rows.clip(x), np.zeros(rows.low.size))
    met = [each for each in found if rows.meets(each.point)]
    if met:
        return min(met, key=lambda each: norm(each.point - x))
    return min(found, key=lambda each: norm(rows.excess(each.point)))


def roughly_nearest(rows: Rows, x: Vector) -> Nearest:
    """Return a point that may miss rows a little, with its multipliers, in less time.

    That does for a lower bound, which holds for any multipliers.
    """
    offset = _offset(rows, x)
    found = None if offset is None else _roughly_by_daqp(rows, x, offset)
    return nearest_point(rows, x) if found is None else found[0]


class Offset(NamedTuple):
    """The limits of z = (u - x) / scale, those of coordinates before those of rows."""

    low: Vector
    high: Vector
    scale: float  # by how much x misses the limits
    rounding: float  # what rounding can amount to in the rows, in these units


#: Returns the nearest point, perhaps not quite on the rows, and the multipliers; None: it failed.
Solver: TypeAlias = Callable[[Rows, Vector, Offset], Nearest | None]


def _refined(solve: Solver, rows: Rows, x: Vector) -> Nearest | None:
    """Return the nearest point, moved to the rows again where rounding took it off them."""
    offset = _offset(rows, x)
    if offset is None:
        return Nearest(rows.clip(x), np.zeros(rows.low.size))
    found = solve(rows, x, offset)
    if found is None:
        return None
    point = found.point
    for _ in range(MOST_REFINEMENTS):
        # From far away the first time leaves the rounding of large numbers, and so on.
        if rows.meets(point) or (offset := _offset(rows, point)) is None:
            break
        moved = solve(rows, point, offset)
        if moved is None:
            break
        point = moved.point
    return Nearest(point, found.multipliers)


def _offset(rows: Rows, x: Vector) -> Offset | None:
    """Return the limits of the offset; None where x meets them or is not finite."""
    at = np.concatenate((x, rows.A @ x))
    low, high = rows.all_low - at, rows.all_high - at
    scale = max(float(low.max()), -float(high.min()))
    if not 0.0 < scale < math.inf:
        return None
    with np.errstate(over="ignore"):  # beside an offset that nearly vanishes, far limits are none
        low /= scale
        high /= scale
    # Only rows that x misses, or may miss by rounding, have a rounding that matters.
    rounding, room = rows.rounding(x), np.minimum(-low, high)[x.size :] * scale
    explained = rounding.max(initial=0.0, where=room <= rounding)
    return Offset(low, high, scale, float(explained) / scale)


def _is_nearest(rows: Rows, x: Vector, found: Nearest) -> bool:
    """Say whether the multipliers prove that no point is much nearer."""
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
    """Weights of cuts, multipliers, and the step of the proximal problem that they solve.

    The weighted slopes, the normals times their multipliers and the offset over the step add up to
    zero.
    """

    weights: Vector
    step: float
    on_box: Vector  # multipliers of the coordinates' bounds, positive at the upper ones
    multipliers: Vector  # those of the rows
    offset: Vector


def lowest_of_cuts(
    rows: Rows | None,
    center: Vector,
    slopes: Vector,
    below: Vector,
    step: float,
) -> LowestOfCuts | None:
    r"""Return the weights of cuts where the highest of them is lowest near a point of a polyhedron.

    The problem is to minimise :math:`\max_i (\langle g_i, z \rangle - e_i) + \|z\|^2 / (2 t)`
    over the offsets z from the centre that lead to the polyhedron. With the model's value
    :math:`\tau` as a coordinate and :math:`\epsilon \tau^2 / 2` added it is the problem of a
    nearest point. Then the weights add up to :math:`1 + \epsilon \tau`. Divided by their sum,
    they solve the problem for the step :math:`t (1 + \epsilon \tau)`, without an error.

    DAQP finds about twelve digits of a unit. Where the model promises much less than the first
    unit, which would be right for a single cut, the problem is solved again in a smaller one. Not
    so in a polyhedron: at a point that rows hold back the promise is rounding, and so is what is
    found in its unit (of 100 duals of knapsacks 8 were not proved).

    Parameters
    ----------
    rows : Rows or None
        The polyhedron; None: the whole space.
    center : Vector
        A point of it.
    slopes : array of shape (n, d)
        The slopes g_i of the cuts.
    below : array of shape (n,)
        How far each cut is below the value at the centre, e_i >= 0.
    step : float
        The step t.

    Returns
    -------
    LowestOfCuts or None
        None where DAQP fails, or would take long.
    """
    if center.size > MOST_COORDINATES:  # DAQP also takes memory for the squared dimension
        return None
    unit, found = step * norm(slopes[int(below.argmin())]) ** 2, None
    for _ in range(MOST_UNITS if rows is None else 1):
        if not (0.0 < unit * step < math.inf and 0.0 < unit / step < math.inf):
            break
        better = _lowest_in_unit(rows, center, slopes, below, step, unit)
        if better is None:
            break
        found = better
        weights = found.weights
        promise = float(weights.dot(below)) - float(weights.dot(slopes).dot(found.offset))
        if not promise < CANCELLED * unit:
            break
        unit = ADDED * promise
    return found


def _lowest_in_unit(
    rows: Rows | None,
    center: Vector,
    slopes: Vector,
    below: Vector,
    step: float,
    unit: float,
) -> LowestOfCuts | None:
    """Return the same with values divided by a unit; None: DAQP failed."""
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
        before = size + 1  # the limits of coordinates come first; that of tau is none
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


# -- solvers --------------------------------------------------------------------------------------


def _shortest(
    A: Vector, low: Vector, high: Vector, senses: npt.NDArray[np.intc], rounding: float = 0.0
) -> tuple[Vector, Vector] | None:
    """Return the shortest z by DAQP, and the multipliers: z = -(on_box + A' m); None: it failed."""
    import daqp

    for tolerance in TOLERANCES:
        # Without matrix and linear term it minimises the norm. With its reduction of equations
        # their multipliers come out wrong.
        z, _, status, info = daqp.solve(
            *(None, None, A, high, low, senses),
            primal_tol=max(tolerance, rounding),
            zero_tol=SINGULAR,
            sing_tol=SINGULAR,
            eq_reduction=-1,
        )
        if status == 1:  # optimal
            return z, info["lam"]
    return None


def _by_daqp(rows: Rows, x: Vector, offset: Offset) -> Nearest | None:
    """Solve by a dual active-set method, to all digits also from far away."""
    found = _roughly_by_daqp(rows, x, offset)
    if found is None:
        return None
    (point, m), on_box = found
    # From far away the offset has the rounding of large numbers.
    slack = np.where(m > 0.0, rows.high, rows.low) - rows.A @ point
    slack[m == 0.0] = 0.0
    if (np.abs(slack) > NOTICED * rows.rounding(point)).any() or not rows.meets(point):
        point = _polished(rows, x, point, on_box, m)
    return Nearest(point, m)


def _roughly_by_daqp(rows: Rows, x: Vector, offset: Offset) -> tuple[Nearest, Vector] | None:
    """Solve by a dual active-set method; return the multipliers of the bounds too."""
    low, high, scale, rounding = offset
    found = _shortest(rows.A, low, high, rows.senses, rounding)
    if found is None:
        return None
    z, multipliers = found
    on_box, m = multipliers[: x.size], scale * multipliers[x.size :]
    return Nearest(_on_bounds(rows, x + scale * z, on_box), m), on_box


def _by_nnls(rows: Rows, x: Vector, offset: Offset) -> Nearest | None:
    """Solve by Lawson and Hanson's method for the shortest z with G z >= e.

    It takes one problem of least squares, min ||(G' y, <e, y> - 1)|| over y >= 0, whose residual
    has the direction (z, -1). The limits are relaxed by rounding: rows that only one point meets
    may be met by none.
    """
    from scipy.optimize import nnls

    low, high, scale, rounding = offset
    size, below, above = x.size, np.isfinite(low), np.isfinite(high)
    both = np.vstack([np.eye(size), rows.A])
    G = np.vstack([both[below], -both[above]])
    e = np.concatenate([low[below], -high[above]]) - rounding
    try:
        y, _ = nnls(np.vstack([G.T, e]), np.append(np.zeros(size), 1.0))
    except RuntimeError:  # too many steps
        return None
    rest = 1.0 - float(e @ y)
    if not rest > 0.0:  # no point meets the rows
        return None
    y /= rest
    multipliers = np.zeros(low.size)
    multipliers[above] += y[np.count_nonzero(below) :]
    multipliers[below] -= y[: np.count_nonzero(below)]
    on_box, m = multipliers[:size], scale * multipliers[size:]
    return Nearest(_polished(rows, x, x - m @ rows.A, on_box, m), m)


def _by_piqp(rows: Rows, x: Vector, offset: Offset) -> Nearest | None:
    """Solve by an interior-point method for sparse rows."""
    import piqp
    import scipy.sparse as sp

    low, high, scale, _ = offset
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
    # The multiplier of what holds with equality exceeds the distance from the limit.
    at = np.concatenate((z, rows.A @ z))
    room = np.where(multipliers > 0.0, high - at, at - low)
    multipliers[(np.abs(multipliers) <= room) & (low != high)] = 0.0
    on_box, m = multipliers[:size], scale * multipliers[size:]
    return Nearest(_polished(rows, x, x + scale * z, on_box, m), m)


def _on_bounds(rows: Rows, u: Vector, on_box: Vector) -> Vector:
    """Return a point in the box, exactly on the bounds that have multipliers."""
    np.copyto(u, rows.box_high, where=on_box > 0.0)
    np.copyto(u, rows.box_low, where=on_box < 0.0)
    return rows.clip(u)


def _polished(rows: Rows, x: Vector, u: Vector, on_box: Vector, m: Vector) -> Vector:
    """Return the nearest point on the bounds and rows that have multipliers, if it meets the rest.

    Else the point u that was found comes back, in the box.
    """
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
    worse = np.abs(rows.excess(point)) > np.maximum(np.abs(rows.excess(u)), rows.rounding(point, x))
    return u if worse.any() or not np.isfinite(point).all() else point


def finite_size(limits: Vector) -> Vector:
    """Return the absolute values of limits, zero for infinite ones."""
    return np.where(np.isfinite(limits), np.abs(limits), 0.0)
