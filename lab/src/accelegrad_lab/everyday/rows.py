"""The data of everyday fits: files as they are and scaled, scikit-learn's small sets, made ones.

Nothing is added to the rows and no column is left out. "scaled" is what `StandardScaler` does:
columns of deviation 1, and mean 0 where they are dense; targets that are numbers are scaled too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from accelegrad_lab.datasets import DataError, find, read, sparse_text
from accelegrad_lab.engine.minimum import is_sparse
from accelegrad_lab.engine.synthetic import DENSE, made_classes, made_numbers

SCALED = ", scaled"
SAMPLE = 50_000  # rows that are taken of larger files, at random


class Rows(NamedTuple):
    """A data set: labels of any kind, or numbers."""

    X: Any
    y: npt.NDArray[Any]

    @property
    def words(self) -> str:
        """Its size."""
        n, d = self.X.shape
        kept = f"{self.X.nnz / n:.0f} entries a row" if is_sparse(self.X) else "dense"
        return f"{n} x {d}, {kept}"


Source = Callable[[], Rows]


class Stored(NamedTuple):
    """A file of the folder that ACCELEGRAD_DATA names."""

    name: str
    unit_rows: bool = False  # whether rows get the length 1

    def __call__(self) -> Rows:
        """Read it; of many rows a random sample is taken."""
        path = find(self.name)
        if path is None:
            raise DataError(f"{self.name}: there is no such file in the folder of data.")
        found = read(path)
        X, y = sp.csr_matrix(found.X), found.y
        if y.size > SAMPLE:
            chosen = np.sort(np.random.default_rng(0).permutation(y.size)[:SAMPLE])
            X, y = X[chosen], y[chosen]
        if self.unit_rows:
            from sklearn.preprocessing import normalize

            X = normalize(X)
        return Rows(stored_well(X), y)

    @property
    def is_there(self) -> bool:
        """Whether the file is."""
        return find(self.name) is not None


def stored_well(X: Any) -> Any:
    """Return a sparse matrix as a dense array where it is none really."""
    if X.nnz >= DENSE * X.shape[0] * X.shape[1]:
        return X.toarray()
    X.sort_indices()
    return X


def scaled(rows: Rows) -> Rows:
    """Return rows as `StandardScaler` would hand them on."""
    from sklearn.preprocessing import StandardScaler

    X = StandardScaler(with_mean=not is_sparse(rows.X)).fit_transform(rows.X)
    return Rows(X, rows.y)


def with_scaled_targets(rows: Rows) -> Rows:
    """Return rows whose targets have mean 0 and deviation 1."""
    return rows._replace(y=(rows.y - rows.y.mean()) / (rows.y.std() or 1.0))


def _text(n: int, d: int, nnz: int) -> Rows:
    made = sparse_text(n, d, nnz, seed=0)
    return Rows(made.X, made.y)


def _of_classes(n: int, k: int) -> Rows:
    from sklearn.datasets import make_classification

    return Rows(
        *make_classification(
            n, 50, n_informative=30, n_classes=k, n_clusters_per_class=1, random_state=0
        )
    )


def _built_in(name: str) -> Rows:
    from sklearn import datasets

    return Rows(*getattr(datasets, f"load_{name}")(return_X_y=True))


def _head(source: Source, n: int) -> Rows:
    """Return some rows of a set, at random."""
    rows = source()
    chosen = np.random.default_rng(0).permutation(rows.y.size)[:n]
    return Rows(rows.X[chosen], rows.y[chosen])


TEXT = (
    "svmlight_reuters_acq", "basehock", "pcmac", "relathe", "reuters_moneyfx",
    "rcv1_subsets_binary",
)  # fmt: skip
SHORT_ROWS = (
    "spambase", "magic04", "ijcnn1", "phishing", "mushrooms", "a9a", "w8a", "covtype.binary.scale",
)  # fmt: skip
NUMBERS = (
    "bodyfat", "housing", "abalone", "cpusmall", "ailerons", "pol", "elevators", "cadata", "casp",
)  # fmt: skip

MADE: Mapping[str, Source] = {
    "sparse-1e4": partial(_text, 10_000, 100_000, 23),
    "sparse-1e5": partial(_text, 100_000, 100_000, 23),
    "sparse-5e5": partial(_text, 500_000, 100_000, 23),
    "text-small": partial(_text, 1_000, 4_000, 30),
    "classes-small": lambda: Rows(*made_classes(2_000, 20)),
    "numbers-small": lambda: Rows(*made_numbers(2_000, 10)),
    **{f"{k}-classes": partial(_of_classes, 5_000, k) for k in (3, 10, 30, 100)},
    "5-classes-small": partial(_of_classes, 1_000, 5),
    **{name: partial(_built_in, name) for name in ("breast_cancer", "diabetes", "digits", "iris")},
    "breast_cancer-100": partial(_head, partial(_built_in, "breast_cancer"), 100),
    "diabetes-100": partial(_head, partial(_built_in, "diabetes"), 100),
    "iris-100": partial(_head, partial(_built_in, "iris"), 100),
}
STORED: Mapping[str, Stored] = {
    **{name: Stored(name) for name in (*TEXT, *SHORT_ROWS, *NUMBERS)},
    "news20": Stored("news20", unit_rows=True),
}
REGRESSIONS = frozenset({*NUMBERS, "numbers-small", "diabetes", "diabetes-100"})
"""The sets with numbers to predict; others have classes."""


def is_there(name: str) -> bool:
    """Tell whether a set can be had on this machine."""
    name = name.removesuffix(SCALED)
    return name in MADE or STORED[name].is_there


def rows_of(name: str) -> Rows:
    """Return a set by name; ", scaled" at its end asks for scaled columns, and scaled numbers."""
    plain = name.removesuffix(SCALED)
    rows = (MADE.get(plain) or STORED[plain])()
    if plain == name:
        return rows
    rows = scaled(rows)
    return with_scaled_targets(rows) if plain in REGRESSIONS else rows
