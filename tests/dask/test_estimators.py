"""The estimators of collections, and of streams, against those of rows in memory."""

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from dask import delayed
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GroupKFold

import accelegrad as ag
from accelegrad import dask
from accelegrad import sklearn as local
from accelegrad.dask import AcceleGradClassifier, AcceleGradRegressor, BlockError

pytestmark = [pytest.mark.xdist_group("dask"), pytest.mark.usefixtures("dask_client")]

N, D = 500, 6


def plain_data(n_classes=2):
    rng = np.random.default_rng(5)
    X = rng.standard_normal((N, D)) * rng.uniform(0.5, 2, D)
    scores = X @ rng.standard_normal((D, n_classes)) + 2 * rng.standard_normal((N, n_classes))
    return X, np.array(["a", "b", "c", "d"])[scores.argmax(axis=1)]


def numbers():
    X, _ = plain_data()
    rng = np.random.default_rng(6)
    return X, X @ np.arange(D) + rng.standard_normal(N) + 10


def spread(X, y, rows=180):
    return da.from_array(X, chunks=(rows, -1)), da.from_array(y, chunks=rows)


HUBER, KINKED = dict(loss="huber", target_scale=3.0), dict(loss="absolute_error")
STOPPED = dict(early_stopping=True, n_iter_no_change=2, random_state=3)
NONNEGATIVE = dict(feasible_set="nonnegative")
#: The number of classes, 0 for numbers, and the estimator's parameters.
CASES = {
    "log loss": (2, dict(tol=1e-9)),
    "hinge": (2, dict(loss="hinge")),
    "hinge, without an intercept": (2, dict(loss="hinge", fit_intercept=False)),
    "modified Huber": (2, dict(loss="modified_huber", fit_intercept=False)),
    "squared hinge, three classes": (3, dict(loss="squared_hinge")),
    "l1": (2, dict(penalty="l1")),
    "without an intercept": (2, dict(fit_intercept=False, tol=1e-9)),
    "balanced": (2, dict(class_weight="balanced", tol=1e-9)),
    "weights of classes": (2, dict(class_weight={"a": 1, "b": 3}, tol=1e-9)),
    "elastic net": (2, dict(penalty="elasticnet", l1_ratio=0.5, alpha=0.05, tol=1e-6)),
    "nonnegative": (2, dict(tol=1e-6, **NONNEGATIVE)),
    "a ball": (2, dict(feasible_set=ag.L1Ball(0.5))),
    "minibatches": (2, dict(batch_size=20, max_iter=50, tol=None)),
    "stopped early": (2, STOPPED),
    "one against the rest": (4, dict(multi_class="ovr", tol=1e-6)),
    "multinomial": (4, dict(tol=1e-6)),
    "multinomial, balanced": (4, dict(class_weight="balanced", fit_intercept=False)),
    "multinomial, nonnegative": (4, dict(tol=1e-2, **NONNEGATIVE)),
    "multinomial, l1": (4, dict(penalty="l1", tol=1e-2)),
    "multinomial, stopped early": (4, STOPPED),
    "squared error": (0, dict(loss="squared_error")),
    "absolute error": (0, KINKED),
    "huber": (0, HUBER),
    "quantile": (0, dict(loss="quantile", quantile=0.8)),
    "squared error, l1": (0, dict(penalty="l1")),
    "simplex": (0, dict(feasible_set="simplex")),
    "huber, stopped early": (0, STOPPED | HUBER),
}


FITS = [("dask", name) for name in CASES]
FITS += [("stream", name) for name in CASES if "stopped" not in name]


