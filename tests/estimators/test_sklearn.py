"""The estimators' own behaviour: what is certified, weights, edge cases, constraints, company."""

import inspect
import re
from functools import partial

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_diabetes, make_classification
from sklearn.exceptions import ConvergenceWarning

import accelegrad as ag
import accelegrad.sklearn
from accelegrad.sklearn import (
    AcceleGradClassifier,
    AcceleGradClassifierCV,
    AcceleGradRegressor,
    AcceleGradRegressorCV,
)
from accelegrad.sklearn.objective import Objective

PENALTIES = ("l1", "l2", "elasticnet")


def test_the_tolerance_is_relative_whatever_the_units(numbers):
    X, y = numbers
    usual, tiny, shifted = (
        AcceleGradRegressor(alpha=1e-2, tol=1e-4).fit(X, given) for given in (y, 1e-6 * y, y + 1e6)
    )
    assert all(fit.gap_ <= 1e-4 * fit.objective_ for fit in (usual, tiny, shifted))
    np.testing.assert_allclose(tiny.coef_, 1e-6 * usual.coef_, rtol=0.05, atol=1e-6)
    np.testing.assert_allclose(shifted.coef_, usual.coef_, rtol=0.05, atol=1.0)


def test_a_miss_is_told_with_the_gap_and_a_remedy(binary):
    X, y = binary
    with pytest.warns(ConvergenceWarning, match=r"certified to be within .* Increase max_iter"):
        short = AcceleGradClassifier(max_iter=3, tol=1e-8).fit(X, y)
    assert not short.converged_
    assert short.n_iter_ == 3
    better = AcceleGradClassifier(tol=1e-6).fit(X, y)
    assert short.objective_ - short.gap_ <= better.objective_
    with pytest.warns(ConvergenceWarning):  # interior points were too few: another method went on
        kinked = AcceleGradClassifier("hinge", max_iter=3).fit(X, y)
    assert kinked.method_ != "interior-point"
    for diameter in (1e-5, 1e-2):  # too small
        with pytest.warns(ConvergenceWarning):
            near = AcceleGradClassifier("hinge", diameter=diameter, max_iter=300).fit(X, y)
        assert not near.converged_
    assert AcceleGradClassifier(max_iter=7, tol=None).fit(X, y).n_iter_ == 7  # and no warning


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


@pytest.mark.parametrize(
    "options",
    [{"alpha": 0.1, "penalty": p, "average": a} for p in PENALTIES for a in (True, False, "auto")]
    + [{"alpha": 1e-2, "average": True, "batch_size": size} for size in (32, 1000)],
)
def test_each_point_meets_the_tolerance(binary, options):
    """The value of an average is not known to the run itself, which went on to max_iter."""
    fit = AcceleGradClassifier(tol=1e-2, max_iter=20_000, **options).fit(*binary)
    assert fit.converged_
    assert fit.gap_ <= 1e-2 * fit.objective_
    assert fit.n_iter_ < (20_000 if "batch_size" in options else 5000)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ("logistic", -(0.2 * np.log(0.2) + 0.8 * np.log(0.8))),
        ("hinge", 0.4),
        ("squared_hinge", 0.64),
        ("modified_huber", 0.64),
    ],
)
def test_what_the_best_constant_gets(loss, expected):
    """The floor of the relative tolerance is a thousandth of it."""
    y = np.where(np.arange(100) % 5 == 0, 1.0, -1.0)
    problem = Objective(loss, 0.0, 0.0, None, True).on(np.ones((100, 1)), y, None)
    null_value = 1e3 * problem.floor
    assert null_value == pytest.approx(expected, rel=1e-12)
    values = [problem.value(np.array([0.0, b])) for b in np.linspace(-3.0, 3.0, 601)]
    assert null_value <= min(values) + 1e-12
    assert null_value >= min(values) - 1e-4


def test_minibatches_of_several_classes_are_proved_by_the_dual(flowers):
    X, y = flowers
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


