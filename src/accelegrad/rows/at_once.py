"""Least squares with few columns: products of columns say all, so that no run is needed."""

from __future__ import annotations

import numpy as np

from accelegrad.errors import Vector
from accelegrad.problems.linear_model import LinearModel
from accelegrad.problems.penalties import Penalty
from accelegrad.proofs.fenchel import Terms
from accelegrad.rows.proximal_oracle import FEW_COLUMNS, PenalisedOracle
from accelegrad.rows.row_oracle import Goal
from accelegrad.run.oracle import Evaluation


def minimum_at_once(
    model: LinearModel, terms: Terms, penalty: Penalty | None, start: Vector, goal: Goal
) -> Evaluation | None:
    """Return the minimum with its lower bound; None where one step does not find it.

    It is the first step of `accelegrad.rows.proximal_newton`, whose model is exact for least
    squares. Rounding may leave the bound short of the goal.

    Parameters
    ----------
    model : LinearModel
        The model; of rows that are not in memory none is found.
    terms, penalty
        What is added to it, and what its parameters are limited to: as for `PenalisedOracle`.
    start : Vector
        A feasible point.
    goal : callable
        From the value at a point to the gap that is wanted there.
    """
    exact = model.loss.name == "squared" and model.n_features <= FEW_COLUMNS
    if not (exact and terms.hold_each_weight(model.loss) and model.in_memory is not None):
        return None
    oracle = PenalisedOracle(model, np.random.default_rng(0), goal, terms, penalty)
    found = oracle(oracle.aim(start, 1, 1.0).target)
    return oracle.original(found) if np.isfinite(found.value) else None
