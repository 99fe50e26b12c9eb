"""Runs on several local processes end where a run in one process does, also after a kill."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

RANKS = Path(__file__).parent / "ranks.py"


def run(folder, ranks, *checks):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    flags = ("-W", "error", "-W", "ignore::DeprecationWarning")
    started = [
        subprocess.Popen(
            [sys.executable, *flags, RANKS, folder, str(rank), str(ranks), *checks],
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for rank in range(ranks)
    ]
    said = [process.communicate()[1] for process in started]
    return [process.returncode for process in started], "\n".join(said)


@pytest.mark.slow
def test_two_ranks(tmp_path):
    codes, said = run(tmp_path, 2, "ddp", "fsdp", "zero")
    assert codes == [0, 0], said


@pytest.mark.slow
def test_killed_with_two_ranks_and_resumed_with_four(tmp_path):
    codes, said = run(tmp_path, 2, "interrupted")
    assert codes == [-signal.SIGKILL] * 2, said
    codes, said = run(tmp_path, 4, "resumed", "fsdp", "zero")
    assert codes == [0] * 4, said
