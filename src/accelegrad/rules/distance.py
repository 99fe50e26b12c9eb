"""Rules without a diameter: a radius that starts small and grows with the evidence.

Too small a start costs steps; too large a start ruins a noisy run. If values can be compared, a
probe finds a good one in a few calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import nnls

from accelegrad.errors import NonFiniteError
from accelegrad.rules.arrays import Array, inner, leaves
from accelegrad.rules.base import Evaluated, Oracle, Rule, State, Step, check_radius

# Chosen, not measured, unless a line says otherwise.
#: The radius to start with when nothing is known, relative to 1 + ||x0|| (as in the DoG papers)
SMALLEST_SHARE = 1e-6
#: The probe finds the distance up to this factor (measured: 4 costs a fifth more calls). What is
#: found on a sample of rows is divided by it: an overestimate ruins a noisy run.
PROBE_FACTOR = 10.0
#: A relative fall of value or slope below this is rounding error, as is a slope whose square
#: is a smaller share of the largest one's.
RESOLUTION = 1e-12
#: A trial counts as a fall only if it gains this share of the earlier gain (a sample of rows that
#: fits well says nothing about greater distances), or at a kink this share of the slope's
#: prediction (measured: with less the search stops at slopes that end soon).
LEAST_GAIN = 0.1
#: Calls of one search (enough to follow a linear function to 1e34 times the size of x0), and
#: subgradients tried at a kink (60 pieces meeting in 40 dimensions took 46).
MOST_PROBES, MOST_SUBGRADIENTS = 40, 100
MOST_PAIRS = 8  # pairs of samples to draw while two of them disagree about the downhill direction


def norm(x: Array) -> Any:
    """Return ||x||."""
    return inner(x, x) ** 0.5


def distance(a: Array, b: Array) -> Any:
    """Return ||a - b||."""
    return norm(a - b)


def smallest_radius(x0: Array) -> Any:
    """Return 1e-6 (1 + ||x0||), the initial radius when nothing is known."""
    return SMALLEST_SHARE * (1 + norm(x0))


class Probe:
    """A search on a path downhill from x0 for the distance at which the value stops falling.

    The first trial is tiny. Its slope and that at the start give the minimum of a parabola, which
    is tried next. The search then goes on by factors of ten while the value falls noticeably, and
    afterwards bisects the logarithm of the interval: once a convex function rises, it keeps rising.
    `direction` points uphill and has length one; `path` maps a distance to a point.
    """

    def __init__(
        self, start: Evaluated, direction: Array, oracle: Oracle, path: Callable[[float], Array]
    ) -> None:
        self.start, self.direction = start, direction
        self.oracle, self.path = oracle, path
        self.falls_to = 0.0  # the greatest distance at which the value still fell
        self.rises_at = math.inf  # the smallest distance at which it did not
        self.least = start.value
        self.calls = 0

    def radius(self, reach: float) -> float:
        """Return the distance of the lowest point found, or zero; the first trial is at `reach`."""
        x0, slope = self.start.point, float(inner(self.start.gradient, self.direction))
        if not slope > 0:  # not downhill for this function
            return 0.0
        rounding = RESOLUTION * (abs(self.start.value) / slope + float(norm(x0)))
        ahead = self._try(reach)
        while self.falls_to == 0:
            if not reach > rounding or self.calls >= MOST_PROBES:
                return 0.0
            reach /= PROBE_FACTOR**3
            ahead = self._try(reach)
        lowest = slope * reach / (slope - ahead) if ahead < slope else 0.0
        reach = min(max(lowest, PROBE_FACTOR * reach), reach / RESOLUTION)
        if self.rises_at < math.inf:
            reach = min(reach, math.sqrt(self.falls_to * self.rises_at))
        while self.calls < MOST_PROBES:
            ahead = self._try(reach)
            if self.rises_at <= 1.001 * PROBE_FACTOR * self.falls_to:  # up to rounding
                break
            if self.rises_at < math.inf:
                reach = math.sqrt(self.falls_to * self.rises_at)
            elif ahead > 0:
                reach = PROBE_FACTOR * self.falls_to
            else:
                break  # the path's lowest point lies between the last two trials
        return float(distance(self.path(self.falls_to), x0))

    def _try(self, reach: float) -> float:
        """Return the uphill slope at a distance if the value fell by enough to matter, else NaN."""
        self.calls += 1
        try:
            trial = self.oracle(self.path(reach))
            if trial.value < self.least - LEAST_GAIN * (self.start.value - self.least):
                slope = float(inner(trial.gradient, self.direction))
                self.falls_to, self.least = reach, trial.value
                return slope
        except NonFiniteError:  # outside the domain, or overflow: counts as a rise
            pass
        self.rises_at = reach
        return math.nan


def shortest_combination(vectors: list[Array], longest: float) -> Array:
    """Return the shortest convex combination of vectors with norms up to `longest`.

    Its weights are proportional to the solution of a nonnegative least-squares problem: the vectors
    as columns, a row of ones below them, the last unit vector as the target.
    """
    columns = [np.concatenate([np.ravel(leaf) for leaf in leaves(v)]) / longest for v in vectors]
    matrix = np.vstack((np.column_stack(columns), np.ones(len(vectors))))
    weights, _ = nnls(matrix, np.append(np.zeros(len(matrix) - 1), 1.0))
    return sum(w * v for w, v in zip((weights / weights.sum()).tolist(), vectors, strict=True))


@dataclass(frozen=True, eq=False)
class Probing(Rule):
    """Mixin, before the rule's base class: a probe before the first step, where `probe` is true."""

    initial_radius: Any = None
    probe: bool | None = None

    def __post_init__(self) -> None:
        check_radius("initial_radius", self.initial_radius)

    def first_radius(self, x0: Array) -> Any:
        """Return the radius of the initial state."""
        given = self.initial_radius
        return self.capped(smallest_radius(x0) if given is None else given)

    def capped(self, radius: Any) -> Any:
        """Return the radius, limited to the largest that the rule allows."""
        return radius

    def step(self, state: State, oracle: Oracle) -> Step:
        """Do one step; the first after a probe for the radius."""
        return super().step(*self.prepared(state, oracle))  # type: ignore[safe-super]

    def prepared(self, state: State, oracle: Oracle) -> tuple[State, Oracle]:
        """Return the state with a probed radius, and an oracle that knows the answer at x0."""
        if not self.probe or state.iteration != 0 or self.initial_radius is not None:
            return state, oracle
        found, oracle = self.probed(oracle, state.query_point)
        return self.begun(state, found) if found else state, oracle

    def begun(self, state: State, found: float) -> State:
        """Return the first state with what the probe found."""
        return state._replace(radius=self.capped(found))

    def probed(self, oracle: Oracle, x0: Array) -> tuple[float, Oracle]:
        """Return how far the value falls from x0 (or zero), and the oracle to continue with.

        A noisy oracle with `frozen()` gives two independent fixed samples of the function: one for
        the direction, the other for the values, since a small sample falls much too far along its
        own gradient. If they disagree about what is downhill, more pairs are drawn and directions
        averaged.
        """
        freeze = getattr(oracle, "frozen", None)
        if freeze is None:
            known = oracle(x0)

            def remembering(point: Array) -> Evaluated:
                return known if point is known.point else oracle(point)

            return self.fall(known.gradient, known, remembering, exact=True), remembering
        direction = 0 * x0
        for pairs in range(1, MOST_PAIRS + 1):
            guide, judge = freeze()
            direction = direction + (guide(x0).gradient - direction) / pairs
            found = self.fall(direction, judge(x0), judge, exact=False)
            if found > 0:
                return found / PROBE_FACTOR, oracle
        return 0.0, oracle

    def fall(self, uphill: Array, start: Evaluated, oracle: Oracle, *, exact: bool) -> float:
        """Return how far the value falls against `uphill`, or from a kink where it does not."""
        first = smallest_radius(start.point)
        found = self.fall_along(uphill, start, oracle, first)
        if found > first or self.prox is not None or not exact:
            return found
        return max(found, self.fall_from_kink(start, oracle, first))

    def fall_along(self, uphill: Array, start: Evaluated, oracle: Oracle, first: Any) -> float:
        """Return how far the value falls against `uphill`; the first trial is at `first`."""
        length = norm(uphill)
        if not length > 0:
            return 0.0
        direction = uphill / length

        def path(reach: float) -> Array:
            return self.proximal(start.point - reach * direction, reach / length)

        return Probe(start, direction, oracle, path).radius(first)

    def fall_from_kink(self, start: Evaluated, oracle: Oracle, first: Any) -> float:
        """Return how far the value falls from a kink, where a subgradient need not point uphill.

        The shortest combination of all subgradients does. If the value does not fall along that of
        the known ones, the subgradient at a point in that direction is added.
        """
        subgradients, uphill, steepest = [start.gradient], start.gradient, start.squared_norm**0.5
        for _ in range(MOST_SUBGRADIENTS):
            length = float(norm(uphill))
            if not length > RESOLUTION**0.5 * steepest:
                break
            try:
                trial = oracle(self.proximal(start.point - first * (uphill / length)))
                subgradients.append(trial.gradient)
            except NonFiniteError:
                break
            if trial.value < start.value - LEAST_GAIN * float(first) * length:
                return self.fall_along(uphill, start, oracle, first)
            steepest = max(steepest, trial.squared_norm**0.5)
            uphill = shortest_combination(subgradients, steepest)
        return 0.0
