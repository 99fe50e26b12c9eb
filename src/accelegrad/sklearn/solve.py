"""From a problem to coefficients with a certified gap: the calls of `minimize`.

An estimator's `tol` is relative to the objective itself, since that is what a user can judge
without knowing the data's units: it is the `rtol` of `minimize`, with a small absolute one for a
minimum of zero.

A `LinearModel` is handed over as it is, with its l1 term and its set. The multinomial model is a
function to `minimize`. Where its dual bounds the minimum, a callback looks at that bound and stops
the run, which is one of Newton's method unless a diameter is given. Else the function is given in
scaled coordinates where that is possible.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import OptimizeResult

from accelegrad.catalogue import INTERIOR
from accelegrad.choose import Facts, choose
from accelegrad.errors import Vector
from accelegrad.front_door import minimize
from accelegrad.geometry.penalties import L1
from accelegrad.models.linear_model import LinearModel
from accelegrad.models.multinomial import MultinomialModel, ScaledClasses
from accelegrad.models.sampling import BatchSampler
from accelegrad.models.scaling import column_scaling, scaled_penalty, scaled_set
from accelegrad.proofs.model_dual import ModelDual
from accelegrad.run.result import Status, as_result
from accelegrad.sklearn.objective import Problem
from accelegrad.solvers.direct import DirectMinimum
from accelegrad.solvers.interior_point import Allowed, Found, interior_points
from accelegrad.solvers.truncated_newton import TruncatedNewton

#: An objective below this share of what a constant prediction gets counts as this share: a minimum
#: of zero would never be met to a relative tolerance. Chosen: `tol` documents it.
NEGLIGIBLE = 1e-3
#: A callback is asked after each of the first iterations, and then whenever their number has grown
#: by this factor: it adds a twentieth to the iterations at most.
FIRST_LOOKS, LOOK_SPACING = 20, 1.05
#: By what share a run aims below `tol`: the objective is computed again, in float64, for the point
#: that is kept, and may come out a little larger.
MARGIN = 1e-3
#: Distances, in multiples of a region's radius, at which a lower objective is looked for beyond it:
#: the powers of 4 up to a million.
DISTANCES_BEYOND = 4.0 ** np.arange(1, 11)

#: A bound is computed where the gap that it is expected to prove is at most this many times the one
#: that is wanted.
PROMISING = 2.0
#: Classes with large objectives take fewer of Newton's steps (digits: 9 and 13, others 20 to 50).
FEW_STEPS = 10

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
        """Whether nothing but a tolerance is asked for: neither steps of a kind nor a look on."""
        no_wishes = self.batch_size is None and self.diameter == self.output == "auto"
        return no_wishes and self.tol is not None and not self.progress


class Fit(NamedTuple):
    """The parameters found and what is known of them."""

    parameters: Vector
    objective: float
    gap: float
    target: float  # the gap that is small enough; below zero without a tolerance
    certified_radius: float
    n_iter: int
    refuted: bool  # whether a lower objective than the bound is known, beyond the bound's region
    ended: bool  # whether it ended as it was asked to: neither by max_iter nor by a failure
    message: str
    interrupted: bool = False  # by Ctrl-C
    method: str = ""

    @property
    def converged(self) -> bool:
        """Whether the certified gap of these very parameters is within the tolerance."""
        return self.gap <= self.target and not self.refuted

    @property
    def missed(self) -> bool:
        """Whether the tolerance was missed, and nobody asked for an earlier end."""
        return not (self.converged or self.ended)


class ClassesFunction:
    """A multinomial problem's smooth part as `minimize` sees it, and the bound by its dual.

    Parameters
    ----------
    problem : Problem
        The problem.
    free_method : bool
        Whether the method may be chosen: then it is Newton's where there is a bound, and else
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
        provable = problem.is_free and model.l2 > 0.0
        self._dual = problem.classes_dual() if provable else None
        curved = provable and free_method and sampler is None
        self.curved = problem.curved_classes() if curved else None
        self._change: ScaledClasses | None = None
        if free_method and self.curved is None and problem.can_be_scaled:
            self._change = ScaledClasses(column_scaling(model.rows), model.n_classes)
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
        """Return penalty and set in the run's coordinates."""
        problem, scale = self.problem, None if self._change is None else self._change.scale
        return {
            "penalty": scaled_penalty(problem.penalty(), scale),
            "feasible_set": scaled_set(problem.feasible_set, scale, self._model.n_parameters),
        }

    @property
    def is_proved(self) -> bool:
        """Whether there is a lower bound that holds everywhere, and gets tight."""
        return self._dual is not None

    def promises(self, x: Vector, gap: float) -> bool:
        """Tell whether the bound at a point, which costs some passes, may prove this gap."""
        return self.curved is None or self.curved.expected_gap(x) <= PROMISING * gap

    def raise_bound(self, x: Vector) -> None:
        """Bring the lower bound up to date with what is known at a point."""
        if self._dual is not None:
            self.lower_bound = max(self.lower_bound, self._dual.at(x))


