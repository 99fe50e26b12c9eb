"""What a benchmark measured, and its report: verdicts, profiles, the cost of every problem."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from accelegrad_lab.bench.cases import Suite
from accelegrad_lab.engine.experiment import Claim, Curve, Figure, Panel, Report, Verdict
from accelegrad_lab.engine.fit import Rung
from accelegrad_lab.engine.tasks import json_line, put
from accelegrad_lab.peers import PEERS
from accelegrad_lab.report.prepared import colours
from accelegrad_lab.report.report import STROKES, versions, write_report
from accelegrad_lab.report.tables import csv_text, geometric_mean, profile, ratios, table_lines

KNOWN = 0.1  # a minimum has to be known to this share of an accuracy for the problem to count
ROUNDING = 1e-9  # relative: a value so far below a bound does not refute it
Costs = dict[str, dict[str, float]]  # by problem and solver; inf where it did not get there


class Problem(NamedTuple):
    """A problem, and what is known of it before anybody solves it."""

    key: str
    group: str
    data: str
    goal: str
    words: str
    start: float  # P(0), from which accuracies are counted; inf: they are relative to P*
    floor: float  # what P* is at least counted as, where they are
    minimum: float  # inf: not known
    lower: float  # -inf: not known
    solvers: list[str]  # who takes part

    @property
    def shown(self) -> str:
        """Its name in tables."""
        return ", ".join(filter(None, (self.data, self.goal)))

    def unit(self, value: float) -> float:
        """Return what an accuracy is relative to, at this value of the minimum."""
        if math.isfinite(self.start):
            return max(self.start - value, 0.0)
        return max(value, self.floor) or 1.0

    def reached(self, rung: Rung, accuracy: float, minimum: float, *, proved: bool) -> bool:
        """Tell whether a run reached an accuracy; `proved`: and says so itself."""
        allowed = accuracy * (1 + 1e-6)  # a tolerance is met up to rounding
        if not math.isnan(rung.value) and math.isfinite(minimum):
            accurate = rung.value - minimum <= allowed * self.unit(minimum)
        else:
            accurate = math.isinf(minimum) and not math.isnan(rung.value)
        told = rung.value - rung.bound <= allowed * self.unit(rung.value)
        return accurate and (told or not proved)


@dataclass(frozen=True)
class Record:
    """All runs of a solver on a problem."""

    problem: str
    solver: str
    rungs: tuple[Rung, ...]
    status: str  # "reached", "time limit", "stalled", "failed: ...", or its own words

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**vars(self), "rungs": [list(rung) for rung in self.rungs]}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Record:
        """Return what `to_json` gave."""
        rungs = tuple(Rung(*[*map(float, rung[:6]), *rung[6:]]) for rung in plain["rungs"])
        return cls(**{**plain, "rungs": rungs})


@dataclass
class Results:
    """All that was measured so far."""

    suite: Suite
    problems: dict[str, Problem] = field(default_factory=dict)
    records: dict[tuple[str, str], Record] = field(default_factory=dict)  # by problem and solver

    def take(self, kind: str, content: Mapping[str, Any]) -> None:
        """Take in one line of a file."""
        if kind == "problem":
            numbers = {name: float(content[name]) for name in ("start", "floor", "minimum")}
            one = Problem(**{**content, **numbers, "lower": float(content["lower"])})
            self.problems[one.key] = one
        elif kind == "record":
            record = Record.from_json(dict(content))
            self.records[record.problem, record.solver] = record

    @property
    def solvers(self) -> list[str]:
        """Those that took part somewhere and count, in the order of the table."""
        seen = {solver for _, solver in self.records}
        return [name for name in PEERS if name in seen and PEERS[name].counts]

    def lowest(self, key: str) -> float:
        """Return P*: the lowest value that anything found."""
        values = [
            rung.value
            for name in self.problems[key].solvers
            if (key, name) in self.records
            for rung in self.records[key, name].rungs
            if not math.isnan(rung.value)
        ]
        return min([self.problems[key].minimum, *values])

    def refuted(self, key: str) -> bool:
        """Tell whether anything found a value below a bound that a run of ours proves."""
        lowest = self.lowest(key)
        bounds = [r.bound for (k, _), one in self.records.items() if k == key for r in one.rungs]
        return max(bounds, default=-math.inf) > lowest + ROUNDING * max(abs(lowest), 1e-6)

    def unsure(self, key: str) -> float:
        """Return how well a minimum is known, as an accuracy; NaN where no bound is known."""
        one, lowest = self.problems[key], self.lowest(key)
        if math.isinf(one.lower):
            return math.nan
        return max(lowest - one.lower, 0.0) / (one.unit(lowest) or math.inf)

    def ended(self, key: str, name: str, cost: float) -> str:
        """Say how a solver ended, whose cost of an accuracy is known: runs judge no accuracy."""
        record, lowest = self.records[key, name], self.lowest(key)
        if math.isfinite(cost) or record.status != "reached":
            return record.status
        error = min(rung.value for rung in record.rungs) - lowest
        return f"inaccurate: {error / self.problems[key].unit(lowest):.0e}"

    def costs(self, measure: str, accuracy: float, group: str = "") -> Costs:
        """Return the least cost of an accuracy by problem and solver.

        Problems whose minimum is not known well enough are left out, and solvers that do not count
        (or not their calls).
        """
        cost = {"CPU seconds": "cpu"}.get(measure, measure)
        table: Costs = {}
        for key, one in self.problems.items():
            if (group and one.group != group) or self.unsure(key) > KNOWN * accuracy:
                continue
            lowest, table[key] = self.lowest(key), {}
            for name in one.solvers:
                record, peer = self.records.get((key, name)), PEERS[name]
                counted = peer.counts and (measure != "calls" or peer.make is not None)
                if record is not None and counted:
                    proved = self.suite.proves and peer.own
                    table[key][name] = min(
                        (
                            getattr(rung, cost)
                            for rung in record.rungs
                            if one.reached(rung, accuracy, lowest, proved=proved)
                        ),
                        default=math.inf,
                    )
        return {key: by for key, by in table.items() if self.suite.ours in by}

    def over_best_peer(self, measure: str, group: str = "") -> dict[str, tuple[float, str]]:
        """Return our cost over the best peer's, with its name, where any peer got there."""
        found = {}
        for key, by in self.costs(measure, self.suite.judged, group).items():
            peers = {n: cost for n, cost in by.items() if not PEERS[n].own}
            best = min(peers, key=lambda name: peers[name], default="")
            if best and math.isfinite(peers[best]):
                found[key] = by[self.suite.ours] / max(peers[best], 1e-9), best
        return found


