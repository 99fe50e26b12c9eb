"""One method on one function, measured: wall time, and CPU time of a second run on one thread."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from accelegrad_lab.engine.worker import one_thread
from accelegrad_lab.functions.methods import METHODS, Method, Told
from accelegrad_lab.functions.minima import Minimum
from accelegrad_lab.functions.problem import Function
from accelegrad_lab.functions.recorder import ACCURACIES, Enough, Recorder
from accelegrad_lab.functions.stated import by_clarabel

TOLERANCES = (1e-3, 1e-5, 1e-7, 1e-9, 1e-11)  # Clarabel's, in turn; its default is 1e-8

MEASURES = ("calls", "seconds", "CPU seconds")  # the last ones on one thread
Clock = Callable[[], float]

REACHED = "the last accuracy"
CALLS = "limit of calls"
SECONDS = "time limit"


@dataclass(frozen=True)
class Limits:
    """When a run ends that did not reach the last accuracy."""

    calls: int
    seconds: float


@dataclass(frozen=True)
class Record:
    """What a run came to."""

    function: str
    method: str
    ended: str  # why: a limit, the last accuracy, or the method's own words
    accuracy: float  # the best that it reached
    calls: int
    seconds: float
    reached: Mapping[float, tuple[float, ...]]  # by accuracy: the `MEASURES`; NaN: not counted

    def to_json(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        reached = [
            [wanted, *(cost if math.isfinite(cost) else str(cost) for cost in costs)]
            for wanted, costs in self.reached.items()
        ]
        finite = self.accuracy if math.isfinite(self.accuracy) else None
        return {**asdict(self), "accuracy": finite, "reached": reached}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Record:
        """Return what was written."""
        reached = {
            wanted: tuple(float(cost) if isinstance(cost, str) else cost for cost in costs)
            for wanted, *costs in content["reached"]
        }
        best = content["accuracy"]
        accuracy = math.inf if best is None else best
        return cls(**{**content, "accuracy": accuracy, "reached": reached})

    def cost(self, measure: str, accuracy: float) -> float:
        """Return one of the `MEASURES` to an accuracy: inf where it was not reached."""
        costs = self.reached.get(accuracy)
        return math.inf if costs is None else costs[MEASURES.index(measure)]


def measure(names: tuple[str, str], function: Function, minimum: Minimum, limits: Limits) -> Record:
    """Run a method on a function; `names` are the function's and the method's."""
    found = _one_run(names, function, minimum, limits, time.perf_counter)
    with one_thread():
        single = _one_run(names, function, minimum, limits, time.process_time)
    never = (math.inf, math.inf)
    reached = {
        wanted: (*costs, single.reached.get(wanted, never)[1])
        for wanted, costs in found.reached.items()
    }
    return replace(found, reached=reached)


def _one_run(
    names: tuple[str, str], function: Function, minimum: Minimum, limits: Limits, clock: Clock
) -> Record:
    """Return a run by one clock."""
    method = METHODS[names[1]]
    if method.run is None:
        return _by_tolerances(names, function, minimum, limits, clock)

    def recorder(accuracies: tuple[float, ...] = ACCURACIES) -> Recorder:
        return Recorder(function, minimum.value, limits.calls, limits.seconds, accuracies, clock)

    if not method.each:
        return _recorded(names, method, recorder(), minimum, 1.0)
    parts = [_recorded(names, method, recorder((one,)), minimum, one) for one in ACCURACIES]
    reached = {wanted: cost for part in parts for wanted, cost in part.reached.items()}
    last = parts[-1]
    return Record(*names, last.ended, last.accuracy, last.calls, last.seconds, reached)


def _recorded(
    names: tuple[str, str], method: Method, recorder: Recorder, minimum: Minimum, accuracy: float
) -> Record:
    """Run a method until it or its recorder ends."""
    assert method.run is not None
    told = Told(accuracy * recorder.scale, minimum.distance)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # numerical trouble shows in the points
        recorder.start()
        try:
            result: Any = method.run(recorder, told)
            ended = str(getattr(result, "message", "")).strip() or "by itself"
        except Enough:
            ended = _limit(recorder)
        except Exception as error:
            ended = f"{type(error).__name__}: {error}"
    return Record(
        *names,
        ended,
        recorder.accuracy,
        recorder.calls,
        recorder.seconds,
        dict(recorder.reached),
    )


def _limit(recorder: Recorder) -> str:
    if recorder.accuracies[-1] in recorder.reached:
        return REACHED
    return CALLS if recorder.calls >= recorder.max_calls else SECONDS


def _by_tolerances(
    names: tuple[str, str], function: Function, minimum: Minimum, limits: Limits, clock: Clock
) -> Record:
    """Run Clarabel with tighter and tighter tolerances: the fastest accurate run counts."""
    scale = function.value(function.x0) - minimum.value
    reached: dict[float, tuple[float, float]] = {}
    best, seconds, ended = math.inf, 0.0, "all tolerances"
    for tolerance in TOLERANCES:
        answer = by_clarabel(function, tolerance, limits.seconds, clock)
        if answer is None:
            ended = "no point, or the time limit"
            break
        seconds = answer.seconds
        accuracy = (answer.value - minimum.value) / scale
        best = min(best, accuracy)
        for wanted in ACCURACIES:
            if accuracy <= wanted and seconds < reached.get(wanted, (0.0, math.inf))[1]:
                reached[wanted] = math.nan, seconds
        if ACCURACIES[-1] in reached or seconds > limits.seconds:
            ended = REACHED if ACCURACIES[-1] in reached else SECONDS
            break
    return Record(*names, ended, best, 0, seconds, reached)
