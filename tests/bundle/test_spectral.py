"""Spectral steps: against their transcription, given up where they do not pay, and in a bundle."""

import numpy as np
import pytest

import accelegrad as ag
from accelegrad.bundle.spectral import PATIENCE, Spectral
from accelegrad.rules.base import KnownEvaluation
from accelegrad_lab.functions.suite import SUITE


def in_box(z):
    return np.clip(z, 0.0, 1.0)


def parabola(seed, d=12):
    """Return a quadratic whose minimiser lies outside the box, and a start."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    H = (basis * np.geomspace(0.05, 1.0, d)) @ basis.T
    b = H @ rng.uniform(-0.3, 1.3, d)
    return (lambda x: (0.5 * x @ H @ x - b @ x, H @ x - b)), rng.uniform(0.0, 1.0, d)


def stepped(fun, x, length, steps):
    """Return the sequence after some steps in the box."""
    spectral = Spectral().begun(x, fun(x)[1], length)
    for _ in range(steps):
        if spectral.point is None:
            break
        point = in_box(spectral.point - spectral.length * spectral.gradient)
        spectral = spectral.after(KnownEvaluation(point, *fun(point)))
    return spectral


def transcribed(fun, x, length, steps):
    """The two lengths in turn, as Barzilai and Borwein have them."""
    gradient = fun(x)[1]
    for k in range(steps):
        following = in_box(x - length * gradient)
        s, y = following - x, fun(following)[1] - gradient
        x, gradient = following, gradient + y
        length = (s @ s) / (s @ y) if k % 2 == 0 else (s @ y) / (y @ y)
    return x


@pytest.mark.parametrize("seed", range(3))
def test_equals_its_transcription(seed):
    fun, x = parabola(seed)
    # rounding in the gradients' differences grows from step to step
    np.testing.assert_allclose(
        stepped(fun, x, 0.5, 6).point, transcribed(fun, x, 0.5, 6), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("seed", range(5))
def test_goes_on_to_the_last_digits(seed):
    """The movement of a projected step vanishes at the minimiser alone."""
    fun, x = parabola(seed)
    movements = []

    def watched(point):
        value, gradient = fun(point)
        movements.append(np.linalg.norm(in_box(point - gradient) - point))
        return value, gradient

    stepped(watched, x, 0.5, 300)
    assert min(movements) <= 1e-12


def test_is_given_up_where_it_does_not_pay_and_waits_longer_each_time():
    weights = np.linspace(1.0, 2.0, 12)
    fun = lambda x: (float(weights @ np.abs(x - 0.4)), weights * np.sign(x - 0.4))  # noqa: E731
    spectral = stepped(fun, np.full(12, 0.7), 0.3, 20 * PATIENCE)
    assert spectral.waits
    assert (spectral.pause, spectral.next_pause) == (PATIENCE, 2 * PATIENCE)
    for _ in range(PATIENCE):
        spectral = spectral.waited()
    assert not spectral.waits
    again = spectral.begun(np.full(12, 0.7), fun(np.full(12, 0.7))[1], 0.3).given_up()
    assert again.pause == 2 * PATIENCE


@pytest.mark.parametrize(("name", "calls"), [("entropy", 300), ("lasso", 200)])
def test_smooth_functions_with_sets_and_penalties_end_at_rounding(name, calls):
    """Without them entropy took more than 2500 calls, lasso 555."""
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

    whole = solve(max_iter=90)
    for stop in (52, 63, 77):
        solve(max_iter=stop, checkpoint=path)
        resumed = solve(max_iter=90, resume=path)
        np.testing.assert_array_equal(resumed.x, whole.x)
        assert (resumed.fun, resumed.lower_bound) == (whole.fun, whole.lower_bound)
