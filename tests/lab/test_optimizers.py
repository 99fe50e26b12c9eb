"""The comparison of optimizers: what a run leaves, and what the page says about it."""

import json
import sys

import numpy as np
import pytest

from accelegrad_lab import optimizers


class Parabola:
    """||w - 1||^2 / 2 in two coordinates, with exact gradients."""

    start = np.zeros(2)

    def steps(self, size):
        return 60

    def batches(self, size):
        return iter(range(60))

    def gradient(self, w, rows):
        return w - 1

    def share(self, w):
        return float((w - 1) @ (w - 1) / 2)


def test_both_frameworks_do_the_same_steps():
    left = {
        name: optimizers.untuned_share(Parabola(), 0, make, name)
        for name, make in optimizers.untuned().items()
        if name in optimizers.OURS
    }
    assert len(left) == 2
    first, second = left.values()
    assert first < 1e-3
    assert first == pytest.approx(second, rel=1e-6)


def test_the_best_step_size_counts():
    found = optimizers.tuned_shares(Parabola(), 0, "SGD")
    assert found["constant"] == 0  # one step of size 1 is at the minimum
    assert found["schedule"] < 1e-6


def test_the_page_counts_who_is_ahead(tmp_path, monkeypatch):
    known = {f"a9a hinge 64 {name}": 0.2 for name in optimizers.untuned()}
    known |= {f"a9a hinge 64 {name}": 0.1 for name in optimizers.OURS}
    for name, constant, schedule in (
        ("SGD", 0.3, 0.4),
        ("Adam", 0.09, 0.05),
        ("Adagrad", 0.5, 0.08),
    ):
        known[f"a9a hinge 64 {name}"] = {"constant": constant, "schedule": schedule}
    store = tmp_path / "store.json"
    store.write_text(json.dumps(known))
    out = tmp_path / "page.md"
    monkeypatch.setattr(sys, "argv", ["", "--stored", "--store", str(store), "--out", str(out)])
    optimizers.main()
    text = out.read_text()
    assert "| a9a hinge 64 | 1.0e-01 | 1.0e-01 | 2.0e-01 AdamWScheduleFree | 9.0e-02 Adam |" in text
    assert "| 64 | 1 | 1 | 0 | 0 | 0.50, 1.11, 2.00 |" in text
