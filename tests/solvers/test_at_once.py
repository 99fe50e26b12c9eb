"""Least squares without a run: the minimum and its proof, beside scikit-learn's solvers."""

import numpy as np
import pytest
from scipy.optimize import nnls
from sklearn.datasets import load_diabetes
from sklearn.linear_model import ElasticNet, Ridge

import accelegrad as ag
from accelegrad.geometry.penalties import OnLeading
from accelegrad.proofs.column_sums import ColumnSums
from accelegrad.proofs.fenchel import Terms
from accelegrad.solvers.at_once import AtOnce


def found(model, l1=0.0, feasible_set=None, rtol=1e-8):
    penalty = OnLeading(ag.L1(l1), model.n_features, model.n_parameters) if l1 else None
    terms = Terms.of(model, penalty, feasible_set)
    if not AtOnce.serves(model, terms):
        return None
    start = np.zeros(model.n_parameters)
    return AtOnce(model).minimum(terms, start, lambda value: rtol * value)


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
    assert 0.0 <= evaluation.value - evaluation.bound <= 1e-8 * evaluation.value


@pytest.mark.parametrize("l1", [1.0, 1e-1, 1e-3])
def test_elastic_net(rows, l1):
    X, y = rows
    model = ag.LinearModel(X, y, "squared", l2=1e-3, fit_intercept=True)
    evaluation = found(model, l1)
    alpha = l1 + model.l2
    peer = ElasticNet(alpha=alpha, l1_ratio=l1 / alpha, tol=1e-12, max_iter=10**6).fit(X, y)
    np.testing.assert_allclose(evaluation.point[:-1], peer.coef_, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(evaluation.point[:-1] == 0.0, peer.coef_ == 0.0)
    assert 0.0 <= evaluation.value - evaluation.bound <= 1e-8 * evaluation.value


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


# -- what products of columns prove ------------------------------------------------------------------


def exact_sums(model, x):
    """Return mean loss, level, mean and combination of the residuals in extended precision."""
    wide = np.longdouble
    X, y, shares = (np.asarray(part, dtype=wide) for part in (model.X, model.y, model.shares))
    x = x.astype(wide)
    r = X @ x[: model.n_features] + (x[-1] if model.fit_intercept else 0) - y
    return (shares @ r**2) / 2, -(shares @ (r**2 / 2 + r * y)), shares @ r, (shares * r) @ X


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("offset", [0.0, 1e3, 1e7])
@pytest.mark.parametrize("weighted", [True, False])
def test_sums_by_products_are_off_by_no_more_than_they_say(intercept, offset, weighted):
    rng = np.random.default_rng(int(offset) % 97 + intercept)
    X = (rng.normal(size=(400, 7)) + offset) * 10.0 ** rng.integers(-4, 5, 7)
    y = X @ (rng.normal(size=7) / np.abs(X).max(0)) + offset + rng.normal(size=400)
    weights = rng.random(400) if weighted else None
    options = dict(fit_intercept=intercept, sample_weight=weights)
    model = ag.LinearModel(X, y, "squared", **options)
    sums = ColumnSums(model)
    for _ in range(20):
        x = rng.normal(size=model.n_parameters)
        x[:7] /= np.abs(X).max(0)
        known = sums.at(x)
        loss, level, mean, combination = exact_sums(model, x)
        assert abs(known.mean_loss - loss) <= known.error
        assert abs(known.slopes.level - level) <= known.slopes.level_error
        off = np.abs(known.slopes.combination - combination)
        assert (off <= known.slopes.combination_error).all()
        if intercept:
            assert abs(known.slopes.mean - mean) <= known.slopes.mean_error


@pytest.mark.parametrize("offset", [0.0, 1e2, 1e4])
def test_a_path_of_one_gram_matrix_proves_each_minimum(offset):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 6)) + offset  # whose products cancel, the more the larger it is
    y = X @ np.array([1.0, -1.0, 0.5, 0.0, 0.0, 0.0]) + rng.normal(size=300) + offset
    model = ag.LinearModel(X, y, "squared", fit_intercept=True)
    centred = ag.LinearModel(X - X.mean(0), y - y.mean(), "squared")
    at_once, point = AtOnce(model), np.zeros(7)
    for l1 in (1.0, 0.3, 0.1, 1e-2):
        terms = Terms(6, 0.0, l1, fit_intercept=True)
        minimum = at_once.minimum(terms, point, lambda value: 1e-3 * value)
        point = minimum.point
        value = model.value(point) + l1 * np.abs(point[:-1]).sum()
        least = found(centred, l1)
        assert minimum.value == pytest.approx(value, rel=1e-9)
        assert minimum.bound <= least.value * (1 + 1e-9)
        assert least.bound * (1 - 1e-9) <= minimum.value <= minimum.bound + 1e-3 * minimum.value
