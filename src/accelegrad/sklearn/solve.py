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
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
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
from accelegrad.models.scaling import ColumnScaling, can_scale, column_scaling
from accelegrad.proofs.certificate import ModelCertificate, joined, of_classes, of_model
from accelegrad.proofs.model_dual import ModelDual
from accelegrad.proofs.multinomial_dual import MultinomialDual
from accelegrad.run.oracle import QUIET
from accelegrad.run.result import Status
from accelegrad.sklearn.objective import Problem
from accelegrad.solvers.curvature import DirectNewton
from accelegrad.solvers.interior_point import Found, interior_points
from accelegrad.solvers.multinomial_newton import CurvedClasses, SampledClasses, TruncatedNewton

AUTO = "auto"
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
    seed: int
    n_jobs: int | None  # for problems that need runs of their own

    def target(self, problem: Problem, value: float, margin: float = 0.0) -> float:
        """Return the sufficient gap for this objective, or a share less; negative without `tol`."""
        return -1.0 if self.tol is None else (1.0 - margin) * self.tol * max(value, problem.floor)

    def options(self, problem: Problem) -> dict[str, Any]:
        """Return the arguments of `minimize`."""
        aim = None if self.tol is None else (1.0 - MARGIN) * self.tol
        return {
            "diameter": self.diameter,
            "output": self.output,
            "max_iter": self.max_iter,
            "progress": self.progress,
            "rtol": aim,
            # For minima of about 0; `minimize` multiplies it by max(1, objective), which never
            # exceeds the sufficient gap. If it is zero, a constant fits, and only no gap suffices.
            "tol": None if aim is None else aim * min(1.0, problem.floor) or None,
        }


class Fit(NamedTuple):
    """The parameters found, and what is proved about them."""

    parameters: Vector
    objective: float
    gap: float
    target: float  # the sufficient gap; negative without a tolerance
    n_iter: int
    method: str
    certified_radius: float = math.inf
    evident: bool = True  # whether there is evidence of a minimiser in the bound's region
    message: str = Status.CONVERGED.message
    interrupted: bool = False  # by Ctrl-C
    stopped: bool = False  # by early stopping
    certificate: ModelCertificate | None = None

    @property
    def converged(self) -> bool:
        """Whether the certified gap of these parameters is within the tolerance."""
        return self.gap <= self.target and self.evident


def total(fits: Sequence[Fit]) -> Fit:
    """Combine fits of independent problems into one of their sum."""
    return Fit(
        np.array([fit.parameters for fit in fits]),
        sum(fit.objective for fit in fits),
        sum(fit.gap for fit in fits),
        sum(fit.target for fit in fits),
        max(fit.n_iter for fit in fits),
        ", ".join(dict.fromkeys(fit.method for fit in fits)),
        min(fit.certified_radius for fit in fits),
        all(fit.evident for fit in fits),
        next((fit.message for fit in fits if not fit.converged), fits[0].message),
        any(fit.interrupted for fit in fits),
        all(fit.converged or fit.stopped for fit in fits),
        joined([fit.certificate for fit in fits]),
    )


def solve(
    problems: Sequence[Problem],
    settings: Settings,
    starts: Sequence[Vector] | None = None,
    judges: Sequence[Problem] | None = None,
) -> Fit:
    """Minimise the sum of problems that differ only in their targets.

    `starts` are feasible points, by default those of constant predictions. With `judges`, the same
    problems on held-out samples, a run ends when the mean loss of its judge stalls, and returns the
    parameters with the least one.
    """
    starts = starts or list(map(Problem.start, problems))
    fits: list[Any] = [None] * len(problems)
    tried, model = "", problems[0].model
    all_open = settings.batch_size is None and settings.diameter == settings.output == AUTO
    if judges is None and all_open and settings.tol is not None and not settings.progress:
        has_kinks = isinstance(model, LinearModel) and math.isinf(model.loss.curvature)
        if has_kinks and request_of(problems[0]).few_rows_with_one_kink:
            fits, tried = _by_interior_points(problems, settings, starts), INTERIOR
        else:
            fits = list(map(_directly, problems, repeat(settings), starts))
    if None in fits:
        given: Any = zip(problems, starts, judges or repeat(None), fits, strict=False)
        calls = [(*call, settings, tried) for *call, fit in given if fit is None]
        if len(calls) == 1:  # joblib would take longer than a small fit
            runs = [_by_run(*calls[0])]
        else:
            runs = Parallel(n_jobs=settings.n_jobs)(delayed(_by_run)(*call) for call in calls)
        found = iter(runs)
        fits = [next(found) if fit is None else fit for fit in fits]
    return fits[0] if len(fits) == 1 else total(fits)


