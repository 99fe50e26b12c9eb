"""A sum over rows whose loss has kinks as a sequence of smooth sums.

The Moreau envelope of the loss with a parameter mu is smooth, and below the loss by at most
mu L^2 / 2. Its slopes are feasible for the dual of the loss itself, so that the gap of the original
problem is known at every point: a part that is due to the smoothing, and one that is due to the
point. Where the first is most of it, mu shrinks.
"""

from __future__ import annotations

import math

import numpy as np

from accelegrad.errors import Vector
from accelegrad.models.losses import Loss
from accelegrad.models.row_sum import RowPoint, RowSum
from accelegrad.run.oracle import Evaluation
from accelegrad.solvers.curvature import Diagonal, Factored
from accelegrad.solvers.newton import CurvedOracle
from accelegrad.solvers.row_oracle import Goal, RowOracle, rows_in_memory

#: mu is divided by at most this at a time (measured: 2 and 10 cost a bit more).
LARGEST_SHRINK = 4.0
#: mu shrinks where the smoothing's part of the gap is more than this share of it; chosen.
LARGEST_PART = 0.5
#: The smoothing's part that mu is chosen for, as a share of the gap that is wanted; up to twice
#: that, mu stays as it is; chosen.
AIMED_PART = 0.25
LEAST_MU = 1e-100  # its inverse, the curvature, can still be squared
NEGLIGIBLE_GAP = 1e-14  # of the value: rounding of sums hides a smaller gap
#: A gap that is estimated to be at most this many times the wanted one is worth a proof; chosen.
PROMISING = 4.0


