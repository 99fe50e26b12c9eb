"""How a run can end, and the report that the user gets."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from scipy.optimize import OptimizeResult

from accelegrad.errors import NonFiniteError
from accelegrad.run.progress import Progress

if TYPE_CHECKING:
    from accelegrad.run.oracle import Evaluation


class Status(IntEnum):
    """How a run ended."""

    CONVERGED = 0
    STATIONARY = 1
    MAX_ITER = 2
    TIME_LIMIT = 3
    CALLBACK = 4
    INTERRUPTED = 5
    NON_FINITE = 6
    LINE_SEARCH_FAILED = 7
    DIVERGING = 8
    REGION_REFUTED = 9
    AT_ROUNDING = 10
    TARGET_REACHED = 11
    TARGET_IMPOSSIBLE = 12
    NOT_CONVEX = 13
    REGION_TOO_SMALL = 14

    @property
    def message(self) -> str:
        """One sentence for the user."""
        return MESSAGES[self]

    def __str__(self) -> str:
        return self.name

    def __format__(self, spec: str) -> str:
        return format(self.name, spec)


MESSAGES = {
    Status.CONVERGED: "Converged: the certified gap is within tol.",
    Status.STATIONARY: "The gradient is zero: the point is a minimiser.",
    Status.MAX_ITER: "Did max_iter iterations.",
    Status.TIME_LIMIT: "Stopped by time_limit.",
    Status.CALLBACK: "Stopped by the callback.",
    Status.INTERRUPTED: "Interrupted from the keyboard; the best point so far is returned.",
    Status.NON_FINITE: "The function is not finite at a point; the best point so far is returned.",
    Status.LINE_SEARCH_FAILED: "The line search failed; the best point so far is returned.",
    Status.DIVERGING: "The iterates diverge; the best point so far is returned.",
    Status.AT_ROUNDING: "The certified gap is as small as rounding or the given accuracy allows.",
    Status.TARGET_REACHED: "The value is at most the target.",
    Status.TARGET_IMPOSSIBLE: "The lower bound proves that no point has the target's value.",
    Status.NOT_CONVEX: "What the function returns fits no convex function, so nothing is proved.",
    Status.REGION_TOO_SMALL: (
        "The gap was proved only in a small ball around x0, and nothing shows that the ball "
        "contains a minimiser."
    ),
    Status.REGION_REFUTED: "Lower values lie outside the region that was given.",
}

#: ends of a run that can continue, if only with a larger max_iter
UNFINISHED = (None, Status.CALLBACK, Status.TIME_LIMIT, Status.MAX_ITER)
#: statuses that the last bounds may improve
COULD_BE_MORE = (
    Status.MAX_ITER,
    Status.TIME_LIMIT,
    Status.AT_ROUNDING,
    Status.LINE_SEARCH_FAILED,
)


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
    bracket = progress.bracket
    final = progress.final_evaluation() or progress.best
    x = progress.point(progress.output) if final is None else final.point
    value = math.nan if final is None else final.value
    gradient = None
    if final is not None:
        oracle = progress.oracle if progress.judge is None else progress.judge
        with contextlib.suppress(NonFiniteError):
            gradient = oracle.final_gradient(final).copy()
    lower_bound, gap, radius = -math.inf, math.inf, 0.0
    if progress.judge is not None and final is not None and status is not Status.NOT_CONVEX:
        lower_bound = bracket.lower_bound(final)
        gap, radius = value - lower_bound, bracket.radius_of(lower_bound)
    if status is Status.REGION_REFUTED or lower_bound > value:
        detail = " ".join(filter(None, [detail, _refutation(progress)]))
    if status in (Status.CONVERGED, Status.TARGET_IMPOSSIBLE):
        detail = _reach(progress, radius) or detail
    return Result(
        {
            "x": x.copy(),
            "fun": value,
            "jac": gradient,
            "nit": progress.iteration,
            "proved": _proved(progress, gap, radius),
            "success": _succeeded(progress, status, final),
            "status": status,
            "message": " ".join(filter(None, [MESSAGES[status], detail])),
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
        scaled = cuts is not None and cuts.region.change is not None
        space = " in the scaled coordinates" if scaled else ""
        where += f" within {rounded_down(radius)} of x0{space}"
    if gap < 0.0:
        return f"f(x) is below every value{where}, so no minimiser is there"
    minimum = "minimum over the set" if in_set else "minimum"
    lowest = f"lowest value{where}" if radius < math.inf else minimum
    above = f"at most {rounded_up(gap)} above " if gap > 0.0 else ""
    return f"f(x) is {above}the {lowest}"


def rounded_up(number: float, digits: int = 2) -> str:
    """Return a number in few digits, not below it."""
    return _rounded(number, Context(digits, ROUND_CEILING))


def rounded_down(number: float, digits: int = 3) -> str:
    """Return a number in few digits, not above it."""
    return _rounded(number, Context(digits, ROUND_FLOOR))


def _rounded(number: float, context: Context) -> str:
    short = context.create_decimal(Decimal(number))
    return f"{float(short):.{context.prec}g}"


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


def _reach(progress: Progress, radius: float) -> str:
    cuts = progress.bracket.cuts
    if cuts is None or not radius < math.inf:
        return ""
    space = "" if cuts.region.change is None else ", in the scaled coordinates"
    return f"It is proved for points within {rounded_down(radius)} of x0{space}."


def _succeeded(progress: Progress, status: Status, final: Evaluation | None) -> bool:
    """Return whether the run did what was asked for: the goal's gap, or else a planned end."""
    options = progress.options
    if status is Status.STATIONARY and options.has_goal:
        return final is not None and progress.bracket.proved(final)
    planned = status in (Status.MAX_ITER, Status.AT_ROUNDING, Status.STATIONARY)
    reached = status in (Status.CONVERGED, Status.TARGET_REACHED)
    return (planned and not options.has_end) or reached
