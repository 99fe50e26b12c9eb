"""Least squares without a run: the minimum and its proof, beside scikit-learn's solvers."""

import numpy as np
import pytest
from scipy.optimize import nnls
from sklearn.datasets import load_diabetes
from sklearn.linear_model import ElasticNet, Ridge

import accelegrad as ag
from accelegrad.problems.penalties import OnLeading
from accelegrad.proofs.fenchel import Terms
from accelegrad.rows.at_once import minimum_at_once


def found(model, l1=0.0, feasible_set=None, rtol=1e-8):
    penalty = OnLeading(ag.L1(l1), model.n_features, model.n_parameters) if l1 else None
    terms = Terms.of(model, penalty, feasible_set)
    start = np.zeros(model.n_parameters)
    return minimum_at_once(model, terms, penalty, start, lambda value: rtol * value)


@pytest.fixture(scope="module")
def rows():
    return load_diabetes(return_X_y=True)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("l2", [1.0, 1e-3, 1e-6])
def test_ridge(rows, intercept, l2):
    X, y = rows
    evaluation = found(ag.LinearModel(X, y, "squared", l2=l2, fit_intercept=intercept))
    peer = Ridge(alpha=l2 * y.size, fit_intercept=intercept, solver="cholesky").fit(X, y)
    np.testing.assert_allclose(evaluation.point[: X.shape[1]], peer.coef_, rtol=1e-7)
    assert 0.0 <= evaluation.value - evaluation.dual_value <= 1e-8 * evaluation.value


@pytest.mark.parametrize("l1", [1.0, 1e-1, 1e-3])
def test_elastic_net(rows, l1):
    X, y = rows
    model = ag.LinearModel(X, y, "squared", l2=1e-3, fit_intercept=True)
    evaluation = found(model, l1)
    alpha = l1 + model.l2
    peer = ElasticNet(alpha=alpha, l1_ratio=l1 / alpha, tol=1e-12, max_iter=10**6).fit(X, y)
    np.testing.assert_allclose(evaluation.point[:-1], peer.coef_, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(evaluation.point[:-1] == 0.0, peer.coef_ == 0.0)
    assert 0.0 <= evaluation.value - evaluation.dual_value <= 1e-8 * evaluation.value


def test_weights_within_a_box(rows):
    X, y = rows
    l2 = 1e-3
    model = ag.LinearModel(X, y, "squared", l2=l2)
    evaluation = found(model, feasible_set=ag.Box(0.0, np.inf))
    ridge = np.sqrt(l2 * y.size) * np.eye(X.shape[1])
    peer, _ = nnls(np.vstack([X, ridge]), np.append(y, np.zeros(X.shape[1])))
    np.testing.assert_allclose(evaluation.point, peer, rtol=1e-7, atol=1e-9)


def test_what_one_step_does_not_find(rows):
    X, y = rows
    assert found(ag.LinearModel(X, y, "squared")) is None  # no bound without a term
    assert found(ag.LinearModel(X, y, "huber", l2=1.0)) is None
    wide = np.random.default_rng(0).normal(size=(20, 101))
    assert found(ag.LinearModel(wide, y[:20], "squared", l2=1.0)) is None
