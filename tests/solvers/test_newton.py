"""Newton's steps with sketched curvature: formulas, other solvers, hard cases, smoothed losses."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from scipy.optimize import minimize_scalar

import accelegrad as ag
from accelegrad import kernels
from accelegrad.errors import LineSearchError
from accelegrad.models.matrix import drawn_by_weight
from accelegrad.rules.base import KnownEvaluation
from accelegrad.solvers import SketchedNewton
from accelegrad.solvers import curvature as curved
from accelegrad.solvers.newton import CurvedOracle, SmoothedCurvedOracle
from accelegrad.solvers.row_oracle import LARGEST_SHRINK, smoothing_gap
from reference.sketched_newton import sketched_newton
from row_sums import KINKED, SMOOTH
from toys import linear_problem


def problem(loss="logistic", kind="dense", rows=300, columns=8, l2=1e-3, seed=7, **options):
    more = dict(density=0.4, noise=0.7, l2=l2, seed=seed, **options)
    return linear_problem(loss, kind, (rows, columns), **more)


def run(rule, oracle, x0, steps):
    state, found = rule.init(x0), []
    for _ in range(steps):
        found.append(rule.step(state, oracle))
        state = found[-1].state
    return found


def solved(model, steps=40):
    rule, oracle = SketchedNewton(), CurvedOracle(model, np.random.default_rng(0))
    state = rule.init(np.zeros(model.n_parameters))
    for _ in range(steps):
        try:
            state = rule.step(state, oracle).state
        except LineSearchError:  # rounding error allows no more
            break
    return oracle


class Matrix:
    scaled, patience = True, 0.0

    def __init__(self, matrix, cost):
        self.matrix, self.cost = matrix, cost

    def solve(self, vector):
        return np.linalg.solve(self.matrix, vector)


class Valley:
    """A smooth function in six dimensions whose curvature has errors, smaller ones each time."""

    changed, best = False, None

    def __init__(self, error, cost):
        rng = np.random.default_rng(5)
        self.A, self.error, self.cost = rng.normal(size=(40, 6)), error, cost
        self.b = self.A @ (3 * rng.normal(size=6))
        self.seen, self.sketched, self.sum = [], [], self

    def original(self, evaluation):
        return evaluation

    def guess(self, point):
        return None

    def value_and_gradient(self, x):
        r = self.A @ x - self.b
        root = np.sqrt(1 + r**2)
        return float(root.sum() + 0.01 * x @ x), self.A.T @ (r / root) + 0.02 * x

    def __call__(self, point):
        self.seen.append(point)
        return KnownEvaluation(point, *self.value_and_gradient(point))

    def matrix(self, x, number, caution):
        r = self.A @ x - self.b
        bends = (1 + r**2) ** -1.5 + caution / np.sqrt(1 + r**2)
        noise = 1 + self.error / number * np.cos(np.arange(40) + number)
        return (self.A.T * (bends * noise)) @ self.A + 0.02 * np.eye(6), self.cost

    def shorter(self, point, trial, value, fall):
        move = trial - point
        return curved.shorter_share(
            lambda t: self.value_and_gradient(point + t * move)[0], value, fall
        )

    def curvature(self, point, number, caution):
        if number == 0:
            return Matrix(np.eye(6), self.cost)
        if (number, caution) not in self.sketched:
            self.sketched.append((number, caution))
        return Matrix(*self.matrix(point, number, caution))


@pytest.mark.parametrize("memory", [0, 2, 10])
@pytest.mark.parametrize(
    ("error", "cost"), [(0.0, 0.5), (0.5, 0.5), (0.9, 2.0), (0.6, 0.1), (0.9, 40.0)]
)
def test_steps_are_those_of_the_plain_transcription(error, cost, memory):
    valley, rule = Valley(error, cost), SketchedNewton(memory)
    start = np.full(6, 4.0)
    run(rule, valley, start, 9)
    trials, accepted, sketched = sketched_newton(
        valley.value_and_gradient, valley.matrix, start, 9, memory
    )
    assert len(trials) == 9
    assert_allclose(valley.seen, trials, rtol=1e-7, atol=1e-9)
    assert [caution for _, caution in valley.sketched] == pytest.approx([c for _, c in sketched])
    if cost == 2.0:
        assert len(sketched) > 2
        assert not all(accepted)


@pytest.mark.parametrize("loss", [*SMOOTH, *KINKED])
def test_second_derivatives_are_those_of_the_slopes_and_cautious_ones_those_above(loss):
    model = problem(loss, rows=400)
    if loss in KINKED:
        model = model.smoothed(0.3)
    own, at = model.loss, model.at(2 * np.random.default_rng(0).normal(size=8))
    h, (m, slopes, y) = 1e-6, (at.margins, at.derivatives, model.y)
    numeric = (own.derivative(m + h, y) - own.derivative(m - h, y)) / (2 * h)
    found, cautious = (at.curvatures(caution) / model.shares for caution in (0.0, 1.0))
    # Within 1e-6 of a corner the difference is in between.
    assert (np.abs(numeric - found) < 1e-4 * own.curvature).mean() > 0.99
    assert (cautious >= found).all()
    assert (cautious <= own.curvature * (1 + 1e-12)).all()
    if loss == "logistic" or "epsilon" in loss:  # whose flat zone the parabola leaves out
        return
    for move in np.linspace(-3, 3, 41):  # a parabola with this curvature is above the loss
        step = np.where(cautious > 0, -move * np.sign(slopes), 0.0)
        step = np.where(np.abs(move) * cautious <= np.abs(slopes), step, 0.0)
        parabola = slopes * step + cautious / 2 * step**2
        assert (own.value(m + step, y) - own.value(m, y) <= parabola + 1e-9).all()


@pytest.mark.parametrize(("data", "index"), [(np.float32, np.int64), (np.float64, np.int32)])
def test_gram_matrices_of_entries_in_pieces(data, index):
    parts = (np.array([1, 2, 3, 4, 5], data), np.array([2, 0, 2, 1, 1], index))
    X = sp.csr_matrix((*parts, np.array([0, 3, 5], index)), shape=(2, 30))
    model = ag.LinearModel(X, [1.0, 2.0], "squared", l2=1.0, sample_weight=[1.0, 4.0])
    dense = X.toarray().astype(np.float64)
    assert model.storage.pairs_per_row == 4.5
    slow = model.storage.pair
    with kernels.use("always"):  # short rows are taken by pairs of entries
        assert model.storage.pair < slow
        found = model.gram_of_columns()
    assert_allclose(found, dense.T @ np.diag([0.2, 0.8]) @ dense)


def test_samples_stand_for_all_rows():
    rng = np.random.default_rng(4)
    weights = rng.random(50) * (np.arange(50) % 4 == 0)
    many = rng.random(50) * (np.arange(50) % 2 == 0)
    assert drawn_by_weight(many, 25, rng)[0] is None
    for size in (20, 50):
        rows, kept = drawn_by_weight(weights, size, rng)
        assert (rows == np.flatnonzero(weights)).all()
        assert (kept == weights[rows]).all()
    rows, shares = drawn_by_weight(weights, 8, rng)
    assert (shares == weights.sum() / 8).all()
    assert weights[rows].all()


def test_a_step_that_is_too_long_is_halved_until_the_value_falls():
    model = problem("huber", fit_intercept=True)
    oracle = CurvedOracle(model, np.random.default_rng(0))
    start = oracle(np.zeros(9))
    far = oracle(start.point - 4000 * start.gradient)
    fall = 4000 * start.gradient @ start.gradient
    t, move, evaluations = 1.0, far.point - start.point, oracle.points
    while model.value(start.point + t * move) > start.value - 1e-4 * t * fall:
        t /= 2
    assert oracle.shorter(start.point, far.point, start.value, fall) == t < 0.25
    assert oracle.points == evaluations


def test_rows_in_periods_and_rare_columns_do_not_mislead_samples():
    n = 30_000
    X = np.zeros((n, 14))
    X[np.arange(n), np.arange(n) % 10] = 1.0
    X[::5000, 10] = 30.0  # six rows have it
    X[:, 11:] = np.random.default_rng(0).normal(size=(n, 3))
    y = np.where(X @ np.linspace(-2, 2, 14) + np.random.default_rng(1).logistic(size=n) > 0, 1, -1)
    oracle = solved(ag.LinearModel(sp.csr_matrix(X), y, "logistic", l2=1e-6), 16)
    assert oracle.best.model.dual_gap < 1e-6


@pytest.mark.parametrize("loss", ["squared", "logistic", "absolute"])
def test_dependent_empty_and_badly_scaled_columns_do_no_harm(loss):
    easy, units = problem(loss, rows=400, l2=0.0), 10.0 ** np.linspace(-8, 8, 8)
    X = np.column_stack([easy.X * units, easy.X[:, 0] * units[0], np.zeros(400)])
    hard = ag.LinearModel(X, easy.y, loss)
    found = ag.minimize(hard, method="accelegrad-newton", max_iter=60, rng=0).fun
    best = ag.minimize(easy, rtol=1e-10, max_iter=300, rng=0).fun
    assert best * (1 - 1e-9) <= found <= best * (1 + 1e-6)


@pytest.mark.parametrize("loss", ["squared_hinge", "modified_huber"])
def test_a_sample_whose_classes_are_separable_gives_a_start_too(loss):
    """Its minimum is 0, where no direction leads downhill."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 5))
    y = np.where(X.sum(axis=1) > 0, 1.0, -1.0)
    X += 0.2 * y[:, None]
    y[rng.choice(4000, 3, replace=False)] *= -1.0
    model = ag.LinearModel(X, y, loss, fit_intercept=True)
    for seed in range(5):
        assert ag.minimize(model, method="accelegrad-newton", rtol=1e-6, rng=seed).success


