"""Fits are equivariant in the target: strengths, delta and epsilon are in the targets' scale."""

import pickle

import numpy as np
import pytest

from accelegrad.sklearn import AcceleGradRegressor, AcceleGradRegressorCV
from accelegrad.sklearn.model_file import load_model, save_model

LINEAR = ["absolute_error", "quantile", "epsilon_insensitive"]
SCALED = [*LINEAR, "huber", "squared_epsilon_insensitive"]


def houses(rows=400, seed=0):
    """Return standardised columns and prices in dollars, with some mansions."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, 6))
    y = 2e5 + 1e5 * X @ [1.0, 0.5, 0.3, -0.2, 0.1, 0.0] + 2e4 * rng.standard_t(3, rows)
    return X, y


@pytest.mark.parametrize("factor", [-1e-6, 3e7])
@pytest.mark.parametrize("penalty", ["l2", "l1", "elasticnet"])
@pytest.mark.parametrize("loss", SCALED)
def test_targets_may_have_any_unit(loss, penalty, factor):
    X, y = houses(150)
    options = {"penalty": penalty, "alpha": 0.1, "quantile": 0.3, "tol": 1e-6}
    mirrored = {"quantile": 0.7} if factor < 0 else {}
    usual = AcceleGradRegressor(loss, **options).fit(X, y)
    other = AcceleGradRegressor(loss, **{**options, **mirrored}).fit(X, factor * y)
    size = abs(factor)
    assert other.target_scale_ == pytest.approx(size * usual.target_scale_, rel=1e-12)
    expected = factor * usual.predict(X)
    np.testing.assert_allclose(other.predict(X), expected, atol=1e-3 * np.ptp(expected))
    unit = size if loss in LINEAR else size**2
    assert other.objective_ == pytest.approx(unit * usual.objective_, rel=2e-6)
    assert usual.converged_
    assert other.converged_
    assert np.abs(usual.coef_).max() > 0.0


@pytest.mark.parametrize("loss", ["squared_error", *SCALED])
def test_a_constant_target_has_no_scale(loss):
    X, _ = houses(50)
    fit = AcceleGradRegressor(loss).fit(X, np.full(50, 0.1))
    assert fit.target_scale_ == 1.0
    np.testing.assert_allclose(fit.predict(X), 0.1, rtol=1e-9)


def test_each_output_has_its_scale():
    X, y = houses(100)
    both = np.column_stack([y, 1e-5 * y])
    several = AcceleGradRegressor("huber").fit(X, both)
    alone = [AcceleGradRegressor("huber").fit(X, column) for column in both.T]
    np.testing.assert_array_equal(several.target_scale_, [fit.target_scale_ for fit in alone])
    np.testing.assert_array_equal(several.coef_, [fit.coef_ for fit in alone])
    levels = AcceleGradRegressor("quantile", quantile=[0.2, 0.8]).fit(X, y)
    np.testing.assert_array_equal(levels.target_scale_, [alone[0].target_scale_] * 2)


@pytest.mark.parametrize("given", [0, -1.0, np.nan, np.inf, "large", None, [1.0]])
def test_what_is_no_scale_is_refused(given):
    X, y = houses(20)
    for kind in (AcceleGradRegressor, AcceleGradRegressorCV):
        with pytest.raises((TypeError, ValueError), match=r"target_scale must be a .*number > 0"):
            kind("huber", target_scale=given).fit(X, y)


@pytest.mark.parametrize("size", [7, 300])
def test_partial_fit_has_the_scale_of_the_first_rows(size):
    X, y = houses(800)
    usual, other = AcceleGradRegressor("huber"), AcceleGradRegressor("huber")
    for rows in np.array_split(np.arange(800), 800 // size):
        usual.partial_fit(X[rows], y[rows])
        other.partial_fit(X[rows], 2.0**-20 * y[rows])
        if usual.n_samples_seen_ < 300:
            seen = y[: usual.n_samples_seen_]
            scale = np.abs(seen - seen.mean()).mean()
            assert usual.target_scale_ == pytest.approx(scale, rel=1e-12)
        usual = pickle.loads(pickle.dumps(usual))
    first = y[:300] if size == 300 else y[: (300 // size + 1) * size]
    assert usual.target_scale_ == pytest.approx(np.abs(first - first.mean()).mean(), rel=0.02)
    # The steps depend a little on the unit, since their first length does.
    apart = np.abs(2.0**20 * other.predict(X) - usual.predict(X))
    assert apart.max() < 0.02 * np.ptp(usual.predict(X))
    assert usual.score(X, y) > 0.85


def test_partial_fit_after_fit_keeps_the_scale():
    X, y = houses(400)
    fit = AcceleGradRegressor("huber").fit(X, y)
    scale = fit.target_scale_
    fit.partial_fit(X[:1], 100.0 * y[:1])
    assert fit.target_scale_ == scale
    fit.set_params(alpha=1e-3).partial_fit(X[:5], y[:5])
    assert fit.target_scale_ == scale
    fit.set_params(target_scale=2.0).partial_fit(X[:5], y[:5])
    assert fit.target_scale_ == 2.0
    fit.set_params(target_scale="auto").fit(X, y)
    assert fit.target_scale_ == scale


def test_a_model_file_from_before_has_the_plain_objective(tmp_path, monkeypatch):
    X, y = houses(100)
    fit = AcceleGradRegressor("huber", target_scale=1).fit(X, y)
    path = tmp_path / "model.agm"
    names = {name: value for name, value in fit.get_params().items() if name != "target_scale"}
    del fit.target_scale_
    monkeypatch.setattr(AcceleGradRegressor, "get_params", lambda _, deep=True: names)
    save_model(fit, path)
    monkeypatch.undo()
    loaded = load_model(path)
    assert loaded.target_scale == loaded.target_scale_ == 1.0
