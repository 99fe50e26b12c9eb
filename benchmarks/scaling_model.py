"""What an evaluation takes on a cluster, by a model of four constants, checked and extrapolated.

python benchmarks/scaling_model.py [--rounds 15] [--delay 0.005]

seconds = entries per processor x seconds per entry            (the rows of a worker)
        + seconds per round trip + tasks x seconds per task    (latency, and the scheduler's work)
        + vectors in a row x columns x 8 x seconds per byte    (w goes out, sums come back)

The constants are measured on local clusters of one and two workers, whose rows are made there;
four workers, other sizes and a delayed network are predicted from them and then measured. All
times are the least of interleaved rounds. Evaluations are asked for by tasks, as those of long
vectors and of many workers are; calls (benchmarks/dask_round_trip.py) are faster.

On one machine all processes share the processors that copy vectors, so that all transfers count;
on several those count that wait for each other.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import NamedTuple

import dask
import numpy as np
from distributed import Client

from accelegrad.dask import RowModel
from accelegrad.dask.cluster import ADDED_AT_ONCE
from accelegrad.dask.command import KEEPS_MEMORY
from criteo_like import FIELDS, blocks, local_cluster

#: Messages of an evaluation, one after the other, that pass the proxy which holds them up: w to the
#: scheduler and the answer, tasks to it and on to the workers, what they say when they are done to
#: it and on to the client, the request for the sums, and the sums. (It asks the workers for these
#: by connections of its own.)
DELAYED_MESSAGES = 8
#: Sizes at which constants are found: next to nothing, many entries, many columns.
SMALL, MANY_ROWS, MANY_COLUMNS = (400, 10_000), (400_000, 50_000), (400, 1_000_000)
BOTH = (400_000, 500_000)
WORKERS = (1, 2, 4)
#: Where the model is extrapolated.
CLUSTERS, WIDTHS = (10, 30, 100, 300, 1000), (5e4, 1e6, 1e7, 1e8)
ALL_ROWS, SMALL_BATCH = 1_000_000_000, 1_000_000


class Constants(NamedTuple):
    """What the model knows of a cluster, in seconds."""

    per_entry: float
    per_trip: float
    per_task: float
    per_byte: float


class Case(NamedTuple):
    """Rows of 40 entries on some workers, a block on each."""

    workers: int
    rows: int
    columns: int
    delay: float = 0.0


def vectors_in_a_row(workers: int) -> int:
    """Return how many vectors as long as w pass one after the other.

    One goes to the scheduler, and on from worker to worker, twice as many at a time. Sums of eight
    are added by one worker, in a tree; the client adds the last ones.
    """
    out = 1 + math.ceil(math.log2(workers)) + 1
    back, left = 0, workers
    while left > ADDED_AT_ONCE:
        back, left = back + ADDED_AT_ONCE, math.ceil(left / ADDED_AT_ONCE)
    return out + back + left


def transfers(workers: int) -> int:
    """Return how many vectors as long as w pass from process to process, up to 8 workers.

    One goes to the scheduler, on to a worker, and from there to the others; sums come back to the
    scheduler, and from it to the client.
    """
    return 2 + (workers - 1) + 2 * workers


def tasks_of(workers: int) -> int:
    """Return how many tasks the scheduler hands out: the parts' and those of a tree of sums."""
    tasks, left = workers, workers
    while left > ADDED_AT_ONCE:
        left = math.ceil(left / ADDED_AT_ONCE)
        tasks += left
    return tasks


def seconds(known: Constants, case: Case, processors: int | None = None) -> float:
    """Return the time of an evaluation; workers on one machine share its processors."""
    at_once = min(case.workers, processors or case.workers)
    vectors = transfers(case.workers) if processors else vectors_in_a_row(case.workers)
    return (
        case.rows * FIELDS / at_once * known.per_entry
        + known.per_trip
        + tasks_of(case.workers) * known.per_task
        + vectors * case.columns * 8 * known.per_byte
        + DELAYED_MESSAGES * case.delay
    )


# -- measuring -------------------------------------------------------------------------------------


async def _forward(
    source: asyncio.StreamReader, target: asyncio.StreamWriter, delay: float
) -> None:
    """Pass on what comes, each piece after the delay, and no later for what came before."""
    waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def read() -> None:
        while piece := await source.read(1 << 20):
            await waiting.put((time.monotonic() + delay, piece))
        await waiting.put((0.0, b""))

    reading = asyncio.create_task(read())
    while True:
        due, piece = await waiting.get()
        if not piece:
            break
        await asyncio.sleep(max(due - time.monotonic(), 0.0))
        target.write(piece)
        await target.drain()
    await reading
    target.close()


