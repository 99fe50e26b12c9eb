"""What an experiment is: tasks, and the figures and claims that are made of their results.

Reports consist of claims, facts, and curves in panels in figures, apart from how they are drawn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import numpy as np

from accelegrad.errors import Vector
from accelegrad_lab.engine.recording import NAMES
from accelegrad_lab.engine.tasks import Outcome, Store, Task


class Verdict(Enum):
    """What a measurement says of a claim."""

    HOLDS = "holds"
    IN_PART = "holds in part"
    FAILS = "does not hold here"


@dataclass(frozen=True)
class Curve:
    """One run (or the median of several seeds) of one method."""

    method: str  # it decides the colour, everywhere
    variant: str  # what tells this curve from others of the method: "rho = 2", "last iterate"
    x: Mapping[str, Vector]  # for every axis that the panel offers: "iterations", "epochs"
    y: Vector  # on a log axis points that are not above zero are left out
    dash: str = "solid"  # or "dash", "dot", "dashdot"
    shade: float = 0.0  # -1 to 1: the colour is blended with the background, below 0 with the ink
    low: Vector | None = None  # a band around the curve, over seeds
    high: Vector | None = None
    note: str = ""  # a remark that hovering shows: "ended: line search failed"


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    curves: Sequence[Curve]
    x_axes: Sequence[str]  # the first one is shown first
    y_label: str
    log_x: bool = True
    log_y: bool = True


@dataclass(frozen=True)
class Figure:
    """Panels in rows, as the paper arranges them."""

    name: str  # a file name without its ending
    title: str
    caption: str
    rows: Sequence[Sequence[Panel]]
    facts: Mapping[str, str] = field(default_factory=dict)  # exact parameters, seeds, timings


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, measured."""

    name: str
    statement: str
    source: str  # where the paper says so
    verdict: Verdict
    point: str  # the output point judged: "average", "last", "both", or "-"
    threshold: str  # what had to hold, in words
    evidence: Sequence[tuple[str, str]]  # (what, number)
    explanation: str = ""  # why it fails or holds in part, where it does
    figure: str = ""  # the name of the figure that shows it

    def beside(self, figures: Iterable[str]) -> Claim:
        """Return the claim for a page that has these figures, by their names.

        It points to no figure that is not there, and leaves no verdict but a plain one unexplained.
        """
        claim = self if self.figure in figures else replace(self, figure="")
        if claim.verdict is not Verdict.HOLDS and not claim.explanation:
            words = "Not every part of the test is met; the numbers show which ones are."
            claim = replace(claim, explanation=words)
        return claim


@dataclass(frozen=True)
class Report:
    """Everything on the page."""

    title: str
    summary: str
    claims: Sequence[Claim]
    figures: Sequence[Figure]
    facts: Mapping[str, Mapping[str, str]]  # tables: "Data", "Versions", "Timings", ...


# -- experiments -----------------------------------------------------------------------------------


#: By what a figure's axis is called: the recorded column.
COLUMN = {"iterations": "iteration", "oracle calls": "calls"}
COLUMN |= {name: name for name in ("epochs", "seconds")}
POINTS = {"average": "averaged iterates", "last": "last iterates"}


@dataclass(frozen=True)
class Setup:
    """How large, how often and on what data: what the user decides."""

    quick: bool
    seeds: int
    data: Mapping[str, Any] = field(default_factory=dict)  # as in `models.py`
    rows: int = 0  # of that data


class Experiment(ABC):
    """An experiment, declared; the runner runs its tasks and the report shows its figures.

    A cell is one method with one setting on one problem; it has a task for each seed.
    """

    name: str
    title: str
    relative = True  # whether gaps are divided by the minimum

    @abstractmethod
    def cells(self, setup: Setup) -> dict[Any, list[Task]]:
        """Return the tasks of each cell."""

    @abstractmethod
    def minimum(self, task: Task) -> Task:
        """Return the task that finds the minimum of a task's problem."""

    @abstractmethod
    def figures(self, setup: Setup, results: Store) -> list[Figure]:
        """Return what is drawn."""

    @abstractmethod
    def claims(self, setup: Setup, results: Store) -> list[Claim]:
        """Return the paper's claims that this experiment decides, measured."""

    def tasks(self, setup: Setup) -> list[Task]:
        """Return the tasks of all cells."""
        return [task for tasks in self.cells(setup).values() for task in tasks]

    def first(self, setup: Setup) -> list[Task]:
        """Return the tasks that others build on: the minima."""
        return list({one.key: one for one in map(self.minimum, self.tasks(setup))}.values())

    def families(self, setup: Setup, results: Store) -> dict[Any, Family]:
        """Return the results of each cell."""
        found = {}
        for cell, tasks in self.cells(setup).items():
            minima = [results.get(self.minimum(task)).facts["minimum"] for task in tasks]
            scale = minima if self.relative else [1.0] * len(tasks)
            found[cell] = Family.of([results.get(task) for task in tasks], scale)
        return found


