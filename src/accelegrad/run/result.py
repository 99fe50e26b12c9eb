"""How a run ends: when, with which status, and the report that the user gets."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from scipy.optimize import OptimizeResult

from accelegrad.errors import DivergedError, NonFiniteError
from accelegrad.files.saved import Saved
from accelegrad.rules.base import Step
from accelegrad.run.checks import RegionPolicy
from accelegrad.run.oracle import Evaluation
from accelegrad.run.progress import Progress

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


class Status(IntEnum):
    """How a run ended; `message` is one sentence for the user."""

    message: str

    def __new__(cls, value: int, message: str = "") -> Status:  # noqa: D102 -- a member
        status = int.__new__(cls, value)
        status._value_, status.message = value, message
        return status

    def __str__(self) -> str:
        return self.name

    def __format__(self, spec: str) -> str:
        return format(self.name, spec)

    CONVERGED = 0, "Converged: the certified gap is within tol."
    STATIONARY = 1, "The gradient is zero: the point is a minimiser."
    MAX_ITER = 2, "Did max_iter iterations."
    TIME_LIMIT = 3, "Stopped by time_limit."
    CALLBACK = 4, "Stopped by the callback."
    INTERRUPTED = 5, "Interrupted from the keyboard; the best point so far is returned."
    NON_FINITE = 6, "The function is not finite at a point; the best point so far is returned."
    LINE_SEARCH_FAILED = 7, "The line search failed; the best point so far is returned."
    DIVERGING = 8, "The iterates diverge; the best point so far is returned."
    REGION_REFUTED = 9, "Lower values lie outside the region that was given."
    AT_ROUNDING = 10, "The certified gap is as small as rounding or the given accuracy allows."
    TARGET_REACHED = 11, "The value is at most the target."
    TARGET_IMPOSSIBLE = 12, "The lower bound proves that no point has the target's value."
    NOT_CONVEX = 13, "What the function returns fits no convex function, so nothing is proved."
    REGION_TOO_SMALL = (
        14,
        "The gap was proved only in a small ball around x0, and nothing shows that the ball "
        "contains a minimiser.",
    )


#: ends of a run that can continue, if only with a larger max_iter
UNFINISHED = (None, Status.CALLBACK, Status.TIME_LIMIT, Status.MAX_ITER)
#: statuses that the last bounds may improve
COULD_BE_MORE = (
    Status.MAX_ITER,
    Status.TIME_LIMIT,
    Status.AT_ROUNDING,
    Status.LINE_SEARCH_FAILED,
)


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
        self._proves = options.goal is not None or oracle.exact_values
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


class Result(OptimizeResult):
    """SciPy's result, printed with what is proved first and without empty fields."""

    #: printed first (newer versions of SciPy ask for this)
    _order_keys = ("message", "proved", "success", "status", "fun", "gap", "x", "nit", "method")

    if TYPE_CHECKING:  # SciPy's type stubs know only SciPy's fields

        def __init__(self, known: Mapping[str, Any]) -> None: ...

    def __repr__(self) -> str:
        shown = Result({name: self[name] for name in self if not self._says_nothing(name)})
        return super(Result, shown).__repr__()

    def _says_nothing(self, name: str) -> bool:
        return name in ("rows", "n_restarts", "trace") and not self[name]


def report(progress: Progress, status: Status, detail: str) -> OptimizeResult:
    """Return all that is known at a run's end; the point returned is the one that is judged."""
    bracket, options, judge = progress.bracket, progress.options, progress.judge
    final = progress.final_evaluation() or progress.best
    x = progress.point(progress.output) if final is None else final.point
    value, gradient = math.nan, None
    lower_bound, gap, radius = -math.inf, math.inf, 0.0
    if final is not None:
        value = final.value
        with contextlib.suppress(NonFiniteError):
            gradient = (judge or progress.oracle).final_gradient(final).copy()
        if judge is not None and status is not Status.NOT_CONVEX:
            lower_bound = bracket.lower_bound(final)
            gap, radius = value - lower_bound, bracket.radius_of(lower_bound)
    if status is Status.REGION_REFUTED or lower_bound > value:
        detail = f"{detail} {_refutation(progress)}".strip()
    if status in (Status.CONVERGED, Status.TARGET_IMPOSSIBLE) and radius < math.inf:
        detail = f"It is proved for points {_within(progress, radius, ', ')}."
    success = status in (Status.CONVERGED, Status.TARGET_REACHED)
    if status is Status.STATIONARY and options.goal is not None:
        success = final is not None and bracket.proved(final)
    elif status in (Status.MAX_ITER, Status.AT_ROUNDING, Status.STATIONARY):
        success = not options.has_end  # a planned end
    return Result(
        {
            "x": x.copy(),
            "fun": value,
            "jac": gradient,
            "nit": progress.iteration,
            "proved": _proved(progress, gap, radius),
            "success": success,
            "status": status,
            "message": f"{status.message} {detail}".strip(),
            **progress.points(),
            "lower_bound": lower_bound,
            "gap": gap,
            "certified_radius": radius,
        }
    )


def _proved(progress: Progress, gap: float, radius: float) -> str:
    """Return what is proved about a value, in one line; numbers are rounded so that it stays true.

    The value is at most `gap` (inf: unknown) above the minimum within `radius` of x0.
    """
    if not gap < math.inf:  # NaN too
        return "nothing"
    cuts = progress.bracket.cuts
    in_set = progress.feasible_set is not None or (cuts is not None and not cuts.region.is_ball)
    where = " in the set" if in_set else ""
    if radius < math.inf:
        where += f" {_within(progress, radius)}"
    if gap < 0.0:
        return f"f(x) is below every value{where}, so no minimiser is there"
    minimum = "minimum over the set" if in_set else "minimum"
    lowest = f"lowest value{where}" if radius < math.inf else minimum
    above = f"at most {rounded_up(gap)} above " if gap > 0.0 else ""
    return f"f(x) is {above}the {lowest}"


def _within(progress: Progress, radius: float, before_space: str = " ") -> str:
    cuts = progress.bracket.cuts
    scaled = cuts is not None and cuts.region.change is not None
    space = f"{before_space}in the scaled coordinates" if scaled else ""
    return f"within {rounded_down(radius)} of x0{space}"


def _refutation(progress: Progress) -> str:
    cuts = progress.bracket.cuts
    if cuts is not None and cuts.region.assumed:
        return (
            f"No minimiser is within {cuts.region.radius:g} of x0: the diameter "
            f"{2 * cuts.region.radius:g} is too small. Give a larger one."
        )
    if cuts is not None and progress.feasible_set is None and not cuts.region.is_ball:
        return "The point is outside feasible_set: project_y=True would keep it inside."
    return "The function is not convex on the set, or its gradient is wrong."


def rounded_up(number: float, digits: int = 2) -> str:
    """Return a number in few digits, not below it."""
    return f"{float(Context(digits, ROUND_CEILING).create_decimal(number)):.{digits}g}"


def rounded_down(number: float, digits: int = 3) -> str:
    """Return a number in few digits, not above it."""
    return f"{float(Context(digits, ROUND_FLOOR).create_decimal(number)):.{digits}g}"
