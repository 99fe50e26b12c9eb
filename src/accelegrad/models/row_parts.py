"""Tasks on parts of the rows, whose results are added up over all parts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from accelegrad.errors import Vector
from accelegrad.models.linear_model import LinearModel, ModelPoint
from accelegrad.models.losses import Loss
from accelegrad.models.matrix import Matrix, RowNumbers


class Where(NamedTuple):
    """The name under which parts store a point; it is passed before the point itself."""

    name: Any
    by: Loss | int  # the loss, or the number of classes
    between: tuple[Any, Any, float] | None = None  # p, q and t of p + t (q - p)


class Part(ABC):
    """Some of the rows, with their shares among all rows, as a model without an l2 term."""

    def __init__(self, rows: LinearModel) -> None:
        self.rows = rows

    @abstractmethod
    def margins(self, name: Any) -> Any:
        """Return the margins that are stored under a name, or None."""

    def model(self, by: Loss | int) -> Any:
        """Return the rows with a loss, or as a multinomial model, with class numbers as targets."""
        if isinstance(by, Loss):
            return self.rows if by == self.rows.loss else self.rows.with_loss(by)
        from accelegrad.models.multinomial import MultinomialModel

        return MultinomialModel.of(self.rows, self.rows.y.astype(np.intp), by)

    def of_columns(self, columns: Any) -> LinearModel:
        """Return some columns of the rows; None: all."""
        return self.rows if columns is None else self.rows.of_columns(columns, 0.0)

    def at(self, where: Where, w: Vector) -> Any:
        """Return the point w: a pass over the rows, unless margins are stored."""
        model, margins = self.model(where.by), self.margins(where.name)
        if margins is None and where.between is not None:
            p, q, t = where.between
            start, end = self.margins(p), self.margins(q)
            margins = None if start is None or end is None else start + t * (end - start)
        with np.errstate(over="ignore", invalid="ignore"):
            return model.at(w, margins)


def on_part(task: Callable[..., Any], part: Part, *arguments: Any) -> Any:
    """Return a task's result for a part: a `Where` and the point after it become its values."""
    rest = iter(arguments)
    given = [part.at(some, next(rest)) if isinstance(some, Where) else some for some in rest]
    return task(part, *given)


def add(one: Any, other: Any) -> Any:
    """Return the sum of two results: numbers, arrays, or tuples of them."""
    if isinstance(one, tuple):
        parts = [add(*pair) for pair in zip(one, other, strict=True)]
        return type(one)(*parts) if hasattr(one, "_fields") else tuple(parts)
    return one + other


def total(*parts: Any) -> Any:
    """Return the sum of several results, in their order."""
    return reduce(add, parts)


def of_model(part: Part, loss: Loss, method: str, *given: Any) -> Any:
    """Return what a method of the part's model returns."""
    with np.errstate(over="ignore"):
        return getattr(part.model(loss), method)(*given)


class PointSums(NamedTuple):
    """A part's contribution to the sums at a point."""

    loss: float
    squared_slopes: float
    mean: float  # of the slopes, by their shares
    mean_size: float  # of their absolute values
    plain_loss: float  # the mean of the loss without smoothing
    gradient: Vector  # of the loss; empty if not requested


def sums_at(part: Part, at: ModelPoint, gradient: bool) -> PointSums:  # noqa: ARG001
    """Return the sums at a point."""
    model, loss = at.model, at.model.loss
    with np.errstate(over="ignore", invalid="ignore"):
        mean_loss, theta = at.mean_loss, at.derivatives  # in this order they take one pass
        weighted = model.shares * theta
        return PointSums(
            mean_loss,
            float(weighted @ theta),
            float(weighted.sum()),
            float(np.abs(weighted).sum()),
            float(model.shares @ loss.plain.value(at.margins, model.y)) if loss.smoothing else 0.0,
            # A copy: workers may be threads of the client, which adds the l2 term in place.
            at.gradient.copy() if gradient else np.zeros(0),
        )


