"""What every rule has in common: invariances, states, sets, the probe, and refused parameters.

One list of rules, one of functions; the tests are products of the two.
"""

from itertools import count

import numpy as np
import pytest

import accelegrad as ag
from accelegrad.errors import NonFiniteError
from accelegrad.rules import UntunedAcceleGrad
from accelegrad.rules.base import KnownEvaluation
from accelegrad.rules.distance import smallest_radius
from stepping import make, noisy, oracle_of, run, same, uneven
from toys import LeastSquares

RULES = {
    "accelegrad": ag.AcceleGrad(3.0, project_y=True),
    "adagrad": ag.AdaGrad(3.0),
    "auto": ag.DistanceFreeAcceleGrad(0.01),
    "dog": ag.DoG(0.01),
    "a-dog": ag.ADoG(0.01),
    "unixgrad": ag.UniXGrad(3.0),
    "u-dog": ag.UDoG(0.01),
    "untuned": UntunedAcceleGrad(False, 0.01),
    "untuned, diagonal": UntunedAcceleGrad(True, 0.01),
    "diagonal": ag.DiagonalAcceleGrad(3.0, project_y=True),
    "diagonal, auto": ag.DistanceFreeDiagonalAcceleGrad(0.01, project_y=True),
}
#: Those whose steps depend on the size of the function
TOLD = {
    "linear coupling": ag.LinearCoupling(2.0),
    "subgradient": ag.Subgradient(0.1),
    "universal": ag.UniversalGradient(0.1),
    "universal, dual": ag.UniversalDualGradient(0.1),
    "universal, fast": ag.UniversalFastGradient(0.1),
}
every_rule = pytest.mark.parametrize("name", RULES)
probing = pytest.mark.parametrize(
    "kind_of_rule", [ag.DoG, ag.ADoG, ag.UDoG, ag.DistanceFreeAcceleGrad]
)


@every_rule
def test_scaling_the_function_leaves_the_iterates(name):
    fun, x0 = make("smooth", 6)
    scaled = lambda x: (1e-12 * fun(x)[0], 1e-12 * fun(x)[1])  # noqa: E731
    rule = RULES[name].with_parameters(project=ag.Box(x0 - 1.0, x0 + 0.5).project)
    here, there = (run(rule, x0, oracle_of(f), 100) for f in (fun, scaled))
    for t, (a, b) in enumerate(zip(here, there, strict=True)):
        same(rule.output(a), rule.output(b), "output", t)
        same(rule.last(a), rule.last(b), "last", t)


@pytest.mark.parametrize("rule", [*RULES.values(), *TOLD.values()], ids=[*RULES, *TOLD])
def test_states(rule):
    """Before any step output and last point are x0; states are never changed in place."""
    fun, x0 = make("smooth", 10)
    states = run(rule, x0, oracle_of(fun), 3)
    assert np.array_equal(rule.output(states[0]), x0)
    assert np.array_equal(rule.last(states[0]), x0)
    kept = [[None if part is None else np.copy(part) for part in state] for state in states]
    again = rule.step(states[1], oracle_of(fun)).state
    rule.step(states[-1], oracle_of(fun))
    for state, copy in zip([*states, again], [*kept, kept[2]], strict=True):
        for part, was in zip(state, copy, strict=True):
            assert part is was or np.array_equal(part, was)
    assert isinstance(states[-1].step_size, float)


@every_rule
def test_zero_gradients_give_zero_steps(name):
    rule = RULES[name]
    zero = oracle_of(lambda x: (0.0, np.zeros(3)))
    state = run(rule, np.ones(3), zero, 5)[-1]
    assert state.step_size == 0
    if "radius" in rule.can:
        assert state.radius in (0.01, pytest.approx(0.01 * 3**0.5))
    assert np.array_equal(rule.last(state), np.ones(3))
    np.testing.assert_allclose(rule.output(state), np.ones(3), rtol=1e-15)
    if name == "unixgrad":
        return  # its steps see differences of gradients alone
    state = rule.step(state, oracle_of(lambda x: (0.0, np.ones(3)))).state
    assert np.linalg.norm(rule.last(state) - 1) > 0


# --- the probe ------------------------------------------------------------------------------------