def test_an_objective_of_zero_is_the_minimum_whatever_the_diameter():
    # Losses are nonnegative, so zero is a bound that holds everywhere; the diameter's does not.
    fit = AcceleGradClassifier(
        "squared_hinge",
        penalty="l1",
        alpha=0.0,
        diameter=1e-3,
        feasible_set=ag.Box(-9.0, np.inf),
        fit_intercept=False,
    ).fit([[1.0], [-1.0]], [1, 0])
    assert (fit.objective_, fit.gap_, fit.certified_radius_) == (0.0, 0.0, np.inf)
    assert fit.converged_


def test_zero_weights_leave_rows_and_their_class_out(flowers):
    X, y = flowers
    weights = (y != 2).astype(float)
    weighted = AcceleGradClassifier(random_state=0).fit(X, y, sample_weight=weights)
    removed = AcceleGradClassifier(random_state=0).fit(X[y != 2], y[y != 2])
    np.testing.assert_array_equal(weighted.classes_, [0, 1])
    np.testing.assert_allclose(weighted.coef_, removed.coef_, rtol=1e-8)


def test_weights_may_be_numbers_or_objects_and_those_of_classes_are_factors(binary):
    X, y = binary
    objects = np.full(y.size, 2, dtype=object)
    fits = [AcceleGradClassifier().fit(X, y, weights).coef_ for weights in (None, 2.0, objects)]
    np.testing.assert_allclose(fits[1:], [fits[0]] * 2, rtol=1e-9)
    with pytest.raises(
        ValueError, match=r"sample_weight must be >= 0, but sample_weight\[0\] is -1"
    ):
        AcceleGradClassifier().fit(X, y, -1.0)
    by_hand = dict(enumerate(y.size / (2 * np.bincount(y))))
    each = np.where(y == 1, by_hand[1], by_hand[0])
    balanced, given, sampled = (
        AcceleGradClassifier(alpha=1e-2, class_weight=factors).fit(X, y, sample_weight=weights)
        for factors, weights in (("balanced", None), (by_hand, None), (None, each))
    )
    np.testing.assert_allclose(balanced.coef_, given.coef_, rtol=1e-9)
    np.testing.assert_allclose(sampled.coef_, given.coef_, rtol=1e-9)


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


X, Y = (array[:90] for array in load_diabetes(return_X_y=True))
LABELS = np.greater(Y, np.median(Y)).astype(int)


def with_gap(values, gap):
    given = np.array(values, dtype=object)
    given[3] = gap
    return given


@pytest.mark.parametrize("gap", [None, float("nan"), pd.NA])
@pytest.mark.parametrize("form", [np.asarray, list, pd.Series])
@pytest.mark.parametrize("targets", [Y, LABELS, np.array(["no", "yes"])[LABELS]])
def test_a_target_that_is_missing_is_named(targets, form, gap):
    given = form(with_gap(targets, gap))
    words = r"y must have no missing values, but y\[3\] is"
    if form is list and np.asarray(given).dtype != object:  # NumPy makes numbers of them
        words = r"y\[3\] is nan|y contains NaN"
    kinds, more = (AcceleGradRegressor, AcceleGradRegressorCV), {}
    if targets is not Y:
        kinds, more = (AcceleGradClassifier, AcceleGradClassifierCV), {"classes": [0, 1]}
    for call in (kinds[0]().fit, kinds[1]().fit, partial(kinds[0]().partial_fit, **more)):
        with pytest.raises(ValueError, match=words):
            call(X, given)
    if targets is Y and gap is None:
        with pytest.raises(ValueError, match=r"y\[3, 1\] is None"):
            AcceleGradRegressor().fit(X, np.column_stack([with_gap(Y, 0.0), with_gap(Y, None)]))


