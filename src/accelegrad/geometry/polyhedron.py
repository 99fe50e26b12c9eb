"""Polyhedra: linear equations, inequalities and bounds together, as SciPy's constraints are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.optimize import linprog, nnls

from accelegrad.errors import Vector, real_array
from accelegrad.geometry.nearest_point import (
    LowestOfCuts,
    Rows,
    finite_size,
    lowest_of_cuts,
    nearest_point,
    roughly_nearest,
)
from accelegrad.geometry.sets import LARGEST, NEGLIGIBLE, Box, FeasibleSet
from accelegrad.geometry.vectors import read_only
from accelegrad.norms import norm
from accelegrad.rounding import FEW, ROUNDED_UP, SMALLEST, UNIT, growth

__all__ = ["Polyhedron"]

#: Times that bounds of coordinates are drawn from the rows and those of other coordinates; chosen.
PASSES = 5
#: Bounds that follow from all the rows together are looked for in up to this many dimensions: a
#: pseudoinverse takes 10 ms there.
MOST_COORDINATES = 200
#: A set counts as unbounded if it reaches this many times farther than its rows are away, because
#: these are nearly parallel: over so wide a set rounding takes the digits of all bounds, and over a
#: ball it does not. Chosen: over narrower sets gaps of 1e-9 can be proved.
ELONGATED = 1e5
#: The lengths of proximal steps, and how tight a bound is to be, in diameters. The longer a step,
#: the fewer are needed, and the more digits are lost. Measured on random bounded sets: two steps of
#: 100 diameters mostly do, and longer ones where g is nearly normal to a face.
PROXIMAL_STEPS, TIGHT = np.array([1e2, 1e2, 1e4, 1e6, 1e8]), 1e-12
#: Shares of the way from the set to a point tried where its projection is not found; chosen
NEARER = (1e-4, 1e-4, 1e-4, 1e-2)
#: Steps of the search for the best bound in a ball; how far its point may be from the boundary, as
#: a share of the radius; by what factor steps grow where the point hardly moves. Chosen.
MOST_STEPS, ON_BOUNDARY, MOST_GROWTH = 30, 3e-4, 1e3
#: The longest step is such that a bound may be off by half of this share of the radius times ||g||.
SHORTEST_SHARE = 1e-12
#: By how much the nearest point found may miss a row, relative to its terms, if there is a point.
INCONSISTENT = 1e-9


class Polyhedron(FeasibleSet):
    """The polyhedron {u: lower <= A u <= upper}, within bounds of the single coordinates.

    The rows may depend on each other and may be met by few points or by one. They are scaled by
    powers of two first, so that their units do not matter.

    Parameters
    ----------
    A : array_like or sparse matrix
        One row per constraint; it is kept as a dense matrix.
    lower, upper : array_like or float
        The limits of A u: numbers hold for every row, -inf and inf leave a side open, and
        lower = upper is an equation.
    bounds : Box or pair (lower, upper), optional
        The limits of u itself.

    Examples
    --------
    >>> import numpy as np
    >>> half = Polyhedron([[1.0, 1.0]], -np.inf, 1.0, bounds=(0.0, np.inf))
    >>> half.project(np.array([2.0, 1.0])).tolist()
    [1.0, 0.0]
    """

    costly_minimum = True

    def __init__(
        self, A: Any, lower: npt.ArrayLike, upper: npt.ArrayLike, bounds: Any = None
    ) -> None:
        matrix = _matrix(A)
        low, high = (_limits(name, given, len(matrix)) for name, given in _sides(lower, upper))
        box = _box(bounds, matrix.shape[1])
        _refuse_crossing(low, high)
        self._rows = _scaled_rows(matrix, low, high, box)
        self._shape = matrix.shape
        #: the point nearest to the origin
        self._inner = read_only(self._nearest_to_origin())
        #: bounds of the coordinates that follow from all the constraints, rounded outwards
        self._hull = _hull(self._rows, self._inner)
        for array in self._hull:
            read_only(array)

    def _nearest_to_origin(self) -> Vector:
        """Return it, or say that no point meets the constraints."""
        rows = self._rows
        origin = rows.clip(np.zeros(rows.A.shape[1]))
        point = nearest_point(rows, origin).point
        missed = _missed(rows, origin, point)
        if missed > 0.0:
            raise ValueError(
                "no point meets all the constraints: the nearest one found misses a row by "
                f"{missed:.3g} (row scaled to about unit length). If there is one, rows depend on "
                "each other too nearly to find it: leave out those that say nothing new."
            )
        return point

    @property
    def dimension(self) -> int:
        """The number of columns of A."""
        return int(self._shape[1])

    @property
    def diameter(self) -> float:
        """The diameter of a box around it, inf where none is found: no less than its own."""
        low, high = self._hull
        with np.errstate(over="ignore"):
            return norm(high - low) * ROUNDED_UP

    def project(self, x: Vector) -> Vector:
        """Return the nearest point: see `nearest_point`.

        Where rows are nearly parallel and x is so far away that no point found meets the rows, it
        is the projection of a point between the set and x: in the set, but not quite the nearest.
        """
        rows = self._rows
        clipped = rows.clip(x)
        if np.array_equal(clipped, x) and not rows.excess(x).any():
            return x
        point = nearest_point(rows, x).point
        if not np.isfinite(x).all():
            return point
        for share in NEARER:
            if _missed(rows, x, point) == 0.0:
                return point
            x = self._inner + share * (x - self._inner)
            point = nearest_point(rows, x).point
        return point if _missed(rows, x, point) == 0.0 else self._inner.copy()

    def lowest_of_cuts(
        self, center: Vector, slopes: Vector, below: Vector, step: float
    ) -> LowestOfCuts | None:
        """Return weights of cuts with which they are lowest near a point: see `nearest_point`."""
        return lowest_of_cuts(self._rows, center, slopes, below, step)

    def linear_minimum(self, g: Vector) -> float:
        """Return a lower bound on the minimum from multipliers, -inf where there is none.

        It is correct whatever the multipliers are, and the minimum up to rounding if they are
        right. Where the set is unbounded, parts of g that rounding leaves in an open direction are
        taken for zero, up to 1e-12 relative.
        """
        return self._with_neglected(g)[0]

    def _neglected(self, g: Vector) -> float:
        return self._with_neglected(g)[1]

    def _with_neglected(self, g: Vector) -> tuple[float, float]:
        """Return the linear minimum, and the norm of the part of g that it neglects."""
        size = norm(g)
        if size == 0.0:
            return 0.0, 0.0
        if not math.isfinite(size):
            return -math.inf, 0.0
        bound, neglected = self._unit_bound(g / size)
        bound *= size
        return bound - FEW * UNIT * abs(bound), neglected * size

    def _unit_bound(self, g: Vector) -> tuple[float, float]:
        """Return the same for a vector of unit length.

        A few proximal steps, which are projections, lead to a minimiser of a linear function in a
        bounded set. Each gives multipliers; where these do not prove their point a minimiser,
        HiGHS is asked, which takes ten times as long.
        """
        rows, diameter, best, u = self._rows, self.diameter, (-math.inf, 0.0), self._inner
        if 0.0 < diameter < LARGEST:
            for length in PROXIMAL_STEPS * diameter:
                u, multipliers = roughly_nearest(rows, u - length * g)
                best = max(best, _linear_bound(rows, self._hull, g, multipliers / -length))
                if float(g @ u) - best[0] <= TIGHT * diameter:
                    return best
        found = _multipliers(rows, g)
        return best if found is None else max(best, _linear_bound(rows, self._hull, g, found))

    def _linear_bound(self, g: Vector, center: Vector, radius: float) -> float:  # noqa: ARG002
        """Return no bound: the linear minimum over the whole set takes too long here.

        It could add no more than 1e-12 of the radius times ||g|| to the bound in a ball.
        """
        return -math.inf

    def _dual_bound(
        self, g: Vector, center: Vector, radius: float, size: float, room: float
    ) -> float:
        """Maximise q as `FeasibleSet` does, with fewer projections.

        The way from the centre to P(c - t g) is piecewise linear in t = 1 / theta. Its length r
        rises with t, and at the best t it is the radius. There q is flat, so that a share e of the
        radius that r is off costs about e^2 of the gap.
        """
        best, inside, outside = -math.inf, (0.0, radius - room), (math.inf, math.inf)
        step, longest = room / size, radius / size / SHORTEST_SHARE
        for _ in range(MOST_STEPS):
            distance, bound = self._lagrangian(g, center, radius, 1.0 / step)
            if distance <= 2.0 * radius:
                # Farther out the terms of q are large and cancel, and the bound is a poor one.
                best = max(best, bound)
            if abs(distance - radius) <= ON_BOUNDARY * radius or step == longest:
                break
            rise = distance - inside[1]
            if distance < radius:
                faster = (radius - distance) * (step - inside[0]) / rise if rise > 0.0 else math.inf
                inside = step, distance
                following = min(step + faster, MOST_GROWTH * step, longest)
            else:
                following = inside[0] + (radius - inside[1]) * (step - inside[0]) / rise
                outside = step, distance
            if not inside[0] < following < outside[0]:
                following = math.sqrt(inside[0]) * math.sqrt(outside[0])
            step = following
        return best

    def _lagrangian(
        self, g: Vector, center: Vector, radius: float, theta: float
    ) -> tuple[float, float]:
        """Return the distance of u_theta from the centre, and a bound from its multipliers.

        <g, u> = <r, u> + <m, A u> with r = g - A' m, whatever the multipliers m are; the second
        term is at least the sum of the rows' limits, and the first one is minimised over the box
        and the ball as for a `Box`, whose projection has no error.
        """
        rows = self._rows
        found = roughly_nearest(rows, center - g / theta)
        m = _allowed(rows, -theta * found.multipliers)
        rest, off = _remainder(rows, g, m)
        u = rows.clip(center - rest / theta)
        distance = norm(u - center)
        fixed, size = _limit_sum(rows, m)
        ball = 0.5 * theta * (distance - radius) * (distance + radius)
        reach = norm(center) + radius
        terms = size + norm(rest) * (norm(u) + reach) + abs(ball)
        lost = norm(off) * reach + growth(g.size + m.size) * terms
        bound = float(rest @ u) + fixed + ball - lost
        return distance, bound if math.isfinite(bound) else -math.inf

    def _scale(self) -> float:
        rows = self._rows
        levels = np.concatenate(
            [_levels(rows), finite_size(rows.box_low), finite_size(rows.box_high)]
        )
        return float(levels.max(initial=0.0))

    def __repr__(self) -> str:
        rows, columns = self._shape
        low, high = self._rows.box_low, self._rows.box_high
        bounded = int(np.count_nonzero(np.isfinite(low) | np.isfinite(high)))
        return f"Polyhedron(A={rows} x {columns} matrix, {bounded} bounded coordinates)"


# -- what is given --------------------------------------------------------------------------------


def _matrix(A: Any) -> Vector:
    given: Any = A
    if sp.issparse(A):
        given = given.toarray()
    matrix = np.array(real_array("A", given), dtype=np.float64)
    if matrix.ndim != 2 or matrix.size == 0:
        raise ValueError(f"A must be a matrix with entries, but its shape is {matrix.shape}.")
    if not np.isfinite(matrix).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(matrix))[0])
        raise ValueError(f"A must be finite, but A[{row}, {column}] is {matrix[row, column]}.")
    return matrix


def _sides(lower: Any, upper: Any) -> tuple[tuple[str, Any], tuple[str, Any]]:
    return ("lower", lower), ("upper", upper)


def _limits(name: str, given: Any, count: int) -> Vector:
    """Return one limit per row."""
    array = np.asarray(real_array(name, given), dtype=np.float64)
    if array.ndim > 1 or (array.ndim == 1 and array.size != count):
        raise ValueError(
            f"{name} must be a number or have one entry per row of A, {count}, but its shape is "
            f"{array.shape}."
        )
    refused = math.inf if name == "lower" else -math.inf
    wrong = np.atleast_1d(np.isnan(array) | (array == refused))
    if wrong.any():
        first = int(np.argmax(wrong))
        raise ValueError(
            f"{name} must hold numbers or {-refused}, but {name}[{first}] is {array.flat[first]}."
        )
    return np.array(np.broadcast_to(array, count))


def _box(bounds: Any, size: int) -> Box:
    if bounds is None:
        return Box(-math.inf, math.inf)
    if not isinstance(bounds, Box):
        if not isinstance(bounds, (tuple, list)) or len(bounds) != 2:
            raise TypeError(f"bounds must be a Box or a pair (lower, upper), not {bounds!r}.")
        bounds = Box(*bounds)
    box: Box = bounds
    if box.dimension not in (None, size):
        raise ValueError(
            f"bounds must have one entry per column of A, {size}, but there are {box.dimension}."
        )
    return box


def _refuse_crossing(low: Vector, high: Vector) -> None:
    if (low > high).any():
        first = int(np.argmax(low > high))
        raise ValueError(
            f"lower must be <= upper, but lower[{first}] is {low[first]} and upper[{first}] is "
            f"{high[first]}."
        )


def _scaled_rows(matrix: Vector, low: Vector, high: Vector, box: Box) -> Rows:
    """Return the rows, but for those that say nothing, each times a power of two: no rounding."""
    lengths = np.array([norm(row) for row in matrix])
    if ((lengths == 0.0) & ((low > 0.0) | (high < 0.0))).any():
        first = int(np.argmax((lengths == 0.0) & ((low > 0.0) | (high < 0.0))))
        raise ValueError(f"no point meets row {first}: A[{first}] is zero, but its limits are not.")
    kept = (lengths > 0.0) & (np.isfinite(low) | np.isfinite(high))
    factors = np.ldexp(1.0, -np.frexp(lengths[kept])[1])
    scaled = np.ascontiguousarray(matrix[kept] * factors[:, None])
    size = matrix.shape[1]
    ends = (
        np.array(np.broadcast_to(end, size), dtype=np.float64) for end in (box.lower, box.upper)
    )
    return Rows(scaled, low[kept] * factors, high[kept] * factors, *ends)


# -- bounds of coordinates ------------------------------------------------------------------------


def _hull(rows: Rows, inner: Vector) -> tuple[Vector, Vector]:
    """Return bounds of the coordinates, rounded outwards; infinite where none are found."""
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        low, high = _repeatedly_tightened(rows, rows.box_low, rows.box_high)
        if np.isfinite(high - low).all() or low.size > MOST_COORDINATES:
            return low, high
        together = _by_slacks(rows, inner)
        return (low, high) if together is None else _repeatedly_tightened(rows, *together)


def _repeatedly_tightened(rows: Rows, low: Vector, high: Vector) -> tuple[Vector, Vector]:
    """Return bounds of the coordinates that follow from those given and from single rows."""
    for _ in range(PASSES):
        tighter = _tightened(rows, low, high)
        if np.array_equal(tighter[0], low) and np.array_equal(tighter[1], high):
            break
        low, high = tighter
    return low.copy(), high.copy()


def _tightened(rows: Rows, low: Vector, high: Vector) -> tuple[Vector, Vector]:
    """Return the bounds that each row implies for each coordinate, given those of the others."""
    A = rows.A
    new_low, new_high = low, high
    for limit, sign in ((rows.high, 1.0), (rows.low, -1.0)):
        # sign * A u <= sign * limit: a coordinate gets what the others leave of it.
        least = np.where(sign * A > 0.0, sign * A * low, sign * A * high)
        least[A == 0.0] = 0.0
        infinite = np.isinf(least)
        finite = np.where(infinite, 0.0, least)
        others = finite.sum(axis=1, keepdims=True) - finite
        others_infinite = infinite.sum(axis=1, keepdims=True) - infinite
        room = sign * limit[:, None] - others
        size = np.abs(finite).sum(axis=1, keepdims=True) + np.abs(limit)[:, None]
        room += 2.0 * growth(A.shape[1]) * size
        known = (others_infinite == 0) & (A != 0.0) & np.isfinite(room)
        end = np.where(known, room / (sign * A), np.nan)
        end += 2.0 * UNIT * np.abs(end) * np.sign(sign * A)
        new_high = np.fmin(
            new_high,
            np.fmin.reduce(np.where(sign * A > 0.0, end, math.inf), axis=0, initial=math.inf),
        )
        new_low = np.fmax(
            new_low,
            np.fmax.reduce(np.where(sign * A < 0.0, end, -math.inf), axis=0, initial=-math.inf),
        )
    # Rounding may make them cross where a coordinate has one value.
    return np.minimum(new_low, new_high), np.maximum(new_low, new_high)


def _by_slacks(rows: Rows, inner: Vector) -> tuple[Vector, Vector] | None:
    """Return bounds of the coordinates that all constraints imply together; None: there are none.

    With the constraints as G u <= h the set is bounded if and only if G has full column rank and
    G' y = 0 for some y >= 1 (Stiemke's lemma). Then <y, h - G u> = <y, h - G v> for any two points:
    the slacks h - G u lie in a simplex, and so does u, their image under the pseudoinverse of G.
    `inner` is a point of the set, up to rounding.
    """
    both = np.vstack([np.eye(inner.size), rows.A])
    below, above = np.isfinite(rows.all_low), np.isfinite(rows.all_high)
    G = np.vstack([both[above], -both[below]])
    h = np.append(rows.all_high[above], -rows.all_low[below])
    if len(G) <= inner.size:
        return None
    try:
        y = 1.0 + nnls(G.T, -G.sum(axis=0))[0]
    except RuntimeError:  # too many steps
        return None
    inverse = np.linalg.pinv(G)
    # What rounding leaves of G' y = 0 and of inverse @ G = 1, as sums of absolute values
    left = float(np.abs(y @ G).sum() + growth(y.size) * (y @ np.abs(G)).sum())
    off = np.abs(inverse @ G - np.eye(inner.size)) + growth(y.size) * np.abs(inverse) @ np.abs(G)
    off_sums = off.sum(axis=1)
    slacks, sizes = h - G @ inner, np.abs(G) @ np.abs(inner) + np.abs(h)
    slacks += 2.0 * growth(inner.size) * sizes
    total = float(y @ np.maximum(slacks, 0.0)) * ROUNDED_UP
    shares = inverse / y
    lowest, highest = shares.min(axis=1), shares.max(axis=1)
    steepest = np.maximum(np.abs(lowest), np.abs(highest))
    center = inverse @ slacks
    lost = 4.0 * growth(inner.size) * np.abs(inverse) @ sizes
    # |u - inner| <= farthest + share |u - inner|, in the largest coordinate
    share = float((steepest * left + off_sums).max())
    farthest = float((np.abs(center) + steepest * total + lost).max())
    if not share < 0.5:
        return None
    reach = farthest / (1.0 - share) * ROUNDED_UP
    if reach > ELONGATED * float(slacks.max()):
        return None
    total += left * reach
    lost += off_sums * reach + growth(0) * (np.abs(inner) + np.abs(center) + steepest * total)
    low, high = inner + center - highest * total - lost, inner + center - lowest * total + lost
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return None
    return np.maximum(low, rows.box_low), np.minimum(high, rows.box_high)


# -- lower bounds ---------------------------------------------------------------------------------


def _multipliers(rows: Rows, g: Vector) -> Vector | None:
    """Return multipliers m of the rows for the minimum of <g, u>, None where there is none."""
    if not rows.low.size:
        return np.zeros(0)
    above, below = np.isfinite(rows.high), np.isfinite(rows.low)
    equal = rows.low == rows.high
    above, below = above & ~equal, below & ~equal
    bounds: Any = np.column_stack([rows.box_low, rows.box_high])
    answer = linprog(
        g,
        A_ub=np.vstack([rows.A[above], -rows.A[below]]),
        b_ub=np.concatenate([rows.high[above], -rows.low[below]]),
        A_eq=rows.A[equal],
        b_eq=rows.low[equal],
        bounds=bounds,
        method="highs",
    )
    if answer.status != 0:
        return None
    m = np.zeros(rows.low.size)
    marginals = np.asarray(answer.ineqlin.marginals)
    m[above] += marginals[: np.count_nonzero(above)]
    m[below] -= marginals[np.count_nonzero(above) :]
    m[equal] = answer.eqlin.marginals
    return _repaired(rows, g, m, np.asarray(answer.x))


def _repaired(rows: Rows, g: Vector, m: Vector, u: Vector) -> Vector:
    """Return multipliers without HiGHS's tolerance: g - A' m is zero where u is at no bound."""
    held = m != 0.0
    inside = (u > rows.box_low) & (u < rows.box_high)
    if not held.any() or not inside.any():
        return m
    rest = g - rows.A.T @ m
    if np.abs(rest[inside]).max() <= growth(m.size) * np.abs(g).max():
        return m
    repaired = m.copy()
    repaired[held] += np.linalg.lstsq(rows.A[held][:, inside].T, rest[inside], rcond=None)[0]
    return _allowed(rows, repaired)


def _allowed(rows: Rows, m: Vector) -> Vector:
    """Return multipliers without those that push against an open side."""
    wrong = ((m > 0.0) & np.isinf(rows.low)) | ((m < 0.0) & np.isinf(rows.high))
    return np.where(wrong, 0.0, m)


def _remainder(rows: Rows, g: Vector, m: Vector) -> tuple[Vector, Vector]:
    """Return r = g - A' m, and how far rounding can have taken each of its entries."""
    sizes = np.abs(g) + np.abs(rows.A).T @ np.abs(m)
    return g - rows.A.T @ m, growth(m.size + 1) * sizes + SMALLEST


