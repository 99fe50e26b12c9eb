"""500 ordinary convex functions, written as users write them: plain float64 NumPy.

    python tests/proofs/battery.py [--tol 1e-4 1e-6 1e-8] [--only FAMILY]

Each entry is minimised with the default settings. It has to end with a proof; with a tolerance below
1e-7, rounding may end one run in a hundred. The true minimum is known to more digits than any
tolerance asks for, from a closed form or from another solver, so that a false bound is found.

`make fuzz` draws functions of the same families with other numbers: see `check`.
"""

from __future__ import annotations

import argparse
import collections
import math
import sys
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":  # a script's own folder: its modules are those of the package `proofs`
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import numpy as np
from scipy.optimize import Bounds, linprog
from scipy.optimize import minimize as scipy_minimize
from scipy.special import logsumexp

import accelegrad as ag
from proofs.checks import FindingError
from proofs.extended import Rng
from reference.losses import minimiser_by_highs

Vector = Any
Fun = Callable[[Vector], tuple[float, Vector]]
COUNT = 500
STARTS = ("zero", "minimiser", "far", "near")
DIMENSIONS = (1, 2, 3, 5, 10, 20)
#: Rounding can end a run with a smaller tolerance than this; with a larger one it must not.
ROUNDING_TOL = 1e-7
#: A gap that rounding left is at most this share of the values, a hundredth of the larger tolerances
ROUNDING_GAP = 1e-6
#: A gap of so many times what rounding changes in the values around a point cannot be closed.
CANCELLED = 32.0
#: How far the reference and the function itself may be off by rounding, in units of float64's
#: precision times the values: the functions sum up to a few hundred terms.
SLACK = 512 * float(np.finfo(float).eps)


@dataclass(frozen=True, eq=False)
class Problem:
    """One call of `ag.minimize`, and a point that minimises as well as float64 can tell."""

    fun: Fun
    best: Vector
    keywords: dict[str, Any] = field(default_factory=dict)
    far: float = 1e3  # how far away the start "far" is, in units of 1 + the size of `best`
    size: float = 1.0  # the size of the terms whose difference the value is
    name: str = ""
    x0: Vector = 0.0
    minimum: float | None = None


class Outcome(NamedTuple):
    """How a run ended."""

    name: str
    tol: float
    verdict: str  # "proved", "rounding", "unproved", "false" or "raised"
    detail: str = ""
    result: Any = None  # none after an exception

    def line(self) -> str:
        r = self.result
        ended = "" if r is None else f"{r.status.name:18s} {r.nit:5d} {r.nfev:5d} gap {r.gap:9.2e}"
        return f"{self.name:32s} tol {self.tol:.0e} {self.verdict:9s} {ended} {self.detail}"


# -- references ------------------------------------------------------------------------------------


def value(fun: Fun, x: Vector) -> float:
    """Return the function at a point, computed in long doubles where the function lets it."""
    return float(fun(np.asarray(x, dtype=np.longdouble))[0])


def smooth_minimiser(fun: Fun, start: Vector, bounds: Any = None) -> Vector:
    """Return the minimiser of a smooth function, by SciPy; bounds as pairs."""
    x, given = np.asarray(start, dtype=float), {"method": "L-BFGS-B", "jac": True}
    options = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 0, "gtol": 1e-13}
    for _ in range(3):  # a restart forgets the curvature that rounding has spoilt
        x = scipy_minimize(fun, x, bounds=bounds, options=options, **given).x
    return x


def largest_minimiser(funs: list[Fun], start: Vector, bounds: Any = None) -> Vector:
    """Return the minimiser of the largest of smooth functions, by SciPy's SLSQP on the epigraph."""
    d = len(start)
    x = np.append(start, max(fun(start)[0] for fun in funs))
    rows = {
        "type": "ineq",
        "fun": lambda z: np.array([z[d] - fun(z[:d])[0] for fun in funs]),
        "jac": lambda z: np.array([np.append(-fun(z[:d])[1], 1.0) for fun in funs]),
    }
    height = lambda z: (z[d], np.append(np.zeros(d), 1.0))  # noqa: E731
    given = {"constraints": [rows], "options": {"maxiter": 1000, "ftol": 1e-16}}
    given["bounds"] = None if bounds is None else [*bounds, (None, None)]
    for _ in range(3):
        x = scipy_minimize(height, x, jac=True, method="SLSQP", **given).x
    return x[:d]


