"""Least squares where weights have a sign each and nothing else: other solvers, and the bound."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from scipy.optimize import nnls
from sklearn.linear_model import LinearRegression

import accelegrad as ag
from accelegrad.proofs.cone import ConeBounds
from accelegrad.proofs.fenchel import Terms
from accelegrad.sklearn import AcceleGradRegressor


def problem(seed, *, intercept, kind="dense", dtype=np.float64):
    """Return a model whose columns have sizes of 1e-2 to 1e2, and the set of weights >= 0."""
    rng = np.random.default_rng(seed)
    rows, columns = int(rng.integers(20, 200)), int(rng.integers(1, 9))
    X = (rng.normal(size=(rows, columns)) * 10.0 ** rng.uniform(-2, 2, columns)).astype(dtype)
    y = X @ (rng.normal(size=columns) / np.abs(X).max(0)) + rng.normal(size=rows)
    y += 5.0 * intercept
    data = sp.csr_matrix(X) if kind == "csr" else X
    weights = rng.random(rows) + 0.1 if seed % 2 else None
    model = ag.LinearModel(
        data, y.astype(np.float64), "squared", fit_intercept=intercept, sample_weight=weights
    )
    return model, above_zero(model)


def above_zero(model):
    if not model.fit_intercept:
        return ag.NonNegative()
    lower = np.append(np.zeros(model.n_features), -np.inf)
    return ag.Box(lower, np.full(model.n_parameters, np.inf))


def told(model):
    """Return the minimiser that SciPy finds; an intercept is the difference of two weights."""
    X = model.X.toarray() if sp.issparse(model.X) else np.asarray(model.X, dtype=np.float64)
    ones = np.ones((len(X), int(model.fit_intercept)))
    roots = np.sqrt(model.shares)
    found, _ = nnls(np.hstack([X, ones, -ones]) * roots[:, None], model.y * roots)
    d = model.n_features
    return np.append(found[:d], found[d : d + 1] - found[d + 1 :])


CASES = [dict(intercept=b, **more) for b in (False, True) for more in ({}, dict(kind="csr"))]
CASES.append(dict(intercept=True, dtype=np.float32))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(5))
def test_nonnegative_least_squares_end_where_scipys_do_and_are_proved(seed, case):
    model, chosen = problem(seed, **case)
    result = ag.minimize(model, feasible_set=chosen, rtol=1e-9)
    assert result.method == "proximal-newton"
    assert result.success
    assert result.nit <= 2
    assert result.certified_radius == math.inf
    x = told(model)
    sizes = np.append(np.sqrt(model.column_squares()), 1.0)[: x.size]
    # Both solve with products of columns, whose rounding is that of squares.
    assert_allclose(result.x * sizes, x * sizes, atol=1e-7)
    assert_allclose(result.fun, model.value(x), rtol=1e-12)
    assert result.lower_bound <= model.value(x)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_no_slopes_prove_more_than_the_minimum(seed, intercept):
    model, chosen = problem(seed, intercept=intercept)
    x, rng = told(model), np.random.default_rng(seed)
    least = model.value(x)
    terms = Terms.of(model, None, chosen)
    bounds = ConeBounds(model, terms, model.value(np.zeros(model.n_parameters)))
    best = 0.0
    for size in (0.0, 1e-12, 1e-9, 1e-6, 1e-3, 1.0):
        slopes = model.at(x).derivatives
        bound = bounds.at(slopes + size * rng.normal(size=slopes.size))
        assert bound <= least
        best = max(best, bound)
    assert best >= least * (1.0 - 1e-9)  # that of the minimiser's own slopes
    if intercept:
        assert abs(x[-1]) <= bounds.intercept < math.inf


def test_columns_that_cancel_have_no_such_bound():
    model, _ = problem(1, intercept=False)
    both = ag.LinearModel(np.hstack([model.X, -model.X]), model.y, "squared")
    terms = Terms.of(both, None, ag.NonNegative())
    bounds = ConeBounds(both, terms, both.value(np.zeros(both.n_parameters)))
    assert not bounds.gets_tight
    assert bounds.at(both.at(told(both)).derivatives) == 0.0
    groups = np.eye(3)[np.arange(model.n_samples) % 3]  # their sum is what an intercept adds
    model = ag.LinearModel(groups, model.y, "squared", fit_intercept=True)
    chosen = above_zero(model)
    bounds = ConeBounds(model, Terms.of(model, None, chosen), model.value(np.zeros(4)))
    assert bounds.intercept == math.inf
    assert ag.minimize(model, feasible_set=chosen, max_iter=3).method == "accelegrad"


@pytest.mark.parametrize("kind", ["dense", "csr"])
@pytest.mark.parametrize("intercept", [False, True])
def test_columns_that_add_nothing_do_not_matter(kind, intercept):
    """Those of zeros, and constant ones beside an intercept."""
    model, _ = problem(2, intercept=intercept)
    rows = model.n_samples
    X = np.hstack([model.X, np.full((rows, 1), 3.7), np.zeros((rows, 1)), np.full((rows, 1), 0.1)])
    if not intercept:
        X = X[:, :-1]  # two constant ones would be dependent
    data = sp.csr_matrix(X) if kind == "csr" else X
    wider = ag.LinearModel(data, model.y, "squared", fit_intercept=intercept)
    x = told(wider)
    result = ag.minimize(wider, feasible_set=above_zero(wider), rtol=1e-9)
    assert result.method == "proximal-newton"
    assert result.success
    assert result.certified_radius == math.inf
    assert_allclose(result.fun, wider.value(x), rtol=1e-9)
    assert result.lower_bound <= wider.value(x)


def test_estimators_end_where_linear_regression_does():
    model, _ = problem(3, intercept=False)
    ours = AcceleGradRegressor(alpha=0.0, feasible_set="nonnegative", tol=1e-9)
    ours.fit(model.X, model.y)
    peer = LinearRegression(positive=True).fit(model.X, model.y)
    assert ours.converged_
    assert_allclose(ours.coef_, peer.coef_, atol=1e-8 * np.abs(peer.coef_).max())


def test_thirty_columns_in_other_units_are_proved_to_eleven_digits():
    """A bound over a box of proved ends stops at 1e-7 here: the ends are far away."""
    rng = np.random.default_rng(4)
    units = 10.0 ** rng.uniform(-3.0, 3.0, 30)
    X, signal = rng.standard_normal((100, 30)), np.zeros(30)
    signal[:5] = rng.uniform(1.0, 2.0, 5)
    y = X @ signal + 3.0 + rng.standard_normal(100)
    model = ag.LinearModel(X * units, y, "squared", fit_intercept=True)
    result = ag.minimize(model, feasible_set=above_zero(model), rtol=1e-11)
    assert result.success
    assert result.certified_radius == math.inf
