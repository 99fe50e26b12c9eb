"""A sum over rows in parts, in files or on a cluster: tasks go out, sums come back."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from accelegrad import kernels
from accelegrad.errors import Vector
from accelegrad.models import row_parts as tasks
from accelegrad.models.linear_model import LinearModel, ModelPoint
from accelegrad.models.matrix import (
    MOST_SAMPLED,
    CurvedRows,
    Matrix,
    RowNumbers,
    Storage,
    TakenRows,
    row_shares,
)
from accelegrad.models.row_parts import Mixture, PointSums, Where

#: The number of rows, about, from which quantiles of the targets are estimated. Chosen.
SOME_TARGETS = 64_000


def split_by_part(
    rows: RowNumbers, ends: npt.NDArray[np.int64]
) -> tuple[list[RowNumbers], RowNumbers]:
    """Return each part's rows, by their numbers in it, and the order that sorts `rows`."""
    order = np.argsort(rows, kind="stable")
    ordered = np.asarray(rows)[order]
    pieces = np.split(ordered, np.searchsorted(ordered, ends)[:-1])
    starts = np.concatenate([[0], ends[:-1]])
    return [piece - a for piece, a in zip(pieces, starts, strict=True)], order


class PartedPoint(ModelPoint):
    """A point of a parted model: sums; margins and slopes stay with the rows."""

    __slots__ = ("_sums", "where")
    model: PartedModel

    def __init__(self, model: PartedModel, w: Vector, where: Where | None = None) -> None:
        self.model, self.w = model, w
        w.flags.writeable = False  # read-only vectors are sent once
        self._sums: PointSums | None = None
        self.where = Where(model.new_name(), model.loss) if where is None else where
        self._gradient = self._dual_value = self._mean_loss = None
        if where is None:  # a pass over the rows, which gives the gradient too
            self._evaluate(gradient=True)

    @property
    def ref(self) -> tuple[Where, Vector]:
        """The arguments by which tasks find the point."""
        return self.where, self.w

    def _evaluate(self, *, gradient: bool) -> PointSums:
        name = "value-and-gradient" if gradient else "value"
        sums: PointSums = self.model.parts.total(name, tasks.sums_at, *self.ref, gradient)
        self._sums, self.where = sums, self.where._replace(between=None)  # now stored by the parts
        if gradient:
            self._gradient = self.model._with_penalty(sums.gradient, self.w)
        return sums

    @property
    def sums(self) -> PointSums:
        """The sums over all rows."""
        return self._evaluate(gradient=False) if self._sums is None else self._sums

    @property
    def mean_loss(self) -> float:
        """The weighted mean of the losses."""
        if self._mean_loss is None:
            self._mean_loss = self.sums.loss
        return self._mean_loss

    @property
    def gradient(self) -> Vector:
        """A (sub)gradient of P at w."""
        if self._gradient is None:
            self._evaluate(gradient=True)
        assert self._gradient is not None
        return self._gradient

    @property
    def squared_slopes(self) -> float:
        """The mean square of the slopes."""
        return self.sums.squared_slopes

    @property
    def derivatives(self) -> PartedSlopes:  # type: ignore[override]
        """The slopes, which stay with the rows."""
        return PartedSlopes(self, self)

    def slopes_at(self, other: Any, caution: float = 0.0) -> PartedSlopes:  # type: ignore[override]
        """Return the slopes at another point as the second derivatives here predict them."""
        return PartedSlopes(self, other, Mixture(caution))

    def beside(self, model: LinearModel) -> PartedPoint:
        """Return the same point of a model of the same rows with another loss."""
        assert isinstance(model, PartedModel)
        other = PartedPoint(model, self.w, self.where._replace(by=model.loss))
        if self._sums is not None and self.model.loss.smoothing and not model.loss.smoothing:
            other._mean_loss = self._sums.plain_loss
        return other


