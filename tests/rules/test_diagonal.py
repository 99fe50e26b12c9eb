"""A step a coordinate: the formulas, the regret, the rates, and solvers from elsewhere."""

import numpy as np
import pytest
from scipy.optimize import lsq_linear

import accelegrad as ag
from accelegrad.geometry.sets import Box
from accelegrad.rules import AcceleGrad
from accelegrad.rules.diagonal import DiagonalAcceleGrad, DistanceFreeDiagonalAcceleGrad
from stepping import Scaled, gaps, run_on
from toys import FlatQuadratic, slope


@pytest.mark.parametrize("seed", range(3))
def test_probe_goes_as_far_as_the_value_falls(seed):
    """Along the signs: to within a factor of ten of the lowest point, at a handful of calls."""
    problem = Scaled(2, seed)
    rule = DistanceFreeDiagonalAcceleGrad(probe=True)
    state = rule.step(rule.init(problem.x0), problem.oracle).state
    assert 3 <= problem.calls <= 15
    units = 1 + np.abs(problem.x0)
    share = state.widths / units
    np.testing.assert_allclose(share, share[0], rtol=1e-12)
    direction = units * np.sign(problem.gradient(problem.x0))
    bent = problem.A @ direction
    lowest = (problem.A @ problem.x0 - problem.b) @ bent / (bent @ bent)
    assert lowest / 10 <= share[0] <= 2 * lowest  # beyond twice as far the value is higher again
    before = problem.calls
    assert rule.step(state, problem.oracle).state.iteration == 2
    assert problem.calls == before + 1


@pytest.mark.parametrize("seed", range(2))
def test_regret_of_every_coordinate(seed):
    """AdaGrad's bound holds for z in each coordinate, whatever the gradients.

    With eta_t = 2 D / sqrt(S_t), the telescoped D^2 / (2 eta_T) + sum eta_t (alpha_t g_t)^2 / 2 is
    at most (1/4 + 2) D sqrt(S_T).
    """
    rng = np.random.default_rng(seed)
    T, d = 400, 6
    D = 10 ** rng.uniform(-2, 2, d)
    box = Box(np.zeros(d), D)
    rule = DiagonalAcceleGrad(D, project=box.project)
    state = rule.init(D * rng.random(d))
    regret, squares = np.zeros((2, d)), np.zeros(d)
    for _ in range(T):
        z, alpha = state.mirror_point, rule.weight(state)
        # Gradients of wild sizes that push towards the side where z already is.
        g = np.where(z > D / 2, -1, 1) * rng.exponential(size=d) * 10 ** rng.uniform(-3, 3, d)
        regret += alpha * g * (z - np.array([np.zeros(d), D]))  # against either end
        squares += (alpha * g) ** 2
        state = rule.update(state, g)
    assert (regret.max(axis=0) <= 2.25 * D * np.sqrt(squares)).all()


@pytest.mark.parametrize("kind", ["told", "distance-free"])
def test_rescaled_columns_leave_the_predictions(kind):
    """D_j / c_j for columns times c_j: the same run, to the last bit for powers of two."""
    problem = Scaled(2, 4)
    problem.x0 = np.zeros(problem.d)
    rng = np.random.default_rng(0)
    c = 2.0 ** rng.integers(-15, 16, problem.d)
    other = Scaled(2, 4)
    other.x0, other.A = np.zeros(problem.d), problem.A * c

    def rule(widths):
        if kind == "told":
            return DiagonalAcceleGrad(widths)
        return DistanceFreeDiagonalAcceleGrad(widths / 1000)

    first, second = rule(problem.widths), rule(problem.widths / c)
    ones, others = run_on(problem, first, 300), run_on(other, second, 300)
    for a, b in zip(ones, others, strict=True):
        assert np.array_equal(first.output(a), c * second.output(b))


HORIZONS = np.unique(np.logspace(1.5, 3.5, 25).astype(int))


@pytest.mark.parametrize(
    "rule", [DiagonalAcceleGrad(2.0), DistanceFreeDiagonalAcceleGrad(1e-3)], ids=["told", "free"]
)
def test_rate_on_a_smooth_function_that_is_not_strongly_convex(rule):
    """Rotated, so that the coordinates are not independent."""
    flat = FlatQuadratic(60)
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((60, 60)))[0]

    def fun(x):
        value, gradient = flat(basis.T @ x)
        return value, basis @ gradient

    x0 = basis @ flat.x0 / np.abs(basis @ flat.x0).max()
    assert slope(HORIZONS, gaps(rule, fun, x0, 0.0, HORIZONS)) <= -2


