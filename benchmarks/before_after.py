"""Problems of every kind timed in two checkouts by turns: is one slower than the other.

A process for each checkout fits the same problems in turn (before, after, after, before, ...), so
that a busy machine disturbs both alike. The first fit of a problem is not counted: it loads and
compiles. Compared are the fastest fits, in seconds of the processor, on one thread. Only public
names are used, so that checkouts whose modules differ can be compared.

Run: python benchmarks/before_after.py --before OTHER_CHECKOUT --after . [--seconds 240] [--quick].
It ends with an error where the geometric mean of the ratios is beyond --mean, a single one beyond
--worst, or where only one of the two solves a problem. Sets of ACCELEGRAD_DATA are used where they
are; generated ones of the same shape stand in for those that are not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

MEAN_LIMIT, WORST_LIMIT = 1.03, 1.3
FEWEST_ROUNDS, MOST_ROUNDS = 2, 60  # a round is two fits of each checkout
TOL = 1e-6
MOST_STORED_ROWS = 10_000  # of a set of ACCELEGRAD_DATA


# -- data ------------------------------------------------------------------------------------------


class Data(NamedTuple):
    """Rows and targets; dense rows are standardised."""

    X: Any
    y: Any


def _standardised(X: Any) -> Any:
    X = np.asarray(X, dtype=np.float64)
    deviation = X.std(axis=0)
    varied = deviation > 0
    return np.ascontiguousarray((X[:, varied] - X[:, varied].mean(axis=0)) / deviation[varied])


def _dense(rows: int, columns: int, classes: bool) -> Data:
    """Return correlated columns with heavy tails, and noisy targets."""
    rng = np.random.default_rng(0)
    mixing = np.eye(columns) + rng.standard_normal((columns, columns)) / np.sqrt(columns)
    X = rng.standard_t(4, (rows, columns)) @ mixing
    y = X @ rng.standard_normal(columns) / np.sqrt(columns) + rng.standard_t(3, rows)
    return Data(_standardised(X), np.where(y > 0, 1.0, -1.0) if classes else y / y.std())


def _text(rows: int, columns: int, entries: int) -> Data:
    """Return sparse rows of length 1 whose columns are as unequal as words, and two classes."""
    rng = np.random.default_rng(0)
    words = np.minimum((columns * rng.random((rows, entries)) ** 3).astype(np.int32), columns - 1)
    X = sp.csr_matrix(
        (rng.random(rows * entries), words.ravel(), np.arange(rows + 1) * entries),
        shape=(rows, columns),
    )
    X.sum_duplicates()
    X = sp.csr_matrix(X.multiply(1 / np.sqrt(X.multiply(X).sum(axis=1))))
    margins = X @ rng.standard_normal(columns) + 0.3 * rng.standard_normal(rows)
    return Data(X, np.where(margins > 0, 1.0, -1.0))


def _bundled(name: str) -> Data:
    """Return a small set of scikit-learn's; labels that are classes stay as they are."""
    from sklearn import datasets

    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    return Data(_standardised(X), y / y.std() if name == "diabetes" else y)


def _stored(name: str, otherwise: Callable[[], Data]) -> Data:
    """Return a set of ACCELEGRAD_DATA, or what stands in for it."""
    path = Path(os.environ.get("ACCELEGRAD_DATA") or os.devnull, f"{name}.bz2")
    if not path.is_file():
        return otherwise()
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(str(path))
    chosen = np.random.default_rng(0).permutation(y.size)[:MOST_STORED_ROWS]
    X, y = sp.csr_matrix(X[chosen]), y[chosen]
    dense = X.nnz > X.shape[0] * X.shape[1] / 4
    rows = _standardised(X.toarray()) if dense else X
    if np.unique(y).size == 2:
        return Data(rows, np.where(y == y.max(), 1.0, -1.0))
    return Data(rows, (y - y.mean()) / y.std())


