"""Objective and certified gap of a linear model from one pass over a stream.

The sums that the Fenchel bound needs can be had chunk by chunk: see `accelegrad.proofs.fenchel`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from accelegrad.errors import Vector
from accelegrad.problems.linear_model import LinearModel
from accelegrad.proofs.fenchel import DualSums
from accelegrad.run.oracle import QUIET
from accelegrad.sklearn.objective import Problem


class StreamCertificate:
    """Sums over the chunks that were added.

    Parameters
    ----------
    estimator : AcceleGradClassifier or AcceleGradRegressor
        A fitted one, which has to stay as it is.
    """

    def __init__(self, estimator: Any) -> None:
        self._estimator = estimator
        self._sums: list[_Sums] = []

    def add(self, X: Any, y: Any, sample_weight: Any = None) -> None:
        """Add a chunk, without the rows that have no weight."""
        estimator = self._estimator
        data = estimator._prepared(estimator._checked_data(X, y, sample_weight, reset=False))
        if not data.y.size:
            return
        objective = estimator._in_units(estimator._objective())
        problems = estimator._problems(objective, data)
        points = estimator._starts(problems, warm=True)
        self._sums = self._sums or [_Sums(point) for point in points]
        with np.errstate(**QUIET):
            for sums, problem in zip(self._sums, problems, strict=True):
                sums.add(problem, data.weight)

    @property
    def objective(self) -> float:
        """The objective over all rows; the sum of all problems, where each class has one."""
        return sum(sums.objective() for sums in self._sums)

    @property
    def gap(self) -> float:
        """How far above its minimum the objective may be: inf where that is not known.

        It is known for one set of coefficients with a penalty or in a bounded set, but not for
        multinomial problems.
        """
        return sum(sums.gap() for sums in self._sums)


class _Sums:
    """The sums of one problem."""

    def __init__(self, point: Vector) -> None:
        self._point = point
        self._weight = self._loss = 0.0
        self._dual: DualSums | None = None

    def add(self, problem: Problem, weight: float) -> None:
        self._problem = problem
        model, x = problem.model, self._point
        self._weight += weight
        if not isinstance(model, LinearModel):
            value, _ = model.value_and_gradient(x)
            self._loss += weight * (value - 0.5 * float(x @ problem.l2_slope(x)))
            return
        seen = model.at(x)
        sums = DualSums.of(model, seen.derivatives, mean_loss=seen.mean_loss, weight=weight)
        self._dual = sums if self._dual is None else self._dual + sums

    def objective(self) -> float:
        problem, x = self._problem, self._point
        loss = self._loss if self._dual is None else self._dual.loss
        return loss / self._weight + 0.5 * float(x @ problem.l2_slope(x)) + problem.l1_value(x)

    def gap(self) -> float:
        terms, model = self._problem.terms, self._problem.model
        if terms is None or not terms.gets_tight or not isinstance(model, LinearModel):
            return np.inf
        assert self._dual is not None
        value = self.objective()
        return max(value - self._dual.lower_bound(terms, model.loss, value), 0.0)
