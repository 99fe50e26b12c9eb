"""From the curves of a report to what is drawn: thinned lines, and the entries of the legend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from accelegrad.errors import Vector, nearest
from accelegrad_lab.engine.content import Curve, Figure, Panel, Report
from accelegrad_lab.report.palette import Colour, colours, on_scale

POINTS = 400  # at most so many are drawn of a curve
FEW = 12  # a curve of so few points gets markers
DASHES = ("solid", "dash", "dot", "dashdot")


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
    marked: npt.NDArray[np.intp]  # the points that get a marker
    note: str

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not np.isfinite(self.y).any()


@dataclass(frozen=True)
class PreparedPanel:
    """One pair of axes with its lines."""

    panel: Panel
    lines: Sequence[Line]


@dataclass(frozen=True)
class PreparedFigure:
    """A figure with its legend; entries of one method stand together."""

    figure: Figure
    entries: Sequence[Entry]
    rows: Sequence[Sequence[PreparedPanel]]


def prepare(report: Report) -> list[PreparedFigure]:
    """Return the figures of a report as they are drawn, or say what is wrong with them."""
    _check(report)
    colour = colours(
        curve.method
        for figure in report.figures
        for _, panel in _panels(figure)
        for curve in panel.curves
    )
    return [_prepare_figure(figure, colour) for figure in report.figures]


def _prepare_figure(figure: Figure, colour: Mapping[str, Colour]) -> PreparedFigure:
    """Return one figure with its legend."""
    curves = [curve for _, panel in _panels(figure) for curve in panel.curves]
    methods = list(dict.fromkeys(curve.method for curve in curves))
    keys = sorted(dict.fromkeys(map(_key, curves)), key=lambda key: methods.index(key[0]))
    place = {key: i for i, key in enumerate(keys)}
    rows = [
        [
            PreparedPanel(
                panel, [_line(curve, panel, place[_key(curve)]) for curve in panel.curves]
            )
            for panel in row
        ]
        for row in figure.rows
    ]
    drawn = {line.entry for row in rows for panel in row for line in panel.lines if not line.empty}
    entries = [
        Entry(
            method,
            variant,
            dash,
            colour[method].shaded(shade) if scale is None else on_scale(scale),
            i not in drawn,
        )
        for i, (method, variant, dash, shade, scale) in enumerate(keys)
    ]
    return PreparedFigure(figure, entries, rows)


def _key(curve: Curve) -> tuple[str, str, str, float, float | None]:
    """Return what makes two curves share an entry of the legend."""
    return curve.method, curve.variant, curve.dash, float(curve.shade), curve.scale


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
        _marked(y),
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


def _panels(figure: Figure) -> Iterator[tuple[str, Panel]]:
    """Go through a figure's panels with words for where each is."""
    for i, row in enumerate(figure.rows):
        for j, panel in enumerate(row):
            yield f"figure {figure.name!r}, row {i + 1}, column {j + 1}", panel


def _check(report: Report) -> None:
    """Raise where the report cannot be drawn as it is."""
    names = [figure.name for figure in report.figures]
    for name in names:
        if not name or name.startswith((".", "-")) or set(name) - set(_FILE_NAME):
            raise ValueError(
                f"a figure's name must be a file name of letters, digits, '.', '_' and '-', "
                f"but it is {name!r}."
            )
        if names.count(name) > 1:
            raise ValueError(f"the names of figures must differ, but {name!r} is there twice.")
    for claim in report.claims:
        if claim.figure and claim.figure not in names:
            raise ValueError(
                f"claim {claim.name!r} refers to figure {claim.figure!r}, which is not in the "
                f"report: {nearest(claim.figure, names)}"
            )
    for figure in report.figures:
        if not any(figure.rows):
            raise ValueError(f"figure {figure.name!r} must have at least one panel.")
        for where, panel in _panels(figure):
            if not panel.x_axes:
                raise ValueError(f"{where}: x_axes must name at least one axis, but it is empty.")
            for curve in panel.curves:
                _check_curve(f"{where}, curve {curve.method!r} {curve.variant!r}", curve, panel)


_FILE_NAME = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"


def _check_curve(where: str, curve: Curve, panel: Panel) -> None:
    """Raise where a curve does not fit its panel."""
    for name in panel.x_axes:
        if name not in curve.x:
            raise ValueError(
                f"{where}: x lacks the panel's axis {name!r}: {nearest(name, curve.x)}"
            )
    if curve.dash not in DASHES:
        raise ValueError(f"{where}: dash is {curve.dash!r}: {nearest(curve.dash, DASHES)}")
    if not -1 <= curve.shade <= 1:
        raise ValueError(f"{where}: shade must be between -1 and 1, but it is {curve.shade!r}.")
    if curve.scale is not None and not 0 <= curve.scale <= 1:
        raise ValueError(f"{where}: scale must be between 0 and 1, but it is {curve.scale!r}.")
    if (curve.low is None) != (curve.high is None):
        raise ValueError(f"{where}: low and high must be given together.")
    arrays = {f"x[{name!r}]": curve.x[name] for name in panel.x_axes} | {"y": curve.y}
    if curve.low is not None and curve.high is not None:
        arrays |= {"low": curve.low, "high": curve.high}
    shape = np.shape(curve.y)
    for name, array in arrays.items():
        if np.ndim(array) != 1 or np.shape(array) != shape:
            raise ValueError(
                f"{where}: x, y, low and high must be one-dimensional and of one length, "
                f"but the shape of {name} is {np.shape(array)} and that of y {shape}."
            )
