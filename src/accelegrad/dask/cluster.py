"""The client's side: tasks on all parts in one round trip, and their failures.

Parts are futures that depend on their source, so that Dask recomputes what a lost worker held. An
actor on each worker takes a quarter of the time of tasks, which serve long vectors and lost actors.
Both run the same functions and add results in the same order: results agree to the last bit.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import Any
from uuid import uuid4

import dask
import numpy as np
from distributed import Client, Future, default_client, get_worker
from distributed import wait as wait_for
from distributed.client import FutureCancelledError

from accelegrad.dask.part import KEPT_POINTS, aligned, on_part
from accelegrad.errors import Vector, real_number
from accelegrad.models.row_parts import total

#: A vector of more bytes, over all parts, is sent to the workers once, before tasks read it.
LARGEST_ARGUMENT = 1 << 16
#: Up to this many results are added by the client, or by each task of a tree of sums.
ADDED_AT_ONCE = 8
#: Actors return vectors of up to this many bytes, summed over the parts.
LARGEST_CALL = 1 << 22
#: Dask's configuration key for actor calls; with False all work is on the dashboard.
CALLS = "accelegrad.calls"
#: Seconds between checks whether the parts of a pending call still exist.
LOOK_AGAIN = 1.0


class WorkerTimeoutError(TimeoutError):
    """Tasks did not end in time; the message names their workers."""


class BlockError(ValueError):
    """A block of the data cannot be used; the message says which one and why."""


def connected(client: Client | None) -> Client:
    """Return the given client, or the active one."""
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


class Hands:
    """An actor that runs tasks on its worker's parts, in the worker's threads."""

    def __init__(self) -> None:
        self._worker = get_worker()

    async def compute(
        self, task: Callable[..., Any], arguments: Sequence[Any], own: dict[str, Sequence[Any]]
    ) -> dict[str, Any]:
        """Return a task's results for parts on this worker, each with its `own` arguments."""
        worker, loop = self._worker, asyncio.get_running_loop()
        here = [key for key in own if key in worker.data]
        runs = []
        for key in here:
            run = partial(on_part, task, worker.data[key], *arguments, *own[key])
            runs.append(loop.run_in_executor(worker.executors["default"], run))
        return dict(zip(here, await asyncio.gather(*runs), strict=True))


