"""Data sets: files in LIBSVM or CSV format, and sparse text-like data made from a seed.

Files may be compressed by bzip2, gzip or xz. They are parsed by compiled code; only where that
fails, or gives something doubtful, a slow pass over the lines finds the first one that is wrong.
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.optimize import brentq
from scipy.special import ndtri

from accelegrad.data.csv_text import (
    check_csv,
    csv_rows,
    csv_start,
    parse_csv,
    quote_fault,
    separator_of,
    target_column,
    wrong_quotes,
)
from accelegrad.data.data_text import (
    COMPRESSIONS,
    DataError,
    as_unicode,
    check_number,
    content_pieces,
    numbered_lines,
    plain_lines,
    shown,
)
from accelegrad.errors import Vector, finite_vector, real_number, whole_number

__all__ = ["DATA_FOLDER", "DataError", "Dataset", "as_binary", "find", "read", "sparse_text"]

Matrix = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

DATA_FOLDER = "ACCELEGRAD_DATA"
"""The environment variable that names the folder of data files."""

# The endings that `find` tries, in this order.
_ENDINGS = ("", ".bz2", ".gz", ".xz", ".txt", ".svm", ".libsvm")
_FORMAT_ENDINGS = (".csv", ".tsv", ".tab", ".txt", ".svm", ".libsvm")
_PIECE = 1 << 20
# LIBSVM programs keep an index in a C int.
_LARGEST_INDEX = 2**31 - 1
# An index beyond this many columns is almost surely a mistake (two tokens run together, say).
MOST_COLUMNS = 100_000_000


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A matrix of features with a target for each row.

    Attributes
    ----------
    name : str
        The name of the file without endings of compression and format, or of the generator.
    X : CSR matrix or array of shape (n_samples, n_features)
        The features in float64: sparse from LIBSVM files and `sparse_text`, dense from CSV files.
    y : Vector
        The targets in float64.
    source : str
        The path as it was given, or the call of the generator.
    """

    name: str
    X: sp.csr_matrix[np.float64] | Matrix
    y: Vector
    source: str

    def __repr__(self) -> str:
        return f"Dataset({self.description})"

    @property
    def description(self) -> str:
        """The size, the number of entries that are not 0, and the targets, in one line."""
        entries = self.X if isinstance(self.X, np.ndarray) else self.X.data
        n, d = self.X.shape
        count = int(np.count_nonzero(entries))
        size = f"{self.name}: {n} x {d}, {count} non-zeros ({count / n:.1f} a row)"
        return f"{size}, {_targets_in_words(self.y)}"


def _targets_in_words(y: Vector) -> str:
    values, counts = np.unique(y, return_counts=True)
    if values.size > 10:
        return f"{values.size} distinct targets from {values[0]:g} to {values[-1]:g}"
    sign = "+" if values.tolist() == [-1.0, 1.0] else ""
    pairs = zip(values, counts, strict=True)
    return "labels " + ", ".join(f"{value:{sign}g}: {count}" for value, count in pairs)


