"""The data of all fits: files of ACCELEGRAD_DATA, scikit-learn's small sets, and made ones.

Only files need the library, which reads them.

The end of a name says what is done to the rows: ", scaled" is what `StandardScaler` does (columns
of deviation 1, and mean 0 where they are dense; targets that are numbers are scaled too), and
", prepared" is for objectives without an intercept (scaled, and a column of ones is added; sparse
columns are divided by their largest entry instead).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from accelegrad_lab.sparse_text import random_documents

SCALED, PREPARED = ", scaled", ", prepared"
SAMPLE = 50_000  # rows that are taken of larger files, at random; chosen, for time
DENSE = 0.25  # from this share of non-zeros on, a set is stored as a dense array


class Rows(NamedTuple):
    """A data set: labels of any kind, or numbers."""

    X: Any
    y: npt.NDArray[Any]

    @property
    def words(self) -> str:
        """Its size."""
        n, d = self.X.shape
        kept = f"{self.X.nnz / n:.0f} entries per row" if is_sparse(self.X) else "dense"
        return f"{n} x {d}, {kept}"

    def head(self, count: int) -> Rows:
        """Return some rows, at least one of each class where there are classes."""
        chosen = np.arange(min(count, self.y.size))
        labels, firsts = np.unique(self.y, return_index=True)
        if labels.size <= count:
            chosen = np.union1d(chosen, firsts)
        return Rows(self.X[chosen], self.y[chosen])


def is_sparse(X: Any) -> bool:
    """Tell whether a matrix is sparse; unlike SciPy's function, this says nothing of its type."""
    return bool(sp.issparse(X))


def _stored(name: str) -> Rows:
    """Read a file; of many rows a random sample is taken."""
    from accelegrad_lab.datasets import DataError, find, read

    path = find(name)
    if path is None:
        raise DataError(f"{name}: there is no such file in the folder of data.")
    found = read(path)
    X, y = sp.csr_matrix(found.X), found.y
    if y.size > SAMPLE:
        chosen = np.sort(np.random.default_rng(0).permutation(y.size)[:SAMPLE])
        X, y = X[chosen], y[chosen]
    if name == "news20":  # counts of words: rows get the length 1
        from sklearn.preprocessing import normalize

        X = normalize(X)
    if X.nnz >= DENSE * X.shape[0] * X.shape[1]:
        return Rows(X.toarray(), y)
    X.sort_indices()
    return Rows(X, y)


def _scaled(rows: Rows) -> Rows:
    from sklearn.preprocessing import StandardScaler

    X = StandardScaler(with_mean=not is_sparse(rows.X)).fit_transform(rows.X)
    return Rows(X, rows.y)


def _prepared(rows: Rows) -> Rows:
    from sklearn.preprocessing import MaxAbsScaler

    if is_sparse(rows.X):
        return Rows(sp.csr_matrix(MaxAbsScaler().fit_transform(rows.X)), rows.y)
    X = _scaled(rows).X
    varied = X.std(axis=0) > 0
    return Rows(np.column_stack([X[:, varied], np.ones(X.shape[0])]), rows.y)


# -- made ------------------------------------------------------------------------------------------


def _text(n: int, d: int, nnz: int) -> Rows:
    return Rows(*random_documents(n, d, nnz, 0.05, np.random.default_rng(0)))


def _text_numbers(n: int, d: int, nnz: int) -> Rows:
    """Make noisy linear functions of texts."""
    X, rng = _text(n, d, nnz).X, np.random.default_rng(2)
    return Rows(X, X @ rng.standard_normal(d) + 0.3 * rng.standard_normal(n))


def _correlated(rng: np.random.Generator, n: int, d: int) -> Any:
    """Return correlated columns with heavy tails."""
    mixing = np.eye(d) + rng.standard_normal((d, d)) / np.sqrt(d)
    return rng.standard_t(4, (n, d)) @ mixing


def _made_classes(n: int, d: int) -> Rows:
    """Make two classes that overlap."""
    rng = np.random.default_rng(1)
    X = _correlated(rng, n, d)
    margins = X @ rng.standard_normal(d) / np.sqrt(d) + rng.logistic(size=n)
    return Rows(X, np.where(margins > 0, 1.0, -1.0))


