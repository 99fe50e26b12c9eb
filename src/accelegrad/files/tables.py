"""Tables in files: options for reading, and rows as a whole or in blocks."""

from __future__ import annotations

import bz2
import gzip
import lzma
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy.typing as npt

MOST_COLUMNS = 100_000_000
"""A file that claims more is almost surely wrong (such as two joined tokens). Chosen."""

BLOCK_BYTES = 1 << 24
"""The default size of a block: 16 MB, as documented."""

COMPRESSIONS: dict[str, Any] = {".bz2": bz2.open, ".gz": gzip.open, ".xz": lzma.open}
"""The extensions of compressed files, and their openers."""


class DataError(ValueError):
    """A data file cannot be used; the message says which, where in it, and what is allowed."""


class Targets(Enum):
    """The kind of the targets."""

    AS_WRITTEN = "numbers if all of them are, else text"
    NUMBERS = "numbers"
    TEXT = "text where the file is text"
    UNUSED = "not read"


class Column(NamedTuple):
    """A column of a table, as stored in a model."""

    name: str
    categories: tuple[str, ...] | None = None  # of text, each a feature that is 0 or 1
    mean: float | None = None  # in place of missing numbers; 0 for text; None: none may be missing

    @property
    def features(self) -> list[str]:
        """The names of the column's features."""
        if self.categories is None:
            return [self.name]
        return [f"{self.name}={category}" for category in self.categories]


class Reading(NamedTuple):
    """How tables with columns are read."""

    sep: str | None = None  # between columns; by default a comma, in .tsv files a tab
    decimal: str = "."
    thousands: str | None = None
    encoding: str = "utf-8"
    na: tuple[str, ...] | None = None  # missing cells, beside empty ones; None: pandas' list and ?
    header: bool | None = None  # None: decided by the first line
    drop: tuple[str | int, ...] = ()  # omitted columns, by name or number
    text: tuple[str | int, ...] = ()  # columns that are categories, though they look like numbers
    missing: str | None = None  # "mean" or "drop" (the row); None: a missing cell is an error


class Wanted(NamedTuple):
    """What to read."""

    target: str | int | None = None  # its column's name, or number from 0; None: the last
    columns: Sequence[Column] | None = None  # the model's columns, in its order
    n_features: int | None = None  # if known
    optional: bool = False  # whether a file may lack targets
    targets: Targets = Targets.AS_WRITTEN
    by_position: bool = False  # whether a table without names may stand for named columns
    numbers_only: bool = False  # whether text features are refused
    reading: Reading = Reading()


class Block(NamedTuple):
    """Some rows; `y` is None without targets."""

    X: Any
    y: npt.NDArray[Any] | None


class TableFile(ABC):
    """A file with rows.

    `names` are those of the features, if any; `columns` is what a model must store of its columns,
    None if these are the features; `target` is the target's name or column number; `n_features` is
    None before a `survey` if unknown; `first_feature` is the file's number for its first feature.
    """

    names: tuple[str, ...] | None = None
    columns: tuple[Column, ...] | None = None
    target: str | int | None = None
    n_features: int | None = None
    first_feature = 0

    def __init__(self, path: Path, wanted: Wanted) -> None:
        self.path, self.wanted = path, wanted

    def survey(self, rows: int | None = None) -> None:  # noqa: B027
        """Read the file once, in blocks, if that is needed to know its features."""

    def chunks(self, rows: int | None = None) -> Iterator[Block]:
        """Return blocks of equal width: a source for streams."""
        self.survey(rows)
        return self.blocks(rows)

    def blocks(self, rows: int | None = None) -> Iterator[Block]:
        """Yield blocks of this many rows (None: of about 16 MB) in the order of the file."""
        found = False
        for block in self._blocks(rows):
            if block.X.shape[0]:
                found = True
                yield block
        if not found:
            raise self.no_rows()

    @abstractmethod
    def _blocks(self, rows: int | None) -> Iterator[Block]:
        """Yield blocks, which may be empty."""

    @abstractmethod
    def whole(self) -> Block:
        """Return all rows."""

    def error(self, words: str) -> DataError:
        """Return an error of this file."""
        return DataError(f"{self.path}: {words}.")

    def no_rows(self) -> DataError:
        """Return the error for a table without rows."""
        return self.error("no rows, but at least one is needed")

    def damaged(self, kind: str, error: BaseException) -> DataError:
        """Return the error for a file that is not of the kind that its name says."""
        if isinstance(error, DataError):
            return error
        if isinstance(error, MemoryError):
            return self.error(f"what the file declares does not fit in memory ({error})")
        return self.error(f"no {kind} file, or a damaged one ({str(error)[:200]})")


def rows_per_block(X: Any) -> int:
    """Return how many rows of a matrix make a block."""
    entries = getattr(X, "nnz", None)  # of CSR rows: a float64 and an int32 each
    size = X.nbytes if entries is None else 12 * entries
    return max(1, BLOCK_BYTES // max(1, int(size) // int(X.shape[0])))


def refuse_many_columns(count: int) -> None:
    """Raise a ValueError for a number of columns that is almost surely a mistake."""
    if count > MOST_COLUMNS:
        raise ValueError(
            f"the index is {count}, but more than {MOST_COLUMNS} columns are almost surely a "
            "mistake; they are allowed where n_features is given"
        )


def few(names: Sequence[str]) -> str:
    """Return the first five names for a message."""
    return ", ".join(map(repr, names[:5])) + (", ..." if len(names) > 5 else "")


def opened(path: Path) -> IO[bytes]:
    """Open a file that may be compressed, or raise a DataError."""
    try:
        file: IO[bytes] = COMPRESSIONS.get(path.suffix.lower(), open)(path, "rb")
    except OSError as error:
        why = error.strerror or error
        raise DataError(
            f"{path}: cannot be read ({why}). Give the path of a file with data."
        ) from None
    return file
