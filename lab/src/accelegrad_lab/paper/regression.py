"""The paper's regression problem as tasks: its minimum, and one run of one method."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from accelegrad.errors import Vector
from accelegrad.geometry.sets import WholeSpace
from accelegrad.models.linear_model import LinearModel
from accelegrad_lab.engine.recording import record
from accelegrad_lab.engine.synthetic import PaperProblem, paper_regression
from accelegrad_lab.engine.tasks import Outcome, Store, Task, task

DATA = ("p", "n", "d", "noise", "seed")


@lru_cache(maxsize=4)
def _problem(p: int, n: int, d: int, noise: float, seed: int) -> PaperProblem:
    return paper_regression(p, n=n, d=d, noise=noise, seed=seed)


def problem_of(parameters: dict[str, Any]) -> PaperProblem:
    """Return the problem that a task's parameters describe."""
    return _problem(*(parameters[name] for name in DATA))


def minimum_task(parameters: dict[str, Any]) -> Task:
    """Return the task that finds the problem's minimum."""
    return Task("regression-minimum", {name: parameters[name] for name in DATA})


@task("regression-minimum")
def find_minimum(parameters: dict[str, Any], store: Store) -> Outcome:  # noqa: ARG001
    """Find the minimum by an independent solver: lstsq (p = 2) or HiGHS (p = 1)."""
    x_star, minimum = problem_of(parameters).minimum()
    solver = "lstsq" if parameters["p"] == 2 else "HiGHS"
    return Outcome({"x": x_star}, {"minimum": minimum, "solver": solver})


@task("regression")
def run_method(parameters: dict[str, Any], store: Store) -> Outcome:
    """Run one method and record F - F* along the way.

    Parameters besides those of the data: method, iterations; rho (D over twice the distance) or
    epsilon (relative to the minimum); projected; batch (0: exact gradients) and, for batches, draw
    (the seed of the rows).
    """
    problem = problem_of(parameters)
    known = store.get(minimum_task(parameters))
    minimum = known.facts["minimum"]
    options = _options(parameters, known.arrays["x"], minimum)
    x0 = np.zeros(parameters["d"])

    def objective(x: Vector) -> float:
        return float(problem.fun(x)[0] - minimum)

    iterations = parameters["iterations"]
    if not parameters["batch"]:
        return record(problem.fun, x0, objective, iterations=iterations, **options)
    scale = _mean_scale(parameters)
    model = LinearModel(
        problem.A, problem.b, loss="squared" if parameters["p"] == 2 else "absolute"
    )
    if "epsilon" in options:
        options["epsilon"] /= scale
    return record(
        model,
        x0,
        objective,
        iterations=iterations,
        rows_a_call=parameters["batch"] / parameters["n"],
        batch_size=parameters["batch"],
        rng=parameters["draw"],
        **options,
    )


def _mean_scale(parameters: dict[str, Any]) -> float:
    """Return F over the linear model's mean loss (which has a half in it for squares)."""
    return float(parameters["n"] * (2 if parameters["p"] == 2 else 1))


def _options(parameters: dict[str, Any], x_star: Vector, minimum: float) -> dict[str, Any]:
    options: dict[str, Any] = {"method": parameters["method"]}
    if "epsilon" in parameters:
        options["epsilon"] = parameters["epsilon"] * minimum
    if "rho" in parameters:
        options["diameter"] = 2 * parameters["rho"] * float(np.linalg.norm(x_star))
        if not parameters["projected"]:
            options["feasible_set"] = WholeSpace()
    return options
