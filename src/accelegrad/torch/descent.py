"""AdaGrad with one step size, and DoG, on many tensors: twins of the core's rules."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from accelegrad.rules.arrays import larger
from accelegrad.rules.schedules import adagrad_step, adaptive_step
from accelegrad.torch.optimizer import AVERAGE, Method, Numbers, is_usable, learning_rate, read
from accelegrad.torch.radius import START, first_radius
from accelegrad.torch.sets import projected
from accelegrad.torch.tensors import Bucket, Number, totals


def gradient_square(bucket: Bucket) -> Tensor:
    """Return the squared norm of the gradients."""
    return bucket.square(bucket.gradient)


def descend(bucket: Bucket, share: Number, eta: Number) -> None:
    """Take x into the average with a share, and do a step."""
    each, state = bucket.each, bucket.state
    eta = bucket.step_size = learning_rate(bucket.group) * eta
    state[AVERAGE] = each.toward(state[AVERAGE], bucket.x, share)
    bucket.x = projected(bucket, each.add(bucket.x, bucket.gradient, -eta))


class Descent(Method):
    """The twin of `rules.AdaGrad`."""

    points: ClassVar[tuple[str, ...]] = (AVERAGE,)
    start: ClassVar[Numbers] = {"iteration": 0.0, "squares": 0.0}
    squares: ClassVar[tuple[str, ...]] = ("squares",)

    def update(self, buckets: list[Bucket], numbers: Numbers, ranks: Any) -> Numbers | None:
        """Return the numbers after a step."""
        (square,) = read(totals(buckets, gradient_square, ranks=ranks), numbers)
        if not is_usable(square):
            return None
        following, squares = numbers["iteration"] + 1, numbers["squares"] + square
        for bucket in buckets:
            descend(bucket, 1 / following, adagrad_step(bucket.diameter, squares))
        return {"iteration": following, "squares": squares}


class TravelledDescent(Method):
    """The twin of `rules.DoG`."""

    points: ClassVar[tuple[str, ...]] = (AVERAGE, START)
    start: ClassVar[Numbers] = {
        "iteration": 0.0,
        "squares": 0.0,
        "radius": 0.0,
        "weight_sum": 0.0,
    }
    squares: ClassVar[tuple[str, ...]] = ("squares",)

    def update(self, buckets: list[Bucket], numbers: Numbers, ranks: Any) -> Numbers | None:
        """Return the numbers after a step."""
        (square,) = read(totals(buckets, gradient_square, ranks=ranks), numbers)
        if not is_usable(square):
            return None
        r = first_radius(buckets, numbers, ranks)
        squares, weight_sum = numbers["squares"] + square, numbers["weight_sum"] + r
        for bucket in buckets:
            descend(bucket, r / weight_sum, adaptive_step(r, squares))
        (reached,) = read(totals(buckets, travelled, ranks=ranks), numbers)
        return {
            "iteration": numbers["iteration"] + 1,
            "squares": squares,
            "radius": larger(r, reached**0.5),
            "weight_sum": weight_sum,
        }


def travelled(bucket: Bucket) -> Tensor:
    """Return the squared distance of x from the start."""
    return bucket.square(bucket.each.minus(bucket.x, bucket.state[START]))
