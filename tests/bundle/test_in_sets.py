"""Quasi-Newton steps with a set or a penalty: their model, its minimum, and whole runs."""

import numpy as np
import pytest

import accelegrad as ag
from accelegrad.bundle import quasi_newton
from accelegrad.bundle.quasi_newton import WORTHWHILE_STEPS, LastDigits, Pairs
from accelegrad.geometry.nearest_point import lowest_of_quadratic
from accelegrad.rules.base import KnownEvaluation
from accelegrad_lab.functions.suite import SUITE
from reference.bundle import lowest_in_box


def parabola(seed, d=12, condition=20.0):
    """Return a quadratic whose minimiser lies outside the box from 0 to 1, and its matrix."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    H = (basis * np.geomspace(1.0 / condition, 1.0, d)) @ basis.T
    b = H @ rng.uniform(-0.3, 1.3, d)
    return (lambda x: (0.5 * x @ H @ x - b @ x, H @ x - b)), H


def pairs_of(H, count, seed=0):
    """Return pairs of random steps, with BFGS's matrix from its formula."""
    rng = np.random.default_rng(seed)
    pairs, steps = Pairs(), rng.standard_normal((count, len(H)))
    kept = steps[-quasi_newton.MOST_PAIRS :]
    B = np.eye(len(H)) * (H @ kept[-1] @ H @ kept[-1]) / (kept[-1] @ H @ kept[-1])
    for s in steps:
        pairs.add(s, H @ s)
    for s in kept:
        y, Bs = H @ s, B @ s
        B = B - np.outer(Bs, Bs) / (s @ Bs) + np.outer(y, y) / (s @ y)
    return pairs, B


@pytest.mark.parametrize("count", [1, 5, quasi_newton.MOST_PAIRS + 7])
def test_the_curvature_is_that_of_bfgs(count):
    pairs, expected = pairs_of(parabola(count)[1], count)
    np.testing.assert_allclose(pairs.matrix(), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("count", [1, 6, 30])
def test_the_model_is_minimised(seed, count, monkeypatch):
    """In a box, against Clarabel; in a polyhedron, DAQP finds the same."""
    fun, H = parabola(seed)
    pairs, B = pairs_of(H, count, seed)
    center = np.random.default_rng(seed).uniform(0.0, 1.0, 12)
    gradient = fun(center)[1]
    expected = center + lowest_in_box(B, gradient, center, (0.0, 1.0))
    monkeypatch.setattr(quasi_newton, "ACCURATE", 1e-9)
    found = pairs.lowest(center, gradient, lambda x, _: np.clip(x, 0.0, 1.0))
    np.testing.assert_allclose(found, expected, atol=1e-7)
    polyhedron = ag.Polyhedron(np.vstack([np.eye(12), np.ones(12)]), 0.0, [1.0] * 12 + [12.0])
    again = lowest_of_quadratic(polyhedron.rows_for(12), center, gradient, pairs.matrix())
    np.testing.assert_allclose(again, expected, atol=1e-7)


def test_a_model_with_a_penalty_is_minimised():
    """At the minimum a proximal step stays where it is."""
    fun, H = parabola(1)
    pairs, B = pairs_of(H, 6)
    center, penalty = np.full(12, 0.5), ag.L1(0.05)
    gradient = fun(center)[1]
    found = pairs.lowest(center, gradient, penalty.prox)
    slope = gradient + B @ (found - center)
    first = np.linalg.norm(penalty.prox(center - gradient, 1.0) - center)
    assert np.linalg.norm(penalty.prox(found - slope, 1.0) - found) <= 1e-2 * first


def test_last_steps_are_given_up_where_they_do_not_pay_and_wait_longer_each_time():
    sequence = LastDigits(np.zeros(2), np.ones(2))
    for k in range(2 * WORTHWHILE_STEPS):
        if sequence.point is None:
            break
        sequence = sequence.after(KnownEvaluation(np.full(2, (-1.0) ** k), 0.0, np.ones(2)))
    assert (sequence.pause, sequence.next_pause) == (WORTHWHILE_STEPS, 2 * WORTHWHILE_STEPS)
    assert sequence.given_up().pause == 2 * WORTHWHILE_STEPS


def ill_conditioned(seed, d=30):
    """Return a quadratic with a random matrix: condition numbers of 7e3 to 2e6."""
    rng = np.random.default_rng(seed)
    Q = rng.standard_normal((d, d))
    Q, q = Q @ Q.T / d, rng.standard_normal(d)
    return lambda x: (float(0.5 * x @ Q @ x + q @ x), Q @ x + q)


LIMITS = {
    "halfspace": {"feasible_set": ag.Halfspace(np.ones(30), 0.0)},
    "box": {"feasible_set": ag.Box(-1000.0, 1000.0)},
    "affine": {"feasible_set": ag.Affine(np.ones((1, 30)), [0.0])},
    "l1": {"penalty": ag.L1(0.1)},
    "groups": {"penalty": ag.GroupL2(0.1, np.arange(30) // 3)},
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", LIMITS)
def test_ill_conditioned_functions_are_proved(name, seed):
    """Without these steps 13 of 24 such runs used all 1000 iterations, with gaps up to 70 %."""
    result = ag.minimize(ill_conditioned(seed), np.zeros(30), tol=1e-6, **LIMITS[name])
    assert result.success, result.message
    assert result.nfev <= 900


@pytest.mark.parametrize(("name", "calls"), [("entropy", 150), ("lasso", 100)])
def test_smooth_functions_with_sets_and_penalties_end_at_rounding(name, calls):
    """With bundle steps alone entropy took more than 2500 calls, lasso 555."""
    function = SUITE[name].build()
    result = ag.minimize(
        function.fun,
        function.x0,
        feasible_set=function.feasible_set,
        penalty=function.penalty,
        max_iter=calls,
    )
    assert result.status.name == "AT_ROUNDING"


def test_a_run_resumed_among_them_goes_on_bit_for_bit(tmp_path):
    function, path = SUITE["entropy"].build(), tmp_path / "run.agc"

    def solve(**options):
        return ag.minimize(function.fun, function.x0, feasible_set=function.feasible_set, **options)

    whole = solve()
    for stop in (5, whole.nit // 2, whole.nit - 3):
        solve(max_iter=stop, checkpoint=path)
        resumed = solve(resume=path)
        np.testing.assert_array_equal(resumed.x, whole.x)
        assert (resumed.fun, resumed.lower_bound) == (whole.fun, whole.lower_bound)
