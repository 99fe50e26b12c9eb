"""The choice of alpha: scores that are NaN, groups, scorers that take no weights."""

import contextlib
import warnings

import numpy as np
import pytest
from objectives import mean_loss
from sklearn.datasets import load_diabetes, load_iris
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import make_scorer, max_error, mean_absolute_error
from sklearn.model_selection import GroupKFold, LeaveOneOut
from sklearn.utils.class_weight import compute_sample_weight

from accelegrad.sklearn import (
    AcceleGradClassifier,
    AcceleGradClassifierCV,
    AcceleGradRegressor,
    AcceleGradRegressorCV,
)
from accelegrad.sklearn.cv import best_alpha

ALPHAS = [1.0, 1e-1, 1e-2]
# Where three alphas are enough for a test, the best one is often at an end.
AT_AN_END = pytest.mark.filterwarnings("ignore:The best alpha:UserWarning")


@pytest.fixture(scope="module")
def rows():
    X, y = load_diabetes(return_X_y=True)
    return X[:60], y[:60]


def nan_for(alphas):
    """Return a score that is NaN for some alphas, and else prefers large ones."""

    def score(estimator, X, y):
        return np.nan if estimator.alpha in alphas else estimator.alpha

    return score


def test_an_alpha_without_a_score_is_not_chosen(rows):
    chosen = AcceleGradRegressorCV(alphas=ALPHAS, cv=3, scoring=nan_for([1.0, 1e-2]))
    with pytest.warns(UserWarning, match=r"NaN for alpha = 1, 0.01: not considered"):
        chosen.fit(*rows)
    assert chosen.alpha_ == 1e-1
    assert np.isnan(chosen.scores_[[0, 2]]).all()
    assert chosen.converged_
    # A single fold without a score is enough.
    scores = np.array([[3.0, np.nan], [1.0, 1.0], [0.0, 1.5]])
    with pytest.warns(UserWarning, match="NaN for alpha = 1:"):
        assert best_alpha(np.array(ALPHAS), scores) == 1e-1


@AT_AN_END
def test_groups_stay_together_and_no_alpha_with_a_score_is_an_error(rows):
    X, y = rows
    # Single rows have a loss, but no R^2.
    chosen = AcceleGradRegressorCV("quantile", alphas=ALPHAS, cv=LeaveOneOut()).fit(X[:8], y[:8])
    assert np.isfinite(chosen.scores_).all()
    alone = AcceleGradRegressorCV(alphas=ALPHAS, cv=LeaveOneOut(), scoring="r2")
    with (
        pytest.warns(UndefinedMetricWarning),
        pytest.raises(ValueError, match=r"scoring gives NaN .* for every alpha.*needs two rows"),
    ):
        alone.fit(X[:8], y[:8])
    with pytest.raises(ValueError, match="scoring gives NaN"):
        AcceleGradRegressorCV(alphas=ALPHAS, cv=3, scoring=nan_for(ALPHAS)).fit(X, y)
    groups = np.arange(60) % 4
    chosen = AcceleGradRegressorCV(alphas=ALPHAS, cv=GroupKFold(4), random_state=0)
    chosen.fit(X, y, groups=groups)
    splits = list(GroupKFold(4).split(X, y, groups))
    by_hand = AcceleGradRegressorCV(alphas=ALPHAS, cv=splits, random_state=0).fit(X, y)
    np.testing.assert_array_equal(chosen.scores_, by_hand.scores_)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        chosen.fit(X, y, groups=groups[:-1])
    with pytest.raises(TypeError, match="scoring must be one score"):
        AcceleGradRegressorCV(alphas=ALPHAS, scoring=["r2", "neg_max_error"]).fit(X, y)


def largest_error(estimator, X, y, weights=None):
    return -max_error(y, estimator.predict(X))


def mean_error(estimator, X, y, weights):
    return -mean_absolute_error(y, estimator.predict(X), sample_weight=weights)


@pytest.mark.parametrize(
    ("scoring", "plain"),
    [
        ("neg_max_error", largest_error),
        (make_scorer(max_error, greater_is_better=False), largest_error),
        (lambda estimator, X, y: largest_error(estimator, X, y), largest_error),
        ("neg_mean_absolute_error", mean_error),
        (make_scorer(mean_absolute_error, greater_is_better=False), mean_error),
        (None, lambda *given: -mean_loss(*given)),
    ],
)
def test_weights_go_to_the_scorers_that_take_them(rows, scoring, plain):
    X, y = rows
    weights = np.random.default_rng(0).uniform(0.1, 3.0, 60)
    split = [(np.arange(30), np.arange(30, 60))]
    chosen = AcceleGradRegressorCV(alphas=[1e-2], cv=split, scoring=scoring)
    chosen.fit(X, y, sample_weight=weights)
    alone = AcceleGradRegressor(alpha=1e-2).fit(X[:30], y[:30], sample_weight=weights[:30])
    expected = plain(alone, X[30:], y[30:], weights[30:])
    assert chosen.scores_[0, 0] == pytest.approx(expected, rel=1e-12)


REGRESSOR = (AcceleGradRegressorCV, AcceleGradRegressor)
CLASSIFIER = (AcceleGradClassifierCV, AcceleGradClassifier)
PATHS = [  # whether samples have weights, and what differs from the defaults
    (REGRESSOR, True, {"loss": "squared_error"}),
    (REGRESSOR, True, {"loss": "absolute_error"}),
    (REGRESSOR, False, {"loss": "huber", "penalty": "elasticnet"}),
    (REGRESSOR, True, {"loss": "quantile", "penalty": "elasticnet"}),
    (REGRESSOR, False, {"loss": "epsilon_insensitive"}),
    (REGRESSOR, True, {"loss": "squared_epsilon_insensitive", "penalty": "l1"}),
    (CLASSIFIER, False, {"loss": "log_loss"}),
    (CLASSIFIER, False, {"loss": "hinge", "class_weight": "balanced"}),
    (CLASSIFIER, True, {"loss": "squared_hinge", "class_weight": {"a": 3.0, "b": 1.0, "c": 0.5}}),
]


