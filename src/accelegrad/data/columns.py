"""The columns of a table: their names, which are features and which is the target."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import numpy as np

from accelegrad.data.text import DataError, shown
from accelegrad.errors import nearest

_SHOWN_NAMES = 5  # of columns, in a message


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
    by_position : bool
        Whether a table without names may stand for the named features, in their order.
    """

    target: str | int | None = None
    features: Sequence[str] | None = None
    n_features: int | None = None
    optional: bool = False
    targets: Targets = Targets.AS_WRITTEN
    by_position: bool = False


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
    without_target = wanted.optional and width == count
    if count is not None and width != count + 1 and not without_target:
        raise _wrong_width(path, width, count, wanted.optional)
    if wanted.features is not None and not wanted.by_position:
        raise DataError(
            f"{path}: the model knows its {len(wanted.features)} features by name "
            f"({few(wanted.features)}), but the {width} columns have no header. If they are in the "
            "model's order, give --by-position; else put a header above."
        )
    if without_target:
        return Columns(list(range(width)), None)
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


def _wrong_width(path: Path, width: int, count: int, optional: bool) -> DataError:
    if optional:
        return DataError(
            f"{path}: found {width} columns, but {count} features are expected (or {count + 1} "
            "with the target)."
        )
    return DataError(
        f"{path}: n_features is {count}, but there are {width - 1} columns besides the target. "
        "There must be as many as n_features."
    )


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


def target_column(path: Path, header: Sequence[str], width: int, target: str | int) -> int:
    """Return the place of the target's column, or raise a DataError that says what there is."""
    if not isinstance(target, str):
        whole = isinstance(target, (int, np.integer)) and not isinstance(target, bool)
        if not (whole and -width <= target < width):
            raise DataError(
                f"{path}: target is {target!r}, but the columns have the numbers 0 to {width - 1} "
                f"(or -{width} to -1, from the end)."
            )
        return int(target) % width
    if not header:
        raise DataError(
            f"{path}: target is {target!r}, but the first line is no header with names. Allowed is "
            f"a column's number from 0 to {width - 1}."
        )
    if target not in header:
        raise DataError(f"{path}: there is no column {target!r}: {nearest(target, header)}")
    return list(header).index(target)


def check_distinct(where: str, names: Sequence[str]) -> None:
    """Raise a DataError where two columns have the same name."""
    places: dict[str, int] = {}
    for place, name in enumerate(names):
        if name in places:
            raise DataError(
                f"{where}: the columns {places[name] + 1} and {place + 1} have the same name, "
                f"{shown(name)}, but the names of columns must differ."
            )
        places[name] = place


def few(names: Sequence[str]) -> str:
    """Return some names for a message."""
    quoted = ", ".join(repr(name) for name in names[:_SHOWN_NAMES])
    return quoted + (", ..." if len(names) > _SHOWN_NAMES else "")
