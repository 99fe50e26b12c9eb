"""From problems to coefficients with a certified gap: the calls of `minimize`.

An estimator's `tol` is relative to the objective itself, which a user can judge without knowing the
units of the data: it is the `rtol` of `minimize`, with a small absolute one for a minimum of zero.

A `LinearModel` is handed over with its l1 term and its set, and `accelegrad.choose` decides. Small
ones need no run: the same steps and bounds are called without one, which saves half to two thirds
of the time of a fit to 100 rows. The multinomial model is a function to `minimize`. Where its dual
bounds the minimum, a callback looks at that bound and stops the run, which is one of Newton's
method unless a diameter is given. Otherwise the function is given in scaled coordinates where that
is possible.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import OptimizeResult
from sklearn.utils.parallel import Parallel, delayed

from accelegrad.catalogue import INTERIOR, PROXIMAL
from accelegrad.choose import Request, Space, choose
from accelegrad.errors import Vector
from accelegrad.front_door import minimize
from accelegrad.geometry.penalties import L1
from accelegrad.models.linear_model import LinearModel
from accelegrad.models.multinomial import MultinomialModel, PartedClasses
from accelegrad.models.sampling import BatchSampler
from accelegrad.models.scaling import ColumnScaling, column_scaling
from accelegrad.proofs.model_dual import ModelDual
from accelegrad.proofs.multinomial_dual import MultinomialDual
from accelegrad.run.result import Status
from accelegrad.sklearn.objective import Problem
from accelegrad.solvers.interior_point import Found, interior_points
from accelegrad.solvers.multinomial_newton import (
    CurvedClasses,
    SampledClasses,
    TruncatedNewton,
)

#: An objective below this share of what a constant prediction gets counts as this share: a minimum
#: of zero would never be met to a relative tolerance. Chosen: `tol` documents it.
NEGLIGIBLE = 1e-3
#: A callback is called whenever the number of iterations has grown by this factor (after each of
#: the first 20, then): it adds a twentieth to the iterations at most. Chosen.
LOOK_SPACING = 1.05
#: By what share a run aims below `tol`: the objective is computed again, in float64, for the point
#: that is kept, and may come out a little larger.
MARGIN = 1e-3

#: What `method_` says of Newton's method with conjugate gradients, for several classes.
TRUNCATED = "truncated-newton"

Score = Callable[[Vector], float]


@dataclass(frozen=True)
class Settings:
    """How to solve: what `minimize` is given, and when to stop."""

    max_iter: int
    tol: float | None
    batch_size: int | None
    diameter: float | str
    output: str
    n_iter_no_change: int
    progress: bool

    @property
    def leaves_all_open(self) -> bool:
        """Whether nothing but a tolerance is asked for, not even a progress bar."""
        no_wishes = self.batch_size is None and self.diameter == self.output == "auto"
        return no_wishes and self.tol is not None and not self.progress


class Tolerance(NamedTuple):
    """The gap that is small enough, by the objective."""

    tol: float | None
    floor: float  # objectives below it count as this

    @classmethod
    def of(cls, problem: Problem, settings: Settings) -> Tolerance:
        """Return the tolerance of a problem."""
        return cls(settings.tol, NEGLIGIBLE * problem.null_value)

    @property
    def aim(self) -> float | None:
        """The relative gap at which a run ends."""
        return None if self.tol is None else (1.0 - MARGIN) * self.tol

    def target(self, value: float) -> float:
        """Return the gap that is small enough for this objective; below zero without a `tol`."""
        return -1.0 if self.tol is None else self.tol * max(value, self.floor)

    def goal(self, value: float) -> float:
        """Return the gap that a run aims at."""
        return (self.aim or 0.0) * max(value, self.floor)

    def absolute(self) -> float | None:
        """Return the `tol` of `minimize`, which ends runs whose minimum is about 0.

        `minimize` multiplies it by max(1, objective): that is never above the gap that is allowed.
        """
        # None where it would be zero: then a constant fits, and only a gap of zero is small enough.
        return None if self.aim is None else self.aim * min(1.0, self.floor) or None


class Fit(NamedTuple):
    """The parameters found and what is known of them."""

    parameters: Vector
    objective: float
    gap: float
    target: float  # the gap that is small enough; below zero without a tolerance
    certified_radius: float
    n_iter: int
    evident: bool  # whether there is evidence of a minimiser in the region of the bound
    message: str
    interrupted: bool  # by Ctrl-C
    method: str
    stopped: bool = False  # by early stopping

    @property
    def converged(self) -> bool:
        """Whether the certified gap of these very parameters is within the tolerance."""
        return self.gap <= self.target and self.evident

    @property
    def missed(self) -> bool:
        """Whether there is a tolerance, and it was missed without early stopping."""
        return self.target >= 0.0 and not (self.converged or self.stopped)


def total(fits: Sequence[Fit]) -> Fit:
    """Return several fits as one, of the sum of their problems."""
    if len(fits) == 1:
        return fits[0]
    return Fit(
        np.array([fit.parameters for fit in fits]),
        sum(fit.objective for fit in fits),
        sum(fit.gap for fit in fits),
        sum(fit.target for fit in fits),
        min(fit.certified_radius for fit in fits),
        max(fit.n_iter for fit in fits),
        all(fit.evident for fit in fits),
        next((fit.message for fit in fits if not fit.converged), fits[0].message),
        any(fit.interrupted for fit in fits),
        ", ".join(dict.fromkeys(fit.method for fit in fits)),
        all(fit.converged or fit.stopped for fit in fits),
    )


def solve(
    problems: Sequence[Problem],
    settings: Settings,
    starts: Sequence[Vector],
    seed: int,
    n_jobs: int | None = None,
    scores: Sequence[Score] | None = None,
) -> list[Fit]:
    """Minimise problems that differ in their targets, and say what is proved of each.

    Parameters
    ----------
    problems, settings
        What to minimise, and how.
    starts : sequence of Vector
        A feasible point for each problem.
    seed : int
        For the random rows of minibatches.
    n_jobs : int, optional
        Processes that share the problems.
    scores : sequence of callables, optional
        The score of parameters on held-out rows, for each problem: a run ends when it stalls, and
        the parameters with the best one are kept.
    """
    fits: dict[int, Fit] = {}
    without_run = scores is None and settings.leaves_all_open
    tried = ""
    if without_run and _is_for_interior_points(problems[0]):
        fits, tried = _by_interior_points(problems, settings, starts), INTERIOR
    elif without_run:
        each = enumerate(zip(problems, starts, strict=True))
        found = {place: _directly(problem, settings, start) for place, (problem, start) in each}
        fits = {place: fit for place, fit in found.items() if fit is not None}
    missing = [place for place in range(len(problems)) if place not in fits]
    calls = []
    for place in missing:
        problem, watch = problems[place], None
        if scores is not None:
            watch = EarlyStopping(scores[place], problem, settings)
        given = problem, settings, starts[place], seed, watch
        if isinstance(problem.model, LinearModel):
            calls.append(partial(_solved_model, *given, tried=tried))
        else:
            calls.append(partial(_solved_classes, *given))
    if len(calls) == 1:  # for which joblib would take longer than small fits do
        fits[missing[0]] = calls[0]()
    elif calls:
        parts = Parallel(n_jobs=n_jobs)(delayed(call)() for call in calls)
        fits |= dict(zip(missing, parts, strict=True))
    return [fits[place] for place in range(len(problems))]


# -- without a run ---------------------------------------------------------------------------------


def _directly(problem: Problem, settings: Settings, start: Vector) -> Fit | None:
    """Return the fit of a small problem that needs no run; None where its gap is too large."""
    direct, terms, tolerance = problem.direct, problem.terms, Tolerance.of(problem, settings)
    if terms is None:
        return None
    if tolerance.floor == 0.0 and problem.value(start) == 0.0:  # a constant fits, and 0 is proved
        return _proved(tolerance, start, 0.0, 0.0, 0, PROXIMAL)
    if direct is None:
        return None
    found = direct.minimum(terms, start, tolerance.goal, settings.max_iter)
    fit = None if found is None else _proved(tolerance, *found, method=PROXIMAL)
    return fit if fit is not None and fit.converged else None


def request_of(problem: Problem) -> Request:
    """Return what decides on the method where all is left open."""
    model = problem.model
    assert isinstance(model, LinearModel)
    start = np.zeros(model.n_parameters)
    return Request(model, Space(start, problem.feasible_set, problem.penalty()))


def _is_for_interior_points(problem: Problem) -> bool:
    """Return whether the row of the interior-point method is the first in `TABLE` that holds."""
    in_table = isinstance(problem.model, LinearModel)
    return in_table and request_of(problem).few_rows_with_one_kink


def _by_interior_points(
    problems: Sequence[Problem], settings: Settings, starts: Sequence[Vector]
) -> dict[int, Fit]:
    """Return the fits, by place, that the interior-point method finds, all of them together.

    The tolerance is on the sum of their objectives, as it is documented: half of it is shared out
    by the objectives, half evenly, so that a class that is easy to tell from the rest need not be
    exact to many digits more than the others.
    """
    models = [problem.model for problem in problems if isinstance(problem.model, LinearModel)]
    terms = problems[0].terms
    assert terms is not None
    tolerances = [Tolerance.of(problem, settings) for problem in problems]
    aim, floors = tolerances[0].aim or 0.0, np.array([each.floor for each in tolerances])
    fits: dict[int, Fit] = {}

    def allowed(values: Vector, bounds: Vector) -> Vector:
        shared = float(np.maximum(bounds, floors).mean())
        return np.asarray(aim * 0.5 * (np.maximum(values, floors) + shared))

    def proved(place: int, point: Found, gap: float) -> bool:
        problem, x = problems[place], point.parameters
        value = models[place].value(x) + problem.l1_value(x)
        bound = ModelDual(models[place], problem.terms).at_slopes(point.slopes)
        known = x, value, bound, point.steps, INTERIOR
        fits[place] = _proved(tolerances[place], *known)
        return fits[place].gap <= gap

    interior_points(models, terms, starts, allowed, proved, settings.max_iter)
    if len(fits) == len(problems) and total(list(fits.values())).converged:
        return fits
    return {place: fit for place, fit in fits.items() if fit.converged}


def _proved(
    tolerance: Tolerance, x: Vector, value: float, bound: float, steps: int, method: str
) -> Fit:
    """Return the fit of parameters whose objective has a lower bound that holds everywhere."""
    gap = abs(value - max(bound, 0.0))  # losses and penalties are nonnegative
    target, message = tolerance.target(value), Status.CONVERGED.message
    return Fit(x, value, gap, target, math.inf, steps, True, message, False, method)


# -- by a run of `minimize` ------------------------------------------------------------------------


class EarlyStopping:
    """A callback that keeps the point with the best score, and ends a run when scores stall."""

    def __init__(self, score: Score, problem: Problem, settings: Settings) -> None:
        self._score, self._problem, self._batch = score, problem, settings.batch_size
        # A step of a few rows says little about the score: then time is counted in steps, and a
        # pass over all rows is worth a look.
        steps = 1 if self._batch is None else math.ceil(problem.model.n_samples / self._batch)
        self._patience = settings.n_iter_no_change * steps
        self._looks = self._best_at = 0
        self._best_score = -math.inf
        self.best: Vector | None = None

    def __call__(self, intermediate_result: OptimizeResult) -> None:
        """Look at a run."""
        with self._problem.single_thread():  # `minimize` takes it for a user's function
            self.look(intermediate_result.x, int(intermediate_result.nit))

    def look(self, x: Vector, steps: int) -> None:
        """Judge the parameters after some steps."""
        score, self._looks = self._score(x), self._looks + 1
        now = self._looks if self._batch is None else steps
        if score > self._best_score:
            self.best, self._best_score, self._best_at = x, score, now
        elif now - self._best_at >= self._patience:
            raise StopIteration

    def take_best(self, result: OptimizeResult) -> None:
        """Put the best point in the place of the one that a run returns."""
        if self.best is not None:
            ended = result.status in (Status.CALLBACK, Status.CONVERGED, Status.STATIONARY)
            result.update(x=self.best, fun=math.nan, stopped=ended)


def _options(settings: Settings, tolerance: Tolerance) -> dict[str, Any]:
    """Return what `minimize` is given for any problem."""
    return {
        "diameter": settings.diameter,
        "output": settings.output,
        "max_iter": settings.max_iter,
        "tol": tolerance.absolute(),
        "rtol": tolerance.aim,
        "progress": settings.progress,
    }


def _solved_model(
    problem: Problem,
    settings: Settings,
    start: Vector,
    seed: int,
    watch: EarlyStopping | None,
    tried: str = "",
) -> Fit:
    """Hand the model over as it is; `tried` is a method that has not proved enough."""
    model, tolerance = problem.model, Tolerance.of(problem, settings)
    assert isinstance(model, LinearModel)
    options = _options(settings, tolerance)
    if tried:
        options["method"] = choose(request_of(problem), tried=tried).name
    if settings.batch_size is not None:
        # At most all rows: folds and held-out parts leave fewer of them.
        options["batch_size"] = min(settings.batch_size, model.n_samples)
    if watch is not None:
        options |= {"callback": watch, "callback_at": looks(settings.max_iter)}
    result = minimize(
        model,
        start,
        penalty=L1(problem.l1) if problem.l1 > 0.0 else None,  # not of the intercept
        feasible_set=problem.feasible_set,
        rng=seed,
        **options,
    )
    if watch is not None:
        watch.take_best(result)
    return _fit(problem, tolerance, result)


class ClassesFunction:
    """A multinomial problem's smooth part as `minimize` sees it, and the bound by its dual.

    Parameters
    ----------
    problem : Problem
        The problem.
    free_method : bool
        Whether the method may be chosen: then it is Newton's where there is a bound; otherwise
        coordinates are scaled where the set allows it.
    sampler : BatchSampler, optional
        Draws the rows from which values and gradients are estimated; all are used by default.
    """

    def __init__(
        self, problem: Problem, *, free_method: bool, sampler: BatchSampler | None = None
    ) -> None:
        model = problem.model
        assert isinstance(model, MultinomialModel)
        self.problem, self._model, self._sampler = problem, model, sampler
        self.is_proved = problem.is_free and model.l2 > 0.0  # by a bound that gets tight
        self._dual = MultinomialDual(model) if self.is_proved else None
        curved = self.is_proved and free_method and sampler is None
        self.curved: CurvedClasses | None = None
        if curved and isinstance(model, PartedClasses):
            self.curved = SampledClasses(model)
        elif curved:
            self.curved = CurvedClasses(model)
        self._change: ColumnScaling | None = None
        if free_method and not curved and problem.can_be_scaled:
            self._change = column_scaling(model.rows, n_classes=model.n_classes)
        self.lower_bound = 0.0  # losses are nonnegative

    def __call__(self, v: Vector) -> tuple[float, Vector]:
        """Return value and gradient."""
        with self.problem.single_thread():  # `minimize` takes it for a user's function
            if self.curved is not None:
                return self.curved.value_and_gradient(v)
            x = self.point(v)
            if self._sampler is None:
                value, gradient = self._model.value_and_gradient(x)
            else:
                value, gradient = self._model.batch_value_and_gradient(x, self._sampler.next_rows())
            return value, gradient if self._change is None else self._change.adjoint(gradient)

    def point(self, v: Vector) -> Vector:
        """Return the parameters at a point of the run."""
        return v if self._change is None else self._change.apply(v)

    def start(self, x: Vector) -> Vector:
        """Return the point of the run for these parameters."""
        return x if self._change is None else self._change.invert(x)

    def terms(self) -> dict[str, Any]:
        """Return penalty and set in the coordinates of the run."""
        penalty, chosen, change = self.problem.penalty(), self.problem.feasible_set, self._change
        if change is not None:
            penalty = change.scaled_penalty(penalty)
            chosen = change.scaled_set(chosen, self._model.n_parameters)
        return {"penalty": penalty, "feasible_set": chosen}

    def raise_bound(self, x: Vector) -> None:
        """Bring the lower bound up to date with what is known at a point."""
        if self._dual is not None:
            self.lower_bound = max(self.lower_bound, self._dual.at(x))

    def proves(self, x: Vector, value: float, tolerance: Tolerance) -> bool:
        """Tell whether the bound of the dual proves enough at a point."""
        goal = tolerance.goal(value)
        # The bound costs some passes: it is computed where it may well prove enough.
        promising = self.curved is None or self.curved.expected_gap(x) <= 2.0 * goal
        if value - self.lower_bound > goal and promising:
            self.raise_bound(x)
        # A gap below zero refutes what it rests on.
        return -self.problem.rounding(value) <= value - self.lower_bound <= goal


def _solved_classes(
    problem: Problem,
    settings: Settings,
    start: Vector,
    seed: int,
    watch: EarlyStopping | None,
) -> Fit:
    """Hand over a function, to Newton's method or of scaled coordinates where possible."""
    tolerance, sampler = Tolerance.of(problem, settings), None
    if settings.batch_size is not None:
        n = problem.model.n_samples
        sampler = BatchSampler(n, min(settings.batch_size, n), np.random.default_rng(seed))
    function = ClassesFunction(problem, free_method=settings.diameter == "auto", sampler=sampler)
    options = _options(settings, tolerance) | function.terms() | {"exact": sampler is None}
    if sampler is not None or function.is_proved:
        options |= {"tol": None, "rtol": None}  # the dual decides, if anything
    bounded = function.is_proved and settings.tol is not None

    def look(intermediate_result: OptimizeResult) -> None:
        with problem.single_thread():  # `minimize` takes it for a user's function
            x, value = function.point(intermediate_result.x), float(intermediate_result.fun)
            if watch is not None:
                watch.look(x, int(intermediate_result.nit))
            if not bounded:
                return
            # The value at an average or a last point is not known to a run without a goal, and
            # with minibatches it is an estimate.
            if not math.isfinite(value) or sampler is not None:
                value = problem.value(x)
            if function.proves(x, value, tolerance):
                raise StopIteration

    if bounded or watch is not None:
        options |= {"callback": look, "callback_at": looks(settings.max_iter)}
    if function.curved is not None:
        l2 = problem.model.l2

        def small_gradient(value: float) -> float:
            """Return the norm with which the dual proves enough; 0 without a tolerance."""
            return math.sqrt(2.0 * l2 * tolerance.goal(value))

        options["method"] = TruncatedNewton(function.curved, small_gradient)
    result = minimize(function, function.start(start), **options)
    if function.curved is not None:
        result["method"] = TRUNCATED
    x = result["x"] = problem.nearest(function.point(result.x))
    if function.is_proved:
        function.raise_bound(x)
        # What the run itself knows is about a region that it guessed.
        result.update(lower_bound=function.lower_bound, certified_radius=math.inf)
    if watch is not None:
        watch.take_best(result)
    return _fit(problem, tolerance, result)


