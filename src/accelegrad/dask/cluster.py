"""From the client's side: tasks on all parts, in one round trip, and what goes wrong with them.

Tasks are futures, not calls of actors. A task depends on its part, and a part on what it was read
from, so that what a lost worker held is computed again elsewhere by Dask itself; actors would be a
few milliseconds faster, and lose their rows with their worker (benchmarks/dask_round_trip.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

import numpy as np
from dask import delayed
from dask.delayed import Delayed
from distributed import Client, Future, default_client
from distributed import wait as wait_for
from distributed.client import FutureCancelledError

from accelegrad.dask.part import total
from accelegrad.errors import Vector, real_number

#: A vector of more bytes is handed to the workers before the tasks that read it, not with each.
LARGEST_ARGUMENT = 1 << 16
#: Up to this many results are added by the client, in each task of a tree of sums as many.
ADDED_AT_ONCE = 8


class WorkerTimeoutError(TimeoutError):
    """Tasks did not end in time; the message names the workers that hold them."""


class BlockError(ValueError):
    """A block of the data cannot be used; the message says which one and why."""


def connected(client: Client | None) -> Client:
    """Return the client that is given, or the one that is active."""
    if client is None:
        try:
            client = default_client()
        except ValueError:
            raise ValueError(
                "client is None, and no Dask client is active: make one first, such as "
                "client = dask.distributed.Client()."
            ) from None
    if not isinstance(client, Client):
        raise TypeError(f"client must be a dask.distributed.Client, not {type(client).__name__}.")
    if client.asynchronous:
        raise ValueError("client must not be asynchronous: runs wait for their results.")
    return client


class Cluster:
    """The parts of a sum over rows, wherever they are, and tasks on them.

    Parameters
    ----------
    client : distributed.Client
        The client.
    parts : list of Future or Delayed
        The parts, in the order of their rows. Delayed ones are made anew for each task.
    timeout : float, optional
        After how many seconds without an answer a round trip is given up; by default never.
    """

    def __init__(
        self, client: Client, parts: Sequence[Future | Delayed], timeout: float | None = None
    ) -> None:
        self.client, self.parts = client, list(parts)
        self._are_kept = all(isinstance(part, Future) for part in self.parts)
        self.timeout = None if timeout is None else real_number("timeout", timeout, above=0.0)
        self.round_trips = 0

    def vector(self, w: Vector) -> Any:
        """Return a vector as tasks take it: itself, or a future where it is long.

        Not by its hash: what was scattered before may have been released meanwhile.
        """
        if w.nbytes * len(self.parts) <= LARGEST_ARGUMENT:
            return w
        return self.client.scatter(w, hash=False, broadcast=len(self.parts) > 1)

    def ready(self, name: str) -> None:
        """Wait until all parts are there, or raise what went wrong with one of them."""
        if not self._are_kept:
            return
        self._wait(name, self.parts)
        self._raise_errors_of_parts()

    def _raise_errors_of_parts(self) -> None:
        for part in self.parts:
            if isinstance(part, Future) and part.status == "error":
                part.result()

    def each(
        self, name: str, task: Callable[..., Any], *arguments: Any, by_part: Sequence[Any] = ()
    ) -> list[Any]:
        """Return what a task gives for each part, in order.

        Parameters
        ----------
        name : str
            What it is called on Dask's dashboard, after "accelegrad-".
        task : callable
            From a part and the arguments to a result.
        *arguments
            The same for all.
        by_part : sequence of lists
            More arguments, after these: a list with one for each part.
        """
        return self._gathered(name, self._submitted(name, task, arguments, by_part))

    def total(
        self, name: str, task: Callable[..., Any], *arguments: Any, by_part: Sequence[Any] = ()
    ) -> Any:
        """Return the sum of what a task gives for each part: always in the same order."""
        futures = self._submitted(name, task, arguments, by_part)
        while len(futures) > ADDED_AT_ONCE:
            groups = [futures[i : i + ADDED_AT_ONCE] for i in range(0, len(futures), ADDED_AT_ONCE)]
            futures = [
                self.client.submit(total, *group, key=f"accelegrad-sum-{uuid4().hex}")
                for group in groups
            ]
        return total(*self._gathered(name, futures))

    def _submitted(
        self, name: str, task: Callable[..., Any], arguments: Sequence[Any], by_part: Sequence[Any]
    ) -> list[Future]:
        self.round_trips += 1
        run = uuid4().hex
        shared = [self.vector(given) if _is_long(given) else given for given in arguments]
        columns = [[given] * len(self.parts) for given in shared]
        keys = [f"accelegrad-{name}-{run}-{number}" for number in range(len(self.parts))]
        if self._are_kept:
            return list(self.client.map(task, self.parts, *columns, *by_part, key=keys, pure=False))
        rows = zip(self.parts, *columns, *by_part, strict=True)
        late = [
            delayed(task, pure=False)(*row, dask_key_name=key)
            for row, key in zip(rows, keys, strict=True)
        ]
        return list(self.client.compute(late, optimize_graph=False))

    def _gathered(self, name: str, futures: list[Future]) -> list[Any]:
        if self.timeout is not None:
            self._wait(name, futures)
        try:
            return list(self.client.gather(futures))
        except FutureCancelledError as error:
            self._raise_errors_of_parts()  # what a scheduler cannot read is an error of theirs
            raise ConnectionError(
                f"the tasks {name!r} were cancelled: the connection to the scheduler "
                f"{self.client.scheduler.address if self.client.scheduler else ''} was lost, or "
                "the rows were released. A run with checkpoint=... can be resumed."
            ) from error

    def _wait(self, name: str, futures: list[Future]) -> None:
        """Wait for the tasks, and say which workers hold them if that takes too long."""
        try:
            with self.client.as_current():  # which need not be the active one
                wait_for(futures, timeout=self.timeout)
        except TimeoutError:
            late = {future.key for future in futures if not future.done()}
            if self._are_kept:
                late |= {future.key for future in self.parts if not future.done()}
            working = self.client.processing()
            workers = sorted(w for w, keys in working.items() if late & {str(k) for k in keys})
            held = ", ".join(workers) or "none that the scheduler knows of"
            raise WorkerTimeoutError(
                f"{len(late)} of {len(futures)} tasks {name!r} took more than timeout="
                f"{self.timeout:g} seconds. They were given to the workers: {held}."
            ) from None


def _is_long(given: Any) -> bool:
    return isinstance(given, np.ndarray) and given.nbytes > LARGEST_ARGUMENT // ADDED_AT_ONCE
