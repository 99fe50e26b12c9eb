"""`Polyhedron` beyond what all sets are tested for: degenerate rows, hulls, optimality, errors."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import nnls

from accelegrad.errors import NonFiniteError
from accelegrad.geometry.nearest_point import lowest_of_cuts, nearest_point
from accelegrad.geometry.polyhedron import Polyhedron
from accelegrad.geometry.sets import Box, Simplex
from proofs.cases import draw_set

INF = math.inf


def draw(rng):
    """Return rows and bounds as the fuzz draws them, some with their twins, and their scale."""
    scale = 10.0 ** rng.uniform(-6, 6)
    given = draw_set(rng, int(rng.integers(1, 25)), scale, ("Polyhedron",)).arguments
    A, low, high = given["A"], given["lower"], given["upper"]
    if rng.random() < 0.3:  # twins
        A, low, high = np.vstack([A, -2 * A]), np.append(low, -2 * high), np.append(high, -2 * low)
    return A, low, high, *(given["bounds"] or (-INF, INF)), scale


def unit_rows(A, low, high):
    lengths = np.linalg.norm(A, axis=1)
    kept = lengths > 0
    return A[kept] / lengths[kept, None], low[kept] / lengths[kept], high[kept] / lengths[kept]


@pytest.mark.parametrize("seed", range(25))
def test_projections_meet_the_conditions_of_optimality(seed):
    rng = np.random.default_rng(seed)
    A, low, high, lower, upper, scale = draw(rng)
    chosen = Polyhedron(A, low, high, bounds=(lower, upper))
    A, low, high = unit_rows(A, low, high)
    d = A.shape[1]
    for spread in (1e-2, 1.0, 1e3):
        x = spread * scale * rng.standard_normal(d)
        u = chosen.project(x)
        assert (u >= lower).all()
        assert (u <= upper).all()
        # Rounding of a sum of d products, relative to the norms of row and point; limits too.
        allowed = 64 * d * np.finfo(float).eps * (np.linalg.norm(u) + scale)
        product = A @ u
        assert (product <= high + allowed).all()
        assert (product >= low - allowed).all()
        # x - u is a sum of the normals of what holds with equality, with factors >= 0.
        near = 1e-10 * (np.linalg.norm(u) + scale)
        normals = [A[product >= high - near], -A[product <= low + near]]
        normals += [np.eye(d)[u == upper], -np.eye(d)[u == lower]]
        cone = np.vstack(normals)
        missed = nnls(cone.T, x - u)[1] if len(cone) else np.linalg.norm(x - u)
        # Rows that nearly depend on each other lose some digits more than rounding.
        assert missed <= 1e-11 * d * (np.linalg.norm(x) + np.linalg.norm(u))


def test_hulls():
    """Rows bound coordinates by the bounds of others; together they count as unbounded."""
    assert Polyhedron(np.ones((1, 9)), 1, 1, (0, INF)).diameter == pytest.approx(3, rel=1e-8)
    chosen = Polyhedron([[1.0, 1.0]], -1, 1, bounds=([0.0, -INF], [2.0, INF]))
    assert chosen.diameter == pytest.approx(math.hypot(2.0, 4.0), rel=1e-8)
    assert chosen.linear_minimum(np.array([1.0, 0.3])) == pytest.approx(-0.3, rel=1e-12)
    single = Polyhedron([[1.0, 1.0]], 2, 2, bounds=([1.0, -INF], [1.0, INF]))
    assert single.linear_minimum(np.array([1.0, 0.3])) == pytest.approx(1.3, rel=1e-12)
    for rows in ([[1.0, 1.0]], [[1.0, 1.0], [1.0, -1.0]]):
        assert Polyhedron(rows, -1, 1).diameter == INF
        assert Polyhedron(rows, -1, 1).linear_minimum(np.array([2.0, 2.0])) == -INF


def test_many_coordinates_are_projected_as_onto_a_simplex():
    rng = np.random.default_rng(3)
    d = 5000
    for scale in (1e-3, 1.0, 1e3):
        x = scale * rng.standard_normal(d)
        found = Polyhedron(np.ones((1, d)), 1.0, 1.0, bounds=Box(0.0, INF)).project(x)
        # The sums of d numbers of this size lose no more.
        allowed = 1e-13 * (1 + scale) * math.sqrt(d)
        np.testing.assert_allclose(found, Simplex().project(x), atol=allowed)


def test_rows_that_say_nothing_and_sparse_rows():
    A = np.array([[1.0, 2.0], [0.0, 0.0], [3.0, 1.0]])
    low, high = [0.0, -1.0, -INF], [1.0, 0.0, INF]
    x = np.array([4.0, -5.0])
    for rows in (A, sp.csr_array(A), A.tolist()):
        u = Polyhedron(rows, low, high).project(x)
        np.testing.assert_allclose(u, Polyhedron([[1.0, 2.0]], 0.0, 1.0).project(x), atol=1e-14)
    inside = np.array([0.2, 0.1])
    chosen = Polyhedron(A, low, high)
    assert chosen.project(inside) is inside
    assert chosen.contains(inside)
    assert not chosen.contains(x)
    assert "3 x 2 matrix" in repr(chosen)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.ones(3), 0, 1), "A must be a matrix"),
        ((np.zeros((0, 3)), 0, 1), "A must be a matrix with entries"),
        (([[1.0, INF]], 0, 1), r"A must be finite, but A\[0, 1\] is inf"),
        (([[1.0, 1.0]], [0, 0], 1), "lower and upper must .* one entry per row of A, 1, .* 2"),
        (([[1.0, 1.0]], math.nan, 1), "lower must be a number or -inf"),
        (([[1.0, 1.0]], INF, INF), "lower must be a number or -inf"),
        (([[1.0, 1.0]], 2, 1), r"lower must be <= upper, but lower is 2.0"),
        (([[1.0, 0.0], [0.0, 0.0]], 0.5, 2), r"no point meets row 1: A\[1\] is zero"),
        (([[1.0, 1.0]], 3, 4, (0.0, 1.0)), "no point meets all the constraints"),
        (([[1.0, 1.0], [1.0, 1.0]], [0, 2], [1, 3]), "no point meets all the constraints"),
        (([[1.0, 1.0]], 0, 1, ([0.0] * 3, [1.0] * 3)), "one entry per column of A, 2"),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        Polyhedron(*arguments)
    with pytest.raises(TypeError, match="bounds must be a Box or a pair"):
        Polyhedron([[1.0]], 0, 1, bounds=3.0)


# -- rows that nearly depend on each other ---------------------------------------------------------


def test_a_point_where_many_whole_numbered_rows_meet_takes_few_steps():
    rng = np.random.default_rng(158)
    A = np.round(rng.standard_normal((117, 26)))
    start = rng.standard_normal(26)
    found = Polyhedron(A, 0.0, 0.0).project(start)
    assert np.abs(found).max() <= 1e-15


def hard(seed, kind, apart=None):
    """Return rows and bounds around a point, many of which meet there, and a point to project.

    The rows are those of a third as many directions, but for `apart`, or their columns differ in size.
    """
    rng = np.random.default_rng(seed)
    d, m = int(rng.integers(20, 61)), int(rng.integers(60, 121))
    A = rng.standard_normal((m, d))
    if kind == "twins":
        A = A[rng.integers(0, m // 3, m)] + (apart or 10.0 ** rng.uniform(-8, -4)) * A
    else:
        A *= 10.0 ** rng.uniform(-4, 4, d)
    inside = rng.standard_normal(d) * 10.0 ** rng.uniform(-2, 2)
    slack = np.abs(A) @ np.abs(inside) * rng.exponential(0.1, (2, m)) * (rng.random((2, m)) < 0.5)
    low, high = A @ inside - slack[0], A @ inside + slack[1]
    low[rng.random(m) < 0.3], high[rng.random(m) < 0.3] = -INF, INF
    bounds = (inside - rng.exponential(1.0, d), inside + rng.exponential(1.0, d))
    return A, low, high, bounds, inside, inside + 10.0 * rng.standard_normal(d)


def test_rows_too_near_to_each_other_are_refused_and_not_missed_in_silence():
    """Newton's steps alone missed rows here by 1e-4 and more without a word."""
    for seed in range(4):
        A, low, high, bounds, _, x = hard(seed, "twins", 1e-11)
        try:
            found = Polyhedron(A, low, high, bounds).project(x)
        except (ValueError, ArithmeticError):
            continue
        assert np.maximum(A @ found - high, low - A @ found).max() <= 1e-8 * np.abs(x).sum()


