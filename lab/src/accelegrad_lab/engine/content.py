"""What a report holds, apart from how it is drawn: curves in panels in figures, claims, facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from accelegrad.errors import Vector


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
