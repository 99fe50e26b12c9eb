"""Linear models as tasks.

The parameters of a model are the data (a file or a generator), the loss and l2; `options` of the
loss, and a sample of `rows` drawn with a `seed`, where there are any.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from accelegrad import LinearModel
from accelegrad.errors import Vector
from accelegrad.files.tables import DataError, Reading
from accelegrad.models.losses import make_loss
from accelegrad_lab.datasets import Dataset, as_binary, read, sparse_text
from accelegrad_lab.engine import minimum
from accelegrad_lab.engine.recording import finite_or_none
from accelegrad_lab.engine.tasks import Outcome, Store, Task, task


class Rows(NamedTuple):
    """A data set in memory, or a random sample of its rows."""

    X: Any
    y: Vector
    description: str  # of the whole set
    empty: int  # how many columns without entries were left out


def generated_data(n: int, d: int, nnz: int, seed: int) -> dict[str, Any]:
    """Return the `data` parameter of tasks for the built-in generator."""
    return {"source": "generated", "n": n, "d": d, "nnz": nnz, "seed": seed}


def file_data(
    path: Path,
    check: Callable[[Vector], object],
    target: str | int | None = None,
    reading: Reading | None = None,
) -> dict[str, Any]:
    """Return the `data` parameter of tasks for a file, which is known by its content too.

    Whatever is wrong with the file, or `check` finds wrong with its targets, is said here, before
    anything is computed.
    """
    try:
        content = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None
    data: dict[str, Any] = {"source": path.name, "path": str(path), "sha256": content}
    if target is not None:
        data["target"] = target
    if reading is not None and reading != Reading():
        data["reading"] = reading._asdict()
    check(rows_of({"data": data}).y)
    return data


@lru_cache(maxsize=1)
def _dataset(key: str) -> Dataset:
    """Return the data set that a `data` parameter, as JSON, describes."""
    data = json.loads(key)
    if data["source"] == "generated":
        n, d, nnz, seed = (data[name] for name in ("n", "d", "nnz", "seed"))
        return sparse_text(n, d, nnz, seed=seed)
    given = data.get("reading", {}).items()
    options: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in given}
    reading = Reading(**options)
    return read(data["path"], target=data.get("target"), reading=reading)


SAMPLE = ("data", "rows", "seed")
MODEL = (*SAMPLE, "loss", "options", "l2")


def rows_of(parameters: Mapping[str, Any]) -> Rows:
    """Return the data of a model, or a random sample of their rows.

    Sparse columns that are empty in them are left out: their coordinates never leave zero.
    """
    chosen = {name: parameters[name] for name in SAMPLE if name in parameters}
    return _rows(json.dumps(chosen, sort_keys=True))


@lru_cache(maxsize=2)
def _rows(key: str) -> Rows:
    chosen = json.loads(key)
    dataset = _dataset(json.dumps(chosen["data"]))
    X: Any = dataset.X
    y = dataset.y
    rows = chosen.get("rows", y.size)
    if rows < y.size:
        kept = np.sort(np.random.default_rng(chosen["seed"]).permutation(y.size)[:rows])
        X, y = X[kept], y[kept]
    used = range(X.shape[1]) if isinstance(X, np.ndarray) else np.unique(X.indices)
    empty = X.shape[1] - len(used)
    return Rows(X[:, used].tocsr() if empty else X, y, dataset.description, empty)


def model_of(parameters: Mapping[str, Any]) -> LinearModel:
    """Return the linear model that a task's parameters describe."""
    data, loss = rows_of(parameters), parameters["loss"]
    y = as_binary(data.y) if make_loss(loss).classification else data.y
    options = parameters.get("options", {})
    return LinearModel(data.X, y, loss=loss, l2=parameters["l2"], **options)


def minimum_task(parameters: Mapping[str, Any]) -> Task:
    """Return the task that finds the model's minimum."""
    return Task("model-minimum", {name: parameters[name] for name in MODEL if name in parameters})


@task("model-minimum")
def find_minimum(parameters: dict[str, Any], store: Store) -> Outcome:  # noqa: ARG001
    """Find the minimum, by a solver that has nothing to do with the methods compared."""
    model = model_of(parameters)
    found = minimum.find_minimum(model)
    facts = {
        "minimum": found.value,
        "solver": found.solver,
        "lower": finite_or_none(found.lower),
        "start": model.value(np.zeros(model.n_parameters)),
        "shape": [model.n_samples, model.n_features],
        "distance": float(np.linalg.norm(found.x)),
    }
    return Outcome({"x": found.x}, facts)
