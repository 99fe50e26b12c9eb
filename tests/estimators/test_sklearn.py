"""The estimators' own behaviour: what is certified, streams, weights, edge cases, company."""

import doctest
import importlib
import inspect
import re
import signal
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_diabetes, load_iris, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

import accelegrad as ag
import accelegrad.sklearn
from accelegrad.models.losses import by_sklearn_name
from accelegrad.sklearn import (
    AcceleGradClassifier,
    AcceleGradClassifierCV,
    AcceleGradRegressor,
    AcceleGradRegressorCV,
)
from accelegrad.sklearn.objective import Objective
from accelegrad.sklearn.online import ChunkOracle


@pytest.fixture(scope="module")
def flowers():
    X, y = load_iris(return_X_y=True)
    return StandardScaler().fit_transform(X), y


@pytest.fixture(scope="module")
def numbers():
    X, y = load_diabetes(return_X_y=True)
    return StandardScaler().fit_transform(X), y


def stream(estimator, X, y, chunk=100, passes=1, **options):
    """Feed the rows in a random order, chunk by chunk."""
    order = np.random.default_rng(0).permutation(len(y))
    for _ in range(passes):
        for first in range(0, len(y), chunk):
            rows = order[first : first + chunk]
            estimator.partial_fit(X[rows], y[rows], **options)
    return estimator


# ------------------------------------------------------------------------ what is certified


def test_the_tolerance_is_relative_whatever_the_units(numbers):
    X, y = numbers
    usual = AcceleGradRegressor(alpha=1e-2, tol=1e-4).fit(X, y)
    tiny = AcceleGradRegressor(alpha=1e-2, tol=1e-4).fit(X, 1e-6 * y)
    shifted = AcceleGradRegressor(alpha=1e-2, tol=1e-4).fit(X, y + 1e6)
    assert usual.gap_ <= 1e-4 * usual.objective_
    np.testing.assert_allclose(tiny.coef_, 1e-6 * usual.coef_, rtol=0.05, atol=1e-6)
    np.testing.assert_allclose(shifted.coef_, usual.coef_, rtol=0.05, atol=1.0)
    assert tiny.gap_ <= 1e-4 * tiny.objective_
    assert shifted.gap_ <= 1e-4 * shifted.objective_


def test_a_miss_is_told_with_the_gap_and_a_remedy(binary):
    X, y = binary
    with pytest.warns(ConvergenceWarning, match=r"certified to be within .* Increase max_iter"):
        short = AcceleGradClassifier(max_iter=3, tol=1e-8).fit(X, y)
    assert not short.converged_
    assert short.n_iter_ == 3
    better = AcceleGradClassifier(tol=1e-6).fit(X, y)
    assert short.objective_ - short.gap_ <= better.objective_


class PressesCtrlC:
    """A box at whose 500th projection somebody presses Ctrl-C."""

    def __init__(self):
        self.calls, self.box = 0, ag.Box(-1.0, 1.0)

    def project(self, x):
        self.calls += 1
        if self.calls == 500:
            signal.raise_signal(signal.SIGINT)
        return self.box.project(x)

    def linear_minimum(self, g):
        return self.box.linear_minimum(g)


def test_ctrl_c_keeps_the_best_so_far_and_gives_no_advice(binary):
    X, y = binary
    estimator = AcceleGradClassifier("hinge", feasible_set=PressesCtrlC(), diameter=4.0, tol=1e-9)
    with pytest.warns(ConvergenceWarning, match=r"was interrupted .* is certified") as caught:
        estimator.fit(X, y)
    assert "max_iter" not in str(caught[0].message)
    assert not estimator.converged_
    assert 1 <= estimator.n_iter_ <= 500


def test_no_tolerance_means_max_iter_and_no_warning(binary):
    X, y = binary
    fit = AcceleGradClassifier(max_iter=7, tol=None).fit(X, y)
    assert fit.n_iter_ == 7
    assert not fit.converged_  # there is no tolerance that could have been met


