"""Constrained problems against solvers that nobody here wrote."""

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, linprog, lsq_linear
from scipy.optimize import minimize as scipy_minimize

import accelegrad as ag
from toys import LeastSquares

D = 6


def constraint_sets():
    """Sets with, for SciPy: bounds, linear constraints and a start."""
    rng = np.random.default_rng(10)
    normal, A = rng.standard_normal(D), rng.standard_normal((2, D))
    b = A @ rng.standard_normal(D)
    some = (None, None)
    inside = np.linalg.lstsq(A, b, rcond=None)[0]
    return {
        "simplex": (
            ag.Simplex(1.0),
            [(0, None)] * D,
            [LinearConstraint(np.ones((1, D)), 1, 1)],
            np.full(D, 1 / D),
        ),
        "box": (ag.Box(-0.2, 0.3), [(-0.2, 0.3)] * D, [], np.zeros(D)),
        "l1": (ag.L1Ball(0.7), None, [], np.zeros(D)),
        "halfspace": (
            ag.Halfspace(normal, -0.5),
            [some] * D,
            [LinearConstraint(normal[None], -np.inf, -0.5)],
            -normal / (normal @ normal),
        ),
        "affine": (ag.Affine(A, b), [some] * D, [LinearConstraint(A, b, b)], inside),
        "nonnegative": (ag.NonNegative(), [(0, None)] * D, [], np.ones(D)),
        "ball": (ag.Ball(np.zeros(D), 0.5), [some] * D, "ball", np.zeros(D)),
        "product": (
            ag.Product([(ag.Simplex(1.0), 3), (ag.Box(-0.1, 0.1), 3)]),
            [(0, None)] * 3 + [(-0.1, 0.1)] * 3,
            [LinearConstraint(np.r_[np.ones(3), np.zeros(3)][None], 1, 1)],
            np.r_[np.full(3, 1 / 3), np.zeros(3)],
        ),
    }


def optimum(problem, name):
    """The constrained minimum by SciPy."""
    _, bounds, constraints, start = constraint_sets()[name]
    if name in ("box", "nonnegative"):
        bound = constraint_sets()[name][1][0]
        limits = (bound[0], np.inf if bound[1] is None else bound[1])
        return problem.value(lsq_linear(problem.A, problem.b, limits, tol=1e-14).x)
    if name == "l1":  # x = u - v with u, v >= 0 and sum(u + v) <= radius
        split = np.hstack([np.eye(D), -np.eye(D)])
        lifted = LeastSquares(problem.A @ split, problem.b)
        bounds = [(0, None)] * (2 * D)
        constraints = [LinearConstraint(np.ones((1, 2 * D)), -np.inf, 0.7)]
        start, problem = np.full(2 * D, 0.01), lifted
    if constraints == "ball":
        constraints = [{"type": "ineq", "fun": lambda x: 0.25 - x @ x, "jac": lambda x: -2 * x}]
    solution = scipy_minimize(
        problem,
        start,
        jac=True,
        method="SLSQP",
        bounds=bounds,
        constraints=constraints,
        options={"ftol": 1e-15, "maxiter": 2000},
    )
    return solution.fun


UNBOUNDED = {"halfspace", "affine", "nonnegative"}


@pytest.mark.parametrize("method", ["accelegrad", "adagrad", "universal", "universal-fast"])
@pytest.mark.parametrize("name", constraint_sets())
def test_least_squares_over_a_set(name, method):
    problem = LeastSquares.random(30, D, 11)
    feasible_set, *_, start = constraint_sets()[name]
    options = {"epsilon": 1e-6} if method.startswith("universal") else {}
    if name in UNBOUNDED:
        options["diameter"] = 20.0
    for output in ("best", "average", "last"):
        result = ag.minimize(
            problem,
            start,
            method=method,
            feasible_set=feasible_set,
            max_iter=2000,
            output=output,
            **options,
        )
        for point in (result.x, result.x_average, result.x_last, result.x_best):
            assert feasible_set.contains(point, 1e-12)
        # SciPy's optimum is feasible to about 1e-9 only.
        expected = optimum(problem, name)
        assert result.lower_bound <= expected + 1e-9
        assert -1e-8 <= result.fun - expected <= result.gap + 1e-8
    assert result.fun - expected <= 1e-3


@pytest.mark.parametrize("name", ["simplex", "box", "product"])
def test_linear_functions_over_polytopes_against_highs(name):
    rng = np.random.default_rng(12)
    cost = rng.standard_normal(D)
    feasible_set, bounds, constraints, start = constraint_sets()[name]
    equality = (
        {"A_eq": constraints[0].A, "b_eq": np.atleast_1d(constraints[0].lb)} if constraints else {}
    )
    expected = linprog(cost, bounds=bounds, method="highs", **equality).fun
    result = ag.minimize(lambda x: (cost @ x, cost), start, feasible_set=feasible_set, tol=1e-9)
    assert result.status == ag.Status.CONVERGED
    assert result.fun - expected <= result.gap + 1e-12
    # A linear function is its own cut: the lower bound is the minimum itself.
    assert result.lower_bound == pytest.approx(expected, abs=1e-9)


class Cone:
    """A user's own set: the second-order cone, with nothing but a projection."""

    def project(self, x):
        t, v = x[0], x[1:]
        norm = np.linalg.norm(v)
        if norm <= t:
            return x
        if norm <= -t:
            return np.zeros_like(x)
        scale = (t + norm) / 2
        return np.r_[scale, scale * v / norm]


def test_a_set_of_the_users_own():
    problem = LeastSquares.random(30, D, 14)
    result = ag.minimize(problem, np.zeros(D), feasible_set=Cone(), diameter=20.0, max_iter=3000)
    cone = {"type": "ineq", "fun": lambda x: x[0] - np.sqrt(x[1:] @ x[1:] + 1e-18)}
    start = np.r_[1.0, np.zeros(D - 1)]
    expected = scipy_minimize(
        problem,
        start,
        jac=True,
        method="SLSQP",
        constraints=cone,
        options={"ftol": 1e-15, "maxiter": 2000},
    ).fun
    np.testing.assert_allclose(Cone().project(result.x), result.x, atol=1e-12)
    assert -1e-7 <= result.fun - expected <= result.gap + 1e-7
    assert result.fun - expected <= 1e-3
    assert np.isfinite(result.gap)


def test_project_y_can_be_forced():
    """Without projecting y the returned point may leave the set; with it, it may not."""
    problem = LeastSquares.random(30, D, 16)
    ball = ag.Ball(np.zeros(D), 0.2 * np.linalg.norm(problem.minimiser))
    options = {"feasible_set": ball, "max_iter": 50, "output": "last"}
    assert ball.contains(ag.minimize(problem, np.zeros(D), **options).x)
    free = ag.minimize(problem, np.zeros(D), project_y=False, **options)
    assert not ball.contains(free.x)


def test_the_diameter_of_a_set_can_be_overridden():
    problem = LeastSquares.random(30, D, 17)
    box = ag.Box(np.full(D, -1.0), np.full(D, 1.0))
    options = {"feasible_set": box, "method": "accelegrad", "max_iter": 3, "trace": True}
    own = ag.minimize(problem, np.zeros(D), diameter=box.diameter, **options)
    given = ag.minimize(problem, np.zeros(D), diameter=box.diameter / 2, **options)
    assert own.trace.step[0] == pytest.approx(2 * given.trace.step[0], rel=1e-15)
