"""The scale of targets, in which regressors measure residuals: `target_scale_`.

It is the weighted mean absolute deviation of the targets from their mean, or from 0 where there is
no intercept: the mean absolute error of a model that has learnt nothing from the columns.

Why this statistic: it is multiplied by |c| where targets are multiplied by c, and does not change
where they are shifted. It is zero only where a constant fits exactly and no scale is needed; the
median absolute deviation is zero for every target that is mostly one value, such as rainfall. It
consists of two sums, which chunks of a stream and the workers of a cluster can add up; a quantile
does not. And a far-off row moves it in proportion, not by its square as it moves the standard
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
    """What the mean of the targets of all rows is found from: those of some rows."""

    total: float  # the sum of weight times target
    weight: float
    low: float
    high: float


def moments(y: Vector, weights: Vector | None) -> Moments:
    """Return those of some rows; rows without weight do not count."""
    weights = np.ones(y.size) if weights is None else weights
    kept = y[weights > 0.0]
    low, high = kept.min(initial=math.inf), kept.max(initial=-math.inf)
    return Moments(float(weights @ y), float(weights.sum()), float(low), float(high))


def centre(parts: Iterable[Moments]) -> float:
    """Return the mean of all rows; equal targets have exactly their value."""
    kept = [part for part in parts if part.weight > 0.0]
    if not kept:  # which others refuse
        return 0.0
    mean = math.fsum(part.total for part in kept) / math.fsum(part.weight for part in kept)
    return min(max(mean, min(part.low for part in kept)), max(part.high for part in kept))


def deviations(y: Vector, weights: Vector | None, middle: float) -> tuple[float, float]:
    """Return the weighted sum of absolute deviations of some rows, and their weight."""
    sizes = np.abs(y - middle)
    if weights is None:
        return float(sizes.sum()), float(y.size)
    return float(weights @ sizes), float(weights.sum())


def scale(parts: Iterable[tuple[float, float]]) -> float:
    """Return the mean absolute deviation of all rows, and 1 where it is zero."""
    kept = list(parts)
    total = math.fsum(part[0] for part in kept)
    return total / math.fsum(part[1] for part in kept) if total > 0.0 else 1.0


def scale_of(data: Data, *, centred: bool) -> float:
    """Return the scale of the targets of some rows."""
    middle = centre(moments(*block) for block in data.blocks()) if centred else 0.0
    return scale(deviations(y, weights, middle) for y, weights in data.blocks())
