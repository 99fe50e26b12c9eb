"""The transformations of `accelegrad.optax` take the steps of the core's rules, in float64."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax

import accelegrad as ag
from accelegrad import errors
from accelegrad.optax import a_dog, accelegrad, adagrad_norm, eval_params, unixgrad
from accelegrad.rules import UntunedAcceleGrad
from accelegrad.rules.unixgrad import TwoPhaseRule
from processes import run_python

STEPS = 100
SIZE = 12

rng = np.random.default_rng(16)
START = 0.3 * rng.standard_normal(SIZE)
TARGET = START + rng.standard_normal(SIZE)
CURVATURE = np.linspace(0.2, 1.0, SIZE) ** 2


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


# -- parameters of many shapes -------------------------------------------------------------------


class Layer(NamedTuple):
    weight: jax.Array
    bias: jax.Array | None


def split(x):
    """Return a vector as a tree: nested, with a number alone and a part that is missing."""
    return {"first": Layer(x[:6].reshape(2, 3), None), "rest": [x[6], {"b": x[7:11], "a": x[11:]}]}


def joined(tree):
    parts = (tree["first"].weight, tree["rest"][0], tree["rest"][1]["b"], tree["rest"][1]["a"])
    return np.concatenate([np.reshape(part, (STEPS, -1)) for part in parts], axis=1)


def gradient(x):
    return CURVATURE * (x - TARGET)


def tree_gradient(params):
    return jax.tree.map(lambda c, x, a: c * (x - a), split(CURVATURE), params, split(TARGET))


# -- sets and terms, for trees of JAX and for NumPy's vectors ---------------------------------------


def onto_box(tree):
    return jax.tree.map(lambda x: jnp.clip(x, -1.0, 1.0), tree)


def onto_ball(tree):
    return optax.projections.projection_l2_ball(tree, 2.0)


def soft(tree, step):
    if not isinstance(step, dict):  # one number for all coordinates
        step = jax.tree.map(lambda _: step, tree)
    return jax.tree.map(
        lambda x, s: jnp.sign(x) * jnp.maximum(jnp.abs(x) - 0.05 * s, 0), tree, step
    )


def numpy_soft(x, step):
    return np.sign(x) * np.maximum(np.abs(x) - 0.05 * step, 0)


box, ball = ag.Box(-1.0, 1.0).project, ag.Ball(0.0, 2.0).project


#: A transformation, and the rule of the core that it has to follow.
CASES = {
    "auto": (accelegrad(), UntunedAcceleGrad()),
    "auto, scaled": (accelegrad(0.3, initial_radius=0.1), UntunedAcceleGrad(True, 0.1, rate=0.3)),
    "auto, one step": (accelegrad(diagonal=False), UntunedAcceleGrad(diagonal=False)),
    "auto, ball": (accelegrad(projection=onto_ball), ag.DistanceFreeAcceleGrad(project=ball)),
    "auto, box": (
        accelegrad(diagonal=True, projection=onto_box),
        ag.DistanceFreeDiagonalAcceleGrad(project=box, project_y=True),
    ),
    "auto, ball, prox": (
        accelegrad(projection=onto_box, prox=soft),
        ag.DistanceFreeAcceleGrad(project=box, prox=numpy_soft),
    ),
    "auto, prox": (accelegrad(prox=soft), UntunedAcceleGrad(diagonal=False, prox=numpy_soft)),
    "auto, diagonal prox": (
        accelegrad(diagonal=True, prox=soft),
        UntunedAcceleGrad(prox=numpy_soft),
    ),
    "diameter": (accelegrad(diameter=4.0), ag.AcceleGrad(4.0)),
    "diameter, scaled": (
        accelegrad(0.5, diameter=4.0, gradient_bound=0.5),
        ag.AcceleGrad(2.0, 0.5),
    ),
    "diameter, ball": (
        accelegrad(diameter=4.0, projection=onto_ball),
        ag.AcceleGrad(4.0, project=ball, project_y=True),
    ),
    "diameter, diagonal": (
        accelegrad(diameter=2.0, diagonal=True, gradient_bound=0.1),
        ag.DiagonalAcceleGrad(2.0, 0.1),
    ),
    "unixgrad": (unixgrad(0.5, diameter=8.0), ag.UniXGrad(4.0)),
    "unixgrad, ball, prox": (
        unixgrad(diameter=4.0, gradient_scale=1.0, projection=onto_box, prox=soft),
        ag.UniXGrad(4.0, 1.0, box, numpy_soft),
    ),
    "unixgrad, auto": (unixgrad(initial_radius=0.01), ag.UDoG(0.01)),
    "a-dog": (a_dog(initial_radius=0.01, projection=onto_ball), ag.ADoG(0.01, project=ball)),
    "adagrad": (adagrad_norm(0.5, diameter=8.0), ag.AdaGrad(4.0)),
    "adagrad, auto": (adagrad_norm(), UntunedAcceleGrad(diagonal=False, momentum=False)),
    "adagrad, auto, ball": (
        adagrad_norm(projection=onto_ball),
        UntunedAcceleGrad(diagonal=False, momentum=False, project=ball),
    ),
    "dog": (adagrad_norm(initial_radius=0.01), ag.DoG(0.01)),
}


def start_of(rule):
    """A radius that starts at 1e-6 sees the rounding of x0 as 1e-10 of all distances from it."""
    return np.zeros(SIZE) if isinstance(rule, UntunedAcceleGrad) else START


def core_walk(rule):
    """Return the queries and the averages of the rule, of every query one."""
    state, queries, averages = rule.init(start_of(rule)), [], []
    while len(queries) < STEPS:
        first = gradient(rule.query(state))
        if isinstance(rule, TwoPhaseRule):
            ahead = rule.look_ahead(state, first)
            second = rule.second_query(ahead)
            queries.append(second)
            averages.append(second)
            state = rule.update(ahead, first, gradient(second))
        else:
            state = rule.update(state, first)
        queries.append(rule.query(state))
        averages.append(rule.output(state))
    return np.array(queries), np.array(averages)


def walk(optimizer, start, slope=tree_gradient):
    """Return the same of a transformation, compiled."""

    @jax.jit
    def whole(params):
        def body(carry, _):
            params, state = carry
            updates, state = optimizer.update(slope(params), state, params)
            params = optax.apply_updates(params, updates)
            return (params, state), (params, eval_params(state, params))

        return lax.scan(body, (params, optimizer.init(params)), length=STEPS)[1]

    return whole(start)


@pytest.mark.parametrize("name", CASES)
def test_steps_are_those_of_the_core(name):
    optimizer, rule = CASES[name]
    start = start_of(rule)
    found = [joined(part) for part in walk(optimizer, split(jnp.asarray(start)))]
    expected = core_walk(rule)
    assert np.linalg.norm(expected[0][-1] - start) > 0.5  # it goes somewhere
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12 * np.abs(other).max())


@pytest.mark.parametrize("diagonal", [True, False])
def test_what_noise_teaches_is_what_it_teaches_the_core(diagonal):
    """Until the radius is settled, and while the average grows from there on."""
    noise = 0.1 * np.random.default_rng(17).standard_normal((STEPS, SIZE))
    rule = UntunedAcceleGrad(diagonal)
    expected, optimizer = rule.init(START), accelegrad(diagonal=diagonal)
    params = split(jnp.asarray(START))
    state, update = optimizer.init(params), jax.jit(optimizer.update)
    for t in range(STEPS):
        slope = jax.tree.map(jnp.add, tree_gradient(params), split(noise[t]))
        updates, state = update(slope, state, params)
        params = optax.apply_updates(params, updates)
        expected = rule.update(expected, gradient(rule.query(expected)) + noise[t])
        for name in ("radius", "evidence", "agreement", "compared", "last_growth", "averaged"):
            found = float(getattr(state.steps, name))
            assert found == pytest.approx(getattr(expected, name), rel=1e-10, abs=1e-12), (t, name)
    assert 10 < expected.averaged < STEPS - 10


def test_weight_decay_is_a_term_of_the_loss():
    decayed = accelegrad(diameter=4.0, weight_decay=0.1)
    plain = walk(accelegrad(diameter=4.0), jnp.asarray(START), lambda x: gradient(x) + 0.1 * x)
    found = walk(decayed, jnp.asarray(START), gradient)
    np.testing.assert_allclose(found[0], plain[0], rtol=0, atol=1e-12)


def test_a_schedule_multiplies_each_step():
    """Of the fixed diameter the step is proportional to it: a schedule is a diameter that varies."""
    rates = jnp.linspace(1.0, 0.2, STEPS)
    found, _ = walk(
        accelegrad(lambda count: rates[count], diameter=4.0), jnp.asarray(START), gradient
    )
    rule, state, expected = ag.AcceleGrad(4.0), ag.AcceleGrad(4.0).init(START), []
    for rate in np.asarray(rates):
        rule = ag.AcceleGrad(4.0 * rate)
        state = rule.update(state, gradient(rule.query(state)))
        expected.append(rule.query(state))
    np.testing.assert_allclose(found, np.array(expected), rtol=0, atol=1e-12)


# -- shards --------------------------------------------------------------------------------------

SHARDED = """
import jax, jax.numpy as jnp, numpy as np, optax
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from accelegrad.optax import accelegrad, eval_params, unixgrad

