"""`accelegrad compare`: the harness of the paper's experiments on a data file of the user's own.

Runs are tasks: of our methods, recorded against time, and of scikit-learn's. A peer is run anew
with more and more iterations allowed, and each time the clock runs during `fit` alone: none of them
tells where it is on its way.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from accelegrad.errors import Vector, nearest, real_number, whole_number
from accelegrad.files.tables import DataError, Reading
from accelegrad.front_door import minimize
from accelegrad.models.losses import LOSSES, make_loss, plain_loss_name
from accelegrad_lab.compare.report import Comparison, build_report, save_curves
from accelegrad_lab.datasets import as_binary
from accelegrad_lab.engine.fit import Fit, Goal
from accelegrad_lab.engine.models import file_data, minimum_task, model_of, rows_of
from accelegrad_lab.engine.recording import METHODS, SOLVERS, STOCHASTIC, UNIVERSAL, record
from accelegrad_lab.engine.rows import Rows
from accelegrad_lab.engine.tasks import Outcome, Progress, Store, Task, run_tasks, task
from accelegrad_lab.engine.worker import Timing, quiet
from accelegrad_lab.peers import COMPARED, PEERS, iterations, once
from accelegrad_lab.report.report import write_report


@dataclass(frozen=True)
class CompareRequest:
    """What the user asked for: `accelegrad compare --help` says what each option means."""

    data: Path
    out: Path
    loss: str = "logistic"
    l2: float | None = None
    methods: Sequence[str] = ("auto", "accelegrad", "adagrad")
    peers: Sequence[str] = ()
    batch_size: int | None = None
    epochs: int = 100
    diameter: float | None = None
    epsilon: float = 1e-3
    target: str | int | None = None
    reading: Reading | None = None
    seeds: int = 1
    quantile: float = 0.5
    tube: float = 0.1  # the epsilon of the epsilon-insensitive loss
    delta: float = 1.35
    # About how long a peer may take in all, and a method of ours that goes on until it is close
    peer_seconds: float = 20.0
    progress: bool = True


def compare(request: CompareRequest) -> Path:
    """Run what is missing, and write the report; return the page's path."""
    begun = time.perf_counter()
    request = replace(request, loss=plain_loss_name(request.loss))
    _check(request)
    store = Store(request.out / "results")
    comparison, names = _comparison(request)
    progress = Progress(2, shown=request.progress)
    try:
        progress.part(f"{request.data.name}: minimum")
        known = minimum_task(comparison.model)
        run_tasks([known], store, jobs=1, progress=progress)
        comparison = replace(comparison, minimum=store.get(known))
        progress.part(f"{request.data.name}: runs")
        runs, budget = _runs(comparison), float(request.peer_seconds)
        peers = {
            name: Task("compare-peer", {**comparison.model, "peer": name, "budget": budget})
            for name in names
        }
        timed = [one for tasks in runs.values() for one in tasks] + list(peers.values())
        run_tasks(timed, store, jobs=1, progress=progress, default_threads=True)
    finally:
        progress.close()
    comparison = replace(
        comparison,
        runs={method: [store.get(one) for one in tasks] for method, tasks in runs.items()},
        peers={name: store.get(one) for name, one in peers.items()},
    )
    save_curves(comparison, request.out / "curves.csv")
    return write_report(build_report(comparison, time.perf_counter() - begun), request.out)


def _check(request: CompareRequest) -> None:
    """Raise for whatever can be seen to be wrong before the data is read."""
    if not request.methods:
        raise ValueError(f"no method is given: {nearest('', METHODS)}")
    for kind, names, known in (
        ("loss", [request.loss], LOSSES),
        ("method", request.methods, METHODS),
    ):
        for name in names:
            if name not in known:
                raise ValueError(f"there is no {kind} {name!r}: {nearest(name, known)}")
    check_names(request.peers, request.loss)
    make_loss(request.loss, quantile=request.quantile, epsilon=request.tube, delta=request.delta)
    for name in ("epochs", "seeds"):
        whole_number(name, getattr(request, name), least=1)
    if request.batch_size is not None:
        whole_number("batch_size", request.batch_size, least=1)
    if request.l2 is not None:
        real_number("l2", request.l2, least=0)
    if request.diameter is not None:
        real_number("diameter", request.diameter, above=0)
    real_number("epsilon", request.epsilon, above=0)
    real_number("peer_seconds", request.peer_seconds, above=0)


