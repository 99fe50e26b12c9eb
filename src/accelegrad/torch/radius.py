"""The radius that methods without a diameter start with."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from accelegrad.rules.arrays import either
from accelegrad.rules.distance import SMALLEST_SHARE
from accelegrad.torch.optimizer import Numbers, read
from accelegrad.torch.tensors import Bucket, Number, totals

START = "start"  # x_0


def first_radius(buckets: list[Bucket], numbers: Numbers, ranks: Any) -> Number:
    """Return the radius, which is given or 1e-6 (1 + ||x0||) before the first step."""
    given = buckets[0].group.get("initial_radius") if buckets else None

    def first() -> Number:
        if given is not None:
            return given
        (square,) = read(totals(buckets, _start_square, ranks=ranks), numbers)
        return SMALLEST_SHARE * (1 + square**0.5)

    return either(numbers["radius"] == 0, first, lambda: numbers["radius"])


def _start_square(bucket: Bucket) -> Tensor:
    return bucket.square(bucket.state[START])