# -- without a run ---------------------------------------------------------------------------------


def _directly(problem: Problem, settings: Settings, start: Vector) -> Fit | None:
    """Solve a small problem without a run; return None if the gap is too large."""
    model, terms = problem.model, problem.terms
    if not isinstance(model, LinearModel) or terms is None:
        return None
    if problem.floor == 0.0 and problem.value(start) == 0.0:  # a constant fits exactly
        target, proof = settings.target(problem, 0.0), of_model(model, terms, start, 0.0, 0.0, None)
        return Fit(start, 0.0, 0.0, target, 0, PROXIMAL, certificate=proof)
    if not DirectNewton.serves(model, terms):
        return None
    direct = problem.kept.get("direct")
    if direct is None:
        direct = problem.kept["direct"] = DirectNewton(model)
    goal = partial(settings.target, problem, margin=MARGIN)
    with np.errstate(**QUIET):
        found = direct.minimum(terms, start, goal, settings.max_iter)
    if found is None:
        return None
    x, value, bound, steps, slopes = found
    gap = abs(value - max(bound, 0.0))  # losses and penalties are nonnegative
    proof = of_model(model, terms, x, value, gap, slopes)
    target = settings.target(problem, value)
    fit = Fit(x, value, gap, target, steps, PROXIMAL, certificate=proof)
    return fit if fit.converged else None


def request_of(problem: Problem) -> Request:
    """Return what determines the method if everything is left open."""
    model = problem.model
    assert isinstance(model, LinearModel)
    start = np.zeros(model.n_parameters)
    return Request(model, Space(start, problem.feasible_set, problem.penalty()))


def _by_interior_points(
    problems: Sequence[Problem], settings: Settings, starts: Sequence[Vector]
) -> list[Fit | None]:
    """Solve problems together by the interior-point method; return None for large gaps.

    The tolerance is on the sum of the objectives. Half of it is shared in proportion to the
    objectives and half evenly, so an easily separated class need not be solved more accurately.
    """
    models = [problem.model for problem in problems if isinstance(problem.model, LinearModel)]
    terms = problems[0].terms
    assert terms is not None
    floors = np.array([problem.floor for problem in problems])
    aim = (1.0 - MARGIN) * (settings.tol or 0.0)
    fits: list[Fit | None] = [None] * len(problems)

    def allowed(values: Vector, bounds: Vector) -> Vector:
        shared = float(np.maximum(bounds, floors).mean())
        return np.asarray(aim * 0.5 * (np.maximum(values, floors) + shared))

    def proved(place: int, point: Found, gap: float) -> bool:
        problem, x = problems[place], point.parameters
        value = models[place].value(x) + problem.l1_value(x)
        dual = ModelDual(models[place], problem.terms)
        bound = max(dual.at_slopes(point.slopes), 0.0)
        target, reached = settings.target(problem, value), abs(value - bound)
        proof = of_model(models[place], dual.terms, x, value, reached, dual.proof.slopes)
        fits[place] = Fit(x, value, reached, target, point.steps, INTERIOR, certificate=proof)
        return reached <= gap

    interior_points(models, terms, starts, allowed, proved, settings.max_iter)
    found = [fit for fit in fits if fit is not None]
    if len(found) == len(fits) and total(found).converged:
        return fits
    return [fit if fit is not None and fit.converged else None for fit in fits]


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