@pytest.mark.parametrize(("penalty", "given"), [("l1", "simplex"), ("elasticnet", ag.L1Ball(1.0))])
def test_a_penalty_and_a_set_that_do_not_go_together_are_named(penalty, given):
    options = {"penalty": penalty, "feasible_set": given}
    words = re.escape(f"penalty='{penalty}' and feasible_set={given!r} cannot be used together")
    for call, targets in (
        (AcceleGradRegressor(**options).partial_fit, Y),
        (AcceleGradRegressorCV(**options).fit, Y),
        (AcceleGradClassifier(**options).fit, np.arange(90) % 3),
    ):
        with pytest.raises(ValueError, match=words + ".* 'nonnegative' or an accelegrad.Box"):
            call(X, targets)
    zero = {"alpha": 0.0} if penalty == "l1" else {"l1_ratio": 0.0}
    AcceleGradRegressor(**options, **zero).fit(X, Y)  # an l1 term that is zero


@pytest.mark.parametrize("kind", [AcceleGradClassifier, AcceleGradClassifierCV])
def test_numbers_and_one_class_alone_are_no_classes(binary, kind):
    words = rf"such as 151\.5, but {kind.__name__} is for classes; .*Regressor is for numbers"
    with pytest.raises(ValueError, match=words):
        kind().fit(X, Y + 0.5)
    rows, y = binary
    with pytest.raises(ValueError, match="only 1 class"):
        kind().fit(rows, np.zeros_like(y))
    with pytest.raises(ValueError, match="only 1 class"):
        kind().fit(rows, y, sample_weight=(y == 1).astype(float))


SHORT = {"batch_size": 5, "max_iter": 20, "tol": None}
FITS = {
    "minibatches": lambda: AcceleGradClassifier(**SHORT).fit(X, LABELS),
    "rows of a stream": lambda: AcceleGradClassifier().partial_fit(X, LABELS, classes=[0, 1]),
    "chunks": lambda: AcceleGradRegressor().fit([(X[:20], Y[:20]), (X[20:], Y[20:])]),
    "a path": lambda: AcceleGradClassifierCV(alphas=[1.0, 0.1, 0.0], cv=2, **SHORT).fit(X, LABELS),
}


@pytest.mark.parametrize("name", FITS)
def test_the_same_call_gives_the_same_model(name):
    once, again = FITS[name](), FITS[name]()
    np.testing.assert_array_equal(once.coef_, again.coef_)
    np.testing.assert_array_equal(once.intercept_, again.intercept_)


def test_another_seed_gives_another_model():
    usual, other = (AcceleGradRegressor(**SHORT, random_state=seed).fit(X, Y) for seed in (None, 1))
    assert not np.array_equal(usual.coef_, other.coef_)


@pytest.mark.parametrize("kind", [np.array, sp.csr_array])
def test_what_is_not_finite_changes_nothing(binary, kind):
    X, y = binary
    classifier = AcceleGradClassifier(random_state=0).partial_fit(X, y, classes=[0, 1])
    before, spoilt = classifier.coef_.copy(), X.copy()
    spoilt[-1, 0] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        classifier.partial_fit(kind(spoilt), y)
    np.testing.assert_array_equal(classifier.coef_, before)


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
    logistic = AcceleGradClassifier(alpha=1e-2, multi_class="ovr").fit(X, y)
    positive = 1 / (1 + np.exp(-logistic.decision_function(X)))
    expected = positive / positive.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(logistic.predict_proba(X), expected)
    assert not hasattr(AcceleGradClassifier("hinge"), "predict_proba")
    with pytest.raises(AttributeError, match="predict_proba"):
        AcceleGradClassifier("hinge", alpha=1e-2).fit(X, y).predict_proba(X)
    huber = AcceleGradClassifier("modified_huber", alpha=1e-2).fit(X, y)
    probabilities = huber.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    two = AcceleGradClassifier("modified_huber", alpha=1e-2).fit(X, y > 0)
    expected = (np.clip(two.decision_function(X), -1, 1) + 1) / 2
    np.testing.assert_allclose(two.predict_proba(X)[:, 1], expected)
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


def mostly_empty(n=200, d=4000, entries=2000):
    """Return sparse rows most of whose columns have no entries, targets, and the other columns."""
    rng = np.random.default_rng(0)
    places = rng.integers(n, size=entries), rng.integers(d, size=entries)
    X = sp.csr_array((rng.standard_normal(entries), places), shape=(n, d))
    return X, rng.integers(2, size=n), np.flatnonzero(abs(X).sum(axis=0))


