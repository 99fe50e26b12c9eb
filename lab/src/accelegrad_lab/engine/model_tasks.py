"""Linear models of stored data as tasks: the model that parameters describe, and its minimum.

The parameters are the data, the loss and l2; `options` of the loss, and a sample of `rows` drawn
with a `seed`, where there are any.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from accelegrad.errors import Vector
from accelegrad.models.linear_model import LinearModel
from accelegrad.models.losses import make_loss
from accelegrad_lab.datasets import as_binary
from accelegrad_lab.engine.recording import minimum_outcome
from accelegrad_lab.engine.stored_data import stored_rows, without_empty_columns
from accelegrad_lab.engine.tasks import Outcome, Store, Task, task

SAMPLE = ("data", "rows", "seed")
MODEL = (*SAMPLE, "loss", "options", "l2")


class UsedColumns(NamedTuple):
    """A data set in memory; a sparse one without its empty columns."""

    X: Any
    y: Vector
    description: str
    empty: int  # how many columns were left out


def used_columns(parameters: Mapping[str, Any], store: Store) -> UsedColumns:
    """Return the data of a model, or a random sample of their rows."""
    chosen = {name: parameters[name] for name in SAMPLE if name in parameters}
    return _used_columns(json.dumps(chosen, sort_keys=True), store.folder)


@lru_cache(maxsize=2)
def _used_columns(key: str, folder: Path) -> UsedColumns:
    chosen = json.loads(key)
    X, y, description = stored_rows(chosen["data"], Store(folder))
    rows = chosen.get("rows", y.size)
    if rows < y.size:
        kept = np.sort(np.random.default_rng(chosen["seed"]).permutation(y.size)[:rows])
        X, y = X[kept], y[kept]
    used = without_empty_columns(X)
    return UsedColumns(used, y, description, X.shape[1] - used.shape[1])


def model_of(parameters: Mapping[str, Any], store: Store) -> LinearModel:
    """Return the linear model that a task's parameters describe."""
    data, loss = used_columns(parameters, store), parameters["loss"]
    y = as_binary(data.y) if make_loss(loss).classification else data.y
    options = parameters.get("options", {})
    return LinearModel(data.X, y, loss=loss, l2=parameters["l2"], **options)


def minimum_task(parameters: Mapping[str, Any]) -> Task:
    """Return the task that finds the model's minimum."""
    return Task("model-minimum", {name: parameters[name] for name in MODEL if name in parameters})


@task("model-minimum")
def find_minimum(parameters: dict[str, Any], store: Store) -> Outcome:
    """Find the minimum, by a solver that has nothing to do with the methods compared."""
    return minimum_outcome(model_of(parameters, store))