class SmoothedCurvedOracle(RowOracle):
    """A sum over rows whose loss has kinks, and a smooth one close below with its curvature.

    Parameters
    ----------
    model, rng, goal
        As for `RowOracle`; the loss has kinks, and the sum a dual bound.
    """

    # The sum is made by setting mu, so it comes after it.
    saved = (*RowOracle.saved, "mu", "_next_mu", "smooth")

    def __init__(self, model: RowSum, rng: np.random.Generator, goal: Goal | None = None) -> None:
        super().__init__(model, rng, goal)
        if not model.has_dual_bound:
            raise ValueError(
                f"the {model.loss.name} loss is smoothed as far as the dual gap allows; that needs "
                "a LinearModel with l2 > 0, or few columns and more rows: the model has l2 = 0 and "
                f"{model.n_samples} rows of {model.n_features} columns."
            )
        self.smooth: CurvedOracle | None = None
        self.changed = False
        self._next_mu = math.nan  # what the next evaluation smooths with
        self._latest: Evaluation | None = None

    @property
    def sum(self) -> CurvedOracle:
        """The smooth sum of the present mu."""
        assert self.smooth is not None
        return self.smooth

    @property
    def lowest(self) -> Evaluation | None:
        """What is known of the smooth sum where the function itself was lowest so far."""
        best = self.best
        if best is not None and self._latest is not None and best.point is not self._latest.point:
            return self.sum.seen(best.point, self._known(best))
        return self.sum.lowest

    def guess(self, point: Vector) -> Vector | None:
        """Return the minimum over a sample of the rows, None where there are too few of them."""
        return self.sum.guess(point)

    def between(self, point: Vector, trial: Evaluation) -> float:
        """Return where the smooth objective is lowest between two points."""
        return self.sum.between(point, trial)

    def curvature(self, point: Vector, number: int, caution: float) -> Factored | Diagonal:
        """Return the curvature of the smooth objective."""
        return self.sum.curvature(point, number, caution)

    def __call__(self, point: Vector) -> Evaluation:
        """Evaluate the smooth sum, and along with it the function itself."""
        if self.smooth is None:
            self._next_mu = self._first_mu(point)
        before = self.smooth
        self.changed = before is None or before.model.loss.smoothing != self._next_mu
        if self.changed:
            self._smooth_with(self._next_mu)
        evaluation = self.sum(point)
        self._latest = self._evaluated(evaluation)
        return evaluation

    def _first_mu(self, point: Vector) -> float:
        """Return a mu whose error is about half the value: much is gained fast."""
        self._count_value()
        return first_smoothing(self.model.at(point), self.model.loss)

    def _smooth_with(self, mu: float) -> None:
        self.smooth = CurvedOracle(self.model.smoothed(mu), self.rng)

    def _evaluated(self, evaluation: Evaluation) -> Evaluation:
        """Return what is known of the function itself, and decide how to go on."""
        self._count_value()
        self.njev += 1
        smooth = self.sum._known(evaluation)
        at = smooth.beside(self.model)
        known = Evaluation(evaluation.point, at.value, late_gradient=self._late_gradient, model=at)
        known = self._finish(known)
        mu = self.sum.model.loss.smoothing
        smoothing, goal = smoothing_gap(at, smooth, mu), self.goal(at.value)
        gap = self._gap(evaluation, known, smoothing, goal)
        self._next_mu = shrunk_smoothing(mu, smoothing, gap, goal, at.value)
        return known

    def _gap(self, evaluation: Evaluation, known: Evaluation, part: float, goal: float) -> float:
        """Return the gap or an estimate of it; the bound is kept in `known`.

        `part` of it is due to the smoothing.
        """
        smooth, at = self.sum._known(evaluation), self._known(known)
        has_l2 = self.model.l2 > 0.0
        if self.sum.bound_can_wait(evaluation, goal, part):
            known.late_bound = self._late_bound(smooth, self.sum.model.loss.smoothing)
            return part + self.sum.remaining(evaluation)
        gap = 0.0 if has_l2 else part + self._remaining(smooth)
        # Without an l2 term a bound is costly.
        if has_l2 or gap <= PROMISING * goal:
            known.dual_value = at.dual_value_by(smooth)
            gap = at.value - known.dual_value
        else:
            known.late_bound = self._late_bound(smooth, self.sum.model.loss.smoothing)
        return gap

    def _remaining(self, smooth: RowPoint) -> float:
        """Return an estimate of the smooth sum's gap: half of Newton's squared decrement.

        The second derivatives are taken to be those of all rows times the share that is curved.
        """
        curved = max(smooth.curved_share, 1.0 / self.model.n_samples)
        space = rows_in_memory(self.model).dual.without_terms("a smoothed loss").space
        mu = self.sum.model.loss.smoothing
        return float(0.5 * mu * space.distance(smooth.gradient) ** 2 / curved)

    def original(self, evaluation: Evaluation) -> Evaluation:
        """Return what is known of the function itself where the sum was evaluated last."""
        assert self._latest is not None
        assert self._latest.point is evaluation.point
        return self._latest

    def final_gradient(self, evaluation: Evaluation) -> Vector:
        """Return the unsmoothed gradient, computed again: a checkpoint does not hold margins."""
        self.njev += 1
        return self.model.at(evaluation.point).gradient

    @property
    def mu(self) -> float | None:
        """The present smoothing; None before the first evaluation."""
        return None if self.smooth is None else self.smooth.model.loss.smoothing

    @mu.setter
    def mu(self, mu: float | None) -> None:
        if mu is not None:
            self._smooth_with(mu)


def smoothing_gap(at: RowPoint, smooth: RowPoint, mu: float) -> float:
    """Return an estimate of the part of a gap that is due to the smoothing alone.

    With the envelope e of the loss l and theta = e'(m), l(m) + l*(theta) - theta m is
    l(m) - e(m) - mu theta^2 / 2.
    """
    return max(at.mean_loss - smooth.mean_loss - 0.5 * mu * smooth.squared_slopes, 0.0)


def first_smoothing(at: RowPoint, loss: Loss) -> float:
    """Return a mu whose error is about half the value at a point: much is gained fast."""
    size = at.mean_loss if at.mean_loss > 0.0 else at.value
    return max(size, LEAST_MU) / loss.lipschitz**2


def shrunk_smoothing(mu: float, smoothing: float, gap: float, goal: float, value: float) -> float:
    """Return the mu to go on with, where the smoothing's part of the gap at a point is known.

    `goal` is the gap that is wanted, `value` the value at the point.
    """
    goal = max(goal, NEGLIGIBLE_GAP * abs(value))
    if smoothing <= max(LARGEST_PART * gap, 2.0 * AIMED_PART * goal):
        return mu
    # The smoothing's part of the gap falls about as the square of mu.
    return max(mu / LARGEST_SHRINK, mu * math.sqrt(AIMED_PART * goal / smoothing))
