"""Losses as numbers, for the formulas in NumPy and in compiled code.

All losses but the logistic one are linear outside a flat zone of half width epsilon, and rounded
off at its ends by parabolas. With the distance s of a residual beyond the flat zone,

    slope = min(max(s / softness, low), high),    value = slope (s - softness slope / 2).

Softness 0 is a kink, with slope 0 at the kink itself. The Moreau envelope with parameter mu has the
same numbers with softness + mu. The residual is m - y, or y m - 1 for labels y = -1 and +1, where
the slope above is in y m; in m it is y times as much.
"""

# This module must not load Numba: `accelegrad.models.losses` imports it.

from __future__ import annotations

from typing import NamedTuple

LOGISTIC, LABELS, TARGETS = range(3)


class Shape(NamedTuple):
    """A loss as numbers; compiled code also takes records with these fields."""

    kind: int  # LOGISTIC, or the kind of residual: LABELS or TARGETS
    low: float  # the steepest slope below the flat zone, at most 0
    high: float  # the steepest slope above it, at least 0
    softness: float = 0.0  # 1 over the curvature of the parabolas, 0 for kinks
    epsilon: float = 0.0  # half the width of the flat zone


#: The logistic loss has another formula; its slopes and curvature have these bounds.
LOGISTIC_SHAPE = Shape(LOGISTIC, low=-1.0, high=0.0, softness=4.0)


def for_kernels(loss: Shape) -> Shape | None:
    """Return a loss for kernels: None for the logistic one."""
    return None if loss.kind == LOGISTIC else loss
