"""AcceleGrad without tuning: the formulas, scales, noise, and solvers from elsewhere."""

import numpy as np
import pytest
from scipy.optimize import lsq_linear

from accelegrad.geometry.sets import Simplex
from accelegrad.rules import UntunedAcceleGrad
from toys import LeastSquares


def least_squares(noise=0.0, seed=0):
    """Return a gradient with noise that depends on the number of the call alone, and a start."""
    fun = LeastSquares.random(60, 12, seed)
    rng = np.random.default_rng(seed + 7)

    def gradient(x):
        return fun(x)[1] + noise * rng.standard_normal(x.size)

    return gradient, np.random.default_rng(seed + 100).standard_normal(12)


def states_of(rule, gradient, x0, steps):
    states = [rule.init(x0)]
    for _ in range(steps):
        states.append(rule.update(states[-1], gradient(rule.query(states[-1]))))
    return states


def box(x):
    return np.clip(x, -0.5, 0.7)


def test_radius_stays_below_twice_the_distance_in_the_metric():
    """With a metric that stands still, exact gradients prove the bound: one step for all is so."""
    for seed in range(10):
        fun = LeastSquares.random(60, 12, seed)
        x0 = np.random.default_rng(seed).standard_normal(12)
        solution = np.linalg.lstsq(fun.A, fun.b, rcond=None)[0]
        rule = UntunedAcceleGrad(diagonal=False)
        states = states_of(rule, lambda x, fun=fun: fun(x)[1], x0, 300)
        distance = np.linalg.norm(x0 - solution)
        assert 0.1 * distance < states[-1].radius <= 2 * distance * (1 + 1e-9)


def test_noise_limits_acceleration_and_its_absence_does_not():
    rule, weights = UntunedAcceleGrad(), {}
    for noise in (0.0, 0.3, 30.0):
        gradient, x0 = least_squares(noise)
        weights[noise] = rule.acceleration(states_of(rule, gradient, x0, 400)[-1])
    assert weights[0.0] == pytest.approx(401 / 4)
    assert 4 < weights[0.3] < 60
    assert weights[30.0] < 0.5 * weights[0.3]


def test_it_agrees_with_a_solver_of_bounded_least_squares():
    fun = LeastSquares.random(60, 12, 5)
    found = lsq_linear(fun.A, fun.b, (-0.5, 0.7), tol=1e-12)
    assert (np.abs(found.active_mask) == 1).any()
    rule = UntunedAcceleGrad(project=box)
    states = states_of(rule, lambda x: fun(x)[1], np.zeros(12), 1000)
    x = rule.output(states[-1])
    assert ((x >= -0.5) & (x <= 0.7)).all()
    least, start = fun(found.x)[0], fun(np.zeros(12))[0]
    assert fun(x)[0] - least < 1e-5 * (start - least)


@pytest.mark.parametrize("noise", [0.0, 0.2, 1.0])
def test_a_set_that_stops_steps_does_not_make_the_radius_run_away(noise):
    """Of the steps' sum, which the evidence is held against, a set leaves little."""
    fun, x0 = LeastSquares.random(60, 12, 2), np.full(12, 1 / 12)
    rng, simplex = np.random.default_rng(0), Simplex(1.0)
    rule = UntunedAcceleGrad(diagonal=False, project=simplex.project)
    gradients = states_of(rule, lambda x: fun(x)[1] + noise * rng.standard_normal(12), x0, 500)
    x = rule.output(gradients[-1])
    assert x.min() >= 0
    assert x.sum() == pytest.approx(1)
    assert gradients[-1].radius < 2 * 2**0.5  # twice the simplex's diameter


def test_a_negative_rate_is_refused():
    with pytest.raises(ValueError, match="rate"):
        UntunedAcceleGrad(rate=-1.0)
