"""The comparison of optimizers: what a run leaves, and what the page says about it."""

import math
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from accelegrad_lab import optimizers


@pytest.fixture(autouse=True)
def _made_rows(monkeypatch):
    rng = np.random.default_rng(0)
    X, y = sp.csr_matrix(rng.standard_normal((200, 3))), np.where(rng.random(200) < 0.5, 1.0, -1.0)
    monkeypatch.setattr(optimizers, "rows_of", lambda name: (X, y))


def test_both_frameworks_do_the_same_steps_and_the_best_step_size_counts():
    problem = optimizers.Problem("made", "logistic")
    first, second = (optimizers.untuned_share(problem, 0, name) for name in optimizers.OURS)
    assert first < 1e-3
    assert first == pytest.approx(second, rel=1e-6)
    found = optimizers.tuned_shares(problem, 0, "SGD")
    assert max(map(abs, found.values())) < 1e-6  # the minimum is known to 1e-8


def test_the_page_counts_who_is_ahead(tmp_path, monkeypatch):
    measured = optimizers.Measured(tmp_path)
    start = "a9a hinge 64 "
    for name in optimizers.UNTUNED:
        measured.keep(start + name, 0.1 if name in optimizers.OURS else 0.2)
    constant = {"SGD": 0.3, "Adam": 0.09, "Adagrad": 0.5}
    for name, schedule in {"SGD": 0.4, "Adam": 0.05, "Adagrad": math.inf}.items():
        measured.keep(f"{start}{name}, constant", constant[name])
        measured.keep(f"{start}{name}, schedule", schedule)
    options = ["--sets", "a9a", "--losses", "hinge", "--batches", "64", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["", *options])
    optimizers.main()  # all is there: nothing is measured
    text = (tmp_path / "table.md").read_text()
    assert "| a9a hinge 64 | 1.0e-01 | 1.0e-01 | 2.0e-01 AdamWScheduleFree | 9.0e-02 Adam |" in text
    assert "| 64 | 1 | 1 | 0 | 0 | 0.50, 1.11, 2.00 |" in text


@pytest.mark.parametrize("size", [0, 64])
def test_a_problem_has_true_gradients_and_all_its_rows(size):
    for loss in optimizers.LOSSES:
        problem = optimizers.Problem("made", loss)
        w = np.array([0.1, -0.2, 0.3])
        expected = problem.model.value_and_gradient(w)[1]
        np.testing.assert_allclose(problem.gradient(w, np.arange(200)), expected, atol=1e-12)
        batches = list(problem.batches(size))
        assert len(batches) == problem.steps(size) == (200 if size == 0 else 9)
        assert {len(rows) for rows in batches} == {size or 200}
        assert problem.share(problem.start) == pytest.approx(1)
