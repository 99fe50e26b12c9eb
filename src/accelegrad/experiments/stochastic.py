"""Appendix E: gradients of single rows, with and without projection; line searches under noise."""

from __future__ import annotations

from typing import Any

import numpy as np

from accelegrad.experiments.content import Claim, Curve, Figure, Panel, Verdict
from accelegrad.experiments.deterministic import (
    ADAPTIVE,
    POINTS,
    PROBLEMS,
    RHOS,
    RIGHT,
    ROUNDING,
    Deterministic,
    rho_text,
)
from accelegrad.experiments.experiment import (
    Experiment,
    Family,
    Results,
    Setup,
    cells_text,
    number,
    pairs_text,
    slope,
    verdict_of,
)
from accelegrad.experiments.recording import NAMES
from accelegrad.experiments.regression import minimum_task
from accelegrad.experiments.tasks import Task

SLIGHTLY_MORE = 1.25  # the "slightly increased D" that cures AcceleGrad at rho = 1
NOISY_SEARCHES = ("universal", "universal-dual", "universal-fast")
EPSILON = 1e-2  # of the searches under noise, relative to the minimum
AHEAD = 1.5  # a method is ahead if the other's gap is this many times as large
SIMILAR = 5.0  # two methods perform similarly if their gaps differ by less than this factor


def size(setup: Setup) -> dict[str, Any]:
    """Return the problem's size and the number of epochs."""
    if setup.quick:
        return {"n": 500, "d": 100, "noise": 1e-2, "epochs": 20}
    return {"n": 2000, "d": 500, "noise": 1e-2, "epochs": 30}


def data(setup: Setup, p: int, seed: int) -> dict[str, Any]:
    """Return the parameters of one problem."""
    chosen = size(setup)
    return {"p": p, "seed": seed, **{name: chosen[name] for name in ("n", "d", "noise")}}


