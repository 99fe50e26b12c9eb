"""Convex problems with known minima, for comparing methods that need no tuning.

`load` returns about forty problems: smooth and not, well and ill scaled, started near and far, with
and without constraints; on real data where ACCELEGRAD_DATA names a folder of them, else on
generated stand-ins of the same shape. No minimum comes from a method of this package: each is a
closed form, or was found by the lab's finder of minima, SciPy (L-BFGS-B, NNLS, bounded least
squares) or HiGHS and polished by Newton's method or the equations of its active set. The tests
check each by other means.

`first_call_below` tells at which of its calls a solver reached each relative accuracy; that of a
value f is (f - f*) / (f(x0) - f*), see `Problem.relative_gap`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg
from scipy.optimize import linprog, lsq_linear, nnls
from scipy.optimize import minimize as scipy_minimize

import accelegrad as ag
from accelegrad.files.datasets import as_binary, find, read
from accelegrad.geometry.sets import FeasibleSet
from accelegrad.lab.bench.problems import made_classes, made_numbers, made_text
from accelegrad.lab.engine.minimum import EXACT, find_minimum, is_sparse, solved
from accelegrad.lab.engine.stored_data import without_empty_columns

Vector = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.float64]
Function = Callable[[Vector], tuple[float, Vector]]

THRESHOLDS = (1e-2, 1e-4, 1e-6)
"""The relative accuracies that are looked for unless others are named."""

# How far outside the feasible set a point may lie and still count (relative; see `contains`).
_FEASIBILITY = 1e-9
# A relative gap below this is no rounding: the stored minimum is not the minimum.
_IMPOSSIBLE = -1e-7


# -- problems --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Problem:
    """A convex function, a start, and the minimum.

    That a function is smooth need not mean that its gradient is Lipschitz: those of "power-1.5" and
    "quartic" are not.
    """

    name: str  # a stand-in for a data set has "-like" behind the set's name
    kind: str  # "smooth", "non-smooth", "ill-scaled", "far start" or "constrained"
    fun: ag.LinearModel | Function  # a callable returns value and (sub)gradient
    x0: Vector  # feasible where there is a constraint
    minimiser: Vector  # where there are several, the one nearest to x0
    minimum: float  # above the true minimum by at most 1e-10 (f(x0) - minimum)
    feasible_set: FeasibleSet | None = None
    smooth: bool = field(default=True, kw_only=True)  # differentiable everywhere

    def __repr__(self) -> str:
        return f"Problem({self.name!r}, {self.kind}, {self.x0.size} coordinates)"

    def evaluate(self, x: Vector) -> tuple[float, Vector]:
        """Return the value and a (sub)gradient at x, whatever `fun` is."""
        return self.fun(x) if self.model is None else self.model.value_and_gradient(x)

    @property
    def model(self) -> ag.LinearModel | None:
        """`fun`, where it is a LinearModel."""
        return self.fun if isinstance(self.fun, ag.LinearModel) else None

    @property
    def distance(self) -> float:
        """The distance of the start from the minimiser."""
        return float(np.linalg.norm(self.x0 - self.minimiser))

    @cached_property
    def start_value(self) -> float:
        """The value at the start."""
        return self.evaluate(self.x0)[0]

    def relative_gap(self, value: float) -> float:
        """Return (value - minimum) / (f(x0) - minimum): 1 at the start, 0 at the minimum."""
        return (value - self.minimum) / (self.start_value - self.minimum)


def problem_of(
    name: str,
    kind: str,
    fun: ag.LinearModel | Function,
    x0: Vector,
    minimiser: Vector,
    feasible_set: FeasibleSet | None = None,
    *,
    smooth: bool = True,
) -> Problem:
    """Return a problem whose minimiser, but for rounding, is known."""
    x = minimiser if feasible_set is None else feasible_set.project(minimiser)
    bare = Problem(name, kind, fun, x0, x, np.nan, feasible_set, smooth=smooth)
    return replace(bare, minimum=bare.evaluate(x)[0])


def load(real: bool | None = None, quick: bool = False) -> list[Problem]:
    """Return the problems of the suite with their minima.

    Parameters
    ----------
    real : bool, optional
        Whether each data set is taken that the folder has which ACCELEGRAD_DATA names, with a
        stand-in of similar shape for those that are not there; by default so unless `quick`.
    quick : bool
        Small problems, for tests. Data sets keep their size.
    """
    data = Data((not quick) if real is None else real, quick)
    parts = (_smooth, _non_smooth, _ill_scaled, _far_start, _constrained)
    return [problem for part in parts for problem in part(data)]


# -- recording -------------------------------------------------------------------------------------


class EnoughError(Exception):
    """Raised to end a run: all that was to be seen was seen, or the budget is spent."""


class Recorder:
    """A problem's function (value and gradient) that notes at which call thresholds are met.

    Only points at which the solver evaluates something count, and in constrained problems only
    feasible ones. A call raises `EnoughError` once the last threshold is met, and instead of
    exceeding the budget.
    """

    def __init__(
        self,
        problem: Problem,
        thresholds: Iterable[float] = THRESHOLDS,
        max_calls: int | None = None,
    ) -> None:
        self.problem, self.max_calls = problem, max_calls
        self.calls, self.lowest = 0, np.inf
        # The number of the call that met a threshold first, None where none has.
        self.first_call: dict[float, int | None] = dict.fromkeys(sorted(thresholds, reverse=True))

    def __call__(self, x: Vector) -> tuple[float, Vector]:
        """Return value and gradient at x."""
        if self.calls == self.max_calls:
            raise EnoughError
        self.calls += 1
        value, gradient = self.problem.evaluate(x)
        # The set is asked last, and only about points that matter: projecting may cost something.
        if value < self.lowest and self._feasible(x):
            self._note(value)
        return value, gradient

    def _feasible(self, x: Vector) -> bool:
        feasible = self.problem.feasible_set
        return feasible is None or feasible.contains(x, tolerance=_FEASIBILITY)

    def _note(self, value: float) -> None:
        gap = self.problem.relative_gap(value)
        if gap < _IMPOSSIBLE:
            raise RuntimeError(
                f"{self.problem!r}: found {value!r}, below the stored minimum "
                f"{self.problem.minimum!r} (relative gap {gap:.1e}): the minimum is wrong."
            )
        self.lowest = float(value)
        for threshold, call in self.first_call.items():
            if call is None and gap <= threshold:
                self.first_call[threshold] = self.calls
        if None not in self.first_call.values():
            raise EnoughError


def first_call_below(
    problem: Problem,
    thresholds: Iterable[float],
    run: Callable[[Recorder], object],
    *,
    max_calls: int | None = None,
) -> dict[float, int | None]:
    """Return for each threshold the number of the call at which a solver met it first, or None.

    Parameters
    ----------
    problem : Problem
        What is minimised.
    thresholds : iterable of float
        Relative accuracies, see `Problem.relative_gap`.
    run : callable
        ``run(recorder)`` minimises the recorder, a function x -> (value, gradient), starting at
        ``problem.x0``. It is ended by an exception when nothing is left to be seen.
    max_calls : int, optional
        The budget.
    """
    recorder = Recorder(problem, thresholds, max_calls)
    with contextlib.suppress(EnoughError):
        run(recorder)
    return recorder.first_call


# -- functions that are no linear models -----------------------------------------------------------


@dataclass(frozen=True, eq=False)
class MaxAffine:
    """max_i <a_i, x> + b_i."""

    A: Matrix
    b: Vector

    def __call__(self, x: Vector) -> tuple[float, Vector]:
        """Return the value and the gradient of the first piece that attains it."""
        pieces = self.A @ x + self.b
        top = int(np.argmax(pieces))
        return float(pieces[top]), self.A[top].copy()


@dataclass(frozen=True, eq=False)
class L1Distance:
    """sum_i |x_i - c_i|."""

    center: Vector

    def __call__(self, x: Vector) -> tuple[float, Vector]:
        """Return the value and the signs."""
        offset = x - self.center
        return float(np.abs(offset).sum()), np.sign(offset)


@dataclass(frozen=True, eq=False)
class ResidualNorm:
    """||A x - b||, not squared."""

    A: Matrix
    b: Vector

    def __call__(self, x: Vector) -> tuple[float, Vector]:
        """Return the value and a subgradient, 0 where there is no residual."""
        residual = self.A @ x - self.b
        norm = float(np.linalg.norm(residual))
        return norm, self.A.T @ (residual / norm if norm > 0 else residual)


@dataclass(frozen=True, eq=False)
class Power:
    """The mean over i of |<a_i, x> - b_i|^p / p, p > 1."""

    A: Matrix
    b: Vector
    p: float

    def __call__(self, x: Vector) -> tuple[float, Vector]:
        """Return value and gradient."""
        residual = self.A @ x - self.b
        slopes = np.sign(residual) * np.abs(residual) ** (self.p - 1)
        n = self.b.size
        return float(slopes @ residual) / (self.p * n), self.A.T @ slopes / n

    def hessian(self, x: Vector) -> Matrix:
        """Return the second derivative, where no residual is 0."""
        curvature = (self.p - 1) * np.abs(self.A @ x - self.b) ** (self.p - 2)
        hessian: Matrix = (self.A.T * curvature) @ self.A / self.b.size
        return hessian


@dataclass(frozen=True, eq=False)
class LogSumExp:
    """log sum_i exp(<a_i, x - c> + b_i)."""

    A: Matrix
    b: Vector
    center: Vector

    def __call__(self, x: Vector) -> tuple[float, Vector]:
        """Return value and gradient."""
        pieces = self.A @ (x - self.center) + self.b
        top = float(pieces.max())
        shares = np.exp(pieces - top)
        total = float(shares.sum())
        return top + float(np.log(total)), shares @ self.A / total


@dataclass(frozen=True, eq=False)
class NesterovWorst:
    """(x_1^2 + sum_i (x_i - x_{i+1})^2 + x_d^2) / 8 - x_1 / 4: 1-smooth and hard.

    No method that adds up gradients is faster than C / t^2 on it until t is about d / 2
    (Nesterov, Lectures on Convex Optimization, 2018, section 2.1.2, with L = 1).
    """

    dimension: int

    def __call__(self, x: Vector) -> tuple[float, Vector]:
        """Return value and gradient."""
        differences = np.diff(x, prepend=0.0, append=0.0)
        gradient = -np.diff(differences) / 4
        gradient[0] -= 0.25
        return float(differences @ differences) / 8 - float(x[0]) / 4, gradient

    @property
    def minimiser(self) -> Vector:
        """x_i = 1 - i / (d + 1)."""
        d = self.dimension
        return 1 - np.arange(1, d + 1) / (d + 1)


@dataclass(frozen=True, eq=False)
class Quadratic:
    """<x, H x> / 2 - <c, x>."""

    H: Matrix
    c: Vector

    def __call__(self, x: Vector) -> tuple[float, Vector]:
        """Return value and gradient."""
        product = self.H @ x
        return float(x @ product) / 2 - float(self.c @ x), product - self.c


# -- data ------------------------------------------------------------------------------------------


class NamedData(NamedTuple):
    """A data set: the name for problems, features, targets."""

    name: str
    X: Any
    y: Vector


class _Source(NamedTuple):
    """How many rows to take of a set, and what stands in for it (in the size `quick` for tests)."""

    rows: int
    stand_in: Callable[..., tuple[Any, Vector]]
    shape: tuple[int, ...]
    quick: tuple[int, ...]


class Data:
    """The data sets of a suite, each read or generated once.

    Parameters
    ----------
    real : bool
        Whether to look for the sets themselves.
    quick : bool
        Whether stand-ins are small.
    """

    def __init__(self, real: bool, quick: bool) -> None:
        self.real, self.quick = real, quick
        self._known: dict[str, NamedData] = {}

    def size(self, full: int, quick: int) -> int:
        """Return a size for a synthetic problem."""
        return quick if self.quick else full

    def rows(self, name: str) -> NamedData:
        """Return a data set without empty columns; a rather full one as a dense array."""
        if name not in self._known:
            path = find(name) if self.real else None
            self._known[name] = self._generated(name) if path is None else self._read(name, path)
        return self._known[name]

    def _generated(self, name: str) -> NamedData:
        source = _SOURCES[name]
        X, y = source.stand_in(*(source.quick if self.quick else (source.rows, *source.shape)))
        return NamedData(f"{name}-like", _compact(X), y)

    @staticmethod
    def _read(name: str, path: Path) -> NamedData:
        data, most = read(path), _SOURCES[name].rows
        y = as_binary(data.y) if np.unique(data.y).size == 2 else data.y
        X: Any = data.X
        if y.size > most:
            kept = np.sort(np.random.default_rng(0).choice(y.size, most, replace=False))
            X, y = X[kept], y[kept]
        return NamedData(name, _compact(X), y)

    def standardised(self, name: str) -> NamedData:
        """Return a set as a dense array whose columns have mean 0 and standard deviation 1."""
        rows = self.rows(name)
        X = rows.X.toarray() if is_sparse(rows.X) else rows.X
        deviation = X.std(axis=0)
        varies = deviation > 1e-12 * np.abs(X).max(axis=0)
        return rows._replace(X=(X - X.mean(axis=0))[:, varies] / deviation[varies])


def _compact(X: Any) -> Any:
    """Return a matrix without its empty columns, as a dense array if it is rather full."""
    used = without_empty_columns(X)
    if is_sparse(used) and used.nnz > 0.3 * used.shape[0] * used.shape[1]:
        return used.toarray()
    return used


_SOURCES = {
    "a9a": _Source(6000, made_text, (123, 14), (150, 20, 5)),
    "w8a": _Source(6000, made_text, (300, 12), (200, 30, 7)),
    "ijcnn1": _Source(6000, made_classes, (22,), (150, 8)),
    "rcv1_vw_small": _Source(1000, made_text, (47236, 77), (60, 400, 50)),
    "svmlight_reuters_acq": _Source(1000, made_text, (9947, 47), (60, 300, 37)),
    "mushrooms": _Source(4000, made_text, (112, 21), (150, 20, 5)),
    "magic04": _Source(6000, made_classes, (10,), (150, 6)),
    "spambase": _Source(4601, made_classes, (57,), (300, 10)),
    "cadata": _Source(6000, made_numbers, (8,), (120, 5)),
    "housing": _Source(506, made_numbers, (13,), (100, 6)),
    "bodyfat": _Source(252, made_numbers, (14,), (80, 6)),
    "abalone": _Source(4177, made_numbers, (8,), (120, 5)),
    "cpusmall": _Source(4000, made_numbers, (12,), (100, 6)),
}


# -- the list --------------------------------------------------------------------------------------


def _smooth(data: Data) -> Iterator[Problem]:
    yield from _least_squares(data)
    for name in ("a9a", "w8a", "ijcnn1", "rcv1_vw_small"):
        rows = data.rows(name)
        for factor in (1.0, 0.01):
            title = f"logistic-{rows.name}-l2={factor:g}/n"
            yield _model_problem(title, "smooth", rows, "logistic", l2=factor / rows.y.size)
    for name in ("magic04", "spambase"):
        rows = data.standardised(name)
        yield _model_problem(
            f"logistic-{rows.name}", "smooth", rows, "logistic", fit_intercept=True
        )
    rows = data.rows("a9a")
    title = f"squared-hinge-{rows.name}"
    yield _model_problem(title, "smooth", rows, "squared_hinge", l2=1 / rows.y.size)
    rows = data.standardised("cadata")
    rows = rows._replace(y=(rows.y - rows.y.mean()) / rows.y.std())
    yield _model_problem(f"huber-{rows.name}", "smooth", rows, "huber", fit_intercept=True)
    yield from _smooth_closed_forms(data)


def _least_squares(data: Data) -> Iterator[Problem]:
    rows = _gaussian_rows("least-squares", data.size(1000, 60), data.size(100, 12), seed=1)
    yield _model_problem(rows.name, "smooth", rows, "squared")
    yield _model_problem("least-squares-ill-conditioned", "smooth", _uneven_rows(data), "squared")
    rows = _gaussian_rows("least-squares-wide", data.size(100, 12), data.size(300, 30), seed=3)
    yield _model_problem(rows.name, "smooth", rows, "squared")


def _gaussian_rows(name: str, n: int, d: int, seed: int) -> NamedData:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return NamedData(name, X, X @ rng.standard_normal(d) + 0.5 * rng.standard_normal(n))


def _uneven_rows(data: Data) -> NamedData:
    """Return columns of sizes from 1 to 1e-3, a Hessian of condition about 1e6.

    The coefficients grow as the columns shrink, so that the small ones matter too.
    """
    n, d = data.size(1000, 60), data.size(100, 12)
    rng = np.random.default_rng(2)
    sizes = np.logspace(0, -3, d)
    X = rng.standard_normal((n, d)) * sizes
    signs = rng.standard_normal(d)
    return NamedData("uneven", X, X @ (signs / np.sqrt(sizes)) + 0.1 * rng.standard_normal(n))


def _smooth_closed_forms(data: Data) -> Iterator[Problem]:
    rng = np.random.default_rng(4)
    d = data.size(50, 10)
    A, b, center = rng.standard_normal((6 * d, d)), rng.standard_normal(6 * d), unit(d, rng) * 5
    # With the softmax shares at `center` as weights the rows add up to 0: the gradient is 0 there.
    shares = np.exp(b) / np.exp(b).sum()
    fun = LogSumExp(A - shares @ A, b, center)
    yield problem_of("log-sum-exp", "smooth", fun, np.zeros(d), center)

    worst = NesterovWorst(data.size(200, 20))
    start = np.zeros(worst.dimension)
    yield problem_of("nesterov-worst", "smooth", worst, start, worst.minimiser)

    A, target = rng.standard_normal((2 * d, d)), rng.standard_normal(d)
    yield problem_of("quartic", "smooth", Power(A, A @ target, 4.0), np.zeros(d), target)

    A = rng.standard_normal((8 * d, d))
    power = Power(A, A @ target + rng.laplace(size=8 * d), 1.5)
    yield problem_of("power-1.5", "smooth", power, np.zeros(d), _power_minimiser(power))


def unit(d: int, rng: np.random.Generator) -> Vector:
    direction = rng.standard_normal(d)
    return direction / float(np.linalg.norm(direction))


def _non_smooth(data: Data) -> Iterator[Problem]:
    for name in ("housing", "bodyfat", "abalone"):
        rows = data.standardised(name)
        title = f"absolute-{rows.name}"
        yield _model_problem(title, "non-smooth", rows, "absolute", fit_intercept=True)
    rows = data.standardised("cpusmall")
    title = f"quantile-0.9-{rows.name}"
    yield _model_problem(title, "non-smooth", rows, "quantile", quantile=0.9, fit_intercept=True)
    for name in ("mushrooms", "svmlight_reuters_acq"):
        rows = data.rows(name)
        yield _model_problem(f"hinge-{rows.name}", "non-smooth", rows, "hinge", l2=1 / rows.y.size)
    yield from _non_smooth_synthetic(data)


def _non_smooth_synthetic(data: Data) -> Iterator[Problem]:
    rng = np.random.default_rng(5)
    d = data.size(40, 8)
    affine = MaxAffine(rng.standard_normal((10 * d, d)), rng.standard_normal(10 * d))
    x = _max_affine_minimiser(affine)
    yield problem_of("max-affine", "non-smooth", affine, np.zeros(d), x, smooth=False)

    center = 100 * rng.standard_normal(d)
    fun = L1Distance(center)
    yield problem_of("l1-distance", "non-smooth", fun, np.zeros(d), center, smooth=False)

    A, target = rng.standard_normal((4 * d, d)), rng.standard_normal(d)
    norm = ResidualNorm(A, A @ target)
    yield problem_of("residual-norm", "non-smooth", norm, np.zeros(d), target, smooth=False)


def _ill_scaled(data: Data) -> Iterator[Problem]:
    def scaled(rows: NamedData, factor: float) -> NamedData:
        return NamedData(f"{rows.name}-times-{factor:g}", rows.X * factor, rows.y)

    rows = scaled(_gaussian_rows("gaussian", data.size(1000, 60), data.size(100, 12), 6), 1e3)
    yield _model_problem(f"least-squares-{rows.name}", "ill-scaled", rows, "squared")
    for factor in (1e-3, 1e3):
        rows = scaled(data.standardised("magic04"), factor)
        title = f"logistic-{rows.name}"
        yield _model_problem(title, "ill-scaled", rows, "logistic", fit_intercept=True)
        rows = scaled(data.standardised("housing"), factor)
        title = f"absolute-{rows.name}"
        yield _model_problem(title, "ill-scaled", rows, "absolute", fit_intercept=True)


def _far_start(data: Data) -> Iterator[Problem]:
    def far(problem: Problem, distance: float, seed: int) -> Problem:
        direction = unit(problem.x0.size, np.random.default_rng(seed))
        return replace(problem, x0=distance * direction)

    rows = _gaussian_rows("gaussian", data.size(1000, 60), data.size(100, 12), 7)
    yield far(_model_problem("least-squares-from-1e4", "far start", rows, "squared"), 1e4, 8)
    rows = data.rows("ijcnn1")
    title = f"logistic-{rows.name}-from-1e3"
    near = _model_problem(title, "far start", rows, "logistic", l2=1 / rows.y.size)
    yield far(near, 1e3, 9)
    rows = data.standardised("bodyfat")
    title = f"absolute-{rows.name}-from-1e4"
    yield far(_model_problem(title, "far start", rows, "absolute", fit_intercept=True), 1e4, 10)


def _constrained(data: Data) -> Iterator[Problem]:
    kind, n, d = "constrained", data.size(300, 40), data.size(80, 10)
    rows = _gaussian_rows("", n, d, 11)
    model = ag.LinearModel(rows.X, rows.y, "squared")
    even, zero = np.full(d, 1 / d), np.zeros(d)

    rng = np.random.default_rng(12)
    y = rows.X @ rng.dirichlet(np.full(d, 0.2)) + rng.standard_normal(n)
    mixture = ag.LinearModel(rows.X, y, "squared")
    x = simplex_least_squares(rows.X, y, 1.0)
    yield problem_of("least-squares-simplex", kind, mixture, even, x, ag.Simplex())
    x = box_least_squares(rows.X, rows.y, -0.5, 0.5)
    yield problem_of("least-squares-box", kind, model, zero, x, ag.Box(-0.5, 0.5))
    radius = 0.2 * d
    x = l1_least_squares(rows.X, rows.y, radius)
    yield problem_of("least-squares-l1-ball", kind, model, zero, x, ag.L1Ball(radius))
    x = _non_negative_least_squares(rows.X, rows.y)
    yield problem_of("least-squares-non-negative", kind, model, zero, x, ag.NonNegative())

    portfolio = _portfolio(d, rng)
    root = scipy.linalg.cholesky(portfolio.H)
    aim = scipy.linalg.solve_triangular(root, portfolio.c, trans="T")
    x = simplex_least_squares(root, aim, 1.0)
    yield problem_of("portfolio", kind, portfolio, even, x, ag.Simplex())

    game = MaxAffine(rng.standard_normal((d, d)), zero)
    x = _max_affine_minimiser(game, over_simplex=True)
    yield problem_of("matrix-game", kind, game, even, x, ag.Simplex(), smooth=False)


def _portfolio(d: int, rng: np.random.Generator) -> Quadratic:
    """Return risk less expected return: a few factors move all prices, and each its own luck."""
    factors = 0.2 * rng.standard_normal((d, 5))
    covariance = factors @ factors.T + np.diag(rng.uniform(0.01, 0.2, d))
    return Quadratic(covariance, 0.03 * rng.standard_normal(d))


def _model_problem(name: str, kind: str, rows: NamedData, loss: str, **options: Any) -> Problem:
    model = ag.LinearModel(rows.X, rows.y, loss, **options)
    smooth = bool(np.isfinite(model.loss.curvature))
    x = find_minimum(model, exact=True).x
    return problem_of(name, kind, model, np.zeros(model.n_parameters), x, smooth=smooth)


# -- minima from elsewhere -------------------------------------------------------------------------


def _power_minimiser(power: Power) -> Vector:
    """By L-BFGS-B, then by Newton's steps, cut where needed, that shorten the gradient."""
    options: Any = {"maxiter": 5000, "maxfun": 10_000, "maxcor": 30, "ftol": 0.0, "gtol": 1e-10}
    start = np.zeros(power.A.shape[1])
    found: Any = scipy_minimize(power, start, jac=True, method="L-BFGS-B", options=options)
    x, none = np.asarray(found.x, dtype=np.float64), np.zeros(start.size)
    for _ in range(50):
        length = np.linalg.norm(power(x)[1])
        step = solved(power.hessian(x), none, -power(x)[1])
        trials = (x + share * step for share in 0.5 ** np.arange(20))
        shorter = (trial for trial in trials if np.linalg.norm(power(trial)[1]) < length)
        if (x_next := next(shorter, None)) is None:
            break
        x = x_next
    return x


