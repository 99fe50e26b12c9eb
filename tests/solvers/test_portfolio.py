"""Two solvers for one sum over rows: who takes which step, and what a run then proves."""

import numpy as np
import pytest
import scipy.sparse as sp

import accelegrad as ag
from accelegrad.errors import LineSearchError
from accelegrad.solvers.dual_ascent import DualAscent
from accelegrad.solvers.interior_point import InteriorPoint
from accelegrad.solvers.newton import SketchedNewton
from accelegrad.solvers.portfolio import Portfolio
from accelegrad.solvers.proximal_newton import ProximalNewton
from accelegrad.solvers.row_oracle import RowRule
from shapes import compared, drawn


def rows(loss, n=300, d=60, l2=1e-4, density=0.02):
    rng = np.random.default_rng(n + d)
    X = sp.random(n, d, density, format="csr", rng=rng, data_rvs=rng.standard_normal)
    y = X @ rng.standard_normal(d) + rng.standard_normal(n)
    y = np.sign(y) if loss in ("hinge", "logistic", "squared_hinge") else y
    return ag.LinearModel(X, y, loss, l2=l2, fit_intercept=True)


PAIRS = {
    "dual, then interior": ("absolute", DualAscent(), InteriorPoint()),
    "newton, then dual": ("hinge", SketchedNewton(), DualAscent()),
    "dual, then newton": ("epsilon_insensitive", DualAscent(), SketchedNewton()),
    "proximal, then dual": ("epsilon_insensitive", ProximalNewton(), DualAscent()),
    "interior, then newton": ("quantile", InteriorPoint(), SketchedNewton()),
    "smooth": ("logistic", DualAscent(), SketchedNewton()),
}


@pytest.mark.parametrize("name", PAIRS)
def test_both_reach_the_minimum_that_each_would(name):
    loss, first, second = PAIRS[name]
    problem = rows(loss)
    both = ag.minimize(problem, method=Portfolio(first, second, 0.0), rtol=1e-6, max_iter=5000)
    alone = ag.minimize(problem, method="accelegrad-newton", rtol=1e-6, max_iter=5000)
    assert both.success
    assert abs(both.fun - alone.fun) <= 2e-6 * alone.fun
    assert both.lower_bound <= alone.fun
    assert both.fun == pytest.approx(problem.value(both.x), rel=1e-12)


def test_until_the_second_joins_a_run_is_the_first_rules():
    problem = rows("logistic", l2=1e-1)
    given = dict(rtol=1e-4, rng=3)
    one = ag.minimize(problem, method=SketchedNewton(), **given)
    two = ag.minimize(problem, method=Portfolio(SketchedNewton(), DualAscent(), 9.0), **given)
    np.testing.assert_array_equal(one.x, two.x)
    assert (one.nit, one.nfev, one.njev, one.gap) == (two.nit, two.nfev, two.njev, two.gap)


def test_where_the_first_gains_little_the_second_ends_the_run():
    """Dual ascent alone needs more than max_iter epochs."""
    problem = rows("absolute", 1100, 1050, 3e-5, 0.007)
    alone = ag.minimize(problem, method="dual-ascent", rtol=1e-3)
    assert not alone.success
    pair = Portfolio(DualAscent(), InteriorPoint(), 0.01)
    assert ag.minimize(problem, method=pair, rtol=1e-3).success


def test_the_result_tells_which_solver_ended_it(monkeypatch):
    monkeypatch.setattr("accelegrad.solvers.portfolio.MOST_ALONE", 1)
    result = ag.minimize(rows("hinge"), rtol=1e-9, max_iter=3000)
    assert result.success
    assert "after 1 steps that gained little" in result.reason
    assert result.method in ("interior-point", "proximal-newton")


@pytest.mark.parametrize("name", PAIRS)
def test_a_resumed_run_repeats_the_uninterrupted_one(name, tmp_path):
    loss, first, second = PAIRS[name]
    problem, path = rows(loss), tmp_path / "run.agc"
    given = dict(method=Portfolio(first, second, 0.0), tol=1e-12, rng=4)
    whole = ag.minimize(problem, max_iter=12, **given)
    for stop in (1, 2, 5):
        ag.minimize(problem, max_iter=stop, checkpoint=path, **given)
        resumed = ag.minimize(problem, max_iter=12, resume=path, **{**given, "rng": 99})
        np.testing.assert_array_equal(resumed.x, whole.x)
        assert (resumed.nit, resumed.gap, resumed.nfev) == (whole.nit, whole.gap, whole.nfev)


def test_the_turn_is_of_the_rule_with_less_work(monkeypatch):
    seen = []
    step = Portfolio.advance

    def watched(self, state, oracle, most):
        found = step(self, state, oracle, most)
        seen.append((state.turn, found.state.turn, oracle.works))
        return found

    monkeypatch.setattr(Portfolio, "advance", watched)
    pair = Portfolio(SketchedNewton(), DualAscent(), 0.0)
    ag.minimize(rows("hinge"), method=pair, tol=1e-12, max_iter=30)
    assert {turn for turn, _, _ in seen} == {0, 1}
    for before, after, works in seen[1:]:
        assert after == before or works[after] < works[before]
        assert after != before or works[after] <= works[1 - after]


class Failing(RowRule):
    """A rule that finds no lower value after some steps of another rule."""

    can = SketchedNewton.can

    def __init__(self, steps):
        self.rule, self.steps, self.title = SketchedNewton(), steps, "failing"

    def oracle(self, *given):
        return self.rule.oracle(*given)

    def init(self, x0):
        return self.rule.init(x0)

    def step(self, state, oracle):
        if state.iteration >= self.steps:
            raise LineSearchError("no lower value.")
        return self.rule.step(state, oracle)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_where_one_finds_no_lower_value_the_other_goes_on(order):
    rules = (Failing(3), DualAscent())
    pair = Portfolio(*(rules[k] for k in order), 0.0)
    result = ag.minimize(rows("logistic", l2=1e-2), method=pair, rtol=1e-8, max_iter=3000)
    assert result.success


def test_max_iter_limits_the_epochs_of_one_that_is_left():
    """Its strides double where an evaluation costs more than epochs."""
    problem = rows("logistic", l2=1e-8)
    pair = Portfolio(Failing(3), DualAscent(), 0.0)
    result = ag.minimize(problem, method=pair, tol=1e-14, max_iter=60)
    assert result.nit == 60
    assert result.rows <= 2 * 60 * problem.n_samples


def test_where_neither_does_the_run_ends():
    pair = Portfolio(Failing(3), Failing(4), 0.0)
    result = ag.minimize(rows("logistic"), method=pair, rtol=1e-12)
    assert result.status is ag.Status.LINE_SEARCH_FAILED
    assert result.nit == 7


def test_random_shapes_are_proved_with_a_small_multiple_of_the_best_solvers_work():
    rng, ratios = np.random.default_rng(3), []
    for _ in range(16):
        default, single, result = compared(drawn(rng, entries=3e4, rows=3.3))
        assert result.success
        ratios.append(default.work / min(one.work for one in single.values()))
    assert np.exp(np.log(ratios).mean()) <= 1.6
    assert max(ratios) <= 8.0
