"""Feasible sets: closed convex sets with their projection and linear minimum.

Rules use `project`; the certificate uses `linear_minimum`, or `linear_minimum_in_ball` for
unbounded sets. All work on one-dimensional float64 arrays, do not modify them, and never change
after construction.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.linalg.blas import ddot

from accelegrad import kernels
from accelegrad.errors import Vector, finite_vector, nearest, real_array, real_number, whole_number
from accelegrad.geometry.nearest_point import MANY_COORDINATES, MOST_COORDINATES, Rows
from accelegrad.linalg import UNIT, growth, norm

T = TypeVar("T", bound=npt.NDArray[Any])

# A part of g outside a cone or subspace is treated as rounding if its share is at most this.
NEGLIGIBLE = 1e-12
#: The relative violation of a row above which the constraints count as contradictory: far above
#: rounding, far below what a user means by a contradiction. Chosen.
INCONSISTENT = 1e-9
#: Steps of the search for the best bound in a ball; the allowed distance of its point from the
#: boundary, relative to the radius; the largest growth of steps. Chosen.
MOST_STEPS, ON_BOUNDARY, MOST_GROWTH = 30, 1e-6, 1e3
#: Longer steps, and the inverse of shorter ones, lose digits.
LONGEST_STEP = 1.0 / float(np.finfo(np.float64).smallest_normal)
# Larger sets count as unbounded: squares of such numbers overflow.
LARGEST = 1e150


class OnVectors(ABC):
    """A set or function of vectors, with its dimension and repr."""

    #: its name in messages
    role: ClassVar[str]
    #: the constructor's parameters shown by `repr`, each an attribute too
    _shown: ClassVar[tuple[str, ...]] = ()
    #: the number of coordinates, None if any number fits
    dimension: int | None = None

    def check_dimension(self, size: int) -> None:
        """Raise ValueError unless points of `size` coordinates fit."""
        needed = self.dimension
        if needed is not None and size != needed:
            raise ValueError(
                f"{self.role} {self!r} has dimension {needed}, but the points have {size} "
                f"coordinates; it needs {needed}."
            )

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={short_text(getattr(self, name))}" for name in self._shown)
        return f"{type(self).__name__}({shown})"


class FeasibleSet(OnVectors):
    """A closed convex set in Euclidean space.

    A user-defined set needs `project` and `linear_minimum`, and `diameter` if it is bounded.
    """

    role = "feasible_set"
    #: Whether `project` is correct to the last digits however far away x is.
    _projects_exactly = False
    #: whether a linear minimum takes much longer than a step of a run
    costly_minimum = False

    @abstractmethod
    def project(self, x: Vector) -> Vector:
        """Return the point of the set nearest to `x`: argmin over u of ||u - x||.

        `x` itself may be returned when it lies in the set; it is never modified.
        """

    @abstractmethod
    def linear_minimum(self, g: Vector) -> float:
        """Return the minimum over the set of <g, u>, or -inf where there is none."""

    def rows_for(self, size: int) -> Rows | None:  # noqa: ARG002
        """Return rows and bounds that describe the set in `size` coordinates.

        Quadratic programmes over it are then solved by DAQP; None: by projections.
        """
        return None

    @property
    def diameter(self) -> float:
        """The largest distance of two points of the set, inf if it is unbounded.

        If the dimension is unknown it holds for every dimension; see `diameter_for`.
        """
        return math.inf

    def diameter_for(self, size: int) -> float:
        """Return the diameter in `size` coordinates, inf if its square would overflow."""
        self.check_dimension(size)
        return _usable(self.diameter)

    def contains(self, x: npt.ArrayLike, tolerance: float = 1e-12) -> bool:
        """Return whether `x` lies in the set, up to `tolerance * scale` in Euclidean distance.

        The scale is the largest of ||x||, the norm of its projection and the size of the numbers
        that describe the set. A point with NaN or infinite entries lies in no set.
        """
        tolerance = real_number("tolerance", tolerance, least=0.0)
        point = np.asarray(real_array("x", x), dtype=np.float64)
        if point.ndim != 1:
            raise ValueError(f"x must be one-dimensional, but its shape is {point.shape}.")
        self.check_dimension(point.size)
        return bool(np.isfinite(point).all()) and self._is_near(point, tolerance)

    def linear_minimum_in_ball(self, g: Vector, center: Vector, radius: float) -> float:
        r"""Return a lower bound on <g, u> over the points of the set in a ball.

        For every :math:`\theta > 0` and :math:`u_\theta = P(c - g / \theta)`,

        .. math:: q(\theta) = \langle g, u_\theta \rangle
                  + \tfrac{\theta}{2} (\|u_\theta - c\|^2 - r^2)

        is the minimum over the set of the Lagrangian of the ball constraint: a lower bound, whose
        maximum is tight if the interior of the ball meets the set. The largest value found is
        returned, correct to rounding. If projections may lose digits far away, it is lowered by at
        most :math:`\sqrt{2 d \epsilon} \, r \|g\|` (about 1e-7, relative). If set and ball do not
        meet, every number is a bound.
        """
        size = norm(g)
        if size == 0.0:
            return 0.0
        if not math.isfinite(size):
            return -math.inf
        if math.isinf(radius):
            return self.linear_minimum(g)
        without_set = float(g.dot(center)) - radius * size
        best = max(self._linear_bound(g, center, radius), without_set)
        room = radius - norm(self.project(center) - center)
        # If set and ball seem to touch, common points may be up to sqrt(2 eps) r apart.
        return max(best, self._dual_bound(g, center, radius, size, room)) if room > 0.0 else best

    def _linear_bound(self, g: Vector, center: Vector, radius: float) -> float:
        """Return the linear minimum, less what it neglects of g for the points of a ball."""
        least = self.linear_minimum(g)
        if not math.isfinite(least):
            return -math.inf
        return least - self._neglected(g) * (radius + norm(center) + self._scale())

    def _neglected(self, g: Vector) -> float:  # noqa: ARG002
        """Return the norm of the part of `g` that the linear minimum treats as rounding."""
        return 0.0

    def _dual_bound(
        self, g: Vector, center: Vector, radius: float, size: float, room: float
    ) -> float:
        """Maximise q over the step t = 1 / theta.

        The distance of u from the centre rises with t, and at the best t it is the radius. There q
        is flat: a relative error e of the distance costs about e^2 of the gap. `size` is ||g||,
        `room` is the radius less the distance of the centre from the set: projections are
        non-expansive, so up to t = room / ||g|| the distance is at most the radius.
        """
        best, inside, outside = -math.inf, (0.0, radius - room), (math.inf, math.inf)
        reach = radius + norm(center)
        # Stopping at t costs at most r^2 / (2 t). Below the allowance for errors, longer steps gain
        # nothing.
        share = max(math.sqrt(2.0 * self._projection_error(g.size)), 1e-30)
        longest = min(radius / size / share, LONGEST_STEP)
        step = min(max(room / size, 1.0 / LONGEST_STEP), longest)
        for _ in range(MOST_STEPS):
            distance, lowest = self.proximal_minimum(g, center, radius, 1.0 / step)
            if distance <= 2.0 * radius:
                # Farther out the terms of q are large and cancel: a poor bound.
                ball = 0.5 * (distance - radius) * (distance + radius)
                error = growth(g.size) * (distance + radius) * (distance + reach)
                best = np.fmax(best, lowest + (ball - error) / step)
            if abs(distance - radius) <= ON_BOUNDARY * radius or step == longest:
                break
            rise = distance - inside[1]
            if distance < radius:
                faster = (radius - distance) * (step - inside[0]) / rise if rise > 0.0 else math.inf
                inside = step, distance
                following = min(step + faster, MOST_GROWTH * step, longest)
            else:
                following = inside[0] + (radius - inside[1]) * (step - inside[0]) / rise
                if inside[0] > 0.0 and outside[1] - distance <= ON_BOUNDARY * radius:
                    following = math.inf  # u stays at a corner: the chord hardly shortens the step
                outside = step, distance
            if not inside[0] < following < outside[0]:
                following = math.sqrt(inside[0]) * math.sqrt(outside[0])
            step = following
        return float(best)

    def proximal_minimum(
        self,
        g: Vector,
        center: Vector,
        radius: float,  # noqa: ARG002
        theta: float,
    ) -> tuple[float, float]:
        """Return ||u_theta - c||, and a lower bound on the rest of the Lagrangian's minimum.

        With the distance d the bound l is such that l + theta d^2 / 2 is at most the minimum of <g,
        u> + theta ||u - c||^2 / 2 over the points of the set in the ball.
        """
        u, size = self.project(center - g / theta), norm(g)
        error = self._projection_error(g.size)
        return norm(u - center), float(g.dot(u)) - error * size * (size / theta)

    def _is_near(self, x: Vector, tolerance: float) -> bool:
        nearest = self.project(x)
        scale = max(norm(x), norm(nearest), self._scale())
        return norm(x - nearest) <= tolerance * scale

    def _scale(self) -> float:
        """Return the size of the numbers that describe the set."""
        return 0.0

    def _projection_error(self, size: int) -> float:
        """Return a bound of the error of P(x), relative to ||x||, for `size` entries.

        A point at distance e from the true projection raises q by up to ||g|| e. If the set
        projects exactly, the error has no first-order effect on q.
        """
        return 0.0 if self._projects_exactly else max(16, size) * UNIT


class WholeSpace(FeasibleSet):
    """The whole space: no constraint at all."""

    def project(self, x: Vector) -> Vector:
        """Return `x`."""
        return x

    def linear_minimum(self, g: Vector) -> float:
        """Return 0 for g = 0, else -inf."""
        return -math.inf if g.any() else 0.0


class _CentredSet(FeasibleSet):
    _projects_exactly = True
    _shown = ("center", "radius")

    def __init__(self, center: npt.ArrayLike, radius: float) -> None:
        self.center: float | Vector
        if real_array("center", center).ndim == 0:
            self.center = real_number("center", center)
        else:
            self.center = read_only(finite_vector("center", center))
            self.dimension = self.center.size
        self._at_origin = not np.any(self.center)
        self.radius = real_number("radius", radius, above=0.0)

    @property
    def diameter(self) -> float:
        return 2.0 * self.radius

    def _scale(self) -> float:
        return norm(np.atleast_1d(self.center)) + self.radius


class Ball(_CentredSet):
    """The Euclidean ball ``{u: ||u - center|| <= radius}``.

    Parameters
    ----------
    center : array_like or float
        A number stands for the constant vector, in any dimension.
    radius : float
        Positive.
    """

    def project(self, x: Vector) -> Vector:
        """Return c + r (x - c) / ||x - c|| for a point outside."""
        if self._at_origin:  # the usual centre of a run, in half the time
            size = norm(x)
            return x if size <= self.radius else x * (self.radius / size)
        offset: Vector = x - self.center
        distance = norm(offset)
        if distance <= self.radius:
            return x
        offset *= self.radius / distance
        offset += self.center
        return offset

    def linear_minimum(self, g: Vector) -> float:
        """Return <g, c> - r ||g||."""
        return dot(g, self.center) - self.radius * norm(g)


class Box(FeasibleSet):
    """The box {u: lower <= u <= upper}, coordinate by coordinate.

    Parameters
    ----------
    lower, upper : array_like or float
        Numbers apply to every coordinate; if both are numbers the box fits any dimension.
        -inf and inf leave a side open; lower = upper fixes a coordinate.
    """

    _projects_exactly = True
    _shown: ClassVar[tuple[str, ...]] = ("lower", "upper")

    def __init__(self, lower: npt.ArrayLike, upper: npt.ArrayLike) -> None:
        self.lower = _bound("lower", lower, refused=math.inf)
        self.upper = _bound("upper", upper, refused=-math.inf)
        sizes = {length(self.lower), length(self.upper)} - {None}
        if len(sizes) > 1:
            raise ValueError(
                "lower and upper must have the same length or be numbers, but the lengths are "
                f"{length(self.lower)} and {length(self.upper)}."
            )
        self.dimension = next(iter(sizes), None)
        crossing = np.atleast_1d(np.greater(self.lower, self.upper))
        if crossing.any():
            first = int(np.argmax(crossing))
            low, high, _ = (b[first] for b in np.broadcast_arrays(self.lower, self.upper, crossing))
            where = "" if self.dimension is None else f"[{first}]"
            raise ValueError(
                f"lower must be <= upper, but lower{where} is {low} and upper{where} is {high}."
            )

    @property
    def diameter(self) -> float:
        """The norm of upper - lower; inf for two different numbers, as the dimension is unknown."""
        if self.dimension is not None:
            return self.diameter_for(self.dimension)
        return 0.0 if self.lower == self.upper else math.inf

    def diameter_for(self, size: int) -> float:
        """Return the norm of upper - lower in the space of `size` coordinates."""
        self.check_dimension(size)
        with np.errstate(over="ignore"):  # infinite is right
            width = np.subtract(self.upper, self.lower)
        return _usable(norm(width) if width.ndim else float(width) * math.sqrt(size))

    def project(self, x: Vector) -> Vector:
        """Return min(max(x, lower), upper)."""
        clipped: Vector = np.maximum(x, self.lower)
        np.minimum(clipped, self.upper, out=clipped)
        return clipped

    def rows_for(self, size: int) -> Rows | None:
        """Return the bounds, unless projections are faster."""
        if size > MOST_COORDINATES:
            return None
        ends = (np.array(np.broadcast_to(end, size)) for end in (self.lower, self.upper))
        return Rows(
            np.empty((0, size)), np.empty(0), np.empty(0), *ends, quick=size > MANY_COORDINATES
        )

    def linear_minimum(self, g: Vector) -> float:
        """Return the sum of g_i lower_i over g_i > 0 and of g_i upper_i over g_i < 0."""
        corner = np.where(g > 0.0, self.lower, self.upper)
        corner[g == 0.0] = 0.0  # 0 * inf is 0 here
        least: float = ddot(g, corner)  # unlike g @ corner it gives no warning when it overflows
        return least if math.isfinite(least) else -math.inf

    def _scale(self) -> float:
        bounds = np.concatenate([np.ravel(self.lower), np.ravel(self.upper)])
        return float(np.abs(bounds[np.isfinite(bounds)]).max(initial=0.0))


class NonNegative(Box):
    """The orthant {u: u >= 0}."""

    _shown = ()

    def __init__(self) -> None:
        super().__init__(0.0, math.inf)


class Simplex(FeasibleSet):
    """The simplex {u: u >= 0, sum of u = total}.

    Parameters
    ----------
    total : float
        Positive.
    """

    _projects_exactly = True
    _shown = ("total",)

    def __init__(self, total: float = 1.0) -> None:
        self.total = real_number("total", total, above=0.0)

    @property
    def diameter(self) -> float:
        """The distance of two corners, sqrt(2) total; an upper bound in one coordinate."""
        return math.sqrt(2.0) * self.total

    def diameter_for(self, size: int) -> float:
        """Return sqrt(2) total from two coordinates on, 0 for one."""
        return _usable(self.diameter) if size > 1 else 0.0

    def project(self, x: Vector) -> Vector:
        """Return max(x - t, 0), with the t that gives the right sum."""
        return _project_onto_simplex(x, self.total)

    def rows_for(self, size: int) -> Rows | None:
        """Return the equation and the bounds, unless projections are faster."""
        if size > MOST_COORDINATES:
            return None
        total, zero = np.array([self.total]), np.zeros(size)
        ends = zero, np.full(size, math.inf)
        return Rows(np.ones((1, size)), total, total, *ends, quick=size > MANY_COORDINATES)

    def linear_minimum(self, g: Vector) -> float:
        """Return total * min(g), the value at the best corner."""
        return self.total * float(g.min())

    def _scale(self) -> float:
        return self.total


class L1Ball(_CentredSet):
    """The l1 ball ``{u: sum of |u - center| <= radius}``.

    Parameters
    ----------
    radius : float
        Positive.
    center : array_like or float, optional
        The origin by default; a number stands for the constant vector.
    """

    _shown = ("radius", "center")

    def __init__(self, radius: float, center: npt.ArrayLike | None = None) -> None:
        super().__init__(0.0 if center is None else center, radius)

    def project(self, x: Vector) -> Vector:
        """Return c + sign(x - c) max(|x - c| - t, 0), with the t that gives the radius."""
        offset: Vector = x - self.center
        sizes = np.abs(offset)
        if sizes.sum() <= self.radius:
            return x
        shrunk = _project_onto_simplex(sizes, self.radius)
        # Just outside the ball rounding can make t negative, and zeros would grow.
        np.minimum(shrunk, sizes, out=shrunk)
        projected: Vector = np.copysign(shrunk, offset)
        projected += self.center
        return projected

    def linear_minimum(self, g: Vector) -> float:
        """Return <g, c> - r max|g|, the value at the best corner."""
        return dot(g, self.center) - self.radius * float(np.abs(g).max())


class Halfspace(FeasibleSet):
    """The half-space {u: <normal, u> <= offset}.

    Parameters
    ----------
    normal : array_like
        Not zero; its length does not matter to the set.
    offset : float
    """

    _shown = ("normal", "offset")

    def __init__(self, normal: npt.ArrayLike, offset: float) -> None:
        self.normal = read_only(finite_vector("normal", normal))
        self.offset = real_number("offset", offset)
        size = norm(self.normal)
        if size == 0.0:
            raise ValueError("normal must not be zero, but all its entries are 0.")
        self.dimension = self.normal.size
        self._unit, self._level = self.normal / size, self.offset / size
        self._boundary = Affine(self.normal[np.newaxis], [self.offset])

    def project(self, x: Vector) -> Vector:
        """Return x - (<n, x> - b) n for a point outside, with n and b scaled to ||n|| = 1."""
        excess = float(self._unit.dot(x)) - self._level
        if excess <= 0.0:
            return x
        projected: Vector = x - excess * self._unit
        # A second time: for a distant point the first leaves the rounding error of large numbers.
        projected -= (float(self._unit.dot(projected)) - self._level) * self._unit
        return projected

    def linear_minimum(self, g: Vector) -> float:
        """Return b <g, n> if g = -a n with a >= 0, up to 1e-12 relative, else -inf."""
        return -math.inf if self._unit.dot(g) > 0.0 else self._boundary.linear_minimum(g)

    def _neglected(self, g: Vector) -> float:
        return self._boundary._neglected(g)

    def linear_minimum_in_ball(self, g: Vector, center: Vector, radius: float) -> float:
        """Return the exact minimum: at the lowest point of the ball, or on the boundary."""
        size = norm(g)
        if size == 0.0:
            return 0.0
        if math.isinf(radius):
            return self.linear_minimum(g)
        height = float(self._unit.dot(center)) - self._level
        if height <= radius * (float(self._unit.dot(g)) / size):
            return float(g.dot(center)) - radius * size
        return self._boundary.linear_minimum_in_ball(g, center, radius)

    def _scale(self) -> float:
        return abs(self._level)


class Affine(FeasibleSet):
    """The affine set {u: A u = b}.

    The rows of A may be dependent if the equations have a solution. Rows are scaled to unit length
    first, so that the rank does not depend on their units.

    Parameters
    ----------
    A : array_like
        A dense matrix, one equation per row.
    b : array_like
        One number per row.
    """

    def __init__(self, A: npt.ArrayLike, b: npt.ArrayLike) -> None:
        matrix, right = finite_matrix("A", A), finite_vector("b", b)
        if right.size != matrix.shape[0]:
            raise ValueError(
                f"b must have one entry per row of A, {matrix.shape[0]}, but it has {right.size}."
            )
        lengths = np.array([norm(row) for row in matrix])
        lengths[lengths == 0.0] = 1.0
        matrix, right = matrix / lengths[:, np.newaxis], right / lengths
        left, singular, rows = np.linalg.svd(matrix, full_matrices=False)
        cut = singular[0] * max(matrix.shape) * UNIT
        self.rank = int(np.count_nonzero(singular > cut))
        # An orthonormal basis of the row space, and the coordinates of every point in it.
        self._basis = read_only(np.ascontiguousarray(rows[: self.rank]))
        shared = left[:, : self.rank].T @ right / singular[: self.rank]
        self._level: Vector = read_only(shared)
        self._nearest_zero: Vector = read_only(self._level @ self._basis)
        self._shape, self.dimension = matrix.shape, matrix.shape[1]
        residual = np.abs(matrix @ self._nearest_zero - right)
        allowed = INCONSISTENT * (norm(self._nearest_zero) + np.abs(right))
        if (residual > allowed).any():
            first = int(np.argmax(residual > allowed))
            raise ValueError(
                "A u = b must have a solution, but A and b contradict each other: the "
                f"least-squares solution misses row {first} by {residual[first]:.3g} (row scaled "
                "to unit length)."
            )

    @property
    def diameter(self) -> float:
        """Zero if the equations leave a single point, else infinite."""
        return 0.0 if self.rank == self.dimension else math.inf

    def project(self, x: Vector) -> Vector:
        """Return x - Q (Q^T x - Q^T u), Q a basis of the row space and u any solution."""
        if self.rank == self.dimension:
            return self._nearest_zero.copy()
        projected: Vector = x - (self._basis.dot(x) - self._level).dot(self._basis)
        # A second time: for a distant point the first leaves the rounding error of large numbers.
        projected -= (self._basis.dot(projected) - self._level).dot(self._basis)
        return projected

    def linear_minimum(self, g: Vector) -> float:
        """Return <g, u> if g lies in the row space, up to 1e-12 relative, else -inf."""
        if self._neglected(g) <= NEGLIGIBLE * norm(g):
            return float(g.dot(self._nearest_zero))
        return -math.inf

    def _neglected(self, g: Vector) -> float:
        if self.rank == self.dimension:
            return 0.0
        return norm(g - self._basis.dot(g).dot(self._basis))

    def linear_minimum_in_ball(self, g: Vector, center: Vector, radius: float) -> float:
        """Return the exact minimum, <g, p> - sqrt(r^2 - ||c - p||^2) ||g_0||.

        By Pythagoras the set cuts a ball with centre p = P(c) out of the ball; g_0 is the part of g
        along the set. Without a common point, <g, p> is returned: any number is a bound.
        """
        if math.isinf(radius):
            return self.linear_minimum(g)
        nearest = self.project(center)
        error = growth(g.size + self.rank) * (norm(center) + norm(nearest))
        distance = max(0.0, norm(center - nearest) - error)
        chord = math.sqrt(max(0.0, (radius - distance) * (radius + distance)))
        return float(g.dot(nearest)) - chord * self._neglected(g)

    def _scale(self) -> float:
        return norm(self._nearest_zero)

    def __repr__(self) -> str:
        rows, columns = self._shape
        return f"Affine(A={rows} x {columns} matrix of rank {self.rank}, b={rows} numbers)"


class Product(FeasibleSet):
    """The product of sets, each for a block of consecutive coordinates.

    Parameters
    ----------
    blocks : sequence of sets, or of (set, size) pairs
        A set with a fixed dimension (such as a ball with a vector as centre) may stand alone; one
        that fits any dimension needs the size of its block. User-defined sets are allowed.

    Examples
    --------
    >>> Product([Ball([0.0, 0.0], 1.0), (NonNegative(), 3)]).dimension
    5
    """

    def __init__(self, blocks: Sequence[Any]) -> None:
        if not isinstance(blocks, (list, tuple)):
            raise TypeError(
                f"blocks must be a list of sets or (set, size) pairs, not {type(blocks).__name__}."
            )
        if not blocks:
            raise ValueError("blocks must hold at least one set, but it is empty.")
        members = [_block(index, given) for index, given in enumerate(blocks)]
        ends = np.cumsum([size for _, size in members]).tolist()
        #: the sets, each with its coordinates
        self.blocks = tuple(
            (member, slice(end - size, end))
            for (member, size), end in zip(members, ends, strict=True)
        )
        self.dimension = ends[-1]

    @property
    def diameter(self) -> float:
        """The root of the sum of the blocks' squared diameters."""
        return math.hypot(*(member.diameter_for(_length(block)) for member, block in self.blocks))

    def project(self, x: Vector) -> Vector:
        """Return the blocks' projections, one after the other."""
        return np.concatenate([member.project(x[block]) for member, block in self.blocks])

    def linear_minimum(self, g: Vector) -> float:
        """Return the sum of the blocks' minima."""
        return sum(member.linear_minimum(g[block]) for member, block in self.blocks)

    def _neglected(self, g: Vector) -> float:
        return math.hypot(*(member._neglected(g[block]) for member, block in self.blocks))

    def _scale(self) -> float:
        return math.hypot(*(member._scale() for member, _ in self.blocks))

    def _is_near(self, x: Vector, tolerance: float) -> bool:
        # Each block relative to its size: errors of a large one must not hide those of a small one.
        return all(member._is_near(x[block], tolerance) for member, block in self.blocks)

    def proximal_minimum(
        self, g: Vector, center: Vector, radius: float, theta: float
    ) -> tuple[float, float]:
        """Return the sum over the blocks: the Lagrangian is separable."""
        parts = [
            member.proximal_minimum(g[block], center[block], radius, theta)
            for member, block in self.blocks
        ]
        distances, lowest = zip(*parts, strict=True)
        return norm(np.array(distances)), math.fsum(lowest)

    def _projection_error(self, size: int) -> float:  # noqa: ARG002
        return max(member._projection_error(_length(block)) for member, block in self.blocks)

    def __repr__(self) -> str:
        blocks = (f"({member!r}, {_length(block)})" for member, block in self.blocks)
        return f"Product([{', '.join(blocks)}])"


