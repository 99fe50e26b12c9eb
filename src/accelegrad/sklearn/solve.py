"""From problems to coefficients with a certified gap: the calls of `minimize`.

An estimator's `tol` is relative to the objective, so it does not depend on the units of the data.

A `LinearModel` is passed on with its l1 term and set, and `accelegrad.choose` selects the method;
small ones are solved without a run, which halves the time of a fit to 100 samples. A multinomial
model is passed on as a function. If its dual gives a lower bound, a callback stops the run by that
bound; the method is Newton's unless a diameter is given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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

#: Objectives below this share of a constant prediction's count as this share, since a relative
#: tolerance cannot be met at a minimum of zero. Chosen; documented under `tol`.
NEGLIGIBLE = 1e-3
#: A callback is called each time the number of iterations has grown by this factor, so it adds at
#: most a twentieth to the iterations. Chosen.
LOOK_SPACING = 1.05
#: A run aims this share below `tol`, since the final objective, recomputed in float64, may be a
#: little larger. Chosen.
MARGIN = 1e-3

#: `method_` of Newton's method with conjugate gradients, for several classes
TRUNCATED = "truncated-newton"


@dataclass(frozen=True)
class Settings:
    """How to solve: arguments of `minimize`, and when to stop."""

    max_iter: int
    tol: float | None
    batch_size: int | None
    diameter: float | str
    output: str
    n_iter_no_change: int
    progress: bool

    @property
    def leaves_all_open(self) -> bool:
        """Whether nothing but a tolerance is given, not even a progress bar."""
        no_wishes = self.batch_size is None and self.diameter == self.output == "auto"
        return no_wishes and self.tol is not None and not self.progress


class Tolerance(NamedTuple):
    """The sufficient gap as a function of the objective."""

    tol: float | None
    floor: float  # smaller objectives count as this

    @classmethod
    def of(cls, problem: Problem, settings: Settings) -> Tolerance:
        """Return the tolerance of a problem."""
        return cls(settings.tol, NEGLIGIBLE * problem.null_value)

    @property
    def aim(self) -> float | None:
        """The relative gap at which a run stops."""
        return None if self.tol is None else (1.0 - MARGIN) * self.tol

    def target(self, value: float) -> float:
        """Return the sufficient gap for this objective; negative without a `tol`."""
        return -1.0 if self.tol is None else self.tol * max(value, self.floor)

    def goal(self, value: float) -> float:
        """Return the gap that a run aims at."""
        return (self.aim or 0.0) * max(value, self.floor)

    def absolute(self) -> float | None:
        """Return the `tol` of `minimize`, which stops runs whose minimum is about 0.

        `minimize` multiplies it by max(1, objective), which never exceeds the sufficient gap.
        """
        # None where it would be zero: then a constant fits, and only a gap of zero suffices.
        return None if self.aim is None else self.aim * min(1.0, self.floor) or None


class Fit(NamedTuple):
    """The parameters found, and what is proved about them."""

    parameters: Vector
    objective: float
    gap: float
    target: float  # the sufficient gap; negative without a tolerance
    certified_radius: float
    n_iter: int
    evident: bool  # whether there is evidence of a minimiser in the bound's region
    message: str
    interrupted: bool  # by Ctrl-C
    method: str
    stopped: bool = False  # by early stopping

    @property
    def converged(self) -> bool:
        """Whether the certified gap of these parameters is within the tolerance."""
        return self.gap <= self.target and self.evident

    @property
    def missed(self) -> bool:
        """Whether a given tolerance was missed without early stopping."""
        return self.target >= 0.0 and not (self.converged or self.stopped)


def total(fits: Sequence[Fit]) -> Fit:
    """Combine fits of independent problems into one of their sum."""
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
    judges: Sequence[Problem] | None = None,
) -> list[Fit]:
    """Minimise problems that differ only in their targets, starting at feasible points.

    With `judges`, the same problems on held-out samples, a run ends when the mean loss of its judge
    stalls, and returns the parameters with the least one.
    """
    fits: dict[int, Fit] = {}
    without_run = judges is None and settings.leaves_all_open
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
        if judges is not None:
            watch = EarlyStopping(judges[place], problem, settings)
        given = problem, settings, starts[place], seed, watch
        if isinstance(problem.model, LinearModel):
            calls.append(partial(_solved_model, *given, tried=tried))
        else:
            calls.append(partial(_solved_classes, *given))
    if len(calls) == 1:  # joblib would take longer than a small fit
        fits[missing[0]] = calls[0]()
    elif calls:
        parts = Parallel(n_jobs=n_jobs)(delayed(call)() for call in calls)
        fits |= dict(zip(missing, parts, strict=True))
    return [fits[place] for place in range(len(problems))]


# -- without a run ---------------------------------------------------------------------------------


def _directly(problem: Problem, settings: Settings, start: Vector) -> Fit | None:
    """Solve a small problem without a run; return None if the gap is too large."""
    direct, terms, tolerance = problem.direct, problem.terms, Tolerance.of(problem, settings)
    if terms is None:
        return None
    if tolerance.floor == 0.0 and problem.value(start) == 0.0:  # a constant fits exactly
        return _proved(tolerance, start, 0.0, 0.0, 0, PROXIMAL)
    if direct is None:
        return None
    found = direct.minimum(terms, start, tolerance.goal, settings.max_iter)
    fit = None if found is None else _proved(tolerance, *found, method=PROXIMAL)
    return fit if fit is not None and fit.converged else None


def request_of(problem: Problem) -> Request:
    """Return what determines the method if everything is left open."""
    model = problem.model
    assert isinstance(model, LinearModel)
    start = np.zeros(model.n_parameters)
    return Request(model, Space(start, problem.feasible_set, problem.penalty()))


def _is_for_interior_points(problem: Problem) -> bool:
    """Return whether the interior-point method has the first row in `TABLE` that holds."""
    model = problem.model
    has_kinks = isinstance(model, LinearModel) and math.isinf(model.loss.curvature)
    return has_kinks and request_of(problem).few_rows_with_one_kink


def _by_interior_points(
    problems: Sequence[Problem], settings: Settings, starts: Sequence[Vector]
) -> dict[int, Fit]:
    """Solve problems together by the interior-point method; return the fits by index.

    The tolerance is on the sum of the objectives. Half of it is shared in proportion to the
    objectives and half evenly, so an easily separated class need not be solved more accurately.
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
    gap = abs(value - max(bound, 0.0))  # losses and penalties are nonnegative
    target, message = tolerance.target(value), Status.CONVERGED.message
    return Fit(x, value, gap, target, math.inf, steps, True, message, False, method)


