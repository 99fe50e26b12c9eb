"""Feasible sets against their formulas in long doubles and sampled members.

The formulas, which share no code with the sets, and most sets are those of the fuzz.
"""

import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

from accelegrad.geometry.polyhedron import Polyhedron
from accelegrad.geometry.sets import (
    Affine,
    Ball,
    Box,
    FeasibleSet,
    Halfspace,
    L1Ball,
    NonNegative,
    Product,
    Simplex,
    WholeSpace,
    as_feasible_set,
)
from proofs.cases import SETS, build_set, draw_set
from proofs.extended import SetFormula

INF = math.inf
SCALES = [1e-8, 1e8]


# -- the cases


@dataclass
class Case:
    """A set of dimension d, a reference for its projection, and the size of its numbers."""

    feasible_set: FeasibleSet
    d: int
    project: Callable[[np.ndarray], np.ndarray]
    size: float
    scale: float

    def sample(self, rng):
        """Draw a member, often of the boundary; projected twice, to lose no digits."""
        u = self.scale * 10.0 ** rng.uniform(-1, 2) * rng.standard_normal(self.d)
        return self.project(self.project(u))


def maker_of(name):
    def make(rng, scale, d):
        d = max(d, 2) if name == "Product" else d
        formula = draw_set(rng, d, scale, (name,))
        chosen = as_feasible_set(build_set(formula))
        return Case(chosen, d, lambda x: formula.nearest(x).astype(float), 3 * scale, scale)

    return make