class Stochastic(Experiment):
    """AcceleGrad and AdaGrad with minibatches of one row; line searches that fail."""

    def __init__(self, *, projected: bool) -> None:
        self.projected = projected
        self.name = "stochastic" if projected else "stochastic-unprojected"
        self.title = "Noisy gradients" + ("" if projected else ", without projection")

    # -- tasks -----------------------------------------------------------------------------------

    def first(self, setup: Setup) -> list[Task]:
        """Return the minima."""
        return [minimum_task(data(setup, p, s)) for p in PROBLEMS for s in range(setup.seeds)]

    def tasks(self, setup: Setup) -> list[Task]:
        """Return every method with each of its parameters."""
        chosen = [(m, rho) for m in ADAPTIVE for rho in (*RHOS, SLIGHTLY_MORE)]
        if self.projected:
            chosen += [(m, EPSILON) for m in NOISY_SEARCHES]
        return [
            self.task(setup, p, seed, method, value)
            for p in PROBLEMS
            for seed in range(setup.seeds)
            for method, value in chosen
        ]

    def task(self, setup: Setup, p: int, seed: int, method: str, value: float) -> Task:
        """Return one run; `value` is rho, or epsilon for the methods that search."""
        chosen = size(setup)
        parameters = {
            **data(setup, p, seed),
            "method": method,
            "batch": 1,
            "draw": 1000 + seed,
            "iterations": chosen["epochs"] * chosen["n"],
        }
        if method in NOISY_SEARCHES:
            # Two calls a step at least: the same number of rows is looked at.
            steps = parameters["iterations"] // 4
            return Task("regression", {**parameters, "epsilon": value, "iterations": steps})
        return Task("regression", {**parameters, "rho": value, "projected": self.projected})

    def family(self, setup: Setup, results: Results, p: int, method: str, value: float) -> Family:
        """Return the results of one method with one parameter, relative to the minimum."""
        seeds = range(setup.seeds)
        outcomes = [results[self.task(setup, p, seed, method, value)] for seed in seeds]
        minima = [results[minimum_task(data(setup, p, s))].facts["minimum"] for s in seeds]
        return Family.of(outcomes, minima)

    # -- figures ---------------------------------------------------------------------------------

    def figures(self, setup: Setup, results: Results) -> list[Figure]:
        """Return the paper's figure, and beside it the line searches."""
        rows = []
        for p, kind in PROBLEMS.items():
            row = [
                Panel(
                    f"{kind}: {POINTS[point]}",
                    self._adaptive_curves(setup, results, p, point),
                    ("epochs", "iterations"),
                    "(F - F*) / F*",
                )
                for point in POINTS
            ]
            if self.projected:
                row.append(
                    Panel(
                        f"{kind}: line searches",
                        self._search_curves(setup, results, p),
                        ("epochs", "iterations"),
                        "(F - F*) / F*",
                    )
                )
            rows.append(row)
        chosen = size(setup)
        caption = (
            "The same regression with gradients of single rows (minibatch 1), rows in random order "
            "without replacement. One epoch is one pass over all rows."
        )
        if self.projected:
            caption += (
                " Right: Nesterov's universal methods, whose line searches compare noisy values, "
                "beside AcceleGrad."
            )
        else:
            caption += " The methods ignore the projection."
        facts = {
            "problem": f"n = {chosen['n']}, d = {chosen['d']}, noise variance 1e-2",
            "seeds": f"data {', '.join(map(str, range(setup.seeds)))}; order of rows 1000 + seed",
            "epochs": str(chosen["epochs"]),
            "ρ": ", ".join(f"{rho:g}" for rho in sorted((*RHOS, SLIGHTLY_MORE))),
            "G": "0",
            "F*": "lstsq (p = 2), HiGHS (p = 1)",
        }
        if self.projected:
            facts["ε / F* of the line searches"] = f"{EPSILON:g}"
        return [Figure(self.name, self.title, caption, rows, facts)]

    def _adaptive_curves(self, setup: Setup, results: Results, p: int, point: str) -> list[Curve]:
        shades = np.linspace(0.6, 0.0, len(RHOS))
        return [
            self.family(setup, results, p, method, rho).curve(
                method, rho_text(rho), point, shade=float(shade)
            )
            for method in ADAPTIVE
            for rho, shade in zip(RHOS, shades, strict=True)
        ]

    def _search_curves(self, setup: Setup, results: Results, p: int) -> list[Curve]:
        curves = [
            self.family(setup, results, p, method, EPSILON).curve(method, "under noise", "average")
            for method in NOISY_SEARCHES
        ]
        shade = float(np.linspace(0.6, 0.0, len(RHOS))[RHOS.index(2.0)])
        ours = self.family(setup, results, p, "accelegrad", 2.0)
        return [*curves, ours.curve("accelegrad", rho_text(2.0), "average", shade=shade)]

    # -- claims ----------------------------------------------------------------------------------

    def claims(self, setup: Setup, results: Results) -> list[Claim]:
        """Return the claims of appendix E about noise, or about leaving the projection out."""

        def families(experiment: Stochastic, values: tuple[float, ...]) -> Families:
            return {
                (p, method, value): experiment.family(setup, results, p, method, value)
                for p in PROBLEMS
                for method in ADAPTIVE
                for value in values
            }

        if not self.projected:
            projected = families(Stochastic(projected=True), RHOS)
            exact = Deterministic(projected=True), Deterministic(projected=False)
            sides = [
                {
                    (p, method, rho): experiment.family(setup, results, p, method, rho)
                    for p in PROBLEMS
                    for method in ADAPTIVE
                    for rho in RHOS
                }
                for experiment in exact
            ]
            own = families(self, RHOS)
            return [
                works_without_projection(
                    {"exact": sides[0], "noisy": projected}, {"exact": sides[1], "noisy": own}
                ),
                works_underestimated({"exact": sides[1], "noisy": own}),
            ]
        known = families(self, (*RHOS, SLIGHTLY_MORE))
        searches = {
            (p, method): self.family(setup, results, p, method, EPSILON)
            for p in PROBLEMS
            for method in NOISY_SEARCHES
        }
        return [
            performs_similarly(known),
            adagrad_ahead_once(known),
            larger_diameter_cures(known),
            searches_fail(known, searches),
            standard_rate(known),
        ]


Families = dict[tuple[int, str, float], Family]


def _ratio(families: Families, p: int, rho: float, point: str = "average") -> float:
    """AcceleGrad's final gap over AdaGrad's."""
    return families[p, "accelegrad", rho].final(point) / families[p, "adagrad", rho].final(point)


def _ratios(families: Families) -> dict[tuple[int, float], float]:
    return {(p, rho): _ratio(families, p, rho) for p in PROBLEMS for rho in RIGHT}


def _ratios_evidence(ratios: dict[tuple[int, float], float]) -> list[tuple[str, str]]:
    return [
        (
            f"{kind}: final gap of AcceleGrad over AdaGrad's, by ρ",
            cells_text({rho: ratios[p, rho] for rho in RIGHT}),
        )
        for p, kind in PROBLEMS.items()
    ]


