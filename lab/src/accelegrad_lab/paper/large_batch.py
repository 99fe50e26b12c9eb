"""Appendix E: large minibatches on text data, logistic regression and SVM."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from accelegrad.errors import Vector
from accelegrad.models.losses import LOSSES
from accelegrad_lab.engine.experiment import (
    POINTS,
    Claim,
    Experiment,
    Family,
    Figure,
    Panel,
    Setup,
    cells_text,
    number,
    verdict_of,
)
from accelegrad_lab.engine.models import minimum_task, model_of
from accelegrad_lab.engine.recording import NAMES, record
from accelegrad_lab.engine.tasks import Outcome, Store, Task, task
from accelegrad_lab.paper import judged
from accelegrad_lab.report.prepared import tints

PAPERS_LOSSES = ("logistic", "hinge")
METHODS = ("adagrad", "accelegrad")
DIAMETERS = (1e4, 2e2)  # the paper's, and one that fits: ||w*|| is about 56 on RCV1
Cells = dict[tuple[str, float, str, int], Family]


@task("text")
def run_method(parameters: dict[str, Any], store: Store) -> Outcome:
    """Run one method and record P - P* along the way.

    Parameters besides those of the model: method, diameter, batch, epochs, draw (the seed of the
    order of rows).
    """
    model = model_of(parameters)
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


def size(setup: Setup) -> dict[str, Any]:
    """Return how many rows and epochs a run has, whatever its batch size."""
    if setup.quick:
        return {"rows": min(6000, setup.rows), "epochs": 200}
    return {"rows": setup.rows, "epochs": 600}


def batches(setup: Setup) -> list[int]:
    """Return the batch sizes, the last one all rows."""
    rows = size(setup)["rows"]
    return [b for b in (1, 10, 100, 1000, 5000) if b < rows] + [rows]


class LargeBatch(Experiment):
    """AcceleGrad and AdaGrad with batches of one row up to all of them."""

    name = "large-batch"
    title = "Large minibatches"
    relative = False

    def model(self, setup: Setup, loss: str) -> dict[str, Any]:
        """Return the parameters of the model; the l2 term is 1/n."""
        rows = size(setup)["rows"]
        return {"data": dict(setup.data), "rows": rows, "seed": 0, "loss": loss, "l2": 1 / rows}

    def cells(self, setup: Setup) -> dict[tuple[str, float, str, int], list[Task]]:
        """Return every loss, diameter, method and batch size; seeds are orders of rows."""
        found = {}
        for cell in product(PAPERS_LOSSES, DIAMETERS, METHODS, batches(setup)):
            loss, diameter, method, batch = cell
            own = {"method": method, "diameter": diameter, "batch": batch}
            known = {**self.model(setup, loss), **own, "epochs": size(setup)["epochs"]}
            found[cell] = [Task("text", {**known, "draw": draw}) for draw in range(setup.seeds)]
        return found

    def minimum(self, task: Task) -> Task:
        """Return the task that finds P*."""
        return minimum_task(task.parameters)

    def figures(self, setup: Setup, results: Store) -> list[Figure]:
        """Return a figure for each loss and diameter, averaged iterates above the last ones."""
        cells = self.families(setup, results)
        return [
            self._figure(setup, results, cells, loss, diameter)
            for diameter in DIAMETERS
            for loss in PAPERS_LOSSES
        ]

    def _figure(
        self, setup: Setup, results: Store, cells: Cells, loss: str, diameter: float
    ) -> Figure:
        known = results.get(minimum_task(self.model(setup, loss))).facts
        chosen = batches(setup)
        shades = dict(zip(chosen, tints(len(chosen)), strict=True))
        rows = [
            [
                Panel(
                    f"{NAMES[method]}: {POINTS[point]}",
                    [
                        cells[loss, diameter, method, b].curve(
                            method, f"b = {b}", point, shade=shades[b]
                        )
                        for b in chosen
                    ],
                    ("epochs", "iterations"),
                    "P - P*",
                )
                for method in METHODS
            ]
            for point in POINTS
        ]
        n, d = known["shape"]
        return Figure(
            f"large-batch-{loss}-{diameter:g}",
            f"Large minibatches: {LOSSES[loss].words}, D = {diameter:g}",
            f"Objective gap against gradient computations, by minibatch size b, for "
            f"{LOSSES[loss].words} with an l2 term of 1/n, D = {diameter:g} for both methods.",
            rows,
            {
                "data": f"{setup.data['source']}: {n} rows, {d} non-empty columns",
                "l2": f"1/{n}",
                "b": ", ".join(map(str, batches(setup))),
                "epochs": str(size(setup)["epochs"]),
                "seeds": f"order of rows {', '.join(map(str, range(setup.seeds)))}",
                "P*": f"{known['minimum']:.12f} by {known['solver']}",
            },
        )

    def claims(self, setup: Setup, results: Store) -> list[Claim]:
        """Return the claims about large minibatches; none where there are no large ones."""
        if 1000 not in batches(setup):
            return []
        cells = self.families(setup, results)
        return [adagrad_degrades(cells), accelegrad_improves(cells), same_for_svm(cells)]


def batches_of(cells: Cells, loss: str, diameter: float, method: str) -> dict[int, Family]:
    """Return the results of each batch size."""
    return {b: family for (*kind, b), family in cells.items() if kind == [loss, diameter, method]}


def at_budget(cells: Cells, loss: str, diameter: float, method: str) -> dict[int, float]:
    """Return the averages' gaps after the epochs that all batches have done."""
    families = batches_of(cells, loss, diameter, method)
    budget = min(float(family.x["epochs"][-1]) for family in families.values())
    return {b: one.value_at("average", "epochs", budget) for b, one in families.items()}