class _Foreign(FeasibleSet):
    """A user's object with `project`, and optionally `linear_minimum` and `diameter`."""

    diameter = math.inf

    def __init__(self, given: Any) -> None:
        self._given = given
        self._linear_minimum = getattr(given, "linear_minimum", None)
        self.dimension = users_dimension(self.role, given)
        size = getattr(given, "diameter", math.inf)
        if not (isinstance(size, (float, np.floating)) and size == math.inf):
            self.diameter = real_number("feasible_set.diameter", size, least=0.0)

    def project(self, x: Vector) -> Vector:
        """Return the object's projection of a copy of `x`: it may work in place."""
        with kernels.as_given():
            projected = np.asarray(self._given.project(x.copy()), dtype=np.float64)
        require_shape("feasible_set.project", projected, x)
        return projected

    def linear_minimum(self, g: Vector) -> float:
        return -math.inf if self._linear_minimum is None else float(self._linear_minimum(g))

    def __repr__(self) -> str:
        return f"as_feasible_set({self._given!r})"


#: Sets that can be given by name
NAMED: dict[str, Callable[[], FeasibleSet]] = {"nonnegative": NonNegative, "simplex": Simplex}


def as_feasible_set(given: Any) -> FeasibleSet:
    """Return a set, its name ("nonnegative", "simplex") or a user's object as a feasible set."""
    if isinstance(given, FeasibleSet):
        return given
    if isinstance(given, str):
        found: FeasibleSet = named("feasible_set", "set", given, NAMED)
        return found
    check_users_object("feasible_set", "set", given, "project(x)")
    return _Foreign(given)


