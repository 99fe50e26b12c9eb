"""Polyhedra: linear equations, inequalities and bounds, like SciPy's constraints."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from accelegrad.errors import Vector
from accelegrad.geometry.nearest_point import Rows, nearest_point, require_finite, roughly_nearest
from accelegrad.geometry.sets import (
    INCONSISTENT,
    LARGEST,
    Box,
    FeasibleSet,
    finite_matrix,
    read_only,
)
from accelegrad.linalg import FEW, ROUNDED_UP, SMALLEST, UNIT, growth, norm

__all__ = ["Polyhedron"]

#: How often bounds of coordinates are tightened by the rows. Chosen.
PASSES = 5
#: The lengths of proximal steps, and how tight a bound should be, in diameters. Longer steps need
#: fewer iterations but lose digits. Measured on random bounded sets: two steps of 100 diameters
#: mostly suffice; longer ones serve a g nearly normal to a face.
PROXIMAL_STEPS, TIGHT = np.array([1e2, 1e2, 1e4, 1e6, 1e8]), 1e-12


class Polyhedron(FeasibleSet):
    """The polyhedron {u: lower <= A u <= upper}, within bounds of the single coordinates.

    The rows may depend on each other, and the feasible set may be a single point. Rows are scaled
    by powers of two first, so their units do not matter.

    Parameters
    ----------
    A : array_like or sparse matrix
        One row per constraint; it is kept as a dense matrix.
    lower, upper : array_like or float
        The limits of A u: numbers apply to every row, -inf and inf leave a side open, and
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
        matrix = finite_matrix("A", A)
        if not isinstance(bounds, Box | None):
            if not isinstance(bounds, (tuple, list)) or len(bounds) != 2:
                raise TypeError(f"bounds must be a Box or a pair (lower, upper), not {bounds!r}.")
            bounds = Box(*bounds)
        limits = _limits("lower and upper", "row", Box(lower, upper), len(matrix))
        box = _limits("bounds", "column", bounds or Box(-math.inf, math.inf), matrix.shape[1])
        self._rows = _scaled_rows(matrix, *limits, *box)
        self._shape, self.dimension = matrix.shape, matrix.shape[1]
        #: the point nearest to the origin
        origin = self._rows.clip(np.zeros(self.dimension))
        self._inner = read_only(nearest_point(self._rows, origin).point)
        missed = _missed(self._rows, origin, self._inner)
        if missed > 0.0:
            raise ValueError(
                "no point meets all the constraints: the nearest one found misses a row by "
                f"{missed:.3g} (row scaled to about unit length). If there is one, rows depend on "
                "each other too nearly to find it: leave out those that say nothing new."
            )
        #: bounds of the coordinates that follow from all the constraints, rounded outwards
        self._hull = _hull(self._rows)

    @property
    def diameter(self) -> float:
        """An upper bound: the diameter of a box around it, inf if none is known."""
        low, high = self._hull
        with np.errstate(over="ignore"):
            return norm(high - low) * ROUNDED_UP

    def project(self, x: Vector) -> Vector:
        """Return the nearest point: see `nearest_point`.

        If rows are nearly parallel and x is so far away that no feasible point is found, it is the
        point nearest to the origin: in the set, but not the nearest to x.
        """
        require_finite(x)
        rows = self._rows
        if np.array_equal(rows.clip(x), x) and not rows.excess(rows.A @ x).any():
            return x
        point = nearest_point(rows, x).point
        return self._inner.copy() if _missed(rows, x, point) > 0.0 else point

    def rows_for(self, size: int) -> Rows:  # noqa: ARG002
        """Return the rows, and the bounds of the coordinates."""
        return self._rows

    def linear_minimum(self, g: Vector) -> float:
        """Return a lower bound on the minimum, -inf if no box around the set is known."""
        if not g.any():
            return 0.0
        bound, _ = self._by_proximal_steps(g, self._inner, self._hull, self.diameter)
        return bound

    def linear_minimum_in_ball(self, g: Vector, center: Vector, radius: float) -> float:
        """Return a lower bound on <g, u> over the points of the set in a ball.

        Where the minimum over the set lies in the ball, proximal steps find its multipliers:
        they are shorter than those of the search in the ball, so their projections lose no digits.
        """
        low, high = self._hull
        with np.errstate(over="ignore"):
            low = np.maximum(low, np.nextafter(center - radius, -math.inf))
            high = np.minimum(high, np.nextafter(center + radius, math.inf))
        bound, lowest = self._by_proximal_steps(g, center, (low, high), 2.0 * radius)
        if lowest is not None and norm(lowest - center) <= radius:
            return bound
        return max(bound, super().linear_minimum_in_ball(g, center, radius))

    def _by_proximal_steps(
        self, g: Vector, u: Vector, box: tuple[Vector, Vector], diameter: float
    ) -> tuple[float, Vector | None]:
        """Return a lower bound on <g, u> over the set in a box, and a point that attains it.

        A few proximal steps, which are projections, lead to a minimiser. Each gives multipliers,
        from which a bound follows: valid for any multipliers, and tight up to rounding for the
        right ones.
        """
        size = norm(g)
        if not (0.0 < size < math.inf and diameter < LARGEST):
            return -math.inf, None
        best, unit, lowest = -math.inf, g / size, None
        # A single point has diameter 0: any step length will do.
        for length in PROXIMAL_STEPS * (diameter or 1.0):
            u, multipliers = roughly_nearest(self._rows, u - length * unit)
            best = max(best, _linear_bound(self._rows, box, unit, multipliers / -length))
            if float(unit @ u) - best <= TIGHT * diameter:
                lowest = u
                break
        return best * size - FEW * UNIT * abs(best) * size, lowest

    def _linear_bound(self, g: Vector, center: Vector, radius: float) -> float:  # noqa: ARG002
        """Return no bound: `linear_minimum_in_ball` has searched for a better one."""
        return -math.inf

    def proximal_minimum(
        self, g: Vector, center: Vector, radius: float, theta: float
    ) -> tuple[float, float]:
        """Return the distance of u_theta from the centre, and a bound from its multipliers.

        <g, u> = <r, u> + <m, A u> with r = g - A' m, for any multipliers m; the second term is
        bounded by the rows' limits, and the first is minimised over the box and the ball as for a
        `Box`, whose projection has no error.
        """
        rows = self._rows
        found = roughly_nearest(rows, center - g / theta)
        fixed, size, rest, off = _row_terms(rows, g, -theta * found.multipliers)
        u = rows.clip(center - rest / theta)
        distance = norm(u - center)
        reach = norm(center) + radius
        terms = size + norm(rest) * (norm(u) + reach)
        lost = norm(off) * reach + growth(g.size + rows.low.size) * terms
        return distance, float(rest @ u) + fixed - lost

    def _projection_error(self, size: int) -> float:  # noqa: ARG002
        # The bound allows for errors of the multipliers. With steps longer than 1e12 radii DAQP
        # finds wrong ones.
        return 0.5e-24

    def _scale(self) -> float:
        limits = np.concatenate((self._rows.all_low, self._rows.all_high))
        return float(np.abs(limits[np.isfinite(limits)]).max(initial=0.0))

    def __repr__(self) -> str:
        rows, columns = self._shape
        low, high = self._rows.box_low, self._rows.box_high
        bounded = int(np.count_nonzero(np.isfinite(low) | np.isfinite(high)))
        return f"Polyhedron(A={rows} x {columns} matrix, {bounded} bounded coordinates)"


