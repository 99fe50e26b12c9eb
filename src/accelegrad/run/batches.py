r"""Batches that start small and grow as the noise of the gradients asks: ``batch_size="auto"``.

With N rows to spend on batches of b, T = N / b steps, the noise leaves an error of about
:math:`\sigma D / \sqrt N` whatever b is, and the function itself one that grows with b (like
:math:`(b / N)^2` where it is smooth). So a larger batch costs nothing as long as the gradients of
the batches are mostly noise, and too much as soon as they are not. That can be seen for free: the
mean of :math:`\|g_t\|^2` over the last steps against :math:`\sigma^2 / b`, with :math:`\sigma^2`
from the gradients of a few groups of rows. Near the minimum of a smooth function only the noise is
left, so that b ends at the number of rows, and the run is accelerated from there on.

The steps done so far are not thrown away when the batch grows: `Rule.coarsened` turns the sums that
a rule keeps into those of a run whose batches were so large from the beginning.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from accelegrad.errors import Vector
from accelegrad.rules import Rule
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


def largest_signal(rule: Rule, smooth: bool) -> float:
    """Return the signal with which batches may still grow, for a rule on a smooth function or not.

    Measured: see `benchmarks/batches.py`.
    """
    if not rule.accelerated:
        return UNIFORM_SIGNAL
    return ACCELERATED_SIGNAL if smooth else KINKED_SIGNAL


def weight_squares(rule: Rule, first: int, count: int) -> float:
    """Return the sum of the squared weights that the rule gives to some steps' gradients."""
    if not rule.accelerated:
        return float(count)
    alphas = importance_weight(np.arange(first, first + count))
    return float(alphas @ alphas)


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
