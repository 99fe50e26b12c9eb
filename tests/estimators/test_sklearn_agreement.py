"""The estimators against scikit-learn's own solvers of the same objective, which is computed anew."""

from copy import copy

import numpy as np
import pytest
from objectives import objective
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, QuantileRegressor, Ridge
from sklearn.svm import LinearSVC, LinearSVR

from accelegrad.sklearn import AcceleGradClassifier, AcceleGradRegressor

SIZES = {"binary": 569, "flowers": 150, "numbers": 442}  # the rows of the fixtures


def logistic(rows, alpha, tol, **given):
    """Return the rows' name, our estimator and scikit-learn's."""
    peer = LogisticRegression(C=1 / (alpha * SIZES[rows]), tol=1e-10, max_iter=10_000, **given)
    return rows, AcceleGradClassifier(alpha=alpha, tol=tol, **given), peer


def machine(loss, tol, kind, peer, rows, **given):
    """Return the same for support vector machines without an intercept."""
    own = {"fit_intercept": False, **given}
    more = {"tol": 1e-9, "random_state": 0, "max_iter": 10**6, "C": 100 / SIZES[rows], **own}
    scale = {"target_scale": 1} if given else {}
    return rows, kind(loss, tol=tol, alpha=1e-2, **own, **scale), peer(loss=loss, **more)


CLASSES, NUMBERS = (AcceleGradClassifier, LinearSVC), (AcceleGradRegressor, LinearSVR)
SPARSE = LogisticRegression(C=100 / 569, l1_ratio=1.0, solver="saga", max_iter=10**5, tol=1e-9)
PAIRS = [
    logistic("binary", 1e-1, 1e-2),
    logistic("binary", 1e-3, 1e-6),
    logistic("flowers", 1e-2, 1e-7),
    logistic("flowers", 1e-2, 1e-7, fit_intercept=False),
    ("binary", AcceleGradClassifier(penalty="l1", alpha=1e-2, tol=1e-5), SPARSE),
    machine("hinge", 1e-3, *CLASSES, "binary"),
    machine("squared_hinge", 1e-6, *CLASSES, "binary"),
    machine("epsilon_insensitive", 1e-3, *NUMBERS, "numbers", epsilon=0.1),
    machine("squared_epsilon_insensitive", 1e-6, *NUMBERS, "numbers", epsilon=0.1),
]
GIVEN = [  # parameters of both, ours, and scikit-learn's estimator
    ({}, {"alpha": 1e-3, "tol": 1e-8}, Ridge(alpha=1e-3 * 442)),
    ({"alpha": 0.05}, {"penalty": "l1", "tol": 1e-6}, Lasso(tol=1e-12)),
    (
        {"alpha": 0.05, "l1_ratio": 0.3},
        {"penalty": "elasticnet", "tol": 1e-6},
        ElasticNet(tol=1e-12),
    ),
    *(
        (given, {"loss": "quantile", "penalty": "l1", "tol": 1e-3}, QuantileRegressor())
        for given in ({"quantile": 0.5, "alpha": 0.0}, {"quantile": 0.9, "alpha": 0.02})
    ),
]
PAIRS += [
    ("numbers", AcceleGradRegressor(**both, **own), peer.set_params(**both))
    for both, own, peer in GIVEN
]


@pytest.mark.parametrize(("rows", "ours", "peer"), PAIRS)
def test_scikit_learns_minimum(rows, ours, peer, request):
    X, y = request.getfixturevalue(rows)
    y = (y - y.mean()) / y.std() if rows == "numbers" else y
    ours.fit(X, y)
    theirs = copy(ours)
    peer.fit(X, y)
    theirs.coef_ = np.reshape(peer.coef_, ours.coef_.shape)
    theirs.intercept_ = np.reshape(peer.intercept_, np.shape(ours.intercept_))
    value, least = objective(ours, X, y), objective(theirs, X, y)
    assert ours.objective_ == pytest.approx(value, rel=1e-9)
    assert ours.converged_
    assert ours.certified_radius_ == np.inf
    assert ours.gap_ <= ours.tol * value * (1 + 1e-9)
    assert value <= least * (1 + 1e-9) + ours.tol * value
    assert value - ours.gap_ <= least * (1 + 1e-9)  # the lower bound is one
    share = {"l1": 1.0, "elasticnet": ours.l1_ratio}.get(ours.penalty, 0.0)
    if share < 1:  # the l2 term makes the gap a bound of the distance; 1e-4: the peer's own error
        distance = np.linalg.norm(ours.coef_ - theirs.coef_)
        assert distance <= np.sqrt(2 * ours.gap_ / (ours.alpha * (1 - share))) + 1e-4
    if ours.loss == "log_loss" and share:
        assert set(np.flatnonzero(peer.coef_)) <= set(np.flatnonzero(ours.coef_))
    elif ours.loss == "log_loss" and ours.tol <= 1e-6:
        np.testing.assert_allclose(ours.predict_proba(X), peer.predict_proba(X), atol=1e-3)
