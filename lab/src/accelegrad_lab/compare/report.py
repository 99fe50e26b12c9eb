"""The report of a comparison: gaps against epochs and seconds, what was reached, and the facts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from accelegrad.errors import Vector
from accelegrad.models.losses import LOSSES
from accelegrad_lab.compare.peers import shown
from accelegrad_lab.compare.runs import SOLVERS as OURS
from accelegrad_lab.compare.runs import STOCHASTIC, UNIVERSAL
from accelegrad_lab.engine.content import Claim, Curve, Figure, Panel, Report, Verdict
from accelegrad_lab.engine.experiment import POINTS, Family, cells_text, number, verdict_of
from accelegrad_lab.engine.peers import COMPARED, SOLVERS, Solver
from accelegrad_lab.engine.recording import NAMES
from accelegrad_lab.engine.tasks import Outcome
from accelegrad_lab.report.report import versions
from accelegrad_lab.report.tables import csv_text, put

if TYPE_CHECKING:
    from accelegrad_lab.compare.compare import CompareRequest

AXES = ("epochs", "seconds", "iterations")
LEVELS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-6)  # relative to the minimum
JUDGED = (1e-3, 1e-2, 1e-1)  # the first one that is reached is what a claim is judged by
EXACT = 1e-12  # differences of this relative size are rounding
DIVERGED = 1e8  # times the gap at zero: beyond, a point would only squeeze the other curves


@dataclass(frozen=True)
class Comparison:
    """All that was computed."""

    request: CompareRequest
    model: Mapping[str, Any]
    data: Mapping[str, str]
    minimum: Outcome
    diameter: float | None  # None: automatic
    epsilon: float
    batch: int
    runs: Mapping[str, Sequence[Outcome]]  # by method, one a seed
    peers: Mapping[str, Outcome]
    left_out: Mapping[str, str]

    @cached_property
    def lowest(self) -> float:
        """P*: the lowest value that the solver, a run or a peer found."""
        return min(float(self.minimum.facts["minimum"]), *self.lowest_by.values())

    @cached_property
    def lowest_by(self) -> dict[str, float]:
        """The lowest value that each method found."""
        ours = {NAMES[m]: min(o.facts["lowest"] for o in runs) for m, runs in self.runs.items()}
        theirs = {shown(self.solver(name)): o.facts["lowest"] for name, o in self.peers.items()}
        return ours | theirs

    def solver(self, name: str) -> Solver:
        """Return the solver behind a peer's name."""
        return SOLVERS[COMPARED[self.request.loss][name]]

    @property
    def undercut(self) -> bool:
        """Whether a run found a lower value than the solver for the minimum, beyond rounding."""
        solver = self.minimum.facts["minimum"]
        return bool(solver - self.lowest > EXACT * abs(solver))

    @cached_property
    def scale(self) -> float:
        """What gaps are relative to: P*, or P at zero where P* is zero."""
        return abs(self.lowest) or self.minimum.facts["start"] or 1.0

    @property
    def most(self) -> float:
        """The largest gap that is drawn."""
        start: float = self.minimum.facts["start"]
        return DIVERGED * max(start - self.lowest, EXACT * self.scale)

    @cached_property
    def series(self) -> list[Series]:
        """All curves, ours first."""
        ours = [self._own_series(method) for method in self.runs]
        return ours + [self._peer_series(name) for name in self.peers]

    def _own_series(self, method: str) -> Series:
        outcomes = self.runs[method]
        gaps = [
            Outcome(
                {**o.arrays, **{p: o.arrays[p] - self.lowest for p in POINTS}},
                o.facts,
            )
            for o in outcomes
        ]
        family = _with_seconds(Family.of(gaps, [1.0] * len(gaps)), outcomes)
        length = len(family.average)
        return Series(
            NAMES[method],
            self._variant(method),
            family,
            "; ".join(sorted({o.facts["message"] for o in outcomes} - {""})),
            certified=np.median([o.arrays["certified"][:length] for o in outcomes], axis=0),
        )

    def _variant(self, method: str) -> str:
        if method == "auto":
            return f"({self.runs[method][0].facts['method']})"
        if method in OURS:
            return ""
        stochastic = method in STOCHASTIC and self.batch > 0
        return f"{self.batch} rows a gradient" if stochastic else "all rows a gradient"

    def _peer_series(self, name: str) -> Series:
        peer, outcome = self.solver(name), self.peers[name]
        iterations, measured, values = (
            outcome.arrays[column] for column in ("iteration", "seconds", "value")
        )
        # Fewer iterations take no longer than more of them: what seems so is the clock's noise.
        seconds = np.minimum.accumulate(measured[::-1])[::-1]
        epochs = iterations if peer.passes else np.full(iterations.size, np.nan)
        x = {"epochs": epochs, "seconds": seconds, "iterations": iterations}
        gaps = values - self.lowest
        family = Family(x, gaps, gaps, {}, {}, (outcome.facts["status"],), 1.0)
        status = outcome.facts["status"]
        note = status.partition(": ")[2] if status.startswith("FAILED") else ""
        return Series(shown(peer), "scikit-learn", family, note, peer=peer)


