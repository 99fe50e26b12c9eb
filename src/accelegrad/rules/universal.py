"""Nesterov's universal gradient methods: primal, dual and fast, with bounded line searches.

Each searches for the smallest M = 2^i L_k, i >= 0, that passes its test, and continues with
L = M/2. The test compares exact values, up to epsilon/2. It means nothing under noise; the bound on
the trials makes the search end all the same.

Reference: Yu. Nesterov: Universal gradient methods for convex optimization problems. Mathematical
Programming 152, 2015.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from accelegrad.errors import LineSearchError, NonFiniteError, real_number, whole_number
from accelegrad.rules.arrays import Array, as_array, inner
from accelegrad.rules.base import (
    SHORTEST,
    Evaluated,
    KnownEvaluation,
    Oracle,
    Projection,
    Step,
    StepRule,
    weighted_average,
)


class GradientState(NamedTuple):
    """State of the primal and of the dual method."""

    iteration: int
    point: Array  # x_k
    value: float | None  # f(x_k) and its gradient: known from the step before
    gradient: Array | None
    model_point: Array  # x_0 minus the sum of g_i / M_i (dual method; unused by the primal one)
    latest: Array  # the point accepted last: x_k (primal) or B (dual)
    smoothness: float  # L_k
    step_size: float  # 1/M
    trials: int  # of the last line search
    weighted_sum: Array
    weight_sum: float


class FastState(NamedTuple):
    """State of the fast method."""

    iteration: int
    point: Array  # y_k
    model_point: Array  # x_0 minus the sum of a_i grad f(x_i)
    total_weight: float  # A_k
    smoothness: float
    step_size: float
    trials: int


@dataclass(frozen=True)
class UniversalRule(StepRule):
    """What the three methods share: their parameters, the trials and the test."""

    epsilon: float
    initial_smoothness: float = 1.0
    project: Projection | None = None
    max_trials: int = 100

    can = StepRule.can | {"project"}

    def __post_init__(self) -> None:
        real_number("epsilon", self.epsilon, above=0)
        real_number("initial_smoothness", self.initial_smoothness, above=0)
        whole_number("max_trials", self.max_trials, least=1)

    def _searched(self, smoothness: float, attempt: Callable[[float, int], Step | None]) -> Step:
        """Return the first attempt's step that passes; where values are not finite, none does."""
        M = smoothness
        for trials in range(1, self.max_trials + 1):
            try:
                step = attempt(M, trials)
            except NonFiniteError:
                step = None
            if step is not None:
                return step
            M *= 2
        raise LineSearchError(
            f"no step passed the line search's test within max_trials={self.max_trials} doublings "
            f"of the smoothness {smoothness:g}: the values are noisy, the gradient is wrong, or "
            "the function is not convex."
        )

    def _passes(self, at: Evaluated, trial: Evaluated, smoothness: float, slack: float) -> bool:
        """Test f(u) <= f(x) + <g, u - x> + M/2 ||u - x||^2 + slack, u the trial point."""
        move = trial.point - at.point
        model = at.value + inner(at.gradient, move) + smoothness / 2 * inner(move, move)
        return bool(trial.value <= model + slack)


