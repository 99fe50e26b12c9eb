"""Sparse rows most of whose columns have no entries: they cost nothing, and change nothing."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from accelegrad.sklearn import AcceleGradClassifier, AcceleGradClassifierCV, AcceleGradRegressor


def sparse_data(n=300, d=10**6, entries=3000, seed=0):
    rng = np.random.default_rng(seed)
    places = rng.integers(n, size=entries), rng.integers(d, size=entries)
    X = sp.csr_array((rng.standard_normal(entries), places), shape=(n, d))
    return X, rng.integers(2, size=n)


@pytest.mark.parametrize("loss", ["log_loss", "hinge"])
def test_a_million_columns_of_a_few_entries_are_soon_fitted(loss):
    n, d = 300, 10**6
    X, y = sparse_data(n, d, 10 * n)
    fitted = AcceleGradClassifier(loss, random_state=0).fit(X, y)
    assert fitted.converged_
    assert fitted.n_iter_ < 300
    used = np.flatnonzero(abs(X).sum(axis=0))
    assert not np.delete(fitted.coef_, used, axis=1).any()
    narrow = AcceleGradClassifier(loss, random_state=0).fit(X[:, used], y)
    np.testing.assert_allclose(fitted.coef_[:, used], narrow.coef_, rtol=1e-12, atol=1e-12)
    assert fitted.objective_ == pytest.approx(narrow.objective_, rel=1e-12)
    assert fitted.n_features_in_ == d


@pytest.mark.parametrize("options", [{}, {"penalty": "l1"}, {"penalty": None}])
def test_all_penalties(options):
    X, y = sparse_data(200, 4000, 2000)
    fitted = AcceleGradRegressor(**options, alpha=1e-2, random_state=0).fit(X, y)
    used = np.flatnonzero(abs(X).sum(axis=0))
    narrow = AcceleGradRegressor(**options, alpha=1e-2, random_state=0).fit(X[:, used], y)
    np.testing.assert_allclose(fitted.coef_[used], narrow.coef_, rtol=1e-9, atol=1e-9)
    assert fitted.predict(X) == pytest.approx(narrow.predict(X[:, used]), rel=1e-9, abs=1e-9)


def test_several_classes_and_warm_starts():
    X, y = sparse_data(200, 4000, 2000)
    y = y + np.arange(200) % 2
    fitted = AcceleGradClassifier(warm_start=True, random_state=0).fit(X, y)
    assert fitted.coef_.shape == (3, 4000)
    first = fitted.n_iter_
    assert fitted.sparsify().fit(X, y).n_iter_ < first
    assert fitted.coef_.shape == (3, 4000)


def test_a_fit_that_misses_its_tolerance_leaves_all_coefficients():
    X, y = sparse_data(200, 4000, 2000)
    short = AcceleGradClassifier("hinge", max_iter=1, tol=1e-9, random_state=0)
    with pytest.warns(ConvergenceWarning):
        short.fit(X, y)
    assert short.coef_.shape == (1, 4000)
    for warm in (False, True):
        short.set_params(warm_start=warm)
        with pytest.raises(ConvergenceWarning):
            short.fit(X, y)
        assert short.coef_.shape == (1, 4000)
        assert short.predict(X).shape == (200,)


def test_cross_validation_leaves_them_out_too():
    X, y = sparse_data(200, 4000, 2000)
    used = np.flatnonzero(abs(X).sum(axis=0))
    wide, narrow = (
        AcceleGradClassifierCV(alphas=[1.0, 1e-1, 1e-2], cv=2).fit(rows, y)
        for rows in (X, X[:, used])
    )
    np.testing.assert_allclose(wide.scores_, narrow.scores_, rtol=1e-6)
    np.testing.assert_allclose(wide.coef_[:, used], narrow.coef_, rtol=1e-6, atol=1e-9)
    assert wide.coef_.shape == (1, 4000)
