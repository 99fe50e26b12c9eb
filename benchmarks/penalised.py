"""l1 terms and bounds: processor time of a fit beside the specialists', with all their defaults.

Every fit is certified to 1e-3 by itself; the peers end as they do by default. Ours and the peers'
fits take turns, and the ratio is that of the medians. Columns are divided by their standard
deviation, or left as they are (raw). `alpha` is a share of the least one at which all weights are
zero.

- dense: Lasso, ElasticNet, Ridge and LinearRegression(positive=True) of scikit-learn, and SciPy's
  lsq_linear;
- text: Lasso of scikit-learn, celer and skglm (where they are installed), and
  LogisticRegression(l1, liblinear);
- cold: the first fit of a new process with an empty cache of compiled code, in seconds (--cold).

Run: OMP_NUM_THREADS=1 python benchmarks/penalised.py [--sets housing,pcmac] [--repeats 7] [--cold].
The data are looked for in the folder that ACCELEGRAD_DATA names; sets that are not there are left
out, and without any scikit-learn's small ones are used.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from statistics import geometric_mean, median
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import lsq_linear
from sklearn.datasets import load_diabetes
from sklearn.linear_model import ElasticNet, Lasso, LinearRegression, LogisticRegression, Ridge

import accelegrad as ag
from accelegrad.files import datasets
from accelegrad.sklearn import AcceleGradClassifier, AcceleGradRegressor

DENSE = ("housing", "cpusmall", "cadata", "ailerons", "abalone", "house_16H", "elevators")
TEXT = ("basehock", "pcmac", "svmlight_reuters_acq", "reuters_moneyfx", "rcv1_subsets_binary")
SHARES = (0.3, 0.1, 0.01)
BOX = 0.5  # the ends of a box, as a share of the largest weight without it

COLD = """
import time, numpy as np
from accelegrad.sklearn import AcceleGradRegressor
rng = np.random.default_rng(0)
X = rng.normal(size=(5000, 300))
y = X[:, :9].sum(1) + rng.normal(size=5000)
begun = time.perf_counter()
AcceleGradRegressor(penalty="l1", alpha=0.1).fit(X, y)
print(time.perf_counter() - begun)
"""


class Comparison(NamedTuple):
    """A fit of ours and one of a peer, of the same objective."""

    name: str
    ours: Callable[[], Any]
    peer: Callable[[], Any]


def main(arguments: list[str] | None = None) -> int:
    """Print a line for each comparison, and their geometric mean."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sets", default=",".join(DENSE + TEXT))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--cold", action="store_true", help="measure a first fit instead")
    given = parser.parse_args(arguments)
    if given.cold:
        print(f"first fit of a new process, empty cache: {cold_seconds():.2f} s")
        return 0
    ratios = []
    for name in given.sets.split(","):
        for one in comparisons(name):
            ours, peer = medians(one, given.repeats)
            ratios.append(ours / peer)
            print(f"{one.name}: {1e3 * ours:.2f} ms, peer {1e3 * peer:.2f} ms, {ratios[-1]:.2f}x")
    if ratios:
        within = sum(ratio <= 2.0 for ratio in ratios) / len(ratios)
        mean, most = geometric_mean(ratios), max(ratios)
        print(f"geometric mean {mean:.2f}x, within 2x {within:.0%}, at most {most:.2f}x")
    return 0


def medians(one: Comparison, repeats: int) -> tuple[float, float]:
    """Return the processor time of both, which take turns."""
    times: tuple[list[float], list[float]] = ([], [])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peers that miss their tolerance say so
        for turn in range(repeats + 1):
            for fit, taken in zip((one.ours, one.peer), times, strict=True):
                begun = time.process_time()
                fit()
                if turn > 0:  # the first warms up
                    taken.append(time.process_time() - begun)
    return median(times[0]), median(times[1])


