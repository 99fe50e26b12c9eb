"""Processes that call functions one after the other, each within a time limit, and their clocks.

Some solvers cannot be interrupted: beyond the time limit the whole process is ended, and the next
call gets a new one. What is done in it before the clock starts (imports, compilation) has time.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

GRACE = 0.5  # seconds beyond the limit after which a run is ended: it may be on its way back
THREADS = [f"{library}_NUM_THREADS" for library in ("OMP", "OPENBLAS", "MKL", "NUMBA")]
PREPARING = 600.0  # seconds that may go by before the clock starts (imports, compilation)
BEGUN = "begun"  # said whenever a clock starts


class TimeLimitError(RuntimeError):
    """A call took longer than it may."""


class SolverError(RuntimeError):
    """A call raised an exception; the message is its own."""


class Timing(NamedTuple):
    """How a process times its calls."""

    begun: Callable[[], None] = lambda: None  # is called whenever a clock starts
    cpu: bool = False  # whether CPU time counts, and not wall time
    most: int = 3  # a call is repeated so often, or until
    enough: float = 0.1  # so many seconds are spent; the fastest counts

    @property
    def clock(self) -> Callable[[], float]:
        """The clock."""
        return time.process_time if self.cpu else time.perf_counter

    def fastest(self, make: Callable[[], Callable[[], Any]]) -> tuple[Any, float]:
        """Return the answer and the seconds of the fastest of some calls.

        `make` prepares, outside of the clock, and returns what to time. Of several calls, one in
        which Numba compiled something is made again; a first one, which may load what is compiled,
        has a second one even if it took four times `enough`. Numerical trouble shows in the answer.
        """
        best: tuple[Any, float] | None = None
        calls, compiled, spent = 0, 0, 0.0
        while compiled < 3 and calls < self.most:
            run = make()
            with compilations() as found, quiet():
                self.begun()
                since = self.clock()
                answer = run()
                seconds = self.clock() - since
            if best is None or seconds < best[1]:
                best = answer, seconds
            if found and self.most > 1:
                compiled += 1
                continue
            calls, spent = calls + 1, spent + seconds
            if spent >= self.enough * (4.0 if calls == 1 else 1.0):
                break
        assert best is not None
        return best


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence warnings: too few iterations are given on purpose."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def compilations() -> Iterator[list[Any]]:
    """Give a list that holds what Numba compiled within the block."""
    from numba.core.event import install_recorder

    found: list[Any] = []
    with install_recorder("numba:compile") as recorder:
        yield found
    found.extend(recorder.buffer)


@contextlib.contextmanager
def environment(**variables: str | None) -> Iterator[None]:
    """Have variables (or have them not: None) for processes that are started in the block."""
    before = dict(os.environ)
    try:
        for name, value in variables.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


class Worker:
    """A process that calls functions, on one thread or on as many as by default.

    It is started when needed. Functions must be importable, and take what starts their clock as
    their first argument.
    """

    def __init__(self, *, one_thread: bool) -> None:
        self._one_thread = one_thread
        self._process: Any = None
        self._connection: Connection | None = None

    def end(self) -> None:
        """End the process, whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            assert self._connection is not None
            self._connection.close()
        self._process = self._connection = None

    def call(self, function: Callable[..., Any], *arguments: Any, limit: float) -> Any:
        """Return what a function returns in the process.

        A TimeLimitError is raised if it takes longer than `limit` seconds after its clock started,
        a SolverError if it raises an exception.
        """
        connection = self.start()
        try:
            connection.send((function, arguments))
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

    def start(self) -> Connection:
        """Start the process where it does not run; return the connection to it."""
        if self._connection is None:
            context = multiprocessing.get_context("spawn")
            self._connection, theirs = context.Pipe()
            self._process = context.Process(target=serve, args=(theirs,), daemon=True)
            with environment(**dict.fromkeys(THREADS, "1") if self._one_thread else {}):
                self._process.start()
            theirs.close()
            try:
                self._heard(self._connection, PREPARING)
            except EOFError:
                self.end()
                raise RuntimeError("the process for the runs ended as it started.") from None
        assert self._connection is not None
        return self._connection


class Pair:
    """Two processes for the same calls, used by ``with``.

    One has the default number of threads, as people run: its wall time counts. The other has one
    thread: its CPU time is shown beside it.
    """

    def __init__(self) -> None:
        self.default, self.single = Worker(one_thread=False), Worker(one_thread=True)

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_: object) -> None:
        self.default.end()
        self.single.end()

    def call(self, function: Callable[..., Any], *arguments: Any, limit: float) -> tuple[Any, Any]:
        """Return what both say; the function's last argument tells whether CPU time is wanted."""
        first = self.default.call(function, *arguments, False, limit=limit)
        patience = limit * (os.cpu_count() or 1)  # one thread may need so many times as long
        return first, self.single.call(function, *arguments, True, limit=patience)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Have linear algebra and kernels run on one thread, whose number must not show in results."""
    from threadpoolctl import threadpool_limits

    from accelegrad import kernels

    with threadpool_limits(limits=1), kernels.use(threads=1):
        yield


def ignore_interrupts() -> None:
    """Leave Ctrl-C to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def serve(connection: Connection) -> None:
    """Call what is asked for until the other end is closed."""
    ignore_interrupts()
    connection.send(("ready", None))
    with contextlib.suppress(EOFError):
        while True:
            function, arguments = connection.recv()
            try:
                answer = function(lambda: connection.send((BEGUN, None)), *arguments)
            except Exception as error:  # whatever a solver raises is its result
                words = str(error).splitlines() or [""]
                connection.send(("failed", f"{type(error).__name__}: {words[0]}"))
            else:
                connection.send(("done", answer))
