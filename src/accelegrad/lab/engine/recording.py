"""Running a method with its progress recorded: the objective at the average and at the last point.

What is recorded is evaluated outside of the method's clock and of its count of calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import OptimizeResult

from accelegrad.errors import Vector
from accelegrad.lab.engine.tasks import Outcome, log_spaced
from accelegrad.minimize import minimize
from accelegrad.run.result import Status

NAMES = {
    "accelegrad": "AcceleGrad",
    "adagrad": "AdaGrad",
    "universal": "Universal primal",
    "universal-dual": "Universal dual",
    "universal-fast": "Universal fast",
    "linear-coupling": "Linear coupling",
    "subgradient": "Subgradient",
}


def record(
    fun: Any,
    x0: Vector,
    objective: Callable[[Vector], float],
    *,
    iterations: int,
    evaluations: int = 120,
    rows_a_call: float = 1.0,
    **options: Any,
) -> Outcome:
    """Minimise and record the objective along the way.

    Parameters
    ----------
    fun, x0, options
        What `minimize` takes.
    objective : callable
        What is recorded, at the average and at the last point.
    iterations : int
        How many.
    evaluations : int
        How many points are recorded, evenly spaced in log(iterations).
    rows_a_call : float
        What share of the data one call looks at: epochs = calls times this.

    Returns
    -------
    Outcome
        Arrays iteration, calls, epochs, average, last (the objective), and how the run ended.
    """
    rows: list[tuple[float, ...]] = []
    started = objective(x0)

    def callback(intermediate_result: OptimizeResult) -> None:
        known: Any = intermediate_result
        with np.errstate(all="ignore"):
            average, last = objective(known.x_average), objective(known.x_last)
        rows.append((known.nit, known.nfev, known.nfev * rows_a_call, average, last))

    result: Any = minimize(
        fun,
        x0,
        max_iter=iterations,
        callback=callback,
        callback_at=log_spaced(iterations, evaluations),
        **options,
    )
    if result.status is Status.INTERRUPTED:
        raise KeyboardInterrupt  # half a run must not be kept as a whole one
    columns = np.array(rows, dtype=np.float64).reshape(-1, 5).T
    arrays = dict(zip(("iteration", "calls", "epochs", "average", "last"), columns, strict=True))
    facts = {
        "start": started,
        "status": result.status.name,
        "message": result.message,
        "iterations": result.nit,
        "calls": result.nfev,
        "seconds": result.seconds,
        "gap": result.gap if math.isfinite(result.gap) else None,
    }
    return Outcome(arrays, facts)