@pytest.mark.parametrize(
    ("estimator", "sizes", "rtol"),
    [
        (AcceleGradClassifier(), (300, 10**6, 3000), 1e-12),
        (AcceleGradClassifier("hinge"), (300, 10**6, 3000), 1e-12),
        (AcceleGradRegressor(penalty="l1", alpha=1e-2), (), 1e-9),
        (AcceleGradRegressor(penalty=None), (), 1e-9),
        (AcceleGradClassifierCV(alphas=[1.0, 1e-1, 1e-2], cv=2), (), 1e-6),
    ],
)
def test_empty_columns_cost_nothing_and_change_nothing(estimator, sizes, rtol):
    X, y, used = mostly_empty(*sizes)
    fitted, narrow = (clone(estimator).fit(rows, y) for rows in (X, X[:, used]))
    wide, few = np.atleast_2d(fitted.coef_), np.atleast_2d(narrow.coef_)
    assert not np.delete(wide, used, axis=1).any()
    np.testing.assert_allclose(wide[:, used], few, rtol=rtol, atol=min(rtol, 1e-9))
    assert fitted.objective_ == pytest.approx(narrow.objective_, rel=min(rtol, 1e-9), abs=1e-12)
    assert fitted.converged_
    assert fitted.n_iter_ < 300
    assert fitted.n_features_in_ == X.shape[1]


def test_empty_columns_and_warm_starts_or_misses():
    X, y, _ = mostly_empty()
    three = y + np.arange(200) % 2
    fitted = AcceleGradClassifier(warm_start=True).fit(X, three)
    first = fitted.n_iter_
    assert fitted.sparsify().fit(X, three).n_iter_ < first
    assert fitted.coef_.shape == (3, 4000)
    short = AcceleGradClassifier("hinge", max_iter=1, tol=1e-9)
    for warm in (False, True):
        with pytest.raises(ConvergenceWarning):  # the coefficients are there before the warning
            short.set_params(warm_start=warm).fit(X, y)
        assert short.coef_.shape == (1, 4000)
        assert short.predict(X).shape == (200,)


def test_sets_hold_for_each_class_and_leave_the_intercepts_free(flowers):
    X, y = flowers
    box = ag.Box([-np.inf, 0.0, 0.0, 0.0], np.inf)
    for multi_class in ("ovr", "multinomial"):
        options = {"multi_class": multi_class, "tol": 1e-2, "alpha": 1e-2}
        fit = AcceleGradClassifier(feasible_set=box, **options).fit(X + 3.0, y)
        assert fit.coef_[:, 1:].min() == 0.0
        assert fit.coef_[:, 0].min() < 0.0
        assert fit.intercept_.min() < 0.0
        assert fit.score(X + 3.0, y) > 0.7
        simplex = AcceleGradClassifier(feasible_set="simplex", **options).fit(X + 3.0, y)
        np.testing.assert_allclose(simplex.coef_.sum(axis=1), 1.0)


def test_sparsify_and_densify(binary):
    X, y = binary
    kinds = (AcceleGradClassifier, AcceleGradRegressor)
    classifier, regressor = (kind(penalty="l1", alpha=1e-2) for kind in kinds)
    for fit, given in ((classifier, y), (regressor, y), (regressor, np.column_stack([y, -y]))):
        fit.fit(X, given)
        before, predicted = fit.coef_.copy(), fit.predict(X)
        assert sp.issparse(fit.sparsify().coef_)
        np.testing.assert_allclose(fit.predict(X), predicted)
        np.testing.assert_array_equal(fit.densify().coef_, before)


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
    described = re.findall(r"^    (\w+) : .*, default (.*)\n        [^ ]", kind.__doc__, re.M)
    parameters = inspect.signature(kind).parameters.values()
    shown = [(each.name, str(each.default)) for each in parameters]
    assert [(name, default.strip('"')) for name, default in described] == shown
    assert not re.search(r"^ *\{\w+\}$", kind.__doc__ + kind.fit.__doc__, re.MULTILINE)
