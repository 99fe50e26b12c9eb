"""Multinomial logistic regression, against formulas written out row by row."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_iris

from accelegrad.models.multinomial import MultinomialModel
from accelegrad.proofs.multinomial_dual import MultinomialDual
from accelegrad.sklearn import AcceleGradClassifier


def data(seed=0, n=60, d=4, k=3):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    classes = (X @ rng.standard_normal((d, k)) + rng.gumbel(size=(n, k))).argmax(axis=1)
    return X, classes, rng.uniform(0.2, 2.0, n)


def naive(X, classes, weights, x, k, l2, intercept):
    """The objective, a row and a class at a time."""
    d = X.shape[1]
    W = [x[j * d : (j + 1) * d] for j in range(k)]
    b = x[k * d :] if intercept else [0.0] * k
    loss = 0.0
    for row, c, weight in zip(X, classes, weights, strict=True):
        margins = [math.fsum(row * W[j]) + b[j] for j in range(k)]
        loss += weight * (math.log(math.fsum(math.exp(m) for m in margins)) - margins[c])
    return loss / math.fsum(weights) + l2 / 2 * math.fsum(w @ w for w in W)


@pytest.mark.parametrize(("plain", "kind"), [(False, np.asarray), (True, sp.csr_array)])
def test_value_and_gradient(plain, kind):
    X, classes, weights = data()
    given = {} if plain else {"fit_intercept": True, "sample_weight": weights}
    model = MultinomialModel(kind(X), classes, 3, l2=0.1, **given)
    x = np.random.default_rng(1).standard_normal(model.n_parameters)

    def reference(x):
        return naive(X, classes, np.ones(60) if plain else weights, x, 3, 0.1, not plain)

    value, gradient = model.value_and_gradient(x)
    assert value == pytest.approx(reference(x), rel=1e-12)
    steps = 1e-5 * np.eye(x.size)
    slopes = [(reference(x + step) - reference(x - step)) / 2e-5 for step in steps]
    np.testing.assert_allclose(gradient, slopes, atol=1e-9)
    pairs = [model.batch_value_and_gradient(x, rows) for rows in np.arange(60).reshape(30, 2)]
    values, gradients = zip(*pairs, strict=True)
    assert np.mean(values) == pytest.approx(value)
    np.testing.assert_allclose(np.mean(gradients, axis=0), gradient, atol=1e-12)
    assert np.isfinite(np.append(*model.value_and_gradient(1e4 * x)[::-1])).all()
    with pytest.raises(ValueError, match="a dual gap needs l2 > 0"):
        MultinomialDual(MultinomialModel(X, classes, 3))
    with pytest.raises(ValueError, match="classes must hold whole numbers from 0 to 1"):
        MultinomialModel(X, classes, 2)


def test_minibatches_of_several_classes_are_proved_by_the_dual():
    X, y = load_iris(return_X_y=True)
    exact = AcceleGradClassifier(alpha=1e-2, tol=1e-9).fit(X, y)
    for batch_size in (4, 1000):
        options = {"alpha": 1e-2, "tol": 1e-2, "random_state": 0, "batch_size": batch_size}
        fit = AcceleGradClassifier(**options).fit(X, y)
        assert fit.method_ == "accelegrad"
        assert fit.coef_.shape == (3, 4)
        assert fit.converged_
        assert fit.gap_ <= 1e-2 * fit.objective_
        assert fit.objective_ - fit.gap_ <= exact.objective_ <= fit.objective_ + exact.gap_
        again = AcceleGradClassifier(**options).fit(X, y)
        np.testing.assert_array_equal(fit.coef_, again.coef_)
    options = {"batch_size": 4, "max_iter": 300, "tol": None, "random_state": 0}
    l1 = AcceleGradClassifier(penalty="l1", **options).fit(X, y)  # nothing is proved without l2
    assert l1.gap_ == l1.objective_
    assert l1.score(X, y) > 0.9