def test_far_outliers_do_not_make_steps_too_long():
    model = problem("huber")
    far = ag.LinearModel(model.X, 1e3 * model.y, "huber", delta=1.0, l2=1e-6)
    oracle = solved(far, 60)
    assert oracle.best.model.dual_gap < 1e-6 * oracle.best.value


def test_a_sample_gives_the_start_where_rows_are_many():
    model = problem(rows=20_000, columns=8)
    oracle = CurvedOracle(model, np.random.default_rng(0))
    guess = oracle.guess(np.zeros(8))
    minimum = solved(model).best.value
    start = model.value(np.zeros(8))
    assert model.value(guess) - minimum < 0.05 * (start - minimum)


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_many_columns_are_left_to_what_gradients_tell(kind):
    model = problem(kind=kind, rows=200, columns=2000, l2=1e-2)
    oracle = CurvedOracle(model, np.random.default_rng(0))
    assert not oracle.curvature(np.zeros(2000), 1, 1.0).scaled
    assert solved(model, 60).best.model.dual_gap < 1e-8


def test_costly_curvature_is_a_last_resort():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 300)) + 50.0 * rng.random(300)  # far from the origin
    y = np.where(X @ rng.normal(size=300) > np.median(X), 1.0, -1.0)
    model = ag.LinearModel(X, y, "logistic", l2=1e-4)
    oracle = CurvedOracle(model, rng)
    first = oracle.curvature(np.zeros(300), 0, 1.0)
    assert curved.MOST_COSTLY < first.cost == first.patience < curved.NEVER_BEYOND_COST
    steps = run(SketchedNewton(), oracle, np.zeros(300), 100)
    sketches = [step.state.sketches for step in steps]
    assert not any(sketches[: int(first.patience)])
    assert sketches[-1] > 0
    assert oracle.best.model.dual_gap < 1e-9


