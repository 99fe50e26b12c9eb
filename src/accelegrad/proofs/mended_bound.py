"""A lower bound of the minimum from a dual point that is mended on some of the rows.

The slopes theta at a point are a dual point, and the gap that it proves is ||g||^2 / (2 l2), g
being the gradient. Where the second derivatives C of the objective are much larger than l2, that is
hundreds of times the true gap, about <g, C^-1 g> / 2. Newton's step on the dual removes the
difference: with u = -(C + l2)^-1 g, the slopes theta_i + l''_i <a_i, u> leave the residual -l2 u in
place of g. It need not be done on all rows. On a sample whose second derivatives, weighted, stand
for those of all, slopes have to move farther, and what that costs is about
(rows / sample) <g, C^-1 g> / 2: a gap of the same order as the error, for some products with the
sample alone.

The bound is that of the slopes as they are in the end, within the conjugates' domain: it holds
whatever the sample and the accuracy of u are.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from accelegrad.errors import Vector
from accelegrad.models.linear_model import ModelPoint
from accelegrad.models.row_sum import LocalRows
from accelegrad.rounding import growth
from accelegrad.rules.base import inner

# Chosen, not measured.
#: Products with the sample at most to find u, and the share of the goal at which a residual of u is
#: negligible
MOST_PRODUCTS, NEGLIGIBLE_RESIDUAL = 5, 0.02
#: The most rounds. There is another one while the residual's square is above `ENOUGH_RESIDUAL`
#: times the goal, and each round brings it below `PROGRESS` times the one before.
MOST_ROUNDS, ENOUGH_RESIDUAL, PROGRESS = 4, 0.3, 0.5


class Preconditioner(Protocol):
    """An approximation of the second derivatives, whose inverse can be applied."""

    def solve(self, vector: Vector) -> Vector:
        """Return the inverse times a vector."""


def mended_bound(
    known: ModelPoint,
    at: ModelPoint,
    sample: LocalRows,
    curvature: Preconditioner,
    goal: float,
) -> float:
    """Return the bound of the slopes, mended on a sample; minus infinity if there is none.

    Parameters
    ----------
    known : ModelPoint
        What the model whose minimum is bounded knows at w.
    at : ModelPoint
        What a smooth model knows there: the same, or one that is close to a model with kinks.
    sample : LocalRows
        Rows that stand for all.
    curvature : Preconditioner
        An approximation of the second derivatives.
    goal : float
        The gap that is wanted.
    """
    model = known.model
    slopes, residual = _mended(at, sample, curvature, 2.0 * model.l2 * goal)
    combination = residual - model.l2 * at.w[: model.n_features]
    if not (np.isfinite(slopes).all() and np.isfinite(combination).all()):
        return -math.inf
    slack = growth(0) * model.l2 * np.abs(at.w[: model.n_features])
    return float(model.dual.bound_with_changes(at, sample.numbers, slopes, combination, slack))


def _mended(
    at: ModelPoint, sample: LocalRows, curvature: Preconditioner, goal: float
) -> tuple[Vector, Vector]:
    """Return slopes of the sample's rows, and the residual with them, whose square is to be small.

    Slopes that would leave the domain stay at its end; in the next round other slopes make up for
    it.
    """
    low, high = at.model.loss.domain(sample.y)
    d, l2 = at.model.n_features, at.model.l2
    slopes, step, missing, square = sample.slopes, np.zeros_like(at.gradient), at.gradient, math.inf
    for _ in range(MOST_ROUNDS):
        further, moves = _solved(sample, missing, curvature, l2, NEGLIGIBLE_RESIDUAL * goal)
        slopes = np.clip(slopes + sample.weights / sample.shares * moves, low, high)
        if sample.intercept:
            slopes = _balanced(slopes, sample, float(at.gradient[-1]))
        residual = at.gradient + sample.combination(sample.shares * (slopes - sample.slopes))
        step = step + further
        missing = residual.copy()
        missing[:d] += l2 * step[:d]  # where u is right this is 0, though the residual is not
        before, square = square, inner(missing, missing)
        if not ENOUGH_RESIDUAL * goal < square < PROGRESS * before:
            break
    return slopes, residual[:d]


def _solved(
    sample: LocalRows, gradient: Vector, curvature: Preconditioner, l2: float, enough: float
) -> tuple[Vector, Vector]:
    """Return u with about (sum_k weights_k a_k a_k' + l2) u = -gradient, and <a_k, u>.

    By conjugate gradients, until the residual's square is small enough.
    """
    solution, moves = np.zeros_like(gradient), np.zeros_like(sample.weights)
    residual = -gradient
    direction = preconditioned = curvature.solve(residual)
    size = inner(residual, preconditioned)
    for _ in range(MOST_PRODUCTS):
        if not size > 0.0:
            break
        along = sample.moves(direction)
        product = sample.combination(sample.weights * along)
        product[: sample.X.shape[1]] += l2 * direction[: sample.X.shape[1]]
        step = size / inner(direction, product)
        solution, moves = solution + step * direction, moves + step * along
        residual = residual - step * product
        if not inner(residual, residual) > enough:
            break
        preconditioned = curvature.solve(residual)
        before, size = size, inner(residual, preconditioned)
        direction = preconditioned + size / before * direction
    return solution, moves


def _balanced(slopes: Vector, sample: LocalRows, total: float) -> Vector:
    """Return slopes of these rows with which those of all rows, weighted, have the sum 0.

    An intercept demands it. `total` is the sum before these rows' slopes were changed. Those on the
    side that is heavier are scaled down, which keeps them in the domain; not a number if they are
    too few.
    """
    total += float(sample.shares @ (slopes - sample.slopes))
    if total == 0.0:
        return slopes
    heavier = slopes * total > 0.0
    weight = abs(float(sample.shares[heavier] @ slopes[heavier]))
    if not weight > abs(total):
        return np.full_like(slopes, math.nan)
    return np.where(heavier, (1.0 - abs(total) / weight) * slopes, slopes)