# -- the report ------------------------------------------------------------------------------------


WIDEST = 1000.0  # the factor at which profiles end
MEAN, CLOSE, FAR, SHARE = 1.0, 2.0, 5.0, 0.9  # the bars: on average, close, at most, how often
SHORT = 2e-3  # seconds of a peer below which a problem does not count for them
LONG = 1e-2  # seconds of ours or of a peer, from which a summary of its own counts
COLD_SECONDS = 2.0  # that a first fit in a new process may take
LISTED = 30  # losses that a claim names
IN_A_ROW = 4  # panels


def write_bench_report(
    results: Results, out: Path, limit: float, seconds: float, *, interrupted: bool
) -> Path:
    """Write the page, table.md and table.csv; return the page's path."""
    suite = results.suite
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    run = {
        "date": datetime.now(UTC).date().isoformat(),
        "complete": "no: it was interrupted" if interrupted else "yes",
        "problems": str(len(results.problems)),
        "clock": "wall time with the default number of threads, the least of some runs; CPU time "
        "of other runs on one thread; imports and compilation apart",
        "limit of one run": f"{limit:g} s; less for others where ours is much faster",
        "processor": f"{os.cpu_count()} cores, load at the end {load}",
        "in all": f"{seconds:.0f} s (results that were there already took none)",
        "raw numbers": "results.jsonl, table.csv",
    }
    others = {PEERS[name].needs for name in results.solvers}
    facts = {
        "Run": run,
        f"Our {suite.measures[0]} over the best peer's": dict(_summaries(results)),
        **{
            f"Solvers at {accuracy:g}{more}": _solvers(results, measure, accuracy)
            for accuracy in suite.accuracies
            for measure in suite.measures
            for more in ("" if measure == suite.measures[0] else f", by {measure}",)
            if not more or accuracy == suite.judged
        },
        "Where a peer is more than twice as fast": dict(_losses(results)) or {"nowhere": ""},
        "What is called": {PEERS[name].shown: PEERS[name].words for name in results.solvers},
        "Problems": {one.shown: _words(results, key) for key, one in results.problems.items()},
        "Versions": versions() | {name: version(name) for name in sorted(others) if name},
    }
    summary = f"{len(results.problems)} problems. {suite.summary}"
    figures = [_figure(results, accuracy) for accuracy in suite.accuracies]
    report = Report(suite.title, summary, claims(results), figures, facts)
    put(out / "table.md", "\n".join(_markdown(results, report)) + "\n")
    put(out / "table.csv", _csv(results))
    if suite.ours == "AcceleGrad":
        put(out / "fits.jsonl", b"".join(json_line("fit", one) for one in _fits(results)))
    return write_report(report, out)


