"""Charts of the large tables of benchmarks, drawn from the tables' files when pages are built."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

TABLES = Path(__file__).parents[1] / "tables"
CHARTS = Path(__file__).parents[1] / "generated"


def rows_of(path: Path) -> list[dict[str, str]]:
    """Return the rows of all tables of a Markdown file, by the names of their columns."""
    rows, names = [], None
    for line in path.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            names = None
        elif names is None:
            names = cells
        elif not set("".join(cells)) <= set("-: "):
            rows.append(dict(zip(names, cells, strict=True)))
    return rows


def numbers(rows: list[dict[str, str]], column: str) -> np.ndarray:
    """Return the numbers in a column, where there are some."""
    found = (re.fullmatch(r"[0-9.]+(e[-+]?\d+)?", row.get(column, "")) for row in rows)
    return np.array([float(match.group()) for match in found if match])


def spread(path: Path, columns: dict[str, np.ndarray], label: str) -> None:
    """Draw the ratios of each kind, sorted, with a line where nothing is gained or lost."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt
    from matplotlib.ticker import ScalarFormatter

    with mpl.rc_context({"svg.hashsalt": "accelegrad", "svg.fonttype": "none"}):
        figure, panel = plt.subplots(figsize=(7, 3.2), layout="constrained")
        for name, ratios in columns.items():
            shares = np.linspace(0, 1, len(ratios)) if len(ratios) > 1 else [0.5]
            panel.plot(shares, np.sort(ratios), ".-", label=f"{name} ({len(ratios)})")
        panel.axhline(1.0, color="tab:gray", linewidth=0.8)
        panel.set(yscale="log", xlabel="share of the problems", ylabel=label)
        panel.yaxis.set_major_formatter(ScalarFormatter())
        panel.yaxis.set_minor_formatter(ScalarFormatter())
        panel.legend()
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)


def draw(_: Any) -> None:
    """Draw all charts."""
    CHARTS.mkdir(exist_ok=True)
    tuned = rows_of(TABLES / "no-tuning.md")
    spread(
        CHARTS / "no-tuning.svg",
        {f"to {goal}": numbers(tuned, f"ratio {goal}") for goal in ("1e-2", "1e-4", "1e-6")},
        "calls, automatic / told D",
    )
    grown = rows_of(TABLES / "batches.md")
    spread(
        CHARTS / "batches.svg",
        {
            f"to {goal}": numbers([row for row in grown if row.get("accuracy") == goal], "ratio")
            for goal in ("0.01", "0.001", "0.0001")
        },
        "rows, automatic / best fixed size",
    )


def setup(app: Any) -> dict[str, Any]:
    """Draw before pages are read."""
    app.connect("builder-inited", draw)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