class Watch:
    """A callback that stops when a validation score stalls, or by a bound of a function's dual."""

    def __init__(
        self,
        problem: Problem,
        settings: Settings,
        score: Score | None,
        function: ClassesFunction | None = None,
    ) -> None:
        self.problem, self.settings = problem, settings
        self.score, self.function = score, function
        self.floor = NEGLIGIBLE * problem.null_value
        self.reached = self.stalled = False
        self.best: Vector | None = None
        self.best_score = -math.inf
        self.waited = 0  # looks since the best, or with minibatches steps
        # Of a few rows a step says little about the score: there a pass over all is a look's worth.
        rows, batch = problem.model.n_samples, settings.batch_size
        self._steps_per_look = 1 if batch is None else math.ceil(rows / batch)
        self._best_at = 0

    @property
    def wanted(self) -> bool:
        """Whether there is anything to look for that `minimize` does not see itself."""
        bounded = self.uses_dual and self.settings.tol is not None
        return bounded or self.score is not None

    @property
    def uses_dual(self) -> bool:
        """Whether a function's dual decides, which the run does not know."""
        return self.function is not None and self.function.is_proved

    def target(self, value: float) -> float:
        """Return the gap that is small enough for an objective of this value."""
        assert self.settings.tol is not None
        return self.settings.tol * max(value, self.floor)

    @property
    def aim(self) -> float | None:
        """The relative gap at which a run ends."""
        return None if self.settings.tol is None else (1.0 - MARGIN) * self.settings.tol

    def small_residual(self, value: float) -> float:
        """Return the norm of the gradient with which the dual proves enough; 0 without a tol."""
        aim = 0.0 if self.aim is None else self.aim * max(value, self.floor)
        return math.sqrt(2.0 * self.problem.model.l2 * aim)

    def negligible(self) -> float | None:
        """Return the `tol` of `minimize`, which ends runs whose minimum is about 0.

        `minimize` multiplies it by max(1, objective): that is never above the gap that is allowed.
        """
        # None where it would be zero: then a constant fits, and only a gap of zero is small enough.
        return None if self.aim is None else self.aim * min(1.0, self.floor) or None

    def enough(self, value: float, gap: float) -> bool:
        """Tell whether the relative tolerance is met; a gap below zero refutes what it rests on."""
        if self.aim is None:
            return False
        return -self.problem.rounding(value) <= gap <= self.aim * max(value, self.floor)

    def __call__(self, intermediate_result: OptimizeResult) -> None:
        """Look at a run."""
        with self.problem.single_thread():  # `minimize` takes it for a user's function
            self._look(intermediate_result)
        if self.reached or self.stalled:
            raise StopIteration

    def _look(self, known: OptimizeResult) -> None:
        x = known.x if self.function is None else self.function.point(known.x)
        if self.score is not None:
            self._judge(x, self.score, int(known.nit))
        if self.uses_dual and self.settings.tol is not None:
            # The value at an average or a last point is not known to a run without a goal, and of
            # one with minibatches it is an estimate.
            is_known = math.isfinite(known.fun) and self.settings.batch_size is None
            value = float(known.fun) if is_known else self.problem.value(x)
            self.reached = self.enough(value, self._gap(x, value))

    def _gap(self, x: Vector, value: float) -> float:
        """Return the gap by bounds that hold everywhere."""
        function = self.function
        assert function is not None
        proved = self.enough(value, value - function.lower_bound)
        if not proved and function.promises(x, self.target(value)):
            function.raise_bound(x)
        return value - function.lower_bound

    def _judge(self, x: Vector, score_of: Score, steps: int) -> None:
        score = score_of(x)
        if score > self.best_score:
            self.best, self.best_score = x, score
            self.waited, self._best_at = 0, steps
            return
        by_steps = self.settings.batch_size is not None
        self.waited = steps - self._best_at if by_steps else self.waited + 1
        self.stalled = self.waited >= self.settings.n_iter_no_change * self._steps_per_look