@probing
def test_the_probe_asks_for_the_start_once_and_finds_the_scale(kind_of_rule):
    """From 0 to the minimum at 50 it starts within a factor of ten, not at 1e-6."""
    asked = []

    def oracle(x):
        asked.append(float(x[0]))
        return KnownEvaluation(x, 0.5 * (x[0] - 50) ** 2, x - 50)

    rule = kind_of_rule(probe=True)
    state, _ = rule.prepared(rule.init(np.zeros(1)), oracle)
    assert 5 <= state.radius <= 50 * (1 + 1e-6)
    asked.clear()
    step = rule.step(rule.init(np.zeros(1)), oracle)
    assert asked.count(0.0) == 1
    calls = len(asked)
    rule.step(step.state, oracle)
    assert len(asked) == calls + (2 if kind_of_rule is ag.UDoG else 1)


@probing
def test_the_probe_stops_where_the_function_ends(kind_of_rule):
    """-log(20 - x) - 2 x, with its minimum at 19.5 and nothing beyond 20."""

    def oracle(x):
        if x[0] >= 20:
            raise NonFiniteError("the value is inf")
        return KnownEvaluation(x, -np.log(20 - x[0]) - 2 * x[0], 1 / (20 - x) - 2)

    rule = kind_of_rule(probe=True)
    state, _ = rule.prepared(rule.init(np.zeros(1)), oracle)
    assert 2 <= state.radius < 20
    with pytest.raises(NonFiniteError):
        rule.step(rule.init(np.zeros(1)), lambda x: oracle(x + 20))


@pytest.mark.parametrize("kind_of_rule", [ag.UDoG, ag.DistanceFreeAcceleGrad])
def test_the_probe_follows_the_path_of_proximal_gradient_steps(kind_of_rule):
    """A step that moves the point by so much before the prox is that long times the gradient."""
    asked, x0 = [], np.array([0.0, 0.5])

    def prox(x, step):
        asked.append((np.linalg.norm(x - x0), step))
        return x

    def oracle(x):
        return KnownEvaluation(x, 0.5 * (x - 50) @ (x - 50), x - 50)

    rule = kind_of_rule(probe=True, prox=prox)
    rule.prepared(rule.init(x0), oracle)
    moved, steps = np.array(asked).T
    assert len(asked) >= 3
    np.testing.assert_allclose(moved, steps * np.linalg.norm(x0 - 50), rtol=1e-9)


@probing
def test_a_radius_that_is_given_is_not_probed(kind_of_rule):
    _, x0 = make("smooth", 12)
    given, asked = kind_of_rule(0.25, probe=True), []
    state, _ = given.prepared(given.init(x0), lambda x: asked.append(x))
    assert not asked
    assert state.radius == 0.25
    assert kind_of_rule().init(x0).radius == smallest_radius(x0)


# --- two gradients per step -----------------------------------------------------------------------


two_phases = pytest.mark.parametrize("rule", [ag.UniXGrad(3.0), ag.UDoG(0.01)])


@two_phases
def test_a_first_gradient_of_zero_is_not_the_end(rule):
    """Noise may give a zero at first; the next difference sets the scale."""
    fun = LeastSquares.random(20, 5, 9)
    calls = count()
    gradient = lambda x: 0 * x if next(calls) == 0 else fun(x)[1]  # noqa: E731
    x0 = np.zeros(5)
    state = run(rule, x0, lambda x: KnownEvaluation(x, fun(x)[0], gradient(x)), 300)[-1]
    x_star = fun.minimiser
    assert fun(rule.output(state))[0] - fun(x_star)[0] <= 1e-3 * (fun(x0)[0] - fun(x_star)[0])


# --- one step size per coordinate -----------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_probe_goes_as_far_as_the_value_falls(seed):
    """Along the signs: to within a factor of ten of the lowest point, at a handful of calls."""
    (fun, x0, _), asked = uneven("smooth", seed), []
    oracle = lambda x: asked.append(x) or KnownEvaluation(x, *fun(x))  # noqa: E731
    rule = ag.DistanceFreeDiagonalAcceleGrad(probe=True)
    states = run(rule, x0, oracle, 1)
    assert 3 <= len(asked) <= 15
    units = 1 + np.abs(x0)
    share = states[1].widths / units
    np.testing.assert_allclose(share, share[0], rtol=1e-12)
    bent = fun.A @ (units * np.sign(fun.gradient(x0)))
    lowest = (fun.A @ x0 - fun.b) @ bent / (bent @ bent)
    assert lowest / 10 <= share[0] <= 2 * lowest  # beyond twice as far the value is higher again
    before = len(asked)
    assert rule.step(states[1], oracle).state.iteration == 2
    assert len(asked) == before + 1


