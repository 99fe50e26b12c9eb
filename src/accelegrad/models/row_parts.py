"""What is asked of a part of the rows: tasks whose results are added up over all parts.

A part is a `LinearModel` without an l2 term, whose rows have the shares that they have among all
rows: the sum over all parts is the whole. Tasks take a part and what it knows at points, and
return sums that can be added, as long as w or a number, or what is asked for of a few rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple, Protocol

import numpy as np

from accelegrad.errors import Vector
from accelegrad.models.linear_model import LinearModel, ModelPoint
from accelegrad.models.losses import Loss
from accelegrad.models.matrix import Matrix, RowNumbers
from accelegrad.models.rounding import largest_entries
from accelegrad.models.row_sum import TakenRows, curved_rows
from accelegrad.norms import norm


class Part(Protocol):
    """Some of the rows."""

    @property
    def rows(self) -> LinearModel:
        """The rows as a model without an l2 term."""

    @property
    def first(self) -> int:
        """The number of the first one among all rows."""

    def model(self, by: Any) -> Any:
        """Return the rows by a loss."""

    def of_columns(self, columns: Any) -> LinearModel:
        """Return some columns of the rows; None: all."""


class Where(NamedTuple):
    """A point, as tasks are told of it: the name under which parts keep what they know there.

    It comes before the point itself, and both become what a part knows there. `between` are the
    names of two points and t, where margins are those at p + t (q - p).
    """

    name: Any
    by: Loss | int  # the loss, or the number of classes
    between: tuple[Any, Any, float] | None = None


def model_by(rows: LinearModel, by: Loss | int) -> Any:
    """Return rows by a loss, or as a multinomial model: then targets are the classes' numbers."""
    if isinstance(by, Loss):
        return rows.with_loss(by)
    from accelegrad.models.multinomial import MultinomialModel

    return MultinomialModel.of(rows, rows.y.astype(np.intp), by)


def add(one: Any, other: Any) -> Any:
    """Return the sum of what two parts gave: numbers, arrays, sums, or tuples of them."""
    if isinstance(one, tuple):
        parts = [add(*pair) for pair in zip(one, other, strict=True)]
        return type(one)(*parts) if hasattr(one, "_fields") else tuple(parts)
    return one + other


def total(*parts: Any) -> Any:
    """Return the sum of what several parts gave, in their order."""
    return reduce(add, parts)


class PointSums(NamedTuple):
    """What the rows of a part add to what is known at a point."""

    loss: float
    squared_slopes: float
    curved: int
    mean: float  # of the slopes, by their shares
    mean_size: float  # of their absolute values
    plain_loss: float  # of a smoothed loss, the mean of the one that it stands for
    gradient: Vector  # of the loss; empty where it was not asked for


def sums_at(part: Part, at: ModelPoint, gradient: bool) -> PointSums:  # noqa: ARG001
    """Return the sums at a point."""
    model, theta, loss = at.model, at.derivatives, at.model.loss
    with np.errstate(over="ignore", invalid="ignore"):
        weighted = model.shares * theta
        return PointSums(
            at.mean_loss,
            float(weighted @ theta),
            int(np.count_nonzero(curved_rows(loss, theta, model.y))),
            float(weighted.sum()),
            float(np.abs(weighted).sum()),
            float(model.shares @ loss.plain.value(at.margins, model.y)) if loss.smoothing else 0.0,
            # A copy: clients whose workers are threads of theirs get results themselves, and add
            # the l2 term in place.
            at.gradient.copy() if gradient else np.zeros(0),
        )


def batch_sums(part: Part, w: Vector, loss: Loss, rows: RowNumbers) -> tuple[float, Vector]:
    """Return sum_i p_i l(m_i) over some rows of the part, by their numbers in it, and its slope."""
    if rows.size == 0:
        return 0.0, np.zeros(w.size)
    value, gradient = part.model(loss).batch_value_and_gradient(w, rows)
    scale = rows.size / part.rows.n_samples
    return scale * value, scale * gradient


def squares(part: Part) -> Vector:
    """Return sum_i p_i x_ij^2 for each column."""
    with np.errstate(over="ignore"):
        return part.rows.column_squares()


def losses_of_constants(part: Part, loss: Loss, predictions: list[float]) -> Vector:
    """Return the mean losses where all margins are the same number, for several of these."""
    model, zeros = part.rows, np.zeros(part.rows.n_samples)
    with np.errstate(over="ignore"):
        return np.array([model.shares @ loss.value(zeros + b, model.y) for b in predictions])


def target_sizes(part: Part) -> tuple[float, float, float]:
    """Return the norm of the targets, and the shares of those above 0 and of those below."""
    y, shares = part.rows.y, part.rows.shares
    return norm(np.sqrt(shares) * y), float(shares @ (y > 0.0)), float(shares @ (y < 0.0))


