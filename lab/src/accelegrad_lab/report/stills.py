"""The figures as PNG and SVG, in the paper's arrangement, by matplotlib."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from accelegrad_lab.report.prepared import Entry, Line, PreparedFigure, PreparedPanel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 130
PANEL_WIDTH = {1: 6.6, 2: 4.7, 3: 3.7, 4: 3.1}  # inches, by the number of columns
STROKES: dict[str, Any] = {
    "solid": "-",
    "dash": (0, (4.5, 1.8)),
    "dot": (0, (1.2, 1.4)),
    "dashdot": (0, (5, 1.6, 1.2, 1.6)),
}
INK, FAINT = "#24292F", "#D9DEE4"
STYLE: dict[str, Any] = {
    "axes.edgecolor": "#8B949E",
    "axes.labelcolor": INK,
    "axes.labelsize": 9,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.6,
    "svg.hashsalt": "accelegrad",
    "text.color": INK,
    "xtick.color": "#57606A",
    "xtick.labelsize": 8,
    "ytick.color": "#57606A",
    "ytick.labelsize": 8,
}


def draw_still(prepared: PreparedFigure) -> dict[str, bytes]:
    """Return the figure as a file's content, by the file's ending: "png" and "svg"."""
    from matplotlib import style
    from matplotlib.figure import Figure

    columns = max(len(row) for row in prepared.rows)
    panel_width = PANEL_WIDTH.get(columns, 2.8)
    width = columns * panel_width
    longest = max((len(_label(entry)) for entry in prepared.entries), default=1)
    legend = max(1, min(len(prepared.entries), int(width / (0.075 * longest + 0.75))))  # columns
    lines = math.ceil(len(prepared.entries) / legend)
    title = textwrap.fill(prepared.figure.title, int(width * 11.5))
    height = (
        len(prepared.rows) * ((0.74 if columns > 1 else 0.58) * panel_width + 0.45)
        + 0.19 * lines
        + 0.2 * (title.count("\n") + 1)
    )
    with style.context(["default", STYLE]):
        still = Figure(figsize=(width, height), layout="constrained")
        still.get_layout_engine().set(w_pad=0.07, h_pad=0.07)  # type: ignore[union-attr, call-arg]
        grid = still.add_gridspec(len(prepared.rows), columns)
        for i, row in enumerate(prepared.rows):
            for j, panel in enumerate(row):
                axes = still.add_subplot(grid[i, j])
                _draw_panel(axes, panel, prepared, int(panel_width * 10.5))
                if j == 0 or row[j - 1].y_label != panel.y_label:
                    axes.set_ylabel(_plain(panel.y_label))
        still.suptitle(_plain(title), fontsize=11, fontweight="bold")
        _draw_legend(still, prepared.entries, legend)
        still.draw_without_rendering()  # places everything, once for both files
        still.set_layout_engine("none")
        files = {}
        for ending, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
            content = io.BytesIO()
            still.savefig(content, format=ending, dpi=DPI, metadata=metadata)
            files[ending] = content.getvalue()
    return files


def _draw_panel(axes: Axes, panel: PreparedPanel, figure: PreparedFigure, letters: int) -> None:
    """Draw one pair of axes; its title has at most so many letters a line."""
    from matplotlib.ticker import NullLocator

    name = panel.x_axes[0]
    axes.set_title(_plain(textwrap.fill(panel.title, letters)))
    axes.set_xlabel(_plain(name))
    shown = [line for line in panel.lines if _on_axes(line, name, panel.log_x).any()]
    if not shown:
        axes.text(0.5, 0.5, "nothing to draw", ha="center", va="center", transform=axes.transAxes)
        axes.set(xticks=[], yticks=[])
        return
    axes.set_yscale("log" if panel.log_y else "linear")
    axes.set_xscale("log" if panel.log_x else "linear")
    axes.grid(color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    for line in shown:
        colour = figure.entries[line.entry].colour.light
        x = np.where(_on_axes(line, name, panel.log_x), line.x[name], np.nan)
        if line.band is not None:
            axes.fill_between(x, *line.band, color=colour, alpha=0.16, linewidth=0)
        axes.plot(
            x,
            line.y,
            color=colour,
            linestyle=STROKES[figure.entries[line.entry].dash],
            marker="o",
            markersize=3.2,
            markevery=line.marked,
        )
    if not panel.log_y:
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    # Over two decades or more, ticks at powers of ten are enough (and much faster to place).
    for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        if axis.get_scale() == "log" and high >= 100 * low:
            axis.set_minor_locator(NullLocator())


def _on_axes(line: Line, name: str, log_x: bool) -> Any:
    """Return which points of a line the axes can show."""
    x = line.x[name]
    return np.isfinite(x) & np.isfinite(line.y) & ((x > 0) | (not log_x))


def _draw_legend(still: Figure, entries: Sequence[Entry], columns: int) -> None:
    """Draw the legend under the panels."""
    from matplotlib.lines import Line2D

    if entries:
        still.legend(
            [
                Line2D([], [], color=entry.colour.light, linestyle=STROKES[entry.dash])
                for entry in entries
            ],
            [_plain(_label(entry)) for entry in entries],
            loc="outside lower center",
            ncols=columns,
            frameon=False,
            handlelength=2.8,
            columnspacing=1.8,
            labelspacing=0.35,
        )


def _label(entry: Entry) -> str:
    """Return an entry's words."""
    return entry.label + (" (nothing to draw)" if entry.empty else "")


def _plain(text: str) -> str:
    """Return text that matplotlib does not read as mathematics."""
    return text.replace("$", r"\$")
