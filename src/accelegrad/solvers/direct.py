"""Proximal Newton steps with all rows and columns, for small sums, without the overhead of a run.

A step goes from w to the minimum of the second-order model around it. The slopes predicted there
(`ModelPoint.slopes_at`) satisfy its optimality conditions, so they prove a gap an order smaller
than the slopes at the point. Least squares take one step, and one Gram matrix serves all terms.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from accelegrad.errors import NonFiniteError, Vector
from accelegrad.models.linear_model import LinearModel, ModelPoint
from accelegrad.proofs.fenchel import ColumnSums, Reach, Terms
from accelegrad.proofs.model_dual import ModelDual
from accelegrad.run.oracle import QUIET
from accelegrad.solvers.curvature import (
    FEW_COLUMNS,
    Costs,
    falls_enough,
    least_squares_matrix,
    minimum_of_columns,
    next_caution,
    second_derivative_matrix,
    shorter_share,
)
from accelegrad.solvers.row_oracle import PROMISING, Goal, soon_ready

#: Limit in seconds, by the estimates of `Costs`, for a matrix of second derivatives and its factors
#: (20 shapes: 0.2 to 0.9 of the time of a run, with twice as much up to 1.8).
MOST_STEP_SECONDS = 2.5e-3
#: A value by products of columns counts if its relative error is at most this; chosen.
ACCURATE = 1e-9


class DirectMinimum(NamedTuple):
    """A minimum, and the lower bound that proves it good enough."""

    point: Vector
    value: float
    bound: float
    steps: int
    slopes: Vector | None = None  # that prove the bound; None: those of least squares at the point


class DirectNewton:
    """Minima of a small smooth sum over rows for one set of terms after another."""

    def __init__(self, model: LinearModel) -> None:
        self._is_least_squares = model.loss.name == "squared"
        # One Gram matrix does not pay for compiling; one per step does.
        self._rows = soon_ready(model) if self._is_least_squares else model
        self._first_reach: Reach | None = None

    @staticmethod
    def serves(model: LinearModel, terms: Terms) -> bool:
        """Return whether these steps are the fastest way to the minimum."""
        if not terms.hold_each_weight(model.loss) or not model.in_memory:
            return False
        if model.loss.name == "squared":  # one step, whatever it costs
            return model.n_features <= FEW_COLUMNS
        costs = Costs.of(model)
        seconds = model.n_samples * costs.row + costs.factor
        return model.loss.curvature < math.inf and seconds <= MOST_STEP_SECONDS

    def minimum(
        self, terms: Terms, start: Vector, goal: Goal, most_steps: int = 100
    ) -> DirectMinimum | None:
        """Return a minimum that is proved good enough; None if these steps find none."""
        with np.errstate(**QUIET):
            found = self._by_products(terms, start, goal) if self._is_least_squares else None
            return found or self._by_rows(terms, start, goal, most_steps)

    @cached_property
    def _sums(self) -> ColumnSums:
        return ColumnSums(self._rows)

    def _by_products(self, terms: Terms, start: Vector, goal: Goal) -> DirectMinimum | None:
        """Return a minimum proved by products of columns; None if that is not enough."""
        if not (terms.gets_tight and terms.holds_origin and terms.intercept_is_free):
            return None
        matrix = least_squares_matrix(self._rows, terms.l2)
        slopes = self._sums.slopes_at_zero + matrix @ start
        point = minimum_of_columns(terms, None, matrix, slopes, start).point
        known = self._sums.at(point)
        value = known.mean_loss + terms.penalty_value(point[: terms.n_features])
        if not known.error <= ACCURATE * value < math.inf:  # also if something has overflowed
            return None
        # The value may be too low by its error, which the gap has to cover.
        bound = terms.lower_bound(known.slopes, lambda: self._reach(terms)) - known.error
        return DirectMinimum(point, value, bound, 1) if value - bound <= goal(value) else None

    def _reach(self, terms: Terms) -> Reach:
        if self._first_reach is None:
            self._first_reach = ModelDual(self._rows, terms).reach()
        return replace(self._first_reach, terms=terms)

    def _by_rows(
        self, terms: Terms, start: Vector, goal: Goal, most_steps: int
    ) -> DirectMinimum | None:
        model, d = self._rows, terms.n_features
        if model.l2 != terms.l2:
            model = model.with_l2(terms.l2)
        dual = ModelDual(model, terms)

        def value_at(point: ModelPoint) -> float:
            l1 = float(np.sum(terms.l1 * np.abs(point.w[:d]))) if terms.has_l1 else 0.0
            return point.value + l1

        def value_between(start: ModelPoint, end: ModelPoint, share: float) -> float:
            return value_at(model.between(start, end, share))

        at, caution, bound = ModelPoint(model, start), 1.0, 0.0
        value = value_at(at)
        for number in range(1, most_steps + 1):
            try:
                if self._is_least_squares:
                    matrix = least_squares_matrix(self._rows, terms.l2)
                else:
                    rows = model.sampled(model.n_samples, 0, at, caution)
                    matrix = second_derivative_matrix(model, rows)
                aim = minimum_of_columns(terms, None, matrix, at.gradient, at.w)
            except NonFiniteError:
                return None
            whole = ModelPoint(model, aim.point)
            lower, share = value_at(whole), 1.0
            wanted = goal(lower)
            if self._is_least_squares or aim.fall <= PROMISING * wanted:
                bound = max(bound, dual.at_slopes(at.slopes_at(whole, caution)))
                if lower - bound <= wanted:
                    return DirectMinimum(whole.w, lower, bound, number, dual.proof.slopes)
            if self._is_least_squares and not lower < value:
                return None  # this is the minimum up to rounding, and it is not proved
            if falls_enough(value, lower, aim.fall, 1.0):
                at, value = whole, lower
            else:
                share = shorter_share(partial(value_between, at, whole), value, aim.fall)
                if share == 0.0:
                    return None
                at = ModelPoint(model, at.w + share * (whole.w - at.w))
                value = value_at(at)
                if value - bound <= goal(value):
                    return DirectMinimum(at.w, value, bound, number, dual.proof.slopes)
            caution = next_caution(caution, share)
        return None
