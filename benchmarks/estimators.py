"""The scikit-learn estimators with their default settings: test accuracy, and raw columns.

Two tables:

- test accuracy: our defaults, and the form that chooses alpha itself, next to peers of scikit-learn
  whose strength is chosen by cross-validation on the same grid; differences are in points of a
  hundred. All columns are divided by their standard deviation, for everybody.
- raw columns: our defaults on data as they come.

One thread, one run after the other. That the estimators minimise what scikit-learn's solvers of the
same objective do is tested (tests/estimators/test_sklearn_agreement.py), and `accelegrad bench`
compares their times.

Run: python benchmarks/estimators.py [--rows 10000] [--sets a9a,abalone] [--out FILE]. The data are
looked for in the folder that ACCELEGRAD_DATA names; sets that are not there are left out, and
without any scikit-learn's small ones are used.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from accelegrad.files import datasets
from accelegrad.lab.engine.timing import timed
from accelegrad.lab.report.tables import put, table_line, table_lines
from accelegrad.sklearn import AcceleGradClassifier, AcceleGradClassifierCV, AcceleGradRegressor
from accelegrad.sklearn.cv import strengths_to_try

CLASSES = (
    "a9a", "ijcnn1", "w8a", "mushrooms", "phishing", "spambase", "magic04", "madelon", "basehock",
    "pcmac", "relathe", "sylva", "covtype.binary.scale",
)  # fmt: skip
NUMBERS = ("abalone", "bodyfat", "cadata", "cpusmall", "housing", "casp", "house_16H", "elevators")
STRENGTHS = strengths_to_try(AcceleGradClassifierCV().alphas)
MOST_TESTED = 40_000
# Splits: more where the test part is small, unless a fit of the peers takes its time.
FEWEST_SPLITS, MOST_SPLITS, ENOUGH_TESTED, MANY_ENTRIES = 2, 8, 8000, 1_000_000
AIM = 0.2  # points of a hundred behind the best tuned peer


class Data(NamedTuple):
    """Rows and targets by name."""

    name: str
    X: Any
    y: Any


def find(names: Iterable[str], small: Callable[..., Any]) -> list[Data]:
    """Return whole sets, in a random order of rows; one of scikit-learn's without any data."""
    if not os.environ.get(datasets.DATA_FOLDER):
        found = [Data(small.__name__.removeprefix("load_"), *small(return_X_y=True))]
    else:
        paths = ((name, datasets.find(name)) for name in names)
        sets = ((name, datasets.read(path)) for name, path in paths if path is not None)
        found = [Data(name, read.X, read.y) for name, read in sets]
    return [part(data, np.random.default_rng(0).permutation(data.y.size)) for data in found]


def part(data: Data, rows: Any) -> Data:
    return Data(data.name, data.X[rows], data.y[rows])


def with_signs(data: Data) -> Data:
    return data._replace(y=np.where(data.y == data.y.max(), 1.0, -1.0))


def clocked(estimator: Any, data: Data) -> float:
    return timed(lambda: estimator.fit(data.X, data.y))[1]


def yes(condition: Any) -> str:
    return "yes" if condition else "no"


class Table:
    """Rows of cells, with a yes or no each."""

    def __init__(self, *head: str) -> None:
        self.head = head
        self.verdicts: list[bool] = []

    def top(self) -> Iterator[str]:
        yield ""
        yield from table_lines(self.head, [])

    def row(self, verdict: Any, *cells: Any) -> str:
        assert len(cells) == len(self.head), cells
        self.verdicts.append(bool(verdict))
        return table_line(cells)

    def count(self) -> str:
        return f"{sum(self.verdicts)} of {len(self.verdicts)}"


# -- test accuracy --------------------------------------------------------------------------------


def tuned(n: int) -> dict[str, Any]:
    costs = 1 / (STRENGTHS * n)
    grids = {
        "LogisticRegression": (LogisticRegression(max_iter=300), {"C": costs}),
        "LinearSVC": (LinearSVC(max_iter=1000), {"C": costs}),
        "SGDClassifier": (SGDClassifier(random_state=0, average=True), {"alpha": STRENGTHS}),
    }
    return {name: GridSearchCV(peer, grid, cv=5) for name, (peer, grid) in grids.items()}


class Split(NamedTuple):
    """What one split gave: hits on the test part (0 or 100, a row each) and seconds, by name."""

    right: dict[str, Any]
    seconds: dict[str, float]


OURS = {"defaults": AcceleGradClassifier(), "CV": AcceleGradClassifierCV(scoring="accuracy")}


def on_split(data: Data, learnt: int, seed: int) -> Split:
    data = part(data, np.random.default_rng(seed).permutation(data.y.size))
    train = part(data, slice(learnt))
    test = part(data, slice(learnt, learnt + MOST_TESTED))
    split = Split({}, {})
    for name, estimator in (OURS | tuned(learnt)).items():
        fitted = make_pipeline(StandardScaler(with_mean=False), clone(estimator))
        split.seconds[name] = clocked(fitted, train)
        split.right[name] = 100.0 * (fitted.predict(test.X) == test.y)
    return split