def named(
    role: str, kind: str, given: str, known: dict[str, Callable[[], Any]], more: str = ""
) -> Any:
    """Return what a name stands for, or say which names there are."""
    if given in known:
        return known[given]()
    hint = nearest(given, known)
    raise ValueError(f"{role} must be a {kind} or a name, not {given!r}; {hint}{more}")


def check_users_object(role: str, kind: str, given: Any, *methods: str) -> None:
    """Refuse a user's object without the required methods, given as calls."""
    if isinstance(given, type):
        raise TypeError(
            f"{role} must be a {kind}, not the class {given.__name__}; call the class first."
        )
    if not all(callable(getattr(given, method.split("(")[0], None)) for method in methods):
        calls = (
            f"a method {methods[0]}" if len(methods) == 1 else "methods " + " and ".join(methods)
        )
        plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
        raise TypeError(
            f"{role} must be one of accelegrad's {plural} or an object with {calls}, not {given!r}."
        )


def require_shape(name: str, answer: npt.NDArray[Any], x: Vector) -> None:
    """Refuse an answer of a user's method that has not the shape of its argument."""
    if answer.shape != x.shape:
        raise ValueError(
            f"{name} must return an array of shape {x.shape}, but it returned one of shape "
            f"{answer.shape}."
        )