class UniversalGradient(UniversalRule):
    r"""Universal primal gradient method.

    :math:`x^+ = P(x - g/M)`, accepted when
    :math:`f(x^+) \le f(x) + \langle g, x^+ - x\rangle + \tfrac M2 \|x^+ - x\|^2 + \tfrac\epsilon2`;
    the output is the average of the accepted points with weights 1/M. About two calls per step.

    Parameters
    ----------
    epsilon : float
        The accuracy wanted: the method is guaranteed to come within epsilon/2, and not closer.
    initial_smoothness : float, default 1
        L_0, where the first search starts.
    project : callable, optional
        The Euclidean projection onto the set. `minimize` sets it.
    max_trials : int, default 100
        Bound on the doublings in one search.
    """

    title = "universal gradient"

    def init(self, x0: Array) -> GradientState:
        """Return the state at x_0."""
        x0, L = as_array(x0), self.initial_smoothness
        return GradientState(0, x0, None, None, x0, x0, L, 0.0, 0, 0 * x0, 0.0)

    def step(self, state: GradientState, oracle: Oracle) -> Step:
        """Search for M and move to x^+."""
        if state.gradient is None or state.value is None:
            at: Evaluated = oracle(state.point)
        else:
            at = KnownEvaluation(state.point, state.value, state.gradient)
        return self._descended(state, at, oracle)

    def _descended(self, state: GradientState, at: Evaluated, oracle: Oracle) -> Step:
        """Return the first step P(x - g/M) that passes the test."""
        gradient = at.gradient

        def attempt(M: float, trials: int) -> Step | None:
            move = gradient / M
            trial = oracle(self.proximal(at.point - move))
            if not self._passes(at, trial, M, self.epsilon / 2):
                return None
            following = state._replace(
                iteration=state.iteration + 1,
                point=trial.point,
                value=trial.value,
                gradient=trial.gradient,
                model_point=state.model_point - move,
                latest=trial.point,
                smoothness=max(M / 2, SHORTEST),  # where the function is flat, it would reach zero
                step_size=1 / M,
                trials=trials,
                weighted_sum=state.weighted_sum + trial.point / M,
                weight_sum=state.weight_sum + 1 / M,
            )
            return Step(following, at, 1 / M)

        return self._searched(state.smoothness, attempt)

    def output(self, state: GradientState) -> Array:
        """Return the average of the accepted points."""
        return weighted_average(state, state.point)

    def last(self, state: GradientState) -> Array:
        """Return the point accepted last."""
        return state.latest


class UniversalDualGradient(UniversalGradient):
    r"""Universal dual gradient method.

    :math:`x_k = P(x_0 - \sum_{i<k} g_i/M_i)`. M is tested at :math:`x_k`, whose gradient it weighs:
    with :math:`B = P(x_k - g_k/M)` it is accepted when
    :math:`f(B) \le f(x_k) + \langle g_k, B - x_k\rangle + \tfrac M2 \|B - x_k\|^2
    + \tfrac\epsilon2`; the output is the average of the B's with weights 1/M. About three calls
    per step. Parameters as in `UniversalGradient`.
    """

    title = "universal dual gradient"

    def step(self, state: GradientState, oracle: Oracle) -> Step:
        """Search for M, and move to x_{k+1}."""
        step = self._descended(state, oracle(state.point), oracle)
        point = self.proximal(step.state.model_point)
        return step._replace(state=step.state._replace(point=point, value=None, gradient=None))


class UniversalFastGradient(UniversalRule):
    r"""Universal fast (accelerated) gradient method.

    With :math:`v = P(x_0 - \sum_i a_i \nabla f(x_i))`, a the root of :math:`M a^2 = A + a` and
    :math:`\tau = a/(A+a)`:

    .. math::
        x = \tau v + (1-\tau) y, \quad \hat x = P(v - a \nabla f(x)), \quad
        y^+ = \tau \hat x + (1-\tau) y

    accepted when the primal test holds at :math:`y^+` up to :math:`\tau\epsilon/2`. The output is
    y. About four calls per step. Parameters as in `UniversalGradient`.
    """

    title = "universal fast gradient"

    def init(self, x0: Array) -> FastState:
        """Return y_0 = x_0, A_0 = 0."""
        x0 = as_array(x0)
        return FastState(0, x0, x0, 0.0, self.initial_smoothness, 0.0, 0)

    def step(self, state: FastState, oracle: Oracle) -> Step:
        """Search for M and move to y^+."""
        A, y, v = state.total_weight, state.point, self.proximal(state.model_point)

        def attempt(M: float, trials: int) -> Step | None:
            a = (1 + (1 + 4 * M * A) ** 0.5) / (2 * M)
            tau = a / (A + a)
            at = oracle(v + (1 - tau) * (y - v))
            x_hat = self.proximal(v - a * at.gradient)
            trial = oracle(x_hat + (1 - tau) * (y - x_hat))
            if not self._passes(at, trial, M, tau * self.epsilon / 2):
                return None
            model_point, L = state.model_point - a * at.gradient, max(M / 2, SHORTEST)
            t = state.iteration + 1
            following = FastState(t, trial.point, model_point, A + a, L, 1 / M, trials)
            return Step(following, at, a)

        return self._searched(state.smoothness, attempt)

    def output(self, state: FastState) -> Array:
        """Return y_k."""
        return state.point
