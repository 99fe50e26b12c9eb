r"""Objective and certified gap of a linear model from one pass over a stream.

For slopes theta in the domain of the conjugates, with sum_i p_i theta_i = 0 where there is an
intercept, the minimum is at least -sum_i p_i l*(theta_i) - ||sum_i p_i theta_i a_i||^2 / (2 l2).
Both sums can be had chunk by chunk. So that the slopes at the coefficients can be balanced when all
are known, those above and below 0 have sums of their own: l*(c theta) <= c l*(theta) for
0 <= c <= 1, by convexity and l*(0) = 0, so the sums are scaled in place of the slopes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from accelegrad.errors import Vector
from accelegrad.problems.linear_model import LinearModel
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
        """Add a chunk, of which rows without weight are left out."""
        estimator = self._estimator
        data = estimator._prepared(estimator._checked_data(X, y, sample_weight, reset=False))
        if not data.y.size:
            return
        problems = estimator._problems(estimator._objective(), data)
        points = estimator._starts(problems, warm=True)
        self._sums = self._sums or [_Sums(point) for point in points]
        for sums, problem in zip(self._sums, problems, strict=True):
            sums.add(problem, data.weight)

    @property
    def objective(self) -> float:
        """The objective over all rows; the sum of all problems, where there is one a class."""
        return sum(sums.objective() for sums in self._sums)

    @property
    def gap(self) -> float:
        """How far above its minimum the objective may be: inf where that is not known.

        It is known for the l2 penalty without constraints, but not for multinomial problems.
        """
        return sum(sums.gap() for sums in self._sums)


class _Sums:
    """The sums of one problem."""

    def __init__(self, point: Vector) -> None:
        self._point = point
        self._weight = self._loss = 0.0
        # Of the slopes above 0 and of those below.
        self._conjugates = [0.0, 0.0]
        self._combinations = [np.zeros_like(point), np.zeros_like(point)]

    def add(self, problem: Problem, weight: float) -> None:
        self._problem = problem
        model, x = problem.model, self._point
        self._weight += weight
        if not isinstance(model, LinearModel):
            value, _ = model.value_and_gradient(x)
            self._loss += weight * (value - 0.5 * float(x @ problem.l2_slope(x)))
            return
        seen = model.evaluate(x)
        self._loss += weight * seen.mean_loss
        for side, bound in enumerate((np.maximum, np.minimum)):
            theta = bound(seen.derivatives, 0.0)
            conjugate = float(model.shares @ model.loss.conjugate(theta, model.y))
            self._conjugates[side] += weight * conjugate
            self._combinations[side] = self._combinations[side] + weight * model.combination(theta)

    def objective(self) -> float:
        problem, x = self._problem, self._point
        l1 = problem.l1 * float(np.abs(x[: problem.n_weights]).sum())
        return self._loss / self._weight + 0.5 * float(x @ problem.l2_slope(x)) + l1

    def gap(self) -> float:
        problem = self._problem
        l2 = problem.model.l2
        if not (isinstance(problem.model, LinearModel) and problem.is_free and l2 > 0.0):
            return np.inf
        above, below = self._balancing()
        conjugate = above * self._conjugates[0] + below * self._conjugates[1]
        combination = above * self._combinations[0] + below * self._combinations[1]
        v = combination[: problem.n_weights] / self._weight
        # The bound at c theta is a parabola in c.
        slope, curvature = -conjugate / self._weight, float(v @ v) / l2
        c = min(1.0, max(0.0, slope) / curvature) if curvature > 0.0 else float(slope > 0.0)
        return max(self.objective() - c * (slope - 0.5 * c * curvature), 0.0)

    def _balancing(self) -> tuple[float, float]:
        """Return what to scale the slopes above and below 0 by, so that they sum to 0."""
        if not self._problem.model.fit_intercept:  # type: ignore[union-attr]
            return 1.0, 1.0
        above, below = self._combinations[0][-1], -self._combinations[1][-1]
        least = min(above, below)
        return tuple(least / side if side > 0.0 else 0.0 for side in (above, below))  # type: ignore[return-value]
