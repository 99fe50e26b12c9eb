"""Functions of the suite on the bench, with their minima, which are kept in minima.json.

Each minimum is known in two ways at least: by a formula, by the primal and dual objectives of
Clarabel (or of HiGHS, for linear programmes that were found before), by L-BFGS-B on smooth
functions. The lowest value counts, or the formula; how far it is from the nearest other way is kept
as its error. All values are the suite's own at points of the set, so that no method can come below
a minimum by more than that.

CVXPY is an optional package (extra `bench`), and imported here alone.
"""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize as typed_minimize

from accelegrad.errors import Vector
from accelegrad.geometry.penalties import Penalty
from accelegrad_lab.engine.fit import Rung, Sample
from accelegrad_lab.engine.tasks import put
from accelegrad_lab.engine.worker import Timing, quiet
from accelegrad_lab.functions.formulas import Case, Function

PATH = Path(__file__).with_name("minima.json")
TOLERANCES = (1e-12, 1e-10)  # Clarabel's; the second where it does not reach the first
TIME_LIMIT = 600.0  # seconds for one solution; sparse-logistic needs 150


@dataclass(frozen=True)
class Minimum:
    """A minimum, and what is known of it."""

    start: float  # f(x0): a function that was changed since shows by it
    value: float
    error: float  # the distance to the nearest other way, over f(x0) - value
    distance: float  # from x0 to the minimiser that was found
    ways: str  # which way it is of, and which is nearest


class Answer(NamedTuple):
    """What Clarabel says."""

    x: Vector  # in the set
    value: float  # of the suite's own function at x
    dual: float  # the solver's dual objective
    solved: bool  # to the tolerance that was asked for


@cache
def minima() -> dict[str, Minimum]:
    """Return the minima that are kept, by the functions' names."""
    return {name: Minimum(**kept) for name, kept in json.loads(PATH.read_text()).items()}


def has_cvxpy() -> bool:
    """Tell whether CVXPY and Clarabel are installed."""
    return find_spec("cvxpy") is not None and find_spec("clarabel") is not None


def find_minimum(function: Function) -> Minimum:
    """Find the minimum in all the ways that there are."""
    points: dict[str, tuple[float, Vector]] = {}
    figures: dict[str, float] = {}
    for tolerance in TOLERANCES:
        answer = by_clarabel(function, tolerance, TIME_LIMIT)
        if answer is not None and answer.value < points.get("Clarabel", (math.inf,))[0]:
            points["Clarabel"] = answer.value, answer.x
            figures["Clarabel's dual"] = answer.dual
        if answer is not None and answer.solved:
            break
    if function.smooth and function.feasible_set is None and function.penalty is None:
        x = _by_lbfgs(function)
        points["L-BFGS-B"] = function.value(x), x
    way = min(points, key=lambda way: points[way][0])
    value, x = points[way]
    figures |= {other: found for other, (found, _) in points.items()}
    if function.minimum is not None:
        way, value = "formula", function.minimum
    others = {other: figure for other, figure in figures.items() if other != way}
    nearest = min(others, key=lambda other: abs(others[other] - value))
    start = function.value(function.x0)
    return Minimum(
        start=start,
        value=value,
        error=abs(others[nearest] - value) / (start - value),
        distance=float(np.linalg.norm(x - function.x0)),
        ways=f"{way}, {nearest}",
    )


def by_clarabel(function: Function, tolerance: float, time_limit: float) -> Answer | None:
    """State a function, solve it by Clarabel; None where there is no point within the limit."""
    import cvxpy as cp

    x = cp.Variable(function.x0.size)
    limits = [] if function.limits is None else function.limits(cp, x)
    problem = cp.Problem(cp.Minimize(function.statement(cp, x)), limits)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "may be inaccurate": that is measured here
        accept = {"accept_unknown": True}  # a point short of the tolerance is a point
        data, chain, inverse = problem.get_problem_data(cp.CLARABEL, solver_opts=accept)
        options = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), tolerance)
        options["time_limit"] = time_limit
        raw = chain.solve_via_data(problem, data, solver_opts=options)
        try:
            problem.unpack_results(raw, chain, inverse)
        except cp.SolverError:
            return None
    if x.value is None:
        return None
    point: Vector = np.array(x.value, dtype=np.float64)
    if function.feasible_set is not None:
        point = function.feasible_set.project(point)
    dual = float(raw.obj_val_dual + problem.value - raw.obj_val)
    return Answer(point, function.value(point), dual, str(raw.status) == "Solved")


def _by_lbfgs(function: Function) -> Vector:
    """Return where L-BFGS-B ends when only rounding ends it."""
    options = {"maxiter": 50_000, "maxfun": 50_000, "ftol": 0.0, "gtol": 0.0, "maxcor": 50}
    scipy_minimize: Any = typed_minimize  # its stubs allow no plain arrays
    result = scipy_minimize(function.fun, function.x0, jac=True, method="L-BFGS-B", options=options)
    found: Vector = result.x
    return found


def write_minima(cases: Iterable[Case]) -> dict[str, Minimum]:
    """Find minima anew and keep them beside those of the other functions."""
    kept = json.loads(PATH.read_text()) if PATH.exists() else {}
    for case in cases:
        kept[case.name] = asdict(find_minimum(case.build()))
        put(PATH, json.dumps(kept, indent=1, sort_keys=True) + "\n")
    minima.cache_clear()
    return minima()


# -- on the bench: calls are counted, and how soon an accuracy is reached --------------------------


