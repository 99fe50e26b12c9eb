"""The interior-point method for losses with one kink, for one target or several."""

import numpy as np
import pytest

import accelegrad as ag
from accelegrad.proofs.fenchel import Terms
from accelegrad.proofs.model_dual import ModelDual
from accelegrad.solvers.interior_point import interior_points

LOSSES = {"hinge": {}, "absolute": {}, "quantile": {"quantile": 0.8}}


def models(loss, *, k=3, l2=1e-2, intercept=True, scale=1.0):
    rng, found = np.random.default_rng(0), []
    X = rng.normal(size=(150, 6)) * 10.0 ** rng.uniform(-2, 2, 6)
    for _ in range(k):
        targets = X @ (rng.normal(size=6) / X.std(0)) + rng.normal(size=150)
        y = np.where(targets > 0.7, 1.0, -1.0) if loss == "hinge" else 30.0 + targets
        options = {"l2": l2, "fit_intercept": intercept, **LOSSES[loss]}
        found.append(ag.LinearModel(scale * X, y, loss, **options))
    return found


def points(chosen, tol, most=60, l1=0.0):
    starts = [np.zeros(model.n_parameters) for model in chosen]
    found, terms = [None] * len(chosen), Terms.of(chosen[0], ag.L1(l1) if l1 else None)

    def proved(place, point, gap):
        found[place] = point
        value, bound = enclosed(chosen[place], point, l1)
        return value - bound <= gap

    interior_points(chosen, terms, starts, lambda values, _: tol * values, proved, most)
    return found


def enclosed(model, point, l1):
    dual = ModelDual(model, Terms.of(model, ag.L1(l1) if l1 else None))
    term = l1 * np.abs(point.parameters[: model.n_features]).sum()
    return model.value(point.parameters) + term, dual.at_slopes(point.slopes)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    ("intercept", "l2", "share"),
    [(i, l2, 0.0) for i in (True, False) for l2 in (1.0, 1e-2, 1e-5)]
    + [(True, l2, share) for l2 in (1e-2, 0.0) for share in (0.5, 0.05, 1e-3)],
)
def test_slopes_prove_the_parameters(loss, intercept, l2, share):
    chosen = models(loss, l2=l2, intercept=intercept)
    X = chosen[0].X
    l1 = share * float(np.abs(X - X.mean(0)).mean(0).max())
    for model, point in zip(chosen, points(chosen, 1e-6, l1=l1), strict=True):
        weights, (value, bound) = point.parameters[: model.n_features], enclosed(model, point, l1)
        assert bound <= value <= bound + 1e-6 * value
        assert l1 or point.steps < 40
        # If the term is stronger than what slopes leave of a column, the weight is 0.
        left = np.abs(model.combination(point.slopes)[: model.n_features])
        assert not weights[left < 0.9 * l1].any()
        assert (weights == 0.0).any() or share < 0.05


def test_targets_do_not_depend_on_each_other():
    chosen = models("hinge")
    together = points(chosen, 1e-7)
    for model, point in zip(chosen, together, strict=True):
        alone = points([model], 1e-7)[0]
        assert alone.steps == point.steps
        np.testing.assert_allclose(alone.parameters, point.parameters, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("l1", [0.0, 0.05])
def test_a_run_of_the_rule_takes_the_same_steps(loss, l1):
    model = models(loss, k=1)[0]
    alone = points([model], 1e-6, l1=l1)[0]
    options = dict(method="interior-point", max_iter=alone.steps, trace=True)
    result = ag.minimize(model, penalty=ag.L1(l1) if l1 else None, **options)
    np.testing.assert_allclose(result.x_last, alone.parameters, rtol=1e-9, atol=1e-12)
    assert result.nit == alone.steps
    _, bound = enclosed(model, alone, l1)
    assert result.lower_bound == pytest.approx(bound, rel=1e-11)  # sums of 150 rows are rounded
    assert result.certified_radius == np.inf


@pytest.mark.parametrize("l2", [1e-2, 0.0])
def test_each_weight_may_have_an_l1_term_of_its_own(l2):
    model = models("absolute", k=1, l2=l2)[0]
    size = float(np.abs(model.X - model.X.mean(0)).mean(0).max())
    strengths = size * np.array([0.5, 1e-3, 0.5, 1e-3, 0.5, 0.0 if l2 else 1e-3])
    result = ag.minimize(model, method="interior-point", penalty=ag.L1(strengths), rtol=1e-7)
    other = ag.minimize(model, method="proximal-newton", penalty=ag.L1(strengths), rtol=1e-5)
    assert result.success
    assert other.success
    assert result.lower_bound <= other.fun
    assert other.lower_bound <= result.fun <= other.fun * (1.0 + 1e-7)


def test_a_gap_that_rounding_does_not_allow_ends_the_run_and_overflow_is_no_proof():
    result = ag.minimize(models("quantile", k=1)[0], method="interior-point", tol=1e-17)
    assert result.status is ag.Status.AT_ROUNDING
    assert result.nit < 60
    assert 0.0 <= result.gap <= 1e-9 * result.fun
    model = models("absolute", k=1, scale=1e200)[0]
    assert points([model], 1e-6) == [None]
    assert not ag.minimize(model, method="interior-point", rtol=1e-6).success


def test_targets_that_are_met_at_the_start_are_met_at_the_end():
    model = models("absolute", k=1, intercept=False)[0].with_targets(np.zeros(150))
    result = ag.minimize(model, rtol=1e-3)
    assert result.method == "interior-point"
    assert result.success
    assert not result.x.any()
