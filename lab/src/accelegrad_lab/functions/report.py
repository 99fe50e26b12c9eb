"""The report of the comparison on functions: profiles in calls and in seconds, and tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from accelegrad_lab.bench.profile import profile, profile_facts, ratios
from accelegrad_lab.engine.content import Curve, Figure, Panel, Report
from accelegrad_lab.functions.methods import METHODS
from accelegrad_lab.functions.problem import (
    COMPOSITE,
    CONSTRAINED,
    KINDS,
    KINKS,
    MAX,
    SMOOTH,
    SPECTRAL,
)
from accelegrad_lab.functions.recorder import ACCURACIES
from accelegrad_lab.functions.runs import MEASURES
from accelegrad_lab.report.report import versions, write_report
from accelegrad_lab.report.tables import csv_text, number_table, put

if TYPE_CHECKING:
    from accelegrad_lab.functions.comparison import Comparison, FunctionsRequest

WIDEST = 100.0  # the factor at which profiles end
KNOWN = 0.1  # a function counts at an accuracy if its minimum is known to this part of it
JUDGED = 1e-4
GROUPS = {
    "All functions": KINDS,
    "Smooth": (SMOOTH,),
    "Non-smooth": (MAX, KINKS, SPECTRAL),
    "With a set or penalty": (CONSTRAINED, COMPOSITE),
}
WANTED = "/".join(f"{one:g}" for one in ACCURACIES)
Costs = dict[str, dict[str, float]]


def write_functions_report(
    found: Comparison, request: FunctionsRequest, seconds: float, *, interrupted: bool
) -> Path:
    """Write the page, table.md and table.csv; return the page's path."""
    page = write_report(build_report(found, request, seconds, interrupted), request.out)
    put(request.out / "table.md", markdown(found))
    put(request.out / "table.csv", _csv(found))
    return page


def costs(found: Comparison, measure: str, accuracy: float, kinds: Sequence[str] = KINDS) -> Costs:
    """Return calls or seconds by function and method; inf where the accuracy was not reached.

    A method without a count of calls is left out of them.
    """
    chosen = {
        name
        for name, case in found.cases.items()
        if case.kind in kinds and found.minimum(name).error <= KNOWN * accuracy
    }
    table: Costs = {name: {} for name in found.cases if name in chosen}
    for (name, method), record in found.records.items():
        if name in chosen and not (measure == "calls" and METHODS[method].run is None):
            table[name][method] = record.cost(measure, accuracy)
    return table


def build_report(
    found: Comparison, request: FunctionsRequest, seconds: float, interrupted: bool
) -> Report:
    """Return the report."""
    limits = request.limits
    summary = (
        f"{len(found.cases)} convex functions with exact values and (sub)gradients. An accuracy of "
        "1e-4 means f - f* <= 1e-4 (f(x0) - f*), penalty included, at a point of the set that the "
        "method evaluated, whatever it returns. A call is one value with one gradient. A run ends "
        f"at 1e-8, after {limits.calls} calls or {limits.seconds:g} s. Nothing is tuned, but "
        "UniFastSgd is told the distance to a minimiser, AC-FGM and the universal method the "
        "accuracy."
    )
    facts = {
        "Run": {
            "date": datetime.now(UTC).date().isoformat(),
            "complete": "no: it was interrupted" if interrupted else "yes",
            "in all": f"{seconds:.0f} s (results that were there already took none)",
            "seconds": "of wall time with the default number of threads; CPU seconds are those of "
            "another run on one thread",
            "raw numbers": "results.jsonl, table.csv, table.md",
        },
        **{
            f"Methods by seconds, to {accuracy:g}": _method_facts(found, "seconds", accuracy)
            for accuracy in ACCURACIES
        },
        f"Calls to {WANTED} of f(x0) - f*": _calls_in_words(found),
        "What is called": {METHODS[name].label: METHODS[name].words for name in found.methods},
        "Functions": {
            name: f"{case.words} ({case.kind}); minimum {found.minimum(name).value:.12g}, to "
            f"{found.minimum(name).error:.0e} ({found.minimum(name).ways})"
            for name, case in found.cases.items()
        },
        "Versions": versions(),
    }
    title = "Functions of the user's own: calls and seconds"
    return Report(title, summary, [], [_figure(found, one) for one in ACCURACIES], facts)


