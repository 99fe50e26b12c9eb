"""The choice of alpha: scores that are NaN, groups, scorers that take no weights."""

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_iris
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import make_scorer, max_error, mean_absolute_error
from sklearn.model_selection import GroupKFold, LeaveOneOut

from accelegrad.sklearn import (
    AcceleGradClassifier,
    AcceleGradClassifierCV,
    AcceleGradRegressor,
    AcceleGradRegressorCV,
)
from accelegrad.sklearn.cv import best_alpha

ALPHAS = [1.0, 1e-1, 1e-2]


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


def test_a_single_fold_without_a_score_is_enough():
    scores = np.array([[3.0, np.nan], [1.0, 1.0], [0.0, 1.5]])
    with pytest.warns(UserWarning, match="NaN for alpha = 1:"):
        assert best_alpha(np.array(ALPHAS), scores) == 1e-1


def test_no_alpha_with_a_score_is_an_error(rows):
    X, y = rows
    with (
        pytest.warns(UndefinedMetricWarning),
        pytest.raises(ValueError, match=r"scoring gives NaN .* for every alpha.*needs two rows"),
    ):
        AcceleGradRegressorCV(alphas=ALPHAS, cv=LeaveOneOut()).fit(X[:8], y[:8])
    with pytest.raises(ValueError, match="scoring gives NaN"):
        AcceleGradRegressorCV(alphas=ALPHAS, cv=3, scoring=nan_for(ALPHAS)).fit(X, y)


def test_a_score_that_single_rows_have_allows_leave_one_out(rows):
    X, y = rows
    chosen = AcceleGradRegressorCV(
        alphas=ALPHAS, cv=LeaveOneOut(), scoring="neg_mean_squared_error"
    ).fit(X[:8], y[:8])
    assert chosen.scores_.shape == (3, 8)


def test_groups_stay_together(rows):
    X, y = rows
    groups = np.arange(60) % 4
    chosen = AcceleGradRegressorCV(alphas=ALPHAS, cv=GroupKFold(4), random_state=0)
    chosen.fit(X, y, groups=groups)
    splits = list(GroupKFold(4).split(X, y, groups))
    by_hand = AcceleGradRegressorCV(alphas=ALPHAS, cv=splits, random_state=0).fit(X, y)
    np.testing.assert_array_equal(chosen.scores_, by_hand.scores_)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        chosen.fit(X, y, groups=groups[:-1])


@pytest.mark.parametrize(
    ("scoring", "weighted"),
    [
        ("max_error", False),
        (make_scorer(max_error, greater_is_better=False), False),
        (lambda estimator, X, y: -max_error(y, estimator.predict(X)), False),
        ("neg_mean_absolute_error", True),
        (make_scorer(mean_absolute_error, greater_is_better=False), True),
        (None, True),
    ],
)
def test_weights_go_to_the_scorers_that_take_them(rows, scoring, weighted):
    X, y = rows
    scoring = "neg_max_error" if scoring == "max_error" else scoring
    weights = np.random.default_rng(0).uniform(0.1, 3.0, 60)
    split = [(np.arange(30), np.arange(30, 60))]
    chosen = AcceleGradRegressorCV(alphas=[1e-2], cv=split, scoring=scoring)
    chosen.fit(X, y, sample_weight=weights)
    alone = AcceleGradRegressor(alpha=1e-2).fit(X[:30], y[:30], sample_weight=weights[:30])
    predicted, held = alone.predict(X[30:]), weights[30:] if weighted else None
    if scoring is None:
        expected = alone.score(X[30:], y[30:], sample_weight=held)
    elif weighted:
        expected = -mean_absolute_error(y[30:], predicted, sample_weight=held)
    else:
        expected = -max_error(y[30:], predicted)
    assert chosen.scores_[0, 0] == pytest.approx(expected, rel=1e-12)