@pytest.mark.parametrize("diameter", [1e-5, 1e-2])
def test_a_diameter_that_is_too_small_is_no_convergence(binary, diameter):
    X, y = binary
    with pytest.warns(ConvergenceWarning):
        fit = AcceleGradClassifier("hinge", diameter=diameter, max_iter=300).fit(X, y)
    assert not fit.converged_


def test_penalties_do_not_let_a_guessed_region_pass_for_a_proof():
    # A column a million times as large as the others: in raw coordinates steps along the others
    # are tiny, and what is proved nearby says nothing.
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4)) * np.array([1.0, 1.0, 1.0, 1e6])
    y = X[:, 0] - 2 * X[:, 1] + 1e-6 * X[:, 3] + 0.1 * rng.standard_normal(300)
    fit = AcceleGradRegressor("absolute_error", penalty="l1", alpha=1e-3).fit(X, y)
    assert fit.certified_radius_ == np.inf
    assert fit.converged_
    np.testing.assert_allclose(fit.coef_[:3], [1.0, -2.0, 0.0], atol=0.05)


def test_columns_far_from_their_centre_are_no_obstacle():
    # So wide that second derivatives are not used; without centring it takes thousands of steps.
    rng = np.random.default_rng(4)
    X = rng.standard_normal((600, 300)) + 50.0
    y = (X[:, 0] - X[:, 1] + rng.standard_normal(600) > 0).astype(int)
    fit = AcceleGradClassifier(alpha=1e-2, max_iter=200).fit(X, y)
    assert fit.converged_
    centred = AcceleGradClassifier(alpha=1e-2, tol=1e-6).fit(X - 50.0, y)
    distance = np.linalg.norm(fit.coef_ - centred.coef_)
    assert distance <= np.sqrt(200 * fit.gap_) + np.sqrt(200 * centred.gap_)


def test_stochastic_fits(binary):
    X, y = binary
    options = {"batch_size": 32, "max_iter": 20_000, "tol": 1e-2, "average": True}
    fit = AcceleGradClassifier(alpha=1e-2, **options).fit(X, y)
    assert fit.converged_
    assert fit.gap_ <= 1e-2 * fit.objective_


@pytest.mark.parametrize("average", [True, False, "auto"])
def test_which_point_is_returned(binary, average):
    X, y = binary
    fit = AcceleGradClassifier(alpha=1e-2, average=average).fit(X, y)
    assert fit.converged_
    margins = np.where(y == 1, 1, -1) * fit.decision_function(X)
    value = np.logaddexp(0, -margins).mean() + 1e-2 * (fit.coef_**2).sum() / 2
    assert fit.objective_ == pytest.approx(value)


# ---------------------------------------------------------------------------------- weights


def test_zero_weights_leave_rows_and_their_class_out(flowers):
    X, y = flowers
    weights = (y != 2).astype(float)
    weighted = AcceleGradClassifier(random_state=0).fit(X, y, sample_weight=weights)
    removed = AcceleGradClassifier(random_state=0).fit(X[y != 2], y[y != 2])
    np.testing.assert_array_equal(weighted.classes_, [0, 1])
    np.testing.assert_allclose(weighted.coef_, removed.coef_, rtol=1e-8)


@pytest.mark.parametrize("loss", ["log_loss", "squared_hinge"])
def test_balanced_class_weights(binary, loss):
    X, y = binary
    counts = np.bincount(y)
    by_hand = {k: y.size / (2 * counts[k]) for k in range(2)}
    common = {"alpha": 1e-2, "random_state": 0}
    balanced = AcceleGradClassifier(loss, class_weight="balanced", **common).fit(X, y)
    weighted = AcceleGradClassifier(loss, class_weight=by_hand, **common).fit(X, y)
    sampled = AcceleGradClassifier(loss, **common).fit(
        X, y, sample_weight=np.where(y == 1, by_hand[1], by_hand[0])
    )
    np.testing.assert_allclose(balanced.coef_, weighted.coef_, rtol=1e-9)
    np.testing.assert_allclose(sampled.coef_, weighted.coef_, rtol=1e-9)