@pytest.mark.parametrize(("way", "name"), FITS)
def test_fits_agree_with_those_of_rows_in_memory(way, name):
    n_classes, options = CASES[name]
    options = dict(alpha=1e-2, random_state=0, tol=1e-3) | options
    kind = "Classifier" if n_classes else "Regressor"
    here, there = (getattr(room, f"AcceleGrad{kind}")(**options) for room in (local, dask))
    X, y = plain_data(n_classes) if n_classes else numbers()
    weights = None
    if not n_classes:
        y = 1e4 * (y + 5.0)
    if not n_classes or "stopped" in name:
        weights = np.maximum(np.random.default_rng(0).uniform(-1, 3, N), 0.0)
        weights[200:300] = 0.0  # among others in a chunk without weight
    expected = clone(here).fit(X, y, weights)
    if way == "stream":
        given = (X, y) if weights is None else (X, y, weights)
        found = here.fit([tuple(a[i : i + 60] for a in given) for i in range(0, N, 60)])
    else:
        rows, targets = spread(X, y)
        found = there.fit(rows, targets, weights)
        same(found.predict(rows).compute(), found.to_local().predict(X))
    assert found.n_samples_seen_ == expected.n_samples_seen_
    assert "stopped" not in name or found.n_samples_seen_ < np.count_nonzero(weights)
    assert found.coef_.shape == expected.coef_.shape
    assert np.shape(found.intercept_) == np.shape(expected.intercept_)
    if n_classes:
        assert_array_equal(found.classes_, expected.classes_)
    else:
        assert_allclose(found.target_scale_, expected.target_scale_, rtol=1e-12)
    if options["tol"] is None:
        assert_allclose(found.coef_, expected.coef_, rtol=1e-5)
        return
    # Both prove their gaps on the same objective, so that each bounds the other.
    assert found.converged_ or "stopped" in name
    assert found.objective_ - found.gap_ <= expected.objective_ * (1 + 1e-9)
    assert expected.objective_ - expected.gap_ <= found.objective_ * (1 + 1e-9)
    if options["tol"] <= 1e-9:  # the objective is strongly convex in the weights
        assert_allclose(found.coef_, expected.coef_, atol=2 * np.sqrt(2e-9 / options["alpha"]))


def same(found, expected):
    """Products of other blocks are rounded in another way."""
    if expected.dtype == float:
        assert_allclose(found, expected, rtol=1e-10, atol=1e-13)
    else:
        assert_array_equal(found, expected)


def test_predictions_are_lazy_for_all_collections():
    X, y = plain_data(4)
    rows, targets = spread(X, y)
    fitted = AcceleGradClassifier(multi_class="ovr", alpha=1e-2).fit(rows, targets)
    plain = fitted.to_local()
    assert type(plain) is local.AcceleGradClassifier
    frame = dd.from_pandas(pd.DataFrame(X), npartitions=3)
    sparse = rows.map_blocks(sp.csr_matrix)
    for method in ("predict", "predict_proba", "predict_log_proba", "decision_function"):
        expected = getattr(plain, method)(X)
        lazy = getattr(fitted, method)(rows)
        assert isinstance(lazy, da.Array)
        assert lazy.shape == expected.shape
        assert lazy.dtype == expected.dtype
        for found in (lazy, getattr(fitted, method)(frame), getattr(fitted, method)(sparse)):
            same(np.asarray(found.compute()), expected)
        same(getattr(fitted, method)(X), expected)
        parts = getattr(fitted, method)([delayed(X[:9]), delayed(X[9:])])
        same(np.concatenate([part.compute() for part in parts]), expected)
    hinge = AcceleGradClassifier("hinge")
    assert not hasattr(hinge, "predict_proba")


def drawn_again(n_splits):
    """Return splits as bootstraps have them: rows several times, in any order, or in no part."""
    rng = np.random.default_rng(8)
    drawn = [rng.integers(N, size=N) for _ in range(n_splits)]
    return [(train, rng.permutation(np.setdiff1d(np.arange(N), train))) for train in drawn]


CV = {
    "log loss": ("Classifier", dict(scoring="neg_log_loss", cv=drawn_again(2))),
    "ovr": ("Classifier", dict(loss="squared_hinge")),
    "huber": ("Regressor", dict(loss="huber", penalty="elasticnet", tol=1e-6)),
    "absolute error": ("Regressor", dict(scoring="neg_mean_absolute_error", cv=drawn_again(2))),
    "groups": ("Regressor", dict(cv=GroupKFold(2))),
    "stopped early": ("Regressor", dict(loss="huber", early_stopping=True, random_state=0)),
    "a fold lacks a class": (
        "Classifier",
        dict(alphas=[0.1], cv=[(np.arange(first, 300), np.arange(300, N)) for first in (4, 0)]),
    ),
}


