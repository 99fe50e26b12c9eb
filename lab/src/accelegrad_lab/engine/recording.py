"""Running a method with its progress recorded: the objective at the average and at the last point.

What is recorded is evaluated while the clock stands still, and counts as no call.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import OptimizeResult

from accelegrad.errors import Vector
from accelegrad.front_door import minimize
from accelegrad.run.result import Status
from accelegrad_lab.engine.tasks import Outcome

NAMES = {
    "auto": "Default",
    "accelegrad-newton": "AcceleGrad-Newton",
    "dual-ascent": "Dual ascent",
    "interior-point": "Interior point",
    "bundle": "Bundle",
    "accelegrad": "AcceleGrad",
    "adagrad": "AdaGrad",
    "universal": "Universal primal",
    "universal-dual": "Universal dual",
    "universal-fast": "Universal fast",
}


SOLVERS = ("auto", "accelegrad-newton", "dual-ascent", "interior-point")
"""Methods for sums over rows, and what is chosen by default: they run until `CLOSE` is proved.

Their passes over the data are no evaluations, so that they have no epochs.
"""
UNIVERSAL = ("universal", "universal-dual", "universal-fast")
"""Those that are given an accuracy."""
STOCHASTIC = ("accelegrad", "adagrad")
"""Those that a batch size makes stochastic; a line search needs exact values."""
METHODS = (*SOLVERS, *STOCHASTIC, "bundle", *UNIVERSAL)
"""What can be compared: linear coupling would need L, and a subgradient method a step size."""

COLUMNS = ("iteration", "calls", "epochs", "seconds", "average", "last", "certified")
OF_CLOCKED_RUNS = ("seconds", "certified")


class Recorder:
    """A callback that notes the objective and the certified gap, on the clock of the run.

    What `minimize` does before that clock starts counts too. One call looks at `rows_a_call` of the
    data; the run is stopped when it has looked at all of it `epochs` times.
    """

    def __init__(
        self, objective: Callable[[Vector], float], rows_a_call: float, epochs: float
    ) -> None:
        self._objective, self._rows_a_call, self._epochs = objective, rows_a_call, epochs
        self._rows: list[tuple[float, ...]] = []
        self._since = time.perf_counter()
        self._before: float | None = None  # seconds until the run's clock started
        self.last = 0  # the last iteration noted

    def __call__(self, intermediate_result: OptimizeResult) -> None:
        """Note where the run is; StopIteration ends one that used up its epochs."""
        if self.note(intermediate_result) >= self._epochs * (1 - 1e-9):
            raise StopIteration

    def note(self, known: Any) -> float:
        """Note what is known at some time of the run; return the epochs until then."""
        if self._before is None:
            self._before = max(0.0, time.perf_counter() - self._since - known.seconds)
        epochs, self.last = float(known.nfev * self._rows_a_call), known.nit
        with np.errstate(all="ignore"):
            values = self._objective(known.x_average), self._objective(known.x_last)
        seconds = self._before + known.seconds
        self._rows.append((known.nit, known.nfev, epochs, seconds, *values, known.gap))
        return epochs

    def arrays(self) -> dict[str, Vector]:
        """Return what was noted, by column."""
        noted = np.array(self._rows, dtype=np.float64).reshape(-1, len(COLUMNS)).T
        return dict(zip(COLUMNS, noted, strict=True))


def record(
    fun: Any,
    x0: Vector,
    objective: Callable[[Vector], float],
    *,
    iterations: int,
    evaluations: int = 120,
    rows_a_call: float = 1.0,
    epochs: float = math.inf,
    clocked: bool = False,
    **options: Any,
) -> Outcome:
    """Minimise and record the objective along the way, and how the run ended.

    `evaluations` points are recorded, evenly spaced in log(iterations). With `clocked`, seconds,
    certified gaps and the very end are recorded too; without, the same run gives the same arrays.
    What `Recorder` does not take goes to `minimize`.
    """
    started, recorder = objective(x0), Recorder(objective, rows_a_call, epochs)
    result: Any = minimize(
        fun,
        x0,
        max_iter=iterations,
        callback=recorder,
        callback_at=log_spaced(iterations, evaluations),
        **options,
    )
    if result.status is Status.INTERRUPTED:
        raise KeyboardInterrupt  # half a run must not be kept as a whole one
    # That the epochs are used up is the planned end, whoever notices it first.
    ended = Status.MAX_ITER if result.status is Status.CALLBACK else result.status
    facts = {
        "start": started,
        "method": result.method,
        "status": ended.name,
        "message": "" if ended is Status.MAX_ITER else result.message,
        "iterations": result.nit,
        "calls": result.nfev,
        "seconds": result.seconds,
        "value": finite_or_none(result.fun),
        "lower": finite_or_none(result.lower_bound),
        "gap": finite_or_none(result.gap),
    }
    if clocked and recorder.last < result.nit:  # the end, if nobody looked at it
        recorder.note(result)
    arrays = recorder.arrays()
    if not clocked:
        arrays = {name: noted for name, noted in arrays.items() if name not in OF_CLOCKED_RUNS}
    return Outcome(arrays, facts)


def log_spaced(last: int, count: int = 120) -> list[int]:
    """Return whole numbers from 1 to `last`, about evenly spaced in their logarithms."""
    return sorted({round(number) for number in np.geomspace(1, last, count)} | {last})


def finite_or_none(number: float) -> float | None:
    """Return what JSON can hold."""
    return float(number) if math.isfinite(number) else None
