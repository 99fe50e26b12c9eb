"""The benchmark of the estimators on scikit-learn's small sets: its tables say what they measure."""

import argparse
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from accelegrad.sklearn import AcceleGradRegressor

FILE = Path(__file__).parents[2] / "benchmarks" / "estimators.py"


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("estimators_benchmark", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture
def numbers(benchmark):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    return benchmark.Data("made", X, X @ [1.0, 2.0, 3.0] + rng.standard_normal(60))


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def compared_with_ridge(benchmark, table, numbers, alpha):
    """Return the row of the table by its heads, where both are judged by a penalty of 0.1."""
    ours, peer = AcceleGradRegressor(alpha=alpha), Ridge(0.1 * 60, tol=1e-12)
    pair = benchmark.Pair("Ridge", ours, peer, benchmark.squared, 0.1)
    line = benchmark.agreement(table, pair, numbers)
    return dict(zip(benchmark.AGREEMENT, cells(line), strict=True))


def test_a_peer_of_the_same_objective_agrees(benchmark, numbers):
    table = benchmark.Table(*benchmark.AGREEMENT)
    found = compared_with_ridge(benchmark, table, numbers, alpha=0.1)
    assert found["agrees"] == "yes"
    assert abs(float(found["excess, tight"])) <= 1e-8
    assert float(found["distance, tight"]) <= 1e-4
    assert table.count() == "1 of 1"


def test_another_objective_does_not_agree(benchmark, numbers):
    table = benchmark.Table(*benchmark.AGREEMENT)
    found = compared_with_ridge(benchmark, table, numbers, alpha=1.0)
    assert found["agrees"] == "no"
    assert float(found["excess"]) > 1e-2
    assert table.count() == "0 of 1"


def test_the_report_of_small_sets(benchmark, monkeypatch):
    monkeypatch.delenv("ACCELEGRAD_DATA", raising=False)
    monkeypatch.setattr(benchmark, "MOST_SPLITS", 1)
    monkeypatch.setattr(benchmark, "agreements", lambda *_: iter(()))  # tested above
    options = argparse.Namespace(sets="", rows=300)
    text = "\n".join(benchmark.report(options))
    assert "| breast_cancer | 300 + 269 | 1 | 0.5 |" in text
    assert "| diabetes | 300 x 10 |" in text
    assert "within 0.2 points of the best of three tuned peers on" in text
    assert "4 of 4 fits of raw columns meet the default tolerance" in text