ACCURACIES = (1e-2, 1e-4, 1e-6, 1e-8)
MOST_CALLS = 5000  # of one run; chosen
WARM_CALLS = 30  # of the run before the first one that is timed; chosen
OUTSIDE = 1e-10  # how far from the set a point may be, over 1 + its norm: rounding of projections


class Enough(BaseException):
    """The last accuracy is reached, or a limit is. No solver mistakes it for a failure."""


class Recorder:
    """What a method minimises: the function with a count, a clock and limits.

    Points that the method evaluates are judged, whatever it returns: f - f* over f(x0) - f*, the
    penalty included. Points outside of the set do not count. The clock stands still while a point
    is judged. The run ends with `Enough` at the last accuracy or at a limit.
    """

    def __init__(
        self,
        function: Function,
        minimum: float,
        max_calls: int,
        max_seconds: float,
        accuracies: tuple[float, ...] = ACCURACIES,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.function = function
        self.minimum = minimum
        self.scale = function.value(function.x0) - minimum
        self.max_calls, self.max_seconds = max_calls, max_seconds
        self.accuracies = accuracies
        self.calls = 0
        self.accuracy = math.inf
        self.reached: dict[float, Rung] = {}  # the first point of an accuracy
        self._apart = 0.0
        self._clock = clock
        self._begun = clock()

    def start(self) -> None:
        """Start the clock."""
        self._begun, self._apart = self._clock(), 0.0

    def fun(self, x: Vector) -> tuple[float, Vector]:
        """Return f and its gradient, without the penalty."""
        value, gradient = self.function.fun(x)
        self._judge(x, value, self.function.penalty)
        return value, gradient

    def whole(self, x: Vector) -> tuple[float, Vector]:
        """Return f + penalty and a subgradient of the sum."""
        value, gradient = self.function.whole(x)
        self._judge(x, value)
        return value, gradient

    def prox(self, x: Vector, step: float) -> Vector:
        """Return the projection, or the penalty's proximal point."""
        if self.function.feasible_set is not None:
            return self.function.feasible_set.project(x)
        if self.function.penalty is not None:
            return self.function.penalty.prox(x, step)
        return x

    def _judge(self, x: Vector, value: float, penalty: Penalty | None = None) -> None:
        """Note the accuracy of a point; `penalty` is not in its value yet."""
        self.calls += 1
        now = self._clock()
        seconds = now - self._begun - self._apart
        total = value if penalty is None else value + penalty.value(x)
        accuracy = (total - self.minimum) / self.scale
        if accuracy < self.accuracy and self._inside(x):
            self.accuracy = accuracy
            for wanted in self.accuracies:
                if accuracy <= wanted and wanted not in self.reached:
                    self.reached[wanted] = Rung(wanted, seconds, total, calls=self.calls)
        self._apart += self._clock() - now
        if self.accuracies[-1] in self.reached:
            raise Enough
        if self.calls >= self.max_calls or seconds > self.max_seconds:
            raise Enough

    def _inside(self, x: Vector) -> bool:
        if self.function.feasible_set is None:
            return True
        distance = np.linalg.norm(self.function.feasible_set.project(x) - x)
        return bool(distance <= OUTSIDE * (1.0 + np.linalg.norm(x)))


@dataclass(frozen=True)
class FunctionContest:
    """A function of the suite with its minimum."""

    case: Case
    floor: float = 0.0

    @cached_property
    def function(self) -> Function:
        """The function."""
        return self.case.build()

    @property
    def known(self) -> Minimum:
        """Its minimum, as it is kept."""
        return minima()[self.case.name]

    @property
    def words(self) -> str:
        """What it is."""
        return f"{self.case.words}; minimum {self.known.value:.12g} ({self.known.ways})"

    @property
    def start(self) -> float:
        """The value at the start."""
        return self.function.value(self.function.x0)

    def minimum(self) -> tuple[float, float]:
        """Return the minimum and a lower bound: the error of the minimum below it."""
        known = self.known
        return known.value, known.value - known.error * (known.start - known.value)

    def warm_up(self, peer: Any, setting: float) -> None:
        """Run a method for a moment: what it imports and compiles is not in its times."""
        self._run(peer, setting, Timing(), 60.0, WARM_CALLS)

    def sample(self, peer: Any, setting: float, timing: Timing, limit: float) -> Sample:
        """Run a method until it or its recorder ends."""
        return self._run(peer, setting, timing, limit, MOST_CALLS)

    def _run(self, peer: Any, setting: float, timing: Timing, limit: float, calls: int) -> Sample:
        if peer.make is None:
            return self._by_clarabel(setting, timing, limit)
        told = setting < 1  # a run for this accuracy alone
        accuracies = (setting,) if told else ACCURACIES
        recorder = Recorder(self.function, self.known.value, calls, limit, accuracies, timing.clock)
        with quiet():
            timing.begun()
            recorder.start()
            try:
                result: Any = peer.make(recorder, setting * recorder.scale)
                ended = str(getattr(result, "message", "")).strip() or "by itself"
            except Enough:
                ended = ""
            except Exception as error:
                ended = f"{type(error).__name__}: {error}"
        rungs = list(recorder.reached.values())
        return Sample(rungs, "" if told else ended or "limit of calls or seconds")

    def _by_clarabel(self, tolerance: float, timing: Timing, limit: float) -> Sample:
        timing.begun()
        since = timing.clock()
        answer = by_clarabel(self.function, tolerance, limit)
        if answer is None:
            return Sample([], "no point, or the time limit")
        return Sample([Rung(tolerance, timing.clock() - since, answer.value)])
