"""Convex problems with known minima, for comparing methods that need no tuning.

`load` returns about forty problems: smooth and not, well and ill scaled, started near and far, with
and without constraints; on real data where ACCELEGRAD_DATA names a folder of them, else on
generated stand-ins of the same shape. No minimum comes from a method of this package: each is a
closed form, or was found by the lab's finder of minima, SciPy (L-BFGS-B, NNLS, bounded least
squares) or HiGHS and polished by Newton's method or the equations of its active set. The tests
check each by other means. Minima are cached by a checksum of data and definition.

`Recorder` counts the calls of a run and notes at which of them each relative accuracy was reached;
the relative accuracy of a value f is (f - f*) / (f(x0) - f*), see `Problem.relative_gap`.

Run: python benchmarks/suite.py [--generated] [--quick] prints the problems.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.sparse as sp
from scipy.optimize import linprog, lsq_linear, nnls
from scipy.optimize import minimize as scipy_minimize

import accelegrad as ag
from accelegrad.data.datasets import DATA_FOLDER, DataError, as_binary, find, read, sparse_text
from accelegrad.files import whole_file
from accelegrad.lab.engine.minimum import find_minimum, is_sparse, solved
from accelegrad.lab.engine.stored_data import without_empty_columns
from accelegrad.problems.sets import FeasibleSet

Vector = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.float64]
Function = Callable[[Vector], tuple[float, Vector]]

THRESHOLDS = (1e-2, 1e-4, 1e-6)
"""The relative accuracies that a recorder looks for unless told otherwise."""

# Part of the checksum: to be raised when a solver below changes, so that old minima are not used.
_EDITION = 2
# How far outside the feasible set a point may lie and still count (relative; see `contains`).
_FEASIBILITY = 1e-9
# A relative gap below this is no rounding: the stored minimum is not the minimum.
_IMPOSSIBLE = -1e-7


# -- problems --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Problem:
    """A convex function, a start, and the minimum.

    Attributes
    ----------
    name : str
        What it is; a stand-in for a data set has "-like" behind the set's name.
    kind : str
        "smooth", "non-smooth", "ill-scaled", "far start" or "constrained".
    fun : LinearModel or callable
        The function; a callable returns value and (sub)gradient.
    x0 : Vector
        The start, feasible where there is a constraint.
    minimiser : Vector
        A point at which the minimum is taken; where there are several, the one nearest to x0.
    minimum : float
        The function's value there; above the true minimum by at most 1e-10 (f(x0) - minimum).
    feasible_set : FeasibleSet or None
        The constraint.
    model : LinearModel or None
        `fun`, where it is a LinearModel.
    smooth : bool
        Whether the function is differentiable everywhere. That need not mean that the gradient is
        Lipschitz: those of "power-1.5" and "quartic" are not.
    """

    name: str
    kind: str
    fun: ag.LinearModel | Function
    x0: Vector
    minimiser: Vector
    minimum: float
    feasible_set: FeasibleSet | None = None
    model: ag.LinearModel | None = None
    smooth: bool = field(default=True, kw_only=True)

    def __repr__(self) -> str:
        return f"Problem({self.name!r}, {self.kind}, {self.x0.size} coordinates)"

    def evaluate(self, x: Vector) -> tuple[float, Vector]:
        """Return the value and a (sub)gradient at x, whatever `fun` is."""
        return _evaluate(self.fun, x)

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


def _evaluate(fun: ag.LinearModel | Function, x: Vector) -> tuple[float, Vector]:
    return fun.value_and_gradient(x) if isinstance(fun, ag.LinearModel) else fun(x)


def load(
    real: bool | None = None, quick: bool = False, cache: str | os.PathLike[str] | None = None
) -> list[Problem]:
    """Return the problems of the suite with their minima.

    Parameters
    ----------
    real : bool, optional
        True: data sets from the folder that ACCELEGRAD_DATA names, and an error if one is missing.
        False: generated stand-ins of similar shape. By default each set that is there, with a
        stand-in for each that is not; with `quick` stand-ins only.
    quick : bool
        Small problems, for tests. Data sets keep their size.
    cache : path, optional
        The folder for the minima; by default accelegrad/benchmarks in the user's cache folder.
    """
    folder = default_cache() if cache is None else Path(cache)
    folder.mkdir(parents=True, exist_ok=True)
    data = Data((not quick) if real is None else real, real is True, quick)
    parts = (_smooth, _non_smooth, _ill_scaled, _far_start, _constrained)
    return [finished(draft, folder) for part in parts for draft in part(data)]


def default_cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "accelegrad" / "benchmarks"


# -- recording -------------------------------------------------------------------------------------


class EnoughError(Exception):
    """Raised by a recorder to end a run: all that was to be seen was seen, or the budget spent."""


class Recorder:
    """A problem's function that counts its calls and notes when thresholds are met.

    The recorder itself is the callable to minimise (value and gradient). Only points at which the
    solver evaluates something count, and in constrained problems only feasible ones.

    Parameters
    ----------
    problem : Problem
        What is minimised.
    thresholds : iterable of float
        Relative accuracies, see `Problem.relative_gap`.
    max_calls : int, optional
        The budget.
    raises : bool
        Whether a call raises `EnoughError` once the last threshold is met, and instead of
        exceeding the budget. Otherwise only `done` and `callback` tell.

    Attributes
    ----------
    calls : int
        How often the function was called: for a value, a gradient or both, each counts one.
    gradient_calls : int
        How many of these asked for a gradient.
    lowest : float
        The lowest value at a feasible point so far.
    best : Vector or None
        That point.
    first_call : dict
        For each threshold the number of the call that met it first, None where none has.
    """

    def __init__(
        self,
        problem: Problem,
        thresholds: Iterable[float] = THRESHOLDS,
        *,
        max_calls: int | None = None,
        raises: bool = True,
    ) -> None:
        self.problem, self.max_calls, self.raises = problem, max_calls, raises
        self.calls = self.gradient_calls = 0
        self.lowest = np.inf
        self.best: Vector | None = None
        self.first_call: dict[float, float | None] = dict.fromkeys(sorted(thresholds, reverse=True))

    def __call__(self, x: Vector) -> tuple[float, Vector]:
        """Return value and gradient at x: one call."""
        self._count()
        self.gradient_calls += 1
        value, gradient = self.problem.evaluate(x)
        self._note(x, value)
        return value, gradient

    def value(self, x: Vector) -> float:
        """Return the value alone: one call."""
        self._count()
        model = self.problem.model
        value = self.problem.evaluate(x)[0] if model is None else model.value(x)
        self._note(x, value)
        return value

    def gradient(self, x: Vector) -> Vector:
        """Return the gradient alone: one call."""
        return self(x)[1]

    def observe(self, x: Vector, calls: float | None = None) -> None:
        """Judge a point that was not evaluated here; it does not count as a call.

        For stochastic runs, which get the LinearModel itself: `calls` is what they have used so
        far, in passes over the data; by default the calls counted here.
        """
        self._judge(x, self.problem.evaluate(x)[0], self.calls if calls is None else calls)

    @property
    def reached(self) -> bool:
        """Whether every threshold was met."""
        return all(call is not None for call in self.first_call.values())

    @property
    def done(self) -> bool:
        """Whether every threshold was met or the budget is spent."""
        return self.reached or (self.max_calls is not None and self.calls >= self.max_calls)

    def callback(self, *_: Any, **__: Any) -> None:
        """Raise StopIteration once `done`: a callback for `accelegrad.minimize` and SciPy."""
        if self.done:
            raise StopIteration

    def run(self, run: Callable[[Recorder], object]) -> Recorder:
        """Return the recorder itself after `run(recorder)`, however that run ended."""
        with contextlib.suppress(EnoughError):
            run(self)
        return self

    def _count(self) -> None:
        if self.raises and self.done:
            raise EnoughError
        self.calls += 1

    def _note(self, x: Vector, value: float) -> None:
        self._judge(x, value, self.calls)
        if self.raises and self.reached:
            raise EnoughError

    def _judge(self, x: Vector, value: float, calls: float) -> None:
        feasible = self.problem.feasible_set
        # The set is asked last, and only about points that matter: projecting may cost something.
        if not value < self.lowest or not (
            feasible is None or feasible.contains(x, tolerance=_FEASIBILITY)
        ):
            return
        gap = self.problem.relative_gap(value)
        if gap < _IMPOSSIBLE:
            raise RuntimeError(
                f"{self.problem!r}: found {value!r}, below the stored minimum "
                f"{self.problem.minimum!r} (relative gap {gap:.1e}): the minimum is wrong."
            )
        self.lowest, self.best = float(value), np.array(x, dtype=np.float64)
        for threshold, call in self.first_call.items():
            if call is None and gap <= threshold:
                self.first_call[threshold] = calls


def first_call_below(
    problem: Problem,
    thresholds: Iterable[float],
    run: Callable[[Recorder], object],
    *,
    max_calls: int | None = None,
) -> dict[float, float | None]:
    """Return for each threshold the number of the call at which a solver met it first, or None.

    Parameters
    ----------
    problem, thresholds, max_calls
        As for `Recorder`.
    run : callable
        ``run(recorder)`` minimises the recorder, a function x -> (value, gradient), starting at
        ``recorder.problem.x0``. It is ended by an exception when nothing is left to be seen.
    """
    return Recorder(problem, thresholds, max_calls=max_calls).run(run).first_call


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


class Rows(NamedTuple):
    """A data set: the name for problems, features, targets."""

    name: str
    X: Any
    y: Vector


class _Source(NamedTuple):
    """How many rows to take of a set, and what stands in for it (in the size `quick` for tests)."""

    rows: int
    columns: int
    quick: tuple[int, int]
    stand_in: Callable[[int, int, np.random.Generator], tuple[Any, Vector]]


class Data:
    """The data sets of a suite, each read or generated once.

    Parameters
    ----------
    real : bool
        Whether to look for the sets themselves.
    needed : bool
        Whether a missing one is an error.
    quick : bool
        Whether stand-ins are small.
    """

    def __init__(self, real: bool, needed: bool, quick: bool) -> None:
        self.real, self.needed, self.quick = real, needed, quick
        self._known: dict[str, Rows] = {}

    def size(self, full: int, quick: int) -> int:
        """Return a size for a synthetic problem."""
        return quick if self.quick else full

    def rows(self, name: str) -> Rows:
        """Return a data set without empty columns; a rather full one as a dense array."""
        if name not in self._known:
            path = find(name) if self.real else None
            if path is None and self.needed:
                raise DataError(
                    f"{name}: not found; {DATA_FOLDER} must name a folder with this data set."
                )
            self._known[name] = self._generated(name) if path is None else self._read(name, path)
        return self._known[name]

    def _generated(self, name: str) -> Rows:
        source = _SOURCES[name]
        n, d = source.quick if self.quick else (source.rows, source.columns)
        X, y = source.stand_in(n, d, np.random.default_rng(zlib.crc32(name.encode())))
        return Rows(f"{name}-like", _compact(X), y)

    @staticmethod
    def _read(name: str, path: Path) -> Rows:
        data, most = read(path), _SOURCES[name].rows
        y = as_binary(data.y) if np.unique(data.y).size == 2 else data.y
        X: Any = data.X
        if y.size > most:
            kept = np.sort(np.random.default_rng(0).choice(y.size, most, replace=False))
            X, y = X[kept], y[kept]
        return Rows(name, _compact(X), y)

    def standardised(self, name: str) -> Rows:
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


def _categories(
    n: int, d: int, rng: np.random.Generator, *, groups: int, positives: float, noise: float
) -> tuple[Any, Vector]:
    """Make rows of one-hot coded categories, as in a9a and mushrooms."""
    groups = min(groups, d // 3)
    blocks = np.array_split(np.arange(d), groups)
    columns = [rng.choice(block, n, p=rng.dirichlet(np.ones(block.size))) for block in blocks]
    indices = np.column_stack(columns).ravel()
    parts = np.ones(n * groups), indices, np.arange(0, n * groups + 1, groups)
    X: Any = sp.csr_matrix(parts, shape=(n, d))
    return X, _labels(X @ rng.standard_normal(d), positives, noise, rng)


def _keywords(n: int, d: int, rng: np.random.Generator) -> tuple[Any, Vector]:
    """Make sparse rows of zeros and ones with few positive labels, as in w8a."""
    rates = np.minimum(12 * rng.dirichlet(np.full(d, 0.5)), 0.5)
    X: Any = sp.csr_matrix((rng.random((n, d)) < rates).astype(np.float64))
    return X, _labels(X @ (2 * rng.standard_normal(d)), 0.05, 1.0, rng)


def _documents(n: int, d: int, rng: np.random.Generator, *, words: int) -> tuple[Any, Vector]:
    """Make text-like rows, as in the Reuters sets."""
    seed = int(rng.integers(2**31))
    data = sparse_text(n, d, min(words, d // 8), seed=seed)
    return data.X, data.y


def _measurements(
    n: int, d: int, rng: np.random.Generator, *, skew: float, positives: float, units: bool = True
) -> tuple[Any, Vector]:
    """Make dense correlated features and two classes that overlap, as in magic04 and spambase."""
    X, latent = _correlated(n, d, rng, skew)
    X = X if units else X / np.abs(X).max(axis=0)
    return X, _labels(latent @ rng.standard_normal(d), positives, 1.0, rng)


def _regression(n: int, d: int, rng: np.random.Generator, *, noise: float) -> tuple[Any, Vector]:
    """Make dense correlated features and targets with heavy-tailed noise, as in housing."""
    X, latent = _correlated(n, d, rng, 0.3)
    y = 20 + 5 * (latent @ rng.standard_normal(d)) / np.sqrt(d)
    return X, y + noise * rng.standard_t(3, n)


def _correlated(n: int, d: int, rng: np.random.Generator, skew: float) -> tuple[Matrix, Matrix]:
    """Return features of very different units and their logarithms, which are Gaussian."""
    factors = rng.standard_normal((n, 1 + d // 4)) @ rng.standard_normal((1 + d // 4, d))
    latent = (factors / np.sqrt(1 + d // 4) + rng.standard_normal((n, d))) / np.sqrt(2)
    return np.exp(skew * latent) * 10.0 ** rng.uniform(-2, 3, d), latent


def _labels(scores: Vector, positives: float, noise: float, rng: np.random.Generator) -> Vector:
    scores = scores / scores.std() + noise * rng.logistic(scale=0.5, size=scores.size)
    return np.where(scores > np.quantile(scores, 1 - positives), 1.0, -1.0)


_SOURCES = {
    "a9a": _Source(
        6000, 123, (150, 20), partial(_categories, groups=14, positives=0.24, noise=1.0)
    ),
    "w8a": _Source(6000, 300, (200, 30), _keywords),
    "ijcnn1": _Source(
        6000, 22, (150, 8), partial(_measurements, skew=0.8, positives=0.1, units=False)
    ),
    "rcv1_vw_small": _Source(1000, 47236, (60, 400), partial(_documents, words=77)),
    "svmlight_reuters_acq": _Source(1000, 9947, (60, 300), partial(_documents, words=47)),
    "mushrooms": _Source(
        4000, 112, (150, 20), partial(_categories, groups=21, positives=0.5, noise=0.1)
    ),
    "magic04": _Source(6000, 10, (150, 6), partial(_measurements, skew=0.8, positives=0.65)),
    "spambase": _Source(4601, 57, (300, 10), partial(_measurements, skew=1.2, positives=0.4)),
    "cadata": _Source(6000, 8, (120, 5), partial(_regression, noise=2.0)),
    "housing": _Source(506, 13, (100, 6), partial(_regression, noise=2.0)),
    "bodyfat": _Source(252, 14, (80, 6), partial(_regression, noise=0.5)),
    "abalone": _Source(4177, 8, (120, 5), partial(_regression, noise=2.0)),
    "cpusmall": _Source(4000, 12, (100, 6), partial(_regression, noise=2.0)),
}


# -- the list --------------------------------------------------------------------------------------


class Draft(NamedTuple):
    """A problem without its minimum; `solve` returns the minimiser."""

    name: str
    kind: str
    fun: ag.LinearModel | Function
    x0: Vector
    solve: Callable[[], Vector]
    feasible_set: FeasibleSet | None = None
    smooth: bool = True


def _smooth(data: Data) -> Iterator[Draft]:
    yield from _least_squares(data)
    for name in ("a9a", "w8a", "ijcnn1", "rcv1_vw_small"):
        rows = data.rows(name)
        for factor in (1.0, 0.01):
            title = f"logistic-{rows.name}-l2={factor:g}/n"
            yield _model_draft(title, "smooth", rows, "logistic", l2=factor / rows.y.size)
    for name in ("magic04", "spambase"):
        rows = data.standardised(name)
        yield _model_draft(f"logistic-{rows.name}", "smooth", rows, "logistic", fit_intercept=True)
    rows = data.rows("a9a")
    title = f"squared-hinge-{rows.name}"
    yield _model_draft(title, "smooth", rows, "squared_hinge", l2=1 / rows.y.size)
    rows = data.standardised("cadata")
    rows = rows._replace(y=(rows.y - rows.y.mean()) / rows.y.std())
    yield _model_draft(f"huber-{rows.name}", "smooth", rows, "huber", fit_intercept=True)
    yield from _smooth_closed_forms(data)


def _least_squares(data: Data) -> Iterator[Draft]:
    rows = _gaussian_rows("least-squares", data.size(1000, 60), data.size(100, 12), seed=1)
    yield _model_draft(rows.name, "smooth", rows, "squared")
    yield _model_draft("least-squares-ill-conditioned", "smooth", _uneven_rows(data), "squared")
    rows = _gaussian_rows("least-squares-wide", data.size(100, 12), data.size(300, 30), seed=3)
    yield _model_draft(rows.name, "smooth", rows, "squared")


def _gaussian_rows(name: str, n: int, d: int, seed: int) -> Rows:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return Rows(name, X, X @ rng.standard_normal(d) + 0.5 * rng.standard_normal(n))


def _uneven_rows(data: Data) -> Rows:
    """Return columns of sizes from 1 to 1e-3, a Hessian of condition about 1e6.

    The coefficients grow as the columns shrink, so that the small ones matter too.
    """
    n, d = data.size(1000, 60), data.size(100, 12)
    rng = np.random.default_rng(2)
    sizes = np.logspace(0, -3, d)
    X = rng.standard_normal((n, d)) * sizes
    signs = rng.standard_normal(d)
    return Rows("uneven", X, X @ (signs / np.sqrt(sizes)) + 0.1 * rng.standard_normal(n))


def _smooth_closed_forms(data: Data) -> Iterator[Draft]:
    rng = np.random.default_rng(4)
    d = data.size(50, 10)
    A, b, center = rng.standard_normal((6 * d, d)), rng.standard_normal(6 * d), _unit(d, rng) * 5
    # With the softmax shares at `center` as weights the rows add up to 0: the gradient is 0 there.
    shares = np.exp(b) / np.exp(b).sum()
    fun = LogSumExp(A - shares @ A, b, center)
    yield Draft("log-sum-exp", "smooth", fun, np.zeros(d), center.copy)

    worst = NesterovWorst(data.size(200, 20))
    start = np.zeros(worst.dimension)
    yield Draft("nesterov-worst", "smooth", worst, start, lambda: worst.minimiser)

    A, target = rng.standard_normal((2 * d, d)), rng.standard_normal(d)
    yield Draft("quartic", "smooth", Power(A, A @ target, 4.0), np.zeros(d), target.copy)

    A = rng.standard_normal((8 * d, d))
    power = Power(A, A @ target + rng.laplace(size=8 * d), 1.5)
    yield Draft("power-1.5", "smooth", power, np.zeros(d), partial(_power_minimiser, power))


def _unit(d: int, rng: np.random.Generator) -> Vector:
    direction = rng.standard_normal(d)
    return direction / float(np.linalg.norm(direction))


def _non_smooth(data: Data) -> Iterator[Draft]:
    for name in ("housing", "bodyfat", "abalone"):
        rows = data.standardised(name)
        title = f"absolute-{rows.name}"
        yield _model_draft(title, "non-smooth", rows, "absolute", fit_intercept=True)
    rows = data.standardised("cpusmall")
    title = f"quantile-0.9-{rows.name}"
    yield _model_draft(title, "non-smooth", rows, "quantile", quantile=0.9, fit_intercept=True)
    for name in ("mushrooms", "svmlight_reuters_acq"):
        rows = data.rows(name)
        yield _model_draft(f"hinge-{rows.name}", "non-smooth", rows, "hinge", l2=1 / rows.y.size)
    yield from _non_smooth_synthetic(data)


def _non_smooth_synthetic(data: Data) -> Iterator[Draft]:
    rng = np.random.default_rng(5)
    d = data.size(40, 8)
    affine = MaxAffine(rng.standard_normal((10 * d, d)), rng.standard_normal(10 * d))
    solve: Callable[[], Vector] = partial(_max_affine_minimiser, affine)
    yield Draft("max-affine", "non-smooth", affine, np.zeros(d), solve, smooth=False)

    center = 100 * rng.standard_normal(d)
    fun = L1Distance(center)
    yield Draft("l1-distance", "non-smooth", fun, np.zeros(d), center.copy, smooth=False)

    A, target = rng.standard_normal((4 * d, d)), rng.standard_normal(d)
    norm = ResidualNorm(A, A @ target)
    yield Draft("residual-norm", "non-smooth", norm, np.zeros(d), target.copy, smooth=False)


def _ill_scaled(data: Data) -> Iterator[Draft]:
    def scaled(rows: Rows, factor: float) -> Rows:
        return Rows(f"{rows.name}-times-{factor:g}", rows.X * factor, rows.y)

    rows = scaled(_gaussian_rows("gaussian", data.size(1000, 60), data.size(100, 12), 6), 1e3)
    yield _model_draft(f"least-squares-{rows.name}", "ill-scaled", rows, "squared")
    for factor in (1e-3, 1e3):
        rows = scaled(data.standardised("magic04"), factor)
        title = f"logistic-{rows.name}"
        yield _model_draft(title, "ill-scaled", rows, "logistic", fit_intercept=True)
        rows = scaled(data.standardised("housing"), factor)
        title = f"absolute-{rows.name}"
        yield _model_draft(title, "ill-scaled", rows, "absolute", fit_intercept=True)


def _far_start(data: Data) -> Iterator[Draft]:
    def far(draft: Draft, distance: float, seed: int) -> Draft:
        direction = _unit(draft.x0.size, np.random.default_rng(seed))
        return draft._replace(x0=distance * direction)

    rows = _gaussian_rows("gaussian", data.size(1000, 60), data.size(100, 12), 7)
    yield far(_model_draft("least-squares-from-1e4", "far start", rows, "squared"), 1e4, 8)
    rows = data.rows("ijcnn1")
    title = f"logistic-{rows.name}-from-1e3"
    draft = _model_draft(title, "far start", rows, "logistic", l2=1 / rows.y.size)
    yield far(draft, 1e3, 9)
    rows = data.standardised("bodyfat")
    title = f"absolute-{rows.name}-from-1e4"
    yield far(_model_draft(title, "far start", rows, "absolute", fit_intercept=True), 1e4, 10)


def _constrained(data: Data) -> Iterator[Draft]:
    kind, n, d = "constrained", data.size(300, 40), data.size(80, 10)
    rows = _gaussian_rows("", n, d, 11)
    model = ag.LinearModel(rows.X, rows.y, "squared")
    even, zero = np.full(d, 1 / d), np.zeros(d)

    rng = np.random.default_rng(12)
    y = rows.X @ rng.dirichlet(np.full(d, 0.2)) + rng.standard_normal(n)
    mixture = ag.LinearModel(rows.X, y, "squared")
    solve: Callable[[], Vector] = partial(_simplex_least_squares, rows.X, y, 1.0)
    yield Draft("least-squares-simplex", kind, mixture, even, solve, ag.Simplex())
    box = ag.Box(-0.5, 0.5)
    solve = partial(_box_least_squares, rows.X, rows.y, -0.5, 0.5)
    yield Draft("least-squares-box", kind, model, zero, solve, box)
    radius = 0.2 * d
    solve = partial(_l1_least_squares, rows.X, rows.y, radius)
    yield Draft("least-squares-l1-ball", kind, model, zero, solve, ag.L1Ball(radius))
    solve = partial(_non_negative_least_squares, rows.X, rows.y)
    yield Draft("least-squares-non-negative", kind, model, zero, solve, ag.NonNegative())

    portfolio = _portfolio(d, rng)
    root = scipy.linalg.cholesky(portfolio.H)
    aim = scipy.linalg.solve_triangular(root, portfolio.c, trans="T")
    solve = partial(_simplex_least_squares, root, aim, 1.0)
    yield Draft("portfolio", kind, portfolio, even, solve, ag.Simplex())

    game = MaxAffine(rng.standard_normal((d, d)), zero)
    solve = partial(_max_affine_minimiser, game, over_simplex=True)
    yield Draft("matrix-game", kind, game, even, solve, ag.Simplex(), smooth=False)


def _portfolio(d: int, rng: np.random.Generator) -> Quadratic:
    """Return risk less expected return: a few factors move all prices, and each its own luck."""
    factors = 0.2 * rng.standard_normal((d, 5))
    covariance = factors @ factors.T + np.diag(rng.uniform(0.01, 0.2, d))
    return Quadratic(covariance, 0.03 * rng.standard_normal(d))


def _model_draft(name: str, kind: str, rows: Rows, loss: str, **options: Any) -> Draft:
    model = ag.LinearModel(rows.X, rows.y, loss, **options)
    smooth = np.isfinite(model.loss.curvature)
    solve = partial(_model_minimiser, model)
    return Draft(name, kind, model, np.zeros(model.n_parameters), solve, smooth=bool(smooth))


# -- minima from elsewhere -------------------------------------------------------------------------


def _model_minimiser(model: ag.LinearModel) -> Vector:
    return find_minimum(model, exact=True).x


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


def _solved(program: Any) -> Any:
    if not program.success:
        raise RuntimeError(f"HiGHS did not solve a reference problem: {program.message}")
    return program


# HiGHS allows no smaller ones; what they leave is removed by solving for the active set.
_EXACT: Any = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


def _max_affine_minimiser(fun: MaxAffine, over_simplex: bool = False) -> Vector:
    """By HiGHS: minimise t over A x + b <= t; then the equations of the pieces that attain it."""
    m, d = fun.A.shape
    bounds: Any = [(0.0 if over_simplex else None, None)] * d + [(None, None)]
    sum_to_one: Any = {"A_eq": [[1.0] * d + [0.0]], "b_eq": [1.0]} if over_simplex else {}
    pieces = np.column_stack([fun.A, -np.ones(m)])
    program = _solved(
        linprog(
            np.eye(d + 1)[-1],
            A_ub=pieces,
            b_ub=-fun.b,
            bounds=bounds,
            method="highs-ds",
            options=_EXACT,
            **sum_to_one,
        )
    )
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


def _simplex_least_squares(A: Matrix, b: Vector, total: float) -> Vector:
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


def _l1_least_squares(A: Matrix, b: Vector, radius: float) -> Vector:
    """Minimise ||A x - b|| over an l1 ball that leaves out the unconstrained solution."""
    assert np.abs(scipy.linalg.lstsq(A, b)[0]).sum() > radius
    halves = _simplex_least_squares(np.hstack([A, -A]), b, radius)
    d = A.shape[1]
    return np.asarray(halves[:d] - halves[d:], dtype=np.float64)


def _box_least_squares(A: Matrix, b: Vector, lower: float, upper: float) -> Vector:
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


# -- the cache -------------------------------------------------------------------------------------


def finished(draft: Draft, folder: Path) -> Problem:
    """Return the problem with its minimum, from the cache where it is there."""
    path = folder / f"{checksum(draft)}.npz"
    found = _cached(path, draft.x0.size)
    if found is None:
        minimiser = _feasible(draft, draft.solve())
        found = minimiser, _evaluate(draft.fun, minimiser)[0]
        with whole_file(path) as file:
            np.savez(file, minimiser=found[0], minimum=np.array(found[1]))
    model = draft.fun if isinstance(draft.fun, ag.LinearModel) else None
    return Problem(
        draft.name,
        draft.kind,
        draft.fun,
        draft.x0,
        *found,
        feasible_set=draft.feasible_set,
        model=model,
        smooth=draft.smooth,
    )


def _feasible(draft: Draft, x: Vector) -> Vector:
    return x if draft.feasible_set is None else draft.feasible_set.project(x)


def _cached(path: Path, size: int) -> tuple[Vector, float] | None:
    try:
        # Opened here: NumPy would leave the file open where it is no archive.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            minimiser, minimum = stored["minimiser"], float(stored["minimum"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    return (minimiser, minimum) if minimiser.shape == (size,) else None


def checksum(draft: Draft) -> str:
    digest = hashlib.sha256()
    for part in (_EDITION, draft.name, draft.fun, draft.x0, draft.feasible_set):
        _feed(digest, part)
    return digest.hexdigest()[:32]


def _feed(digest: Any, part: Any) -> None:
    """Add all that defines a function or a set to a checksum."""
    if isinstance(part, np.ndarray):
        digest.update(f"{part.dtype}{part.shape}".encode())
        digest.update(np.ascontiguousarray(part).tobytes())
    elif is_sparse(part):
        _feed(digest, [list(part.shape), part.data, part.indices, part.indptr])
    elif isinstance(part, list):
        for one in part:
            _feed(digest, one)
    elif isinstance(part, ag.LinearModel):
        _feed(digest, [part.X, part.y, repr(part.loss), part.l2, part.fit_intercept])
    elif part is None or isinstance(part, (bool, int, float, str)):
        digest.update(f"{part!r};".encode())
    else:  # a function of this module, or a set: its attributes define it
        _feed(digest, type(part).__name__)
        _feed(digest, [one for pair in sorted(vars(part).items()) for one in pair])


# -- the table -------------------------------------------------------------------------------------


def _milliseconds(problem: Problem) -> float:
    times = []
    for _ in range(20):
        begun = time.perf_counter()
        problem.evaluate(problem.x0)
        times.append(time.perf_counter() - begun)
    return 1e3 * float(np.median(times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--generated", action="store_true", help="no real data")
    parser.add_argument("--quick", action="store_true", help="small problems")
    parser.add_argument("--cache", type=Path, help="the folder for the minima")
    given = parser.parse_args()
    begun = time.perf_counter()
    problems = load(False if given.generated else None, given.quick, given.cache)
    print(f"{len(problems)} problems in {time.perf_counter() - begun:.1f} s")
    head = f"{'problem':<40}{'kind':<13}{'d':>6}{'distance':>11}{'f(x0)':>12}{'minimum':>13}"
    print(f"{head}{'ms':>7}")
    for problem in problems:
        print(
            f"{problem.name:<40}{problem.kind:<13}{problem.x0.size:>6}{problem.distance:>11.4g}"
            f"{problem.start_value:>12.5g}{problem.minimum:>13.6g}{_milliseconds(problem):>7.2f}"
        )


if __name__ == "__main__":
    main()
