"""How much faster two workers evaluate a sum over rows than one, of rows made on the workers.

python benchmarks/dask_speed_up.py [--rows 2.5e6] [--columns 1e5] [--rounds 10]

Two local clusters, of one worker and of two, hold the same blocks, as of a log of clicks with 40
non-zeros a row (criteo_like.py): 1e8 non-zeros by default, of which none is shipped. Evaluations
are interleaved. Besides the seconds by the clock, which mean something on an idle machine alone, it
prints the processor seconds of the slowest worker, which other work disturbs less.
"""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack

import numpy as np
from distributed import Client

from accelegrad.dask import RowModel
from criteo_like import FIELDS, blocks, local_cluster


class Side:
    """A cluster with the rows, and what its evaluations took."""

    def __init__(self, client: Client, pieces: list[object]) -> None:
        self._client, self.model = client, RowModel(pieces, l2=1e-4, client=client)
        self.seconds: list[float] = []
        self.processor: list[float] = []

    def evaluate(self, w: np.ndarray) -> None:
        before, start = self._client.run(time.process_time), time.perf_counter()
        self.model.at(w)
        self.seconds.append(time.perf_counter() - start)
        after = self._client.run(time.process_time)
        self.processor.append(max(after[worker] - before[worker] for worker in after))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, default=2.5e6)
    parser.add_argument("--columns", type=float, default=1e5)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--blocks", type=int, default=4)
    given = parser.parse_args()
    rows, columns = int(given.rows), int(given.columns)
    with ExitStack() as stack:
        sides = {}
        for workers in (1, 2):
            cluster = stack.enter_context(local_cluster(workers))
            client = stack.enter_context(Client(cluster, set_as_default=False))
            sides[workers] = Side(client, blocks(rows, columns, -(-rows // given.blocks)))
        for number in range(given.rounds + 2):
            w = np.full(columns, 1e-3 * number)
            for side in sides.values():
                side.evaluate(w)
        print(
            f"{rows} rows, {columns} columns, {rows * FIELDS:.2g} non-zeros, {given.rounds} rounds"
        )
        for name in ("seconds", "processor"):
            one, two = (np.array(getattr(sides[workers], name)[2:]) for workers in (1, 2))
            print(
                f"{name:9} one worker {one.min():.3f} ({np.median(one):.3f}), "
                f"two workers {two.min():.3f} ({np.median(two):.3f}), "
                f"ratio of the least {one.min() / two.min():.2f}, "
                f"median of the ratios {np.median(one / two):.2f}"
            )


if __name__ == "__main__":
    main()
