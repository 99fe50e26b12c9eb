"""Linear classifiers on a data set as tasks: the minimum, and one run of one method."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize as scipy_minimize

from accelegrad.errors import Vector
from accelegrad.experiments.recording import record
from accelegrad.experiments.tasks import Outcome, Store, Task, task
from accelegrad.problems.datasets import DataError, Dataset, as_binary, read, sparse_text
from accelegrad.problems.linear_model import LinearModel

MODEL = ("data", "rows", "seed", "loss", "l2")


def generated_data(n: int, d: int, nnz: int, seed: int) -> dict[str, Any]:
    """Return the `data` parameter for the built-in generator."""
    return {"source": "generated", "n": n, "d": d, "nnz": nnz, "seed": seed}


def imported_data(path: Path, store: Store) -> dict[str, Any]:
    """Read a file into the store, once for its content, and return the `data` parameter for it."""
    data = {"source": path.name, "sha256": hashlib.sha256(content_of(path)).hexdigest()}
    if store.load(Task("dataset", data)) is None:
        dataset = read(path)
        as_binary(dataset.y)  # said now rather than by the first run
        store.save(Task("dataset", data), packed(dataset))
    return data


def content_of(path: Path) -> bytes:
    """Return a file's content; a file that cannot be read is a DataError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None


def packed(dataset: Dataset) -> Outcome:
    """Return a data set as a task's result."""
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
    return packed(sparse_text(n, d, nnz, seed=seed))


def description(data: Mapping[str, Any], store: Store) -> str:
    """Return a data set in words, for the report."""
    words: str = store.get(Task("dataset", data)).facts["description"]
    return words


def n_rows(data: Mapping[str, Any], store: Store) -> int:
    """Return how many rows a data set has."""
    return int(store.get(Task("dataset", data)).facts["shape"][0])


@lru_cache(maxsize=2)
def _sample(key: str, folder: Path, rows: int, seed: int) -> tuple[Any, Vector]:
    """Return a random sample of rows, without the columns that are empty in it.

    A coordinate whose column is empty never leaves zero: leaving it out changes no method.
    """
    outcome = Store(folder).get(Task("dataset", json.loads(key)))
    arrays, y = outcome.arrays, as_binary(outcome.arrays["y"])
    X: Any = arrays.get("dense")
    if X is None:
        parts = tuple(arrays[name] for name in ("values", "indices", "indptr"))
        X = sp.csr_matrix(parts, shape=outcome.facts["shape"])
    if rows < X.shape[0]:
        chosen = np.sort(np.random.default_rng(seed).permutation(X.shape[0])[:rows])
        X, y = X[chosen], y[chosen]
    if not isinstance(X, np.ndarray):
        X = X[:, np.unique(X.indices)].tocsr()
    return X, y


def model_of(parameters: Mapping[str, Any], store: Store) -> LinearModel:
    """Return the linear model that a task's parameters describe."""
    key = json.dumps(parameters["data"], sort_keys=True)
    X, y = _sample(key, store.folder, parameters["rows"], parameters["seed"])
    return LinearModel(X, y, loss=parameters["loss"], l2=parameters["l2"])


def minimum_task(parameters: Mapping[str, Any]) -> Task:
    """Return the task that finds the model's minimum."""
    return Task("text-minimum", {name: parameters[name] for name in MODEL})


@task("text-minimum")
def find_minimum(parameters: dict[str, Any], store: Store) -> Outcome:
    """Find the minimum by L-BFGS (SciPy), or for the hinge loss by LIBLINEAR's dual solver."""
    model = model_of(parameters, store)
    if parameters["loss"] == "hinge":
        w, solver = _by_liblinear(model), "LIBLINEAR"
    else:
        w, solver = _by_lbfgs(model), "L-BFGS"
    value = model.value(w)
    shape = [model.n_samples, model.n_features]
    facts = {"minimum": value, "solver": solver, "dual gap": model.dual_gap(w), "shape": shape}
    return Outcome({"x": w}, facts)


def _by_lbfgs(model: LinearModel) -> Vector:
    options: Any = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 0.0, "gtol": 1e-12, "maxcor": 30}
    start = np.zeros(model.n_parameters)
    found: Any = scipy_minimize(
        model.value_and_gradient, start, jac=True, method="L-BFGS-B", options=options
    )
    return np.asarray(found.x, dtype=np.float64)


def _by_liblinear(model: LinearModel) -> Vector:
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC

    C = 1 / (model.l2 * model.n_samples)
    solver = LinearSVC(
        C=C, loss="hinge", tol=1e-10, max_iter=20_000, fit_intercept=False, random_state=0
    )
    with warnings.catch_warnings():
        # How exact the minimum is, is told by the dual gap beside it.
        warnings.simplefilter("ignore", ConvergenceWarning)
        solver.fit(model.X, model.y)
    return np.asarray(solver.coef_[0], dtype=np.float64)


@task("text")
def run_method(parameters: dict[str, Any], store: Store) -> Outcome:
    """Run one method and record P - P* along the way.

    Parameters besides those of the model: method, diameter, batch, epochs, draw (the seed of the
    order of rows), most_steps (a bound that makes runs with small batches end early).
    """
    model = model_of(parameters, store)
    known = store.get(minimum_task(parameters))
    minimum, batch = known.facts["minimum"], min(parameters["batch"], model.n_samples)
    steps = min(parameters["epochs"] * model.n_samples // batch, parameters["most_steps"])

    def objective(x: Vector) -> float:
        return float(model.value(x) - minimum)

    return record(
        model,
        np.zeros(model.n_parameters),
        objective,
        iterations=max(1, steps),
        evaluations=60,
        rows_a_call=batch / model.n_samples,
        method=parameters["method"],
        diameter=parameters["diameter"],
        batch_size=batch,
        rng=parameters["draw"],
    )
