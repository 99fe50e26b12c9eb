"""Proximal Newton's method: the curvature of a sum over rows, with an l1 term or within a box."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from accelegrad.errors import LineSearchError
from accelegrad.rules.base import Array, Evaluated, Step, StepRule
from accelegrad.solvers.newton import (
    DESCENT,
    SHORTEST_STEP,
    VALUE_ROUNDING,
    bolder,
    more_careful,
)

#: After this many steps in a row that gain nothing, rounding hides any further fall.
MOST_IDLE = 3
#: A step of which less than this can be done was much too long.
SHORT = 0.05


class Aim(NamedTuple):
    """The minimum of a model around a point."""

    target: Array
    fall: float  # from the point to it, as the model says
    value: float  # at the point; infinite where the model is exact and was not evaluated there


class Composite(Protocol):
    """What the rule needs from an oracle."""

    @property
    def changed(self) -> bool:
        """Whether the last evaluation was of another function than the one before."""

    def __call__(self, point: Array) -> Evaluated:
        """Evaluate the sum, with its term, at a point."""

    def original(self, evaluation: Evaluated) -> Evaluated:
        """Return what is known of the function that the sum stands for where it was evaluated."""

    def aim(self, point: Array, number: int, caution: float) -> Aim:
        """Return the minimum of the model around a point; the same for the same arguments.

        Its curvature is from the `number`-th sample of the rows. With caution, from 0 to 1, it errs
        upwards where the curvature is smaller nearby than farther away.
        """

    def value_between(self, point: Array, target: Array, share: float) -> float:
        """Return the value this far from a point (0) to a target (1): no pass over the rows."""


class ProximalNewtonState(NamedTuple):
    """The last point that was accepted, and how to go on."""

    iteration: int
    point: Array
    caution: float  # of the next model, from 0 to 1
    idle: int  # steps in a row that gained nothing
    step_size: float


@dataclass(frozen=True)
class ProximalNewton(StepRule):
    r"""Proximal Newton's method for a smooth sum over rows with an l1 term, within a box.

    Around a point w, with the gradient g and the curvature C of the sum f, the model

    .. math:: m(u) = \langle g, u - w\rangle + \tfrac12 (u - w)^\top C (u - w) + \phi(u)

    is minimised over the box, which takes no pass over the rows (`accelegrad.solvers.quadratic`).
    Of many columns only some move: those whose weights are not at a kink of the term or an end of
    the box, and as many again of the others as promise most. The minimum u is accepted if
    :math:`F(u) \le F(w) - 10^{-4} (m(w) - m(u))`; else the step is halved until that holds, which
    takes no pass over the rows either. For least squares the model is exact: a step is the solution
    where all columns may move.

    C is from all rows for least squares, and else from a sample of them that grows from step to
    step. Where the losses have no curvature beyond a corner, caution lends it some.

    `output` and `last` are the last point that was accepted.

    References
    ----------
    J. D. Lee, Y. Sun, M. A. Saunders: Proximal Newton-type methods for minimizing composite
    functions. SIAM Journal on Optimization 24, 2014. M. Massias, A. Gramfort, J. Salmon: Celer: a
    fast solver for the lasso with dual extrapolation. ICML 2018.
    """

    title = "proximal Newton"
    can = frozenset({"values", "terms"})

    def init(self, x0: Array) -> ProximalNewtonState:
        """Return the state before the first step."""
        return ProximalNewtonState(0, x0, 1.0, 0, 0.0)

    def step(self, state: ProximalNewtonState, oracle: Composite) -> Step:  # type: ignore[override]
        """Go to the minimum of the model, or as far towards it as the sum falls."""
        aim, trial, share, caution = self._tried(state, oracle)
        known = oracle.original(trial)
        idle = state.idle + 1 if aim.value <= trial.value and not oracle.changed else 0
        if idle > MOST_IDLE:
            raise LineSearchError("the value falls no further: rounding has the last word.")
        moved = ProximalNewtonState(
            state.iteration + 1,
            trial.point,
            1.0 if oracle.changed else self._next_caution(caution, share),
            idle,
            share,
        )
        return Step(moved, known, 0.0)

    def _tried(
        self, state: ProximalNewtonState, oracle: Composite
    ) -> tuple[Aim, Evaluated, float, float]:
        """Return the model's minimum, the point to go to, how much of the way it is, the caution.

        A step that is much too long comes from curvature that is much too small: then a model with
        more caution takes its place, if there is one.
        """
        point, number, caution = state.point, state.iteration + 1, state.caution
        while True:
            aim = oracle.aim(point, number, caution)
            trial, share = oracle(aim.target), 1.0
            while not self._acceptable(aim, trial.value, share):
                shorter = self._shorter(point, aim, oracle, SHORT if caution < 1.0 else 0.0)
                if shorter == 0.0:
                    break
                share = min(shorter, 0.5 * share)
                trial = oracle(point + share * (aim.target - point))
            else:
                return aim, trial, share, caution
            caution = self._next_caution(caution, 0.0)

    def _shorter(self, point: Array, aim: Aim, oracle: Composite, least: float) -> float:
        """Return how much of a step that is too long to do; 0 if less than `least`."""
        share = 0.5
        while share >= least:
            if share <= SHORTEST_STEP:
                raise LineSearchError(
                    "the value falls no further towards the minimum of the model: rounding has the "
                    "last word."
                )
            if self._acceptable(aim, oracle.value_between(point, aim.target, share), share):
                return share
            share *= 0.5
        return 0.0

    def _acceptable(self, aim: Aim, value: float, share: float) -> bool:
        """Return whether the value falls as it should; where the fall is rounding, it need not."""
        rounding = VALUE_ROUNDING * abs(value)
        allowed = rounding if aim.fall <= rounding else -DESCENT * share * aim.fall
        return value <= aim.value + allowed

    def _next_caution(self, caution: float, share: float) -> float:
        """Return the caution of the next model: less, unless a step was too long."""
        if share < 1.0:
            return more_careful(caution)
        return bolder(caution)

    def output(self, state: ProximalNewtonState) -> Array:
        """Return the last point that was accepted."""
        return state.point
