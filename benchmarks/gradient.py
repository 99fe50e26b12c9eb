"""One pass for value and gradient: against reading the data, the two products, and one core.

Run: python benchmarks/gradient.py [--repeat 30] [--cpu]. All times are minima of one run,
taken in turns, so that a busy machine disturbs all of them alike. Data do not fit into the cache.
On a machine whose cores are all busy take --cpu: processor time, and of blocks that should run at
the same time that of the longest. Then "cores" tells how evenly work is split and no more: blocks
that in truth run one after the other do not compete for memory. It needs idle cores and wall time.

read      the pass over the time to sum up all entries of X (and the column numbers of sparse X) on
          as many threads; the target is at most 1.3
access    of sparse X, the pass on one thread over the time of two loops over the column numbers
          that do nothing but sum up the parameters of these columns, and add to their places in the
          gradient: without the entries of X, the rows and the losses. Where this is close to 1 what
          bounds the pass is access to memory in random order
products  the time of X @ w and X.T @ r by NumPy or SciPy on one thread over that of the pass on
          one, which computes the losses too; the target is at least 1.6
before    the same for all of `value_and_gradient` without kernels
cores     the pass on one thread over the pass on two; the target is at least 1.7
"""

import argparse
import time

import numba
import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from accelegrad import LinearModel, kernels
from accelegrad.kernels import compile as compiling
from accelegrad.kernels import gradient
from accelegrad.kernels.blocks import run
from accelegrad.lab.engine.timing import in_turns

READ, PRODUCTS, CORES = 1.3, 1.6, 1.7
DENSE = [(1_000_000, 10), (200_000, 100), (20_000, 1000), (2000, 10_000)]
SPARSE = [(100_000, 2000, 75), (100_000, 50_000, 75), (50_000, 500_000, 75)]


class Clock:
    """Wall time, or the processor time of the longest of the blocks that run at the same time."""

    def __init__(self, cpu):
        self.now = time.thread_time if cpu else time.perf_counter
        self.cpu, self.spared = cpu, 0.0

    def run(self, task, count):
        """Do what `kernels.blocks.run` does, and note by how much the longest block took longer."""

        def timed(block):
            begun = self.now()
            found = task(block)
            return found, self.now() - begun

        found, spent = zip(*run(timed, count), strict=True)
        self.spared += max(spent) - spent[0]
        return list(found)

    def seconds(self, call):
        self.spared = 0.0
        time.sleep(0.002)  # one who has rested gets a core at once, on a busy machine too
        begun = self.now()
        call()
        return self.now() - begun + (self.spared if self.cpu else 0.0)


@numba.njit(nogil=True, fastmath={"reassoc", "contract", "nsz"})
def total(entries):
    """Return the sum of all entries, vectorised: it takes as long as reading them."""
    found = entries[0]
    for i in range(1, entries.size):
        found += entries[i]
    return found


