"""The estimators against scikit-learn's own solvers of the same objective.

The objectives are written out here once more, in plain NumPy: what a solver claims is not believed.
"""

import itertools
from functools import partial

import numpy as np
import pytest
from sklearn.base import is_classifier
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine
from sklearn.linear_model import (
    ElasticNet,
    Lasso,
    LogisticRegression,
    QuantileRegressor,
    Ridge,
)
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC, LinearSVR

from accelegrad.sklearn import AcceleGradClassifier, AcceleGradRegressor
from reference.losses import OTHER_NAMES, loss_values


def objective(loss, X, y, coef, intercept, alpha, l1_share=0.0, weights=None):
    """The mean loss plus alpha times the penalty."""
    coef = np.ravel(coef)
    m = X @ coef + float(np.ravel(intercept)[0])
    if isinstance(loss, str):
        losses = loss_values(OTHER_NAMES.get(loss, loss), m, y, parameter=0.1)
    else:
        losses = loss(m, y)
    mean = np.average(losses, weights=weights)
    penalty = l1_share * np.abs(coef).sum() + (1 - l1_share) * coef @ coef / 2
    return mean + alpha * penalty


def classes():
    X, y = load_breast_cancer(return_X_y=True)
    return StandardScaler().fit_transform(X), np.where(y == 1, 1.0, -1.0)


def numbers():
    X, y = load_diabetes(return_X_y=True)
    return StandardScaler().fit_transform(X), (y - y.mean()) / y.std()


def check(ours, least, tol, value):
    """`value` is our objective by the formula above, `least` the reference's."""
    assert ours.objective_ == pytest.approx(value, rel=1e-9)
    assert ours.converged_
    assert ours.certified_radius_ == np.inf
    assert ours.gap_ <= tol * value * (1 + 1e-9)
    assert value <= least * (1 + 1e-9) + tol * value
    assert value - ours.gap_ <= least * (1 + 1e-9)  # the lower bound is one


def check_coefficients(ours, peer, strength):
    """The l2 term makes the gap a bound of the distance: gap >= strength / 2 ||w - w*||^2."""
    distance = np.linalg.norm(np.ravel(ours.coef_) - np.ravel(peer.coef_))
    assert distance <= np.sqrt(2 * ours.gap_ / strength) + 1e-4  # the peer's own error


def pinball(quantile, m, y):
    return np.where(y >= m, quantile * (y - m), (1 - quantile) * (m - y))


def pairs():
    """Yield losses, our estimators and scikit-learn's, and the share of the l1 norm."""
    n = classes()[1].size
    far = {"tol": 1e-9, "random_state": 0}
    for alpha, tol in itertools.product([1e-1, 1e-3], [1e-2, 1e-6]):
        ours = AcceleGradClassifier(alpha=alpha, tol=tol, max_iter=100_000)
        yield "log_loss", ours, LogisticRegression(C=1 / (alpha * n), tol=1e-10, max_iter=10**4), 0
    ours = AcceleGradClassifier(penalty="l1", alpha=1e-2, tol=1e-5)
    peer = LogisticRegression(l1_ratio=1.0, C=100 / n, solver="saga", max_iter=10**5, **far)
    yield "log_loss", ours, peer, 1
    free = {"alpha": 1e-2, "fit_intercept": False}
    for loss, tol in (("hinge", 1e-3), ("squared_hinge", 1e-6)):
        peer = LinearSVC(loss=loss, C=100 / n, fit_intercept=False, max_iter=10**6, **far)
        yield loss, AcceleGradClassifier(loss, tol=tol, **free), peer, 0
    n = numbers()[1].size
    for loss, tol in (("epsilon_insensitive", 1e-3), ("squared_epsilon_insensitive", 1e-6)):
        ours = AcceleGradRegressor(loss, tol=tol, epsilon=0.1, target_scale=1, **free)
        svr = {"fit_intercept": False, "max_iter": 10**6, **far}
        yield loss, ours, LinearSVR(loss=loss, epsilon=0.1, C=100 / n, **svr), 0
    for alpha in (1.0, 1e-3):
        ours = AcceleGradRegressor(alpha=alpha, tol=1e-8)
        yield "squared_error", ours, Ridge(alpha=alpha * n), 0
    lasso = AcceleGradRegressor(penalty="l1", alpha=0.05, tol=1e-6)
    yield "squared_error", lasso, Lasso(0.05, tol=1e-12), 1
    both = AcceleGradRegressor(penalty="elasticnet", alpha=0.05, l1_ratio=0.3, tol=1e-6)
    yield "squared_error", both, ElasticNet(0.05, l1_ratio=0.3, tol=1e-12), 0.3
    for quantile, alpha in itertools.product([0.5, 0.9], [0.0, 0.02]):
        given = {"quantile": quantile, "alpha": alpha}
        ours = AcceleGradRegressor("quantile", penalty="l1", tol=1e-3, **given)
        yield partial(pinball, quantile), ours, QuantileRegressor(**given, solver="highs"), 1


@pytest.mark.parametrize(("loss", "ours", "peer", "l1_share"), list(pairs()))
def test_scikit_learns_minimum(loss, ours, peer, l1_share):
    X, y = classes() if is_classifier(ours) else numbers()
    ours.fit(X, y)
    peer.fit(X, y)
    least, value = (
        objective(loss, X, y, fit.coef_, fit.intercept_, ours.alpha, l1_share)
        for fit in (peer, ours)
    )
    check(ours, least, ours.tol, value)
    if l1_share < 1:
        check_coefficients(ours, peer, ours.alpha * (1 - l1_share))
    if loss == "log_loss" and l1_share:
        assert set(np.flatnonzero(peer.coef_)) <= set(np.flatnonzero(ours.coef_))
    elif loss == "log_loss" and ours.tol == 1e-6:
        np.testing.assert_allclose(ours.predict_proba(X), peer.predict_proba(X), atol=2e-3)


@pytest.mark.parametrize("load", [load_iris, load_wine])
@pytest.mark.parametrize("intercept", [True, False])
def test_multinomial_logistic_regression(load, intercept):
    X, y = load(return_X_y=True)
    X, alpha, tol = StandardScaler().fit_transform(X), 1e-2, 1e-7
    ours = AcceleGradClassifier(alpha=alpha, tol=tol, fit_intercept=intercept).fit(X, y)
    peer = LogisticRegression(
        C=1 / (alpha * y.size), tol=1e-10, max_iter=10_000, fit_intercept=intercept
    ).fit(X, y)
    least, value = (
        -np.mean(fit.predict_log_proba(X)[np.arange(y.size), y]) + alpha * (fit.coef_**2).sum() / 2
        for fit in (peer, ours)
    )
    check(ours, least, tol, value)
    check_coefficients(ours, peer, alpha)
    np.testing.assert_allclose(ours.predict_proba(X), peer.predict_proba(X), atol=1e-3)
