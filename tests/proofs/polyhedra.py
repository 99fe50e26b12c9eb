"""Random smooth convex functions over random polyhedra, given through `constraints=` and `bounds=`.

Rows may be duplicates, nearly parallel, or many at one point. Each has to end proved.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint
from scipy.optimize import minimize as scipy_minimize

import accelegrad as ag

TOL = 1e-6
ROWS = ("plain", "integers", "duplicates", "nearly parallel", "degenerate", "equations")
FUNCTIONS = ("quadratic", "least squares", "log-sum-exp", "exponentials", "logistic")


class Drawn(NamedTuple):
    """A problem, and a point that meets its constraints up to rounding."""

    name: str
    fun: Callable[[np.ndarray], tuple[float, np.ndarray]]
    start: np.ndarray
    constraint: LinearConstraint
    bounds: Bounds | None
    inside: np.ndarray

    @property
    def limits(self) -> dict[str, Any]:
        """What `minimize` is given."""
        given: dict[str, Any] = {"constraints": self.constraint}
        return given if self.bounds is None else {**given, "bounds": self.bounds}


def draw(seed: int) -> Drawn:
    """Return the problem of a seed."""
    rng = np.random.default_rng(seed)
    d, m = int(rng.integers(2, 61)), int(rng.integers(1, 81))
    rows, function = str(rng.choice(ROWS)), str(rng.choice(FUNCTIONS))
    inside = rng.standard_normal(d)
    A, low, high = _rows(rng, rows, m, d, inside)
    bounds = None
    if rng.random() < 0.4:
        lower, upper = inside - rng.exponential(1.0, d), inside + rng.exponential(1.0, d)
        lower[rng.random(d) < 0.3], upper[rng.random(d) < 0.3] = -np.inf, np.inf
        bounds = Bounds(lower, upper)
    start = inside + rng.standard_normal(d) if rng.random() < 0.5 else np.zeros(d)
    name = f"{function} in {d} dimensions, {m} rows, {rows}{'' if bounds is None else ', bounds'}"
    constraint = LinearConstraint(A, low, high)
    return Drawn(name, _function(rng, function, d), start, constraint, bounds, inside)


def _rows(
    rng: np.random.Generator, kind: str, m: int, d: int, inside: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows and limits around a point."""
    A = rng.standard_normal((m, d))
    if kind == "integers":
        A = rng.integers(-1, 2, (m, d)).astype(float)
    elif kind == "duplicates":
        A = A[rng.integers(0, max(1, m // 3), m)] * rng.choice([1.0, -2.0, 3.0], (m, 1))
    elif kind == "nearly parallel":
        apart = 10.0 ** rng.uniform(-10.0, -2.0)
        A = A[rng.integers(0, max(1, m // 3), m)] + apart * rng.standard_normal((m, d))
    width = np.linalg.norm(A, axis=1)
    low = A @ inside - width * rng.exponential(0.5, m)
    high = A @ inside + width * rng.exponential(0.5, m)
    if kind == "degenerate":  # many rows hold at one point
        high = A @ inside + width * rng.exponential(0.5, m) * (rng.random(m) < 0.3)
    low[rng.random(m) < 0.6] = -np.inf
    if kind == "equations":
        some = rng.random(m) < min(0.5, 0.3 * d / m)
        low[some] = high[some] = (A @ inside)[some]
    return A, low, high


def _function(rng: np.random.Generator, kind: str, d: int) -> Any:
    """Return a convex function with a minimiser: value and gradient."""
    n = 2 * d
    X, shift = rng.standard_normal((n, d)) / np.sqrt(d), 3.0 * rng.standard_normal(d)
    y, ridge = rng.standard_normal(n), 0.05

    def quadratic(x: np.ndarray) -> tuple[float, np.ndarray]:
        r = X @ (x - shift)
        return 0.5 * r @ r + 0.5 * ridge * x @ x, X.T @ r + ridge * x

    def least_squares(x: np.ndarray) -> tuple[float, np.ndarray]:
        r = X @ x - 5.0 * y
        return 0.5 * r @ r, X.T @ r

    def log_sum_exp(x: np.ndarray) -> tuple[float, np.ndarray]:
        z = 2.0 * X @ x + y
        top = z.max()
        p = np.exp(z - top)
        total = p.sum()
        value = top + np.log(total) + 0.5 * ridge * x @ x
        return value, 2.0 * X.T @ (p / total) + ridge * x

    def exponentials(x: np.ndarray) -> tuple[float, np.ndarray]:
        z = np.exp(np.minimum(X @ x + y, 500.0))
        return z.sum() + 0.5 * ridge * x @ x, X.T @ z + ridge * x

    def logistic(x: np.ndarray) -> tuple[float, np.ndarray]:
        z = np.sign(y) * (3.0 * X @ x)
        slope = -np.sign(y) / (1.0 + np.exp(np.clip(z, -500.0, 500.0)))
        value = np.logaddexp(0.0, -z).sum() + 0.5 * ridge * x @ x
        return value, 3.0 * X.T @ slope + ridge * x

    functions = (quadratic, least_squares, log_sum_exp, exponentials, logistic)
    return dict(zip(FUNCTIONS, functions, strict=True))[kind]


def check(seed: int) -> None:
    """Fail unless the problem of a seed ends proved, and all that is said of it is true."""
    problem = draw(seed)
    result = ag.minimize(problem.fun, problem.start, tol=TOL, **problem.limits)
    assert result.success, f"{problem.name}: {result.status.name}, gap {result.gap:.3g}"
    verify(problem, result)


def verify(problem: Drawn, result: Any) -> None:
    """Fail if the point misses a row, a point is below the bound, or multipliers are wrong."""
    A, low, high = problem.constraint.A, problem.constraint.lb, problem.constraint.ub
    x, name = result.x, problem.name
    terms = np.abs(A) @ (np.abs(x) + np.abs(problem.inside)) + 1.0
    product = A @ x
    assert (np.maximum(product - high, low - product) <= 1e-9 * terms).all(), name
    if problem.bounds is not None:
        assert (np.clip(x, problem.bounds.lb, problem.bounds.ub) == x).all(), name
    # Points that meet the constraints: the one they were drawn around, and SLSQP's, made feasible.
    found = slsqp(problem)
    box = None if problem.bounds is None else (problem.bounds.lb, problem.bounds.ub)
    points = [problem.inside, ag.Polyhedron(A, low, high, box).project(found.x)]
    for point in points:
        value = problem.fun(point)[0]
        assert result.lower_bound <= value + 1e-9 * (1.0 + abs(value)), name
    check_multipliers(problem, result)


def check_multipliers(problem: Drawn, result: Any) -> None:
    """Fail unless gradient and normals cancel, signs are right, and slack rows have none."""
    constraint, gradient = problem.constraint, result.jac
    parts = [(constraint.A, constraint.lb, constraint.ub, result.multipliers[0])]
    if problem.bounds is not None:
        eye = np.eye(result.x.size)
        parts.append((eye, problem.bounds.lb, problem.bounds.ub, result.multipliers[1]))
    total, slack_sum = gradient.copy(), 0.0
    for A, low, high, m in parts:
        total += m @ A
        assert not (m[np.isinf(high)] > 0.0).any(), problem.name
        assert not (m[np.isinf(low)] < 0.0).any(), problem.name
        slack = np.where(m > 0.0, high - A @ result.x, A @ result.x - low)
        slack_sum += float(np.abs(m[m != 0.0]) @ np.abs(slack[m != 0.0]))
    # A gap e allows for a distance of the order of sqrt(e), and so does the gradient's change.
    size = 1.0 + abs(result.fun)
    assert np.linalg.norm(total) <= 30.0 * np.sqrt(TOL * size), problem.name
    assert slack_sum <= 30.0 * np.sqrt(TOL) * size, problem.name


def slsqp(problem: Drawn) -> Any:
    """Return SciPy's answer."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it clips its own steps and says so
        options = {"maxiter": 1000, "ftol": 1e-10}
        given = {"method": "SLSQP", "options": options, **problem.limits}
        return scipy_minimize(problem.fun, problem.start, jac=True, **given)
