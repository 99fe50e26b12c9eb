"""Newton's method with directions by conjugate gradients, and an exact search along them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from accelegrad.errors import LineSearchError
from accelegrad.rules.base import Array, Evaluated, Oracle, Step, StepRule, inner
from accelegrad.solvers.newton import VALUE_ROUNDING

# Set by trial; `accelegrad bench --everyday --only classes` times the whole method.
#: The share of the gradient that a direction leaves at most; less where the gradient is small.
LEFT = 0.25
#: The share of the curvature that may be left out for each unit of that.
LEFT_OUT = 0.04
#: The share of a gradient that is small enough that a direction aims at.
AIM = 0.3
#: Where values differ by rounding alone, a step has to leave less than this share of the gradient.
SMALLER = 0.5
#: Products with the second derivatives for a direction, at most.
MOST_PRODUCTS = 250
#: After a step shorter than SHORT there are FEWER times fewer of them, though not below the fewest;
#: after one longer than LONG up to MORE times as many.
SHORT, LONG, FEWER, MORE, FEWEST_PRODUCTS = 0.25, 0.5, 3, 3, 8
#: A slope along a direction is flat enough at this share of the first one; it is searched for this
#: often, and a trial is at most so many times as far as the one before.
FLAT, TRIALS, FARTHER = 0.1, 30, 10.0


class Quadratic(Protocol):
    """The second derivatives at a point, or about those, as what they do to a direction.

    Directions and gradients are in the order in which products are fastest.
    """

    def arranged(self, vector: Array) -> Array:
        """Return a new array with a vector's entries in that order."""

    def vector(self, arranged: Array) -> Array:
        """Return the vector with these entries."""

    def product(self, direction: Array) -> Array:
        """Return the second derivatives times a direction, a new array."""

    def precondition(self, gradient: Array) -> Array:
        """Return an approximation of their inverse times a gradient, a new array."""

    def residual(self, gradient: Array) -> float:
        """Return the size of a gradient as it counts for the gap."""


class Line(Protocol):
    """The function along a direction."""

    def derivatives(self, t: float) -> tuple[float, float]:
        """Return the first and the second derivative at a distance, in lengths of the direction."""


class Curved(Protocol):
    """What the rule has to know of the function besides values and gradients."""

    def quadratic(self, point: Array, left_out: float) -> Quadratic:
        """Return the second derivatives at a point but for a share of them that may be left out."""

    def along(self, point: Array, direction: Array) -> Line:
        """Return the function along a direction from a point."""

    def residual(self, point: Array, gradient: Array) -> float:
        """Return the size of a gradient at a point as it counts for the gap."""


class TruncatedNewtonState(NamedTuple):
    """The last point, and the size of the first gradient."""

    iteration: int
    point: Array
    value: float
    gradient: Array
    first_residual: float
    step_size: float
    most_products: int  # for the next direction


def nothing_is_enough(value: float) -> float:  # noqa: ARG001
    """Return 0: no gradient is small enough."""
    return 0.0