def batch_sums(part: Part, w: Vector, loss: Loss, rows: RowNumbers) -> tuple[float, Vector]:
    """Return sum_i p_i l(m_i) over some rows, by their numbers in the part, and its gradient."""
    if rows.size == 0:
        return 0.0, np.zeros(w.size)
    value, gradient = part.model(loss).batch_value_and_gradient(w, rows)
    scale = rows.size / part.rows.n_samples
    return scale * value, scale * gradient


def target_sums(part: Part, count: int) -> tuple[float, Vector, Vector, float, float]:
    """Return sum_i p_i y_i, targets and shares of `count` rows, and the range of the targets."""
    model = part.rows
    some = np.unique(np.linspace(0, model.n_samples - 1, count).astype(np.intp))
    ends = float(model.y.min()), float(model.y.max())
    return float(model.shares @ model.y), model.y[some], model.shares[some], *ends


class Mixture(NamedTuple):
    """How to combine slopes: shift and mix those at a point, or predict those at another one."""

    caution: float | None = None  # predict with the second derivatives and this caution
    shifts: tuple[float, ...] = (0.0,)  # of all margins
    shares: tuple[float, ...] = (1.0,)  # of the slopes after each shift
    up: float = 1.0  # then a factor for positive slopes
    down: float = 1.0  # and one for negative ones

    def of(self, at: ModelPoint, other: ModelPoint) -> Vector:
        """Return the slopes of a part's rows."""
        if self.shares != (1.0,):
            parts = [at.model.slopes(at.margins + shift) for shift in self.shifts]
            return np.array(self.shares) @ np.array(parts)
        theta = at.derivatives if self.caution is None else at.slopes_at(other, self.caution)
        if self.up == self.down == 1.0:
            return theta
        return np.where(theta > 0.0, theta * self.up, theta * self.down)


def shifted_means(part: Part, at: ModelPoint, shifts: Vector) -> Vector:  # noqa: ARG001
    """Return the mean slopes for several shifts of all margins."""
    means = [at.model.shares @ at.model.slopes(at.margins + shift) for shift in shifts]
    return np.array(means)


def side_means(part: Part, at: ModelPoint, other: ModelPoint, slopes: Mixture) -> Vector:
    """Return the contributions of positive and of negative slopes to their mean absolute value."""
    theta, shares = slopes.of(at, other), part.rows.shares
    return np.array([shares @ np.maximum(theta, 0.0), shares @ np.maximum(-theta, 0.0)])


def curvature_sums(part: Part, at: ModelPoint, caution: float) -> tuple[float, int]:  # noqa: ARG001
    """Return the sum of p_i l'' at a point, and the number of rows where it is not 0."""
    weights = at.curvatures(caution)
    return float(np.sum(weights)), int(np.count_nonzero(weights))


def _drawn(
    at: ModelPoint, caution: float, places: Vector | None
) -> tuple[RowNumbers | None, Vector]:
    """Return the rows at given places in the running sum of weights, or all with weight."""
    weights = at.curvatures(caution)
    if places is None:
        weighty = np.flatnonzero(weights)
        if weighty.size == weights.size:
            return None, weights
        return weighty, weights[weighty]
    chosen = np.searchsorted(np.cumsum(weights), places, side="right")
    # Rounding may put a place behind the last row with weight.
    last = int(np.flatnonzero(weights)[-1]) if places.size else 0
    return np.minimum(chosen, last), np.ones(places.size)


def gram_drawn(
    part: Part, at: ModelPoint, caution: float, columns: Any, places: Vector | None
) -> Matrix:
    """Return the part's share of a Gram matrix of some columns (None: all) of drawn rows."""
    return part.of_columns(columns).gram(*_drawn(at, caution, places))


def gram_sum(part: Part, columns: Any) -> Matrix:
    """Return sum_i p_i a_i a_i' for some columns (None: all)."""
    model = part.of_columns(columns)
    return model.gram(None, model.shares)
