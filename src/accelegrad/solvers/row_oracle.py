"""What all methods for sums over rows share: their oracles, and smoothing.

A loss with kinks is minimised as a sequence of smooth sums: its Moreau envelope with a parameter mu
is below it by at most mu L^2 / 2. The envelope's slopes are feasible for the dual of the loss, so
the gap is known at every point. If its part due to the smoothing dominates, mu shrinks.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np

from accelegrad.errors import Vector
from accelegrad.geometry.penalties import Penalty
from accelegrad.geometry.sets import FeasibleSet
from accelegrad.models.linear_model import LinearModel, ModelPoint
from accelegrad.proofs.fenchel import Terms
from accelegrad.proofs.model_dual import ModelDual
from accelegrad.rules.base import Array, StepRule
from accelegrad.run.oracle import QUIET, Evaluation, ModelOracle
from accelegrad.solvers.curvature import Costs, Goal, shorter_share
from accelegrad.solvers.work import STEP

#: mu is divided by at most this at a time (measured: 2 and 10 cost a bit more).
LARGEST_SHRINK = 4.0
#: mu shrinks if the smoothing's part exceeds this share of the larger of gap and wanted gap, and
#: aims at half this share of the wanted gap (0.25 takes as long; with 1 the gap never gets small).
LARGEST_PART = 0.5
LEAST_MU = 1e-100  # its inverse, the curvature, can still be squared
NEGLIGIBLE_GAP = 1e-14  # of the value: rounding of sums hides a smaller gap


def no_goal(value: float) -> float:  # noqa: ARG001
    """Return 0: no gap is wanted."""
    return 0.0


class RowRule(StepRule):
    """A rule that works on the rows of a linear model, and on nothing else."""

    @abstractmethod
    def oracle(
        self,
        model: LinearModel,
        rng: np.random.Generator,
        goal: Goal,
        penalty: Penalty | None = None,
        feasible_set: FeasibleSet | None = None,
        /,
    ) -> RowOracle:
        """Return the oracle to work on; only rules that can "terms" take a penalty or a set."""

    def output(self, state: Any) -> Array:
        """Return the last accepted point."""
        point: Array = state.point
        return point


class RowOracle(ModelOracle):
    """A sum over rows; `rng` gives samples, or the order of the rows."""

    saved = (*ModelOracle.saved, "rng", "more_work")

    more_work = 0.0  # beside passes over all rows

    def __init__(self, model: LinearModel, rng: np.random.Generator, goal: Goal = no_goal) -> None:
        self.model, self.rng, self.goal = model, rng, goal

    @cached_property
    def costs(self) -> Costs:
        """The costs of curvature and evaluations of the sum."""
        return Costs.of(self.model)

    @property
    def work(self) -> float:
        """The work so far: see `accelegrad.solvers.work`."""
        pass_over_rows = 0.5 * (self.costs.evaluation + STEP)
        return self.more_work + pass_over_rows * (self.nfev + self.njev)


class TermsOracle(RowOracle):
    """A sum over rows with l1 and l2 terms (`penalty` without the model's own), within a box."""

    saved = (*RowOracle.saved, "_seed")
    dual: ModelDual

    def __init__(
        self,
        model: LinearModel,
        rng: np.random.Generator,
        goal: Goal,
        terms: Terms,
        penalty: Penalty | None,
    ) -> None:
        plain, given = penalty is None and terms.feasible_set is None, model
        if model.in_memory:  # without kernels, if its few passes would not pay for compiling
            model = model.of_columns(None, model.l2)
        elif not model.has_columns:
            rows_in_memory(model)  # refuses it
        super().__init__(model, rng, goal)
        self.terms, self.penalty = terms, penalty
        # Without other terms the model's own, which all solvers share
        self.dual = given.dual if plain else self.model.dual_with(terms)
        self._seed = int(rng.integers(2**63))


def rows_in_memory(model: LinearModel) -> LinearModel:
    """Return the model with its rows in memory, or refuse."""
    if not model.in_memory:
        raise ValueError(
            "this method goes from row to row in random order, so that all rows have to be in "
            f"memory, but those of {model!r} are not: use method 'accelegrad-newton'."
        )
    return model


class SmoothOracle(RowOracle):
    """A smooth sum over rows, which remembers its last two evaluations."""

    #: it is always the same sum: see `SmoothedOracle`
    changed = False
    _latest: tuple[Evaluation, ...] = ()

    @property
    def sum(self) -> Any:
        """The smooth sum: this one."""
        return self

    def __call__(self, point: Vector) -> Evaluation:
        """Evaluate at the point."""
        evaluation = super().__call__(point)
        self._latest = (*self._latest[-1:], evaluation)
        return evaluation

    def seen(self, point: Vector, other: ModelPoint) -> Evaluation:
        """Evaluate from another sum over the same rows: no pass over them before the gradient."""
        with np.errstate(**QUIET):
            at = other.beside(self.model)
            value = at.value
        evaluation = Evaluation(point, value, late_gradient=self._late_gradient, model=at)
        self._latest = (*self._latest[-1:], evaluation)
        return self._finish(evaluation)

    def _evaluation(self, point: Vector) -> Evaluation:
        """Return what is known at a point, usually one of the last two evaluated."""
        for known in (*self._latest, self.best):
            if known is not None and known.point is point:
                return known
        if self.points == 0:
            return self(point)
        if self.best is not None and np.array_equal(self.best.point, point):
            return self.best  # from a checkpoint, with the gradient if that was known
        with self.uncounted():
            return self(point)

    def shorter(self, start: Vector, end: Vector, value: float, fall: float) -> float:
        """Return the share of the way between two points that lowers the value: no pass."""
        before, after = (self._known(self._evaluation(point)) for point in (start, end))

        def value_at(share: float) -> float:
            at = self.model.between(before, after, share)
            return at.value + (0.0 if self.penalty is None else self.penalty.value(at.w))

        with np.errstate(**QUIET):
            return shorter_share(value_at, value, fall)


Smooth = TypeVar("Smooth", bound=SmoothOracle)


class SmoothedOracle(RowOracle, Generic[Smooth]):
    """A sum over rows whose loss has kinks, and the smooth sum below it that a rule works on."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.smooth: Smooth | None = None
        self.changed = False  # whether the smooth sum is a new one
        self._next_mu = math.nan  # of the next smooth sum

    @abstractmethod
    def _smoothed(self, mu: float) -> Smooth:
        """Return the smooth sum for a mu."""

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

    @property
    def work(self) -> float:
        """The work so far, with what earlier smooth sums have done beside their passes."""
        return super().work + (0.0 if self.smooth is None else self.smooth.more_work)

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
        self.more_work += 0.0 if self.smooth is None else self.smooth.more_work
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


def smoothing_gap(at: ModelPoint, smooth: ModelPoint) -> float:
    """Return an estimate of the part of a gap that is due to the smoothing alone.

    For the envelope e, theta = e'(m): l(m) + l*(theta) - theta m = l(m) - e(m) - mu theta^2 / 2.
    """
    mu = smooth.model.loss.smoothing
    return max(at.mean_loss - smooth.mean_loss - 0.5 * mu * smooth.squared_slopes, 0.0)
