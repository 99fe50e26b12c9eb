"""The state of a run, shared by the loop, its policies and the observers, and the result of it."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import OptimizeResult

from accelegrad.errors import NonFiniteError, Vector
from accelegrad.files.saved import Saved
from accelegrad.geometry.sets import FeasibleSet
from accelegrad.proofs.bracket import Bracket
from accelegrad.rules.base import Evaluated, Rule
from accelegrad.run.oracle import Evaluation, Oracle

#: The number of evaluations kept: comparing with them costs about one step. Fewer long vectors,
#: limited by these bytes: with 1e6 variables comparing with 20 took half the time of a run.
KEPT, KEPT_BYTES, FEWEST_KEPT = 20, 8 * 2**20, 4

OUTPUTS = ("auto", "average", "last", "best")


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


@dataclass(frozen=True)
class Options:
    """When to stop, what to return and who observes."""

    max_iter: int = 1000
    goal: Callable[[float], float] | None = None  # the gap that is asked for at a value
    time_limit: float | None = None
    target: float | None = None
    output: str = "auto"
    exact: bool = True  # gradients, and values if any, are free of noise
    callback: Callable[[OptimizeResult], Any] | None = None
    callback_at: frozenset[int] | None = None  # iterations; None: all
    progress: bool = False
    trace: bool = False
    checkpoint: Path | None = None
    checkpoint_every: int = 100


@dataclass(eq=False)
class Clock(Saved):
    """Seconds since the start, summed over the processes of a resumed run, without pauses."""

    saved = ("_before",)  # checkpoints are written in a pause

    since: float | None  # the time when it was last started; None: paused
    _before = 0.0  # seconds before that

    @property
    def seconds(self) -> float:
        """Time so far."""
        return self._before + (0.0 if self.since is None else time.perf_counter() - self.since)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Return a context for work that does not count."""
        self._before, self.since = self.seconds, None
        try:
            yield
        finally:
            self.since = time.perf_counter()


