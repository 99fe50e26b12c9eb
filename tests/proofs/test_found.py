"""What the fuzz has found, each by its smallest case."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import linprog

import accelegrad as ag
from accelegrad import kernels
from proofs import polyhedra
from proofs.battery import drawn
from proofs.cases import OwnRidge
from proofs.functions import Function
from proofs.fuzz import check_of


def test_dual_ascent_leaves_rows_without_weight_or_entries_alone():
    X, y, weights = [[1.0], [2.0], [0.0], [3.0]], [1.0, -1.0, 2.0, 1.0], [1.0, 0.0, 1.0, 1.0]
    model = ag.LinearModel(X, y, "absolute", l2=0.1, sample_weight=weights)
    result = ag.minimize(model, method="dual-ascent", tol=1e-6, max_iter=50)
    assert result.success


@pytest.mark.parametrize("method", ["dog", "u-dog", "a-dog", "accelegrad", "unixgrad"])
def test_a_ball_of_one_point_is_no_evidence(method):
    """A step that rounding takes back was taken for proof that the function falls no farther."""
    given = {"method": method, "initial_radius": 1e-99, "tol": 0.1, "max_iter": 60}
    result = ag.minimize(lambda x: (0.5 * float(x @ x), x.copy()), np.ones(3), **given)
    assert not result.success or result.fun <= 0.1


@pytest.mark.parametrize("method", ["u-dog", "a-dog", "adagrad", "unixgrad"])
def test_a_minimiser_beyond_the_diameter_has_no_gap_below_zero(method):
    """Success and a gap below zero contradict each other."""
    flat = Function("beyond_one", np.zeros(2), np.ones(2), plain=True)
    result = ag.minimize(flat, np.full(2, 1.5), method=method, diameter=0.6, max_iter=400)
    assert not result.success or result.gap >= 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("loss", ["modified_huber", "hinge", "epsilon_insensitive"])
def test_a_zero_gradient_proves_the_goal(loss, dtype):
    """Where the gradient is zero the value is the minimum: the gap is within any goal."""
    rng = np.random.default_rng(1)
    y = np.sign(rng.standard_normal(40))
    model = ag.LinearModel(np.zeros((40, 3), dtype), y, loss, sample_weight=rng.uniform(size=40))
    result = ag.minimize(model, method="subgradient", step_size=0.1, tol=1e-7, max_iter=50)
    assert not result.success or result.gap <= 1e-7 * max(1.0, abs(result.fun))


def test_no_success_without_a_value():
    """One unit of rounding off the minimiser, the square of a slope of 1e270 overflows."""
    target, size = np.array([-0.21326711456178366]), np.array([0.0005026342324167581])
    steep = Function("root", target, size, 1e290, plain=True)
    result = ag.minimize(steep, target, tol=1e-10, max_iter=20, output="average")
    assert not (result.success and math.isnan(result.fun))


def test_a_trace_changes_nothing_in_compiled_steps():
    X = np.random.default_rng(0).standard_normal((50, 8))
    given = {"batch_size": 9, "max_iter": 60, "rng": 0}
    with kernels.use("always"):
        model = ag.LinearModel(X, X @ np.ones(8), "squared")
        plain, traced = ag.minimize(model, **given), ag.minimize(model, trace=True, **given)
    assert plain.x.tobytes() == traced.x.tobytes()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "penalty", [ag.L1(4.57), ag.ElasticNet(4.57, 1.0), ag.GroupL2(4.57, [0, 0, 1])]
)
def test_a_steep_function_with_a_penalty_has_no_false_bound(penalty, seed):
    """The minorant's constant was a difference of huge terms, whose rounding nothing allowed for."""
    curvature = np.array([1e17, 3e16, 1.7e16])

    def steep(x):
        return 0.5 * float(curvature @ x**2), curvature * x

    x0 = 1e-6 * np.random.default_rng(seed).standard_normal(3)
    result = ag.minimize(steep, x0, penalty=penalty, diameter=8e-6, max_iter=50)
    assert result.lower_bound <= 0.0  # the value at zero, which is in the ball
    assert np.linalg.norm(x0) <= result.certified_radius


