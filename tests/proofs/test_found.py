"""What the fuzz has found, each by its smallest case."""

from __future__ import annotations

import math

import numpy as np
import pytest

import accelegrad as ag
from accelegrad.solve.mended_bound import Sample, _balanced


def half_square(x):
    return 0.5 * float(x @ x), x.copy()


def test_weights_that_underflow_make_no_average():
    """The mean of the cuts was a quotient of numbers without digits, and its bound false."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 3))
    y = np.sign(X @ [1.0, 2.0, 3.0] + rng.standard_normal(30))
    model = ag.LinearModel(X, y, "logistic", l2=1e-3)
    lowest = ag.minimize(model, tol=1e-8).fun
    result = ag.minimize(model, method="dog", initial_radius=1e-200, tol=0.1, max_iter=60)
    assert result.lower_bound <= lowest


@pytest.mark.parametrize("method", ["dog", "u-dog", "a-dog", "accelegrad", "unixgrad"])
@pytest.mark.parametrize("radius", [1e-150, 1e-200])
def test_a_ball_of_one_point_is_no_evidence(method, radius):
    """A step that rounding takes back was taken for proof that the function falls no farther."""
    result = ag.minimize(
        half_square, np.ones(3), method=method, initial_radius=radius, tol=0.1, max_iter=60
    )
    assert not result.success or result.fun <= 0.1


@pytest.mark.parametrize("method", ["u-dog", "a-dog"])
def test_a_minimiser_beyond_the_diameter_has_no_gap_below_zero(method):
    """Success and a gap below zero contradict each other."""
    result = ag.minimize(half_square, np.ones(2), method=method, diameter=0.6, max_iter=400)
    assert not result.success or result.gap >= 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("loss", ["modified_huber", "hinge", "epsilon_insensitive"])
def test_a_zero_gradient_proves_the_goal(loss, dtype):
    """Where the gradient is zero the value is the minimum: the gap is within any goal."""
    rng = np.random.default_rng(1)
    y = np.sign(rng.standard_normal(40))
    model = ag.LinearModel(np.zeros((40, 3), dtype), y, loss, sample_weight=rng.uniform(size=40))
    result = ag.minimize(model, method="subgradient", step_size=0.1, tol=1e-7, max_iter=50)
    assert not result.success or result.gap <= 1e-7 * max(1.0, abs(result.fun))


def test_a_sample_that_cannot_balance_proves_nothing():
    """With no row on the heavier side the slopes came back as they were."""
    sample = Sample(
        X=np.zeros((1, 1)),
        intercept=True,
        shares=np.array([0.1]),
        y=np.ones(1),
        margins=np.zeros(1),
        slopes=np.array([-0.5]),
        weights=np.ones(1),
    )
    slopes = _balanced(sample.slopes, sample, 0.4)
    total = 0.4 + float(sample.shares @ (slopes - sample.slopes))
    assert math.isnan(total) or abs(total) <= 1e-15


@pytest.mark.parametrize("output", ["average", "last", "best"])
def test_no_success_without_a_value(output):
    """At slopes of 1e290 a point next to the start may have no finite value."""

    def steep(x):
        roots = np.sqrt(1 + x * x)
        return 1e290 * float((x * x / (1 + roots)).sum()), 1e290 * x / roots

    result = ag.minimize(steep, np.zeros(3), tol=1e-10, max_iter=20, output=output)
    assert not (result.success and math.isnan(result.fun))


def test_a_steep_function_with_a_penalty_has_no_bound_above_its_value():
    """The minorant's constant is a difference of huge terms, whose rounding was not allowed for."""
    target = np.array([453257.0, 608861.0, 29932.0, -396953.0, 1097691.0])
    rows = np.random.default_rng(2).standard_normal((4, 5))
    rows = np.vstack([rows, -rows.sum(axis=0)])

    def largest(x):
        values = rows @ (x - target)
        first = int(np.argmax(values))
        return 1e100 * float(values[first]), 1e100 * rows[first]

    penalty = ag.NuclearNorm(2e99, (5, 1))
    result = ag.minimize(largest, target, method="unixgrad", penalty=penalty, max_iter=20)
    if np.linalg.norm(result.x - target) <= result.certified_radius:
        assert result.lower_bound <= result.fun