def _max_affine_minimiser(fun: MaxAffine, over_simplex: bool = False) -> Vector:
    """By HiGHS: minimise t over A x + b <= t; then the equations of the pieces that attain it."""
    m, d = fun.A.shape
    bounds: Any = [(0.0 if over_simplex else None, None)] * d + [(None, None)]
    sum_to_one: Any = {"A_eq": [[1.0] * d + [0.0]], "b_eq": [1.0]} if over_simplex else {}
    pieces = np.column_stack([fun.A, -np.ones(m)])
    program: Any = linprog(
        np.eye(d + 1)[-1],
        A_ub=pieces,
        b_ub=-fun.b,
        bounds=bounds,
        method="highs-ds",
        options=EXACT,
        **sum_to_one,
    )
    if not program.success:
        raise RuntimeError(f"HiGHS did not solve a reference problem: {program.message}")
    x = np.asarray(program.x[:-1], dtype=np.float64)
    top = np.abs(pieces @ program.x + fun.b) < 1e-8
    used = x > 1e-9 if over_simplex else np.ones(d, dtype=bool)
    equations, right = pieces[top][:, np.append(used, True)], -fun.b[top]
    if over_simplex:
        equations = np.vstack([equations, np.append(np.ones(used.sum()), 0.0)])
        right = np.append(right, 1.0)
    refined = np.zeros(d)
    refined[used] = scipy.linalg.lstsq(equations, right)[0][:-1]
    return refined