# -- functions that several families have ----------------------------------------------------------


def composed(outer: Fun, A: Any, b: Any = 0.0, ridge: float = 0.0) -> Fun:
    def fun(x: Vector) -> tuple[float, Vector]:
        value, slopes = outer(A @ x + b)
        return value + ridge / 2 * x @ x, A.T @ slopes + ridge * x

    return fun


def half_squares(z: Vector) -> tuple[float, Vector]:
    return 0.5 * (z @ z), z


def sum_of_exponentials(z: Vector) -> tuple[float, Vector]:
    e = np.exp(z)
    return e.sum(), e


def soft_maximum(z: Vector) -> tuple[float, Vector]:
    top = z.max()
    e = np.exp(z - top)
    return top + np.log(e.sum()), e / e.sum()


def absolute_values(z: Vector) -> tuple[float, Vector]:
    return np.abs(z).sum(), np.sign(z)


def norm(z: Vector) -> tuple[float, Vector]:
    length = np.linalg.norm(z)
    return length, z / length if length > 0 else np.zeros(z.shape)


# -- families --------------------------------------------------------------------------------------


def least_squares_one(rng: Rng, d: int) -> Problem:
    """One variable, written in the ways in which people fit a constant or a slope."""
    n = int(rng.integers(2, 12))
    b = rng.standard_normal(n) * 10.0 ** rng.integers(-1, 3)
    if rng.random() < 0.2:  # the shortest: three numbers and their mean
        b = np.array([0.1, 0.7, 0.4])
    a = rng.standard_normal(b.size)
    A, best = a[:, None], np.array([a @ b / (a @ a)])
    fun, best = [
        (lambda x: (((x - b) ** 2).sum(), np.array([2 * (x - b).sum()])), np.array([b.mean()])),
        (lambda x: (float(np.mean((x - b) ** 2)), np.array([2 * np.mean(x - b)])), [b.mean()]),
        (lambda x: (np.sum((A @ x - b) ** 2), 2 * A.T @ (A @ x - b)), best),
        (lambda x: (0.5 * ((a * x[0] - b) ** 2).sum(), np.array([a @ (a * x[0] - b)])), best),
    ][int(rng.integers(4))]
    return Problem(fun, np.array(best), size=float(b @ b))


def least_squares(rng: Rng, d: int) -> Problem:
    """A design with more rows than columns, or fewer, or with a column that is another one's copy."""
    n = int(rng.integers(1, 4)) * d + int(rng.integers(4))
    A = rng.standard_normal((n, d)) * 10.0 ** rng.integers(-1, 2)
    if d > 1 and rng.random() < 0.3:
        A[:, -1] = A[:, 0]
    b = A @ rng.standard_normal(d) + rng.standard_normal(n) * rng.choice([0.0, 0.1, 1.0])
    best = np.linalg.lstsq(A, b, rcond=None)[0]
    kind = int(rng.integers(3))
    size = float(b @ b)
    if kind == 0:
        return Problem(lambda x: (np.sum((A @ x - b) ** 2), 2 * A.T @ (A @ x - b)), best, size=size)
    if kind == 1:

        def fun(x):
            r = A @ x - b
            return float(r @ r) / (2 * n), A.T @ r / n

        return Problem(fun, best, size=size)
    Q, q, constant = A.T @ A, A.T @ b, b @ b
    return Problem(lambda x: (0.5 * x @ Q @ x - q @ x + 0.5 * constant, Q @ x - q), best, size=size)


def bounded_least_squares(rng: Rng, d: int) -> Problem:
    """Least squares with nonnegative coefficients, or with limits on both sides."""
    A = rng.standard_normal((2 * d + 1, d))
    b = A @ rng.standard_normal(d) + 0.1 * rng.standard_normal(2 * d + 1)
    both = rng.random() < 0.5
    pairs = [(-0.5, 0.5)] * d if both else [(0, None)] * d
    fun = composed(half_squares, A, -b)
    best = smooth_minimiser(fun, np.zeros(d), pairs)
    given: Any = pairs
    if rng.random() < 0.5:
        given = Bounds(-0.5, 0.5) if both else Bounds(np.zeros(d), np.full(d, np.inf))
    return Problem(fun, best, {"bounds": given}, size=float(b @ b))


