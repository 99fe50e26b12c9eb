"""The paper's regression problem as tasks, and what the experiments on it share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from accelegrad import LinearModel
from accelegrad.errors import Vector, real_number, whole_number
from accelegrad.geometry.sets import WholeSpace
from accelegrad_lab.engine.content import Curve, Panel
from accelegrad_lab.engine.experiment import POINTS, Experiment, Family, Setup
from accelegrad_lab.engine.minimum import find_minimum
from accelegrad_lab.engine.recording import record
from accelegrad_lab.engine.tasks import Outcome, Store, Task, task
from accelegrad_lab.report.palette import tints


@dataclass(frozen=True, eq=False)
class PaperProblem:
    """F(x) = ||A x - b||_p^p, a sum over the rows: smooth with p = 2, non-smooth with p = 1."""

    A: Vector
    b: Vector
    p: int

    def fun(self, x: Vector) -> tuple[float, Vector]:
        """Return F(x) and a (sub)gradient; rows without residual count 0 for p = 1."""
        residual = self.A @ x - self.b
        if self.p == 1:
            return float(np.abs(residual).sum()), self.A.T @ np.sign(residual)
        return float(residual @ residual), 2.0 * (self.A.T @ residual)

    @property
    def model(self) -> LinearModel:
        """The mean over the rows, with a half before squares."""
        return LinearModel(self.A, self.b, "squared" if self.p == 2 else "absolute")

    def minimum(self) -> tuple[Vector, float]:
        """Return a minimiser and the minimum, by Newton's method (p = 2) or HiGHS (p = 1)."""
        x = find_minimum(self.model).x
        return x, self.fun(x)[0]


@lru_cache(maxsize=4)
def paper_regression(
    p: int, *, n: int = 2000, d: int = 500, noise: float = 1e-2, seed: int
) -> PaperProblem:
    """Make the regression problem of the paper's experiments, with the same data for both p.

    A (n x d) and x have standard Gaussian entries, b = A x + Gaussian noise of the given variance.
    """
    if p not in (1, 2):
        raise ValueError(f"p must be 1 or 2, but it is {p!r}.")
    n, d = whole_number("n", n, least=1), whole_number("d", d, least=1)
    noise = real_number("noise", noise, least=0.0)
    rng = np.random.default_rng(whole_number("seed", seed, least=0))
    A, x = rng.standard_normal((n, d)), rng.standard_normal(d)
    return PaperProblem(A, A @ x + np.sqrt(noise) * rng.standard_normal(n), p)


# -- tasks -----------------------------------------------------------------------------------------

DATA = ("p", "n", "d", "noise", "seed")


def problem_of(parameters: Mapping[str, Any]) -> PaperProblem:
    """Return the problem that a task's parameters describe."""
    return paper_regression(**{name: parameters[name] for name in DATA})


def minimum_task(parameters: Mapping[str, Any]) -> Task:
    """Return the task that finds the problem's minimum."""
    return Task("regression-minimum", {name: parameters[name] for name in DATA})


@task("regression-minimum")
def found_minimum(parameters: dict[str, Any], store: Store) -> Outcome:  # noqa: ARG001
    """Find the minimum by an independent solver."""
    x_star, minimum = problem_of(parameters).minimum()
    solver = "Newton's method" if parameters["p"] == 2 else "HiGHS"
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
    if "epsilon" in options:  # F is a sum, the model's loss a mean
        options["epsilon"] /= parameters["n"] * parameters["p"]
    return record(
        problem.model,
        x0,
        objective,
        iterations=iterations,
        rows_a_call=parameters["batch"] / parameters["n"],
        batch_size=parameters["batch"],
        rng=parameters["draw"],
        **options,
    )


