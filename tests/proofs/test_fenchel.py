"""Sums for the Fenchel bound: of parts and of the whole, and what they prove with l1 and boxes."""

from __future__ import annotations

import math
from dataclasses import astuple

import numpy as np
import pytest

import accelegrad as ag
from accelegrad.proofs.fenchel import DataSizes, Reach, SlopeSums, Terms
from row_sums import data, model_of


@pytest.mark.parametrize("loss", ["logistic", "hinge", "squared", "quantile"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("l1", [0.0, 0.03])
@pytest.mark.parametrize("parts", [2, 60])
def test_sums_of_parts_are_those_of_the_whole(loss, intercept, l1, parts):
    rng = np.random.default_rng(0)
    model = model_of(loss, *data(loss, 60, 4), l2=0.05, fit_intercept=intercept)
    found = ag.minimize(model, penalty=ag.L1(l1) if l1 else None, tol=1e-8, max_iter=3000, rng=0)
    terms = Terms(model.n_features, model.l2, l1, fit_intercept=intercept)
    x = found.x + 0.01 * rng.standard_normal(found.x.size)
    at = model.at(x)
    whole = SlopeSums.of(model, at.derivatives)
    sizes = DataSizes(model.rounding.size, *model.target_sizes())
    total = None
    for rows in np.array_split(rng.permutation(model.n_samples), parts):
        part, share = model.of_rows(rows, model.l2), rows.size / model.n_samples
        sums = SlopeSums.of(part, part.at(x).derivatives)
        sums = SlopeSums(*(share * number for number in astuple(sums)))
        total = sums if total is None else total + sums
    assert abs(total.level - whole.level) <= total.level_error + whole.level_error
    assert total.level_error >= 0.5 * whole.level_error  # errors of parts add up
    assert abs(total.mean - whole.mean) <= total.mean_error + whole.mean_error
    off = total.combination_error + whole.combination_error
    assert (np.abs(total.combination - whole.combination) <= off).all()
    assert off.max() < 1e-11
    if not intercept:  # from loss and gradient
        plain = SlopeSums.at(model, at)
        assert abs(plain.level - whole.level) <= plain.level_error + whole.level_error < 1e-11
        off = plain.combination_error + whole.combination_error
        assert (np.abs(plain.combination - whole.combination) <= off).all()
    value = at.value + l1 * float(np.abs(x[: model.n_features]).sum())
    reach = Reach(terms, model.loss, sizes, value)
    bounds = [terms.lower_bound(sums, lambda: reach) for sums in (total, whole)]
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-10)
    assert 0.0 <= max(bounds) <= found.fun
    assert intercept or max(bounds) > 0.0  # slopes that are not balanced may prove nothing


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("chosen", [ag.NonNegative(), ag.Box(-0.1, 0.2), ag.Box(0.1, 0.3)])
def test_a_box_is_proved_everywhere_even_around_the_intercept(chosen, intercept):
    rng = np.random.default_rng(3)
    model = model_of("logistic", *data("logistic", 60, 4), l2=0.05, fit_intercept=intercept)
    start = chosen.project(np.zeros(model.n_parameters))
    result = ag.minimize(model, start, feasible_set=chosen, tol=1e-6, max_iter=5000)
    assert result.success
    assert result.certified_radius == math.inf
    points = (chosen.project(result.x + 1e-3 * rng.standard_normal(start.size)) for _ in range(99))
    assert result.lower_bound <= min(model.value(point) for point in points)
