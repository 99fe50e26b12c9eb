"""A linear model whose loss has kinks as a sequence of smooth finite sums.

The Moreau envelope of the loss with a parameter mu is smooth, and below the loss by at most
mu L^2 / 2. Its slopes are feasible for the dual of the loss itself, so that the gap of the original
problem is known at every point: a part that is due to the smoothing, and one that is due to the
point. Where the first is most of it, mu shrinks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from accelegrad.errors import Vector
from accelegrad.problems.linear_model import Evaluation as ModelEvaluation
from accelegrad.problems.linear_model import LinearModel
from accelegrad.proofs.certificate import LateBound
from accelegrad.rows.curvature import bent_rows
from accelegrad.rows.variance_reduced import Epoch, VarianceReducedAcceleGrad
from accelegrad.rows.variance_reduced_oracle import FiniteSumOracle
from accelegrad.run.oracle import Evaluation, ModelOracle

SHRINK = 4.0  # by what mu is divided at most at a time (measured: 2 and 10 cost a bit more)
SHARE = 0.5  # of the gap, due to the smoothing, at which mu shrinks,
LEAST_MU = 1e-100  # its inverse, the curvature, can still be squared
ROUNDING = 1e-14  # of the value: a smaller gap is wanted by nobody
PROMISING = 4.0  # times the gap that is wanted: an estimate that is worth a proof
ENOUGH = 0.25  # and the share of the gap that is wanted, at which it need not shrink any more


class SmoothedSumOracle(ModelOracle):
    """A linear model's objective, and epochs of steps on a smooth one close below.

    Parameters
    ----------
    model : LinearModel
        The model, with a dual bound; its loss has kinks.
    rng : numpy.random.Generator
        Where the order of the rows comes from.
    goal : callable
        The gap that is wanted, for a value; 0 if there is none.
    """

    def __init__(
        self, model: LinearModel, rng: np.random.Generator, goal: Callable[[float], float]
    ) -> None:
        super().__init__(model)
        if not model.has_dual_bound:
            raise ValueError(
                f"the {model.loss.name} loss is smoothed as far as the dual gap allows; that needs "
                "a LinearModel with l2 > 0, or few columns and more rows: the model has l2 = 0 and "
                f"{model.n_samples} rows of {model.n_features} columns."
            )
        self.rng, self.goal = rng, goal
        self.smooth: FiniteSumOracle | None = None
        self.changed = False
        self._next_mu = math.nan  # what the next evaluation smooths with
        self._latest: Evaluation | None = None

    @property
    def sum(self) -> FiniteSumOracle:
        """The smooth sum of the moment."""
        assert self.smooth is not None
        return self.smooth

    @property
    def n_batches(self) -> int:
        """How many batches an epoch has."""
        return self.sum.n_batches

    @property
    def strong_convexity(self) -> float:
        """The sum's."""
        return self.sum.strong_convexity

    @property
    def smoothness(self) -> float:
        """The sum's: it grows as mu shrinks."""
        return self.sum.smoothness

    @property
    def lowest(self) -> Evaluation | None:
        """What is known of the sum at the point where it is lowest so far."""
        return self.sum.lowest

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
        self.points += 1
        self.nfev += 1
        at = self.model.evaluate(point)
        size = at.mean_loss if at.mean_loss > 0.0 else at.value
        return max(size, LEAST_MU) / self.model.loss.lipschitz**2

    def _smooth_with(self, mu: float) -> None:
        model = self.model.smoothed(mu)
        before = self.smooth
        self.smooth = FiniteSumOracle(model, self.rng) if before is None else before.beside(model)

    def _evaluated(self, evaluation: Evaluation) -> Evaluation:
        """Return what is known of the function itself, and decide how to go on."""
        self.points += 1
        self.nfev += 1
        self.njev += 1
        smooth = evaluation.model
        assert smooth is not None
        own = smooth.beside(self.model)
        known = Evaluation(
            evaluation.point, own.value, late_gradient=self._late_gradient, model=own
        )
        known = self._finish(known)
        smoothing, goal = own.smoothing_gap(smooth), self.goal(own.value)
        gap = self._gap(evaluation, known, smoothing, goal)
        negligible = ROUNDING * abs(own.value)
        self._next_mu = self._shrunk(smoothing, gap, max(goal, negligible))
        return known

    def _gap(self, evaluation: Evaluation, known: Evaluation, part: float, goal: float) -> float:
        """Return the gap, or about what it is, and let what is known hold the bound.

        `part` of it is due to the smoothing.
        """
        smooth, own = evaluation.model, known.model
        assert smooth is not None
        assert own is not None
        gap = part + self._left(smooth) if self.model.l2 == 0.0 else 0.0
        if self.model.l2 > 0.0 or self._is_worth_a_bound(gap, goal):
            known.dual_value = own.dual_value_by(smooth)
            gap = own.value - known.dual_value
        else:
            known.late_bound = self._late_bound(smooth)
        return gap

    def _late_bound(self, smooth: ModelEvaluation) -> LateBound:
        """Return the bound that the smooth loss's slopes at a point give, for later."""
        mu = smooth.model.loss.smoothing
        return LateBound(self.model, smooth.w, smoothing=mu, known=smooth)

    def _left(self, smooth: ModelEvaluation) -> float:
        """Return about how far the sum is from its minimum: half of Newton's squared decrement.

        The second derivatives are taken to be those of all rows times the share that is bent.
        """
        model = smooth.model
        bent = max(float(bent_rows(smooth).mean()), 1.0 / model.n_samples)
        space = self.model.dual.without_terms("a smoothed loss").space
        return 0.5 * model.loss.smoothing * space.distance(smooth.gradient) ** 2 / bent

    def _is_worth_a_bound(self, gap: float, goal: float) -> bool:
        """Tell whether a bound, which is dear without an l2 term, may do."""
        return gap <= PROMISING * goal

    def _shrunk(self, smoothing: float, gap: float, goal: float) -> float:
        """Return the mu to go on with."""
        mu = self.sum.model.loss.smoothing
        if smoothing <= max(SHARE * gap, 2.0 * ENOUGH * goal):
            return mu
        # The smoothing's part of the gap falls about as the square of mu.
        return max(mu / SHRINK, mu * math.sqrt(ENOUGH * goal / smoothing))

    def original(self, evaluation: Evaluation) -> Evaluation:
        """Return what is known of the function itself where the sum was evaluated last."""
        assert self._latest is not None
        assert self._latest.point is evaluation.point
        return self._latest

    def epoch(self, rule: VarianceReducedAcceleGrad, epoch: Epoch, anchor: Evaluation) -> Epoch:
        """Do a step on each batch of rows, in a new random order."""
        self.njev += 1
        return self.sum.epoch(rule, epoch, anchor)

    def final_gradient(self, evaluation: Evaluation) -> Vector:
        """Return the model's own gradient, computed afresh: a checkpoint does not hold margins."""
        self.njev += 1
        return self.model.evaluate(evaluation.point).gradient

    def state(self) -> dict[str, Any]:
        """Return all that has to be kept to go on."""
        started = self.smooth is not None
        return {
            **super().state(),
            "rng": dict(self.rng.bit_generator.state),
            "mu": self.sum.model.loss.smoothing if started else None,
            "next_mu": self._next_mu if started else None,
            "sum": self.sum.state() if started else None,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        super().restore(state)
        self.rng.bit_generator.state = state["rng"]
        if state["mu"] is not None:
            self._smooth_with(state["mu"])
            self.sum.restore(state["sum"])
            self._next_mu = state["next_mu"]
