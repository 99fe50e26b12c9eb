"""A minute of the fuzz, always with the same seeds, and what shows that it works.

`make fuzz MINUTES=30` goes on with new seeds; `python tests/proofs/mistakes.py` tries all mistakes.
"""

from __future__ import annotations

import collections
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from proofs import cases, checks, estimators, fuzz, mistakes, polyhedra
from proofs.extended import LOSSES

#: How many seeds of each check, and in how many tests, which several processes share
FIXED = {"checks": (320, 4), "parts": (600, 2), "estimators": (200, 4), "polyhedra": (25, 1)}
GROUPS = [(name, group) for name, (_, groups) in FIXED.items() for group in range(groups)]


@pytest.mark.parametrize(("check", "group"), GROUPS)
def test_whatever_is_claimed_of_random_problems_is_true(check, group):
    count, groups = FIXED[check]
    found = []
    for seed in range(group, count, groups):
        try:
            if check == "checks":  # other tests compile the kernels
                checks.inspect(replace(cases.drawn(seed), kernels="auto"))
            else:
                fuzz.check_of(check)(seed)
        except AssertionError as finding:
            found.append(f"fuzz.py --only {seed} --check {check}: {finding}")
    assert not found, f"{len(found)} findings, the first: {found[0]}"


def seeds_of(check):
    return range(FIXED[check][0])


def test_the_fixed_seeds_cover_everything():
    seen = collections.Counter()
    for seed in seeds_of("checks"):
        case = cases.drawn(seed)
        options = case.options
        seen[options.get("method", "auto")] += 1
        seen["output", options["output"]] += 1
        seen["watch", case.watch] += 1
        for name in ("diameter", "restart", "scale", "batch_size", "tol", "rtol", "exact"):
            seen[name] += name in options
        for formula in (case.chosen, case.penalty):
            if formula is not None:
                seen[formula.name] += 1
        if case.data is not None:
            seen[case.data.keywords["loss"]] += 1
            seen["sample_weight"] += "sample_weight" in case.data.keywords
            seen[case.data.X.dtype.name] += 1
            seen.update(tag for tag in case.tags if tag in (*cases.LAYOUTS, *cases.TROUBLES))
        else:
            seen["function", case.problem.shape] += 1
    wanted = [
        *(*LOSSES, *cases.METHODS, *cases.SETS, *cases.PENALTIES, *cases.LAYOUTS, *cases.TROUBLES),
        *(("output", name) for name in cases.OUTPUTS),
        *(("watch", name) for name in ("", "look", "resume", "other data")),
        *(("function", name) for name in cases.functions.SHAPES),
        *("float32", "float64", "sample_weight"),
        *("diameter", "restart", "scale", "batch_size", "tol", "rtol", "exact"),
    ]
    assert [name for name in wanted if seen[name] < 2] == []


def test_the_fixed_seeds_cover_all_estimators():
    fits = [estimators.draw(seed) for seed in seeds_of("estimators")]
    told = [fit.estimator.get_params() for fit in fits]
    losses = {*estimators.CLASSIFICATION, *estimators.REGRESSION}
    assert {options["loss"] for options in told} == losses
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


def test_the_fixed_seeds_cover_all_polyhedra():
    names = " ".join(polyhedra.draw(seed).name for seed in seeds_of("polyhedra"))
    assert all(kind in names for kind in (*polyhedra.ROWS, *polyhedra.FUNCTIONS, "bounds"))


def test_all_functions_that_mistakes_are_made_in_are_there():
    for mistake in mistakes.MISTAKES:
        with mistakes.made(mistake):
            pass


# Of the table in mistakes.py: some that are found within seconds, and the check that finds them.
SOON_FOUND = {
    "Region.minimum 0.1 %": "checks",
    "Region.minimum_with_penalty 0.1 %": "checks",
    "CutCertificate.__init__ allowance with the wrong sign": "checks",
    "CutCertificate.widen": "checks",
    "Bracket.radius_of": "checks",
    "Terms.lower_bound 0.1 %": "parts",
    "DualBounds._value": "parts",
    ":Ball.linear_minimum 0.1 %": "parts",
    "FeasibleSet.linear_minimum_in_ball": "parts",
    "Penalty.affine_minorant": "parts",
    "Balance.of": "parts",
    "Terms._separable_least 0.1 %": "parts",
    "sklearn.solve:minimize": "estimators",
    "Problem.value": "estimators",
}


@pytest.mark.parametrize("name", SOON_FOUND)
def test_a_deliberate_mistake_is_found(name):
    (mistake,) = (mistake for mistake in mistakes.MISTAKES if name in mistake.name)
    assert mistakes.find(mistake, seconds=30, only=SOON_FOUND[name]) is not None


def test_a_failing_seed_is_printed_with_its_command(capsys):
    name = "Region.minimum wrong sign"
    (mistake,) = (mistake for mistake in mistakes.MISTAKES if name in mistake.name)
    found = mistakes.find(mistake, seconds=30)
    assert found is not None
    with mistakes.made(mistake):
        assert fuzz.main(["--only", str(found.seed), "--check", found.check]) == 1
    assert found.kind in capsys.readouterr().out
    assert f"--only {found.seed}" in fuzz.command(found.check, found.seed)