def _runs(comparison: Comparison) -> dict[str, list[Task]]:
    """Return the runs of our methods: those with random rows as often as there are seeds."""
    request, found = comparison.request, {}
    for method in request.methods:
        parameters = {**comparison.model, "method": method, "batch": 0}
        draws: list[dict[str, int]] = [{}]
        if method in SOLVERS:
            parameters["budget"] = float(request.peer_seconds)
        else:
            parameters["epochs"] = request.epochs
        if method in UNIVERSAL:
            parameters["epsilon"] = comparison.epsilon
        if method in STOCHASTIC:
            given = request.diameter
            parameters["diameter"] = "auto" if given is None else float(given)
            if comparison.batch:
                batch = {"batch": comparison.batch}
                draws = [{**batch, "draw": draw} for draw in range(request.seeds)]
        found[method] = [Task("compared-run", {**parameters, **draw}) for draw in draws]
    return found


def _comparison(request: CompareRequest) -> tuple[Comparison, list[str]]:
    """Return the comparison before its runs, and the peers that take part."""

    def check(y: Vector) -> None:
        _check_targets(request.data, request.loss, y)

    data = file_data(request.data, check, request.target, request.reading)
    rows = rows_of({"data": data}).y.size
    l2 = 1 / rows if request.l2 is None else float(request.l2)
    given = {"quantile": request.quantile, "epsilon": request.tube, "delta": request.delta}
    parameter = LOSSES[request.loss].parameter  # others must not make results differ
    options = {} if parameter is None else {parameter.name: float(given[parameter.name])}
    model = {"data": data, "loss": request.loss, "options": options, "l2": l2}
    for method in set(request.methods) & set(SOLVERS):
        known = {**model, "method": method, "budget": 1.0}  # raises where it cannot take the model
        minimize(model_of(known), max_iter=1, **_options(known))
    peers, left_out = chosen_peers(request.peers, fit_of(model))
    size = request.batch_size or 0
    facts = _data_facts(data, request.loss)
    return Comparison(request, model, facts, size if size < rows else 0, left_out), peers


# -- the data --------------------------------------------------------------------------------------


def _check_targets(path: Path, loss: str, y: Vector) -> None:
    if y.size < 2:
        raise DataError(f"{path}: the file has 1 row, but a comparison needs at least 2.")
    if LOSSES[loss].classification:
        try:
            as_binary(y)
        except ValueError as error:
            others = [repr(name) for name, entry in LOSSES.items() if not entry.classification]
            raise DataError(
                f"{path}: {error} The loss {loss!r} is for two classes. Losses for numbers to "
                f"predict: {', '.join(others)}."
            ) from None


def _data_facts(data: Mapping[str, Any], loss: str) -> dict[str, str]:
    """Return what the report says about the data."""
    rows = rows_of({"data": data})
    facts = {"data": rows.description, "file": data["source"], "sha256": data["sha256"]}
    if "target" in data:
        facts["target"] = f"column {data['target']!r}"
    if LOSSES[loss].classification:
        low, high = np.unique(rows.y)
        facts["labels"] = f"{low:g} is taken as -1, {high:g} as +1"
    if rows.empty:
        facts["empty columns"] = f"{rows.empty}, left out: their coefficients would stay at zero"
    return facts


# -- the runs, as tasks ----------------------------------------------------------------------------


CLOSE = 1e-9  # the proved gap, relative to the minimum, at which there is nothing more to see
MOST_ITERATIONS = 10_000
ALL = "sklearn"  # stands for all peers with the same objective


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
    length: dict[str, Any] = {"iterations": MOST_ITERATIONS, "rows_a_call": math.nan}
    if parameters["method"] not in SOLVERS:
        share = (parameters["batch"] or model.n_samples) / model.n_samples
        length = {"iterations": math.ceil(parameters["epochs"] / share), "rows_a_call": share}
        length["epochs"] = parameters["epochs"]
    return record(model, start, model.value, clocked=True, **length, **options)


def _options(parameters: Mapping[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {
        name: parameters[name] for name in ("method", "diameter", "epsilon") if name in parameters
    }
    if parameters["method"] in SOLVERS:
        options |= {"rtol": CLOSE, "time_limit": parameters["budget"], "rng": 0}
    elif parameters["batch"]:
        options |= {"batch_size": parameters["batch"], "rng": parameters["draw"]}
    return options


def fit_of(parameters: Mapping[str, Any]) -> Fit:
    """Return the model of a task as peers take it."""
    model = model_of(parameters)
    penalty, strength = ("l2", model.l2 * model.n_samples) if model.l2 > 0 else (None, None)
    options = dict(parameters.get("options", {}))
    goal = Goal(parameters["loss"], penalty, strength=strength, parameters=options)
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
    return Outcome(arrays, {"status": status})


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