@contextmanager
def delayed_address(address: str, delay: float) -> Iterator[str]:
    """Yield the address of a proxy that holds up every message for a time, both ways."""
    host, port = address.removeprefix("tcp://").split(":")
    loop, ready, found = asyncio.new_event_loop(), threading.Event(), []

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(host, int(port))
        pairs = ((reader, there[1]), (there[0], writer))
        await asyncio.gather(*(_forward(*pair, delay) for pair in pairs), return_exceptions=True)

    async def serve() -> None:
        server = await asyncio.start_server(connect, "127.0.0.1", 0)
        found.append(server.sockets[0].getsockname()[1])
        ready.set()

    def run() -> None:
        loop.create_task(serve())
        loop.run_forever()

    threading.Thread(target=run, daemon=True).start()
    ready.wait()
    try:
        yield f"tcp://127.0.0.1:{found[0]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)


@contextmanager
def connected_to(workers: int, delay: float) -> Iterator[Client]:
    """Yield the client of a local cluster; with a delay, its streams pass through a proxy."""
    with ExitStack() as stack:
        cluster = stack.enter_context(local_cluster(0 if delay else workers))
        address = cluster.scheduler_address
        if delay:
            address = stack.enter_context(delayed_address(address, delay))
            command = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--no-nanny"]
            command += ["--nthreads", "1", "--no-dashboard", "--memory-limit", "0"]
            environment = os.environ | {name: str(size) for name, size in KEEPS_MEMORY.items()}
            for _ in range(workers):
                worker = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment)
                stack.callback(worker.wait)
                stack.callback(worker.terminate)
        client = stack.enter_context(Client(address, set_as_default=False))
        client.wait_for_workers(workers)
        yield client


def measured(cases: list[Case], rounds: int) -> dict[Case, float]:
    """Return the least time of an evaluation for each case, all of them by turns."""
    times: dict[Case, float] = {}
    with ExitStack() as stack:
        clients = {
            key: stack.enter_context(connected_to(*key))
            for key in sorted({(case.workers, case.delay) for case in cases})
        }
        models = {}
        for case in cases:
            pieces = blocks(case.rows, case.columns, math.ceil(case.rows / case.workers))
            models[case] = RowModel(pieces, l2=1e-3, client=clients[case.workers, case.delay])
        for number in range(rounds + 2):  # the first two warm up
            for case, model in models.items():
                w = np.full(case.columns, 1e-3 * number)
                start = time.perf_counter()
                model.at(w)
                taken = time.perf_counter() - start
                if number >= 2:
                    times[case] = min(taken, times.get(case, math.inf))
    return times


def constants(times: dict[Case, float], rows_and_columns: tuple[int, int]) -> Constants:
    """Return the constants from cases with one worker, and two for the cost of a task.

    An entry takes longer where w is longer than the caches; so it is measured at each width.
    """
    one, two = (times[Case(workers, *SMALL)] for workers in (1, 2))
    short, n_rows, n_columns = SMALL[1] * 8, *rows_and_columns
    wide = times[Case(1, *MANY_COLUMNS)] - one
    per_byte = wide / (transfers(1) * (MANY_COLUMNS[1] * 8 - short))
    # What two workers take longer is the second task and some more short vectors.
    per_task = max(two - one - (transfers(2) - transfers(1)) * short * per_byte, 0.0)
    per_trip = one - per_task - transfers(1) * short * per_byte
    longer = (n_columns * 8 - short) * transfers(1) * per_byte
    entries = FIELDS * (n_rows - SMALL[0])
    per_entry = (times[Case(1, n_rows, n_columns)] - one - longer) / entries
    return Constants(per_entry, per_trip, per_task, per_byte)


