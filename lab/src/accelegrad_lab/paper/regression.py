"""Section 5: the regression problem with exact gradients, smooth and non-smooth.

With and (appendix E) without projection. The first part is shared with the stochastic experiment.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from accelegrad import LinearModel
from accelegrad.errors import Vector, real_number, whole_number
from accelegrad.geometry.sets import WholeSpace
from accelegrad_lab.engine.experiment import (
    POINTS,
    Claim,
    Curve,
    Experiment,
    Family,
    Figure,
    Panel,
    Setup,
    Verdict,
    cells_text,
    pairs_text,
    slope,
    verdict_of,
)
from accelegrad_lab.engine.minimum import find_minimum
from accelegrad_lab.engine.recording import NAMES, record
from accelegrad_lab.engine.tasks import Outcome, Store, Task, task
from accelegrad_lab.paper import judged
from accelegrad_lab.report.prepared import tints


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
    x, minimum = problem_of(parameters).minimum()
    return Outcome({"x": x}, {"minimum": minimum})


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
        found: dict[tuple[int, str, float], list[Task]] = {}
        for p, (method, value), seed in product(PROBLEMS, self.choices(), range(setup.seeds)):
            adaptive = {"rho": value, "projected": self.projected}
            more = adaptive if method in ADAPTIVE else {"epsilon": value}
            known = {"p": p, "seed": seed, **size(setup), "method": method}
            task = Task("regression", {**known, **self.length(setup, method, seed), **more})
            found.setdefault((p, method, value), []).append(task)
        return found

    def minimum(self, task: Task) -> Task:
        """Return the task that finds F*."""
        return minimum_task(task.parameters)

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


# -- exact gradients -------------------------------------------------------------------------------


EPSILONS = tuple(10.0**-k for k in range(1, 10))
SEARCHING = {"universal": 2, "universal-fast": 4}  # calls per iteration, as the paper says


def budget(setup: Setup) -> int:
    """Return how many oracle calls a run has."""
    return 1000 if setup.quick else 3000


class Deterministic(RegressionExperiment):
    """All methods with exact gradients."""

    name, title = "deterministic", "Exact gradients"
    axes = ("iterations", "oracle calls")

    def choices(self) -> list[tuple[str, float]]:
        """Return AcceleGrad and AdaGrad by rho, the universal methods by epsilon."""
        adaptive = [(method, rho) for method in ADAPTIVE for rho in RHOS]
        return adaptive + [(method, epsilon) for method in SEARCHING for epsilon in EPSILONS]

    def length(self, setup: Setup, method: str, seed: int) -> dict[str, int]:  # noqa: ARG002
        """Return as many iterations as the calls of the budget allow."""
        return {"batch": 0, "iterations": budget(setup) // SEARCHING.get(method, 1)}

    def figures(self, setup: Setup, results: Store) -> list[Figure]:
        """Return the paper's figure: adaptive methods by rho, searching ones by epsilon."""
        families = self.families(setup, results)
        rows = [
            self.adaptive_panels(families, p)
            + [
                self.panel(f"{kind}: {NAMES[method].lower()}", _by_epsilon(families, p, method))
                for method in SEARCHING
            ]
            for p, kind in PROBLEMS.items()
        ]
        without = "" if self.projected else " The adaptive methods ignore the projection."
        return [
            Figure(
                self.name,
                self.title,
                "Regression ‖Ax - b‖ₚᵖ from the origin, K the ball of diameter D = 2ρ‖x*‖. "
                "AcceleGrad and AdaGrad by ρ, Nesterov's universal methods (last iterates) by ε "
                "relative to F*. The universal methods need two and four data passes per "
                f"iteration: switch the axis to compare costs.{without}",
                rows,
                {
                    **problem_facts(setup),
                    "seeds": ", ".join(map(str, range(setup.seeds))),
                    "budget": f"{budget(setup)} oracle calls per run",
                    "ρ": ", ".join(f"{rho:g}" for rho in RHOS),
                    "ε / F*": ", ".join(f"{epsilon:g}" for epsilon in EPSILONS),
                    "L₀ of the universal methods": "1",
                },
            )
        ]

    def claims(self, setup: Setup, results: Store) -> list[Claim]:
        """Return the claims of section 5 (those about projections are judged elsewhere)."""
        if not self.projected:
            return []
        families = self.families(setup, results)
        return [
            beats_adagrad(families),
            last_beats_average(families),
            overshoots(families),
            small_epsilon_helps(families),
            epsilon_must_fit(families),
            data_passes(families),
            rates(families),
        ]