def _limit_sum(rows: Rows, m: Vector) -> tuple[float, float]:
    """Return the least of <m, A u> by the rows' limits, and the size of its terms."""
    held = m != 0.0
    terms = m[held] * np.where(m > 0.0, rows.low, rows.high)[held]
    return float(terms.sum()), float(np.abs(terms).sum())


def _linear_bound(
    rows: Rows, hull: tuple[Vector, Vector], g: Vector, m: Vector
) -> tuple[float, float]:
    """Return a lower bound on <g, u>, correct for any m, and the norm of what it neglects of g.

    In coordinates without bounds up to `NEGLIGIBLE` is neglected.
    """
    m = _allowed(rows, m)
    rest, off = _remainder(rows, g, m)
    low, high = hull
    corner = np.where(rest > 0.0, low, high)
    reach = np.maximum(np.abs(low), np.abs(high))
    bounded = np.isfinite(reach)
    open_end = ~np.isfinite(corner)
    neglected = open_end & (np.abs(rest) <= NEGLIGIBLE * norm(g))
    if (open_end & ~neglected).any():
        return -math.inf, 0.0
    corner = np.where(open_end, 0.0, corner)
    fixed, size = _limit_sum(rows, m)
    terms = rest * corner
    lost = float(off[bounded] @ reach[bounded])
    size += float(np.abs(terms).sum()) + lost
    bound = fixed + float(terms.sum()) - lost - growth(g.size + m.size) * size
    # What rounding can hide in a coordinate without bounds is neglected too.
    unsure = np.where(neglected, np.abs(rest) + off, np.where(bounded, 0.0, off))
    return (bound if math.isfinite(bound) else -math.inf), norm(unsure)


def _missed(rows: Rows, x: Vector, point: Vector) -> float:
    """Return by how much the point found for x misses a row, zero where rounding may explain it."""
    if not np.isfinite(point).all():
        return math.inf
    missed = np.abs(rows.excess(point))
    terms = np.abs(rows.A) @ (np.abs(point) + UNIT * np.abs(x)) + _levels(rows)
    wrong = missed > INCONSISTENT * np.maximum(terms, SMALLEST)
    return float(missed[wrong].max(initial=0.0))


def _levels(rows: Rows) -> Vector:
    return np.maximum(finite_size(rows.low), finite_size(rows.high))
