"""The common base of the oracles of all row methods: a sum over rows, randomness and a goal."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from accelegrad.models.linear_model import LinearModel, ModelPoint
from accelegrad.proofs.certificate import LateBound
from accelegrad.run.oracle import ModelOracle

#: Maps the value at a point to the wanted gap, 0 for none.
Goal: TypeAlias = Callable[[float], float]


def no_goal(value: float) -> float:  # noqa: ARG001
    """Return 0: no gap is wanted."""
    return 0.0


class RowOracle(ModelOracle):
    """A sum over rows; `rng` gives samples, or the order of the rows."""

    saved = (*ModelOracle.saved, "rng")

    def __init__(
        self, model: LinearModel, rng: np.random.Generator, goal: Goal | None = None
    ) -> None:
        super().__init__(model)
        self.rng, self.goal = rng, no_goal if goal is None else goal

    def _late_bound(self, at: ModelPoint, smoothing: float = 0.0) -> LateBound:
        """Return the bound by the slopes at a point, for later; `smoothing` is their mu."""
        return LateBound(self.model, at.w, smoothing=smoothing, known=at)


def rows_in_memory(model: LinearModel) -> LinearModel:
    """Return the model with its rows in memory, or refuse."""
    rows = model.in_memory
    if rows is None:
        raise ValueError(
            "this method goes from row to row in random order, so that all rows have to be in "
            f"memory, but those of {model!r} are not: use method 'accelegrad-newton'."
        )
    return rows
