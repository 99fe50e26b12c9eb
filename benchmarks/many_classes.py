"""Many classes: certified fits next to scikit-learn's solvers of the same objective, as they come.

For each problem the fits take turns, and the least processor time of each counts. Peers are
`LogisticRegression` (lbfgs) and `LinearSVC` with the same penalty and their defaults else: they
stop where they like to. The column "short of it" tells how far their objective is above our proven
lower bound, relative to that (for LinearSVC, which penalises its intercept, nothing can be told).
Ours is certified to 1e-3.

Run: python benchmarks/many_classes.py [--rounds 3] [--only digits] [--loss hinge]. news20 is looked
for in the folder that ACCELEGRAD_DATA names, and left out if it is not there; its rows get the
length 1.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_digits, make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from accelegrad.files import datasets
from accelegrad.lab.report.tables import table_lines
from accelegrad.models.multinomial import MultinomialModel
from accelegrad.sklearn import AcceleGradClassifier

ALPHA = 1e-4
CLASSES = (2, 3, 5, 10, 30, 100)
HEAD = ("problem", "loss", "ours", "steps", "gap", "peer", "its steps", "short of it", "ratio")


class Data(NamedTuple):
    """Rows and labels by name."""

    name: str
    X: Any
    y: Any


def problems() -> Iterator[Data]:
    """Yield the data sets."""
    yield Data("digits", *load_digits(return_X_y=True))
    for k in CLASSES:
        yield Data(f"synthetic, {k} classes", *synthetic(k))
    path = datasets.find("news20")
    if path is not None:
        read = datasets.read(path)
        yield Data("news20", normalize(read.X), read.y)


def synthetic(k: int) -> tuple[Any, Any]:
    """Return 5000 rows of 50 columns."""
    return make_classification(  # type: ignore[no-any-return]
        5000, 50, n_informative=30, n_classes=k, n_clusters_per_class=1, random_state=0
    )


def fits(data: Data) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name of a loss, our estimator, and the peer."""
    strength = 1.0 / (ALPHA * len(data.y))
    yield "log_loss", AcceleGradClassifier(alpha=ALPHA), LogisticRegression(C=strength)
    hinge = LinearSVC(loss="hinge", C=strength)
    yield "hinge", AcceleGradClassifier("hinge", alpha=ALPHA), hinge


def seconds(estimator: Any, data: Data) -> tuple[Any, float]:
    """Return the fitted estimator and the processor time that it took."""
    estimator = clone(estimator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peers stop at their largest number of iterations
        begun = time.process_time()
        estimator.fit(data.X, data.y)
        return estimator, time.process_time() - begun


def shortfall(peer: Any, ours: Any, data: Data) -> str:
    """Return how far the peer's objective is above our lower bound, relative to that."""
    if not isinstance(peer, LogisticRegression) or len(peer.classes_) == 2:
        return ""
    places = np.searchsorted(peer.classes_, data.y)
    model = MultinomialModel(data.X, places, len(peer.classes_), l2=ALPHA, fit_intercept=True)
    value, _ = model.value_and_gradient(np.append(peer.coef_.ravel(), peer.intercept_))
    bound = ours.objective_ - ours.gap_
    return f"{value / bound - 1.0:.1e}"


def compared(data: Data, rounds: int, only: str) -> Iterator[tuple[str, ...]]:
    """Yield a row of the table for each loss."""
    for loss, ours, peer in fits(data):
        if only not in ("", loss):
            continue
        times = np.full((rounds, 2), np.inf)
        for turn in range(rounds):
            found, times[turn, 0] = seconds(ours, data)
            other, times[turn, 1] = seconds(peer, data)
        mine, its = times.min(axis=0)
        gap = f"{found.gap_ / found.objective_:.0e}" + ("" if found.converged_ else " (missed)")
        steps = str(np.max(other.n_iter_))
        short = shortfall(other, found, data)
        numbers = (f"{mine:.3f} s", str(found.n_iter_), gap, f"{its:.3f} s", steps, short)
        yield (data.name, loss, *numbers, f"{mine / its:.2f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="fits of each; the fastest counts")
    parser.add_argument("--only", default="", help="problems whose names begin with this")
    parser.add_argument("--loss", default="", choices=["", "log_loss", "hinge"])
    arguments = parser.parse_args()
    with threadpool_limits(1):
        rows = [
            row
            for data in problems()
            if data.name.startswith(arguments.only)
            for row in compared(data, arguments.rounds, arguments.loss)
        ]
    print("\n".join(table_lines(HEAD, rows)))


if __name__ == "__main__":
    main()