SETS: dict[str, Callable[[], Data]] = {
    "breast_cancer": partial(_bundled, "breast_cancer"),
    "digits": partial(_bundled, "digits"),
    "iris": partial(_bundled, "iris"),
    "diabetes": partial(_bundled, "diabetes"),
    "tall": partial(_dense, 20_000, 20, classes=True),
    "wide": partial(_dense, 200, 1000, classes=True),
    "text": partial(_text, 2000, 5000, 40),
    "numbers": partial(_dense, 5000, 30, classes=False),
    "a9a": partial(_stored, "a9a", partial(_text, 10_000, 123, 14)),
    "rcv1": partial(_stored, "rcv1_vw_small", partial(_text, 10_000, 40_000, 75)),
    "ijcnn1": partial(_stored, "ijcnn1", partial(_dense, 10_000, 22, classes=True)),
    "cpusmall": partial(_stored, "cpusmall", partial(_dense, 8192, 12, classes=False)),
    "abalone": partial(_stored, "abalone", partial(_dense, 4177, 8, classes=False)),
}
data_of = cache(lambda name: SETS[name]())


# -- problems: each is a function that fits, and returns whether that succeeded --------------------


def _model(
    name: str, loss: str, strength: float, *, intercept: bool = False, **options: Any
) -> Any:
    """Return a fit of mean loss + l2/2 ||w||^2 with l2 = strength / rows."""
    import accelegrad as ag

    X, y = data_of(name)
    if name in ("breast_cancer", "digits"):
        y = np.where(2 * y > y.max(), 1.0, -1.0)
    l2 = strength / y.size

    def fit() -> bool:
        model = ag.LinearModel(X, y, loss, l2=l2, fit_intercept=intercept)
        return bool(ag.minimize(model, **{"tol": TOL, "rng": 0, **options}).success)

    return fit


def _with_term(
    name: str, loss: str, term: str, *term_arguments: float, strength: float = 0.0, tol: float
) -> Any:
    """Return a fit with a penalty or a set, which is named as in the package."""
    import accelegrad as ag

    which = "penalty" if term in ("L1", "ElasticNet") else "feasible_set"
    options = {which: getattr(ag, term)(*term_arguments), "tol": tol}
    return _model(name, loss, strength, **options)


def _estimator(kind: str, name: str, **options: Any) -> Any:
    """Return a fit of one of our scikit-learn estimators, with its defaults but for `options`."""
    from accelegrad import sklearn

    X, y = data_of(name)
    estimator = getattr(sklearn, kind)(random_state=0, **options)
    return lambda: bool(estimator.fit(X, y).converged_)


def _callable(smooth: bool, ball: bool = False) -> Any:
    """Return a fit of the mean of (Ax - b)^2 or |Ax - b|, given as a plain Python function."""
    import accelegrad as ag

    rng = np.random.default_rng(0)
    A, b = rng.standard_normal((400, 100)), rng.standard_normal(400)

    def squares(x: Any) -> tuple[float, Any]:
        residual = A @ x - b
        return residual @ residual / b.size, 2 * (A.T @ residual) / b.size

    def distances(x: Any) -> tuple[float, Any]:
        residual = A @ x - b
        return np.abs(residual).mean(), A.T @ np.sign(residual) / b.size

    fun: Any = squares if smooth else distances
    options: dict[str, Any] = {"max_iter": 2000, "tol": 1e-5 if smooth else 1e-12}
    if ball:
        options["feasible_set"] = ag.Ball(np.zeros(100), 0.3)

    def fit() -> bool:
        result = ag.minimize(fun, np.zeros(100), **options)
        return bool(result.success) or result.nit == options["max_iter"]

    return fit


def _stochastic(name: str, batch_size: int, steps: int) -> Any:
    """Return a run of a fixed number of steps on minibatches, which no tolerance ends."""
    import accelegrad as ag

    X, y = data_of(name)
    model = ag.LinearModel(X, y, "logistic", l2=1 / y.size)
    return lambda: ag.minimize(model, batch_size=batch_size, max_iter=steps, rng=0).nit == steps


