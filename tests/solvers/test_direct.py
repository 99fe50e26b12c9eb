"""Minima without a run: values and bounds enclose them, beside scikit-learn's and SciPy's."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.linear_model import LinearRegression

import accelegrad as ag
from accelegrad.proofs.fenchel import ColumnSums, Terms
from accelegrad.proofs.model_dual import ModelDual
from accelegrad.run.oracle import QUIET
from accelegrad.sklearn import AcceleGradClassifier
from accelegrad.solvers.curvature import DirectNewton

LABELS = ("logistic", "squared_hinge", "modified_huber")


def rows_for(loss):
    """Return some rows: classes that can nearly be separated, or numbers with outliers."""
    if loss in LABELS:
        X, y = load_breast_cancer(return_X_y=True)
        return (X - X.mean(axis=0)) / X.std(axis=0), 2.0 * y - 1.0
    X, y = load_diabetes(return_X_y=True)
    return X / X.std(axis=0), y / 10.0


def model_for(loss, **given):
    return ag.LinearModel(*rows_for(loss), loss, **given)


def terms_of(model, l1=0.0, feasible_set=None):
    return Terms.of(model, ag.L1(l1) if l1 else None, feasible_set)


def found(model, rtol=1e-3, most_steps=100, start=None, **given):
    start = np.zeros(model.n_parameters) if start is None else start
    goal = lambda value: rtol * value  # noqa: E731
    with np.errstate(**QUIET):  # as in an estimator's fit
        return DirectNewton(model).minimum(terms_of(model, **given), start, goal, most_steps)


def test_slopes_of_a_step_prove_more_than_those_at_its_end_and_one_step_the_minimum():
    model = model_for("logistic", l2=1e-4, fit_intercept=True)
    x, value, bound, *_ = found(model)
    assert value - bound < 0.1 * model.dual_gap(x)
    model = model_for("squared_hinge", l2=1e-2, fit_intercept=True)
    x = found(model, rtol=1e-9).point
    assert found(model, rtol=1e-6, start=x).steps == 1


def test_a_short_step_is_proved_too():
    """Where the whole step is too long, the point on the way to it may be good enough."""
    X, y = load_digits(return_X_y=True)
    model = ag.LinearModel(X, np.where(y == 0, 1.0, -1.0), "squared_hinge", l2=1e-4)
    minimum = DirectNewton(model).minimum(terms_of(model), np.zeros(64), lambda value: 1e-5)
    assert minimum.value == model.value(minimum.point)
    assert minimum.value - minimum.bound <= 1e-5
    best = ag.minimize(model, rtol=1e-6).fun
    assert minimum.bound <= best <= minimum.value * (1.0 + 1e-6)


def test_what_it_does_not_serve():
    X, y = rows_for("logistic")

    def serves(X, y, loss, **given):
        model = ag.LinearModel(X, y, loss, **given)
        return DirectNewton.serves(model, terms_of(model))

    assert serves(X, y, "logistic", l2=1e-3)
    assert serves(X, y, "squared", l2=1e-3)
    assert not serves(X, y, "logistic")  # no bound without a term
    assert not serves(X, y, "squared")
    assert not serves(X, y, "hinge", l2=1e-3)
    wide = np.random.default_rng(0).normal(size=(500, 1000))
    assert not serves(wide, y[:500], "logistic", l2=1e-3)
    assert not serves(wide, y[:500], "squared", l2=1e-3)
    # Of short sparse rows the products cost little, but the factors of so many columns do not.
    short = sp.random(500, 5000, density=1e-3, format="csr", rng=np.random.default_rng(0))
    assert not serves(short, y[:500], "logistic", l2=1e-3)


@pytest.mark.parametrize("intercept", [False, True])
def test_nonnegative_least_squares_are_proved_by_their_first_step(intercept):
    """Nothing but signs and the losses bounds the weights, so the proof is in the null space."""
    X, y = rows_for("squared")
    model = ag.LinearModel(X, y, "squared", fit_intercept=intercept)
    free = [-np.inf] * intercept
    signs = ag.Box(np.append(np.zeros(X.shape[1]), free), np.inf)
    minimum = found(model, feasible_set=signs)
    assert minimum.steps == 1
    assert minimum.value - minimum.bound <= 1e-3 * minimum.value
    peer = LinearRegression(positive=True, fit_intercept=intercept).fit(X, y)
    best = 0.5 * np.mean((peer.predict(X) - y) ** 2)
    assert minimum.bound <= best * (1.0 + 1e-14)
    assert minimum.value == pytest.approx(best, rel=1e-9)


def test_least_squares_end_where_a_step_gains_nothing(monkeypatch):
    model, steps = model_for("squared", l2=1e-4), []
    monkeypatch.setattr(ModelDual, "at_slopes", lambda *_: steps.append(1) or 0.0)
    assert found(model, start=np.ones(model.n_features), rtol=1e-16) is None
    assert 1 <= len(steps) <= 4


def test_where_steps_find_nothing_estimators_go_on_with_a_run():
    X, y = rows_for("logistic")
    assert found(ag.LinearModel(X, y, "logistic", l2=1e-4), most_steps=2) is None
    # Rows whose squares overflow
    huge = ag.LinearModel(1e200 * X, y, "squared_hinge", l2=1e-4, fit_intercept=True)
    assert found(huge) is None
    short = AcceleGradClassifier(max_iter=2, tol=1e-3)
    with pytest.warns(Warning, match="missed tol"):
        short.fit(X, y)
    assert short.n_iter_ == 2
    assert AcceleGradClassifier().fit(X, y).method_ == "proximal-newton"


def exact_sums(model, x):
    """Return mean loss, level, mean and combination of the residuals in extended precision."""
    wide = np.longdouble
    X, y, shares = (np.asarray(part, dtype=wide) for part in (model.X, model.y, model.shares))
    x = x.astype(wide)
    r = X @ x[: model.n_features] + (x[-1] if model.fit_intercept else 0) - y
    return (shares @ r**2) / 2, -(shares @ (r**2 / 2 + r * y)), shares @ r, (shares * r) @ X


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("offset", [0.0, 1e3, 1e7])
def test_sums_by_products_are_off_by_no_more_than_they_say(intercept, offset):
    rng = np.random.default_rng(int(offset) % 97 + intercept)
    X = (rng.normal(size=(400, 7)) + offset) * 10.0 ** rng.integers(-4, 5, 7)
    y = X @ (rng.normal(size=7) / np.abs(X).max(0)) + offset + rng.normal(size=400)
    weights = rng.random(400)
    model = ag.LinearModel(X, y, "squared", fit_intercept=intercept, sample_weight=weights)
    sums = ColumnSums(model)
    for _ in range(20):
        x = rng.normal(size=model.n_parameters)
        x[:7] /= np.abs(X).max(0)
        known = sums.at(x)
        loss, level, mean, combination = exact_sums(model, x)
        assert abs(known.mean_loss - loss) <= known.error
        assert abs(known.slopes.level - level) <= known.slopes.level_error
        off = np.abs(known.slopes.combination - combination)
        assert (off <= known.slopes.combination_error).all()
        if intercept:
            assert abs(known.slopes.mean - mean) <= known.slopes.mean_error


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_a_path_of_one_gram_matrix_proves_each_minimum(offset):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 6)) + offset  # whose products cancel, the more the larger it is
    y = X @ np.array([1.0, -1.0, 0.5, 0.0, 0.0, 0.0]) + rng.normal(size=300) + offset
    model = ag.LinearModel(X, y, "squared", fit_intercept=True)
    centred = ag.LinearModel(X - X.mean(0), y - y.mean(), "squared")
    direct, point = DirectNewton(model), np.zeros(7)
    for l1 in (1.0, 0.3, 0.1, 1e-2):
        minimum = direct.minimum(terms_of(model, l1), point, lambda value: 1e-3 * value)
        point = minimum.point
        value = model.value(point) + l1 * np.abs(point[:-1]).sum()
        least = found(centred, rtol=1e-8, l1=l1)
        assert minimum.value == pytest.approx(value, rel=1e-9)
        assert minimum.bound <= least.value * (1 + 1e-9)
        assert least.bound * (1 - 1e-9) <= minimum.value <= minimum.bound + 1e-3 * minimum.value
