"""Random smooth convex functions over random polyhedra, given through `constraints=` and `bounds=`.

Rows may be duplicates, nearly parallel, or many at one point. Each has to end proved.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint
from scipy.optimize import minimize as scipy_minimize

import accelegrad as ag
from proofs.battery import Fun, Problem, Rng, composed, half_squares, soft_maximum

TOL = 1e-6
ROWS = ("plain", "integers", "duplicates", "nearly parallel", "degenerate", "equations")
RIDGE = 0.05


def draw(seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    d, m = int(rng.integers(2, 61)), int(rng.integers(1, 81))
    rows, function = str(rng.choice(ROWS)), str(rng.choice(list(FUNCTIONS)))
    inside = rng.standard_normal(d)
    A, low, high = _rows(rng, rows, m, d, inside)
    limits: dict[str, Any] = {"constraints": LinearConstraint(A, low, high)}
    if rng.random() < 0.4:
        lower, upper = inside - rng.exponential(1.0, d), inside + rng.exponential(1.0, d)
        lower[rng.random(d) < 0.3], upper[rng.random(d) < 0.3] = -np.inf, np.inf
        limits["bounds"] = Bounds(lower, upper)
    start = inside + rng.standard_normal(d) if rng.random() < 0.5 else np.zeros(d)
    name = f"{function} in {d} dimensions, {m} rows, {rows}{', bounds' * (len(limits) - 1)}"
    return Problem(_function(rng, function, d), inside, limits, name=name, x0=start)


def _rows(
    rng: Rng, kind: str, m: int, d: int, inside: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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


def _exponentials(z: np.ndarray) -> tuple[float, np.ndarray]:
    e = np.exp(np.minimum(z, 500.0))
    return e.sum(), e


def _logistic(z: np.ndarray) -> tuple[float, np.ndarray]:
    return np.logaddexp(0.0, -z).sum(), -1.0 / (1.0 + np.exp(np.clip(z, -500.0, 500.0)))


FUNCTIONS = {
    "quadratic": lambda X, y, shift: composed(half_squares, X, -X @ shift, RIDGE),
    "least squares": lambda X, y, shift: composed(half_squares, X, -5.0 * y),
    "log-sum-exp": lambda X, y, shift: composed(soft_maximum, 2.0 * X, y, RIDGE),
    "exponentials": lambda X, y, shift: composed(_exponentials, X, y, RIDGE),
    "logistic": lambda X, y, shift: composed(_logistic, 3.0 * np.sign(y)[:, None] * X, ridge=RIDGE),
}


def _function(rng: Rng, kind: str, d: int) -> Fun:
    X, shift = rng.standard_normal((2 * d, d)) / np.sqrt(d), 3.0 * rng.standard_normal(d)
    return FUNCTIONS[kind](X, rng.standard_normal(2 * d), shift)


def check(seed: int) -> None:
    """Fail unless the problem of a seed ends proved, and all that is said of it is true."""
    problem = draw(seed)
    result = ag.minimize(problem.fun, problem.x0, tol=TOL, **problem.keywords)
    assert result.success, f"{problem.name}: {result.status.name}, gap {result.gap:.3g}"
    verify(problem, result)


def verify(problem: Problem, result: Any) -> None:
    """Fail if the point misses a row, a point is below the bound, or multipliers are wrong."""
    given, bounds = problem.keywords["constraints"], problem.keywords.get("bounds")
    A, low, high = given.A, given.lb, given.ub
    x, name = result.x, problem.name
    terms = np.abs(A) @ (np.abs(x) + np.abs(problem.best)) + 1.0
    product = A @ x
    assert (np.maximum(product - high, low - product) <= 1e-9 * terms).all(), name
    box = None if bounds is None else (bounds.lb, bounds.ub)
    if box is not None:
        assert (np.clip(x, *box) == x).all(), name
    # Points that meet the constraints: the one they were drawn around, and SLSQP's, made feasible.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SLSQP clips its own steps and says so
        given = {"options": {"maxiter": 1000, "ftol": 1e-10}, **problem.keywords}
        found = scipy_minimize(problem.fun, problem.x0, jac=True, method="SLSQP", **given).x
    for point in (problem.best, ag.Polyhedron(A, low, high, box).project(found)):
        value = problem.fun(point)[0]
        assert result.lower_bound <= value + 1e-9 * (1.0 + abs(value)), name
    parts = [(A, low, high)]
    if box is not None:
        parts.append((np.eye(x.size), *box))
    check_multipliers(parts, result, name)


def check_multipliers(parts: Any, result: Any, name: str) -> None:
    """Fail unless gradient and normals cancel, signs are right, and slack rows have none."""
    total, slack_sum = result.jac.copy(), 0.0
    for (A, low, high), m in zip(parts, result.multipliers, strict=True):
        total += m @ A
        assert not (m[np.isinf(high)] > 0.0).any(), name
        assert not (m[np.isinf(low)] < 0.0).any(), name
        slack = np.where(m > 0.0, high - A @ result.x, A @ result.x - low)
        slack_sum += float(np.abs(m[m != 0.0]) @ np.abs(slack[m != 0.0]))
    # A gap e allows for a distance of the order of sqrt(e), and so does the gradient's change.
    size = 1.0 + abs(result.fun)
    assert np.linalg.norm(total) <= 30.0 * np.sqrt(TOL * size), name
    assert slack_sum <= 30.0 * np.sqrt(TOL) * size, name