def _by_run(
    problem: Problem, start: Vector, judge: Problem | None, settings: Settings, tried: str
) -> Fit:
    """Solve a problem by `minimize`; `tried` is a method that did not prove enough."""
    watch = None if judge is None else EarlyStopping(judge, problem, settings)
    if isinstance(problem.model, MultinomialModel):
        result = MultinomialRun(problem, settings, watch).result(start)
    else:
        options = settings.options(problem)
        if tried:
            options["method"] = choose(request_of(problem), tried=tried).name
        if settings.batch_size is not None:
            options["batch_size"] = min(settings.batch_size, problem.model.n_samples)
        if watch is not None:
            options |= {"callback": watch, "callback_at": looks(settings.max_iter)}
        result = minimize(
            problem.model,
            start,
            penalty=L1(problem.l1) if problem.l1 > 0.0 else None,  # without the intercept
            feasible_set=problem.feasible_set,
            rng=settings.seed,
            **options,
        )
    stopped = False
    if watch is not None and watch.best is not None:
        stopped = result.status in (Status.CALLBACK, Status.CONVERGED, Status.STATIONARY)
        result.update(x=watch.best, fun=math.nan)
    return _fit(problem, settings, result, stopped=stopped)


class MultinomialRun:
    """A run of `minimize` on the smooth part of a multinomial problem.

    Where the dual bound becomes tight, that bound decides when the run ends. Unless a diameter is
    given, the method is then Newton's; otherwise coordinates are scaled if the set allows it. With
    a `batch_size`, gradients are those of minibatches.
    """

    def __init__(self, problem: Problem, settings: Settings, watch: EarlyStopping | None) -> None:
        model = problem.model
        assert isinstance(model, MultinomialModel)
        self._problem, self._model, self._settings, self._watch = problem, model, settings, watch
        self._sampler: BatchSampler | None = None
        if settings.batch_size is not None:
            batch = min(settings.batch_size, model.n_samples)
            rng = np.random.default_rng(settings.seed)
            self._sampler = BatchSampler(model.n_samples, batch, rng)
        free = problem.l1 == 0.0 and problem.feasible_set is None
        self._dual = MultinomialDual(model) if free and model.l2 > 0.0 else None
        # Whether the dual bound ends the run.
        self._is_bounded = self._dual is not None and settings.tol is not None
        self._curved: CurvedClasses | None = None
        self._change: ColumnScaling | None = None
        if settings.diameter == AUTO:
            if self._dual is None or self._sampler is not None:
                if can_scale(None, problem.feasible_set):
                    self._change = column_scaling(model.rows, n_classes=model.n_classes)
            elif isinstance(model, PartedClasses):
                self._curved = SampledClasses(model)
            else:
                self._curved = CurvedClasses(model)
        self._bound = 0.0  # losses are nonnegative

    def result(self, start: Vector) -> OptimizeResult:
        """Return the result, with the bound that holds everywhere if there is one."""
        problem, settings = self._problem, self._settings
        space = Space(start, problem.feasible_set, problem.penalty())
        space = space if self._change is None else space.scaled(self._change)
        options = settings.options(problem) | space._asdict()
        start = options.pop("start")
        if self._sampler is not None or self._dual is not None:
            options |= {"tol": None, "rtol": None}  # only the dual bound decides
        if self._is_bounded or self._watch is not None:
            options |= {"callback": self._look, "callback_at": looks(settings.max_iter)}
        if self._curved is not None:
            options["method"] = TruncatedNewton(self._curved)
        result = minimize(self._value_and_gradient, start, exact=self._sampler is None, **options)
        if self._curved is not None:
            result["method"] = TRUNCATED
        x = result["x"] = problem.nearest(self._point(result.x))
        if self._dual is not None:
            self._raise_bound(x)
            # The run's own bound holds only in a region that it guessed.
            result.update(lower_bound=self._bound, certified_radius=math.inf)
            result["certificate"] = of_classes(self._model, self._dual.proof[1])
        return result

    def _value_and_gradient(self, v: Vector) -> tuple[float, Vector]:
        with self._problem.single_thread():  # `minimize` treats it as a user's function
            if self._curved is not None:
                return self._curved.value_and_gradient(v)
            x = self._point(v)
            if self._sampler is None:
                value, gradient = self._model.value_and_gradient(x)
            else:
                value, gradient = self._model.batch_value_and_gradient(x, self._sampler.next_rows())
            return value, gradient if self._change is None else self._change.adjoint(gradient)

    def _point(self, v: Vector) -> Vector:
        """Return the parameters at a point of the run."""
        return v if self._change is None else self._change.apply(v)

    def _look(self, intermediate_result: OptimizeResult) -> None:
        problem = self._problem
        with problem.single_thread():  # `minimize` treats it as a user's function
            x, value = self._point(intermediate_result.x), float(intermediate_result.fun)
            if self._watch is not None:
                self._watch.look(x, int(intermediate_result.nit))
            if not self._is_bounded:
                return
            # Without a goal a run does not know the value at an average or last point, and with
            # minibatches it is an estimate.
            if not math.isfinite(value) or self._sampler is not None:
                value = problem.value(x)
            goal = self._settings.target(problem, value, MARGIN)
            # The bound costs several passes: it is computed only if it may prove enough.
            promising = self._curved is None or self._curved.expected_gap(x) <= 2.0 * goal
            if value - self._bound > goal and promising:
                self._raise_bound(x)
            # A negative gap would refute the bound.
            if -problem.rounding(value) <= value - self._bound <= goal:
                raise StopIteration

    def _raise_bound(self, x: Vector) -> None:
        if self._dual is not None:
            self._bound = max(self._bound, self._dual.at(x))