def read(
    path: str | os.PathLike[str],
    *,
    n_features: int | None = None,
    target: str | int | None = None,
) -> Dataset:
    """Read a LIBSVM or CSV file, compressed or not.

    Compression is recognised by the first bytes of the file. A file is CSV where its name says so
    (".csv", ".csv.gz", ...; ".tsv" has tabs for commas), or where the name says nothing and the
    first line has commas and no colon. LIBSVM lines are "label index:value ...", with indices that
    start at 1 and increase; "qid:" and comments ("# ...") are skipped. CSV files hold numbers
    between commas. Their first line is a header if it has a cell that is no number in a column of
    numbers; a header of numbers only is known by `target`, if that is the name of a column.

    Parameters
    ----------
    path : str or path
        The file.
    n_features : int, optional
        The number of features. A LIBSVM file has the largest index as the number by default, which
        is too few if the last features are 0 in all rows; a CSV file must have as many as given.
    target : str or int, optional
        The column of a CSV file with the targets: its name in the header, or its number, which
        counts from 0, or from the end if negative. By default the last column.

    Returns
    -------
    Dataset
        The data: X is sparse from a LIBSVM file and dense from a CSV file.

    Raises
    ------
    DataError
        If the file cannot be read or something in it is wrong; the message names the line.
    """
    path = Path(path)
    if n_features is not None:
        n_features = whole_number("n_features", n_features, least=1)
        if n_features > _LARGEST_INDEX:
            raise ValueError(f"n_features must be <= {_LARGEST_INDEX}, but it is {n_features}.")
    text = _text(path)
    X: sp.csr_matrix[np.float64] | Matrix
    separator = separator_of(path, text)
    if separator is not None:
        X, y = _read_csv(path, text, separator, n_features, -1 if target is None else target)
    elif target is not None:
        raise DataError(
            f"{path}: target is {target!r}, but only CSV files have a column to choose; this is a "
            "LIBSVM file, where the label comes first in each line. Leave target out."
        )
    else:
        X, y = read_libsvm(path, text, n_features)
        check_width(path, X.shape[1])
    return Dataset(_plain_name(path), X, y, str(path))


def find(name: str) -> Path | None:
    """Return the path of a data set in the folder that ACCELEGRAD_DATA names.

    Parameters
    ----------
    name : str
        The name of the file; the endings .bz2, .gz, .xz, .txt, .svm and .libsvm may be left out.

    Returns
    -------
    Path or None
        None if the variable is not set or the folder has no such file.
    """
    given = os.environ.get(DATA_FOLDER, "")
    if not given:
        return None
    folder = Path(given)
    if not folder.is_dir():
        raise DataError(
            f"{folder}: the environment variable {DATA_FOLDER} must name a folder of data files, "
            "but there is no such folder. Correct it or unset it."
        )
    candidates = (folder / f"{name}{ending}" for ending in _ENDINGS)
    return next((path for path in candidates if path.is_file()), None)


def as_binary(y: npt.ArrayLike) -> Vector:
    """Return labels -1 and +1 for the smaller and the larger of two distinct labels."""
    given = finite_vector("y", y)
    seen = np.unique(given)
    if seen.size != 2:
        labels = ", ".join(f"{label:g}" for label in seen[:5]) + (", ..." if seen.size > 5 else "")
        raise ValueError(f"y must hold two distinct labels, but it holds {seen.size}: {labels}.")
    return np.where(given == seen[1], 1.0, -1.0)


# Files


def _plain_name(path: Path) -> str:
    """Return the file's name without the endings of compression and format."""
    name = path.name
    for endings in ([kind.ending for kind in COMPRESSIONS], _FORMAT_ENDINGS):
        if Path(name).suffix.lower() in endings:
            name = Path(name).stem
    return name


def _text(path: Path) -> bytes:
    """Return the text of a file: decompressed, with lines that end in a line feed."""
    text = plain_lines(path, b"".join(content_pieces(path, _PIECE)))
    if not text or text.isspace():
        raise DataError(f"{path}: the file is empty, but it must hold at least one row.")
    return text


# LIBSVM


def read_libsvm(
    path: Path, text: bytes, n_features: int | None, first_line: int = 1
) -> tuple[sp.csr_matrix[np.float64], Vector]:
    """Return rows and targets of LIBSVM text, or raise a DataError for the first wrong line.

    Where `n_features` is None, there are as many columns as the largest index, perhaps none.
    """
    parsed, problem = _parse_libsvm(text)
    most = n_features or MOST_COLUMNS
    if parsed is None or _doubtful(*parsed, most) or b"_" in text:
        check_libsvm(path, text, n_features, first_line)
    if parsed is None:
        # Nothing is known to lead here: the check is stricter than the parser.
        raise DataError(f"{path}: cannot be read as LIBSVM text ({problem}).")
    X, y = parsed
    if y.size == 0:
        raise DataError(f"{path}: only blank lines and comments, but at least one row is needed.")
    width = n_features or int(X.indices.max(initial=-1)) + 1
    return sp.csr_matrix((X.data, X.indices, X.indptr), shape=(y.size, width)), y