PROBLEMS: dict[str, Callable[[], Callable[[], bool]]] = {
    "breast_cancer, logistic": partial(_model, "breast_cancer", "logistic", 1.0),
    "breast_cancer, hinge, intercept": partial(
        _model, "breast_cancer", "hinge", 1.0, intercept=True
    ),
    "digits, logistic, intercept": partial(_model, "digits", "logistic", 0.01, intercept=True),
    "tall, logistic": partial(_model, "tall", "logistic", 1.0),
    "tall, hinge": partial(_model, "tall", "hinge", 1.0, tol=1e-4),
    "tall, squared_hinge, intercept": partial(_model, "tall", "squared_hinge", 1.0, intercept=True),
    "wide, logistic": partial(_model, "wide", "logistic", 0.01),
    "wide, hinge, intercept": partial(_model, "wide", "hinge", 1.0, intercept=True, tol=1e-4),
    "text, logistic": partial(_model, "text", "logistic", 1.0),
    "text, hinge": partial(_model, "text", "hinge", 1.0),
    "a9a, logistic, intercept": partial(_model, "a9a", "logistic", 1.0, intercept=True),
    "a9a, squared_hinge": partial(_model, "a9a", "squared_hinge", 0.01),
    "rcv1, logistic": partial(_model, "rcv1", "logistic", 1.0),
    "rcv1, hinge": partial(_model, "rcv1", "hinge", 1.0),
    "ijcnn1, logistic": partial(_model, "ijcnn1", "logistic", 0.01),
    "diabetes, squared, intercept": partial(_model, "diabetes", "squared", 1.0, intercept=True),
    "diabetes, absolute, l2 = 0": partial(_model, "diabetes", "absolute", 0.0),
    "numbers, huber, intercept": partial(_model, "numbers", "huber", 1.0, intercept=True),
    "numbers, quantile": partial(_model, "numbers", "quantile", 1.0, tol=1e-4),
    "cpusmall, absolute, l2 = 0, intercept": partial(
        _model, "cpusmall", "absolute", 0.0, intercept=True, tol=1e-4
    ),
    "abalone, epsilon_insensitive": partial(
        _model, "abalone", "epsilon_insensitive", 1.0, tol=1e-4
    ),
    "numbers, squared, l1 penalty": partial(
        _with_term, "numbers", "squared", "L1", 1e-2, strength=0.01, tol=1e-3
    ),
    "diabetes, squared, l1 penalty, l2 = 0": partial(
        _with_term, "diabetes", "squared", "L1", 1e-2, tol=1e-5
    ),
    "numbers, squared, elastic net": partial(
        _with_term, "numbers", "squared", "ElasticNet", 1e-2, 0.5, tol=1e-5
    ),
    "breast_cancer, logistic, l1 penalty": partial(
        _with_term, "breast_cancer", "logistic", "L1", 1e-2, tol=1e-4
    ),
    "diabetes, squared, box": partial(
        _with_term, "diabetes", "squared", "Box", -0.1, 0.1, strength=1.0, tol=TOL
    ),
    "AcceleGradClassifier, text": partial(_estimator, "AcceleGradClassifier", "text"),
    "AcceleGradClassifier, iris": partial(_estimator, "AcceleGradClassifier", "iris"),
    "AcceleGradRegressor, cpusmall": partial(_estimator, "AcceleGradRegressor", "cpusmall"),
    "AcceleGradRegressor, quantile, diabetes": partial(
        _estimator, "AcceleGradRegressor", "diabetes", loss="quantile"
    ),
    "AcceleGradRegressor, simplex, diabetes": partial(
        _estimator, "AcceleGradRegressor", "diabetes", feasible_set="simplex"
    ),
    "AcceleGradClassifier, l1 penalty, breast_cancer": partial(
        _estimator, "AcceleGradClassifier", "breast_cancer", penalty="l1", alpha=1e-2
    ),
    "callable, smooth": partial(_callable, True),
    "callable, kinks": partial(_callable, False),
    "callable, smooth, ball": partial(_callable, True, ball=True),
    "rcv1, logistic, batch_size = 1": partial(_stochastic, "rcv1", 1, 1000),
}
QUICK = ("diabetes, squared, intercept", "callable, smooth", "AcceleGradClassifier, iris")


# -- the process of a checkout ---------------------------------------------------------------------


def serve() -> None:
    """Answer each name of a problem with the seconds of a fit and its success, until the end."""
    warnings.simplefilter("ignore")  # a run that ends at its most iterations says so
    fits: dict[str, Callable[[], bool]] = {}
    answer, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        name = json.loads(line)
        if name not in fits:
            fits = {name: PROBLEMS[name]()}
            fits[name]()
        begun = time.process_time()
        solved = fits[name]()
        answer.write(json.dumps([time.process_time() - begun, solved]) + "\n")
        answer.flush()