# -- by a run of `minimize` ------------------------------------------------------------------------


class EarlyStopping:
    """A callback that keeps the point with the least held-out loss, and stops when it stalls."""

    def __init__(self, judge: Problem, problem: Problem, settings: Settings) -> None:
        self._judge, self._problem, self._batch = judge.model, problem, settings.batch_size
        # With minibatches, iterations are counted in steps, and patience in epochs.
        steps = 1 if self._batch is None else math.ceil(problem.model.n_samples / self._batch)
        self._patience = settings.n_iter_no_change * steps
        self._looks = self._best_at = 0
        self._least = math.inf
        self.best: Vector | None = None

    def __call__(self, intermediate_result: OptimizeResult) -> None:
        """Judge an intermediate result."""
        with self._problem.single_thread():  # `minimize` treats it as a user's function
            self.look(intermediate_result.x, int(intermediate_result.nit))

    def look(self, x: Vector, steps: int) -> None:
        """Judge the parameters after some steps."""
        loss, self._looks = float(self._judge.at(x).mean_loss), self._looks + 1
        now = self._looks if self._batch is None else steps
        if loss < self._least:
            self.best, self._least, self._best_at = x, loss, now
        elif now - self._best_at >= self._patience:
            raise StopIteration

    def take_best(self, result: OptimizeResult) -> None:
        """Replace the point of the result by the best one."""
        if self.best is not None:
            ended = result.status in (Status.CALLBACK, Status.CONVERGED, Status.STATIONARY)
            result.update(x=self.best, fun=math.nan, stopped=ended)


def _options(settings: Settings, tolerance: Tolerance) -> dict[str, Any]:
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
    """Pass the model to `minimize`; `tried` is a method that did not prove enough."""
    model, tolerance = problem.model, Tolerance.of(problem, settings)
    assert isinstance(model, LinearModel)
    options = _options(settings, tolerance)
    if tried:
        options["method"] = choose(request_of(problem), tried=tried).name
    if settings.batch_size is not None:
        # Folds and held-out parts may leave fewer samples than batch_size.
        options["batch_size"] = min(settings.batch_size, model.n_samples)
    if watch is not None:
        options |= {"callback": watch, "callback_at": looks(settings.max_iter)}
    result = minimize(
        model,
        start,
        penalty=L1(problem.l1) if problem.l1 > 0.0 else None,  # without the intercept
        feasible_set=problem.feasible_set,
        rng=seed,
        **options,
    )
    if watch is not None:
        watch.take_best(result)
    return _fit(problem, tolerance, result)


