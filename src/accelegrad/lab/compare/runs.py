"""One run of one of our methods on the user's data as a task, recorded against time as well."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
from scipy.optimize import OptimizeResult

from accelegrad.errors import Vector
from accelegrad.lab.compare.problem import model_of
from accelegrad.lab.engine.tasks import Outcome, Store, log_spaced, task
from accelegrad.minimize import minimize
from accelegrad.problems.linear_model import LinearModel
from accelegrad.run.result import Status

METHODS = ("accelegrad", "adagrad", "universal", "universal-dual", "universal-fast")
"""What can be compared: linear coupling would need L, and a subgradient method a step size."""
STOCHASTIC = ("accelegrad", "adagrad")
"""Those that a batch size makes stochastic; a line search needs exact values."""
COLUMNS = ("iteration", "calls", "epochs", "seconds", "average", "last")


class Recorder:
    """A callback that notes the objective, on a clock that stands still meanwhile.

    Parameters
    ----------
    model : LinearModel
        Whose objective is noted, at the average and at the last point.
    rows_a_call : float
        What share of the data one call looks at.
    epochs : float
        The run is stopped when it has looked at the data so often.
    """

    def __init__(self, model: LinearModel, rows_a_call: float, epochs: float) -> None:
        self._model, self._rows_a_call, self._epochs = model, rows_a_call, epochs
        self._rows: list[tuple[float, ...]] = []
        self._paused = 0.0
        self._since = time.perf_counter()

    def __call__(self, intermediate_result: OptimizeResult) -> None:
        """Note where the run is; StopIteration ends one that used up its epochs."""
        begun = time.perf_counter()
        known: Any = intermediate_result
        epochs = known.nfev * self._rows_a_call
        with np.errstate(all="ignore"):
            values = self._model.value(known.x_average), self._model.value(known.x_last)
        seconds = begun - self._since - self._paused
        self._rows.append((known.nit, known.nfev, epochs, seconds, *values))
        self._paused += time.perf_counter() - begun
        if epochs >= self._epochs * (1 - 1e-9):
            raise StopIteration

    def arrays(self) -> dict[str, Vector]:
        """Return what was noted, by column."""
        noted = np.array(self._rows, dtype=np.float64).reshape(-1, len(COLUMNS)).T
        return dict(zip(COLUMNS, noted, strict=True))


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
    recorder = Recorder(model, share, parameters["epochs"])
    result: Any = minimize(
        model,
        max_iter=iterations,
        callback=recorder,
        callback_at=log_spaced(iterations),
        **options,
    )
    if result.status is Status.INTERRUPTED:
        raise KeyboardInterrupt  # half a run must not be kept as a whole one
    arrays = recorder.arrays()
    return Outcome(arrays, {**_facts(result), "lowest": _lowest(arrays, result.fun)})


def _options(parameters: dict[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {
        name: parameters[name] for name in ("method", "diameter", "epsilon") if name in parameters
    }
    if parameters["batch"]:
        options |= {"batch_size": parameters["batch"], "rng": parameters["draw"]}
    return options


def _facts(result: Any) -> dict[str, Any]:
    # That the epochs are used up is the planned end, whoever notices it first.
    ended = Status.MAX_ITER if result.status is Status.CALLBACK else result.status
    return {
        "status": ended.name,
        "message": "" if ended is Status.MAX_ITER else result.message,
        "iterations": result.nit,
        "calls": result.nfev,
        "seconds": result.seconds,
        "value": result.fun if math.isfinite(result.fun) else None,
        "lower": result.lower_bound if math.isfinite(result.lower_bound) else None,
    }


def _lowest(arrays: dict[str, Vector], value: float) -> float:
    """Return the lowest value seen in a run."""
    seen = np.concatenate([arrays["average"], arrays["last"], [value]])
    return float(np.min(seen, where=np.isfinite(seen), initial=np.inf))
