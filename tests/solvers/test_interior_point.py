"""The interior-point method for losses with one kink, for one target or several."""

import numpy as np
import pytest

import accelegrad as ag
from accelegrad.proofs.fenchel import Terms
from accelegrad.proofs.model_dual import ModelDual
from accelegrad.solvers.interior_point import interior_points

LOSSES = {"hinge": {}, "absolute": {}, "quantile": {"quantile": 0.8}}


def rows(seed=0, n=150, d=6):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-2, 2, d)
    return rng, X


def models(loss, *, k=3, l2=1e-2, intercept=True, X=None, weights=None, seed=0):
    """Return models of the same rows with other targets."""
    rng, drawn = rows(seed)
    X = drawn if X is None else X
    found = []
    for _ in range(k):
        targets = drawn @ (rng.normal(size=drawn.shape[1]) / drawn.std(0)) + rng.normal(size=150)
        y = np.where(targets > 0.7, 1.0, -1.0) if loss == "hinge" else 30.0 + targets
        options = {"l2": l2, "fit_intercept": intercept, "sample_weight": weights}
        found.append(ag.LinearModel(X, y, loss, **options, **LOSSES[loss]))
    return found


def points(chosen, tol, most=60, l1=0.0):
    starts = [np.zeros(model.n_parameters) for model in chosen]

    found = [None] * len(chosen)
    terms = Terms.of(chosen[0], ag.L1(l1) if l1 else None)

    def proved(place, point, gap):
        model = chosen[place]
        dual = ModelDual(model, terms)
        found[place] = point
        term = l1 * np.abs(point.parameters[: model.n_features]).sum()
        return model.value(point.parameters) + term - dual.at_slopes(point.slopes) <= gap

    def allowed(values, bounds):
        return tol * values

    interior_points(chosen, terms, starts, allowed, proved, most)
    return found


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
        weights = point.parameters[: model.n_features]
        value = model.value(point.parameters) + l1 * np.abs(weights).sum()
        dual = ModelDual(model, Terms.of(model, ag.L1(l1) if l1 else None))
        bound = dual.at_slopes(point.slopes)
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
    penalty = ag.L1(l1) if l1 else None
    alone = points([model], 1e-6, l1=l1)[0]
    result = ag.minimize(
        model, method="interior-point", penalty=penalty, max_iter=alone.steps, trace=True
    )
    np.testing.assert_allclose(result.x_last, alone.parameters, rtol=1e-9, atol=1e-12)
    assert result.nit == alone.steps
    bound = ModelDual(model, Terms.of(model, penalty)).at_slopes(alone.slopes)
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


def test_a_gap_that_rounding_does_not_allow_ends_the_run_there():
    result = ag.minimize(models("quantile", k=1)[0], method="interior-point", tol=1e-17)
    assert result.status is ag.Status.AT_ROUNDING
    assert result.nit < 60
    assert 0.0 <= result.gap <= 1e-9 * result.fun


def test_overflow_is_no_proof():
    _, X = rows()
    model = models("absolute", k=1, X=1e200 * X)[0]
    assert points([model], 1e-6) == [None]
    assert not ag.minimize(model, method="interior-point", rtol=1e-6).success


def test_targets_that_are_met_at_the_start_are_met_at_the_end():
    _, X = rows()
    result = ag.minimize(ag.LinearModel(X, np.zeros(150), "absolute", l2=1e-2), rtol=1e-3)
    assert result.method == "interior-point"
    assert result.success
    assert not result.x.any()
