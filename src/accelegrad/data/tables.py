"""Tables in files of any format: rows whole or in blocks, and what all of them must keep."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from accelegrad.data.columns import Targets, Wanted
from accelegrad.data.text import DataError
from accelegrad.data.text_blocks import BLOCK_BYTES

MOST_COLUMNS = 100_000_000
"""A file that claims more is almost surely wrong (two tokens run together, say)."""


SPARSE_ENTRY_BYTES = 12
"""What an entry of a CSR matrix takes: a float64 and the int32 number of its column."""


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
    target : str, int or None
        The name of the target, or the number of its column where columns have no names.
    n_features : int or None
        The number of features; None where it is not known before all rows are read. Whoever finds
        it out sets it.
    first_feature : int
        The number that the file gives to its first feature.
    """

    names: tuple[str, ...] | None = None
    target: str | int | None = None
    n_features: int | None = None
    first_feature = 0

    def __init__(self, path: Path, wanted: Wanted) -> None:
        self.path, self.wanted = path, wanted

    def damaged(self, kind: str, error: Exception) -> DataError:
        """Return the error for content that is not of the kind of file that the name tells."""
        if isinstance(error, DataError):
            return error
        if isinstance(error, MemoryError):
            return DataError(
                f"{self.path}: what the file declares does not fit in memory ({error})."
            )
        return DataError(f"{self.path}: no {kind} file, or a damaged one ({error}).")

    @abstractmethod
    def blocks(self, rows: int | None) -> Iterator[Block]:
        """Yield blocks of this many rows (None: of about 16 MB) in the order of the file."""

    def whole(self) -> Block:
        """Return all rows."""
        return joined(list(self.blocks(None)))


def joined(blocks: list[Block]) -> Block:
    """Return the rows of all blocks as one, and empty the list.

    A sparse block may have fewer columns than others. Each array is let go as soon as it is
    copied, so that all rows are in memory once and not twice.
    """
    if len(blocks) == 1:
        return blocks.pop()
    tables = [block.X for block in blocks]
    labels = [block.y for block in blocks if block.y is not None]
    blocks.clear()
    y = _joined_arrays(labels) if labels else None
    if not sp.issparse(tables[0]):
        return Block(_joined_arrays(tables), y)
    width = max(table.shape[1] for table in tables)
    lengths = np.concatenate([np.diff(table.indptr) for table in tables])
    entries, columns = [table.data for table in tables], [table.indices for table in tables]
    tables.clear()
    starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    parts = (_joined_arrays(entries), _joined_arrays(columns), starts)
    return Block(sp.csr_matrix(parts, shape=(lengths.size, width)), y)


def _joined_arrays(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Return arrays one behind the other, and empty their list."""
    rows = sum(len(part) for part in parts)
    whole: npt.NDArray[Any] = np.empty((rows, *parts[0].shape[1:]), np.result_type(*parts))
    for _ in range(len(parts)):
        part = parts.pop()
        whole[rows - len(part) : rows] = part
        rows -= len(part)
    return whole


def no_rows(path: Path) -> DataError:
    """Return the error for a table without rows."""
    return DataError(f"{path}: no rows, but at least one is needed.")


def checked_targets(
    path: Path, name: str, y: npt.NDArray[Any], targets: Targets, first_row: int = 0
) -> npt.NDArray[Any]:
    """Return targets in the machine's byte order, text as str, or say why they are none.

    `first_row` is the number in the file of the first row that is given.
    """
    if y.dtype.kind == "S":
        try:
            y = np.char.decode(y, "utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: {name} holds bytes that are not UTF-8 ({error}).") from None
    allowed = "fiub" if targets is Targets.NUMBERS else "fiubU"
    if y.dtype.kind not in allowed:
        kinds = "numbers" if targets is Targets.NUMBERS else "numbers or text"
        raise DataError(f"{path}: {name} must hold {kinds}, but it holds {y.dtype}.")
    check_finite(path, name, y, first_row)
    return native(y)


def check_finite(path: Path, name: str, values: Any, first_row: int) -> None:
    """Raise a DataError for the first number that is NaN or infinite, with its row from 0."""
    is_sparse = bool(sp.issparse(values))
    entries = values.data if is_sparse else values
    if entries.dtype.kind != "f" or np.isfinite(entries).all():
        return
    if is_sparse:
        found = values.tocoo()
        places, entries = found.row, found.data
    else:
        places = np.arange(len(values)).repeat(values[0].size)
    wrong = np.flatnonzero(~np.isfinite(entries.ravel()))[0]
    raise DataError(
        f"{path}: {name} holds {entries.ravel()[wrong]} in row {first_row + places[wrong]} (from "
        "0), but all numbers must be finite."
    )


def native(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array in the machine's byte order, which compiled code needs."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def rows_of_bytes(row_bytes: int) -> int:
    """Return how many rows make a block, given the size of a row."""
    return max(1, BLOCK_BYTES // max(1, row_bytes))


def rows_of_entries(entries: int, n: int) -> int:
    """Return how many rows make a block of a sparse matrix with n rows and this many entries."""
    return rows_of_bytes(SPARSE_ENTRY_BYTES * max(1, entries // max(1, n)))
