"""Constrained problems against solvers that nobody here wrote."""

import itertools

import cvxpy as cp
import numpy as np
import pytest

import accelegrad as ag
from toys import LeastSquares

D = 6


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

    def contains(self, x, tolerance):
        return np.linalg.norm(self.project(x) - x) <= tolerance


NORMAL, A = np.split(np.random.default_rng(10).standard_normal((3, D)), [1])
INSIDE = np.linspace(-1, 1, D)
#: Sets, the same for CVXPY, and a start
SETS = {
    "simplex": (ag.Simplex(1.0), lambda x: [x >= 0, cp.sum(x) == 1], np.full(D, 1 / D)),
    "box": (ag.Box(-0.2, 0.3), lambda x: [x >= -0.2, x <= 0.3], np.zeros(D)),
    "l1": (ag.L1Ball(0.7), lambda x: [cp.norm1(x) <= 0.7], np.zeros(D)),
    "halfspace": (
        ag.Halfspace(NORMAL[0], -0.5),
        lambda x: [NORMAL @ x <= -0.5],
        -NORMAL[0] / (NORMAL[0] @ NORMAL[0]),
    ),
    "affine": (ag.Affine(A, A @ INSIDE), lambda x: [A @ x == A @ INSIDE], INSIDE),
    "nonnegative": (ag.NonNegative(), lambda x: [x >= 0], np.ones(D)),
    "ball": (ag.Ball(np.zeros(D), 0.5), lambda x: [cp.norm2(x) <= 0.5], np.zeros(D)),
    "product": (
        ag.Product([(ag.Simplex(1.0), 3), (ag.Box(-0.1, 0.1), 3)]),
        lambda x: [x[:3] >= 0, cp.sum(x[:3]) == 1, cp.abs(x[3:]) <= 0.1],
        np.r_[np.full(3, 1 / 3), np.zeros(3)],
    ),
    "a user's cone": (Cone(), lambda x: [cp.norm2(x[1:]) <= x[0]], np.zeros(D)),
}
UNBOUNDED = {"halfspace", "affine", "nonnegative", "a user's cone"}
PROBLEM = LeastSquares.random(30, D, 11)


def least(name):
    """The minimum by Clarabel, with the smallest tolerances that it does not call inaccurate."""
    x, tolerance = cp.Variable(D), {"ball": 1e-9, "a user's cone": 1e-8}.get(name, 1e-10)
    objective = cp.Minimize(cp.sum_squares(PROBLEM.A @ x - PROBLEM.b) / 2)
    options = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), tolerance)
    return cp.Problem(objective, SETS[name][1](x)).solve(solver="CLARABEL", **options)


CASES = itertools.product(SETS, ("accelegrad", "adagrad", "universal", "universal-fast"))
OTHERS = itertools.product(("simplex", "box", "ball"), ("dog", "a-dog", "unixgrad", "u-dog"))


@pytest.mark.parametrize(("name", "method"), [*CASES, *OTHERS, ("box", "diagonal")])
def test_least_squares_over_a_set(name, method):
    feasible_set, _, start = SETS[name]
    expected = least(name)
    options = {"epsilon": 1e-6} if method.startswith("universal") else {}
    if name in UNBOUNDED:
        options["diameter"] = 20.0
    for output in ("best", "average", "last"):
        result = ag.minimize(
            PROBLEM, start, method=method, feasible_set=feasible_set, max_iter=2000, output=output,
            **options,
        )  # fmt: skip
        for point in (result.x, result.x_average, result.x_last, result.x_best):
            assert feasible_set.contains(point, 1e-12)
        # CVXPY's optimum is feasible to about 1e-9 only.
        assert result.lower_bound <= expected + 1e-9
        assert -1e-8 <= result.fun - expected <= result.gap + 1e-8
        assert np.isfinite(result.gap)
    assert result.fun - expected <= 1e-3


def test_project_y_and_the_diameter_of_a_set_can_be_overridden():
    """Without projecting y the returned point may leave the set; with it, it may not."""
    problem, start = LeastSquares.random(30, D, 16), np.zeros(D)
    ball = ag.Ball(0.0, 0.2 * np.linalg.norm(problem.minimiser))
    options = dict(feasible_set=ball, method="accelegrad", max_iter=50, output="last", trace=True)
    own = ag.minimize(problem, start, diameter=ball.diameter, **options)
    assert ball.contains(own.x)
    assert not ball.contains(ag.minimize(problem, start, project_y=False, **options).x)
    given = ag.minimize(problem, start, diameter=ball.diameter / 2, **options)
    assert own.trace.step[0] == pytest.approx(2 * given.trace.step[0], rel=1e-15)
