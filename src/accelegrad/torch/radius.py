"""The radius that methods without a diameter start with."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from accelegrad.rules.arrays import either, larger, where
from accelegrad.rules.distance import SMALLEST_SHARE
from accelegrad.rules.schedules import adaptive_step
from accelegrad.torch.optimizer import Numbers, largest_rate, read
from accelegrad.torch.tensors import Bucket, Number, totals

START = "start"  # x_0
#: The first step is at least this, in units in the last place of a parameter of size 1: shorter
#: ones would be lost to rounding, and the radius would never grow. Chosen.
SHORTEST_MOVE = 2.5
#: But no radius starts larger than this share of the parameters' size; chosen.
LARGEST_SHARE = 1e-3


def first_radius(buckets: list[Bucket], numbers: Numbers, ranks: Any) -> Number:
    """Return the radius, which is given or 1e-6 (1 + ||x0||) before the first step."""
    given = buckets[0].group.get("initial_radius") if buckets else None

    def first() -> Number:
        if given is not None:
            return given
        (square,) = read(totals(buckets, _start_square, ranks=ranks), numbers)
        return first_share(buckets) * (1 + square**0.5)

    return either(numbers["radius"] == 0, first, lambda: numbers["radius"])


def _start_square(bucket: Bucket) -> Tensor:
    return bucket.square(bucket.state[START])


def first_share(buckets: list[Bucket]) -> Number:
    """Return the first radius relative to the size of x0: 1e-6, or more where lr is small.

    In float64, or with lr = 1, it is 1e-6.
    """
    coarsest = max((torch.finfo(bucket.x[0].dtype).eps for bucket in buckets), default=0.0)
    rate = largest_rate(buckets)
    enough = SHORTEST_MOVE * coarsest * adaptive_step(1.0, rate * rate)
    return larger(SMALLEST_SHARE, where(enough > LARGEST_SHARE, LARGEST_SHARE, enough))
