"""UniXGrad, U-DoG, DoG and A-DoG: theorems, outside solvers, and what must not change them."""

from itertools import count

import numpy as np
import pytest
from sklearn.linear_model import Lasso

from accelegrad.geometry.sets import Ball
from accelegrad.rules import ADoG, DoG, UDoG, UniXGrad
from accelegrad.rules.base import KnownEvaluation
from stepping import gaps, kinds, make, oracle_of, run
from toys import AbsoluteDeviations, LeastSquares, OnTheBoundary, slope

# --- the theorems ---------------------------------------------------------------------------------


boundaries = pytest.mark.parametrize("name", ["simplex", "box", "l1"])
HORIZONS = np.unique(np.logspace(1, 3.3, 25).astype(int))


@boundaries
def test_unixgrad_is_accelerated_with_the_minimiser_on_the_boundary(name):
    fun = OnTheBoundary(name, 0)
    assert fun.set.contains(fun.x_star)
    found = gaps(UniXGrad(fun.diameter, project=fun.set.project), fun, fun.x0, 0.0, HORIZONS)
    assert (found > -1e-15).all()
    assert slope(HORIZONS, found) <= -1.9


@boundaries
def test_u_dog_is_accelerated_where_the_gradient_vanishes(name):
    """1/T^2 up to logarithms; M_t grows with gradients that do not vanish, for a rate of 1/T."""
    fun = OnTheBoundary(name, 0, pull=0.0)
    rule = UDoG(fun.diameter / 20, project=fun.set.project)
    found = gaps(rule, fun, fun.x0, 0.0, HORIZONS)
    assert (found > -1e-15).all()
    assert slope(HORIZONS, found) <= -1.8
    fun = OnTheBoundary(name, 0)
    assert slope(HORIZONS, gaps(rule, fun, fun.x0, 0.0, HORIZONS)) <= -1.0


@boundaries
@pytest.mark.parametrize("scale", [None, 30.0])
def test_unixgrad_smooth_bounds(name, scale):
    """What the regret proves, on every run, and what smoothness makes of it.

    From the regret of optimistic mirror descent with eta_t = sqrt(2) D / sqrt(S_{t-1}):
    A_T gap <= (3 / sqrt 2) D sqrt(S_T), and, by alpha_t^2 ||g_t - M_t||^2 <= 4 L^2 ||x_t -
    y_{t-1}||^2 and its negative terms, A_T gap <= D G_0 / (2 sqrt 2) + 12.1 L D^2.
    """
    fun = OnTheBoundary(name, 5)
    D, L = fun.diameter, fun.smoothness
    rule = UniXGrad(D, scale, fun.set.project)
    state = rule.init(fun.x0)
    G0 = np.linalg.norm(fun(fun.x0)[1]) if scale is None else scale
    for T in range(1, 501):
        state = rule.step(state, oracle_of(fun)).state
        gap = fun(rule.output(state))[0]
        S = state.weighted_differences + state.scale
        assert gap <= 3 * 2**0.5 * D * S**0.5 / (T * (T + 1))
        assert gap <= (D * G0 / 2**0.5 + 24.2 * L * D**2) / (T * (T + 1))


def test_unixgrad_non_smooth_bound():
    fun = AbsoluteDeviations.random(60, 10, 0)
    x_star = fun.minimiser
    D, G = 2 * np.linalg.norm(x_star), np.linalg.norm(fun.A, axis=1).sum()
    rule = UniXGrad(D, project=Ball(np.zeros(10), D / 2).project)
    state = rule.init(np.zeros(10))
    for T in range(1, 501):
        state = rule.step(state, oracle_of(fun)).state
        gap = fun(rule.output(state))[0] - fun(x_star)[0]
        S = state.weighted_differences + state.scale
        assert gap <= 3 * 2**0.5 * D * S**0.5 / (T * (T + 1))
        assert S <= G**2 * (1 + 4 * T * (T + 1) * (2 * T + 1) / 6)


@kinds
@pytest.mark.parametrize("radius", [1e-6, 1.0])
def test_dog_bound(kind, radius):
    """The weighted regret of its paper, on every run with exact gradients.

    sum r_t (f(x_t) - f*) <= r_T (2 dbar_T + r_T) sqrt(G_T) with dbar the largest ||x_t - x*||.
    """
    fun, x0 = make(kind, 3)
    x_star = fun.minimiser
    rule = DoG(radius)
    state, farthest = rule.init(x0), 0.0
    for _ in range(500):
        farthest = max(farthest, np.linalg.norm(rule.query(state) - x_star))
        state = rule.step(state, oracle_of(fun)).state
        gap = fun(rule.output(state))[0] - fun(x_star)[0]
        reach = max(farthest, np.linalg.norm(rule.query(state) - x_star))
        bound = state.radius * (2 * reach + state.radius) * state.squares**0.5
        assert gap <= bound / state.weight_sum


