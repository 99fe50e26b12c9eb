"""`partial_fit`: the rule's steps, small chunks, rows that are far off, parameters that change."""

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.preprocessing import StandardScaler

import accelegrad as ag
from accelegrad.sklearn import AcceleGradClassifier, AcceleGradRegressor
from accelegrad.sklearn.model_file import load_model, save_model
from accelegrad.sklearn.objective import Objective
from accelegrad.sklearn.online import FIRST_CHUNK, ChunkOracle


def numbers(rows=400, width=5, noise=0.3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, width))
    return X, X @ rng.standard_normal(width) + 3.0 + noise * rng.standard_normal(rows)


def fed(estimator, X, y, chunk, **options):
    for first in range(0, len(y), chunk):
        estimator.partial_fit(X[first : first + chunk], y[first : first + chunk], **options)
    return estimator


@pytest.fixture(scope="module")
def many_flowers(flowers):
    """Three classes, in a random order, three times."""
    X, y = flowers
    order = np.random.default_rng(0).permutation(np.tile(np.arange(y.size), 3))
    return X[order], y[order]


@pytest.mark.parametrize("loss", ["log_loss", "hinge", "modified_huber"])
def test_a_stream_learns_what_fit_learns(binary, many_flowers, loss):
    X, y = binary
    classifier = fed(AcceleGradClassifier(loss, random_state=0), X, y, 100, classes=[0, 1])
    assert classifier.score(X, y) > 0.95
    assert classifier.gap_ == np.inf
    assert not classifier.converged_
    for kind in ("ovr", "auto"):
        classifier = AcceleGradClassifier(loss, multi_class=kind, random_state=0)
        assert fed(classifier, *many_flowers, 30, classes=[0, 1, 2]).score(*many_flowers) > 0.88


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


def test_weights_count_across_chunks_and_the_share_of_one_is_of_its_loss_alone():
    X, y = numbers()

    def coefficients(weights):
        regressor = AcceleGradRegressor(random_state=0, batch_size=10, alpha=1e-2)
        for rows in np.split(np.arange(400), 4):
            regressor.partial_fit(X[rows], y[rows], sample_weight=weights[rows])
        return regressor.coef_

    ones = coefficients(np.ones(400))
    np.testing.assert_allclose(ones, coefficients(np.full(400, 7.0)), rtol=1e-9)
    # In batches and chunks of their own all weigh the same.
    assert np.linalg.norm(coefficients(np.repeat([1.0, 3.0], 200)) - ones) > 1e-3
    problem = Objective("squared", 0.5, 0.0, None, True).on(X, y, None)
    point = np.random.default_rng(1).standard_normal(6)
    found = ChunkOracle(problem, [np.arange(y.size)], 0.25)(point)
    residual = X @ point[:-1] + point[-1] - y
    value = 0.25 * (residual**2).mean() / 2 + 0.25 * point[:-1] @ point[:-1]
    gradient = 0.25 * np.append(X.T @ residual, residual.sum()) / y.size
    gradient[:-1] += 0.5 * point[:-1]
    assert found.value == pytest.approx(value)
    np.testing.assert_allclose(found.gradient, gradient)


def test_last_points_keep_the_zeros_of_the_l1_norm():
    last = AcceleGradRegressor(penalty="l1", alpha=1.0, average=False, random_state=0)
    assert (fed(last, *numbers(), 100).coef_ == 0).any()


def test_classes_are_those_of_the_first_call(many_flowers):
    X, y = many_flowers
    classifier, known = AcceleGradClassifier(), y < 2
    with pytest.raises(ValueError, match="classes must be given at the first call"):
        classifier.partial_fit(X, y)
    classifier.partial_fit(X[known], y[known], classes=[0, 1])
    with pytest.raises(ValueError, match=r"y holds the classes \[2\], which are not among \[0 1\]"):
        classifier.partial_fit(X, y)
    with pytest.raises(ValueError, match="not the same as at the first call"):
        classifier.partial_fit(X[known], y[known], classes=[0, 1, 2])
    with pytest.raises(ValueError, match="'balanced' is not supported for partial_fit"):
        AcceleGradClassifier(class_weight="balanced").partial_fit(X, y, classes=[0, 1, 2])


def test_single_rows_are_classified_as_well_as_by_sgd():
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(y.size)[:600]
    X, y = StandardScaler().fit_transform(X)[order], y[order]
    classes = np.unique(y)
    ours = fed(AcceleGradClassifier(random_state=0), X, y, 1, classes=classes)
    theirs = fed(SGDClassifier("log_loss", random_state=0), X, y, 1, classes=classes)
    assert ours.score(X, y) > theirs.score(X, y) - 0.03


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("sizes", [[FIRST_CHUNK - 1, 1], [1, 119, 70, 110]])
def test_the_first_rows_count_as_one_chunk_however_they_come(form, sizes):
    X, y = numbers()
    first, then = slice(0, FIRST_CHUNK), slice(FIRST_CHUNK, None)
    at_once = AcceleGradRegressor(random_state=0).partial_fit(form(X[first]), y[first])
    pieces = AcceleGradRegressor(random_state=0)
    for rows in np.split(np.arange(FIRST_CHUNK), np.cumsum(sizes)[:-1]):
        pieces.partial_fit(form(X[rows]), y[rows])
    for _ in range(2):
        np.testing.assert_array_equal(pieces.coef_, at_once.coef_)
        assert pieces.n_iter_ == at_once.n_iter_
        pieces.partial_fit(form(X[then]), y[then])
        at_once.partial_fit(form(X[then]), y[then])
    assert pieces.n_samples_seen_ == at_once.n_samples_seen_


