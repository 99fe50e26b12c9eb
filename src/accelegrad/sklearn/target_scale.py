"""`target_scale_`: the weighted mean absolute deviation of the targets from their mean.

Without an intercept the deviation is from 0. The statistic scales with the targets and does not
change when they are shifted. It is zero only if a constant fits exactly, whereas the median
absolute deviation is zero for any target that is mostly one value, such as rainfall. It consists of
two sums, which chunks and workers can add up, and an outlier moves it less than the standard
deviation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from accelegrad.errors import Vector
from accelegrad.sklearn.data import Data


class Moments(NamedTuple):
    """Partial sums for the mean of the targets."""

    total: float  # the sum of weight times target
    weight: float
    low: float
    high: float


def moments(y: Vector, weights: Vector | None) -> Moments:
    """Return the moments of samples with positive weight."""
    weights = np.ones(y.size) if weights is None else weights
    kept = y[weights > 0.0]
    low, high = kept.min(initial=math.inf), kept.max(initial=-math.inf)
    return Moments(float(weights @ y), float(weights.sum()), float(low), float(high))


def centre(parts: Iterable[Moments]) -> float:
    """Return the mean of all targets; exact if all are equal."""
    kept = [part for part in parts if part.weight > 0.0]
    if not kept:  # which others refuse
        return 0.0
    mean = math.fsum(part.total for part in kept) / math.fsum(part.weight for part in kept)
    return min(max(mean, min(part.low for part in kept)), max(part.high for part in kept))


def deviations(y: Vector, weights: Vector | None, middle: float) -> tuple[float, float]:
    """Return the weighted sum of absolute deviations, and the total weight."""
    sizes = np.abs(y - middle)
    if weights is None:
        return float(sizes.sum()), float(y.size)
    return float(weights @ sizes), float(weights.sum())


def scale(parts: Iterable[tuple[float, float]]) -> float:
    """Return the mean absolute deviation, or 1 if it is zero."""
    kept = list(parts)
    total = math.fsum(part[0] for part in kept)
    return total / math.fsum(part[1] for part in kept) if total > 0.0 else 1.0


def scale_of(data: Data, *, centred: bool) -> float:
    """Return the scale of the targets."""
    middle = centre(moments(*block) for block in data.blocks()) if centred else 0.0
    return scale(deviations(y, weights, middle) for y, weights in data.blocks())
