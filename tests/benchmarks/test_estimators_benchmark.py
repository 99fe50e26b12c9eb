"""The benchmark of the estimators on scikit-learn's small sets: its tables say what they measure."""

import argparse
import importlib.util
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "benchmarks" / "estimators.py"


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("estimators_benchmark", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_the_report_of_small_sets(benchmark, monkeypatch):
    monkeypatch.delenv("ACCELEGRAD_DATA", raising=False)
    monkeypatch.setattr(benchmark, "MOST_SPLITS", 1)
    options = argparse.Namespace(sets="", rows=300)
    text = "\n".join(benchmark.report(options))
    assert "| breast_cancer | 300 + 269 | 1 | 0.5 |" in text
    assert "| diabetes | 300 x 10 |" in text
    assert "within 0.2 points of the best of three tuned peers on" in text
    assert "4 of 4 fits of raw columns meet the default tolerance" in text