def solve(
    problem: Problem, settings: Settings, start: Vector, *, score: Score | None, seed: int
) -> Fit:
    """Minimise from a start and say what is proved.

    Parameters
    ----------
    problem, settings
        What to minimise, and how.
    start : Vector
        A feasible point.
    score : callable, optional
        A validation score of parameters, the larger the better: the run ends when it stalls.
    seed : int
        For the random rows of minibatches.
    """
    if isinstance(problem.model, LinearModel):
        return _solve_model(problem.model, problem, settings, start, score, seed)
    return _solve_classes(problem, settings, start, score, seed)


def _solve_model(
    model: LinearModel,
    problem: Problem,
    settings: Settings,
    start: Vector,
    score: Score | None,
    seed: int,
) -> Fit:
    """Hand the model over as it is."""
    watch = Watch(problem, settings, score)
    if settings.leaves_all_open and score is None:
        fit = _solved_directly(problem, watch, start)
        if fit is not None:
            return fit
    options = _options(settings, watch)
    if settings.leaves_all_open and score is None and _is_for_interior_points(problem):
        options["method"] = choose(_facts(problem), tried=INTERIOR).name  # by `solved_together`
    if settings.batch_size is not None:
        # At most all rows: folds and held-out parts leave fewer of them.
        options["batch_size"] = min(settings.batch_size, model.n_samples)
    elif settings.diameter == "auto" and not problem.is_free and not problem.has_separate_terms:
        scale = "columns" if problem.can_be_scaled else None
        options |= {"scale": scale, "restart": _restart(problem, settings)}
    result = minimize(
        model,
        start,
        penalty=L1(problem.l1) if problem.l1 > 0.0 else None,  # not of the intercept
        feasible_set=problem.feasible_set,
        rng=seed,
        **options,
    )
    return _fit(problem, watch, result)


def _solved_directly(problem: Problem, watch: Watch, start: Vector) -> Fit | None:
    """Return the fit of a small problem that needs no run; None where its gap is too large."""

    def goal(value: float) -> float:
        assert watch.aim is not None
        return watch.aim * max(value, watch.floor)

    direct, terms = problem.direct, problem.terms
    if direct is None or terms is None:
        return None
    found = direct.minimum(terms, start, goal, watch.settings.max_iter)
    fit = None if found is None else _proved(problem, watch, *found)
    return fit if fit is not None and fit.converged else None


def _by_slopes(problem: Problem, watch: Watch, model: LinearModel, point: Found) -> Fit:
    """Return the fit that an interior-point method has found, proved by its slopes."""
    x = point.parameters
    dual = ModelDual(model, problem.terms)
    value, bound = model.value(x) + problem.l1_value(x), dual.at_slopes(point.slopes)
    return _proved(problem, watch, x, value, bound, point.steps, INTERIOR)


def _proved(
    problem: Problem,
    watch: Watch,
    x: Vector,
    value: float,
    bound: float,
    steps: int,
    method: str = "directly",
) -> Fit:
    """Return the fit of parameters whose objective has a lower bound that holds everywhere."""
    known = {"x": x, "fun": value, "lower_bound": bound, "certified_radius": math.inf}
    status = Status.CONVERGED
    ended = {"nit": steps, "success": True, "status": status, "message": status.message}
    return _fit(problem, watch, as_result(known | ended | {"method": method}))


