"""Rows as of a log of clicks, hashed, made on the workers of a local cluster, and fitted there.

python benchmarks/criteo_like.py [--rows 1e6] [--columns 1e6] [--workers 2] [--rtol 1e-3]

Each row has 40 fields, whose values are as frequent as words are; a hash of field and value is the
column. Labels are drawn from a logistic model with hidden weights. No row is shipped: blocks are
made by the workers from their numbers, the same for any number of workers.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import dask
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from dask import delayed
from distributed import Client, LocalCluster

import accelegrad as ag
from accelegrad.dask import RowModel
from accelegrad.dask.command import ENVIRONMENT, KEEPS_MEMORY

FIELDS = 40
ROWS_PER_BLOCK = 250_000
Numbers = npt.NDArray[np.uint64]


def mixed(numbers: Numbers) -> Numbers:
    """Return numbers that look random, always the same for the same ones (splitmix64)."""
    with np.errstate(over="ignore"):
        numbers = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return numbers ^ (numbers >> np.uint64(31))


def hashed_rows(
    number: int, n_rows: int, n_columns: int, fields: int = FIELDS
) -> tuple[sp.csr_matrix, npt.NDArray[np.float64]]:
    """Return a block of rows, in float32 with ones for entries, and labels -1 and 1."""
    rng = np.random.default_rng([20, number])
    # The density of a value v is as 1 / v, up to 1e6 values in a field.
    values = np.exp(rng.random((n_rows, fields)) * np.log(1e6)).astype(np.uint64)
    values += np.arange(fields, dtype=np.uint64) << np.uint64(32)
    columns = mixed(values) % np.uint64(n_columns)
    hidden = mixed(columns + np.uint64(1 << 40)).astype(np.float64) / 2.0**64 - 0.5
    margins = hidden.sum(axis=1) - 1.0
    y = np.where(rng.random(n_rows) < 1.0 / (1.0 + np.exp(-margins)), 1.0, -1.0)
    ends = np.arange(0, n_rows * fields + 1, fields, dtype=np.int32)
    data = np.ones(n_rows * fields, dtype=np.float32)
    X = sp.csr_matrix((data, columns.ravel().astype(np.int32), ends), shape=(n_rows, n_columns))
    X.sum_duplicates()
    return X, y


def blocks(n_rows: int, n_columns: int, rows_per_block: int, fields: int = FIELDS) -> list[object]:
    """Return the blocks of a whole set, none of them made yet."""
    sizes = [min(rows_per_block, n_rows - first) for first in range(0, n_rows, rows_per_block)]
    make = delayed(hashed_rows, pure=False)
    return [make(number, size, n_columns, fields) for number, size in enumerate(sizes)]


@contextmanager
def local_cluster(workers: int, *, keeps_memory: bool = True) -> Iterator[LocalCluster]:
    """Yield a cluster of processes on this machine with one thread each."""
    environment = dask.config.get(ENVIRONMENT) | (KEEPS_MEMORY if keeps_memory else {})
    options = {"threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": 0}
    with (
        dask.config.set({ENVIRONMENT: environment}),
        LocalCluster(n_workers=workers, **options) as cluster,
    ):
        yield cluster


def largest_memory() -> float:
    """Return the largest resident set that this process has had, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def evaluation_times(model: RowModel, count: int) -> list[float]:
    """Return the seconds of some evaluations, each at another point, after two that warm up."""
    taken = []
    for number in range(count + 2):
        w = np.full(model.n_parameters, 1e-3 * number)
        start = time.perf_counter()
        model.at(w)
        taken.append(time.perf_counter() - start)
    return taken[2:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, default=1e6)
    parser.add_argument("--columns", type=float, default=1e6)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--l2", type=float, default=1e-4)
    parser.add_argument("--rtol", type=float, default=1e-3)
    parser.add_argument("--evaluations", type=int, default=0, help="time so many, and fit nothing")
    parser.add_argument("--usual-memory", action="store_true", help="as Dask sets up its workers")
    given = parser.parse_args()
    n_rows, n_columns = int(given.rows), int(given.columns)
    with (
        local_cluster(given.workers, keeps_memory=not given.usual_memory) as cluster,
        Client(cluster) as client,
    ):
        start = time.perf_counter()
        pieces = blocks(n_rows, n_columns, min(ROWS_PER_BLOCK, -(-n_rows // given.workers)))
        # Sums of each block come back, as long as w: with many columns few blocks are better.
        model = RowModel(pieces, l2=given.l2, fit_intercept=True, most_blocks=2 * given.workers)
        made = time.perf_counter()
        if given.evaluations:
            taken = evaluation_times(model, given.evaluations)
            least, median = 1e3 * min(taken), 1e3 * np.median(taken)
            print(f"an evaluation: {least:.0f} ms at least, {median:.0f} ms in the median")
            return
        result = ag.minimize(model, rtol=given.rtol, rng=0)
        ended = time.perf_counter()
        memory = client.run(largest_memory)
        print(f"{datetime.now(UTC):%Y-%m-%d}: {model!r}, {given.workers} workers")
        print(f"made and checked in {made - start:.1f} s, fitted in {ended - made:.1f} s")
        print(
            f"{model.cluster.round_trips} round trips, {result.nit} iterations of {result.method}"
        )
        print(f"objective {result.fun:.6f}, certified gap {result.gap / result.fun:.1e} of it")
        print(f"{result.message}")
        print(
            "largest memory of a worker:", ", ".join(f"{used:.1f} GB" for used in memory.values())
        )


if __name__ == "__main__":
    main()
