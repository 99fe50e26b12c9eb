"""The only loop: it knows neither the method nor the function.

It advances the rule, feeds the bracket, checks the function, decides when to stop, and calls
observers (trace, callback, progress bar) and checkpoints, whose time is not counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import OptimizeResult

from accelegrad.errors import DivergedError, LineSearchError, NonFiniteError, NotConvexError
from accelegrad.files.saved import Saved
from accelegrad.linalg import UNIT, norm
from accelegrad.rules import Rule
from accelegrad.rules.distance import distance
from accelegrad.run import checkpoint
from accelegrad.run.checks import RESOLVED, AssumedRegion, Convexity, GuessedRegion, RegionPolicy
from accelegrad.run.observers import Observers
from accelegrad.run.oracle import QUIET
from accelegrad.run.progress import Progress
from accelegrad.run.result import UNFINISHED, Status, Stopping, report

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


class Run(Saved):
    """One run of a rule on an oracle.

    `kind` describes the run for its checkpoints. `checked` turns on the check for convexity, which
    a linear model does not need and noise would fail.
    """

    saved = ("ended", "progress", "stopping", "convexity", "restarts", "observers")

    def __init__(
        self,
        progress: Progress,
        *,
        kind: Mapping[str, Any] | None = None,
        checked: bool = False,
        restarts: Restarts | None = None,
    ) -> None:
        self.progress, self.options = progress, progress.options
        self.kind = {**(kind or {}), "restarts": restarts is not None}
        cuts = progress.bracket.cuts
        self.region = RegionPolicy()
        if cuts is not None and cuts.region.assumed:
            policy = GuessedRegion if cuts.region.growing else AssumedRegion
            self.region = policy(progress, cuts.region)
        self.convexity = Convexity(progress) if checked else None
        self.restarts = restarts
        self.stopping = Stopping(progress, self.region)
        self.observers = Observers(progress)
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
        progress.clock.start()
        # An overflow ends the run with a status; a warning would add nothing.
        with np.errstate(**QUIET):
            try:
                if observers.present:
                    observers.open()
                status = self._ended()
            finally:
                if observers.present:
                    observers.close()
            try:
                status = self.stopping.settled(status)
            except KeyboardInterrupt:
                status = Status.INTERRUPTED
            result = report(progress, status, self._detail)
            objection = self._objection(result) if result["success"] else None
            if objection is not None:
                result = report(progress, objection, self._detail)
        result.update(progress.counters())
        result["n_restarts"] = 0 if self.restarts is None else self.restarts.count
        if self._violation is not None:
            result["violation"] = self._violation
        result.update(seconds=progress.clock.seconds, trace=observers.trace)
        return result

    def _ended(self) -> Status:
        progress = self.progress
        try:
            status = self._iterate()
            if self.options.checkpoint is not None:
                self._save_checkpoint(status)
            return status
        except KeyboardInterrupt:
            # Compiled code notices it only after its steps are done.
            counted = getattr(progress.rule_state, "iteration", 0)
            progress.iteration = max(progress.iteration, int(counted))
            return Status.INTERRUPTED
        except NonFiniteError as error:
            self._detail = f"At iteration {progress.iteration + 1} {error}."
            return Status.NON_FINITE
        except NotConvexError as error:
            self._note(error)
            return Status.NOT_CONVEX
        except DivergedError:
            return Status.DIVERGING

    def _note(self, error: NotConvexError) -> None:
        self._violation = {"touching": error.touching, "below": error.below, "by": error.by}
        self._detail = (
            f"At iteration {self.progress.iteration} {error}. The function is not convex, or its "
            "gradient is wrong (ag.check_gradient says more), its values are off by a known "
            "amount (give accuracy=...), or they are noisy (give exact=False)."
        )

    def _objection(self, result: OptimizeResult) -> Status | None:
        """Return the status that a closer look gives to a result about to be called a success.

        It takes a few evaluations, so it is skipped for short runs that end at max_iter.
        """
        final = self.progress.final_evaluation()
        if self.convexity is None or final is None or not result["gap"] < math.inf:
            return None
        few = result["status"] is Status.MAX_ITER and self.progress.calls < FEWEST_CALLS
        try:
            if not few:
                self.convexity.confirm(final)
            if not self.convexity.computes_in_float32():
                return None
            self._detail = IN_FLOAT32
        except KeyboardInterrupt:
            return Status.INTERRUPTED
        except NonFiniteError as error:  # the gradient of a point judged by its value
            self._detail = f"At the point that is returned {error}."
            return Status.NON_FINITE
        except NotConvexError as error:
            self._note(error)
        return Status.NOT_CONVEX

    def _iterate(self) -> Status:
        if self.ended is not None and self.stopping.still_holds(Status(self.ended)):
            return Status(self.ended)
        progress, oracle, verdict = self.progress, self.progress.oracle, self.stopping.verdict
        proofs = progress.bracket.parts if oracle.exact_values else ()
        convexity, region, restarts = self.convexity, self.region, self.restarts
        guessed = region.guess is not None
        # for the check, and for the questions asked before a guessed region is trusted
        remembered = convexity is not None or (oracle.exact_values and guessed)
        observed, due = bool(self.observers.present), progress.iteration
        max_iter, checkpointed = self.options.max_iter, self.options.checkpoint is not None
        while progress.iteration < max_iter:
            if progress.iteration >= due:
                due = self._next_look()
            try:
                step = progress.rule.advance(progress.rule_state, oracle, due - progress.iteration)
            except LineSearchError as error:
                self._detail = f"At iteration {progress.iteration + 1} {error}"
                return self.stopping.without_descent()
            for part in proofs:
                part.add(step.evaluation, step.weight)
            progress.rule_state = step.state
            progress.iteration += step.steps
            if convexity is not None:
                convexity.compare(step.evaluation)
            if guessed:
                region.follow()
            if remembered:
                progress.recent.add(step.evaluation)
            status = verdict(step)
            if observed and self.observers.look(step):
                status = Status.CALLBACK if status is None else status
            if restarts is not None and status in UNFINISHED:
                restarts.before_next(progress)
            # Last in an iteration: a run resumed from here begins with the next one.
            if checkpointed and progress.iteration % self.options.checkpoint_every < step.steps:
                self._save_checkpoint(status)
            if status is not None:
                return status
        return Status.MAX_ITER

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
        looks = (self.stopping.next_look(), self.observers.next_look(), saving)
        return int(min(options.max_iter, *looks))

    def _save_checkpoint(self, status: Status | None) -> None:
        assert self.options.checkpoint is not None
        if self._cut:
            return
        self.ended = None if status is None or status in UNFINISHED else int(status)
        self.progress.clock.pause()
        try:
            checkpoint.save(self.options.checkpoint, self.kind, self)
        finally:
            self.progress.clock.start()

    def resume(self, path: Path) -> None:
        """Continue the run of a checkpoint."""
        self.restore(checkpoint.load(path, self.kind))
        if self.restarts is not None:
            self.progress.rule = self.restarts.rule
        checkpoint.refuse_other_function(path, self.progress.judge, self.stopping.first_size)
