"""Multinomial logistic regression of rows on a cluster: sums over them in place of the rows."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from accelegrad.dask import part as tasks
from accelegrad.dask.part import Where
from accelegrad.dask.row_model import RowModel, new_name
from accelegrad.errors import Vector
from accelegrad.models.gram import Matrix
from accelegrad.models.multinomial import MultinomialModel
from accelegrad.norms import norm
from accelegrad.proofs.multinomial_dual import Balance, MultinomialDual, balance
from accelegrad.solvers.classes import CurvedClasses, LocalClasses

#: Newton's directions are preconditioned by a sample of this many rows per parameter of a class,
#: and of at most so many entries, which is brought to the client.
ROWS_PER_PARAMETER, SAMPLE_ENTRIES = 30, 1 << 20


class ClusterClassesPoint(NamedTuple):
    """What is known at a point; margins and distributions stay with the rows."""

    point: Vector
    where: Where
    mean_loss: float
    value: float
    gradient: Vector


class ClusterClasses(MultinomialModel):
    """A `MultinomialModel` of rows that are on the workers of a cluster.

    Parameters
    ----------
    rows : RowModel
        The rows, with l2 term and intercept; their targets are the numbers of the classes.
    n_classes : int
        How many classes there are.
    """

    rows: RowModel

    def __init__(self, rows: RowModel, n_classes: int) -> None:
        self.rows, self.n_classes, self.l2 = rows, n_classes, rows.l2
        self.n_samples, self.n_features = rows.n_samples, rows.n_features
        self.n_weights = n_classes * self.n_features
        self.n_parameters = self.n_weights + n_classes * rows.fit_intercept
        self._at: ClusterClassesPoint | None = None

    def total(self, name: str, task: Any, *arguments: Any) -> Any:
        """Return the sum over the parts of what a task gives."""
        return self.rows.cluster.total(name, task, self.n_classes, *arguments)

    @cached_property
    def class_shares(self) -> Vector:
        """The share of each class's rows."""
        shares: Vector = self.total("classes", tasks.classes_shares)
        return shares

    def value_and_gradient(self, x: Vector) -> tuple[float, Vector]:
        """Return P and its gradient: one round trip."""
        at = self.at(x)
        return at.value, at.gradient

    def at(self, x: Vector) -> ClusterClassesPoint:  # type: ignore[override]
        """Return what is known at a point: one round trip, and none where it was the last one."""
        if self._at is None or not np.array_equal(self._at.point, x):
            x, where = x.copy(), Where(new_name())
            loss, gradient = self.total("value-and-gradient", tasks.classes_sums, where, x)
            weights = x[: self.n_weights]
            gradient[: self.n_weights] += self.l2 * weights
            value = loss + 0.5 * self.l2 * float(weights @ weights)
            self._at = ClusterClassesPoint(x, where, loss, value, gradient)
        return self._at

    def sample(self) -> MultinomialModel:
        """Return a model of some rows, drawn evenly, in memory."""
        size = self.n_features + self.rows.fit_intercept
        rows_that_fit = SAMPLE_ENTRIES * self.n_samples // max(1, self.rows.storage.entries)
        count = max(1, min(self.n_samples, ROWS_PER_PARAMETER * size, rows_that_fit))
        numbers = np.sort(np.random.default_rng(0).choice(self.n_samples, count, replace=False))
        X, y, shares, _ = self.rows.taken(numbers)
        weights = shares if shares.any() else np.ones(count)
        return MultinomialModel(
            X,
            y.astype(np.intp),
            self.n_classes,
            l2=self.l2,
            fit_intercept=self.rows.fit_intercept,
            sample_weight=weights,
        )


class ClusterClassesDual(MultinomialDual):
    """Lower bounds from sums over the parts."""

    model: ClusterClasses

    def at(self, x: Vector) -> float:
        """Return the lower bound by the distributions at a point: some round trips."""
        model, at = self.model, self.model.at(x)

        def shifted(shift: Vector) -> _Shifted:
            return _Shifted(*model.total("balance", tasks.classes_shifted, at.where, x, shift))

        unchanged = Balance(np.zeros(model.n_classes), 0.0, np.zeros(model.n_classes))
        chosen = unchanged
        if model.rows.fit_intercept:
            chosen = balance(shifted, self.class_shares())
        sums = model.total("dual", tasks.classes_distributions, at.where, x, chosen)
        return self.bound(sums)

    def class_shares(self) -> Vector:
        """Return the share of each class's rows."""
        return self.model.class_shares