def affine_case(rng, scale, d):
    """With equations that say nothing new."""
    rows = max(1, d // 2)
    A = rng.standard_normal((rows, d))
    A = np.vstack([A, rng.standard_normal((3, rows)) @ A])
    solution = scale * rng.standard_normal(d)
    b = A @ solution
    formula, size = SetFormula("Affine", {"A": A, "b": b}), float(np.linalg.norm(solution))
    return Case(Affine(A, b), d, lambda x: formula.nearest(x).astype(float), size, scale)


class OwnSimplex:
    """A set as a user would write it: it knows how to project and nothing else."""

    def __init__(self, total):
        self.total = total

    def project(self, x):
        ordered = np.sort(x)[::-1]
        sums = np.cumsum(ordered) - self.total
        last = np.flatnonzero(ordered - sums / np.arange(1, x.size + 1) > 0)[-1]
        x -= sums[last] / (last + 1.0)  # in place, as users do
        x[x < 0.0] = 0.0
        return x


def foreign_case(rng, scale, d):
    case = CASES["Simplex"](rng, scale, d)
    case.feasible_set = as_feasible_set(OwnSimplex(case.feasible_set.total))
    return case


CASES = {name: maker_of(name) for name in SETS if name != "WholeSpace"} | {
    name.removesuffix("_case"): maker
    for name, maker in list(globals().items())
    if name.endswith("_case")
}
KINDS = sorted(CASES)
every_case = pytest.mark.parametrize("name", KINDS)
# Makers draw one of several forms, by the seed.
every_form = pytest.mark.parametrize(("seed", "scale"), [(0, 1e-8), (1, 1e8), (2, 1.0)])


def make(name, seed, scale=1.0, d=5):
    return CASES[name](np.random.default_rng(100 * KINDS.index(name) + seed), scale, d)


def interesting_points(case, rng, scale):
    """Near and far, inside, on the boundary, with ties, at zero."""
    d = case.d
    for spread in (1e-3, 1.0, 3.0, 1e3, 1e8):
        yield scale * spread * rng.standard_normal(d)
    yield scale * rng.integers(-2, 3, d).astype(float)
    yield np.full(d, scale)
    yield np.zeros(d)
    yield case.sample(rng)
    yield case.sample(rng) + 1e-9 * scale * rng.standard_normal(d)


def norm(v):
    return float(np.linalg.norm(v))


# -- projection


@every_case
@every_form
@pytest.mark.parametrize("d", [1, 5, 100])
def test_projection_agrees_with_a_naive_one(name, seed, scale, d):
    rng = np.random.default_rng(10 + d)
    case = make(name, seed, scale, d)
    chosen = pickle.loads(pickle.dumps(case.feasible_set))
    for x in interesting_points(case, rng, scale):
        before = x.copy()
        p = chosen.project(x)
        size = 1e-12 * max(norm(x), case.size)
        np.testing.assert_array_equal(x, before)
        assert (p.dtype, p.shape) == (np.float64, x.shape)
        assert norm(chosen.project(p.copy()) - p) <= size
        assert norm(case.project(p) - p) <= size
        assert norm(p - case.project(x)) <= size
        # `contains` knows the scale of p only, and the foreign set is no careful one.
        if norm(x) <= 1e3 * norm(p) and name != "foreign":
            assert chosen.contains(p)
        distance = norm(p - x)
        if distance > size and name != "Product":  # which measures block by block
            sizes = max(norm(x), norm(p)), max(norm(x), norm(p), 10.0 * case.size)
            assert chosen.contains(x, tolerance=distance / sizes[0] * (1.0 + 1e-9))
            assert not chosen.contains(x, tolerance=distance / sizes[1] * (1.0 - 1e-9))


def test_rows_describe_the_simplex():
    chosen = Simplex(2.0)
    rows = chosen.rows_for(5)
    same = Polyhedron(rows.A, rows.low, rows.high, bounds=(rows.box_low, rows.box_high))
    for x in 3.0 * np.random.default_rng(0).standard_normal((20, 5)):
        np.testing.assert_allclose(same.project(x), chosen.project(x), atol=1e-13)
    assert chosen.rows_for(10**4) is None


def test_simplex_far_away_keeps_differences_that_floats_can_tell():
    x = np.array([1e15, 1e15 - 0.5, 1e15 - 2.0])
    np.testing.assert_array_equal(Simplex(1.0).project(x), [0.75, 0.25, 0.0])
    np.testing.assert_array_equal(Simplex(1.0).project(-x[::-1] + 7.0), [0.0, 0.0, 1.0][::-1])
    np.testing.assert_array_equal(L1Ball(1.0).project(-x), [-0.75, -0.25, 0.0])


def test_l1_projection_keeps_zeros_zero():
    # Next to the boundary, where rounding decides the sign of the shrinkage.
    rng = np.random.default_rng(65)
    for _ in range(200):
        x = np.concatenate([rng.uniform(0.0, 1.0, 10), np.zeros(5)])
        p = L1Ball(math.nextafter(float(x.sum()), 0.0)).project(x)
        np.testing.assert_array_equal(p[10:], 0.0)
        assert (np.abs(p) <= np.abs(x)).all()
    assert not np.signbit(L1Ball(1.0).project(np.array([3.0, 0.0]))).any()


@pytest.mark.parametrize("size", [1e-200, 1e-160, 1e160, 1e200])
def test_ball_at_sizes_whose_squares_leave_the_floats(size):
    x = size * np.array([3.0, 4.0])
    expected = size * np.array([0.6, 0.8])
    np.testing.assert_allclose(Ball([0.0, 0.0], size).project(x), expected, rtol=1e-15)
    assert Ball([0.0, 0.0], 5.1 * size).project(x) is x
    assert Ball(0.0, size).linear_minimum(x / size) == pytest.approx(-5.0 * size, rel=1e-15)


def test_nan_stays_nan_and_does_not_hang():
    x = np.array([1.0, math.nan, 3.0])
    for feasible_set in (Simplex(), L1Ball(1.0), Ball(0.0, 1.0), Box(-1.0, 1.0), NonNegative()):
        assert np.isnan(feasible_set.project(x)).any()


# -- linear minimum


@every_case
@every_form
def test_linear_minimum_and_diameter(name, seed, scale):
    """No member is lower, and a bounded set has one as low: where a very long step leads."""
    rng = np.random.default_rng(90)
    case = make(name, seed, scale, 6)
    chosen, diameter = case.feasible_set, case.feasible_set.diameter_for(case.d)
    points = np.array([case.sample(rng) for _ in range(60)])
    assert np.linalg.norm(points[:, None] - points[None], axis=2).max() <= diameter * (1 + 1e-12)
    assert chosen.diameter >= diameter
    for g in (rng.standard_normal((4, case.d)) * 10.0 ** rng.uniform(-3, 3, (4, 1))).tolist():
        g = np.array(g)
        bound = chosen.linear_minimum(g)
        for u in points:
            assert bound <= g @ u + 1e-12 * norm(g) * max(norm(u), case.size)
        if diameter < INF:
            lowest = case.project(points[0] - 1e6 * diameter * g / norm(g))
            assert bound >= g @ lowest - 1e-6 * norm(g) * diameter
        assert chosen.linear_minimum_in_ball(g, points[0], INF) == bound


def test_unbounded_linear_minima():
    g = np.array([1.0, -1e-300])
    assert WholeSpace().linear_minimum(g) == -INF
    assert NonNegative().linear_minimum(g) == -INF
    assert NonNegative().linear_minimum(np.array([1.0, 0.0])) == 0.0
    assert Box([0.0, 0.0], [1.0, INF]).linear_minimum(g) == -INF
    assert Box([0.0, 0.0], [INF, 1e300]).linear_minimum(g) == -1.0
    assert Box(-INF, INF).linear_minimum(np.zeros(2)) == 0.0
    assert Box([-3.0, -INF], INF).linear_minimum(np.array([2.0, 0.0])) == -6.0
    product = Product([(Simplex(), 2), (NonNegative(), 1)])
    assert product.linear_minimum(np.array([1.0, 2.0, -1.0])) == -INF
    assert product.linear_minimum(np.array([1.0, 2.0, 1.0])) == 1.0
    half = Halfspace([2.0, 4.0], 3.0)  # along its normal only
    minima = [half.linear_minimum(np.array(g)) for g in ([-4.0, -8.0], [4.0, 8.0], [-4.0, -8.1])]
    assert minima == pytest.approx([-6.0, -INF, -INF], rel=1e-13)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("copies", [0, 4])
def test_affine_has_a_linear_minimum_on_its_row_space_only(scale, copies):
    rng = np.random.default_rng(97)
    A = rng.standard_normal((6, 20))
    A = np.vstack([A, rng.standard_normal((copies, 6)) @ A])
    solution = scale * rng.standard_normal(20)
    feasible_set = Affine(A, A @ solution)
    assert feasible_set.rank == 6
    for _ in range(5):
        g = rng.standard_normal(len(A)) @ A
        assert feasible_set.linear_minimum(g) == pytest.approx(
            g @ solution, abs=1e-12 * norm(g) * norm(solution)
        )
        assert feasible_set.linear_minimum(g + 1e-9 * rng.standard_normal(20)) == -INF


# -- in a ball


def balls(case, rng, scale=1.0):
    """Balls that meet the set: centres in it and outside, small and large radii."""
    for radius in (0.01, 0.5, 2.0, 50.0):
        yield case.sample(rng), scale * radius
        center = case.sample(rng) + 0.5 * scale * rng.standard_normal(case.d)
        yield center, 1.2 * norm(case.project(center) - center) + scale * radius


@every_case
@every_form
@pytest.mark.parametrize("d", [1, 6])
def test_bound_in_a_ball_is_the_minimum(name, seed, scale, d):
    """The dual function is nowhere higher; that no member is lower is a part of the fuzz."""
    rng = np.random.default_rng(110 + d)
    case = make(name, seed, scale, d)
    chosen = case.feasible_set
    for center, radius in balls(case, rng, scale):
        for g in (rng.standard_normal(case.d), rng.integers(-1, 2, case.d) * 1e5):
            bound = chosen.linear_minimum_in_ball(g, center, radius)
            size = norm(g) * (norm(center) + radius)
            # Searched for with few projections: off by the square of ON_BOUNDARY.
            missed = 1e-7 if chosen.costly_minimum else 1e-14
            assert bound >= max(chosen.linear_minimum(g), g @ center - radius * norm(g)) - (
                missed * size
            )
            for theta in norm(g) / radius * np.logspace(-2, 2, 9) if g.any() else ():
                u = case.project(center - g / theta)
                dual = g @ u + 0.5 * theta * (norm(u - center) ** 2 - radius**2)
                assert bound >= dual - 1e-6 * norm(g) * radius - 1e-13 * size
            if seed == 0 and not chosen.costly_minimum:  # sets that have their own formula
                generic = FeasibleSet.linear_minimum_in_ball(chosen, g, center, radius)
                assert abs(bound - generic) <= 3e-7 * size
    g = rng.standard_normal(case.d)
    far = case.sample(rng) - 1e3 * scale  # a ball that may not meet the set has any bound
    assert not math.isnan(chosen.linear_minimum_in_ball(g, far, scale))


@pytest.mark.parametrize(
    "chosen",
    [
        Box([1.0, -INF], INF),
        Halfspace([-1.0, 0.0], -1.0),
        Affine([[1.0, 0.0]], [1.0]),
        Polyhedron([[1.0, 0.0]], 1.0, INF),
        Product([(Box(1.0, INF), 1), (NonNegative(), 1)]),
    ],
    ids=repr,
)
def test_bound_in_a_ball_that_seems_to_touch_the_set(chosen):
    """Where rounding hid that they overlap, the bound was too high by 1.5e-8 of the radius."""
    rng = np.random.default_rng(170)
    for _ in range(200):
        center = np.array([-(10.0 ** rng.uniform(-3, 8)), 0.0])
        distance = 1.0 - center[0]
        radius = distance * (1.0 + rng.choice([1e-16, 2.3e-16, 1e-15, 1e-9]))
        exact = Fraction(radius) ** 2 - (1 - Fraction(center[0])) ** 2
        if exact >= 0:  # the half-space u_1 >= 1 cuts [-e, e] out of the ball at u_1 = 1
            least = -math.sqrt(exact) if chosen.project(np.array([1.0, -1.0]))[1] else 0.0
            for g in (np.array([0.0, 1.0]), np.array([1e-3, 1.0])):
                bound = chosen.linear_minimum_in_ball(g, center, radius)
                assert bound <= least + g[0] + 1e-15 * norm(g) * distance


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("slope", [1.0, 1e-3, 1e-9, 1e-14])
def test_bound_for_the_orthant_keeps_badly_scaled_gradients(scale, slope):
    # A large part of g that pushes against the set must not drown a small one along it.
    rng = np.random.default_rng(140)
    g = np.concatenate([rng.uniform(1.0, 2.0, 5), -slope * rng.uniform(1.0, 2.0, 5)])
    expected = -scale * norm(np.minimum(g, 0.0))  # along the negative part of g
    for feasible_set in (NonNegative(), Box(0.0, INF), Product([(NonNegative(), 10)])):
        found = feasible_set.linear_minimum_in_ball(g, np.zeros(10), scale)
        assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("slope", [1.0, 1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("scale", SCALES)
def test_bound_for_a_product_allows_for_the_digits_lost_far_away(scale, slope):
    # g has nothing along the affine block and little along the orthant: the best theta is small.
    rng = np.random.default_rng(145)
    for _ in range(20):
        A = rng.standard_normal((3, 8))
        center = np.concatenate([scale * rng.standard_normal(8), np.zeros(4)])
        feasible_set = Product([Affine(A, A @ center[:8]), (NonNegative(), 4)])
        g = np.concatenate([rng.standard_normal(3) @ A, -slope * rng.uniform(1.0, 2.0, 4)])
        exact = g[:8] @ center[:8] - scale * norm(g[8:])
        found = feasible_set.linear_minimum_in_ball(g, center, scale)
        size = norm(g) * norm(center)
        assert exact - 2e-7 * norm(g) * scale <= found <= exact + 1e-15 * size


def test_bound_in_a_ball_that_leaves_out_a_corner_only_just():
    """Steps in which the projection stays at the corner were shortened by a twentieth each."""
    g, center = np.array([-1.0, -0.1]), np.array([0.0, -3.0])
    s = (math.sqrt(2.0 * 3.1**2 - 4.0) - 2.0) / 2.0  # (s, s - 1) is at the distance 3.1
    for chosen in (L1Ball(1.0), Product([L1Ball(1.0, [0.0, 0.0])])):
        bound = chosen.linear_minimum_in_ball(g, center, 3.1)
        assert bound == pytest.approx(-s - 0.1 * (s - 1.0), abs=1e-9)


def test_single_point_of_affine():
    feasible_set = Affine([[1.0, 1.0], [1.0, -1.0], [2.0, 0.0]], [3.0, 1.0, 4.0])
    assert feasible_set.rank == 2
    assert feasible_set.diameter == 0.0
    np.testing.assert_allclose(feasible_set.project(np.array([1e9, -7.0])), [2.0, 1.0], rtol=1e-14)
    g = np.array([5.0, -2.0])
    assert feasible_set.linear_minimum(g) == pytest.approx(8.0, rel=1e-14)
    assert feasible_set.linear_minimum_in_ball(g, np.zeros(2), 9.0) == pytest.approx(8.0, rel=1e-14)
    feasible_set.project(np.zeros(2))[:] = 77.0  # a caller may write into what it got
    np.testing.assert_allclose(feasible_set.project(np.zeros(2)), [2.0, 1.0], rtol=1e-14)


def test_bound_with_a_broken_gradient_is_no_bound():
    g = np.array([1.0, math.nan])
    assert NonNegative().linear_minimum_in_ball(g, np.zeros(2), 1.0) == -INF
    assert Simplex().linear_minimum_in_ball(np.array([INF, 0.0]), np.zeros(2), 3.0) == -INF


# -- diameter


def test_diameters():
    assert Ball(np.zeros(3), 2.0).diameter == 4.0
    assert Box(0.0, 1.0).diameter == INF
    assert Box(0.0, 1.0).diameter_for(9) == 3.0
    assert Box(1.0, 1.0).diameter == 0.0
    assert Box([1.0, 2.0], [1.0, 2.0]).diameter == 0.0
    assert Box([0.0, 0.0], [1.0, INF]).diameter == INF
    assert Box([0.0, 0.0], [3.0, 4.0]).diameter == 5.0
    assert Box(-INF, 0.0).diameter_for(2) == INF
    assert Simplex(3.0).diameter_for(1) == 0.0
    assert Simplex(3.0).diameter == Simplex(3.0).diameter_for(2) == pytest.approx(math.sqrt(18.0))
    assert L1Ball(3.0).diameter == L1Ball(3.0, [1.0, 2.0]).diameter_for(2) == 6.0
    for unbounded in (WholeSpace(), NonNegative(), Halfspace([1.0], 1.0), Affine([[1, 2]], [1])):
        assert unbounded.diameter == INF
    assert Affine([[2.0]], [1.0]).diameter == 0.0
    assert Product([(Box(0.0, 1.0), 4), (Simplex(), 1)]).diameter == 2.0
    assert Product([Box([0.0], [3.0]), Box([1.0], [5.0])]).diameter == 5.0
    assert Product([(Simplex(), 2), (NonNegative(), 1)]).diameter == INF


# -- membership


def test_contains_at_the_edge():
    assert Ball([1.0, 0.0], 1.0).contains([-1e-15, 0.0])  # the scale is the ball's, not the point's
    assert not Ball([1.0, 0.0], 1.0).contains([-1e-11, 0.0])
    assert Ball([1.0, 0.0], 1.0).contains([-1e-11, 0.0], tolerance=1e-10)
    assert not Ball([1e-8, 0.0], 1e-8).contains([-1e-15, 0.0])
    assert NonNegative().contains([1.0, -1e-15])
    assert not NonNegative().contains([1.0, -1e-11])
    assert not Simplex().contains([0.5, 0.5 + 1e-11])
    assert Halfspace([1.0, 0.0], 0.0).contains([0.0, 5.0], tolerance=0.0)
    assert not Affine([[1.0, 1.0]], [1.0]).contains([0.5, 0.5 + 1e-11])
    assert Box(-INF, INF).contains([1e300, -1e300])
    product = Product([(Simplex(1e8), 2), (Simplex(1e-8), 2)])
    assert product.contains([1e8, 0.0, 0.0, 1e-8])
    assert not product.contains([1e8, 0.0, 0.0, 2e-8])
    with pytest.raises(ValueError, match=r"feasible_set .* dimension 2, .* 3 coordinates"):
        Ball([0.0, 0.0], 1.0).contains(np.zeros(3))
    with pytest.raises(ValueError, match=r"x must be one-dimensional"):
        Simplex().contains(np.zeros((2, 2)))
    with pytest.raises(TypeError, match=r"x must be real"):
        Simplex().contains(np.zeros(2, complex))
    with pytest.raises(ValueError, match=r"tolerance .* >= 0"):
        Simplex().contains(np.zeros(2), tolerance=-1.0)


# -- construction


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda: Ball([0.0], 0.0), ValueError, r"radius must be .* > 0, but it is 0\.0"),
        (lambda: Ball([0.0], INF), ValueError, r"radius .* inf"),
        (lambda: Ball([0.0, math.nan], 1.0), ValueError, r"center\[1\] is nan"),
        (lambda: Ball(1j, 1.0), TypeError, r"center must be real"),
        (lambda: Ball([[0.0]], 1.0), ValueError, r"center .* shape is \(1, 1\)"),
        (lambda: Box([0, 2, 3], [1, 1, 1]), ValueError, r"lower\[1\] is 2.* upper\[1\] is 1"),
        (lambda: Box(2.0, 1.0), ValueError, r"lower is 2\.0 and upper is 1\.0"),
        (lambda: Box([0, 0], [1, 1, 1]), ValueError, r"lower and upper .* 2 and 3"),
        (lambda: Box(0, math.nan), ValueError, r"upper is nan"),
        (lambda: Box(INF, INF), ValueError, r"lower must be a number or -inf, but lower is inf"),
        (lambda: Box(0, [1, -INF]), ValueError, r"upper .* or inf, but upper\[1\] is -inf"),
        (lambda: Box([[0]], 1), ValueError, r"lower .* shape is \(1, 1\)"),
        (lambda: Simplex(0.0), ValueError, r"total .* > 0"),
        (lambda: L1Ball(0.0), ValueError, r"radius .* > 0"),
        (lambda: L1Ball(1.0, [math.nan]), ValueError, r"center\[0\] is nan"),
        (lambda: Halfspace([0.0, 0.0], 1.0), ValueError, r"normal must not be zero"),
        (lambda: Halfspace(1.0, 1.0), ValueError, r"normal .* shape is \(\)"),
        (lambda: Halfspace([1.0], INF), ValueError, r"offset .* inf"),
        (lambda: Affine([1.0, 2.0], [1.0]), ValueError, r"A must be a matrix .* \(2,\)"),
        (lambda: Affine([[1.0, math.nan]], [1.0]), ValueError, r"A\[0, 1\] is nan"),
        (lambda: Affine([[1.0, 2.0]], [1.0, 2.0]), ValueError, r"b must have .* 1, .* has 2"),
        (lambda: Affine([[1, 1], [2, 2]], [1, 3]), ValueError, r"A and b contradict .* row 0"),
        (lambda: Affine([[1, 1], [0, 0]], [1, 1e-3]), ValueError, r"A and b contradict .* row 1"),
        (lambda: Product([]), ValueError, r"blocks .* empty"),
        (lambda: Product(Simplex()), TypeError, r"blocks must be a list .* Simplex"),
        (lambda: Product([Simplex()]), ValueError, r"blocks\[0\] must tell its size.* pair"),
        (lambda: Product([(Simplex(), 0)]), ValueError, r"size in blocks\[0\] .* >= 1"),
        (lambda: Product([(Simplex(), 2, 3)]), ValueError, r"blocks\[0\] .* 3 parts"),
        (lambda: Product([(Simplex(), 2), 7]), TypeError, r"blocks\[1\] must be .* not 7"),
        (lambda: Product([(Ball([0, 0], 1), 3)]), ValueError, r"blocks\[0\] must be 2, .* is 3"),
    ],
)
def test_constructors_say_what_is_wrong(build, error, words):
    with pytest.raises(error, match=words):
        build()


