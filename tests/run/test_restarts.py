"""Restarts: linear convergence, certificates that stay valid, checkpoints, noise, errors."""

from __future__ import annotations

import math

import numpy as np
import pytest

import accelegrad as ag
from accelegrad.run import loop
from accelegrad.run.loop import Restarts
from accelegrad.run.result import Status
from toys import AbsoluteDeviations, largest_of


def quadratic(x):
    """Curvatures from 1e-3 to 1, the minimum 0 at (1, ..., 1)."""
    curvatures = np.logspace(-3, 0, 60)
    return 0.5 * curvatures @ (x - 1) ** 2, curvatures * (x - 1)


def calls_to_levels(result, first, least, levels):
    """The calls after which the best value was within each level, infinite if never."""
    share = (np.minimum.accumulate(result.trace.value) - least) / (first - least)
    calls = result.trace.calls
    return [calls[np.argmax(share <= a)] if (share <= a).any() else math.inf for a in levels]


def run(fun, d, restart, **options):
    options = {"max_iter": 5000, "trace": True, "method": "accelegrad"} | options
    return ag.minimize(fun, np.zeros(d), restart=restart, **options)


#: Functions of sharp minima of 0, and their dimensions; that of SLOPES has zero in its hull
SLOPES = np.random.default_rng(4).standard_normal((60, 15))
SLOPES -= SLOPES.mean(axis=0)
A = np.random.default_rng(3).standard_normal((100, 20))
EXACT = AbsoluteDeviations(A, A @ np.linspace(-2.0, 2.0, 20))
SHARP = {
    "absolute deviations": (EXACT, 20),
    "largest of affine": (largest_of(SLOPES, SLOPES.sum(axis=1)), 15),
}


@pytest.mark.parametrize("name", SHARP)
def test_sharp_functions_converge_linearly(name):
    fun, d = SHARP[name]
    first, levels = fun(np.zeros(d))[0], (1e-2, 1e-4, 1e-6, 1e-8)
    two, four, six, eight = calls_to_levels(run(fun, d, "adaptive"), first, 0.0, levels)
    plain = calls_to_levels(run(fun, d, None), first, 0.0, levels)
    assert eight < math.inf
    # Four more digits cost at most three times what the two before cost ...
    assert eight - four <= 3 * (four - two)
    assert eight - six <= 1.5 * (six - four)
    # ... and without restarts the two cost ten times as much, and four are out of reach.
    assert plain[1] - plain[0] >= 10 * (four - two)
    assert plain[2] == math.inf


@pytest.mark.parametrize("method", ["u-dog", "a-dog", "dog", "diagonal"])
def test_every_rule_with_a_radius_can_be_restarted(method):
    restarted = run(quadratic, 60, "adaptive", method=method, max_iter=2000)
    plain = run(quadratic, 60, None, method=method, max_iter=2000)
    first = quadratic(np.zeros(60))[0]
    assert restarted.n_restarts >= 1
    assert restarted.fun <= plain.fun
    levels = (1e-8,)
    needed = calls_to_levels(restarted, first, 0.0, levels)
    assert needed < calls_to_levels(plain, first, 0.0, levels)
    assert restarted.lower_bound <= 0.0 <= restarted.fun


WISHES = {
    "set": {"feasible_set": ag.NonNegative()},
    "start": {"feasible_set": ag.Simplex(total=4.0), "x0": np.full(40, 1 / 10)},
    "penalty": {"penalty": ag.L1(0.01)},
    "scale": {"scale": "columns"},
}


@pytest.mark.parametrize("name", WISHES)
def test_restarts_with_sets_penalties_and_scaling(name):
    wish = WISHES[name]
    rng = np.random.default_rng(6)
    X = rng.standard_normal((300, 40)) * np.arange(1, 41) ** -0.5
    labels = np.where(X @ rng.standard_normal(40) + 0.1 * rng.standard_normal(300) > 0, 1.0, -1.0)
    model = ag.LinearModel(X, labels, l2=1e-3)
    restarted = ag.minimize(model, restart="adaptive", tol=1e-9, max_iter=5000, **wish)
    plain = ag.minimize(model, tol=1e-9, max_iter=20_000, **wish)
    assert restarted.status is Status.CONVERGED
    assert restarted.n_restarts >= 1
    assert restarted.fun >= plain.lower_bound
    assert plain.fun >= restarted.lower_bound
    assert restarted.fun == pytest.approx(plain.fun, abs=2e-9)


def test_a_stage_ends_when_its_second_half_brings_little():
    policy = Restarts(ag.DoG())
    falling = [policy.stalled(2.0**-t) for t in range(loop.SHORTEST_STAGE - 1)]
    assert not any(falling)  # the second half brought less, but the stage is short
    assert policy.stalled(2.0 ** -(loop.SHORTEST_STAGE - 1))
    steady = Restarts(ag.DoG())
    assert not any(steady.stalled(-float(t)) for t in range(500))


def test_after_a_stage_that_brought_nothing_the_next_is_twice_as_long():
    policy = Restarts(ag.DoG())
    for values in ([3.0, 2.0, 1.0], [1.0, 1.0], [1.0, 1.0]):
        for value in values:
            policy.stalled(value)
        policy.end_stage(travelled=1.0, size=1.0)
    assert policy.shortest == 4 * loop.SHORTEST_STAGE