def exponentials(rng: Rng, d: int) -> Problem:
    kind = int(rng.integers(4))
    if kind == 0:
        c = np.round(rng.random(d) + 0.5, 2)
        return Problem(lambda x: (np.sum(np.exp(x) - c * x), np.exp(x) - c), np.log(c), far=10)
    if kind == 1:
        fun = lambda x: (np.sum(np.exp(x) + np.exp(-x)), np.exp(x) - np.exp(-x))  # noqa: E731
        return Problem(fun, np.zeros(d), far=10, size=2.0 * d)
    if kind == 2:
        A = rng.standard_normal((2 * d + 2, d))
        A[-1] = -A[:-1].sum(axis=0)
        fun = composed(sum_of_exponentials, A)
        return Problem(fun, smooth_minimiser(fun, np.zeros(d)), far=3, size=4.0 * d)
    fun = composed(sum_of_exponentials, np.eye(d), -rng.standard_normal(d), 1.0)
    return Problem(fun, smooth_minimiser(fun, np.zeros(d)), far=10)


def powers(rng: Rng, d: int) -> Problem:
    """Powers: flat where they are lowest."""
    kind, c = int(rng.integers(4)), np.round(rng.standard_normal(d), 2)
    fun = [
        lambda x: (np.sum(x**4), 4 * x**3),
        lambda x: (((x - c) ** 4).sum(), 4 * (x - c) ** 3),
        lambda x: ((np.abs(x - c) ** 3).sum(), 3 * np.abs(x - c) * (x - c)),
        lambda x: (np.sum((x - c) ** 4 + (x - c) ** 2), 4 * (x - c) ** 3 + 2 * (x - c)),
    ][kind]
    return Problem(fun, c if kind else np.zeros(d), far=100)


def norms(rng: Rng, d: int) -> Problem:
    """Euclidean norms, with their kink, with and without more."""
    kind, c = int(rng.integers(4)), np.round(rng.standard_normal(d), 2)
    if kind == 0:
        return Problem(lambda x: norm(x - c), c)
    if kind == 1:
        c = c / np.linalg.norm(c) * rng.choice([0.5, 2.0]) if c.any() else c

        def with_square(x):
            length, slope = norm(x)
            return length + 0.5 * np.sum((x - c) ** 2), slope + x - c

        size = float(np.linalg.norm(c))
        return Problem(with_square, c * max(0.0, 1 - 1 / size) if size else c)
    if kind == 2:
        A, b = rng.standard_normal((d + 2, d)), rng.standard_normal(d + 2)
        best = np.linalg.lstsq(A, b, rcond=None)[0]
        return Problem(composed(norm, A, -b), best, size=float(norm(b)[0]))

    def rooted(x):
        root = np.sqrt(1 + (x - c) ** 2)
        return root.sum(), (x - c) / root

    return Problem(rooted, c, size=float(d))


def absolute(rng: Rng, d: int) -> Problem:
    kind, c = int(rng.integers(5)), np.round(rng.standard_normal(d), 2)
    if kind == 0:
        return Problem(absolute_values, np.zeros(d))
    if kind == 1:
        w = np.round(rng.random(d) + 0.1, 1)
        return Problem(lambda x: (w @ np.abs(x - c), w * np.sign(x - c)), c)
    if kind == 2:
        return Problem(
            lambda x: (np.abs(x).sum() + 0.5 * ((x - 2 * c) ** 2).sum(), np.sign(x) + x - 2 * c),
            np.sign(c) * np.maximum(np.abs(2 * c) - 1, 0),
            size=float(1 + 2 * c @ c),
        )
    if kind == 3:

        def largest(x):
            i = int(np.argmax(np.abs(x - c)))
            slope = np.zeros(len(x))
            slope[i] = np.sign(x[i] - c[i])
            return np.abs(x - c).max(), slope

        return Problem(largest, c)
    given = {"bounds": [(0, None)] * d}
    return Problem(lambda x: absolute_values(x - c), np.maximum(c, 0), given)