def looks(max_iter: int) -> list[int]:
    """Return the iterations after which the callback is called."""
    count = math.ceil(math.log(max_iter, LOOK_SPACING))
    return sorted({min(math.ceil(LOOK_SPACING**power), max_iter) for power in range(count + 1)})


def _fit(problem: Problem, settings: Settings, result: OptimizeResult, *, stopped: bool) -> Fit:
    x = problem.nearest(result.x)
    # A run of a LinearModel computed this value in float64.
    is_judged = x is result.x and isinstance(problem.model, LinearModel)
    value = float(result.fun) if is_judged and math.isfinite(result.fun) else problem.value(x)
    bound, radius, message = result.lower_bound, result.certified_radius, str(result.message)
    if not value - bound >= -problem.rounding(value):
        bound, message = 0.0, "The minimum is not within the given or guessed diameter."
    if bound <= 0.0:  # losses and penalties are nonnegative: 0 holds everywhere
        bound, radius = 0.0, math.inf
    gap = abs(value - bound)  # a negative gap is rounding error of this size
    proof = result.certificate if bound == result.lower_bound else None
    if isinstance(proof, ModelCertificate):
        proof = replace(proof, points=(x,), value=value, gap=gap)
    elif bound == 0.0 and isinstance(problem.model, LinearModel):
        proof = of_model(problem.model, problem.terms, x, value, gap, None)
    return Fit(
        x,
        value,
        gap,
        settings.target(problem, value),
        int(result.nit),
        str(result["method"]),
        radius,
        radius == math.inf or not _falls_beyond(problem, x, bound, radius),
        message,
        result.status is Status.INTERRUPTED,
        stopped,
        proof if isinstance(proof, ModelCertificate) else None,
    )


def _falls_beyond(problem: Problem, x: Vector, bound: float, radius: float) -> bool:
    """Return whether the objective falls below its bound outside the bound's region.

    `minimize` trusts a given diameter, but a user may have guessed it.
    """
    _, gradient = problem.model.value_and_gradient(x)
    direction = gradient / max(float(np.linalg.norm(gradient)), np.finfo(float).tiny)
    points = (x - 4.0**power * radius * direction for power in range(1, 11))  # up to 10^6 radii
    return any(problem.value(problem.nearest(point)) < bound for point in points)
