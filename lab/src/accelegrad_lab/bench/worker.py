"""The processes in which every solver of the benchmark runs, one after the other.

One has the default number of threads, as people run: its wall time counts. The other has one
thread: its CPU time is shown beside it.

What a process compiles, imports or caches at a first call is done before the clock starts.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from typing import Any, NamedTuple

from accelegrad_lab.bench.problems import DataSet, Problem
from accelegrad_lab.engine.peers import OWN, SOLVERS, Answer, Parameters
from accelegrad_lab.engine.timing import fastest, timed
from accelegrad_lab.engine.worker import Clock, TimeLimitError, Worker

WARM_ROWS = 100


class Fit(NamedTuple):
    """One run, with the seconds it took."""

    setting: float  # iterations allowed, or the tolerance asked for
    seconds: float  # wall time, default threads
    answer: Answer
    cpu: float = math.nan  # CPU time, one thread


class Warmth(NamedTuple):
    """What is compiled for: once for all data of this kind."""

    solver: str
    loss: str
    layout: str


class BenchWorker:
    """Both processes; they are started when needed. Use it in a ``with`` block."""

    def __init__(self) -> None:
        self._default = _OneWorker(one_thread=False)
        self._single = _OneWorker(one_thread=True)

    def __enter__(self) -> BenchWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self._default.end()
        self._single.end()

    def load(self, data: DataSet) -> None:
        """Give the data set for the next runs."""
        self._default.load(data)
        self._single.load(data)

    def warm_up(self, name: str, problem: Problem) -> float:
        """Have a solver compile and load what it needs for data of this kind; return the seconds.

        Nothing is done, in no time, where that was so before.
        """
        return self._default.warm_up(name, problem) + self._single.warm_up(name, problem)

    def tune(self, name: str, problem: Problem, limit: float) -> tuple[Parameters, float]:
        """Return what a solver's search for parameters finds, and the seconds that took."""
        return self._default.tune(name, problem, limit)

    def fit(
        self, name: str, problem: Problem, setting: float, tuned: Parameters, limit: float
    ) -> Fit:
        """Return a run of a solver, the fastest of three where it is short.

        Raises
        ------
        TimeLimitError
            If one run took longer than `limit` seconds.
        SolverError
            If it raised an exception.
        """
        fit = self._default.fit(name, problem, setting, tuned, limit, cpu=False)
        if fit.seconds > limit:
            raise TimeLimitError(f"more than {limit:g} s")
        patience = limit * (os.cpu_count() or 1)  # one thread may need so many times as long
        single = self._single.fit(name, problem, setting, tuned, patience, cpu=True)
        return fit._replace(cpu=single.seconds)


class _OneWorker:
    """A process that runs solvers, with what it has loaded and compiled."""

    def __init__(self, *, one_thread: bool) -> None:
        self._worker = Worker(one_thread=one_thread)
        self._data: DataSet | None = None
        self._loaded = False
        self._warm: set[Warmth] = set()

    def end(self) -> None:
        self._worker.end()

    def load(self, data: DataSet) -> None:
        self._data, self._loaded = data, False

    def warm_up(self, name: str, problem: Problem) -> float:
        assert self._data is not None
        warmth = Warmth(name, problem.loss, self._data.layout)
        if self._worker.running and warmth in self._warm:
            return 0.0
        if not self._worker.running:
            self._warm.clear()
        seconds = self._ask(_warmed_up, name, problem)
        self._warm.add(warmth)
        return float(seconds)

    def tune(self, name: str, problem: Problem, limit: float) -> tuple[Parameters, float]:
        found: tuple[Parameters, float] = self._ask(_tuned, name, problem, limit=limit)
        return found

    def fit(
        self,
        name: str,
        problem: Problem,
        setting: float,
        tuned: Parameters,
        limit: float,
        *,
        cpu: bool,
    ) -> Fit:
        fit: Fit = self._ask(_fit, name, problem, setting, tuned, cpu, limit=limit)
        return fit

    def _ask(self, function: Any, *arguments: Any, **limit: float) -> Any:
        if not (self._worker.running and self._loaded):
            self._worker.call(_load, self._data)
            self._loaded = True
        return self._worker.call(function, *arguments, **limit)


# -- in the process --------------------------------------------------------------------------------

_LOADED: dict[str, DataSet] = {}


def _load(begun: Clock, data: DataSet) -> None:  # noqa: ARG001
    _LOADED["data"] = data


def _tuned(begun: Clock, name: str, problem: Problem) -> tuple[Parameters, float]:
    tune, model = SOLVERS[name].tune, problem.model(_LOADED["data"])
    assert tune is not None
    begun()
    since = time.perf_counter()
    return tune(model), time.perf_counter() - since


def _fit(
    begun: Clock, name: str, problem: Problem, setting: float, tuned: Parameters, cpu: bool
) -> Fit:
    model = problem.model(_LOADED["data"])
    clock = time.process_time if cpu else time.perf_counter
    answer, seconds = fastest(lambda: SOLVERS[name].make(model, setting, tuned), begun, clock)
    return Fit(setting, seconds, answer)


def _warmed_up(begun: Clock, name: str, problem: Problem) -> float:  # noqa: ARG001
    from accelegrad import kernels

    since = time.perf_counter()
    if name in OWN:
        kernels.warmup()  # this small data would load none of them
    solver, model = SOLVERS[name], problem.model(_LOADED["data"].head(WARM_ROWS))
    with contextlib.suppress(ValueError, ArithmeticError):
        timed(solver.make(model, 1e-2 if solver.certified else 2, {}))
    return time.perf_counter() - since