def _figure(found: Comparison, accuracy: float) -> Figure:
    """Return the profiles to one accuracy: a row for calls, a row for seconds."""
    rows = [
        [
            panel
            for title, kinds in GROUPS.items()
            if (panel := _panel(found, measure, accuracy, title, kinds)) is not None
        ]
        for measure in MEASURES[:2]
    ]
    return Figure(
        f"functions-{accuracy:.0e}",
        f"Performance profile to a relative {accuracy:g}",
        "Share of functions on which a method needs at most a factor of the calls (above) or "
        "seconds (below) of the best one, of those that it can take: higher is better, and the "
        "left end is how often it is the best.",
        rows,
        _method_facts(found, "calls", accuracy),
    )


def _panel(
    found: Comparison, measure: str, accuracy: float, title: str, kinds: Sequence[str]
) -> Panel | None:
    """Return one pair of axes, None where there is no such function."""
    table = costs(found, measure, accuracy, kinds)
    if not table:
        return None
    relative = ratios(table)
    axis = f"factor of the fewest {measure}"
    curves = []
    for name in found.methods:
        own = profile(relative, name)
        if own.problems:
            factors, shares = own.line(WIDEST)
            method = METHODS[name]
            note = f"{own.problems} functions, {own.shares[-1]:.0%} solved in the end"
            curves.append(
                Curve(method.shown, method.variant, {axis: factors}, shares, method.dash, note=note)
            )
    words = f"{title}, {measure} ({len(table)} functions)"
    return Panel(words, curves, [axis], "share of functions", log_y=False)


def _method_facts(found: Comparison, measure: str, accuracy: float) -> dict[str, str]:
    """Return for each method how often it reached an accuracy, and at which price."""
    shown = {name: METHODS[name].label for name in found.methods}
    relative = ratios(costs(found, measure, accuracy))
    return profile_facts(relative, shown, "reached", f"{measure} over the fewest")


def _calls_in_words(found: Comparison) -> dict[str, str]:
    """Return for each function the calls of all methods that counted them."""
    counted = [one for one in found.methods if METHODS[one].run is not None]
    return {
        name: "; ".join(
            f"{METHODS[one].label} {_cell(found, 'calls', name, one)}"
            for one in counted
            if (name, one) in found.records
        )
        for name in found.cases
    }


# -- tables ----------------------------------------------------------------------------------------


def markdown(found: Comparison) -> str:
    """Return the calls and seconds as Markdown, a table for each kind of function."""
    lines = ["# Functions of the user's own", ""]
    for measure in MEASURES:
        lines += [f"## {measure[0].upper()}{measure[1:]} to {WANTED} of f(x0) - f*", ""]
        for kind in KINDS:
            lines += _kind_table(found, measure, kind)
    for measure in MEASURES:
        lines += [f"## Methods by {measure}, to {JUDGED:g}", ""]
        lines += [
            f"- {label}: {words}" for label, words in _method_facts(found, measure, JUDGED).items()
        ]
        lines.append("")
    return "\n".join(lines)


def _kind_table(found: Comparison, measure: str, kind: str) -> Iterator[str]:
    """Go through the lines of one table."""
    names = [name for name, case in found.cases.items() if case.kind == kind]
    if not names:
        return
    shown = [one for one in found.methods if measure != "calls" or METHODS[one].run is not None]
    head = [kind, "d", *(METHODS[one].label for one in shown)]
    rows = (
        [name, found.sizes[name], *(_cell(found, measure, name, one) for one in shown)]
        for name in names
    )
    yield from number_table(head, rows)
    yield ""


def _cell(found: Comparison, measure: str, name: str, method: str) -> str:
    record = found.records.get((name, method))
    if record is None:
        return ""
    numbers = [record.cost(measure, one) for one in ACCURACIES]
    form = "{:.0f}" if measure == "calls" else "{:.2g}"
    return "/".join(form.format(one) if math.isfinite(one) else "-" for one in numbers)


def _csv(found: Comparison) -> str:
    head = ["function", "kind", "d", "method", "accuracy", *MEASURES, "ended", "best"]
    rows = []
    for (name, method), record in found.records.items():
        if name not in found.cases:
            continue
        for accuracy in ACCURACIES:
            calls, *seconds = (record.cost(measure, accuracy) for measure in MEASURES)
            counted = "" if math.isnan(calls) else calls
            about = [name, found.cases[name].kind, found.sizes[name], method, accuracy]
            rows.append([*about, counted, *seconds, record.ended, record.accuracy])
    return csv_text(head, rows, end="\n")