class _Shifted(NamedTuple):
    mean: Vector
    products: Matrix


class ClusterCurvedClasses:
    """What Newton's method has to know: products with second derivatives are round trips.

    Directions are preconditioned by a sample of the rows.

    Parameters
    ----------
    model : ClusterClasses
        The model; its l2 has to be > 0.
    """

    def __init__(self, model: ClusterClasses) -> None:
        self.model = model
        self._local: CurvedClasses | None = None
        self._means: tuple[Where, Matrix] | None = None

    def value_and_gradient(self, x: Vector) -> tuple[float, Vector]:
        """Return value and gradient."""
        return self.model.value_and_gradient(x)

    def residual(self, point: Vector, gradient: Vector) -> float:
        """Return the norm of a gradient at the best intercepts, as far as it foretells that."""
        model = self.model
        W, b = model.split(gradient)
        if not model.rows.fit_intercept:
            return norm(W.ravel())
        return norm((W - b[:, None] * self._class_means(point)).ravel())

    def _class_means(self, point: Vector) -> Matrix:
        """Return the mean row for each class, by the curvature of the rows."""
        at = self.model.at(point)
        if self._means is None or self._means[0] != at.where:
            sums, rows = self.model.total("curvature", tasks.classes_means, at.where, at.point)
            sums = np.maximum(sums, np.finfo(np.float64).tiny)
            self._means = at.where, rows / sums[:, None]
        return self._means[1]

    def expected_gap(self, point: Vector) -> float:
        """Return the gap that the dual can be expected to prove at a point."""
        residual = self.residual(point, self.model.at(point).gradient)
        return residual * residual / (2.0 * self.model.l2)

    def along(self, point: Vector, direction: Vector) -> _Line:
        """Return the function along a direction."""
        return _Line(self.model, self.model.at(point), direction)

    def quadratic(self, point: Vector, left_out: float) -> _Quadratic:  # noqa: ARG002
        """Return the second derivatives at a point."""
        if self._local is None:
            self._local = CurvedClasses(self.model.sample())
        local = self._local.quadratic(point, 0.0)
        return _Quadratic(self, self.model.at(point), local)


class _Line:
    """The function along a direction: a round trip for each place."""

    def __init__(self, model: ClusterClasses, at: ClusterClassesPoint, direction: Vector) -> None:
        self._model, self._at, self._direction = model, at, direction
        self._line = Where(new_name())
        W, D = model.split(at.point)[0], model.split(direction)[0]
        self._straight = model.l2 * float(np.vdot(W, D))
        self._bend = model.l2 * float(np.vdot(D, D))

    def derivatives(self, t: float) -> tuple[float, float]:
        """Return the first and the second derivative at t."""
        at, way = self._at, (self._line, self._direction)
        found = self._model.total("line-search", tasks.classes_slope, at.where, at.point, *way, t)
        first, second = found
        return first + self._straight + t * self._bend, second + self._bend


class _Quadratic:
    """The second derivatives at a point: a round trip for each product, of vectors as they are."""

    def __init__(
        self, curved: ClusterCurvedClasses, at: ClusterClassesPoint, local: LocalClasses
    ) -> None:
        self._curved, self._model, self._at, self._local = curved, curved.model, at, local

    def arranged(self, vector: Vector) -> Vector:
        """Return a copy."""
        return vector.copy()

    def vector(self, arranged: Vector) -> Vector:
        """Return it as it is."""
        return arranged

    def residual(self, gradient: Vector) -> float:
        """Return the norm of a gradient at the best intercepts."""
        return self._curved.residual(self._at.point, gradient)

    def product(self, direction: Vector) -> Vector:
        """Return the second derivatives times a direction."""
        model, at = self._model, self._at
        found: Vector = model.total(
            "curvature", tasks.classes_product, at.where, at.point, direction
        )
        found[: model.n_weights] += model.l2 * direction[: model.n_weights]
        return found

    def precondition(self, gradient: Vector) -> Vector:
        """Return an approximation of their inverse times a gradient."""
        local = self._local
        return local.vector(local.precondition(local.arranged(gradient)))