@pytest.mark.parametrize("diameter", ["auto", 10.0])
def test_rows_wait_until_they_fill_a_batch(diameter):
    X, y = numbers()
    options = {"random_state": 0, "batch_size": 20, "diameter": diameter}
    whole, parts = AcceleGradRegressor(**options), AcceleGradRegressor(**options)
    for estimator in (whole, parts):
        estimator.partial_fit(X[:FIRST_CHUNK], y[:FIRST_CHUNK])
    steps, before = whole.n_iter_, parts.coef_.copy()
    for first in range(FIRST_CHUNK, 400, 20):
        whole.partial_fit(X[first : first + 20], y[first : first + 20])
        fed(parts, X[first : first + 20], y[first : first + 20], 7)
        np.testing.assert_array_equal(parts.coef_, whole.coef_)
        assert np.any(parts.coef_ != before)
    assert parts.n_iter_ == whole.n_iter_ == steps + 5
    # A row that waits is not without effect.
    parts.partial_fit(X[:1], y[:1])
    assert parts.n_iter_ == steps + 6
    assert np.any(parts.coef_ != whole.coef_)


def test_held_rows_are_the_streams_own():
    X, y = numbers()
    buffer, targets = np.empty((10, 5)), np.empty(10)
    reused, plain = AcceleGradRegressor(random_state=0), AcceleGradRegressor(random_state=0)
    for first in range(0, 400, 10):
        buffer[:], targets[:] = X[first : first + 10], y[first : first + 10]
        reused.partial_fit(buffer, targets)
        plain.partial_fit(X[first : first + 10], y[first : first + 10])
    np.testing.assert_array_equal(reused.coef_, plain.coef_)


@pytest.mark.parametrize("rows", [30, 330])
def test_a_stream_goes_on_after_pickling(rows):
    X, y = numbers()
    # Sets are compared by identity: a copy must not look like a changed parameter.
    estimator = AcceleGradRegressor(feasible_set=ag.Box(-1.0, 1.0), random_state=0)
    one = fed(estimator, X[:rows], y[:rows], 10)
    two = pickle.loads(pickle.dumps(one))
    for estimator in (one, two):
        fed(estimator, X[rows:], y[rows:], 10)
    np.testing.assert_array_equal(one.coef_, two.coef_)


@pytest.mark.parametrize(
    ("loss", "factor"), [("squared_error", 1.0), ("absolute_error", 100.0), ("huber", 100.0)]
)
def test_one_row_that_is_far_off_does_not_undo_a_fit(loss, factor):
    X, y = numbers()
    fit = AcceleGradRegressor(loss, random_state=0).fit(X, y)
    before = fit.score(X, y)
    fit.partial_fit(factor * X[:1], y[:1] + 1000.0)
    assert fit.score(X, y) > before - 0.01
    assert fit.n_samples_seen_ == 401


@pytest.mark.parametrize(
    "options",
    [
        {"diameter": 10.0},
        {"feasible_set": "nonnegative"},
        {"feasible_set": "simplex"},
        {"penalty": "l1", "alpha": 0.05},
        {"penalty": "elasticnet", "feasible_set": ag.Box(-1.0, 1.0)},
    ],
)
def test_every_rule_goes_on_from_a_fit(options):
    X, y = numbers()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a diameter may be too small for a proof
        fit = AcceleGradRegressor(**options, random_state=0).fit(X, y)
    coefficients = fit.coef_.copy()
    fed(fit, X, y, 20)
    size = np.linalg.norm(coefficients)
    assert np.linalg.norm(fit.coef_ - coefficients) < 0.2 * size


def test_the_weights_of_a_fit_count_in_the_stream_after_it(tmp_path):
    X, y = numbers()

    def moved(weight):
        fit = AcceleGradRegressor(random_state=0).fit(X, y, sample_weight=np.full(400, weight))
        save_model(fit, tmp_path / "model.agm")
        loaded, before = load_model(tmp_path / "model.agm"), fit.coef_.copy()
        assert (loaded.n_samples_seen_, loaded.weight_seen_) == (400, 400 * weight)
        for estimator in (fit, loaded):
            estimator.partial_fit(X[:1], y[:1] + 10.0)
        np.testing.assert_array_equal(fit.coef_, loaded.coef_)
        return np.linalg.norm(fit.coef_ - before)

    assert 0.0 < moved(100.0) < 0.1 * moved(1.0)


