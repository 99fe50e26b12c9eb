"""One run of one of our methods on the user's data as a task, recorded against time as well."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from accelegrad.front_door import minimize
from accelegrad.models.linear_model import LinearModel
from accelegrad_lab.engine.model_tasks import model_of
from accelegrad_lab.engine.recording import record
from accelegrad_lab.engine.tasks import Outcome, Store, task

SOLVERS = ("auto", "accelegrad-newton", "dual-ascent", "interior-point")
"""Methods for sums over rows, and what is chosen by default: they run until `CLOSE` is proved.

Their passes over the data are no evaluations, so that they have no epochs.
"""
UNIVERSAL = ("universal", "universal-dual", "universal-fast")
"""Those that are told an accuracy."""
METHODS = (*SOLVERS, "accelegrad", "adagrad", "bundle", *UNIVERSAL)
"""What can be compared: linear coupling would need L, and a subgradient method a step size."""
CLOSE = 1e-9
"""The proved gap, relative to the minimum, at which there is nothing more to see."""
MOST_ITERATIONS = 10_000
STOCHASTIC = ("accelegrad", "adagrad")
"""Those that a batch size makes stochastic; a line search needs exact values."""


@task("compared-run")
def run_method(parameters: dict[str, Any], store: Store) -> Outcome:
    """Run one method and record P along the way.

    Parameters besides those of the model: method; of a solver the budget of seconds; of others
    diameter or epsilon, epochs, batch (0: full gradients) and draw (the seed of the order of rows).
    """
    model = model_of(parameters, store)
    options = _options(parameters)
    # What is compiled, imported or cached at a first call is not the method's time.
    minimize(model, max_iter=2, **options)
    outcome = record(
        model,
        np.zeros(model.n_parameters),
        model.value,
        clocked=True,
        **_length(parameters, model),
        **options,
    )
    value = outcome.facts["value"]
    seen = np.concatenate([outcome.arrays["average"], outcome.arrays["last"]])
    lowest = float(np.min(seen, where=np.isfinite(seen), initial=math.inf))
    lowest = lowest if value is None else min(lowest, value)
    return Outcome(outcome.arrays, {**outcome.facts, "lowest": lowest})


def check_method(parameters: Mapping[str, Any], store: Store) -> None:
    """Raise where a method cannot take the model, by one iteration of it."""
    minimize(model_of(parameters, store), max_iter=1, **_options(parameters))


def _length(parameters: Mapping[str, Any], model: LinearModel) -> dict[str, Any]:
    """Return how long a run is, and what share of an epoch a call is."""
    if parameters["method"] in SOLVERS:
        return {"iterations": MOST_ITERATIONS, "rows_a_call": math.nan}
    epochs, batch = parameters["epochs"], parameters["batch"]
    share = batch / model.n_samples if batch else 1.0
    return {"iterations": math.ceil(epochs / share), "rows_a_call": share, "epochs": epochs}


def _options(parameters: Mapping[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {
        name: parameters[name] for name in ("method", "diameter", "epsilon") if name in parameters
    }
    if parameters["method"] in SOLVERS:
        options |= {"rtol": CLOSE, "time_limit": parameters["budget"], "rng": 0}
    elif parameters["batch"]:
        options |= {"batch_size": parameters["batch"], "rng": parameters["draw"]}
    return options
