"""What is wrong is said in the user's words; and the same call gives the same model."""

import re
from functools import partial

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


def test_another_seed_gives_another_model():
    usual, other = (AcceleGradRegressor(**SHORT, random_state=seed).fit(X, Y) for seed in (None, 1))
    assert not np.array_equal(usual.coef_, other.coef_)


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
def test_numbers_are_no_classes(kind):
    words = rf"such as 151\.5, but {kind.__name__} is for classes; .*Regressor is for numbers"
    with pytest.raises(ValueError, match=words):
        kind().fit(X, Y + 0.5)


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
