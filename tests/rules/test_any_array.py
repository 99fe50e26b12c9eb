"""Rules on matrices and trees of NumPy, torch and (compiled) JAX do what they do on a vector."""

import pickle
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax import lax

import accelegrad as ag
from accelegrad import rules
from accelegrad.rules import QueryRule, Rescaled, Rule, UntunedAcceleGrad
from accelegrad.rules.arrays import Tree, as_array, inner, larger, leaves, where
from accelegrad.rules.base import ABILITIES, KnownEvaluation
from accelegrad.rules.unixgrad import TwoPhaseRule

STEPS = 300
FEW_STEPS = 60  # where Python goes through a tree, or NumPy does what it did on the vector
SIZE = 12

# -- points of every shape and library -----------------------------------------------------------


SHAPES = {
    "vector": lambda x: x,
    "matrix": lambda x: x.reshape(3, 4),
    "tree": lambda x: {"a": x[:6].reshape(2, 3), "b": ([x[6:]],)},
}


def mapped(function, content):
    """Return a tree with each array replaced."""
    return jax.tree.map(function, getattr(content, "content", content))


def entries(content):
    """Return all entries, in the order of the vector."""
    return np.concatenate([np.ravel(np.asarray(leaf)) for leaf in leaves(content)])


# -- the function: smooth, with curvatures from 0.04 to 1, its minimiser not at the start ----------

rng = np.random.default_rng(14)
START = 0.3 * rng.standard_normal(SIZE)
TARGET = START + rng.standard_normal(SIZE)
CURVATURE = np.linspace(0.2, 1.0, SIZE) ** 2


class Problem(NamedTuple):
    """sum_j c_j (x_j - a_j)^2 / 2 in arrays of some kind."""

    start: Any
    target: Any
    curvature: Any

    def gradient(self, x):
        return as_array(self.curvature) * (as_array(x) - as_array(self.target))

    def value(self, x):
        return inner(self.gradient(x), as_array(x) - as_array(self.target)) / 2

    def oracle(self, x):
        return KnownEvaluation(x, float(self.value(x)), self.gradient(x))


def problem(shape, array):
    """Return the function in this shape, each array made by a function of a NumPy array."""
    return Problem(*(mapped(array, SHAPES[shape](part)) for part in (START, TARGET, CURVATURE)))


# -- a set, a term and a change of coordinates, for arrays of any kind ---------------------------


def onto_ball(x):
    """Project onto the ball of radius 2 around the origin, which holds the start only."""
    square = inner(x, x)
    return where(square > 4.0, 2.0 / square**0.5, 1.0) * x


def onto_box(x):
    """Project onto the box [-1, 1]^d, which holds the start only."""
    return -larger(-larger(x, -1.0 + 0 * x), -1.0 + 0 * x)


def soft(x, step):
    shrunk = abs(x) - 0.05 * step
    return where(x > 0, 1.0, -1.0) * larger(0 * x, shrunk)


RULES: dict[str, Rule] = {
    "accelegrad, G": ag.AcceleGrad(4.0, 0.5, onto_ball),
    "accelegrad, all projected": ag.AcceleGrad(4.0, project=onto_ball, project_y=True),
    "linear coupling, ball": ag.LinearCoupling(1.0, onto_ball, project_y=True),
    "adagrad, ball": ag.AdaGrad(4.0, onto_ball),
    "subgradient": ag.Subgradient(0.5),
    "diagonal, box": ag.DiagonalAcceleGrad(2.0, 0.1, project=onto_box, project_y=True),
    "diagonal, auto": ag.DistanceFreeDiagonalAcceleGrad(0.1),
    "diagonal, auto, box": ag.DistanceFreeDiagonalAcceleGrad(0.1, None, onto_box, True),
    "auto": ag.DistanceFreeAcceleGrad(),
    "auto, z in ball, capped": ag.DistanceFreeAcceleGrad(0.5, None, 1.0, onto_ball, False),
    "auto, ball": ag.DistanceFreeAcceleGrad(0.01, project=onto_ball),
    "auto, box, prox": ag.DistanceFreeAcceleGrad(0.01, project=onto_box, prox=soft),
    "dog, ball": ag.DoG(0.1, project=onto_ball),
    "a-dog, ball": ag.ADoG(0.1, project=onto_ball),
    "unixgrad, ball": ag.UniXGrad(4.0, 1.0, onto_ball),
    "unixgrad, prox": ag.UniXGrad(4.0, prox=soft),
    "u-dog, ball": ag.UDoG(0.1, project=onto_ball),
    "untuned, radius": UntunedAcceleGrad(first_radius=0.1),
    "untuned, one step, ball": UntunedAcceleGrad(False, 0.1, project=onto_ball),
    "untuned, box, prox": UntunedAcceleGrad(True, 0.1, project=onto_box, prox=soft),
}


