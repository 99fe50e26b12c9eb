"""A minute of the fuzz, always with the same seeds, and what shows that it works.

`make fuzz MINUTES=30` goes on with new seeds; `python tests/proofs/mistakes.py` tries all mistakes.
"""

from __future__ import annotations

import collections
from dataclasses import replace

import numpy as np
import pytest

from proofs import cases, checks, fuzz, mistakes, parts
from proofs.extended import LONG, LOSSES, MANY
from reference.losses import loss_values

CASES, GROUPS = 320, 4  # cases by minimize, in so many tests that several processes share
PARTS, PART_GROUPS = 600, 2


@pytest.mark.parametrize("group", range(GROUPS))
def test_whatever_is_claimed_of_random_problems_is_true(group):
    found = []
    for seed in range(group, CASES, GROUPS):
        case = replace(cases.drawn(seed), kernels="auto")  # tests of the kernels compile them
        try:
            checks.inspect(case)
        except checks.FindingError as finding:
            found.append(f"fuzz.py --only {seed}: {finding}")
    assert not found, f"{len(found)} findings, the first: {found[0]}"


@pytest.mark.parametrize("group", range(PART_GROUPS))
def test_each_bound_by_itself_holds(group):
    found = []
    for seed in range(group, PARTS, PART_GROUPS):
        try:
            parts.check(seed)
        except checks.FindingError as finding:
            found.append(f"fuzz.py --only {seed} --check parts: {finding}")
    assert not found, f"{len(found)} findings, the first: {found[0]}"


def test_the_fixed_seeds_cover_everything():
    seen = collections.Counter()
    for seed in range(CASES):
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
        *LOSSES,
        *cases.METHODS,
        *cases.SETS,
        *cases.PENALTIES,
        *cases.LAYOUTS,
        *cases.TROUBLES,
        *(("output", name) for name in cases.OUTPUTS),
        *(("watch", name) for name in ("", "look", "resume", "other data")),
        *(("function", name) for name in cases.functions.SHAPES),
        *("float32", "float64", "sample_weight"),
        *("diameter", "restart", "scale", "batch_size", "tol", "rtol", "exact"),
    ]
    assert [name for name in wanted if seen[name] < 2] == []


def test_a_case_is_the_same_whenever_it_is_drawn():
    for seed in range(30):
        one, other = cases.drawn(seed), cases.drawn(seed)
        assert (one.tags, one.options.keys()) == (other.tags, other.options.keys())
        np.testing.assert_array_equal(one.x0, other.x0)


@pytest.mark.parametrize("loss", LOSSES)
def test_both_kinds_of_numbers_agree_on_losses(loss):
    rng = np.random.default_rng(5)
    m = 3 * rng.standard_normal(40)
    y = (
        np.sign(rng.standard_normal(40))
        if loss in cases.CLASSIFICATION
        else rng.standard_normal(40)
    )
    long = loss_values(loss, LONG.array(m), LONG.array(y), LONG, LONG.array(0.3)[()])
    many = loss_values(loss, MANY.array(m), MANY.array(y), MANY, MANY.array(0.3)[()])
    np.testing.assert_allclose(long.astype(float), many.astype(float), rtol=1e-15, atol=1e-18)


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
}


@pytest.mark.parametrize("name", SOON_FOUND)
def test_a_deliberate_mistake_is_found(name):
    (mistake,) = (mistake for mistake in mistakes.MISTAKES if name in mistake.name)
    assert mistakes.find(mistake, seconds=30, only=SOON_FOUND[name]) is not None


def test_a_failing_seed_is_printed_with_its_command(capsys):
    (mistake,) = (
        mistake for mistake in mistakes.MISTAKES if "Region.minimum wrong sign" in mistake.name
    )
    found = mistakes.find(mistake, seconds=30)
    assert found is not None
    with mistakes.made(mistake):
        assert fuzz.main(["--only", str(found.seed), "--check", found.check]) == 1
    assert found.kind in capsys.readouterr().out
    report = fuzz.Report(0, found.check, found.seed, "found")
    assert f"--only {found.seed}" in fuzz.command(report)