@dataclass(frozen=True)
class Series:
    """One method's curves."""

    method: str
    variant: str
    family: Family
    note: str
    peer: Solver | None = None
    certified: Vector | None = None

    def certified_curve(self) -> Curve | None:
        """Return what the runs prove of the points that they would return; None for peers."""
        if self.certified is None or not np.isfinite(self.certified).any():
            return None
        return Curve(self.method, self.variant, self.family.x, self.certified, note=self.note)

    def curve(self, point: str, most: float) -> Curve:
        """Return what is drawn at a point, without gaps beyond `most`; peers are dashed."""
        curve = self.family.curve(self.method, self.variant, point)
        y = np.where(curve.y <= most, curve.y, np.nan)
        return replace(curve, y=y, dash="dash" if self.peer else "solid", note=self.note)

    @property
    def has_epochs(self) -> bool:
        """Whether its iterations can be counted as passes over the data."""
        return bool(np.isfinite(self.family.x["epochs"]).any())

    def reached(self, point: str, gap: float, axis: str) -> float:
        """Return where on an axis a gap was first reached; inf where it was not."""
        return self.family.first_below(point, gap, axis)

    def soonest(self, gap: float, axis: str) -> float:
        """Return where a gap was first reached by the average or the last point."""
        return min(self.reached(point, gap, axis) for point in POINTS)


def _with_seconds(family: Family, outcomes: Sequence[Outcome]) -> Family:
    length = len(family.x["iterations"])
    seconds = np.median([o.arrays["seconds"][:length] for o in outcomes], axis=0)
    return replace(family, x={**family.x, "seconds": seconds})


def build_report(comparison: Comparison, seconds: float) -> Report:
    """Return the report."""
    return Report(
        f"{_data_name(comparison)}: {LOSSES[comparison.request.loss].words}",
        _summary(comparison),
        _claims(comparison),
        _figures(comparison),
        _facts(comparison, seconds),
    )


def _data_name(comparison: Comparison) -> str:
    return comparison.data["data"].partition(":")[0]


def _summary(comparison: Comparison) -> str:
    n, d = comparison.minimum.facts["shape"]
    what = (
        f"{_sentence(LOSSES[comparison.request.loss].words)} with an l2 term of "
        f"{comparison.model['l2']:.3g} and no intercept on {n} rows and {d} columns. The curves "
        f"show P - P*, where P* = {comparison.lowest:.10g}{_accuracy(comparison)}."
    )
    level = _judged_level(comparison.series, comparison)
    if level is None:
        return what
    soonest = {s.method: s.soonest(level * comparison.scale, "seconds") for s in comparison.series}
    order = sorted(soonest, key=lambda method: soonest[method])
    times = ", ".join(f"{method} {_seconds(soonest[method])}" for method in order)
    return f"{what}\n\nTime to a gap of {level:g} P*: {times}."


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if math.isfinite(value) else "not reached"


def _accuracy(comparison: Comparison) -> str:
    """Say how well P* is known."""
    lower = comparison.minimum.facts["lower"]
    if lower is None:
        return ""
    gap = max((comparison.lowest - lower) / comparison.scale, EXACT)
    return f", certified to a relative {number(gap)}"


def _judged_level(series: Sequence[Series], comparison: Comparison) -> float | None:
    """Return the smallest relative gap, of a few, that any of these series reaches."""
    for level in JUDGED:
        if any(math.isfinite(s.soonest(level * comparison.scale, "iterations")) for s in series):
            return level
    return None


# -- figures ---------------------------------------------------------------------------------------


def _figures(comparison: Comparison) -> list[Figure]:
    """Return the gaps against seconds, and against epochs where any method has some."""
    counted = [s for s in comparison.series if s.has_epochs]
    shown = {"seconds": comparison.series, "epochs": counted}
    return [_figure(comparison, axis, series) for axis, series in shown.items() if series]