@dataclass(frozen=True)
class TruncatedNewton(StepRule):
    r"""Newton's method with conjugate gradients, preconditioned, and an exact line search.

    A direction d is the result of conjugate gradients for :math:`H d = -g`. These end when the
    preconditioned residual is at most the share :math:`\min(1/4, \sqrt{\|g\| / \|g_0\|})` of the
    first one, or when the residual is 0.3 of the gradient that would do. The step's length is where
    the slope along d is a tenth of the first one.

    `output` and `last` are the last point.

    Parameters
    ----------
    curved : Curved
        The second derivatives, and the function along lines.
    enough : callable, optional
        From a value to the residual that is small enough there; 0 if none is.

    References
    ----------
    R. S. Dembo, S. C. Eisenstat, T. Steihaug: Inexact Newton methods. SIAM Journal on Numerical
    Analysis 19, 1982. C.-J. Lin, R. C. Weng, S. S. Keerthi: Trust region Newton method for
    large-scale logistic regression. Journal of Machine Learning Research 9, 2008.
    """

    title = "Newton"

    curved: Curved
    enough: Callable[[float], float] = nothing_is_enough

    def init(self, x0: Array) -> TruncatedNewtonState:
        """Return the state before the first evaluation."""
        return TruncatedNewtonState(0, x0, math.inf, 0 * x0, 0.0, 0.0, MOST_PRODUCTS)

    def step(self, state: TruncatedNewtonState, oracle: Oracle) -> Step:
        """Evaluate the start, or go to the lowest point along the next direction."""
        if state.iteration == 0:
            found = oracle(state.point)
            residual = self.curved.residual(found.point, found.gradient)
            return Step(self._at(state, found)._replace(first_residual=residual), found, 0.0)
        direction, products = self._direction(state)
        slope = -inner(state.gradient, direction)
        if not slope > 0.0:
            raise LineSearchError("there is no direction of descent: rounding has the last word.")
        t, trial = self._lowest(state, direction, slope, oracle)
        most = _most_products(state.most_products, products, t)
        following = self._at(state, trial)._replace(step_size=t, most_products=most)
        return Step(following, trial, 0.0)

    def _lowest(
        self, state: TruncatedNewtonState, direction: Array, slope: float, oracle: Oracle
    ) -> tuple[float, Evaluated]:
        """Return a length of the step that is about the best, and what is known there.

        Just beyond the lowest point of a line the value may be higher than at its start, where the
        function bends more and more, but never before it.
        """
        line = self.curved.along(state.point, direction)
        for highest in (FLAT, 0.0):
            t = _flat(line, slope, highest)
            trial = oracle(state.point + t * direction)
            if _acceptable(state, trial):
                return t, trial
        raise LineSearchError(
            "the value falls no further along the direction of descent: rounding has the last "
            "word, or the gradient is wrong."
        )

    def _at(self, state: TruncatedNewtonState, found: Evaluated) -> TruncatedNewtonState:
        return state._replace(
            iteration=state.iteration + 1,
            point=found.point,
            value=found.value,
            gradient=found.gradient,
        )

    def _direction(self, state: TruncatedNewtonState) -> tuple[Array, int]:
        """Return Newton's direction, as near to it as pays, and the products that it took."""
        size = self.curved.residual(state.point, state.gradient)
        left = min(LEFT, math.sqrt(size / state.first_residual)) if size > 0.0 else LEFT
        enough = self.enough(state.value)
        # Where a gradient that small was not enough, the direction is to gain more.
        small = AIM * enough if size > enough else 0.0
        quadratic = self.curved.quadratic(state.point, LEFT_OUT * left)
        residual = -quadratic.arranged(state.gradient)
        conjugate = quadratic.precondition(residual)
        square = first = inner(residual, conjugate)
        direction = 0.0 * residual
        products = 0
        while products < state.most_products:
            products += 1
            product = quadratic.product(conjugate)
            bend = inner(conjugate, product)
            if not 0.0 < bend < math.inf:
                break
            direction += square / bend * conjugate
            product *= square / bend
            residual -= product
            solved = quadratic.precondition(residual)
            before, square = square, inner(residual, solved)
            if not square > left * left * first:
                break
            if small > 0.0 and quadratic.residual(residual) <= small:
                break
            conjugate *= square / before
            conjugate += solved
        return quadratic.vector(direction), products

    def output(self, state: TruncatedNewtonState) -> Array:
        """Return the last point."""
        return state.point


def _most_products(most: int, done: int, t: float) -> int:
    """Return how many products the next direction may take, after this many and a step of length t.

    Directions get longer with each product. If only a small part of one could be gone, the second
    derivatives say little at its end, and a shorter one does as well.
    """
    if t < SHORT:
        return max(FEWEST_PRODUCTS, done // FEWER)
    return min(MOST_PRODUCTS, max(most, MORE * done)) if t > LONG else most


def _acceptable(state: TruncatedNewtonState, trial: Evaluated) -> bool:
    if trial.value < state.value:
        return True
    # Where values differ by rounding alone, a smaller gradient shows that the trial is better.
    near = trial.value <= state.value + VALUE_ROUNDING * abs(state.value)
    return near and trial.squared_norm <= SMALLER**2 * inner(state.gradient, state.gradient)


def _flat(line: Line, slope: float, highest: float) -> float:
    """Return where the slope along a line, -`slope` at 0, is flat enough, by Newton's method.

    That is where it is at most the share `FLAT` of the first one, and `highest` if it is positive.
    """
    low, high, t = 0.0, math.inf, 1.0
    for _ in range(TRIALS):
        first, second = line.derivatives(t)
        if -FLAT * slope <= first <= highest * slope:
            return t
        low, high = (t, high) if first < 0.0 else (low, t)
        following = min(t - first / second, FARTHER * t) if second > 0.0 else math.nan
        if not low < following < high:
            following = 2.0 * t if math.isinf(high) else 0.5 * (low + high)
        t = following
    return low if low > 0.0 else t