def _options(parameters: dict[str, Any], x_star: Vector, minimum: float) -> dict[str, Any]:
    options: dict[str, Any] = {"method": parameters["method"]}
    if "epsilon" in parameters:
        options["epsilon"] = parameters["epsilon"] * minimum
    if "rho" in parameters:
        options["diameter"] = 2 * parameters["rho"] * float(np.linalg.norm(x_star))
        if not parameters["projected"]:
            options["feasible_set"] = WholeSpace()
    return options


# -- experiments -----------------------------------------------------------------------------------

RHOS = (0.5, 1.0, 2.0, 5.0, 10.0)
RIGHT = tuple(rho for rho in RHOS if rho >= 1)  # K holds the minimiser
SHADES = dict(zip(RHOS, tints(len(RHOS)), strict=True))
ADAPTIVE = ("accelegrad", "adagrad")
PROBLEMS = {2: "smooth", 1: "non-smooth"}  # by p
GAP_FLOOR = 1e-11  # gaps relative to the minimum that are below this are rounding

Families = dict[tuple[int, str, float], Family]


def size(setup: Setup) -> dict[str, Any]:
    """Return the problem's size."""
    n, d = (500, 100) if setup.quick else (2000, 500)
    return {"n": n, "d": d, "noise": 1e-2}


def problem_facts(setup: Setup) -> dict[str, str]:
    """Return the problem in words."""
    chosen = size(setup)
    return {
        "problem": f"n = {chosen['n']}, d = {chosen['d']}, noise variance {chosen['noise']:g}",
        "F*": "Newton's method (p = 2), HiGHS (p = 1)",
        "G": "0",
    }


class RegressionExperiment(Experiment):
    """Methods with their parameters on the smooth and on the non-smooth problem.

    A cell is p, a method, and the value of its parameter: rho, or epsilon for those that search.
    """

    axes: Sequence[str]  # what the x-axes of the figures can show

    def __init__(self, *, projected: bool) -> None:
        self.projected = projected
        if not projected:
            self.name = f"{self.name}-unprojected"
            self.title = f"{self.title}, without projection"

    @abstractmethod
    def choices(self) -> list[tuple[str, float]]:
        """Return the methods, each with every value of its parameter."""

    @abstractmethod
    def length(self, setup: Setup, method: str, seed: int) -> dict[str, int]:
        """Return how long a run is, and on which rows."""

    def cells(self, setup: Setup) -> dict[tuple[int, str, float], list[Task]]:
        """Return every method with each of its parameters."""
        return {
            (p, method, value): [
                self._task(setup, p, method, value, seed) for seed in range(setup.seeds)
            ]
            for p in PROBLEMS
            for method, value in self.choices()
        }

    def _task(self, setup: Setup, p: int, method: str, value: float, seed: int) -> Task:
        adaptive = {"rho": value, "projected": self.projected}
        more = adaptive if method in ADAPTIVE else {"epsilon": value}
        known = {"p": p, "seed": seed, **size(setup), "method": method}
        return Task("regression", {**known, **self.length(setup, method, seed), **more})

    def minimum(self, task: Task) -> Task:
        """Return the task that finds F*."""
        return minimum_task(task.parameters)

    def scale(self, minimum: float) -> float:
        """Return F*: gaps are relative to it."""
        return minimum

    def panel(self, title: str, curves: Sequence[Curve]) -> Panel:
        """Return a panel with this experiment's axes."""
        return Panel(title, curves, self.axes, "(F - F*) / F*")

    def adaptive_panels(self, families: Families, p: int) -> list[Panel]:
        """Return AcceleGrad and AdaGrad by rho: averaged, and last iterates."""
        return [
            self.panel(
                f"{PROBLEMS[p]}: {words}",
                [
                    adaptive_curve(families, p, method, rho, point)
                    for method in ADAPTIVE
                    for rho in RHOS
                ],
            )
            for point, words in POINTS.items()
        ]


def adaptive_curve(families: Families, p: int, method: str, rho: float, point: str) -> Curve:
    """Return one curve, the darker the larger rho."""
    return families[p, method, rho].curve(method, f"ρ = {rho:g}", point, shade=SHADES[rho])
