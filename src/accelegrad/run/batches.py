"""What batches that grow have to know of a rule: see `accelegrad.run.policies.growth`.

The steps done so far are not thrown away when the batch grows. A run whose batches are k times as
large has done 1/k of the steps, with importance weights that are smaller by k and squared gradients
that are smaller by k; `coarsened` turns the sums that a rule keeps into those of that run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from accelegrad.errors import Vector
from accelegrad.rules import (
    AcceleGrad,
    AdaGrad,
    ADoG,
    DiagonalAcceleGrad,
    DistanceFreeAcceleGrad,
    DistanceFreeDiagonalAcceleGrad,
    DoG,
    Rescaled,
    Rule,
    UDoG,
    UniXGrad,
)
from accelegrad.rules.accelegrad import CoupledState
from accelegrad.rules.base import State, Step
from accelegrad.rules.diagonal import TravelState
from accelegrad.rules.distance_free import DistanceFreeState, DualAveragingState
from accelegrad.rules.schedules import importance_weight

#: Signal in ||g||^2, of the noise in it, with which a batch may still grow: much where the larger
#: batch lets the run be accelerated; with kinks a signal s costs 1 + s times the rows; and little
#: for rules that are not accelerated, which gain nothing.
ACCELERATED_SIGNAL, KINKED_SIGNAL, UNIFORM_SIGNAL = 1.0, 0.3, 0.1

#: Rules whose step follows the noise of their gradients, by how their weights grow with t
UNIFORM = (AdaGrad, DoG)
COUPLED = (
    AcceleGrad,
    ADoG,
    DiagonalAcceleGrad,
    DistanceFreeAcceleGrad,
    DistanceFreeDiagonalAcceleGrad,
    UDoG,
    UniXGrad,
)
#: The power of the ratio by which a field of a state shrinks; those not named stay as they are.
UNIFORM_POWERS = {"iteration": 1, "weighted_sum": 1, "weight_sum": 1, "squares": 2}
COUPLED_POWERS = {
    "iteration": 1,
    "earlier_radii": 1,
    **dict.fromkeys(("weighted_sum", "weight_sum", "alpha_sum", "dual_sum", "dual_weight"), 2),
    **dict.fromkeys(("evidence", "gradient_sum"), 2),
    "largest_square": 3,
    **dict.fromkeys(("weighted_squares", "weighted_differences"), 4),
}
#: States whose next query is x = tau z + (1 - tau) y with AcceleGrad's tau
INTERPOLATING = (CoupledState, TravelState, DistanceFreeState, DualAveragingState)


def inner_rule(rule: Rule) -> Rule:
    """Return the rule itself, or the one that is run compiled or in other coordinates."""
    inner: Rule = getattr(rule, "rule", rule)
    return inner


def follows_noise(rule: Rule) -> bool:
    """Tell whether a rule's steps follow the noise of its gradients, so that batches can grow."""
    return isinstance(inner_rule(rule), UNIFORM + COUPLED)


def largest_signal(rule: Rule, smooth: bool) -> float:
    """Return the signal with which batches may still grow, for a rule on a smooth function or not.

    Measured: see `benchmarks/batches.py`.
    """
    if isinstance(inner_rule(rule), UNIFORM):
        return UNIFORM_SIGNAL
    return ACCELERATED_SIGNAL if smooth else KINKED_SIGNAL


def powers_of(rule: Rule) -> Mapping[str, int]:
    """Return by which power of the ratio each sum in the rule's states shrinks."""
    return UNIFORM_POWERS if isinstance(inner_rule(rule), UNIFORM) else COUPLED_POWERS


def fewer_steps(steps: int, ratio: float) -> int:
    """Return how many steps a run with batches `ratio` times as large would have done."""
    return max(1, round(steps / ratio))


def coarsened(rule: Rule, state: State, ratio: float) -> State:
    """Return the state of a run with batches `ratio` times as large, at the same points.

    Parameters
    ----------
    rule : Rule
        One that `follows_noise`.
    state : NamedTuple
        Its state after at least one step.
    ratio : float
        By which the batch grows; the number of steps is rounded, and all sums follow it.
    """
    steps = fewer_steps(state.iteration, ratio)
    ratio = state.iteration / steps
    shrunk = {
        name: getattr(state, name) / ratio**power
        for name, power in powers_of(rule).items()
        if name in state._fields
    }
    shrunk["iteration"] = steps
    if isinstance(state, INTERPOLATING):
        z, y = state.mirror_point, state.gradient_point
        shrunk["query_point"] = z + (1 - 1 / importance_weight(steps)) * (y - z)
    return state._replace(**shrunk)


def weight_squares(rule: Rule, first: int, count: int) -> float:
    """Return the sum of the squared weights that the rule gives to some steps' gradients."""
    if isinstance(inner_rule(rule), UNIFORM):
        return float(count)
    alphas = importance_weight(np.arange(first, first + count))
    return float(alphas @ alphas)


def seen_square(rule: Rule, before: State, step: Step) -> float:
    """Return ||g||^2 of a step as the rule sees it: in its coordinates.

    At a minimiser on the boundary of a set gradients do not vanish, and the rule for sets looks at
    their changes. A change has twice the noise of a gradient, so it is half of its square.
    """
    if isinstance(before, DualAveragingState):
        change = step.state.last_gradient - before.last_gradient
        return float(change @ change) / 2
    if isinstance(rule, Rescaled):
        gradient = rule.change.adjoint(step.evaluation.gradient)
        return float(gradient @ gradient)
    return step.evaluation.squared_norm


def row_variance(gradients: Sequence[Vector], group: int) -> float:
    """Return sigma^2, the variance of one row's gradient, from those of groups of rows.

    It is unbiased: the groups' gradients scatter around their mean by sigma^2 / `group`.
    """
    stacked = np.array(gradients)
    offsets = stacked - stacked.mean(axis=0)
    return group * float(np.einsum("ij,ij->", offsets, offsets)) / (len(gradients) - 1)
