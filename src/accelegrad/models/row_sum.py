"""The contract of a sum over rows: all that row methods and proofs use of one.

The sum is P(w) = sum_i p_i l(m_i, y_i) + l2 / 2 ||w||^2 with the margins m_i = <a_i, w> (plus an
intercept, the last coordinate of w, which the l2 term leaves out) and shares p_i that sum to 1.

Only the sum knows where its rows are: in memory (`LinearModel`), read chunk by chunk
(`StreamedModel`), on a cluster. Margins and slopes stay where the rows are. What is exchanged
is of the size of w or a number, and additive: the parts of a split are added up, in float64. The
rest is a small sample, which is local. No result depends on the split, but for rounding; samples
are the same rows for any split, because they are drawn by row number or by sums over all rows.

A new kind of sum implements these three protocols and passes tests/solvers/test_contract.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from accelegrad.errors import Vector
from accelegrad.models.gram import Storage
from accelegrad.models.losses import Loss
from accelegrad.models.matrix import Matrix, RowNumbers

if TYPE_CHECKING:
    from accelegrad.models.linear_model import LinearModel


class RowPoint(Protocol):
    """What a sum knows at a point; margins and slopes stay where the rows are.

    What proofs need of a point, its Fenchel sums (loss, conjugates, slopes, their combination of
    the rows), is additive too: that is `dual_value` and `dual_value_by` today, and what a
    ``dual_sums`` of `accelegrad.proofs` computes from the point's parts.
    """

    @property
    def w(self) -> Vector:
        """The point."""

    @property
    def value(self) -> float:
        """The objective P(w)."""

    @property
    def mean_loss(self) -> float:
        """The objective without the l2 term."""

    @property
    def gradient(self) -> Vector:
        """A (sub)gradient of P: a pass over the rows, unless it came along with the value."""

    @property
    def squared_slopes(self) -> float:
        """sum_i p_i l'(m_i)^2."""

    @property
    def curved_share(self) -> float:
        """The share of the rows with l''(m_i) > 0, all rows counting the same."""

    @property
    def dual_value(self) -> float:
        """A proven lower bound of min P from the slopes at this point."""

    def dual_value_by(self, smooth: Any) -> float:
        """Return the bound from the slopes of a smoothed loss, a `RowPoint` at the same w."""

    def beside(self, model: Any) -> RowPoint:
        """Return what another sum, of the same rows with another loss, knows at w: no pass."""


class SampledRows(Protocol):
    """A handle on rows that stand for all; `in_memory` brings them here."""

    @property
    def count(self) -> int:
        """How many rows there are, each as often as it was drawn."""

    @property
    def n_curved(self) -> int:
        """How many rows of the whole sum have curvature where rows were drawn by curvature."""

    @property
    def weights(self) -> Vector | None:
        """With which each stands for the curvature of all; None where rows were drawn evenly."""

    def in_memory(self, l2: float) -> LinearModel:
        """Return a model of these rows alone, in memory, with this l2 term."""


class RowSum(Protocol):
    """A sum over rows, wherever they are."""

    @property
    def loss(self) -> Loss:
        """The pointwise loss."""

    @property
    def l2(self) -> float:
        """The weight of the l2 term."""

    @property
    def fit_intercept(self) -> bool:
        """Whether the last coordinate of w is an intercept."""

    @property
    def n_samples(self) -> int:
        """The number of rows."""

    @property
    def n_features(self) -> int:
        """The number of columns."""

    @property
    def n_parameters(self) -> int:
        """The length of w."""

    @property
    def storage(self) -> Storage:
        """How the rows are stored, which says what curvature costs beside gradients."""

    @property
    def has_dual_bound(self) -> bool:
        """Whether points have a `dual_value`."""

    @property
    def in_memory(self) -> LinearModel | None:
        """The sum itself where all rows are in memory, for methods that go from row to row."""

    def smoothed(self, mu: float) -> RowSum:
        """Return the sum over the same rows with the Moreau envelope of the loss."""

    def at(self, w: npt.ArrayLike) -> RowPoint:
        """Return what is known at w: one pass over the rows."""

    def between(self, p: Any, q: Any, t: float) -> RowPoint:
        """Return what is known at p + t (q - p), p and q being points: margins are affine.

        There is no pass over the rows before its gradient is asked for.
        """

    def sampled(
        self, count: int, seed: Any, by: Any = None, *, caution: float = 0.0
    ) -> SampledRows:
        """Return rows that stand for all, the same for any split.

        Parameters
        ----------
        count : int
            How many.
        seed : object
            What `numpy.random.default_rng` takes.
        by : RowPoint, optional
            Without it: uniform rows, with replacement. With it rows in proportion to their
            curvature p_i l'' at that point, one from each of `count` parts of equal curvature; if
            no more than `count` rows are curved, all of these.
        caution : float
            From 0 to 1: see `accelegrad.models.row_sum.second_derivatives`.
        """

    def gram(self, point: Any, rows: Any) -> Matrix:
        """Return sum_k weights_k a_k a_k', the curvature of the mean loss from sampled rows.

        Weights are those of rows drawn by curvature; those of rows drawn evenly are
        l''(m_k) p_k n / count at the point.
        """

    def column_squares(self) -> Vector:
        """Return sum_i p_i x_ij^2 for each column."""

    def batch_gradient(self, w: npt.ArrayLike, seed: Any, size: int) -> Vector:
        """Return the gradient of P estimated from `size` uniform rows, with replacement."""


# -- rows that stand for all ---------------------------------------------------------------------


class TakenRows(NamedTuple):
    """Some rows of a model, in the order that they were asked for."""

    X: Any
    y: Vector
    shares: Vector
    known: tuple[Vector, Vector] | None  # margins and slopes at a point, where one was given


class ModelRows:
    """Rows of a linear model, by their numbers: the `SampledRows` of the contract.

    Parameters
    ----------
    model : LinearModel
        The model.
    numbers : array of int, optional
        The rows; all by default.
    weights : Vector, optional
        With which each stands for the curvature of all, where rows are drawn by their curvature.
    n_curved : int, optional
        How many of all rows have curvature, where that was looked at.
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
