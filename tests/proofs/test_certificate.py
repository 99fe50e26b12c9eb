"""The certified gap: true on every problem whose minimiser is in K, and tight where it should be."""

import math

import numpy as np
import pytest

import accelegrad as ag
from toys import AbsoluteDeviations, FlatQuadratic, LeastSquares

METHODS = {
    "accelegrad": {},
    "adagrad": {},
    "universal": {"epsilon": 1e-3},
    "universal-dual": {"epsilon": 1e-3},
    "universal-fast": {"epsilon": 1e-3},
    "subgradient": {"step_size": 0.01},
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", [LeastSquares, AbsoluteDeviations])
@pytest.mark.parametrize("ratio", [1.0, 10.0])
def test_the_true_gap_never_exceeds_the_certified_one(method, kind, ratio):
    problem = kind.random(60, 8, 0)
    x_star = problem.minimiser
    minimum = problem(x_star)[0]
    seen = []

    def callback(intermediate_result):
        seen.append((intermediate_result.lower_bound, intermediate_result.gap))

    # HiGHS and lstsq give the minimiser up to rounding, so K gets a hair more room.
    D = 2 * ratio * np.linalg.norm(x_star) * (1 + 1e-9)
    result = ag.minimize(
        problem,
        np.zeros(8),
        method=method,
        diameter=D,
        max_iter=400,
        callback=callback,
        **METHODS[method],
    )
    lower_bounds, gaps = zip(*seen, strict=True)
    # HiGHS's optimum is feasible: never below the minimum, up to rounding.
    slack = 1e-13 * minimum
    assert np.max(lower_bounds) <= minimum + slack
    assert np.all(np.diff(lower_bounds) >= 0)
    assert result.fun - minimum <= result.gap + slack
    assert result.gap == result.fun - result.lower_bound
    assert min(gaps) == gaps[-1]


@pytest.mark.parametrize("output", ["best", "average", "last"])
def test_tol_holds_for_the_point_that_is_returned(output):
    problem = LeastSquares.random(60, 8, 1)
    x_star = problem.minimiser
    D = 4 * np.linalg.norm(x_star)
    result = ag.minimize(problem, np.zeros(8), diameter=D, tol=1e-4, max_iter=20_000, output=output)
    assert result.status == ag.Status.CONVERGED
    assert result.success
    value = problem(result.x)[0]
    assert result.fun == value
    assert value - problem(x_star)[0] <= result.gap <= 1e-4 * max(1, abs(value))


def test_both_cuts_are_needed():
    """The single cut on a smooth function, the aggregate one on a non-smooth one."""
    from accelegrad.geometry.sets import WholeSpace
    from accelegrad.proofs.cuts import CutCertificate, Region
    from accelegrad.rules import AcceleGrad
    from accelegrad.rules.base import KnownEvaluation

    gaps = {}
    for kind in (LeastSquares, AbsoluteDeviations):
        problem = kind.random(60, 8, 2)
        radius = np.linalg.norm(problem.minimiser)
        region = Region(WholeSpace(), np.zeros(8), radius, assumed=True)
        single, both = CutCertificate(region), CutCertificate(region)
        rule = AcceleGrad(2 * radius)
        state = rule.init(np.zeros(8))
        for _ in range(1000):
            step = rule.step(state, lambda x, f=problem: KnownEvaluation(x, *f(x)))
            state = step.state
            single.add(step.evaluation, 0.0)
            both.add(step.evaluation, step.weight)
        minimum = problem(problem.minimiser)[0]
        gaps[kind] = minimum - single.lower_bound, minimum - both.lower_bound
    assert gaps[LeastSquares][0] <= 1e-9
    assert gaps[AbsoluteDeviations][0] > 10 * gaps[AbsoluteDeviations][1]


def test_a_diameter_that_is_too_small_is_found_out():
    problem = LeastSquares.random(60, 8, 3)
    D = 0.5 * np.linalg.norm(problem.minimiser)
    result = ag.minimize(problem, np.zeros(8), diameter=D, tol=1e-6, max_iter=3000)
    assert result.status == ag.Status.REGION_REFUTED
    assert not result.success
    assert result.gap < 0
    assert "too small" in result.message
    assert f"{D:g}" in result.message


def test_a_function_that_is_not_convex_is_found_out():
    def fun(x):
        return np.cos(x).sum(), -np.sin(x)

    result = ag.minimize(fun, np.full(2, 0.3), feasible_set=ag.Box(-4.0, 4.0), max_iter=500)
    assert result.status == ag.Status.NOT_CONVEX
    assert "not convex" in result.message


def test_without_a_region_nothing_is_claimed():
    problem = LeastSquares.random(60, 8, 4)
    result = ag.minimize(problem, np.zeros(8), method="universal", epsilon=1e-3, max_iter=50)
    assert result.gap == math.inf
    assert result.lower_bound == -math.inf
    assert result.success


def test_rounding_is_not_certified_away():
    """At the end of a run the bound stays below the minimum although both are full of rounding."""
    for seed in range(5):
        problem = LeastSquares.random(200, 20, seed, noise=10.0)
        x_star = problem.minimiser
        D = 2.2 * np.linalg.norm(x_star)
        result = ag.minimize(problem, np.zeros(20), diameter=D, max_iter=5000)
        minimum = problem(x_star)[0]
        assert result.lower_bound <= minimum
        assert result.gap <= 1e-12 * minimum


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge", "hinge"])
def test_dual_certificate_needs_no_region(loss, intercept):
    rng = np.random.default_rng(5)
    X = rng.standard_normal((200, 10))
    y = np.sign(X @ rng.standard_normal(10) + 0.5 + rng.standard_normal(200))
    model = ag.LinearModel(X, y, loss=loss, l2=0.1, fit_intercept=intercept)
    # A diameter that is far too small for K to hold the minimiser: the dual does not mind.
    tol = 1e-6 if loss != "hinge" else 2e-2
    result = ag.minimize(
        model, diameter=0.3, feasible_set=ag.WholeSpace(), tol=tol, max_iter=20_000
    )
    assert result.status == ag.Status.CONVERGED, result.message
    assert result.gap <= tol
    peer = _minimum_by_peer(model)
    assert result.lower_bound <= peer
    assert result.fun - peer <= result.gap


def test_dual_certificate_where_loss_gradients_cancel():
    """Two steps with opposite slopes: the averaged loss gradient is zero, and so is the bound."""
    for seed in range(100):
        rng = np.random.default_rng(seed)
        X, y = rng.uniform(1, 2, (50, 3)), rng.uniform(1, 2, 50)
        model = ag.LinearModel(X, y, "absolute", l2=1e-3)
        result = ag.minimize(model, diameter=1e3, max_iter=3)
        assert 0 <= result.lower_bound + 1e-12 <= model.value(np.zeros(3))


def _minimum_by_peer(model):
    """The minimum by SLSQP on the dual of a hinge loss, or L-BFGS for smooth losses."""
    from scipy.optimize import LinearConstraint
    from scipy.optimize import minimize as scipy_minimize

    if model.loss.name != "hinge":
        start = np.zeros(model.n_parameters)
        options = {"ftol": 1e-15, "gtol": 1e-12, "maxiter": 10_000}
        return scipy_minimize(
            model.value_and_gradient, start, jac=True, method="L-BFGS-B", options=options
        ).fun
    # A bound by the same rows as a smooth problem: the dual of a support vector machine.
    Z = model.y[:, None] * np.c_[model.X, np.ones(len(model.y))][:, : model.n_parameters]
    d, n = model.n_features, len(model.y)

    def dual(a):
        w = Z[:, :d].T @ a
        return w @ w / (2 * model.l2) - a.sum(), Z[:, :d] @ w / model.l2 - 1

    balance = [] if d == model.n_parameters else [LinearConstraint(model.y, 0.0, 0.0)]
    options = {"maxiter": 2000, "ftol": 1e-14}
    return -scipy_minimize(
        dual, np.full(n, 0.5 / n), jac=True, method="SLSQP", bounds=[(0, 1 / n)] * n,
        constraints=balance, options=options,
    ).fun  # fmt: skip


def test_flat_function_certificate_holds_through_a_long_run():
    problem = FlatQuadratic()
    D = 2 * np.linalg.norm(problem.x0)
    result = ag.minimize(problem, problem.x0, diameter=D, max_iter=3000)
    assert 0 <= result.fun <= result.gap
    assert result.lower_bound <= 0