def simplex_least_squares(A: Matrix, b: Vector, total: float) -> Vector:
    """Minimise ||A x - b|| over the simplex by NNLS, then solve for its support.

    Where sum(x) = total, A x - b = B x with B = A - b 1^T / total. Minimising ||B x||^2 +
    s^2 (sum(x) - 1)^2 over x >= 0 gives a multiple of the point sought: along a ray the best value
    is q s^2 / (q + s^2), which grows with q = ||B u||^2, u the ray's point with sum 1.
    """
    B = A - b[:, None] / total
    s = float(np.linalg.norm(B, axis=0).mean())
    ray, _ = nnls(np.vstack([B, np.full(A.shape[1], s)]), np.append(np.zeros(b.size), s))
    x = ray * (total / ray.sum())
    support = x > 1e-9 * total
    inside = x[support]
    moves = scipy.linalg.null_space(np.ones((1, inside.size)))
    moved = moves @ scipy.linalg.lstsq(A[:, support] @ moves, b - A[:, support] @ inside)[0]
    refined = np.zeros_like(x)
    refined[support] = inside + moved
    return np.asarray(refined, dtype=np.float64)


def l1_least_squares(A: Matrix, b: Vector, radius: float) -> Vector:
    """Minimise ||A x - b|| over an l1 ball that leaves out the unconstrained solution."""
    assert np.abs(scipy.linalg.lstsq(A, b)[0]).sum() > radius
    halves = simplex_least_squares(np.hstack([A, -A]), b, radius)
    d = A.shape[1]
    return np.asarray(halves[:d] - halves[d:], dtype=np.float64)


def box_least_squares(A: Matrix, b: Vector, lower: float, upper: float) -> Vector:
    found: Any = lsq_linear(A, b, bounds=(lower, upper), method="bvls", tol=1e-14)
    x = np.asarray(found.x, dtype=np.float64)
    return _refined_inside(A, b, x, (x > lower + 1e-9) & (x < upper - 1e-9))


def _non_negative_least_squares(A: Matrix, b: Vector) -> Vector:
    x = np.asarray(nnls(A, b)[0], dtype=np.float64)
    return _refined_inside(A, b, x, x > 1e-9)


def _refined_inside(A: Matrix, b: Vector, x: Vector, free: npt.NDArray[np.bool_]) -> Vector:
    """Solve for the free coordinates, with the others as they are."""
    refined = x.copy()
    refined[free] = scipy.linalg.lstsq(A[:, free], b - A[:, ~free] @ x[~free])[0]
    return refined
