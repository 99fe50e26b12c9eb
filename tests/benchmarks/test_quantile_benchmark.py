"""The quantile benchmark at toy size: its minima, its clocks' conditions, its page."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import accelegrad as ag
from accelegrad.data.datasets import DATA_FOLDER


def _load() -> Any:
    path = Path(__file__).parents[2] / "benchmarks" / "quantile.py"
    spec = importlib.util.spec_from_file_location("quantile_benchmark", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["quantile_benchmark"] = module
    spec.loader.exec_module(module)
    return module


bench = _load()


@pytest.fixture(scope="module", params=[0.5, 0.9])
def problem(request: pytest.FixtureRequest) -> Any:
    X, y = bench.stand_in(300, 4, seed=1)
    return bench.Problem("toy", bench.standardised(X), bench.standardised(y), request.param)


@pytest.fixture(scope="module")
def row(problem: Any) -> Any:
    return bench.measured(problem, 1)


def test_the_value_is_the_models(problem: Any) -> None:
    w = np.random.default_rng(0).normal(size=5)
    assert problem.value(w) == pytest.approx(problem.model().value(w), rel=1e-13)


def test_all_solvers_find_the_same_minimum(problem: Any, row: Any) -> None:
    assert problem.value(row.scikit_learn.w) == pytest.approx(row.minimum, rel=1e-9)
    assert problem.model().dual_value(row.dual_program.w) == pytest.approx(row.minimum, rel=1e-9)
    if row.statsmodels is not None:
        assert 0 <= row.gap(row.statsmodels) <= 1e-5


def test_ours_is_as_accurate_as_it_says(problem: Any, row: Any) -> None:
    assert row.accurate.gap <= bench.ACCURACY
    assert 0 < row.accurate.seconds < math.inf
    again = ag.minimize(problem.model(), max_iter=row.accurate.iterations)
    assert problem.value(again.x) / row.minimum - 1 == pytest.approx(row.accurate.gap, abs=1e-14)
    assert 0 <= row.proved.gap <= bench.PROOF


def test_a_bound_above_the_minimum_is_refused(problem: Any, row: Any) -> None:
    with pytest.raises(RuntimeError, match="is above the minimum"):
        bench.to_proof(problem, row.minimum * 0.9, 1)


def test_what_is_not_reached_is_not_given_a_time(
    problem: Any, row: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "MOST_ITERATIONS", 2)
    assert bench.to_accuracy(problem, row.minimum, 1).seconds == math.inf
    assert bench.to_proof(problem, row.minimum, 1).seconds == math.inf


def test_stand_ins_have_the_shape_and_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DATA_FOLDER, raising=False)
    name, X, y = bench.data("cpusmall")
    assert name == "cpusmall (generated)"
    assert X.shape == bench.SHAPES["cpusmall"]
    np.testing.assert_allclose(X.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose([*X.std(axis=0), y.std()], 1, rtol=1e-12)
    assert bench.data("cpusmall", 50)[1].shape == (50, 12)


def test_the_page_counts_what_was_reached(row: Any) -> None:
    slow = row._replace(accurate=row.accurate._replace(seconds=math.inf))
    text = bench.page([row, slow], "python benchmarks/quantile.py", 1)
    lines = [line for line in text.splitlines() if line.startswith("| toy")]
    assert len(lines) == 4
    assert lines[1].split(" | ")[5] == "-"
    reached = int(row.speedup(row.accurate) >= bench.ACCURACY_TARGET)
    assert f"was reached in {reached} of 2 cases" in text
    faster = 1 + int(row.fastest_other() < row.accurate.seconds)
    assert f"in {faster} of 2 cases, and goes on" in text
