"""UniXGrad and U-DoG, with two gradients per step, on many tensors: twins of the core's rules.

Between steps parameters hold z~, where the first gradient is taken; between the two closures x~,
which is the average too. The x_t themselves are made on the way and not kept.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from torch import Tensor

from accelegrad.rules.arrays import either, larger
from accelegrad.rules.dog import travelled_weight
from accelegrad.rules.schedules import adaptive_step
from accelegrad.rules.unixgrad import unixgrad_step
from accelegrad.torch.optimizer import AVERAGE, Method, Numbers, is_finite, learning_rate, read
from accelegrad.torch.radius import START, first_radius
from accelegrad.torch.sets import near, projected
from accelegrad.torch.tensors import Bucket, Number, Tensors, totals

BASE = "base_point"  # y
PREDICTION = "prediction"  # the first gradient of a step, kept until its second one


def _gradient_square(bucket: Bucket) -> Tensor:
    return bucket.square(bucket.gradient)


def _difference(bucket: Bucket) -> Tensor:
    return bucket.square(bucket.each.minus(bucket.gradient, bucket.state[PREDICTION]))


def _base_travelled(bucket: Bucket) -> Tensor:
    return bucket.square(bucket.each.minus(bucket.state[BASE], bucket.state[START]))


def _moved(bucket: Bucket, points: Tensors, step: Number) -> Tensors:
    """Return points after a step along the gradient, prox and projection."""
    points = bucket.each.add(points, bucket.gradient, -step)
    return projected(bucket, near(bucket, points, [step] * len(points)))


def _step(bucket: Bucket, eta: Number) -> Number:
    """Return a step with its group's lr, and keep it for the record."""
    bucket.step_size = learning_rate(bucket.group) * eta
    return bucket.step_size


class TwoPhase(Method):
    """Steps with two gradients."""

    @abstractmethod
    def look_ahead(self, buckets: list[Bucket], numbers: Numbers, ranks: Any) -> Numbers | None:
        """Return the numbers after the first gradient, with x moved to where the second goes."""


class Extragradient(TwoPhase):
    """The twin of `rules.UniXGrad`."""

    points: ClassVar[tuple[str, ...]] = (AVERAGE, BASE)
    start: ClassVar[Numbers] = {
        "iteration": 0.0,
        "weighted_differences": 0.0,
        "weight_sum": 0.0,
    }

    def look_ahead(self, buckets: list[Bucket], numbers: Numbers, ranks: Any) -> Numbers | None:
        """Return the numbers with x_t in the average, and the average in x."""
        (square,) = read(totals(buckets, _gradient_square, ranks=ranks), numbers)
        if not is_finite(square):
            return None
        alpha, total = numbers["iteration"] + 1, numbers["weighted_differences"]
        scale = buckets[0].group["gradient_scale"] if buckets else None
        square = square if scale is None else (scale / buckets[0].unit) ** 2
        total = total + either(numbers["iteration"] == 0, lambda: square, lambda: 0.0)
        weight_sum = numbers["weight_sum"] + alpha
        for bucket in buckets:
            each, state = bucket.each, bucket.state
            eta = _step(bucket, unixgrad_step(bucket.diameter, total))
            x = _moved(bucket, each.copies(state[BASE]), alpha * eta)
            state[AVERAGE] = each.toward(state[AVERAGE], x, alpha / weight_sum)
            bucket.x = each.assign(bucket.x, state[AVERAGE])
        return {**numbers, "weighted_differences": total, "weight_sum": weight_sum}

    def update(self, buckets: list[Bucket], numbers: Numbers, ranks: Any) -> Numbers | None:
        """Return the numbers after the second gradient, and x at the next z~."""
        alpha, total = numbers["iteration"] + 1, numbers["weighted_differences"]
        (square,) = read(totals(buckets, _difference, ranks=ranks), numbers)
        finite = is_finite(square)
        following = alpha + 1
        share = following / (numbers["weight_sum"] + following)
        for bucket in buckets:
            each, state = bucket.each, bucket.state
            eta = _step(bucket, unixgrad_step(bucket.diameter, total))
            if finite:
                state[BASE] = _moved(bucket, state[BASE], alpha * eta)
            bucket.x = each.toward(bucket.x, state[BASE], share)
        total = total + alpha * alpha * (square if finite else 0.0)
        return {**numbers, "iteration": alpha, "weighted_differences": total}


class TravelledExtragradient(TwoPhase):
    """The twin of `rules.UDoG`."""

    points: ClassVar[tuple[str, ...]] = (AVERAGE, BASE, START)
    start: ClassVar[Numbers] = {
        "iteration": 0.0,
        "radius": 0.0,
        "earlier_radii": 0.0,
        "weighted_differences": 0.0,
        "largest_square": 0.0,
        "reached": 0.0,  # the squared distance of x_{t+1} from the start
        "weight_sum": 0.0,
    }

    def look_ahead(self, buckets: list[Bucket], numbers: Numbers, ranks: Any) -> Numbers | None:
        """Return the numbers with x_{t+1} in the average, and the average in x."""
        (square,) = read(totals(buckets, _gradient_square, ranks=ranks), numbers)
        if not is_finite(square):
            return None
        r = first_radius(buckets, numbers, ranks)
        alpha = travelled_weight(r, numbers["earlier_radii"])
        largest = larger(numbers["largest_square"], alpha * alpha * square)
        eta = adaptive_step(r, larger(numbers["weighted_differences"], largest))
        weight = numbers["earlier_radii"] + r
        weight_sum = numbers["weight_sum"] + weight
        for bucket in buckets:
            each, state = bucket.each, bucket.state
            x = _moved(bucket, each.copies(state[BASE]), alpha * _step(bucket, eta))
            state[AVERAGE] = each.toward(state[AVERAGE], x, weight / weight_sum)
            bucket.x = each.assign(bucket.x, x)
        (reached,) = read(totals(buckets, _travelled, ranks=ranks), numbers)
        for bucket in buckets:
            bucket.x = bucket.each.assign(bucket.x, bucket.state[AVERAGE])
        return {
            **numbers,
            "radius": r,
            "largest_square": largest,
            "reached": reached,
            "weight_sum": weight_sum,
        }

    def update(self, buckets: list[Bucket], numbers: Numbers, ranks: Any) -> Numbers | None:
        """Return the numbers after the second gradient, and x at the next z~."""
        r = numbers["radius"]
        alpha = travelled_weight(r, numbers["earlier_radii"])
        (square,) = read(totals(buckets, _difference, ranks=ranks), numbers)
        finite = is_finite(square)
        total = numbers["weighted_differences"] + alpha * alpha * (square if finite else 0.0)
        eta = adaptive_step(r, larger(total, numbers["largest_square"]))
        for bucket in buckets:
            step = alpha * _step(bucket, eta)
            if finite:
                bucket.state[BASE] = _moved(bucket, bucket.state[BASE], step)
        (reached,) = read(totals(buckets, _base_travelled, ranks=ranks), numbers)
        radii = numbers["earlier_radii"] + r
        r = larger(r, larger(numbers["reached"], reached) ** 0.5)
        share = (radii + r) / (numbers["weight_sum"] + radii + r)
        for bucket in buckets:
            bucket.x = bucket.each.toward(bucket.x, bucket.state[BASE], share)
        return {
            **numbers,
            "iteration": numbers["iteration"] + 1,
            "radius": r,
            "earlier_radii": radii,
            "weighted_differences": total,
        }


def _travelled(bucket: Bucket) -> Tensor:
    return bucket.square(bucket.each.minus(bucket.x, bucket.state[START]))
