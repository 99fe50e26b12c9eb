"""AcceleGrad's and AdaGrad's steps with a given diameter, on many tensors.

Parameters hold x; a step turns them into y and then into the next x, so that y needs no tensor.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from accelegrad.rules.accelegrad import accelegrad_step, importance_weight
from accelegrad.rules.adagrad import adagrad_step
from accelegrad.rules.arrays import adaptive_step
from accelegrad.torch.optimizer import (
    AVERAGE,
    SQUARES,
    Family,
    Method,
    Numbers,
    is_usable,
    learning_rate,
)
from accelegrad.torch.sets import BALL, MIRROR, move, projected
from accelegrad.torch.tensors import Bucket, Number, Tensors, gradient_square

START = "start"  # x_0


class Coupled(Method):
    """One step size for all coordinates: the twin of `rules.AcceleGrad`."""

    points: ClassVar[tuple[str, ...]] = (AVERAGE, MIRROR)
    start: ClassVar[Numbers] = {"iteration": 0.0, "weighted_squares": 0.0, "weight_sum": 0.0}
    squares: ClassVar[tuple[str, ...]] = ("weighted_squares",)

    def update(self, family: Family) -> Numbers | None:
        """Return the numbers after a step."""
        (square,) = family.sums(gradient_square)
        if not is_usable(square):
            return None
        t = family.numbers["iteration"]
        alpha = importance_weight(t)
        squares = family.numbers["weighted_squares"] + alpha * alpha * square
        weight_sum = family.numbers["weight_sum"] + alpha
        for bucket in family.buckets:
            self._move(bucket, alpha, squares)
        self._hold(family)
        for bucket in family.buckets:  # x holds y, which goes into the average
            each, state = bucket.each, bucket.state
            state[AVERAGE] = each.toward(state[AVERAGE], bucket.x, alpha / weight_sum)
            bucket.x = each.toward(bucket.x, state[MIRROR], 1 / importance_weight(t + 1))
        return {"iteration": t + 1, "weighted_squares": squares, "weight_sum": weight_sum}

    def _move(self, bucket: Bucket, alpha: Number, squares: Number) -> None:
        group = bucket.group
        eta = accelegrad_step(bucket.diameter, group["gradient_bound"] / bucket.unit, squares)
        bucket.reach = bucket.step_size = learning_rate(group) * eta
        bucket.direction, bucket.inverse = bucket.gradient, [1.0] * len(bucket.x)
        move(bucket, alpha)

    def _hold(self, family: Family) -> None:
        """Keep z in its ball; nothing here."""


class CoupledInBall(Coupled):
    """With z kept in a ball around the start, in groups that ask for it."""

    points: ClassVar[tuple[str, ...]] = (AVERAGE, MIRROR, START)

    def _hold(self, family: Family) -> None:
        held = [bucket for bucket in family.buckets if bucket.group["projection"] == BALL]

        def square_of(bucket: Bucket) -> Tensor:
            starts, points = bucket.state[START], bucket.state[MIRROR]
            return bucket.sums_of(lambda a, z: [(d := a - z).dot(d)], starts, points)

        (square,) = family._replace(buckets=held).sums(square_of)
        for bucket in held:
            reach = bucket.diameter / 2
            excess = (square > reach * reach) * (1 - adaptive_step(reach, square))
            state = bucket.state
            state[MIRROR] = bucket.each.toward(state[MIRROR], state[START], excess)


class DiagonalCoupled(Coupled):
    """A step size per coordinate: the twin of `rules.DiagonalAcceleGrad`."""

    sums: ClassVar[tuple[str, ...]] = (SQUARES,)

    def _move(self, bucket: Bucket, alpha: Number, squares: Number) -> None:  # noqa: ARG002
        group, each, state = bucket.group, bucket.each, bucket.state
        state[SQUARES] = each.add_squares(state[SQUARES], bucket.gradient, alpha * alpha)
        metric = self.metric(bucket)
        bucket.direction = list(torch._foreach_div(bucket.gradient, metric))
        bucket.reach = bucket.step_size = 2 * learning_rate(group) * bucket.diameter
        if group["penalty"] is not None:
            bucket.inverse = [1 / root for root in metric]
        move(bucket, alpha)

    def metric(self, bucket: Bucket) -> Tensors:
        """Return H, the roots of G^2 and the sums of squares."""
        squares = bucket.state[SQUARES]
        if bucket.group["gradient_bound"]:
            bound = bucket.group["gradient_bound"] / bucket.unit
            squares = [square + bound * bound for square in squares]
        return list(torch._foreach_sqrt(squares))


class Descent(Method):
    """AdaGrad with one step size for all coordinates: the twin of `rules.AdaGrad`."""

    points: ClassVar[tuple[str, ...]] = (AVERAGE,)
    start: ClassVar[Numbers] = {"iteration": 0.0, "squares": 0.0}
    squares: ClassVar[tuple[str, ...]] = ("squares",)

    def update(self, family: Family) -> Numbers | None:
        """Return the numbers after a step."""
        (square,) = family.sums(gradient_square)
        if not is_usable(square):
            return None
        following = family.numbers["iteration"] + 1
        squares = family.numbers["squares"] + square
        for bucket in family.buckets:
            each, state = bucket.each, bucket.state
            eta = learning_rate(bucket.group) * adagrad_step(bucket.diameter, squares)
            bucket.step_size = eta
            state[AVERAGE] = each.toward(state[AVERAGE], bucket.x, 1 / following)
            bucket.x = projected(bucket, each.add(bucket.x, bucket.gradient, -eta))
        return {"iteration": following, "squares": squares}