jax.config.update("jax_enable_x64", True)
rng = np.random.default_rng(3)
start = {"w": rng.standard_normal((2, 8, 3)), "b": rng.standard_normal(16)}
target = {"w": rng.standard_normal((2, 8, 3)), "b": rng.standard_normal(16)}
specs = {"w": PartitionSpec(None, "x"), "b": PartitionSpec("x")}
mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Explicit,))
box = optax.projections.projection_non_negative
OPTIMIZERS = [accelegrad(), unixgrad(diameter=4.0, projection=box)]

def walk(optimizer, params, goal):
    def step(params, state):
        grads = jax.tree.map(lambda x, a: x - a, params, goal)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    state = optimizer.init(params)
    before = jax.tree.map(jax.typeof, state)
    step = jax.jit(step, donate_argnums=(0, 1))
    for _ in range(30):
        params, state = step(params, state)
    assert jax.tree.map(jax.typeof, state) == before, "the types or shards of the state changed"
    return params, eval_params(state, params)

def on(mesh, tree, dtype=np.float64):
    put = lambda x, spec: jax.device_put(x.astype(dtype), NamedSharding(mesh, spec))
    return jax.tree.map(put, tree, specs)

for optimizer in OPTIMIZERS:
    whole = walk(optimizer, jax.tree.map(jnp.asarray, start), jax.tree.map(jnp.asarray, target))
    with jax.set_mesh(mesh):
        parts = walk(optimizer, on(mesh, start), on(mesh, target))
        assert parts[0]["b"].sharding.spec == PartitionSpec("x"), parts[0]["b"].sharding
        assert len(parts[1]["w"].addressable_shards) == 8
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(parts), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=0, atol=1e-12)

