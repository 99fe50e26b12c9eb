"""DoG and A-DoG: transcription, theorem, outside solvers, and what must not change them."""

import numpy as np
import pytest

from accelegrad.rules.distance import smallest_radius
from accelegrad.rules.dog import ADoG, DoG
from reference import beyond
from stepping import (
    SETS,
    STEPS,
    gaps,
    kinds,
    make,
    noisy,
    oracle_of,
    run,
    same,
    sets,
)
from toys import FlatQuadratic, slope

HORIZONS = np.unique(np.logspace(1.5, 3.3, 20).astype(int))


cases = pytest.mark.parametrize(("noise", "radius"), [(0.0, 0.5), (0.3, 1e-4)])


# --- against the transcriptions -------------------------------------------------------------------


@kinds
@sets
@cases
def test_dog_is_its_transcription(kind, name, noise, radius):
    fun, x0 = make(kind, 1)
    project, T = SETS[name](x0), STEPS[kind]
    rule = DoG(radius, project=project)
    expected = beyond.dog(noisy(fun, 7, noise), x0, T, radius, project)
    gradient, state = noisy(fun, 7, noise), rule.init(x0)
    for t in range(T):
        same(rule.query(state), expected.x[t], "x", t)
        assert state.radius == pytest.approx(expected.r[t], rel=1e-12)
        assert rule.weight(state) == state.radius
        state = rule.update(state, gradient(rule.query(state)))
        same(rule.last(state), expected.x[t + 1], "x", t + 1)
        same(rule.output(state), expected.average[t], "average", t)
        assert state.step_size == pytest.approx(expected.eta[t], rel=1e-12)


@kinds
@sets
@cases
def test_a_dog_is_its_transcription(kind, name, noise, radius):
    fun, x0 = make(kind, 2)
    project, T = SETS[name](x0), STEPS[kind]
    rule = ADoG(radius, project=project)
    expected = beyond.a_dog(noisy(fun, 8, noise), x0, T, radius, project)
    gradient, state = noisy(fun, 8, noise), rule.init(x0)
    for t in range(T):
        same(rule.query(state), expected.query[t], "x", t)
        assert state.radius == pytest.approx(expected.r[t], rel=1e-12)
        assert rule.weight(state) == pytest.approx(expected.alpha[t] * expected.r[t], rel=1e-12)
        state = rule.update(state, gradient(rule.query(state)))
        same(state.mirror_point, expected.z[t + 1], "z", t)
        same(rule.last(state), expected.y[t + 1], "y", t)
        same(rule.output(state), expected.average[t], "average", t)
        assert state.step_size == pytest.approx(expected.eta[t], rel=1e-12)


# --- the theorems ---------------------------------------------------------------------------------


def test_a_dog_is_accelerated_and_dog_is_not():
    fun = FlatQuadratic()
    assert slope(HORIZONS, gaps(ADoG(probe=True), fun, fun.x0, 0.0, HORIZONS)) <= -1.9
    assert -1.5 <= slope(HORIZONS, gaps(DoG(probe=True), fun, fun.x0, 0.0, HORIZONS)) <= -0.8


@kinds
@pytest.mark.parametrize("radius", [1e-6, 1.0])
def test_dog_bound(kind, radius):
    """The weighted regret of its paper, on every run with exact gradients.

    sum r_t (f(x_t) - f*) <= r_T (2 dbar_T + r_T) sqrt(G_T) with dbar the largest ||x_t - x*||.
    """
    fun, x0 = make(kind, 3)
    x_star = fun.minimiser
    rule = DoG(radius)
    state, farthest = rule.init(x0), 0.0
    for _ in range(500):
        farthest = max(farthest, np.linalg.norm(rule.query(state) - x_star))
        state = rule.step(state, oracle_of(fun)).state
        gap = fun(rule.output(state))[0] - fun(x_star)[0]
        reach = max(farthest, np.linalg.norm(rule.query(state) - x_star))
        bound = state.radius * (2 * reach + state.radius) * state.squares**0.5
        assert gap <= bound / state.weight_sum


@kinds
@pytest.mark.parametrize("kind_of_rule", [DoG, ADoG])
def test_a_tiny_first_radius_costs_steps_but_not_the_minimum(kind, kind_of_rule):
    fun, x0 = make(kind, 4)
    x_star = fun.minimiser
    state = run(kind_of_rule(), x0, oracle_of(fun), 4000)[-1]
    assert kind_of_rule().init(x0).radius == smallest_radius(x0)
    gap = fun(kind_of_rule().output(state))[0] - fun(x_star)[0]
    assert gap <= 1e-2 * (fun(x0)[0] - fun(x_star)[0])
    distance = np.linalg.norm(x0 - x_star)
    assert 0.3 * distance <= state.radius <= 5 * distance


# --- outside solvers ------------------------------------------------------------------------------
