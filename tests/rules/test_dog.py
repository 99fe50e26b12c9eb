"""DoG and A-DoG: transcription, theorem, outside solvers, and what must not change them."""

import numpy as np
import pytest
from scipy.optimize import minimize

from accelegrad.errors import NonFiniteError
from accelegrad.geometry.sets import Ball, Box, Simplex
from accelegrad.rules.base import KnownEvaluation
from accelegrad.rules.distance import smallest_radius
from accelegrad.rules.dog import ADoG, DoG
from reference import beyond
from stepping import (
    SETS,
    STEPS,
    assert_operators_alone_are_used,
    gaps,
    kinds,
    make,
    noisy,
    oracle_of,
    run,
    same,
    sets,
)
from toys import AbsoluteDeviations, FlatQuadratic, LeastSquares, slope

HORIZONS = np.unique(np.logspace(1.5, 3.3, 20).astype(int))


cases = pytest.mark.parametrize(("noise", "radius"), [(0.0, 1e-4), (0.0, 0.5), (0.3, 1e-4)])


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


def test_dog_by_hand():
    # Gradients 3, -4, 12 whatever the point, x0 = 0, r0 = 1/2: sums of squares 3^2, 5^2, 13^2.
    # x1 = -1/2, r1 = 1/2, x2 = -1/2 + 2/5 = -1/10, r2 = 1/2, x3 = -1/10 - 6/13.
    rule = DoG(0.5)
    state, points = rule.init(np.zeros(1)), []
    for gradient in (3.0, -4.0, 12.0):
        state = rule.update(state, np.array([gradient]))
        points.append(float(rule.last(state)[0]))
    assert points == pytest.approx([-1 / 2, -1 / 10, -1 / 10 - 6 / 13], rel=1e-14)
    assert state.radius == pytest.approx(1 / 10 + 6 / 13, rel=1e-14)
    assert rule.output(state)[0] == pytest.approx((0 - 1 / 2 - 1 / 10) / 3, rel=1e-14)


def test_a_dog_by_hand():
    # Gradients 3, 2, 4/3 whatever the point, x0 = 0, r0 = 1. Times alpha: 3, 4, ...
    # t = 0: alpha 1, eta 1/3, z = y = -1, r stays 1.
    # t = 1: alpha 2, tau 2/3, x = -1, the sum 5^2, eta 1/5, z = -1 - 4/5, y = -1 - 2/5, r = 9/5.
    # t = 2: alpha = (2 + 9/5)/(9/5) = 19/9, tau = (19/9)/(3 + 19/9) = 19/46,
    #        x = -(19 9/5 + 27 7/5)/46 = -36/23.
    rule = ADoG(1.0)
    state = rule.init(np.zeros(1))
    for gradient in (3.0, 2.0):
        state = rule.update(state, np.array([gradient]))
    assert state.mirror_point[0] == pytest.approx(-9 / 5, rel=1e-14)
    assert rule.last(state)[0] == pytest.approx(-7 / 5, rel=1e-14)
    assert state.radius == pytest.approx(9 / 5, rel=1e-14)
    assert rule.query(state)[0] == pytest.approx(-36 / 23, rel=1e-14)
    assert rule.output(state)[0] == pytest.approx((-1 - 2 * 7 / 5) / 3, rel=1e-14)


# --- the theorems ---------------------------------------------------------------------------------


def test_a_dog_is_accelerated_and_dog_is_not():
    fun = FlatQuadratic()
    assert slope(HORIZONS, gaps(ADoG(probe=True), fun, fun.x0, 0.0, HORIZONS)) <= -1.9
    assert -1.5 <= slope(HORIZONS, gaps(DoG(probe=True), fun, fun.x0, 0.0, HORIZONS)) <= -0.8


@pytest.mark.parametrize("seed", range(3))
def test_rates_on_non_smooth_functions(seed):
    fun, x0 = AbsoluteDeviations.random(60, 15, seed), np.zeros(15)
    minimum = fun(fun.minimiser)[0]
    for rule in (ADoG(probe=True), DoG(probe=True)):
        assert slope(HORIZONS, gaps(rule, fun, x0, minimum, HORIZONS)) <= -0.5


