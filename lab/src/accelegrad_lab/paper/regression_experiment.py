"""What the experiments on the paper's regression problem share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from accelegrad_lab.engine.content import Curve, Panel
from accelegrad_lab.engine.experiment import POINTS, Experiment, Family, Results, Setup
from accelegrad_lab.engine.tasks import Task
from accelegrad_lab.paper.regression import minimum_task
from accelegrad_lab.report.palette import tints

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


def data(setup: Setup, p: int, seed: int) -> dict[str, Any]:
    """Return the parameters of one problem."""
    return {"p": p, "seed": seed, **size(setup)}


def problem_facts(setup: Setup) -> dict[str, str]:
    """Return the problem in words."""
    chosen = size(setup)
    return {
        "problem": f"n = {chosen['n']}, d = {chosen['d']}, noise variance {chosen['noise']:g}",
        "F*": "lstsq (p = 2), HiGHS (p = 1)",
        "G": "0",
    }


class RegressionExperiment(Experiment):
    """Methods with their parameters on the smooth and on the non-smooth problem."""

    axes: Sequence[str]  # what the x-axes of the figures can show

    def __init__(self, *, projected: bool) -> None:
        self.projected = projected
        if not projected:
            self.name = f"{self.name}-unprojected"
            self.title = f"{self.title}, without projection"

    @abstractmethod
    def choices(self) -> list[tuple[str, float]]:
        """Return the methods, each with every value of its parameter (rho or epsilon)."""

    @abstractmethod
    def task(self, setup: Setup, p: int, seed: int, method: str, value: float) -> Task:
        """Return one run; `value` is rho, or epsilon for the methods that search."""

    def first(self, setup: Setup) -> list[Task]:
        """Return the minima."""
        return [minimum_task(data(setup, p, s)) for p in PROBLEMS for s in range(setup.seeds)]

    def tasks(self, setup: Setup) -> list[Task]:
        """Return every method with each of its parameters."""
        return [
            self.task(setup, p, seed, method, value)
            for p in PROBLEMS
            for seed in range(setup.seeds)
            for method, value in self.choices()
        ]

    def family(self, setup: Setup, results: Results, p: int, method: str, value: float) -> Family:
        """Return the results of one method with one parameter, relative to the minimum."""
        seeds = range(setup.seeds)
        outcomes = [results[self.task(setup, p, seed, method, value)] for seed in seeds]
        minima = [results[minimum_task(data(setup, p, s))].facts["minimum"] for s in seeds]
        return Family.of(outcomes, minima)

    def families(self, setup: Setup, results: Results) -> Families:
        """Return all of them, by p, method and parameter."""
        return {
            (p, method, value): self.family(setup, results, p, method, value)
            for p in PROBLEMS
            for method, value in self.choices()
        }

    def panel(self, title: str, curves: Sequence[Curve]) -> Panel:
        """Return a panel with this experiment's axes."""
        return Panel(title, curves, self.axes, "(F - F*) / F*")

    def adaptive_panels(self, setup: Setup, results: Results, p: int) -> list[Panel]:
        """Return AcceleGrad and AdaGrad by rho: averaged, and last iterates."""
        return [
            self.panel(
                f"{PROBLEMS[p]}: {words}",
                [
                    self.adaptive_curve(setup, results, p, method, rho, point)
                    for method in ADAPTIVE
                    for rho in RHOS
                ],
            )
            for point, words in POINTS.items()
        ]

    def adaptive_curve(
        self, setup: Setup, results: Results, p: int, method: str, rho: float, point: str
    ) -> Curve:
        """Return one curve, the darker the larger rho."""
        family = self.family(setup, results, p, method, rho)
        return family.curve(method, f"ρ = {rho:g}", point, shade=SHADES[rho])
