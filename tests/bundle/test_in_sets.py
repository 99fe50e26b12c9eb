"""Runs with quasi-Newton steps within a set or with a penalty."""

import numpy as np
import pytest

import accelegrad as ag
from accelegrad.bundle.bundle import Bundle
from accelegrad_lab.functions.suite import SUITE
from stepping import oracle_of, run
from toys import AbsoluteDeviations


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


def test_a_pause_of_the_last_digits_is_waited_for_to_its_end():
    """With one turn left no quasi-Newton step is tried yet."""
    fun, ball = AbsoluteDeviations.random(30, 6, 11), ag.Ball(0.0, 0.5)
    states = run(Bundle(project=ball.project), np.full(6, 0.2), oracle_of(fun), 60)
    waiting = [state.last_digits for state in states]
    after = waiting[[last_digits.pause for last_digits in waiting].index(1) + 1]
    assert (after.pause, after.point) == (0, None)
