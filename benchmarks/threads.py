"""Wall time with BLAS's default threads, next to the same with one thread.

Users run with the default number of threads, most benchmarks with one. Each case runs with both in
turn, in one process; the fastest of the rounds counts. The last column is default / one: it is to
be at most 1.1, and below 1 where the work is large. scikit-learn's and SciPy's solvers of the same
problem are measured in the same way.

Run: python benchmarks/threads.py [--rounds 3] [--only hinge] [--quick]
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
import scipy.sparse
from sklearn.linear_model import Lasso
from sklearn.svm import LinearSVC, LinearSVR
from threadpoolctl import threadpool_limits

import accelegrad as ag
from accelegrad import kernels
from accelegrad.sklearn import AcceleGradClassifier, AcceleGradRegressor
from accelegrad_lab.report.tables import table_line, table_lines

HEAD = ("case", "solver", "one thread (ms)", "default (ms)", "CPU, default (ms)", "default / one")
#: Threads of BLAS go on spinning for some milliseconds after a call; this long between two runs.
PAUSE = 0.2


class Case(NamedTuple):
    """A problem, and what solves it, by name."""

    name: str
    solvers: dict[str, Callable[[], Any]]


def logistic_and_squares(d: int) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    """Return a diagonal quadratic of condition number 1e4 plus logistic terms."""
    rng = np.random.default_rng(0)
    curvature, target = np.logspace(-4, 0, d), rng.standard_normal(d)

    def fun(x: np.ndarray) -> tuple[float, np.ndarray]:
        away = x - target
        pulled = curvature * away
        soft = np.logaddexp(0.0, x)
        return 0.5 * float(np.sum(pulled * away)) + float(soft.sum()) / 10.0, pulled + np.exp(
            x - soft
        ) / 10.0

    return fun


def chained() -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    """Return a chain of quartic and quadratic terms: convex, and curved as Rosenbrock's valley."""

    def fun(x: np.ndarray) -> tuple[float, np.ndarray]:
        steps, away = np.diff(x), x - 1.0
        squares, stretched = away * away, steps * steps
        gradient = 0.04 * squares * away
        pull = (20.0 + stretched) * steps
        gradient[1:] += pull
        gradient[:-1] -= pull
        value = 0.01 * np.sum(squares * squares)
        value += np.sum((10.0 + 0.25 * stretched) * stretched)
        return float(value), gradient

    return fun


def product(n: int, d: int) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    """Return least squares for several targets: a function that uses BLAS's threads well."""
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((n, d)), rng.standard_normal((n, 40))

    def fun(x: np.ndarray) -> tuple[float, np.ndarray]:
        left = A @ x.reshape(d, 40) - B
        return 0.5 * float(np.sum(left * left)) / n, (A.T @ left).ravel() / n

    return fun


def largest_of_quadratics(d: int, count: int) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    """Return the largest of some quadratics."""
    rng = np.random.default_rng(0)
    centers, curvature = rng.standard_normal((count, d)), rng.uniform(0.1, 1.0, (count, d))

    def fun(x: np.ndarray) -> tuple[float, np.ndarray]:
        away = x - centers
        values = 0.5 * np.einsum("ij,ij->i", curvature, away * away)
        i = int(values.argmax())
        return float(values[i]), curvature[i] * away[i]

    return fun


def functions(quick: bool) -> Iterator[Case]:
    """Yield problems of callables, from different starts."""
    sizes = (1000, 100_000) if quick else (100, 1000, 10_000, 100_000, 1_000_000)
    for d in sizes:
        for name, fun, start in (
            ("squares and logistic terms", logistic_and_squares(d), np.zeros(d)),
            ("chain", chained(), np.random.default_rng(1).standard_normal(d)),
        ):
            yield Case(f"{name}, d = {d:,}", dict(_solvers(fun, start)))
    fun, start = product(2000, 500), np.zeros(500 * 40)
    yield Case("products with a matrix, d = 20,000", dict(_solvers(fun, start)))
    for d in (100, 1000):
        fun, start = largest_of_quadratics(d, 20), np.zeros(d)
        yield Case(
            f"largest of quadratics, d = {d}",
            {"accelegrad": lambda fun=fun, start=start: ag.minimize(fun, start, max_iter=150)},
        )