def moved(rule, state, fun):
    """Do a step of whatever rule by its formulas."""
    first = fun.gradient(rule.query(state))
    if isinstance(rule, TwoPhaseRule):
        ahead = rule.look_ahead(state, first)
        return rule.update(ahead, first, fun.gradient(rule.second_query(ahead)))
    return rule.update(state, first)


def walk(rule, fun, steps=STEPS):
    """Return the output, the last iterate and the step size after each step."""
    state, seen = rule.init(fun.start), []
    for _ in range(steps):
        state = moved(rule, state, fun)
        seen.append((entries(rule.output(state)), entries(rule.last(state)), state.step_size))
    return [np.array(column, dtype=float) for column in zip(*seen, strict=True)]


def scan(rule, fun):
    """Do the same compiled by JAX."""

    def body(state, _):
        state = moved(rule, state, fun)
        return state, (rule.output(state), rule.last(state), state.step_size)

    @jax.jit
    def whole(start):
        return lax.scan(body, rule.init(start), None, length=STEPS)[1]

    outputs, lasts, sizes = whole(fun.start)
    return each_step(outputs), each_step(lasts), np.asarray(sizes)


def each_step(columns):
    """Return all entries at each step, of arrays that have the steps in front."""
    steps = mapped(lambda part: np.moveaxis(np.asarray(part).reshape(STEPS, -1), 0, -1), columns)
    return entries(steps).reshape(-1, STEPS).T


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


#: The evidence for its radius has differences of near points in it, x - y, divided by the step.
TOLERANCE = {"untuned, box, prox": 1e-11}


def assert_same(found, expected, tolerance=1e-12):
    size = max(np.abs(START).max(), np.abs(expected[1]).max())
    for name, one, other in zip(("output", "last"), found[:2], expected[:2], strict=True):
        error = np.abs(one - other).max(axis=1) / size
        assert error.max() <= tolerance, f"{name} differs by {error.max():.1e}"
    # Later, that of a step for each coordinate is a mean over gradients that are mostly rounding.
    np.testing.assert_allclose(found[2][:30], expected[2][:30], rtol=1e-9)


@pytest.mark.parametrize("name", RULES)
def test_every_library_does_the_same_steps(name, x64):
    rule, expected = RULES[name], walk(RULES[name], problem("vector", np.array))
    assert np.linalg.norm(expected[1][-1] - START) > 0.5  # it goes somewhere
    few, tolerance = [column[:FEW_STEPS] for column in expected], TOLERANCE.get(name, 1e-12)
    for shape in ("matrix", "tree"):
        for array in (np.array, torch.tensor):
            found = walk(rule, problem(shape, array), FEW_STEPS)
            assert_same(found, few, tolerance)
    assert_same(scan(rule, problem("tree", jnp.asarray)), expected, tolerance)


@pytest.mark.parametrize("kind", [ag.DoG, ag.UDoG, ag.DistanceFreeDiagonalAcceleGrad])
def test_every_library_finds_the_same_radius(kind, x64):
    """From the difference of two slopes at a distance of 1e-6: rounding is 1e-10 of that."""
    rule, found = kind(probe=True, project=onto_box), []
    for shape, array in (("vector", np.array), ("tree", torch.tensor), ("tree", jnp.asarray)):
        fun = problem(shape, array)
        state = rule.init(fun.start)
        found.append(float(rule.prepared(state, fun.oracle)[0].radius))
        assert found[-1] > 10 * float(state.radius)
    assert found == pytest.approx([found[0]] * 3, rel=1e-8)


