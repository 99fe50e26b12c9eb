"""Tables in files: what is asked of them, and the rows that they give, whole or in blocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import numpy.typing as npt

MOST_COLUMNS = 100_000_000
"""A file that claims more is almost surely wrong (two tokens run together, say). Chosen."""

BLOCK_BYTES = 1 << 24
"""About the size of a block where nothing says how many rows it has: 16 MB, as documented."""

SPARSE_ENTRY_BYTES = 12
"""What an entry of a CSR matrix takes: a float64 and the int32 number of its column."""

_SHOWN_NAMES = 5  # of columns, in a message


class DataError(ValueError):
    """A data file cannot be used; the message says which, where in it, and what is allowed."""


class Targets(Enum):
    """What the targets are to be."""

    AS_WRITTEN = "numbers if all of them are, else text"
    NUMBERS = "numbers"
    TEXT = "text where the file is text"
    UNUSED = "not read"


class Column(NamedTuple):
    """A column of a table, as a model knows it."""

    name: str
    categories: tuple[str, ...] | None = None  # of text, each a feature that is 0 or 1
    mean: float | None = None  # in place of missing numbers; 0 for text; None: none may be missing

    @property
    def features(self) -> list[str]:
        """The names of the features that the column makes."""
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
    header: bool | None = None  # None: as the first line tells
    drop: tuple[str | int, ...] = ()  # columns that are left out, by name or number
    text: tuple[str | int, ...] = ()  # columns that are categories, though they look like numbers
    missing: str | None = None  # "mean" or "drop" (the row); None: a missing cell is an error


class Wanted(NamedTuple):
    """What is to be read."""

    target: str | int | None = None  # its column's name, or number from 0; None: the last
    columns: Sequence[Column] | None = None  # those that a model knows, in its order
    n_features: int | None = None  # where it is known
    optional: bool = False  # whether a file may lack targets
    targets: Targets = Targets.AS_WRITTEN
    by_position: bool = False  # whether a table without names may stand for named columns
    numbers_only: bool = False  # whether text features are refused
    reading: Reading = Reading()


class Block(NamedTuple):
    """Some rows; `y` is None where a file has no targets."""

    X: Any
    y: npt.NDArray[Any] | None


class TableFile(ABC):
    """A file with rows.

    Attributes
    ----------
    names : tuple of str or None
        The names of the features, where the file has some.
    columns : tuple of Column or None
        What a model has to know of the columns; None where the features are the columns.
    target : str, int or None
        The name of the target, or the number of its column where columns have no names.
    n_features : int or None
        The number of features; None where it is not known before `survey`.
    first_feature : int
        The number that the file gives to its first feature.
    """

    names: tuple[str, ...] | None = None
    columns: tuple[Column, ...] | None = None
    target: str | int | None = None
    n_features: int | None = None
    first_feature = 0

    def __init__(self, path: Path, wanted: Wanted) -> None:
        self.path, self.wanted = path, wanted

    def survey(self, rows: int | None = None) -> None:  # noqa: B027
        """Read the file once, in blocks, where that is needed to know its features."""

    @abstractmethod
    def blocks(self, rows: int | None) -> Iterator[Block]:
        """Yield blocks of this many rows (None: of about 16 MB) in the order of the file."""

    @abstractmethod
    def whole(self) -> Block:
        """Return all rows."""

    def damaged(self, kind: str, error: BaseException) -> DataError:
        """Return the error for content that is not of the kind of file that the name tells."""
        if isinstance(error, DataError):
            return error
        if isinstance(error, MemoryError):
            return DataError(
                f"{self.path}: what the file declares does not fit in memory ({error})."
            )
        return DataError(f"{self.path}: no {kind} file, or a damaged one ({error}).")

    def no_rows(self) -> DataError:
        """Return the error for a table without rows."""
        return DataError(f"{self.path}: no rows, but at least one is needed.")


def rows_of_bytes(row_bytes: int) -> int:
    """Return how many rows make a block, given the size of a row."""
    return max(1, BLOCK_BYTES // max(1, row_bytes))


def rows_of_entries(entries: int, n: int) -> int:
    """Return how many rows make a block of a sparse matrix with n rows and this many entries."""
    return rows_of_bytes(SPARSE_ENTRY_BYTES * max(1, entries // max(1, n)))


def few(names: Sequence[str]) -> str:
    """Return some names for a message."""
    quoted = ", ".join(repr(name) for name in names[:_SHOWN_NAMES])
    return quoted + (", ..." if len(names) > _SHOWN_NAMES else "")


def unreadable(path: Path, error: OSError) -> DataError:
    """Return the error for a file that cannot be opened."""
    why = error.strerror or error
    return DataError(f"{path}: cannot be read ({why}). Give the path of a file with data.")