def test_rows_without_weight_are_not_scored(rows):
    X, y = rows
    weights = np.where(np.arange(60) % 5 == 0, 0.0, 1.0)
    split = [(np.arange(30), np.arange(30, 60)), (np.arange(30, 60), np.arange(30))]
    options = {"alphas": ALPHAS, "scoring": "neg_max_error"}
    chosen = AcceleGradRegressorCV(cv=split, **options).fit(X, y, sample_weight=weights)
    kept = np.flatnonzero(weights)
    removed = [tuple(np.flatnonzero(np.isin(kept, part)) for part in fold) for fold in split]
    by_hand = AcceleGradRegressorCV(cv=removed, **options).fit(X[kept], y[kept])
    # Weights of 1 and no weights differ in rounding, and the fits stop at a gap of 1e-3.
    np.testing.assert_allclose(chosen.scores_, by_hand.scores_, rtol=1e-6)


def test_one_score_only(rows):
    with pytest.raises(TypeError, match="scoring must be one score"):
        AcceleGradRegressorCV(alphas=ALPHAS, scoring=["r2", "neg_max_error"]).fit(*rows)


def test_a_path_that_stops_early_has_not_missed_its_tolerance(rows):
    X, y = rows
    labels = y > np.median(y)
    chosen = AcceleGradClassifierCV(
        "hinge",
        alphas=ALPHAS,
        cv=2,
        early_stopping=True,
        validation_fraction=0.3,
        n_iter_no_change=1,
        tol=1e-12,
        random_state=0,
    ).fit(X, labels)  # warnings are errors here
    assert not chosen.converged_


@pytest.mark.parametrize(
    ("loss", "penalty", "weighted"),
    [
        ("squared_error", "l2", True),
        ("squared_error", "elasticnet", False),
        ("huber", "l2", False),
        ("quantile", "l1", True),
    ],
)
def test_a_path_of_a_regressor_has_the_fits_and_scores_of_single_ones(loss, penalty, weighted):
    X, y = load_diabetes(return_X_y=True)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, y.size) if weighted else None
    train, test = np.arange(0, 300), np.arange(300, 442)
    options = {"penalty": penalty, "tol": 1e-6}
    chosen = AcceleGradRegressorCV(loss, alphas=ALPHAS, cv=[(train, test)], **options)
    chosen.fit(X, y, sample_weight=weights)
    for place, alpha in enumerate(ALPHAS):
        learnt, held = (None if weights is None else weights[part] for part in (train, test))
        alone = AcceleGradRegressor(loss, alpha=alpha, **options)
        alone.fit(X[train], y[train], sample_weight=learnt)
        assert chosen.objectives_[place, 0] == pytest.approx(alone.objective_, rel=2e-6)
        expected = alone.score(X[test], y[test], sample_weight=held)
        assert chosen.scores_[place, 0] == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("loss", ["log_loss", "hinge", "squared_hinge"])
def test_a_path_of_a_classifier_has_the_fits_and_scores_of_single_ones(loss):
    X, y = load_iris(return_X_y=True)
    names = np.array(["c", "a", "b"])[y]
    train, test = np.arange(0, 150, 2), np.arange(1, 150, 2)
    chosen = AcceleGradClassifierCV(loss, alphas=ALPHAS, cv=[(train, test)], tol=1e-6)
    chosen.fit(X, names)
    for place, alpha in enumerate(ALPHAS):
        alone = AcceleGradClassifier(loss, alpha=alpha, tol=1e-6).fit(X[train], names[train])
        assert chosen.objectives_[place, 0] == pytest.approx(alone.objective_, rel=2e-6)
        assert chosen.scores_[place, 0] == alone.score(X[test], names[test])


def test_a_constant_target_is_scored_as_scikit_learn_does(rows):
    X, y = rows
    held = np.arange(40, 60)
    for constant in (False, True):
        targets = y.copy()
        targets[held] = 5.0
        if constant:
            targets[:] = 5.0
        split = [(np.arange(40), held)]
        chosen = AcceleGradRegressorCV(alphas=[1.0], cv=split).fit(X, targets)
        alone = AcceleGradRegressor(alpha=1.0).fit(X[:40], targets[:40])
        assert chosen.scores_[0, 0] == alone.score(X[held], targets[held])