def test_a_run_that_diverges_gives_no_warning_but_the_users_own():
    def falling(x):
        return float(1e99 * x.sum()), np.full(3, 1e99)

    result = ag.minimize(falling, np.ones(3), penalty=ag.L1(1e98), tol=1e-3, max_iter=300)
    assert not result.success

    def steep(x):
        return float(np.exp(1e3 * x).sum()), 1e3 * np.exp(1e3 * x)

    with pytest.warns(RuntimeWarning, match="overflow encountered in exp"):
        ag.minimize(steep, np.ones(2))


def test_a_bound_above_a_rounded_value_refutes_nothing():
    """Twin columns have weights that cancel: the value's own rounding is larger than the gap."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((59, 4))
    X = np.column_stack([X, X[:, 0]])
    y = X @ np.ones(5) + rng.standard_normal(59)
    start = 1e5 * np.array([1.0, 0.0, 0.0, 0.0, -1.0])
    model = ag.LinearModel(X, y, "squared")
    result = ag.minimize(model, start, max_iter=20, rng=0)
    assert result.status is not ag.Status.REGION_REFUTED
    assert result.gap >= 0


def test_a_value_that_has_vanished_is_no_exact_zero():
    """The square of a weight of 1e-165 is below all floats, but not zero."""
    model = ag.LinearModel(np.zeros((5, 1)), np.zeros(5), "absolute", l2=1.0)
    result = ag.minimize(model, np.array([1e-165]), max_iter=1, method="accelegrad", output="best")
    assert result.x[0] == 0.0 or result.gap > 0.0


def test_tiny_gradients_beside_a_penalty_are_no_evidence_of_a_minimiser():
    """Their square vanishes, and a ball of 6e-4 around a start of 1e6 was taken to hold it."""
    tiny = Function("squares", np.zeros(3), np.ones(3), 2e-290, plain=True)
    given = {"method": "accelegrad", "penalty": OwnRidge(1e-150, 0.0), "initial_radius": 1e-4}
    result = ag.minimize(tiny, np.full(3, 1e6), tol=1e-3, **given)
    assert not result.success or result.lower_bound <= 0.0


@pytest.mark.parametrize("intercept", [False, True])
def test_an_l2_term_of_a_penalty_counts_in_the_bound(intercept):
    """With an intercept the bound was that of the model alone, which has no l2 term."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((80, 3))
    y = np.sign(X[:, 0] + 0.3 * rng.standard_normal(80))
    penalty = ag.ElasticNet(0.0, 0.1)
    bounds = []
    for split in (80, 30):
        chunks = [(X[i : i + split], y[i : i + split]) for i in range(0, 80, split)]
        model = ag.StreamedModel(chunks, fit_intercept=intercept)
        result = ag.minimize(model, penalty=penalty, tol=1e-6, max_iter=3000)
        assert result.success
        assert result.certified_radius == math.inf
        bounds.append(result.lower_bound)
    other = ag.minimize(ag.LinearModel(X, y, l2=0.1, fit_intercept=intercept), tol=1e-9)
    assert all(bound <= other.fun <= bound + 2e-6 for bound in bounds)


def test_a_chunk_whose_weights_are_all_zero_counts_for_nothing():
    X, y = np.arange(8.0).reshape(4, 2), np.array([1.0, -1.0, 1.0, -1.0])
    weights = np.array([0.0, 0.0, 1.0, 2.0])
    chunks = [(X[i : i + 2], y[i : i + 2], weights[i : i + 2]) for i in (0, 2)]
    streamed = ag.StreamedModel(chunks, l2=0.1)
    whole = ag.LinearModel(X, y, l2=0.1, sample_weight=weights)
    assert streamed.value([0.3, -0.2]) == pytest.approx(whole.value([0.3, -0.2]), rel=1e-14)
    with pytest.raises(ValueError, match="sample_weight must have an entry > 0"):
        ag.StreamedModel([(X, y, np.zeros(4))], l2=0.1)


