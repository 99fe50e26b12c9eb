"""AcceleGrad's steps without a diameter, on many tensors."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from accelegrad.rules.arrays import larger
from accelegrad.rules.distance_free import REACH, STEP, TRUST
from accelegrad.rules.schedules import adaptive_step, importance_weight
from accelegrad.torch.coupled import MIRROR, couple, gradient_square
from accelegrad.torch.optimizer import AVERAGE, Method, Numbers, is_finite, learning_rate, read
from accelegrad.torch.radius import START, first_radius
from accelegrad.torch.tensors import Bucket, totals

TOTAL = "gradient_sum"  # S


def _evidence(bucket: Bucket) -> Tensor:
    return bucket.dot(bucket.gradient, bucket.each.minus(bucket.state[START], bucket.x))


def _travelled(bucket: Bucket) -> Tensor:
    return bucket.square(bucket.each.minus(bucket.state[MIRROR], bucket.state[START]))


def _total_square(bucket: Bucket) -> Tensor:
    return bucket.square(bucket.state[TOTAL])


class DistanceFree(Method):
    """One radius for all coordinates, that grows: the twin of `rules.DistanceFreeAcceleGrad`."""

    points: ClassVar[tuple[str, ...]] = (AVERAGE, MIRROR, START)
    sums: ClassVar[tuple[str, ...]] = (TOTAL,)
    start: ClassVar[Numbers] = {
        "iteration": 0.0,
        "weighted_squares": 0.0,
        "weight_sum": 0.0,
        "radius": 0.0,
        "evidence": 0.0,
    }

    def update(self, buckets: list[Bucket], numbers: Numbers, ranks: Any) -> Numbers | None:
        """Return the numbers after a step."""
        t, alpha = numbers["iteration"], importance_weight(numbers["iteration"])
        square, evidence = read(totals(buckets, gradient_square, _evidence, ranks=ranks), numbers)
        if not is_finite(square):
            return None
        r = first_radius(buckets, numbers, ranks)
        squares = numbers["weighted_squares"] + alpha * alpha * square
        evidence = numbers["evidence"] + alpha * r * r * evidence
        weight_sum = numbers["weight_sum"] + alpha * r
        for bucket in buckets:
            each, state = bucket.each, bucket.state
            eta = adaptive_step(STEP * r, squares)
            eta = bucket.step_size = learning_rate(bucket.group) * eta
            state[MIRROR] = each.add(state[MIRROR], bucket.gradient, -alpha * eta)
            bucket.x = each.add(bucket.x, bucket.gradient, -eta)
            state[TOTAL] = each.add(state[TOTAL], bucket.gradient, alpha * r * r)
        reached, total = read(totals(buckets, _travelled, _total_square, ranks=ranks), numbers)
        reach = REACH * r
        excess = (reached > reach * reach) * (1 - adaptive_step(reach, reached))
        for bucket in buckets:
            state = bucket.state
            state[MIRROR] = bucket.each.toward(state[MIRROR], state[START], excess)
            couple(bucket, t, alpha * r / weight_sum)
        return {
            "iteration": t + 1,
            "weighted_squares": squares,
            "weight_sum": weight_sum,
            "radius": larger(r, TRUST * adaptive_step(evidence, total)),
            "evidence": evidence,
        }