def _figure(comparison: Comparison, axis: str, series: Sequence[Series]) -> Figure:
    axes = (axis, *(other for other in AXES if other != axis))
    row = [
        Panel(_sentence(name), [s.curve(point, comparison.most) for s in series], axes, "P - P*")
        for point, name in POINTS.items()
    ]
    proved = [curve for s in series if (curve := s.certified_curve()) is not None]
    if proved:
        row.append(Panel("Certified gap: what is proved", proved, axes, "certified gap"))
    against = {"epochs": "data passes", "seconds": "time"}[axis]
    return Figure(
        axis,
        f"{_data_name(comparison)}: gap against {against}",
        _caption(comparison, axis),
        [row],
        _parameters(comparison),
    )


def _caption(comparison: Comparison, axis: str) -> str:
    caption = {
        "epochs": "One epoch is one look at every row. ",
        "seconds": "On one thread; what is drawn was evaluated while the clock stood still. ",
    }[axis]
    caption += (
        "The certified gap is what a run proves of the point that it would return, without knowing "
        "P*. "
    )
    if comparison.peers:
        caption += (
            "Dashed: scikit-learn, run anew for every point with more iterations, the same curve "
            "in both panels"
        )
        caption += ". "
    silent = [s.method for s in comparison.series if not s.has_epochs]
    if silent and axis == "epochs":
        caption += f"The iterations of {', '.join(silent)} are no epochs. "
    if any(
        np.max(s.family.at(p), initial=0) > comparison.most
        for s in comparison.series
        for p in POINTS
    ):
        caption += f"Gaps beyond {DIVERGED:g} times that at zero are not drawn."
    return caption.strip()


def _parameters(comparison: Comparison) -> dict[str, str]:
    request = comparison.request
    facts = {"loss": _loss_words(comparison), "l2": f"{comparison.model['l2']:.6g}"}
    if set(comparison.runs) & set(STOCHASTIC):
        facts["D"] = _diameter_words(comparison)
    if set(comparison.runs) & set(UNIVERSAL):
        facts["epsilon"] = (
            f"{comparison.epsilon:.4g} ({request.epsilon:g} P*; --epsilon sets another)"
        )
    facts["epochs"] = str(request.epochs)
    if comparison.batch:
        facts["batch"] = f"{comparison.batch} rows, of AcceleGrad and AdaGrad alone"
        facts["seeds"] = f"order of rows {', '.join(map(str, range(request.seeds)))}; medians"
    return facts


def _loss_words(comparison: Comparison) -> str:
    options = comparison.model["options"]
    words = ", ".join(f"{name} = {value:g}" for name, value in options.items())
    return comparison.request.loss + (f" ({words})" if words else "")


def _too_small(comparison: Comparison) -> bool:
    """Tell whether the ball of the diameter that was given cannot hold the minimiser."""
    distance = comparison.minimum.facts["distance"]
    return comparison.diameter is not None and comparison.diameter < 2 * distance


def _diameter_words(comparison: Comparison) -> str:
    if comparison.diameter is None:
        return "automatic: the methods are told nothing; AdaGrad is DoG then (--diameter sets one)"
    distance = comparison.minimum.facts["distance"]
    if not distance:
        return f"{comparison.diameter:.6g} (the minimiser is zero; --diameter sets another)"
    return (
        f"{comparison.diameter:.6g} (rho = {comparison.diameter / (2 * distance):.3g}: D over "
        "twice the distance from zero to the minimiser; --diameter sets another)"
    )


# -- claims ----------------------------------------------------------------------------------------


def _claims(comparison: Comparison) -> list[Claim]:
    """Return what can be judged of what was run."""
    by_name = {series.method: series for series in comparison.series}
    ours, rival = by_name.get("AcceleGrad"), by_name.get("AdaGrad")
    fastest = by_name.get("Default", ours)
    claims = [_certified(comparison)]
    if ours is not None and rival is not None:
        claims.append(_fewer_epochs(ours, rival, comparison))
    peers = [series for series in comparison.series if series.peer]
    if fastest is not None and peers:
        claims.append(_no_slower(fastest, peers, comparison))
    return [claim for claim in claims if claim is not None]


