"""The estimators of collections against those of rows in memory."""

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


def agree(found, expected):
    """Both prove their gaps on the same objective, so that each bounds the other."""
    assert found.converged_
    assert found.objective_ - found.gap_ <= expected.objective_ * (1 + 1e-9)
    assert expected.objective_ - expected.gap_ <= found.objective_ * (1 + 1e-9)
    assert found.coef_.shape == expected.coef_.shape
    assert np.shape(found.intercept_) == np.shape(expected.intercept_)


CLASSIFIERS = {
    "log loss": dict(tol=1e-9),
    "hinge": dict(loss="hinge", tol=1e-3),
    "without an intercept": dict(fit_intercept=False, tol=1e-9),
    "balanced": dict(class_weight="balanced", tol=1e-9),
    "weights of classes": dict(class_weight={"a": 1, "b": 3}, tol=1e-9),
    "elastic net": dict(penalty="elasticnet", l1_ratio=0.5, alpha=0.05, tol=1e-6),
    "nonnegative": dict(feasible_set="nonnegative", tol=1e-6),
    "a ball": dict(feasible_set=ag.L1Ball(0.5), tol=1e-3),
    "minibatches": dict(batch_size=20, max_iter=50, tol=None),
}


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers_agree_with_local_ones(name):
    X, y = plain_data()
    options = dict(alpha=1e-2, random_state=0) | CLASSIFIERS[name]
    found = AcceleGradClassifier(**options).fit(*spread(X, y))
    expected = local.AcceleGradClassifier(**options).fit(X, y)
    assert_array_equal(found.classes_, expected.classes_)
    if options["tol"] is None:
        assert_allclose(found.coef_, expected.coef_, rtol=1e-5)
        return
    agree(found, expected)
    if options["tol"] <= 1e-9:  # the objective is strongly convex in the weights
        assert_allclose(found.coef_, expected.coef_, atol=2 * np.sqrt(2e-9 / options["alpha"]))


@pytest.mark.parametrize(
    ("loss", "target_scale"),
    [("squared_error", "auto"), ("absolute_error", "auto"), ("huber", 3.0), ("quantile", "auto")],
)
def test_regressors_agree_with_local_ones(loss, target_scale):
    X, y = numbers()
    y = 1e4 * (y + 5.0)
    weights = np.maximum(np.random.default_rng(0).uniform(-1, 3, N), 0.0)
    options = dict(loss=loss, alpha=1e-2, target_scale=target_scale, random_state=0)
    rows, targets = spread(X, y)
    found = AcceleGradRegressor(**options).fit(rows, targets, sample_weight=weights)
    expected = local.AcceleGradRegressor(**options).fit(X, y, sample_weight=weights)
    agree(found, expected)
    assert_allclose(found.target_scale_, expected.target_scale_, rtol=1e-12)
    assert found.to_local().target_scale_ == found.target_scale_
    assert_allclose(found.predict(rows).compute(), found.to_local().predict(X), rtol=1e-12)


def test_classes_one_against_the_rest():
    X, y = plain_data(4)
    options = dict(multi_class="ovr", alpha=1e-2, tol=1e-6)
    found = AcceleGradClassifier(**options).fit(*spread(X, y))
    agree(found, local.AcceleGradClassifier(**options).fit(X, y))


MULTINOMIAL = {
    "l2": dict(tol=1e-6),
    "balanced, no intercept": dict(class_weight="balanced", fit_intercept=False),
    "nonnegative": dict(feasible_set="nonnegative", tol=1e-2),
    "l1": dict(penalty="l1", tol=1e-2),
}


@pytest.mark.parametrize("name", MULTINOMIAL)
def test_multinomial_problems_agree_with_local_ones(name):
    X, y = plain_data(4)
    options = dict(alpha=1e-2) | MULTINOMIAL[name]
    found = AcceleGradClassifier(**options).fit(*spread(X, y))
    agree(found, local.AcceleGradClassifier(**options).fit(X, y))


STOPPED = {
    "two classes": (local.AcceleGradClassifier, AcceleGradClassifier, 2, dict()),
    "classes": (local.AcceleGradClassifier, AcceleGradClassifier, 4, dict()),
    "regression": (local.AcceleGradRegressor, AcceleGradRegressor, 0, dict(loss="huber")),
}


