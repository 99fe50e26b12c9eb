"""Memory: how much a run takes beyond X, by every solver path of a LinearModel and the estimators.

Each path runs in a process of its own. X is read from a file, so that nothing but X has been in
memory before; kernels are loaded with a small run first. What is reported is the peak of the
resident set during the run, less that before it, over the size of X: a copy of X would make it 1.
Cross-validation needs the rows of one fold's fits at a time, four fifths of X, and may have them.

Run: OMP_NUM_THREADS=1 python benchmarks/memory.py [--megabytes 256] [--only l1,hinge]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import accelegrad as ag
from accelegrad.sklearn import (
    AcceleGradClassifier,
    AcceleGradClassifierCV,
    AcceleGradRegressor,
    AcceleGradRegressorCV,
)

Call = Callable[[Any, Any, int], None]  # of rows, classes and the most iterations
#: Of X: more than this would be a copy of a good part of it.
MOST = 0.5
COLUMNS = 400  # so that vectors with an entry a row weigh little against X
PATHS: dict[str, dict[str, Any]] = {
    "default, logistic": {"loss": "logistic"},
    "default, hinge": {"loss": "hinge"},
    "default, logistic, intercept": {"loss": "logistic", "fit_intercept": True},
    "default, squared, l2 = 0": {"loss": "squared", "l2": 0.0},
    "default, absolute, l2 = 0": {"loss": "absolute", "l2": 0.0},
    "accelegrad": {"loss": "logistic", "method": "accelegrad"},
    "accelegrad, unscaled": {"loss": "logistic", "method": "accelegrad", "scale": None},
    "dual-ascent": {"loss": "hinge", "method": "dual-ascent"},
    "unixgrad, box": {"loss": "logistic", "feasible_set": ag.Box(-1, 1), "diameter": 1.0},
    "default, hinge, intercept": {"loss": "hinge", "fit_intercept": True},
    "dual-ascent, intercept": {"loss": "hinge", "method": "dual-ascent", "fit_intercept": True},
    "l1 penalty": {"loss": "logistic", "penalty": ag.L1(1e-3)},
    "l1 penalty, squared": {"loss": "squared", "penalty": ag.L1(1e-3), "l2": 0.0},
    "l1 penalty, hinge": {"loss": "hinge", "penalty": ag.L1(1e-3)},
    "elastic net, squared": {"loss": "squared", "penalty": ag.ElasticNet(1e-3, 0.5)},
    "box, logistic": {"loss": "logistic", "feasible_set": ag.Box(-1, 1)},
    "nonnegative, squared": {"loss": "squared", "feasible_set": ag.NonNegative()},
    "batch_size=1": {"loss": "logistic", "batch_size": 1, "max_iter": 20_000},
    "batch_size=256": {"loss": "logistic", "batch_size": 256, "max_iter": 500},
    "adagrad, batch_size=8": {
        "loss": "hinge",
        "method": "adagrad",
        "batch_size": 8,
        "max_iter": 5000,
    },
    "AcceleGradClassifier, hinge": {"estimator": AcceleGradClassifier("hinge")},
    "AcceleGradClassifier, 5 classes": {"estimator": AcceleGradClassifier(), "classes": 5},
    "AcceleGradClassifier, hinge, 5 classes": {
        "estimator": AcceleGradClassifier("hinge"),
        "classes": 5,
    },
    "AcceleGradRegressor": {"estimator": AcceleGradRegressor()},
    "AcceleGradRegressor, l1": {"estimator": AcceleGradRegressor(penalty="l1", alpha=1e-2)},
    "AcceleGradClassifierCV": {"estimator": AcceleGradClassifierCV(alphas=2), "most": 1.0},
    "AcceleGradRegressorCV": {"estimator": AcceleGradRegressorCV(alphas=2), "most": 1.0},
}


def main() -> None:
    """Print the table, and end with an error where a path takes too much."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=256, help="of X (256)")
    parser.add_argument("--only", default="", help="parts of the names of paths, with commas")
    given = parser.parse_args()
    wanted = given.only.split(",")
    print("| path | dense | CSR |\n| --- | ---: | ---: |")
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("dense", "csr"):
            _write(Path(folder), kind, given.megabytes << 20)
        for path in PATHS:
            if not any(part in path for part in wanted):
                continue
            shares = [_measured(folder, kind, path) for kind in ("dense", "csr")]
            worst = max(worst, max(shares) * MOST / PATHS[path].get("most", MOST))
            print(f"| {path} | {' | '.join(f'{share:.2f}' for share in shares)} |", flush=True)
    print(
        f"\nMost: {worst:.2f} of X (cross-validation: halved); the target is below {MOST}: a copy "
        "would be 1."
    )
    sys.exit(worst >= MOST)


def _write(folder: Path, kind: str, size: int) -> None:
    rng = np.random.default_rng(0)
    if kind == "dense":
        n = size // (8 * COLUMNS)
        np.save(folder / "dense.npy", rng.standard_normal((n, COLUMNS)))
        return
    filled = COLUMNS // 2  # entries of a row, of 12 bytes each
    n = size // (12 * filled)
    columns = (rng.integers(2, size=(n, filled)) + 2 * np.arange(filled)).ravel()
    np.save(folder / "data.npy", rng.standard_normal(n * filled))
    np.save(folder / "indices.npy", columns.astype(np.int32))
    np.save(folder / "indptr.npy", (np.arange(n + 1) * filled).astype(np.int32))


def _measured(folder: str, kind: str, path: str) -> float:
    """Return the share of X that a path takes, measured in a new process."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        found: str = pool.apply(_run, (folder, kind, path))
    return float(json.loads(found))


def _run(folder: str, kind: str, path: str) -> str:
    X = _read(Path(folder), kind)
    call = _fit(PATHS[path]) if "estimator" in PATHS[path] else _minimise(PATHS[path])
    classes = np.random.default_rng(1).integers(PATHS[path].get("classes", 2), size=X.shape[0])
    few = 20_000  # enough for all kernels to be loaded
    call(X[:few], classes[:few], 3)
    before = _peak()
    call(X, classes, 12)
    size = X.nbytes if isinstance(X, np.ndarray) else X.data.nbytes + X.indices.nbytes
    return json.dumps((_peak() - before) / size)


def _minimise(given: dict[str, Any]) -> Call:
    """Return how to minimise a model, some iterations long unless the path says how many."""
    options = {"rng": 0, **given}
    loss, l2 = options.pop("loss"), options.pop("l2", 1e-4)
    fit_intercept = options.pop("fit_intercept", False)

    def call(X: Any, classes: Any, max_iter: int) -> None:
        y = np.where(classes > 0, 1.0, -1.0)
        model = ag.LinearModel(X, y, loss, l2=l2, fit_intercept=fit_intercept)
        ag.minimize(model, **{"max_iter": max_iter, **options})

    return call


def _fit(given: dict[str, Any]) -> Call:
    """Return how to fit an estimator."""

    def call(X: Any, classes: Any, max_iter: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # some iterations are not enough
            clone(given["estimator"]).set_params(max_iter=max_iter).fit(X, classes)

    return call


def _read(folder: Path, kind: str) -> Any:
    if kind == "dense":
        return np.load(folder / "dense.npy")
    parts = [np.load(folder / f"{name}.npy") for name in ("data", "indices", "indptr")]
    return sp.csr_matrix(tuple(parts), shape=(parts[2].size - 1, COLUMNS))


def _peak() -> float:
    """Return the most memory that this process has had so far, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return float(unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


if __name__ == "__main__":
    main()