def check_width(path: Path, width: int) -> None:
    """Raise a DataError where a LIBSVM file has no features."""
    if width == 0:
        raise DataError(
            f"{path}: no row has an index:value pair, so the number of features is not known. Give "
            "n_features if all of them are meant to be 0."
        )


def _parse_libsvm(text: bytes) -> tuple[tuple[Any, Vector] | None, str]:
    """Return X and y, or None and what is wrong."""
    from sklearn.datasets import load_svmlight_file  # takes a second: not before it is needed

    try:
        # The default, zero_based="auto", would take an index 0 as a sign that all count from 0.
        X, y = load_svmlight_file(io.BytesIO(text), zero_based=False)
    except (ValueError, OverflowError) as error:
        return None, str(error)
    return (X, y), ""


def _doubtful(X: Any, y: Vector, most: int) -> bool:
    return not (X.shape[1] <= most and np.isfinite(X.data).all() and np.isfinite(y).all())


def check_libsvm(path: Path, text: bytes, n_features: int | None, first_line: int = 1) -> None:
    """Raise a DataError for the first line that is wrong."""
    for line, content in numbered_lines(text, first_line):
        pieces = content.partition(b"#")[0].split()
        try:
            _check_libsvm_row(pieces, n_features)
        except ValueError as error:
            raise DataError(f"{path}, line {line}: {error}") from None


def _check_libsvm_row(pieces: list[bytes], n_features: int | None) -> None:
    if not pieces:
        return
    check_number("the label (what comes first in a line)", pieces[0])
    start = 2 if len(pieces) > 1 and pieces[1].startswith(b"qid:") else 1
    previous = 0
    for piece in pieces[start:]:
        index, value = _index_and_value(piece)
        _check_index(index, previous, n_features)
        check_number(f"the value of index {index}", value)
        previous = index


def _index_and_value(piece: bytes) -> tuple[int, bytes]:
    index, colon, value = piece.partition(b":")
    digits = index[1:] if index[:1] in (b"+", b"-") else index
    if not (colon and digits.isdigit()):
        raise ValueError(
            f"found {shown(piece)}, but after the label only index:value pairs are allowed, with "
            "a whole number as the index."
        )
    # Python refuses to convert thousands of digits.
    if len(digits.lstrip(b"0")) > 20:
        raise ValueError(f"the index is {shown(index)}, but at most {_LARGEST_INDEX} is allowed.")
    return int(index), value


def _check_index(index: int, previous: int, n_features: int | None) -> None:
    if index < 1:
        raise ValueError(f"the index is {index}, but indices start at 1.")
    if index == previous:
        raise ValueError(f"the index {index} comes twice, but each may come once in a line.")
    if index < previous:
        raise ValueError(f"the index {index} follows {previous}, but indices must increase.")
    if index > _LARGEST_INDEX:
        raise ValueError(f"the index is {index}, but at most {_LARGEST_INDEX} is allowed.")
    if n_features is not None and index > n_features:
        raise ValueError(f"the index is {index}, but n_features allows at most {n_features}.")
    if n_features is None and index > MOST_COLUMNS:
        raise ValueError(
            f"the index is {index}, but more than {MOST_COLUMNS} columns are almost surely a "
            "mistake. They are allowed where n_features is given."
        )


# CSV


def _read_csv(
    path: Path, text: bytes, separator: str, n_features: int | None, target: str | int
) -> tuple[Matrix, Vector]:
    fault = quote_fault(text, separator)
    if fault is not None:
        raise wrong_quotes(path, text, fault)
    content = as_unicode(path, text)
    start = csv_start(path, content, separator, target)
    content = "".join(content.split("\n", start.end)[start.end :])
    table, problem = parse_csv(content, separator)
    if table is None or table.shape[1] != start.width or not np.isfinite(table).all():
        rows = csv_rows(path, content, separator, first_line=start.end + 1)
        check_csv(path, rows, start.names, start.width)
    if table is None:
        # As for LIBSVM: nothing is known to lead here.
        raise DataError(f"{path}: cannot be read as CSV ({problem}).")
    if table.size == 0:
        raise DataError(f"{path}: nothing follows the header, but at least one row is needed.")
    if n_features is not None and n_features != start.width - 1:
        raise DataError(
            f"{path}: n_features is {n_features}, but there are {start.width - 1} columns besides "
            "the target. A CSV file must have as many as n_features."
        )
    column = target_column(path, start.names, start.width, target)
    return np.delete(table, column, axis=1), table[:, column].copy()