class Recent(Saved):
    """The last evaluations, in the rows of arrays and in any order, without a penalty.

    `sizes` are those of the terms of the values; `offsets` is work space of the same shape as
    `points`.
    """

    saved = ("_rows", "_numbers", "_seen")

    def __init__(self, dimension: int) -> None:
        kept = max(FEWEST_KEPT, min(KEPT, KEPT_BYTES // (16 * dimension)))
        self._rows, self._numbers = np.zeros((2, kept, dimension)), np.zeros((2, kept))
        self._work = np.empty((kept, dimension))
        self._seen = 0
        self._show()

    def _show(self) -> None:
        count, rows, numbers = min(self._seen, len(self._work)), self._rows, self._numbers
        self.points, self.gradients = rows[0, :count], rows[1, :count]
        self.values, self.sizes = numbers[0, :count], numbers[1, :count]
        self.offsets = self._work[:count]

    def add(self, at: Evaluated) -> None:
        """Keep an evaluation in place of the oldest."""
        kept, term = len(self._work), at.penalty
        row = self._seen % kept
        self._seen += 1
        if self._seen <= kept:
            self._show()
        self.points[row], self.gradients[row] = at.point, at.gradient
        self.values[row], self.sizes[row] = at.value - term, abs(at.value) + abs(term)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint."""
        super().restore(state)
        self._show()


class Progress(Saved):
    """The state of a run, and what is known of the point that it would return.

    `judge`, if `oracle` is noisy, is an oracle with exact values for the output point;
    `feasible_set` is the constraint on every returned point.
    """

    saved = (
        *("iteration", "next_judgement", "rule_state"),
        *("oracle", "separate_judge", "bracket", "recent", "clock"),
    )

    def __init__(
        self,
        rule: Rule,
        oracle: Oracle,
        x0: Vector,
        options: Options,
        bracket: Bracket,
        judge: Oracle | None = None,
        feasible_set: FeasibleSet | None = None,
    ) -> None:
        self.rule, self.oracle, self.options = rule, oracle, options
        self.bracket, self.feasible_set = bracket, feasible_set
        self.judge = oracle if oracle.exact_values else judge
        self.separate_judge = judge
        self.start = x0
        self.rule_state: Any = rule.init(x0)
        cuts = bracket.cuts
        # A rule's cuts do not know the rounding errors of a linear model.
        if "cuts" in rule.can and cuts is not None and cuts.model is None:
            cuts.share(self.rule_state.cuts)
        #: the last evaluations, where they are compared
        self.recent: Any = None
        self.clock = Clock(time.perf_counter())
        self.iteration = self.next_judgement = 0
        #: what is returned: "average", "last" or "best"
        self.output = options.output
        if options.output == "auto":
            self.output = "best" if oracle.exact_values else "average"
        self._judged: tuple[int, Evaluation] | None = None  # the last (iteration, output point)

    @property
    def best(self) -> Evaluation | None:
        """The point with the lowest exact value, if there are exact values."""
        return None if self.judge is None else self.judge.best

    def point(self, output: str) -> Vector:
        """Return the point that the rule's theorem is about ("average"), or the last iterate."""
        average = output == "average"
        state = self.rule_state
        point: Vector = self.rule.output(state) if average else self.rule.last(state)
        if self.feasible_set is None:
            return point
        try:
            return self.feasible_set.project(point)  # rounding may leave an average outside
        except NonFiniteError:  # after an overflow nothing is nearest
            return point

    def points(self) -> dict[str, Vector | None]:
        """Return the average, the last and the best point, as results name them."""
        best = self.best
        return {
            "x_average": self.point("average").copy(),
            "x_last": self.point("last").copy(),
            "x_best": None if best is None else best.point.copy(),
        }

    def judged_output(self) -> Evaluation:
        """Evaluate the output point exactly, at most once per iteration."""
        assert self.judge is not None
        if self._judged is None or self._judged[0] != self.iteration:
            evaluation = self.judge.exactly(self.point(self.output))
            self.bracket.add(evaluation, 0.0)
            self._judged = self.iteration, evaluation
        return self._judged[1]

    def tried(self, point: Vector, *, keep: bool = True) -> Evaluation | None:
        """Evaluate exactly; None if the function fails there. `keep`: it may be the best point."""
        assert self.judge is not None
        best = self.judge.best
        try:
            evaluation = self.judge.exactly(point)
            _ = evaluation.gradient  # it may be computed late, and not be finite
        except Exception:
            return None
        finally:
            if not keep:
                self.judge.best = best
        return evaluation

    def judged_now(self) -> Evaluation | None:
        """Return the evaluation of the output point, None if there is none in this iteration."""
        judged = self._judged
        return judged[1] if judged and judged[0] == self.iteration else None

    def final_evaluation(self) -> Evaluation | None:
        """Return the evaluation at the returned point, computed if necessary."""
        if self.output == "best" and self.best is not None:
            return self.best
        try:
            if self.judge is not None:
                return self.judged_output()
            return self.oracle(self.point(self.output)) if self.oracle.has_values else None
        except NonFiniteError:
            return None

    @property
    def gap(self) -> float:
        """The certified gap of the best point; reading it computes no new bounds."""
        best = self.best
        return math.inf if best is None else self.bracket.gap(best)

    @property
    def calls(self) -> int:
        """The number of points at which anything was computed."""
        judge = self.separate_judge
        return self.oracle.points + (0 if judge is None else judge.points)

    def counters(self) -> dict[str, int]:
        """Return the calls so far, as results name them."""
        oracle, judge = self.oracle, self.separate_judge
        counts = {"nfev": oracle.nfev, "njev": oracle.njev, "rows": oracle.rows}
        if judge is not None:
            counts = {name: count + getattr(judge, name) for name, count in counts.items()}
        return counts


# -- the result ------------------------------------------------------------------------------------


class Result(OptimizeResult):
    """SciPy's result, printed with what is proved first and without empty fields."""

    #: printed first (newer versions of SciPy ask for this)
    _order_keys = ("message", "proved", "success", "status", "fun", "gap", "x", "nit", "method")

    if TYPE_CHECKING:  # SciPy's type stubs know only SciPy's fields

        def __init__(self, known: Mapping[str, Any]) -> None: ...

    def __repr__(self) -> str:
        empty = {name for name in ("rows", "n_restarts", "trace") if not self.get(name)}
        shown = Result({name: self[name] for name in self if name not in empty})
        return super(Result, shown).__repr__()


def report(progress: Progress, status: Status, detail: str) -> OptimizeResult:
    """Return all that is known at a run's end; the point returned is the one that is judged."""
    bracket, options, judge = progress.bracket, progress.options, progress.judge
    final = progress.final_evaluation() or progress.best
    x = progress.point(progress.output) if final is None else final.point
    value, gradient = math.nan, None
    lower_bound, gap, radius, certificate = -math.inf, math.inf, 0.0, None
    if final is not None:
        value = final.value
        with contextlib.suppress(NonFiniteError):
            gradient = final.gradient.copy()
        if judge is not None and status is not Status.NOT_CONVEX:
            lower_bound = bracket.lower_bound(final)
            gap, radius = value - lower_bound, bracket.radius_of(lower_bound)
            certificate = bracket.certificate(final)
    if status is Status.REGION_REFUTED or lower_bound > value:
        detail = f"{detail} {_refutation(progress)}".strip()
    if status in (Status.CONVERGED, Status.TARGET_IMPOSSIBLE) and radius < math.inf:
        detail = f"It is proved for points {_within(progress, radius, ', ')}."
    success = status in (Status.CONVERGED, Status.TARGET_REACHED)
    if status is Status.STATIONARY and options.goal is not None:
        success = final is not None and bracket.proved(final)
    elif status in (Status.MAX_ITER, Status.AT_ROUNDING, Status.STATIONARY):
        success = options.goal is None and options.target is None  # a planned end
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
            "certificate": certificate,
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
    above = f"at most {rounded(gap, 2, up=True)} above " if gap > 0.0 else ""
    return f"f(x) is {above}the {lowest}"


def _within(progress: Progress, radius: float, before_space: str = " ") -> str:
    cuts = progress.bracket.cuts
    scaled = cuts is not None and cuts.region.change is not None
    space = f"{before_space}in the scaled coordinates" if scaled else ""
    return f"within {rounded(radius, 3, up=False)} of x0{space}"


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


def rounded(number: float, digits: int, *, up: bool) -> str:
    """Return a number in few digits, not below it (`up`) or not above it."""
    context = Context(digits, ROUND_CEILING if up else ROUND_FLOOR)
    return f"{float(context.create_decimal(number)):.{digits}g}"
