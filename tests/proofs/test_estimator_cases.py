"""Fixed seeds of the random fits; `make fuzz` takes new ones."""

import numpy as np
import pytest
import scipy.sparse as sp

import accelegrad as ag
from proofs.estimators import CLASSIFICATION, LOSSES, REGRESSION, check, draw

GROUPS, SIZE = 15, 10
SEEDS = range(GROUPS * SIZE)


def check_all():
    for seed in SEEDS:
        check(seed)


@pytest.mark.parametrize("group", range(GROUPS))
def test_the_claims_of_random_fits(group):
    for seed in SEEDS[group * SIZE : (group + 1) * SIZE]:
        check(seed)


def test_the_fixed_seeds_cover_what_there_is():
    cases = [draw(seed) for seed in SEEDS]
    told = [case.estimator.get_params() for case in cases]
    assert {options["loss"] for options in told} == {*CLASSIFICATION, *REGRESSION} == set(LOSSES)
    assert {options["penalty"] for options in told} == {None, "l2", "l1", "elasticnet"}
    for name in ("fit_intercept", "warm_start"):
        assert {options[name] for options in told if name in options} == {True, False}
    assert {options["average"] for options in told} == {"auto", True, False}
    sets = [options["feasible_set"] for options in told]
    assert {chosen for chosen in sets if isinstance(chosen, str)} == {"nonnegative", "simplex"}
    assert {type(chosen) for chosen in sets if not isinstance(chosen, str)} == {
        type(None),
        ag.Box,
        ag.Ball,
        ag.L1Ball,
    }
    kinds = {(sp.issparse(case.X), case.X.dtype) for case in cases}
    assert kinds == {(s, np.dtype(t)) for s in (True, False) for t in ("f4", "f8")}
    assert {case.feeding for case in cases} == {"fit", "twice", "stream"}
    assert {case.weights is None for case in cases} == {True, False}
    classes = {np.unique(case.y).size for case in cases if case.classifies}
    assert classes == {2, 3, 4}
    assert any(hasattr(case.estimator, "alphas") for case in cases)


def test_a_wrong_gap_is_found(monkeypatch):
    from accelegrad.sklearn import solve

    right = solve.minimize

    def slightly_wrong(*given, **options):
        result = right(*given, **options)
        result["lower_bound"] += 0.1 * (result.fun - result.lower_bound)
        return result

    monkeypatch.setattr(solve, "minimize", slightly_wrong)
    with pytest.raises(AssertionError, match=r"objective_ - gap_ is(.|\n)*Rerun: .*check\("):
        check_all()


def test_a_wrong_objective_is_found(monkeypatch):
    from accelegrad.sklearn.objective import Problem

    right = Problem.value
    monkeypatch.setattr(Problem, "value", lambda self, x: right(self, x) * (1 + 1e-9))
    with pytest.raises(AssertionError, match="objective_ is"):
        check_all()
