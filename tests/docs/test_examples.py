"""The examples that make no picture run, and say what they should; `make docs` runs the others."""

import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pandas
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def printed(name, capsys):
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out


def test_every_example_is_tested():
    tested = {"constrained_models", "large_minibatch", "small_network", "text_classifiers"}
    assert {path.stem for path in EXAMPLES.glob("*.py")} == tested
    assert all(path.name.startswith("plot_") for path in EXAMPLES.glob("gallery/*.py"))


def test_text_classifiers_and_constrained_models(capsys, monkeypatch):
    monkeypatch.delenv("ACCELEGRAD_DATA", raising=False)  # generated text is quicker
    out = printed("text_classifiers.py", capsys)
    gaps = re.findall(r"within ([0-9.]+) of the minimum", out)
    assert len(gaps) == 4
    assert max(map(float, gaps)) < 0.2
    out = printed("constrained_models.py", capsys)
    least, left = re.findall(r"least weight (\S+),", out), re.findall(r"(\S+) of the initial", out)
    assert len(least) == len(left) == 4
    assert min(map(float, least)) >= 0
    assert max(map(float, left)) < 1e-2
    assert re.findall(r"simplex .* sum (\S+),", out) == ["1.000000"] * 2


def test_benchopt(tmp_path):
    pytest.importorskip("benchopt", reason="benchopt is not installed")
    folder = shutil.copytree(EXAMPLES / "benchopt", tmp_path / "benchopt")
    options = ["--max-runs", "10", "--n-repetitions", "1", "--no-html", "--no-plot"]
    command = [sys.executable, "-m", "benchopt", "run", str(folder), *options]
    subprocess.run(command, check=True, capture_output=True)
    (file,) = folder.glob("outputs/*.parquet")
    table = pandas.read_parquet(file)
    least = table.groupby("solver_name")["objective_value"].min()
    ours = [value for name, value in least.items() if name.startswith("accelegrad")]
    assert len(ours) == 2
    assert min(ours) <= least["L-BFGS-B"]


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
