"""The quadratic programme of many cuts: its optimality, on degenerate and badly scaled vectors."""

import numpy as np
import pytest

from accelegrad.bundle.cut_programme import RIDGE, WORTH_ENTERING, shortest_sum
from cuts import KINDS, drawn

UNIT = float(np.finfo(float).eps)
#: A call changes the active set 40 times at most; this many calls are enough for 30 vectors.
CALLS = 4


def solved(K, e, weights=None):
    weights = np.zeros(len(e)) if weights is None else weights
    for _ in range(CALLS):
        weights = shortest_sum(K, e, weights)
    return weights


def assert_on_simplex(weights):
    assert np.isfinite(weights).all()
    assert (weights >= 0.0).all()
    assert abs(weights.sum() - 1.0) <= 2 * len(weights) * UNIT


def miss(K, e, weights):
    """How far the sum can be above its least: the gap of Frank and Wolfe."""
    reduced = K @ weights + e
    return float(weights @ reduced - reduced.min())


def allowed(K, e, weights):
    """What the ridge, the threshold for entering and rounding let the weights miss.

    The best weights of the active vectors meet (K + s + D) w + e = constant with a diagonal D of
    RIDGE (K_ii + s), so that their slopes differ by its largest entry at most; s is a mean of
    squares that may be older by a factor of 100. A vector that would enter is WORTH_ENTERING of
    the terms below.
    """
    largest, level = float(K.diagonal().max()), abs(float(weights @ (K @ weights + e)))
    terms = largest + level + float(e[weights > 0.0].max())
    entering = WORTH_ENTERING * level
    return 101 * RIDGE * largest + entering + 8 * len(e) * UNIT * terms


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_the_sum_is_the_least(kind, seed):
    A, e = drawn(kind, np.random.default_rng([seed, 1]))
    K = A @ A.T
    weights = solved(K, e)
    assert_on_simplex(weights)
    assert miss(K, e, weights) <= allowed(K, e, weights)
    if kind == "all zero":
        assert e[weights > 0].max() == e.min()


@pytest.mark.parametrize("kind", KINDS)
def test_warm_starts_end_where_cold_ones_do(kind):
    """Vectors join one by one while the linear terms change, as in a run."""
    rng = np.random.default_rng(7)
    A, e = drawn(kind, rng)
    weights = np.zeros(0)
    for n in range(1, len(e) + 1):
        K, linear = A[:n] @ A[:n].T, e[:n] * rng.uniform(0.5, 2.0, n)
        weights = solved(K, linear, np.append(weights, 0.0))
        assert_on_simplex(weights)
        assert miss(K, linear, weights) <= allowed(K, linear, weights)


@pytest.mark.parametrize("seed", range(24))
def test_no_numbers_are_too_large_or_small(seed):
    """Squares from 0 (they vanish) to 1e290, linear terms that have nothing to do with them."""
    rng = np.random.default_rng([seed, 2])
    A, e = drawn(list(KINDS)[seed % len(KINDS)], rng)
    n = len(e)
    one = seed % 2 == 0  # one scale for all vectors, or one for each
    A = A * 10.0 ** rng.uniform(-200, 140, (1 if one else n, 1))
    e = e * 10.0 ** rng.uniform(-200, 145, n)
    K, weights = A @ A.T, np.zeros(n)
    for _ in range(CALLS):
        weights = shortest_sum(K, e, weights)
        assert_on_simplex(weights)


def test_large_linear_terms_leave_one_vector():
    """Once they took all digits of the weights."""
    K, e = np.array([[1.0, 0.5], [0.5, 1.0]]), np.array([1e30, 2e30])
    np.testing.assert_array_equal(shortest_sum(K, e, np.zeros(2)), [1.0, 0.0])


def test_an_infinite_linear_term_gets_no_weight():
    A, e = drawn("plain", np.random.default_rng(4))
    e[0] = np.inf
    weights = solved(A @ A.T, e)
    assert_on_simplex(weights)
    assert weights[0] == 0.0
