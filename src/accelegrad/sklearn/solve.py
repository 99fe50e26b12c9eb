"""From a problem to coefficients with a certified gap: the calls of `minimize`.

An estimator's `tol` is relative to the objective itself, since that is what a user can judge
without knowing the data's units: it is the `rtol` of `minimize`, with a small absolute one for a
minimum of zero.

`accelegrad.choose.WAYS` says whether the model is handed over as it is, or as a function. A
function is in scaled coordinates where that is possible, and where there are lower bounds that hold
everywhere, a callback looks at them and stops the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import OptimizeResult

from accelegrad.choose import AS_FUNCTION, WAYS, FitFacts, first
from accelegrad.errors import Vector
from accelegrad.minimize import minimize
from accelegrad.problems.linear_model import LinearModel, ModelPoint
from accelegrad.problems.multinomial import MultinomialModel, ScaledClasses
from accelegrad.problems.penalties import L1
from accelegrad.problems.scaling import column_scaling
from accelegrad.proofs.certificate import DualCertificate
from accelegrad.proofs.model_dual import ModelDual
from accelegrad.proofs.multinomial_dual import MultinomialDual
from accelegrad.sklearn.objective import Change, Problem

# An objective below this share of what a constant prediction gets counts as this share: a minimum
# of zero would never be met to a relative tolerance.
NEGLIGIBLE = 1e-3
LOOKS = 1.05  # the tolerance is looked at whenever the iterations have grown by this factor
FIRST_LOOKS = 20  # and after each of the first ones
FORGETTING = 2.0  # slopes are averaged with weights that grow like this power of the iteration
# The run aims a little lower than `tol`, since the objective is computed anew for what is kept.
MARGIN = 1e-3
FARTHER, FARTHER_LOOKS = 4.0, 10  # beyond a region: so many times its radius, so often

Score = Callable[[Vector], float]


@dataclass(frozen=True)
class Settings:
    """How to solve: what `minimize` is told, and when to stop."""

    max_iter: int
    tol: float | None
    batch_size: int | None
    diameter: float | str
    output: str
    n_iter_no_change: int
    progress: bool


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

    @property
    def converged(self) -> bool:
        """Whether the certified gap of these very parameters is within the tolerance."""
        return self.gap <= self.target and not self.refuted

    @property
    def missed(self) -> bool:
        """Whether the tolerance was missed, and nobody asked for an earlier end."""
        return not (self.converged or self.ended)


class _Seen(NamedTuple):
    """What the certificate is given of a point, in the unscaled coordinates."""

    point: Vector
    value: float
    gradient: Vector
    model: ModelPoint
    penalty: float  # its part of the value


class Function:
    """A problem's smooth part as `minimize` sees it, with the lower bounds that its slopes give.

    Parameters
    ----------
    problem : Problem
        The problem.
    scale : bool
        Whether to change to scaled coordinates, where the penalty and the set allow it.
    """

    def __init__(self, problem: Problem, *, scale: bool) -> None:
        self.problem = problem
        self.change: Change | None = _change(problem) if scale else None
        self._calls = 0
        self._bound_of_classes = 0.0  # losses are nonnegative
        model = problem.model
        self._certificate: DualCertificate | None = None
        self._dual_of_classes: MultinomialDual | None = None
        if isinstance(model, MultinomialModel):
            if problem.is_free and model.l2 > 0.0:
                self._dual_of_classes = MultinomialDual(model)
        elif problem.terms is not None and problem.terms.gets_tight:
            self._certificate = DualCertificate(ModelDual(model, problem.terms))

    def __call__(self, v: Vector) -> tuple[float, Vector]:
        """Return value and gradient."""
        x = self.point(v)
        model = self.problem.model
        if isinstance(model, LinearModel):
            at = model.evaluate(x)
            value, gradient = at.value, at.gradient
            self._add(at)
        else:
            value, gradient = model.value_and_gradient(x)
        return value, gradient if self.change is None else self.change.adjoint(gradient)

    def _add(self, at: ModelPoint) -> None:
        """Let the certificate see a point, with a weight in its average that forgets the start."""
        if self._certificate is None:
            return
        self._calls += 1
        penalty = self.problem.l1_value(at.w)
        seen = _Seen(at.w, at.value + penalty, at.gradient, at, penalty)
        self._certificate.add(seen, float(self._calls) ** FORGETTING)

    def point(self, v: Vector) -> Vector:
        """Return the parameters at a point of the run."""
        return v if self.change is None else self.change.apply(v)

    def start(self, x: Vector) -> Vector:
        """Return the point of the run for these parameters."""
        return x if self.change is None else self.change.invert(x)

    def terms(self) -> dict[str, Any]:
        """Return penalty and set in the run's coordinates."""
        scale = None if self.change is None else self.change.scale
        return {
            "penalty": self.problem.penalty(scale),
            "feasible_set": self.problem.scaled_set(scale),
        }

    @property
    def is_proved(self) -> bool:
        """Whether there are lower bounds that hold everywhere, and get tight."""
        return self._certificate is not None or self._dual_of_classes is not None

    @property
    def lower_bound(self) -> float:
        """The best of them so far."""
        certificate = self._certificate
        return self._bound_of_classes if certificate is None else certificate.lower_bound

    def raise_bound(self, x: Vector) -> None:
        """Bring the lower bound up to date with what is known at a point, in the run."""
        if self._dual_of_classes is not None:
            self._bound_of_classes = max(self._bound_of_classes, self._dual_of_classes.at(x))

    def finish(self, x: Vector) -> None:
        """Bring the lower bound up to date for the last time."""
        self.raise_bound(x)
        if self._certificate is not None:
            self._certificate.finish()


