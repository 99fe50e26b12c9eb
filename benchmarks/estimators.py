"""The scikit-learn estimators with their default settings, against scikit-learn's own.

Two tables:

- the same objective: coefficients and objective of `AcceleGradClassifier` / `AcceleGradRegressor`
  next to those of LogisticRegression, LinearSVC, Ridge, QuantileRegressor, HuberRegressor and
  LinearSVR run to high accuracy. "excess" is our objective over the peer's, relative; "certified"
  is the gap that our fit proves without knowing the peer, relative; "distance" is that of the
  coefficients, relative.
- test accuracy: our defaults, with nothing tuned, next to peers whose strength is chosen by
  cross-validation on a grid of seven; the difference to the best of them is in points of a hundred.

All columns are divided by their standard deviation (StandardScaler(with_mean=False)) for everybody;
--raw leaves them as they are for ours in a third table. One thread, one run after the other.

Run: python benchmarks/estimators.py [--rows 10000] [--sets a9a,abalone] [--raw] [--out FILE]. The
data are looked for in the folder that ACCELEGRAD_DATA names; sets that are not there are left out,
and without any scikit-learn's small ones are used.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import (
    HuberRegressor,
    LogisticRegression,
    QuantileRegressor,
    Ridge,
    SGDClassifier,
)
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC, LinearSVR
from threadpoolctl import threadpool_limits

from accelegrad.problems import datasets
from accelegrad.sklearn import AcceleGradClassifier, AcceleGradRegressor

CLASSES = (
    "a9a", "ijcnn1", "w8a", "mushrooms", "phishing", "spambase", "magic04", "madelon", "basehock",
    "pcmac", "relathe", "sylva", "covtype.binary.scale",
)  # fmt: skip
NUMBERS = ("abalone", "bodyfat", "cadata", "cpusmall", "housing", "casp", "house_16H", "elevators")
ALPHA = 1e-4
STRENGTHS = np.logspace(-6, 0, 7)
FEW = 5000  # rows for the linear programs of QuantileRegressor, which take their time


class Data(NamedTuple):
    """Rows and targets by name."""

    name: str
    X: Any
    y: Any


def find(names: Iterable[str], rows: int, small: Callable[..., Any]) -> list[Data]:
    found = []
    for name in names:
        path = datasets.find(name) if os.environ.get("ACCELEGRAD_DATA") else None
        if path is not None:
            read = datasets.read(path)
            chosen = np.random.default_rng(0).permutation(read.y.size)[:rows]
            found.append(Data(name, read.X[chosen], read.y[chosen]))
    if not found and not os.environ.get("ACCELEGRAD_DATA"):
        found = [Data(small.__name__.removeprefix("load_"), *small(return_X_y=True))]
    return found


def scaled(data: Data) -> Data:
    return Data(data.name, StandardScaler(with_mean=False).fit_transform(data.X), data.y)


def clocked(estimator: Any, data: Data) -> float:
    begun = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(data.X, data.y)
    return time.perf_counter() - begun


def met(estimator: Any) -> str:
    return "yes" if estimator.converged_ else "no"


# -- the same objective ---------------------------------------------------------------------------


class Pair(NamedTuple):
    """One of ours and the peer that minimises the same."""

    name: str
    ours: Any
    peer: Any
    loss: Callable[[Any, Any], Any]
    alpha: float
    l1: bool = False


def logistic(m: Any, s: Any) -> Any:
    return np.logaddexp(0, -s * m)


def hinge(m: Any, s: Any) -> Any:
    return np.maximum(0, 1 - s * m)


def squared(m: Any, y: Any) -> Any:
    return (m - y) ** 2 / 2


def half_absolute(m: Any, y: Any) -> Any:
    return np.abs(m - y) / 2


def insensitive(m: Any, y: Any) -> Any:
    return np.maximum(0, np.abs(m - y) - 0.1)


def of_classes(n: int) -> list[Pair]:
    C = 1 / (ALPHA * n)
    exact = {"tol": 1e-8, "max_iter": 20_000}
    return [
        Pair(
            "LogisticRegression",
            AcceleGradClassifier(),
            LogisticRegression(C=C, **exact),
            logistic,
            ALPHA,
        ),
        Pair(
            "LinearSVC",
            AcceleGradClassifier("hinge", fit_intercept=False),
            LinearSVC(loss="hinge", C=C, fit_intercept=False, tol=1e-5, max_iter=20_000),
            hinge,
            ALPHA,
        ),
    ]


def of_numbers(data: Data) -> list[Pair]:
    n = data.y.size
    vectors = {"C": 1 / (ALPHA * n), "tol": 1e-5, "max_iter": 20_000}
    pairs = [
        Pair("Ridge", AcceleGradRegressor(), Ridge(ALPHA * n, tol=1e-10), squared, ALPHA),
        Pair(
            "LinearSVR",
            AcceleGradRegressor("epsilon_insensitive", fit_intercept=False),
            LinearSVR(epsilon=0.1, fit_intercept=False, **vectors),
            insensitive,
            ALPHA,
        ),
        _huber(data),
    ]
    if n <= FEW:
        ours = AcceleGradRegressor("quantile", penalty="l1", alpha=1e-2)
        peer = QuantileRegressor(quantile=0.5, alpha=1e-2)
        pairs.append(
            Pair("QuantileRegressor", ours, peer, lambda m, y: np.abs(m - y) / 2, 1e-2, True)
        )
    return pairs


def _huber(data: Data) -> Pair:
    """Return Huber's loss at the scale that HuberRegressor finds, where both objectives agree."""
    peer = HuberRegressor(alpha=1e-2, tol=1e-7, max_iter=10_000)
    clocked(peer, data)
    delta, alpha = 1.35 * peer.scale_, 1e-2 * peer.scale_ / data.y.size

    def loss(m: Any, y: Any) -> Any:
        near = np.minimum(np.abs(m - y), delta)
        return near * (np.abs(m - y) - near / 2)

    ours = AcceleGradRegressor("huber", delta=delta, alpha=alpha)
    return Pair("HuberRegressor", ours, peer, loss, alpha)


