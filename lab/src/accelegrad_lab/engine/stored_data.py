"""Data sets in the store, and linear models of them as tasks.

Data are read or generated once, and kept as the result of a task. The parameters of a model are
the data, the loss and l2; `options` of the loss, and a sample of `rows` drawn with a `seed`, where
there are any.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from accelegrad import LinearModel
from accelegrad.errors import Vector
from accelegrad.files.tables import Reading
from accelegrad.models.losses import make_loss
from accelegrad_lab.datasets import DataError, Dataset, as_binary, read, sparse_text
from accelegrad_lab.engine import minimum
from accelegrad_lab.engine.recording import finite_or_none
from accelegrad_lab.engine.tasks import Outcome, Store, Task, task


class StoredRows(NamedTuple):
    """A data set in memory."""

    X: Any
    y: Vector
    description: str
    empty: int = 0  # how many columns without entries were left out


def generated_data(n: int, d: int, nnz: int, seed: int) -> dict[str, Any]:
    """Return the `data` parameter of tasks for the built-in generator."""
    return {"source": "generated", "n": n, "d": d, "nnz": nnz, "seed": seed}


def imported_data(
    path: Path,
    store: Store,
    check: Callable[[Vector], object],
    target: str | int | None = None,
    reading: Reading | None = None,
) -> dict[str, Any]:
    """Read a file into the store, once for its content, and return the `data` parameter for it.

    Whatever is wrong with the file, or `check` finds wrong with its targets, is said here, before
    anything is computed.
    """
    content = hashlib.sha256(_content_of(path)).hexdigest()
    data: dict[str, Any] = {"source": path.name, "sha256": content}
    if target is not None:
        data["target"] = target
    if reading is not None and reading != Reading():
        data["reading"] = json.loads(json.dumps(reading._asdict()))
    stored = store.load(Task("dataset", data))
    dataset = _packed(read(path, target=target, reading=reading)) if stored is None else stored
    check(dataset.arrays["y"])
    if stored is None:
        store.save(Task("dataset", data), dataset)
    return data


def _content_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None


def _packed(dataset: Dataset) -> Outcome:
    X: Any = dataset.X
    facts = {"description": dataset.description, "shape": list(X.shape)}
    if isinstance(X, np.ndarray):
        return Outcome({"y": dataset.y, "dense": X}, facts)
    parts: dict[str, Any] = {"values": X.data, "indices": X.indices, "indptr": X.indptr}
    return Outcome({"y": dataset.y, **parts}, facts)


@task("dataset")
def make_dataset(parameters: dict[str, Any], store: Store) -> Outcome:  # noqa: ARG001
    """Generate a data set; those of files are put into the store by `imported_data`."""
    if parameters["source"] != "generated":
        raise DataError(f"{parameters['source']}: the data set is no longer in the store.")
    n, d, nnz, seed = (parameters[name] for name in ("n", "d", "nnz", "seed"))
    return _packed(sparse_text(n, d, nnz, seed=seed))


def stored_rows(data: Mapping[str, Any], store: Store) -> StoredRows:
    """Return a data set of the store."""
    arrays, facts = store.get(Task("dataset", data))
    X: Any = arrays.get("dense")
    if X is None:
        parts = tuple(arrays[name] for name in ("values", "indices", "indptr"))
        X = sp.csr_matrix(parts, shape=facts["shape"])
    return StoredRows(X, arrays["y"], facts["description"])


# -- models ----------------------------------------------------------------------------------------

SAMPLE = ("data", "rows", "seed")
MODEL = (*SAMPLE, "loss", "options", "l2")


def used_columns(parameters: Mapping[str, Any], store: Store) -> StoredRows:
    """Return the data of a model, or a random sample of their rows.

    Sparse columns that are empty in them are left out: their coordinates never leave zero.
    """
    chosen = {name: parameters[name] for name in SAMPLE if name in parameters}
    return _used_columns(json.dumps(chosen, sort_keys=True), store.folder)


@lru_cache(maxsize=2)
def _used_columns(key: str, folder: Path) -> StoredRows:
    chosen = json.loads(key)
    X, y, description, _ = stored_rows(chosen["data"], Store(folder))
    rows = chosen.get("rows", y.size)
    if rows < y.size:
        kept = np.sort(np.random.default_rng(chosen["seed"]).permutation(y.size)[:rows])
        X, y = X[kept], y[kept]
    used = range(X.shape[1]) if isinstance(X, np.ndarray) else np.unique(X.indices)
    empty = X.shape[1] - len(used)
    return StoredRows(X[:, used].tocsr() if empty else X, y, description, empty)


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
    model = model_of(parameters, store)
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
