"""Section 5: exact gradients, smooth and non-smooth; with and (appendix E) without projection."""

from __future__ import annotations

import numpy as np

from accelegrad_lab.engine.content import Claim, Curve, Figure, Verdict
from accelegrad_lab.engine.experiment import (
    POINTS,
    Setup,
    cells_text,
    pairs_text,
    slope,
    verdict_of,
)
from accelegrad_lab.engine.recording import NAMES
from accelegrad_lab.engine.tasks import Store
from accelegrad_lab.paper import judged
from accelegrad_lab.paper.regression import (
    ADAPTIVE,
    GAP_FLOOR,
    PROBLEMS,
    RHOS,
    RIGHT,
    Families,
    RegressionExperiment,
    problem_facts,
)
from accelegrad_lab.report.palette import tints

EPSILONS = tuple(10.0**-k for k in range(1, 10))
SEARCHING = {"universal": 2, "universal-fast": 4}  # calls an iteration, as the paper says


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
                "relative to F*. The universal methods need two and four data passes an "
                f"iteration: switch the axis to compare costs.{without}",
                rows,
                {
                    **problem_facts(setup),
                    "seeds": ", ".join(map(str, range(setup.seeds))),
                    "budget": f"{budget(setup)} oracle calls a run",
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


def beats_adagrad(families: Families) -> Claim:
    """AcceleGrad against AdaGrad, cell by cell."""
    cells, evidence = [], []
    for p, kind in PROBLEMS.items():
        for point in POINTS:
            ours, theirs = (
                {rho: families[p, method, rho].final(point, GAP_FLOOR) for rho in RIGHT}
                for method in ADAPTIVE
            )
            cells += [ours[rho] <= theirs[rho] for rho in RIGHT]
            what = f"{kind}, {point}: final gap AcceleGrad / AdaGrad by ρ"
            evidence.append((what, pairs_text(ours, theirs)))
    ours, theirs = (
        {rho: families[2, method, rho].first_below("last", 1e-6, "iterations") for rho in RIGHT}
        for method in ADAPTIVE
    )
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
    smooth_last, smooth_average = (
        {r: families[2, "accelegrad", r].first_below(point, 1e-3, "iterations") for r in RIGHT}
        for point in ("last", "average")
    )
    rough_last, rough_average = (
        {r: families[1, "accelegrad", r].final(point) for r in RIGHT}
        for point in ("last", "average")
    )
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
    """Calls an iteration."""
    cells, evidence = [], []
    for method, expected in {"accelegrad": 1, "adagrad": 1, **SEARCHING}.items():
        calls = [f.calls_an_iteration for (_, m, _), f in families.items() if m == method]
        tolerance = 0.01 if expected == 1 else 0.1 * expected
        cells.append(max(abs(c - expected) for c in calls) <= tolerance)
        what = f"{NAMES[method]}: calls an iteration"
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