# Sparse text

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


def sparse_text(
    n: int = 20242,
    d: int = 47236,
    nnz: int = 74,
    *,
    seed: int,
    label_noise: float = 0.05,
) -> Dataset:
    """Make sparse text-like data; the default size is that of the RCV1 training set.

    The words of a document come from two of 30 topics, most from the first. A topic is a
    distribution over words: Zipf's law, with random weights that differ among the topics. Entries
    are (1 + log tf) log((1 + n) / df), scaled to rows of norm 1, in columns of random order. Each
    topic has a random weight; the label is +1 for the half of the documents with the larger mean
    weight, before some labels are flipped.

    Parameters
    ----------
    n, d : int
        Rows (documents), at least 2, and columns (words).
    nnz : int
        The mean number of non-zeros (distinct words) in a row, at most d / 4. They vary: about
        log-normal, with at least one in each row.
    seed : int
        The seed of `numpy.random.default_rng`.
    label_noise : float
        The probability that a label is flipped, at most 0.5.
    """
    n, d = whole_number("n", n, least=2), whole_number("d", d, least=4)
    nnz, seed = whole_number("nnz", nnz, least=1), whole_number("seed", seed, least=0)
    noise = real_number("label_noise", label_noise, least=0.0)
    if nnz > d / 4:
        # Nearly all words of the vocabulary in one document would need very long documents.
        raise ValueError(f"nnz must be at most d / 4 = {d / 4:g}, but it is {nnz}.")
    if noise > 0.5:
        raise ValueError(f"label_noise must be at most 0.5, but it is {label_noise!r}.")
    rng = np.random.default_rng(seed)
    topics = _word_probabilities(d, rng)
    documents = _Documents.draw(n, rng)
    X = _tf_idf(documents.words(topics, documents.lengths(topics, nnz, rng), rng), (n, d))
    y = documents.labels(noise, rng)
    call = f"sparse_text(n={n}, d={d}, nnz={nnz}, seed={seed}, label_noise={noise:g})"
    return Dataset("sparse_text", X, y, call)


def _word_probabilities(d: int, rng: np.random.Generator) -> Matrix:
    """Return the probabilities of d words (columns) in each topic (row)."""
    ranks = rng.permutation(d) + 1.0
    common = (ranks + _ZIPF_SHIFT) ** -_ZIPF_EXPONENT
    weights = common * np.exp(_TOPIC_CONTRAST * rng.standard_normal((_TOPICS, d)))
    probabilities: Matrix = weights / weights.sum(axis=1, keepdims=True)
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

    def lengths(self, topics: Matrix, nnz: int, rng: np.random.Generator) -> Integers:
        """Return the lengths in words at which nnz distinct ones are expected in the mean."""
        n = self.share.size
        distinct = _distinct_words(n, nnz, most=topics.shape[1] / 2)
        words, expected = self._vocabulary_growth(topics, distinct.max())
        real = np.exp(np.interp(np.log(rng.permutation(distinct)), np.log(expected), np.log(words)))
        # Rounded up or down by chance, so that short documents do not change the mean.
        lengths: Integers = np.floor(real + rng.random(n)).astype(np.int64)
        return lengths

    def _vocabulary_growth(self, topics: Matrix, most: float) -> tuple[Vector, Vector]:
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

    def words(self, topics: Matrix, lengths: Integers, rng: np.random.Generator) -> Integers:
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
    scale = brentq(excess, 0.0, largest)
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