@dataclass(frozen=True)
class Family:
    """One method with one parameter over several seeds: the medians, and the range."""

    x: dict[str, Vector]
    average: Vector
    last: Vector
    low: dict[str, Vector]
    high: dict[str, Vector]
    statuses: tuple[str, ...]
    calls_an_iteration: float
    certified: Vector | None = None  # the gap that the runs prove, where it was recorded

    @classmethod
    def of(
        cls, outcomes: Sequence[Outcome], scale: Sequence[float], minimum: float = 0.0
    ) -> Family:
        """Put seeds together: the objective less `minimum`, divided by each seed's own scale."""
        length = min(len(outcome.arrays["iteration"]) for outcome in outcomes)

        def median(name: str) -> Vector:
            return np.asarray(np.median([o.arrays[name][:length] for o in outcomes], axis=0))

        known = outcomes[0].arrays
        # Until the last record, without checks at the end.
        calls = [o.arrays["calls"][-1] / o.arrays["iteration"][-1] for o in outcomes if length]
        stacked = {
            point: np.array(
                [
                    (o.arrays[point][:length] - minimum) / s
                    for o, s in zip(outcomes, scale, strict=True)
                ]
            )
            for point in POINTS
        }
        return cls(
            {axis: median(name) for axis, name in COLUMN.items() if name in known},
            np.median(stacked["average"], axis=0),
            np.median(stacked["last"], axis=0),
            {point: values.min(axis=0) for point, values in stacked.items()},
            {point: values.max(axis=0) for point, values in stacked.items()},
            tuple(outcome.facts["status"] for outcome in outcomes),
            float(np.mean(calls)),
            median("certified") if "certified" in known else None,
        )

    @property
    def ended(self) -> str:
        """What ended runs before all their iterations, in words; nothing where nothing did."""
        early = sorted(set(self.statuses) - {"MAX_ITER"})
        return f"ended: {', '.join(early).lower().replace('_', ' ')}" if early else ""

    def at(self, point: str) -> Vector:
        """Return the gaps at the average or at the last point."""
        return self.average if point == "average" else self.last

    def final(self, point: str, floor: float = 0.0) -> float:
        """Return the last recorded gap, or the floor, below which it is rounding."""
        values = self.at(point)
        return max(float(values[-1]), floor) if len(values) else np.inf

    def first_below(self, point: str, level: float, axis: str) -> float:
        """Return where on an axis the gap first is at most `level`, inf if it never is."""
        below = np.flatnonzero(self.at(point) <= level)
        return float(self.x[axis][below[0]]) if below.size else np.inf

    def value_at(self, point: str, axis: str, where: float) -> float:
        """Return the gap at the last recorded place not beyond `where`."""
        inside = np.flatnonzero(self.x[axis] <= where * (1 + 1e-9))
        return float(self.at(point)[inside[-1]]) if inside.size else np.inf

    def curve(self, method: str, variant: str, point: str, *, shade: float = 0.0) -> Curve:
        """Return a curve of the gaps at a point."""
        several = len(self.statuses) > 1
        return Curve(
            NAMES.get(method, method),
            variant,
            self.x,
            self.at(point),
            shade=shade,
            low=self.low[point] if several else None,
            high=self.high[point] if several else None,
            note=self.ended,
        )


def slope(x: Vector, y: Vector, floor: float = 0.0, start: float = 10.0) -> float:
    """Return the fitted slope of log y against log x, for x >= start and y > floor."""
    keep = (y > floor) & (x >= start)
    if keep.sum() < 3:
        return float("nan")
    return float(np.polyfit(np.log(x[keep]), np.log(y[keep]), 1)[0])


def cells_text(cells: Mapping[Any, float]) -> str:
    """Return numbers by what they belong to: "1: 0.5 · 2: 0.3"."""
    return " · ".join(f"{_key(key)}: {number(value)}" for key, value in cells.items())


def pairs_text(first: Mapping[Any, float], second: Mapping[Any, float]) -> str:
    """Return two numbers each by what they belong to: "1: 0.5 / 0.7 · 2: 0.3 / 0.1"."""
    return " · ".join(f"{_key(k)}: {number(first[k])} / {number(second[k])}" for k in first)


def _key(key: Any) -> str:
    return f"{key:g}" if isinstance(key, (int, float)) else str(key)


def verdict_of(cells: Iterable[bool], *, part: float = 0.5) -> Verdict:
    """Return HOLDS if all cells agree, IN_PART if more than `part` of them do."""
    agreed = list(cells)
    share = sum(agreed) / len(agreed)
    if share == 1:
        return Verdict.HOLDS
    return Verdict.IN_PART if share > part else Verdict.FAILS


def number(value: float) -> str:
    """Return a number as the report shows it."""
    if not np.isfinite(value):
        return "never" if value == np.inf else "-"
    if value == 0:
        return "0"
    if 1e-2 <= abs(value) < 1e4:
        return f"{value:.3g}"
    return f"{value:.1e}"