# -- what is given --------------------------------------------------------------------------------


def _limits(name: str, line: str, given: Box, size: int) -> tuple[Vector, Vector]:
    """Return lower and upper limits, one per row or column of A."""
    if given.dimension not in (None, size):
        raise ValueError(
            f"{name} must be numbers or have one entry per {line} of A, {size}, but there are "
            f"{given.dimension}."
        )
    low, high = (np.array(np.broadcast_to(end, size), float) for end in (given.lower, given.upper))
    return low, high


def _scaled_rows(
    matrix: Vector, low: Vector, high: Vector, box_low: Vector, box_high: Vector
) -> Rows:
    """Return the rows without redundant ones, scaled by powers of two: no rounding."""
    lengths = np.array([norm(row) for row in matrix])
    if ((lengths == 0.0) & ((low > 0.0) | (high < 0.0))).any():
        first = int(np.argmax((lengths == 0.0) & ((low > 0.0) | (high < 0.0))))
        raise ValueError(f"no point meets row {first}: A[{first}] is zero, but its limits are not.")
    kept = (lengths > 0.0) & (np.isfinite(low) | np.isfinite(high))
    factors = np.ldexp(1.0, -np.frexp(lengths[kept])[1])
    scaled = np.ascontiguousarray(matrix[kept] * factors[:, None])
    return Rows(scaled, low[kept] * factors, high[kept] * factors, box_low, box_high)