def absolute_regression(rng: Rng, d: int) -> Problem:
    """The median, and regression with absolute errors."""
    n = 2 * d + 3
    A = rng.standard_normal((n, d))
    b = np.round(A @ rng.standard_normal(d) + rng.standard_t(2, n), 2)
    best = minimiser_by_highs("absolute", A, b, np.ones(n))
    return Problem(composed(absolute_values, A, -b), best, size=float(np.abs(b).sum()))


def log_sum_exp(rng: Rng, d: int) -> Problem:
    A = rng.standard_normal((2 * d + 3, d))
    A[-1] = -A[:-1].sum(axis=0)
    b = rng.standard_normal(2 * d + 3)
    alpha = float(rng.choice([0.0, 0.0, 0.1]))

    def with_scipy(z):
        total = logsumexp(z)
        return total, np.exp(z - total)

    fun = composed(soft_maximum, A, b, alpha)
    best = smooth_minimiser(fun, np.zeros(d))
    return Problem(fun if rng.random() < 0.5 else composed(with_scipy, A, b, alpha), best)


def logistic(rng: Rng, d: int) -> Problem:
    """Logistic regression, with labels that overlap or with a penalty."""
    n = 10 * d + 10
    X = rng.standard_normal((n, d))
    y = np.where(X @ rng.standard_normal(d) + 2 * rng.standard_normal(n) > 0, 1.0, -1.0)
    alpha = float(rng.choice([1.0, 0.1, 0.01]))
    mean = rng.random() < 0.5

    def fun(w):
        m = y * (X @ w)
        p = 1 / (1 + np.exp(m))
        slope, square = -X.T @ (y * p), alpha / 2 * w @ w
        if mean:
            return np.mean(np.logaddexp(0, -m)) + square, slope / n + alpha * w
        return np.logaddexp(0, -m).sum() + square, slope + alpha * w

    return Problem(fun, smooth_minimiser(fun, np.zeros(d)), far=30, size=float(n))


def textbook(rng: Rng, d: int) -> Problem:
    """Convex test functions of the textbooks."""
    weights = np.arange(1.0, d + 1)

    def booth(x):
        p, q = x[0] + 2 * x[1] - 7, 2 * x[0] + x[1] - 5
        return p**2 + q**2, np.array([2 * p + 4 * q, 4 * p + 2 * q])

    def matyas(x):
        slope = np.array([0.52 * x[0] - 0.48 * x[1], 0.52 * x[1] - 0.48 * x[0]])
        return 0.26 * (x[0] ** 2 + x[1] ** 2) - 0.48 * x[0] * x[1], slope

    def trid(x):
        gradient = 2 * (x - 1)
        gradient[1:] -= x[:-1]
        gradient[:-1] -= x[1:]
        return np.sum((x - 1) ** 2) - np.sum(x[1:] * x[:-1]), gradient

    def zakharov(x):
        s = 0.5 * weights @ x
        return x @ x + s**2 + s**4, 2 * x + (s + 2 * s**3) * weights

    return [
        Problem(booth, np.array([1.0, 3.0]), size=74.0),
        Problem(matyas, np.zeros(2)),
        Problem(trid, weights * (d + 1.0 - weights), size=float(d**4)),
        Problem(lambda x: (weights @ x**2, 2 * weights * x), np.zeros(d)),
        Problem(zakharov, np.zeros(d), far=30),
    ][int(rng.integers(5))]


def facilities(rng: Rng, d: int) -> Problem:
    """The point with the least sum of distances to given ones, or with the least largest one."""
    d = 2 if d < 4 else 3
    n = int(rng.integers(3, 12))
    P, w = rng.standard_normal((n, d)), np.round(rng.random(n) + 0.2, 2)
    if rng.random() < 0.3:
        w[0] = w.sum()  # one customer outweighs the others: the kink is the minimiser
    elif rng.random() < 0.4:
        return _centre(P)

    def fun(x):
        D = x - P
        r = np.sqrt((D**2).sum(axis=1))
        units = D / np.where(r > 0, r, 1)[:, None]
        return w @ r, w @ units

    best = smooth_minimiser(fun, (w @ P) / w.sum())
    best = min([best, *P], key=lambda x: value(fun, x))
    return Problem(fun, best, size=float(w.sum()))


