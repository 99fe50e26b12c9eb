"""The report of a comparison: gaps against seconds and epochs, what was reached, and the facts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from accelegrad.errors import Vector
from accelegrad.models.losses import LOSSES
from accelegrad_lab.engine.experiment import (
    POINTS,
    Claim,
    Curve,
    Family,
    Figure,
    Panel,
    Report,
    number,
    verdict_of,
)
from accelegrad_lab.engine.recording import NAMES, SOLVERS, STOCHASTIC, UNIVERSAL
from accelegrad_lab.engine.tasks import Outcome, put
from accelegrad_lab.peers import COMPARED, PEERS, Peer, tolerances
from accelegrad_lab.report.report import versions
from accelegrad_lab.report.tables import csv_text

if TYPE_CHECKING:
    from accelegrad_lab.compare.compare import CompareRequest

AXES = ("epochs", "seconds", "iterations")
VALUES = (*POINTS, "value")  # the columns that hold values of P: of our runs, and of a peer's
LEVELS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-6)  # relative to the minimum
JUDGED = (1e-3, 1e-2, 1e-1)  # the summary says how soon the first of them that is reached was
EXACT = 1e-12  # differences of this relative size are rounding
DIVERGED = 1e8  # times the gap at zero: beyond, a point would only squeeze the other curves


@dataclass(frozen=True)
class Series:
    """One method's curves."""

    method: str
    variant: str
    family: Family
    note: str
    outcomes: Sequence[Outcome]
    peer: Peer | None = None

    def certified_curve(self) -> Curve | None:
        """Return what the runs prove of the points that they would return; None for peers."""
        certified = self.family.certified
        if certified is None or not np.isfinite(certified).any():
            return None
        return Curve(self.method, self.variant, self.family.x, certified, note=self.note)

    def curve(self, point: str, least: float, most: float) -> Curve:
        """Return what is drawn at a point: gaps from `least` to `most`; peers are dashed.

        What is smaller is rounding, zero included, and drawn at `least`.
        """
        curve = self.family.curve(self.method, self.variant, point)
        y = np.where(curve.y <= most, np.maximum(curve.y, least), np.nan)
        return replace(curve, y=y, dash="dash" if self.peer else "solid", note=self.note)

    @property
    def has_epochs(self) -> bool:
        """Whether its iterations can be counted as passes over the data."""
        return bool(np.isfinite(self.family.x["epochs"]).any())

    @property
    def label(self) -> str:
        """Its whole name."""
        return ", ".join(filter(None, [self.method, self.variant]))

    def soonest(self, gap: float, axis: str) -> float:
        """Return where a gap was first reached by the average or the last point."""
        return min(self.family.first_below(point, gap, axis) for point in POINTS)


@dataclass(frozen=True)
class Comparison:
    """All that was computed."""

    request: CompareRequest
    model: Mapping[str, Any]
    data: Mapping[str, str]
    batch: int  # the rows per gradient; 0 where that is all of them
    left_out: Mapping[str, str]
    minimum: Outcome = field(default_factory=lambda: Outcome({}, {}))
    runs: Mapping[str, Sequence[Outcome]] = field(default_factory=dict)  # one per seed
    peers: Mapping[str, Outcome] = field(default_factory=dict)

    @property
    def epsilon(self) -> float:
        """The accuracy that the universal methods are told."""
        scale = max(self.minimum.facts["minimum"], 1e-9 * self.minimum.facts["start"]) or 1.0
        return float(self.request.epsilon * scale)

    @cached_property
    def lowest(self) -> float:
        """P*: the lowest value that the solver, a run or a peer found."""
        values = [np.array([self.minimum.facts["minimum"]])]
        for outcome in (one for runs in (*self.runs.values(), self.peers.values()) for one in runs):
            values += [outcome.arrays[name] for name in VALUES if name in outcome.arrays]
            if outcome.facts.get("value") is not None:  # of the point that the run returned
                values.append(np.array([outcome.facts["value"]]))
        return float(np.nanmin(np.concatenate(values)))

    def peer(self, name: str) -> Peer:
        """Return the solver behind a peer's name."""
        return PEERS[COMPARED[self.request.loss][name]]

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
        ours = [self._own_series(method, outcomes) for method, outcomes in self.runs.items()]
        return ours + [self._peer_series(name, outcome) for name, outcome in self.peers.items()]

    def _own_series(self, method: str, outcomes: Sequence[Outcome]) -> Series:
        family = Family.of(outcomes, [1.0] * len(outcomes), self.lowest)
        rows = (method in STOCHASTIC and self.batch) or "all"
        variant = "" if method in SOLVERS else f"{rows} rows per gradient"
        if method == "auto":
            variant = outcomes[0].facts["method"]
        return Series(
            NAMES[method],
            variant,
            family,
            "; ".join(sorted({o.facts["message"] for o in outcomes} - {""})),
            outcomes,
        )

    def _peer_series(self, name: str, outcome: Outcome) -> Series:
        peer = self.peer(name)
        iterations, measured, values = (
            outcome.arrays[column] for column in ("iteration", "seconds", "value")
        )
        # Fewer iterations take no longer than more of them: what seems so is the clock's noise.
        seconds = np.minimum.accumulate(measured[::-1])[::-1]
        # LIBLINEAR soon leaves rows out, and others need no iterations.
        passes = peer.ladder is not tolerances and iterations.size > 1
        epochs = iterations if passes else np.full(iterations.size, np.nan)
        x = {"epochs": epochs, "seconds": seconds, "iterations": iterations}
        gaps, status = values - self.lowest, outcome.facts["status"]
        family = Family(x, gaps, gaps, {}, {}, (status,), 1.0)
        note = status.partition(": ")[2] if status.startswith("FAILED") else ""
        return Series(peer.shown, "scikit-learn", family, note, [outcome], peer)