@kinds
@pytest.mark.parametrize("kind_of_rule", [DoG, ADoG])
def test_a_tiny_first_radius_costs_steps_but_not_the_minimum(kind, kind_of_rule):
    fun, x0 = make(kind, 4)
    x_star = fun.minimiser
    state = run(kind_of_rule(), x0, oracle_of(fun), 4000)[-1]
    gap = fun(kind_of_rule().output(state))[0] - fun(x_star)[0]
    assert gap <= 1e-2 * (fun(x0)[0] - fun(x_star)[0])
    distance = np.linalg.norm(x0 - x_star)
    assert 0.3 * distance <= state.radius <= 5 * distance


# --- outside solvers ------------------------------------------------------------------------------


@pytest.mark.parametrize("positive", [False, True])
def test_lasso_by_soft_threshold_against_scikit_learn(positive):
    rng = np.random.default_rng(11)
    A = rng.standard_normal((60, 20))
    b = A @ np.where(np.arange(20) < 5, rng.standard_normal(20), 0) + 0.1 * rng.standard_normal(60)
    fun = LeastSquares(A / 60**0.5, b / 60**0.5)
    penalty = 0.2
    lasso = Lasso(alpha=penalty, fit_intercept=False, positive=positive, tol=1e-12, max_iter=10**6)
    coefficients = lasso.fit(A, b).coef_
    prox = lambda x, step: np.sign(x) * np.maximum(np.abs(x) - penalty * step, 0)  # noqa: E731
    project = (lambda x: np.maximum(x, 0)) if positive else None
    D = 2 * np.linalg.norm(coefficients)
    assert 0 < np.count_nonzero(coefficients) < 20
    for rule in (
        UniXGrad(D, project=project, prox=prox),
        UDoG(probe=True, project=project, prox=prox),
    ):
        state = run(rule, np.zeros(20), oracle_of(fun), 3000)[-1]
        objective = lambda x: fun(x)[0] + penalty * np.abs(x).sum()  # noqa: E731
        least = objective(coefficients)
        assert objective(rule.output(state)) == pytest.approx(least, rel=5e-6)
        assert objective(rule.last(state)) == pytest.approx(least, rel=1e-9)
        np.testing.assert_allclose(rule.last(state), coefficients, atol=1e-5)
        np.testing.assert_array_equal(rule.last(state) != 0, coefficients != 0)


# --- what must not change them --------------------------------------------------------------------

RULES = {
    "unixgrad": lambda project=None: UniXGrad(3.0, project=project),
    "u-dog": lambda project=None: UDoG(0.01, project=project),
}
rules = pytest.mark.parametrize("make_rule", RULES.values(), ids=RULES)


@rules
def test_a_first_gradient_of_zero_is_not_the_end(make_rule):
    """Noise may give a zero at first; the next difference sets the scale."""
    fun = LeastSquares.random(20, 5, 9)
    calls = count()
    gradient = lambda x: 0 * x if next(calls) == 0 else fun(x)[1]  # noqa: E731
    rule, x0 = make_rule(), np.zeros(5)
    state = run(rule, x0, lambda x: KnownEvaluation(x, fun(x)[0], gradient(x)), 300)[-1]
    x_star = fun.minimiser
    assert fun(rule.output(state))[0] - fun(x_star)[0] <= 1e-3 * (fun(x0)[0] - fun(x_star)[0])


@rules
def test_a_step_reports_its_output_point(make_rule):
    """The second evaluation is the one at x~_t, so the output's value is known for free."""
    fun, x0 = make("smooth", 7)
    rule = make_rule(Ball(x0, 1.0).project)
    state, weights = rule.init(x0), 0.0
    for _ in range(20):
        asked = []
        step = rule.step(state, lambda x: asked.append(x) or KnownEvaluation(x, *fun(x)))  # noqa: B023
        assert len(asked) == 2
        np.testing.assert_array_equal(asked[0], state.query_point)
        np.testing.assert_array_equal(step.evaluation.point, rule.output(step.state))
        weights += step.weight
        state = step.state
    assert state.weight_sum == pytest.approx(weights, rel=1e-14)
