"""The report of the benchmark: profiles, seconds and ratios, and where the default loses."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from accelegrad_lab.bench.problems import SUITE_LOSSES
from accelegrad_lab.bench.profile import geometric_mean, profile, profile_facts
from accelegrad_lab.bench.results import KNOWN, Suite
from accelegrad_lab.bench.runs import CUTOFF, JUDGED, LEAST_LIMIT
from accelegrad_lab.bench.summary import claims, figure_name, losses_of_ours
from accelegrad_lab.engine.content import Curve, Figure, Panel, Report
from accelegrad_lab.engine.peers import SOLVERS
from accelegrad_lab.report.report import versions, write_report
from accelegrad_lab.report.tables import csv_text, put, table_lines

if TYPE_CHECKING:
    from accelegrad_lab.bench.bench import BenchRequest

WIDEST = 1000.0  # the factor at which profiles end
RELATIVE = {"start": "P(0) - P*", "minimum": "P*"}
COLUMNS = (
    "problem", "data", "rows", "columns", "loss", "l2", "accuracy", "solver", "seconds", "ratio",
    "CPU seconds, one thread", "status", "tuning seconds",
)  # fmt: skip


def write_bench_report(
    suite: Suite, request: BenchRequest, seconds: float, *, interrupted: bool
) -> Path:
    """Write the page, table.md and table.csv; return the page's path."""
    report = build_report(suite, request, seconds, interrupted=interrupted)
    page = write_report(report, request.out)
    put(request.out / "table.md", markdown(suite, report))
    put(request.out / "table.csv", _table_csv(suite))
    return page


def build_report(
    suite: Suite, request: BenchRequest, seconds: float, *, interrupted: bool
) -> Report:
    """Return the report."""
    facts = {
        "Run": _run_facts(suite, request, seconds, interrupted=interrupted),
        f"Solvers at {JUDGED:g}": _solver_facts(suite, JUDGED),
        f"Solvers at {JUDGED:g}, by CPU time on one thread": _solver_facts(suite, JUDGED, cpu=True),
        "Where the default loses, at 1e-3": losses_of_ours(suite) or {"nowhere": ""},
        "What is called": _calls(suite),
        "Time apart from the runs": _time_apart(suite),
        "Data": {one.data: one.words for one in suite.problems.values()},
        "Minima": _minima(suite),
        "Versions": versions(),
    }
    return Report(
        "accelegrad and the solvers that users would pick",
        _summary(suite, request),
        claims(suite),
        [*(_figure(suite, accuracy) for accuracy in suite.accuracies), _figure_by_loss(suite)],
        facts,
    )


def _summary(suite: Suite, request: BenchRequest) -> str:
    sets = len({one.data for one in suite.problems.values()})
    return (
        f"{len(suite.problems)} problems: {sets} data sets, losses and strengths of l2. Every "
        "solver minimises the same objective, mean loss + l2/2 ||w||^2, on the same arrays, one "
        "run at a time: wall time with the default number of threads, as people run, and beside it "
        "CPU time with one thread. An accuracy of 1e-3 means P - P* <= 1e-3 "
        f"({RELATIVE[request.relative]}), measured outside of the clock. Others are run from "
        "scratch with more and more iterations, and the fastest run that is accurate counts; the "
        "default is told a tolerance and nothing else, and counts only where its own certificate "
        f"proves the accuracy. A run may take {_limit_words(request)}."
    )


def _limit_words(request: BenchRequest) -> str:
    return (
        f"{request.limit:g} s at most, and of another solver {CUTOFF:g} times our longest run (or "
        f"{LEAST_LIMIT:g} s): beyond, it counts as not solved"
    )


# -- figures ---------------------------------------------------------------------------------------


def _figure(suite: Suite, accuracy: float) -> Figure:
    halves = {
        "All losses": list(suite.problems),
        "Smooth losses": [key for key, one in suite.problems.items() if one.smooth],
        "Non-smooth losses": [key for key, one in suite.problems.items() if not one.smooth],
    }
    counted = len(suite.counted(accuracy))
    left_out = len(suite.problems) - counted
    words = (
        "Share of problems that a solver solves within a factor of the best solver's time, of "
        "those that it is made for: higher is better, and the left end is how often it is the "
        f"best. {counted} problems"
    )
    words += f"; {left_out} more have a minimum that is not known well enough." if left_out else "."
    return Figure(
        figure_name(accuracy),
        f"Performance profile to a relative {accuracy:g}",
        words,
        [[_panel(suite, accuracy, title, keys) for title, keys in halves.items()]],
        _solver_facts(suite, accuracy),
    )