def test_the_last_word_of_rounding_is_told_and_what_does_not_fit_refused():
    model = problem()
    rule, oracle = SketchedNewton(), CurvedOracle(model, np.random.default_rng(0))
    state = run(rule, oracle, np.zeros(8), 2)[-1].state
    stuck = state._replace(step_size=1e-13, slope=1.0, trial=state.point + 100.0, due="")
    with pytest.raises(LineSearchError, match="rounding"):
        rule.step(stuck, oracle)
    with pytest.raises(ValueError, match="smooth loss"):
        CurvedOracle(problem("hinge"), np.random.default_rng(0))
    with pytest.raises(ValueError, match="memory"):
        SketchedNewton(memory=-1)
    with pytest.raises(ValueError, match="needs a LinearModel with l2 > 0, or few columns"):
        ag.minimize(kinked(rows=5, l2=0.0), method="accelegrad-newton")


def kinked(loss="hinge", rows=600, l2=1e-2):
    return problem(loss, rows=rows, columns=6, l2=l2, quantile=0.8)


@pytest.mark.parametrize("loss", KINKED)
@pytest.mark.parametrize("mu", [1.0, 0.03])
def test_smoothed_slopes_prove_the_dual_value_there_and_know_what_smoothing_costs(loss, mu):
    model, w = kinked(loss), np.random.default_rng(1).normal(size=6)
    smooth = model.smoothed(mu).at(w)
    own, theta = smooth.beside(model), smooth.derivatives
    assert own.value == pytest.approx(model.value(w), rel=1e-14)
    found = minimize_scalar(
        lambda c: -model.dual_value_at(c * theta), bounds=(0, 1), options={"xatol": 1e-9}
    )
    assert model.dual.at(smooth) == pytest.approx(-found.fun, rel=1e-6)
    terms = model.loss.value(own.margins, model.y) + model.loss.conjugate(theta, model.y)
    expected = model.shares @ (terms - theta * own.margins)
    assert smoothing_gap(own, smooth) == pytest.approx(expected, rel=1e-9, abs=1e-14)
    assert expected > 0


