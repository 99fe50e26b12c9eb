"""Multinomial logistic regression of rows on a cluster: sums over them in place of the rows."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from accelegrad.dask import part as tasks
from accelegrad.dask.row_model import RowModel
from accelegrad.errors import Vector
from accelegrad.models.gram import Matrix
from accelegrad.models.multinomial import MultinomialModel
from accelegrad.models.row_blocks import RowNumbers
from accelegrad.models.row_parts import Where
from accelegrad.proofs.multinomial_dual import Balance, MultinomialDual, balance
from accelegrad.solvers.multinomial_newton import SampledClasses


class ClusterClassesPoint(NamedTuple):
    """What is known at a point; margins and distributions stay with the rows."""

    point: Vector
    where: Where
    mean_loss: float
    value: float
    gradient: Vector

    @property
    def ref(self) -> tuple[Where, Vector]:
        """The point as tasks are told of it."""
        return self.where, self.point


class ClusterClasses(MultinomialModel):
    """A `MultinomialModel` of a `RowModel`, whose targets are the numbers of the classes."""

    rows: RowModel
    _at: ClusterClassesPoint | None = None

    def with_l2(self, l2: float) -> ClusterClasses:
        """Return a model of the same rows with another weight of the l2 term."""
        other: Any = super().with_l2(l2)
        other._at = None
        return other  # type: ignore[no-any-return]

    @cached_property
    def class_shares(self) -> Vector:
        """The share of each class's rows."""
        shares: Vector = self.rows.cluster.total("classes", tasks.classes_shares, self.n_classes)
        return shares

    def value_and_gradient(self, x: Vector) -> tuple[float, Vector]:
        """Return P and its gradient: one round trip."""
        at = self.at(x)
        return at.value, at.gradient

    def at(self, x: Vector) -> ClusterClassesPoint:  # type: ignore[override]
        """Return what is known at a point: one round trip, and none where it was the last one."""
        if self._at is None or not np.array_equal(self._at.point, x):
            x, where = x.copy(), Where(uuid4().hex, self.n_classes)
            given = (tasks.classes_sums, where, x)
            loss, gradient = self.rows.cluster.total("value-and-gradient", *given)
            weights = x[: self.n_weights]
            gradient[: self.n_weights] += self.l2 * weights
            value = loss + 0.5 * self.l2 * float(weights @ weights)
            self._at = ClusterClassesPoint(x, where, loss, value, gradient)
        return self._at

    def of_rows(self, rows: RowNumbers, l2: float) -> MultinomialModel:
        """Return a model of some rows, which are brought here."""
        some = self.rows.of_rows(rows, l2)
        return MultinomialModel.of(some, some.y.astype(np.intp), self.n_classes)


class ClusterClassesDual(MultinomialDual):
    """Lower bounds from sums over the parts."""

    model: ClusterClasses

    def at(self, x: Vector) -> float:
        """Return the lower bound by the distributions at a point: some round trips."""
        model, at = self.model, self.model.at(x)

        def shifted(shift: Vector) -> _Shifted:
            given = (tasks.classes_shifted, *at.ref, shift)
            return _Shifted(*model.rows.cluster.total("balance", *given))

        chosen = Balance(np.zeros(model.n_classes), 0.0, np.zeros(model.n_classes))
        if model.rows.fit_intercept:
            chosen = balance(shifted, self.class_shares())
        given = (tasks.classes_distributions, *at.ref, chosen)
        return self.bound(model.rows.cluster.total("dual", *given))

    def class_shares(self) -> Vector:
        """Return the share of each class's rows."""
        return self.model.class_shares


class _Shifted(NamedTuple):
    mean: Vector
    products: Matrix


class ClusterCurvedClasses(SampledClasses):
    """What Newton's method has to know, second derivatives being those of a sample."""

    model: ClusterClasses

    def _shares_and_entries(self) -> tuple[Any, int]:
        return None, self.model.rows.storage.entries

    def _rows_with_weight(self) -> RowNumbers:
        return np.arange(self.model.n_samples)

    def _class_means(self, point: Vector) -> Matrix:
        at: Any = self._known(point)
        if self._means is None:
            given = (tasks.classes_means, *at.ref)
            sums, rows = self.model.rows.cluster.total("curvature", *given)
            self._means = rows / np.maximum(sums, np.finfo(np.float64).tiny)
        return self._means

    def along(self, point: Vector, direction: Vector) -> Any:
        """Return the function along a direction: a round trip, and one for each place."""
        return _Line(self.model, self._known(point), self.model.at(point + direction))


class _Line:
    """The function from one point to another: a round trip for each place between them."""

    def __init__(self, model: ClusterClasses, p: Any, q: Any) -> None:
        self._model, self._ends = model, (*p.ref, *q.ref)
        W, D = model.split(p.point)[0], model.split(q.point - p.point)[0]
        self._straight = model.l2 * float(np.vdot(W, D))
        self._bend = model.l2 * float(np.vdot(D, D))

    def derivatives(self, t: float) -> tuple[float, float]:
        """Return the first and the second derivative at t."""
        given = (tasks.classes_slope, *self._ends, t)
        first, second = self._model.rows.cluster.total("line-search", *given)
        return first + self._straight + t * self._bend, second + self._bend
