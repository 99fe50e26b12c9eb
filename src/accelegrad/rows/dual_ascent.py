"""Stochastic dual coordinate ascent, for linear models with an l2 term."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from accelegrad.rules.base import Array, Evaluated, Rule, Step


class Dual(Protocol):
    """What the rule needs from an oracle: the dual of a sum of losses with an l2 term."""

    def __call__(self, point: Array) -> Evaluated:
        """Evaluate the objective at a point, exactly."""

    def feasible(self, x0: Array) -> tuple[Array, Array]:
        """Return slopes theta to start from, and the point that belongs to them."""

    def ascend(self, slopes: Array, point: Array) -> tuple[Array, Array]:
        """Return slopes and point after an epoch: see `DualAscent`."""

    def minorant(self, slopes: Array, at: Evaluated) -> Evaluated:
        """Return the affine function below the objective that the slopes stand for.

        Its value and gradient at a point that was evaluated.
        """


class DualAscentState(NamedTuple):
    """A point and the dual variables that it follows from."""

    iteration: int
    point: Array  # x0 before the first step
    slopes: Array | None  # theta, None before the first step
    step_size: float  # there is none: 0


@dataclass(frozen=True)
class DualAscent(Rule):
    r"""Stochastic dual coordinate ascent (SDCA); a step is an epoch; no parameter to tune.

    The dual of :math:`\sum_i p_i\, l_i(a_i^\top w) + \frac{\lambda}{2} \|w\|^2` is

    .. math:: D(\theta) = -\sum_i p_i\, l_i^*(\theta_i) - \frac{\lambda}{2} \|w(\theta)\|^2, \qquad
              w(\theta) = -\frac1\lambda \sum_i p_i \theta_i a_i.

    An epoch goes through all rows in random order and makes each :math:`\theta_i` the best one for
    all others as they are:

    .. math:: \theta_i \leftarrow l_{i,q}'(a_i^\top w + q\,\theta_i), \qquad
              q = p_i \|a_i\|^2 / \lambda,

    where :math:`l_{i,q}` is the Moreau envelope of the loss with parameter q, and w follows. The
    loss need not be smooth. There is no intercept: all coordinates have an l2 term.

    `output` and `last` are the last w.

    References
    ----------
    C.-J. Hsieh, K.-W. Chang, C.-J. Lin, S. S. Keerthi, S. Sundararajan: A dual coordinate descent
    method for large-scale linear SVM. ICML 2008. S. Shalev-Shwartz, T. Zhang: Stochastic dual
    coordinate ascent methods for regularized loss minimization. JMLR 14, 2013.
    """

    can = frozenset({"values"})

    def init(self, x0: Array) -> DualAscentState:
        """Return the state before the first epoch."""
        return DualAscentState(0, x0, None, 0.0)

    def step(self, state: DualAscentState, oracle: Dual) -> Step:  # type: ignore[override]
        """Do an epoch; the evaluation is the minorant, which proves the accuracy."""
        slopes, point = state.slopes, state.point
        if slopes is None:
            slopes, point = oracle.feasible(point)
        slopes, point = oracle.ascend(slopes, point)
        at: Any = oracle(point)
        moved = DualAscentState(state.iteration + 1, point, slopes, 0.0)
        return Step(moved, oracle.minorant(slopes, at), 0.0)

    def output(self, state: DualAscentState) -> Array:
        """Return the last point."""
        return state.point

    def last(self, state: DualAscentState) -> Array:
        """Return the last point."""
        return state.point
