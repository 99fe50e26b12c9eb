"""A user's data file: read into the store, checked, and described for the report."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from accelegrad.errors import Vector
from accelegrad.files.tables import Reading
from accelegrad.models.losses import LOSSES, make_loss
from accelegrad_lab.datasets import DataError, as_binary
from accelegrad_lab.engine import stored_data
from accelegrad_lab.engine.minimum import is_sparse
from accelegrad_lab.engine.model_tasks import used_columns
from accelegrad_lab.engine.tasks import Store

LEAST_ROWS = 2
UNEVEN = 30  # how much larger one column than another the report remarks upon


def imported_data(
    path: Path,
    target: str | int | None,
    loss: str,
    store: Store,
    reading: Reading | None = None,
) -> dict[str, Any]:
    """Read a file into the store and return the `data` parameter for it.

    Whatever is wrong with the file, or with its targets for this loss, is a DataError here.
    """
    check = partial(_check_targets, path, loss)
    return stored_data.imported_data(path, store, check, target, reading)


def _check_targets(path: Path, loss: str, y: Vector) -> None:
    if y.size < LEAST_ROWS:
        raise DataError(
            f"{path}: the file has {y.size} row, but a comparison needs at least {LEAST_ROWS}."
        )
    if make_loss(loss).classification:
        try:
            as_binary(y)
        except ValueError as error:
            numbers = [name for name, entry in LOSSES.items() if not entry.classification]
            raise DataError(
                f"{path}: {error} The loss {loss!r} is for two classes; for numbers to predict "
                f"take {', '.join(repr(name) for name in numbers[:-1])} or {numbers[-1]!r}."
            ) from None


def data_facts(data: Mapping[str, Any], loss: str, store: Store) -> dict[str, str]:
    """Return what the report says about the data."""
    rows = used_columns({"data": data}, store)
    facts = {"data": rows.description, "file": data["source"], "sha256": data["sha256"]}
    if "target" in data:
        facts["target"] = f"column {data['target']!r}"
    if make_loss(loss).classification:
        low, high = np.unique(rows.y)
        facts["labels"] = f"{low:g} is taken as -1, {high:g} as +1"
    if rows.empty:
        facts["empty columns"] = f"{rows.empty}, left out: their coefficients would stay at zero"
    facts["column sizes"] = _sizes_in_words(rows.X)
    return facts


def _sizes_in_words(X: Any) -> str:
    largest = abs(X).max(axis=0)
    sizes = largest.toarray().ravel() if is_sparse(largest) else largest
    low, high = float(np.min(sizes, where=sizes > 0, initial=np.inf)), float(sizes.max())
    words = f"largest entries from {low:.3g} to {high:.3g}"
    if high > UNEVEN * low:
        words += ": scaled to about the same size, columns would be easier for every method"
    return words