@kinds
@pytest.mark.parametrize("radius", [1e-6, 1e-2, 1.0])
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


@pytest.mark.parametrize("seed", range(3))
def test_least_squares_against_lstsq(seed):
    fun, x0 = make("smooth", seed)
    x_star = fun.minimiser
    state = run(ADoG(probe=True), x0, oracle_of(fun), 3000)[-1]
    assert fun(ADoG().output(state))[0] == pytest.approx(fun(x_star)[0], rel=1e-8)
    np.testing.assert_allclose(ADoG().last(state), x_star, atol=1e-6)
    state = run(DoG(probe=True), x0, oracle_of(fun), 3000)[-1]
    assert fun(DoG().last(state))[0] == pytest.approx(fun(x_star)[0], rel=1e-8)
    assert fun(DoG().output(state))[0] == pytest.approx(fun(x_star)[0], rel=1e-4)


@pytest.mark.parametrize("name", ["simplex", "box"])
def test_constrained_minima_against_slsqp(name):
    fun, x0 = LeastSquares.random(40, 10, 5), np.full(10, 0.1)
    options = {"bounds": [(0, 0.2)] * 10}
    feasible = Box(np.zeros(10), np.full(10, 0.2))
    if name == "simplex":
        feasible = Simplex()
        total = {"type": "eq", "fun": lambda x: x.sum() - 1, "jac": lambda x: np.ones((1, 10))}
        options = {"constraints": [total], "bounds": [(0, None)] * 10}
    other = minimize(fun, x0, jac=True, method="SLSQP", options={"ftol": 1e-15}, **options)
    assert other.success
    for rule in (
        ADoG(probe=True, project=feasible.project),
        DoG(probe=True, project=feasible.project),
    ):
        points = []

        def oracle(x):
            points.append(x)  # noqa: B023
            return KnownEvaluation(x, *fun(x))

        state = run(rule, x0, oracle, 2000)[-1]
        assert all(feasible.contains(x) for x in [*points, rule.output(state), rule.last(state)])
        assert fun(rule.last(state))[0] == pytest.approx(other.fun, rel=1e-6)
        assert fun(rule.output(state))[0] == pytest.approx(other.fun, rel=1e-3)


# --- what must not change them --------------------------------------------------------------------

both = pytest.mark.parametrize("kind_of_rule", [DoG, ADoG])


@both
@kinds
@pytest.mark.parametrize("c", [1e-12, 3e7])
def test_scaling_the_function_leaves_the_iterates(kind_of_rule, kind, c):
    fun, x0 = make(kind, 6)
    scaled = lambda x: (c * fun(x)[0], c * fun(x)[1])  # noqa: E731
    rule = kind_of_rule(0.01, project=Ball(x0, 1.5).project)
    here, there = (run(rule, x0, oracle_of(f), STEPS[kind]) for f in (fun, scaled))
    for t, (a, b) in enumerate(zip(here, there, strict=True)):
        same(rule.output(a), rule.output(b), "output", t)
        same(rule.last(a), rule.last(b), "last", t)


@both
def test_translations_and_rotations_move_the_iterates_along(kind_of_rule):
    fun, x0 = make("smooth", 7)
    rng = np.random.default_rng(8)
    Q, v = np.linalg.qr(rng.standard_normal((12, 12)))[0], rng.standard_normal(12)

    def moved(u):
        value, gradient = fun(Q.T @ (u - v))
        return value, Q @ gradient

    rule = kind_of_rule(0.01)
    here = run(rule, x0, oracle_of(fun), 200)
    there = run(rule, Q @ x0 + v, oracle_of(moved), 200)
    for t, (a, b) in enumerate(zip(here, there, strict=True)):
        same(rule.output(b), Q @ rule.output(a) + v, "output", t, 1e-11)
        same(rule.last(b), Q @ rule.last(a) + v, "last", t, 1e-11)


