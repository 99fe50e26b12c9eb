"""Rules without a diameter: a radius that starts small and grows with the evidence.

Too small a start costs steps; too large a start ruins a noisy run. If values can be compared, a
probe finds a good one in a few calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from scipy.optimize import nnls

from accelegrad.errors import NonFiniteError, is_traced, real_number
from accelegrad.rules.arrays import Array, inner, leaves
from accelegrad.rules.base import Evaluated, Oracle, Projection, Prox, Rule, State, Step

Search: TypeAlias = Callable[[Array, Evaluated, Oracle], float]

# Chosen, not measured, unless a line says otherwise.
#: Distances that a user may give: their squares, times weights, neither vanish nor overflow.
SHORTEST, LONGEST = 1e-100, 1e100
#: The radius to start with when nothing is known, relative to 1 + ||x0|| (as in the DoG papers)
SMALLEST_SHARE = 1e-6
#: The probe finds the distance up to this factor (measured: 4 costs a fifth more calls). What is
#: found on a sample of rows is divided by it: an overestimate ruins a noisy run.
PROBE_FACTOR = 10.0
#: Factor of the trial's distance while the value does not fall there.
BACKTRACK = 1e-3
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


def smallest_radius(x0: Array) -> Any:
    """Return 1e-6 (1 + ||x0||), the initial radius when nothing is known."""
    return SMALLEST_SHARE * (1 + inner(x0, x0) ** 0.5)


def distance(a: Array, b: Array) -> Any:
    """Return ||a - b||."""
    difference = a - b
    return inner(difference, difference) ** 0.5


def check_distance(name: str, given: Any) -> float:
    """Return a positive number whose square, times weights, stays in the range of floats."""
    number = real_number(name, given, above=0)
    if not is_traced(number) and not SHORTEST <= number <= LONGEST:
        raise ValueError(
            f"{name} must be between {SHORTEST:g} and {LONGEST:g}, but it is {given!r}; scale the "
            "problem."
        )
    return number


def check_radius(name: str, radius: Any) -> None:
    """Refuse an initial radius that is neither None nor a positive number of usable size."""
    if radius is not None:
        check_distance(name, radius)


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

    def radius(self, first: float) -> float:
        """Return the distance of the lowest point found, or zero; the first trial is at `first`."""
        slope = float(inner(self.start.gradient, self.direction))
        trial = self._first_fall(first, slope)
        if trial is None:
            return 0.0
        reach = self._parabola(slope, trial, self.falls_to)
        if self.rises_at < math.inf:
            reach = min(reach, math.sqrt(self.falls_to * self.rises_at))
        while self.calls < MOST_PROBES:
            trial = self._try(reach)
            if self.rises_at <= 1.001 * PROBE_FACTOR * self.falls_to:  # up to rounding
                break
            if self.rises_at < math.inf:
                reach = math.sqrt(self.falls_to * self.rises_at)
            elif trial is None or inner(trial.gradient, self.direction) <= 0:
                break  # the path's lowest point lies between the last two trials
            else:
                reach = PROBE_FACTOR * self.falls_to
        return float(distance(self.path(self.falls_to), self.start.point))

    def _first_fall(self, reach: float, slope: float) -> Evaluated | None:
        """Return the first trial at which the value falls, or None."""
        if not slope > 0:  # not downhill for this function
            return None
        x0 = self.start.point
        rounding = RESOLUTION * (abs(self.start.value) / slope + float(inner(x0, x0)) ** 0.5)
        trial = self._try(reach)
        while self.falls_to == 0 and reach > rounding and self.calls < MOST_PROBES:
            reach *= BACKTRACK
            trial = self._try(reach)
        return trial if self.falls_to > 0 else None

    def _try(self, reach: float) -> Evaluated | None:
        """Evaluate at a distance and record whether the value fell by enough to matter."""
        self.calls += 1
        try:
            trial = self.oracle(self.path(reach))
            falls = trial.value < self.least - LEAST_GAIN * (self.start.value - self.least)
            _ = trial.gradient if falls else None  # computed late; it may not be finite
        except NonFiniteError:  # outside the domain, or overflow: counts as a rise
            self.rises_at = reach
            return None
        if falls:
            self.falls_to, self.least = reach, trial.value
        else:
            self.rises_at = reach
        return trial

    def _parabola(self, slope: float, trial: Evaluated, reach: float) -> float:
        fall = slope - float(inner(trial.gradient, self.direction))
        guess = slope * reach / fall if fall > 0 else 0.0
        return min(max(guess, PROBE_FACTOR * reach), reach / RESOLUTION)


def shortest_combination(vectors: list[Array], longest: float) -> Array:
    """Return the shortest convex combination of vectors with norms up to `longest`.

    Its weights are proportional to the solution of a nonnegative least-squares problem: the vectors
    as columns, a row of ones below them, the last unit vector as the target.
    """
    columns = [np.concatenate([np.ravel(leaf) for leaf in leaves(v)]) / longest for v in vectors]
    matrix = np.vstack((np.column_stack(columns), np.ones(len(vectors))))
    weights, _ = nnls(matrix, np.append(np.zeros(len(matrix) - 1), 1.0))
    total = 0 * vectors[0]
    for weight, vector in zip((weights / weights.sum()).tolist(), vectors, strict=True):
        total = total + weight * vector
    return total


class Known:
    """An oracle that returns a known evaluation at its point."""

    def __init__(self, known: Evaluated, oracle: Oracle) -> None:
        self.known, self.oracle = known, oracle

    def __call__(self, point: Array) -> Evaluated:
        """Evaluate, or hand out what is known."""
        return self.known if point is self.known.point else self.oracle(point)


def probed(oracle: Oracle, x0: Array, search: Search) -> tuple[float, Oracle]:
    """Return the distance that a search finds at x0 (or zero), and the oracle to continue with.

    A noisy oracle with `frozen()` gives two independent fixed samples of the function: one for the
    direction, the other for the values, since a small sample falls much too far along its own
    gradient. If they disagree about what is downhill, more pairs are drawn and directions averaged.
    """
    freeze = getattr(oracle, "frozen", None)
    if freeze is None:
        known = oracle(x0)
        return search(known.gradient, known, oracle), Known(known, oracle)
    direction = 0 * x0
    for pairs in range(1, MOST_PAIRS + 1):
        guide, judge = freeze()
        direction = direction + (guide(x0).gradient - direction) / pairs
        found = search(direction, judge(x0), judge)
        if found > 0:
            return found / PROBE_FACTOR, oracle
    return 0.0, oracle


class Probing(Rule):
    """Mixin, before the rule's base class: a probe before the first step, where `probe` is true."""

    initial_radius: float | None
    probe: bool | None
    project: Projection | None
    prox: Prox | None = None

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
        wanted = self.probe and state.iteration == 0 and self.initial_radius is None
        return self._probed(state, oracle) if wanted else (state, oracle)

    def _probed(self, state: State, oracle: Oracle) -> tuple[State, Oracle]:
        found, oracle = probed(oracle, state.query_point, self._search)
        first = smallest_radius(state.query_point)
        if isinstance(oracle, Known) and self.prox is None and not found > first:
            found = max(found, self._fall_from_kink(oracle.known, oracle, first))
        return state._replace(radius=self.capped(found)) if found else state, oracle

    def _fall_from_kink(self, start: Evaluated, oracle: Oracle, first: Any) -> float:
        """Return how far the value falls from a kink, where a subgradient need not point uphill.

        The shortest combination of all subgradients does. If the value does not fall along that of
        the known ones, the subgradient at a point in that direction is added.
        """
        subgradients, uphill, steepest = [start.gradient], start.gradient, start.squared_norm
        for _ in range(MOST_SUBGRADIENTS):
            square = float(inner(uphill, uphill))
            if not square > RESOLUTION * steepest:
                return 0.0
            try:
                trial = oracle(self._moved(start.point, uphill / square**0.5, first))
                subgradients.append(trial.gradient)
            except NonFiniteError:
                return 0.0
            if trial.value < start.value - LEAST_GAIN * float(first) * square**0.5:
                return self._fall_along(uphill, start, oracle, first)
            steepest = max(steepest, trial.squared_norm)
            uphill = shortest_combination(subgradients, steepest**0.5)
        return 0.0

    def _moved(self, point: Array, direction: Array, reach: Any) -> Array:
        moved = point - reach * direction
        return moved if self.project is None else self.project(moved)

    def _search(self, gradient: Array, start: Evaluated, oracle: Oracle) -> float:
        return self._fall_along(gradient, start, oracle, smallest_radius(start.point))

    def _fall_along(self, uphill: Array, start: Evaluated, oracle: Oracle, first: Any) -> float:
        """Return how far the value falls against `uphill`; the first trial is at `first`."""
        norm = inner(uphill, uphill) ** 0.5
        if not norm > 0:
            return 0.0
        direction = uphill / norm

        def path(reach: float) -> Array:
            point = start.point - reach * direction
            if self.prox is not None:
                point = self.prox(point, reach / norm)
            return point if self.project is None else self.project(point)

        return Probe(start, direction, oracle, path).radius(first)