def count_splits(data: Data, tested: int) -> int:
    """Return how many splits to take the mean of."""
    entries = data.X.nnz if hasattr(data.X, "tocsr") else data.X.size
    wanted = FEWEST_SPLITS if entries > MANY_ENTRIES else -(-ENOUGH_TESTED // tested)
    return min(max(wanted, FEWEST_SPLITS), MOST_SPLITS)


def accuracy(table: Table, data: Data, rows: int) -> str:
    learnt = min(3 * data.y.size // 4, rows)
    tested = min(data.y.size - learnt, MOST_TESTED)
    splits = [on_split(data, learnt, seed) for seed in range(count_splits(data, tested))]
    names = splits[0].right
    scores = {name: np.mean([split.right[name].mean() for split in splits]) for name in names}
    seconds = {name: np.mean([split.seconds[name] for split in splits]) for name in names}
    best = max(tuned(1), key=scores.__getitem__)
    count = splits[0].right[best].size

    def error(name: str) -> float:
        """Return the standard error on one split: test parts overlap, so more do not add up."""
        variances = [(split.right[name] - split.right[best]).var() for split in splits]
        return float(np.sqrt(np.mean(variances) / count))

    held = scores["CV"] - scores[best] >= -AIM
    return table.row(
        held,
        data.name,
        f"{learnt} + {count}",
        f"{len(splits)}",
        f"{AIM / 100 * count:.1f}",
        *(f"{score:.2f}" for score in scores.values()),
        *(f"{scores[name] - scores[best]:+.2f} ± {error(name):.2f}" for name in OURS),
        yes(held),
        *(f"{seconds[name]:.2f}" for name in OURS),
        f"{sum(seconds[name] for name in tuned(1)):.2f}",
    )


def accuracies(classes: list[Data], rows: int) -> Iterator[str]:
    table = Table(
        "set", "rows: train + test", "splits", f"{AIM} points are rows", "defaults, %", "CV, %",
        *(f"{name}, %" for name in tuned(1)), "defaults to the best", "CV to the best",
        f"CV within {AIM}", "s", "CV's s", "peers' s",
    )  # fmt: skip
    yield "\n## Test accuracy"
    yield from table.top()
    yield from (accuracy(table, data, rows) for data in classes)
    yield (
        f"\nAcceleGradClassifierCV(scoring='accuracy') is within {AIM} points of the best of "
        f'three tuned peers on {table.count()} sets. "±" is the standard error of the difference, '
        "on one split, from the rows on which the two differ; scores are means of "
        "all splits, and the best of three is the luckiest too. The peers' strengths are "
        f"chosen by 5-fold cross-validation from the same {STRENGTHS.size} values."
    )


# -- raw columns ----------------------------------------------------------------------------------


def raw(table: Table, estimator: Any, data: Data) -> str:
    seconds = clocked(estimator, data)
    rows, columns = data.X.shape
    entries = np.abs(data.X.data if hasattr(data.X, "tocsr") else data.X)
    return table.row(
        estimator.converged_,
        data.name,
        f"{rows} x {columns}",
        f"{entries[entries > 0].min():.1g} to {entries.max():.1g}",
        estimator.loss,
        f"{estimator.objective_:.6g}",
        f"{estimator.gap_ / estimator.objective_:.1e}",
        yes(estimator.converged_),
        estimator.n_iter_,
        f"{seconds:.2f}",
    )


def raws(classes: list[Data], numbers: list[Data]) -> Iterator[str]:
    table = Table(
        "set", "rows x columns", "entries", "loss", "objective", "proved", "met tol", "steps", "s"
    )
    yield "\n## Raw columns"
    yield from table.top()
    for data in classes:
        yield raw(table, AcceleGradClassifier(), data)
    for data in numbers:
        for loss in ("squared_error", "huber", "absolute_error"):
            yield raw(table, AcceleGradRegressor(loss), data)
    yield f"\n{table.count()} fits of raw columns meet the default tolerance, and prove it."


# -- the report -----------------------------------------------------------------------------------


def report(options: argparse.Namespace) -> Iterator[str]:
    wanted = options.sets.split(",") if options.sets else (*CLASSES, *NUMBERS)
    whole = list(map(with_signs, find([n for n in CLASSES if n in wanted], load_breast_cancer)))
    numbers = find([n for n in NUMBERS if n in wanted], load_diabetes)
    head = slice(options.rows)
    classes, numbers = ([part(data, head) for data in sets] for sets in (whole, numbers))
    yield "# The estimators next to scikit-learn's own\n"
    yield (
        f"`python benchmarks/estimators.py`, {datetime.now(UTC):%Y-%m-%d}, at most {options.rows} "
        f"rows of a set to learn from; one thread of {os.cpu_count()}."
    )
    yield from accuracies(whole, options.rows)
    yield from raws(classes, numbers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000, help="most rows to learn from")
    parser.add_argument("--sets", default="", help="names, with commas between them")
    parser.add_argument("--out", type=Path, help="the file for the tables")
    options = parser.parse_args()
    lines = []
    with threadpool_limits(1):
        for line in report(options):
            print(line)
            sys.stdout.flush()
            lines.append(line)
    if options.out is not None:
        put(options.out, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
