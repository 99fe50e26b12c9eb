"""Cross-validation: our estimators next to scikit-learn's, for as many fits of the same objective.

For each problem the fits take turns, and the least processor time of each counts. Both get the same
alphas and five folds. Peers are `LogisticRegressionCV`, `RidgeCV`, `LassoCV` and `ElasticNetCV`
with their defaults else; ours are certified to 1e-3. The last columns have the alphas chosen.

With --grid the same alphas are searched by `GridSearchCV`, over our estimator of one alpha and over
scikit-learn's, beside our CV form.

Run: python benchmarks/cross_validation.py [--rounds 3] [--only digits] [--alphas 7] [--grid]. Data
sets are looked for in the folder that ACCELEGRAD_DATA names, and left out if they are not there.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.linear_model import (
    ElasticNet,
    ElasticNetCV,
    Lasso,
    LassoCV,
    LogisticRegression,
    LogisticRegressionCV,
    Ridge,
    RidgeCV,
)
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from accelegrad.files import datasets
from accelegrad.lab.report.tables import table_lines
from accelegrad.sklearn import (
    AcceleGradClassifier,
    AcceleGradClassifierCV,
    AcceleGradRegressor,
    AcceleGradRegressorCV,
)

FOLDS, L1_RATIO = 5, 0.15
CLASSIFIED = ("spambase", "mushrooms", "pcmac")
MEASURED = ("housing", "bodyfat", "cpusmall", "cadata")
GRID_HEAD = ("problem", "penalty", "our CV form", "GridSearchCV, ours", "GridSearchCV, peer")
HEAD = ("problem", "penalty", "fits", "ours", "peer", "ratio", "alpha", "peer's")


class Task(NamedTuple):
    """Rows and targets by name, and the penalty."""

    name: str
    penalty: str
    X: Any
    y: Any
    classes: bool


def tasks() -> Iterator[Task]:
    """Yield what is fitted."""
    yield Task("digits", "l2", *load_digits(return_X_y=True), True)
    X, y = load_breast_cancer(return_X_y=True)
    yield Task("breast cancer", "l2", X, y, True)
    yield Task("breast cancer, scaled", "l2", StandardScaler().fit_transform(X), y, True)
    for name in CLASSIFIED:
        yield from (Task(name, "l2", *rows, True) for rows in found(name))
    for penalty in ("l2", "l1", "elasticnet"):
        yield Task("diabetes", penalty, *load_diabetes(return_X_y=True), False)
        for name in MEASURED:
            for X, y in found(name):
                yield Task(name, penalty, X.toarray(), y, False)


def found(name: str) -> Iterator[tuple[Any, Any]]:
    """Yield the rows and targets of a data set, if it is there."""
    path = datasets.find(name)
    if path is not None:
        read = datasets.read(path)
        yield read.X, read.y


def estimators(task: Task, alphas: Any) -> tuple[Any, Any]:
    """Return ours and the peer; strengths of the peer's are for four of the five folds."""
    if task.classes:
        strengths = 1.0 / (alphas * 0.8 * len(task.y))
        return AcceleGradClassifierCV(alphas=alphas), LogisticRegressionCV(Cs=strengths, cv=FOLDS)
    ours = AcceleGradRegressorCV(penalty=task.penalty, l1_ratio=L1_RATIO, alphas=alphas)
    if task.penalty == "l2":
        return ours, RidgeCV(alphas=alphas * 0.8 * len(task.y), cv=FOLDS)
    if task.penalty == "l1":
        return ours, LassoCV(alphas=alphas, cv=FOLDS)
    return ours, ElasticNetCV(l1_ratio=L1_RATIO, alphas=alphas, cv=FOLDS)


def searches(task: Task, alphas: Any) -> tuple[Any, Any]:
    """Return `GridSearchCV` over our estimator of one alpha, and over the peer."""
    name, values = "alpha", alphas
    ours: Any = AcceleGradClassifier() if task.classes else AcceleGradRegressor()
    ours.set_params(penalty=task.penalty, l1_ratio=L1_RATIO)
    peers = {"l1": Lasso(), "elasticnet": ElasticNet(l1_ratio=L1_RATIO), "l2": Ridge()}
    peer = LogisticRegression() if task.classes else peers[task.penalty]
    if task.penalty == "l2":
        values = alphas * 0.8 * len(task.y)
    if task.classes:
        name, values = "C", 1.0 / values
    return GridSearchCV(ours, {"alpha": alphas}, cv=FOLDS), GridSearchCV(
        peer, {name: values}, cv=FOLDS
    )


def searched(task: Task, alphas: Any, rounds: int) -> tuple[str, ...]:
    """Return a row of the table of searches."""
    all_three = (estimators(task, alphas)[0], *searches(task, alphas))
    least = np.min([[seconds(one, task) for one in all_three] for _ in range(rounds)], axis=0)
    return (task.name, task.penalty, *(f"{time:.3f} s" for time in least))


def seconds(estimator: Any, task: Task) -> float:
    """Fit, and return the processor time that it took."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peers stop at their largest number of iterations
        begun = time.process_time()
        estimator.fit(task.X, task.y)
        return time.process_time() - begun


def compared(task: Task, alphas: Any, rounds: int) -> tuple[str, ...]:
    """Return a row of the table."""
    ours, peer = estimators(task, alphas)
    mine, its = np.min([(seconds(ours, task), seconds(peer, task)) for _ in range(rounds)], axis=0)
    chosen = np.ravel(peer.C_)[0] if task.classes else peer.alpha_
    if task.classes or task.penalty == "l2":
        chosen = 1.0 / (0.8 * len(task.y)) * (1.0 / chosen if task.classes else chosen)
    numbers = (f"{mine:.3f} s", f"{its:.3f} s", f"{mine / its:.2f}")
    fits = str(FOLDS * len(alphas) + 1)
    return (task.name, task.penalty, fits, *numbers, f"{ours.alpha_:.0e}", f"{chosen:.0e}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="fits of each; the fastest counts")
    parser.add_argument("--only", default="", help="problems whose names begin with this")
    parser.add_argument("--penalty", default="", choices=["", "l2", "l1", "elasticnet"])
    parser.add_argument("--alphas", type=int, default=7, help="how many, from 10 to 1e-5")
    parser.add_argument("--grid", action="store_true", help="GridSearchCV beside our CV form")
    arguments = parser.parse_args()
    alphas = np.geomspace(10.0, 1e-5, arguments.alphas)
    with threadpool_limits(1):
        measured, head = (searched, GRID_HEAD) if arguments.grid else (compared, HEAD)
        rows = [
            measured(task, alphas, arguments.rounds)
            for task in tasks()
            if task.name.startswith(arguments.only) and arguments.penalty in ("", task.penalty)
        ]
    print("\n".join(table_lines(head, rows)))


if __name__ == "__main__":
    main()