def _solvers(fun: Any, start: np.ndarray) -> Iterator[tuple[str, Callable[[], Any]]]:
    most = 150
    yield "accelegrad", lambda: ag.minimize(fun, start, max_iter=most)
    options = {"maxiter": most, "maxfun": 10 * most, "maxcor": 20, "ftol": 0.0, "gtol": 0.0}
    yield (
        "L-BFGS-B",
        lambda: scipy.optimize.minimize(fun, start, jac=True, method="L-BFGS-B", options=options),
    )


def estimators(quick: bool) -> Iterator[Case]:
    """Yield fits."""
    rng = np.random.default_rng(0)
    X = scipy.sparse.random(11_864, 1_483, density=0.01, format="csr", rng=rng)
    y = X @ rng.standard_normal(1_483) + 0.1 * rng.standard_t(2, 11_864)
    yield Case(
        "epsilon-insensitive, sparse 11,864 x 1,483",
        {
            "accelegrad": lambda: AcceleGradRegressor(loss="epsilon_insensitive").fit(X, y),
            "LinearSVR": lambda: LinearSVR().fit(X, y),
        },
    )
    yield from _dense(rng, 20_000, 300)
    if not quick:
        yield from _dense(rng, 2_000, 100)
        yield from _dense(rng, 4_000, 1_500)
    X = rng.standard_normal((1_838, 269))
    y = X[:, :20] @ rng.standard_normal(20) + rng.standard_normal(1_838)
    yield Case(
        "Lasso 1,838 x 269",
        {
            "accelegrad": lambda: AcceleGradRegressor(
                loss="squared_error", penalty="l1", alpha=0.1
            ).fit(X, y),
            "Lasso": lambda: Lasso(alpha=0.1).fit(X, y),
        },
    )


def _dense(rng: np.random.Generator, n: int, d: int) -> Iterator[Case]:
    X = rng.standard_normal((n, d))
    y = X @ rng.standard_normal(d) / np.sqrt(d) + rng.standard_t(2, n)
    sign = np.sign(y)
    for loss in ("hinge", "log_loss"):
        solvers: dict[str, Callable[[], Any]] = {
            "accelegrad": lambda loss=loss: AcceleGradClassifier(loss=loss).fit(X, sign)
        }
        if loss == "hinge":
            solvers["LinearSVC"] = lambda: LinearSVC(loss="hinge").fit(X, sign)
        yield Case(f"{loss} {n:,} x {d:,}", solvers)
    solvers = {"accelegrad": lambda: AcceleGradRegressor(loss="absolute_error").fit(X, y)}
    yield Case(f"absolute {n:,} x {d:,}", solvers)
    classes = np.digitize(y, np.quantile(y, [0.25, 0.5, 0.75]))
    solvers = {"accelegrad": lambda: AcceleGradClassifier().fit(X, classes)}
    yield Case(f"four classes {n:,} x {d:,}", solvers)


def measured(run: Callable[[], Any], rounds: int) -> tuple[float, float, float]:
    """Return seconds with one thread, seconds with the default, and processor time with it."""
    one, default, cpu = [], [], []
    for _ in range(rounds):
        time.sleep(PAUSE)
        with threadpool_limits(1), kernels.use(threads=1):
            begun = time.perf_counter()
            run()
            one.append(time.perf_counter() - begun)
        time.sleep(PAUSE)
        begun, busy = time.perf_counter(), time.process_time()
        run()
        default.append(time.perf_counter() - begun)
        cpu.append(time.process_time() - busy)
    return min(one), min(default), min(cpu)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="the fastest counts (3)")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--quick", action="store_true", help="fewer sizes")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print("\n".join(table_lines(HEAD, [])))
    for case in (*functions(given.quick), *estimators(given.quick)):
        if given.only not in case.name:
            continue
        for solver, run in case.solvers.items():
            run()  # loads, compiles
            one, default, cpu = measured(run, given.rounds)
            numbers = (f"{1e3 * seconds:.1f}" for seconds in (one, default, cpu))
            print(table_line((case.name, solver, *numbers, f"{default / one:.2f}")), flush=True)


if __name__ == "__main__":
    main()
