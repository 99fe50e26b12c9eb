"""Charts of the large tables of benchmarks, drawn from the tables' files when pages are built."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

TABLES = Path(__file__).parents[1] / "tables"
CHARTS = Path(__file__).parents[1] / "generated"


def rows_of(path: Path) -> list[dict[str, str]]:
    """Return the rows of all tables of a Markdown file, by the names of their columns."""
    return rows_in(path.read_text("utf-8"))


def rows_in(text: str) -> list[dict[str, str]]:
    """Return the rows of all tables in a text."""
    rows, names = [], None
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            names = None
        elif names is None:
            names = [name or str(i) for i, name in enumerate(cells)]
        elif not set("".join(cells)) <= set("-: "):
            rows.append(dict(zip(names, cells, strict=True)))
    return rows


def numbers(rows: list[dict[str, str]], column: str) -> np.ndarray:
    """Return the numbers in a column, where there are some."""
    found = (re.fullmatch(r"[0-9.]+(e[-+]?\d+)?", row.get(column, "")) for row in rows)
    return np.array([float(match.group()) for match in found if match])


def section(path: Path, heading: str) -> list[dict[str, str]]:
    """Return the rows below a heading of a Markdown file."""
    text = path.read_text("utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    if not text:
        raise ValueError(f"{path.name} has no section {heading!r}")
    return rows_in(text)


def by_section(path: Path, column: str) -> dict[str, np.ndarray]:
    """Return the numbers of a column in each section "name: words" that has such a column."""
    parts = path.read_text("utf-8").split("\n## ")[1:]
    found = {part.partition(":")[0]: numbers(rows_in(part), column) for part in parts}
    return {name: ratios for name, ratios in found.items() if ratios.size}


def best_shares(rows: list[dict[str, str]], accuracy: int) -> dict[str, np.ndarray]:
    """Return each method's calls over the fewest of all; cells have a number for each accuracy."""
    found: dict[str, list[float]] = {}
    for row in rows:
        cells = {name: cell.split("/") for name, cell in row.items() if cell.count("/") == 3}
        calls = {
            name: float(cell[accuracy]) if cell[accuracy] != "-" else np.inf
            for name, cell in cells.items()
        }
        fewest = min(calls.values(), default=np.inf)
        for name, count in calls.items():
            if fewest < np.inf:
                found.setdefault(name, []).append(count / fewest)
    return {name: np.array(ratios) for name, ratios in found.items()}


@contextmanager
def drawing(name: str, height: float = 3.2) -> Iterator[Any]:
    """Give a panel to draw on, which is saved as generated/NAME: equal numbers, equal bytes."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    with mpl.rc_context({"svg.hashsalt": "accelegrad", "svg.fonttype": "path"}):
        figure, panel = plt.subplots(figsize=(7, height), layout="constrained")
        yield panel
        figure.savefig(CHARTS / name, metadata={"Date": None})
        plt.close(figure)


def spread(name: str, columns: dict[str, np.ndarray], label: str) -> None:
    """Draw the ratios of each kind, sorted, with a line where nothing is gained or lost."""
    from matplotlib.ticker import NullFormatter, ScalarFormatter

    everything = np.concatenate(list(columns.values()))
    narrow = everything.max() < 20 * everything.min()  # else marks between powers run into another
    with drawing(name) as panel:
        for kind, ratios in columns.items():
            shares = np.linspace(0, 1, len(ratios)) if len(ratios) > 1 else [0.5]
            panel.plot(shares, np.sort(ratios), ".-", label=f"{kind} ({len(ratios)})")
        panel.axhline(1.0, color="tab:gray", linewidth=0.8)
        panel.set(yscale="log", xlabel="share of the problems", ylabel=label)
        panel.yaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_minor_formatter(ScalarFormatter() if narrow else NullFormatter())
        panel.legend()


def bars(name: str, lengths: dict[str, float], label: str) -> None:
    """Draw a bar for each name, the shortest on top."""
    ordered = sorted(lengths.items(), key=lambda entry: -entry[1])
    with drawing(name, height=0.6 + 0.25 * len(ordered)) as panel:
        colours = ["tab:blue" if "AcceleGrad" in kind else "tab:gray" for kind, _ in ordered]
        panel.barh([kind for kind, _ in ordered], [size for _, size in ordered], color=colours)
        panel.set(xlabel=label, xscale="log")
        panel.axvline(1.0, color="black", linewidth=0.8)


def profile(name: str, ratios: dict[str, np.ndarray]) -> None:
    """Draw how many functions each method solves within a factor of the fewest calls."""
    factors = np.logspace(0, 2, 200)
    with drawing(name, height=4) as panel:
        for kind, found in ratios.items():
            shares = (found[:, None] <= factors).mean(axis=0)
            wide = 2.5 if kind.startswith("AcceleGrad, auto") else 1.2
            panel.semilogx(factors, shares, label=f"{kind} ({len(found)})", linewidth=wide)
        panel.set(xlabel="calls over the fewest", ylabel="share of the functions", ylim=(0, 1))
        panel.legend(fontsize=7, ncols=2)


def draw(_: Any) -> None:
    """Draw all charts."""
    CHARTS.mkdir(exist_ok=True)
    times = {}
    for row in section(TABLES / "bench.md", "Solvers at 0.001"):
        solver, told = row.values() if len(row) == 2 else (None, "")
        found = re.search(r"time over the best ([0-9.]+)", told)
        if found:
            times[solver] = float(found.group(1))
    bars(
        "bench.svg",
        times,
        "time over the best one's to 1e-3, geometric mean of the problems solved",
    )
    spread(
        "everyday.svg",
        by_section(TABLES / "everyday.md", "ratio"),
        "our time / the fastest accurate peer's",
    )
    profile("functions.svg", best_shares(rows_of(TABLES / "functions.md"), accuracy=1))
    ratios: dict[str, list[float]] = {}
    for row in rows_of(TABLES / "optimizers.md"):
        for rival in (name for name in row if name.startswith("best ")):
            with suppress(ValueError, IndexError):  # a case without that rival
                theirs = float(row[rival].split()[0])
                ratios.setdefault(rival, []).append(float(row["torch"].split()[0]) / theirs)
    spread(
        "optimizers.svg",
        {name: np.array(found) for name, found in ratios.items()},
        "remaining gap, AcceleGrad / rival",
    )


def setup(app: Any) -> dict[str, Any]:
    """Draw before pages are read."""
    app.connect("builder-inited", draw)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