with jax.set_mesh(mesh):  # without jit, and of few bits
    params = on(mesh, start, np.float16)
    state = accelegrad().init(params)
    _, following = accelegrad().update(params, state, params)
    assert jax.tree.map(jax.typeof, state) == jax.tree.map(jax.typeof, following)
print("equal on", len(jax.devices()), "devices")
"""


def test_shards_take_the_same_steps_and_stay_where_they_are():
    flags = "--xla_force_host_platform_device_count=8"
    assert run_python(SHARDED, XLA_FLAGS=flags) == "equal on 8 devices"


def shrink(x, step):
    return jnp.sign(x) * jnp.maximum(jnp.abs(x) - step, 0)


SCALED = {
    "auto": lambda size: accelegrad(),
    "auto, one step": lambda size: accelegrad(diagonal=False),
    "auto, box": lambda size: accelegrad(projection=optax.projections.projection_non_negative),
    "auto, prox": lambda size: accelegrad(prox=lambda x, step: shrink(x, 0.1 * size * step)),
    "diameter": lambda size: accelegrad(diameter=4.0, gradient_bound=0.5 * size),
    "unixgrad": lambda size: unixgrad(diameter=4.0, gradient_scale=0.5 * size),
    "a-dog": lambda size: a_dog(),
    "adagrad, auto": lambda size: adagrad_norm(),
}


@pytest.mark.parametrize("name", SCALED)
def test_steps_do_not_depend_on_the_size_of_gradients(name):
    """In float32, where the squares of 1e20 and 1e-19 are infinite and zero; the first is zero."""
    goal = jnp.array([0.5, -1.0, 2.0], jnp.float32)
    start = jnp.zeros(3, jnp.float32)

    @jax.jit
    def end(size):
        optimizer = SCALED[name](size)

        def body(t, carry):
            params, state = carry
            slope = (t > 1) * size * (params - goal)
            updates, state = optimizer.update(slope, state, params)
            return optax.apply_updates(params, updates), state

        params, state = lax.fori_loop(0, 60, body, (start, optimizer.init(start)))
        return eval_params(state, params), state.unit

    expected, unit = end(jnp.float32(1.0))
    assert unit == 1
    assert jnp.linalg.norm(expected) > 1e-3
    for size in (2.0**66, 2.0**-63):
        found, unit = end(jnp.float32(size))
        assert (unit > 1) == (size > 1)
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=1e-5)


def test_a_small_learning_rate_gets_a_hint_once():
    errors.rate_hint.cache_clear()
    for rate in (1, 0.1, 0.0, lambda count: 1e-3, jnp.asarray(1e-3)):
        accelegrad(rate)
    with pytest.warns(UserWarning, match="learning_rate is far below 1") as found:
        accelegrad(1e-3)
    adagrad_norm(1e-3)
    assert [warning.filename for warning in found] == [__file__]
