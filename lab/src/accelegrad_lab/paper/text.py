"""Linear classifiers on a data set as tasks: one run of one method."""

from __future__ import annotations

from typing import Any

import numpy as np

from accelegrad.errors import Vector
from accelegrad_lab.engine.model_tasks import minimum_task, model_of
from accelegrad_lab.engine.recording import record
from accelegrad_lab.engine.tasks import Outcome, Store, task

TEXT = "text"  # the kind of its tasks


@task(TEXT)
def run_method(parameters: dict[str, Any], store: Store) -> Outcome:
    """Run one method and record P - P* along the way.

    Parameters besides those of the model: method, diameter, batch, epochs, draw (the seed of the
    order of rows).
    """
    model = model_of(parameters, store)
    known = store.get(minimum_task(parameters))
    lowest, batch = known.facts["minimum"], min(parameters["batch"], model.n_samples)
    steps = parameters["epochs"] * model.n_samples // batch

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
