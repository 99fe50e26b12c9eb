r"""Batches that start small and grow with the noise of the gradients: ``batch_size="auto"``.

With N rows to spend on batches of b, T = N / b steps, noise causes an error of about
:math:`\sigma D / \sqrt N` whatever b is, and the function itself one that grows with b (like
:math:`(b / N)^2` where it is smooth). So a larger batch costs nothing as long as the gradients of
the batches are mostly noise, and too much as soon as they are not. That can be seen for free: the
mean of :math:`\|g_t\|^2` over the last steps against :math:`\sigma^2 / b`, with :math:`\sigma^2`
from the gradients of a few groups of rows. Near the minimum of a smooth function only the noise
remains, so that b ends at the number of rows, and the run is accelerated from there on.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

from accelegrad.rules.base import State, Step
from accelegrad.run.batches import ACCELERATED_SIGNAL, row_variance, weight_squares
from accelegrad.run.policies.base import Policy

if TYPE_CHECKING:
    from accelegrad.models.sampling import GrowingSampler
    from accelegrad.run.oracle import MinibatchOracle

FIRST_BATCH = 1  # rows of the first batches
GROWTH_FACTOR = 2  # by which a batch grows
#: Steps with batches of the present size, or as many rows as they would take, before batches grow:
#: the mean of 64 squared gradients is known to about a fifth.
FEWEST_STEPS = 64
#: The next test after one that found too much signal, as a multiple of the steps so far: a test
#: reads some rows, and what it finds changes slowly.
NEXT_TEST = 1.25
#: The noise is measured by the gradients of this many groups of rows: to about a third.
GROUPS = 16
LARGEST_GROUP = 128  # rows
#: One row is tested at most for this many that were read since the last test: about 3 %
READ_PER_TESTED = 32


class BatchGrowth(Policy):
    """How large batches are, and when to look whether they may grow.

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

    saved = ("size", "sizes", "next_test", "_squares", "_weights", "_rows_tested")

    def __init__(
        self, n: int, replacement: bool = False, largest_signal: float = ACCELERATED_SIGNAL
    ) -> None:
        self.n, self.replacement, self.largest_signal = n, replacement, largest_signal
        self.size = min(FIRST_BATCH, n)
        self.sizes = [(0, self.size)]  # (iteration, size from there on)
        self.next_test = FEWEST_STEPS  # steps after which the noise is measured again
        self._squares = self._weights = 0.0  # sums of alpha^2 ||g||^2 and of alpha^2
        self._rows_tested = 0  # all rows that were read when the noise was measured last

    @property
    def ended(self) -> bool:
        """Whether the batches hold all rows."""
        return self.size >= self.n

    # -- what the loop asks ------------------------------------------------------------------------

    def next_look(self) -> float:
        """Return the iteration after which the noise is to be measured."""
        if self.ended:
            return math.inf
        progress = self.progress
        return progress.iteration + max(self.next_test - int(progress.rule_state.iteration), 1)

    def after(self, step: Step, before: State) -> None:
        """Take note of a step's gradients, and let the batches grow where they are mostly noise."""
        if self.ended:
            return
        progress = self.progress
        rule, steps = progress.rule, int(progress.rule_state.iteration)
        weights = weight_squares(rule, steps - step.steps, step.steps)
        self.note(rule.seen_square(before, step) * weights, weights)
        if steps < self.next_test:
            return
        size = self.next_size(self._measured_variance())
        if size > self.size:
            self._grow(size, size / self.size)
        self.go_on(size, progress.iteration, int(progress.rule_state.iteration))

    def _measured_variance(self) -> float:
        """Measure the noise of a row's gradient at the last iterate, as the rule sees it."""
        rule, oracle = self.progress.rule, cast("MinibatchOracle", self.progress.oracle)
        groups, size = self.test_shape(oracle.rows)
        point = rule.last(self.progress.rule_state)
        gradients = [
            rule.seen_gradient(oracle.at(point, rows).gradient)
            for rows in oracle.sampled(groups, size)
        ]
        return row_variance(gradients, size)

    def _grow(self, size: int, ratio: float) -> None:
        """Go on with larger batches, as if they had been so large from the start."""
        progress = self.progress
        oracle = cast("MinibatchOracle", progress.oracle)
        cast("GrowingSampler", oracle.sampler).grow(size)
        progress.rule_state = progress.rule.coarsened(progress.rule_state, ratio)
        progress.uncounted = progress.iteration - int(progress.rule_state.iteration)
        # Judgements are an epoch apart, which is fewer steps now.
        sooner = progress.iteration + oracle.steps_per_epoch
        progress.next_judgement = min(progress.next_judgement, sooner)

    def report(self) -> dict[str, Any]:
        """Return the sizes of the batches, each with the iteration from which on it was used."""
        return {"batch_sizes": [tuple(pair) for pair in self.sizes]}

    # -- the decision ------------------------------------------------------------------------------

    def note(self, squares: float, weights: float) -> None:
        """Take note of sums of alpha^2 ||g||^2 and of alpha^2 over some steps."""
        self._squares += squares
        self._weights += weights

    def test_shape(self, rows_read: int) -> tuple[int, int]:
        """Return how many groups of how many rows to test, after `rows_read` rows in all."""
        groups, fresh = min(GROUPS, self.n), rows_read - self._rows_tested
        self._rows_tested = rows_read
        return groups, max(
            1, min(fresh // (READ_PER_TESTED * groups), LARGEST_GROUP, self.n // groups)
        )

    def signal(self, variance: float) -> float:
        """Return by how much ||g||^2 exceeded the noise in the steps noted, over the noise."""
        unread = 1.0 if self.replacement else 1 - self.size / self.n
        noise = variance / self.size * unread
        return self._squares / self._weights / noise - 1 if noise > 0 else math.inf

    def next_size(self, variance: float) -> int:
        """Return the size that batches should have from now on, given the rows' variance."""
        if not self.signal(variance) <= self.largest_signal:
            return self.size
        size = GROWTH_FACTOR * self.size
        # Almost all rows: then rather all of them, which leave no noise.
        return self.n if size * math.sqrt(GROWTH_FACTOR) > self.n else size

    def go_on(self, size: int, iteration: int, steps: int) -> None:
        """Clear the notes and set the next test; the rule's state counts `steps` steps now."""
        if size > self.size:
            self.size = size
            self.sizes.append((iteration, size))
            self.next_test = max(GROWTH_FACTOR * steps, FEWEST_STEPS)
        else:
            self.next_test = max(steps + 1, math.ceil(NEXT_TEST * steps))
        self._squares = self._weights = 0.0