def _change(problem: Problem) -> Change | None:
    """Return scaled coordinates, unless the set means the unscaled ones."""
    if not problem.can_be_scaled:
        return None
    if isinstance(problem.model, MultinomialModel):
        return ScaledClasses(column_scaling(problem.model.rows), problem.model.n_classes)
    return column_scaling(problem.model)


class Watch:
    """A callback that stops when a validation score stalls, or where bounds of our own say so."""

    def __init__(
        self,
        problem: Problem,
        settings: Settings,
        score: Score | None,
        function: Function | None = None,
    ) -> None:
        self.problem, self.settings = problem, settings
        self.score, self.function = score, function
        self.floor = NEGLIGIBLE * problem.null_value
        self.reached = self.stalled = False
        self.best: Vector | None = None
        self.best_score = -math.inf
        self.waited = 0

    @property
    def wanted(self) -> bool:
        """Whether there is anything to look for that `minimize` does not see itself."""
        bounded = self.has_own_bounds and self.settings.tol is not None
        return bounded or self.score is not None

    @property
    def has_own_bounds(self) -> bool:
        """Whether bounds that hold everywhere decide, whatever the run believes."""
        return self.function is not None and self.function.is_proved

    def target(self, value: float) -> float:
        """Return the gap that is small enough for an objective of this value."""
        assert self.settings.tol is not None
        return self.settings.tol * max(value, self.floor)

    @property
    def aim(self) -> float | None:
        """The relative gap at which a run ends."""
        return None if self.settings.tol is None else (1.0 - MARGIN) * self.settings.tol

    def negligible(self) -> float | None:
        """Return a tolerance for `minimize`, relative to 1 or more, for objectives of about 0."""
        # None where it would be zero: then a constant fits, and only a gap of zero is small enough.
        return None if self.aim is None else self.aim * min(1.0, self.floor) or None

    def enough(self, value: float, gap: float) -> bool:
        """Tell whether the relative tolerance is met; a gap below zero refutes its own premises."""
        if self.aim is None:
            return False
        return -self.problem.rounding(value) <= gap <= self.aim * max(value, self.floor)

    def __call__(self, intermediate_result: OptimizeResult) -> None:
        """Look at a run."""
        known = intermediate_result
        x = known.x if self.function is None else self.function.point(known.x)
        if self.score is not None:
            self._judge(x, self.score)
        if self.has_own_bounds and self.settings.tol is not None:
            # The value at an average or a last point is not known to a run without a goal.
            value = float(known.fun) if math.isfinite(known.fun) else self.problem.value(x)
            self.reached = self.enough(value, self._gap(x, value))
        if self.reached or self.stalled:
            raise StopIteration

    def _gap(self, x: Vector, value: float) -> float:
        """Return the gap by bounds that hold everywhere."""
        function = self.function
        assert function is not None
        if not self.enough(value, value - function.lower_bound):
            function.raise_bound(x)
        return value - function.lower_bound

    def _judge(self, x: Vector, score_of: Score) -> None:
        score = score_of(x)
        if score > self.best_score:
            self.best, self.best_score, self.waited = x, score, 0
            return
        self.waited += 1
        self.stalled = self.waited >= self.settings.n_iter_no_change


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
    model = problem.model
    facts = FitFacts(
        several_classes=isinstance(model, MultinomialModel),
        minibatches=settings.batch_size is not None,
        constrained=not problem.is_free,
    )
    if facts.several_classes and facts.minibatches:
        raise ValueError("batch_size must be 'auto' for fit with multi_class='multinomial'.")
    if first(WAYS, facts).method == AS_FUNCTION:
        return _solve_function(problem, settings, start, score)
    assert isinstance(model, LinearModel)
    return _solve_model(model, problem, settings, start, score, seed)


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
    result = minimize(
        model,
        start,
        penalty=L1(problem.l1) if problem.l1 > 0.0 else None,  # which leaves the intercept out
        feasible_set=problem.feasible_set,
        batch_size=_rows_a_step(settings.batch_size, model),
        rng=seed,
        **_options(settings, watch),
    )
    return _fit(problem, watch, result)


