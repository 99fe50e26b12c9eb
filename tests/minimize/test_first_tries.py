"""What people try first: it ends soon, with a proof or with a status that says why not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import LinearConstraint

import accelegrad as ag
from accelegrad import Status
from toys import AbsoluteDeviations, LeastSquares, largest_of


def test_a_portfolio_with_sectors():
    rng = np.random.default_rng(0)
    d, sectors = 60, 6
    factors = rng.standard_normal((120, d))
    risk, reward = factors.T @ factors / 120, 0.1 * rng.random(d)
    rows = np.zeros((sectors + 1, d))
    rows[np.arange(d) % sectors, np.arange(d)], rows[-1] = 1.0, 1.0
    ends = np.append(np.zeros(sectors), 1.0), np.append(np.full(sectors, 0.25), 1.0)
    options = dict(bounds=[(0, None)] * d, constraints=LinearConstraint(rows, *ends))

    def fun(x):
        return float(0.5 * x @ risk @ x - reward @ x), risk @ x - reward

    loose, tight = (ag.minimize(fun, np.full(d, 1 / d), tol=tol, **options) for tol in (1e-7, 1e-8))
    assert loose.success
    assert tight.success
    assert tight.nfev <= 2 * loose.nfev


def distance_to(point):
    return lambda x: (float(np.abs(x - point).sum()), np.sign(x - point))


@pytest.mark.parametrize(
    ("point", "target", "status"),
    [(100.0, 0.0, Status.REGION_REFUTED), (1.0, -1.0, Status.TARGET_IMPOSSIBLE)],
)
def test_a_target_beyond_the_given_diameter_or_impossible(point, target, status):
    found = ag.minimize(distance_to(point), [0.0], diameter=10, target=target)
    assert (found.status, found.success) == (status, False)
    assert "within 5 of x0" in found.message


UNBOUNDED = {
    "sum": (lambda x: (float(x.sum()), np.ones_like(x)), np.zeros(3)),
    "slope of 1e-9": (lambda x: (float(-1e-9 * x[0]), np.array([-1e-9])), np.zeros(1)),
    "log": (lambda x: (-math.log(x[0]) if x[0] > 0 else math.inf, -1.0 / x), np.ones(1)),
}


@pytest.mark.parametrize("tol", [None, 1e-6])
@pytest.mark.parametrize("name", UNBOUNDED)
def test_a_function_without_a_minimum_diverges(name, tol):
    with np.errstate(divide="ignore"):
        found = ag.minimize(*UNBOUNDED[name], tol=tol)
    assert (found.status, found.success) == (Status.DIVERGING, False)


@pytest.mark.parametrize("method", ["auto", "accelegrad"])
@pytest.mark.parametrize("start", [1e300, -1e200, 1e160])
def test_huge_starts_end_with_a_status(start, method):
    found = ag.minimize(distance_to(1.0), np.full(2, start), method=method)
    assert found.status is Status.NON_FINITE
    assert found.fun == 2 * abs(start)


def test_a_value_at_the_start_is_kept_where_the_gradient_overflows():
    found = ag.minimize(lambda x: (1e160 * float(x @ x), 2e160 * x), np.ones(2), tol=1e-6)
    assert (found.status, found.fun) == (Status.NON_FINITE, 2e160)
    assert "too large" in found.message


def test_whole_numbers_may_be_floats_and_statuses_have_names():
    found = ag.minimize(lambda x: (float(x @ x), 2 * x), np.ones(2), max_iter=1e3)
    assert str(found.status) == f"{found.status}" == found.status.name


# -- values that are known to within an error ------------------------------------------------------


@pytest.mark.parametrize("make", [AbsoluteDeviations, LeastSquares])
@pytest.mark.parametrize("error", [1e-10, 1e-8, 1e-6])
def test_values_of_an_inner_solver(make, error):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        d = int(rng.integers(1, 8))
        exact = make(rng.standard_normal((15, d)), rng.standard_normal(15))

        def inexact(x, exact=exact, seed=seed, d=d):
            value, slope = exact(x)
            return value + error * math.sin(1e6 * float(x @ np.arange(1, d + 1)) + seed), slope

        true = ag.minimize(exact, np.zeros(d), tol=1e-10, max_iter=3000)
        found = ag.minimize(inexact, np.zeros(d), tol=10 * error + 1e-8, accuracy=error)
        assert found.success, found.message
        assert found.gap >= error
        assert found.lower_bound <= true.fun
        assert exact(found.x)[0] - true.lower_bound <= found.gap
        most = ag.minimize(inexact, np.zeros(d), tol=error / 10, accuracy=error, max_iter=200)
        assert not most.success
        assert most.status is not Status.NOT_CONVEX


# -- small calls, and progress ---------------------------------------------------------------------

RNG = np.random.default_rng(0)
A, B, T = (RNG.standard_normal(shape) for shape in ((20, 5), 20, 5))


def log_sum_exp(x):
    m = A @ x - B
    e = np.exp(m - m.max())
    return float(m.max() + np.log(e.sum())), A.T @ (e / e.sum())


LARGEST = largest_of(np.vstack([A, -A]), np.append(B, -B))


@pytest.mark.parametrize(
    "fun",
    [LeastSquares(A, B), log_sum_exp, distance_to(T), AbsoluteDeviations(A, B), LARGEST],
    ids=["squares", "log-sum-exp", "distance", "deviations", "largest"],
)
def test_closing_checks_take_few_calls(fun):
    found = ag.minimize(fun, np.zeros(5), tol=1e-6)
    assert found.success
    # Three points around the answer, and one where gradients are predicted to vanish.
    assert found.nfev - found.nit <= 4


@pytest.mark.parametrize(
    ("fun", "x0", "options"),
    [
        (lambda x: (float(x.sum()), np.ones(2)), [0.5, 0.5], {"bounds": [(0, 1)] * 2}),
        (distance_to(np.array([3.0, -2.0, 5.0])), np.ones(3), {}),
        (lambda x: (np.abs(x).max(), np.sign(x) * (np.abs(x) == np.abs(x).max())), [4, 1], {}),
    ],
    ids=["linear", "distance", "largest"],
)
def test_a_minimum_of_zero_ends_a_run_without_tol(fun, x0, options):
    """Values near 0 have no size of their own: rounding is measured by the values before them."""
    result = ag.minimize(fun, x0, **options)
    assert result.status in (Status.AT_ROUNDING, Status.STATIONARY)
    assert result.nit < 50
    assert result.gap <= 1e-11
