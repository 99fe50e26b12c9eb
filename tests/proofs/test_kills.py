"""A few kills of random runs; `python tests/proofs/kills.py` does 300.

They are done in a process of their own: children are forked, which a process that has loaded JAX
must not do.
"""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("seed", [0, 100, 200, 300, 400])
def test_a_killed_run_goes_on_bit_for_bit(seed):
    script = str(Path(__file__).parent / "kills.py")
    command = [sys.executable, "-W", "error", script, "--kills", "3", "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("3 kills in "), done.stdout