class Checkout:
    """A process that fits problems with the package of one checkout."""

    def __init__(self, folder: Path) -> None:
        source = folder.resolve() / "src"
        if not (source / "accelegrad" / "__init__.py").is_file():
            raise SystemExit(f"{folder} is no checkout: it has no src/accelegrad.")
        threads = dict.fromkeys(
            ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
        )
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            env={**os.environ, **threads, "PYTHONPATH": str(source)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def fit(self, name: str) -> tuple[float, bool]:
        """Return the seconds of a fit, and whether it succeeded."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(name) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{name}: the process of a checkout ended.")
        seconds, solved = json.loads(line)
        return seconds, solved

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


class Compared(NamedTuple):
    """The fastest fit of a problem in either checkout, and whether they solve it."""

    name: str
    before: float
    after: float
    before_solved: bool
    after_solved: bool

    @property
    def ratio(self) -> float:
        return self.after / self.before


def compared(name: str, before: Checkout, after: Checkout, seconds: float) -> Compared:
    """Fit a problem in both checkouts by turns, for about this many seconds."""
    times: dict[Checkout, list[float]] = {before: [], after: []}
    solved = {one: one.fit(name)[1] for one in times}
    begun, rounds = time.perf_counter(), 0
    while rounds < FEWEST_ROUNDS or (
        rounds < MOST_ROUNDS and time.perf_counter() - begun < seconds
    ):
        for one in (before, after, after, before):
            taken, success = one.fit(name)
            times[one].append(taken)
            solved[one] &= success
        rounds += 1
    fastest = [min(times[one]) for one in (before, after)]
    return Compared(name, *fastest, solved[before], solved[after])


# -- the table -------------------------------------------------------------------------------------


def rows(found: Iterator[Compared], results: list[Compared]) -> Iterator[str]:
    """Go through the lines of the table, and collect the results."""
    yield "| problem | before, ms | after, ms | ratio |"
    yield "|---|---:|---:|---:|"
    for one in found:
        results.append(one)
        failed = [
            word
            for word, solved in (("before", one.before_solved), ("after", one.after_solved))
            if not solved
        ]
        name = f"{one.name} (not solved: {' and '.join(failed)})" if failed else one.name
        yield f"| {name} | {1e3 * one.before:.2f} | {1e3 * one.after:.2f} | {one.ratio:.3f} |"


def verdict(results: list[Compared], mean_limit: float, worst_limit: float) -> tuple[str, bool]:
    """Return what the ratios amount to, and whether that is within the limits."""
    mean = float(np.exp(np.mean([np.log(one.ratio) for one in results])))
    worst = max(results, key=lambda one: one.ratio)
    lost = [one.name for one in results if one.before_solved != one.after_solved]
    words = (
        f"geometric mean {mean:.3f} (limit {mean_limit:g}), "
        f"worst {worst.ratio:.3f}: {worst.name} (limit {worst_limit:g})"
    )
    if lost:
        words += f"; solved by one only: {', '.join(lost)}"
    return words, mean <= mean_limit and worst.ratio <= worst_limit and not lost


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, help="a checkout")
    parser.add_argument("--after", type=Path, default=Path(), help="another one (this folder)")
    parser.add_argument("--mean", type=float, default=MEAN_LIMIT, help="of the ratios, at most")
    parser.add_argument("--worst", type=float, default=WORST_LIMIT, help="ratio, at most")
    parser.add_argument("--seconds", type=float, default=240.0, help="for all, about")
    parser.add_argument("--quick", action="store_true", help=f"{len(QUICK)} small problems")
    parser.add_argument("--problems", help="only those with this text in their names")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve()
        return
    if given.before is None:
        parser.error("--before must name a checkout")
    names = [n for n in (QUICK if given.quick else PROBLEMS) if (given.problems or "") in n]
    checkouts = [Checkout(given.before), Checkout(given.after)]
    results: list[Compared] = []
    try:
        found = (compared(name, *checkouts, given.seconds / len(names)) for name in names)
        for line in rows(found, results):
            print(line, flush=True)
    finally:
        for one in checkouts:
            one.end()
    words, within = verdict(results, given.mean, given.worst)
    print(f"\n{words}")
    sys.exit(not within)


if __name__ == "__main__":
    main()
