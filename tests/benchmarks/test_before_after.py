"""The comparison of two checkouts: a checkout with itself passes, limits and failures decide."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE = ROOT / "benchmarks" / "before_after.py"


def run(*arguments):
    return subprocess.run(
        [sys.executable, FILE, *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_a_checkout_is_compared_with_itself():
    found = run(
        "--before", ROOT, "--after", ROOT, "--quick", "--seconds", 1, "--worst", 50, "--mean", 50
    )
    assert found.returncode == 0, found.stderr
    rows = [line for line in found.stdout.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 3
    assert not any("not solved" in row for row in rows)
    assert all(float(row.split("|")[4]) > 0 for row in rows)
    assert "geometric mean" in found.stdout


def test_what_is_beyond_a_limit_is_an_error():
    found = run("--before", ROOT, "--after", ROOT, "--quick", "--seconds", 1, "--mean", 1e-9)
    assert found.returncode == 1
    assert "limit 1e-09" in found.stdout


@pytest.mark.parametrize("missing", ["--before", "--after"])
def test_a_folder_that_is_no_checkout_is_named(missing, tmp_path):
    other = {"--before": "--after", "--after": "--before"}[missing]
    found = run(missing, tmp_path, other, ROOT, "--quick")
    assert found.returncode == 1
    assert f"{tmp_path} is no checkout" in found.stderr
