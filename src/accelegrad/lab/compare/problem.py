"""A user's data file as tasks: the linear model of a file, and its minimum."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from accelegrad.data.datasets import DataError, as_binary
from accelegrad.errors import Vector
from accelegrad.lab.engine import stored_data
from accelegrad.lab.engine.minimum import is_sparse
from accelegrad.lab.engine.recording import minimum_outcome
from accelegrad.lab.engine.tasks import Outcome, Store, Task, task
from accelegrad.problems.linear_model import LinearModel
from accelegrad.problems.losses import LOSSES, make_loss

MODEL = ("data", "loss", "options", "l2")
LEAST_ROWS = 2
UNEVEN = 30  # how much larger one column than another the report remarks upon


# -- data ------------------------------------------------------------------------------------------


def imported_data(path: Path, target: str | int | None, loss: str, store: Store) -> dict[str, Any]:
    """Read a file into the store and return the `data` parameter for it.

    Whatever is wrong with the file, or with its targets for this loss, is a DataError here.
    """
    return stored_data.imported_data(path, store, partial(_check_targets, path, loss), target)


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


class Rows(NamedTuple):
    """A data set in memory; a sparse one without its empty columns."""

    X: Any
    y: Vector
    description: str
    empty_columns: int


def rows_of(data: Mapping[str, Any], store: Store) -> Rows:
    """Return a data set of the store."""
    return _rows(json.dumps(data, sort_keys=True), store.folder)


@lru_cache(maxsize=2)
def _rows(key: str, folder: Path) -> Rows:
    X, y, description = stored_data.stored_rows(json.loads(key), Store(folder))
    used = stored_data.without_empty_columns(X)
    return Rows(used, y, description, X.shape[1] - used.shape[1])


def data_facts(data: Mapping[str, Any], loss: str, store: Store) -> dict[str, str]:
    """Return what the report says about the data."""
    rows = rows_of(data, store)
    facts = {"data": rows.description, "file": data["source"], "sha256": data["sha256"]}
    if "target" in data:
        facts["target"] = f"column {data['target']!r}"
    if make_loss(loss).classification:
        low, high = np.unique(rows.y)
        facts["labels"] = f"{low:g} is taken as -1, {high:g} as +1"
    if rows.empty_columns:
        facts["empty columns"] = (
            f"{rows.empty_columns}, left out: their coefficients would stay at zero"
        )
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


# -- the model -------------------------------------------------------------------------------------


def model_of(parameters: Mapping[str, Any], store: Store) -> LinearModel:
    """Return the linear model that a task's parameters describe."""
    rows, loss = rows_of(parameters["data"], store), parameters["loss"]
    y = as_binary(rows.y) if make_loss(loss).classification else rows.y
    return LinearModel(rows.X, y, loss=loss, l2=parameters["l2"], **parameters["options"])


# -- the minimum -----------------------------------------------------------------------------------


def minimum_task(parameters: Mapping[str, Any]) -> Task:
    """Return the task that finds the model's minimum."""
    return Task("compare-minimum", {name: parameters[name] for name in MODEL})


@task("compare-minimum")
def find_minimum(parameters: dict[str, Any], store: Store) -> Outcome:
    """Find the minimum, by a solver that has nothing to do with the methods compared."""
    return minimum_outcome(model_of(parameters, store))