def check(rounds: int, delay: float) -> Constants:
    """Measure, and print what was predicted beside it."""
    sizes = (SMALL, MANY_ROWS, MANY_COLUMNS, BOTH)
    cases = [Case(workers, *size) for size in sizes for workers in WORKERS]
    delayed = [Case(2, *SMALL, delay), Case(2, *MANY_ROWS, delay)]
    with dask.config.set({"accelegrad.calls": False}):
        times = measured(cases, rounds) | measured(delayed, rounds)
    usual, wide = constants(times, MANY_ROWS), constants(times, BOTH)
    fitted, processors = {Case(1, *size) for size in sizes}, os.cpu_count() or 1
    fitted.add(Case(2, *SMALL))
    print(f"{datetime.now(UTC):%Y-%m-%d}, {processors} processors, load {os.getloadavg()[0]:.1f}")
    print(
        f"{1e9 * usual.per_entry:.2f} ns per entry ({1e9 * wide.per_entry:.2f} ns with "
        f"{BOTH[1]} columns), {1e3 * usual.per_trip:.1f} ms per round trip, "
        f"{1e3 * usual.per_task:.2f} ms per task, {1e-9 / usual.per_byte:.2f} GB/s"
    )
    print("| workers | rows | columns | delay, ms | measured, ms | predicted, ms | ratio |")
    print("|---|---|---|---|---|---|---|")
    for case in [*cases, *delayed]:
        known = wide if case.columns == BOTH[1] else usual
        found, said = 1e3 * times[case], 1e3 * seconds(known, case, processors)
        ratio = "fitted" if case in fitted else f"{said / found:.2f}"
        print(
            f"| {case.workers} | {case.rows} | {case.columns} | {1e3 * case.delay:g} | {found:.1f} "
            f"| {said:.1f} | {ratio} |"
        )
    return usual


# -- what follows ----------------------------------------------------------------------------------


def communication(known: Constants, workers: int, columns: int) -> float:
    """Return the part of an evaluation that does not depend on the rows."""
    return seconds(known, Case(workers, 0, columns))


def balanced_rows(known: Constants, workers: int, columns: int) -> float:
    """Return the batch size at which communication takes as long as computation."""
    return communication(known, workers, columns) * workers / (FIELDS * known.per_entry)


def gain(known: Constants, case: Case, accuracy: float) -> float:
    """Return how much sooner a rate of T^-2 is at an accuracy than one of T^-1, in the same rows.

    Both read as many rows, as noise demands; the steps are 1 / sqrt(accuracy) and 1 / accuracy.
    The case has the rows of a batch of the slower method.
    """
    shared = communication(known, case.workers, case.columns)
    slow_steps, fast_steps = 1.0 / accuracy, accuracy**-0.5
    computing = slow_steps * (seconds(known, case) - shared)
    return (computing + slow_steps * shared) / (computing + fast_steps * shared)


def table(title: str, entry: Callable[[int, int], str]) -> None:
    print(f"\n{title}\n\n| columns | {' | '.join(f'{p} workers' for p in CLUSTERS)} |")
    print("|---" * (1 + len(CLUSTERS)) + "|")
    for columns in WIDTHS:
        print(f"| {columns:.0e} | {' | '.join(entry(p, int(columns)) for p in CLUSTERS)} |")


def extrapolate(known: Constants, network: float, accuracy: float) -> None:
    """Print what the model says of larger clusters whose network has so many bytes a second."""
    known = known._replace(per_byte=known.per_byte + 1.0 / network)
    alone = ALL_ROWS * FIELDS * known.per_entry
    table(
        f"Speed-up over one worker that has all {ALL_ROWS:.0e} rows ({alone:.0f} s an evaluation)",
        lambda p, d: f"{alone / seconds(known, Case(p, ALL_ROWS, d)):.1f}",
    )
    table(
        "Rows of a batch for which communication takes as long as computation",
        lambda p, d: f"{balanced_rows(known, p, d):.1e}",
    )

    def gains(p: int, d: int) -> str:
        return f"{gain(known, Case(p, SMALL_BATCH, d), accuracy):.1f}"

    table(
        f"How much sooner T^-2 is than T^-1 at {accuracy:g}, that with batches of {SMALL_BATCH}",
        gains,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--delay", type=float, default=0.005, help="seconds, of each message")
    parser.add_argument("--network", type=float, default=1.25e9, help="bytes a second")
    parser.add_argument("--accuracy", type=float, default=1e-3)
    parser.add_argument("--constants", type=float, nargs=4, help="taken for measured, in seconds")
    given = parser.parse_args()
    known = Constants(*given.constants) if given.constants else check(given.rounds, given.delay)
    extrapolate(known, given.network, given.accuracy)


if __name__ == "__main__":
    main()
