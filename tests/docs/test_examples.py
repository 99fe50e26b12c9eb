"""The examples run, and say what they should."""

import re
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def printed(name, capsys):
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out


def test_every_example_is_tested():
    tested = {
        "constrained_models.py",
        "estimators.py",
        "large_minibatch.py",
        "long_run.py",
        "portfolio.py",
        "small_network.py",
        "sparse_features.py",
        "text_classifiers.py",
    }
    assert {path.name for path in EXAMPLES.glob("*.py")} == tested


def test_portfolio(capsys):
    out = printed("portfolio.py", capsys)
    assert "Converged: the certified gap is within tol." in out


def test_long_run(capsys):
    assert "the same point: True" in printed("long_run.py", capsys)


def test_sparse_features(capsys):
    out = printed("sparse_features.py", capsys)
    assert "7 of 200 weights are not zero:" in out
    for feature in range(5):
        assert f"  feature   {feature} " in out
    assert "Converged: the certified gap is within tol." in out


def test_estimators(capsys):
    out = printed("estimators.py", capsys)
    assert "no coefficients are better by more than" in out
    assert "every fit of the path met its tolerance: True" in out


def test_text_classifiers(capsys, monkeypatch):
    monkeypatch.delenv("ACCELEGRAD_DATA", raising=False)  # generated text is quicker
    out = printed("text_classifiers.py", capsys)
    gaps = [float(found) for found in re.findall(r"within ([0-9.]+) of the minimum", out)]
    assert len(gaps) == 4
    assert max(gaps) < 0.2


def test_constrained_models(capsys):
    out = printed("constrained_models.py", capsys)
    least = [float(found) for found in re.findall(r"least weight (\S+),", out)]
    left = [float(found) for found in re.findall(r"(\S+) of the initial gap", out)]
    assert len(least) == len(left) == 4
    assert min(least) >= 0
    assert max(left) < 1e-2
    sums = re.findall(r"simplex .* sum (\S+),", out)
    assert sums == ["1.000000"] * 2


@pytest.mark.slow
def test_large_minibatch(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["large_minibatch.py", "1", "2"])
    out = printed("large_minibatch.py", capsys)
    assert out.count("with 1, 2 processes the same steps: True") == 4


@pytest.mark.slow
def test_small_network(capsys):
    out = printed("small_network.py", capsys)
    right = dict(re.findall(r"^(\S.*?) +[0-9.]+ +([0-9.]+)%$", out, re.MULTILINE))
    assert len(right) == 6
    assert float(right["AcceleGrad"]) > 90
