"""The transformations of `accelegrad.optax` take the steps of the core's rules, in float64."""

from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax

from accelegrad.optax import a_dog, accelegrad, adagrad_norm, eval_params, unixgrad
from accelegrad.rules import (
    AcceleGrad,
    AdaGrad,
    ADoG,
    DiagonalAcceleGrad,
    DistanceFreeAcceleGrad,
    DistanceFreeDiagonalAcceleGrad,
    DoG,
    UDoG,
    UniXGrad,
)
from accelegrad.rules.base import TwoPhaseRule
from processes import run_python

STEPS = 100
SIZE = 12

rng = np.random.default_rng(16)
START = 0.3 * rng.standard_normal(SIZE)
TARGET = START + rng.standard_normal(SIZE)
CURVATURE = np.linspace(0.2, 1.0, SIZE) ** 2


@pytest.fixture(autouse=True)
def x64():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


# -- parameters of many shapes -------------------------------------------------------------------


@jax.tree_util.register_dataclass
@partial(jax.tree_util.dataclasses.dataclass) if False else (lambda kind: kind)
class Layer(NamedTuple):
    """A layer, with a part that is missing."""

    weight: jax.Array
    bias: jax.Array | None


def split(x):
    """Return a vector as a tree: nested, with a number alone and a part that is missing."""
    return {
        "first": Layer(x[:6].reshape(2, 3), None),
        "rest": [x[6], {"b": x[7:11], "a": x[11:]}],
    }


def joined(tree):
    parts = (tree["first"].weight, tree["rest"][0], tree["rest"][1]["b"], tree["rest"][1]["a"])
    return np.concatenate([np.ravel(part) for part in parts])