def test_equations_that_only_look_contradictory():
    assert Affine([[1, 1], [2, 2], [0, 0]], [1, 2, 0]).rank == 1
    assert Affine([[0.0, 0.0]], [0.0]).rank == 0
    np.testing.assert_array_equal(Affine([[0.0]], [0.0]).project(np.array([4.0])), [4.0])
    # The unit of an equation is no part of it.
    mixed = Affine([[1e9, 1e9], [1e-9, -1e-9]], [2e9, 4e-9])
    assert mixed.rank == 2
    np.testing.assert_allclose(mixed.project(np.zeros(2)), [3.0, -1.0], rtol=1e-14)


def test_representations():
    assert repr(Ball([0, 0.5], 2)) == "Ball(center=[0. , 0.5], radius=2.0)"
    assert repr(Ball(0, 2)) == "Ball(center=0.0, radius=2.0)"
    assert repr(Ball(np.zeros(500), 2)) == "Ball(center=[0., 0., ..., 0., 0.], radius=2.0)"
    assert repr(Box(0, [1, INF])) == "Box(lower=0.0, upper=[ 1., inf])"
    assert repr(Simplex()) == "Simplex(total=1.0)"
    assert repr(L1Ball(2)) == "L1Ball(radius=2.0, center=0.0)"
    assert repr(NonNegative()) == "NonNegative()"
    assert repr(WholeSpace()) == "WholeSpace()"
    assert repr(Halfspace([1], 2)) == "Halfspace(normal=[1.], offset=2.0)"
    assert repr(Affine([[1, 2]], [3])) == "Affine(A=1 x 2 matrix of rank 1, b=1 numbers)"
    assert repr(Product([(Simplex(), 2)])) == "Product([(Simplex(total=1.0), 2)])"


