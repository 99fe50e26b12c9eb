"""An oracle that counts its calls and notes how soon which accuracy is reached."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np

from accelegrad.errors import Vector
from accelegrad_lab.functions.problem import Function

ACCURACIES = (1e-2, 1e-4, 1e-6, 1e-8)
OUTSIDE = 1e-10  # how far from the set a point may be, over 1 + its norm: rounding of projections


class Enough(BaseException):
    """The last accuracy is reached, or a limit is. No solver mistakes it for a failure."""


class Recorder:
    """What a method minimises: the function with a count, a clock and limits.

    Points that the method evaluates are judged, whatever it returns: f - f* over f(x0) - f*, the
    penalty included. Points outside of the set do not count. The clock stands still while a point
    is judged.

    Parameters
    ----------
    function : Function
        What is minimised.
    minimum : float
        Its minimum.
    max_calls, max_seconds
        Where the run ends with `Enough`.
    accuracies : sequence of float
        Which accuracies are noted; the run ends at the last.
    clock : callable
        `time.perf_counter` for wall time, `time.process_time` for CPU time.
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
        self.reached: dict[float, tuple[int, float]] = {}  # calls and seconds to an accuracy
        self._apart = 0.0
        self._clock = clock
        self._begun = clock()

    @property
    def seconds(self) -> float:
        """The seconds since the start, without those that judging took."""
        return self._clock() - self._begun - self._apart

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
                    self.reached[wanted] = self.calls, seconds
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
