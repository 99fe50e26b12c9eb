"""The process in which every solver of the benchmark runs, one after the other, on one thread.

Some solvers cannot be interrupted: beyond the time limit the whole process is ended, and the next
run gets a new one. What a process compiles, imports or caches at a first call is done before the
clock starts.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from accelegrad.lab.bench.problems import DataSet, Problem
from accelegrad.lab.bench.solvers import OWN, SOLVERS, Fit, Solver, timed
from accelegrad.lab.compare.peers import SHORT

GRACE = 0.5  # seconds beyond the limit after which a run is ended: it may be on its way back
PREPARING = 600.0  # seconds that may go by before the clock starts (imports, compilation)
WARM_ROWS = 100
BEGUN = "begun"  # said whenever a clock starts


class TimeLimitError(RuntimeError):
    """A run took longer than it may."""


class SolverError(RuntimeError):
    """A solver raised an exception; the message is its own."""


class Warmth(NamedTuple):
    """What is compiled for: once for all data of this kind."""

    solver: str
    loss: str
    layout: str


@dataclass
class Worker:
    """A process that runs solvers; it is started when needed. Use it in a ``with`` block."""

    _process: Any = None
    _connection: Connection | None = None
    _data: DataSet | None = None
    _warm: set[Warmth] = field(default_factory=set)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End the process, whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            assert self._connection is not None
            self._connection.close()
        self._process = self._connection = None
        self._warm.clear()

    def load(self, data: DataSet) -> None:
        """Give it the data set for the next runs."""
        self._data = data
        if self._process is not None:
            self._ask(PREPARING, "load", data)

    def warm_up(self, name: str, problem: Problem) -> float:
        """Have a solver compile and load what it needs for data of this kind; return the seconds.

        Nothing is done, in no time, where that was so before.
        """
        assert self._data is not None
        warmth = Warmth(name, problem.loss, self._data.layout)
        if self._process is not None and warmth in self._warm:
            return 0.0
        seconds = self._ask(PREPARING, "warm up", name, problem)
        self._warm.add(warmth)
        return float(seconds)

    def tune(self, name: str, problem: Problem, limit: float) -> tuple[Any, float]:
        """Return what a solver's search for parameters finds, and the seconds that took."""
        found: tuple[Any, float] = self._ask(limit, "tune", name, problem)
        return found

    def fit(self, name: str, problem: Problem, setting: float, tuned: Any, limit: float) -> Fit:
        """Return a run of a solver, the fastest of three where it is short.

        Raises
        ------
        TimeLimitError
            If one run took longer than `limit` seconds.
        SolverError
            If it raised an exception.
        """
        fit: Fit = self._ask(limit, "fit", name, problem, setting, tuned)
        if fit.seconds > limit:
            raise TimeLimitError(f"more than {limit:g} s")
        return fit

    def _ask(self, limit: float, *question: Any) -> Any:
        connection = self._connected()
        try:
            connection.send(question)
            kind, answer = self._heard(connection, PREPARING)
            while kind == BEGUN:
                kind, answer = self._heard(connection, limit + GRACE)
        except (EOFError, OSError):
            self.end()
            raise SolverError("its process ended by itself") from None
        if kind == "failed":
            raise SolverError(answer)
        return answer

    def _heard(self, connection: Connection, wait: float) -> tuple[str, Any]:
        if not connection.poll(wait):
            self.end()
            raise TimeLimitError(f"more than {wait:g} s")
        heard: tuple[str, Any] = connection.recv()
        return heard

    def _connected(self) -> Connection:
        if self._connection is None:
            context = multiprocessing.get_context("spawn")
            self._connection, theirs = context.Pipe()
            self._process = context.Process(target=serve, args=(theirs,), daemon=True)
            self._process.start()
            theirs.close()
            try:
                self._heard(self._connection, PREPARING)
            except EOFError:
                self.end()
                raise RuntimeError("the process for the runs ended as it started.") from None
            if self._data is not None:
                self._ask(PREPARING, "load", self._data)
        assert self._connection is not None
        return self._connection


# -- in the process --------------------------------------------------------------------------------


def serve(connection: Connection) -> None:
    """Answer questions until the other end is closed."""
    from threadpoolctl import threadpool_limits

    from accelegrad import kernels

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    server = _Server(lambda: connection.send((BEGUN, None)))
    connection.send(("ready", None))
    with threadpool_limits(limits=1), kernels.use(threads=1), contextlib.suppress(EOFError):
        while True:
            kind, *arguments = connection.recv()
            try:
                answer = server.answer(kind, arguments)
            except Exception as error:  # whatever a solver raises is its result
                words = str(error).splitlines() or [""]
                connection.send(("failed", f"{type(error).__name__}: {words[0]}"))
            else:
                connection.send(("done", answer))


class _Server:
    def __init__(self, begun: Callable[[], None]) -> None:
        self._begun = begun
        self._data: DataSet | None = None

    def answer(self, kind: str, arguments: list[Any]) -> Any:
        if kind == "load":
            (self._data,) = arguments
            return None
        name, problem, *others = arguments
        assert self._data is not None
        if kind == "warm up":
            return _warmed_up(SOLVERS[name], name, problem, self._data.head(WARM_ROWS))
        if kind == "tune":
            return self._tuned(SOLVERS[name], problem)
        return self._fit(SOLVERS[name], problem, *others)

    def _tuned(self, solver: Solver, problem: Problem) -> tuple[Any, float]:
        assert solver.tune is not None
        assert self._data is not None
        self._begun()
        begun = time.perf_counter()
        return solver.tune(problem, self._data), time.perf_counter() - begun

    def _fit(self, solver: Solver, problem: Problem, setting: float, tuned: Any) -> Fit:
        """Return a run; one in which something was compiled after all is done again."""
        assert self._data is not None
        best: Fit | None = None
        short = compiled = 0
        while short < 3 and compiled < 3:
            run = solver.make(problem, self._data, setting, tuned)
            with _compilations() as compilations:
                self._begun()
                answer, seconds = timed(run)
            if compilations:
                compiled += 1
            else:
                short += 1 if seconds <= SHORT else 3
            if best is None or seconds < best.seconds:
                best = Fit(setting, seconds, answer)
        assert best is not None
        return best


def _warmed_up(solver: Solver, name: str, problem: Problem, data: DataSet) -> float:
    from accelegrad import kernels

    begun = time.perf_counter()
    if name in OWN:
        kernels.warmup()  # this small data would load none of them
    with contextlib.suppress(ValueError, ArithmeticError):
        timed(solver.make(problem, data, 1e-2 if solver.certified else 2, None))
    return time.perf_counter() - begun


@contextlib.contextmanager
def _compilations() -> Any:
    """Give a list that holds what Numba compiled within the block."""
    from numba.core.event import install_recorder

    found: list[Any] = []
    with install_recorder("numba:compile") as recorder:
        yield found
    found.extend(recorder.buffer)