def _by_epsilon(families: Families, p: int, method: str) -> list[Curve]:
    shaded = zip(EPSILONS, tints(len(EPSILONS)), strict=True)
    return [
        families[p, method, epsilon].curve(method, f"ε = {epsilon:.0e}", "last", shade=shade)
        for epsilon, shade in shaded
    ]


def finals(
    families: Families, p: int, method: str, point: str = "average", floor: float = 0.0
) -> dict[float, float]:
    """Return the final gaps by rho, where the ball holds the minimiser."""
    return {rho: families[p, method, rho].final(point, floor) for rho in RIGHT}


def _iterations_to(gap: float, families: Families, method: str, point: str) -> dict[float, float]:
    """Return the iterations to a gap on the smooth problem, by rho."""
    return {r: families[2, method, r].first_below(point, gap, "iterations") for r in RIGHT}


def beats_adagrad(families: Families) -> Claim:
    """AcceleGrad against AdaGrad, cell by cell."""
    cells, evidence = [], []
    for p, kind in PROBLEMS.items():
        for point in POINTS:
            ours, theirs = (finals(families, p, method, point, GAP_FLOOR) for method in ADAPTIVE)
            cells += [ours[rho] <= theirs[rho] for rho in RIGHT]
            what = f"{kind}, {point}: final gap AcceleGrad / AdaGrad by ρ"
            evidence.append((what, pairs_text(ours, theirs)))
    ours, theirs = (_iterations_to(1e-6, families, method, "last") for method in ADAPTIVE)
    evidence.append(("smooth, last: iterations to 1e-6 by ρ", pairs_text(ours, theirs)))
    slower = any(ours[rho] > theirs[rho] for rho in RIGHT)
    verdict = verdict_of(cells)
    return judged(
        "accelegrad-beats-adagrad",
        Verdict.IN_PART if verdict is Verdict.HOLDS and slower else verdict,
        evidence,
        "For the averages, which the theorems speak of, and for both points on the non-smooth "
        "problem AcceleGrad wins throughout. The last iterates of AdaGrad are faster on the smooth "
        "problem where ρ > 1: its condition number is only about 9, so that plain gradient "
        "descent, which AdaGrad becomes there, converges linearly."
        if slower and all(cells)
        else "",
    )


def last_beats_average(families: Families) -> Claim:
    """The y_t against y_bar."""
    points, ours = ("last", "average"), "accelegrad"
    smooth_last, smooth_average = (_iterations_to(1e-3, families, ours, one) for one in points)
    rough_last, rough_average = (finals(families, 1, ours, one) for one in points)
    smooth = [smooth_last[rho] < smooth_average[rho] for rho in RIGHT]
    rough = [rough_last[rho] < rough_average[rho] for rho in RIGHT]
    verdict = verdict_of(smooth + rough, part=0.4)
    return judged(
        "last-beats-average",
        verdict,
        [
            (
                "smooth: iterations to 1e-3, y_t / average by ρ",
                pairs_text(smooth_last, smooth_average),
            ),
            ("non-smooth: final gap, y_t / average by ρ", pairs_text(rough_last, rough_average)),
        ],
        "It holds by far on the smooth problem. On the non-smooth one the two are alike for the "
        "right D, and with an overestimated one the average is better: y_t still oscillates."
        if all(smooth) and not all(rough)
        else "",
    )


