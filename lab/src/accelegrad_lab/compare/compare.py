"""`accelegrad compare`: the harness of the paper's experiments on a data file of the user's own."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from accelegrad.errors import Vector, nearest, real_number, whole_number
from accelegrad.files.tables import Reading
from accelegrad.models.losses import LOSSES, make_loss, plain_loss_name
from accelegrad_lab.compare.report import Comparison, build_report, save_curves
from accelegrad_lab.compare.runs import (
    METHODS,
    SOLVERS,
    STOCHASTIC,
    UNIVERSAL,
    check_method,
    check_names,
    chosen_peers,
    fit_of,
)
from accelegrad_lab.datasets import DataError, as_binary
from accelegrad_lab.engine.runner import Progress, run_tasks
from accelegrad_lab.engine.stored_data import imported_data, minimum_task, stored_rows, used_columns
from accelegrad_lab.engine.tasks import Outcome, Store, Task
from accelegrad_lab.report.report import write_report

KIND = "compared-run"
LEAST_ROWS = 2


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
    plan = _plan(request, store)
    progress = Progress(1, shown=request.progress)
    try:
        progress.part(f"{plan.data['source']}: minimum")
        run_tasks([plan.minimum_task], store, jobs=1, progress=progress)
        runs = plan.runs(store.get(plan.minimum_task))
        progress.part(f"{plan.data['source']}: runs")
        timed = [one for tasks in runs.values() for one in tasks] + list(plan.peer_tasks.values())
        run_tasks(timed, store, jobs=1, progress=progress, default_threads=True)
        progress.part_done()
    finally:
        progress.close()
    comparison = plan.comparison(runs, store)
    save_curves(comparison, request.out / "curves.csv")
    return write_report(build_report(comparison, time.perf_counter() - begun), request.out)


def _check(request: CompareRequest) -> None:
    """Raise for whatever can be seen to be wrong before the data is read."""
    _known("loss", [request.loss], LOSSES)
    if not request.methods:
        raise ValueError(f"no method is given: {nearest('', METHODS)}")
    _known("method", request.methods, METHODS)
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


def _known(kind: str, names: Iterable[str], valid: Iterable[str]) -> None:
    allowed = list(valid)
    for name in names:
        if name not in allowed:
            raise ValueError(f"there is no {kind} {name!r}: {nearest(name, allowed)}")


@dataclass(frozen=True)
class _Plan:
    """What is to be computed: the model is known, epsilon not before the minimum is."""

    request: CompareRequest
    data: dict[str, Any]
    model: dict[str, Any]
    rows: int
    peers: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def minimum_task(self) -> Task:
        """The task that finds the minimum."""
        return minimum_task(self.model)

    @property
    def peer_tasks(self) -> dict[str, Task]:
        """The peers' tasks."""
        seconds = float(self.request.peer_seconds)
        return {
            name: Task("compare-peer", {**self.model, "peer": name, "budget": seconds})
            for name in self.peers
        }

    @property
    def batch(self) -> int:
        """The rows a gradient; 0 where that is all of them."""
        size = self.request.batch_size or 0
        return size if size < self.rows else 0

    def runs(self, minimum: Outcome) -> dict[str, list[Task]]:
        """Return the runs of our methods: those with random rows as often as there are seeds."""
        return {method: self._runs_of(method, minimum) for method in self.request.methods}

    def _runs_of(self, method: str, minimum: Outcome) -> list[Task]:
        parameters = {**self.model, "method": method, "batch": 0}
        if method in SOLVERS:
            budget = float(self.request.peer_seconds)
            return [Task(KIND, {**parameters, "budget": budget})]
        parameters["epochs"] = self.request.epochs
        if method in UNIVERSAL:
            return [Task(KIND, {**parameters, "epsilon": self.epsilon(minimum)})]
        if method in STOCHASTIC:
            parameters["diameter"] = "auto" if self.diameter is None else self.diameter
        if not self.batch or method not in STOCHASTIC:
            return [Task(KIND, parameters)]
        return [
            Task(KIND, {**parameters, "batch": self.batch, "draw": draw})
            for draw in range(self.request.seeds)
        ]

    @property
    def diameter(self) -> float | None:
        """D, None where it is automatic."""
        return None if self.request.diameter is None else float(self.request.diameter)

    def epsilon(self, minimum: Outcome) -> float:
        """Return the accuracy that the universal methods are told."""
        scale = max(minimum.facts["minimum"], 1e-9 * minimum.facts["start"]) or 1.0
        return float(self.request.epsilon * scale)

    def comparison(self, runs: dict[str, list[Task]], store: Store) -> Comparison:
        """Return all results, for the report."""
        minimum = store.get(self.minimum_task)
        return Comparison(
            request=self.request,
            model=self.model,
            data=_data_facts(self.data, self.request.loss, store),
            minimum=minimum,
            diameter=self.diameter,
            epsilon=self.epsilon(minimum),
            batch=self.batch,
            runs={method: [store.get(one) for one in tasks] for method, tasks in runs.items()},
            peers={name: store.get(one) for name, one in self.peer_tasks.items()},
            left_out=self.left_out,
        )


def _plan(request: CompareRequest, store: Store) -> _Plan:
    def check(y: Vector) -> None:
        _check_targets(request.data, request.loss, y)

    data = imported_data(request.data, store, check, request.target, request.reading)
    rows = stored_rows(data, store).y.size
    l2 = 1 / rows if request.l2 is None else float(request.l2)
    model = {"data": data, "loss": request.loss, "options": _loss_options(request), "l2": l2}
    for method in set(request.methods) & set(SOLVERS):
        check_method({**model, "method": method, "budget": 1.0}, store)
    peers, left_out = chosen_peers(request.peers, fit_of(model, store))
    return _Plan(request, data, model, rows, peers, left_out)


def _loss_options(request: CompareRequest) -> dict[str, float]:
    """Return the loss's own parameters only: others must not make results differ."""
    given = {"quantile": request.quantile, "epsilon": request.tube, "delta": request.delta}
    parameter = LOSSES[request.loss].parameter
    return {} if parameter is None else {parameter.name: float(given[parameter.name])}


# -- the data --------------------------------------------------------------------------------------


def _check_targets(path: Path, loss: str, y: Vector) -> None:
    if y.size < LEAST_ROWS:
        raise DataError(
            f"{path}: the file has {y.size} row, but a comparison needs at least {LEAST_ROWS}."
        )
    if LOSSES[loss].classification:
        try:
            as_binary(y)
        except ValueError as error:
            numbers = [name for name, entry in LOSSES.items() if not entry.classification]
            raise DataError(
                f"{path}: {error} The loss {loss!r} is for two classes; for numbers to predict "
                f"take {', '.join(repr(name) for name in numbers[:-1])} or {numbers[-1]!r}."
            ) from None


def _data_facts(data: Mapping[str, Any], loss: str, store: Store) -> dict[str, str]:
    """Return what the report says about the data."""
    rows = used_columns({"data": data}, store)
    facts = {"data": rows.description, "file": data["source"], "sha256": data["sha256"]}
    if "target" in data:
        facts["target"] = f"column {data['target']!r}"
    if LOSSES[loss].classification:
        low, high = np.unique(rows.y)
        facts["labels"] = f"{low:g} is taken as -1, {high:g} as +1"
    if rows.empty:
        facts["empty columns"] = f"{rows.empty}, left out: their coefficients would stay at zero"
    return facts
