"""The second derivatives of the rows' losses, and rows drawn in proportion to them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from accelegrad.errors import Vector
from accelegrad.models.losses import Loss
from accelegrad.models.row_blocks import RowNumbers

#: The largest share of the rows that is sampled: to draw and copy more takes as long as using all
#: of them (measured).
MOST_SAMPLED = 0.3


def curved_rows(loss: Loss, slopes: Vector, y: Vector) -> npt.NDArray[np.bool_]:
    """Return which rows' losses, linear beyond corners and parabolas between, are curved here."""
    if loss.classification:  # one end of the domain is 0
        sizes = np.abs(slopes)
        return np.asarray((sizes > 0.0) & (sizes < loss.lipschitz))
    low, high = loss.domain(y)
    curved = (slopes > low) & (slopes < high)
    if loss.shape.epsilon > 0.0:  # the zone without cost
        curved &= slopes != 0.0
    return np.asarray(curved)


def second_derivatives(
    loss: Loss, margins: Vector, slopes: Vector, y: Vector, caution: float = 0.0
) -> Vector:
    """Return l'' at the rows' margins, for all losses but the logistic one a constant or 0.

    With caution they are not 0 beyond a corner, but this share of the curvature of a parabola with
    its lowest point where the loss is lowest and the same slope here: with all of it no step is too
    long.
    """
    if loss.name == "logistic":
        size = np.abs(slopes)
        return size * (1.0 - size)
    curved = curved_rows(loss, slopes, y)
    derivatives = np.where(curved, loss.curvature, 0.0)
    if caution == 0.0:
        return derivatives
    distance = y * margins - 1.0 if loss.classification else margins - y
    with np.errstate(divide="ignore", invalid="ignore"):
        secant = np.abs(slopes / distance)
    beyond = ~curved & (slopes != 0.0) & (secant < loss.curvature)
    return np.where(beyond, caution * secant, derivatives)


def drawn_by_weight(
    weights: Vector, size: int, generator: Callable[[], np.random.Generator]
) -> tuple[RowNumbers | None, Vector]:
    """Return rows and weights that stand for all; None and all weights where no sample is smaller.

    Rows are drawn by their weights, and then weigh the same, so that none is wasted on a row
    without weight. The generator is made where it is needed.
    """
    weighty = np.flatnonzero(weights)
    if weighty.size <= min(size, MOST_SAMPLED * weights.size):
        return weighty, weights[weighty]
    if size >= weighty.size:
        return None, weights
    ends = np.cumsum(weights)
    # One from each of `size` parts of equal weight: in order, and with less noise.
    places = (np.arange(size) + generator().random(size)) * (ends[-1] / size)
    chosen = np.searchsorted(ends, places, side="right")
    return np.minimum(chosen, weights.size - 1), np.full(size, ends[-1] / size)
