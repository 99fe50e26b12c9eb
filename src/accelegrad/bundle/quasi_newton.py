r"""L-BFGS directions and a line search, for smooth functions.

The metric is L-BFGS's (J. Nocedal, Math. Comp. 35, 1980); the search finds a point that meets the
weak Wolfe conditions, by cubic interpolation. With a set or a penalty the direction leads to the
minimum of a quadratic model over the set (M. Schmidt, E. van den Berg, M. Friedlander, K. Murphy,
AISTATS 2009), found by accelerated projected or proximal steps, which cost no evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.blas import ddot  # @ takes longer to begin
from scipy.linalg.lapack import dtrtrs

from accelegrad.bundle.cut_memory import DEFAULT_BYTES, FEWEST_CUTS
from accelegrad.errors import Vector
from accelegrad.rules.base import Evaluated

#: Pairs that are kept (seven smooth functions, mean calls to 1e-6: 68 with 10 or 15, 64 with 20, 62
#: with 30; each costs two products per step).
MOST_PAIRS = 20
#: A pair counts if the gradient grows along the step by more than this share of both lengths: with
#: less, rounding leads far away along directions that the function does not depend on (fuzz,
#: `--only 640007313`).
LEAST_CURVATURE = 1e-10
#: The required fall, as a share of what the slope at the start promises (Armijo)
FALL = 1e-4
#: The largest remaining slope, as a share of that at the start
STEEP = 0.9
#: A trial is uneven if the cut at the start is further below the value at the trial than the other
#: way round, by more than this share of both together. They agree on a parabola, and of 24 misses
#: on smooth functions none exceeded 0.16 (after the first step); at kinks most do.
UNEVEN = 0.4
#: Most trials of one search: other steps are then more promising.
MOST_TRIALS = 4
#: Limits of the factor that extends a step, and the least distance of a trial from the ends of its
#: interval, as a share: as in other line searches.
PROLONGED, INNER_SHARE = (2.0, 10.0), 0.1
#: With a set or a penalty: most steps towards the model's minimum, and the share of the first
#: movement at which they end; chosen
MOST_STEPS, ACCURATE = 500, 1e-3
#: Steps for the last digits continue while the shortest movement falls to this share within so many
#: steps; chosen.
WORTH, WORTHWHILE_STEPS = 0.5, 30


class Pairs:
    """The last steps and the changes of the gradient over them.

    They are the rows of two matrices; a new pair replaces the oldest. The loops of L-BFGS are then
    two triangular systems in the products of steps and later changes.
    """

    def __init__(self) -> None:
        self.count = 0
        self.added = 0  # of all pairs, whether they are still kept or not
        self._oldest = 0
        self._steps = self._changes = np.empty((0, 0))
        self._products = np.empty((0, 0))  # of step i and change j, oldest first; 0 if j < i

    @property
    def steps(self) -> np.ndarray:
        """The steps, oldest first."""
        return np.roll(self._steps[: self.count], -self._oldest, axis=0)

    @property
    def changes(self) -> np.ndarray:
        """The changes of the gradient, oldest first."""
        return np.roll(self._changes[: self.count], -self._oldest, axis=0)

    def add(self, step: Vector, change: Vector) -> None:
        """Keep a pair, if the gradient grows along the step by more than rounding explains."""
        growth = ddot(step, change)
        least = LEAST_CURVATURE * math.sqrt(ddot(step, step)) * math.sqrt(ddot(change, change))
        if not growth > least > 0.0:
            return
        self.added += 1
        if self.count == 0:
            self._take_memory(step.size)
        if self.count < len(self._steps):
            row, n = self.count, self.count + 1
        else:
            row, n = self._oldest, self.count
            self._oldest = (row + 1) % n
            self._products[:-1, :-1] = self._products[1:, 1:]
            self._products[-1] = 0.0
        self.count = n
        self._steps[row], self._changes[row] = step, change
        self._products[:n, n - 1] = self._in_order(self._steps[:n].dot(change))

    def _take_memory(self, size: int) -> None:
        # As much memory as cuts take, unless only a few fit.
        held = max(FEWEST_CUTS, min(MOST_PAIRS, DEFAULT_BYTES // (16 * size)))
        self._steps, self._changes = np.empty((held, size)), np.empty((held, size))
        self._products = np.zeros((held, held), order="F")

    def _in_order(self, numbers: Vector) -> Vector:
        """Reorder numbers of the rows, oldest pair first."""
        oldest = self._oldest
        return np.concatenate((numbers[oldest:], numbers[:oldest])) if oldest else numbers

    def _in_rows(self, numbers: Vector) -> Vector:
        """Reorder numbers of the pairs, oldest first, into rows."""
        newest = self.count - self._oldest
        return np.concatenate((numbers[newest:], numbers[:newest])) if self._oldest else numbers

    def direction(self, gradient: Vector) -> Vector:
        """Return minus the inverse of the curvature times the gradient."""
        n = self.count
        if n == 0:
            return -gradient
        steps, changes, products = self._steps[:n], self._changes[:n], self._products[:n, :n]
        # The first loop: shares of the changes, from the newest pair to the oldest
        shares, _ = dtrtrs(products, self._in_order(steps.dot(gradient)))
        last = changes[(self._oldest - 1) % n]
        scale = float(products[-1, -1]) / ddot(last, last)
        left: Vector = scale * (self._in_rows(shares).dot(changes) - gradient)
        # The second: shares of the steps, from the oldest pair to the newest
        right = products.diagonal() * shares + self._in_order(changes.dot(left))
        shares, _ = dtrtrs(products, right, trans=1)
        left -= self._in_rows(shares).dot(steps)
        return left

    def _curvature(self) -> tuple[float, float, Vector, Vector]:
        """Return the largest curvature seen, and the parts of L-BFGS's curvature matrix B.

        The compact form of R. Byrd, J. Nocedal, R. Schnabel, Math. Program. 63, 1994: a scale s and
        matrices U and M^-1 U with B = s I - U' M^-1 U.
        """
        steps, changes = self.steps, self.changes
        products = steps @ changes.T
        growth = products.diagonal()
        sizes = np.einsum("ij,ij->i", changes, changes) / growth
        scale = float(sizes[-1])
        lower = np.tril(products, -1)
        middle = np.block([[scale * (steps @ steps.T), lower], [lower.T, -np.diag(growth)]])
        both = np.concatenate((scale * steps, changes))
        return float(sizes.max()), scale, both, np.linalg.solve(middle, both)

    def matrix(self) -> Vector:
        """Return L-BFGS's curvature matrix, d x d."""
        _, scale, both, solved = self._curvature()
        matrix: Vector = scale * np.eye(both.shape[1]) - both.T @ solved
        return 0.5 * (matrix + matrix.T)

    def lowest(
        self, center: Vector, gradient: Vector, feasible: Callable[[Vector, float], Vector]
    ) -> Vector:
        """Return about the minimiser of the quadratic model over a set, or with a penalty.

        `feasible` is the projection or the proximal map. Accelerated steps with restarts (B.
        O'Donoghue, E. Candes, Found. Comput. Math. 15, 2015); the model is quadratic, so that each
        takes one product.
        """
        steep, scale, both, solved = self._curvature()

        def product(direction: Vector) -> Vector:
            found: Vector = scale * direction - (both @ direction) @ solved
            return found

        offset = bent = ahead = bent_ahead = np.zeros_like(center)  # with their products
        momentum, enough = 1.0, 0.0
        for _ in range(MOST_STEPS):
            target = center + ahead - (gradient + bent_ahead) / steep
            following = feasible(target, 1.0 / steep) - center
            bent_following = product(following)
            move = following - ahead
            square, growth = ddot(move, move), ddot(move, bent_following - bent_ahead)
            if steep * steep * square <= enough:
                offset = following
                break
            if growth > (1.0 + 1e-9) * steep * square:  # the model is more curved than any pair
                steep = 1.5 * growth / square
                continue
            enough = enough or (ACCURATE * steep) ** 2 * square
            change, bent_change = following - offset, bent_following - bent
            offset, bent = following, bent_following
            if ddot(move, change) < 0.0:
                momentum, ahead, bent_ahead = 1.0, offset, bent
                continue
            after = (1.0 + math.sqrt(1.0 + 4.0 * momentum * momentum)) / 2.0
            share, momentum = (momentum - 1.0) / after, after
            ahead, bent_ahead = offset + share * change, bent + share * bent_change
        return center + offset

    def state(self) -> dict[str, Any]:
        """Return all that a checkpoint has to keep, bit for bit."""
        n = self.count
        return {
            "steps": self._steps[:n].copy(),
            "changes": self._changes[:n].copy(),
            "products": self._products[:n, :n].copy(),
            "oldest": self._oldest,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint."""
        n = self.count = len(state["steps"])
        self._oldest = int(state["oldest"])
        if n > 0:
            self._take_memory(state["steps"].shape[1])
        self._steps[:n], self._changes[:n] = state["steps"], state["changes"]
        self._products[:n, :n] = state["products"]


class End(NamedTuple):
    """A point of a line: how far along, with value and slope there."""

    at: float
    value: float
    slope: float


class LineSearch(NamedTuple):
    """A line search in progress; each trial is an evaluation."""

    direction: Vector | None = None
    trial: float = 0.0
    trials: int = 0
    start: End = End(0.0, 0.0, 0.0)
    low: End = End(0.0, 0.0, 0.0)  # the value has fallen there, and continues to fall
    high: End = End(math.inf, 0.0, 0.0)  # too far
    low_gradient: Vector | None = None  # at the low end, once that is not the start
    #: with a set or a penalty: what the penalty rises by over the direction, at whose end the set
    #: may end; None without
    rise: float | None = None

    @classmethod
    def along(
        cls,
        direction: Vector,
        value: float,
        slope: float,
        trial: float,
        rise: float | None = None,
    ) -> LineSearch:
        """Return a new search."""
        start = End(0.0, value, slope)
        return cls(direction, trial, 0, start, start, rise=rise)

    def fell(self, end: End) -> bool:
        """Return whether the value is low enough there.

        Where rounding hides differences of values, slopes decide (W. W. Hager, H. Zhang, SIAM J.
        Optim. 16, 2005): on a parabola the condition on the slope is the same.
        """
        start = self.start
        if end.value <= start.value + FALL * end.at * start.slope:
            return True
        return end.value <= start.value and end.slope <= (2.0 * FALL - 1.0) * start.slope

    def is_over(self, end: End) -> bool:
        """Return whether a point is good enough to end the search."""
        return self.fell(end) and (self.rise is not None or end.slope >= STEEP * self.start.slope)

    def is_uneven(self, end: End) -> bool:
        """Return whether the slope changed soon after the start rather than gradually."""
        start = self.start
        ahead = end.value - (start.value + end.at * start.slope)
        back = start.value - (end.value - end.at * end.slope)
        return ahead - back > UNEVEN * (ahead + back)

    def after(self, end: End, gradient: Vector) -> LineSearch:
        """Return the search with its next trial, after one that was not good enough."""
        if not self.fell(end):
            following = self._replace(high=end)
        else:
            following = self._replace(low=end, low_gradient=gradient)
            if self.high.at == math.inf:
                shortest, longest = (factor * end.at for factor in PROLONGED)
                flatter = end.slope - self.low.slope
                onward = (end.at - self.low.at) * -end.slope / flatter if flatter > 0 else math.inf
                trial = min(max(end.at + onward, shortest), longest)
                return following._replace(trial=trial, trials=self.trials + 1)
        trial = _lowest_of_cubic(following.low, following.high)
        return following._replace(trial=trial, trials=self.trials + 1)


def _lowest_of_cubic(low: End, high: End) -> float:
    """Return where the cubic through both ends is lowest, not too near to either."""
    width = high.at - low.at
    middle = 3.0 * (low.value - high.value) / width + low.slope + high.slope
    root = math.sqrt(max(middle * middle - low.slope * high.slope, 0.0))
    divisor = high.slope - low.slope + 2.0 * root
    share = (high.slope + root - middle) / divisor if divisor != 0.0 else 0.5
    trial = high.at - width * share
    if not math.isfinite(trial):
        return low.at + 0.5 * width
    return min(max(trial, low.at + INNER_SHARE * width), high.at - INNER_SHARE * width)


class LastDigits(NamedTuple):
    """A sequence of quasi-Newton steps that do not look at values, or the pause before the next.

    A proof by cuts of a smooth function with a set or a penalty needs the last digits of the
    gradient, when values no longer show any progress. On functions with kinks such steps gain
    nothing, and are given up.
    """

    point: Vector | None = None  # None: no sequence in progress
    gradient: Vector | None = None
    shortest: float = math.inf  # shortest movement so far
    worth: float = math.inf  # the movement that continues the sequence
    left: int = WORTHWHILE_STEPS  # steps left to reach it
    pause: int = 0  # turns to wait
    next_pause: int = WORTHWHILE_STEPS  # doubled each time

    def after(self, at: Evaluated) -> LastDigits:
        """Return the sequence after a step, or the pause if it does not pay."""
        moved = at.point - self.point
        movement = math.sqrt(float(moved @ moved))
        if movement == 0.0:
            return self.given_up()
        shortest, left, worth = min(self.shortest, movement), self.left - 1, self.worth
        if shortest <= worth:
            worth, left = WORTH * shortest, WORTHWHILE_STEPS
        elif left == 0:
            return self.given_up()
        return LastDigits(at.point, at.gradient, shortest, worth, left, next_pause=self.next_pause)

    def given_up(self) -> LastDigits:
        """Return the pause before another sequence."""
        return LastDigits(pause=self.next_pause, next_pause=2 * self.next_pause)
