"""Fixed seeds of the random fits; `make fuzz` takes new ones."""

import numpy as np
import pytest
import scipy.sparse as sp

from proofs.estimators import CLASSIFICATION, REGRESSION, check, draw

GROUPS, SIZE = 4, 50
SEEDS = range(GROUPS * SIZE)


def check_all(seeds=SEEDS):
    for seed in seeds:
        check(seed)


@pytest.mark.parametrize("group", range(GROUPS))
def test_the_claims_of_random_fits(group):
    check_all(SEEDS[group::GROUPS])


def test_the_fixed_seeds_cover_what_there_is():
    fits = [draw(seed) for seed in SEEDS]
    told = [fit.estimator.get_params() for fit in fits]
    assert {options["loss"] for options in told} == {*CLASSIFICATION, *REGRESSION}
    assert {options["penalty"] for options in told} == {None, "l2", "l1", "elasticnet"}
    for name in ("fit_intercept", "early_stopping", "warm_start"):
        assert {options[name] for options in told if name in options} == {True, False}
    sets = {str(options["feasible_set"]).split("(")[0] for options in told}
    assert sets == {"None", "nonnegative", "simplex", "Box", "Ball", "L1Ball"}
    kinds = {(sp.issparse(fit.X), fit.X.dtype) for fit in fits}
    assert kinds == {(s, np.dtype(t)) for s in (True, False) for t in ("f4", "f8")}
    assert {fit.feeding for fit in fits} == {"fit", "twice", "stream"}
    assert {np.unique(fit.y).size for fit in fits if fit.classifies} == {2, 3, 4}
    assert any(hasattr(fit.estimator, "alphas") for fit in fits)


def wrong_gap(monkeypatch):
    from accelegrad.sklearn import solve

    right = solve.minimize

    def slightly_wrong(*given, **options):
        result = right(*given, **options)
        result["lower_bound"] += 0.1 * (result.fun - result.lower_bound)
        return result

    monkeypatch.setattr(solve, "minimize", slightly_wrong)


def wrong_objective(monkeypatch):
    from accelegrad.sklearn.objective import Problem

    right = Problem.value
    monkeypatch.setattr(Problem, "value", lambda self, x: right(self, x) * (1 + 1e-9))


@pytest.mark.parametrize(
    ("mistake", "words"), [(wrong_gap, "false gap_"), (wrong_objective, "objective_ is false")]
)
def test_a_mistake_is_found(monkeypatch, mistake, words):
    mistake(monkeypatch)
    with pytest.raises(AssertionError, match=words):
        check_all()
