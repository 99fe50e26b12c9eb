"""The best average of cuts to all digits: its conditions, degenerate slopes, and what it proves."""

import numpy as np
import pytest

import accelegrad as ag
from accelegrad.proofs.sharp_average import DEPENDENT, sharp_average
from accelegrad_lab.functions.suite import SUITE
from cuts import KINDS, drawn

UNIT = float(np.finfo(float).eps)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_no_cut_lowers_the_sum_any_more(kind, seed):
    """It is convex, so that this makes the weights the best ones."""
    rng = np.random.default_rng((seed, list(KINDS).index(kind)))
    A, e = drawn(kind, rng)
    begin = rng.random(len(e)) * (rng.random(len(e)) < 0.5)
    begin[0] += 1.0
    weights = sharp_average(A, e, begin)
    assert (weights >= 0.0).all()
    assert abs(weights.sum() - 1.0) <= 2 * len(e) * UNIT
    slope = weights @ A
    reduced = A @ slope + e
    length, longest = np.linalg.norm(slope), np.linalg.norm(A, axis=1).max()
    # A cut that depends on others does not enter, and the sum of slopes is off by rounding.
    lost = DEPENDENT * longest * length
    lost += 4 * len(e) * UNIT * (longest**2 + e.max())
    assert reduced.min() >= weights @ reduced - lost


def test_a_sum_that_cancels_has_all_its_digits():
    """Cuts of max(|x_1|) + a parabola, next to the minimiser: products hold 1e-14 of squares."""
    rng = np.random.default_rng(0)
    A = np.repeat([[1.0], [-1.0]], 10, axis=0) * np.eye(1, 6) + 1e-7 * rng.standard_normal((20, 6))
    shares = rng.dirichlet(np.ones(19))
    A[19] = -(shares @ A[:19]) / 0.5  # half of it and half of the others add up to zero
    weights = sharp_average(A, np.zeros(20), np.eye(1, 20)[0])
    # rounding of twenty terms
    assert np.linalg.norm(weights @ A) <= 20 * UNIT * np.linalg.norm(A, axis=1).max()


@pytest.mark.parametrize(
    ("name", "proved", "minimum"), [("chained-cb3-two", 2e-9, 198.0), ("mxhilb", 1e-8, 0.0)]
)
def test_curved_kinks_are_proved_to_the_last_digits(name, proved, minimum):
    """From products of slopes alone 2e-6 and 9e-8 were proved; now 1e-10 to 3e-10, and 2e-9."""
    function = SUITE[name].build()
    result = ag.minimize(function.fun, function.x0, max_iter=500)
    assert result.gap <= proved
    assert result.lower_bound <= minimum