def test_the_value_of_an_elastic_net_does_not_vanish_with_a_square():
    """The square of 1e-170 is zero, but not that times 1e40: `fun` was 0 where f is 1e-300."""
    assert ag.ElasticNet(0.0, 2e40).value(np.array([3e-170])) == pytest.approx(9e-300, rel=1e-12)
    assert ag.ElasticNet(0.0, 2e-40).value(np.array([3e160])) == pytest.approx(9e280, rel=1e-12)
    penalty, x0 = ag.ElasticNet(0.0, 2e40), np.array([1e-170, -2e-170])
    zero = Function("constant", np.zeros(2), np.ones(2))
    found = ag.minimize(zero, x0, penalty=penalty, method="accelegrad", max_iter=1)
    assert found.fun == penalty.value(found.x)


def test_a_projection_from_very_far_lies_in_the_polyhedron():
    """What rounding of x leaves after two rounds was accepted, though 1e31 leaves a half."""
    A = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [-1.0, 1.0]])
    lower = np.array([-0.5872373118722226, 0.916982641638015, -np.inf, -np.inf])
    upper = np.array([-0.5872373118722226, 0.9214840178447684, 2.9647, 3.067])
    bounds = np.array([-0.72, 0.26]), np.array([-0.5, 1.51])
    chosen = ag.Polyhedron(A, lower, upper, bounds)
    for x in ([9.0861e28, -1.8893e31], [-3e60, 2e75], [1e99, -1e99]):
        point = chosen.project(np.array(x))
        row = A @ point
        assert (row >= lower - 1e-12).all()
        assert (row <= upper + 1e-12).all()
        assert (np.clip(point, *bounds) == point).all()


def test_ends_of_a_box_beyond_all_floats_are_none_in_scaled_columns():
    """Dividing them by small scales overflowed, with a warning."""
    X = 1e3 * np.random.default_rng(0).standard_normal((20, 2))
    model = ag.LinearModel(X, X @ [1.0, 2.0], "squared", l2=1e-3)
    huge = ag.Box(-1e308, 1e308)
    limited = ag.minimize(model, feasible_set=huge, scale="columns", method="accelegrad", tol=1e-3)
    assert limited.success
    assert limited.fun <= ag.minimize(model).fun + 1e-3


def test_a_point_that_misses_a_polyhedron_by_a_subnormal_number():
    """Limits, in units of the offset, overflowed with a warning."""
    wedge = ag.Polyhedron([[1.0, 1.0], [1.0, -1.0]], [-1e10, -1e10], [0.0, 0.0])
    point = wedge.project(np.array([1e-310, 0.0]))
    assert wedge.contains(point)
    assert np.abs(point).max() <= 1e-310


def test_the_bound_of_a_product_allows_for_a_polyhedron_whose_projection_loses_digits():
    """A block's projection from far away was trusted to 1e-24: the bound was 0.035 too high."""
    A = np.array([[-1.0, -1, 1, -1], [0, -1, -1, 1], [1, 1, -1, -1]])
    lower, upper = [-np.inf, -0.00990075, 0.05080226], [0.01593321, np.inf, np.inf]
    low = np.array([0.0202747, -0.05592964, -0.04646208, -0.04252466])
    high = np.array([0.02944833, 0.03203824, -0.0127546, -0.02748772])
    block = ag.Polyhedron(A, lower, upper, bounds=ag.Box(low, high))
    g = np.array([0.0, -6.97e-05, -6.52e-05, 1.30665949, 1.18965209, -1.4236669, -0.57436203])
    center = np.array([-0.1062, 0.04717, -0.03582, 0.03352, -0.00724, -0.03743, -0.10634])
    both = ag.Product([(ag.Simplex(0.0050863204424119), 3), (block, 4)])
    rows = np.vstack([A[:1], -A[1:]])
    best = linprog(
        g[3:], rows, [upper[0], -lower[1], -lower[2]], bounds=list(zip(low, high, strict=True))
    )
    point = np.concatenate([[0.0, 0.0050863204424119, 0.0], best.x])
    assert both.contains(point, 1e-9)
    assert np.linalg.norm(point - center) < 0.85
    assert both.linear_minimum_in_ball(g, center, 0.85) <= g @ point + 1e-9