# -- bounds of coordinates ------------------------------------------------------------------------


def _hull(rows: Rows) -> tuple[Vector, Vector]:
    """Return outward-rounded bounds of the coordinates implied by the box and single rows."""
    low, high = rows.box_low, rows.box_high
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        for _ in range(PASSES):
            tighter = _tightened(rows, low, high)
            if np.array_equal(tighter[0], low) and np.array_equal(tighter[1], high):
                break
            low, high = tighter
    return read_only(low.copy()), read_only(high.copy())


def _tightened(rows: Rows, low: Vector, high: Vector) -> tuple[Vector, Vector]:
    """Return the bounds that each row implies for each coordinate, given those of the others."""
    # A u <= high and -A u <= -low: subtract the least that the other coordinates contribute.
    A, limit = np.vstack((rows.A, -rows.A)), np.concatenate((rows.high, -rows.low))
    least = np.where(A > 0.0, A * low, A * high)
    least[A == 0.0] = 0.0
    infinite = np.isinf(least)
    finite = np.where(infinite, 0.0, least)
    others = finite.sum(axis=1, keepdims=True) - finite
    others_infinite = infinite.sum(axis=1, keepdims=True) - infinite
    room = limit[:, None] - others
    size = np.abs(finite).sum(axis=1, keepdims=True) + np.abs(limit)[:, None]
    room += 2.0 * growth(A.shape[1]) * size
    known = (others_infinite == 0) & (A != 0.0) & np.isfinite(room)
    end = np.where(known, room / A, np.nan)
    end += 2.0 * UNIT * np.abs(end) * np.sign(A)
    new_high = np.fmin(high, np.fmin.reduce(np.where(A > 0.0, end, math.inf), initial=math.inf))
    new_low = np.fmax(low, np.fmax.reduce(np.where(A < 0.0, end, -math.inf), initial=-math.inf))
    # Rounding may make the bounds of a fixed coordinate cross.
    return np.minimum(new_low, new_high), np.maximum(new_low, new_high)


# -- lower bounds ---------------------------------------------------------------------------------


def _row_terms(rows: Rows, g: Vector, m: Vector) -> tuple[float, float, Vector, Vector]:
    """Return the least value of <m, A u> that the rows' limits allow, and the size of its terms.

    Then r = g - A' m, and a bound of its rounding errors. Multipliers of the wrong sign for an open
    side count as zero.
    """
    wrong = ((m > 0.0) & np.isinf(rows.low)) | ((m < 0.0) & np.isinf(rows.high))
    m = np.where(wrong, 0.0, m)
    held = m != 0.0
    terms = m[held] * np.where(m > 0.0, rows.low, rows.high)[held]
    sizes = np.abs(g) + np.abs(rows.A).T @ np.abs(m)
    off = growth(m.size + 1) * sizes + SMALLEST
    return float(terms.sum()), float(np.abs(terms).sum()), g - rows.A.T @ m, off


def _linear_bound(rows: Rows, hull: tuple[Vector, Vector], g: Vector, m: Vector) -> float:
    """Return a lower bound on <g, u> over a bounded set, valid for any multipliers m."""
    fixed, size, rest, off = _row_terms(rows, g, m)
    low, high = hull
    terms = rest * np.where(rest > 0.0, low, high)
    lost = float(off @ np.maximum(np.abs(low), np.abs(high)))
    size += float(np.abs(terms).sum()) + lost
    bound = fixed + float(terms.sum()) - lost - growth(g.size + m.size) * size
    return bound if math.isfinite(bound) else -math.inf


def _missed(rows: Rows, x: Vector, point: Vector) -> float:
    """Return the largest violation of a row by the point found for x, zero up to rounding."""
    if not np.isfinite(point).all():
        return math.inf
    product = rows.A @ point
    missed = np.abs(rows.excess(product))
    terms = np.abs(rows.A) @ (np.abs(point) + UNIT * np.abs(x))
    terms += np.abs(rows.nearer_limit(product))
    wrong = missed > INCONSISTENT * np.maximum(terms, SMALLEST)
    return float(missed[wrong].max(initial=0.0))
