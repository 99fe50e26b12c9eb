"""From the curves of a report to what is drawn: colours, thinned lines, entries of the legend.

A method has one colour everywhere: on the page, in both themes, and in the still figures. The fixed
colours start from Okabe and Ito's palette and were moved by a search in OKLab: of the nine, any
two differ by 0.08 at least for normal, deuteranope and protanope eyes, on either background.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from accelegrad.errors import Vector
from accelegrad_lab.engine.experiment import Curve, Figure, Panel, Report

LIGHT_BACKGROUND = "#FFFFFF"
DARK_BACKGROUND = "#161B22"
LIGHT_INK, DARK_INK = "#000000", "#FFFFFF"


@dataclass(frozen=True)
class Colour:
    """A colour for the light page and its twin for the dark one, as #RRGGBB."""

    light: str
    dark: str

    def shaded(self, shade: float) -> Colour:
        """Return the colour blended towards its background; a shade of 1 still can be seen.

        A shade below zero is away from the background, towards the ink.
        """
        if shade < 0.0:
            return Colour(
                _blend(self.light, LIGHT_INK, -0.8 * shade),
                _blend(self.dark, DARK_INK, -0.7 * shade),
            )
        return Colour(
            _blend(self.light, LIGHT_BACKGROUND, 0.68 * shade),
            _blend(self.dark, DARK_BACKGROUND, 0.6 * shade),
        )


FAINTEST, STRONGEST = 0.9, -0.75  # the ends of a family's shades

METHODS: Mapping[str, Colour] = {
    "accelegrad": Colour("#DC6203", "#E8790F"),
    "adagrad": Colour("#2884DC", "#52A4FE"),
    "universalprimal": Colour("#3DA173", "#40F2AA"),
    "universaldual": Colour("#AB569B", "#C96EB6"),
    "universalfast": Colour("#DDA302", "#FBE03F"),
    "sgd": Colour("#78055A", "#D34E7B"),
    "saga": Colour("#404703", "#CEBC18"),
    "lbfgs": Colour("#1A1A1A", "#F2F2F2"),
    "liblinear": Colour("#8A5744", "#9A5B20"),
}

OTHERS = (
    Colour("#00756B", "#2CB5A5"),
    Colour("#5B7F00", "#9CC837"),
    Colour("#B5306B", "#F08CB4"),
    Colour("#4F5D95", "#98A8EA"),
    Colour("#B0413E", "#F2807C"),
    Colour("#6B7A86", "#8C9AA6"),
    Colour("#7A4FBF", "#C3A6F5"),
    Colour("#8A7A2E", "#E3D48B"),
)


def colours(methods: Iterable[str]) -> dict[str, Colour]:
    """Return the colour of every method; a name that is not known gets one by its letters.

    Two unknown names do not share a colour while there are colours left.
    """
    found: dict[str, Colour] = {}
    taken: set[int] = set()
    for method in sorted(set(methods)):
        key = "".join(filter(str.isalnum, method.lower())).replace("lbfgsb", "lbfgs")
        if key in METHODS:
            found[method] = METHODS[key]
            continue
        place = zlib.crc32(key.encode()) % len(OTHERS)
        while place in taken and len(taken) < len(OTHERS):
            place = (place + 1) % len(OTHERS)
        taken.add(place)
        found[method] = OTHERS[place]
    return found


def tints(count: int) -> list[float]:
    """Return shades, the faintest first, that can be told apart in a family of so many curves."""
    if count == 1:
        return [0.0]
    return [FAINTEST + (STRONGEST - FAINTEST) * place / (count - 1) for place in range(count)]


def _blend(colour: str, towards: str, share: float) -> str:
    """Return the mixture of two colours of the form #RRGGBB."""
    mixed = (
        round((1 - share) * int(colour[i : i + 2], 16) + share * int(towards[i : i + 2], 16))
        for i in (1, 3, 5)
    )
    return "#" + "".join(f"{part:02X}" for part in mixed)


# -- what is drawn ---------------------------------------------------------------------------------


POINTS = 400  # at most so many are drawn of a curve
FEW = 12  # a curve of so few points gets markers


@dataclass(frozen=True)
class Entry:
    """One line of a figure's legend; curves of several panels may share it."""

    method: str
    variant: str
    dash: str
    colour: Colour
    empty: bool  # no curve of it has a point that can be drawn

    @property
    def label(self) -> str:
        """The whole name."""
        return f"{self.method}, {self.variant}" if self.variant else self.method


