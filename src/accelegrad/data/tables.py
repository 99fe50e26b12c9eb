"""Tables of any format: rows whole or in blocks, and which columns are wanted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from accelegrad.data.csv_text import check_distinct, target_column
from accelegrad.data.data_text import DataError
from accelegrad.data.text_blocks import BLOCK_BYTES

EVERYTHING = 1 << 62
"""A number of rows that makes one block of any file."""

_SHOWN_NAMES = 5


class Block(NamedTuple):
    """Some rows; `y` is None where a file has no targets."""

    X: Any
    y: npt.NDArray[Any] | None


class Targets(Enum):
    """What the targets are to be."""

    AS_WRITTEN = "numbers if all of them are, else text"
    NUMBERS = "numbers"
    TEXT = "text where the file is text"
    UNUSED = "not read"


class Wanted(NamedTuple):
    """What is to be read.

    Attributes
    ----------
    target : str, int or None
        The column with the targets: its name, or its number from 0; None for the last one (of a
        table that is to be learnt from).
    features : sequence of str or None
        The names of the columns that a model knows, in its order.
    n_features : int or None
        The number of features, where it is known.
    optional : bool
        Whether a file may lack targets.
    targets : Targets
        What the targets are to be.
    """

    target: str | int | None = None
    features: Sequence[str] | None = None
    n_features: int | None = None
    optional: bool = False
    targets: Targets = Targets.AS_WRITTEN


class TableFile(ABC):
    """A file with rows.

    Attributes
    ----------
    names : tuple of str or None
        The names of the features, where the file has some.
    target : str, int or None
        The name of the target, or the number of its column where columns have no names.
    in_any_order : bool
        Whether blocks can be read in any order once they were read in theirs.
    """

    names: tuple[str, ...] | None = None
    target: str | int | None = None
    in_any_order = False

    def __init__(self, path: Path, wanted: Wanted) -> None:
        self.path, self.wanted = path, wanted

    @abstractmethod
    def blocks(self, rows: int | None) -> Iterator[Block]:
        """Yield blocks of so many rows (None: of about 16 MB) in the order of the file."""

    def whole(self) -> Block:
        """Return all rows."""
        return next(self.blocks(EVERYTHING))

    def shuffled(self, rng: np.random.Generator) -> Iterator[Block]:
        """Yield the blocks of the last complete reading in random order, where that is possible."""
        raise NotImplementedError

    def knows_width(self) -> bool:
        """Tell whether the number of features is known before all rows are read."""
        return True

    def set_width(self, n_features: int) -> None:
        """Set the number of features, once it is known."""
        self.wanted = self.wanted._replace(n_features=n_features)


class Columns(NamedTuple):
    """Which columns of a table are the features, in this order, and which is the target."""

    features: list[int]
    target: int | None


def chosen_columns(path: Path, names: Sequence[str], width: int, wanted: Wanted) -> Columns:
    """Find the wanted columns by name, or else by place."""
    if wanted.features is not None:
        check_distinct(f"{path}: the features of the model", wanted.features)
    if wanted.features is not None and names:
        return _columns_by_name(path, names, wanted.features, wanted)
    count = wanted.n_features
    if wanted.optional and width == count:
        return Columns(list(range(width)), None)
    if count is not None and width != count + 1:
        with_target = f" (or {count + 1} with the target)" if wanted.optional else ""
        raise DataError(
            f"{path}: found {width} columns, but {count} features are expected{with_target}."
        )
    chosen = -1 if wanted.target is None else wanted.target
    if wanted.optional and isinstance(chosen, str) and chosen not in names:
        if not names:
            raise DataError(
                f"{path}: found {width} columns and no header, so it is not known which of them is "
                f"the target {chosen!r}. Give its number from 0 to {width - 1} (--target), leave "
                "it out of the file, or put a header above."
            )
        chosen = -1
    target = target_column(path, names, width, chosen)
    return Columns([column for column in range(width) if column != target], target)


def _columns_by_name(
    path: Path, names: Sequence[str], features: Sequence[str], wanted: Wanted
) -> Columns:
    missing = [name for name in features if name not in names]
    if missing:
        raise DataError(
            f"{path}: {len(missing)} of the model's {len(features)} features are not among the "
            f"columns: {few(missing)}. The columns are {few(names)}."
        )
    places = {name: place for place, name in enumerate(names)}
    chosen = [places[name] for name in features]
    target = wanted.target
    if target is None or (wanted.optional and isinstance(target, str) and target not in names):
        return Columns(chosen, None)
    place = target_column(path, names, len(names), target)
    if place in chosen:
        raise DataError(
            f"{path}: target is {target!r}, but this column, {names[place]!r}, is a feature of the "
            "model."
        )
    return Columns(chosen, place)


def few(names: Sequence[str]) -> str:
    """Return some names for a message."""
    shown = ", ".join(repr(name) for name in names[:_SHOWN_NAMES])
    return shown + (", ..." if len(names) > _SHOWN_NAMES else "")


def no_rows(path: Path) -> DataError:
    """Return the error for a table without rows."""
    return DataError(f"{path}: no rows, but at least one is needed.")


def checked_targets(
    path: Path, name: str, y: npt.NDArray[Any], targets: Targets
) -> npt.NDArray[Any]:
    """Return targets in the machine's byte order, text as str, or say why they are none."""
    if y.dtype.kind == "S":
        try:
            y = np.char.decode(y, "utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: {name} holds bytes that are not UTF-8 ({error}).") from None
    allowed = "fiub" if targets is Targets.NUMBERS else "fiubU"
    if y.dtype.kind not in allowed:
        kinds = "numbers" if targets is Targets.NUMBERS else "numbers or text"
        raise DataError(f"{path}: {name} must hold {kinds}, but it holds {y.dtype}.")
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
    """Return how many rows of so many bytes make a block."""
    return max(1, BLOCK_BYTES // max(1, row_bytes))