def objective(pair: Pair, fit: Any, data: Data) -> float:
    coef = np.ravel(fit.coef_)
    margins = np.asarray(data.X @ coef).ravel() + float(np.ravel(fit.intercept_)[0])
    penalty = np.abs(coef).sum() if pair.l1 else coef @ coef / 2
    return float(np.mean(pair.loss(margins, data.y)) + pair.alpha * penalty)


def agreement(pair: Pair, data: Data) -> str:
    seconds, peers_seconds = clocked(pair.ours, data), clocked(pair.peer, data)
    value, least = (objective(pair, fit, data) for fit in (pair.ours, pair.peer))
    w, v = np.ravel(pair.ours.coef_), np.ravel(pair.peer.coef_)
    distance = np.linalg.norm(w - v) / max(float(np.linalg.norm(v)), 1e-300)
    rows, columns = data.X.shape
    return (
        f"| {data.name} | {rows} x {columns} | {pair.name} | {value / least - 1:+.1e} "
        f"| {pair.ours.gap_ / value:.1e} | {distance:.1e} | {met(pair.ours)} "
        f"| {seconds:.2f} | {peers_seconds:.2f} |"
    )


# -- test accuracy --------------------------------------------------------------------------------


def tuned(n: int) -> dict[str, Any]:
    grids = {
        "LogisticRegression": (LogisticRegression(max_iter=500), {"C": 1 / (STRENGTHS * n)}),
        "LinearSVC": (LinearSVC(max_iter=2000), {"C": 1 / (STRENGTHS * n)}),
        "SGDClassifier": (SGDClassifier(random_state=0, average=True), {"alpha": STRENGTHS}),
    }
    return {name: GridSearchCV(peer, grid, cv=3) for name, (peer, grid) in grids.items()}


def accuracy(data: Data) -> str:
    X, tested, y, truth = train_test_split(data.X, data.y, test_size=0.25, random_state=0)
    learnt = Data(data.name, X, y)
    scores = {}
    ours = make_pipeline(StandardScaler(with_mean=False), AcceleGradClassifier())
    seconds = clocked(ours, learnt)
    for name, search in tuned(y.size).items():
        peer = make_pipeline(StandardScaler(with_mean=False), search)
        clocked(peer, learnt)
        scores[name] = 100 * peer.score(tested, truth)
    own, best = 100 * ours.score(tested, truth), max(scores.values())
    cells = " | ".join(f"{score:.2f}" for score in scores.values())
    return f"| {data.name} | {own:.2f} | {cells} | {own - best:+.2f} | {seconds:.2f} |"


def raw(estimator: Any, data: Data) -> str:
    seconds = clocked(estimator, data)
    rows, columns = data.X.shape
    return (
        f"| {data.name} | {rows} x {columns} | {estimator.loss} | {estimator.objective_:.6g} "
        f"| {estimator.gap_ / estimator.objective_:.1e} | {met(estimator)} "
        f"| {estimator.n_iter_} | {seconds:.2f} |"
    )


# -- the report -----------------------------------------------------------------------------------


def report(options: argparse.Namespace) -> Iterable[str]:
    wanted = options.sets.split(",") if options.sets else (*CLASSES, *NUMBERS)
    classes = find([n for n in CLASSES if n in wanted], options.rows, load_breast_cancer)
    numbers = find([n for n in NUMBERS if n in wanted], options.rows, load_diabetes)
    classes = [data._replace(y=np.where(data.y == data.y.max(), 1.0, -1.0)) for data in classes]
    date = f"{datetime.now(UTC):%Y-%m-%d}"
    yield f"`benchmarks/estimators.py`, {date}, at most {options.rows} rows a set.\n"
    yield "| set | rows x columns | peer | excess | certified | distance | met tol | s | peer's s |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for data in map(scaled, classes):
        yield from (agreement(pair, data) for pair in of_classes(data.y.size))
    for data in map(scaled, numbers):
        yield from (agreement(pair, data) for pair in of_numbers(data))
    yield "\n| set | ours, % correct | " + " | ".join(tuned(1)) + " | to the best | s |"
    yield "|---|---|---|---|---|---|---|"
    yield from (accuracy(data) for data in classes)
    if options.raw:
        yield "\n| raw set | rows x columns | loss | objective | certified | met tol | steps | s |"
        yield "|---|---|---|---|---|---|---|---|"
        for data in classes:
            yield raw(AcceleGradClassifier(), data)
        for data in numbers:
            yield from (raw(AcceleGradRegressor(loss), data) for loss in ("squared_error", "huber"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--sets", default="")
    parser.add_argument("--raw", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    lines = []
    with threadpool_limits(1):
        for line in report(options):
            print(line)
            sys.stdout.flush()
            lines.append(line)
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
