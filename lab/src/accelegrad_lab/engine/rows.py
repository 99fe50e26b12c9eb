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
from scipy.optimize import brentq
from scipy.special import ndtri

Vector = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

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
    from accelegrad.files.tables import DataError
    from accelegrad_lab.datasets import find, read

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
# Text: `datasets.sparse_text` says how.


_TOPICS = 30
# How much the topics differ: the standard deviation of the log of a word's weight among them.
_TOPIC_CONTRAST = 1.7
# The least share of a document's first topic.
_LEAST_SHARE = 0.7
# Word frequencies fall as 1 / (rank + shift)^exponent: Zipf's law with Mandelbrot's correction.
_ZIPF_EXPONENT = 1.5
_ZIPF_SHIFT = 20.0
# The standard deviation of the log of the document lengths, about that of RCV1.
_LENGTH_SPREAD = 0.7


def random_documents(
    n: int, d: int, nnz: int, noise: float, rng: np.random.Generator
) -> tuple[sp.csr_matrix[np.float64], Vector]:
    """Return n documents over d words, nnz distinct ones in the mean, with their labels."""
    topics = _word_probabilities(d, rng)
    documents = _Documents.draw(n, rng)
    X = _tf_idf(documents.words(topics, documents.lengths(topics, nnz, rng), rng), (n, d))
    return X, documents.labels(noise, rng)


def _word_probabilities(d: int, rng: np.random.Generator) -> Vector:
    """Return the probabilities of d words (columns) in each topic (row)."""
    ranks = rng.permutation(d) + 1.0
    common = (ranks + _ZIPF_SHIFT) ** -_ZIPF_EXPONENT
    weights = common * np.exp(_TOPIC_CONTRAST * rng.standard_normal((_TOPICS, d)))
    probabilities: Vector = weights / weights.sum(axis=1, keepdims=True)
    return probabilities


class _Documents(NamedTuple):
    """Two topics for each document, and the share of the first."""

    first: Integers
    second: Integers
    share: Vector

    @classmethod
    def draw(cls, n: int, rng: np.random.Generator) -> _Documents:
        first, second = rng.integers(_TOPICS, size=(2, n))
        return cls(first, second, rng.uniform(_LEAST_SHARE, 1.0, size=n))

    def lengths(self, topics: Vector, nnz: int, rng: np.random.Generator) -> Integers:
        """Return the lengths in words at which nnz distinct ones are expected in the mean."""
        n = self.share.size
        distinct = _distinct_words(n, nnz, most=topics.shape[1] / 2)
        words, expected = self._vocabulary_growth(topics, distinct.max())
        real = np.exp(np.interp(np.log(rng.permutation(distinct)), np.log(expected), np.log(words)))
        # Rounded up or down by chance, so that short documents do not change the mean.
        lengths: Integers = np.floor(real + rng.random(n)).astype(np.int64)
        return lengths

    def _vocabulary_growth(self, topics: Vector, most: float) -> tuple[Vector, Vector]:
        """Return document lengths and the expected numbers of distinct words, up to `most`.

        These are means over one typical document of each first topic: some topics have a much
        smaller vocabulary than others.
        """
        share = 0.5 * (_LEAST_SHARE + 1.0)
        missed = np.log1p(-(share * topics + (1.0 - share) * np.roll(topics, 1, axis=0)))
        frequency = np.bincount(self.first, minlength=_TOPICS) / self.first.size
        words, expected = [1.0], [1.0]
        while expected[-1] < most:
            words.append(1.3 * words[-1])
            expected.append(float(frequency @ -np.expm1(words[-1] * missed).sum(axis=1)))
        return np.array(words), np.array(expected)

    def words(self, topics: Vector, lengths: Integers, rng: np.random.Generator) -> Integers:
        """Return the words of all documents, in any order, as row number * d + column number."""
        d = topics.shape[1]
        rows = np.repeat(np.arange(lengths.size, dtype=np.int64), lengths)
        from_first = rng.random(rows.size) < self.share[rows]
        topic = np.where(from_first, self.first[rows], self.second[rows])
        # The cumulative probabilities of topic k run from k to k + 1, so one search serves all.
        cumulative = np.cumsum(topics, axis=1)
        cumulative /= cumulative[:, -1:]
        cumulative += np.arange(_TOPICS)[:, None]
        found = np.searchsorted(cumulative.ravel(), topic + rng.random(rows.size), side="right")
        # The sum may be rounded up to the beginning of the next topic.
        entries: Integers = rows * d + np.minimum(found - topic * d, d - 1)
        return entries

    def labels(self, noise: float, rng: np.random.Generator) -> Vector:
        # Half of the topics on either side, so that few documents are near the border.
        sides = rng.permutation(np.where(np.arange(_TOPICS) % 2 == 0, -1.0, 1.0))
        weights = sides + 0.5 * rng.standard_normal(_TOPICS)
        scores = self.share * weights[self.first] + (1.0 - self.share) * weights[self.second]
        y = np.where(scores > np.median(scores), 1.0, -1.0)
        return np.where(rng.random(y.size) < noise, -y, y)


def _distinct_words(n: int, nnz: int, most: float) -> Vector:
    """Return n numbers >= 1 of mean nnz, the quantiles of a log-normal distribution cut at `most`.

    Quantiles and not random numbers, so that the mean is nnz also for few documents.
    """
    if nnz == 1:
        return np.ones(n)
    quantiles = np.exp(_LENGTH_SPREAD * ndtri((np.arange(n) + 0.5) / n))

    def excess(scale: float) -> float:
        return float(np.minimum(scale * quantiles, most - 1.0).mean()) - (nnz - 1.0)

    largest = (most - 1.0) / float(quantiles[0])
    scale = float(brentq(excess, 0.0, largest, xtol=1e-300, rtol=1e-15))
    return 1.0 + np.minimum(scale * quantiles, most - 1.0)


def _tf_idf(words: Integers, shape: tuple[int, int]) -> sp.csr_matrix[np.float64]:
    """Return the matrix with rows of norm 1 of words that are row number * d + column number."""
    n, d = shape
    entries, counts = np.unique(words, return_counts=True)
    rows, columns = np.divmod(entries, d)
    in_documents = np.bincount(columns, minlength=d)[columns]
    values = (1.0 + np.log(counts)) * np.log((1.0 + n) / in_documents)
    values /= np.sqrt(np.bincount(rows, weights=values**2, minlength=n))[rows]
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))])
    return sp.csr_matrix((values, columns, starts), shape=shape)


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
BUILT_IN = ("breast_cancer", "diabetes", "digits", "iris")

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
    **{name: partial(_built_in, name) for name in BUILT_IN},
    **{f"{name}-100": partial(_built_in, name, 100) for name in BUILT_IN},
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