@pytest.mark.parametrize("rows", [False, True], ids=["bounds", "polyhedron"])
@pytest.mark.parametrize("seed", [5007, 29303756])
def test_a_start_at_the_minimiser_of_a_dual_with_bounds(seed, rows):
    """The cuts' programme followed rounding where bounds hold the point back: 1000 iterations."""
    entry = drawn("knapsack", seed, "minimiser", 3)
    positive = ag.Polyhedron(np.vstack([np.eye(3), np.ones(3)]), 0.0, np.inf)
    where = {"feasible_set": positive} if rows else {"bounds": [(0.0, None)] * 3}
    start = positive.project(np.asarray(entry.x0, dtype=float))
    result = ag.minimize(entry.fun, start, tol=1e-6, **where)
    assert result.success
    assert result.nit <= 20


def test_tiny_slopes_and_a_penalty_end_with_a_result():
    """A step in the model of the cuts overflowed, and the prox refused it."""
    signs = np.array([[1.0, 0.5], [-1.0, -0.5], [0.3, -1.0], [-0.3, 1.0]])
    tiny = Function("log_sum_exp", np.full(2, 1e6), signs, 1e-290, plain=True)
    penalty = ag.GroupL2(5e-152, [0, 0])
    result = ag.minimize(tiny, np.full(2, 1e6), penalty=penalty, restart="auto", tol=0.01)
    assert result.success
    assert result.gap <= 0.01


@pytest.mark.parametrize("seed", [31000106, 77000117])
def test_a_vertex_where_no_way_leads_down_is_proved_at_once(seed):
    """It took 129 calls and 23: a proof was not tried before the twentieth step."""
    problem = polyhedra.draw(seed)
    result = ag.minimize(problem.fun, problem.x0, tol=polyhedra.TOL, **problem.keywords)
    assert result.nfev <= 15


#: Seeds of the fuzz, and what was wrong with each
SEEDS = [
    # Multipliers found from far away lacked digits: no more than a gap of 7e-4 was proved.
    *(("polyhedra", seed) for seed in (711899709, 692175533)),
    # It ended after max_iter: rounding over a set that is 1e10 wide took all digits.
    ("polyhedra", 118),
    # With a tiny l2 term a point was projected from far away, and the bound 1e-5 too high.
    ("checks", 580735703),
    # From 3e10 away: steps of L-BFGS where nothing changes ended at 1e28, and `NOT_CONVEX`.
    ("checks", 640007313),
    # Steps grew until they overflowed; a point that is not finite has no projection.
    ("checks", 650000816),
    # A sum of absolute values fell by exactly 1 in each step, and was taken for float32's.
    ("checks", 640014726),
    # Rough trials shortened steps to zero; a gradient overflowed where only a value was known.
    *(("checks", seed) for seed in (710003525, 710005043, 710006756)),
    # Of two medians the weighted one was the smaller, which made the tolerance larger.
    ("estimators", 332411854),
    # Targets of 5e15 and no spread: the size that the tolerance is relative to was rounding alone.
    ("estimators", 5283),
    # What a callback saw beside an average did not allow for the rounding of its value.
    ("checks", 930009890),
    ("estimators", 910036990),  # the median of two targets of a stream
]


@pytest.mark.parametrize(("check", "seed"), SEEDS)
def test_a_seed_with_a_finding_has_none_any_more(check, seed):
    check_of(check)(seed)


@pytest.mark.parametrize(
    ("seed", "start", "d"),
    [(800005513, "zero", 5), (900002345, "zero", 20), (920002262, "far", 18)],
)
def test_quadratics_that_meet_in_a_box_are_proved_to_the_last_digits(seed, start, d):
    """The weights of the cuts were found to twelve digits of a number far above their promise."""
    entry = drawn("max_quadratics", seed, start, d)
    result = ag.minimize(entry.fun, entry.x0, tol=1e-8, max_iter=300, **entry.keywords)
    assert result.success
