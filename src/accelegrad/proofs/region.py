"""Where a minimiser is, and the least value there of a linear function with a penalty."""

from __future__ import annotations

import math

import numpy as np

from accelegrad.errors import NonFiniteError, Vector
from accelegrad.geometry.penalties import Penalty
from accelegrad.geometry.sets import FeasibleSet, WholeSpace
from accelegrad.linalg import SMALLEST, norm
from accelegrad.models.scaling import ColumnScaling
from accelegrad.rules.base import inner

#: Most steps tried for the minimum of a cut plus a penalty.
MOST_STEPS = 10
#: What the bound of the longest of these steps loses, relative to the cut's terms
GIVEN_AWAY = 1e-12
#: No step is longer: its square may be needed.
LONGEST_STEP = 1e100
#: Tolerance, in radii, on a minimum at the region's boundary.
NEAR_BOUNDARY = 0.05


class Region:
    """Where a minimiser is known (a bounded set) or assumed (near the start) to be.

    The ball around `center` also contains it: by the diameter of a bounded set, or by assumption
    (`assumed`). A `growing` radius is a guess that grows with the distance travelled. Bounds are on
    the sum of the function and the penalty. With `change` the ball is one in v of x = T v, an
    ellipsoid in x, and `stretch` is the factor by which T' can lengthen the error of a gradient.
    """

    def __init__(
        self,
        feasible_set: FeasibleSet,
        center: Vector,
        radius: float,
        *,
        assumed: bool,
        growing: bool = False,
        penalty: Penalty | None = None,
        change: ColumnScaling | None = None,
        stretch: float = 1.0,
    ) -> None:
        self.feasible_set, self.center, self.radius = feasible_set, center, radius
        self.assumed, self.growing = assumed, growing
        self.penalty, self.change, self.stretch = penalty, change, stretch
        self._inner = center, feasible_set  # in the coordinates of the ball
        if change is not None:
            chosen = change.scaled_set(feasible_set, center.size)
            self._inner = change.invert(center), chosen or WholeSpace()
        #: whether there is no constraint
        self.is_ball = isinstance(feasible_set, WholeSpace)
        self._closed_form = (
            not (assumed or self.is_ball)
            and math.isfinite(feasible_set.diameter_for(center.size))
            and math.isfinite(feasible_set.linear_minimum(np.ones_like(center)))
        )
        #: a minimum over both set and ball takes many projections
        self.costly = not (self.is_ball or self._closed_form) or feasible_set.costly_minimum
        #: whether an affine minorant of the penalty suffices for a tight bound, or is all there is:
        #: the penalty is not known in scaled coordinates
        self.minorant_suffices = penalty is not None and (
            change is not None
            or (penalty.homogeneous and feasible_set.contains(np.zeros_like(center)))
        )

    @property
    def certified_radius(self) -> float:
        """How far from the centre the bounds hold; infinite where no minimiser is farther."""
        return self.radius if self.assumed else math.inf

    def distance_to_boundary(self, point: Vector, direction: Vector) -> float:
        """Return the distance from a point in the ball to its boundary, along a direction."""
        length = norm(direction)
        offset = point - self.center
        if not length > 0.0:
            return max(self.radius - norm(offset), 0.0)
        along = inner(offset, direction / length)
        inside = max(self.radius * self.radius - inner(offset, offset), 0.0)
        return float(math.sqrt(along * along + inside) - along)

    def minimum(self, gradient: Vector, length: float) -> tuple[float, float]:
        """Return a lower bound of the minimum of <gradient, u - center>, and its terms' size."""
        center, feasible_set = self._inner
        if self.change is not None:
            gradient = self.change.adjoint(gradient)
            length = norm(gradient)
        if self.is_ball:
            least = -self.radius * length
            return least, -least
        reach = norm(center) + self.radius
        if self._closed_form:
            least = feasible_set.linear_minimum(gradient)
        else:
            least = feasible_set.linear_minimum_in_ball(gradient, center, self.radius)
        return least - float(gradient @ center), 2.0 * reach * length

    def minimum_with_penalty(self, gradient: Vector, size: float) -> tuple[float, float]:
        """Return a lower bound of the minimum of <gradient, u - center> + phi(u) over the region.

        The second number is the size of its terms. For every step s > 0 the point p = prox(center -
        s gradient, s) minimises that sum plus ||u - center||^2 / (2 s), and the latter is at most
        R^2 / (2 s) in the region, so the sum at p plus (||p - center||^2 - R^2) / (2 s) is a lower
        bound. It is the minimum if p is on the boundary of the ball, and nearly if s is long and p
        inside. The distance of p grows with s, and its ratio to s falls: hence the search. `size`,
        that of the cut, determines the longest step.
        """
        assert self.penalty is not None
        bounds, radius = [(-math.inf, 0.0)], self.radius
        if not radius > 0:
            value = self.penalty.value(self.center)
            return value, abs(value)
        length = norm(gradient)
        size = max(size, radius * length, SMALLEST / GIVEN_AWAY)
        step = longest = min(radius * (radius / (2 * GIVEN_AWAY * size)), LONGEST_STEP)
        low, high = 0.0, longest
        with np.errstate(over="ignore", invalid="ignore"):
            for _ in range(MOST_STEPS):
                point = self._after_step(gradient, step)
                if point is None:
                    high, away = step, math.inf
                else:
                    away = math.dist(point, self.center)
                    bounds.append(self._lagrangian(gradient, point, away, step))
                    on_boundary = abs(away - radius) <= NEAR_BOUNDARY * radius
                    if on_boundary or (away < radius and step == longest):
                        break
                    if away > radius:
                        high = step * radius / away
                    else:
                        low = step * radius / away if away > 0 else step
                shorter = 0.1 * high if length == 0 else min(0.1 * high, radius / length)
                between = math.sqrt(low) * math.sqrt(high) if low > 0 else shorter
                step = min(between, LONGEST_STEP)
        return max(bounds)

    def _after_step(self, gradient: Vector, step: float) -> Vector | None:
        """Return prox(center - step gradient, step), in the set; None if not finite."""
        assert self.penalty is not None
        try:
            moved = self.penalty.prox(self.center - step * gradient, step)
        except NonFiniteError:
            return None
        return self.feasible_set.project(moved) if math.isfinite(norm(moved)) else None

    def _lagrangian(
        self, gradient: Vector, point: Vector, away: float, step: float
    ) -> tuple[float, float]:
        """Return the bound that a step gives, and the size of its terms."""
        assert self.penalty is not None
        slope = inner(gradient, point - self.center)
        value = self.penalty.value(point)
        slack = (away - self.radius) * (away + self.radius) / (2 * step)
        bound = slope + value + slack
        # The point is a prox of terms that may be much larger than itself.
        size = abs(slope) + abs(value) + abs(slack) + norm(gradient) * (away + self.radius)
        return (bound, size) if math.isfinite(bound) else (-math.inf, 0.0)