def target_sums(part: Part, count: int) -> tuple[float, Vector, Vector, float, float]:
    """Return sum_i p_i y_i, targets and shares of `count` rows, and the ends of the targets."""
    model = part.rows
    some = np.unique(np.linspace(0, model.n_samples - 1, count).astype(np.intp))
    ends = float(model.y.min()), float(model.y.max())
    return float(model.shares @ model.y), model.y[some], model.shares[some], *ends


class Mixture(NamedTuple):
    """Slopes at a point with all margins shifted by each of `shifts`, and mixed by `shares`.

    Or, with `caution`, those at another point as the second derivatives at the point foretell them.
    Those above 0 are then multiplied by `up`, those below by `down`.
    """

    caution: float | None = None
    shifts: tuple[float, ...] = (0.0,)
    shares: tuple[float, ...] = (1.0,)
    up: float = 1.0
    down: float = 1.0

    def of(self, at: ModelPoint, other: ModelPoint) -> Vector:
        """Return the slopes of a part's rows."""
        theta = at.derivatives if self.caution is None else at.slopes_at(other, self.caution)
        if self.shifts != (0.0,):
            parts = [at.model.slopes(at.margins + shift) for shift in self.shifts]
            theta = np.array(self.shares) @ np.array(parts)
        if self.up == self.down == 1.0:
            return theta
        return np.where(theta > 0.0, theta * self.up, theta * self.down)


def shifted_means(part: Part, at: ModelPoint, shifts: Vector) -> Vector:  # noqa: ARG001
    """Return the mean slopes with all margins shifted, for several shifts."""
    means = [at.model.shares @ at.model.slopes(at.margins + shift) for shift in shifts]
    return np.array(means)


def largest_margin(part: Part, at: ModelPoint) -> float:  # noqa: ARG001
    """Return the largest size of a margin or a target."""
    return float(np.abs(at.margins).max() + np.abs(at.model.y).max())


def side_means(part: Part, at: ModelPoint, other: ModelPoint, slopes: Mixture) -> Vector:
    """Return what the slopes above 0 and those below add to the mean of their sizes."""
    theta, shares = slopes.of(at, other), part.rows.shares
    return np.array([shares @ np.maximum(theta, 0.0), shares @ np.maximum(-theta, 0.0)])


def curvature_sums(part: Part, at: ModelPoint, caution: float) -> tuple[float, int]:  # noqa: ARG001
    """Return the sum of the rows' curvature p_i l'' at a point, and how many have any."""
    weights = at.curvatures(caution)
    return float(np.sum(weights)), int(np.count_nonzero(weights))


def _drawn(
    at: ModelPoint, caution: float, places: Vector | None
) -> tuple[RowNumbers | None, Vector]:
    """Return rows and their weights: at places in the running sum of weights, or all with weight.

    The places are those from where this part begins; the weight of a drawn row is left to be 1.
    """
    weights = at.curvatures(caution)
    if places is None:
        weighty = np.flatnonzero(weights)
        if weighty.size == weights.size:
            return None, weights
        return weighty, weights[weighty]
    chosen = np.searchsorted(np.cumsum(weights), places, side="right")
    # Rounding may put a place behind the last row that has weight.
    last = int(np.flatnonzero(weights)[-1]) if places.size else 0
    return np.minimum(chosen, last), np.ones(places.size)


def gram_drawn(
    part: Part, at: ModelPoint, caution: float, columns: Any, places: Vector | None
) -> Matrix:
    """Return what the rows drawn from the part add to a Gram matrix of some columns; None: all."""
    return part.of_columns(columns)._gram(*_drawn(at, caution, places))


def gram_sum(part: Part, columns: Any) -> Matrix:
    """Return sum_i p_i a_i a_i' of some columns; None: of all."""
    model = part.of_columns(columns)
    return model._gram(None, model.shares)


def gram_of_rows(part: Part, at: ModelPoint, rows: RowNumbers) -> Matrix:
    """Return sum_k p_k l''_k a_k a_k' over some rows."""
    return part.rows._gram(rows, at.curvatures()[rows])


def drawn_numbers(
    part: Part, at: ModelPoint, caution: float, places: Vector | None
) -> tuple[Any, Vector]:
    """Return the numbers, among all rows, of those drawn, and their weights."""
    numbers, weights = _drawn(at, caution, places)
    if numbers is None:
        numbers = np.arange(part.rows.n_samples)
    return numbers + part.first, weights


def taken(part: Part, rows: RowNumbers) -> TakenRows:
    """Return some rows, by their numbers in the part."""
    return part.rows.taken(rows)


def taken_at(part: Part, at: ModelPoint, rows: RowNumbers) -> TakenRows:
    """Return some rows, by their numbers in the part, and what a point knows of them."""
    return part.rows.taken(rows, at)


def on_rows(part: Part, function: Callable[[Any, Vector], Any]) -> Any:
    """Return what a function says of the rows and their shares."""
    return function(part.rows.X, part.rows.shares)


def largest_entries_of(part: Part, columns: Any) -> Vector:
    """Return the largest absolute value of some columns."""
    return largest_entries(part.rows.X, columns)
