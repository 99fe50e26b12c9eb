r"""Objective and certified gap of a linear model from one pass over a stream.

For slopes theta in the domain of the conjugates, with sum_i p_i theta_i = 0 where there is an
intercept, the minimum is at least -sum_i p_i l*(theta_i) - ||sum_i p_i theta_i a_i||^2 / (2 l2).
Both sums can be had chunk by chunk. So that the slopes at the coefficients can be balanced when all
are known, those above and below 0 have sums of their own: l*(c theta) <= c l*(theta) for
0 <= c <= 1, by convexity and l*(0) = 0, so the sums are scaled in place of the slopes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from accelegrad.errors import Vector
from accelegrad.problems.linear_model import LinearModel
from accelegrad.problems.squares import norm
from accelegrad.proofs.rounding import (
    Labels,
    growth,
    intercept_reach,
    level,
    pairwise_growth,
    scaled_bound,
)
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


class _Side:
    """The sums of the slopes on one side of 0, each chunk times its weight."""

    def __init__(self, n_parameters: int, n_features: int) -> None:
        self.level = self.error = self.size = 0.0
        self.combination, self.off = np.zeros(n_parameters), np.zeros(n_features)

    def add(self, model: LinearModel, theta: Vector, weight: float) -> None:
        height, error = level(model.loss, model.shares, theta, model.y)
        self.level += weight * height
        self.error += weight * error
        self.size += weight * float(np.sum(model.shares * np.abs(theta)))
        steep = norm(np.sqrt(model.shares) * theta)
        self.combination = self.combination + weight * model.combination(theta)
        self.off = self.off + weight * model.rounding.combination(steep)


class _Sums:
    """The sums of one problem."""

    def __init__(self, point: Vector) -> None:
        self._point = point
        self._weight = self._loss = 0.0
        self._count = 0
        # For how large an intercept can be: squared norms of data and targets, the labels' shares.
        self._squares = np.zeros(2)
        self._labels = np.zeros(2)
        self._sides: tuple[_Side, ...] = ()  # the slopes above 0, and those below

    def add(self, problem: Problem, weight: float) -> None:
        self._problem = problem
        model, x = problem.model, self._point
        self._weight += weight
        self._count += 1
        if not isinstance(model, LinearModel):
            value, _ = model.value_and_gradient(x)
            self._loss += weight * (value - 0.5 * float(x @ problem.l2_slope(x)))
            return
        seen = model.evaluate(x)
        self._loss += weight * seen.mean_loss
        targets = norm(np.sqrt(model.shares) * model.y)
        self._squares += weight * np.square([model.rounding.size, targets])
        above = model.y > 0.0
        self._labels += weight * np.array([model.shares @ above, model.shares @ ~above])
        if not self._sides:
            self._sides = tuple(_Side(x.size, model.n_features) for _ in range(2))
        for side, part in zip(self._sides, (np.maximum, np.minimum), strict=True):
            side.add(model, part(seen.derivatives, 0.0), weight)

    def objective(self) -> float:
        problem, x = self._problem, self._point
        l1 = problem.l1 * float(np.abs(x[: problem.n_weights]).sum())
        return self._loss / self._weight + 0.5 * float(x @ problem.l2_slope(x)) + l1

    def gap(self) -> float:
        model = self._problem.model
        if not (isinstance(model, LinearModel) and self._problem.is_free and model.l2 > 0.0):
            return np.inf
        return max(self.objective() - self._bound(model), 0.0)

    def _bound(self, model: LinearModel) -> float:
        """Return the dual value, less what rounding can have added."""
        factors, d = self._balancing(), model.n_features
        scaled = list(zip(factors, self._sides, strict=True))
        # Each sum is rounded as often as there were chunks.
        rounding = growth(2 * self._count)
        height = sum(c * side.level for c, side in scaled)
        height -= sum(c * (side.error + rounding * abs(side.level)) for c, side in scaled)
        height /= self._weight
        if model.fit_intercept:
            off = pairwise_growth(model.n_samples) + rounding
            mean = off * sum(c * side.size for c, side in scaled) / self._weight
            height -= mean * self._intercept_reach(model) if mean > 0.0 else 0.0
        total = sum(c * side.combination[:d] for c, side in scaled)
        sizes = sum(c * (side.off + rounding * np.abs(side.combination[:d])) for c, side in scaled)
        length = norm(np.abs(total) + sizes) * (1.0 + growth(d)) / self._weight
        return scaled_bound(height, length, model.l2)

    def _intercept_reach(self, model: LinearModel) -> float:
        value = self.objective()
        size, targets = np.sqrt(self._squares / self._weight)
        least = float(self._labels.min()) / self._weight
        labels = Labels(least if model.loss.classification else 1.0, float(targets))
        farthest = math.sqrt(2.0 * value / model.l2)
        return intercept_reach(model.loss, labels, value, float(size), farthest)

    def _balancing(self) -> tuple[float, float]:
        """Return what to scale the slopes above and below 0 by, so that they sum to 0."""
        if not self._problem.model.fit_intercept:  # type: ignore[union-attr]
            return 1.0, 1.0
        above, below = self._sides[0].combination[-1], -self._sides[1].combination[-1]
        least = min(above, below)
        return tuple(least / side if side > 0.0 else 0.0 for side in (above, below))  # type: ignore[return-value]
