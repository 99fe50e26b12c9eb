"""Losses with kinks as a sequence of smooth sums: bounds, continuation, resuming."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import accelegrad as ag
from accelegrad.solvers.newton import SmoothedCurvedOracle
from accelegrad.solvers.row_oracle import LARGEST_SHRINK, smoothing_gap

KINKED = ["hinge", "absolute", "quantile", "epsilon_insensitive"]


def model(loss, rows=600, l2=1e-2, seed=7, **options):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 6))
    y = X @ rng.normal(size=6) + rng.standard_t(3, size=rows)
    if loss == "hinge":
        y = np.where(y > 0, 1.0, -1.0)
    return ag.LinearModel(X, y, loss=loss, l2=l2, quantile=0.8, **options)


@pytest.mark.parametrize("loss", KINKED)
@pytest.mark.parametrize("mu", [1.0, 0.03])
def test_the_bound_by_smoothed_slopes_is_the_dual_value_there(loss, mu):
    problem = model(loss)
    w = np.random.default_rng(1).normal(size=6)
    smooth = problem.smoothed(mu).at(w)
    own = smooth.beside(problem)
    assert own.value == pytest.approx(problem.value(w), rel=1e-14)
    theta = smooth.derivatives
    found = minimize_scalar(
        lambda c: -problem.dual_value_at(c * theta), bounds=(0, 1), options={"xatol": 1e-9}
    )
    assert own.dual_value_by(smooth) == pytest.approx(-found.fun, rel=1e-6)


@pytest.mark.parametrize("loss", KINKED)
@pytest.mark.parametrize("mu", [1.0, 0.01])
def test_the_part_of_the_gap_due_to_smoothing_is_that_of_the_conjugates(loss, mu):
    problem = model(loss)
    point = np.random.default_rng(3).normal(size=problem.n_parameters)
    smooth = problem.smoothed(mu).at(point)
    own, theta = smooth.beside(problem), smooth.derivatives
    terms = problem.loss.value(own.margins, problem.y) + problem.loss.conjugate(theta, problem.y)
    expected = problem.shares @ (terms - theta * own.margins)
    assert smoothing_gap(own, smooth) == pytest.approx(expected, rel=1e-9, abs=1e-14)
    assert expected > 0


@pytest.mark.parametrize("loss", KINKED)
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_the_bound_holds_and_gets_tight_as_mu_shrinks(loss, fit_intercept):
    problem = model(loss, fit_intercept=fit_intercept)
    minimum = ag.minimize(problem, method="accelegrad", rtol=1e-5, max_iter=30_000)
    assert minimum.success
    gaps = []
    for mu in (1.0, 0.1, 0.01):
        near = ag.minimize(problem.smoothed(mu), rtol=1e-9).x
        smooth = problem.smoothed(mu).at(near)
        own = smooth.beside(problem)
        gap = own.value - own.dual_value_by(smooth)
        assert own.value - gap <= minimum.fun
        assert smoothing_gap(own, smooth) <= gap * (1 + 1e-3)
        gaps.append(gap)
    assert gaps[0] > 5 * gaps[1] > 25 * gaps[2] > 0


def steps(oracle, count):
    rule = ag.SketchedNewton()
    state, seen = rule.init(np.zeros(oracle.model.n_parameters)), []
    for _ in range(count):
        step = rule.step(state, oracle)
        state = step.state
        seen.append((oracle.sum.model.loss.smoothing, oracle.changed, step.evaluation))
    return seen


def test_mu_shrinks_by_a_factor_at_a_time_and_never_grows():
    oracle = SmoothedCurvedOracle(model("hinge"), np.random.default_rng(0), lambda value: 0.0)
    seen = steps(oracle, 40)
    sizes = np.array([mu for mu, _, _ in seen])
    assert sizes[0] == pytest.approx(1.0)  # the loss at zero
    ratios = sizes[:-1] / sizes[1:]
    assert set(np.round(ratios, 9)) == {1.0, LARGEST_SHRINK}
    assert [changed for _, changed, _ in seen][1:] == list(ratios > 1)
    assert seen[-1][2].value - seen[-1][2].dual_value < 1e-2 * seen[-1][2].value


def test_mu_stops_shrinking_where_the_goal_allows_it():
    goal = 1e-3
    oracle = SmoothedCurvedOracle(model("hinge"), np.random.default_rng(0), lambda value: goal)
    seen = steps(oracle, 60)
    own, smooth = seen[-1][2].model, oracle.sum.model.at(seen[-1][2].point)
    assert 0.01 * goal < smoothing_gap(own, smooth) <= goal
    assert seen[-1][2].value - seen[-1][2].dual_value <= goal


def test_without_a_bound_the_method_says_what_it_needs():
    with pytest.raises(ValueError, match="needs a LinearModel with l2 > 0, or few columns"):
        ag.minimize(model("hinge", rows=5, l2=0.0), method="accelegrad-newton")


def test_bounds_without_an_l2_term_are_not_had_at_every_point():
    problem = model("absolute", l2=0.0)
    oracle = SmoothedCurvedOracle(problem, np.random.default_rng(0), lambda value: 1e-6 * value)
    for count in range(1, 5):
        far = oracle.original(oracle(np.full(6, 0.1 * count)))
        assert far.dual_value is None
        assert far.late_bound() <= far.value
    run = ag.minimize(problem, max_iter=9, rng=0)  # with no goal the last point's bound is had
    assert 0 <= run.gap <= 0.2 * run.fun
    seen = []
    ag.minimize(
        problem,
        max_iter=20,
        rng=0,
        callback=lambda intermediate_result: seen.append(intermediate_result.gap),
    )
    assert seen[6] > 0.9 * run.fun  # nothing is known but that losses are nonnegative
    assert seen[19] <= seen[8] < 0.5 * run.fun  # it is had now and then, whoever looks on


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_rows_that_were_read_are_counted(loss):
    """Values read all rows each; a gradient reads those of its value."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((60, 4))
    model = ag.LinearModel(X, np.sign(X[:, 0] + rng.standard_normal(60)), loss, l2=1e-2)
    result = ag.minimize(model, method="accelegrad-newton", max_iter=6)
    assert result.rows == 60 * result.nfev