def steps(oracle, count):
    rule = ag.SketchedNewton()
    state, seen = rule.init(np.zeros(oracle.model.n_parameters)), []
    for _ in range(count):
        step = rule.step(state, oracle)
        state = step.state
        seen.append((oracle.sum.model.loss.smoothing, oracle.changed, step.evaluation))
    return seen


def test_mu_shrinks_by_a_factor_at_a_time_until_the_goal_allows_it():
    oracle = SmoothedCurvedOracle(kinked(), np.random.default_rng(0), lambda value: 0.0)
    seen = steps(oracle, 40)
    sizes = np.array([mu for mu, _, _ in seen])
    assert sizes[0] == pytest.approx(1.0)  # the loss at zero
    ratios = sizes[:-1] / sizes[1:]
    assert set(np.round(ratios, 9)) == {1.0, LARGEST_SHRINK}
    assert [changed for _, changed, _ in seen][1:] == list(ratios > 1)
    assert seen[-1][2].value - seen[-1][2].dual_value < 1e-2 * seen[-1][2].value
    goal = 1e-3
    oracle = SmoothedCurvedOracle(kinked(), np.random.default_rng(0), lambda value: goal)
    seen = steps(oracle, 60)
    own, smooth = seen[-1][2].model, oracle.sum.model.at(seen[-1][2].point)
    assert 0.01 * goal < smoothing_gap(own, smooth) <= goal
    assert seen[-1][2].value - seen[-1][2].dual_value <= goal


def test_bounds_without_an_l2_term_are_not_had_at_every_point():
    problem = kinked("absolute", l2=0.0)
    oracle = SmoothedCurvedOracle(problem, np.random.default_rng(0), lambda value: 1e-6 * value)
    for count in range(1, 5):
        far = oracle.original(oracle(np.full(6, 0.1 * count)))
        assert far.dual_value is None
        assert far.late_bound() <= far.value
    seen = []
    at_each = dict(callback=lambda intermediate_result: seen.append(intermediate_result.gap))
    run = ag.minimize(problem, max_iter=20, rng=0, **at_each)
    assert seen[6] > 0.9 * run.fun  # nothing is known but that losses are nonnegative
    assert seen[19] <= seen[8] < 0.5 * run.fun  # it is had now and then


def test_a_costly_bound_waits_while_slopes_would_miss_the_goal():
    model = problem(l2=1e-4, fit_intercept=True)
    best = ag.minimize(model, rtol=1e-12, rng=0).x
    for goal, distance, waits in ((1e-6, 1e-2, True), (1.0, 1e-2, False), (1e-6, 0.0, False)):
        oracle = CurvedOracle(model, np.random.default_rng(0), lambda _, goal=goal: goal)
        found = oracle.original(oracle(best + distance))
        gap = found.value - (found.late_bound() if waits else model.dual.at(found.model))
        assert (found.late_bound is not None, gap > goal) == (waits, waits)


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_rows_that_were_read_are_counted(loss):
    """Values read all rows each; a gradient reads those of its value."""
    result = ag.minimize(problem(loss, rows=60), method="accelegrad-newton", max_iter=6)
    assert result.rows == 60 * result.nfev


def test_less_smoothing_goes_on_from_the_lowest_point():
    model = problem("hinge", rows=1200, l2=1e-3)
    oracle = SmoothedCurvedOracle(model, np.random.default_rng(0), lambda value: 1e-6)
    oracle(np.zeros(model.n_parameters))
    first = oracle.mu
    # At its minimiser nothing but the smoothing is left of the gap: less of it comes next.
    good = ag.minimize(model.smoothed(first), rtol=1e-8, rng=0).x
    oracle(good)
    assert oracle.sum.best.point is good
    rule = SketchedNewton()
    state = rule.step(rule.init(good + 5.0), oracle).state
    assert oracle.changed
    assert oracle.mu < first
    less = model.smoothed(oracle.mu)
    assert state.point is oracle.sum.best.point is good
    assert state.value == pytest.approx(less.value(good), rel=1e-14)
    assert_allclose(state.gradient, less.gradient(good), atol=1e-15)
    assert oracle.sum.curvature(good, 1, 0.0).scaled
