r"""Check from values at some points that a (sub)gradient is right and the function convex.

Every subgradient g of a convex function at x satisfies, for every y,

.. math:: f(y) \ge f(x) + \langle g, y - x \rangle,

at kinks too. With y on both sides of x this brackets <g, v> by the two directional differences, and
where the function is smooth both tend to it: a gradient wrong by a factor of 1.01 violates one of
them. A function whose value at x is above the mean of those on both sides is not convex, whatever
the gradient. Rounding error is measured by changing the last digits of x.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from accelegrad.errors import Vector, finite_vector, real_array, real_number, shown, whole_number
from accelegrad.geometry.sets import as_feasible_set
from accelegrad.linalg import SMALLEST, UNIT, growth, norm
from accelegrad.run.oracle import FunctionOracle

#: Distances at which differences are taken, in radii.
DISTANCES = tuple(10.0**-power for power in range(8))
#: Per point: random directions, steepest and random single coordinates, and repeated evaluations,
#: unchanged and with other last digits. Chosen.
DRAWS = 3
#: The change of the last digits in units of rounding (sums of many terms lose that much too), and
#: the allowance relative to the measured rounding error, which is a sample. Chosen.
SHAKEN, ALLOWED = 8.0, 32.0
#: A gradient that changes by more than this share with the last digits of x is at a kink. Chosen.
KINK = 1e-6
#: Relative difference of calls at the same point: threads may add in any order.
REPEATABLE = 1e-12
#: Required accuracy of a slope by differences, and allowed difference of ratios of slopes. Chosen.
EXACT, SAME_RATIO = 0.05, 1e-4


class Violation(NamedTuple):
    """A pair of points at which f(y) >= f(x) + <g(x), y - x> does not hold."""

    x: Any
    y: Any
    amount: float
    allowed: float


@dataclass(frozen=True)
class GradientCheck:
    """The result of `check_gradient`: it prints as text, and is true if nothing is wrong.

    Attributes
    ----------
    ok : bool
        Whether no error was found.
    cause : str
        "" or the likely cause: "noisy", "sign", "scaled", "gradient", "not convex" or "not finite".
    message : str
        What was found, in words.
    noise : float
        By how much values differ between calls at the same point.
    ratio : float
        True slopes divided by those of the gradient if the ratio is the same everywhere, else NaN.
    violations : list of Violation
        Points x and y at which the inequality of convexity does not hold, the worst first.
    n_points, n_calls, n_left_out : int
        Points checked, calls of the function, and points without a finite value.
    """

    ok: bool
    cause: str
    message: str
    noise: float
    ratio: float
    violations: list[Violation]
    n_points: int
    n_calls: int
    n_left_out: int

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        lines = [self.message]
        lines += [
            f"  f(y) is lower than f(x) + <g(x), y - x> by {one.amount:.3g}, where rounding "
            f"explains {one.allowed:.1g}: x = {shown(one.x, 4)}, y = {shown(one.y, 4)}"
            for one in self.violations[:3]
        ]
        left_out = f", {self.n_left_out} without a finite value left out" * bool(self.n_left_out)
        lines.append(f"  ({self.n_points} points{left_out}, {self.n_calls} calls)")
        return "\n".join(lines)


def check_gradient(
    fun: Callable[..., Any],
    x0: Any,
    *,
    args: tuple[Any, ...] = (),
    jac: bool | str | Callable[..., Any] = True,
    radius: float | None = None,
    feasible_set: Any = None,
    points: int = 10,
    rng: Any = 0,
) -> GradientCheck:
    """Check whether a (sub)gradient is right, the function convex and its values free of noise.

    The check uses values and gradients at some points. A reported error is real, up to rounding;
    but an error in one of many coordinates, or far away, may be missed.

    Parameters
    ----------
    fun, x0, args, jac
        As for `minimize`.
    radius : float, optional
        The largest distance from x0; by default 1 + ||x0||.
    feasible_set : set, optional
        Only points of this set are checked.
    points : int
        The number of points, including x0.
    rng : Generator or int
        Source of the random points.

    Examples
    --------
    >>> import numpy as np
    >>> print(check_gradient(lambda x: (x @ x, 2 * x), np.ones(3)))  # doctest: +ELLIPSIS
    The gradient is right, and the function convex, as far as was looked.
      (10 points, ... calls)
    >>> check_gradient(lambda x: (x @ x, x), np.ones(3)).cause
    'scaled'
    """
    start = finite_vector("x0", np.ravel(real_array("x0", x0)))
    if not callable(fun):
        raise TypeError(f"fun must be a function, not {fun!r}.")
    far = 1.0 + norm(start) if radius is None else real_number("radius", radius, above=0.0)
    count = whole_number("points", points, least=1)
    chosen = None if feasible_set is None else as_feasible_set(feasible_set)
    project = (lambda x: x) if chosen is None else chosen.project
    with np.errstate(all="ignore"):  # points may be outside the function's domain
        function = FunctionOracle(fun, jac, args, shape=np.shape(x0))
        return _Check(function, far, project, np.random.default_rng(rng)).report(start, count)


class _Point(NamedTuple):
    """A point, what is known there, and its rounding errors."""

    x: Vector
    value: float
    gradient: Vector
    value_error: float
    gradient_error: float


class _Check:
    """One check: points, differences around each, and the inequality between all pairs."""

    def __init__(
        self, function: FunctionOracle, radius: float, project: Any, rng: np.random.Generator
    ) -> None:
        self.function, self.radius, self.project, self.rng = function, radius, project, rng
        self.noise = 0.0
        self.left_out = 0
        self.violations: list[Violation] = []
        self.bent_down = False  # a value is above the mean of those on both sides
        self.slopes: list[tuple[float, float, float]] = []  # by differences, its error, given

    def report(self, start: Vector, count: int) -> GradientCheck:
        """Check the points and return the result."""
        places = [start, *(self._near(start) for _ in range(count - 1))]
        points = [point for place in places if (point := self._known(place)) is not None]
        if points and points[0].x is start:
            for point in points:
                self._differences(point)
            for x in points:
                for y in points:
                    if x is not y:
                        self._compare(x, y.x, y.value, y.value_error)
            cause, message = self._judgement(points)
        else:
            points = []
            cause, message = "not finite", "The value or the gradient at x0 is not finite."
        return GradientCheck(
            ok=not cause,
            cause=cause,
            message=message,
            noise=self.noise,
            ratio=self._ratio(),
            violations=sorted(self.violations, key=lambda one: -one.amount / one.allowed),
            n_points=len(points),
            n_calls=self.function.nfev,
            n_left_out=self.left_out,
        )

    def _near(self, start: Vector) -> Vector:
        """Return a random point, at least a tenth of the radius away."""
        away = self.rng.standard_normal(start.size)
        distance = self.radius * 10.0 ** self.rng.uniform(-1, 0)
        return np.array(self.project(start + distance / norm(away) * away))

    def _known(self, x: Vector) -> _Point | None:
        """Evaluate a point repeatedly and with other last digits; None if it is not finite."""
        value, gradient = self._at(x)
        if not (math.isfinite(value) and np.isfinite(gradient).all()):
            self.left_out += 1
            return None
        for _ in range(DRAWS):
            again, other = self._at(x)
            change = norm(other - gradient) * self.radius
            self.noise = max(self.noise, abs(again - value), change)
        digits = SHAKEN * UNIT * (np.abs(x) + self.radius / math.sqrt(x.size))
        shaken = [self._at(x + s * digits) for s in self.rng.choice([-1, 1], (DRAWS, x.size))]
        values = [abs(other - value) for other, _ in shaken if math.isfinite(other)]
        moved = min((norm(g - gradient) for _, g in shaken if np.isfinite(g).all()), default=0.0)
        length = norm(gradient)
        kink = moved > KINK * length
        value_error = ALLOWED * (max(values, default=0.0) + UNIT * abs(value) + SMALLEST)
        error = growth(x.size) * length + (0.0 if kink else ALLOWED * moved) + SMALLEST
        return _Point(x, value, gradient, value_error, error)

    def _at(self, x: Vector) -> tuple[float, Vector]:
        value, gradient = self.function.pair_at(x)
        return value, self.function.gradient_at(x) if gradient is None else gradient

    def _differences(self, point: _Point) -> None:
        for way in self._directions(point.gradient):
            last = math.nan
            for distance in DISTANCES:
                step = distance * self.radius * way
                ends = [np.asarray(self.project(point.x + side * step)) for side in (1.0, -1.0)]
                last = self._slope(point, ends, last)

    def _directions(self, gradient: Vector) -> list[Vector]:
        size = gradient.size
        ways = [gradient, *self.rng.standard_normal((DRAWS, size))]
        ways = [way / norm(way) for way in ways if norm(way) > 0.0]
        largest = np.argsort(-np.abs(gradient))[:DRAWS]
        others = self.rng.permutation(size)[:DRAWS]
        for j in range(size) if size <= 2 * DRAWS else sorted({*largest, *others}):
            unit = np.zeros(size)
            unit[j] = 1.0
            ways.append(unit)
        return ways

    def _slope(self, point: _Point, ends: list[Vector], last: float) -> float:
        """Return the slope by differences between two points around another, NaN if unknown.

        It is stored if it is accurate. `last` is the slope at ten times the distance, which differs
        where the function is curved.
        """
        values, allowed = [], 0.0
        for y in ends:
            value, _ = self.function.pair_at(y)
            if math.isfinite(value) and norm(y - point.x) > 0.0:
                allowed += self._compare(point, y, value, point.value_error)
                values.append(value)
        way = ends[0] - ends[1]
        length = norm(way)
        off_centre = norm(ends[0] + ends[1] - 2.0 * point.x)
        # The set's projection may have moved one of them.
        if len(values) < 2 or off_centre > REPEATABLE * length + 4.0 * UNIT * norm(point.x):
            return math.nan
        bend = sum(values) - 2.0 * point.value
        self.bent_down |= bend < -allowed
        slope = (values[0] - values[1]) / length
        error = abs(slope - last) + (abs(bend) + allowed) / length
        if error <= EXACT * abs(slope):
            self.slopes.append((slope, error, float(point.gradient @ way) / length))
        return slope

    def _compare(self, x: _Point, y: Vector, value: float, error: float) -> float:
        """Store the pair if f(y) is too low; return what rounding can explain."""
        way = y - x.x
        sizes = float(np.abs(x.gradient) @ np.abs(way))
        allowed = x.value_error + max(error, x.value_error) + ALLOWED * UNIT * abs(value)
        allowed += x.gradient_error * norm(way) + growth(way.size) * sizes
        short = x.value + float(x.gradient @ way) - value
        if short > allowed:
            shaped = self.function.shaped
            self.violations.append(Violation(shaped(x.x), shaped(y), short, allowed))
        return allowed

    def _judgement(self, points: list[_Point]) -> tuple[str, str]:
        values = [point.value for point in points]
        reach = max(values) - min(values) + max(norm(p.gradient) for p in points) * self.radius
        size = max(abs(value) for value in values)
        if self.noise > REPEATABLE * (size + reach):
            return "noisy", (
                f"Calls at the same point differ by up to {self.noise:.2g}: values or gradients "
                "are noisy. For noisy gradients give exact=False."
            )
        if not self.violations:
            return "", "The gradient is right, and the function convex, as far as was looked."
        agree = [abs(slope - given) <= error for slope, error, given in self.slopes]
        if self.bent_down or (agree and all(agree)):
            return "not convex", "The function is not convex: it falls below its tangents."
        ratio = self._ratio()
        if math.isnan(ratio):
            return "gradient", (
                "The gradient is wrong: differences of values do not agree with it, and not by one "
                "factor."
            )
        if abs(ratio + 1.0) <= EXACT * 0.1:
            return "sign", "The gradient has the wrong sign: it is the negative of the true one."
        return "scaled", (
            f"The gradient is wrong by a factor: it should be {ratio:.6g} times what it is."
        )

    def _ratio(self) -> float:
        """Return true slopes divided by given ones, NaN unless all ratios agree."""
        usable = [(slope, error, given) for slope, error, given in self.slopes if given != 0.0]
        if not usable or len(usable) < len(self.slopes):
            return math.nan
        slope, _, given = min(usable, key=lambda one: one[1] / abs(one[0]))
        ratio = slope / given
        same = all(
            abs(slope - ratio * given) <= 2.0 * error + SAME_RATIO * abs(slope)
            for slope, error, given in usable
        )
        return ratio if same else math.nan
