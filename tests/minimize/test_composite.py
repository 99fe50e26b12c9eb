"""Composite problems f + phi: against scikit-learn, SciPy, and conditions of optimality."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import lsq_linear
from sklearn.linear_model import Lasso

import accelegrad as ag
from accelegrad.run.result import Status

TIGHT = {"tol": 1e-15, "max_iter": 10**6}


def sparse_data(seed):
    rng = np.random.default_rng(seed)
    X, truth = rng.standard_normal((100, 30)), np.append(2 * rng.standard_normal(5), np.zeros(25))
    return SimpleNamespace(X=X, y=X @ truth + 0.5 * rng.standard_normal(100))


def composite(model, penalty, w):
    """The objective; an intercept, last in w, is not penalised."""
    return model.value(w) + penalty.value(w[: model.n_features])


def solve(fun, penalty, x0=None, **options):
    options = {"tol": 1e-10, "max_iter": 20_000} | options
    return ag.minimize(fun, x0, penalty=penalty, **options)


@pytest.mark.parametrize("kind", ["dense", "csr", "function", "function from elsewhere"])
@pytest.mark.parametrize("strength", [0.02, 0.3])
def test_lasso(kind, strength):
    data, penalty, x0 = sparse_data(1), ag.L1(strength), None
    reference = Lasso(alpha=strength, fit_intercept=False, **TIGHT).fit(data.X, data.y).coef_
    fun = model = ag.LinearModel(
        sp.csr_array(data.X) if kind == "csr" else data.X, data.y, "squared"
    )
    if kind.startswith("function"):
        fun, x0 = model.value_and_gradient, np.linspace(-1, 1, 30) * (kind != "function")
    result, least = solve(fun, penalty, x0), composite(model, penalty, reference)
    assert result.success, result.message
    assert result.fun == pytest.approx(least, rel=1e-8)
    assert result.lower_bound <= least + 1e-12 * abs(least)
    np.testing.assert_allclose(result.x, reference, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(result.x != 0, np.abs(reference) > 1e-8)


UNITS = np.geomspace(1e-3, 1e3, 30)  # of the columns, where coordinates have to be scaled


@pytest.mark.parametrize("scale", ["columns", 1.0 / UNITS], ids=["columns", "array"])
@pytest.mark.parametrize("intercept", [False, True])
def test_scaled_coordinates_leave_the_lasso_what_it_is(scale, intercept):
    data, penalty = sparse_data(2), ag.L1(0.05 * UNITS)
    outside = Lasso(alpha=0.05, fit_intercept=intercept, **TIGHT).fit(data.X, data.y + 7.0)
    model = ag.LinearModel(data.X * UNITS, data.y + 7.0, "squared", fit_intercept=intercept)
    reference = outside.coef_ / UNITS
    if intercept:
        reference = np.append(reference, outside.intercept_)
    result = solve(model, penalty, scale=scale, restart="adaptive", tol=None, rtol=1e-6)
    least = composite(model, penalty, reference)
    assert result.success, result.message
    assert result.certified_radius == math.inf
    assert result.fun == pytest.approx(least, rel=1e-6)
    assert result.fun == pytest.approx(composite(model, penalty, result.x), rel=1e-14)
    assert result.lower_bound <= least * (1 + 1e-12)


@pytest.mark.parametrize("upper", [np.inf, 1.0], ids=["no end", "two ends"])
@pytest.mark.parametrize("intercept", ["none", "free", "limited"])
def test_scaled_coordinates_leave_a_box_what_it_is(intercept, upper):
    """Without an l2 term and with one end only, the bound is one by cuts over a guessed region."""
    data, size = sparse_data(4), 30 + (intercept != "none")
    y = data.y + 3.0
    lower, higher = np.zeros(size), np.append(upper / UNITS, np.full(size - 30, 0.5))
    if intercept == "free":
        lower[-1], higher[-1] = -np.inf, np.inf
    model = ag.LinearModel(data.X * UNITS, y, "squared", fit_intercept=intercept != "none")
    columns = np.column_stack([data.X, np.ones(100)])[:, :size] / 10.0  # 1 / sqrt(n)
    factors = np.append(UNITS, np.ones(size - 30))
    ends = lower * factors, higher * factors
    least = lsq_linear(columns, y / 10.0, ends, method="bvls", tol=1e-15).cost
    box, start = ag.Box(lower, higher), np.zeros(size)
    result = ag.minimize(
        model, start, feasible_set=box, scale="columns", restart="adaptive", rtol=1e-4
    )
    assert result.success, result.message
    assert box.contains(result.x)
    assert least * (1 - 1e-12) <= result.fun <= least * (1 + 2e-4)
    assert result.lower_bound <= least * (1 + 1e-12)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_group_norm_by_its_optimality_conditions(loss):
    data = sparse_data(10)
    targets = data.y if loss == "squared" else np.sign(data.y - np.median(data.y))
    groups = [[0, 7, 12], [1, 2], list(range(13, 30)), [3, 4, 5, 6], [8]]  # 9, 10, 11 are free
    strength, weights = 0.05, np.array([1.0, 3.0, 2.0, 1.0, 0.5])
    model = ag.LinearModel(data.X, targets, loss)
    result = solve(model, ag.GroupL2(strength, groups, weights=weights, size=30), tol=1e-11)
    assert result.success
    gradient, active = model.gradient(result.x), []
    np.testing.assert_allclose(gradient[[9, 10, 11]], 0, atol=1e-6)
    for group, weight in zip(groups, weights, strict=True):
        part, length = result.x[group], math.hypot(*result.x[group])
        if length == 0:
            assert math.hypot(*gradient[group]) <= strength * weight
        else:
            direction = strength * weight * part / length
            np.testing.assert_allclose(gradient[group], -direction, atol=1e-6)
        active.append(length > 0)
    assert 0 < sum(active) < 5


def test_a_users_penalty_that_fails():
    class Broken:
        def value(self, x):
            return 0.0

        def prox(self, x, step):
            return np.full_like(x, np.nan)

    data = sparse_data(1)
    result = solve(ag.LinearModel(data.X, data.y, "squared"), Broken(), tol=None, max_iter=5)
    assert result.status is Status.NON_FINITE
    assert "the prox of the penalty has entry 0 = nan" in result.message