# ------------------------------------------------------------------------ warm starts, paths


def test_a_warm_start_begins_where_the_last_fit_ended(binary, flowers):
    for X, y in (binary, flowers):
        cold = AcceleGradClassifier(alpha=1e-2, tol=1e-6).fit(X, y)
        warm = AcceleGradClassifier(alpha=1e-2, tol=1e-6, warm_start=True).fit(X, y)
        first = warm.n_iter_
        warm.fit(X, y)
        assert warm.n_iter_ <= max(first // 4, 2)
        np.testing.assert_allclose(warm.coef_, cold.coef_, atol=5e-2)
        warm.fit(X[:, :3], y)  # other columns: it starts afresh
        assert warm.coef_.shape[1] == 3


def test_paths(binary, numbers):
    X, y = binary
    chosen = AcceleGradClassifierCV(alphas=[1e-3, 1.0, 1e-1, 1e-2], cv=3, random_state=0)
    chosen.fit(X, y)
    np.testing.assert_array_equal(chosen.alphas_, [1.0, 1e-1, 1e-2, 1e-3])
    assert chosen.scores_.shape == chosen.gaps_.shape == (4, 3)
    assert np.all(chosen.gaps_ <= 1e-3 * chosen.objectives_)
    assert chosen.alpha_ == chosen.alphas_[chosen.scores_.mean(axis=1).argmax()]
    alone = AcceleGradClassifier(alpha=chosen.alpha_, random_state=0).fit(X, y)
    np.testing.assert_array_equal(chosen.coef_, alone.coef_)
    X, y = numbers
    chosen = AcceleGradRegressorCV("absolute_error", alphas=4, cv=3).fit(X, y)
    np.testing.assert_allclose(chosen.alphas_, np.geomspace(10, 1e-5, 4))
    assert np.all(chosen.scores_ < 0)
    assert not hasattr(chosen, "partial_fit")


def test_a_path_warns_once(binary):
    X, y = binary
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        AcceleGradClassifierCV(alphas=[1e-1, 1e-2], cv=2, max_iter=2, tol=1e-9).fit(X, y)
    told = [str(warning.message) for warning in caught]
    assert len(told) == 3
    assert told[0].startswith("4 of the 4 fits along the path missed tol=1e-09")
    assert told[1].startswith("The best alpha, 0.01, is the smallest of the 2")
    assert "missed tol=1e-09 after 2 iterations" in told[2]  # the fit to all rows


# ---------------------------------------------------------------------------------- streams


def test_a_stream_learns_what_fit_learns(binary, flowers, numbers):
    X, y = binary
    for loss in ("log_loss", "hinge", "modified_huber"):
        classifier = stream(AcceleGradClassifier(loss, random_state=0), X, y, classes=[0, 1])
        assert classifier.score(X, y) > 0.95
    X, y = flowers
    for kind in ("ovr", "multinomial"):
        classifier = AcceleGradClassifier(multi_class=kind, random_state=0)
        assert stream(classifier, X, y, 30, 5, classes=[0, 1, 2]).score(X, y) > 0.9
    X, y = numbers
    fit = AcceleGradRegressor().fit(X, y)
    regressor = stream(AcceleGradRegressor(random_state=0), X, y, 50, passes=5)
    assert regressor.score(X, y) > fit.score(X, y) - 0.05
    assert regressor.gap_ == np.inf
    assert not regressor.converged_


def test_the_rules_weights_go_on_across_chunks(binary):
    """A chunk by chunk run is AcceleGrad on the batches in their order, step by step."""
    X, y = binary
    sign = np.where(y == 1, 1.0, -1.0)
    classifier = AcceleGradClassifier(alpha=0.1, diameter=2.0, batch_size=5, random_state=3)
    rule = ag.AcceleGrad(2.0, project=ag.Ball(np.zeros(31), 1.0).project, project_y=False)
    state = rule.init(np.zeros(31))
    seed = np.random.RandomState(3).randint(2**31 - 1)
    for first in (0, 20, 40):
        rows = np.arange(first, first + 20)
        classifier.partial_fit(X[rows], y[rows], classes=[0, 1])
        order = np.random.default_rng([seed, first]).permutation(20)
        for batch in np.split(rows[order], 4):
            model = ag.LinearModel(X[batch], sign[batch], "logistic", l2=0.1, fit_intercept=True)
            state = rule.update(state, model.gradient(rule.query(state)))
    expected = rule.output(state)
    np.testing.assert_allclose(classifier.coef_[0], expected[:-1], rtol=1e-10)
    np.testing.assert_allclose(classifier.intercept_[0], expected[-1], rtol=1e-10)


def test_weights_of_a_stream_count_across_chunks(numbers):
    X, y = numbers

    def fed(weights):
        regressor = AcceleGradRegressor(random_state=0, batch_size=10, alpha=1e-2)
        for first in range(0, 400, 100):
            rows = slice(first, first + 100)
            regressor.partial_fit(X[rows], y[rows], sample_weight=weights[rows])
        return regressor.coef_

    np.testing.assert_allclose(fed(np.ones(400)), fed(np.full(400, 7.0)), rtol=1e-9)
    heavier = np.repeat([1.0, 3.0], 200)  # in batches and chunks of their own all weigh the same
    assert np.linalg.norm(fed(heavier) - fed(np.ones(400))) > 0.1


def test_the_share_of_a_chunk_is_of_its_loss_alone(numbers):
    X, y = numbers
    problem = Objective("squared", 0.5, 0.0, None, True).on(X, y, None)
    oracle = ChunkOracle(problem, [np.arange(y.size)], 0.25)
    point = np.random.default_rng(1).standard_normal(11)
    found = oracle(point)
    residual = X @ point[:-1] + point[-1] - y
    value = 0.25 * (residual**2).mean() / 2 + 0.25 * point[:-1] @ point[:-1]
    gradient = 0.25 * np.append(X.T @ residual, residual.sum()) / y.size
    gradient[:-1] += 0.5 * point[:-1]
    assert found.value == pytest.approx(value)
    np.testing.assert_allclose(found.gradient, gradient)


def test_streams_keep_their_zeros(numbers):
    X, y = numbers
    last = AcceleGradRegressor(penalty="l1", alpha=20.0, average=False, random_state=0)
    assert (stream(last, X, y).coef_ == 0).any()


def test_a_class_never_seen_before(flowers):
    X, y = flowers
    classifier = AcceleGradClassifier()
    with pytest.raises(ValueError, match="classes must be given at the first call"):
        classifier.partial_fit(X, y)
    classifier.partial_fit(X[:60], y[:60], classes=[0, 1])
    with pytest.raises(ValueError, match=r"y holds the classes \[2\], which are not among \[0 1\]"):
        classifier.partial_fit(X, y)
    with pytest.raises(ValueError, match="not the same as at the first call"):
        classifier.partial_fit(X[:60], y[:60], classes=[0, 1, 2])


def test_balanced_weights_need_all_rows(binary):
    X, y = binary
    with pytest.raises(ValueError, match="'balanced' is not supported for partial_fit"):
        AcceleGradClassifier(class_weight="balanced").partial_fit(X, y, classes=[0, 1])


# -------------------------------------------------------------------------------- edge cases


@pytest.mark.parametrize(
    "loss", [*by_sklearn_name(classification=True), *by_sklearn_name(classification=False)]
)
def test_constant_columns_and_rows_of_zeros(loss):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((80, 5))
    X[:, 2], X[:, 3] = 0.0, 7.0
    X[:10, [0, 1, 4]] = 0.0
    y = X[:, 0] - X[:, 4] + 0.1 * rng.standard_normal(80)
    if loss in by_sklearn_name(classification=True):
        fit = AcceleGradClassifier(loss, penalty=None, tol=1e-2).fit(X, np.sign(y))
        assert fit.score(X, np.sign(y)) > 0.6
    else:
        fit = AcceleGradRegressor(loss, alpha=1e-3).fit(X, y)
        assert fit.score(X, y) > 0.9
        assert fit.coef_[2] == pytest.approx(0.0, abs=1e-9)
    assert fit.converged_


@pytest.mark.parametrize("kind", [AcceleGradClassifier, AcceleGradClassifierCV])
def test_one_class_only_is_refused(binary, kind):
    X, y = binary
    with pytest.raises(ValueError, match="only 1 class"):
        kind().fit(X, np.zeros_like(y))
    with pytest.raises(ValueError, match="only 1 class"):
        kind().fit(X, y, sample_weight=(y == 1).astype(float))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_refused_and_changes_nothing(binary, bad):
    X, y = binary
    spoilt = X.copy()
    spoilt[-1, 0] = bad
    classifier = AcceleGradClassifier(random_state=0).partial_fit(X, y, classes=[0, 1])
    before = classifier.coef_.copy()
    for call in (classifier.partial_fit, AcceleGradClassifier().fit):
        for given in (spoilt, sp.csr_array(spoilt)):
            with pytest.raises(ValueError, match=r"NaN|infinity"):
                call(given, y)
    np.testing.assert_array_equal(classifier.coef_, before)
    targets = y.astype(float)
    targets[0] = bad
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        AcceleGradRegressor().fit(X, targets)


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csr_matrix, sp.csc_array, sp.coo_array])
def test_sparse_rows_with_long_indices(binary, kind):
    X, y = binary
    X = np.where(np.abs(X) > 1, X, 0.0)
    dense = AcceleGradClassifier(alpha=1e-1, tol=1e-8).fit(X, y)
    given = kind(X)
    if hasattr(given, "indices"):
        given.indices, given.indptr = given.indices.astype("i8"), given.indptr.astype("i8")
    sparse = AcceleGradClassifier(alpha=1e-1, tol=1e-8).fit(given, y)
    np.testing.assert_allclose(sparse.coef_, dense.coef_, atol=2e-4)  # sqrt(2 gap / alpha)
    np.testing.assert_array_equal(sparse.predict(given), dense.predict(X))