def _centre(P: Any) -> Problem:
    def fun(x):
        D = x - P
        r = np.sqrt((D**2).sum(axis=1))
        i = np.argmax(r)
        return r[i], D[i] / r[i] if r[i] > 0 else np.zeros(len(x))

    squares = [lambda x, p=p: (np.sum((x - p) ** 2), 2 * (x - p)) for p in P]
    return Problem(fun, largest_minimiser(squares, P.mean(axis=0)))


def max_quadratics(rng: Rng, d: int) -> Problem:
    """The largest of quadratics, several of which meet where it is lowest."""
    count = int(rng.choice([2, 3, 5, 10]))
    bounds = [(-0.2, 0.2)] * d if rng.random() < 0.25 else None
    return largest_of_quadratics(rng, d, count, bounds)


def largest_of_quadratics(rng: Rng, d: int, count: int, bounds: Any = None) -> Problem:
    roots = rng.standard_normal((count, d, d)) / math.sqrt(d)
    Q = np.einsum("kij,klj->kil", roots, roots) + 0.1 * np.eye(d)
    q, c = rng.standard_normal((count, d)), rng.standard_normal(count)

    def fun(x):
        values = 0.5 * np.einsum("i,kij,j->k", x, Q, x) + q @ x + c
        k = int(np.argmax(values))
        return values[k], Q[k] @ x + q[k]

    def one(k):
        return lambda x: (0.5 * x @ Q[k] @ x + q[k] @ x + c[k], Q[k] @ x + q[k])

    best = largest_minimiser([one(k) for k in range(count)], np.zeros(d), bounds)
    given = {} if bounds is None else {"bounds": bounds}
    return Problem(fun, best, given, far=100, size=10.0)


def knapsack(rng: Rng, d: int) -> Problem:
    """The dual of a knapsack problem with one constraint, or with several."""
    d = 1 if rng.random() < 0.6 else min(d, 5)
    n = int(rng.integers(5, 30))
    v, W = rng.integers(1, 100, n).astype(float), rng.integers(1, 50, (d, n)).astype(float)
    capacity = np.floor(W.sum(axis=1) * rng.uniform(0.2, 0.8))

    def fun(u):
        reduced = v - u @ W
        taken = reduced > 0
        return u @ capacity + reduced[taken].sum(), capacity - W[:, taken].sum(axis=1)

    # min u C + sum s with s >= v - W' u, u and s >= 0
    rows = np.hstack([-W.T, -np.eye(n)])
    best = linprog(np.r_[capacity, np.ones(n)], rows, -v, method="highs-ds").x[:d]
    return Problem(fun, best, {"bounds": [(0, None)] * d}, far=100, size=float(v.sum()))


def entropy(rng: Rng, d: int) -> Problem:
    """Functions with logarithms, infinite outside of their domain."""
    kind = int(rng.integers(4))
    outside = math.nan if rng.random() < 0.5 else 0.0
    c = np.round(rng.random(d) + 0.2, 2)

    def domain(inside):
        def fun(x):
            if (x <= 0).any():
                return np.inf, np.full(len(x), outside)
            return inside(x)

        return fun

    if kind == 1:  # a barrier
        fun = domain(lambda x: (c @ x - np.log(x).sum(), c - 1 / x))
        return Problem(fun, 1 / c, size=float(d + np.abs(np.log(c)).sum()))
    if kind == 2:  # relative entropy
        fun = domain(lambda x: (np.sum(x * np.log(x / c) - x + c), np.log(x / c)))
        return Problem(fun, c)
    # negative entropy with prices; on the simplex its minimiser is exp of the prices, in proportion
    fun = domain(lambda x: (np.sum(x * np.log(x)) + c @ x, np.log(x) + 1 + c))
    if kind == 0:
        return Problem(fun, np.exp(-1 - c))
    weights = np.exp(-c)
    return Problem(fun, weights / weights.sum(), {"feasible_set": "simplex"})


#: The families, and how many of their functions are in the battery
COUNTS: dict[Callable[[Rng, int], Problem], int] = {
    least_squares_one: 84,
    least_squares: 76,
    bounded_least_squares: 28,
    exponentials: 36,
    powers: 40,
    norms: 28,
    absolute: 28,
    absolute_regression: 20,
    log_sum_exp: 20,
    logistic: 20,
    textbook: 24,
    facilities: 24,
    max_quadratics: 30,
    knapsack: 22,
    entropy: 20,
}
FAMILIES = {family.__name__: family for family in COUNTS}