# --- AcceleGrad without tuning --------------------------------------------------------------------


def test_noise_limits_acceleration_and_its_absence_does_not():
    rule, fun, weights = UntunedAcceleGrad(), LeastSquares.random(60, 12, 0), {}
    for noise in (0.0, 0.3, 30.0):
        state, gradient = rule.init(make("smooth", 0)[1]), noisy(fun, 7, noise)
        for _ in range(400):
            state = rule.update(state, gradient(rule.query(state)))
        weights[noise] = rule.acceleration(state)
    assert weights[0.0] == pytest.approx(401 / 4)
    assert 4 < weights[0.3] < 60
    assert weights[30.0] < 0.5 * weights[0.3]


@pytest.mark.parametrize("noise", [0.0, 0.2, 1.0])
def test_a_set_that_stops_steps_does_not_make_the_radius_run_away(noise):
    """Of the steps' sum, which the evidence is held against, a set leaves little."""
    gradient = noisy(LeastSquares.random(60, 12, 2), 0, noise)
    rule = UntunedAcceleGrad(diagonal=False, project=ag.Simplex().project)
    state = rule.init(np.full(12, 1 / 12))
    for _ in range(500):
        state = rule.update(state, gradient(rule.query(state)))
    assert ag.Simplex().contains(rule.output(state))
    assert state.radius < 2 * 2**0.5  # twice the simplex's diameter


# --- bad parameters -------------------------------------------------------------------------------

ABOVE_ZERO = {
    "diameter": [ag.AcceleGrad, ag.AdaGrad, ag.UniXGrad, ag.DiagonalAcceleGrad],
    "initial_radius": [
        ag.DistanceFreeAcceleGrad,
        ag.DoG,
        ag.ADoG,
        ag.UDoG,
        ag.DistanceFreeDiagonalAcceleGrad,
    ],
    "first_radius": [lambda given: UntunedAcceleGrad(first_radius=given)],
    "gradient_scale": [lambda given: ag.UniXGrad(1.0, given)],
    "largest_radius": [lambda given: ag.DistanceFreeAcceleGrad(largest_radius=given)],
    "smoothness": [ag.LinearCoupling],
    "step_size": [ag.Subgradient],
    "epsilon": [ag.UniversalGradient, ag.UniversalDualGradient, ag.UniversalFastGradient],
}


@pytest.mark.parametrize("name", ABOVE_ZERO)
def test_bad_numbers_are_refused(name):
    for kind in ABOVE_ZERO[name]:
        for bad in (0, -1.0, np.nan, np.inf):
            with pytest.raises(ValueError, match=f"{name} must be a finite number > 0"):
                kind(bad)
        with pytest.raises(TypeError, match=f"{name} must be a finite number > 0, not 'auto'"):
            kind("auto")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: ag.DiagonalAcceleGrad([1.0, -2.0]),
            r"diameter must be > 0, but diameter\[1\] is -2",
        ),
        (lambda: ag.DiagonalAcceleGrad([[1.0]]), r"diameter must be one-dimensional"),
        (lambda: ag.DiagonalAcceleGrad(1.0, -1.0), "gradient_bound must be a finite number >= 0"),
        (lambda: ag.DiagonalAcceleGrad([1.0, 2.0]).init(np.zeros(3)), r"have x0's shape \(3,\)"),
        (lambda: ag.DistanceFreeDiagonalAcceleGrad([0.0]), r"initial_radius\[0\] is 0"),
        (
            lambda: ag.DistanceFreeDiagonalAcceleGrad([1.0]).init(np.zeros(3)),
            r"have x0's shape \(3,\)",
        ),
        (lambda: UntunedAcceleGrad(rate=-1.0), "rate"),
    ],
)
def test_bad_values(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_widths_are_the_rules_own():
    widths = np.ones(2)
    rule = ag.DiagonalAcceleGrad(widths)
    widths[0] = 5
    assert np.array_equal(rule.diameter, np.ones(2))