def _made_numbers(n: int, d: int) -> Rows:
    """Make a regression whose noise has heavy tails and grows with the first column."""
    rng = np.random.default_rng(2)
    X = _correlated(rng, n, d)
    noise = rng.standard_t(3, n) * (0.5 + 0.2 * np.abs(X[:, 0]))
    return Rows(X, X @ rng.standard_normal(d) / np.sqrt(d) + noise)


def _of_classes(n: int, k: int) -> Rows:
    from sklearn.datasets import make_classification

    return Rows(
        *make_classification(
            n, 50, n_informative=30, n_classes=k, n_clusters_per_class=1, random_state=0
        )
    )


def _built_in(name: str, rows: int | None = None) -> Rows:
    """Return a set of scikit-learn's, or some rows of it at random."""
    from sklearn import datasets

    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    chosen = np.random.default_rng(0).permutation(y.size)[:rows]
    return Rows(X, y) if rows is None else Rows(X[chosen], y[chosen])


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

MADE: Mapping[str, Callable[[], Rows]] = {
    "sparse-1e4": partial(_text, 10_000, 100_000, 23),
    "sparse-1e5": partial(_text, 100_000, 100_000, 23),
    "sparse-5e5": partial(_text, 500_000, 100_000, 23),
    "text-small": partial(_text, 1_000, 4_000, 30),
    "classes-small": partial(_made_classes, 2_000, 20),
    "numbers-small": partial(_made_numbers, 2_000, 10),
    "text-20k": partial(_text, 20_242, 47_236, 74),
    "classes-50k": partial(_made_classes, 50_000, 20),
    "classes-wide": partial(_made_classes, 200, 2_000),
    "numbers-45k": partial(_made_numbers, 45_000, 9),
    # Shapes drawn at random, log-uniform with 1e4 to 1e6 entries.
    "tall": partial(_made_classes, 20_000, 20),
    "square": partial(_made_classes, 600, 430),
    "numbers-5k": partial(_made_numbers, 5_000, 30),
    "many-numbers": partial(_made_numbers, 17_000, 51),
    "wide-numbers": partial(_made_numbers, 150, 700),
    "short-text": partial(_text, 12_000, 900, 9),
    "text-numbers": partial(_text_numbers, 3_000, 4_000, 25),
    **{f"{k}-classes": partial(_of_classes, 5_000, k) for k in (3, 10, 30, 100)},
    "5-classes-small": partial(_of_classes, 1_000, 5),
    **{name: partial(_built_in, name) for name in ("breast_cancer", "diabetes", "digits", "iris")},
    **{
        f"{name}-100": partial(_built_in, name, 100)
        for name in ("breast_cancer", "diabetes", "iris")
    },
}
REGRESSIONS = frozenset(
    {*NUMBERS, "diabetes", "diabetes-100", *(name for name in MADE if "numbers" in name)}
)
"""The sets with numbers to predict; others have classes."""


def plain_name(name: str) -> str:
    """Return the name of a set without what is done to its rows."""
    return name.removesuffix(SCALED).removesuffix(PREPARED)


def is_there(name: str) -> bool:
    """Tell whether a set can be had on this machine."""
    from accelegrad_lab.datasets import find

    return plain_name(name) in MADE or find(plain_name(name)) is not None


def rows_of(name: str) -> Rows:
    """Return a set by name; indices of sparse rows have 32 bits, as LIBLINEAR wants them."""
    plain = plain_name(name)
    rows = MADE[plain]() if plain in MADE else _stored(plain)
    if name != plain:
        rows = (_scaled if name.endswith(SCALED) else _prepared)(rows)
        if plain in REGRESSIONS:
            rows = rows._replace(y=(rows.y - rows.y.mean()) / rows.y.std())
    if is_sparse(rows.X):
        parts = rows.X.data, rows.X.indices.astype(np.int32), rows.X.indptr.astype(np.int32)
        rows = rows._replace(X=sp.csr_matrix(parts, shape=rows.X.shape))
    return rows