@numba.njit(nogil=True)
def gathered(columns, w):
    """Return the sum of the parameters of these columns; four sums, so that none is waited for."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for k in range(np.uint64(0), np.uint64(columns.size - 3), np.uint64(4)):
        a += w[columns[k]]
        b += w[columns[k + np.uint64(1)]]
        c += w[columns[k + np.uint64(2)]]
        d += w[columns[k + np.uint64(3)]]
    return a + b + c + d


@numba.njit(nogil=True)
def scattered(columns, gradient):
    """Add something to the gradient in these columns."""
    for k in range(np.uint64(columns.size)):
        gradient[columns[k]] += 0.5


def access(X, w):
    """Walk through the columns of a CSR matrix twice."""
    columns, gradient = X.indices.view(np.uint32), np.zeros(w.size)
    return gathered(columns, w), scattered(columns, gradient)


def read(arrays, threads, clock):
    """Read all entries, in as many blocks as there are threads."""

    def task(block):
        return [
            total(array[array.size * block // threads : array.size * (block + 1) // threads])
            for array in arrays
        ]

    return clock.run(task, threads)


def sparse_data(n, d, row_entries, dtype, seed=0):
    """Return a CSR matrix with distinct columns in each row, some of them frequent, most rare."""
    rng = np.random.default_rng(seed)
    frequency = np.cumsum(1.0 / (np.arange(d) + 50.0))
    drawn = np.searchsorted(frequency, frequency[-1] * rng.random((n, 2 * row_entries)))
    columns = np.sort(rng.permutation(d)[np.minimum(drawn, d - 1)], axis=1)
    kept = np.ones(columns.shape, dtype=bool)
    kept[:, 1:] = columns[:, 1:] != columns[:, :-1]
    kept &= rng.random(kept.shape) < row_entries * n / kept.sum()
    ends = np.concatenate([[0], np.cumsum(kept.sum(axis=1))]).astype(np.int32)
    entries = rng.standard_normal(ends[-1]).astype(dtype)
    return sp.csr_array((entries, columns[kept].astype(np.int32), ends), shape=(n, d))


def passes(model, w, threads):
    def call():
        with kernels.use("always", threads=threads):
            model.value_and_gradient(w)

    return call


def minima(calls, repeat, clock):
    """Return the least time of each call, in milliseconds."""
    times = in_turns(calls, repeat, clock.seconds)
    return {name: 1e3 * min(of_one) for name, of_one in times.items()}


def measure(X, loss, repeat, clock):
    """Return the minima of all that is compared."""
    rng = np.random.default_rng(1)
    n, d = X.shape
    y = np.where(rng.random(n) < 0.5, -1.0, 1.0)
    model = LinearModel(X, y, loss)
    w = rng.standard_normal(d) / np.sqrt(d)
    factors, features, transpose = y.astype(X.dtype), w.astype(X.dtype), X.T
    arrays = (X.data, X.indices) if sp.issparse(X) else (X.reshape(-1),)

    def before():
        with kernels.use("never"):
            model.value_and_gradient(w)

    calls = {
        "read 1": lambda: read(arrays, 1, clock),
        "pass 1": passes(model, w, 1),
        "products": lambda: (X @ features, transpose @ factors),
        "before": before,
        "read 2": lambda: read(arrays, 2, clock),
        "pass 2": passes(model, w, 2),
    }
    if sp.issparse(X):
        calls["access"] = lambda: access(X, w)
    for call in calls.values():
        call()  # compiles, and touches all pages
    return minima(calls, repeat, clock)


def show(name, dtype, loss, ms):
    one, two = ms["pass 1"], ms["pass 2"]
    walk = f"{one / ms['access']:>8.2f}" if "access" in ms else f"{'':>8}"
    print(
        f"{name:<26}{np.dtype(dtype).name:<9}{loss:<10}{ms['read 1']:>8.2f}{one:>8.2f}{two:>8.2f}"
        f"{one / ms['read 1']:>8.2f}{two / ms['read 2']:>8.2f}{walk}{ms['products'] / one:>10.2f}"
        f"{ms['before'] / one:>8.2f}{one / two:>7.2f}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=30)
    parser.add_argument("--cpu", action="store_true", help="processor time: see above")
    given = parser.parse_args()
    clock = Clock(given.cpu)
    gradient.run = clock.run
    print(f"loading or compiling all kernels took {compiling.warmup():.1f} s")
    print(
        f"{'X':<26}{'entries':<9}{'loss':<10}{'read ms':>8}{'pass 1':>8}{'pass 2':>8}{'read 1':>8}"
        f"{'read 2':>8}{'access':>8}{'products':>10}{'before':>8}{'cores':>7}"
    )
    with threadpool_limits(limits=1):
        for dtype in (np.float64, np.float32):
            for n, d in DENSE:
                X = np.random.default_rng(0).standard_normal((n, d), dtype=dtype)
                for loss in ("logistic", "squared"):
                    ms = measure(X, loss, given.repeat, clock)
                    show(f"{n} x {d}", dtype, loss, ms)
            for n, d, row_entries in SPARSE:
                X = sparse_data(n, d, row_entries, dtype)
                name = f"{n} x {d}, {X.nnz / X.shape[0]:.0f} a row"
                for loss in ("logistic", "squared"):
                    show(name, dtype, loss, measure(X, loss, given.repeat, clock))
    print(f"targets: read <= {READ}, products >= {PRODUCTS}, cores >= {CORES}")


if __name__ == "__main__":
    main()