def quiet(fun: Fun) -> Fun:
    """Return the function without NumPy's warnings, which far points cause in exp and in powers."""

    def silent(x: Vector) -> tuple[float, Vector]:
        with np.errstate(all="ignore"):
            return fun(x)

    return silent


def drawn(family: str, number: int, start: str, d: int) -> Problem:
    """Return one function of a family; for number 0, 1, ... those of the battery."""
    rng = np.random.default_rng([zlib.crc32(family.encode()), number])
    with np.errstate(all="ignore"):
        problem = FAMILIES[family](rng, d)
    best = problem.best
    way = rng.standard_normal(best.size)
    reach = 1 + float(np.abs(best).max())
    x0 = {
        "zero": np.zeros(best.size),
        "minimiser": best.copy(),
        "far": problem.far * reach * way / np.linalg.norm(way),
        "near": best + 0.5 * way,
    }[start]
    if family == "entropy":  # a start has to be in the domain
        x0 = np.ones(best.size) if start == "zero" else np.abs(x0)
    if "feasible_set" in problem.keywords:  # and in the simplex
        x0 = np.abs(x0) / np.abs(x0).sum() if x0.any() else np.full(best.size, 1 / best.size)
    fun, name = quiet(problem.fun), f"{family}-{number}-d{best.size}-{start}"
    minimum = value(fun, best)
    size = problem.size + abs(minimum)
    return replace(problem, fun=fun, size=size, name=name, x0=x0, minimum=minimum)