def looks(max_iter: int) -> list[int]:
    """Return the iterations after which the callback is called."""
    count = math.ceil(math.log(max_iter, LOOK_SPACING))
    return sorted({min(math.ceil(LOOK_SPACING**power), max_iter) for power in range(count + 1)})


def _fit(problem: Problem, tolerance: Tolerance, result: OptimizeResult) -> Fit:
    """Judge the point that a run returns."""
    x = problem.nearest(result.x)
    # A run of a model has judged its point in float64; others are judged here.
    is_judged = x is result.x and isinstance(problem.model, LinearModel)
    value = float(result.fun) if is_judged and math.isfinite(result.fun) else problem.value(x)
    bound, radius, message = result.lower_bound, result.certified_radius, str(result.message)
    if not value - bound >= -problem.rounding(value):
        bound, message = 0.0, "The minimum is not within the given or guessed diameter."
    if bound <= 0.0:  # losses and penalties are nonnegative: what always holds is better
        bound, radius = 0.0, math.inf
    return Fit(
        x,
        value,
        abs(value - bound),  # below zero it is rounding, of about this size
        tolerance.target(value),
        radius,
        int(result.nit),
        radius == math.inf or not _falls_beyond(problem, x, bound, radius),
        message,
        result.status is Status.INTERRUPTED,
        str(result["method"]),
        bool(result.get("stopped", False)),
    )


def _falls_beyond(problem: Problem, x: Vector, bound: float, radius: float) -> bool:
    """Tell whether the objective falls below its bound beyond the region of the bound.

    `minimize` takes a diameter that is given for true; a user may have guessed it.
    """
    _, gradient = problem.model.value_and_gradient(x)
    direction = gradient / max(float(np.linalg.norm(gradient)), np.finfo(float).tiny)
    points = (x - 4.0**power * radius * direction for power in range(1, 11))  # up to a million
    return any(problem.value(problem.nearest(point)) < bound for point in points)
