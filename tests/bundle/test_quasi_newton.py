"""L-BFGS's pairs, their model and its minimum, the search along a line, and the last digits."""

import math

import numpy as np
import pytest

import accelegrad as ag
from accelegrad.bundle import quasi_newton
from accelegrad.bundle.cut_memory import FEWEST_CUTS
from accelegrad.bundle.quasi_newton import (
    FALL,
    MOST_PAIRS,
    STEEP,
    WORTHWHILE_STEPS,
    End,
    LastDigits,
    LineSearch,
    Pairs,
)
from accelegrad.geometry.nearest_point import lowest_of_quadratic
from accelegrad.rules.base import KnownEvaluation
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
    kept = steps[-MOST_PAIRS:]
    B = np.eye(len(H)) * (H @ kept[-1] @ H @ kept[-1]) / (kept[-1] @ H @ kept[-1])
    for s in steps:
        pairs.add(s, H @ s)
    for s in kept:
        y, Bs = H @ s, B @ s
        B = B - np.outer(Bs, Bs) / (s @ Bs) + np.outer(y, y) / (s @ y)
    return pairs, B


@pytest.mark.parametrize("count", [1, 5, MOST_PAIRS, MOST_PAIRS + 7])
def test_the_curvature_is_that_of_bfgs_and_the_direction_that_of_its_inverse(count):
    pairs, expected = pairs_of(parabola(count)[1], count)
    np.testing.assert_allclose(pairs.matrix(), expected, rtol=1e-9, atol=1e-11)
    gradient = np.random.default_rng(count).standard_normal(12)
    direction = pairs.direction(gradient)
    np.testing.assert_allclose(
        direction, -np.linalg.solve(expected, gradient), rtol=1e-9, atol=1e-9
    )
    assert gradient @ direction < 0.0


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


def test_last_steps_are_given_up_where_they_do_not_pay_and_wait_longer_each_time():
    sequence = LastDigits(np.zeros(2), np.ones(2))
    for k in range(2 * WORTHWHILE_STEPS):
        if sequence.point is None:
            break
        sequence = sequence.after(KnownEvaluation(np.full(2, (-1.0) ** k), 0.0, np.ones(2)))
    assert (sequence.pause, sequence.next_pause) == (WORTHWHILE_STEPS, 2 * WORTHWHILE_STEPS)
    assert sequence.given_up().pause == 2 * WORTHWHILE_STEPS
