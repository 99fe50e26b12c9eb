"""What every rule has in common: invariances, states, sets, the probe, and refused parameters.

One list of rules, one of functions; the tests are products of the two.
"""

import numpy as np
import pytest
from scipy.optimize import minimize

from accelegrad.errors import NonFiniteError
from accelegrad.geometry.sets import Ball, Box, Simplex
from accelegrad.rules import (
    AcceleGrad,
    AdaGrad,
    ADoG,
    DiagonalAcceleGrad,
    DistanceFreeAcceleGrad,
    DistanceFreeDiagonalAcceleGrad,
    DoG,
    LinearCoupling,
    Subgradient,
    UDoG,
    UniversalDualGradient,
    UniversalFastGradient,
    UniversalGradient,
    UniXGrad,
    UntunedAcceleGrad,
)
from accelegrad.rules.base import KnownEvaluation
from accelegrad.rules.distance import smallest_radius
from stepping import gaps, make, oracle_of, run, same
from toys import FlatQuadratic, LeastSquares, slope

#: Each as a function of a length, which is all that it is told of the scale, and of a set
RULES = {
    "accelegrad": lambda s=1.0, project=None: AcceleGrad(3 * s, project=project, project_y=True),
    "adagrad": lambda s=1.0, project=None: AdaGrad(3 * s, project),
    "auto": lambda s=1.0, project=None: DistanceFreeAcceleGrad(0.01 * s, project=project),
    "dog": lambda s=1.0, project=None: DoG(0.01 * s, project=project),
    "a-dog": lambda s=1.0, project=None: ADoG(0.01 * s, project=project),
    "unixgrad": lambda s=1.0, project=None: UniXGrad(3 * s, project=project),
    "u-dog": lambda s=1.0, project=None: UDoG(0.01 * s, project=project),
    "untuned": lambda s=1.0, project=None: UntunedAcceleGrad(False, 0.01 * s, project=project),
    "untuned, diagonal": lambda s=1.0, project=None: UntunedAcceleGrad(
        True, 0.01 * s, project=project
    ),
    "diagonal": lambda s=1.0, project=None: DiagonalAcceleGrad(
        3 * s, project=project, project_y=True
    ),
    "diagonal, auto": lambda s=1.0, project=None: DistanceFreeDiagonalAcceleGrad(
        0.01 * s, project=project, project_y=True
    ),
}
DIAGONAL = ("untuned, diagonal", "diagonal", "diagonal, auto")
#: Those whose steps depend on the size of the function
TOLD = {
    "linear coupling": LinearCoupling(2.0),
    "subgradient": Subgradient(0.1),
    "universal": UniversalGradient(0.1),
    "universal, dual": UniversalDualGradient(0.1),
    "universal, fast": UniversalFastGradient(0.1),
}
every_rule = pytest.mark.parametrize("name", RULES)
probing = pytest.mark.parametrize("kind_of_rule", [DoG, ADoG, UDoG, DistanceFreeAcceleGrad])


@every_rule
def test_scaling_the_function_leaves_the_iterates(name):
    fun, x0 = make("smooth", 6)
    scaled = lambda x: (1e-12 * fun(x)[0], 1e-12 * fun(x)[1])  # noqa: E731
    rule = RULES[name](project=Box(x0 - 1.0, x0 + 0.5).project)
    here, there = (run(rule, x0, oracle_of(f), 100) for f in (fun, scaled))
    for t, (a, b) in enumerate(zip(here, there, strict=True)):
        same(rule.output(a), rule.output(b), "output", t)
        same(rule.last(a), rule.last(b), "last", t)


@pytest.mark.parametrize("name", [name for name in RULES if name not in DIAGONAL])
def test_translations_and_rotations_move_the_iterates_along(name):
    fun, x0 = make("smooth", 7)
    rng = np.random.default_rng(8)
    Q, v = np.linalg.qr(rng.standard_normal((12, 12)))[0], rng.standard_normal(12)

    def moved(u):
        value, gradient = fun(Q.T @ (u - v))
        return value, Q @ gradient

    start = Q @ x0 + v
    here = run(RULES[name](project=Ball(x0, 1.0).project), x0, oracle_of(fun), 100)
    there = run(RULES[name](project=Ball(start, 1.0).project), start, oracle_of(moved), 100)
    rule = RULES[name]()
    for t, (a, b) in enumerate(zip(here, there, strict=True)):
        same(rule.output(b), Q @ rule.output(a) + v, "output", t, 1e-11)
        same(rule.last(b), Q @ rule.last(a) + v, "last", t, 1e-11)


@every_rule
def test_scaling_the_space_scales_the_iterates(name):
    """With a diameter or first radius in proportion: all that a rule is told of the scale."""
    fun, x0 = make("smooth", 9)
    s = 2.0**13
    if name.startswith("untuned"):
        x0 = 0 * x0  # where it is near to x0 it asks by the size of x0, and not by its radius
    stretched = lambda u: (fun(u / s)[0], fun(u / s)[1] / s)  # noqa: E731
    rule, wide = RULES[name](), RULES[name](s)
    here = run(rule, x0, oracle_of(fun), 200)
    there = run(wide, s * x0, oracle_of(stretched), 200)
    if name.startswith("untuned"):
        here, there = here[:10], there[:10]
    for t, (a, b) in enumerate(zip(here, there, strict=True)):
        same(rule.output(b) / s, rule.output(a), "output", t, 1e-11)


