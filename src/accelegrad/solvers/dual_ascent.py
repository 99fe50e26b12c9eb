"""Stochastic dual coordinate ascent, for linear models with an l2 term."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from accelegrad.rules.base import Array, Evaluated, Rule, Step

#: After an evaluation the next one comes at the epoch where the gap is expected to be small enough,
#: but after no less than the first and no more than another share of the epochs so far: an
#: evaluation with its bound costs about as much as an epoch of rows that do not rest. While the gap
#: is larger than `FAR` times what is wanted, it may take longer.
SOONEST, LATEST_NEAR, LATEST, FAR = 0.1, 0.25, 0.5, 20.0


class Ascent(NamedTuple):
    """Dual variables, the point that belongs to them, and which rows rest."""

    slopes: Array  # theta
    point: Array  # w, with the intercept last where there is one
    rests: Array  # two rows: for how many epochs each row still rests, and how long its rest was


class Gap(NamedTuple):
    """What is left at an epoch."""

    epoch: int
    size: float  # estimated


class Dual(Protocol):
    """What the rule needs from an oracle: the dual of a sum of losses with an l2 term."""

    def __call__(self, point: Array) -> Evaluated:
        """Evaluate the objective at a point, exactly."""

    def feasible(self, x0: Array) -> Ascent:
        """Return slopes theta to start from, and the point that belongs to them."""

    def ascend(self, ascent: Ascent, epochs: int) -> Ascent:
        """Return slopes and point after some epochs: see `DualAscent`."""

    def gap(self, slopes: Array, at: Evaluated) -> tuple[float, float]:
        """Return an estimate of the gap at a point that was evaluated, and the gap that is wanted.

        The second is 0 where none is wanted.
        """

    def minorant(self, slopes: Array, at: Evaluated, *, at_once: bool) -> Evaluated:
        """Return the affine function below the objective that the slopes stand for.

        Its value and gradient at a point that was evaluated; `at_once`, or when it is asked for.
        """


class DualAscentState(NamedTuple):
    """A point and the dual variables that it follows from."""

    iteration: int  # epochs
    point: Array  # x0 before the first step
    slopes: Array | None  # theta, None before the first step
    rests: Array | None  # as in `Ascent`
    gap: Gap  # at the last evaluation
    due: int  # how many epochs until the next evaluation
    step_size: float  # there is none: 0


@dataclass(frozen=True)
class DualAscent(Rule):
    r"""Stochastic dual coordinate ascent (SDCA); a step is an epoch; no parameter to tune.

    The dual of :math:`\sum_i p_i\, l_i(a_i^\top w) + \frac{\lambda}{2} \|w\|^2` is

    .. math:: D(\theta) = -\sum_i p_i\, l_i^*(\theta_i) - \frac{\lambda}{2} \|w(\theta)\|^2, \qquad
              w(\theta) = -\frac1\lambda \sum_i p_i \theta_i a_i.

    An epoch goes through the rows in random order and makes each :math:`\theta_i` the best one for
    all others as they are:

    .. math:: \theta_i \leftarrow l_{i,q}'(a_i^\top w + q\,\theta_i), \qquad
              q = p_i \|a_i\|^2 / \lambda,

    where :math:`l_{i,q}` is the Moreau envelope of the loss with parameter q, and w follows. The
    loss need not be smooth. A row whose slope did not change, as at an end of the conjugate's
    domain, rests for an epoch; each further time for about twice as many.

    An intercept b without an l2 term adds the constraint :math:`\sum_i p_i \theta_i = 0`, and is
    its multiplier. By the method of multipliers the objective gets the term
    :math:`\frac\rho2 (b - b_k)^2`: then b is a weight like the others,

    .. math:: b = b_k - \frac1\rho \sum_i p_i \theta_i, \qquad
              q = p_i \bigl(\|a_i\|^2 / \lambda + 1 / \rho\bigr),

    and after each epoch :math:`b_{k+1} = b`.

    The objective is evaluated, and the gap proved, when the gap is expected to be small enough, so
    that there may be several epochs between two evaluations. `output` and `last` are the last
    point.

    References
    ----------
    C.-J. Hsieh, K.-W. Chang, C.-J. Lin, S. S. Keerthi, S. Sundararajan: A dual coordinate descent
    method for large-scale linear SVM. ICML 2008. S. Shalev-Shwartz, T. Zhang: Stochastic dual
    coordinate ascent methods for regularized loss minimization. JMLR 14, 2013. M. J. D. Powell: A
    method for nonlinear constraints in minimization problems. In: Optimization, 1969.
    """

    title = "dual ascent"
    can = frozenset({"values"})

    def init(self, x0: Array) -> DualAscentState:
        """Return the state before the first epoch."""
        return DualAscentState(0, x0, None, None, Gap(0, math.inf), 1, 0.0)

    def stride(self, state: DualAscentState) -> int:
        """Return how many epochs there are until the next evaluation."""
        return state.due

    def step(self, state: DualAscentState, oracle: Dual) -> Step:  # type: ignore[override]
        """Do an epoch; the evaluation is the minorant, which proves the accuracy."""
        return self.advance(state, oracle, 1)

    def advance(self, state: DualAscentState, oracle: Dual, most: int) -> Step:  # type: ignore[override]
        """Do epochs until the next evaluation is due."""
        if state.slopes is None:
            ascent = oracle.feasible(state.point)
        else:
            ascent = Ascent(state.slopes, state.point, state.rests)
        epochs = min(state.due, most)
        ascent = oracle.ascend(ascent, epochs)
        at: Any = oracle(ascent.point)
        iteration = state.iteration + epochs
        gap, due = state.gap, state.due - epochs
        size, wanted = oracle.gap(ascent.slopes, at)
        if due == 0:  # else it is as if nobody had looked
            gap = Gap(iteration, size)
            due = epochs_to(wanted, state.gap, gap)
        slopes, point, rests = ascent
        moved = DualAscentState(iteration, point, slopes, rests, gap, due, 0.0)
        evaluation = oracle.minorant(slopes, at, at_once=size <= wanted)
        return Step(moved, evaluation, 0.0, epochs)

    def output(self, state: DualAscentState) -> Array:
        """Return the last point."""
        return state.point

    def last(self, state: DualAscentState) -> Array:
        """Return the last point."""
        return state.point


def epochs_to(wanted: float, before: Gap, now: Gap) -> int:
    """Return how many epochs the gap is going to take, if it goes on falling as it did."""
    latest = LATEST if now.size > FAR * wanted else LATEST_NEAR
    expected = math.inf
    if 0.0 < wanted < now.size < before.size < math.inf:
        fall = math.log(before.size / now.size) / (now.epoch - before.epoch)
        expected = math.log(now.size / wanted) / fall
    return math.ceil(min(max(expected, SOONEST * now.epoch, 1.0), max(latest * now.epoch, 1.0)))