def _facts(problem: Problem) -> Facts:
    """Return what decides on the method where all is left open, and there is no feasible set."""
    model = problem.model
    assert isinstance(model, LinearModel)
    terms = {"constrained": problem.l1 > 0.0, "separate_terms": problem.has_separate_terms}
    return Facts(model, **terms, no_limits=True, may_scale=True)


def _is_for_interior_points(problem: Problem) -> bool:
    """Return whether the interior-point method is the one that `minimize` would choose."""
    if problem.is_smooth or problem.feasible_set is not None:
        return False
    facts = _facts(problem)
    return facts.few_rows_with_one_kink and choose(facts).name == INTERIOR


def direct_minima(
    problems: list[Problem], starts: list[Vector], allowed: Allowed, most_steps: int
) -> dict[int, DirectMinimum]:
    """Return the minima that direct steps find, by place.

    First those that take few steps: their objectives are the large ones, of which others may be off
    by a share.
    """
    found: dict[int, DirectMinimum] = {}
    values, bounds = np.zeros(len(problems)), np.zeros(len(problems))
    for most in (FEW_STEPS, most_steps):
        for place, problem in enumerate(problems):
            if place in found:
                continue

            def goal(value: float, place: int = place) -> float:
                values[place] = value
                return float(allowed(values, bounds)[place])

            direct, terms = problem.direct, problem.terms
            assert direct is not None
            assert terms is not None
            minimum = direct.minimum(terms, starts[place], goal, min(most, most_steps))
            if minimum is not None:
                found[place], bounds[place] = minimum, minimum.bound
    return found


def solved_together(
    problems: list[Problem], settings: Settings, starts: list[Vector]
) -> dict[int, Fit]:
    """Return the fits, by place, of problems that differ in their targets and are solved together.

    The tolerance is on the sum of their objectives, as it is documented: half of it is shared out
    by the objectives, half evenly, so that a class that is easy to tell from the rest need not be
    exact to many digits more than the others.
    """
    models = [problem.model for problem in problems if isinstance(problem.model, LinearModel)]
    first, alike = problems[0], len(models) == len(problems)
    if not (alike and settings.leaves_all_open):
        return {}
    directly = len(models) > 1 and first.direct is not None
    if not (directly or _is_for_interior_points(first)):
        return {}
    assert first.terms is not None
    watches = [Watch(problem, settings, None) for problem in problems]
    aim, floors = watches[0].aim, np.array([watch.floor for watch in watches])
    assert aim is not None

    def allowed(values: Vector, bounds: Vector) -> Vector:
        shared = float(np.maximum(bounds, floors).mean())
        return np.asarray(aim * 0.5 * (np.maximum(values, floors) + shared))

    fits: dict[int, Fit] = {}

    def proved(place: int, point: Found, gap: float) -> bool:
        fits[place] = _by_slopes(problems[place], watches[place], models[place], point)
        return fits[place].gap <= gap

    if directly:
        found = direct_minima(problems, starts, allowed, settings.max_iter)
        fits = {place: _proved(problems[place], watches[place], *of) for place, of in found.items()}
    else:
        interior_points(models, first.terms, starts, allowed, proved, settings.max_iter)
    if len(fits) == len(problems) and total(list(fits.values())).converged:
        return fits
    return {place: fit for place, fit in fits.items() if fit.converged}


def _solve_classes(
    problem: Problem, settings: Settings, start: Vector, score: Score | None, seed: int
) -> Fit:
    """Hand over a function, to Newton's method or of scaled coordinates where possible."""
    method: dict[str, Any] = {}
    sampler = None
    if settings.batch_size is not None:
        n = problem.model.n_samples
        sampler = BatchSampler(n, min(settings.batch_size, n), np.random.default_rng(seed))
        method |= {"exact": False, "tol": None, "rtol": None}  # the dual decides, if anything does
    function = ClassesFunction(problem, free_method=settings.diameter == "auto", sampler=sampler)
    watch = Watch(problem, settings, score, function)
    if function.curved is not None:
        method["method"] = TruncatedNewton(function.curved, watch.small_residual)
    result = minimize(
        function,
        function.start(start),
        **{**_options(settings, watch), **function.terms(), **method},
    )
    x = result["x"] = problem.nearest(function.point(result.x))
    if function.is_proved:
        function.raise_bound(x)
        # What the run itself knows is about a region that it guessed.
        everywhere = {"lower_bound": function.lower_bound, "certified_radius": math.inf}
        result.update(everywhere, success=settings.tol is None)
    return _fit(problem, watch, result)


