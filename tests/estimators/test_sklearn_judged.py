"""What is returned is what is judged: objective, gap and converged are those of the coefficients."""

import numpy as np
import pytest
import scipy.sparse as sp

import accelegrad as ag
from accelegrad.sklearn import AcceleGradClassifier, AcceleGradRegressor
from accelegrad.sklearn.objective import Objective


def logistic(X, y, coefficients, intercept, alpha, weights=None):
    """The objective in extended precision; labels are -1 and 1."""
    X = np.asarray(X, dtype=np.longdouble)
    margins = X @ coefficients.astype(np.longdouble) + np.longdouble(intercept)
    losses = np.logaddexp(0, -y * margins)
    mean = np.average(losses, weights=weights)
    return float(mean + alpha * (coefficients.astype(np.longdouble) ** 2).sum() / 2)


@pytest.mark.parametrize("kind", [np.ascontiguousarray, np.asfortranarray, sp.csr_array])
@pytest.mark.parametrize("offset", [0.0, 300.0])
def test_the_objective_of_single_precision_data_is_in_double(binary, kind, offset):
    X, y = binary
    single = (X + offset).astype(np.float32)
    sign = np.where(y == 1, 1.0, -1.0)
    weights = np.random.default_rng(0).uniform(0.2, 2.0, y.size)
    fit = AcceleGradClassifier(alpha=1e-2).fit(kind(single), y, sample_weight=weights)
    expected = logistic(single, sign, fit.coef_[0], fit.intercept_[0], 1e-2, weights)
    # A margin is a sum of terms of up to 300 |w|, the loss has a slope of at most 1.
    terms = np.abs(single).max() * np.abs(fit.coef_).sum() + 1.0
    assert fit.objective_ == pytest.approx(expected, rel=0, abs=1e-14 * terms)


@pytest.mark.parametrize("loss", ["log_loss", "hinge"])
def test_a_streams_objective_is_in_double(binary, loss):
    X, y = binary
    single = (X + 300.0).astype(np.float32)
    chunks = [(single[i : i + 200], y[i : i + 200]) for i in range(0, y.size, 200)]
    done = AcceleGradClassifier(loss, alpha=1e-2, random_state=0).fit(chunks)
    margins = single.astype(np.longdouble) @ done.coef_[0] + np.longdouble(done.intercept_[0])
    margins *= np.where(y == 1, 1, -1)
    losses = np.logaddexp(0, -margins) if loss == "log_loss" else np.maximum(0, 1 - margins)
    expected = float(losses.mean() + 1e-2 * (done.coef_[0] ** 2).sum() / 2)
    terms = 310.0 * np.abs(done.coef_).sum() + 1.0
    assert done.objective_ == pytest.approx(expected, rel=0, abs=1e-14 * terms)


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("penalty", ["l1", "elasticnet"])
def test_an_average_meets_the_tolerance_too(binary, average, penalty):
    """Its value is not known to the run itself, which went on to max_iter."""
    X, y = binary
    fit = AcceleGradClassifier(penalty=penalty, alpha=1e-1, tol=1e-2, average=average).fit(X, y)
    assert fit.converged_
    assert fit.n_iter_ < 5000


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


def test_a_batch_has_at_most_all_rows():
    fit = AcceleGradRegressor(batch_size=100, tol=1e-2, random_state=0)
    fit.fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 3.0])
    assert fit.gap_ <= 1e-2 * fit.objective_
