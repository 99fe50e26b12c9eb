"""Data sets: files of any format that is known, and sparse text-like data made from a seed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from accelegrad.errors import Vector, finite_vector, real_number, whole_number
from accelegrad.files.formats import FORMATS, LIBSVM, open_table, plain_path
from accelegrad.files.tables import COMPRESSIONS, DataError, Reading, Targets, Wanted
from accelegrad_lab.engine.rows import random_documents

Matrix = npt.NDArray[np.float64]

DATA_FOLDER = "ACCELEGRAD_DATA"
"""The environment variable that names the folder of data files."""

# The endings that `find` tries, in this order.
_ENDINGS = ("", *COMPRESSIONS, ".txt", *LIBSVM.endings)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A matrix of features (sparse or dense, float64) with a target for each row."""

    name: str  # of the file, without endings of compression and format
    X: sp.csr_matrix[np.float64] | Matrix
    y: Vector

    @property
    def description(self) -> str:
        """The size, the number of entries that are not 0, and the targets, in one line."""
        entries = self.X if isinstance(self.X, np.ndarray) else self.X.data
        n, d = self.X.shape
        count = int(np.count_nonzero(entries))
        size = f"{self.name}: {n} x {d}, {count} non-zeros ({count / n:.1f} per row)"
        return f"{size}, {_targets_in_words(self.y)}"


def _targets_in_words(y: Vector) -> str:
    values, counts = np.unique(y, return_counts=True)
    if values.size > 10:
        return f"{values.size} distinct targets from {values[0]:g} to {values[-1]:g}"
    sign = "+" if values.tolist() == [-1.0, 1.0] else ""
    pairs = zip(values, counts, strict=True)
    return "labels " + ", ".join(f"{value:{sign}g}: {count}" for value, count in pairs)


def read(
    path: str | os.PathLike[str], *, target: str | int | None = None, reading: Reading | None = None
) -> Dataset:
    """Read a file: LIBSVM or CSV text, compressed or not, .npz or .parquet.

    Text columns become one feature for each of their values, as in `accelegrad fit`. `target` is
    the name or number of the column with the targets, by default the last one; `reading` says how
    a CSV or parquet file is read.
    """
    path = Path(path)
    wanted = Wanted(target, targets=Targets.NUMBERS)
    X, y = open_table(path, wanted._replace(reading=reading or Reading())).whole()
    plain = plain_path(path)
    known = {".txt", *(ending for entry in FORMATS for ending in entry.endings)}
    name = plain.stem if plain.suffix.lower() in known else plain.name
    values: Any = y
    return Dataset(name, X.astype(np.float64, copy=False), values.astype(np.float64, copy=False))


def find(name: str) -> Path | None:
    """Return the path of a data set in the folder that ACCELEGRAD_DATA names; None without one."""
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


def sparse_text(
    n: int = 20242, d: int = 47236, nnz: int = 74, *, seed: int, label_noise: float = 0.05
) -> Dataset:
    """Make sparse text-like data; the default size is that of the RCV1 training set.

    The words of a document come from two of 30 topics, most from the first. A topic is a
    distribution over words: Zipf's law, with random weights that differ among the topics. Entries
    are (1 + log tf) log((1 + n) / df), scaled to rows of norm 1, in columns of random order. Each
    topic has a random weight; the label is +1 for the half of the documents with the larger mean
    weight, before some labels are flipped, each with a probability of `label_noise`, at most 0.5.

    There are n rows (documents), at least 2, and d columns (words). `nnz` is the mean number of
    non-zeros (distinct words) in a row, at most d / 4. They vary: about log-normal, with at least
    one in each row.
    """
    n, d = whole_number("n", n, least=2), whole_number("d", d, least=4)
    nnz, seed = whole_number("nnz", nnz, least=1), whole_number("seed", seed, least=0)
    noise = real_number("label_noise", label_noise, least=0.0)
    if nnz > d / 4:
        # Nearly all words of the vocabulary in one document would need very long documents.
        raise ValueError(f"nnz must be at most d / 4 = {d / 4:g}, but it is {nnz}.")
    if noise > 0.5:
        raise ValueError(f"label_noise must be at most 0.5, but it is {label_noise!r}.")
    X, y = random_documents(n, d, nnz, noise, np.random.default_rng(seed))
    return Dataset("sparse_text", X, y)