def _restart(problem: Problem, settings: Settings) -> str | None:
    """Return when to restart: smooth functions then converge linearly, others may be harmed."""
    return "adaptive" if settings.diameter == "auto" and problem.is_smooth else None


def _options(settings: Settings, watch: Watch) -> dict[str, Any]:
    """Return what `minimize` is given for any problem."""
    return {
        "diameter": settings.diameter,
        "output": settings.output,
        "max_iter": settings.max_iter,
        "tol": None if watch.uses_dual else watch.negligible(),
        "rtol": None if watch.uses_dual else watch.aim,
        "callback": watch if watch.wanted else None,
        "callback_at": looks(settings.max_iter) if watch.wanted else None,
        "progress": settings.progress,
    }


def _fit(problem: Problem, watch: Watch, result: OptimizeResult) -> Fit:
    """Judge the point that is kept: the result, or the one with the best score."""
    x = problem.nearest(result.x if watch.best is None else watch.best)
    # A model's run has judged its point in float64; others are judged here.
    is_judged = x is result.x and isinstance(problem.model, LinearModel)
    value = float(result.fun) if is_judged and math.isfinite(result.fun) else problem.value(x)
    bound = float(result.lower_bound)
    radius, message = float(result.certified_radius), str(result.message)
    below = not value - bound >= -problem.rounding(value)
    refuted = below or _is_refuted(problem, x, result)
    if refuted:
        message = "The minimum is not within the given or guessed diameter."
    if below or bound <= 0.0:  # losses and penalties are nonnegative: what always holds is better
        bound, radius = 0.0, math.inf
    tol = watch.settings.tol
    score_decided = watch.score is not None and (watch.reached or bool(result.success))
    return Fit(
        x,
        value,
        abs(value - bound),  # below zero it is rounding, of about this size
        -1.0 if tol is None else watch.target(value),
        radius,
        int(result.nit),
        refuted and radius < math.inf,
        tol is None or watch.stalled or score_decided,
        message,
        result.status is Status.INTERRUPTED,
        str(result["method"]),
    )


def _is_refuted(problem: Problem, x: Vector, result: OptimizeResult) -> bool:
    """Tell whether the objective falls below its bound beyond the region that the bound is about.

    `minimize` looks too, but not where the region is so small that nothing in it matters.
    """
    if not result.certified_radius < math.inf:
        return False
    _, gradient = problem.model.value_and_gradient(x)
    norm = float(np.linalg.norm(gradient))
    if not norm > 0.0:
        return False
    distances = result.certified_radius * DISTANCES_BEYOND
    return any(
        problem.value(problem.nearest(x - distance / norm * gradient)) < result.lower_bound
        for distance in distances
    )


def looks(max_iter: int) -> list[int]:
    """Return the iterations after which the callback is asked."""
    chosen = list(range(1, min(FIRST_LOOKS, max_iter) + 1))
    while chosen[-1] < max_iter:
        chosen.append(min(math.ceil(LOOK_SPACING * chosen[-1]), max_iter))
    return chosen


def total(fits: list[Fit]) -> Fit:
    """Return several fits as one, of the sum of their problems."""
    return Fit(
        np.array([fit.parameters for fit in fits]),
        sum(fit.objective for fit in fits),
        sum(fit.gap for fit in fits),
        sum(fit.target for fit in fits),
        min(fit.certified_radius for fit in fits),
        max(fit.n_iter for fit in fits),
        any(fit.refuted for fit in fits),
        all(fit.converged or fit.ended for fit in fits),
        next((fit.message for fit in fits if not fit.converged), fits[0].message),
        any(fit.interrupted for fit in fits),
        ", ".join(dict.fromkeys(fit.method for fit in fits if fit.method)),
    )
