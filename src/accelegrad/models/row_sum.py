"""The contract of a sum over rows, on which methods and proofs build.

The sum is P(w) = sum_i p_i l(m_i, y_i) + l2 / 2 ||w||^2 with margins m_i = <a_i, w> and shares p_i
that sum to 1. An intercept is the last coordinate of w and is not penalised. `LinearModel` holds
its rows in memory; a `PartedModel` has them in files (`StreamedModel`) or on a cluster. Both offer

    at(w)                    a point, by one pass: value, mean_loss, gradient, squared_slopes,
                             curved_share, dual_value; margins and slopes stay with the rows
    between(p, q, t)         the point p + t (q - p) without a pass: margins are affine
    sampled(count, seed)     uniform rows with replacement
    sampled(count, seed, p)  rows in proportion to their curvature p_i l'' at a point, stratified;
                             all curved rows if there are no more than `count`
    gram(p, rows)            sum_k weights_k a_k a_k', the curvature of the mean loss estimated
                             from sampled rows
    batch_gradient(w, seed, size)    the gradient estimated from uniform rows

Parts return float64 sums of the size of w or of a number. Samples do not depend on the split.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accelegrad.errors import Vector
from accelegrad.models.losses import Loss
from accelegrad.models.matrix import RowNumbers

if TYPE_CHECKING:
    from accelegrad.models.linear_model import LinearModel


class TakenRows(NamedTuple):
    """Some rows of a model, in the requested order."""

    X: Any
    y: Vector
    shares: Vector
    known: tuple[Vector, Vector] | None  # margins and slopes at a point, if given


class ModelRows:
    """Sampled rows of a linear model by their numbers (None: all), with weights (None: uniform)."""

    def __init__(
        self,
        model: LinearModel,
        numbers: RowNumbers | None,
        weights: Vector | None = None,
        n_curved: int | None = None,
    ) -> None:
        self._model, self.numbers, self.weights = model, numbers, weights
        self.n_curved = model.n_samples if n_curved is None else n_curved

    @property
    def count(self) -> int:
        """The number of rows, with repetition."""
        return self._model.n_samples if self.numbers is None else self.numbers.size

    def in_memory(self, l2: float) -> LinearModel:
        """Return a model in memory of these rows alone, with this l2 term."""
        assert self.numbers is not None
        return self._model.of_rows(self.numbers, l2)


#: The largest share of rows to sample: drawing more takes as long as using all rows (measured).
MOST_SAMPLED = 0.3


def curved_rows(loss: Loss, slopes: Vector, y: Vector) -> npt.NDArray[np.bool_]:
    """Return which rows lie on a curved piece of their loss, for all but the logistic loss."""
    if loss.classification:  # one end of the domain is 0
        sizes = np.abs(slopes)
        return np.asarray((sizes > 0.0) & (sizes < loss.lipschitz))
    low, high = loss.domain(y)
    curved = (slopes > low) & (slopes < high)
    if loss.shape.epsilon > 0.0:  # the flat zone
        curved &= slopes != 0.0
    return np.asarray(curved)


def second_derivatives(
    loss: Loss, margins: Vector, slopes: Vector, y: Vector, caution: float = 0.0
) -> Vector:
    """Return l'' at the rows' margins.

    `caution` is the share of the curvature that rows on a linear piece get of the parabola with the
    same slope here and its minimum where the loss is lowest; with 1 no step is too long.
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
    """Return row numbers, drawn in proportion to weights, and new weights; None: all rows."""
    weighty = np.flatnonzero(weights)
    if weighty.size <= min(size, MOST_SAMPLED * weights.size):
        return weighty, weights[weighty]
    if size >= weighty.size:
        return None, weights
    ends = np.cumsum(weights)
    # Stratified, one row per part of equal weight: sorted, and with less noise.
    places = (np.arange(size) + generator().random(size)) * (ends[-1] / size)
    chosen = np.searchsorted(ends, places, side="right")
    return np.minimum(chosen, weights.size - 1), np.full(size, ends[-1] / size)
