"""A few kills of each kind of run; `python tests/proofs/kills.py` does 300."""

import numpy as np
import pytest

from proofs.kills import cases, killed

CHOSEN = ("accelegrad-newton hinge", "accelegrad-vr logistic", "dual-ascent sparse", "unixgrad")
CHOSEN += ("restart adaptive accelegrad", "certified", "batches auto logistic", "classifier")


@pytest.mark.parametrize("name", CHOSEN)
def test_a_killed_run_goes_on_bit_for_bit(name, tmp_path):
    case = next(case for case in cases() if case.name == name)
    kills, different = killed(case, tmp_path, np.random.default_rng(1), 3)
    assert different == []
    assert kills > 0