# -- solvers ---------------------------------------------------------------------------------------


def test_points_whose_squares_overflow_are_projected():
    """Here `norm(u - x) ** 2` raised OverflowError."""
    chosen = Polyhedron([[1.0, 1.0], [1.0, -1.0]], [-1.0, 0.0], [1.0, 0.5], bounds=(-2.0, 2.0))
    for size in (1e160, 1e200, 1e300):
        for x in ([size, size], [-size, 0.5 * size]):
            assert chosen.contains(chosen.project(np.array(x)))
    free = Polyhedron([[1.0, 1.0]], -1.0, 1.0)
    assert np.isfinite(free.project(np.array([1e200, -1e200]))).all()


@pytest.mark.parametrize("bad", [math.nan, INF, -INF])
@pytest.mark.parametrize("bounds", [None, (-2.0, 2.0)])
def test_a_point_that_is_not_finite_is_refused(bounds, bad):
    """Clipped to the bounds, it missed the rows."""
    chosen = Polyhedron([[1.0, 1.0]], -1.0, 1.0, bounds)
    for project in (chosen.project, lambda x: nearest_point(chosen.rows_for(2), x)):
        with pytest.raises(NonFiniteError, match=rf"the point to project has entry 1 = {bad}"):
            project(np.array([0.5, bad]))


