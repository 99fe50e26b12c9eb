"""L-BFGS's pairs and the search along a line."""

import math

import numpy as np
import pytest

from accelegrad.bundle.cut_memory import FEWEST_CUTS
from accelegrad.bundle.quasi_newton import FALL, MOST_PAIRS, STEEP, End, LineSearch, Pairs


def full_matrix(steps, changes):
    """BFGS's inverse curvature, as a matrix."""
    s, y = steps[-1], changes[-1]
    eye = np.eye(s.size)
    H = (s @ y) / (y @ y) * eye
    for s, y in zip(steps, changes, strict=True):
        V = eye - np.outer(y, s) / (s @ y)
        H = V.T @ H @ V + np.outer(s, s) / (s @ y)
    return H


@pytest.mark.parametrize("count", [1, 3, MOST_PAIRS, MOST_PAIRS + 7])
def test_the_direction_is_that_of_the_full_matrix(count):
    rng = np.random.default_rng(count)
    hessian = np.diag(np.logspace(0, 1, 8))
    steps = rng.standard_normal((count, 8))
    pairs = Pairs()
    for s in steps:
        pairs.add(s, hessian @ s)
    kept = steps[-MOST_PAIRS:]
    gradient = rng.standard_normal(8)
    expected = -full_matrix(kept, kept @ hessian) @ gradient
    np.testing.assert_allclose(pairs.direction(gradient), expected, rtol=1e-9, atol=1e-9)
    assert gradient @ pairs.direction(gradient) < 0.0


def test_without_pairs_the_direction_is_downhill():
    np.testing.assert_array_equal(Pairs().direction(np.array([1.0, -2.0])), [-1.0, 2.0])


@pytest.mark.parametrize("change", [[0.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [1e-11, 1.0]])
def test_a_pair_without_curvature_is_not_kept(change):
    pairs = Pairs()
    pairs.add(np.array([1.0, 0.0]), np.array(change))
    assert not len(pairs.steps)


def test_long_vectors_have_fewer_pairs():
    pairs, step = Pairs(), np.ones(10**6)
    for _ in range(8):
        pairs.add(step, step)
    assert len(pairs.steps) == len(pairs.changes) == FEWEST_CUTS


LINES = {
    "parabola": lambda a: ((a - 3) ** 2, 2 * (a - 3)),
    "far parabola": lambda a: (1e-4 * (a - 300) ** 2, 2e-4 * (a - 300)),
    "near parabola": lambda a: (1e4 * (a - 3e-4) ** 2, 2e4 * (a - 3e-4)),
    "4th power": lambda a: ((a - 2) ** 4, 4 * (a - 2) ** 3),
    "exponential": lambda a: (math.exp(a) - 5 * a, math.exp(a) - 5),
    "kink": lambda a: (max(2 - a, 3 * (a - 2)), -1.0 if a <= 2 else 3.0),
    "logarithm": lambda a: (a - 40 * math.log(1 + a), 1 - 40 / (1 + a)),
}


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("trial", [1e-3, 0.1, 1.0, 20.0])
def test_a_search_ends_at_a_lower_and_flatter_point(name, trial):
    line = LINES[name]
    value, slope = line(0.0)
    search = LineSearch.along(np.ones(1), value, slope, trial)
    for trials in range(60):
        end = End(search.trial, *line(search.trial))
        if search.is_over(end):
            break
        search = search.after(end, np.full(1, end.slope))
        assert search.trials == trials + 1
        assert search.low.at < search.trial < search.high.at
        if search.low.at > 0.0:
            assert search.low_gradient == search.low.slope
    assert end.value <= value + FALL * end.at * slope
    assert end.slope >= STEEP * slope


def test_a_parabola_is_searched_at_once():
    """From a point beyond the lowest one the cubic leads to it."""
    line = LINES["parabola"]
    search = LineSearch.along(np.ones(1), *line(0.0), 7.0)
    search = search.after(End(7.0, *line(7.0)), np.ones(1))
    assert search.trial == pytest.approx(3.0, rel=1e-14)


@pytest.mark.parametrize(
    ("kink", "uneven"), [(0.1, True), (0.25, True), (0.4, False), (0.9, False)]
)
def test_a_kink_soon_after_the_start_is_uneven(kink, uneven):
    """Of |a - kink| at 1 the first cut is 2 (1 - kink) too low, the last one 2 kink at the start."""
    search = LineSearch.along(np.ones(1), kink, -1.0, 1.0)
    assert search.is_uneven(End(1.0, 1.0 - kink, 1.0)) is uneven
    parabola = LineSearch.along(np.ones(1), 1.0, -1.0, 7.0)
    assert not parabola.is_uneven(End(7.0, 1.0 - 7.0 + 0.5 * 49.0, -1.0 + 7.0))


def test_values_that_are_hardly_finite_are_searched():
    search = LineSearch.along(np.ones(1), 1.0, -1e-300, 1.0)
    with np.errstate(over="ignore"):
        search = search.after(End(1.0, 1e308, 1e308), np.ones(1))
    assert 0.0 < search.trial < 1.0