@pytest.mark.parametrize("name", RULES)
def test_a_state_can_be_pickled(name):
    rule, fun = RULES[name], problem("vector", np.array)
    state = moved(rule, rule.init(fun.start), fun)
    copy = pickle.loads(pickle.dumps(state))
    assert type(copy) is type(state)
    np.testing.assert_array_equal(rule.output(copy), rule.output(state))


# -- long sums -----------------------------------------------------------------------------------


@pytest.mark.parametrize("array", [np.array, torch.tensor, jnp.asarray])
def test_long_sums_are_accurate_though_the_arrays_are_float32(array):
    rule = ag.AdaGrad(1.0)
    gradients = np.random.default_rng(3).standard_normal((20_000, SIZE)).astype(np.float32)
    state = rule.init(array(START.astype(np.float32)))
    update = jax.jit(rule.update) if array is jnp.asarray else rule.update
    for gradient in gradients:
        state = update(state, array(gradient))
    exact = np.square(gradients, dtype=np.float64).sum()
    assert float(state.squares) == pytest.approx(exact, rel=1e-6)
    assert state.weight_sum == 20_000
    assert str(state.query_point.dtype).endswith("float32")
    assert str(rule.output(state).dtype).endswith("float32")


CLOSE = ("adagrad, ball", "auto", "u-dog, ball", "untuned, radius")


@pytest.mark.parametrize("name", RULES)
def test_float32_steps_are_traced_too(name):
    """The types of a state stay as they are: `scan` demands it. Some are compared too."""
    rule, fun = RULES[name], problem("vector", lambda x: jnp.asarray(x, dtype=jnp.float32))
    if "radius" in rule.can:  # the smallest radius, 1e-6, would be rounding
        rule = rule.with_radius(0.1)

    def whole(start):
        state, _ = lax.scan(lambda s, _: (moved(rule, s, fun), None), rule.init(start), length=30)
        return rule.output(state), rule.last(state)

    assert [point.dtype for point in jax.eval_shape(whole, fun.start)] == 2 * [jnp.float32]
    if name in CLOSE:
        plain = problem("vector", np.array)
        state = rule.init(plain.start)
        for _ in range(30):
            state = moved(rule, state, plain)
        np.testing.assert_allclose(jax.jit(whole)(fun.start)[1], rule.last(state), atol=1e-3)


# -- what rules say of themselves ----------------------------------------------------------------


def public_rules():
    return [getattr(rules, name) for name in rules.__all__ if not name.endswith("Rule")]


def test_every_rule_that_asks_for_gradients_is_tested_here():
    tested = {type(rule) for rule in RULES.values()}
    asking = {kind for kind in public_rules() if issubclass(kind, QueryRule | TwoPhaseRule)}
    assert asking <= tested


@pytest.mark.parametrize("kind", [kind for kind in public_rules() if kind is not Rescaled])
def test_a_rule_has_what_it_says_it_can_do(kind):
    fields = set(kind.__dataclass_fields__)
    assert kind.can <= set(ABILITIES)
    for name in ("project", "project_y", "prox", "largest_radius", "probe"):
        assert (name in kind.can) == (name in fields)
    assert ("radius" in kind.can) == ("initial_radius" in fields)


@pytest.mark.parametrize(
    "kind", [ag.UniversalGradient, ag.UniversalDualGradient, ag.UniversalFastGradient]
)
def test_line_searches_run_on_torch(kind):
    rule = kind(0.1, 0.7, onto_ball)
    found = []
    for array in (np.array, torch.tensor):
        fun = problem("matrix", array)
        state = rule.init(fun.start)
        for _ in range(50):
            state = rule.step(state, fun.oracle).state
        found.append(entries(rule.output(state)))
    np.testing.assert_allclose(found[1], found[0], atol=1e-12)


def test_leaves_come_in_the_order_of_jax():
    content = {"b": np.ones(1), "a": (np.zeros(2), [np.full(3, 2.0)])}
    assert all(x is y for x, y in zip(leaves(content), jax.tree.leaves(content), strict=True))
    assert inner(content, content) == 13.0
    assert list((2 * Tree(content))["b"]) == [2.0]
