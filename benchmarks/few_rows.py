"""Losses with a kink on dense rows that are few for their columns: the methods for them.

Each is certified to 1e-3 if it gets there within 10,000 steps, the default of the estimators, and
ten seconds; the default is marked by an asterisk. Processor time, one thread; the methods take
turns.

Run: python benchmarks/few_rows.py [--rounds 2] [--most 2000]
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import accelegrad as ag
from accelegrad_lab.report.tables import table_lines

SHAPES = (
    *((300, 200), (1000, 200), (400, 400), (600, 400), (1000, 400), (2000, 400), (4000, 400)),
    (1500, 1000),
)
TOL, ALPHA, MOST_STEPS, MOST_SECONDS = 1e-3, 1e-4, 10_000, 10.0
METHODS = ("interior-point", "dual-ascent", "accelegrad-newton")
HEAD = ("rows", "columns", "loss", *METHODS)


def problems(most: int) -> Iterator[tuple[str, Any, Any]]:
    """Yield a loss, rows and targets."""
    for n, d in SHAPES:
        if n > most:
            continue
        rng = np.random.default_rng(0)
        X = rng.standard_normal((n, d))
        y = X @ rng.standard_normal(d) / np.sqrt(d) + rng.standard_t(2, n)
        yield "hinge", X, np.sign(y)
        yield "absolute", X, y


def runs(model: ag.LinearModel) -> list[Callable[[], bool]]:
    """Return a run of each method, which tells whether it is certified."""
    limits: Any = {"rtol": TOL, "max_iter": MOST_STEPS, "time_limit": MOST_SECONDS, "rng": 0}

    def run(method: str) -> Callable[[], bool]:
        return lambda: bool(ag.minimize(model, method=method, **limits).success)

    return [run(method) for method in METHODS]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2, help="the fastest counts (2)")
    parser.add_argument("--most", type=int, default=4000, help="rows (4000)")
    given = parser.parse_args()
    rows = []
    warnings.simplefilter("ignore")  # what misses the tolerance is marked in the table
    with threadpool_limits(1):
        for loss, X, y in problems(given.most):
            model = ag.LinearModel(X, y, loss, l2=ALPHA, fit_intercept=True)
            calls, default = runs(model), ag.minimize(model, max_iter=1).method
            best, certified = [np.inf] * len(calls), [False] * len(calls)
            for _ in range(given.rounds):
                for place, call in enumerate(calls):
                    begun = time.process_time()
                    certified[place] = call()
                    best[place] = min(best[place], time.process_time() - begun)
            marks = ["" if done else " (missed)" for done in certified]
            stars = [" *" if method == default else "" for method in METHODS]
            times = [f"{1e3 * least:.0f} ms" for least in best]
            rows.append(
                (*map(str, X.shape), loss, *map("".join, zip(times, marks, stars, strict=True)))
            )
    print("\n".join(table_lines(HEAD, rows)))


if __name__ == "__main__":
    main()