# -- claims ----------------------------------------------------------------------------------------


def claims(results: Results) -> list[Claim]:
    """Return the sentences that a benchmark has to answer."""
    suite, problems = results.suite, results.problems
    best = results.over_best_peer(suite.measures[0])
    costs = results.costs(suite.measures[0], suite.judged)
    counted = {
        key: ratio
        for key, (ratio, name) in best.items()
        if suite.measures[0] == "calls" or costs[key][name] >= SHORT
    }
    first = {
        key: record.rungs[0].seconds if record.rungs else math.inf
        for (key, name), record in results.records.items()
        if PEERS[name].cold and key in problems
    }
    what = f"(of problems that take it {1e3 * SHORT:g} ms or more)"
    shares = {
        "solved": (
            f"Every problem is solved to {suite.judged:g}"
            + (", and our own certificate says so." if suite.proves else "."),
            {problems[key].shown: math.isfinite(by[suite.ours]) for key, by in costs.items()},
        ),
        "bounds-hold": (
            "No lower bound that a run of ours proves is above the lowest value found.",
            {one.shown: not results.refuted(k) for k, one in problems.items() if suite.proves},
        ),
        "within-2x": (
            f"On {SHARE:.0%} of the problems we need at most twice as much as the best peer "
            f"{what}.",
            {problems[key].shown: ratio <= CLOSE for key, ratio in counted.items()},
        ),
        "within-5x": (
            f"Nowhere do we need more than five times as much {what}.",
            {problems[key].shown: ratio <= FAR for key, ratio in counted.items()},
        ),
        "first-fit": (
            f"A first fit in a new process with an empty cache takes at most {COLD_SECONDS:g} s.",
            {f"{problems[key].shown} ({s:.1f} s)": s <= COLD_SECONDS for key, s in first.items()},
        ),
    }
    found = [_share_claim(name, *one) for name, one in shares.items() if one[1]]
    if counted:
        mean = geometric_mean(counted.values())
        statement = f"On average we need no more than the best peer {what}."
        verdict = Verdict.HOLDS if mean <= MEAN else Verdict.FAILS
        threshold = f"geometric mean of the ratios at most {MEAN:g}"
        evidence = [("ours over the best peer's", summary_words(list(counted.values())))]
        words = f"The mean is {mean:.2f}."
        found.append(_claim("mean", statement, verdict, threshold, evidence, words))
    return found


def _share_claim(name: str, statement: str, held: Mapping[str, bool]) -> Claim:
    """Return the claim that something holds in all problems, or in a share of them."""
    need = SHARE if name == "within-2x" else 1.0
    bad = [shown for shown, holds in held.items() if not holds]
    good, of = len(held) - len(bad), len(held)
    verdict = Verdict.HOLDS if good >= need * of else Verdict.IN_PART if good else Verdict.FAILS
    more = f" and {len(bad) - LISTED} more" if len(bad) > LISTED else ""
    evidence = [("problems", f"{good} of {of}")]
    evidence += [("not so", "; ".join(bad[:LISTED]) + more)] if bad else []
    threshold = "all problems" if need == 1.0 else f"{need:.0%} of the problems"
    words = f"It is so on {good} of {of} problems."
    return _claim(name, statement, verdict, threshold, evidence, words)


def _claim(
    name: str, statement: str, verdict: Verdict, threshold: str, evidence: Any, words: str
) -> Claim:
    words = "" if verdict is Verdict.HOLDS else words
    return Claim(name, statement, "this benchmark", verdict, "-", threshold, evidence, words)


# -- facts -----------------------------------------------------------------------------------------


def summary_words(found: Sequence[float]) -> str:
    """Sum up ratios; infinite ones, where ours did not get there, are not in the mean."""
    if not found:
        return "no problem with an accurate peer"
    within, unsolved = sum(ratio <= CLOSE for ratio in found), sum(map(math.isinf, found))
    worst = f"not solved on {unsolved}" if unsolved else f"at most {max(found):.1f}x"
    return (
        f"geometric mean {geometric_mean(found):.2f}, within 2x on {within} of {len(found)} "
        f"({within / len(found):.0%}), {worst}"
    )