def _certified(comparison: Comparison) -> Claim | None:
    """Every lower bound is one."""
    evidence, holds = [], []
    for method, outcomes in comparison.runs.items():
        for outcome in outcomes:
            value, lower = outcome.facts["value"], outcome.facts["lower"]
            if value is None or lower is None:
                continue
            holds.append(lower <= comparison.lowest + EXACT * comparison.scale)
            true = value - comparison.lowest
            text = f"{number(value - lower)} certified, {number(true)} true"
            evidence.append((f"{NAMES[method]}: gap at the end", text))
    if not holds:
        return None
    verdict = verdict_of(holds, part=0.0)
    small = verdict is not Verdict.HOLDS and _too_small(comparison)
    return Claim(
        "certified",
        "The certified gap of a run is never below its true gap.",
        "this comparison",
        verdict,
        "-",
        "The lower bound that each run proves is at most P*.",
        evidence,
        "D is too small: the minimiser is outside of the ball that it describes." if small else "",
    )


def _fewer_epochs(ours: Series, rival: Series, comparison: Comparison) -> Claim | None:
    """AcceleGrad against AdaGrad."""
    level = _judged_level([ours, rival], comparison)
    if level is None:
        return None
    gap, holds, evidence = level * comparison.scale, [], []
    for point, name in POINTS.items():
        epochs = {s.method: s.reached(point, gap, "epochs") for s in (ours, rival)}
        evidence.append((f"epochs to {level:g} P*, {name}", cells_text(epochs)))
        if min(epochs.values()) < math.inf:
            holds.append(epochs[ours.method] <= epochs[rival.method])
    return Claim(
        "fewer-epochs",
        f"AcceleGrad needs no more epochs than AdaGrad to a gap of {level:g} P*.",
        "this comparison",
        verdict_of(holds, part=0.0),
        "both",
        "At the average and at the last point, where either gets there.",
        evidence,
        figure="epochs",
    )


def _no_slower(ours: Series, peers: Sequence[Series], comparison: Comparison) -> Claim | None:
    """The default, or else AcceleGrad, against the clock of others."""
    level = _judged_level([ours, *peers], comparison)
    if level is None:
        return None
    gap = level * comparison.scale
    mine = ours.soonest(gap, "seconds")
    theirs = {peer.method: peer.soonest(gap, "seconds") for peer in peers}
    seconds = {ours.method: mine, **theirs}
    holds = [mine <= other for other in theirs.values() if min(mine, other) < math.inf]
    return Claim(
        "no-slower-than-peers",
        f"{_subject(ours)} takes no more time than each peer to a gap of {level:g} P*.",
        "this comparison",
        verdict_of(holds, part=0.0),
        "both",
        "The first of its average and its last point, against each peer, where either gets there.",
        [(f"seconds to {level:g} P*: {name}", number(value)) for name, value in seconds.items()],
        figure="seconds",
    )


def _subject(series: Series) -> str:
    return "The default method" if series.method == "Default" else series.method


# -- facts -----------------------------------------------------------------------------------------


def _facts(comparison: Comparison, seconds: float) -> dict[str, dict[str, str]]:
    facts = {
        "Data": dict(comparison.data),
        "Problem": _problem_facts(comparison),
        "Runs": {_label(s): _run_words(s, comparison) for s in comparison.series},
        "Epochs to a relative gap": _reached_facts(comparison, "epochs"),
        "Seconds to a relative gap": _reached_facts(comparison, "seconds"),
    }
    loss, solvers = comparison.request.loss, map(comparison.solver, comparison.peers)
    peers = {shown(solver): solver.words[loss] for solver in solvers}
    peers |= {f"left out: {name}": why for name, why in comparison.left_out.items()}
    if peers:
        facts["Peers"] = peers
    facts["Timings"] = _timing_facts(comparison, seconds)
    facts["Versions"] = versions()
    return facts


def _label(series: Series) -> str:
    return ", ".join(filter(None, [series.method, series.variant.strip("()")]))


def _problem_facts(comparison: Comparison) -> dict[str, str]:
    known = comparison.minimum.facts
    n, d = known["shape"]
    facts = {
        "objective": "mean loss + l2/2 ||w||^2, without an intercept",
        **_parameters(comparison),
        "rows": str(n),
        "columns": str(d),
        "P at zero": f"{known['start']:.10g}",
        "P*": f"{comparison.lowest:.15g}",
        "solver": known["solver"],
    }
    if comparison.undercut:
        found = min(comparison.lowest_by, key=lambda name: comparison.lowest_by[name])
        facts["solver"] = (
            f"{known['solver']} found {known['minimum']:.15g}; P* is the lowest value found, that "
            f"of {found}"
        )
    if known["lower"] is None:
        facts["lower bound"] = "none is certified without an l2 term"
    else:
        facts["lower bound"] = (
            f"{known['lower']:.15g} by the dual: P* is{_accuracy(comparison)[1:]}"
        )
    facts["distance to the minimiser"] = f"{known['distance']:.6g}"
    return facts