def degrades(gaps: dict[int, float]) -> bool:
    """Whether every batch beyond 1000 is worse than that of 1000, by 1.2 times."""
    return all(gap > 1.2 * gaps[1000] for b, gap in gaps.items() if b > 1000)


def epochs_to_levels(cells: Cells, loss: str, diameter: float) -> dict[float, dict[int, float]]:
    """Return the epochs of AcceleGrad's averages to the gaps at which batch sizes are compared.

    These are 1e-2, and 1e-3 where it is reached; where no batch gets to 1e-2, the next to the
    lowest gap that any of them gets to, so that two at least are compared.
    """
    families = batches_of(cells, loss, diameter, "accelegrad")
    lowest = sorted(float(np.nanmin(family.average)) for family in families.values())
    levels = [level for level in (1e-2, 1e-3) if lowest[0] <= level] or [lowest[1]]
    return {
        level: {b: one.first_below("average", level, "epochs") for b, one in families.items()}
        for level in levels
    }


def improves(cells: Cells, loss: str, diameter: float) -> bool:
    """Whether AcceleGrad gets there in fewer epochs with some b >= 100 than with b = 1 and 10."""
    return all(
        min(after for b, after in epochs.items() if b >= 100) < min(epochs[1], epochs[10])
        for epochs in epochs_to_levels(cells, loss, diameter).values()
    )


def adagrad_degrades(cells: Cells) -> Claim:
    """AdaGrad beyond b = 1000."""
    return _judged(cells, "adagrad-degrades-with-batch", "logistic", ["adagrad"])


def accelegrad_improves(cells: Cells) -> Claim:
    """AcceleGrad with growing batches."""
    return _judged(cells, "accelegrad-improves-with-batch", "logistic", ["accelegrad"])


def same_for_svm(cells: Cells) -> Claim:
    """The hinge loss."""
    return _judged(cells, "same-for-svm", "hinge", METHODS)


def _judged(cells: Cells, name: str, loss: str, methods: Sequence[str]) -> Claim:
    """Judge that AdaGrad gets worse and AcceleGrad better; say where the latter is not so."""
    evidence, holds, lost = [], [], []
    for diameter, method in product(DIAMETERS, methods):
        gaps, words = at_budget(cells, loss, diameter, method), f"D = {diameter:g}"
        what = f"{words}: {NAMES[method]}'s gap after the same epochs by b"
        evidence.append((what, cells_text(gaps)))
        if method == "adagrad":
            holds.append(degrades(gaps))
            continue
        for level, epochs in epochs_to_levels(cells, loss, diameter).items():
            what = f"{words}: AcceleGrad's epochs to {number(level)} by b"
            evidence.append((what, cells_text(epochs)))
        holds.append(improves(cells, loss, diameter))
        lost += [] if holds[-1] else [words]
    explanation = f"Small batches are as good here: {'; '.join(lost)}." if lost else ""
    return judged(name, verdict_of(holds, part=0.0), evidence, explanation)
