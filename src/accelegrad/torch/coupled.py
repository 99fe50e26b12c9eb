"""AcceleGrad's steps with a given diameter, on many tensors: twins of the core's rules.

Parameters hold x; a step turns them into y and then into the next x, so that y needs no tensor.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from accelegrad.rules.schedules import accelegrad_step, adaptive_step, importance_weight
from accelegrad.torch.optimizer import AVERAGE, Method, Numbers, is_usable, learning_rate, read
from accelegrad.torch.radius import START
from accelegrad.torch.sets import is_ball, near, projected
from accelegrad.torch.tensors import Bucket, Number, Several, Tensors, totals

MIRROR = "mirror_point"  # z
SQUARES = "squares"  # Q, the sums of squared gradients, where steps differ by coordinate


def gradient_square(bucket: Bucket) -> Tensor:
    """Return the squared norm of the gradients."""
    return bucket.square(bucket.gradient)


def couple(bucket: Bucket, t: Number, share: Number) -> None:
    """Take y, which x holds, into the average with a share, and move x to the next query point."""
    each, state = bucket.each, bucket.state
    state[AVERAGE] = each.toward(state[AVERAGE], bucket.x, share)
    bucket.x = each.toward(bucket.x, state[MIRROR], 1 / importance_weight(t + 1))


class Coupled(Method):
    """One step size for all coordinates: the twin of `rules.AcceleGrad`."""

    points: ClassVar[tuple[str, ...]] = (AVERAGE, MIRROR)
    start: ClassVar[Numbers] = {"iteration": 0.0, "weighted_squares": 0.0, "weight_sum": 0.0}
    squares: ClassVar[tuple[str, ...]] = ("weighted_squares",)

    def update(self, buckets: list[Bucket], numbers: Numbers, ranks: Any) -> Numbers | None:
        """Return the numbers after a step."""
        t = numbers["iteration"]
        alpha = importance_weight(t)
        (square,) = read(totals(buckets, gradient_square, ranks=ranks), numbers)
        if not is_usable(square):
            return None
        squares = numbers["weighted_squares"] + alpha * alpha * square
        weight_sum = numbers["weight_sum"] + alpha
        for bucket in buckets:
            self._move(bucket, alpha, squares)
        self._hold(buckets, numbers, ranks)
        for bucket in buckets:
            couple(bucket, t, alpha / weight_sum)
        return {"iteration": t + 1, "weighted_squares": squares, "weight_sum": weight_sum}

    def _move(self, bucket: Bucket, alpha: Number, squares: Number) -> None:
        """Move z, and x to y."""
        group, each, state = bucket.group, bucket.each, bucket.state
        eta = accelegrad_step(bucket.diameter, group["gradient_bound"] / bucket.unit, squares)
        eta = bucket.step_size = learning_rate(group) * eta
        z = each.add(state[MIRROR], bucket.gradient, -alpha * eta)
        y = each.add(bucket.x, bucket.gradient, -eta)
        state[MIRROR] = projected(bucket, near(bucket, z, [alpha * eta] * len(z)))
        bucket.x = projected(bucket, near(bucket, y, [eta] * len(y)))

    def _hold(self, buckets: list[Bucket], numbers: Numbers, ranks: Any) -> None:
        """Keep z where it has to stay."""


class CoupledInBall(Coupled):
    """The same, with z kept in a ball around the start, in the groups that want that."""

    points: ClassVar[tuple[str, ...]] = (AVERAGE, MIRROR, START)

    def _hold(self, buckets: list[Bucket], numbers: Numbers, ranks: Any) -> None:
        held = [bucket for bucket in buckets if is_ball(bucket.group["projection"])]
        (square,) = read(totals(held, _travelled, ranks=ranks), numbers)
        for bucket in held:
            reach = bucket.diameter / 2
            excess = (square > reach * reach) * (1 - adaptive_step(reach, square))
            state = bucket.state
            state[MIRROR] = bucket.each.toward(state[MIRROR], state[START], excess)


class DiagonalCoupled(Coupled):
    """A step size per coordinate: the twin of `rules.DiagonalAcceleGrad`."""

    sums: ClassVar[tuple[str, ...]] = (SQUARES,)
    per_coordinate: ClassVar[bool] = True

    def _move(self, bucket: Bucket, alpha: Number, squares: Number) -> None:  # noqa: ARG002
        group, each, state = bucket.group, bucket.each, bucket.state
        state[SQUARES] = each.add_squares(state[SQUARES], bucket.gradient, alpha * alpha)
        direction = each.ratios(bucket.gradient, _metric(bucket))
        reach = bucket.step_size = 2 * learning_rate(group) * bucket.diameter
        z = each.add(state[MIRROR], direction, -alpha * reach)
        y = each.add(bucket.x, direction, -reach)
        if group["penalty"] is not None:
            steps = [reach / metric for metric in _metric(bucket)]
            z, y = near(bucket, z, [alpha * step for step in steps]), near(bucket, y, steps)
        state[MIRROR], bucket.x = projected(bucket, z), projected(bucket, y)

    def mean_factor(self, buckets: list[Bucket], ranks: Any) -> float:
        """Return <g, g/H> / <g, g>."""
        for bucket in buckets:
            bucket.metric = _metric(bucket)
        return mean_inverse(buckets, ranks)


def _metric(bucket: Bucket) -> Tensors:
    """Return H, the roots of G^2 and the sums of squares."""
    squares = bucket.state[SQUARES]
    if bucket.group["gradient_bound"]:
        bound = bucket.group["gradient_bound"] / bucket.unit
        squares = [square + bound * bound for square in squares]
    return bucket.each.roots(squares)


def _travelled(bucket: Bucket) -> Tensor:
    return bucket.sums_of(
        lambda a, z: [(d := a - z).dot(d)], bucket.state[START], bucket.state[MIRROR]
    )


def _slope_and_square(bucket: Bucket) -> Tensor:
    return bucket.sums_of(lambda g, h: [(g / h).dot(g), g.dot(g)], bucket.gradient, bucket.metric)


def mean_inverse(buckets: list[Bucket], ranks: Any) -> float:
    """Return the mean of 1/H over coordinates, weighted by the squared gradients."""
    slope, square = totals(buckets, Several(_slope_and_square, 2), ranks=ranks).tolist()
    return float(slope / square) if square > 0 else 0.0
