"""A sum over rows that are on the workers of a Dask cluster."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from accelegrad.dask import part as tasks
from accelegrad.dask.blocks import ClusterData, RowSettings, pieces_of, split_by_part
from accelegrad.dask.cluster import Cluster, connected
from accelegrad.dask.part import Mixture, PointSums, Where
from accelegrad.errors import Vector
from accelegrad.models.gram import Matrix, Storage
from accelegrad.models.linear_model import LinearModel, ModelPoint
from accelegrad.models.losses import make_loss
from accelegrad.models.model_input import checked_intercept, checked_l2, row_shares
from accelegrad.models.rounding import DataRounding
from accelegrad.models.row_blocks import RowNumbers
from accelegrad.models.row_curvature import MOST_SAMPLED
from accelegrad.models.rows_elsewhere import RowsElsewhere
from accelegrad.models.sampled_rows import LocalRows, ModelRows, TakenRows

if TYPE_CHECKING:
    from distributed import Client

    from accelegrad.dask.dual import ClusterDual
    from accelegrad.proofs.fenchel import DataSums, Terms


class ClusterMatrix:
    """The rows on the workers as a matrix: what is asked for of it comes from there."""

    ndim = 2

    def __init__(self, cluster: Cluster, data: ClusterData) -> None:
        self.cluster, self.ends = cluster, data.ends
        self.shape = (data.n_samples, data.n_features)
        self.storage, self.dtype = data.storage, data.dtype

    @property
    def nnz(self) -> int:
        """The number of stored entries."""
        return self.storage.entries

    def split(self, rows: RowNumbers) -> tuple[list[RowNumbers], RowNumbers]:
        """Return the rows of each part, by their numbers in it, and where each stands in `rows`."""
        return split_by_part(rows, self.ends)

    def taken(self, rows: RowNumbers, at: ClusterPoint | None = None) -> TakenRows:
        """Return some rows, in the order of their numbers given: one round trip."""
        pieces, order = self.split(rows)
        if at is None:
            found = self.cluster.each("sample", tasks.taken, by_part=[pieces])
        else:
            found = self.cluster.each("sample", tasks.taken_at, *at.ref, by_part=[pieces])
        return self.joined(found, np.argsort(order, kind="stable"))

    def joined(self, found: Sequence[TakenRows], order: Any = slice(None)) -> TakenRows:
        """Return rows of all parts as one, in an order."""
        Xs, ys, shares, known = zip(*found, strict=True)
        X = self._stacked([X for X in Xs if X.shape[0]] or Xs[:1])[order]
        at = None
        if known[0] is not None:
            margins, slopes = (np.concatenate(column)[order] for column in zip(*known, strict=True))
            at = margins, slopes
        return TakenRows(X, np.concatenate(ys)[order], np.concatenate(shares)[order], at)

    def _stacked(self, Xs: Any) -> Any:
        if self.storage.dense:
            return np.vstack(Xs).astype(self.dtype, copy=False)
        matrices = [sp.csr_matrix(X) for X in Xs]
        return sp.vstack(matrices, format="csr").astype(self.dtype, copy=False)

    def __getitem__(self, rows: RowNumbers) -> Any:
        """Return some rows, in the order of their numbers given, as a matrix in memory."""
        return self.taken(np.asarray(rows)).X

    def largest_entries(self, columns: Any) -> Vector:
        """Return the largest absolute value of some columns."""
        found = self.cluster.each("columns", tasks.largest_entries_of, columns)
        return np.asarray(np.max(found, axis=0))

    def fingerprint(self) -> str:
        """Return a text that differs for different contents or blocks."""
        found = self.cluster.each("fingerprint", tasks.fingerprint)
        return hashlib.blake2b("".join(found).encode()).hexdigest()


class ClusterPoint(ModelPoint):
    """What a sum on a cluster knows at a point: sums; margins and slopes stay with the rows."""

    __slots__ = ("_sums", "where")
    model: RowModel

    def __init__(self, model: RowModel, w: Vector, where: Where | None = None) -> None:
        self.model, self.w = model, w
        w.flags.writeable = False  # what is sent stays what it is, and is sent once
        self._sums: PointSums | None = None
        self.where = Where(uuid4().hex, model.loss) if where is None else where
        self._gradient = self._dual_value = self._mean_loss = None
        if where is None:  # a pass over the rows, which gives the gradient too
            self._evaluate(gradient=True)

    @property
    def ref(self) -> tuple[Where, Vector]:
        """The point as tasks are told of it."""
        return self.where, self.w

    def _evaluate(self, *, gradient: bool) -> PointSums:
        name = "value-and-gradient" if gradient else "value"
        sums: PointSums = self.model.cluster.total(name, tasks.sums_at, *self.ref, gradient)
        self._sums, self.where = sums, self.where._replace(between=None)  # the parts know it now
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
    def curved_share(self) -> float:
        """The share of the rows whose losses are curved here, all rows counting the same."""
        return self.sums.curved / self.model.n_samples

    @property
    def derivatives(self) -> ClusterSlopes:  # type: ignore[override]
        """The slopes, which stay with the rows."""
        return ClusterSlopes(self, self)

    def slopes_at(self, other: Any, caution: float = 0.0) -> ClusterSlopes:  # type: ignore[override]
        """Return the slopes at another point, as the second derivatives here foretell them."""
        return ClusterSlopes(self, other, Mixture(caution))

    def beside(self, model: LinearModel) -> ClusterPoint:
        """Return what a sum over the same rows by another loss knows at this point."""
        assert isinstance(model, RowModel)
        other = ClusterPoint(model, self.w, self.where._replace(by=model.loss))
        if self._sums is not None and self.model.loss.smoothing and not model.loss.smoothing:
            other._mean_loss = self._sums.plain_loss
        return other


class ClusterSlopes(NamedTuple):
    """A slope for each row, on the workers: those at a point, or what is made of them."""

    at: ClusterPoint
    other: ClusterPoint
    mixture: Mixture = Mixture()

    @property
    def ref(self) -> tuple[Any, ...]:
        """The slopes as tasks are told of them."""
        return *self.at.ref, *self.other.ref, self.mixture


class ClusterRows(ModelRows):
    """Rows drawn by their curvature, wherever they are: the `SampledRows` of the contract."""

    def __init__(
        self,
        model: RowModel,
        by: ClusterPoint,
        caution: float,
        size: int,
        seed: Any,
    ) -> None:
        self._rows_of, self._by = model, (*by.ref, caution)
        found = model.cluster.each("curvature", tasks.curvature_sums, *self._by)
        sums, counts = np.array([pair[0] for pair in found]), [pair[1] for pair in found]
        self.n_curved = int(sum(counts))
        few = self.n_curved <= min(size, MOST_SAMPLED * model.n_samples)
        self._all = few or size >= self.n_curved
        self._size = self.n_curved if few else model.n_samples if self._all else size
        self._total = float(sums.sum())
        self._places: Sequence[Vector | None] = [None] * len(found)
        if not self._all:
            random = np.random.default_rng(seed).random(size)
            self._places = _places_in_parts(sums, random)
        self._found: tuple[RowNumbers, Vector] | None = None

    @property
    def count(self) -> int:
        """How many rows there are, each as often as it was drawn."""
        return self._size

    @property
    def _weight(self) -> float:
        """What each row that was drawn weighs; 1 where all come with their weights."""
        return 1.0 if self._all else self._total / self._size

    def _look_up(self) -> tuple[RowNumbers, Vector]:
        """Return the numbers of the rows and their weights: a round trip, once."""
        if self._found is None:
            found = self._rows_of.cluster.each(
                "draw", tasks.drawn_numbers, *self._by, by_part=[self._places]
            )
            numbers, weights = (np.concatenate(column) for column in zip(*found, strict=True))
            self._found = numbers, self._weight * weights
        return self._found

    @property
    def numbers(self) -> RowNumbers:  # type: ignore[override]
        """The rows' numbers."""
        return self._look_up()[0]

    @property
    def weights(self) -> Vector:  # type: ignore[override]
        """With which each stands for the curvature of all."""
        if not self._all:
            return np.full(self._size, self._weight)
        return self._look_up()[1]

    def gram(self) -> Matrix:
        """Return sum_k weights_k a_k a_k'."""
        model, places = self._rows_of, [self._places]
        given = (tasks.gram_drawn, *self._by, model.columns)
        matrix: Matrix = model.cluster.total(
            "gram-matrix", *given, by_part=places, result_bytes=model.gram_bytes
        )
        return self._weight * matrix

    def local(self, at: Any) -> LocalRows | None:
        """Return the rows that have weight with what a point knows of them; None if none has."""
        model, arguments = self._rows_of, (*self._by, *at.ref)
        found = model.cluster.each("sample", tasks.drawn_rows, *arguments, by_part=[self._places])
        numbers, weights, rows = zip(*found, strict=True)
        chosen = np.concatenate(numbers)
        if not chosen.size:
            return None
        X, y, shares, known = model.X.joined(rows)
        assert known is not None
        X, weight = X.astype(np.float64, copy=False), self._weight * np.concatenate(weights)
        return LocalRows(chosen, X, model.fit_intercept, shares, y, *known, weight)