@both
def test_scaling_the_space_scales_the_iterates(kind_of_rule):
    """With a first radius in proportion; that is all these methods know of the scale."""
    fun, x0 = make("smooth", 9)
    s = 1e4
    stretched = lambda u: (fun(u / s)[0], fun(u / s)[1] / s)  # noqa: E731
    rule, wide = kind_of_rule(0.01), kind_of_rule(0.01 * s)
    here = run(rule, x0, oracle_of(fun), 300)
    there = run(wide, s * x0, oracle_of(stretched), 300)
    for t, (a, b) in enumerate(zip(here, there, strict=True)):
        same(rule.output(b) / s, rule.output(a), "output", t, 1e-11)


@both
def test_states_are_never_changed_in_place(kind_of_rule):
    fun, x0 = make("smooth", 10)
    rule = kind_of_rule(0.1, project=Ball(x0, 1.0).project)
    states = run(rule, x0, oracle_of(fun), 3)
    kept = [tuple(np.copy(part) for part in state) for state in states]
    again = rule.step(states[1], oracle_of(fun)).state
    rule.step(states[-1], oracle_of(fun))
    for state, copy in zip(states, kept, strict=True):
        assert all(np.array_equal(part, was) for part, was in zip(state, copy, strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(again, states[2], strict=True))


@both
def test_zero_gradients_give_zero_steps(kind_of_rule):
    rule = kind_of_rule()
    state = rule.init(np.ones(3))
    for _ in range(5):
        state = rule.update(state, np.zeros(3))
    assert state.step_size == 0
    assert state.radius == smallest_radius(np.ones(3))
    assert np.array_equal(rule.last(state), np.ones(3))
    np.testing.assert_allclose(rule.output(state), np.ones(3), rtol=1e-15)
    state = rule.update(state, np.ones(3))
    assert np.linalg.norm(rule.last(state) - 1) > 0


@both
def test_output_before_the_first_step_is_the_start(kind_of_rule):
    rule = kind_of_rule()
    assert np.array_equal(rule.output(rule.init(np.ones(3))), np.ones(3))
    assert np.array_equal(rule.last(rule.init(np.ones(3))), np.ones(3))


@pytest.mark.parametrize("rule", [DoG(), ADoG(), ADoG(probe=True), DoG(probe=True)])
def test_operators_alone_are_used(rule):
    assert_operators_alone_are_used(rule, 11)


# --- the probe ------------------------------------------------------------------------------------


@both
def test_the_probe_asks_for_the_start_once_and_finds_the_scale(kind_of_rule):
    """From 0 to the minimum at 50 it starts within a factor of ten, not at 1e-6."""
    asked = []

    def oracle(x):
        asked.append(float(x[0]))
        return KnownEvaluation(x, 0.5 * (x[0] - 50) ** 2, x - 50)

    rule = kind_of_rule(probe=True)
    step = rule.step(rule.init(np.zeros(1)), oracle)
    assert asked.count(0.0) == 1
    assert 5 <= step.weight <= 50 * (1 + 1e-6)  # r_0
    calls = len(asked)
    rule.step(step.state, oracle)
    assert len(asked) == calls + 1


@both
def test_the_probe_stops_where_the_function_ends(kind_of_rule):
    """-log(20 - x) - 2 x, with its minimum at 19.5 and nothing beyond 20."""

    def oracle(x):
        if x[0] >= 20:
            raise NonFiniteError("the value is inf")
        return KnownEvaluation(x, -np.log(20 - x[0]) - 2 * x[0], 1 / (20 - x) - 2)

    rule = kind_of_rule(probe=True)
    assert 2 <= rule.step(rule.init(np.zeros(1)), oracle).weight < 20


@both
def test_a_radius_that_is_given_is_not_probed(kind_of_rule):
    fun, x0 = make("smooth", 12)
    given, asked = kind_of_rule(0.25, probe=True), []
    step = given.step(given.init(x0), lambda x: asked.append(x) or KnownEvaluation(x, *fun(x)))
    assert len(asked) == 1
    assert step.weight == 0.25


# --- bad parameters -------------------------------------------------------------------------------


@both
def test_bad_parameters_are_refused(kind_of_rule):
    for bad in (0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="initial_radius must be a finite number > 0"):
            kind_of_rule(bad)
    with pytest.raises(TypeError, match="initial_radius must be a finite number > 0, not 'auto'"):
        kind_of_rule("auto")
