"""The cost model of a cluster and the rows it is measured with: arithmetic on made-up constants."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest


def load(name):
    """Import a script of benchmarks/, which is no package."""
    folder = str(Path(__file__).parents[2] / "benchmarks")
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)


model, rows = load("scaling_model"), load("criteo_like")
KNOWN = model.Constants(per_entry=2e-9, per_trip=7e-3, per_task=1e-3, per_byte=1e-9)


@pytest.mark.parametrize(("workers", "vectors", "tasks"), [(1, 3, 1), (2, 5, 2), (4, 8, 4), (64, 24, 72), (100, 27, 115)])  # fmt: skip
def test_vectors_and_tasks_are_those_of_the_tree(workers, vectors, tasks):
    # 64 parts: w is sent 2 + 6 times, sums of 8 and again of 8 come back. 100: 13 sums, then 2.
    assert model.vectors_in_a_row(workers) == vectors
    assert model.tasks_of(workers) == tasks


def test_constants_are_found_again_from_the_times_that_they_predict():
    sizes = (model.SMALL, model.MANY_ROWS, model.MANY_COLUMNS)
    cases = [model.Case(workers, *size) for workers in (1, 2) for size in sizes]
    times = {case: model.seconds(KNOWN, case, 2) for case in cases}
    # Rows of the cases that are to have next to none are neglected.
    found = model.constants(times, model.MANY_ROWS)
    assert tuple(found) == pytest.approx(tuple(KNOWN), rel=2e-2)


def test_communication_is_half_of_an_evaluation_at_the_balanced_batch():
    batch = model.balanced_rows(KNOWN, 10, 1_000_000)
    whole = model.seconds(KNOWN, model.Case(10, batch, 1_000_000))
    assert whole == pytest.approx(2 * model.communication(KNOWN, 10, 1_000_000))
    # There the faster rate buys 2 / (1 + sqrt(accuracy)).
    gain = model.gain(KNOWN, model.Case(10, batch, 1_000_000), 1e-4)
    assert gain == pytest.approx(2 / 1.01)


def test_blocks_of_hashed_rows_depend_on_their_numbers_alone():
    X, y = rows.hashed_rows(3, 500, 10_000)
    again, _ = rows.hashed_rows(3, 500, 10_000)
    other, _ = rows.hashed_rows(4, 500, 10_000)
    assert X.shape == (500, 10_000)
    assert (again != X).nnz == 0
    assert (other != X).nnz > 0
    assert np.all(X.sum(axis=1) == rows.FIELDS)
    assert set(y) == {-1.0, 1.0}
