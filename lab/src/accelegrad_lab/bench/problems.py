"""The problems of the benchmark suite: data sets, made comparable, times losses times strengths.

A set has two classes or numbers to predict, and gets the losses for that. Dense sets are
standardised and get a column of ones; sparse ones are divided by the largest entry of each column
where any entry is beyond [-1, 1]. No model has an intercept of its own: so all solvers have the
same objective, mean loss + l2/2 ||w||^2.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from accelegrad.errors import Vector, nearest
from accelegrad.models.linear_model import LinearModel
from accelegrad_lab.datasets import DATA_FOLDER, DataError, as_binary, read, sparse_text
from accelegrad_lab.engine.minimum import is_sparse
from accelegrad_lab.engine.peers import BENCH_LOSSES, CLASSES, SMOOTH
from accelegrad_lab.engine.stored_data import without_empty_columns
from accelegrad_lab.engine.synthetic import DENSE, Generated, made_classes, made_numbers

Matrix = npt.NDArray[np.float64]


MOST_CLASSES = 20  # labels 1..k or 0..k-1 are classes up to this k, and numbers beyond
TEST_HALF = ".t"  # what LIBSVM's names of test halves end with: they are no sets of their own


SUITE_LOSSES: Mapping[str, Mapping[str, float]] = {
    loss: {"quantile": 0.9} if loss == "quantile" else {} for loss in BENCH_LOSSES
}
"""The losses of the suite, with their parameters (Huber's is decided by the data)."""
WITHOUT_L2 = ("absolute", "quantile")  # also tried with l2 = 0, where some peers stand alone
STRENGTHS = (1.0, 0.01, 0.0)
"""l2 times the number of rows; 0 for the losses of `WITHOUT_L2` alone."""


@dataclass(frozen=True, eq=False)
class DataSet:
    """A data set as all solvers get it: X dense in C order, or CSR with indices of 32 bits."""

    name: str
    X: Any
    y: Vector
    classes: bool
    words: str

    @property
    def entries(self) -> int:
        """The stored entries of X."""
        return int(self.X.nnz if is_sparse(self.X) else self.X.size)

    @property
    def layout(self) -> str:
        """How X is stored."""
        return "CSR" if is_sparse(self.X) else "dense"

    def head(self, rows: int) -> DataSet:
        """Return the first rows (for classes: with both of them) as a set of its own."""
        chosen = np.arange(min(rows, self.y.size))
        if self.classes:
            chosen = np.union1d(chosen, [np.argmax(self.y > 0), np.argmax(self.y < 0)])
        return DataSet(self.name, self.X[chosen], self.y[chosen], self.classes, self.words)


@dataclass(frozen=True)
class Problem:
    """A set's name, a loss and a strength of l2; `options` are parameters that the data decide."""

    data: str
    loss: str
    strength: float
    options: Mapping[str, float] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """A name for it, unique in the suite."""
        return f"{self.data}/{self.loss}/{self.strength:g}"

    @property
    def smooth(self) -> bool:
        """Whether the loss is."""
        return self.loss in SMOOTH

    def model(self, data: DataSet) -> LinearModel:
        """Return the function to minimise."""
        options: dict[str, Any] = {**SUITE_LOSSES[self.loss], **self.options}
        return LinearModel(data.X, data.y, self.loss, l2=self.strength / data.y.size, **options)


def problems_of(
    data: DataSet, losses: Sequence[str], strengths: Sequence[float]
) -> Iterator[Problem]:
    """Go through the problems that a set is suitable for."""
    for name in losses:
        if (name in CLASSES) != data.classes:
            continue
        for strength in strengths:
            if strength > 0 or (name in WITHOUT_L2 and data.y.size > data.X.shape[1]):
                yield Problem(data.name, name, strength)


# -- sets ------------------------------------------------------------------------------------------

Source = Callable[[int], DataSet]  # from the most rows that are wanted (0: all)


def sources(names: Sequence[str] = (), *, quick: bool = False) -> dict[str, Source]:
    """Return the sets by name: those of ACCELEGRAD_DATA, or generated ones; quick: small ones.

    Parameters
    ----------
    names : sequence of str
        Which ones; by default all but the test halves, whose names end with ".t".
    quick : bool
        Small generated sets only, unless `names` asks for others.
    """
    stored = dict(_files())
    generated = {**BUILT_IN, **SMALL}
    for name in names:
        if name not in stored and name not in generated:
            known = {*stored, *generated}
            raise ValueError(f"there is no data set {name!r}: {nearest(name, known)}")
    if names:
        return {name: stored.get(name) or generated[name] for name in names}
    if quick:
        return dict(SMALL)
    halves = {name for name in stored if name.endswith(TEST_HALF)}
    return {n: s for n, s in stored.items() if n not in halves} or dict(BUILT_IN)


def _files() -> Iterator[tuple[str, Source]]:
    """Go through the data files of the folder that ACCELEGRAD_DATA names."""
    given = os.environ.get(DATA_FOLDER, "")
    if not given:
        return
    folder = Path(given)
    if not folder.is_dir():
        raise DataError(f"{folder}: {DATA_FOLDER} must name a folder of data files.")
    for path in sorted(folder.iterdir()):
        if path.suffix in (".bz2", ".gz", ".xz", ".svm", ".libsvm", ".txt"):
            name = path.name.removesuffix(path.suffix)
            yield name, partial(_from_file, path, name)


def _from_file(path: Path, name: str, most_rows: int) -> DataSet:
    found = read(path)
    return prepared(name, found.X, found.y, most_rows)


def prepared(name: str, X: Any, y: Vector, most_rows: int = 0) -> DataSet:
    """Return a set as solvers get it; of more than `most_rows` rows a random sample (seed 0)."""
    rows, words = y.size, f"{y.size} rows"
    classes, y = _targets(y)
    if most_rows and rows > most_rows:
        chosen = np.sort(np.random.default_rng(0).permutation(rows)[:most_rows])
        X, y, words = X[chosen], y[chosen], f"{most_rows} of {rows} rows"
    X = without_empty_columns(sp.csr_matrix(X))
    if X.nnz >= DENSE * X.shape[0] * X.shape[1]:
        X, treated = _standardised(X.toarray()), "standardised, a column of ones added"
    else:
        X, treated = _within_one(X)
    if not classes:
        y = (y - y.mean()) / (y.std() or 1.0)
        treated += "; targets standardised"
    columns, layout = X.shape[1], "CSR" if is_sparse(X) else "dense"
    return DataSet(name, X, y, classes, f"{words}, {columns} columns, {layout}, {treated}")


def _targets(y: Vector) -> tuple[bool, Vector]:
    """Tell whether targets are classes; of several classes the lower half is -1, the upper +1."""
    seen = np.unique(y)
    if seen.size == 2:
        return True, as_binary(y)
    counted = seen - seen[0]
    if seen.size <= MOST_CLASSES and seen[0] in (0, 1) and (counted == np.arange(seen.size)).all():
        return True, np.where(y >= seen[seen.size // 2], 1.0, -1.0)
    return False, y


def _standardised(X: Matrix) -> Matrix:
    """Return columns of mean 0 and deviation 1, without constant ones, and a column of ones."""
    deviation = X.std(axis=0)
    varied = deviation > 1e-12 * np.abs(X).max(axis=0)
    scaled = (X[:, varied] - X[:, varied].mean(axis=0)) / deviation[varied]
    return np.ascontiguousarray(np.column_stack([scaled, np.ones(X.shape[0])]))


def _within_one(X: Any) -> tuple[Any, str]:
    """Return a sparse matrix with entries in [-1, 1] and indices of 32 bits."""
    largest = np.asarray(abs(X).max(axis=0).todense()).ravel()
    words = "as it is"
    if largest.max() > 1:
        X, words = X @ sp.diags_array(1 / largest), "columns divided by their largest entry"
    X = sp.csr_matrix(X)
    X.sort_indices()
    parts = X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return sp.csr_matrix(parts, shape=X.shape), words


# -- generated sets --------------------------------------------------------------------------------


def made_text(n: int, d: int, nnz: int) -> Generated:
    """Make sparse rows of two classes, as documents have them."""
    made = sparse_text(n, d, nnz, seed=0)
    return made.X, made.y


def _generated(
    name: str, make: Callable[..., Generated], shape: tuple[int, ...], most_rows: int
) -> DataSet:
    return prepared(name, *make(*shape), most_rows)


def _named(*made: tuple[str, Callable[..., Generated], tuple[int, ...]]) -> dict[str, Source]:
    return {name: partial(_generated, name, make, shape) for name, make, shape in made}


BUILT_IN: Mapping[str, Source] = _named(
    ("text-20k", made_text, (20_242, 47_236, 74)),
    ("text-2k", made_text, (2_000, 10_000, 50)),
    ("classes-50k", made_classes, (50_000, 20)),
    ("classes-5k", made_classes, (5_000, 60)),
    ("classes-wide", made_classes, (200, 2_000)),
    ("numbers-45k", made_numbers, (45_000, 9)),
    ("numbers-20k", made_numbers, (20_640, 8)),
    ("numbers-5k", made_numbers, (5_000, 30)),
    ("numbers-500", made_numbers, (500, 13)),
)
SMALL: Mapping[str, Source] = _named(
    ("text-small", made_text, (1_000, 4_000, 30)),
    ("classes-small", made_classes, (2_000, 20)),
    ("numbers-small", made_numbers, (2_000, 10)),
)
