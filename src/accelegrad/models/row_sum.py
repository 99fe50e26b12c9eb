"""The contract of a sum over rows: all that methods and proofs use of one.

The sum is P(w) = sum_i p_i l(m_i, y_i) + l2 / 2 ||w||^2 with the margins m_i = <a_i, w> (plus an
intercept, the last coordinate of w, which the l2 term leaves out) and shares p_i that sum to 1.
`LinearModel` has its rows in memory; a `PartedModel` has them in parts, in files (`StreamedModel`)
or on a cluster. Both offer

    at(w)                    a point, by one pass: value, mean_loss, gradient, squared_slopes,
                             curved_share, dual_value; margins and slopes stay where the rows are
    between(p, q, t)         the point p + t (q - p) without a pass: margins are affine
    sampled(count, seed)     uniform rows with replacement
    sampled(count, seed, p)  rows in proportion to their curvature p_i l'' at a point, one from each
                             of `count` pieces of equal curvature; if no more than `count` rows
                             are curved, all of these
    gram(p, rows)            sum_k weights_k a_k a_k', the curvature of the mean loss from
                             sampled rows; those drawn evenly weigh l''(m_k) p_k n / count
    batch_gradient(w, seed, size)    the gradient estimated from uniform rows

What is exchanged with parts is as long as w or a number, and additive: sums in float64. The same
rows are sampled for any split, because they are drawn by row number or by sums over all
rows. `tests/solvers/test_contract.py` tests the contract.
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


# -- rows that stand for all ---------------------------------------------------------------------


class TakenRows(NamedTuple):
    """Some rows of a model, in the order that they were asked for."""

    X: Any
    y: Vector
    shares: Vector
    known: tuple[Vector, Vector] | None  # margins and slopes at a point, where one was given


class ModelRows:
    """Sampled rows of a linear model, by their numbers (None: all).

    `weights` are those with which each row stands for the curvature of all, None where rows were
    drawn evenly; `n_curved` is how many of all rows have curvature, if that was looked at.
    """

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
        """How many rows there are, each as often as it was drawn."""
        return self._model.n_samples if self.numbers is None else self.numbers.size

    def in_memory(self, l2: float) -> LinearModel:
        """Return a model of these rows alone, in memory, with this l2 term."""
        assert self.numbers is not None
        return self._model.of_rows(self.numbers, l2)


# -- second derivatives ----------------------------------------------------------------------

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