def specifications() -> list[tuple[str, int, str, int]]:
    """Return what the battery's entries are drawn from, in their order."""
    return [
        (family.__name__, number, STARTS[number % 4], DIMENSIONS[(number + number // 12) % 6])
        for family, count in COUNTS.items()
        for number in range(count)
    ]


# -- running ---------------------------------------------------------------------------------------


def run(entry: Problem, tol: float | None, **more: Any) -> Outcome:
    given = {"tol": tol, **entry.keywords, **more}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = ag.minimize(entry.fun, entry.x0.copy(), **given)
    except Exception as error:
        return Outcome(entry.name, tol or 0.0, "raised", f"{type(error).__name__}: {error}")
    verdict, detail = judged(entry, np.inf if tol is None else tol, result)
    return Outcome(entry.name, tol or 0.0, verdict, detail, result)


def judged(entry: Problem, tol: float, result: Any) -> tuple[str, str]:
    """Return whether a result is proved, and what is false about it."""
    if untrue := falsehood(entry, result):
        return "false", untrue
    size = max(1.0, abs(float(result.fun)))
    if result.success and result.gap <= tol * size:
        return "proved", ""
    if result.success:
        return "false", f"success with a gap of {result.gap}"
    if result.status == ag.Status.NOT_CONVEX:
        return "false", str(result.message)
    if result.status == ag.Status.AT_ROUNDING:
        if tol < ROUNDING_TOL and result.gap <= ROUNDING_GAP * size:
            return "rounding", ""
        if result.gap <= CANCELLED * noise(entry, result.x):
            return "rounding", ""
    return "unproved", str(result.message)


def noise(entry: Problem, x: Vector) -> float:
    """Return what rounding changes in values around a point, by long doubles."""
    points = [x, *(x * (1 + 1e-9 * np.random.default_rng(3).standard_normal((8, x.size))))]
    return max(abs(float(entry.fun(u)[0]) - value(entry.fun, u)) for u in points)


def falsehood(entry: Problem, result: Any) -> str:
    """Return what a result claims that is not so; nothing where all is true.

    Far from the minimiser that is known, along a direction that changes nothing, the terms of a
    value are larger than there, and so is what the function itself loses.
    """
    slack = SLACK * entry.size + noise(entry, result.x)
    known = float(entry.fun(np.asarray(result.x))[0])
    if not abs(known - result.fun) <= slack + SLACK * abs(known):
        return f"fun {result.fun!r} is not f(x) = {known!r}"
    if outside := _outside(entry, result.x):
        return outside
    if entry.minimum is None:
        return ""
    # References by other solvers may be off by more than rounding.
    if result.fun < entry.minimum - slack - 1e-10 * entry.size:
        return f"fun {result.fun!r} is below the minimum {entry.minimum!r}: the reference is wrong"
    # With success, the claim is about the minimum wherever it is; else about the stated region.
    reached = float(np.linalg.norm(entry.best - entry.x0)) <= result.certified_radius
    if not (reached or result.success):
        return ""
    if result.lower_bound > entry.minimum + slack:
        where = "" if reached else f", outside of the radius {result.certified_radius}"
        above = result.lower_bound - entry.minimum
        return f"lower_bound {result.lower_bound!r} is above the minimum by {above:.3g}{where}"
    if result.fun - entry.minimum > result.gap + slack:
        return f"gap {result.gap!r}, but fun - minimum = {result.fun - entry.minimum!r}"
    return ""


def limits(entry: Problem) -> tuple[Vector, Vector]:
    """Return the least and the largest coordinates that an entry's bounds allow."""
    bounds = entry.keywords.get("bounds", Bounds(-np.inf, np.inf))
    if not isinstance(bounds, Bounds):  # pairs, whose None are NaN here
        lower, upper = np.array(bounds, dtype=float).T
        bounds = Bounds(np.nan_to_num(lower, nan=-np.inf), np.nan_to_num(upper, nan=np.inf))
    ones = np.ones(entry.best.size)
    return bounds.lb * ones, bounds.ub * ones


def _outside(entry: Problem, x: Vector) -> str:
    lower, upper = limits(entry)
    excess = float(np.max(np.maximum(lower - x, x - upper)))
    if entry.keywords.get("feasible_set") == "simplex":
        excess = max(float(-np.min(x)), abs(float(np.sum(x)) - 1) - SLACK)
    return f"x is outside of its bounds by {excess}" if excess > 0 else ""


def check(seed: int) -> None:
    """Run a random function of the families; raise an AssertionError if it is not proved.

    `make fuzz` calls this with new seeds.
    """
    rng = np.random.default_rng([17, seed])
    family = str(rng.choice(list(FAMILIES)))
    start, d = str(rng.choice(STARTS)), int(rng.integers(1, 21))
    entry = drawn(family, COUNT + seed, start, d)
    tol = float(rng.choice([1e-4, 1e-6, 1e-8]))
    outcome = run(entry, tol)
    allowed = ("proved", "rounding", "unproved") if tol < 1e-7 else ("proved", "rounding")
    if outcome.verdict not in allowed:  # at 1e-8 some may go unproved, most of them nearly so
        text = f"{outcome.line()}\ndrawn({family!r}, {COUNT + seed}, {start!r}, {d})"
        known = outcome.result
        ended = outcome.detail[:40] if known is None else known.status.name
        raise FindingError(f"{outcome.verdict}, {ended}", text)


# -- the command -----------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Ordinary convex functions against their proofs.")
    parser.add_argument("--tol", type=float, nargs="+", default=[1e-4, 1e-6, 1e-8])
    parser.add_argument("--only", default="", help="run the families whose names begin so")
    given = parser.parse_args(arguments)
    entries = [drawn(*task) for task in specifications() if task[0].startswith(given.only)]
    outcomes = [run(entry, tol) for entry in entries for tol in given.tol]
    for outcome in outcomes:
        if outcome.verdict not in ("proved", "rounding"):
            print(outcome.line())
    counts = collections.Counter((outcome.tol, outcome.verdict) for outcome in outcomes)
    for (tol, verdict), count in counts.items():
        print(f"tol {tol:.0e}: {count} {verdict}")
    return int(not enough(outcomes))


def enough(outcomes: list[Outcome]) -> bool:
    """Return whether all are proved, but for one in a hundred that rounding ended."""
    rounded = [o for o in outcomes if o.verdict == "rounding"]
    fine = all(o.verdict in ("proved", "rounding") for o in outcomes)
    fewest = min(collections.Counter(o.tol for o in outcomes).values(), default=0)
    return fine and len(rounded) <= max(1, fewest // 100)


if __name__ == "__main__":
    sys.exit(main())