# -- foreign sets


class OwnSegment:
    """A user's set that tells all it can: [-1, 1] in one dimension."""

    diameter = 2.0
    dimension = 1

    def project(self, x):
        return [min(max(v, -1.0), 1.0) for v in x]

    def linear_minimum(self, g):
        return -abs(g).sum()

    def __repr__(self):
        return "OwnSegment"


def test_foreign_sets_tell_what_they_can():
    full, bare = as_feasible_set(OwnSegment()), as_feasible_set(OwnSimplex(1.0))
    assert isinstance(full, FeasibleSet)
    assert (full.diameter, full.dimension) == (2.0, 1)
    assert full.linear_minimum(np.array([3.0])) == -3.0
    np.testing.assert_array_equal(full.project(np.array([5.0])), [1.0])
    assert full.contains([1.0])
    assert not full.contains([1.0 + 1e-11])
    assert repr(full) == "as_feasible_set(OwnSegment)"
    assert (bare.diameter, bare.dimension) == (INF, None)
    assert bare.linear_minimum(np.array([1.0, 2.0])) == -INF
    assert bare.contains([0.25, 0.75])
    assert not bare.contains([0.25, 0.75 + 1e-11])
    product = Product([OwnSegment(), (OwnSimplex(1.0), 2)])
    np.testing.assert_array_equal(product.project(np.array([9.0, 3.0, 0.0])), [1.0, 1.0, 0.0])
    assert product.diameter == INF


