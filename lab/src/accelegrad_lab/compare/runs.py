"""Runs on the user's data as tasks: of our methods, recorded against time, and of scikit-learn's.

A peer is run anew with more and more iterations allowed, and each time the clock runs during `fit`
alone: none of them tells where it is on its way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from accelegrad import LinearModel
from accelegrad.errors import nearest
from accelegrad.front_door import minimize
from accelegrad_lab.engine.fit import Fit, Goal
from accelegrad_lab.engine.models import minimum_task, model_of
from accelegrad_lab.engine.recording import record
from accelegrad_lab.engine.rows import Rows
from accelegrad_lab.engine.tasks import Outcome, Store, task
from accelegrad_lab.engine.worker import Timing, quiet
from accelegrad_lab.peers import COMPARED, PEERS, iterations, once

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
CLOSE = 1e-9  # the proved gap, relative to the minimum, at which there is nothing more to see
MOST_ITERATIONS = 10_000
ALL = "sklearn"  # stands for all peers with the same objective


# -- ours ------------------------------------------------------------------------------------------


@task("compared-run")
def run_method(parameters: dict[str, Any], store: Store) -> Outcome:  # noqa: ARG001
    """Run one method and record P along the way.

    Parameters besides those of the model: method; of a solver the budget of seconds; of others
    diameter or epsilon, epochs, batch (0: full gradients) and draw (the seed of the order of rows).
    """
    model = model_of(parameters)
    options = _options(parameters)
    # What is compiled, imported or cached at a first call is not the method's time.
    minimize(model, max_iter=2, **options)
    start = np.zeros(model.n_parameters)
    length = _length(parameters, model)
    outcome = record(model, start, model.value, clocked=True, **length, **options)
    seen = np.concatenate([outcome.arrays["average"], outcome.arrays["last"]])
    lowest = float(np.min(seen, where=np.isfinite(seen), initial=math.inf))
    value = outcome.facts["value"]
    lowest = lowest if value is None else min(lowest, value)
    return Outcome(outcome.arrays, {**outcome.facts, "lowest": lowest})


def check_method(parameters: Mapping[str, Any]) -> None:
    """Raise where a method cannot take the model, by one iteration of it."""
    minimize(model_of(parameters), max_iter=1, **_options(parameters))


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


# -- peers -----------------------------------------------------------------------------------------


def fit_of(parameters: Mapping[str, Any]) -> Fit:
    """Return the model of a task as peers take it."""
    model = model_of(parameters)
    loss, options = parameters["loss"], dict(parameters.get("options", {}))
    if model.l2 == 0:
        goal = Goal(loss, None, parameters=options)
    else:
        goal = Goal(loss, strength=model.l2 * model.n_samples, parameters=options)
    return Fit(goal, Rows(model.X, model.y), defaults=False)


def chosen_peers(names: Sequence[str], fit: Fit) -> tuple[list[str], dict[str, str]]:
    """Return the names of the peers to run, and why others are left out.

    The name "sklearn" stands for all that have the same objective; a peer that is named and does
    not fit is an error.
    """
    offered = {name: PEERS[key] for name, key in COMPARED.get(fit.goal.loss, {}).items()}
    against = {name: peer.reason_against(fit) for name, peer in offered.items()}
    for name in names:
        if against.get(name):
            raise ValueError(f"peer {name!r} cannot be run here: {against[name]}.")
    wanted = [name for name in offered if (ALL in names or name in names) and not against[name]]
    left_out = {offered[name].words: reason for name, reason in against.items() if reason}
    return wanted, left_out if ALL in names else {}


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


@task("compare-peer")
def run_peer(parameters: dict[str, Any], store: Store) -> Outcome:
    """Run a peer with 1, 2, 3, 4, 6, ... iterations, each from the start.

    It ends when the peer converges, is as close to the minimum as can be seen, or the next fit
    would take more than what is left of the budget of seconds.
    """
    fit, minimum = fit_of(parameters), store.get(minimum_task(parameters)).facts["minimum"]
    rows: list[tuple[float, ...]] = []
    try:
        status = _climb(fit, parameters, minimum, rows)
    except ValueError as error:  # scikit-learn's way to say that a run diverged
        status = f"FAILED: {str(error).splitlines()[0]}"
    columns = np.array(rows, dtype=np.float64).reshape(-1, 3).T
    arrays = dict(zip(("iteration", "seconds", "value"), columns, strict=True))
    seen = arrays["value"]
    lowest = float(np.min(seen, where=np.isfinite(seen), initial=np.inf))
    return Outcome(arrays, {"status": status, "lowest": lowest})


def _climb(
    fit: Fit, parameters: Mapping[str, Any], minimum: float, rows: list[tuple[float, ...]]
) -> str:
    """Add iterations, seconds and value of one fit after the other; return why that ended."""
    peer = PEERS[COMPARED[parameters["loss"]][parameters["peer"]]]
    remaining, direct = float(parameters["budget"]), peer.ladder is once
    fit.warm_up(peer, 1.0)
    for steps in peer.ladder() if direct else iterations():
        with quiet():
            sample = fit.sample(peer, steps, Timing(), remaining)
        (rung,) = sample.rungs
        rows.append((steps, rung.seconds, rung.value))
        remaining -= rung.seconds
        if direct or sample.ended or abs(rung.value - minimum) <= 1e-3 * CLOSE * minimum:
            return "CONVERGED"
        if 2.5 * rung.seconds > remaining:
            return "TIME_LIMIT"
    return "MOST_STEPS"
