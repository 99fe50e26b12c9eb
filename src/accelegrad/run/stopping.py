"""When a run ends: at its goal or target, at rounding, at a zero gradient, or by failing."""

from __future__ import annotations

import math
from typing import Any

from accelegrad.errors import DivergedError, NonFiniteError
from accelegrad.files.saved import Saved
from accelegrad.rules.base import Step
from accelegrad.run.oracle import Evaluation
from accelegrad.run.progress import Progress
from accelegrad.run.region import RegionPolicy
from accelegrad.run.result import COULD_BE_MORE, Status

#: A run diverges when its size is this many times that at the start: divergence is geometric and
#: gets there soon, a converging run never does. Chosen.
DIVERGED = 1e20
#: Most times that a region is widened at the end of a run. Chosen: eight doublings.
LAST_LOOKS = 8
#: If values fall no further, a gap of at most this many times the estimated rounding counts as
#: rounding (30 such ends of penalised fits: 0.3 to 3 times).
MOST_ROUNDING = 10.0
#: A gap that is a larger share of the value is never called rounding.
LARGEST_ROUNDING = 1e-6


class Stopping(Saved):
    """Decides after every step whether it was the last one.

    `first_size` is the size of the value (of the point, if there are no values) at the first step.
    """

    saved = ("first_size", "_largest_size")

    def __init__(self, progress: Progress, region: RegionPolicy) -> None:
        self.progress, self.region = progress, region
        self.first_size = 0.0
        self._largest_size = -1.0  # the divergence limit, set at the first step
        options, oracle = progress.options, progress.oracle
        self._exact_values = oracle.exact_values
        self._target = options.target
        self._proves = options.has_goal or oracle.exact_values
        # A zero gradient shows a minimiser unless it is noisy or only a part of the sum.
        self._zero_ends = options.exact and oracle.penalty is None

    def next_look(self) -> float:
        """Return the iteration at which the run is judged next, which needs the step before."""
        if not self.progress.options.has_end:
            return math.inf
        return max(self.progress.next_judgement, self.progress.iteration + 1)

    def verdict(self, step: Step) -> Status | None:
        """Return how the run ends with this step; None: it goes on."""
        evaluation = step.evaluation
        if evaluation.squared_norm == 0 and self._is_stationary(evaluation):
            return self._target_verdict() or Status.STATIONARY
        if not abs(evaluation.value) <= self._largest_size and self._diverges(evaluation):
            return Status.DIVERGING
        if self._target is not None and (status := self._target_verdict()) is not None:
            return status
        if self._proves and self._is_proved():
            final = self.progress.final_evaluation()
            reached = final is not None and self.progress.bracket.proved(final)
            return Status.CONVERGED if reached else Status.AT_ROUNDING
        limit = self.progress.options.time_limit
        if limit is not None and self.progress.clock.seconds > limit:
            return Status.TIME_LIMIT
        return None

    def settled(self, status: Status) -> Status:
        """Return how a run has ended, after computing the final bounds."""
        progress = self.progress
        bracket, final = progress.bracket, progress.final_evaluation() or progress.best
        bracket.finish(progress.best)
        if progress.judge is None or final is None or status is Status.NOT_CONVEX:
            return status
        try:
            self.region.admit(final)
            if status in COULD_BE_MORE:
                for _ in range(LAST_LOOKS):  # a widened region may still be small enough
                    if not bracket.proved(final):
                        break
                    if self.region.stands(final):
                        return Status.CONVERGED
                    status = Status.REGION_TOO_SMALL
                    bracket.finish(progress.best)
                    self.region.admit(final)
        except DivergedError:
            return Status.DIVERGING
        except NonFiniteError:
            return Status.NON_FINITE
        if status is Status.CONVERGED and not bracket.proved(final):
            return Status.REGION_TOO_SMALL  # the last bound refuted it
        if bracket.gap(final) < 0.0 and status in (Status.MAX_ITER, Status.TIME_LIMIT):
            return Status.REGION_REFUTED  # a planned end, but the region was wrong
        return status

    def without_descent(self) -> Status:
        """Return how a run ends whose rule finds no lower value: at rounding, or by failing."""
        progress, best = self.progress, self.progress.best
        if best is None or not self._exact_values:
            return Status.LINE_SEARCH_FAILED
        bracket = progress.bracket
        most = MOST_ROUNDING * bracket.resolution(best)
        most = min(most, LARGEST_ROUNDING * abs(best.value))
        at_rounding = 0 <= bracket.gap(best) <= most and self.region.stands(best)
        return Status.AT_ROUNDING if at_rounding else Status.LINE_SEARCH_FAILED

    def still_holds(self, ended: Status) -> bool:
        """Return whether a run that ended, by its checkpoint, has reached the present goal."""
        if ended in (Status.TARGET_REACHED, Status.TARGET_IMPOSSIBLE):
            return self._target_verdict() is ended
        if ended is not Status.CONVERGED:
            return True
        final = self.progress.final_evaluation()
        return final is not None and self.progress.bracket.proved(final)

    def _is_stationary(self, evaluation: Any) -> bool:
        """Return whether a zero gradient ends the run: the output point must be a minimiser."""
        progress = self.progress
        if not self._zero_ends or evaluation.gradient.any():  # its square may underflow
            return False
        if self._exact_values:
            progress.bracket.add_minimiser(evaluation)
        if progress.output == "best":
            return True
        if progress.iteration < progress.next_judgement:
            return False
        progress.next_judgement = progress.iteration + self._pause()
        if progress.judge is None:
            return not bool(progress.oracle(progress.point(progress.output)).gradient.any())
        return bool(progress.judged_output().value <= evaluation.value)

    def _target_verdict(self) -> Status | None:
        """Return whether a value at most the target is found, or proved to be nowhere."""
        final = None if self._target is None else self._candidate()
        if final is None or self._target is None:
            return None
        if final.value + self.progress.oracle.accuracy <= self._target:
            return Status.TARGET_REACHED
        self.region.admit(final)
        bracket = self.progress.bracket
        if bracket.lower_bound(final) <= self._target:
            return None
        if self.region.stands(final, everywhere=True):
            return Status.TARGET_IMPOSSIBLE
        return None if self.region.guess is not None else Status.REGION_REFUTED

    def _candidate(self) -> Evaluation | None:
        progress, best = self.progress, self.progress.best
        if progress.output == "best" and best is not None:
            return best
        if progress.judge is None or progress.iteration < progress.next_judgement:
            return None
        assert self._target is not None
        if self._exact_values and best is not None and best.value > self._target:
            return best  # not below the target, so only a proof can end the run
        if not progress.options.has_goal:  # otherwise the goal's own check follows
            progress.next_judgement = progress.iteration + self._judgement_pause()
        return progress.judged_output()

    def _pause(self) -> int:
        """Return the steps between two judgements: a judgement costs a call, so a tenth at most."""
        return 1 + self.progress.iteration // 10

    def _judgement_pause(self) -> int:
        """Return the steps between two judgements; under noise, an epoch."""
        return self._pause() if self._exact_values else self.progress.oracle.steps_per_epoch

    def _diverges(self, evaluation: Any) -> bool:
        """Return whether values (or points, without values) grew beyond the limit.

        A rule that continues from its best point may try points with any value.
        """
        best = self.progress.best
        if best is not None and "cuts" in self.progress.rule.can:
            evaluation = best
        size = abs(evaluation.value)
        if math.isnan(size):
            size = float(evaluation.point @ evaluation.point)
        if self._largest_size < 0:
            self._largest_size = DIVERGED * max(size, 1.0)
            self.first_size = size
        return bool(size > self._largest_size)

    def _is_proved(self) -> bool:
        progress = self.progress
        if self._exact_values:
            best = progress.best
            assert best is not None
            self.region.admit(best)
            cuts = "cuts" in progress.rule.can
            estimate = float(progress.rule_state.estimated_gap) if cuts else math.inf
            if progress.bracket.update(best, progress.iteration, estimate):
                self.region.admit(best)
            if not progress.bracket.is_small_enough(best):
                return False
            if progress.output == "best":
                return self.region.stands(best)
        if progress.judge is None or progress.iteration < progress.next_judgement:
            return False
        progress.next_judgement = progress.iteration + self._judgement_pause()
        judged = progress.judged_output()
        return progress.bracket.is_small_enough(judged) and self.region.stands(judged)
