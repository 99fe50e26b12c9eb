"""Some rows of a linear model that stand for all: numbers and weights, and a local piece."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from accelegrad.errors import Vector
from accelegrad.models.row_blocks import RowNumbers

if TYPE_CHECKING:
    from accelegrad.models.linear_model import LinearModel, ModelPoint


class TakenRows(NamedTuple):
    """Some rows of a model, in the order that they were asked for."""

    X: Any
    y: Vector
    shares: Vector
    known: tuple[Vector, Vector] | None  # margins and slopes at a point, where one was given


def once(numbers: RowNumbers, weights: Vector) -> tuple[RowNumbers, Vector]:
    """Return rows in order, each of them once, with the sum of its weights."""
    first = np.flatnonzero(np.diff(numbers, prepend=-1))
    return numbers[first], np.add.reduceat(weights, first)


class LocalRows(NamedTuple):
    """Rows in memory, each of them once, and what a point knows of them; all in float64."""

    numbers: RowNumbers
    X: Any
    intercept: bool
    shares: Vector
    y: Vector
    margins: Vector
    slopes: Vector
    weights: Vector  # sum_k weights_k a_k a_k' stands for the second derivatives

    @classmethod
    def of(cls, at: ModelPoint, numbers: RowNumbers, weights: Vector) -> LocalRows:
        """Take rows of a model, in order; some of them may come more than once."""
        numbers, weights = once(numbers, weights)
        rows = at.model.taken(numbers, at)
        assert rows.known is not None
        X, intercept = rows.X.astype(np.float64, copy=False), at.model.fit_intercept
        return cls(numbers, X, intercept, rows.shares, rows.y, *rows.known, weights)

    def moves(self, direction: Vector) -> Vector:
        """Return <a_k, direction>."""
        moves: Vector = self.X @ direction[: self.X.shape[1]]
        return moves + direction[-1] if self.intercept else moves

    def combination(self, factors: Vector) -> Vector:
        """Return sum_k factors_k a_k."""
        total: Vector = self.X.T @ factors
        return np.append(total, factors.sum()) if self.intercept else total


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

    def local(self, at: ModelPoint) -> LocalRows | None:
        """Return the rows that have weight with what a point knows of them; None if none has."""
        assert self.weights is not None
        numbers, weights = self.numbers, self.weights
        if numbers is None:
            numbers = np.flatnonzero(weights)
            weights = weights[numbers]
        return LocalRows.of(at, numbers, weights) if numbers.size else None