CLASSIFIER = {
    "loss": ["hinge", "modified_huber"],
    "penalty": ["l1", "elasticnet", None],
    "alpha": [0.0, 1.0],
    "l1_ratio": [0.9],
    "fit_intercept": [False],
    "feasible_set": ["nonnegative", "simplex", ag.Box(-1.0, 1.0), ag.L1Ball(1.0)],
    "class_weight": [{0: 2.0}],
    "multi_class": ["ovr"],
    "max_iter": [5],
    "tol": [None],
    "batch_size": [3, 1000],
    "diameter": [2.0],
    "average": [False],
    "validation_fraction": [0.5],
    "n_iter_no_change": [1],
    "warm_start": [True],
    "n_jobs": [1],
    "random_state": [7, None],
    "verbose": [1],
}
REGRESSOR = {
    "loss": ["absolute_error", "quantile"],
    "quantile": [0.9],
    "non_crossing": [True],
    "epsilon": [1.0],
    "delta": [0.1],
    "target_scale": [2.0],
    **{
        name: values
        for name, values in CLASSIFIER.items()
        if name not in ("loss", "class_weight", "multi_class", "n_jobs")
    },
}
CHANGES = [
    (kind, name, value)
    for kind, table in ((AcceleGradClassifier, CLASSIFIER), (AcceleGradRegressor, REGRESSOR))
    for name, values in table.items()
    for value in values
]


def test_every_parameter_is_tried():
    for kind, table in ((AcceleGradClassifier, CLASSIFIER), (AcceleGradRegressor, REGRESSOR)):
        assert set(kind().get_params()) - {"early_stopping"} == set(table)


@pytest.mark.parametrize(("kind", "name", "value"), CHANGES)
@pytest.mark.parametrize("held", [True, False])
def test_a_parameter_may_change_in_a_stream_and_back(many_flowers, kind, name, value, held):
    X, y = many_flowers
    chunk = 20 if held else FIRST_CHUNK
    estimator = kind(random_state=0)
    told = {"classes": [0, 1, 2]} if kind is AcceleGradClassifier else {}
    estimator.partial_fit(X[:chunk], y[:chunk], **told)
    usual = estimator.get_params()[name]
    for given in (value, usual):
        estimator.set_params(**{name: given})
        estimator.partial_fit(X[chunk : chunk + 10], y[chunk : chunk + 10])
        assert np.isfinite(estimator.coef_).all()
        assert np.isfinite(estimator.intercept_).all()
        rows = np.atleast_2d(estimator.coef_)
        if given == "nonnegative":
            assert rows.min() >= 0.0
        if given == "simplex":
            np.testing.assert_allclose(rows.sum(axis=1), 1.0)
        if given is False and name == "fit_intercept":
            assert not np.any(estimator.intercept_)
    assert estimator.n_samples_seen_ == chunk + 20


def test_a_changed_parameter_keeps_what_was_learnt():
    X, y = numbers()
    regressor = fed(AcceleGradRegressor(random_state=0), X, y, 10)
    before = regressor.score(X, y)
    assert before > AcceleGradRegressor().fit(X, y).score(X, y) - 0.02
    for alpha in np.geomspace(1e-4, 1e-3, 5):
        regressor.set_params(alpha=alpha).partial_fit(X[:1], y[:1] + 100.0)
        assert regressor.score(X, y) > before - 0.05


def test_a_chunk_without_weight_is_no_row(many_flowers):
    X, y = numbers()
    plain, others = AcceleGradRegressor(random_state=0), AcceleGradRegressor(random_state=0)
    none = np.zeros(20)
    others.partial_fit(X[:20], y[:20], sample_weight=none)
    assert not hasattr(others, "coef_")
    for first in range(100, 400, 100):
        rows = slice(first, first + 100)
        plain.partial_fit(X[rows], y[rows])
        others.partial_fit(X[rows], y[rows])
        others.partial_fit(X[:20], y[:20], sample_weight=none)
    np.testing.assert_array_equal(others.coef_, plain.coef_)
    assert others.n_samples_seen_ == plain.n_samples_seen_ == 300
    X, y = many_flowers
    classifier = AcceleGradClassifier(class_weight={0: 0.0}, random_state=0)
    classifier.partial_fit(X[y > 0], y[y > 0], classes=[0, 1, 2])
    before = classifier.coef_.copy()
    classifier.partial_fit(X[y == 0], y[y == 0])
    np.testing.assert_array_equal(classifier.coef_, before)
    # The classes of a first call without weight are remembered.
    first = AcceleGradClassifier(random_state=0)
    first.partial_fit(X, y, classes=[0, 1, 2], sample_weight=np.zeros(y.size))
    first.partial_fit(X, y)
    assert first.coef_.shape == (3, 4)
