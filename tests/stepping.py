"""What tests that step a rule by hand share: functions, oracles, runs and comparisons."""

from itertools import count

import numpy as np
import pytest

from accelegrad.geometry.sets import Ball, Box
from accelegrad.rules.base import KnownEvaluation
from toys import AbsoluteDeviations, LeastSquares

TOYS = {"smooth": LeastSquares, "non-smooth": AbsoluteDeviations}
STEPS = {"smooth": 300, "non-smooth": 150}  # where a residual is all but zero, rounding decides
SETS = {
    "none": lambda _: None,
    "ball": lambda x0: Ball(x0, 1.0).project,
    "box": lambda x0: Box(x0 - 0.2, x0 + 0.4).project,
}
kinds = pytest.mark.parametrize("kind", STEPS)
sets = pytest.mark.parametrize("name", SETS)


def make(kind, seed):
    """Return a function of 12 variables and a start that is not the origin."""
    fun = TOYS[kind].random(40, 12, seed)
    return fun, np.random.default_rng(seed + 100).standard_normal(12)


def uneven(kind, seed):
    """Return a function with columns from 1/30 to 30 in size, a start, and these sizes."""
    rng = np.random.default_rng(seed)
    sizes = 10 ** rng.uniform(-1.5, 1.5, 8)
    A = rng.standard_normal((40, 8)) * sizes
    b = A @ (rng.standard_normal(8) / sizes) + 0.1 * rng.standard_normal(40)
    mean = (2 / 40) ** 0.5 if kind == "smooth" else 1 / 40
    return TOYS[kind](mean * A, mean * b), rng.standard_normal(8) / sizes, sizes


def oracle_of(fun):
    return lambda x: KnownEvaluation(x, *fun(x))


def noisy(fun, seed, size):
    """Give gradients with noise that depends on the number of the call alone."""
    calls = count()

    def gradient(x):
        return fun(x)[1] + size * np.random.default_rng([seed, next(calls)]).standard_normal(x.size)

    return gradient


class Inexact:
    """An oracle of gradients alone, which says that it is not exact."""

    exact_values = False

    def __init__(self, gradient):
        self.gradient = gradient

    def __call__(self, x):
        return KnownEvaluation(x, np.nan, self.gradient(x))


def run(rule, x0, oracle, steps):
    states = [rule.init(np.array(x0))]
    for _ in range(steps):
        states.append(rule.step(states[-1], oracle).state)
    return states


def same(actual, expected, what, t, tolerance=1e-12):
    error = np.linalg.norm(actual - expected) / max(1.0, np.linalg.norm(expected))
    assert error <= tolerance, f"{what} differs by {error:.1e} (relative) at t={t}"