def _cells_in_words(ratios: dict[tuple[int, float], float]) -> str:
    return "; ".join(f"{PROBLEMS[p]}, ρ = {rho:g}: {x:.2f}" for (p, rho), x in ratios.items())


def performs_similarly(families: Families) -> Claim:
    """AcceleGrad against AdaGrad under noise."""
    ratios = _ratios(families)
    outside = {cell: x for cell, x in ratios.items() if not 1 / SIMILAR <= x <= SIMILAR}
    share = 1 - len(outside) / len(ratios)
    verdict = Verdict.HOLDS if share >= 0.75 else Verdict.FAILS
    return Claim(
        "similar-under-noise",
        "AdaGrad and AcceleGrad perform similarly for most of the parameter choices under noise.",
        "Appendix E",
        Verdict.IN_PART if verdict is Verdict.FAILS and share >= 0.5 else verdict,
        "average",
        f"Final gaps within a factor of {SIMILAR:g} for at least three quarters of all ρ ≥ 1.",
        _ratios_evidence(ratios),
        f"Not within the factor: {_cells_in_words(outside)}." if outside else "",
        "stochastic",
    )


def adagrad_ahead_once(families: Families) -> Claim:
    """Where AdaGrad is ahead."""
    ratios = _ratios(families)
    ahead = {cell: ratio for cell, ratio in ratios.items() if ratio > AHEAD}
    others = {cell: ratio for cell, ratio in ahead.items() if cell != (2, 1.0)}
    explanation = ""
    if others:
        explanation = f"AdaGrad's average is ahead elsewhere too: {_cells_in_words(others)}."
        if set(others) == {(1, 1.0)}:
            explanation += (
                " That is ρ = 1 again: x* lies on the boundary of K, and AcceleGrad's z, projected "
                "onto K, is held inside of it by the noise."
            )
    elif not ahead:
        explanation = "AdaGrad is nowhere ahead by that factor here, not even at ρ = 1."
    holds = (2, 1.0) in ahead and not others
    partly = (2, 1.0) in ahead or not ahead
    return Claim(
        "adagrad-ahead-only-at-rho-1",
        "AdaGrad overperforms AcceleGrad only for the smooth problem with ρ = 1.",
        "Appendix E",
        Verdict.HOLDS if holds else Verdict.IN_PART if partly else Verdict.FAILS,
        "average",
        f"AcceleGrad's final gap more than {AHEAD:g} times AdaGrad's at (smooth, ρ = 1), and at no "
        "other ρ ≥ 1.",
        _ratios_evidence(ratios),
        explanation,
        "stochastic",
    )


def larger_diameter_cures(families: Families) -> Claim:
    """AcceleGrad at rho = 1 against a slightly larger D."""
    ours, theirs = (
        {rho: families[2, method, rho].final("average") for rho in (1.0, SLIGHTLY_MORE, 2.0)}
        for method in ADAPTIVE
    )
    ratio = {rho: ours[rho] / theirs[rho] for rho in ours}
    cured = ratio[SLIGHTLY_MORE] <= AHEAD
    better = ours[SLIGHTLY_MORE] < ours[1.0] and ratio[2.0] <= AHEAD
    return Claim(
        "larger-diameter-cures",
        "This behaviour is caused by the projection step, and slightly increasing D cures the "
        "problem for AcceleGrad.",
        "Appendix E",
        Verdict.HOLDS if cured else Verdict.IN_PART if better else Verdict.FAILS,
        "average",
        f"At ρ = {SLIGHTLY_MORE:g} AcceleGrad's final gap is at most {AHEAD:g} times AdaGrad's "
        "(smooth problem); in part, if it is smaller than at ρ = 1 and ρ = 2 is enough.",
        [
            ("final gap AcceleGrad / AdaGrad by ρ", pairs_text(ours, theirs)),
            ("their ratio by ρ", cells_text(ratio)),
        ],
        ""
        if cured
        else f"At ρ = {SLIGHTLY_MORE:g} the gap falls to a {ours[1.0] / ours[SLIGHTLY_MORE]:.0f}th "
        "of that at ρ = 1; AdaGrad is passed only with a D that is larger than slightly so.",
        "stochastic",
    )


