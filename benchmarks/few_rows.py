"""Losses with a kink on dense rows that are few for their columns: the ways to fit them.

The estimators take an interior-point method there (`accelegrad.rows.interior_point`). Beside it
stand the methods that `minimize` has for the same model. Each is certified to 1e-3 if it gets there
within 10,000 steps, the default of the estimators, and ten seconds. Processor time, one thread; the
ways take turns.

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
from accelegrad.lab.report.tables import table_lines
from accelegrad.sklearn import AcceleGradClassifier, AcceleGradRegressor

SHAPES = ((300, 200), (1000, 200), (600, 400), (1000, 400), (2000, 400), (4000, 400))
TOL, ALPHA, MOST_STEPS, MOST_SECONDS = 1e-3, 1e-4, 10_000, 10.0
OTHERS = ("dual-ascent", "accelegrad-newton")
HEAD = ("rows", "columns", "loss", "interior point", *OTHERS)


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


def ways(loss: str, X: Any, y: Any) -> list[Callable[[], bool]]:
    """Return the fits, each of which tells whether it is certified."""
    kind = AcceleGradClassifier if loss == "hinge" else AcceleGradRegressor
    estimator = kind(loss, alpha=ALPHA, tol=TOL, max_iter=MOST_STEPS)
    model = ag.LinearModel(X, y, loss, l2=ALPHA, fit_intercept=True)

    def minimized(method: str) -> Callable[[], bool]:
        limits = {"rtol": TOL, "max_iter": MOST_STEPS, "time_limit": MOST_SECONDS}
        return lambda: bool(ag.minimize(model, method=method, **limits).success)

    return [lambda: bool(estimator.fit(X, y).converged_), *map(minimized, OTHERS)]


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
            calls = ways(loss, X, y)
            best, certified = [np.inf] * len(calls), [False] * len(calls)
            for _ in range(given.rounds):
                for place, call in enumerate(calls):
                    begun = time.process_time()
                    certified[place] = call()
                    best[place] = min(best[place], time.process_time() - begun)
            marks = ["" if done else " (missed)" for done in certified]
            times = [f"{1e3 * least:.0f} ms{mark}" for least, mark in zip(best, marks, strict=True)]
            rows.append((str(X.shape[0]), str(X.shape[1]), loss, *times))
    print("\n".join(table_lines(HEAD, rows)))


if __name__ == "__main__":
    main()
