"""A sum over rows that are on the workers of a Dask cluster."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np

from accelegrad.dask import part as own_tasks
from accelegrad.dask.blocks import ClusterData, RowSettings, pieces_of
from accelegrad.dask.cluster import Cluster, connected
from accelegrad.errors import Vector
from accelegrad.models.losses import make_loss
from accelegrad.models.matrix import Storage
from accelegrad.models.parted_model import PartedModel

if TYPE_CHECKING:
    from distributed import Client


class ClusterMatrix:
    """The rows on the workers as a matrix."""

    ndim = 2

    def __init__(self, cluster: Cluster, data: ClusterData) -> None:
        self.cluster, self.ends = cluster, data.ends
        self.shape = (data.n_samples, data.n_features)
        self.storage, self.dtype = data.storage, data.dtype

    def fingerprint(self) -> str:
        """Return a hash of the contents and blocks."""
        found = self.cluster.each("fingerprint", own_tasks.fingerprint)
        return hashlib.blake2b("".join(found).encode()).hexdigest()


class RowModel(PartedModel):
    """A `LinearModel` of rows that are on the workers of a Dask cluster.

    The objective and the sampled rows equal those of a `LinearModel` of all rows up to rounding,
    however the rows are split. An evaluation is one round trip: w goes out, sums as long as w come
    back. The methods "dual-ascent" and "interior-point" need rows in memory.

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
        Seconds after which a round trip fails, with an error that names the workers it waits for;
        by default never.

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

    has_columns = True  # the workers copy them
    weighted: bool = False
    X: ClusterMatrix

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
    ) -> None:
        chosen = make_loss(loss, quantile=quantile, epsilon=epsilon, delta=delta)
        data = ClusterData(connected(client), pieces_of(X, y, sample_weight), timeout)
        self._take_data(data, RowSettings(chosen, fit_intercept), l2)

    @classmethod
    def of_data(cls, data: ClusterData, settings: RowSettings, l2: float) -> RowModel:
        """Return a model of blocks that are already on the cluster."""
        model = object.__new__(cls)
        model._take_data(data, settings, l2)
        return model

    def _take_data(self, data: ClusterData, settings: RowSettings, l2: float) -> None:
        self.cluster = self.parts = data.parts(settings)
        self.weighted = data.weighted or settings.weigh is not None or data.is_counted
        self._set_up(ClusterMatrix(self.cluster, data), settings.loss, l2, settings.fit_intercept)

    def _targets(self) -> tuple[Vector, Vector]:
        def gathered() -> tuple[Vector, ...]:
            found = self.cluster.each("targets", own_tasks.targets_of)
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
        """The shares of all rows, None if they are equal."""
        return self.shares if self.weighted else None

    def new_name(self, n_classes: int = 1) -> str:  # noqa: ARG002
        """Return the name under which parts store a new point."""
        return uuid4().hex

    def of_columns(self, columns: Any, l2: float) -> RowModel:
        """Return a model with the curvature of some columns; None: of all."""
        other: Any = self.with_l2(l2)
        if columns is not None:
            other.columns, other.n_features = columns, int(columns.size)
            other.n_parameters = other.n_features + self.fit_intercept
            other._of_data_alone = {"squares": self.column_squares()[columns]}
        return other  # type: ignore[no-any-return]

    @property
    def storage(self) -> Storage:
        """How the rows are stored; for some columns, a round trip in which workers copy them."""
        if self.columns is None:
            return super().storage

        def found() -> Storage:
            entries = self.cluster.total("columns", own_tasks.entries_of_columns, self.columns)
            return Storage(int(entries), self.X.storage.dense, np.inf)

        storage: Storage = self.of_data_alone("storage", found)
        return storage
