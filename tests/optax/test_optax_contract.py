"""What optax asks of the optimizers in its `contrib`, and how they go with its other parts."""

import functools
import logging

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax

from accelegrad.optax import a_dog, accelegrad, adagrad_norm, eval_params, unixgrad
from processes import run_python

#: A rule of each kind: one gradient per step, with a set, two gradients per step
OPTIMIZERS = {
    "auto": accelegrad,
    "diagonal diameter": functools.partial(accelegrad, diameter=10.0, diagonal=True),
    "unixgrad auto": unixgrad,
}
each_kind = pytest.mark.parametrize("name", OPTIMIZERS)


def parabola(dtype=jnp.float32):
    """Optax's target: where to start, where to end, and the function."""
    final = jnp.array([1.0, -1.0, 1.0], dtype)
    return jnp.array([-1.0, 10.0, 1.0], dtype), final, lambda x: jnp.sum((x - final) ** 2)


def stepping(optimizer, function, **extra):
    """Return the usual training step, compiled."""

    @jax.jit
    def step(params, state):
        updates, state = optimizer.update(jax.grad(function)(params), state, params, **extra)
        return optax.apply_updates(params, updates), state

    return step


def trained(optimizer, function, params, steps=100):
    """Return the parameters and the state after some steps."""
    step = stepping(optimizer, function)

    @jax.jit
    def whole(params):
        carry = (params, optimizer.init(params))
        return lax.scan(lambda carry, _: (step(*carry), None), carry, length=steps)[0]

    return whole(params)


def assert_close(found, expected, **tolerances):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, **tolerances)


# -- optax's own rules -----------------------------------------------------------------------------


@each_kind
@pytest.mark.parametrize("compiled", [True, False])
def test_extra_arguments_are_accepted_and_nothing_is_compiled_twice(name, compiled, caplog):
    """Without `jit` a `lax.cond` would: its branches are other functions at every call."""
    start, _, function = parabola()
    optimizer = OPTIMIZERS[name]()
    step = stepping(optimizer, function, unknown_to_all=1)
    params, state = start, optax.tree.map_params(optimizer, lambda x: x, optimizer.init(start))
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        for t in range(8):
            if t == (1 if compiled else 4):
                assert [line for line in caplog.messages if "compilation" in line]
                caplog.clear()
            params, state = (step if compiled else step.__wrapped__)(params, state)
    assert not [line for line in caplog.messages if "compilation" in line]


@each_kind
def test_hyperparameters_can_be_injected(name):
    start, _, function = parabola()
    factory = OPTIMIZERS[name]
    known = getattr(factory, "keywords", {})
    injected = optax.inject_hyperparams(getattr(factory, "func", factory))(0.7, **known)
    plain, inside = (trained(one, function, start, 10) for one in (factory(0.7), injected))
    assert_close(inside[0], plain[0], rtol=1e-5)
    assert_close(inside[1].inner_state, plain[1], rtol=1e-4, atol=1e-5)
    assert_close(eval_params(inside[1], inside[0]), eval_params(plain[1], plain[0]), rtol=1e-5)


DTYPES = ("float16", "bfloat16", "float32", "float64")


@each_kind
def test_types_stay_as_they_are(name):
    """Updates have the parameters' type, states float32 or better, whatever came before."""
    for given in DTYPES:
        with jax.enable_x64(given == "float64"):
            dtype = jnp.dtype(given)
            start, _, function = parabola(dtype)
            optimizer = OPTIMIZERS[name](lambda _: 0.5)
            state = optimizer.init(start)
            gradient = jax.grad(function)(start)

            def either(go_on, state, optimizer=optimizer, gradient=gradient, params=start):
                return lax.cond(
                    go_on,
                    lambda: optimizer.update(gradient, state, params),
                    lambda: (params, state),
                )

            # Tracing alone compares the branches' types.
            updates, following = jax.eval_shape(either, True, state)
            assert updates.dtype == dtype
            for before, after in zip(
                jax.tree.leaves(state), jax.tree.leaves(following), strict=True
            ):
                assert (before.dtype, before.shape) == (after.dtype, after.shape)
                assert before.dtype in (jnp.int32, jnp.float32, jnp.float64)
                assert not before.weak_type
                assert (before.dtype == jnp.float64) == (given == "float64") or before.ndim == 0


def test_few_bits_are_no_obstacle():
    """The first steps are far below the rounding of such parameters; they are not lost."""
    start, final, function = parabola(jnp.bfloat16)
    params, state = trained(accelegrad(), function, start, 1000)
    assert params.dtype == jnp.bfloat16
    assert_close(eval_params(state, params).astype(jnp.float32), final, rtol=0.02)
    specs = optax.tree.map_params(accelegrad(), lambda x: x, state)
    assert jax.tree.structure(specs) == jax.tree.structure(state)


# -- with other transformations ----------------------------------------------------------------------


def halves_loss(params):
    return jnp.sum((params["a"] - 1.0) ** 2) + jnp.sum((params["b"]["c"] + 2.0) ** 2)


HALVES = {"a": jnp.zeros(3), "b": {"c": jnp.zeros((2, 2))}}


def test_parameters_can_be_masked_or_shared_out():
    only_a = {"a": True, "b": False}
    frozen = optax.chain(
        optax.masked(accelegrad(), only_a),
        optax.masked(optax.set_to_zero(), {"a": False, "b": True}),
    )
    params, state = trained(frozen, halves_loss, HALVES, 300)
    averaged = eval_params(state, params)
    np.testing.assert_allclose(averaged["a"], 1.0, atol=1e-3)
    assert_close(averaged["b"], HALVES["b"])

    labels = {"a": "ours", "b": "other ours"}
    shared = optax.partition({"ours": accelegrad(), "other ours": unixgrad(diameter=5.0)}, labels)
    params, state = trained(shared, halves_loss, HALVES, 300)
    averaged = eval_params(state, params)
    np.testing.assert_allclose(averaged["a"], 1.0, atol=1e-3)
    np.testing.assert_allclose(averaged["b"]["c"], -2.0, atol=1e-3)


