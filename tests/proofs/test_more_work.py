"""More work never makes a proof worse: neither a smaller `tol` nor a larger `max_iter` does."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from itertools import pairwise

import numpy as np
import pytest

from proofs.battery import FAMILIES, SLACK, Problem, drawn, falsehood, largest_of_quadratics, run

TOLS = (1e-4, 1e-6, 1e-7, 1e-8)
ITERATIONS = (25, 75, 150, 400, 1000)
#: The checks that close a run may take so many calls, however few it made before.
CLOSING_CALLS = 3
#: Two runs that end at the same point, or nearly, may pursue the best average from different steps.
PURSUED = 1.25
#: Nor is a gap pursued that is so small a share of the values already.
TINY = 1e-9
#: The largest of ten quadratics of twenty variables, by their seeds
SEEDS = range(3)
#: Of every family one function, of odd or even start
OTHERS = [(family, number % 2 * 5) for number, family in enumerate(FAMILIES)]


@cache
def ten_quadratics(seed: int) -> Problem:
    problem = largest_of_quadratics(np.random.default_rng(seed), 20, 10)
    return replace(problem, name=f"ten_quadratics-{seed}", x0=np.zeros(20))


def of_battery(family: str, number: int) -> Problem:
    return drawn(family, number, ("near", "zero")[number % 2], 6)


TEN = [partial(ten_quadratics, seed) for seed in SEEDS]
ORDINARY = [partial(of_battery, *pair) for pair in OTHERS]


def name_of(given) -> str | None:
    return "-".join(map(str, given.args)) if isinstance(given, partial) else None


@pytest.mark.parametrize("make", [*TEN, *ORDINARY], ids=name_of)
def test_a_smaller_tol_ends_with_no_larger_gap(make):
    """And soon if the larger one has proved as much."""
    entry = make()
    results = [run(entry, tol)[1] for tol in TOLS]
    assert not [result for result in results if result is None]
    runs = "\n".join(
        f"{entry.name} tol {tol:.0e}: gap {result.gap:.3g} after {result.nfev} calls"
        for tol, result in zip(TOLS, results, strict=True)
    )
    for i, loose in enumerate(results):
        for tol, tight in zip(TOLS[i + 1 :], results[i + 1 :], strict=True):
            assert tight.gap <= PURSUED * loose.gap + TINY * entry.size, runs
            if loose.gap <= tol * max(1.0, abs(loose.fun)):
                assert tight.nfev <= 1.5 * loose.nfev + CLOSING_CALLS, runs


@pytest.mark.parametrize(
    ("make", "tol"),
    [(TEN[0], None), *((make, 1e-8) for make in (*TEN, *ORDINARY[::2]))],
    ids=name_of,
)
def test_more_iterations_end_with_no_larger_gap(make, tol):
    """And are not made where fewer were enough."""
    entry = make()
    results = [run(entry, tol, max_iter=most)[1] for most in ITERATIONS]
    runs = "\n".join(
        f"{entry.name} tol {tol} max_iter {most}: gap {result.gap:.3g} after {result.nfev} calls"
        for most, result in zip(ITERATIONS, results, strict=True)
    )
    for fewer, more in pairwise(results):
        assert more.gap <= fewer.gap + SLACK * entry.size, runs
        assert not falsehood(entry, more), runs
        if fewer.success and tol is not None:
            assert more.nfev <= 1.5 * fewer.nfev + CLOSING_CALLS, runs