def build_report(comparison: Comparison, seconds: float) -> Report:
    """Return the report."""
    loss = LOSSES[comparison.request.loss].words
    title = f"{comparison.data['data'].partition(':')[0]}: {loss}"
    n, d = comparison.minimum.facts["shape"]
    summary = (
        f"{_sentence(loss)} with an l2 term of {comparison.model['l2']:.3g} and no intercept on "
        f"{n} rows and {d} columns. The curves show P - P*, where P* = {comparison.lowest:.10g}"
        f"{_accuracy(comparison)}."
    )
    for level in JUDGED:
        gap = level * comparison.scale
        soonest = {s.label: s.soonest(gap, "seconds") for s in comparison.series}
        reached = sorted((after, name) for name, after in soonest.items() if after < math.inf)
        if reached:
            words = "; ".join(f"{name} {after:.3g} s" for after, name in reached)
            summary += f"\n\nTime to a gap of {level:g} P*: {words}."
            if len(reached) < len(soonest):
                summary += f" {len(soonest) - len(reached)} of {len(soonest)} do not reach it."
            break
    # Against seconds, and against epochs where any method has some.
    shown = {"seconds": comparison.series, "epochs": [s for s in comparison.series if s.has_epochs]}
    figures = [_figure(comparison, axis, series) for axis, series in shown.items() if series]
    return Report(title, summary, _claims(comparison), figures, _facts(comparison, seconds))


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def _accuracy(comparison: Comparison) -> str:
    """Say how well P* is known."""
    lower = comparison.minimum.facts["lower"]
    if lower is None:
        return ""
    gap = max((comparison.lowest - lower) / comparison.scale, EXACT)
    return f", certified to a relative {number(gap)}"


def _figure(comparison: Comparison, axis: str, series: Sequence[Series]) -> Figure:
    axes = (axis, *(other for other in AXES if other != axis))
    least, most = EXACT * comparison.scale, comparison.most
    row = [
        Panel(_sentence(name), [s.curve(point, least, most) for s in series], axes, "P - P*")
        for point, name in POINTS.items()
    ]
    proved = [curve for s in series if (curve := s.certified_curve()) is not None]
    if proved:
        row.append(Panel("Certified gap: what is proved", proved, axes, "certified gap"))
    caption = (
        "What is drawn was evaluated while the clock stood still. One epoch is one look at every "
        "row. The certified gap is what a run proves of the point that it would return, without "
        f"knowing P*. Gaps below {number(least)} are rounding, and are drawn there."
    )
    if comparison.peers:
        caption += (
            " Dashed: scikit-learn, run anew for every point with more iterations, the same curve "
            "in both panels."
        )
    if any(np.max(s.family.at(p), initial=0) > most for s in comparison.series for p in POINTS):
        caption += f" Gaps beyond {DIVERGED:g} times that at zero are not drawn."
    against = {"epochs": "data passes", "seconds": "time"}[axis]
    return Figure(axis, f"Gap against {against}", caption, [row], _parameters(comparison))


