"""Compiled steps of `partial_fit` on sparse rows against the rule's own, state by state."""

from copy import copy

import numpy as np
import pytest
import scipy.sparse as sp

from accelegrad import kernels
from accelegrad.kernels.sparse_steps import SparseSteps
from accelegrad.sklearn import AcceleGradClassifier, AcceleGradRegressor

N, D = 600, 40


def data(dtype=np.float64, n_classes=2):
    rng = np.random.default_rng(3)
    X = sp.random_array((N, D), density=0.2, rng=rng, format="csr", dtype=np.float64)
    X.data += rng.standard_normal(X.nnz)
    X.data *= (10.0 ** rng.uniform(-1.5, 1.5, D))[X.indices]  # columns of many scales
    scores = X @ rng.standard_normal((D, n_classes)) + rng.standard_normal((N, n_classes))
    return X.astype(dtype), scores.argmax(axis=1), scores[:, 0], rng.uniform(0.0, 2.0, N)


def fed(mode, estimator, X, y, weights, **options):
    for first in range(0, N, 150):
        rows = slice(first, first + 150)
        chosen = None if weights is None else weights[rows]
        # The first 300 rows are searched for a radius, as far as it matters: rounding decides how.
        with kernels.use("never" if first < 300 else mode):
            estimator.partial_fit(X[rows], y[rows], sample_weight=chosen, **options)
    return estimator


MODES = ("always", "never")


def pair(estimator, X, y, weights=None, **options):
    """Return two copies of an estimator, fed by compiled steps and by the rule's."""
    return [fed(mode, copy(estimator), X, y, weights, **options) for mode in MODES]


def assert_same(found, expected, rtol=1e-7, atol=1e-9):
    """Rounding is multiplied by the steps: some hundred of them make 1e-9 of 1e-15 at most."""
    assert found.n_iter_ == expected.n_iter_
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=rtol, atol=atol)
    np.testing.assert_allclose(found.intercept_, expected.intercept_, rtol=rtol, atol=atol)


def assert_same_after(feed, **options):
    """Feed compiled steps and the rule's with rows and labels, after the first ones."""
    X, y, _, _ = data()
    first = AcceleGradClassifier(random_state=0, **options)
    estimators = pair(first, X, y, classes=[0, 1])
    for mode, estimator in zip(MODES, estimators, strict=True):
        with kernels.use(mode):
            feed(estimator, X, y)
    assert_same(*estimators)


CLASSIFIERS = {
    "log loss": {},
    "hinge": {"loss": "hinge"},
    "without an intercept": {"fit_intercept": False},
    "a strong penalty": {"alpha": 0.1},
    "last points": {"average": False},
    "batches": {"batch_size": 7},
    "one against the rest": {"multi_class": "ovr"},
}


@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize(("weighted", "dtype"), [(False, np.float64), (True, np.float32)])
def test_classifiers(name, n_classes, weighted, dtype):
    X, y, _, weights = data(dtype, n_classes)
    estimator, classes = AcceleGradClassifier(random_state=0, **CLASSIFIERS[name]), range(n_classes)
    found, expected = pair(estimator, X, y, weights if weighted else None, classes=list(classes))
    assert_same(found, expected)
    with kernels.use("never"):  # from the same state: the next rows lead to the same point
        for estimator in (found, expected):
            estimator.partial_fit(X[:150], y[:150])
    assert_same(found, expected)


@pytest.mark.parametrize("alpha", [1e-4, 3.0])
def test_a_thousand_steps_with_rebases(alpha, monkeypatch):
    used, advance = [], SparseSteps.advance
    monkeypatch.setattr(
        SparseSteps, "advance", lambda self, *given: used.append(self) or advance(self, *given)
    )
    assert_same_after(lambda one, *rows: [one.partial_fit(*rows) for _ in range(25)], alpha=alpha)
    assert used[-1].numbers["rebases"] > 1


def test_rows_that_wait_for_a_batch_and_dense_and_huge_ones_are_used_once():
    def feed(estimator, X, y):
        for first in range(0, 40, 5):  # fewer than a batch
            estimator.partial_fit(X[first : first + 5], y[first : first + 5])
        huge = X[:32].copy()
        huge.data[-1] = 1e200  # whose square is beyond the range of floats
        with np.errstate(over="ignore", invalid="ignore"):
            estimator.partial_fit(X[:150].toarray(), y[:150]).partial_fit(X[:150], y[:150])
            assert np.isfinite(estimator.coef_).all()
            estimator.partial_fit(huge, y[:32])

    assert_same_after(feed)


def test_a_chunk_changes_no_state_that_was_kept():
    X, y, _, _ = data()
    with kernels.use("always"):
        one = AcceleGradClassifier(random_state=0).partial_fit(X, y, classes=[0, 1])
        other = copy(one)  # which has the same state, not a copy of it
        for estimator in (one, other):
            estimator.partial_fit(X, y)
    np.testing.assert_array_equal(one.coef_, other.coef_)


REGRESSORS = ("squared_error", "absolute_error", "huber", "quantile")
FIRST_CHUNKS = [
    *((name, n_classes, False) for name in CLASSIFIERS for n_classes in (2, 4)),
    *((name, 4, True) for name in ("log loss", "one against the rest")),
    *((name, 2, fitted) for name in REGRESSORS for fitted in (False, True)),
]


@pytest.mark.parametrize(("name", "n_classes", "fitted"), FIRST_CHUNKS)
def test_the_first_chunk_of_a_stream_begins_where_the_rule_does(name, n_classes, fitted):
    X, y, numbers, weights = data(n_classes=n_classes)
    if name in REGRESSORS:  # far from zero: the start has an intercept
        y, first = numbers + 10.0, AcceleGradRegressor(name, random_state=0)
    else:
        first = AcceleGradClassifier(**CLASSIFIERS[name], random_state=0)
    options = {} if name in REGRESSORS else {"classes": range(n_classes)}
    models = [first.fit(X[:100], y[:100]) if fitted else first, copy(first)]
    for mode, model in zip(MODES, models, strict=True):
        with kernels.use(mode):
            model.partial_fit(X, y, sample_weight=weights, **options)
    assert_same(*models, rtol=1e-6, atol=1e-7)
