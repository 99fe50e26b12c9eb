"""Linear classifiers on a data set as tasks: the minimum, and one run of one method."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from accelegrad.data.datasets import as_binary
from accelegrad.errors import Vector
from accelegrad.lab.engine.recording import minimum_outcome, record
from accelegrad.lab.engine.stored_data import stored_rows, without_empty_columns
from accelegrad.lab.engine.tasks import Outcome, Store, Task, task
from accelegrad.problems.linear_model import LinearModel

MODEL = ("data", "rows", "seed", "loss", "l2")


@lru_cache(maxsize=2)
def _sample(key: str, folder: Path, rows: int, seed: int) -> tuple[Any, Vector]:
    """Return a random sample of rows, without the columns that are empty in it."""
    X, labels, _ = stored_rows(json.loads(key), Store(folder))
    y = as_binary(labels)
    if rows < X.shape[0]:
        chosen = np.sort(np.random.default_rng(seed).permutation(X.shape[0])[:rows])
        X, y = X[chosen], y[chosen]
    return without_empty_columns(X), y


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
    """Find the minimum, by a solver that has nothing to do with the methods compared."""
    return minimum_outcome(model_of(parameters, store))


@task("text")
def run_method(parameters: dict[str, Any], store: Store) -> Outcome:
    """Run one method and record P - P* along the way.

    Parameters besides those of the model: method, diameter, batch, epochs, draw (the seed of the
    order of rows), most_steps (a bound that makes runs with small batches end early).
    """
    model = model_of(parameters, store)
    known = store.get(minimum_task(parameters))
    lowest, batch = known.facts["minimum"], min(parameters["batch"], model.n_samples)
    steps = min(parameters["epochs"] * model.n_samples // batch, parameters["most_steps"])

    def objective(x: Vector) -> float:
        return float(model.value(x) - lowest)

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