def _summaries(results: Results) -> Iterator[tuple[str, str]]:
    suite = results.suite
    for measure in suite.measures:
        best, costs = results.over_best_peer(measure), results.costs(measure, suite.judged)
        found = [ratio for ratio, _ in best.values()]
        yield f"all problems, {measure}", summary_words(found)
        if measure != "calls":
            long = [
                ratio
                for key, (ratio, peer) in best.items()
                if max(costs[key][suite.ours], costs[key][peer]) >= LONG
            ]
            yield f"{1e3 * LONG:g} ms or more of either, {measure}", summary_words(long)
    for name, words in results.suite.groups.items():
        found = [r for r, _ in results.over_best_peer(results.suite.measures[0], name).values()]
        if found:
            yield f"{name} ({words})", summary_words(found)


def _solvers(results: Results, measure: str, accuracy: float) -> dict[str, str]:
    """Return for each solver how often it got there and at which price."""
    found, told = ratios(results.costs(measure, accuracy)), {}
    for name in results.solvers:
        curve = profile(found, name)
        if not curve.problems:
            continue
        factors = [by[name] for by in found.values() if name in by]
        solved = sum(map(math.isfinite, factors))
        words = f"{solved} of {curve.problems} solved"
        if solved:
            words += (
                f", first on {curve.share(1):.0%}, within 2 times the best on "
                f"{curve.share(2):.0%}, {'calls' if measure == 'calls' else 'time'} over the best "
                f"{geometric_mean(factors):.3g} (geometric mean)"
            )
        told[PEERS[name].shown] = words
    return told


def _losses(results: Results) -> Iterator[tuple[str, str]]:
    """Go through the problems on which we are behind by more than 2, the worst first."""
    measure = results.suite.measures[0]
    best = results.over_best_peer(measure)
    costs = results.costs(measure, results.suite.judged)
    for key, (ratio, name) in sorted(best.items(), key=lambda one: -one[1][0]):
        if ratio > CLOSE:
            ours, theirs = costs[key][results.suite.ours], costs[key][name]
            words = f"{ratio:.1f}x of {PEERS[name].shown} ({ours:.3g} and {theirs:.3g} {measure})"
            rungs = results.records[key, results.suite.ours].rungs
            words += f", by {rungs[-1].method}" if rungs and rungs[-1].method else ""
            yield f"{results.problems[key].group}: {results.problems[key].shown}", words


def _words(results: Results, key: str) -> str:
    """Say what a problem is, and at which accuracies it does not count."""
    unsure = results.unsure(key)
    lost = [f"{a:g}" for a in results.suite.accuracies if unsure > KNOWN * a]
    doubt = f"; minimum known to {unsure:.1e}: not counted at {', '.join(lost)}" if lost else ""
    return results.problems[key].words + doubt


# -- figures ---------------------------------------------------------------------------------------


def _figure(results: Results, accuracy: float) -> Figure:
    """Return the profiles to one accuracy: of all problems, and of each group."""
    suite = results.suite
    panels = [
        panel
        for measure in suite.measures[:-1]
        for group in ("", *suite.groups)
        if (panel := _panel(results, measure, accuracy, group)) is not None
    ]
    return Figure(
        f"profile-{accuracy:.0e}",
        f"Performance profile at a relative accuracy of {accuracy:g}",
        "Share of problems that a solver solves within a factor of the best solver's cost, of "
        "those that it takes part in: higher is better, and the left end is how often it is the "
        "best.",
        [panels[i : i + IN_A_ROW] for i in range(0, len(panels), IN_A_ROW)],
    )


def _panel(results: Results, measure: str, accuracy: float, group: str) -> Panel | None:
    """Return one pair of axes, None where there is no such problem."""
    found, curves = ratios(results.costs(measure, accuracy, group)), []
    axis = f"{measure} over the least"
    looks = _looks([PEERS[name].method for name in results.solvers])
    for name, (dash, shade) in zip(results.solvers, looks, strict=True):
        own = profile(found, name)
        if own.problems:
            x, shares = own.line(WIDEST)
            note = f"{own.problems} problems, {own.shares[-1]:.0%} solved in the end"
            method, variant = PEERS[name].method, PEERS[name].variant
            curves.append(Curve(method, variant, {axis: x}, shares, dash, shade, note=note))
    title = f"{group or 'All'}, {measure} ({len(found)})"
    return Panel(title, curves, [axis], "share of problems", log_y=False) if curves else None


