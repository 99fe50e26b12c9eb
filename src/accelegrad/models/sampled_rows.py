"""Some rows of a linear model that stand for all: numbers and weights, and a local piece."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from accelegrad.errors import Vector
from accelegrad.models.row_blocks import RowNumbers

if TYPE_CHECKING:
    from accelegrad.models.linear_model import LinearModel


class TakenRows(NamedTuple):
    """Some rows of a model, in the order that they were asked for."""

    X: Any
    y: Vector
    shares: Vector
    known: tuple[Vector, Vector] | None  # margins and slopes at a point, where one was given


class ModelRows:
    """Rows of a linear model, by their numbers: the `SampledRows` of the contract.

    Parameters
    ----------
    model : LinearModel
        The model.
    numbers : array of int, optional
        The rows; all by default.
    weights : Vector, optional
        With which each stands for the curvature of all, where rows are drawn by their curvature.
    n_curved : int, optional
        How many of all rows have curvature, where that was looked at.
    """

    def __init__(
        self,
        model: LinearModel,
        numbers: RowNumbers | None,
        weights: Vector | None = None,
        n_curved: int | None = None,
    ) -> None:
        self._model, self.numbers, self.weights = model, numbers, weights
        self.n_curved = model.n_samples if n_curved is None else n_curved

    @property
    def count(self) -> int:
        """How many rows there are, each as often as it was drawn."""
        return self._model.n_samples if self.numbers is None else self.numbers.size

    def in_memory(self, l2: float) -> LinearModel:
        """Return a model of these rows alone, in memory, with this l2 term."""
        assert self.numbers is not None
        return self._model.of_rows(self.numbers, l2)