def overshoots(families: Families) -> Claim:
    """An overestimated D and the first iterations."""
    cells, evidence = [], []
    for p, kind in PROBLEMS.items():
        for method in ADAPTIVE:
            first = families[p, method, 0.5].last[0]
            peaks = {}
            for rho in RHOS:
                family = families[p, method, rho]
                peaks[rho] = float(family.last[family.x["iterations"] <= 20].max() / first)
            cells.append(bool(np.all(np.diff([peaks[rho] for rho in RIGHT]) > 0)))
            what = f"{kind}, {NAMES[method]}: largest early gap by ρ, over the first at ρ = 1/2"
            evidence.append((what, cells_text(peaks)))
    return judged("overestimated-diameter-overshoots", verdict_of(cells), evidence)


def _finals(families: Families, p: int, method: str) -> dict[str, float]:
    """The final gaps of a searching method by epsilon."""
    return {
        f"{epsilon:.0e}": families[p, method, epsilon].final("last", GAP_FLOOR)
        for epsilon in EPSILONS
    }


def small_epsilon_helps(families: Families) -> Claim:
    """Universal methods on the smooth problem."""
    from scipy.stats import spearmanr

    cells, evidence = [], []
    for method in SEARCHING:
        finals = _finals(families, 2, method)
        correlation = float(spearmanr(EPSILONS, list(finals.values())).statistic)
        cells.append(correlation >= 0.8)
        what = f"{NAMES[method]}: final gap by ε (rank correlation {correlation:.2f})"
        evidence.append((what, cells_text(finals)))
    return judged("small-epsilon-helps-smooth", verdict_of(cells, part=0.0), evidence)


def epsilon_must_fit(families: Families) -> Claim:
    """Universal methods on the non-smooth problem."""
    cells: dict[str, list[bool]] = {}
    evidence = []
    for method in SEARCHING:
        finals = _finals(families, 1, method)
        gaps = list(finals.values())
        cells[method] = [gaps[0] > 1.5 * min(gaps), gaps[-1] > 1.5 * min(gaps)]
        best = min(finals, key=lambda name: finals[name])
        evidence.append((f"{NAMES[method]}: final gap by ε (best at {best})", cells_text(finals)))
    fast_unsaturated = all(cells["universal"]) and not cells["universal-fast"][0]
    return judged(
        "epsilon-must-fit-nonsmooth",
        verdict_of([cell for both in cells.values() for cell in both]),
        evidence,
        "It is plain for the primal method. The fast method is not yet saturated by the largest ε "
        "within this budget: its tests allow for τε/2 only, with a τ that falls."
        if fast_unsaturated
        else "",
    )


def data_passes(families: Families) -> Claim:
    """Calls per iteration."""
    cells, evidence = [], []
    for method, expected in {"accelegrad": 1, "adagrad": 1, **SEARCHING}.items():
        calls = [f.calls_an_iteration for (_, m, _), f in families.items() if m == method]
        tolerance = 0.01 if expected == 1 else 0.1 * expected
        cells.append(max(abs(c - expected) for c in calls) <= tolerance)
        what = f"{NAMES[method]}: calls per iteration"
        evidence.append((what, f"{min(calls):.2f} to {max(calls):.2f}"))
    return judged("data-passes", verdict_of(cells), evidence)


def rates(families: Families) -> Claim:
    """Fitted slopes of the averages."""
    wanted = {
        (2, "accelegrad"): -1.9,
        (2, "adagrad"): -0.95,
        (1, "accelegrad"): -0.5,
        (1, "adagrad"): -0.45,
    }
    cells, evidence = [], []
    for (p, method), limit in wanted.items():
        fitted = {}
        for rho in (1.0, 2.0):
            family = families[p, method, rho]
            fitted[rho] = slope(family.x["iterations"], family.average, GAP_FLOOR)
        cells += [value <= limit for value in fitted.values()]
        what = f"{PROBLEMS[p]}, {NAMES[method]}: slope by ρ (wanted ≤ {limit:g})"
        evidence.append((what, cells_text(fitted)))
    return judged("rates", verdict_of(cells), evidence)