def _looks(methods: Sequence[str]) -> Iterator[tuple[str, float]]:
    """Go through a dash and a shade for each solver; those of one colour differ."""
    colour, seen = colours(methods), Counter[str]()
    for method in methods:
        place = seen[colour[method].light]
        seen[colour[method].light] += 1
        yield list(STROKES)[place % len(STROKES)], 0.5 * (place // len(STROKES))


# -- tables ----------------------------------------------------------------------------------------


def _markdown(results: Results, report: Report) -> Iterator[str]:
    """Go through the lines of the verdicts, the facts and a table for each group."""
    yield from (f"# {report.title}", "", report.summary, "")
    for claim in report.claims:
        measured = "; ".join(f"{what}: {number}" for what, number in claim.evidence)
        yield f"- {claim.statement} **{claim.verdict.value}** ({measured})"
    for title, facts in report.facts.items():
        yield from ("", f"## {title}", "", *table_lines(("", ""), facts.items()))
    for name, words in results.suite.groups.items():
        keys = [key for key, one in results.problems.items() if one.group == name]
        if keys:
            yield from ("", f"## {name}: {words}", "", *_group_table(results, keys))


def _group_table(results: Results, keys: Sequence[str]) -> Iterator[str]:
    """Go through a table: our ratio to the best peer, and what each accuracy cost each solver."""
    suite = results.suite
    measure = suite.measures[0]
    by_accuracy = [results.costs(measure, accuracy) for accuracy in suite.accuracies]
    best, cpu = (results.over_best_peer(one) for one in (measure, suite.measures[-1]))
    names = [n for n in results.solvers if any((key, n) in results.records for key in keys)]
    wanted = "/".join(f"{accuracy:g}" for accuracy in suite.accuracies)
    yield f"{measure[0].upper()}{measure[1:]} to {wanted}."
    yield ""
    form = "{:.0f}" if measure == "calls" else "{:.2g}"

    def cell(key: str, name: str) -> str:
        costs = [table.get(key, {}).get(name, math.nan) for table in by_accuracy]
        if all(map(math.isnan, costs)):
            return ""
        return "/".join(form.format(cost) if math.isfinite(cost) else "-" for cost in costs)

    head = ["problem", "ratio", "CPU ratio", *(PEERS[name].shown for name in names)]
    rows = [
        [
            results.problems[key].shown,
            *(f"{table[key][0]:.2f}" if key in table else "-" for table in (best, cpu)),
            *(cell(key, name) for name in names),
        ]
        for key in keys
    ]
    yield from table_lines(head, rows, numbers=True)


def _fits(results: Results) -> Iterator[dict[str, Any]]:
    """Go through the fits: ours, the fastest accurate peer by each clock, and who was not one."""
    suite = results.suite
    clocks = [
        (measure, results.costs(measure, suite.judged), results.over_best_peer(measure))
        for measure in suite.measures
    ]
    for key, by in clocks[0][1].items():
        one = results.problems[key]
        found: dict[str, Any] = {"problem": key, "words": one.words}
        for rung in results.records[key, suite.ours].rungs:
            gap = (rung.value - rung.bound) / one.unit(rung.value)
            found |= {"method": rung.method, "gap": gap}
        for measure, costs, best in clocks:
            found[measure] = costs[key][suite.ours]
            if key in best:
                peer = best[key][1]
                found |= {f"peer by {measure}": peer, f"its {measure}": costs[key][peer]}
        found["without a time"] = [
            f"{name}: {results.ended(key, name, cost)}"
            for name, cost in by.items()
            if math.isinf(cost)
        ]
        yield found
    yield dict(_summaries(results))


def _csv(results: Results) -> str:
    suite = results.suite
    head = ["problem", "group", "data", "goal", "solver", "accuracy", *suite.measures, "status"]
    rows = []
    for accuracy in suite.accuracies:
        tables = [results.costs(measure, accuracy) for measure in suite.measures]
        for key, by in tables[-1].items():
            one = results.problems[key]
            for name in by:
                costs = [table[key].get(name, "") for table in tables]
                about = [key, one.group, one.data, one.goal, name, accuracy]
                rows.append([*about, *costs, results.ended(key, name, by[name])])
    return csv_text(head, rows)