@pytest.mark.parametrize("name", STOPPED)
def test_early_stopping_holds_back_the_rows_that_it_does_in_memory(name):
    here, there, n_classes, options = STOPPED[name]
    X, y = plain_data(n_classes) if n_classes else numbers()
    weights = np.where(np.arange(N) % 9 == 0, 0.0, 1.0 + np.arange(N) % 3)
    options = dict(early_stopping=True, n_iter_no_change=2, random_state=3, **options)
    rows, targets = spread(X, y)
    found = there(**options).fit(rows, targets, sample_weight=weights)
    expected = here(**options).fit(X, y, sample_weight=weights)
    assert found.n_samples_seen_ == expected.n_samples_seen_ < np.count_nonzero(weights)
    # Both minimise the same objective of the same rows.
    assert found.objective_ - found.gap_ <= expected.objective_ * (1 + 1e-9)
    assert expected.objective_ - expected.gap_ <= found.objective_ * (1 + 1e-9)


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
}


@pytest.mark.filterwarnings("ignore:The best alpha:UserWarning")  # either is at an end
@pytest.mark.parametrize("name", CV)
def test_cross_validation_agrees_with_that_of_rows_in_memory(name):
    kind, options = CV[name]
    X, y = plain_data(3) if kind == "Classifier" else numbers()
    options = dict(alphas=[1.0, 1e-2], tol=1e-9, cv=2) | options
    given = dict(sample_weight=np.random.default_rng(0).integers(3, size=N))
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
    assert found.predict(da.from_array(X, chunks=(100, -1))).compute().shape == (N,)


def test_folds_without_a_class_do_without_it():
    X, y = plain_data(3)
    y[:4] = "z"  # a class that the first fold does not learn
    splits = [(np.arange(4, 300), np.arange(300, N)), (np.arange(300), np.arange(300, N))]
    options = dict(alphas=[0.1], tol=1e-9, cv=splits)
    found = dask.AcceleGradClassifierCV(**options).fit(*spread(X, y))
    expected = local.AcceleGradClassifierCV(**options).fit(X, y)
    assert_allclose(found.objectives_, expected.objectives_, rtol=4e-9)
    assert_array_equal(found.classes_, expected.classes_)


def test_names_of_columns_are_kept():
    X, y = numbers()
    frame = dd.from_pandas(pd.DataFrame(X, columns=list("uvwxyz")).assign(t=y), npartitions=3)
    fitted = AcceleGradRegressor().fit(frame[list("uvwxyz")], frame["t"])
    assert_array_equal(fitted.feature_names_in_, list("uvwxyz"))
    assert fitted.n_features_in_ == D
    assert fitted.n_samples_seen_ == N


def test_estimators_can_be_cloned_and_warm_started():
    X, y = plain_data()
    rows, targets = spread(X, y)
    first = AcceleGradClassifier(alpha=1e-2, warm_start=True, timeout=300.0).fit(rows, targets)
    again = clone(first)
    assert again.get_params() == first.get_params()
    iterations = first.n_iter_
    assert first.fit(rows, targets).n_iter_ < iterations


def test_partial_fit_goes_on_block_by_block():
    X, y = plain_data()
    rows, targets = spread(X, y, 100)
    found = AcceleGradClassifier(alpha=1e-2, random_state=0)
    found.partial_fit(rows[:300], targets[:300], classes=["a", "b"])
    found.partial_fit(rows[300:], targets[300:])
    expected = local.AcceleGradClassifier(alpha=1e-2, random_state=0)
    for first in range(0, N, 100):
        part = slice(first, first + 100)
        expected.partial_fit(X[part], y[part], classes=["a", "b"])
    assert_allclose(found.coef_, expected.coef_, rtol=1e-10)
    assert found.n_samples_seen_ == N
    X, y = numbers()
    learnt = AcceleGradRegressor("huber", random_state=0).partial_fit(*spread(X, y, 100))
    assert learnt.n_samples_seen_ == N
    expected = local.AcceleGradRegressor("huber", random_state=0)
    for first in range(0, N, 100):
        expected.partial_fit(X[first : first + 100], y[first : first + 100])
    assert_allclose(learnt.coef_, expected.coef_, rtol=1e-10)
    assert_allclose(learnt.target_scale_, expected.target_scale_, rtol=1e-12)


@pytest.mark.parametrize("kind", ["delayed", "futures", "arrays"])
def test_every_pass_over_the_same_blocks_is_learnt_from(dask_client, kind):
    X, y = numbers()
    parts = [(X[first : first + 100], y[first : first + 100]) for first in range(0, N, 100)]
    given = {
        "delayed": ([delayed(part) for part in parts],),
        "futures": (dask_client.scatter(parts),),
        "arrays": spread(X, y, 100),
    }[kind]
    found, expected = AcceleGradRegressor(random_state=0), local.AcceleGradRegressor(random_state=0)
    for passes in range(1, 7):
        found.partial_fit(*given)
        for part in parts:
            expected.partial_fit(*part)
        assert found.n_samples_seen_ == expected.n_samples_seen_ == passes * N
    assert_allclose(found.coef_, expected.coef_, rtol=1e-10)


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
