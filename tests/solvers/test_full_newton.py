"""Newton's method with the curvature of all rows: the minimum and its proof, beside others."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize as scipy_minimize
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.linear_model import LogisticRegression

import accelegrad as ag
from accelegrad.sklearn import AcceleGradClassifier
from accelegrad.solvers import full_newton

LABELS = ("logistic", "squared_hinge", "modified_huber")
NUMBERS = ("huber", "squared_epsilon_insensitive")


def rows_for(loss):
    """Return some rows: classes that can nearly be separated, or numbers with outliers."""
    if loss in LABELS:
        X, y = load_breast_cancer(return_X_y=True)
        return (X - X.mean(axis=0)) / X.std(axis=0), 2.0 * y - 1.0
    X, y = load_diabetes(return_X_y=True)
    return X / X.std(axis=0), y / 10.0


def found(model, rtol=1e-3, most_steps=100):
    start = np.zeros(model.n_parameters)
    return full_newton.minimum(model, start, lambda value: rtol * value, most_steps)


def least_value(model, start):
    """Return the lowest value that SciPy finds from a start."""
    options = {"maxiter": 1000, "gtol": 1e-12, "ftol": 1e-16}
    return scipy_minimize(
        model.value_and_gradient, start, jac=True, method="L-BFGS-B", options=options
    ).fun


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("l2", [1.0, 1e-4, 1e-6])
@pytest.mark.parametrize("loss", [*LABELS, *NUMBERS])
def test_value_and_bound_enclose_the_minimum(loss, l2, intercept):
    X, y = rows_for(loss)
    model = ag.LinearModel(X, y, loss, l2=l2, fit_intercept=intercept)
    x, value, bound, steps = found(model)
    assert 1 <= steps <= full_newton.MOST_STEPS
    assert value - bound <= 1e-3 * value
    assert value == model.value(x)
    # Both are computed with rounding; a bound allows for it, SciPy's value does not.
    assert bound <= least_value(model, x) * (1.0 + 1e-14)


@pytest.mark.parametrize("kind", ["weights", "sparse", "float32"])
@pytest.mark.parametrize("loss", ["logistic", "huber"])
def test_rows_of_all_kinds(loss, kind):
    X, y = rows_for(loss)
    weights = np.random.default_rng(0).exponential(size=y.size) if kind == "weights" else None
    rows = {"sparse": sp.csr_matrix(X), "float32": X.astype(np.float32)}.get(kind, X)
    model = ag.LinearModel(rows, y, loss, l2=1e-3, fit_intercept=True, sample_weight=weights)
    x, value, bound, _ = found(model, rtol=1e-9)
    assert value - bound <= 1e-9 * value
    assert bound <= least_value(model, x) * (1.0 + 1e-14)


def test_coefficients_of_logistic_regression():
    X, y = rows_for("logistic")
    l2 = 1e-3
    model = ag.LinearModel(X, y, "logistic", l2=l2, fit_intercept=True)
    x, value, _, _ = found(model, rtol=1e-10)
    peer = LogisticRegression(C=1.0 / (l2 * y.size), tol=1e-10, max_iter=10_000).fit(X, y)
    off = np.sqrt(2 * 1e-10 * value / l2)  # of weights with such a gap, at most
    np.testing.assert_allclose(x[:-1], peer.coef_[0], atol=off)
    np.testing.assert_allclose(x[-1:], peer.intercept_, atol=30 * off)


def test_slopes_of_a_step_prove_more_than_those_at_its_end():
    X, y = rows_for("logistic")
    model = ag.LinearModel(X, y, "logistic", l2=1e-4, fit_intercept=True)
    x, value, bound, _ = found(model)
    assert value - bound < 0.1 * model.dual_gap(x)


def test_a_minimum_to_start_from_takes_one_step():
    X, y = rows_for("squared_hinge")
    model = ag.LinearModel(X, y, "squared_hinge", l2=1e-2, fit_intercept=True)
    x = found(model, rtol=1e-9)[0]
    again = full_newton.minimum(model, x, lambda value: 1e-6 * value, 100)
    assert again.steps == 1


def test_what_it_does_not_serve():
    X, y = rows_for("logistic")
    assert full_newton.serves(ag.LinearModel(X, y, "logistic", l2=1e-3))
    assert not full_newton.serves(ag.LinearModel(X, y, "logistic"))  # no bound without a term
    assert not full_newton.serves(ag.LinearModel(X, y, "hinge", l2=1e-3))
    assert not full_newton.serves(ag.LinearModel(X, y, "squared", l2=1e-3))
    wide = np.random.default_rng(0).normal(size=(500, 1000))
    assert not full_newton.serves(ag.LinearModel(wide, y[:500], "logistic", l2=1e-3))
    # Of short sparse rows the products cost little, but the factors of so many columns do not.
    short = sp.random(500, 5000, density=1e-3, format="csr", rng=np.random.default_rng(0))
    assert not full_newton.serves(ag.LinearModel(short, y[:500], "logistic", l2=1e-3))


def test_too_few_steps_find_nothing():
    X, y = rows_for("logistic")
    assert found(ag.LinearModel(X, y, "logistic", l2=1e-4), most_steps=2) is None


def test_huge_rows_end_without_a_warning():
    X, y = rows_for("logistic")
    model = ag.LinearModel(1e200 * X, y, "squared_hinge", l2=1e-4, fit_intercept=True)
    assert found(model) is None


def test_estimators_go_on_with_a_run_where_steps_do_not_do():
    X, y = rows_for("logistic")
    short = AcceleGradClassifier(max_iter=2, tol=1e-3)
    with pytest.warns(Warning, match="missed tol"):
        short.fit(X, y)
    assert short.method_ != "directly"
    assert AcceleGradClassifier().fit(X, y).method_ == "directly"


def test_a_short_step_is_proved_too():
    """Where the whole step is too long, the point on the way to it may be good enough."""
    X, y = load_digits(return_X_y=True)
    model = ag.LinearModel(X, np.where(y == 0, 1.0, -1.0), "squared_hinge", l2=1e-4)
    minimum = full_newton.minimum(model, np.zeros(64), lambda value: 1e-5, 60)
    assert minimum.value == model.value(minimum.parameters)
    assert minimum.value - minimum.bound <= 1e-5
    best = ag.minimize(model, rtol=1e-6).fun
    assert minimum.bound <= best <= minimum.value * (1.0 + 1e-6)


def test_classes_share_the_tolerance_of_their_sum():
    X, y = load_digits(return_X_y=True)
    fitted = AcceleGradClassifier("squared_hinge").fit(X, y)
    assert fitted.method_ == "directly"
    assert fitted.converged_
    assert fitted.gap_ <= 1e-3 * fitted.objective_
    exact = AcceleGradClassifier("squared_hinge", tol=1e-6).fit(X, y)
    assert fitted.objective_ - fitted.gap_ <= exact.objective_
    assert exact.objective_ - exact.gap_ <= fitted.objective_