def comparisons(name: str) -> Iterator[Comparison]:
    """Yield what is compared on a set."""
    found = read(name)
    if found is None:
        return
    X, y = found
    if sp.issparse(X) and X.shape[1] > 500:
        yield from on_text(
            name, X, np.where(y > np.median(y) - (y.max() == np.median(y)), 1.0, -1.0)
        )
        return
    X = np.asarray(X.toarray() if sp.issparse(X) else X)
    X = X[:, X.std(axis=0) > 0.0]
    yield from on_columns(name, X / X.std(axis=0), y)
    yield from on_columns(f"{name} raw", X, y)


def read(name: str) -> tuple[Any, Any] | None:
    """Return rows and targets, None where they are not there."""
    if not os.environ.get(datasets.DATA_FOLDER):
        return load_diabetes(return_X_y=True) if name == DENSE[0] else None
    path = datasets.find(name)
    if path is None:
        return None
    data = datasets.read(path)
    return data.X, np.asarray(data.y, dtype=np.float64)


def on_columns(name: str, X: Any, y: Any) -> Iterator[Comparison]:
    """Yield fits to few columns."""
    most = float(np.abs((y - y.mean()) @ X).max()) / len(y)
    for share in SHARES:
        alpha = share * most
        for penalty, peer in (("l1", Lasso(alpha=alpha)), ("elasticnet", ElasticNet(alpha=alpha))):
            ours = AcceleGradRegressor(penalty=penalty, alpha=alpha, l1_ratio=0.5)
            yield compared(f"{name}, {penalty}, {share:g}", ours, peer, X, y)
    ours = AcceleGradRegressor(alpha=1.0 / len(y), feasible_set="nonnegative")
    yield compared(f"{name}, nonnegative", ours, Ridge(positive=True), X, y)
    ours = AcceleGradRegressor(alpha=0.0, feasible_set="nonnegative")
    peer = LinearRegression(positive=True)
    yield compared(f"{name}, nonnegative, no penalty", ours, peer, X, y)
    size = BOX * float(np.abs(np.linalg.lstsq(X, y, rcond=None)[0]).max())
    model = ag.LinearModel(X, y, "squared")
    yield Comparison(
        f"{name}, box",
        lambda: checked(ag.minimize(model, feasible_set=ag.Box(-size, size), rtol=1e-3).success),
        lambda: lsq_linear(X, y, (-size, size)),
    )


def on_text(name: str, X: Any, y: Any) -> Iterator[Comparison]:
    """Yield fits to many columns, which peers get in the format that they want."""
    columns = sp.csc_matrix(X)
    most = float(np.abs(X.T @ (y - y.mean())).max()) / len(y)
    for share in SHARES:
        alpha = share * most
        ours = AcceleGradRegressor(penalty="l1", alpha=alpha)
        for library, peer in lassos(alpha):
            yield compared(f"{name}, l1, {share:g}, {library}", ours, peer, X, y, columns)
        peer = LogisticRegression(l1_ratio=1.0, solver="liblinear", C=1.0 / (alpha * len(y)))
        ours = AcceleGradClassifier("log_loss", penalty="l1", alpha=alpha)
        yield compared(f"{name}, l1 log_loss, {share:g}, liblinear", ours, peer, X, y, X)


def lassos(alpha: float) -> Iterator[tuple[str, Any]]:
    """Yield the solvers of the lasso that are installed."""
    yield "scikit-learn", Lasso(alpha=alpha)
    for library in ("celer", "skglm"):
        try:
            yield library, importlib.import_module(library).Lasso(alpha=alpha)
        except ImportError:
            continue


def compared(name: str, ours: Any, peer: Any, X: Any, y: Any, columns: Any = None) -> Comparison:
    """Return the fits of two estimators; `columns` is X as the peer wants it."""
    return Comparison(
        name,
        lambda: checked(ours.fit(X, y).converged_),
        lambda: peer.fit(X if columns is None else columns, y),
    )


def checked(reached: bool) -> None:
    """Refuse a fit that is not certified."""
    if not reached:
        raise RuntimeError("a fit of ours has missed its tolerance.")


def cold_seconds() -> float:
    """Return how long a first fit takes, the imports left out."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        command = [sys.executable, "-c", COLD]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


if __name__ == "__main__":
    sys.exit(main())