@pytest.mark.parametrize("size", [1e-18, 1e-100, 1e-290])
def test_large_limits_do_not_hide_what_a_tiny_point_misses(size):
    """The rounding of the row's other limit was allowed for, and points stayed outside."""
    rng = np.random.default_rng(7)
    A, x = rng.standard_normal((4, 6)), rng.standard_normal(6)
    low, high = np.array([0.0, 0.0, -1e6, -INF]), np.array([1e6, 0.0, 0.0, 1e6])
    chosen = Polyhedron(A, low, high)
    expected = chosen.project(x)
    assert np.linalg.norm(expected - x) > 0.1
    np.testing.assert_allclose(chosen.project(size * x) / size, expected, atol=1e-13)


@pytest.mark.parametrize("kind", ["columns", "twins"])
@pytest.mark.parametrize("seed", range(6))
def test_hard_rows_are_projected_on_as_far_as_a_generic_solver_does(kind, seed):
    A, low, high, bounds, inside, x = hard(seed, kind)
    found = Polyhedron(A, low, high, bounds).project(x)
    # No feasible point is nearer: x - found makes an obtuse angle with the way to the inner one.
    scale = np.linalg.norm(x - found) * np.linalg.norm(inside - found)
    assert (x - found) @ (inside - found) <= 1e-7 * scale
    terms = np.abs(A) @ (np.abs(found) + np.abs(inside))
    assert (np.maximum(A @ found - high, low - A @ found) <= 1e-11 * terms).all()


@pytest.mark.parametrize("seed", range(15))
def test_the_lowest_point_of_cuts_meets_the_conditions_of_optimality(seed):
    rng = np.random.default_rng(200 + seed)
    A, low, high, lower, upper, scale = draw(rng)
    chosen = Polyhedron(A, low, high, bounds=(lower, upper))
    d, n = A.shape[1], int(rng.integers(1, 12))
    center = chosen.project(scale * rng.standard_normal(d))
    slopes, below = rng.standard_normal((n, d)), scale * rng.exponential(0.1, n)
    below[0] = 0.0
    found = lowest_of_cuts(chosen.rows_for(d), center, slopes, below, scale)
    assert found is not None
    # Shorter, where the set is so small that a longer step leads no farther.
    assert 0.0 < found.step <= scale * (1 + 1e-9)
    assert found.weights.sum() == pytest.approx(1.0)
    assert (found.weights >= 0.0).all()
    # The point is the projection of a step along the average, and lies on the cuts with weights.
    point = chosen.project(center - found.step * found.weights @ slopes)
    np.testing.assert_allclose(point - center, found.offset, atol=1e-8 * scale)
    values = slopes @ (point - center) - below
    size = scale * np.abs(slopes).max()
    assert values.max() - found.weights @ values <= 1e-8 * size


@pytest.mark.parametrize("outside", [5.5e-17, 1e-15, 1e-12])
def test_a_point_outside_by_rounding_stays_where_it_is(outside):
    """Another row, active at a larger limit, must not hide what the small one misses."""
    chosen = Polyhedron(np.vstack([np.eye(3), np.ones(3)]), 0.0, [1.0, 1.0, 1.0, 3.0])
    found = chosen.project(np.array([1.0, -outside, 0.5]))
    np.testing.assert_array_equal(found, [1.0, 0.0, 0.5])
