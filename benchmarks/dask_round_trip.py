"""What a round trip to the workers of a local cluster costs, over what the workers compute.

python benchmarks/dask_round_trip.py [--workers 2] [--columns 1000] [--rows 10] [--trips 100]

Futures, actors and calls do next to nothing, so that their time is overhead. An evaluation, by
calls and by tasks, and dask.array's own gradient have `--rows` rows in each of `--blocks` blocks;
"long" is a vector scattered to the workers and sums of its kind gathered, in float64 or float32;
"own compute" is what the slowest worker took for its share of them. All are interleaved.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import dask
import dask.array as da
import numpy as np
from dask import delayed
from distributed import Client, LocalCluster

from accelegrad.dask import RowModel


class Holder:
    """An actor that answers as a task would."""

    def double(self, w: np.ndarray) -> np.ndarray:
        return double(None, w)


def double(part: object, w: np.ndarray, dtype: type = np.float64) -> np.ndarray:  # noqa: ARG001
    return (2.0 * w.astype(np.float64, copy=False)).astype(dtype, copy=False)


def times_of(trips: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds of each, taken in turn, after three that warm up."""
    times: dict[str, list[float]] = {name: [] for name in trips}
    for number in range(rounds + 3):
        for name, trip in trips.items():
            start = time.perf_counter()
            trip()
            if number >= 3:
                times[name].append(1e3 * (time.perf_counter() - start))
    return times


def slopes(margins: np.ndarray) -> np.ndarray:
    return -1.0 / (1.0 + np.exp(margins))


def own_compute(X: np.ndarray, w: np.ndarray, blocks: int) -> float:
    """Return the least milliseconds of a worker for its blocks, one after the other."""
    times = []
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(blocks):
            X.T @ slopes(X @ w)
        times.append(1e3 * (time.perf_counter() - start))
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--blocks", type=int, default=0, help="by default one for each worker")
    parser.add_argument("--columns", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=10)
    parser.add_argument("--trips", type=int, default=100)
    given = parser.parse_args()
    workers, blocks = given.workers, given.blocks or given.workers
    options = {"threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(n_workers=workers, **options) as cluster, Client(cluster) as client:
        w = np.ones(given.columns)
        parts = client.scatter([0] * workers, hash=False)
        actors = [client.submit(Holder, actor=True, pure=False).result() for _ in range(workers)]
        rng = np.random.default_rng(0)
        X, y = rng.standard_normal((given.rows, given.columns)), np.ones(given.rows)
        X /= np.sqrt(given.columns)
        model = RowModel([delayed((X, y)) for _ in range(blocks)], l2=0.1)
        rows = da.concatenate([da.from_array(X, chunks=X.shape)] * blocks).persist()

        def by_tasks() -> object:
            with dask.config.set({"accelegrad.calls": False}):
                return model.at(w)

        def long(dtype: type) -> object:
            sent = client.scatter(w.astype(dtype, copy=False), hash=False, broadcast=True)
            key = f"long-{time.perf_counter()}"
            found = client.map(double, parts, [sent] * workers, [dtype] * workers, key=key)
            return sum(part.astype(np.float64, copy=False) for part in client.gather(found))

        trips = {
            "long, float64": lambda: long(np.float64),
            "long, float32": lambda: long(np.float32),
            "futures": lambda: client.gather(
                client.map(double, parts, [w] * workers, key="double", pure=False)
            ),
            "actors": lambda: [call.result() for call in [a.double(w) for a in actors]],
            "RowModel.at by tasks": by_tasks,
            "RowModel.at": lambda: model.at(w),
            "dask.array": lambda: (rows.T @ da.map_blocks(slopes, rows @ w)).compute(),
        }
        compute = client.submit(own_compute, X, w, -(-blocks // workers), pure=False).result()
        print(
            f"{workers} workers, {blocks} blocks of {given.rows} x {given.columns}; milliseconds:"
        )
        print(f"{'own compute':22} {compute:8.1f}")
        print(f"{'':22} {'least':>8} {'median':>8}")
        for name, taken in times_of(trips, given.trips).items():
            print(f"{name:22} {min(taken):8.1f} {np.median(taken):8.1f}")


if __name__ == "__main__":
    main()
