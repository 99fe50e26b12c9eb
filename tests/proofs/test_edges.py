"""Proofs and results at the edges that once were wrong, as users would meet them."""

from __future__ import annotations

import numpy as np
import pytest

import accelegrad as ag
from accelegrad.models.scaling import ColumnScaling
from accelegrad.proofs.cuts import CutCertificate, Region
from accelegrad.rules.base import KnownEvaluation
from toys import AbsoluteDeviations, LeastSquares


def data(seed=0, n=60, d=3):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, np.where(X @ np.ones(d) + rng.standard_normal(n) > 0, 1.0, -1.0)


# -- what is proved of a region ------------------------------------------------------------------


def test_both_cuts_are_needed():
    """The single cut on a smooth function, the aggregate one on a non-smooth one."""
    gaps = {}
    for kind in (LeastSquares, AbsoluteDeviations):
        problem = kind.random(60, 8, 2)
        radius = np.linalg.norm(problem.minimiser)
        region = Region(ag.WholeSpace(), np.zeros(8), radius, assumed=True)
        single, both = CutCertificate(region), CutCertificate(region)
        rule = ag.AcceleGrad(2 * radius)
        state = rule.init(np.zeros(8))
        for _ in range(1000):
            step = rule.step(state, lambda x, f=problem: KnownEvaluation(x, *f(x)))
            state = step.state
            single.add(step.evaluation, 0.0)
            both.add(step.evaluation, step.weight)
        minimum = problem(problem.minimiser)[0]
        gaps[kind] = minimum - single.lower_bound, minimum - both.lower_bound
    assert gaps[LeastSquares][0] <= 1e-9
    assert gaps[AbsoluteDeviations][0] > 10 * gaps[AbsoluteDeviations][1]


def test_when_the_minorant_of_a_penalty_suffices():
    """Of a norm, and in scaled coordinates; anything else costs a search at every bound."""
    net, scaling = ag.ElasticNet(1.0, 1.0), ColumnScaling(np.ones(2))
    for penalty, change, enough in (
        (ag.L1(1.0), None, True),
        (net, None, False),
        (net, scaling, True),
    ):
        given = {"assumed": True, "penalty": penalty, "change": change}
        assert Region(ag.WholeSpace(), np.zeros(2), 1.0, **given).minorant_suffices is enough


# -- what is returned is what is judged ---------------------------------------------------------


# -- no exception, and no end that says nothing -------------------------------------------------


@pytest.mark.parametrize("loss", ["absolute", "quantile", "epsilon_insensitive", "squared"])
@pytest.mark.parametrize("l2", [1e-12, 1e-4])
@pytest.mark.parametrize("X", [np.zeros((60, 2)), 1e4 * data()[0]], ids=["empty", "large"])
def test_an_optimal_start(X, l2, loss):
    model = ag.LinearModel(X, np.zeros(60), loss, l2=l2, fit_intercept=True)
    result = ag.minimize(model, tol=1e-9)
    assert result.success
    assert (result.fun, result.gap) == (0.0, 0.0)


# -- sets and sizes -----------------------------------------------------------------------------


@pytest.mark.parametrize("tol", [None, 1e-2])
def test_a_run_that_has_ended_stays_so_when_it_is_resumed(tol, tmp_path):
    X, y = data()
    model, path = ag.LinearModel(X, y, l2=1e-2), tmp_path / "run.agc"
    whole = ag.minimize(model, tol=tol, rng=0, checkpoint=path)
    resumed = ag.minimize(model, tol=tol, rng=0, resume=path)
    assert resumed.nit == whole.nit < 1000
    assert (resumed.status, resumed.fun, resumed.gap) == (whole.status, whole.fun, whole.gap)
    closer = ag.minimize(model, tol=1e-9, rng=0, resume=path)
    assert closer.success
    assert closer.gap <= 1e-9


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ["logistic", "squared", "huber"])
def test_a_run_ends_when_rounding_allows_for_no_more(loss, intercept):
    X, y = data(n=200)
    result = ag.minimize(ag.LinearModel(X, y, loss, l2=1e-2, fit_intercept=intercept))
    assert result.status is ag.Status.AT_ROUNDING
    assert result.success
    assert result.nit < 100
    assert 0 <= result.gap <= 1e-11
