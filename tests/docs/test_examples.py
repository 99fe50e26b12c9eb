"""The examples run, and say what they should."""

import runpy
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def printed(name, capsys):
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out


def test_every_example_is_tested():
    tested = {"estimators.py", "portfolio.py", "long_run.py", "sparse_features.py"}
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
