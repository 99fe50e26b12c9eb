"""The only loop: it knows neither the method nor the function.

It advances the rule, feeds the bracket, checks the function, decides when to stop, and calls
observers (trace, callback, progress bar) and checkpoints, whose time is not counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import OptimizeResult

from accelegrad.errors import DivergedError, LineSearchError, NonFiniteError, NotConvexError
from accelegrad.files.saved import Saved, content_of
from accelegrad.linalg import UNIT, norm
from accelegrad.rules import Rule
from accelegrad.rules.base import Step
from accelegrad.rules.distance import distance
from accelegrad.run import checkpoint
from accelegrad.run.checks import RESOLVED, AssumedRegion, Convexity, GuessedRegion
from accelegrad.run.observers import Observers, Trace
from accelegrad.run.oracle import QUIET, Evaluation
from accelegrad.run.result import Progress, Recent, Status, report

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
#: A run that ends after max_iter evaluates around its point if that adds less than a tenth.
FEWEST_CALLS = 100
IN_FLOAT32 = (
    "Its values are all numbers of float32, though they come as float64: return them as they are "
    "computed, in float32, or say how far they can be off (accuracy=...)."
)
#: Least steps of a stage, before any stage without gain
SHORTEST_STAGE = 30
#: A stage ends if its second half gained at most this share of what its first half did.
STALLED_GAIN = 0.1
#: The next stage's first radius, as a share of the distance travelled in this one: one that is too
#: small grows quickly, one that is too large costs more than the restart gains. Chosen.
RADIUS_SHARE = 0.03
#: ends of a run that can continue, if only with a larger max_iter
UNFINISHED = (None, Status.CALLBACK, Status.TIME_LIMIT, Status.MAX_ITER)
#: statuses that the last bounds may improve
COULD_BE_MORE = (Status.MAX_ITER, Status.TIME_LIMIT, Status.AT_ROUNDING, Status.LINE_SEARCH_FAILED)


class Restarts(Saved):
    """Stages from the best point so far: a linear rate on strongly convex and sharp functions.

    A rule's weights and its sum of squared gradients remember the whole run. On a function that
    grows away from its minimisers it pays to restart when the second half of a stage lowered the
    best value by less than a tenth of what the first half did (after T. Alamo, D. Limon, P. Krupa:
    Restart FISTA with global linear convergence, ECC 2019). After a stage without gain the next
    ones are twice as long: at the minimum of a non-smooth function, short stages prove little.
    """

    saved = ("count", "radius", "shortest", "_values")

    def __init__(self, rule: Rule) -> None:
        self._first_rule = rule
        self.count = 0
        self.radius: float | None = None  # of the current stage; None: the first one
        self.shortest = SHORTEST_STAGE
        self._values: list[float] = []  # the best value after each step of the stage

    @property
    def rule(self) -> Rule:
        """The rule with the stage's radius."""
        rule = self._first_rule
        return rule if self.radius is None else rule.with_radius(self.radius)

    def before_next(self, progress: Progress) -> None:
        """Restart from the best point if that is due."""
        best = progress.best
        assert best is not None
        if not self.stalled(best.value):
            return
        start = progress.rule.init(best.point).start  # in the rule's coordinates
        self.end_stage(float(distance(start, progress.rule_state.start)), norm(start))
        progress.rule = self.rule
        progress.rule_state = progress.rule.init(best.point)
        progress.bracket.forget()

    def stalled(self, best_value: float) -> bool:
        """Record the best value after a step; True if the stage should end."""
        self._values.append(best_value)
        length = len(self._values)
        if length < self.shortest:
            return False
        first, middle = self._values[0], self._values[length // 2]
        return middle - best_value <= STALLED_GAIN * (first - middle)

    def end_stage(self, travelled: float, size: float) -> None:
        """Begin a stage after one that travelled a distance and ended at a point of norm `size`."""
        self.count += 1
        if self._values and not self._values[-1] < self._values[0]:
            self.shortest *= 2
        self.radius = max(RADIUS_SHARE * travelled, RESOLVED * UNIT * (1 + size))
        self._values = []


class Stopping(Saved):
    """Decides after every step whether it was the last one.

    `first_size` is the size of the value (of the point, if there are no values) at the first step.
    """

    saved = ("first_size", "_largest_size")

    def __init__(self, progress: Progress, region: AssumedRegion) -> None:
        self.progress, self.region = progress, region
        self.first_size = 0.0
        self._largest_size = -1.0  # the divergence limit, set at the first step
        self._exact_values = progress.oracle.exact_values
        self._target = progress.options.target

    def next_look(self) -> float:
        """Return the iteration at which the run is judged next, which needs the step before."""
        options = self.progress.options
        if options.goal is None and options.target is None:
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
        options = self.progress.options
        if (options.goal is not None or self._exact_values) and self._is_proved():
            final = self.progress.final_evaluation()
            reached = final is not None and self.progress.bracket.proved(final)
            return Status.CONVERGED if reached else Status.AT_ROUNDING
        limit = options.time_limit
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
        # It shows nothing if it is noisy or only a part of the sum; its square may underflow.
        part = not progress.options.exact or progress.oracle.penalty is not None
        if part or evaluation.gradient.any():
            return False
        if self._exact_values:
            progress.bracket.add_minimiser(evaluation)
        if progress.output == "best":
            return True
        if progress.iteration < progress.next_judgement:
            return False
        self._pause()
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
        return None if self.region.is_guess else Status.REGION_REFUTED

    def _candidate(self) -> Evaluation | None:
        progress, best = self.progress, self.progress.best
        if progress.output == "best" and best is not None:
            return best
        if progress.judge is None or progress.iteration < progress.next_judgement:
            return None
        assert self._target is not None
        if self._exact_values and best is not None and best.value > self._target:
            return best  # not below the target, so only a proof can end the run
        if progress.options.goal is None:  # otherwise the goal's own check follows
            self._pause()
        return progress.judged_output()

    def _pause(self) -> None:
        """Wait before the next judgement: it costs a call, so a tenth at most; or an epoch."""
        progress = self.progress
        exact, epoch = progress.options.exact, progress.oracle.steps_per_epoch
        progress.next_judgement = progress.iteration + (
            1 + progress.iteration // 10 if exact else epoch
        )

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
        self._pause()
        judged = progress.judged_output()
        return progress.bracket.is_small_enough(judged) and self.region.stands(judged)


class Run(Saved):
    """One run of a rule on an oracle.

    `kind` describes the run for its checkpoints. `checked` turns on the check for convexity, which
    a linear model does not need and noise would fail.
    """

    saved: tuple[str, ...] = ("ended", "progress", "stopping", "convexity", "restarts")

    def __init__(
        self,
        progress: Progress,
        *,
        kind: Mapping[str, Any] | None = None,
        checked: bool = False,
        restarts: Restarts | None = None,
    ) -> None:
        self.progress, self.options = progress, progress.options
        self.kind = kind or {}
        cuts = progress.bracket.cuts
        assumed = cuts.region if cuts is not None and cuts.region.assumed else None
        guessed = assumed is not None and assumed.growing
        self.region = (GuessedRegion if guessed else AssumedRegion)(progress, assumed)
        self.convexity = Convexity(progress) if checked else None
        if checked or guessed:  # for questions asked before a guessed region is trusted
            progress.recent = Recent(progress.start.size)
        self.restarts = restarts
        self.stopping = Stopping(progress, self.region)
        options = self.options
        self.observers: Observers | None = None
        self.trace = Trace() if options.trace else None
        if options.trace or options.progress or options.callback is not None:
            self.observers = Observers(progress, self.trace)
        if options.trace:
            self.saved = (*self.saved, "trace")
        #: how the run ended, according to its last checkpoint; None: it goes on
        self.ended: int | None = None
        self._detail = ""
        #: whether max_iter has cut a stretch of steps short: see `_next_look`
        self._cut = False
        #: two points that show that the function is not convex
        self._violation: dict[str, Any] | None = None

    def __call__(self) -> OptimizeResult:
        """Run to the end, whatever it is, and report."""
        progress, observers = self.progress, self.observers
        # An overflow ends the run with a status; a warning would add nothing.
        with np.errstate(**QUIET):
            try:
                if observers is not None:
                    observers.open()
                status = self._status_of(self._iterate)
            finally:
                if observers is not None:
                    observers.close()
            status = self._status_of(partial(self.stopping.settled, status), "At the end")
            result = report(progress, status, self._detail)
            if result["success"]:
                changed = self._status_of(partial(self._objection, result), "At the end")
                if changed is not status:
                    result = report(progress, changed, self._detail)
        result.update(progress.counters())
        result["n_restarts"] = 0 if self.restarts is None else self.restarts.count
        if self._violation is not None:
            result["violation"] = self._violation
        result.update(seconds=progress.clock.seconds, trace=self.trace)
        return result

    def _status_of(self, work: Callable[[], Status], when: str = "") -> Status:
        """Return how a part of the run ends; exceptions become statuses."""
        progress = self.progress
        try:
            return work()
        except KeyboardInterrupt:
            # Compiled code notices it only after its steps are done.
            counted = getattr(progress.rule_state, "iteration", 0)
            progress.iteration = max(progress.iteration, int(counted))
            return Status.INTERRUPTED
        except NonFiniteError as error:
            self._detail = f"{when or f'At iteration {progress.iteration + 1}'} {error}."
            return Status.NON_FINITE
        except NotConvexError as error:
            self._violation = {"touching": error.touching, "below": error.below, "by": error.by}
            self._detail = (
                f"At iteration {progress.iteration} {error}. The function is not convex, or its "
                "gradient is wrong (ag.check_gradient says more), its values are off by a known "
                "amount (give accuracy=...), or they are noisy (give exact=False)."
            )
            return Status.NOT_CONVEX
        except DivergedError:
            return Status.DIVERGING

    def _objection(self, result: OptimizeResult) -> Status:
        """Return the status that a closer look gives to a result about to be called a success.

        It takes a few evaluations, so it is skipped for short runs that end at max_iter.
        """
        status, final = Status(result["status"]), self.progress.final_evaluation()
        if self.convexity is None or final is None or not result["gap"] < math.inf:
            return status
        if status is not Status.MAX_ITER or self.progress.oracle.points >= FEWEST_CALLS:
            self.convexity.confirm(final)
        if not self.convexity.computes_in_float32():
            return status
        self._detail = IN_FLOAT32
        return Status.NOT_CONVEX

    def _iterate(self) -> Status:
        status: Status | None = None
        if self.ended is not None and self.stopping.still_holds(Status(self.ended)):
            status = Status(self.ended)
        progress, oracle, verdict = self.progress, self.progress.oracle, self.stopping.verdict
        proofs = progress.bracket.parts if oracle.exact_values else ()
        convexity, region, restarts = self.convexity, self.region, self.restarts
        remembered = convexity is not None or (oracle.exact_values and region.is_guess)
        observers, due = self.observers, progress.iteration
        max_iter, checkpointed = self.options.max_iter, self.options.checkpoint is not None
        while status is None and progress.iteration < max_iter:
            if progress.iteration >= due:
                due = self._next_look()
            try:
                step = progress.rule.advance(progress.rule_state, oracle, due - progress.iteration)
            except LineSearchError as error:
                self._detail = f"At iteration {progress.iteration + 1} {error}"
                status = self.stopping.without_descent()
                break
            for part in proofs:
                part.add(step.evaluation, step.weight)
            progress.rule_state = step.state
            progress.iteration += step.steps
            if convexity is not None:
                convexity.compare(step.evaluation)
            if region.is_guess:
                region.follow()
            if remembered:
                progress.recent.add(step.evaluation)
            status = verdict(step)
            if observers is not None and observers.look(step):
                status = Status.CALLBACK if status is None else status
            if restarts is not None and status in UNFINISHED:
                restarts.before_next(progress)
            # Last in an iteration: a run resumed from here begins with the next one.
            if checkpointed and progress.iteration % self.options.checkpoint_every < step.steps:
                self._save_checkpoint(status)
        status = Status.MAX_ITER if status is None else status
        if checkpointed:
            self._save_checkpoint(status)
        return status

    def _next_look(self) -> int:
        """Return the latest iteration after which something has to happen."""
        options, now = self.options, self.progress.iteration
        if self.progress.oracle.exact_values:  # every evaluation adds to the certificate
            due = now + self.progress.rule.stride(self.progress.rule_state)
            if due > options.max_iter:
                # A longer run does not make the evaluation at max_iter, so a resumed run starts
                # before it.
                if options.checkpoint is not None:
                    self._save_checkpoint(None)
                self._cut = True
            return min(due, options.max_iter)
        every = options.checkpoint_every
        saving = now - now % every + every if options.checkpoint is not None else math.inf
        observed = math.inf if self.observers is None else self.observers.next_look()
        return int(min(options.max_iter, self.stopping.next_look(), observed, saving))

    def _save_checkpoint(self, status: Status | None) -> None:
        assert self.options.checkpoint is not None
        if self._cut:
            return
        self.ended = None if status is None or status in UNFINISHED else int(status)
        with self.progress.clock.paused():
            checkpoint.save(self.options.checkpoint, self.kind, self)

    def resume(self, path: Path) -> None:
        """Continue the run of a checkpoint."""
        with self.progress.clock.paused():
            content = checkpoint.load(path, self.kind)
            self.restore({"trace": content_of(self.trace), **content})  # it may have been untraced
            if self.restarts is not None:
                self.progress.rule = self.restarts.rule
            checkpoint.refuse_other_function(path, self.progress.judge, self.stopping.first_size)
