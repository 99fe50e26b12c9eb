"""AcceleGrad's steps with a given diameter, on many tensors: twins of the core's rules.

Parameters hold x; a step turns them into y and then into the next x, so that y needs no tensor.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from accelegrad.rules.schedules import accelegrad_step, importance_weight
from accelegrad.torch.optimizer import AVERAGE, Method, Numbers, is_finite, learning_rate, read
from accelegrad.torch.sets import near, projected
from accelegrad.torch.tensors import Bucket, Number, totals

MIRROR = "mirror_point"  # z


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

    def update(self, buckets: list[Bucket], numbers: Numbers, ranks: Any) -> Numbers | None:
        """Return the numbers after a step."""
        t = numbers["iteration"]
        alpha = importance_weight(t)
        (square,) = read(totals(buckets, gradient_square, ranks=ranks), numbers)
        if not is_finite(square):
            return None
        squares = numbers["weighted_squares"] + alpha * alpha * square
        weight_sum = numbers["weight_sum"] + alpha
        for bucket in buckets:
            group, each, state = bucket.group, bucket.each, bucket.state
            eta = accelegrad_step(group["diameter"], group["gradient_bound"], squares)
            eta = bucket.step_size = learning_rate(group) * eta
            z = each.add(state[MIRROR], bucket.gradient, -alpha * eta)
            y = each.add(bucket.x, bucket.gradient, -eta)
            state[MIRROR] = projected(bucket, near(bucket, z, [alpha * eta] * len(z)))
            bucket.x = projected(bucket, near(bucket, y, [eta] * len(y)))
            couple(bucket, t, alpha / weight_sum)
        return {"iteration": t + 1, "weighted_squares": squares, "weight_sum": weight_sum}
