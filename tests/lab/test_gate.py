"""The gate: what is lost or false between two source trees is found, and slow calls are named."""

import math
import subprocess
import sys
from pathlib import Path

import pytest

import accelegrad
from accelegrad_lab import gate
from accelegrad_lab.engine.rows import MADE, plain_name
from accelegrad_lab.functions.suite import SUITE
from accelegrad_lab.gate import Compared, Outcome


def compared(before, after, ratio=1.0):
    return Compared("a call", [1.0, ratio], [1.0, 1.0], [before, after])


def test_what_is_lost_or_false_is_found():
    good = Outcome(success=True, value=1.0, gap=0.1)
    assert not compared(good, good).wrong
    assert compared(good, good._replace(success=False)).wrong == ["success lost"]
    assert compared(good, good._replace(gap=math.nan)).wrong == ["proof lost"]
    assert compared(good, Outcome(success=True, value=0.8)).wrong[-1] == "bound before is false"
    words, within = gate.verdict([compared(good, good, 1.2)], [], 1.25, 1.3)
    assert within
    assert words[0].startswith("wall: geometric mean 1.200 (limit 1.25), worst 1.20")
    words, within = gate.verdict([compared(good, good, 1.4)], [], 2.0, 1.3)
    assert "a call (1.40)" in words[0]
    assert not within
    assert not gate.verdict([compared(good, good)], ["x"], 2.0, 1.3)[1]
    assert not gate.verdict([], [], 2.0, 1.3)[1]


def test_every_call_has_its_data():
    named = {one for call in gate.CALLS.values() for one in call.args if isinstance(one, str)}
    assert len({one for one in named if plain_name(one) in MADE or one in gate.STORED}) > 12
    assert len(named & set(SUITE)) >= 15


@pytest.mark.parametrize("before", [str(Path(accelegrad.__file__).parents[1]), gate.PEERS])
def test_a_call_in_two_trees_and_beside_a_peer(before):
    command = [sys.executable, gate.__file__, "--before", before, "--worst", "999", "--mean", "999"]
    command += ["--after", str(Path(accelegrad.__file__).parents[1]), "--seconds", "0.1"]
    call = "small function, logistic, d = 5"
    done = subprocess.run([*command, "--only", call], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"| {call} |") == 1
