"""What is wrong is said in the user's words; and the same call gives the same model."""

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes

import accelegrad as ag
from accelegrad.sklearn import (
    AcceleGradClassifier,
    AcceleGradClassifierCV,
    AcceleGradRegressor,
    AcceleGradRegressorCV,
)

X, Y = (array[:90] for array in load_diabetes(return_X_y=True))
LABELS = np.greater(Y, np.median(Y)).astype(int)


def test_several_quantiles_have_no_single_score():
    fitted = AcceleGradRegressor("quantile", quantile=[0.1, 0.5, 0.9]).fit(X, Y)
    with pytest.raises(ValueError, match=r"quantile=\[0\.1, 0\.5, 0\.9\] predicts 3.*pinball"):
        fitted.score(X, Y)
    assert AcceleGradRegressor("quantile", quantile=0.5).fit(X, Y).score(X, Y) > 0.3
    assert AcceleGradRegressor().fit(X, np.column_stack([Y, -Y])).score(X, np.column_stack([Y, -Y]))


def with_gap(values, gap):
    given = np.array(values, dtype=object)
    given[3] = gap
    return given


@pytest.mark.parametrize("gap", [None, float("nan"), pd.NA])
@pytest.mark.parametrize("form", [np.asarray, list, pd.Series])
@pytest.mark.parametrize(
    ("kind", "targets"),
    [
        (AcceleGradRegressor, Y),
        (AcceleGradClassifier, LABELS),
        (AcceleGradClassifier, np.array(["no", "yes"])[LABELS]),
    ],
)
def test_a_target_that_is_missing_is_named(kind, targets, form, gap):
    given = form(with_gap(targets, gap))
    words = r"y must have no missing values, but y\[3\] is"
    if form is list and np.asarray(given).dtype != object:  # NumPy makes numbers of them
        words = r"y\[3\] is nan|y contains NaN"
    path = AcceleGradClassifierCV if kind is AcceleGradClassifier else AcceleGradRegressorCV
    more = {"classes": np.unique(targets)} if kind is AcceleGradClassifier else {}
    for call in (
        lambda: kind().fit(X, given),
        lambda: path().fit(X, given),
        lambda: kind().partial_fit(X, given, **more),
    ):
        with pytest.raises(ValueError, match=words):
            call()


def test_a_missing_target_of_several_outputs_is_named():
    both = np.column_stack([with_gap(Y, 0.0), with_gap(Y, None)])
    with pytest.raises(ValueError, match=r"y\[3, 1\] is None"):
        AcceleGradRegressor().fit(X, both)


@pytest.mark.parametrize(("penalty", "given"), [("l1", "simplex"), ("elasticnet", ag.L1Ball(1.0))])
def test_a_penalty_and_a_set_that_do_not_go_together_are_named(penalty, given):
    options = {"penalty": penalty, "feasible_set": given}
    words = re.escape(f"penalty='{penalty}' and feasible_set={given!r} cannot be used together")
    for fit in (
        lambda: AcceleGradRegressor(**options).fit(X, Y),
        lambda: AcceleGradRegressor(**options).partial_fit(X, Y),
        lambda: AcceleGradRegressorCV(**options).fit(X, Y),
        lambda: AcceleGradClassifier(**options).fit(X, LABELS),
        lambda: AcceleGradClassifier(**options).fit(X, np.arange(90) % 3),
    ):
        with pytest.raises(ValueError, match=words + ".* 'nonnegative' or an accelegrad.Box"):
            fit()


def test_a_set_goes_together_with_an_l1_term_that_is_zero():
    AcceleGradRegressor(penalty="l1", alpha=0.0, feasible_set="simplex").fit(X, Y)
    AcceleGradRegressor(penalty="elasticnet", l1_ratio=0.0, feasible_set="simplex").fit(X, Y)


@pytest.mark.parametrize("kind", [AcceleGradClassifier, AcceleGradClassifierCV])
def test_numbers_are_no_classes(kind):
    words = (
        rf"such as 151\.5, but {kind.__name__} is for classes; AcceleGradRegressor is for numbers"
    )
    with pytest.raises(ValueError, match=words):
        kind().fit(X, Y + 0.5)


# --------------------------------------------------------------------------------- the same model


FITS = {
    "minibatches": lambda: AcceleGradClassifier(batch_size=5, max_iter=20, tol=None).fit(X, LABELS),
    "numbers": lambda: AcceleGradRegressor(batch_size=5, max_iter=20, tol=None).fit(X, Y),
    "rows of a stream": lambda: AcceleGradClassifier().partial_fit(X, LABELS, classes=[0, 1]),
    "a stream": lambda: AcceleGradClassifier().fit((X, LABELS)),
    "chunks": lambda: AcceleGradRegressor().fit([(X[:20], Y[:20]), (X[20:], Y[20:])]),
    "a path": lambda: AcceleGradClassifierCV(
        alphas=[1.0, 0.1, 0.0], cv=2, batch_size=5, max_iter=20, tol=None
    ).fit(X, LABELS),
}


@pytest.mark.parametrize("name", FITS)
def test_the_same_call_gives_the_same_model(name):
    once, again = FITS[name](), FITS[name]()
    np.testing.assert_array_equal(once.coef_, again.coef_)
    np.testing.assert_array_equal(once.intercept_, again.intercept_)


def test_another_seed_gives_another_model():
    options = {"batch_size": 5, "max_iter": 20, "tol": None}
    usual, other = (
        AcceleGradRegressor(**options, random_state=seed).fit(X, Y) for seed in (None, 1)
    )
    assert not np.array_equal(usual.coef_, other.coef_)