def _figure_by_loss(suite: Suite) -> Figure:
    """Return the profiles of each loss, within which nearly all solvers take part everywhere."""
    panels = []
    for loss in SUITE_LOSSES:
        keys = [key for key, one in suite.problems.items() if one.loss == loss]
        if keys:
            panels.append(_panel(suite, JUDGED, loss, keys))
    return Figure(
        "profile-by-loss",
        f"Performance profiles to a relative {JUDGED:g}, by loss",
        "As above, for each loss; with absolute and quantile losses some solvers are for l2 = 0 "
        "alone.",
        [panels[i : i + 4] for i in range(0, len(panels), 4)],
    )


def _panel(suite: Suite, accuracy: float, title: str, keys: Sequence[str]) -> Panel:
    found = {key: by for key, by in suite.ratios(accuracy).items() if key in set(keys)}
    curves = []
    for name in suite.solvers:
        own = profile(found, name)
        if own.problems:
            factors, shares = own.line(WIDEST)
            solver = SOLVERS[name]
            note = f"{own.problems} problems, {own.shares[-1]:.0%} solved in the end"
            curves.append(
                Curve(
                    solver.method,
                    solver.variant,
                    {"factor of the best time": factors},
                    shares,
                    solver.dash,
                    note=note,
                )
            )
    axes = ["factor of the best time"]
    return Panel(f"{title} ({len(found)} problems)", curves, axes, "share of problems", log_y=False)


# -- facts -----------------------------------------------------------------------------------------


def _run_facts(
    suite: Suite, request: BenchRequest, seconds: float, *, interrupted: bool
) -> dict[str, str]:
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "complete": "no: it was interrupted" if interrupted else "yes",
        "problems": str(len(suite.problems)),
        "time limit of one run": _limit_words(request),
        "rows": f"at most {request.rows} of a set, a random sample" if request.rows else "all",
        "clock": "wall time, default number of threads; CPU time of another run on one thread",
        "processor": f"{platform.machine()}, {os.cpu_count()} cores, load at the end {load}",
        "accuracy": f"(P - P*) / ({RELATIVE[request.relative]})",
        "our clock": "the whole call: model, probe, run and certificate; compilation apart",
        "others' clock": "fit alone; of runs under 0.05 s the fastest of three, as for ours",
        "in all": f"{seconds:.0f} s (results that were there already took none)",
        "raw numbers": "results.jsonl, table.csv",
    }


def _solver_facts(suite: Suite, accuracy: float, *, cpu: bool = False) -> dict[str, str]:
    """Return for each solver how often it solved a problem, and how fast."""
    shown = {name: SOLVERS[name].shown for name in suite.solvers}
    return profile_facts(suite.ratios(accuracy, cpu=cpu), shown, "solved", "time over the best")


def _calls(suite: Suite) -> dict[str, str]:
    """Return what each solver is, and with which losses it took part."""
    losses: dict[str, set[str]] = {}
    for key, solver in suite.records:
        if key in suite.problems:
            losses.setdefault(solver, set()).add(suite.problems[key].loss)
    facts = {}
    for name in suite.solvers:
        words = SOLVERS[name].words
        used = [loss for loss in SUITE_LOSSES if loss in losses.get(name, ())]
        facts[SOLVERS[name].shown] = "; ".join(f"{loss}: {words[loss]}" for loss in used)
    return facts


def _time_apart(suite: Suite) -> dict[str, str]:
    """Return what is not in the times: compilation and loading, tuning, the search for minima."""
    warm: dict[str, float] = {}
    tuning: dict[str, list[float]] = {}
    for record in suite.records.values():
        warm[record.solver] = warm.get(record.solver, 0.0) + record.warm_up
        if record.tuned:
            tuning.setdefault(record.solver, []).append(record.tuning)
    facts = {
        f"{SOLVERS[name].shown}: compilation and loading": f"{seconds:.1f} s in all"
        for name, seconds in warm.items()
        if seconds >= 0.05
    }
    for name, spent in tuning.items():
        times = [by[name] for by in suite.times(JUDGED).values() if by.get(name, math.inf) < 1e9]
        facts[f"{SOLVERS[name].shown}: tuning"] = (
            f"{sum(spent):.1f} s in all, {geometric_mean(spent):.3g} s a problem; a run to "
            f"{JUDGED:g} takes {geometric_mean(times):.3g} s (geometric means)"
        )
    facts["search for minima"] = f"{sum(one.seconds for one in suite.problems.values()):.1f} s"
    return facts