def all_rules():
    return [*(make() for make in RULES.values()), *TOLD.values()]


@pytest.mark.parametrize("rule", all_rules(), ids=[*RULES, *TOLD])
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
    rule = RULES[name]()
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


@pytest.mark.parametrize(
    ("rule", "steepest", "flattest"),
    [
        (DistanceFreeAcceleGrad(probe=True), -9.0, -1.9),
        (ADoG(probe=True), -9.0, -1.9),
        (DoG(probe=True), -1.5, -0.8),
    ],
)
def test_rates_on_a_smooth_function_that_is_not_strongly_convex(rule, steepest, flattest):
    fun, horizons = FlatQuadratic(), np.unique(np.logspace(1.5, 3.3, 20).astype(int))
    assert steepest <= slope(horizons, gaps(rule, fun, fun.x0, 0.0, horizons)) <= flattest


# --- sets -----------------------------------------------------------------------------------------


def constrained(name):
    """Return a set of ten variables, and what SLSQP has to know of it."""
    if name == "simplex":
        total = {"type": "eq", "fun": lambda x: x.sum() - 1, "jac": lambda x: np.ones((1, 10))}
        return Simplex(), {"constraints": [total], "bounds": [(0, None)] * 10}
    if name == "box":
        return Box(np.zeros(10), np.full(10, 0.2)), {"bounds": [(0, 0.2)] * 10}
    within = {"type": "ineq", "fun": lambda x: 1 - x @ x, "jac": lambda x: -2 * x[None]}
    return Ball(np.zeros(10), 1.0), {"constraints": [within]}


#: With the steps, and how near last point and output come; None: the theorem is not about it
SOLVERS = {
    "dog": (lambda K: DoG(probe=True, project=K.project), 2000, 1e-6, 1e-3),
    "a-dog": (lambda K: ADoG(probe=True, project=K.project), 2000, 1e-6, 1e-3),
    "unixgrad": (lambda K: UniXGrad(K.diameter_for(10), project=K.project), 4000, None, 1e-6),
    "u-dog": (lambda K: UDoG(probe=True, project=K.project), 2000, None, 1e-6),
    "auto": (lambda K: DistanceFreeAcceleGrad(probe=True, project=K.project), 2000, 1e-6, 1e-3),
}


@pytest.mark.parametrize("name", ["simplex", "box", "ball"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_constrained_minima_against_slsqp(name, solver):
    fun, x0 = LeastSquares.random(40, 10, 5), np.full(10, 0.1)
    feasible, options = constrained(name)
    other = minimize(fun, x0, jac=True, method="SLSQP", options={"ftol": 1e-15}, **options)
    assert other.success
    make_rule, steps, near, average = SOLVERS[solver]
    rule, points = make_rule(feasible), []

    def oracle(x):
        points.append(x)
        return KnownEvaluation(x, *fun(x))

    state = rule.init(x0)
    for _ in range(steps):
        state = rule.step(state, oracle).state
    assert all(feasible.contains(x) for x in [*points, rule.output(state), rule.last(state)])
    if near is not None:
        assert fun(rule.last(state))[0] == pytest.approx(other.fun, rel=near)
    assert fun(rule.output(state))[0] == pytest.approx(other.fun, rel=average)


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
    assert len(asked) == calls + (2 if kind_of_rule is UDoG else 1)


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


@probing
def test_a_radius_that_is_given_is_not_probed(kind_of_rule):
    _, x0 = make("smooth", 12)
    given, asked = kind_of_rule(0.25, probe=True), []
    state, _ = given.prepared(given.init(x0), lambda x: asked.append(x))
    assert not asked
    assert state.radius == 0.25
    assert kind_of_rule().init(x0).radius == smallest_radius(x0)


# --- bad parameters -------------------------------------------------------------------------------

ABOVE_ZERO = {
    "diameter": [AcceleGrad, AdaGrad, UniXGrad, DiagonalAcceleGrad],
    "initial_radius": [DistanceFreeAcceleGrad, DoG, ADoG, UDoG, DistanceFreeDiagonalAcceleGrad],
    "first_radius": [lambda given: UntunedAcceleGrad(first_radius=given)],
    "gradient_scale": [lambda given: UniXGrad(1.0, given)],
    "largest_radius": [lambda given: DistanceFreeAcceleGrad(largest_radius=given)],
    "smoothness": [LinearCoupling],
    "step_size": [Subgradient],
    "epsilon": [UniversalGradient, UniversalDualGradient, UniversalFastGradient],
}


@pytest.mark.parametrize("name", ABOVE_ZERO)
def test_bad_numbers_are_refused(name):
    for kind in ABOVE_ZERO[name]:
        for bad in (0, -1.0, np.nan, np.inf):
            with pytest.raises(ValueError, match=f"{name} must be a finite number > 0"):
                kind(bad)
        with pytest.raises(TypeError, match=f"{name} must be a finite number > 0, not 'auto'"):
            kind("auto")
