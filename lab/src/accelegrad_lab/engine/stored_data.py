"""Data sets in the store: read or generated once, kept as the result of a task."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from accelegrad.errors import Vector
from accelegrad.files.tables import Reading
from accelegrad_lab.datasets import DataError, Dataset, read, sparse_text
from accelegrad_lab.engine.tasks import Outcome, Store, Task, task


class StoredRows(NamedTuple):
    """A data set in memory."""

    X: Any
    y: Vector
    description: str


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


def without_empty_columns(X: Any) -> Any:
    """Return a sparse matrix without the columns that are empty in it (a dense one as it is).

    A coordinate whose column is empty never leaves zero: leaving it out changes no method.
    """
    if isinstance(X, np.ndarray):
        return X
    used = np.unique(X.indices)
    return X if used.size == X.shape[1] else X[:, used].tocsr()