def test_own_sets_pass_through_and_others_are_refused():
    ball = Ball(0.0, 1.0)
    assert as_feasible_set(ball) is ball
    for wrong in (None, 3.0, [1, 2], lambda x: x):
        with pytest.raises(TypeError, match=r"feasible_set must be .*project\(x\)"):
            as_feasible_set(wrong)
    with pytest.raises(TypeError, match=r"feasible_set must be a set, not the class Ball"):
        as_feasible_set(Ball)
    with pytest.raises(ValueError, match=r"feasible_set must be a set or a name, not 'ball'"):
        as_feasible_set("ball")
    with pytest.raises(TypeError, match=r"project"):
        FeasibleSet()


def test_foreign_sets_with_nonsense_are_refused():
    own = OwnSegment()
    for diameter, error in [(-1.0, ValueError), (math.nan, ValueError), ("2", TypeError)]:
        own.diameter = diameter
        with pytest.raises(error, match=r"feasible_set\.diameter"):
            as_feasible_set(own)
    own.diameter = INF
    assert as_feasible_set(own).diameter == INF
    own.dimension = 1.5
    with pytest.raises(TypeError, match=r"feasible_set\.dimension .* 1\.5"):
        as_feasible_set(own)
    own.dimension = None
    own.project = lambda x: x[:1]
    with pytest.raises(ValueError, match=r"feasible_set\.project .* \(3,\), .* \(1,\)"):
        as_feasible_set(own).project(np.zeros(3))
