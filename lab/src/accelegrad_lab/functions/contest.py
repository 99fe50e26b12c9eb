"""A function of the suite on the bench: calls are counted, and how soon an accuracy is reached."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from accelegrad.errors import Vector
from accelegrad_lab.engine.fit import Rung, Sample
from accelegrad_lab.engine.worker import Timing, quiet
from accelegrad_lab.functions.formulas import Case, Function
from accelegrad_lab.functions.minima import Minimum, by_clarabel, minima

ACCURACIES = (1e-2, 1e-4, 1e-6, 1e-8)
MOST_CALLS = 5000  # of one run; chosen
WARM_CALLS = 30  # of the run before the first one that is timed; chosen
OUTSIDE = 1e-10  # how far from the set a point may be, over 1 + its norm: rounding of projections


class Enough(BaseException):
    """The last accuracy is reached, or a limit is. No solver mistakes it for a failure."""


class Recorder:
    """What a method minimises: the function with a count, a clock and limits.

    Points that the method evaluates are judged, whatever it returns: f - f* over f(x0) - f*, the
    penalty included. Points outside of the set do not count. The clock stands still while a point
    is judged. The run ends with `Enough` at the last accuracy or at a limit.
    """

    def __init__(
        self,
        function: Function,
        minimum: float,
        max_calls: int,
        max_seconds: float,
        accuracies: tuple[float, ...] = ACCURACIES,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.function = function
        self.minimum = minimum
        self.scale = function.value(function.x0) - minimum
        self.max_calls, self.max_seconds = max_calls, max_seconds
        self.accuracies = accuracies
        self.calls = 0
        self.accuracy = math.inf
        self.reached: dict[float, Rung] = {}  # the first point of an accuracy
        self._apart = 0.0
        self._clock = clock
        self._begun = clock()

    def start(self) -> None:
        """Start the clock."""
        self._begun, self._apart = self._clock(), 0.0

    def fun(self, x: Vector) -> tuple[float, Vector]:
        """Return f and its gradient, without the penalty."""
        value, gradient = self.function.fun(x)
        self._judge(x, value, None)
        return value, gradient

    def whole(self, x: Vector) -> tuple[float, Vector]:
        """Return f + penalty and a subgradient of the sum."""
        value, gradient = self.function.whole(x)
        self._judge(x, None, value)
        return value, gradient

    def prox(self, x: Vector, step: float) -> Vector:
        """Return the projection, or the penalty's proximal point."""
        if self.function.feasible_set is not None:
            return self.function.feasible_set.project(x)
        if self.function.penalty is not None:
            return self.function.penalty.prox(x, step)
        return x

    def _judge(self, x: Vector, value: float | None, total: float | None) -> None:
        """Note the accuracy of a point that was evaluated."""
        self.calls += 1
        now = self._clock()
        seconds = now - self._begun - self._apart
        if total is None:
            penalty = self.function.penalty
            assert value is not None
            total = value if penalty is None else value + penalty.value(x)
        accuracy = (total - self.minimum) / self.scale
        if accuracy < self.accuracy and self._inside(x):
            self.accuracy = accuracy
            for wanted in self.accuracies:
                if accuracy <= wanted and wanted not in self.reached:
                    self.reached[wanted] = Rung(wanted, seconds, total, calls=self.calls)
        self._apart += self._clock() - now
        if self.accuracies[-1] in self.reached:
            raise Enough
        if self.calls >= self.max_calls or seconds > self.max_seconds:
            raise Enough

    def _inside(self, x: Vector) -> bool:
        if self.function.feasible_set is None:
            return True
        distance = np.linalg.norm(self.function.feasible_set.project(x) - x)
        return bool(distance <= OUTSIDE * (1.0 + np.linalg.norm(x)))


@dataclass(frozen=True)
class FunctionContest:
    """A function of the suite with its minimum."""

    case: Case
    floor: float = 0.0

    @cached_property
    def function(self) -> Function:
        """The function."""
        return self.case.build()

    @property
    def known(self) -> Minimum:
        """Its minimum, as it is kept."""
        return minima()[self.case.name]

    @property
    def words(self) -> str:
        """What it is."""
        return f"{self.case.words}; minimum {self.known.value:.12g} ({self.known.ways})"

    @property
    def start(self) -> float:
        """The value at the start."""
        return self.function.value(self.function.x0)

    def minimum(self) -> tuple[float, float]:
        """Return the minimum and a lower bound: the error of the minimum below it."""
        known = self.known
        return known.value, known.value - known.error * (known.start - known.value)

    def warm_up(self, peer: Any, setting: float) -> None:
        """Run a method for a moment: what it imports and compiles is not in its times."""
        self._run(peer, setting, Timing(), 60.0, WARM_CALLS)

    def sample(self, peer: Any, setting: float, timing: Timing, limit: float) -> Sample:
        """Run a method until it or its recorder ends."""
        return self._run(peer, setting, timing, limit, MOST_CALLS)

    def _run(self, peer: Any, setting: float, timing: Timing, limit: float, calls: int) -> Sample:
        if peer.make is None:
            return self._by_clarabel(setting, timing, limit)
        told = setting < 1  # a run for this accuracy alone
        accuracies = (setting,) if told else ACCURACIES
        recorder = Recorder(self.function, self.known.value, calls, limit, accuracies, timing.clock)
        with quiet():
            timing.begun()
            recorder.start()
            try:
                result: Any = peer.make(recorder, setting * recorder.scale, self.known.distance)
                ended = str(getattr(result, "message", "")).strip() or "by itself"
            except Enough:
                ended = ""
            except Exception as error:
                ended = f"{type(error).__name__}: {error}"
        rungs = list(recorder.reached.values())
        return Sample(rungs, "" if told else ended or "limit of calls or seconds")

    def _by_clarabel(self, tolerance: float, timing: Timing, limit: float) -> Sample:
        timing.begun()
        since = timing.clock()
        answer = by_clarabel(self.function, tolerance, limit)
        if answer is None:
            return Sample([], "no point, or the time limit")
        return Sample([Rung(tolerance, timing.clock() - since, answer.value)])
