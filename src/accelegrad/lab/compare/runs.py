"""One run of one of our methods on the user's data as a task, recorded against time as well."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from accelegrad.front_door import minimize
from accelegrad.lab.engine.model_tasks import model_of
from accelegrad.lab.engine.recording import record
from accelegrad.lab.engine.tasks import Outcome, Store, task

METHODS = ("accelegrad", "adagrad", "universal", "universal-dual", "universal-fast")
"""What can be compared: linear coupling would need L, and a subgradient method a step size."""
STOCHASTIC = ("accelegrad", "adagrad")
"""Those that a batch size makes stochastic; a line search needs exact values."""


@task("compare-run")
def run_method(parameters: dict[str, Any], store: Store) -> Outcome:
    """Run one method and record P along the way.

    Parameters besides those of the model: method, diameter or epsilon, epochs, batch (0: full
    gradients) and draw (the seed of the order of rows).
    """
    model = model_of(parameters, store)
    batch = parameters["batch"]
    share = batch / model.n_samples if batch else 1.0
    iterations = math.ceil(parameters["epochs"] / share)
    options = _options(parameters)
    # What is compiled, imported or cached at a first call is not the method's time.
    minimize(model, max_iter=2, **options)
    outcome = record(
        model,
        np.zeros(model.n_parameters),
        model.value,
        iterations=iterations,
        rows_a_call=share,
        epochs=parameters["epochs"],
        clocked=True,
        **options,
    )
    value = outcome.facts["value"]
    seen = np.concatenate([outcome.arrays["average"], outcome.arrays["last"]])
    lowest = float(np.min(seen, where=np.isfinite(seen), initial=math.inf))
    lowest = lowest if value is None else min(lowest, value)
    return Outcome(outcome.arrays, {**outcome.facts, "lowest": lowest})


def _options(parameters: dict[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {
        name: parameters[name] for name in ("method", "diameter", "epsilon") if name in parameters
    }
    if parameters["batch"]:
        options |= {"batch_size": parameters["batch"], "rng": parameters["draw"]}
    return options