class ClassesFunction:
    """The smooth part of a multinomial problem as `minimize` sees it, and its dual bound.

    If `free_method`, the method is Newton's where there is a bound; otherwise coordinates are
    scaled if the set allows it. A `sampler` draws the minibatches; without one, all samples are
    used.
    """

    def __init__(
        self, problem: Problem, *, free_method: bool, sampler: BatchSampler | None = None
    ) -> None:
        model = problem.model
        assert isinstance(model, MultinomialModel)
        self.problem, self._model, self._sampler = problem, model, sampler
        self.is_proved = problem.is_free and model.l2 > 0.0  # by a bound that becomes tight
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
        with self.problem.single_thread():  # `minimize` treats it as a user's function
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
        """Return the run's point for these parameters."""
        return x if self._change is None else self._change.invert(x)

    def terms(self) -> dict[str, Any]:
        """Return penalty and set in the run's coordinates."""
        penalty, chosen, change = self.problem.penalty(), self.problem.feasible_set, self._change
        if change is not None:
            penalty = change.scaled_penalty(penalty)
            chosen = change.scaled_set(chosen, self._model.n_parameters)
        return {"penalty": penalty, "feasible_set": chosen}

    def raise_bound(self, x: Vector) -> None:
        """Update the lower bound with the dual bound at a point."""
        if self._dual is not None:
            self.lower_bound = max(self.lower_bound, self._dual.at(x))

    def proves(self, x: Vector, value: float, tolerance: Tolerance) -> bool:
        """Return whether the dual bound proves enough at a point."""
        goal = tolerance.goal(value)
        # The bound costs several passes: it is computed only if it may prove enough.
        promising = self.curved is None or self.curved.expected_gap(x) <= 2.0 * goal
        if value - self.lower_bound > goal and promising:
            self.raise_bound(x)
        # A negative gap would refute the bound.
        return -self.problem.rounding(value) <= value - self.lower_bound <= goal


def _solved_classes(
    problem: Problem,
    settings: Settings,
    start: Vector,
    seed: int,
    watch: EarlyStopping | None,
) -> Fit:
    """Pass a function to `minimize`, with Newton's method or scaled coordinates if possible."""
    tolerance, sampler = Tolerance.of(problem, settings), None
    if settings.batch_size is not None:
        n = problem.model.n_samples
        sampler = BatchSampler(n, min(settings.batch_size, n), np.random.default_rng(seed))
    function = ClassesFunction(problem, free_method=settings.diameter == "auto", sampler=sampler)
    options = _options(settings, tolerance) | function.terms() | {"exact": sampler is None}
    if sampler is not None or function.is_proved:
        options |= {"tol": None, "rtol": None}  # only the dual bound decides
    bounded = function.is_proved and settings.tol is not None

    def look(intermediate_result: OptimizeResult) -> None:
        with problem.single_thread():  # `minimize` treats it as a user's function
            x, value = function.point(intermediate_result.x), float(intermediate_result.fun)
            if watch is not None:
                watch.look(x, int(intermediate_result.nit))
            if not bounded:
                return
            # Without a goal a run does not know the value at an average or last point, and with
            # minibatches it is an estimate.
            if not math.isfinite(value) or sampler is not None:
                value = problem.value(x)
            if function.proves(x, value, tolerance):
                raise StopIteration

    if bounded or watch is not None:
        options |= {"callback": look, "callback_at": looks(settings.max_iter)}
    if function.curved is not None:
        options["method"] = TruncatedNewton(function.curved)
    result = minimize(function, function.start(start), **options)
    if function.curved is not None:
        result["method"] = TRUNCATED
    x = result["x"] = problem.nearest(function.point(result.x))
    if function.is_proved:
        function.raise_bound(x)
        # The run's own bound holds only in a region that it guessed.
        result.update(lower_bound=function.lower_bound, certified_radius=math.inf)
    if watch is not None:
        watch.take_best(result)
    return _fit(problem, tolerance, result)


def looks(max_iter: int) -> list[int]:
    """Return the iterations after which the callback is called."""
    count = math.ceil(math.log(max_iter, LOOK_SPACING))
    return sorted({min(math.ceil(LOOK_SPACING**power), max_iter) for power in range(count + 1)})


def _fit(problem: Problem, tolerance: Tolerance, result: OptimizeResult) -> Fit:
    x = problem.nearest(result.x)
    # A run of a LinearModel computed this value in float64.
    is_judged = x is result.x and isinstance(problem.model, LinearModel)
    value = float(result.fun) if is_judged and math.isfinite(result.fun) else problem.value(x)
    bound, radius, message = result.lower_bound, result.certified_radius, str(result.message)
    if not value - bound >= -problem.rounding(value):
        bound, message = 0.0, "The minimum is not within the given or guessed diameter."
    if bound <= 0.0:  # losses and penalties are nonnegative: 0 holds everywhere
        bound, radius = 0.0, math.inf
    return Fit(
        x,
        value,
        abs(value - bound),  # a negative gap is rounding error of this size
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
    """Return whether the objective falls below its bound outside the bound's region.

    `minimize` trusts a given diameter, but a user may have guessed it.
    """
    _, gradient = problem.model.value_and_gradient(x)
    direction = gradient / max(float(np.linalg.norm(gradient)), np.finfo(float).tiny)
    points = (x - 4.0**power * radius * direction for power in range(1, 11))  # up to 10^6 radii
    return any(problem.value(problem.nearest(point)) < bound for point in points)