def _places_in_parts(sums: Vector, random: Vector) -> list[Vector]:
    """Return one place from each of equal pieces of a running sum, for each part those in it.

    Places count from where the part begins. None is in a part whose sum is 0, since a place is in
    the part that ends behind it.
    """
    ends, size = np.cumsum(sums), random.size
    places = (np.arange(size) + random) * (ends[-1] / size)
    owners = np.minimum(np.searchsorted(ends, places, side="right"), np.flatnonzero(sums)[-1])
    starts = np.concatenate([[0.0], ends[:-1]])
    return [places[owners == i] - starts[i] for i in range(sums.size)]


class RowModel(RowsElsewhere):
    """A `LinearModel` of rows that are on the workers of a Dask cluster.

    It is the same function as that of a `LinearModel` of all rows, and has the same samples, up to
    rounding, however the rows are split and wherever they are: see `accelegrad.models.row_sum`.
    An evaluation is one round trip: w goes out, sums as long as w come back. "dual-ascent"
    and "interior-point" need rows in memory.

    Parameters
    ----------
    X : dask.array, dask.dataframe, or list of delayed values or futures
        The rows, in blocks; of arrays the blocks may be dense or CSR matrices. Without `y`, the
        elements of a list are tuples ``(X, y)`` or ``(X, y, sample_weight)``.
    y : dask.array, dask.dataframe column, array, or list
        The targets, in the same blocks.
    loss, l2, fit_intercept, quantile, epsilon, delta
        As for `LinearModel`.
    sample_weight : like y, optional
        Nonnegative weights of the rows; only their ratios matter.
    client : distributed.Client, optional
        The cluster's client; by default the active one.
    timeout : float, optional
        After how many seconds without an answer a round trip fails, with an error that names the
        workers it waits for; by default never.
    most_blocks : int, optional
        Up to how many blocks those given are put together, in order; by default 64, or 4 for each
        thread of the cluster if these are more.
    keep : bool
        Whether the workers keep the blocks, in memory or spilled to disk. With False they are read
        again in each pass, from what X and y were made of: for data that not even the cluster's
        disks hold.

    Examples
    --------
    >>> import dask.array as da, accelegrad as ag
    >>> from accelegrad.dask import RowModel
    >>> from dask.distributed import Client
    >>> with Client(processes=False, dashboard_address=":0") as client:
    ...     X = da.random.RandomState(0).standard_normal((1000, 3), chunks=(250, 3))
    ...     y = da.where(X[:, 0] - X[:, 1] > 0.3, 1.0, -1.0)
    ...     result = ag.minimize(RowModel(X, y, "logistic", l2=1e-3), rtol=1e-6, rng=0)
    >>> bool(result.success)
    True
    """

    X: ClusterMatrix
    columns: Any = None  # those of which the curvature is asked for, if not all

    def __init__(
        self,
        X: Any,
        y: Any = None,
        loss: str = "logistic",
        *,
        l2: float = 0.0,
        fit_intercept: bool = False,
        sample_weight: Any = None,
        quantile: float = 0.5,
        epsilon: float = 0.1,
        delta: float = 1.35,
        client: Client | None = None,
        timeout: float | None = None,
        most_blocks: int | None = None,
        keep: bool = True,
    ) -> None:
        chosen = make_loss(loss, quantile=quantile, epsilon=epsilon, delta=delta)
        l2, fit_intercept = checked_l2(l2), checked_intercept(fit_intercept)
        pieces = pieces_of(X, y, sample_weight)
        data = ClusterData(connected(client), pieces, most_blocks, timeout, keep=keep)
        self._take_data(data, RowSettings(chosen, fit_intercept), l2)

    @classmethod
    def of_data(cls, data: ClusterData, settings: RowSettings, l2: float) -> RowModel:
        """Return a model of blocks that are on the cluster already."""
        model = object.__new__(cls)
        model._take_data(data, settings, l2)
        return model

    def _take_data(self, data: ClusterData, settings: RowSettings, l2: float) -> None:
        self.loss, self.fit_intercept, self.l2 = settings.loss, settings.fit_intercept, l2
        self.cluster = data.parts(settings)
        self.n_samples, self.n_features, self.dtype = data.n_samples, data.n_features, data.dtype
        self.n_parameters = self.n_features + self.fit_intercept
        self.weighted = data.weighted or settings.weigh is not None or data.is_counted
        self._take(ClusterMatrix(self.cluster, data))

    def __repr__(self) -> str:
        kind = "dense" if self.X.storage.dense else "CSR"
        weighted = ", weighted" if self.weighted else ""
        return (
            f"RowModel({self.n_samples} x {self.n_features} {kind} {self.dtype}{weighted}, "
            f"loss={self.loss!r}, l2={self.l2:g}, fit_intercept={self.fit_intercept})"
        )

    # -- what is as long as the rows are many, brought here where it is asked for ---------------

    def _targets(self) -> tuple[Vector, Vector]:
        def gathered() -> tuple[Vector, ...]:
            found = self.cluster.each("targets", tasks.targets_of)
            return tuple(np.concatenate(column) for column in zip(*found, strict=True))

        targets: tuple[Vector, Vector] = self.of_data_alone("targets", gathered)
        return targets

    @property
    def y(self) -> Vector:  # type: ignore[override]
        """The targets of all rows."""
        return self._targets()[0]

    @property
    def shares(self) -> Vector:  # type: ignore[override]
        """The shares of all rows."""
        return self._targets()[1]

    @property
    def sample_weight(self) -> Vector | None:  # type: ignore[override]
        """The shares of all rows where they are not the same."""
        return self.shares if self.weighted else None

    # -- the contract of a sum over rows ---------------------------------------------------------

    @property
    def has_columns(self) -> bool:
        """Whether `of_columns` can be asked: the workers copy them."""
        return True

    def of_columns(self, columns: Any, l2: float) -> RowModel:
        """Return a model that knows the curvature of some columns; None: of all."""
        other: Any = self.with_l2(l2)
        if columns is not None:
            other.columns, other.n_features = columns, int(columns.size)
            other.n_parameters = other.n_features + self.fit_intercept
            other._of_data_alone = {"squares": self.column_squares()[columns]}
        return other  # type: ignore[no-any-return]

    @property
    def storage(self) -> Storage:
        """How the rows are stored: of some columns a round trip, in which the workers copy them."""
        if self.columns is None:
            return super().storage

        def found() -> Storage:
            entries = self.cluster.total("columns", tasks.entries_of_columns, self.columns)
            return Storage(int(entries), self.X.storage.dense, np.inf)

        storage: Storage = self.of_data_alone("storage", found)
        return storage

    def at(self, w: npt.ArrayLike) -> ClusterPoint:
        """Return what is known at w: one round trip."""
        return ClusterPoint(self, self._parameters(w).copy())

    def between(self, p: Any, q: Any, t: float) -> ClusterPoint:
        """Return what is known at p + t (q - p): no pass over the rows before its gradient."""
        where = Where(uuid4().hex, self.loss, (p.where.name, q.where.name, t))
        return ClusterPoint(self, p.w + t * (q.w - p.w), where)

    def slope_between(self, p: Any, q: Any, t: float) -> float:
        """Return the derivative of P(p + t (q - p)) by t: no pass over the rows."""
        d = self.n_features
        move = q.w[:d] - p.w[:d]
        slope = float(self.cluster.total("line-search", tasks.slope_between, *p.ref, *q.ref, t))
        return slope + self.l2 * float((p.w[:d] + t * move) @ move)

    def sampled(self, count: int, seed: Any, by: Any = None, *, caution: float = 0.0) -> ModelRows:
        """Return rows that stand for all, the same for any split."""
        if by is None:
            return ModelRows(self, np.random.default_rng(seed).integers(self.n_samples, size=count))
        return ClusterRows(self, by, caution, count, seed)

    def gram(self, point: Any, rows: ModelRows) -> Matrix:
        """Return the second derivatives of the mean loss from sampled rows."""
        if isinstance(rows, ClusterRows):
            return rows.gram()
        numbers = rows.numbers
        assert numbers is not None
        pieces, _ = self.X.split(numbers)
        given = (tasks.gram_of_rows, *point.ref)
        matrix: Matrix = self.cluster.total(
            "gram-matrix", *given, by_part=[pieces], result_bytes=self.gram_bytes
        )
        return matrix * (self.n_samples / rows.count)

    @property
    def gram_bytes(self) -> int:
        """How many bytes a matrix of second derivatives has."""
        return 8 * self.n_parameters**2

    def gram_of_columns(self) -> Matrix:
        """Return sum_i p_i a_i a_i', found at the first call."""
        gram: Matrix = self.of_data_alone(
            "gram",
            lambda: self.cluster.total(
                "gram-matrix", tasks.gram_sum, self.columns, result_bytes=self.gram_bytes
            ),
        )
        return gram

    def column_squares(self) -> Vector:
        """Return sum_i p_i x_ij^2 for the columns, found at the first call."""
        squares: Vector = self.of_data_alone(
            "squares", lambda: self.cluster.total("columns", tasks.squares)
        )
        return squares

    def data_sums(self) -> DataSums:
        """Return what bounds the size of a minimiser, found at the first call."""
        sums: DataSums = self.of_data_alone(
            "data sums", lambda: self.cluster.total("data", tasks.data_sums)
        )
        return sums

    def best_constant(self) -> float:
        """Return the best constant prediction of numbers, or about it.

        It is the mean for squared losses, and for others a quantile of some of the targets.
        """
        found = self.of_data_alone(
            "some targets", lambda: self.cluster.each("targets", tasks.target_sums)
        )
        if self.loss.lipschitz == np.inf:
            return float(sum(mean for mean, _, _ in found))
        level = -self.loss.shape.low / (self.loss.shape.high - self.loss.shape.low)
        y, shares = (np.concatenate([some[i] for some in found]) for i in (1, 2))
        order = np.argsort(y)
        reached = np.cumsum(shares[order])
        return float(y[order[np.searchsorted(reached, level * reached[-1])]])

    def losses_of(self, constants: Sequence[float]) -> Vector:
        """Return the mean losses of constant predictions: one round trip."""
        given = (tasks.losses_of_constants, self.loss, list(constants))
        losses: Vector = self.cluster.total("data", *given)
        return losses

    def batch_value_and_gradient(
        self, w: npt.ArrayLike, rows: npt.ArrayLike
    ) -> tuple[float, Vector]:
        """Return estimates of P(w) and its gradient from some rows: one round trip."""
        w, chosen = self._parameters(w), self._checked_rows(rows)
        pieces, _ = self.X.split(chosen)
        value, gradient = self.cluster.total(
            "minibatch", tasks.batch_sums, w, self.loss, by_part=[pieces]
        )
        scale = self.n_samples / chosen.size
        return scale * value + self._penalty(w), self._with_penalty(scale * gradient, w)

    # -- values and gradients --------------------------------------------------------------------

    def _value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        at = ClusterPoint(self, w.copy())
        return at.value, at.gradient

    def of_rows(self, rows: RowNumbers, l2: float) -> LinearModel:
        """Return a model of some rows, brought here in one round trip."""
        found = self.X.taken(np.asarray(rows))
        weights = found.shares if self.weighted and found.shares.any() else None
        shares = row_shares(weights, rows.size)
        return self._of_data(found.X, found.y, weights, shares, l2)

    def taken(self, rows: RowNumbers, at: ModelPoint | None = None) -> TakenRows:
        """Return some rows, and what a point knows of them: one round trip."""
        assert at is None or isinstance(at, ClusterPoint)
        return self.X.taken(rows, at)

    def over_chunks(self, function: Callable[[Any, Vector], Any]) -> list[Any]:
        """Return what a function says of the rows and shares of each part, computed there."""
        return self.cluster.each("columns", tasks.on_rows, function)

    @property
    def rounding(self) -> DataRounding:
        """Bounds on the rounding of products with the data, found at the first call."""
        rounding: DataRounding = self.of_data_alone(
            "rounding",
            lambda: DataRounding(
                self.X, np.zeros(0), intercept=self.fit_intercept, squares=self.column_squares()
            ),
        )
        return rounding

    def dual_with(self, terms: Terms | None = None) -> ClusterDual:
        """Return lower bounds of the minimum, with other terms than the l2 term where given."""
        from accelegrad.dask.dual import ClusterDual

        return ClusterDual(self, terms, self._proved if terms is None else None)