def _run_words(series: Series, comparison: Comparison) -> str:
    """Return how a run ended, in one line."""
    family = series.family
    if not len(family.average):
        return f"nothing to show: {series.note or family.statuses[0].lower()}"
    if series.peer:
        parts = [f"gap {number(family.final('last'))}"]
    else:
        gaps = (f"{point} {number(family.final(point))}" for point in POINTS)
        parts = [f"gap {', '.join(gaps)}", _returned_words(series, comparison)]
    parts += [
        f"{family.x[axis][-1]:.5g} {axis}" for axis in AXES if math.isfinite(family.x[axis][-1])
    ]
    ends = sorted(set(family.statuses) - {"MAX_ITER", "MOST_STEPS"})
    if ends:
        parts.append(series.note or ", ".join(ends).lower().replace("_", " "))
    return " · ".join(filter(None, parts))


def _returned_words(series: Series, comparison: Comparison) -> str:
    """Return the true and the certified gap of the point that `minimize` returns."""
    known = [o.facts for o in _outcomes(series, comparison) if o.facts["value"] is not None]
    true = [facts["value"] - comparison.lowest for facts in known]
    certified = [f["value"] - f["lower"] for f in known if f["lower"] is not None]
    words = [f"returned {number(float(np.median(true)))}"] if true else []
    if certified:
        words.append(f"certified {number(float(np.median(certified)))}")
    return ", ".join(words)


def _outcomes(series: Series, comparison: Comparison) -> Sequence[Outcome]:
    """Return the runs behind a series of ours."""
    return next(runs for m, runs in comparison.runs.items() if NAMES[m] == series.method)


def _reached_facts(comparison: Comparison, axis: str) -> dict[str, str]:
    """Return where on an axis each series reached which gap, at its better point."""
    return {
        _label(series): _reached_words(
            {level: series.soonest(level * comparison.scale, axis) for level in LEVELS}
        )
        for series in comparison.series
        if axis != "epochs" or series.has_epochs
    }


def _reached_words(places: Mapping[float, float]) -> str:
    cells = [f"{level:g}: {at:.4g}" for level, at in places.items() if math.isfinite(at)]
    if len(cells) < len(places):
        cells.append("no further" if cells else f"not even {max(places):g}")
    return " · ".join(cells)


def _timing_facts(comparison: Comparison, seconds: float) -> dict[str, str]:
    jobs = comparison.request.jobs
    alone = "1: runs are timed one at a time"
    several = f"{jobs}: runs that go on at the same time disturb each other's clocks"
    facts = {
        "processes": alone if jobs == 1 else several,
        "threads": "1 a process, for every method",
        "our clock": "without what is recorded; of a peer: fit alone, the best of three if short",
    }
    if comparison.peers:
        facts["peers"] = (
            f"1, 2, 5, 10, ... iterations within {comparison.request.peer_seconds:g} s each, "
            "random_state=0"
        )
    return facts | {
        "in all": f"{seconds:.1f} s (results that were there already took none)",
        "raw numbers": "curves.csv",
    }


# -- the raw numbers -------------------------------------------------------------------------------


def save_curves(comparison: Comparison, path: Path) -> None:
    """Write every recorded point as CSV, for others to plot; whole or not at all."""
    head = ["method", "variant", "seed", *AXES, "P average", "P last", "certified gap"]
    rows = (
        [series.method, series.variant, seed, *map(float, row)]
        for series in comparison.series
        for seed, columns in enumerate(_recorded(series, comparison))
        for row in zip(*columns, strict=True)
    )
    put(path, csv_text(head, rows, end="\r\n"))


def _recorded(series: Series, comparison: Comparison) -> list[list[Vector]]:
    """Return epochs, seconds, iterations, P at both points and the gap, for every seed."""
    if series.peer:
        values = [series.family.at(point) + comparison.lowest for point in POINTS]
        nothing = np.full(values[0].size, np.nan)
        return [[*(series.family.x[axis] for axis in AXES), *values, nothing]]
    names = ("epochs", "seconds", "iteration", *POINTS, "certified")
    return [[o.arrays[name] for name in names] for o in _outcomes(series, comparison)]
