r"""Batches that start small and grow as the noise of the gradients asks: ``batch_size="auto"``.

With N rows to spend on batches of b, T = N / b steps, the noise leaves an error of about
:math:`\sigma D / \sqrt N` whatever b is, and the function itself one that grows with b (like
:math:`(b / N)^2` where it is smooth). So a larger batch costs nothing as long as the gradients of
the batches are mostly noise, and too much as soon as they are not. That can be seen for free: the
mean of :math:`\|g_t\|^2` over the last steps against :math:`\sigma^2 / b`, with :math:`\sigma^2`
from the gradients of a few groups of rows. Near the minimum of a smooth function only the noise is
left, so that b ends at the number of rows, and the run is accelerated from there on.

The steps done so far are not thrown away when the batch grows. A run whose batches are k times as
large has done 1/k of the steps, with importance weights that are smaller by k and squared gradients
that are smaller by k; `coarsened` turns the sums that a rule keeps into those of that run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

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

FIRST = 1  # rows of the first batches
GROWTH = 2  # the factor by which a batch grows
FEWEST = 64  # steps of the present size, or as many as if it had been so, before the batch grows
PATIENCE = 1.25  # times the steps so far: the next look after one that found too much signal
#: Signal in ||g||^2, of the noise in it, with which a batch may still grow: much where the larger
#: batch lets the run be accelerated; with kinks a signal s costs 1 + s times the rows; and little
#: for rules that are not accelerated, which gain nothing.
ACCELERATED_SIGNAL, KINKED_SIGNAL, UNIFORM_SIGNAL = 1.0, 0.3, 0.1
GROUPS = 16  # of rows, whose gradients tell the noise;
WIDEST = 128  # rows of a group, at most,
TEST_SHARE = 32  # and all groups one row in so many of those read since the last look

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


class BatchGrowth:
    """The policy and its memory: how large batches are, and when to look whether they may grow.

    Steps are counted as the rule's state counts them: those that batches of the present size would
    have taken for all rows so far.

    Parameters
    ----------
    n : int
        The number of rows, at which the growth ends.
    replacement : bool
        Whether rows are drawn with replacement; without it large batches have less noise.
    largest_signal : float
        The signal, relative to the noise, with which batches may still grow; see `largest_signal`.
    """

    def __init__(
        self, n: int, replacement: bool = False, largest_signal: float = ACCELERATED_SIGNAL
    ) -> None:
        self.n, self.replacement, self.largest_signal = n, replacement, largest_signal
        self.size = min(FIRST, n)
        self.sizes = [(0, self.size)]  # (iteration, size from there on)
        self.next_look = FEWEST
        self._squares = self._weights = 0.0  # sums of alpha^2 ||g||^2 and of alpha^2
        self._rows_tested = 0  # all rows that were read when the noise was tested last

    @property
    def ended(self) -> bool:
        """Whether the batches hold all rows."""
        return self.size >= self.n

    def note(self, squares: float, weights: float) -> None:
        """Take note of sums of alpha^2 ||g||^2 and of alpha^2 over some steps."""
        self._squares += squares
        self._weights += weights

    def test_shape(self, rows_read: int) -> tuple[int, int]:
        """Return how many groups of how many rows to test, after so many rows were read in all."""
        groups, fresh = min(GROUPS, self.n), rows_read - self._rows_tested
        self._rows_tested = rows_read
        return groups, max(1, min(fresh // (TEST_SHARE * groups), WIDEST, self.n // groups))

    def signal(self, variance: float) -> float:
        """Return by how much ||g||^2 exceeded the noise in the steps noted, over the noise."""
        rest = 1.0 if self.replacement else 1 - self.size / self.n
        noise = variance / self.size * rest
        return self._squares / self._weights / noise - 1 if noise > 0 else math.inf

    def next_size(self, variance: float) -> int:
        """Return the size that batches should have from now on, given the rows' variance."""
        if not self.signal(variance) <= self.largest_signal:
            return self.size
        size = GROWTH * self.size
        # Almost all rows: then rather all of them, which leave no noise.
        return self.n if size * math.sqrt(GROWTH) > self.n else size

    def go_on(self, size: int, iteration: int, steps: int) -> None:
        """Begin anew to take notes, after `steps` steps as the rule's state counts them now."""
        if size > self.size:
            self.size = size
            self.sizes.append((iteration, size))
            self.next_look = max(GROWTH * steps, FEWEST)
        else:
            self.next_look = max(steps + 1, math.ceil(PATIENCE * steps))
        self._squares = self._weights = 0.0

    def state(self) -> dict[str, Any]:
        """Return all that has to be kept to go on."""
        return {
            "sizes": np.array(self.sizes, dtype=np.int64),
            "next_look": self.next_look,
            "squares": self._squares,
            "weights": self._weights,
            "rows_tested": self._rows_tested,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.sizes = [(int(iteration), int(size)) for iteration, size in state["sizes"]]
        self.size = self.sizes[-1][1]
        self.next_look = state["next_look"]
        self._squares, self._weights = state["squares"], state["weights"]
        self._rows_tested = state["rows_tested"]