@dataclass(frozen=True)
class Line:
    """A curve, thinned. What the axis cannot show is NaN in `y`, `low` and `high`."""

    entry: int
    x: Mapping[str, Vector]
    y: Vector
    band: tuple[Vector, Vector] | None
    marked: list[int]  # the points that get a marker
    note: str

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not np.isfinite(self.y).any()


@dataclass(frozen=True)
class PreparedPanel(Panel):
    """One pair of axes with its lines, as page.js reads it."""

    lines: Sequence[Line] = ()


@dataclass(frozen=True)
class PreparedFigure:
    """A figure with its legend; entries of one method stand together."""

    figure: Figure
    entries: Sequence[Entry]
    rows: Sequence[Sequence[PreparedPanel]]


def prepare(report: Report) -> list[PreparedFigure]:
    """Return the figures of a report as they are drawn."""
    colour = colours(
        curve.method
        for figure in report.figures
        for row in figure.rows
        for panel in row
        for curve in panel.curves
    )
    return [_prepare_figure(figure, colour) for figure in report.figures]


def _prepare_figure(figure: Figure, colour: Mapping[str, Colour]) -> PreparedFigure:
    """Return one figure with its legend."""
    curves = [curve for row in figure.rows for panel in row for curve in panel.curves]
    methods = list(dict.fromkeys(curve.method for curve in curves))
    keys = sorted(dict.fromkeys(map(_key, curves)), key=lambda key: methods.index(key[0]))
    place = {key: i for i, key in enumerate(keys)}

    def prepared(panel: Panel) -> PreparedPanel:
        lines = [_line(curve, panel, place[_key(curve)]) for curve in panel.curves]
        return PreparedPanel(**{**vars(panel), "curves": (), "lines": lines})

    rows = [list(map(prepared, row)) for row in figure.rows]
    drawn = {line.entry for row in rows for panel in row for line in panel.lines if not line.empty}
    entries = [
        Entry(method, variant, dash, colour[method].shaded(shade), i not in drawn)
        for i, (method, variant, dash, shade) in enumerate(keys)
    ]
    return PreparedFigure(figure, entries, rows)


def _key(curve: Curve) -> tuple[str, str, str, float]:
    """Return what makes two curves share an entry of the legend."""
    return curve.method, curve.variant, curve.dash, float(curve.shade)


def _line(curve: Curve, panel: Panel, entry: int) -> Line:
    """Return a curve thinned, without what the axis cannot show."""
    kept = thin(np.asarray(curve.x[panel.x_axes[0]], dtype=np.float64))
    y = _drawable(curve.y, panel.log_y)[kept]
    band = None
    if curve.low is not None and curve.high is not None:
        band = (_drawable(curve.low, panel.log_y)[kept], _drawable(curve.high, panel.log_y)[kept])
    return Line(
        entry,
        {name: np.asarray(curve.x[name], dtype=np.float64)[kept] for name in panel.x_axes},
        y,
        band,
        _marked(y).tolist(),
        curve.note,
    )


def thin(x: Vector) -> npt.NDArray[np.intp]:
    """Return the indices of at most `POINTS` points, among them the first and the last.

    Half of them are spaced evenly on a log axis and half on a linear one, as a reader may see both.
    """
    if x.size <= POINTS:
        return np.arange(x.size)
    if not (np.isfinite(x).all() and (np.diff(x) >= 0).all() and x[0] >= 0 and x[-1] > 0):
        x = np.arange(1.0, x.size + 1)
    wanted = np.concatenate(
        [
            np.geomspace(x[x > 0][0], x[-1], POINTS // 2 - 1),
            np.linspace(x[0], x[-1], POINTS // 2 - 1),
        ]
    )
    nearest_after = np.minimum(np.searchsorted(x, wanted), x.size - 1)
    return np.unique(np.concatenate([[0], nearest_after, [x.size - 1]]))


def _drawable(values: Vector, log: bool) -> Vector:
    """Return the values with NaN for what the axis cannot show."""
    given = np.asarray(values, dtype=np.float64)
    return np.where(np.isfinite(given) & ((given > 0) | (not log)), given, np.nan)


def _marked(y: Vector) -> npt.NDArray[np.intp]:
    """Return which points need a marker: all of a few, and those that no line reaches."""
    there = np.isfinite(y)
    if np.count_nonzero(there) <= FEW:
        return np.flatnonzero(there)
    padded = np.concatenate([[False], there, [False]])
    return np.flatnonzero(there & ~padded[:-2] & ~padded[2:])