def test_probabilities_only_where_the_loss_gives_them(flowers):
    X, y = flowers
    assert not hasattr(AcceleGradClassifier("hinge"), "predict_proba")
    with pytest.raises(AttributeError, match="predict_proba"):
        AcceleGradClassifier("hinge", alpha=1e-2).fit(X, y).predict_proba(X)
    huber = AcceleGradClassifier("modified_huber", alpha=1e-2).fit(X, y)
    probabilities = huber.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    far = huber.predict_proba(-100 * np.sign(huber.coef_.sum(axis=0, keepdims=True)))
    np.testing.assert_allclose(far.sum(), 1)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"loss": "logloss"}, "did you mean 'log_loss'"),
        ({"loss": "absolute"}, "'absolute' is one of AcceleGradRegressor's"),
        ({"loss": "absolute_error"}, "'absolute_error' is one of AcceleGradRegressor's"),
        ({"penalty": "l3"}, "penalty must be None or a name"),
        ({"alpha": -1.0}, "alpha must be a finite number >= 0"),
        ({"l1_ratio": 2.0}, "l1_ratio must be between 0 and 1"),
        ({"max_iter": 0}, "max_iter must be a whole number >= 1"),
        ({"tol": 0.0}, "tol must be a finite number > 0"),
        ({"batch_size": 0}, "batch_size must be a whole number >= 1"),
        ({"diameter": "wide"}, "diameter must be a positive number or 'auto'"),
        ({"average": "yes"}, "average must be True, False or 'auto'"),
        ({"multi_class": "ovo"}, "multi_class is 'ovo'"),
        ({"loss": "hinge", "multi_class": "multinomial"}, "needs loss='log_loss'"),
        ({"feasible_set": "positive"}, "feasible_set must be a set or a name"),
        ({"feasible_set": ag.Box(np.zeros(3), np.ones(3))}, "feasible_set must fit the 4"),
        ({"class_weight": {0: -1.0}}, "class_weight must be finite and >= 0"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(flowers, parameters, message):
    X, y = flowers
    with pytest.raises(ValueError, match=message):
        AcceleGradClassifier(**parameters).fit(X, y)


# ------------------------------------------------------------------------------- constraints


def test_sets_hold_for_each_class_and_leave_the_intercepts_free(flowers):
    X, y = flowers
    X = X + 3.0
    for multi_class in ("ovr", "multinomial"):
        fit = AcceleGradClassifier(
            feasible_set="nonnegative", multi_class=multi_class, tol=1e-2, alpha=1e-2
        ).fit(X, y)
        assert fit.coef_.min() == 0.0
        assert fit.intercept_.min() < 0.0
        assert fit.score(X, y) > 0.7
        simplex = AcceleGradClassifier(
            feasible_set="simplex", multi_class=multi_class, tol=1e-2
        ).fit(X, y)
        np.testing.assert_allclose(simplex.coef_.sum(axis=1), 1.0)


def test_a_penalty_and_a_box_go_together(binary):
    X, y = binary
    fit = AcceleGradClassifier(
        penalty="l1", alpha=2e-2, feasible_set=ag.Box(-0.1, np.inf), tol=1e-3
    ).fit(X, y)
    assert fit.converged_
    assert fit.coef_.min() >= -0.1
    assert (fit.coef_ == 0).any()


# ----------------------------------------------------------------------------------- company


def test_sparsify_and_densify(binary):
    X, y = binary
    fit = AcceleGradClassifier(penalty="l1", alpha=1e-2).fit(X, y)
    before, scores = fit.coef_.copy(), fit.decision_function(X)
    assert sp.issparse(fit.sparsify().coef_)
    np.testing.assert_allclose(fit.decision_function(X), scores)
    np.testing.assert_array_equal(fit.densify().coef_, before)
    regressor = AcceleGradRegressor().fit(X, y)
    shape = regressor.coef_.shape
    assert regressor.sparsify().densify().coef_.shape == shape


def test_large_read_only_data_in_processes():
    # joblib hands rows beyond a megabyte to its processes as read-only maps of a file.
    X, y = make_classification(6000, 30, n_informative=6, n_classes=3, random_state=0)
    options = {"multi_class": "ovr", "alpha": 1e-2, "tol": 1e-2, "average": True}
    one, two = (AcceleGradClassifier(**options, n_jobs=jobs).fit(X, y) for jobs in (1, 2))
    np.testing.assert_allclose(one.coef_, two.coef_, atol=1e-9)


def test_the_progress_bar(binary, capsys):
    X, y = binary
    AcceleGradClassifier(alpha=1e-1, verbose=1).fit(X, y)
    assert "it/s" in capsys.readouterr().err


@pytest.mark.parametrize("name", accelegrad.sklearn.__all__)
def test_docstrings_describe_every_parameter_with_its_default(name):
    kind = getattr(accelegrad.sklearn, name)
    described = re.findall(
        r"^    (\w+) : .*, default (.*)\n        [^ ]", kind.__doc__, re.MULTILINE
    )
    parameters = inspect.signature(kind).parameters.values()
    shown = [(each.name, str(each.default)) for each in parameters]
    assert [(name, default.strip('"')) for name, default in described] == shown
    assert not re.search(r"^ *\{\w+\}$", kind.__doc__ + kind.fit.__doc__, re.MULTILINE)


@pytest.mark.parametrize("name", ["sklearn.classifier", "sklearn.regressor", "sklearn.cv"])
def test_docstrings(name):
    result = doctest.testmod(importlib.import_module(f"accelegrad.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