def _minima(suite: Suite) -> dict[str, str]:
    unsure = {key: suite.unsure(key) for key in suite.problems}
    worst = max(unsure, key=lambda key: unsure[key])
    facts = {
        "how": "Newton's method, multipliers or HiGHS; P* is the lowest value that anything found",
        "least certain": f"{suite.problems[worst].shown}: to a relative {unsure[worst]:.1e}",
    }
    for accuracy in suite.accuracies:
        doubtful = [key for key in unsure if unsure[key] > KNOWN * accuracy]
        if doubtful:
            shown = "; ".join(suite.problems[key].shown for key in doubtful)
            facts[f"not counted at {accuracy:g}"] = shown
    return facts


# -- tables ----------------------------------------------------------------------------------------


def _table_csv(suite: Suite) -> str:
    rows = []
    for accuracy in suite.accuracies:
        found, cpu = suite.ratios(accuracy), suite.times(accuracy, cpu=True)
        for key, by in suite.times(accuracy).items():
            one = suite.problems[key]
            about = [key, one.data, one.rows, one.columns, one.loss, one.strength / one.rows]
            for name, seconds in by.items():
                record = suite.records[key, name]
                measured = [accuracy, name, seconds, found[key][name], cpu[key][name]]
                rows.append([*about, *measured, record.status, record.tuning])
    return csv_text(COLUMNS, rows, end="\n")


def markdown(suite: Suite, report: Report) -> str:
    """Return the verdicts, the solvers and the times as Markdown."""
    lines = [f"# {report.title}", "", report.summary, ""]
    lines += _pairs("Run", report.facts["Run"])
    lines += [
        "## Verdicts",
        "",
        *table_lines(("claim", "verdict", "measured"), _verdicts(report)),
        "",
    ]
    for accuracy in suite.accuracies:
        lines += _pairs(f"Solvers at {accuracy:g}", _solver_facts(suite, accuracy))
    for name, facts in report.facts.items():
        if name not in ("Run", f"Solvers at {JUDGED:g}"):
            lines += _pairs(name, facts)
    for accuracy in suite.accuracies:
        lines += [f"## Seconds to {accuracy:g}", "", *_seconds_tables(suite, accuracy)]
    title = f"## CPU seconds on one thread to {JUDGED:g}"
    lines += [title, "", *_seconds_tables(suite, JUDGED, cpu=True)]
    return "\n".join(lines)


def _verdicts(report: Report) -> list[tuple[str, str, str]]:
    return [
        (
            claim.statement,
            claim.verdict.value,
            "; ".join(f"{what}: {number}" for what, number in claim.evidence),
        )
        for claim in report.claims
    ]


def _pairs(title: str, facts: Mapping[str, str]) -> list[str]:
    return [f"## {title}", "", *table_lines(("", ""), list(facts.items())), ""]


def _seconds_tables(suite: Suite, accuracy: float, *, cpu: bool = False) -> list[str]:
    """Return a table for each loss: seconds, and in brackets the ratio to the best."""
    times, found = suite.times(accuracy, cpu=cpu), suite.ratios(accuracy, cpu=cpu)
    lines: list[str] = []
    for loss in SUITE_LOSSES:
        keys = [key for key in times if suite.problems[key].loss == loss]
        names = [name for name in suite.solvers if any(name in times[key] for key in keys)]
        if not keys:
            continue
        head = ["data", "rows", "l2 n", *(SOLVERS[name].shown for name in names)]
        rows = [
            [
                suite.problems[key].data,
                suite.problems[key].rows,
                f"{suite.problems[key].strength:g}",
                *(_cell(times[key].get(name), found[key].get(name)) for name in names),
            ]
            for key in keys
        ]
        lines += [f"### {loss}", "", *table_lines(head, rows), ""]
    return lines


def _cell(seconds: float | None, ratio: float | None) -> str:
    if seconds is None or ratio is None:
        return ""
    if not math.isfinite(seconds):
        return "-"
    return f"**{seconds:.3g}**" if ratio == 1 else f"{seconds:.3g} ({ratio:.3g})"
