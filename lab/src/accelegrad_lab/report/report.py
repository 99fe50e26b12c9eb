"""The report: one self-contained page with interactive figures, and the figures as PNG and SVG."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from itertools import groupby
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from accelegrad.errors import Vector
from accelegrad_lab.engine.experiment import Claim, Figure, Report, Verdict
from accelegrad_lab.engine.tasks import put
from accelegrad_lab.playground import playground
from accelegrad_lab.report.prepared import Entry, PreparedFigure, prepare

SIGNS = {Verdict.HOLDS: "✓", Verdict.IN_PART: "◐", Verdict.FAILS: "✗"}
CLASSES = {Verdict.HOLDS: "holds", Verdict.IN_PART: "in-part", Verdict.FAILS: "fails"}
COUNTED = {
    Verdict.HOLDS: "hold",
    Verdict.IN_PART: "hold in part",
    Verdict.FAILS: "do not hold here",
}
STROKES = {"solid": "none", "dash": "7 3.5", "dot": "2 2.5", "dashdot": "7 3 2 3"}
PACKAGES = ("accelegrad", "numpy", "scipy", "scikit-learn", "matplotlib", "plotly")


def write_report(report: Report, out: Path) -> Path:
    """Write `out/index.html` and `out/figures/*.png, *.svg`; return the path of the page.

    The page works offline, opened from disk. It is written last and put in place at once, so an
    interrupted write leaves the previous page. It has a link to the playground beside it.
    """
    from plotly.offline import get_plotlyjs

    from accelegrad_lab.report.stills import draw_still

    prepared = prepare(report)
    page = _page(report, prepared, get_plotlyjs())
    folder = Path(out) / "figures"
    for figure in prepared:
        for ending, content in draw_still(figure).items():
            put(folder / f"{figure.figure.name}.{ending}", content)
    put(Path(out) / "playground.html", playground())
    index = Path(out) / "index.html"
    put(index, page)
    return index


def versions() -> dict[str, str]:
    """Return what a report was made with, as one of its facts."""
    installed = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {"python": platform.python_version(), **installed}


# --- the data that page.js draws ------------------------------------------------------------------


def _data(prepared: Sequence[PreparedFigure]) -> str:
    """Return the figures as JSON that may stand inside a script element."""
    text = json.dumps(
        [_figure_data(figure) for figure in prepared], separators=(",", ":"), allow_nan=False
    )
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _figure_data(prepared: PreparedFigure) -> dict[str, Any]:
    """Return one figure; equal arrays, as curves of a panel often share x, are stored once."""
    arrays: dict[tuple[float | None, ...], int] = {}

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return arrays.setdefault(_numbers(value), len(arrays))
        return vars(value)

    parts = {"entries": prepared.entries, "rows": prepared.rows}
    parts = json.loads(json.dumps(parts, default=plain))
    return {"id": _id("figure", prepared.figure.name), **parts, "arrays": list(arrays)}


def _numbers(values: Vector) -> tuple[float | None, ...]:
    """Return whole numbers as they are, others to six digits, and None for what is not finite."""

    def number(value: float) -> float | None:
        if not np.isfinite(value):
            return None
        if value.is_integer() and abs(value) < 2**53:
            return int(value)
        return float(f"{value:.6g}")

    return tuple(map(number, values.tolist()))


# --- the page -------------------------------------------------------------------------------------


def _page(report: Report, prepared: Sequence[PreparedFigure], plotly: str) -> str:
    """Return the page."""
    files = resources.files("accelegrad_lab.report") / "page"
    return Template((files / "page.html").read_text("utf-8")).substitute(
        title=escape(report.title),
        css=(files / "page.css").read_text("utf-8"),
        navigation=_navigation(report),
        summary=_paragraphs(report.summary),
        claims=_claims(report) if report.claims else "",
        figures="\n".join(_figure(figure, report.claims) for figure in prepared),
        facts="\n".join(_facts(name, table) for name, table in report.facts.items()),
        data=_data(prepared),
        plotly=plotly.replace("</script", "<\\/script"),
        script=(files / "page.js").read_text("utf-8"),
    )


def _id(kind: str, name: str) -> str:
    """Return the anchor of a figure, a claim or a table of facts."""
    return escape("-".join([kind, *name.lower().split()]))


def _paragraphs(text: str) -> str:
    """Return text as paragraphs, one for each block between empty lines."""
    blocks = (block.strip() for block in text.split("\n\n"))
    return "".join(f"<p>{typeset(block)}</p>" for block in blocks if block)


def _navigation(report: Report) -> str:
    """Return the list of anchors."""

    def link(target: str, text: str) -> str:
        return (
            f'<li><a href="#{escape(target)}" title="{escape(text)}">'
            f"<span>{escape(text)}</span></a></li>"
        )

    def links(head: str, targets: Iterable[tuple[str, str]]) -> str:
        listed = "".join(link(target, text) for target, text in targets)
        return f'<p class="nav-head">{head}</p><ul>{listed}</ul>' if listed else ""

    figures = ((_id("figure", figure.name), figure.title) for figure in report.figures)
    facts = ((_id("facts", name), name) for name in report.facts)
    claims = link("claims", "Claims") if report.claims else ""
    return (
        f"<ul>{link('summary', 'Summary')}</ul>{links('Figures', figures)}"
        f"<ul>{claims}</ul>{links('Facts', facts)}"
    )


def _counters(claims: Sequence[Claim]) -> str:
    """Return the row of counters; each shows its claims alone when pressed."""
    tiles = (
        f'<button type="button" class="counter {CLASSES[verdict]}" '
        f'data-verdict="{CLASSES[verdict]}" aria-pressed="false" '
        f'title="show these claims only, or all again">'
        f'<span class="count">{sum(claim.verdict is verdict for claim in claims)}</span>'
        f'<span class="counted"><span class="sign" aria-hidden="true">{SIGNS[verdict]}</span> '
        f"{COUNTED[verdict]}</span></button>"
        for verdict in Verdict
    )
    return (
        f'<div class="counters" role="group" aria-label="claims by verdict">{"".join(tiles)}'
        f'<p class="total">of {len(claims)} claim{"s" if len(claims) > 1 else ""}</p></div>'
    )


def _pill(verdict: Verdict) -> str:
    """Return a verdict in words, with a sign and a colour."""
    return (
        f'<span class="pill {CLASSES[verdict]}"><span class="sign" aria-hidden="true">'
        f"{SIGNS[verdict]}</span> {verdict.value}</span>"
    )


def _claims(report: Report) -> str:
    """Return the table of claims: a line each, which opens on a click."""
    titles = {figure.name: figure.title for figure in report.figures}
    lines = "\n".join(_claim(claim, titles) for claim in report.claims)
    return (
        '<section id="claims" aria-labelledby="claims-title">\n'
        f'<h2 id="claims-title">Claims</h2>\n{_counters(report.claims)}\n'
        f'<div class="claims">\n{lines}\n</div>\n</section>'
    )


def _claim(claim: Claim, titles: Mapping[str, str]) -> str:
    """Return one claim: verdict and statement, and all else when it is opened."""
    explanation = (
        f'<div class="explanation">{_paragraphs(claim.explanation)}</div>'
        if claim.explanation
        else ""
    )
    link = (
        f'<p class="shown"><a href="#{_id("figure", claim.figure)}">'
        f"{escape(titles[claim.figure])}</a></p>"
        if claim.figure
        else ""
    )
    point = f" Judged on: {escape(claim.point)}." if claim.point != "-" else ""
    return (
        f'<details id="{_id("claim", claim.name)}" class="claim" '
        f'data-verdict="{CLASSES[claim.verdict]}">'
        f'<summary>{_pill(claim.verdict)}<span class="statement">{typeset(claim.statement)}</span>'
        f'<span class="source">{escape(claim.source)}</span></summary>'
        f'<div class="opened">{explanation}'
        f'<p class="threshold"><b>{claim_title(claim.name)}.</b> {typeset(claim.threshold)}'
        f'<span class="point">{point}</span></p>'
        f"{evidence_tables(claim.evidence)}{link}</div></details>"
    )


def _figure(prepared: PreparedFigure, claims: Sequence[Claim]) -> str:
    """Return the section of one figure; page.js draws into its plot."""
    figure = prepared.figure
    name = _id("figure", figure.name)
    file = f"figures/{figure.name}"
    judged = "".join(
        f'<a class="judged" href="#{_id("claim", claim.name)}" title="{escape(claim.statement)}">'
        f"{_pill(claim.verdict)} {claim_title(claim.name)}</a>"
        for claim in claims
        if claim.figure == figure.name
    )
    judged = f'<p class="judges">Claims judged here: {judged}</p>' if judged else ""
    facts = (
        f'<details class="figure-facts"><summary>Parameters, seeds, timings</summary>'
        f"{_table(figure.facts.items())}</details>"
        if figure.facts
        else ""
    )
    title = escape(figure.title)
    return f"""<section class="figure" id="{name}" aria-labelledby="{name}-title">