def users_dimension(role: str, given: Any) -> int | None:
    """Return the dimension of a user's object, None if it has none."""
    size = getattr(given, "dimension", None)
    return None if size is None else whole_number(f"{role}.dimension", size, least=1)


def finite_matrix(name: str, given: Any) -> Vector:
    """Return a copy as a dense matrix of finite numbers."""
    if sp.issparse(given):
        given = given.toarray()  # type: ignore[attr-defined]
    matrix = np.array(real_array(name, given), dtype=np.float64)
    if matrix.ndim != 2 or matrix.size == 0:
        raise ValueError(f"{name} must be a matrix with entries, but its shape is {matrix.shape}.")
    if not np.isfinite(matrix).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(matrix))[0])
        found = matrix[row, column]
        raise ValueError(f"{name} must be finite, but {name}[{row}, {column}] is {found}.")
    return matrix


def length(point: float | Vector) -> int | None:
    """Return the number of entries, None for a number."""
    return point.size if isinstance(point, np.ndarray) else None


def short_text(given: Any) -> str:
    """Return a short text for a number or a vector."""
    if not isinstance(given, np.ndarray):
        return repr(given)
    return np.array2string(given, separator=", ", threshold=6, edgeitems=2)


def read_only(array: T) -> T:
    """Make an array read-only and return it."""
    array.setflags(write=False)
    return array


