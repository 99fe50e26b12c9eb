"""The certified gap: true on every problem whose minimiser is in K, and tight where it should be."""

import math

import numpy as np
import pytest

import accelegrad as ag
from toys import AbsoluteDeviations, LeastSquares


@pytest.mark.parametrize("output", ["best", "average", "last"])
def test_tol_holds_for_the_point_that_is_returned(output):
    problem = LeastSquares.random(60, 8, 1)
    x_star = problem.minimiser
    D = 4 * np.linalg.norm(x_star)
    result = ag.minimize(problem, np.zeros(8), diameter=D, tol=1e-4, max_iter=20_000, output=output)
    assert result.status == ag.Status.CONVERGED
    assert result.success
    value = problem(result.x)[0]
    assert result.fun == value
    assert value - problem(x_star)[0] <= result.gap <= 1e-4 * max(1, abs(value))


def test_both_cuts_are_needed():
    """The single cut on a smooth function, the aggregate one on a non-smooth one."""
    from accelegrad.geometry.sets import WholeSpace
    from accelegrad.proofs.cuts import CutCertificate, Region
    from accelegrad.rules import AcceleGrad
    from accelegrad.rules.base import KnownEvaluation

    gaps = {}
    for kind in (LeastSquares, AbsoluteDeviations):
        problem = kind.random(60, 8, 2)
        radius = np.linalg.norm(problem.minimiser)
        region = Region(WholeSpace(), np.zeros(8), radius, assumed=True)
        single, both = CutCertificate(region), CutCertificate(region)
        rule = AcceleGrad(2 * radius)
        state = rule.init(np.zeros(8))
        for _ in range(1000):
            step = rule.step(state, lambda x, f=problem: KnownEvaluation(x, *f(x)))
            state = step.state
            single.add(step.evaluation, 0.0)
            both.add(step.evaluation, step.weight)
        minimum = problem(problem.minimiser)[0]
        gaps[kind] = minimum - single.lower_bound, minimum - both.lower_bound
    assert gaps[LeastSquares][0] <= 1e-9
    assert gaps[AbsoluteDeviations][0] > 10 * gaps[AbsoluteDeviations][1]


def test_a_diameter_that_is_too_small_is_found_out():
    problem = LeastSquares.random(60, 8, 3)
    D = 0.5 * np.linalg.norm(problem.minimiser)
    result = ag.minimize(problem, np.zeros(8), diameter=D, tol=1e-6, max_iter=3000)
    assert result.status == ag.Status.REGION_REFUTED
    assert not result.success
    assert result.gap < 0
    assert "too small" in result.message
    assert f"{D:g}" in result.message


def test_without_a_region_nothing_is_claimed():
    problem = LeastSquares.random(60, 8, 4)
    result = ag.minimize(problem, np.zeros(8), method="universal", epsilon=1e-3, max_iter=50)
    assert result.gap == math.inf
    assert result.lower_bound == -math.inf
    assert result.success


def test_dual_certificate_where_loss_gradients_cancel():
    """Two steps with opposite slopes: the averaged loss gradient is zero, and so is the bound."""
    for seed in range(100):
        rng = np.random.default_rng(seed)
        X, y = rng.uniform(1, 2, (50, 3)), rng.uniform(1, 2, 50)
        model = ag.LinearModel(X, y, "absolute", l2=1e-3)
        result = ag.minimize(model, diameter=1e3, max_iter=3)
        assert 0 <= result.lower_bound + 1e-12 <= model.value(np.zeros(3))
