"""A process that calls functions one after the other, each within a time limit.

Some solvers cannot be interrupted: beyond the time limit the whole process is ended, and the next
call gets a new one. What is done in it before the clock starts (imports, compilation) has time.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

GRACE = 0.5  # seconds beyond the limit after which a run is ended: it may be on its way back
PREPARING = 600.0  # seconds that may go by before the clock starts (imports, compilation)
BEGUN = "begun"  # said whenever a clock starts

Clock = Callable[[], None]  # what a function calls whenever its clock starts


class TimeLimitError(RuntimeError):
    """A call took longer than it may."""


class SolverError(RuntimeError):
    """A call raised an exception; the message is its own."""


class Worker:
    """A process that calls functions; it is started when needed. Use it in a ``with`` block.

    Functions must be importable, and take what starts their clock as their first argument.

    Parameters
    ----------
    one_thread : bool
        Whether linear algebra and kernels run on one thread, or on as many as they do by default.
    """

    def __init__(self, *, one_thread: bool) -> None:
        self._one_thread = one_thread
        self._process: Any = None
        self._connection: Connection | None = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def running(self) -> bool:
        """Whether there is a process now."""
        return self._process is not None

    def end(self) -> None:
        """End the process, whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            assert self._connection is not None
            self._connection.close()
        self._process = self._connection = None

    def call(self, function: Callable[..., Any], *arguments: Any, limit: float = PREPARING) -> Any:
        """Return what a function returns in the process.

        Raises
        ------
        TimeLimitError
            If it took longer than `limit` seconds after its clock started.
        SolverError
            If it raised an exception.
        """
        connection = self._connected()
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

    def _connected(self) -> Connection:
        if self._connection is None:
            context = multiprocessing.get_context("spawn")
            self._connection, theirs = context.Pipe()
            self._process = context.Process(
                target=serve, args=(theirs, self._one_thread), daemon=True
            )
            self._process.start()
            theirs.close()
            try:
                self._heard(self._connection, PREPARING)
            except EOFError:
                self.end()
                raise RuntimeError("the process for the runs ended as it started.") from None
        assert self._connection is not None
        return self._connection


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


def serve(connection: Connection, on_one_thread: bool) -> None:
    """Call what is asked for until the other end is closed."""
    ignore_interrupts()
    connection.send(("ready", None))
    threads = one_thread() if on_one_thread else contextlib.nullcontext()
    with threads, contextlib.suppress(EOFError):
        while True:
            function, arguments = connection.recv()
            try:
                answer = function(lambda: connection.send((BEGUN, None)), *arguments)
            except Exception as error:  # whatever a solver raises is its result
                words = str(error).splitlines() or [""]
                connection.send(("failed", f"{type(error).__name__}: {words[0]}"))
            else:
                connection.send(("done", answer))