<header><h2 id="{name}-title">{title}</h2>
<p class="files"><a href="{file}.png">PNG</a> <a href="{file}.svg">SVG</a></p></header>
{_tools(figure)}
<div class="plot" role="group" aria-label="Interactive figure: {title}">\
<noscript><img src="{file}.png" alt="{title}"></noscript></div>
{_legend(prepared.entries)}
<div class="caption">{_paragraphs(figure.caption)}</div>
{judged}
{facts}
</section>"""


def _tools(figure: Figure) -> str:
    """Return the switches above a figure."""
    panels = [panel for row in figure.rows for panel in row]
    axes = list(dict.fromkeys(name for panel in panels for name in panel.x_axes))
    first = panels[0].x_axes[0]
    switches = ""
    if any(len(panel.x_axes) > 1 for panel in panels):
        switches += _switch("x-axis", "axis", [(name, name, name == first) for name in axes])
    logs = {bool(panel.log_x) for panel in panels}
    scales = [("log", "log", logs == {True}), ("linear", "linear", logs == {False})]
    switches += _switch("x-scale", "scale", scales)
    switches += _switch("drag to", "drag", [("zoom", "zoom", True), ("pan", "pan", False)])
    return (
        f'<div class="tools">{switches}'
        '<button type="button" class="plain" data-do="reset" '
        'title="or double-click in a panel">Reset view</button>'
        '<button type="button" class="plain" data-do="all" hidden>Show all curves</button></div>'
    )


def _switch(label: str, kind: str, options: Iterable[tuple[str, str, bool]]) -> str:
    """Return buttons of which one is pressed."""
    buttons = "".join(
        f'<button type="button" data-{kind}="{escape(value)}" '
        f'aria-pressed="{str(pressed).lower()}">{escape(text)}</button>'
        for value, text, pressed in options
    )
    return (
        f'<div class="switch" role="group" aria-label="{label}">'
        f'<span class="switch-label" aria-hidden="true">{label}</span>'
        f'<span class="segments">{buttons}</span></div>'
    )


def _legend(entries: Sequence[Entry]) -> str:
    """Return the legend: buttons, those of one method together."""
    groups: dict[str, list[int]] = {}
    for i, entry in enumerate(entries):
        groups.setdefault(entry.method, []).append(i)
    parts = []
    for method, places in groups.items():
        alone = len(places) == 1
        head = (
            ""
            if alone
            else f'<button type="button" class="method" data-method="{escape(method)}" '
            f'title="hide or show all of these">{escape(method)}</button>'
        )
        buttons = "".join(_legend_entry(i, entries[i], alone) for i in places)
        parts.append(f'<div class="legend-group">{head}{buttons}</div>')
    return (
        '<div class="legend" role="group" aria-label="curves: press to hide or show">'
        f"{''.join(parts)}"
        '<p class="hint">Click a name to hide or show its curve, double-click to see it alone.'
        "</p></div>"
    )


def _legend_entry(place: int, entry: Entry, alone: bool) -> str:
    """Return one button of the legend with a sample of its line."""
    if alone:
        text = f"<b>{escape(entry.method)}</b>"
        text += f" {escape(entry.variant)}" if entry.variant else ""
    else:
        text = escape(entry.variant or "plain")
    if entry.empty:
        text += " <i>(nothing to draw)</i>"
    return (
        f'<button type="button" class="entry" data-entry="{place}" aria-pressed="true" '
        f'aria-label="{escape(entry.label)}" '
        f'style="--light:{entry.colour.light};--dark:{entry.colour.dark}">'
        '<svg class="sample" width="30" height="10" aria-hidden="true">'
        f'<line x1="1" y1="5" x2="29" y2="5" stroke-dasharray="{STROKES[entry.dash]}"/></svg>'
        f"<span>{text}</span></button>"
    )


def _facts(name: str, table: Mapping[str, str]) -> str:
    """Return one table of facts."""
    place = _id("facts", name)
    return (
        f'<section class="facts" id="{place}" aria-labelledby="{place}-title">'
        f'<h2 id="{place}-title">{escape(name)}</h2>{_table(table.items())}</section>'
    )


def _table(pairs: Iterable[tuple[str, str]]) -> str:
    """Return names and values as a table."""
    return _table_of([(escape(name), [escape(value)]) for name, value in pairs], "pairs")


def _table_of(rows: Iterable[tuple[str, Iterable[str]]], kind: str, head: str = "") -> str:
    """Return rows of HTML, each with its name, as a table."""
    lines = "".join(
        f'<tr><th scope="row">{name}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'
        for name, cells in rows
    )
    return f'<table class="{kind}">{head}{lines}</table>'


# --- words as HTML --------------------------------------------------------------------------------

_SUBSCRIPT = re.compile(r"\b([A-Za-z])_([A-Za-z0-9])\b")


def typeset(text: str) -> str:
    """Return text as HTML, with y_t as a letter and its subscript."""
    return _SUBSCRIPT.sub(r"<i>\1</i><sub>\2</sub>", escape(text))


_NAMES = {"accelegrad": "AcceleGrad", "adagrad": "AdaGrad", "svm": "SVM", "rho": "ρ ="}


def claim_title(name: str) -> str:
    """Return a claim's name, such as "last-beats-average", as a heading in words."""
    words = " ".join(_NAMES.get(word, word) for word in name.split("-"))
    return escape(words[:1].upper() + words[1:])


def evidence_tables(evidence: Iterable[tuple[str, str]]) -> str:
    """Return what was measured as tables; numbers "1: 0.5 · 2: 0.3" get a column for each key.

    Neighbours with the same keys share a table.
    """
    found = [(typeset(what), cells_of(text) or [("", text)]) for what, text in evidence]
    tables = []
    for keys, group in groupby(found, key=lambda row: [key for key, _ in row[1]]):
        rows = [(what, [typeset(value) for _, value in cells]) for what, cells in group]
        heads = "".join(f'<th scope="col">{typeset(key)}</th>' for key in keys)
        head = "" if keys == [""] else f"<tr><td></td>{heads}</tr>"
        tables.append(_table_of(rows, "evidence", head))
    return "".join(f'<div class="numbers">{table}</div>' for table in tables)


def cells_of(text: str) -> list[tuple[str, str]]:
    """Return the cells of "1: 0.5 · 2: 0.3"; none where a text is something else."""
    parts = text.split(" · ")
    if len(parts) == 1 or not all(": " in part for part in parts):
        return []
    return [(key, value) for key, _, value in (part.partition(": ") for part in parts)]
