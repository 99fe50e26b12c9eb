"""The only loop: it knows neither the method nor the function.

It advances the rule, feeds the certificate, decides when to stop, and lets observers (trace,
callback, progress bar, checkpoints) look on, with their time taken off the clock.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import OptimizeResult

from accelegrad.errors import LineSearchError, NonFiniteError, Vector
from accelegrad.problems.sampling import GrowingSampler
from accelegrad.problems.sets import FeasibleSet
from accelegrad.proofs.certificate import Certificate
from accelegrad.proofs.region import Region
from accelegrad.rules.base import Rule, State, Step
from accelegrad.rules.distance import distance
from accelegrad.run import checkpoint
from accelegrad.run.batches import (
    BatchGrowth,
    coarsened,
    row_variance,
    seen_square,
    weight_squares,
)
from accelegrad.run.compiled import CompiledRule
from accelegrad.run.oracle import QUIET, Evaluation, MinibatchOracle, Oracle
from accelegrad.run.restarts import Restarts
from accelegrad.run.result import Status
from accelegrad.run.trace import Trace

DIVERGED = 1e20  # times the size at the start; what grows without bound gets there soon
BEYOND = (1e-1, 1e-2, 1e-3, 1e-4)  # how far beyond a boundary to look, in radii
OPINIONS = 12  # steps of another method before a guessed radius is trusted,
SHORT, FAR = 0.1, 1e6  # the first of so many radii, all of them of at most so many
REACH = 3.0  # a guessed region reaches so many of the rule's radii,
GRID = 1.25  # rounded up by at most this factor, so that it is not made anew at every step
#: a run that was to go on, or goes on with a larger max_iter
UNFINISHED = (None, Status.CALLBACK, Status.TIME_LIMIT, Status.MAX_ITER)
#: ends at which the last look at the bounds may show that the goal was reached
COULD_BE_MORE = (Status.MAX_ITER, Status.TIME_LIMIT, Status.AT_ROUNDING)
RESOLVED = 1e-12  # of 1 + ||x||: numbers tell points apart that are so far from each other
ROUNDING_LEVEL = 1e-9  # of the value: a gap that is due to rounding is smaller
SAME_VALUE = 1e-12  # of the values' size: what may differ where a function is evaluated again
OUTPUTS = ("auto", "average", "last", "best")


@dataclass(frozen=True)
class Options:
    """When to stop, what to return and who looks on."""

    max_iter: int = 1000
    tol: float | None = None
    rtol: float | None = None
    time_limit: float | None = None
    output: str = "auto"
    exact: bool = True  # gradients (and values, where there are any) are free of noise
    callback: Callable[[OptimizeResult], Any] | None = None
    callback_at: frozenset[int] | None = None  # iterations; None: all
    progress: bool = False
    trace: bool = False
    checkpoint: Path | None = None
    checkpoint_every: int = 100

    @property
    def has_goal(self) -> bool:
        """Whether the run is to end at a certified gap."""
        return self.tol is not None or self.rtol is not None

    def goal(self, value: float) -> float:
        """Return the certified gap at which a point with this value is good enough."""
        return max((self.tol or 0.0) * max(1.0, abs(value)), (self.rtol or 0.0) * abs(value))


class Run:
    """One run of a rule on an oracle.

    Parameters
    ----------
    rule, oracle, x0
        The method, the function and the start.
    options : Options
        When to stop, what to return and who looks on.
    certificate : Certificate
        What collects the proof of accuracy.
    judge : Oracle, optional
        An oracle with exact values for the output point, where `oracle` itself is noisy.
    judge_every : int
        After how many iterations a noisy run with a `tol` has its output point judged.
    kind : mapping
        What the run is, for its checkpoints.
    feasible_set : FeasibleSet, optional
        The constraint that every returned point has to meet.
    restarts : Restarts, optional
        When to start afresh from the best point.
    batches : BatchGrowth, optional
        When the batches of a `MinibatchOracle` with a `GrowingSampler` grow.
    """

    def __init__(
        self,
        rule: Rule,
        oracle: Oracle,
        x0: Vector,
        options: Options,
        certificate: Certificate,
        *,
        judge: Oracle | None = None,
        judge_every: int = 1,
        kind: Mapping[str, Any] | None = None,
        feasible_set: FeasibleSet | None = None,
        restarts: Restarts | None = None,
        batches: BatchGrowth | None = None,
    ) -> None:
        self.rule, self.oracle, self.options = rule, oracle, options
        self.certificate = certificate
        self.judge = oracle if oracle.exact_values else judge
        self.judge_every = judge_every
        self.kind = dict(kind or {})
        self.feasible_set = feasible_set
        self.restarts, self.batches = restarts, batches
        self.state: State = rule.init(x0)
        self.iteration = 0
        self._uncounted = 0  # steps that the state does not count: see `coarsened`
        region = certificate.assumed_region
        self._ended: Status | None = None  # what a checkpoint says
        self._growing = region if region is not None and region.growing else None
        self._origin = getattr(self.state, "start", None)  # x0 in the rule's own coordinates
        self._first_rule = rule
        self.trace = Trace() if options.trace else None
        self._detail = ""
        self._judged: tuple[int, Evaluation] | None = None  # (iteration, output point) judged last
        self._next_judgement = 0
        self._largest_value = -1.0  # what is beyond diverges; set at the first step
        self._first_size = 0.0  # of the value at the first step
        self._elapsed = 0.0  # seconds before this process took over
        self._paused = 0.0
        self._started = 0.0
        self._bar: Any = None

    # -- what is known ---------------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        """Time so far, without that of the observers."""
        return self._elapsed + time.perf_counter() - self._started - self._paused

    @property
    def best(self) -> Evaluation | None:
        """The point with the lowest exact value, if there are exact values."""
        return None if self.judge is None else self.judge.best

    @property
    def gap(self) -> float:
        """The certified gap of the best point, as far as bounds are up to date.

        Who looks on changes nothing: bounds are brought up to date when the run itself wants it.
        """
        best = self.best
        if best is None:
            return math.inf
        return best.value - self.certificate.lower_bound(best)

    @property
    def output(self) -> str:
        """What is returned: "average", "last" or "best"."""
        if self.options.output != "auto":
            return self.options.output
        return "best" if self.oracle.exact_values else "average"

    def _output_point(self) -> Vector:
        """Return the point that would be returned now, of a run that returns no best point."""
        return self._average_point() if self.output == "average" else self._last_point()

    def _average_point(self) -> Vector:
        return self._made_feasible(self.rule.output(self.state))

    def _last_point(self) -> Vector:
        return self._made_feasible(self.rule.last(self.state))

    def _made_feasible(self, point: Vector) -> Vector:
        """Remove what rounding in an average leaves outside of the constraint."""
        return point if self.feasible_set is None else self.feasible_set.project(point)

    # -- running ---------------------------------------------------------------------------------

    def __call__(self) -> OptimizeResult:
        """Run to the end, whatever the end is, and report."""
        self._started = time.perf_counter()
        # What overflows ends the run with a status of its own; a warning would add nothing.
        with np.errstate(**QUIET):
            try:
                status = self._guarded()
            finally:
                if self._bar is not None:
                    self._bar.close()
            return self._report(status)

    def _guarded(self) -> Status:
        self._open_progress()
        try:
            status = self._iterate()
            self._save_checkpoint(status)
            return status
        except KeyboardInterrupt:
            # Compiled code does not hear of it before its steps are done.
            done = getattr(self.state, "iteration", self.iteration - self._uncounted)
            self.iteration = max(self.iteration, int(done) + self._uncounted)
            return Status.INTERRUPTED
        except NonFiniteError as error:
            self._detail = f"At iteration {self.iteration + 1} {error}."
            return Status.NON_FINITE
        except LineSearchError as error:
            self._detail = f"At iteration {self.iteration + 1} {error}"
            return Status.LINE_SEARCH_FAILED

    def _iterate(self) -> Status:
        options, oracle = self.options, self.oracle
        certify = self.certificate.adders if oracle.exact_values else ()
        if self._ended is not None and self._has_ended(self._ended):
            return self._ended
        observed = options.callback or self.trace is not None or self._bar is not None
        advance = self._advance if isinstance(self.rule, CompiledRule) else None
        while self.iteration < options.max_iter:
            step = advance() if advance is not None else self.rule.step(self.state, oracle)
            for add in certify:
                add(step.evaluation, step.weight)
            before, self.state = self.state, step.state
            self.iteration += step.steps
            if self.batches is not None and not self.batches.ended:
                self._consider_growth(self.batches, before, step)
            if self._growing is not None:
                self._follow(self._growing)
            status = self._verdict(step)
            if observed and self._observe(step):
                status = Status.CALLBACK if status is None else status
            if self.restarts is not None and status in UNFINISHED:
                self._consider_restart(self.restarts)
            # The last thing in an iteration: a run that goes on from here begins the next one.
            if options.checkpoint and self.iteration % options.checkpoint_every == 0:
                self._save_checkpoint(status)
            if status is not None:
                return status
        return Status.MAX_ITER

    def _has_ended(self, status: Status) -> bool:
        """Tell whether a run that was at its end, as a checkpoint says, is so for its goal now."""
        if status is not Status.CONVERGED:
            return True
        final = self._final_evaluation()
        return final is not None and self._is_good_enough(final)

    def _advance(self) -> Step:
        """Let compiled code do the steps between which nobody wants to look."""
        assert isinstance(self.rule, CompiledRule)
        assert isinstance(self.oracle, MinibatchOracle)
        return self.rule.advance(self.state, self.oracle, self._stride())

    def _stride(self) -> int:
        """Return after how many iterations somebody wants to look."""
        options, now = self.options, self.iteration
        if self.trace is not None:
            return 1
        ends = [options.max_iter]
        if options.callback is not None:
            ends.append(self._next_call_back())
        if options.checkpoint is not None:
            ends.append(now - now % options.checkpoint_every + options.checkpoint_every)
        if options.has_goal:
            ends.append(max(self._next_judgement, now + 1))
        if self.restarts is not None:
            ends.append(now - now % self.judge_every + self.judge_every)
        if self.batches is not None and not self.batches.ended:
            ends.append(now + max(self.batches.next_look - int(self.state.iteration), 1))
        return min(ends) - now

    def _next_call_back(self) -> int:
        """Return the next iteration that the callback wants to see."""
        wanted = self.options.callback_at
        if wanted is None:
            return self.iteration + 1
        later = (iteration for iteration in wanted if iteration > self.iteration)
        return min(later, default=self.options.max_iter)

    def _follow(self, region: Region) -> None:
        """Let a guessed region grow with the rule's radius."""
        state = self.state
        reach = REACH * float(state.radius)
        if self.restarts is not None and self.restarts.count:
            reach += float(distance(state.start, self._origin))
        if reach > region.radius:
            self._widen(reach)

    def _widen(self, reach: float) -> None:
        assert self.certificate.cuts is not None
        self.certificate.cuts.widen(GRID ** math.ceil(math.log(reach, GRID)))

    def _consider_restart(self, restarts: Restarts) -> None:
        """Start afresh from the best point, or the output of a noisy run, where that is due."""
        if self.oracle.exact_values:
            final = self.best
        elif self.judge is not None and self.iteration % self.judge_every == 0:
            final = self._judge_output()
        else:
            return
        assert final is not None
        gap = final.value - self.certificate.lower_bound(final)
        due = (
            restarts.proved(gap) if restarts.kind == "certified" else restarts.stalled(final.value)
        )
        if due:
            self._restart(restarts, final, gap)

    def _restart(self, restarts: Restarts, final: Evaluation, gap: float) -> None:
        old = self.state.start
        start = restarts.staged(self._first_rule).init(final.point).start  # in the rule's own space
        size = math.sqrt(float(start @ start))
        restarts.begin(float(distance(start, old)), size, gap)
        self.rule = restarts.staged(self._first_rule)
        state = self.rule.init(final.point)
        if self.oracle.exact_values and hasattr(state, "start_value"):
            state = state._replace(start_value=final.value)
        self.state = state
        self.certificate.forget()

    def _consider_growth(self, growth: BatchGrowth, before: State, step: Step) -> None:
        """Take note of a step's gradients, and let the batches grow where they are mostly noise."""
        steps = int(self.state.iteration)
        weights = weight_squares(self.rule, steps - step.steps, step.steps)
        growth.note(seen_square(self.rule, before, step) * weights, weights)
        if steps < growth.next_look:
            return
        size = growth.next_size(self._row_variance(growth))
        if size > growth.size:
            self._grow(size, size / growth.size)
        growth.go_on(size, self.iteration, int(self.state.iteration))

    def _row_variance(self, growth: BatchGrowth) -> float:
        """Measure the noise of a row's gradient at the last iterate, as the rule sees it."""
        assert isinstance(self.oracle, MinibatchOracle)
        groups, size = growth.test_shape(self.oracle.rows)
        point, change = self.rule.last(self.state), getattr(self.rule, "change", None)
        gradients = [
            self.oracle.at(point, rows).gradient for rows in self.oracle.sampled(groups, size)
        ]
        if change is not None:
            gradients = [change.adjoint(gradient) for gradient in gradients]
        return row_variance(gradients, size)

    def _grow(self, size: int, ratio: float) -> None:
        assert isinstance(self.oracle, MinibatchOracle)
        assert isinstance(self.oracle.sampler, GrowingSampler)
        self.oracle.sampler.grow(size)
        if isinstance(self.rule, CompiledRule):
            self.rule.coarsen(self.state, ratio)
        else:
            self.state = coarsened(self.rule, self.state, ratio)
        self._uncounted = self.iteration - int(self.state.iteration)
        self._judge_once_an_epoch(size)
        self._next_judgement = min(self._next_judgement, self.iteration + self.judge_every)

    def _judge_once_an_epoch(self, batch_size: int) -> None:
        assert isinstance(self.oracle, MinibatchOracle)
        self.judge_every = -(-self.oracle.model.n_samples // batch_size)

    def _verdict(self, step: Step) -> Status | None:
        """Tell whether this step ends the run."""
        evaluation = step.evaluation
        if evaluation.squared_norm == 0 and self._is_stationary(evaluation):
            return Status.STATIONARY
        size = abs(evaluation.value)
        if not size <= self._largest_value and self._diverges(evaluation):
            return Status.DIVERGING
        if (self.options.has_goal or self.oracle.exact_values) and self._within_goal():
            final = self._final_evaluation()
            reached = final is not None and self._is_good_enough(final)
            return Status.CONVERGED if reached else Status.AT_ROUNDING
        if self.options.time_limit is not None and self.seconds > self.options.time_limit:
            return Status.TIME_LIMIT
        return None

    def _is_stationary(self, evaluation: Any) -> bool:
        """Tell whether a zero gradient, which means a minimiser, ends the run.

        It does if the point that would be returned is a minimiser too.
        """
        simple = self.options.exact and self.oracle.penalty is None
        if not simple or evaluation.gradient.any():  # its square may have vanished
            return False
        if self.oracle.exact_values:
            self.certificate.add_minimiser(evaluation.value)
        if self.output == "best":
            return True
        if self.iteration < self._next_judgement:
            return False
        self._next_judgement = self.iteration + 1 + self.iteration // 10
        if self.judge is None:
            return not bool(self.oracle(self._output_point()).gradient.any())
        return bool(self._judge_output().value <= evaluation.value)

    def _diverges(self, evaluation: Any) -> bool:
        """Tell whether values (or, without values, points) grew beyond all measure."""
        size = abs(evaluation.value)
        if math.isnan(size):
            size = float(evaluation.point @ evaluation.point)
        if self._largest_value < 0:
            self._largest_value = DIVERGED * max(size, 1.0)
            self._first_size = size
        return bool(size > self._largest_value)

    def _within_goal(self) -> bool:
        """Tell whether the certified gap of the point that would be returned is small enough."""
        if self.oracle.exact_values:
            best = self.best
            assert best is not None
            self._admit(best)
            if not self._certified(best):
                return False
            if self.output == "best":
                return self._stands(best)
        if self.judge is None or self.iteration < self._next_judgement:
            return False
        # An output point that is not among the evaluated ones costs a call: not at every step.
        wait = self.judge_every if not self.oracle.exact_values else 1 + self.iteration // 10
        self._next_judgement = self.iteration + wait
        judged = self._judge_output()
        return self._certified(judged) and self._stands(judged)

    def _certified(self, final: Evaluation) -> bool:
        """Tell whether the gap is small enough, or as small as it can be proved to be."""
        value = final.value
        gap = value - self.certificate.lower_bound(final)
        if 0 <= gap <= self.options.goal(value):
            return True
        # Most of the time the gap is too large for a closer look.
        return 0 <= gap <= ROUNDING_LEVEL * abs(value) and gap <= self.certificate.resolution(final)

    def _is_good_enough(self, final: Evaluation) -> bool:
        """Tell whether the certified gap at a point is what was asked for."""
        gap = final.value - self.certificate.lower_bound(final)
        return self.options.has_goal and 0 <= gap <= self.options.goal(final.value)

    def _stands(self, final: Evaluation) -> bool:
        """Look beyond an assumed region before a point is called optimal.

        If the region is too small, the function falls on beyond it: a value below the lower bound,
        found at one of a few trial points, proves it.
        """
        region, margin = self.certificate.assumed_region, self._margin(final)
        if region is None or self.certificate.bound_everywhere >= final.value - margin:
            return True
        norm = math.sqrt(final.gradient @ final.gradient)
        if norm == 0 or not region.radius > 0:
            return norm == 0
        if region.growing:
            return self._stands_farther(region, final, norm)
        on_boundary = math.dist(final.point, region.center) >= 0.99 * region.radius
        if not on_boundary or region.radius * norm <= 2 * margin:
            return True
        steps = (share * region.radius / norm for share in BEYOND)
        trials = (self._evaluated_beyond(region, final, step) for step in steps)
        return not any(trial is not None and self.certificate.refuted(trial) for trial in trials)

    def _margin(self, final: Evaluation) -> float:
        """Return the gap at which a point is good enough, or at which it cannot be better."""
        goal = self.options.goal(final.value)
        return goal if self._is_good_enough(final) else self.certificate.resolution(final)

    def _stands_farther(self, region: Region, final: Evaluation, norm: float) -> bool:
        """Ask another method whether the function falls on beyond a guessed region.

        A few steps of Barzilai and Borwein's, whose length is the inverse of the curvature just
        seen: along a flat valley they soon are as long as the valley. A value below the lower bound
        refutes the region, which is widened to hold the point.
        """
        at, step = final, SHORT * region.radius / norm
        for _ in range(OPINIONS):
            trial = self._evaluated_beyond(region, at, step)
            if trial is None:
                return True
            if not (at.point - step * at.gradient != at.point).any():
                # The region is so small that numbers cannot tell its points apart.
                self._widen(max(2 * region.radius, RESOLVED * (1 + math.hypot(*at.point))))
                return False
            if self.certificate.refuted(trial):
                self._widen(2 * max(region.radius, math.dist(trial.point, region.center)))
                return False
            moved, bent = trial.point - at.point, trial.gradient - at.gradient
            length, curvature = float(moved @ moved), float(moved @ bent)
            if length == 0:
                return True
            steepness = math.sqrt(trial.gradient @ trial.gradient)
            reach = FAR * max(region.radius, RESOLVED * (1 + math.hypot(*at.point)))
            longest = reach / steepness if steepness > 0 else step
            at, step = trial, min(length / curvature if curvature > 0 else 10 * step, longest)
        return True

    def _evaluated_beyond(self, region: Region, at: Evaluation, step: float) -> Evaluation | None:
        """Evaluate after a step downhill; None where the function is not finite."""
        assert self.judge is not None
        trial = at.point - step * at.gradient
        if self.judge.penalty is not None:
            trial = self.judge.penalty.prox(trial, step)
        try:
            evaluation = self.judge.exactly(region.feasible_set.project(trial))
            _ = evaluation.gradient  # it may come late, and not be finite
        except NonFiniteError:
            return None
        return evaluation

    def _judge_output(self) -> Evaluation:
        """Evaluate the output point exactly, once an iteration."""
        assert self.judge is not None
        if self._judged is None or self._judged[0] != self.iteration:
            evaluation = self.judge.exactly(self._output_point())
            self.certificate.add(evaluation, 0.0)
            self._judged = self.iteration, evaluation
        return self._judged[1]

    # -- observers -------------------------------------------------------------------------------

    def _observe(self, step: Step) -> bool:
        """Let the observers look on; True if the callback wants to stop."""
        begun = time.perf_counter()
        seconds = self._elapsed + begun - self._started - self._paused
        if self.trace is not None:
            size = float(getattr(step.state, "step_size", math.nan))
            value = step.evaluation.value
            self.trace.add(self.iteration, value, self.gap, size, self._points(), seconds)
        if self._bar is not None:
            self._show_progress(step)
        stop = self._call_back()
        self._paused += time.perf_counter() - begun
        return stop

    def _points(self) -> int:
        judged = 0 if self.judge is None or self.judge is self.oracle else self.judge.points
        return self.oracle.points + judged

    def _call_back(self) -> bool:
        """Call the user's callback with the state so far; True if it raised StopIteration."""
        callback, wanted = self.options.callback, self.options.callback_at
        if callback is None or not (wanted is None or self.iteration in wanted):
            return False
        known: dict[str, Any] = {"nit": self.iteration, **self._counters(), **self._points_now()}
        best = self.best
        if self.output == "best" and best is not None:
            known |= {"x": best.point.copy(), "fun": best.value}
        else:
            judged = self._judged
            value = judged[1].value if judged and judged[0] == self.iteration else math.nan
            known |= {"x": self._output_point().copy(), "fun": value}
        known |= {"lower_bound": -math.inf, "gap": math.inf, "certified_radius": 0.0}
        if best is not None:
            bound = known["lower_bound"] = self.certificate.lower_bound(best)
            known["certified_radius"] = self.certificate.radius_of(bound)
            if not math.isnan(known["fun"]):  # else the point has not been judged
                known["gap"] = known["fun"] - bound
        try:
            callback(_result(known))
        except StopIteration:
            return True
        return False

    def _points_now(self) -> dict[str, Any]:
        best = self.best
        return {
            "x_average": self._average_point().copy(),
            "x_last": self._last_point().copy(),
            "x_best": None if best is None else best.point.copy(),
        }

    def _counters(self) -> dict[str, int]:
        oracles = {id(oracle): oracle for oracle in (self.oracle, self.judge) if oracle is not None}
        counts = [oracle.counts() for oracle in oracles.values()]
        return {
            "nfev": sum(count.nfev for count in counts),
            "njev": sum(count.njev for count in counts),
            "rows": sum(count.rows for count in counts),
        }

    def _open_progress(self) -> None:
        if self.options.progress:
            from tqdm.auto import tqdm

            self._bar = tqdm(
                total=self.options.max_iter,
                initial=self.iteration,
                desc=type(self.rule).__name__,
                unit="it",
            )

    def _show_progress(self, step: Step) -> None:
        self._bar.update(step.steps)
        if step.steps > 1 or self.iteration % 10 == 0 or self.iteration == self.options.max_iter:
            best = self.best
            value = step.evaluation.value if best is None else best.value
            self._bar.set_postfix(value=f"{value:.6g}", gap=f"{self.gap:.1e}", refresh=False)

    # -- checkpoints -----------------------------------------------------------------------------

    def _save_checkpoint(self, status: Status | None) -> None:
        """Write the run's state, and the status if it has come to its end."""
        if self.options.checkpoint is None:
            return
        content = {
            "ended": None if status is None or status in UNFINISHED else int(status),
            "iteration": self.iteration,
            "seconds": self.seconds,
            "largest_value": self._largest_value,
            "first_size": self._first_size,
            "next_judgement": self._next_judgement,
            "rule": fields_of(self.state),
            "oracle": self.oracle.state(),
            "judge": None if self.judge is None else self.judge.state(),
            "certificate": self.certificate.state(),
            "restarts": None if self.restarts is None else self.restarts.state(),
            "batches": None if self.batches is None else self.batches.state(),
            "trace": None if self.trace is None else self.trace.state(),
        }
        checkpoint.save(self.options.checkpoint, self.kind, content)

    def resume(self, path: Path) -> None:
        """Take over the run that a checkpoint holds."""
        content = checkpoint.load(path, self.kind)
        ended = content["ended"]
        self._ended = None if ended is None else Status(ended)
        self.iteration = content["iteration"]
        self._elapsed = content["seconds"]
        self._largest_value = content["largest_value"]
        self._first_size = content["first_size"]
        self._next_judgement = content["next_judgement"]
        if self.restarts is not None:
            self.restarts.restore(content["restarts"])
            self.rule = self.restarts.staged(self._first_rule)
        if isinstance(self.rule, CompiledRule):
            self.state = self.rule.restored(self.state, content["rule"])
        else:
            self.state = with_fields(self.state, content["rule"])
        self.oracle.restore(content["oracle"])
        if self.batches is not None:
            self.batches.restore(content["batches"])
            self._uncounted = self.iteration - int(self.state.iteration)
            self._judge_once_an_epoch(self.batches.size)
        if self.judge is not None and self.judge is not self.oracle:
            self.judge.restore(content["judge"])
        self.certificate.restore(content["certificate"])
        if self.trace is not None and content["trace"] is not None:
            self.trace.restore(content["trace"])
        self._refuse_other_function(path)

    def _refuse_other_function(self, path: Path) -> None:
        """Refuse a checkpoint whose best value is not the function's at that point."""
        oracle, best = self.judge, self.best
        if oracle is None or best is None:
            return
        counts = oracle.counts()
        try:
            value = oracle.exactly(best.point).value
        except NonFiniteError:
            value = math.nan
        oracle.set_counts(counts)
        oracle.best = best
        if not abs(value - best.value) <= SAME_VALUE * max(abs(best.value), self._first_size):
            raise checkpoint.CheckpointError(
                f"resume={str(path)!r}: the checkpoint is of another function: its best point has "
                f"the value {best.value!r} there and {value!r} now."
            )

    # -- the result ------------------------------------------------------------------------------

    def _report(self, status: Status) -> OptimizeResult:
        final = self._final_evaluation() or self.best
        x = self._output_point() if final is None else final.point
        value = math.nan if final is None else final.value
        gradient = self._final_gradient(final)
        known = self.judge is not None and final is not None
        self.certificate.finish()
        if known:
            assert final is not None
            self._admit(final)
            if status in COULD_BE_MORE and self._is_good_enough(final) and self._stands(final):
                status = Status.CONVERGED
            self._admit(final)
        lower_bound = -math.inf
        if known:
            assert final is not None
            lower_bound = self.certificate.lower_bound(final)
        status = self._settled(status, value, lower_bound)
        return _result(
            {
                "x": x.copy(),
                "fun": value,
                "jac": gradient,
                "nit": self.iteration,
                **self._counters(),
                "success": self._succeeded(status, final),
                "status": status,
                "message": " ".join(filter(None, [status.message, self._detail])),
                **self._points_now(),
                "lower_bound": lower_bound,
                "gap": value - lower_bound if known else math.inf,
                "certified_radius": self.certificate.radius_of(lower_bound) if known else 0.0,
                "n_restarts": 0 if self.restarts is None else self.restarts.count,
                **({} if self.batches is None else {"batch_sizes": list(self.batches.sizes)}),
                "seconds": self.seconds,
                "trace": self.trace,
            }
        )

    def _admit(self, final: Evaluation) -> None:
        """Widen a guessed region that a value found refutes: it was only a guess."""
        if self._growing is None:
            return
        for _ in range(64):
            if not self.certificate.refuted(final):
                return
            self._widen(2 * self._growing.radius)

    def _final_evaluation(self) -> Evaluation | None:
        """Return what is known at the returned point, evaluating it where need be."""
        if self.output == "best" and self.best is not None:
            return self.best
        try:
            if self.judge is not None:
                return self._judge_output()
            return self.oracle(self._output_point()) if self.oracle.has_values else None
        except NonFiniteError:
            return None

    def _final_gradient(self, final: Evaluation | None) -> Vector | None:
        try:
            if final is None:
                return None
            oracle = self.oracle if self.judge is None else self.judge
            return oracle.final_gradient(final).copy()
        except NonFiniteError:
            return None

    def _settled(self, status: Status, value: float, lower_bound: float) -> Status:
        """Turn a planned end into the news that the region was wrong, where that is proved."""
        if lower_bound > value and status in (Status.MAX_ITER, Status.TIME_LIMIT):
            status = Status.REGION_REFUTED
        if status is Status.REGION_REFUTED or lower_bound > value:
            self._detail = " ".join(filter(None, [self._detail, self._refutation()]))
        radius = self.certificate.radius_of(lower_bound)
        if status is Status.CONVERGED and self._growing is not None and radius < math.inf:
            space = "" if self._growing.change is None else ", in the scaled coordinates"
            self._detail = f"It is proved for points within {radius:.3g} of x0{space}."
        return status

    def _refutation(self) -> str:
        cuts = self.certificate.cuts
        if cuts is not None and cuts.region.assumed:
            return (
                f"No minimiser is within {cuts.region.radius:g} of x0: the diameter "
                f"{2 * cuts.region.radius:g} is too small. Give a larger one."
            )
        if cuts is not None and self.feasible_set is None and not cuts.region.is_ball:
            return "The point is outside feasible_set: project_y=True would keep it inside."
        return "The function is not convex on the set, or its gradient is wrong."

    def _succeeded(self, status: Status, final: Evaluation | None) -> bool:
        """Tell whether the run did what was asked for: the goal's gap, or else a planned end."""
        if status is Status.STATIONARY:
            if not self.options.has_goal:
                return True
            return final is not None and self._is_good_enough(final)
        planned = status in (Status.MAX_ITER, Status.AT_ROUNDING) and not self.options.has_goal
        return planned or status is Status.CONVERGED


def fields_of(state: State) -> dict[str, Any]:
    """Return a rule's state as a dictionary: it is a NamedTuple, a dataclass or a mapping."""
    if hasattr(state, "_asdict"):
        return dict(state._asdict())
    if dataclasses.is_dataclass(state):
        return {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
    return dict(state)


def with_fields(state: State, fields: Mapping[str, Any]) -> State:
    """Return a state of the same kind with these fields."""
    if hasattr(state, "_replace"):
        return state._replace(**fields)
    if dataclasses.is_dataclass(state) and not isinstance(state, type):
        return dataclasses.replace(state, **fields)
    return dict(fields)


def _result(known: dict[str, Any]) -> OptimizeResult:
    """Return a dictionary as SciPy's result (whose type stubs know SciPy's own fields only)."""
    result = OptimizeResult()
    result.update(known)
    return result