def test_badly_scaled_least_squares_against_lapack():
    """Columns from 1e-3 to 1e3; with one step for all, even told the exact D, little moves."""
    problem = Scaled(2, 5, n=200, d=20, spread=3.0)
    problem.x0 = np.zeros(problem.d)
    x_star = np.linalg.lstsq(problem.A / problem.scales, problem.b, rcond=None)[0] / problem.scales
    start, least = problem(problem.x0)[0], problem(x_star)[0]

    def gap(rule):
        states = run_on(problem, rule, 400)
        return min(problem(rule.last(s))[0] - least for s in states) / (start - least)

    # Told the widths, it is AcceleGrad on well scaled data, with its pace.
    assert gap(DiagonalAcceleGrad(2 * np.abs(x_star))) <= 1e-8
    assert gap(DistanceFreeDiagonalAcceleGrad(probe=True)) <= 1e-8
    assert gap(DistanceFreeDiagonalAcceleGrad()) <= 1e-5  # the climb from 1e-6 takes a while
    assert gap(AcceleGrad(2 * float(np.linalg.norm(x_star)))) >= 0.1


@pytest.mark.parametrize(("batch", "most", "spread"), [(1, 3e-2, 3), (16, 2e-4, 0)])
def test_noisy_gradients_do_not_carry_the_widths_away(batch, most, spread):
    rng = np.random.default_rng(6)
    n, d = 500, 20
    scales = 10 ** rng.uniform(-spread, spread, d)
    A = rng.standard_normal((n, d))
    b = A @ rng.standard_normal(d) + 0.3 * rng.standard_normal(n)
    least = 0.5 * np.mean((A @ np.linalg.lstsq(A, b, rcond=None)[0] - b) ** 2)
    model = ag.LinearModel(A * scales, b, "squared")
    rule = DistanceFreeDiagonalAcceleGrad()
    state = rule.init(np.zeros(d))
    for _ in range(10_000):
        rows = rng.integers(n, size=batch)
        state = rule.update(state, model.batch_value_and_gradient(rule.query(state), rows)[1])
    start = model.value(np.zeros(d))
    assert model.value(rule.output(state)) - least <= most * (start - least)
    assert (state.widths * scales).max() <= 100  # the minimiser's entries are about 1


def test_box_constraints_against_scipy():
    problem = Scaled(2, 7, n=60, d=10)
    low, high = -0.5 / problem.scales, 0.7 / problem.scales
    solution = lsq_linear(problem.A, problem.b, (low, high), tol=1e-12)
    assert (solution.active_mask != 0).sum() >= 3
    problem.x0 = np.zeros(problem.d)
    told = DiagonalAcceleGrad(high - low, project=Box(low, high).project, project_y=True)
    free = DistanceFreeDiagonalAcceleGrad(
        probe=True, project=Box(low, high).project, project_y=True
    )
    for rule in (told, free):
        states = run_on(problem, rule, 2000)
        for state in states:
            for point in (rule.query(state), rule.last(state), state.mirror_point):
                assert (point >= low).all()
                assert (point <= high).all()
        start, least = problem(problem.x0)[0], problem(solution.x)[0]
        assert problem(rule.last(states[-1]))[0] - least <= 1e-6 * (start - least)


@pytest.mark.parametrize("rule", [DiagonalAcceleGrad(2.0), DistanceFreeDiagonalAcceleGrad()])
def test_coordinates_without_gradient_do_not_move(rule):
    state = rule.init(np.ones(3))
    for _ in range(5):
        state = rule.update(state, np.array([1.0, 0.0, -1.0]))
    assert rule.last(state)[1] == 1.0
    assert rule.output(state)[1] == pytest.approx(1.0, rel=1e-15)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DiagonalAcceleGrad(0), "diameter must be a finite number > 0, but it is 0"),
        (lambda: DiagonalAcceleGrad([1.0, -2.0]), r"diameter must be > 0, but diameter\[1\] is -2"),
        (lambda: DiagonalAcceleGrad([1.0, np.inf]), r"diameter must be finite, but diameter\[1\]"),
        (lambda: DiagonalAcceleGrad([[1.0]]), r"diameter must be one-dimensional"),
        (lambda: DiagonalAcceleGrad([]), "diameter must have at least one entry"),
        (lambda: DiagonalAcceleGrad(1.0, -1.0), "gradient_bound must be a finite number >= 0"),
        (lambda: DiagonalAcceleGrad([1.0, 2.0]).init(np.zeros(3)), r"have x0's shape \(3,\)"),
        (
            lambda: DistanceFreeDiagonalAcceleGrad(-1.0),
            "initial_radius must be a finite number > 0",
        ),
        (lambda: DistanceFreeDiagonalAcceleGrad([0.0]), r"initial_radius\[0\] is 0"),
        (
            lambda: DistanceFreeDiagonalAcceleGrad([1.0]).init(np.zeros(3)),
            r"have x0's shape \(3,\)",
        ),
    ],
)
def test_bad_values(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_widths_are_the_rules_own():
    widths = np.ones(2)
    rule = DiagonalAcceleGrad(widths)
    widths[0] = 5
    assert np.array_equal(rule.diameter, np.ones(2))
