"""The losses as numbers: what NumPy's formulas and the compiled ones read alike.

All losses but the logistic one are linear, with a flat zone of half width epsilon, and rounded off
at its ends by parabolas. With the distance s by which a residual is beyond the flat zone,

    slope = min(max(s / softness, low), high),    value = slope (s - softness slope / 2).

A softness of 0 means a kink: no parabola, and the slope 0 at the kink itself. So the Moreau
envelope with parameter mu has the same numbers, but for a softness that is larger by mu.

The residual is m - y, and y m - 1 for losses that take labels y = -1 and +1. With a label the slope
above is that in y m; in m it is y times as much.
"""

# Nothing here loads Numba: `accelegrad.models.losses` imports this.

from __future__ import annotations

from typing import NamedTuple

LOGISTIC, LABELS, TARGETS = range(3)


class Shape(NamedTuple):
    """A loss by numbers. Records with these fields may take its place in compiled code."""

    kind: int
    """LOGISTIC, or what the residual is made of: LABELS or TARGETS."""
    low: float
    """The steepest slope below the flat zone, at most 0."""
    high: float
    """The steepest slope above it, at least 0."""
    softness: float = 0.0
    """1 over the curvature of the parabolas, 0 where there are kinks."""
    epsilon: float = 0.0
    """Half the width of the flat zone."""


#: The logistic loss has another formula, but its slopes and curvature have the same bounds.
LOGISTIC_SHAPE = Shape(LOGISTIC, low=-1.0, high=0.0, softness=4.0)


def for_kernels(loss: Shape) -> Shape | None:
    """Return a loss as kernels take it: None for the logistic one, which has no numbers."""
    return None if loss.kind == LOGISTIC else loss