@pytest.mark.filterwarnings("ignore:The best alpha:UserWarning")  # either is at an end
@pytest.mark.parametrize("name", CV)
def test_cross_validation_agrees_with_that_of_rows_in_memory(name):
    kind, options = CV[name]
    X, y = plain_data(3) if kind == "Classifier" else numbers()
    options = dict(alphas=[1.0, 1e-2], tol=1e-9, cv=2) | options
    given = dict(sample_weight=np.random.default_rng(0).integers(3, size=N))
    if name == "a fold lacks a class":
        y[:4], given = "z", {}
    if name == "groups":
        given["groups"] = np.arange(N) % 7
    found = getattr(dask, f"AcceleGrad{kind}CV")(**options).fit(*spread(X, y), **given)
    expected = getattr(local, f"AcceleGrad{kind}CV")(**options).fit(X, y, **given)
    assert found.alpha_ == expected.alpha_
    rtol = 4 * options["tol"]
    assert_allclose(found.objectives_, expected.objectives_, rtol=rtol)
    # Points are as near as the objective's strong convexity says.
    assert_allclose(found.scores_, expected.scores_, rtol=max(1e-3, 2e2 * options["tol"]))
    assert_allclose(found.objective_, expected.objective_, rtol=rtol)
    if kind == "Regressor":
        assert_allclose(found.target_scale_, expected.target_scale_, rtol=1e-12)
    else:
        assert_array_equal(found.classes_, expected.classes_)
    assert found.predict(da.from_array(X, chunks=(100, -1))).compute().shape == (N,)


def test_many_classes_are_not_taken_for_numbers():
    """Without a warning of scikit-learn's, which counts all targets."""
    X, _ = plain_data()
    y = np.random.default_rng(0).integers(0, 30, N)
    AcceleGradClassifier(alpha=0.1, tol=0.1).fit(*spread(X, y))


def test_names_and_parameters_are_kept_and_a_warm_start_saves_iterations():
    X, y = numbers()
    names = list("uvwxyz")
    frame = dd.from_pandas(pd.DataFrame(X, columns=names).assign(t=y), npartitions=3)
    fitted = AcceleGradRegressor(warm_start=True, timeout=300.0).fit(frame[names], frame["t"])
    assert_array_equal(fitted.feature_names_in_, names)
    assert (fitted.n_features_in_, fitted.n_samples_seen_) == (D, N)
    assert clone(fitted).get_params() == fitted.get_params()
    rows, targets = spread(*plain_data())
    first = AcceleGradClassifier(alpha=1e-2, warm_start=True).fit(rows, targets)
    iterations = first.n_iter_
    assert first.fit(rows, targets).n_iter_ < iterations


@pytest.mark.parametrize("kind", ["delayed", "futures", "arrays", "labels"])
def test_every_pass_over_the_same_blocks_is_learnt_from(dask_client, kind):
    X, y = plain_data() if kind == "labels" else numbers()
    parts = [(X[first : first + 100], y[first : first + 100]) for first in range(0, N, 100)]
    given = {
        "delayed": ([delayed(part) for part in parts],),
        # Keys of their own: those of an earlier test's equal data may be about to be released.
        "futures": (dask_client.scatter(parts, hash=False),),
    }
    more = dict(classes=["a", "b"]) if kind == "labels" else {}
    name, loss = ("Classifier", "log_loss") if more else ("Regressor", "huber")
    found, expected = (getattr(r, f"AcceleGrad{name}")(loss, random_state=0) for r in (dask, local))
    for passes in range(1, 7):
        found.partial_fit(*given.get(kind, spread(X, y, 100)), **more)
        for part in parts:
            expected.partial_fit(*part, **more)
        assert found.n_samples_seen_ == expected.n_samples_seen_ == passes * N
        assert_allclose(found.coef_, expected.coef_, rtol=1e-10)
    if not more:
        assert_allclose(found.target_scale_, expected.target_scale_, rtol=1e-12)


def test_wrong_data_and_parameters_are_refused():
    X, y = plain_data()
    rows, targets = spread(X, y)
    with pytest.raises(ValueError, match="at least 2 classes"):
        AcceleGradClassifier().fit(rows, da.full(N, "a", chunks=180))
    with pytest.raises(ValueError, match="loss"):
        AcceleGradClassifier("cubic").fit(rows, targets)
    with pytest.raises(ValueError, match=r"such as .* AcceleGradRegressor is for numbers"):
        AcceleGradClassifier().fit(rows, da.arange(N, chunks=180) + 0.5)
    with pytest.raises(ValueError, match="target_scale must be a number > 0 or 'auto'"):
        AcceleGradRegressor(target_scale="big").fit(rows, targets)
    with pytest.raises(BlockError, match="block 1"):
        AcceleGradRegressor().fit([delayed((X, np.ones(N))), delayed((X[:, :2], np.ones(N)))])
    with pytest.raises(BlockError, match="block 0: y must be finite"):
        AcceleGradRegressor().fit([delayed((X, np.full(N, np.nan)))])