@each_kind
def test_zero_gradients_move_nothing_and_spoil_nothing(name):
    start, _, function = parabola()
    optimizer = OPTIMIZERS[name]()
    update = jax.jit(optimizer.update)
    params, state = start, optimizer.init(start)
    for gradient in (jnp.zeros(3), jnp.zeros(3), jax.grad(function)(start), jnp.zeros(3)):
        updates, state = update(gradient, state, params)
        params = optax.apply_updates(params, updates)
        assert bool(jnp.isfinite(params).all())
        if not gradient.any() and state.count < 3:
            assert_close(updates, jnp.zeros(3), atol=1e-6 * 10)  # an average's rounding
    assert bool(jnp.isfinite(eval_params(state, params)).all())


@each_kind
def test_empty_trees(name):
    optimizer = OPTIMIZERS[name]()
    for empty in ({}, {"a": None}):
        state = optimizer.init(empty)
        updates, following = optimizer.update(empty, state, empty)
        assert updates == empty
        assert jax.tree.structure(following) == jax.tree.structure(state)
        assert eval_params(following, empty) == empty


def test_rate_zero_waits():
    """A warm-up begins with it: nothing moves, and then everything goes on."""
    start, final, function = parabola()
    warm = optax.linear_schedule(0.0, 1.0, 20)
    for optimizer in (accelegrad(warm), accelegrad(warm, prox=lambda x, step: x)):
        updates, _ = optimizer.update(jax.grad(function)(start), optimizer.init(start), start)
        assert_close(updates, jnp.zeros(3))
        params, state = trained(optimizer, function, start, 400)
        assert_close(eval_params(state, params), final, atol=1e-2)


# -- JAX's transformations ---------------------------------------------------------------------------


def test_states_of_shapes_alone():
    shapes = jax.ShapeDtypeStruct((2, 4), jnp.float32)
    state = accelegrad().init(shapes)
    assert state.steps.anchor == shapes


# -- what is wrong is said at once ---------------------------------------------------------------------

WRONG = {
    "learning_rate": [
        (lambda: accelegrad(-1.0), "learning_rate must be a finite number >= 0, but it is -1.0"),
        (lambda: a_dog("fast"), "learning_rate must be .*not 'fast'"),
    ],
    "diameter": [
        (lambda: accelegrad(diameter=-1.0), "diameter must be .* > 0, but it is -1.0"),
        (lambda: unixgrad(diameter="large"), "diameter is 'large'; allowed"),
        (lambda: adagrad_norm(diameter=jnp.nan), "diameter must be"),
    ],
    "other numbers": [
        (lambda: accelegrad(weight_decay=-0.1), "weight_decay must be .* >= 0"),
        (lambda: accelegrad(diameter=1.0, gradient_bound=-1.0), "gradient_bound must be"),
        (lambda: accelegrad(gradient_bound=1.0), "gradient_bound is 1.0, but with diameter='auto'"),
        (lambda: accelegrad(initial_radius=0.0), "initial_radius must be .* > 0"),
        (lambda: accelegrad(diameter=1.0, initial_radius=0.1), "initial_radius is 0.1, but"),
        (lambda: unixgrad(gradient_scale=1.0), "gradient_scale is 1.0, but"),
    ],
    "functions": [
        (lambda: accelegrad(projection=1.0), "projection must be a function .*static_args"),
        (lambda: unixgrad(prox="l1"), "prox must be a function"),
        (lambda: accelegrad(diameter=1.0, prox=lambda x, s: x), "prox needs diameter='auto'"),
    ],
    "diagonal": [
        (lambda: accelegrad(diagonal="yes"), "diagonal is 'yes'; allowed: True, False, 'auto'"),
        (
            lambda: accelegrad(diagonal=True, projection=optax.projections.projection_simplex),
            "diagonal=True needs .*projection_simplex",
        ),
    ],
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_arguments_are_named(kind):
    for call, message in WRONG[kind]:
        with pytest.raises((ValueError, TypeError), match=message):
            call()


def test_wrong_parameters_and_states_are_named():
    optimizer, params = accelegrad(), jnp.zeros(2)
    with pytest.raises(TypeError, match=r"dtype int32.*optax.masked"):
        optimizer.init(jnp.zeros(2, jnp.int32))
    with pytest.raises(TypeError, match=r"dtype complex64.*split_real_and_imaginary"):
        optimizer.init(jnp.zeros(2, jnp.complex64))
    state = optimizer.init(params)
    with pytest.raises(ValueError, match="params must be given to update"):
        optimizer.update(params, state)
    with pytest.raises(ValueError, match="holds no AcceleGradState"):
        eval_params(optax.adam(0.1).init(params), params)
    with pytest.raises(ValueError, match=r"holds 2 states .* share parameters"):
        eval_params((state, state), params)


WITHOUT = """
import sys
for name in sys.argv[1:]:
    sys.modules[name] = None
try:
    import accelegrad.optax
except ImportError as error:
    print(error)
"""
LOADED = "import sys, accelegrad; accelegrad.minimize; print({'jax', 'optax'} & set(sys.modules))"


def test_nothing_is_loaded_before_it_is_asked_for_and_what_is_missing_is_named():
    assert run_python(LOADED) == "set()"
    assert "pip install 'accelegrad[jax]'" in run_python(WITHOUT, "jax")
    assert "pip install 'accelegrad[jax]'" in run_python(WITHOUT, "optax")
