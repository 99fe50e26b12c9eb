"""Cuts that are kept: always below the function, with the right products, within their size."""

from fractions import Fraction

import numpy as np
import pytest

from accelegrad.bundle.cut_memory import (
    BLURRED,
    DEFAULT_BYTES,
    FEWEST_CUTS,
    LOST,
    CutMemory,
    CutModel,
    default_size,
)
from accelegrad.rules.base import KnownEvaluation
from toys import AbsoluteDeviations

D = 6
UNIT = float(np.finfo(float).eps)


def levels_of(memory):
    return memory.values_at(memory.origin)


class Lowered(AbsoluteDeviations):
    """A function below zero: a sum of cuts whose weights add up to less than 1 lies above it."""

    def __call__(self, x):
        value, gradient = super().__call__(x)
        return value - 1e3, gradient


FUN = Lowered.random(20, D, 1)


def filled(size, cuts, rng, every=0, check=lambda memory: None):
    """Return a memory that has seen so many cuts; after every so many their weights change."""
    memory, center = CutMemory(np.ones(D), size), np.ones(D)
    for i in range(1, cuts + 1):
        point = center + rng.standard_normal(D)
        memory.take(KnownEvaluation(point, *FUN(point)))
        if every and i % every == 0:
            combine(memory, center)
        check(memory)
    return memory


def combine(memory, center):
    lowest = CutModel(memory).lowest(KnownEvaluation(center, *FUN(center)), 10.0)
    memory.keep_weights(lowest.weights)
    return lowest


@pytest.mark.parametrize("size", [4, 5, 6, 9, 26])
@pytest.mark.parametrize("every", [0, 1, 3, 7])
def test_cuts_are_below_the_function_and_within_the_size(size, every):
    """Those that stand for forgotten ones too: once they were not, where two came in a row."""
    rng = np.random.default_rng([size, every])
    points = rng.standard_normal((20, D)) * 10.0 ** rng.uniform(-2, 1, (20, 1))
    values = [FUN(point)[0] for point in points]

    def check(memory):
        assert 1 <= memory.count <= size
        # Cuts have terms of 1e3, which are rounded at every sum.
        for point, value in zip(points, values, strict=True):
            assert memory.values_at(point).max() <= value + 1e3 * 100 * UNIT

    filled(size, 80, rng, every, check)


def test_of_equal_weights_none_is_kept_that_would_hide_the_sum():
    """With four cuts of equal weight two stay, and the sum of all."""
    memory = CutMemory(np.zeros(2), FEWEST_CUTS)
    for i in range(FEWEST_CUTS):
        memory.take(KnownEvaluation(np.zeros(2), float(i), np.ones(2)))
    memory.keep_weights(np.full(4, 0.25))
    memory.take(KnownEvaluation(np.zeros(2), 10.0, np.ones(2)))
    np.testing.assert_allclose(levels_of(memory), [2.0, 3.0, 1.5, 10.0], rtol=1e-15)
    # The weights that are left add up to a half; their mean is a cut as well.
    memory.take(KnownEvaluation(np.zeros(2), 11.0, np.ones(2)))
    np.testing.assert_allclose(levels_of(memory), [2.0, 3.0, 2.5, 11.0], rtol=1e-15)


def test_sums_know_how_far_rounding_takes_them():
    rng = np.random.default_rng(4)
    for _ in range(20):
        memory = CutMemory(np.zeros(D), 30)
        for _ in range(30):
            level, slope = (
                rng.standard_normal() * 10.0 ** rng.uniform(-8, 8),
                rng.standard_normal(D),
            )
            memory.take(KnownEvaluation(np.zeros(D), level, slope * 10.0 ** rng.uniform(-8, 8)))
        weights = rng.exponential(size=30) * (rng.random(30) < 0.7)
        weights /= weights.sum()
        shares = [Fraction(w) / sum(map(Fraction, weights)) for w in weights]
        slope, numbers = memory.mean(weights)
        level = sum(s * Fraction(h) for s, h in zip(shares, levels_of(memory), strict=True))
        assert abs(Fraction(numbers[0]) - level) <= Fraction(numbers[LOST])
        exact = [
            sum(s * Fraction(g) for s, g in zip(shares, column, strict=True))
            for column in memory.slopes.T
        ]
        off = [float(Fraction(g) - e) for g, e in zip(slope, exact, strict=True)]
        assert np.linalg.norm(off) <= numbers[BLURRED]


def test_a_cut_knows_what_precision_and_its_terms_take_from_it():
    memory, point, slope = CutMemory(np.zeros(D), 8), np.full(D, 2.0), np.full(D, 3.0)
    memory.take(KnownEvaluation(point, 7.0, slope, penalty=-5.0, lost=(0.5, 0.25)))
    _, numbers = memory.mean(np.ones(1))
    away, steep = np.linalg.norm(point), np.linalg.norm(slope)
    expected = (12.0 - 6.0 * D, 0.0, 0.0, 12.0 + steep * away, steep, 0.5 + 0.25 * away, 0.25)
    np.testing.assert_allclose(numbers, expected, rtol=1e-12)


def test_the_default_size():
    assert default_size(1) == 21
    assert default_size(100) == 120
    assert default_size(10**6) * 8 * 10**6 <= DEFAULT_BYTES
    assert default_size(10**9) == FEWEST_CUTS
