"""Solvers of scikit-learn on the same objective as tasks: how far each gets in how much time.

A peer is run anew with more and more iterations allowed, and each time the clock runs during `fit`
alone: none of them tells where it is on its way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from accelegrad.errors import nearest
from accelegrad.models.linear_model import LinearModel
from accelegrad_lab.engine.model_tasks import minimum_task, model_of
from accelegrad_lab.engine.peers import COMPARED, SOLVERS, TIGHT, Parameters, Solver
from accelegrad_lab.engine.tasks import Outcome, Store, Task, task
from accelegrad_lab.engine.timing import fastest, timed

ALL = "sklearn"
MOST_STEPS = 10_000
CLOSE = 1e-12  # a gap, relative to the minimum, beyond which nothing is left to see
PARAMETERS: Mapping[str, Parameters] = {"liblinear": {"tol": TIGHT}}
"""By solver: what differs from the table, so that iterations alone end a fit."""
NOT_THE_SAME: Mapping[str, Mapping[str, str]] = {
    "squared_hinge": {
        "SGDClassifier": "its step sizes are made for losses of bounded slope; with this loss it "
        "diverges",
    },
    "huber": {
        "HuberRegressor": "it also fits the scale of the residuals: another objective",
    },
}
"""By loss: what is left out, and why."""


def shown(solver: Solver) -> str:
    """Return a peer's name in the report: there is one Ridge or HiGHS, and others by method."""
    return {"Ridge": solver.variant, "QuantileRegressor": "HiGHS"}.get(solver.method, solver.method)


# -- which peers -----------------------------------------------------------------------------------


def chosen_peers(names: Sequence[str], model: LinearModel) -> tuple[list[str], dict[str, str]]:
    """Return the names of the peers to run, and why others are left out.

    The name "sklearn" stands for all that have the same objective; a peer that is named and does
    not fit is an error.
    """
    offered = {name: SOLVERS[key] for name, key in COMPARED.get(model.loss.name, {}).items()}
    against = {name: solver.reason_against(model) for name, solver in offered.items()}
    for name in names:
        if against.get(name):
            raise ValueError(f"peer {name!r} cannot be run here: {against[name]}.")
    wanted = [name for name in offered if (ALL in names or name in names) and not against[name]]
    left_out: dict[str, str] = {}
    if ALL in names:
        words = {name: solver.words[model.loss.name] for name, solver in offered.items()}
        left_out = {words[name]: reason for name, reason in against.items() if reason}
        left_out |= NOT_THE_SAME.get(model.loss.name, {})
    return wanted, left_out


def check_names(names: Sequence[str], loss: str) -> None:
    """Raise where a peer is unknown, or known for other losses only."""
    everywhere = {name for offered in COMPARED.values() for name in offered}
    for name in names:
        if name == ALL or name in COMPARED.get(loss, {}):
            continue
        if name in everywhere:
            allowed = ", ".join(map(repr, (ALL, *COMPARED.get(loss, {}))))
            raise ValueError(
                f"peer {name!r} does not minimise the loss {loss!r}. Allowed with it: {allowed}."
            )
        raise ValueError(f"there is no peer {name!r}: {nearest(name, {ALL, *everywhere})}")


# -- running ---------------------------------------------------------------------------------------


def peer_task(model: Mapping[str, Any], name: str, seconds: float) -> Task:
    """Return the task that runs a peer on a model, within about so many seconds."""
    return Task("compare-peer", {**model, "peer": name, "budget": seconds})


@task("compare-peer")
def run_peer(parameters: dict[str, Any], store: Store) -> Outcome:
    """Run a peer with 1, 2, 5, 10, ... iterations, each from the start.

    It ends when the peer converges, is as close to the minimum as can be seen, or the next fit
    would take more than what is left of the budget of seconds.
    """
    model = model_of(parameters, store)
    minimum = store.get(minimum_task(parameters)).facts["minimum"]
    rows: list[tuple[float, ...]] = []
    try:
        status = _climb(parameters, model, minimum, rows)
    except ValueError as error:  # scikit-learn's way to say that a run diverged
        status = f"FAILED: {str(error).splitlines()[0]}"
    columns = np.array(rows, dtype=np.float64).reshape(-1, 3).T
    arrays = dict(zip(("iteration", "seconds", "value"), columns, strict=True))
    seen = arrays["value"]
    lowest = float(np.min(seen, where=np.isfinite(seen), initial=np.inf))
    return Outcome(arrays, {"status": status, "lowest": lowest})


def _climb(
    parameters: Mapping[str, Any], model: LinearModel, minimum: float, rows: list[tuple[float, ...]]
) -> str:
    """Add iterations, seconds and value of one fit after the other; return why that ended."""
    key, remaining = COMPARED[model.loss.name][parameters["peer"]], float(parameters["budget"])
    solver, more = SOLVERS[key], PARAMETERS.get(key, {})
    timed(solver.make(model, 1, more))  # what is imported or cached at first is not its time
    for steps in [1] if solver.direct else ladder(MOST_STEPS):
        answer, seconds = fastest(partial(solver.make, model, steps, more))
        with np.errstate(all="ignore"):
            value = model.value(answer.x)
        rows.append((1 if solver.direct else answer.steps, seconds, value))
        remaining -= seconds
        if solver.direct or answer.converged or abs(value - minimum) <= CLOSE * minimum:
            return "CONVERGED"
        if 2.5 * seconds > remaining:
            return "TIME_LIMIT"
    return "MOST_STEPS"


def ladder(most: int) -> Iterator[int]:
    """Yield 1, 2, 5, 10, 20, 50, ... up to `most`."""
    decade = 1
    while decade <= most:
        yield from (decade * digit for digit in (1, 2, 5) if decade * digit <= most)
        decade *= 10