@AT_AN_END
@pytest.mark.parametrize(("kinds", "weighted", "options"), PATHS)
def test_a_path_has_the_fits_and_scores_of_single_ones(kinds, weighted, options):
    path, single = kinds
    if kinds is CLASSIFIER:
        X, y = load_iris(return_X_y=True)
        y = np.array(["c", "a", "b"])[y]
        train, test = np.arange(0, 150, 2), np.arange(1, 140, 2)
    else:
        X, y = load_diabetes(return_X_y=True)
        train, test = np.arange(0, 300), np.arange(300, 442)
    given = np.random.default_rng(0).uniform(0.5, 2.0, y.size) if weighted else None
    options = {"tol": 1e-6, **options}
    chosen = path(alphas=ALPHAS[::-1], cv=[(train, test)], **options)
    chosen.fit(X, y, sample_weight=given)
    np.testing.assert_array_equal(chosen.alphas_, ALPHAS)
    learnt, held = (np.ones(r.size) if given is None else given[r] for r in (train, test))
    if kinds is CLASSIFIER:
        held = held * compute_sample_weight(options.get("class_weight"), y[test])
    for place, alpha in enumerate(ALPHAS):
        alone = single(alpha=alpha, **options).fit(X[train], y[train], sample_weight=learnt)
        assert chosen.objectives_[place, 0] == pytest.approx(alone.objective_, rel=2e-6)
        expected = -mean_loss(alone, X[test], y[test], held)
        assert chosen.scores_[place, 0] == pytest.approx(expected, rel=2e-3)
    whole = single(alpha=chosen.alpha_, **options).fit(X, y, sample_weight=given)
    np.testing.assert_array_equal(chosen.coef_, whole.coef_)
    assert np.all(chosen.gaps_ <= 1e-6 * chosen.objectives_)
    assert not hasattr(chosen, "partial_fit")


@AT_AN_END
@pytest.mark.parametrize(
    ("multi_class", "class_weight"), [("ovr", "balanced"), ("multinomial", None)]
)
def test_a_class_that_is_in_one_fold_only(multi_class, class_weight):
    X, y = load_iris(return_X_y=True)
    some = y < 2
    first = np.flatnonzero(some)[::2], np.flatnonzero(some)[1::2]  # nor has this one the third
    second = first[1], np.r_[first[0], np.flatnonzero(~some)]
    options = {"multi_class": multi_class, "class_weight": class_weight}
    chosen = AcceleGradClassifierCV(alphas=ALPHAS, cv=[first, second], **options).fit(X, y)
    assert np.isfinite(chosen.scores_).all()
    splits = [first, (second[0], first[0])]  # whose rows the fits know
    known = AcceleGradClassifierCV(alphas=ALPHAS, cv=splits, **options).fit(X, y)
    np.testing.assert_allclose(chosen.scores_, known.scores_, rtol=1e-12)


def test_processes_find_what_one_finds():
    X, y = load_iris(return_X_y=True)
    one, two = (
        AcceleGradClassifierCV(alphas=[1.0, 1e-3, 1e-6], cv=3, n_jobs=jobs).fit(X, y)
        for jobs in (1, 2)
    )
    np.testing.assert_allclose(one.scores_, two.scores_, rtol=1e-9)
    np.testing.assert_allclose(one.coef_, two.coef_, rtol=1e-6, atol=1e-9)
    assert one.alpha_ == two.alpha_


@pytest.mark.parametrize(
    ("alphas", "scores", "words"),
    [
        (ALPHAS, [3.0, 2.0, 1.0], "alpha, 1, is the largest of the 3 .* values, 10 and beyond"),
        (ALPHAS, [1.0, 2.0, 3.0], r"0\.01, is the smallest .* values, 0\.001 and beyond, or 0"),
        (ALPHAS, [1.0, 2.0, 1.5], ""),
        (ALPHAS, [2.0, 2.0, 1.5], ""),  # scores do not rise towards the end
        (ALPHAS, [2.0, 2.0, 2.0], ""),
        ([1.0, 0.0], [1.0, 2.0], ""),  # nothing is smaller
        ([1.0], [1.0], ""),  # no choice
    ],
)
def test_a_best_alpha_at_an_end_of_the_grid_is_told(alphas, scores, words):
    told = pytest.warns(UserWarning, match=words) if words else contextlib.nullcontext()
    with told:  # other warnings are errors here
        best_alpha(np.array(alphas), np.array(scores)[:, None])


def test_a_path_warns_once_and_a_number_of_alphas_is_a_grid(rows):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        path = AcceleGradRegressorCV("huber", alphas=2, cv=2, max_iter=2, tol=1e-9).fit(*rows)
    np.testing.assert_allclose(path.alphas_, [10.0, 1e-5])
    told = [str(warning.message) for warning in caught]
    assert told[0].startswith("4 of the 4 fits along the path missed tol=1e-09")
    assert [words[:14] for words in told[1:]].count("The best alpha") == 1
    assert "missed tol=1e-09 after 2 iterations" in told[2]  # the fit to all rows
    assert {warning.filename for warning in caught[:1]} == {__file__}
