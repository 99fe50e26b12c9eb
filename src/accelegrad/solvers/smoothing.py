"""A sum over rows whose loss has kinks, as a sequence of smooth sums.

The Moreau envelope of the loss with a parameter mu is smooth, and below the loss by at most
mu L^2 / 2. Its slopes are feasible for the dual of the loss itself, so the gap of the original
problem is known at every point: one part due to the smoothing, and one due to the point. If the
first dominates, mu shrinks.
"""

from __future__ import annotations

import math
from typing import Any, Generic, TypeVar

from accelegrad.models.linear_model import ModelPoint
from accelegrad.run.oracle import Evaluation
from accelegrad.solvers.row_oracle import RowOracle

#: mu is divided by at most this at a time (measured: 2 and 10 cost a bit more).
LARGEST_SHRINK = 4.0
#: mu shrinks if the smoothing's part exceeds this share of the gap, or of the wanted one if that is
#: larger, and aims at half of that share of the wanted gap (0.25 takes as long; with 1 the gap
#: never gets small).
LARGEST_PART = 0.5
LEAST_MU = 1e-100  # its inverse, the curvature, can still be squared
NEGLIGIBLE_GAP = 1e-14  # of the value: rounding of sums hides a smaller gap

Smooth = TypeVar("Smooth", bound=RowOracle)


class SmoothedOracle(RowOracle, Generic[Smooth]):
    """A sum over rows whose loss has kinks, and the smooth sum below it that a rule works on."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.smooth: Smooth | None = None
        self.changed = False  # whether the smooth sum is a new one
        self._next_mu = math.nan  # of the next smooth sum

    def _smoothed(self, mu: float) -> Smooth:
        raise NotImplementedError

    @property
    def sum(self) -> Smooth:
        """The smooth sum of the current mu."""
        assert self.smooth is not None
        return self.smooth

    @property
    def mu(self) -> float | None:
        """The current smoothing; None before the first one."""
        return None if self.smooth is None else self.smooth.model.loss.smoothing

    @mu.setter
    def mu(self, mu: float | None) -> None:
        if mu is not None:
            self.smooth = self._smoothed(mu)

    def _smooth_as_due(self, point: Any) -> bool:
        """Make the smooth sum that is due (the first one for this point); return whether new."""
        if self.smooth is None:
            self._count_value()
            at, steepest = self.model.at(point), self.model.loss.lipschitz
            # The error of this mu is about half the value: much is gained fast.
            size = at.mean_loss if at.mean_loss > 0.0 else at.value
            self._next_mu = max(size, LEAST_MU) / steepest**2
        if self._next_mu == self.mu:
            return False
        self.mu = self._next_mu
        return True

    def _itself_at(self, evaluation: Evaluation) -> Evaluation:
        """Return the evaluation of the sum itself where the smooth one was evaluated."""
        self._count_value()
        self.njev += 1
        at = self.sum._known(evaluation).beside(self.model)
        known = Evaluation(evaluation.point, at.value, late_gradient=self._late_gradient, model=at)
        return self._finish(known)

    def _shrink(self, part: float, gap: float, goal: float, value: float) -> None:
        """Choose the next mu, given the part of the gap that is due to the smoothing."""
        mu, goal = self.sum.model.loss.smoothing, max(goal, NEGLIGIBLE_GAP * abs(value))
        self._next_mu = mu
        if part > LARGEST_PART * max(gap, goal):
            # The smoothing's part of the gap falls about as the square of mu.
            aimed = mu * math.sqrt(0.5 * LARGEST_PART * goal / part)
            self._next_mu = max(mu / LARGEST_SHRINK, aimed)


def smoothing_gap(at: ModelPoint, smooth: ModelPoint, mu: float) -> float:
    """Return an estimate of the part of a gap that is due to the smoothing alone.

    With the envelope e of the loss l and theta = e'(m), l(m) + l*(theta) - theta m is
    l(m) - e(m) - mu theta^2 / 2.
    """
    return max(at.mean_loss - smooth.mean_loss - 0.5 * mu * smooth.squared_slopes, 0.0)
