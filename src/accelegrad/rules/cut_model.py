"""The highest of some cuts as a model of a function, and the point near a centre where it is low.

With a feasible set or a penalty the model has cuts of these too, which projections and proximal
maps give; no evaluation of the function is spent on them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from accelegrad.errors import Vector
from accelegrad.rules.base import Projection, Prox
from accelegrad.rules.cut_memory import CONSTRAINT, FUNCTION, PENALTY, Combination, CutMemory
from accelegrad.rules.cut_programme import CutProgramme

#: Rounds to make the model's lowest point feasible at most, and the share of what the model
#: promises that may be missed
MOST_ROUNDS, MISSED = 30, 0.1


class Center(NamedTuple):
    """A point with what is known there."""

    point: Vector
    value: float  # of the sum
    term: float  # the penalty's part of it


class Lowest(NamedTuple):
    """Where the model is lowest near a centre."""

    point: Vector
    promise: float  # by how much the model lies below the value at the centre
    combination: Combination


class CutModel(NamedTuple):
    """Cuts, and the set and the term whose own cuts are added as they are needed."""

    cuts: CutMemory
    project: Projection | None = None
    prox: Prox | None = None
    term: Callable[[Vector], float] | None = None

    @property
    def is_plain(self) -> bool:
        """Whether there is neither set nor term."""
        return self.project is None and self.prox is None

    def lowest(
        self,
        center: Center,
        step: float,
        programme: CutProgramme | None = None,
        rounds: int = MOST_ROUNDS,
    ) -> Lowest:
        """Minimise the model plus ||u - center||^2 / (2 step); see `CutMemory.combined`."""
        cuts = self.cuts
        references = np.array([center.value - center.term, center.term, 0.0])
        for left in range(rounds, 0, -1):
            below = np.maximum(references[cuts.kinds] - cuts.values_at(center.point), 0.0)
            combination = cuts.combined(below, step, programme)
            square = float(combination.slope @ combination.slope)
            if self.is_plain:
                promise = combination.error + step * square
                return Lowest(center.point - step * combination.slope, promise, combination)
            of_function = np.where(cuts.kinds == FUNCTION, combination.weights, 0.0)
            target = center.point - step * (of_function @ cuts.slopes)
            point, term = self._feasible(target, step)
            model = float(cuts.values_at(point)[cuts.kinds == FUNCTION].max()) + term
            offset = point - center.point
            bound = center.value - combination.error - 0.5 * step * square
            missed = model + float(offset @ offset) / (2.0 * step) - bound
            promise = center.value - model
            if left == 1 or missed <= MISSED * max(promise, 0.0):
                break
            self._cut_off(target, point, term, step)
        return Lowest(point, promise, combination)

    def _feasible(self, target: Vector, step: float) -> tuple[Vector, float]:
        """Return the point of the set, or the prox, nearest to a target, and the term there."""
        point = target if self.prox is None else self.prox(target, step)
        if self.project is not None:
            point = self.project(point)
        return point, 0.0 if self.term is None else float(self.term(point))

    def _cut_off(self, target: Vector, point: Vector, term: float, step: float) -> None:
        """Keep the cut of the term, or of the set, that its prox or projection shows."""
        slope = (target - point) / step
        if self.prox is not None:
            self.cuts.add_at(point, term, slope, PENALTY)
        elif slope.any():
            self.cuts.add_at(point, 0.0, slope, CONSTRAINT)
