"""What a round trip to the workers of a local cluster costs: futures, actors, and an evaluation.

python benchmarks/dask_round_trip.py [--workers 2] [--columns 1000] [--trips 100]

Tasks do next to nothing, so that the time is overhead. Actors answer sooner, and lose what they
hold with their worker.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from dask import delayed
from distributed import Client, LocalCluster

from accelegrad.dask import RowModel


class Holder:
    """An actor that answers as a task would."""

    def double(self, w: np.ndarray) -> np.ndarray:
        return double(None, w)


def double(part: object, w: np.ndarray) -> np.ndarray:  # noqa: ARG001
    return 2.0 * w


def milliseconds(trip: Callable[[], object], trips: int) -> tuple[float, float]:
    """Return the least and the median time."""
    for _ in range(5):
        trip()
    times = []
    for _ in range(trips):
        start = time.perf_counter()
        trip()
        times.append(1e3 * (time.perf_counter() - start))
    return min(times), float(np.median(times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--columns", type=int, default=1000)
    parser.add_argument("--trips", type=int, default=100)
    given = parser.parse_args()
    options = {"threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(n_workers=given.workers, **options) as cluster, Client(cluster) as client:
        w, count = np.ones(given.columns), given.workers
        parts = client.scatter([0] * count, hash=False)
        actors = [client.submit(Holder, actor=True, pure=False).result() for _ in range(count)]
        rng = np.random.default_rng(0)
        X, y = rng.standard_normal((10, given.columns)), np.ones(10)
        model = RowModel([delayed((X, y)) for _ in range(count)], l2=0.1)
        trips = {
            "futures": lambda: client.gather(
                client.map(double, parts, [w] * count, key="double", pure=False)
            ),
            "actors": lambda: [call.result() for call in [a.double(w) for a in actors]],
            "RowModel.at": lambda: model.at(w),
        }
        print(f"{count} workers, {given.columns} columns: milliseconds, the least and the median")
        for name, trip in trips.items():
            least, median = milliseconds(trip, given.trips)
            print(f"{name:12} {least:8.1f} {median:8.1f}")


if __name__ == "__main__":
    main()
