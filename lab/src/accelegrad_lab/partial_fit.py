"""Measure `AcceleGradClassifier.partial_fit` on sparse rows against `SGDClassifier.partial_fit`.

Run: python -m accelegrad_lab.partial_fit

Both get the same chunks in turn. Other processes make single calls slower, never faster, so the
least CPU time of each call counts; the second ratio is that of the median times of a pass.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import SGDClassifier
from threadpoolctl import threadpool_limits

from accelegrad.sklearn import AcceleGradClassifier

ROWS, ENTRIES, CHUNK, REPEATS = 20_000, 60, 2_000, 20  # chosen
CASES = [(2, "auto"), (20, "ovr"), (20, "multinomial")]


def chunks(n_columns: int, n_classes: int) -> list[tuple[Any, Any]]:
    """Return sparse rows, in chunks, whose first columns are the most frequent ones."""
    rng = np.random.default_rng(0)
    columns = (n_columns * rng.random((ROWS, ENTRIES)) ** 3).astype(np.int32)
    ends = np.arange(0, columns.size + 1, ENTRIES, dtype=np.int32)
    X = sp.csr_array((rng.random(columns.size), columns.ravel(), ends), shape=(ROWS, n_columns))
    X.sum_duplicates()
    scores: Any = X @ rng.standard_normal((n_columns, n_classes))
    y = scores.argmax(axis=1)
    return [(X[k : k + CHUNK], y[k : k + CHUNK]) for k in range(0, ROWS, CHUNK)]


def ratios(n_columns: int, n_classes: int, multi_class: str) -> tuple[float, float]:
    """Return our CPU time divided by SGD's: by least times, and by medians."""
    data, classes = chunks(n_columns, n_classes), np.arange(n_classes)
    both = AcceleGradClassifier(multi_class=multi_class), SGDClassifier(loss="log_loss")

    def seconds(estimator: Any, X: Any, y: Any) -> float:
        begun = time.process_time()
        estimator.partial_fit(X, y, classes=classes)
        return time.process_time() - begun

    passes = [[[seconds(each, *part) for part in data] for each in both] for _ in range(REPEATS)]
    times = np.array(passes)[1:]  # the first pass compiles
    ours, theirs = times.min(axis=0).sum(axis=1)
    median, other = np.median(times.sum(axis=2), axis=0)
    return float(ours / theirs), float(median / other)


def main() -> None:
    """Print one line per case."""
    with threadpool_limits(1):
        for n_columns in (5_000, 50_000):
            for n_classes, multi_class in CASES:
                least, median = ratios(n_columns, n_classes, multi_class)
                name = f"{n_classes} classes ({multi_class}), {n_columns} columns"
                print(f"{name}: {least:.2f} times SGD's CPU time, {median:.2f} by medians")


if __name__ == "__main__":
    main()