class PartedSlopes(NamedTuple):
    """One slope per row, stored with the rows: those at a point, or a mixture."""

    at: PartedPoint
    other: PartedPoint
    mixture: Mixture = Mixture()

    @property
    def ref(self) -> tuple[Any, ...]:
        """The arguments by which tasks find the slopes."""
        return *self.at.ref, *self.other.ref, self.mixture


def _places_in_parts(sums: Vector, random: Vector) -> list[Vector]:
    """Return one place from each of equal pieces of a running sum, by part and relative to it."""
    ends, size = np.cumsum(sums), random.size
    places = (np.arange(size) + random) * (ends[-1] / size)
    owners = np.minimum(np.searchsorted(ends, places, side="right"), np.flatnonzero(sums)[-1])
    starts = np.concatenate([[0.0], ends[:-1]])
    return [places[owners == i] - starts[i] for i in range(sums.size)]


class PartedModel(LinearModel):
    """A `LinearModel` in parts, with one round trip per evaluation."""

    has_columns = in_memory = False
    X: Any  # not a matrix: it has a shape, dtype and storage
    parts: Any
    columns: Any = None  # for the curvature; None: all

    def _set_up(self, *given: Any) -> None:
        super()._set_up(*given)
        self._of_targets: dict[str, Any] = {}  # shared by copies with another loss or l2 term

    @property
    def storage(self) -> Storage:
        """How the parts are stored."""
        storage: Storage = self.X.storage
        known = kernels.Readable(storage.entries, self.n_features, sparse=True)
        by_pairs = not storage.dense and kernels.wanted_for_rows(known)
        return storage if by_pairs else storage._replace(pairs_per_row=math.inf)

    def _known_targets(self, name: str, *given: Any) -> list[Any]:
        if name not in self._of_targets:
            self._of_targets[name] = self.parts.each("targets", *given)
        found: list[Any] = self._of_targets[name]
        return found

    def target_sizes(self) -> tuple[float, float, float]:
        """Return the norm of the targets, and the shares of positive and negative ones."""
        given = tasks.of_model, self.loss, "target_sizes"
        sizes, above, below = zip(*self._known_targets("sizes", *given), strict=True)
        return math.hypot(*sizes), math.fsum(above), math.fsum(below)

    def new_name(self, n_classes: int = 1) -> Any:
        """Return the name under which parts store a new point."""
        raise NotImplementedError

    def of_rows(self, rows: RowNumbers, l2: float) -> LinearModel:
        """Return a model of some rows, which are fetched in one round trip."""
        found = self.taken(np.asarray(rows))
        weights = found.shares if self.weighted and found.shares.any() else None
        shares = row_shares(weights, rows.size)
        return self._of_data(found.X, found.y, weights, shares, l2)

    def at(self, w: npt.ArrayLike, margins: Any = None) -> PartedPoint:  # noqa: ARG002
        """Return the point w: one round trip."""
        return PartedPoint(self, self._parameters(w).copy())

    def between(self, p: Any, q: Any, t: float) -> PartedPoint:
        """Return the point p + t (q - p): no pass over the rows until its gradient is needed."""
        where = Where(self.new_name(), self.loss, (p.where.name, q.where.name, t))
        return PartedPoint(self, p.w + t * (q.w - p.w), where)

    def sampled(self, count: int, seed: Any, by: Any, caution: float = 0.0) -> CurvedRows:
        """Return rows drawn by their curvature at a point, the same for any split."""
        given = *by.ref, caution
        found = self.parts.each("curvature", tasks.curvature_sums, *given)
        sums, n_curved = np.array([one[0] for one in found]), sum(one[1] for one in found)
        weight, places, scale = float(sums.sum()), list[Vector | None]([None] * len(found)), 1.0
        if n_curved <= min(count, MOST_SAMPLED * self.n_samples):
            count = n_curved
        elif count >= n_curved:
            count = self.n_samples
        else:
            places = [*_places_in_parts(sums, np.random.default_rng(seed).random(count))]
            scale = weight / count
        gram = self._added_grams(tasks.gram_drawn, *given, self.columns, by_part=[places])
        return CurvedRows(count, n_curved, weight, scale * gram)

    def _added_grams(self, *given: Any, by_part: Sequence[Any] = ()) -> Matrix:
        """Return the sum over the parts of a task's matrices of second derivatives."""
        size = 8 * self.n_parameters**2
        total: Matrix = self.parts.total("gram-matrix", *given, by_part=by_part, result_bytes=size)
        return total

    def gram_of_columns(self) -> Matrix:
        """Return sum_i p_i a_i a_i', cached."""
        given = tasks.gram_sum, self.columns
        gram: Matrix = self.of_data_alone("gram", self._added_grams, *given)
        return gram

    def column_squares(self) -> Vector:
        """Return sum_i p_i x_ij^2 for the columns of X, cached."""
        given = "columns", tasks.of_model, self.loss, "column_squares"
        squares: Vector = self.of_data_alone("squares", self.parts.total, *given)
        return squares

    def best_constant(self) -> float:
        """Return nearly the best constant prediction: the mean, or a quantile of some targets."""
        found = self._known_targets(
            "some", tasks.target_sums, max(1, SOME_TARGETS // self.X.ends.size)
        )
        if self.loss.lipschitz == np.inf:
            # Rounding may move the mean of equal targets beyond them and hide a minimum of 0.
            mean = math.fsum(part[0] for part in found)
            low, high = (choose(part[i] for part in found) for i, choose in ((3, min), (4, max)))
            return float(min(max(mean, low), high))
        level = -self.loss.shape.low / (self.loss.shape.high - self.loss.shape.low)
        y, shares = (np.concatenate([some[i] for some in found]) for i in (1, 2))
        return weighted_quantile(y, shares, level)

    def good_constants(self) -> list[float]:
        """Return the best constant prediction, nearly."""
        return [self.best_constant()]

    def losses_of(self, constants: Sequence[float]) -> Vector:
        """Return the mean losses of constant predictions: one round trip."""
        given = tasks.of_model, self.loss, "losses_of", list(constants)
        losses: Vector = self.parts.total("data", *given)
        return losses

    def batch_value_and_gradient(
        self, w: npt.ArrayLike, rows: npt.ArrayLike
    ) -> tuple[float, Vector]:
        """Return estimates of P(w) and its gradient from some rows: one round trip."""
        w, chosen = self._parameters(w), self._checked_rows(rows)
        pieces, _ = split_by_part(chosen, self.X.ends)
        value, gradient = self.parts.total(
            "minibatch", tasks.batch_sums, w, self.loss, by_part=[pieces]
        )
        scale = self.n_samples / chosen.size
        return scale * value + self._penalty(w), self._with_penalty(scale * gradient, w)

    def taken(self, rows: RowNumbers) -> TakenRows:
        """Return some rows in the given order: one round trip."""
        pieces, order = split_by_part(rows, self.X.ends)
        back = np.argsort(order, kind="stable")
        given = tasks.of_model, self.loss, "taken"
        found: list[TakenRows] = self.parts.each("sample", *given, by_part=[pieces])
        Xs = [one.X for one in found if one.X.shape[0]]
        dense = self.X.storage.dense
        X = np.vstack(Xs) if dense else sp.vstack([sp.csr_matrix(X) for X in Xs], format="csr")
        y, shares = (np.concatenate([one[i] for one in found])[back] for i in (1, 2))
        return TakenRows(X.astype(self.X.dtype, copy=False)[back], y, shares)

    def over_chunks(self, function: Callable[[Any, Vector], Any]) -> list[Any]:
        """Return a function's result on the rows and shares of each part, computed there."""
        found = self.parts.each("columns", tasks.of_model, self.loss, "over_chunks", function)
        return [one for (one,) in found]


def weighted_quantile(y: Vector, weights: Vector | None, level: float) -> float:
    """Return a quantile of weighted numbers; equal weights count as none."""
    if weights is None or np.ptp(weights) == 0.0:
        return float(np.quantile(y, level))
    order = np.argsort(y)
    reached = np.cumsum(weights[order])
    return float(y[order[np.searchsorted(reached, level * reached[-1])]])