def _parameters(comparison: Comparison) -> dict[str, str]:
    request, options = comparison.request, comparison.model["options"]
    words = ", ".join(f"{name} = {value:g}" for name, value in options.items())
    facts = {"loss": request.loss + (f" ({words})" if words else "")}
    facts["l2"] = f"{comparison.model['l2']:.6g}"
    if set(comparison.runs) & set(STOCHASTIC):
        given = request.diameter
        facts["D"] = "automatic: nothing is given" if given is None else f"{given:.6g}"
    if set(comparison.runs) & set(UNIVERSAL):
        facts["epsilon"] = f"{comparison.epsilon:.4g} ({request.epsilon:g} P*)"
    facts["epochs"] = str(request.epochs)
    if comparison.batch:
        facts["batch"] = f"{comparison.batch} rows, of AcceleGrad and AdaGrad alone"
        facts["seeds"] = f"order of rows {', '.join(map(str, range(request.seeds)))}; medians"
    return facts


def _claims(comparison: Comparison) -> list[Claim]:
    """Return the claim that every lower bound is one, where any is proved."""
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
        return []
    claim = Claim(
        "certified",
        "The certified gap of a run is never below its true gap.",
        "this comparison",
        verdict_of(holds, part=0.0),
        "-",
        "The lower bound that each run proves is at most P*.",
        evidence,
    )
    return [claim]


# -- facts -----------------------------------------------------------------------------------------


def _facts(comparison: Comparison, seconds: float) -> dict[str, dict[str, str]]:
    peers = {comparison.peer(name).shown: comparison.peer(name).words for name in comparison.peers}
    peers |= {f"left out: {name}": why for name, why in comparison.left_out.items()}
    return {
        "Data": dict(comparison.data),
        "Problem": _problem_facts(comparison),
        "Runs": {s.label: _run_words(s) for s in comparison.series},
        **{f"{_sentence(axis)} to a relative gap": _reached(comparison, axis) for axis in AXES[:2]},
        **({"Peers": peers} if peers else {}),
        "Timings": {
            "clock": "wall time with the default number of threads, one run at a time; of ours "
            "without what is recorded, of a peer fit alone, the best of three if short",
            "in all": f"{seconds:.1f} s (results that were there already took none)",
            "raw numbers": "curves.csv",
        },
        "Versions": versions(),
    }


def _problem_facts(comparison: Comparison) -> dict[str, str]:
    known = comparison.minimum.facts
    n, d = known["shape"]
    return {
        "objective": "mean loss + l2/2 ||w||^2, without an intercept",
        **_parameters(comparison),
        "rows": str(n),
        "columns": str(d),
        "P at zero": f"{known['start']:.10g}",
        "P*": f"{comparison.lowest:.15g}",
        "solver": known["solver"],
        "lower bound": "none is certified"
        if known["lower"] is None
        else f"{known['lower']:.15g} by the dual: P* is{_accuracy(comparison)[1:]}",
        "distance to the minimiser": f"{known['distance']:.6g}",
    }


def _run_words(series: Series) -> str:
    """Return how a run ended, in one line."""
    family = series.family
    if not len(family.average):
        return f"nothing to show: {series.note or family.statuses[0].lower()}"
    points = POINTS if series.peer is None else ["last"]
    parts = ["gap " + ", ".join(f"{point} {number(family.final(point))}" for point in points)]
    last = {axis: family.x[axis][-1] for axis in AXES}
    parts += [f"{value:.5g} {axis}" for axis, value in last.items() if math.isfinite(value)]
    ends = sorted(set(family.statuses) - {"MAX_ITER", "MOST_STEPS"})
    if ends:
        parts.append(series.note or ", ".join(ends).lower().replace("_", " "))
    return " · ".join(parts)


def _reached(comparison: Comparison, axis: str) -> dict[str, str]:
    """Return where on an axis each series reached which gap, at its better point."""
    facts = {}
    for series in comparison.series:
        if axis != "epochs" or series.has_epochs:
            places = {level: series.soonest(level * comparison.scale, axis) for level in LEVELS}
            cells = [f"{level:g}: {at:.4g}" for level, at in places.items() if math.isfinite(at)]
            if len(cells) < len(places):
                cells.append("no further" if cells else f"not even {max(places):g}")
            facts[series.label] = " · ".join(cells)
    return facts


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
    put(path, csv_text(head, rows))


def _recorded(series: Series, comparison: Comparison) -> list[list[Vector]]:
    """Return epochs, seconds, iterations, P at both points and the gap, for every seed."""
    if series.peer:
        values = [series.family.at(point) + comparison.lowest for point in POINTS]
        nothing = np.full(values[0].size, np.nan)
        return [[*(series.family.x[axis] for axis in AXES), *values, nothing]]
    names = ("epochs", "seconds", "iteration", *POINTS, "certified")
    return [[o.arrays[name] for name in names] for o in series.outcomes]
