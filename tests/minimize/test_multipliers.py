"""`result.multipliers` of bounds and linear constraints, against other solvers and by definition."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import Bounds, LinearConstraint

import accelegrad as ag

D = 8


def problem(seed):
    rng = np.random.default_rng(seed)
    A, E = rng.standard_normal((6, D)), rng.standard_normal((2, D))
    inside = rng.uniform(-0.2, 0.2, D)
    below = LinearConstraint(A, -np.inf, A @ inside + 0.1)
    equal = LinearConstraint(sp.csr_array(E), E @ inside, E @ inside)
    B, b = rng.standard_normal((12, D)), 3 * rng.standard_normal(12)
    return below, equal, Bounds(-0.5, 0.4), B, b


#: Functions of the residual and their slopes, and the same for CVXPY
KINDS = {
    "smooth": (lambda r: (0.5 * float(r @ r), r), lambda r: 0.5 * cp.sum_squares(r)),
    "kinks": (lambda r: (float(np.abs(r).sum()), np.sign(r)), cp.norm1),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_multipliers_are_those_of_cvxpy(kind, seed):
    below, equal, bounds, B, b = problem(seed)
    of_residual, expression = KINDS[kind]

    def fun(x):
        value, slope = of_residual(B @ x - b)
        return value, B.T @ slope

    result = ag.minimize(fun, np.zeros(D), constraints=[below, equal], bounds=bounds, tol=1e-8)
    assert result.success
    x = cp.Variable(D)
    limits = [below.A @ x <= below.ub, equal.A @ x == equal.ub, x <= bounds.ub, x >= bounds.lb]
    cp.Problem(cp.Minimize(expression(B @ x - b)), limits).solve(solver="CLARABEL")
    first, second, upper, lower = (limit.dual_value for limit in limits)
    expected = [first, second, upper - lower]
    assert [found.shape for found in result.multipliers] == [(6,), (2,), (D,)]
    for found, known in zip(result.multipliers, expected, strict=True):
        np.testing.assert_allclose(found, known, atol=1e-4 * (1 + np.abs(known).max()))


ONES = np.ones(3)
LIMITS = {
    "box": dict(bounds=[(0, 1)] * 3),
    "simplex": dict(bounds=[(0, None)] * 3, constraints=LinearConstraint(ONES, 1, 1)),
    "equation": dict(constraints=LinearConstraint(ONES, 1, 1)),
    "half-space": dict(constraints=LinearConstraint(ONES, -np.inf, 1)),
}


@pytest.mark.parametrize("name", LIMITS)
def test_sets_of_all_kinds_have_them(name):
    target = np.array([1.0, -2.0, 3.0])
    fun = lambda x: (0.5 * float((x - target) @ (x - target)), x - target)  # noqa: E731
    result = ag.minimize(fun, np.zeros(3), tol=1e-10, **LIMITS[name])
    np.testing.assert_allclose(result.jac + sum(result.multipliers), 0.0, atol=1e-4)
    assert len(result.multipliers) == len(LIMITS[name])


def test_shapes_and_constraints_that_say_nothing():
    start, target = np.zeros((2, 2)), np.array([[3.0, 0.2], [-3.0, 0.1]])
    fun = lambda x: (float(((x - target) ** 2).sum()), 2 * (x - target))  # noqa: E731
    nothing = LinearConstraint(
        np.vstack([np.zeros(4), np.ones(4)]), [-1, -np.inf], [np.inf, np.inf]
    )
    result = ag.minimize(fun, start, bounds=Bounds(-1, 1), constraints=nothing, tol=1e-9)
    rows, on_box = result.multipliers
    np.testing.assert_array_equal(rows, [0.0, 0.0])
    np.testing.assert_allclose(on_box, [[4.0, 0.0], [-4.0, 0.0]], atol=1e-4)
    assert "multipliers" not in ag.minimize(fun, start, tol=1e-6)


@pytest.mark.parametrize(
    ("low", "high", "allowed"),
    [(-1, np.inf, True), (-np.inf, 2, True), (0, 0, True), (1, np.inf, False), (-3, -1, False)],
)
@pytest.mark.parametrize("others", [0, 1])
def test_a_zero_row_is_left_out_or_refused(low, high, allowed, others):
    fun = lambda x: (float(x @ x), 2 * x)  # noqa: E731
    rows = [LinearConstraint(np.eye(2)[:1], 1, 1)] * others + [
        LinearConstraint(np.zeros((1, 2)), low, high)
    ]
    if allowed:
        result = ag.minimize(fun, np.ones(2), constraints=rows, tol=1e-8)
        assert result.success
        np.testing.assert_allclose(result.fun, float(others), atol=1e-6)
        assert len(result.multipliers) == others + 1
    else:
        said = rf"no point meets constraints\[{others}\]: row 0.*zero"
        with pytest.raises(ValueError, match=said):
            ag.minimize(fun, np.ones(2), constraints=rows)