def _rows_a_step(wanted: int | None, model: LinearModel) -> int | None:
    """Return the batch size, at most all rows: folds and held-out parts leave fewer of them."""
    return None if wanted is None else min(wanted, model.n_samples)


def _solve_function(
    problem: Problem, settings: Settings, start: Vector, score: Score | None
) -> Fit:
    """Hand over a function of scaled coordinates, with bounds of our own."""
    automatic = settings.diameter == "auto"
    function = Function(problem, scale=automatic)
    watch = Watch(problem, settings, score, function)
    # Restarts make the convergence linear where the function is smooth; elsewhere they may harm.
    restart = "adaptive" if automatic and problem.is_smooth else None
    told = _options(settings, watch) | function.terms()
    result = minimize(function, function.start(start), restart=restart, **told)
    x = problem.nearest(function.point(result.x))
    result["x"] = x
    if function.is_proved:
        function.finish(x)
        # What the run itself believes is about a region that it guessed.
        own = {"lower_bound": function.lower_bound, "certified_radius": math.inf}
        result.update(own, success=settings.tol is None)
    return _fit(problem, watch, result)


def _options(settings: Settings, watch: Watch) -> dict[str, Any]:
    """Return what `minimize` is told about any problem."""
    return {
        "diameter": settings.diameter,
        "output": settings.output,
        "max_iter": settings.max_iter,
        "tol": None if watch.has_own_bounds else watch.negligible(),
        "rtol": None if watch.has_own_bounds else watch.aim,
        "callback": watch if watch.wanted else None,
        "callback_at": looks(settings.max_iter) if watch.wanted else None,
        "progress": settings.progress,
    }


def _fit(problem: Problem, watch: Watch, result: OptimizeResult) -> Fit:
    """Judge the point that is kept: the result, or the one with the best score."""
    x = problem.nearest(result.x if watch.best is None else watch.best)
    value, bound = problem.value(x), float(result.lower_bound)
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
    )


def _is_refuted(problem: Problem, x: Vector, result: OptimizeResult) -> bool:
    """Tell whether the objective falls below its bound beyond the region that the bound is about.

    `minimize` looks too, but not where the region is so small that nothing in it matters.
    """
    _, gradient = problem.model.value_and_gradient(x)
    norm = float(np.linalg.norm(gradient))
    if not (result.certified_radius < math.inf and norm > 0.0):
        return False
    distances = result.certified_radius * FARTHER ** np.arange(1, FARTHER_LOOKS + 1)
    return any(
        problem.value(problem.nearest(x - distance / norm * gradient)) < result.lower_bound
        for distance in distances
    )


def looks(max_iter: int) -> list[int]:
    """Return the iterations after which the tolerance is looked at."""
    chosen = list(range(1, min(FIRST_LOOKS, max_iter) + 1))
    while chosen[-1] < max_iter:
        chosen.append(min(math.ceil(LOOKS * chosen[-1]), max_iter))
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
    )
