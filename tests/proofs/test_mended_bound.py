"""Lower bounds from dual points that are mended on some rows: valid, exact, sharp, and of use."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import accelegrad as ag
from accelegrad.models.row_sum import LocalRows
from accelegrad.proofs import mended_bound
from accelegrad.solvers import curvature as curved
from accelegrad.solvers.curvature import Factored
from accelegrad.solvers.newton import CurvedOracle
from toys import linear_problem

SMOOTH = ["logistic", "squared_hinge", "modified_huber", "squared", "huber"]
KINKED = ["hinge", "absolute", "quantile", "epsilon_insensitive"]


class Nothing:
    """No idea of the second derivatives."""

    def solve(self, vector):
        return vector


def problem(loss, kind="dense", shape=(400, 6), **options):
    return linear_problem(loss, kind, shape, **dict(density=0.5, noise=0.7, seed=3) | options)


def second_derivative_matrix(model, at):
    """Return the matrix by its definition."""
    rows = model.X if isinstance(model.X, np.ndarray) else model.X.toarray()
    rows = np.column_stack([rows, np.ones(len(rows))]) if model.fit_intercept else rows
    matrix = rows.T @ (at.curvatures()[:, None] * rows)
    matrix[np.diag_indices(model.n_features)] += model.l2
    return matrix


def everything(model, at):
    """Return all rows with curvature, as a sample."""
    curvatures = at.curvatures()
    rows = np.flatnonzero(curvatures)
    return LocalRows.of(at, rows, curvatures[rows])


def minimum(model):
    result = ag.minimize(model, rtol=1e-10, rng=0)
    assert result.success or result.status is ag.Status.AT_ROUNDING
    return result.fun


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("kind", ["dense", "csr"])
@pytest.mark.parametrize("loss", SMOOTH + KINKED)
def test_no_sample_and_no_curvature_makes_a_bound_wrong(loss, kind, intercept):
    rng = np.random.default_rng(5)
    weights = rng.integers(1, 4, size=400)
    model = problem(loss, kind, l2=1e-2, fit_intercept=intercept, sample_weight=weights)
    lowest = minimum(model)
    best = ag.minimize(model, rtol=1e-3, rng=0).x
    smooth = model if loss in SMOOTH else model.smoothed(0.05)
    finite = 0
    for scale in (0.0, 0.01, 1.0):
        at = smooth.at(best + scale * rng.standard_normal(best.size))
        own = at if smooth is model else at.beside(model)
        known = Factored(second_derivative_matrix(smooth, at) + 1e-9 * np.eye(best.size), 0.0, 0.0)
        for size, curvature in ((3, known), (100, known), (100, Nothing())):
            rows = np.sort(rng.integers(400, size=size))
            sample = LocalRows.of(at, rows, rng.random(size))
            bound = mended_bound.mended_bound(own, at, sample, curvature, 1e-3)
            assert bound <= lowest
            finite += bound > -np.inf
    assert finite >= (9 if not intercept else 3)  # with few rows sums need not cancel


def test_of_float32_data_it_is_true_up_to_their_rounding():
    double = problem("logistic", shape=(50_000, 10), l2=1e-5)
    single = ag.LinearModel(double.X.astype(np.float32), double.y, "logistic", l2=1e-5)
    result = ag.minimize(single, rtol=1e-4, rng=0)
    assert result.success
    assert result.fun - result.gap <= minimum(double) + 1e-6


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", [*SMOOTH, "hinge"])
def test_the_gap_is_that_of_the_slopes_by_the_dual_function(loss, intercept, monkeypatch):
    model = problem(loss, l2=1e-2, fit_intercept=intercept)
    smooth = model if loss in SMOOTH else model.smoothed(0.1)
    start = ag.minimize(smooth, rtol=0.02, rng=0).x + 0.02
    at = smooth.at(start)
    own = at if smooth is model else at.beside(model)
    sample = everything(smooth, at)
    curvature = Factored(second_derivative_matrix(smooth, at), 0.0, 0.0)
    used = []
    right = type(model.dual).bound
    monkeypatch.setattr(
        type(model.dual), "bound", lambda *given, **k: used.append(given[1:]) or right(*given, **k)
    )
    goal = 1e-6 / (2.0 * model.l2)
    bound = mended_bound.mended_bound(own, at, sample, curvature, goal)
    ((theta, combination),) = used
    monkeypatch.undo()
    if intercept:
        assert abs(model.shares @ theta) < 1e-15
    unmoved = np.setdiff1d(np.arange(theta.size), sample.numbers)
    assert_allclose(theta[unmoved], at.derivatives[unmoved], rtol=0)
    assert_allclose(combination, model.combination(theta)[: model.n_features], atol=1e-15)
    assert_allclose(bound, model.dual_value_at(theta), rtol=1e-11)


@pytest.mark.parametrize("intercept", [False, True])
def test_with_all_rows_of_least_squares_nothing_is_left(intercept):
    model = problem("squared", l2=1e-4, fit_intercept=intercept)
    rows = np.column_stack([model.X, np.ones(400)]) if intercept else model.X
    ridge = 1e-4 * np.eye(rows.shape[1])
    if intercept:
        ridge[-1, -1] = 0.0
    lowest = model.value(np.linalg.solve(rows.T @ rows / 400 + ridge, rows.T @ model.y / 400))
    at = model.at(np.full(rows.shape[1], 0.3))
    curvature = Factored(second_derivative_matrix(model, at), 0.0, 0.0)
    gap = at.value - mended_bound.mended_bound(at, at, everything(model, at), curvature, 1e-12)
    assert_allclose(gap, at.value - lowest, rtol=1e-9)
    assert at.gradient @ at.gradient / (2 * model.l2) > 100 * gap  # what the plain slopes prove


@pytest.mark.parametrize("loss", ["logistic", "huber", "squared_hinge"])
def test_on_a_tenth_of_the_rows_the_gap_is_of_the_order_of_the_error(loss):
    model = problem(loss, shape=(200_000, 10), l2=1e-7)
    lowest = minimum(model)
    oracle = CurvedOracle(model, np.random.default_rng(0))
    point = ag.minimize(model, rtol=1e-3, rng=0).x
    # A Newton step from there with a small error, which is far less than what the plain gap says.
    point = point + 2e-3 * np.random.default_rng(1).standard_normal(10)
    evaluation = oracle(point)
    curvature = oracle.curvature(point, 1, 0.0)
    error = evaluation.value - lowest
    assert evaluation.model.dual_gap > 100 * error
    goal = 60 * error  # a tenth of the rows has to move ten times as far
    bound = oracle.mended_bound(evaluation.model, evaluation, oracle.remaining(evaluation), goal)
    assert error <= evaluation.value - bound <= goal
    assert 0.3 * error < oracle.remaining(evaluation) < 3 * error
    assert curvature is oracle.curvature(point, 1, 0.0)


def test_what_failed_is_not_tried_again_at_once():
    model = problem("logistic", shape=(200_000, 10), l2=1e-7)
    oracle = CurvedOracle(model, np.random.default_rng(0))
    point = ag.minimize(model, rtol=1e-3, rng=0).x + 2e-3
    evaluation = oracle(point)
    oracle.curvature(point, 1, 0.0)
    left = oracle.remaining(evaluation)
    goal = 30 * left
    # Without hope it is not tried, which leaves it to be tried later.
    assert oracle.mended_bound(evaluation.model, evaluation, left, goal, goal) == -np.inf
    assert oracle.mended_bound(evaluation.model, evaluation, left, goal) > 0.0
    assert oracle.mended_bound(evaluation.model, evaluation, left, goal) == -np.inf


def test_runs_end_sooner_and_what_they_say_is_true(monkeypatch):
    model = problem("logistic", shape=(100_000, 10), l2=1e-5)
    lowest = minimum(model)
    start = model.value(np.zeros(10))
    options = {"tol": 1e-3 * (start - lowest) / max(1.0, start), "rng": 0}
    sooner = ag.minimize(model, **options)
    monkeypatch.setattr("accelegrad.solvers.newton.WORTH", 0.0)
    later = ag.minimize(model, **options)
    assert sooner.success
    assert later.success
    assert sooner.nit < later.nit
    for result in (sooner, later):
        assert result.fun - lowest <= result.gap <= 1e-3 * (start - lowest)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_runs_with_a_goal_go_on_from_a_checkpoint_as_if_nothing_had_been(tmp_path, loss, intercept):
    model = problem(loss, shape=(30_000, 8), l2=1e-5, fit_intercept=intercept)
    options = {"tol": 1e-5, "rng": 0}
    whole = ag.minimize(model, **options)
    assert whole.success
    for stop in range(1, whole.nit):
        file = tmp_path / f"{stop}.agc"
        ag.minimize(model, max_iter=stop, checkpoint=file, **options)
        rest = ag.minimize(model, resume=file, **options)
        assert rest.nit == whole.nit
        assert (rest.x == whole.x).all()
        assert rest.gap == whole.gap


def test_gram_matrices_leave_out_rows_without_curvature():
    model = problem("squared_hinge", shape=(500, 4), l2=1e-3)
    at = model.at(ag.minimize(model, rtol=1e-6, rng=0).x)
    rows = model.sampled(500, 0, by=at)
    assert rows.n_curved == np.count_nonzero(at.curvatures()) < 500
    matrix = curved.second_derivative_matrix(model, at, rows)
    assert_allclose(matrix, second_derivative_matrix(model, at), rtol=1e-12)
    costs = curved.Costs.of(model)
    assert costs.price(3, rows.n_curved)[0] <= costs.price(3)[0]
