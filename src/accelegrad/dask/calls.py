"""Calls to the workers past the scheduler's bookkeeping: one message out, one back from each.

A task of Dask's passes through the states that the scheduler keeps of it, and its result is asked
for once more: about ten milliseconds for what takes two as a call (measured).
Parts stay futures, so that Dask computes again what a lost worker held. A call is only a short way
to where they are: what it cannot reach is left to tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakSet

from distributed import Client, Future
from distributed.core import clean_exception, error_message
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.protocol import to_serialize

from accelegrad.dask.part import on_part

CALL, ASK = "accelegrad_call", "accelegrad_is_busy"
#: After so many seconds, and again, a caller looks whether the workers that it waits for are still
#: there; as long a worker has to say whether it is busy.
LOOK_AGAIN = 1.0

_prepared: WeakSet[Client] = WeakSet()


class Call(NamedTuple):
    """What is to be computed of parts on workers."""

    task: Callable[..., Any]
    held: dict[str, list[tuple[int, str]]]  # by worker: numbers and keys of the parts
    arguments: Sequence[Any]  # the same for all parts
    by_part: Sequence[Sequence[Any]]  # more of them, after these: a list with one for each part


class Answering(WorkerPlugin):  # type: ignore[misc]
    """What lets a worker answer calls, in the threads that its tasks have."""

    name = "accelegrad-calls"
    idempotent = True

    def setup(self, worker: Any) -> None:
        """Begin to answer."""
        self._worker, self._calls = worker, 0
        worker.handlers[CALL], worker.handlers[ASK] = self.answer, self.is_busy

    def teardown(self, worker: Any) -> None:
        """Answer no more."""
        for operation in (CALL, ASK):
            worker.handlers.pop(operation, None)

    def is_busy(self) -> bool:
        """Return whether there are calls that were not answered yet."""
        return self._calls > 0

    async def answer(self, call: Call) -> dict[str, Any]:
        """Return what the task gives for each part that is here, by their numbers."""
        worker, loop = self._worker, asyncio.get_running_loop()
        here = [(i, key) for i, key in call.held[worker.address] if key in worker.data]
        runs = []
        for number, key in here:
            arguments = (*call.arguments, *(column[number] for column in call.by_part))
            run = partial(on_part, call.task, worker.data[key], *arguments)
            runs.append(loop.run_in_executor(worker.executors["default"], run))
        self._calls += 1
        try:
            results = await asyncio.gather(*runs)
        except Exception as error:  # raised again by the caller
            return {"error": error_message(error)}
        finally:
            self._calls -= 1
        return {"found": to_serialize({i: r for (i, _), r in zip(here, results, strict=True)})}


def workers_of(client: Client, parts: Sequence[Future]) -> dict[str, list[tuple[int, str]]] | None:
    """Return which parts each worker holds; None while there are some that no one does."""
    if client not in _prepared:
        client.register_plugin(Answering())
        _prepared.add(client)
    places = client.who_has(parts)
    held: dict[str, list[tuple[int, str]]] = {}
    for number, part in enumerate(parts):
        addresses = places.get(part.key, ())
        if not addresses:
            return None
        # One of several, always the same, so that margins that are known there are found again.
        held.setdefault(min(addresses), []).append((number, part.key))
    return held


def forget(client: Client) -> None:
    """Prepare the workers of a client anew before the next call."""
    _prepared.discard(client)


def answers(client: Client, call: Call, timeout: float | None) -> dict[int, Any]:
    """Return the results that workers gave, by the numbers of the parts; some may be missing.

    It raises what a task raised, and TimeoutError with the addresses of the workers if they take
    longer than `timeout` seconds.
    """
    replies = client.sync(_replies, client, call, timeout)
    found: dict[int, Any] = {}
    for reply in replies.values():
        if reply is None:  # a worker that has not learnt to answer yet
            continue
        if "error" in reply:
            _, error, traceback = clean_exception(**reply["error"])
            assert error is not None
            raise error.with_traceback(traceback)
        found |= reply["found"]
    return found


async def _replies(client: Client, call: Call, timeout: float | None) -> dict[str, Any]:
    """Return what came back, by worker: nothing where one of the workers was lost meanwhile."""
    loop = asyncio.get_running_loop()
    end = None if timeout is None else loop.time() + timeout
    message = {"op": CALL, "call": to_serialize(call)}
    sent = asyncio.ensure_future(
        client.scheduler.broadcast(msg=message, workers=list(call.held), on_error="ignore")
    )
    while True:
        wait = LOOK_AGAIN if end is None else min(LOOK_AGAIN, end - loop.time())
        done, _ = await asyncio.wait([sent], timeout=max(wait, 0.0))
        if done:
            try:
                replies: dict[str, Any] = sent.result()
            except OSError:  # the scheduler itself was lost, of which tasks will tell
                return {}
            return replies
        if end is not None and loop.time() >= end:
            sent.cancel()
            late = await asyncio.gather(*(_is_late(client, address) for address in call.held))
            named = [address for address, is_late in zip(call.held, late, strict=True) if is_late]
            raise TimeoutError(", ".join(sorted(named or call.held)))
        if not set(call.held) <= set(await client.scheduler.ncores()):
            sent.cancel()
            return {}


async def _is_late(client: Client, address: str) -> bool:
    """Tell whether a worker has still to answer a call: it says so, or says nothing."""
    asked = client.scheduler.broadcast(msg={"op": ASK}, workers=[address], on_error="ignore")
    try:
        replies = await asyncio.wait_for(asked, LOOK_AGAIN)
    except (TimeoutError, OSError):
        return True
    return bool(replies.get(address, True))