def searches_fail(families: Families, searches: dict[tuple[int, str], Family]) -> Claim:
    """Line searches with noisy values."""
    cells, evidence = [], []
    for (p, method), family in searches.items():
        ours = families[p, "accelegrad", 2.0].final("average")
        gap = min(family.final("average"), family.final("last"))
        ended = sorted(set(family.statuses) - {"MAX_ITER"})
        cells.append(bool(ended) or not gap <= 3 * ours)
        how = f", ended: {', '.join(ended).lower()}" if ended else ""
        what = f"{PROBLEMS[p]}, {NAMES[method]}: final gap / AcceleGrad's"
        evidence.append((what, f"{number(gap)} / {number(ours)}{how}"))
    return Claim(
        "line-searches-fail-under-noise",
        "Universal line search methods fail upon receiving stochastic feedback.",
        "Section 5 and appendix E",
        verdict_of(cells),
        "both",
        "The better of average and last iterate ends at more than 3 times AcceleGrad's gap "
        "(ρ = 2), or the run ends with a failure.",
        evidence,
        figure="stochastic",
    )


def standard_rate(families: Families) -> Claim:
    """Fitted slopes under noise."""
    cells, evidence = [], []
    for p, kind in PROBLEMS.items():
        for method in ADAPTIVE:
            family = families[p, method, 2.0]
            fitted = slope(family.x["iterations"], family.average)
            cells.append(fitted <= -0.5)
            evidence.append((f"{kind}, {NAMES[method]}, ρ = 2", f"{fitted:.2f} (wanted ≤ -0.5)"))
    return Claim(
        "standard-rate-under-noise",
        "AcceleGrad and AdaGrad ensure the standard rate 1/√T with noisy gradients.",
        "Theorems 4.1 and 4.2",
        verdict_of(cells),
        "average",
        "Fitted log-log slope over T ≥ 10 of at most -0.5, at ρ = 2.",
        evidence,
        figure="stochastic",
    )


def works_without_projection(projected: dict[str, Families], free: dict[str, Families]) -> Claim:
    """The same runs without projection."""
    lost: list[str] = []
    count = better = 0
    evidence = []
    for setting, families in free.items():
        for p, kind in PROBLEMS.items():
            for method in ADAPTIVE:
                without, with_it = (
                    {rho: side[p, method, rho].final("average", ROUNDING) for rho in RIGHT}
                    for side in (families, projected[setting])
                )
                cell = f"{setting}, {kind}, {NAMES[method]}"
                count += len(RIGHT)
                better += sum(without[rho] < with_it[rho] for rho in RIGHT)
                lost += [
                    f"{cell}, ρ = {rho:g}" for rho in RIGHT if without[rho] > 10 * with_it[rho]
                ]
                evidence.append(
                    (f"{cell}: gap without / with it by ρ", pairs_text(without, with_it))
                )
    if not lost and better:
        verdict = Verdict.HOLDS
    else:
        verdict = Verdict.IN_PART if len(lost) <= count / 4 else Verdict.FAILS
    return Claim(
        "works-without-projection",
        "The methods work well in practice even if we ignore the projection step; in some cases "
        "this may even improve the performance.",
        "Appendix E",
        verdict,
        "average",
        "Final gap without projection at most 10 times that with it, for every ρ ≥ 1, method and "
        "problem, exact or noisy; and smaller in at least one case.",
        [("smaller without projection", f"{better} of {count} cases"), *evidence],
        f"{len(lost)} of {count} cases lose more than that: {'; '.join(lost)}. There the "
        "projection is what ends the overshoot."
        if lost
        else "",
        "deterministic-unprojected",
    )


def works_underestimated(free: dict[str, Families]) -> Claim:
    """No projection, D half of what it should be."""
    cells, evidence = [], []
    for setting, families in free.items():
        for p, kind in PROBLEMS.items():
            half, right = (
                families[p, "accelegrad", rho].final("average", ROUNDING) for rho in (0.5, 1.0)
            )
            cells.append(half <= 3 * right)
            what = f"{setting}, {kind}: final gap at ρ = 1/2 / at ρ = 1"
            evidence.append((what, f"{number(half)} / {number(right)}"))
    return Claim(
        "works-with-underestimated-diameter",
        "Without projection, the method works also when we underestimate D.",
        "Appendix E",
        verdict_of(cells),
        "average",
        "AcceleGrad's final gap at ρ = 1/2 at most 3 times that at ρ = 1, exact and noisy, both "
        "problems.",
        evidence,
        figure="deterministic-unprojected",
    )