class Cluster:
    """The parts of a sum over rows, and tasks on them."""

    def __init__(
        self, client: Client, parts: Sequence[Future], timeout: float | None = None
    ) -> None:
        self.client, self.parts = client, list(parts)
        self.timeout = None if timeout is None else real_number("timeout", timeout, above=0.0)
        self.round_trips = 0
        # By workers' addresses; an actor ends with the future that created it.
        self._actors: dict[str, tuple[Future, Any]] = {}
        self._held: dict[str, list[int]] | None = None
        self._sent: deque[tuple[Vector, Future]] = deque(maxlen=KEPT_POINTS)

    def of_parts(self, parts: Sequence[Future]) -> Cluster:
        """Return other parts on the same workers, with the same actors."""
        other = copy(self)
        other.parts, other.round_trips, other._held = list(parts), 0, None
        return other

    def vector(self, w: Vector) -> Any:
        """Return a vector as an argument of tasks: itself, or a future if it is long."""
        if w.nbytes * len(self.parts) <= LARGEST_ARGUMENT:
            return w
        # A point is sent once, and found by identity: a future found by hash may have been
        # released.
        for known, future in self._sent:
            if known is w and future.status == "finished":
                return future
        future = self.client.scatter(w, hash=False, broadcast=len(self.parts) > 1)
        if not w.flags.writeable:
            self._sent.append((w, future))
        return future

    def ready(self, name: str) -> None:
        """Wait for all parts, or raise the error of one of them."""
        self._wait(name, self.parts)
        self._raise_errors_of_parts()

    def _raise_errors_of_parts(self) -> None:
        for part in self.parts:
            if part.status == "error":
                part.result()

    def each(
        self, name: str, task: Callable[..., Any], *arguments: Any, by_part: Sequence[Any] = ()
    ) -> list[Any]:
        """Return a task's result for each part; `by_part` are lists with one item per part."""
        self.round_trips += 1
        found = self._called(name, task, arguments, by_part, 0)
        if found is None:
            found = self._gathered(name, self._submitted(name, task, arguments, by_part))
        return [aligned(result) for result in found]

    def total(
        self,
        name: str,
        task: Callable[..., Any],
        *arguments: Any,
        by_part: Sequence[Any] = (),
        result_bytes: int = 0,
    ) -> Any:
        """Return the sum of a task's results, `result_bytes` long, always in the same order."""
        self.round_trips += 1
        results = self._called(name, task, arguments, by_part, result_bytes)
        if results is not None:
            while len(results) > ADDED_AT_ONCE:
                results = [total(*group) for group in _groups(results)]
            return aligned(total(*results))
        futures = self._submitted(name, task, arguments, by_part)
        while len(futures) > ADDED_AT_ONCE:
            futures = [
                self.client.submit(total, *group, key=f"accelegrad-sum-{uuid4().hex}")
                for group in _groups(futures)
            ]
        return aligned(total(*self._gathered(name, futures)))

    def _called(
        self,
        name: str,
        task: Callable[..., Any],
        arguments: Sequence[Any],
        by_part: Sequence[Any],
        result_bytes: int,
    ) -> list[Any] | None:
        """Return the actors' results for each part, in order; None if tasks are needed."""
        longest = max(result_bytes, *map(_bytes, arguments), 0)
        size = longest * len(self.parts) + sum(_bytes(tuple(column)) for column in by_part)
        if size > LARGEST_CALL or not dask.config.get(CALLS, default=True):
            return None
        if self._are_lost():
            self._held, self._actors = None, {}
            return None
        own = list(zip(*by_part, strict=True)) if by_part else [()] * len(self.parts)
        keys, calls = [part.key for part in self.parts], {}
        try:
            if self._held is None:
                self._held = self._located()
            for address, numbers in self._held.items():
                given = {keys[number]: own[number] for number in numbers}
                calls[address] = self._actors[address][1].compute(task, arguments, given)
            found = self._answers(name, calls)
            return [found[key] for key in keys]
        except WorkerTimeoutError:
            raise
        except (FutureCancelledError, KeyError, OSError, RuntimeError):
            # A part or worker is gone, or the task itself failed and will raise again.
            self._held, self._actors = None, {}
            return None

    def _are_lost(self) -> bool:
        futures = [*self.parts, *(future for future, _ in self._actors.values())]
        return any(future.status != "finished" for future in futures)

    def _located(self) -> dict[str, list[int]]:
        """Return the numbers of each worker's parts, and give each worker an actor."""
        places = self.client.who_has(self.parts)
        held: dict[str, list[int]] = {}
        for number, part in enumerate(self.parts):
            # Always the same of several workers, so that cached margins are found again.
            for address in sorted(places.get(part.key, ()))[:1]:
                held.setdefault(address, []).append(number)
        made = {
            address: self.client.submit(
                Hands,
                actor=True,
                workers=[address],
                allow_other_workers=True,  # if the worker is lost meanwhile
                key=f"accelegrad-actor-{uuid4().hex}",
            )
            for address in held
            if address not in self._actors
        }
        with self.client.as_current():  # the actors' client may not be the active one
            if made:
                self._wait("actor", list(made.values()))
            self._actors |= {address: (future, future.result()) for address, future in made.items()}
        return held

    def _answers(self, name: str, calls: dict[str, Any]) -> dict[str, Any]:
        end = np.inf if self.timeout is None else time.monotonic() + self.timeout
        found: dict[str, Any] = {}
        for call in calls.values():
            while not call.done():
                try:
                    call.result(timeout=min(LOOK_AGAIN, max(end - time.monotonic(), 0.0)))
                except TimeoutError:
                    if self._are_lost():
                        raise OSError("a worker was lost") from None
                    if time.monotonic() >= end and not call.done():
                        late = sorted(a for a, other in calls.items() if not other.done())
                        what = f"calls for {len(self.parts)} parts"
                        raise self._late(name, what, ", ".join(late)) from None
            found |= call.result()
        return found

    def _submitted(
        self, name: str, task: Callable[..., Any], arguments: Sequence[Any], by_part: Sequence[Any]
    ) -> list[Future]:
        run, task = uuid4().hex, partial(on_part, task)
        shared = [self.vector(given) if _is_long(given) else given for given in arguments]
        columns = [[given] * len(self.parts) for given in shared]
        keys = [f"accelegrad-{name}-{run}-{number}" for number in range(len(self.parts))]
        return list(self.client.map(task, self.parts, *columns, *by_part, key=keys, pure=False))

    def _gathered(self, name: str, futures: list[Future]) -> list[Any]:
        if self.timeout is not None:
            self._wait(name, futures)
        try:
            return list(self.client.gather(futures))
        except FutureCancelledError as error:
            self._raise_errors_of_parts()  # errors that the scheduler cannot read
            raise ConnectionError(
                f"the tasks {name!r} were cancelled: the connection to the scheduler "
                f"{self.client.scheduler.address if self.client.scheduler else ''} was lost, or "
                "the rows were released. A run with checkpoint=... can be resumed."
            ) from error

    def _wait(self, name: str, futures: list[Future]) -> None:
        """Wait for the tasks; after a timeout name the workers that hold them."""
        try:
            with self.client.as_current():  # it may not be the active one
                wait_for(futures, timeout=self.timeout)
        except TimeoutError:
            late = {future.key for future in [*futures, *self.parts] if not future.done()}
            working = self.client.processing()
            workers = sorted(w for w, keys in working.items() if late & {str(k) for k in keys})
            held = ", ".join(workers) or "none that the scheduler knows of"
            raise self._late(name, f"{len(late)} of {len(futures)} tasks", held) from None

    def _late(self, name: str, what: str, workers: str) -> WorkerTimeoutError:
        return WorkerTimeoutError(
            f"{what}, {name!r}, took more than timeout={self.timeout:g} seconds. They were given "
            f"to the workers: {workers}."
        )


def _groups(results: list[Any]) -> list[list[Any]]:
    return [results[i : i + ADDED_AT_ONCE] for i in range(0, len(results), ADDED_AT_ONCE)]


def _bytes(given: Any) -> int:
    if isinstance(given, tuple):
        return sum(map(_bytes, given))
    return given.nbytes if isinstance(given, np.ndarray) else 0


def _is_long(given: Any) -> bool:
    return isinstance(given, np.ndarray) and given.nbytes > LARGEST_ARGUMENT // ADDED_AT_ONCE
