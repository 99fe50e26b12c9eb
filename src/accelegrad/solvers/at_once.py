"""Least squares with few columns: products of columns say all, so that no run is needed."""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple

import numpy as np

from accelegrad.errors import Vector
from accelegrad.models.linear_model import LinearModel
from accelegrad.proofs.column_sums import ColumnSums
from accelegrad.proofs.fenchel import Reach, Terms
from accelegrad.proofs.model_dual import ModelDual
from accelegrad.run.oracle import QUIET
from accelegrad.solvers.proximal_newton import (
    FEW_COLUMNS,
    best_bound,
    limits_of,
    minimum_of_columns,
    soon_ready,
)
from accelegrad.solvers.row_oracle import Goal

#: A value by products of columns counts if it is off by at most this share of it.
ACCURATE = 1e-9


class Found(NamedTuple):
    """A minimum, and a lower bound of it."""

    point: Vector
    value: float
    bound: float


class AtOnce:
    """Minima of least squares with few columns, by one set of terms after the other.

    Each is the first step of `accelegrad.solvers.proximal_newton`, whose model is exact for least
    squares. Products of columns are found once, and then a minimum takes no pass over the rows; nor
    does its proof, unless rounding would take too much of it.

    Parameters
    ----------
    model : LinearModel
        Rows, targets and weights; its l2 term does not count.
    """

    def __init__(self, model: LinearModel) -> None:
        self._rows = soon_ready(model).with_l2(0.0)
        self._first_reach: Reach | None = None

    @staticmethod
    def serves(model: LinearModel, terms: Terms) -> bool:
        """Tell whether one step finds the minimum."""
        exact = model.loss.name == "squared" and model.n_features <= FEW_COLUMNS
        return exact and terms.hold_each_weight(model.loss) and model.in_memory is not None

    @cached_property
    def _sums(self) -> ColumnSums:
        return ColumnSums(self._rows)

    def minimum(self, terms: Terms, start: Vector, goal: Goal) -> Found | None:
        """Return the minimum with its bound, which rounding may leave short; None if it overflows.

        Parameters
        ----------
        terms : Terms
            What is added, and what the parameters are limited to.
        start : Vector
            A feasible point: the nearer, the sooner the minimum is found.
        goal : callable
            From the value at a point to the gap that is wanted there.
        """
        with np.errstate(**QUIET):
            slopes, matrix = self._sums.slopes_at_zero(), self._rows.gram_of_columns()
            if terms.l2 > 0.0:
                matrix = matrix.copy()
                matrix.flat[: terms.n_features * len(matrix) : len(matrix) + 1] += terms.l2
            given = None, matrix, slopes + matrix @ start, start
            point = minimum_of_columns(terms, limits_of(terms), *given).point
            return self._by_products(terms, point, goal) or self._by_rows(terms, point, goal)

    def _by_products(self, terms: Terms, point: Vector, goal: Goal) -> Found | None:
        """Prove a point by products of columns; None where that does not do."""
        if not (terms.gets_tight and terms.holds_origin and terms.intercept_is_free):
            return None
        known = self._sums.at(point)
        value = known.mean_loss + terms.penalty_value(point[: terms.n_features])
        if not self._sums.are_finite(known) or known.error > ACCURATE * value:
            return None
        # The value may be too low by its error, which the gap has to cover.
        bound = terms.lower_bound(known.slopes, lambda: self._reach(terms)) - known.error
        return Found(point, value, bound) if value - bound <= goal(value) else None

    def _reach(self, terms: Terms) -> Reach:
        """Return how large a minimiser can be; w = 0 is allowed, so that its value is a limit."""
        if self._first_reach is None:
            self._first_reach = ModelDual(self._rows, terms).reach()
        first = self._first_reach
        return Reach(terms, first.loss, first.data, first.value)

    def _by_rows(self, terms: Terms, point: Vector, goal: Goal) -> Found | None:
        """Prove a point by two products with the rows."""
        at = self._rows.at(point)
        value = at.mean_loss + terms.penalty_value(point[: terms.n_features])
        if not math.isfinite(value):
            return None
        wanted, dual = goal(value), ModelDual(self._rows, terms)
        bound = best_bound(dual, at, value, wanted, None, settled=True)
        if value - bound > wanted:
            # Without l1 term and limits the minimum is no larger, and where rounding is larger than
            # these it is near.
            plain = self._rows.with_l2(terms.l2)
            bound = max(bound, at.beside(plain).dual_value if plain.has_dual_bound else 0.0)
        return Found(point, value, bound)