def _block(index: int, given: Any) -> tuple[FeasibleSet, int]:
    name = f"blocks[{index}]"
    size: int | None = None
    if isinstance(given, tuple):
        if len(given) != 2:
            raise ValueError(
                f"{name} must be a set or a pair (set, size), but it has {len(given)} parts."
            )
        given, size = given[0], whole_number(f"the size in {name}", given[1], least=1)
    try:
        member = as_feasible_set(given)
    except TypeError as error:
        raise TypeError(str(error).replace("feasible_set", name, 1)) from None
    fixed = member.dimension
    if size is None:
        size = fixed
    if size is None:
        raise ValueError(
            f"{name} must tell its size, but {member!r} fits any dimension: "
            f"give the pair ({member!r}, size)."
        )
    if fixed is not None and fixed != size:
        raise ValueError(
            f"the size in {name} must be {fixed}, the dimension of {member!r}, but it is {size}."
        )
    return member, size


def _length(block: slice) -> int:
    return int(block.stop - block.start)


def _project_onto_simplex(x: Vector, total: float) -> Vector:
    """Return max(x - t, 0) with the t for which the entries add up to `total`.

    Entries are taken relative to the largest, which stays positive, so none that lies `total` or
    more below it does. The sort sees only the others, and their sums are exact relative to `total`
    however far away x is.
    """
    below = x - x.max()
    kept = np.sort(below[below > -total])[::-1]
    sums = np.cumsum(kept) - total
    # kept[k-1] stays positive while it exceeds the threshold of the first k. NaN gives none.
    count = max(1, np.count_nonzero(kept * np.arange(1, kept.size + 1) > sums))
    threshold = (kept[:count].sum() - total) / count
    projected: Vector = np.maximum(below - threshold, 0.0)
    return projected


def _usable(diameter: float) -> float:
    return diameter if diameter <= LARGEST else math.inf


def dot(g: Vector, point: float | Vector) -> float:
    """Return <g, point>; a number stands for the constant vector."""
    return float(g.dot(point)) if isinstance(point, np.ndarray) else point * float(g.sum())


def _bound(name: str, given: Any, *, refused: float) -> float | Vector:
    """Return the bounds of a box; infinite ones are allowed, except `refused`."""
    array = np.array(real_array(name, given), dtype=np.float64)
    if array.ndim > 1 or array.size == 0:
        raise ValueError(f"{name} must be a number or a vector, but its shape is {array.shape}.")
    wrong = np.atleast_1d(np.isnan(array) | (array == refused))
    if wrong.any():
        first = int(np.argmax(wrong))
        where = f"[{first}]" if array.ndim else ""
        raise ValueError(
            f"{name} must be a number or {-refused}, but {name}{where} is {array.flat[first]}."
        )
    return read_only(array) if array.ndim else float(array)
