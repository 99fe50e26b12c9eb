"""Multinomial logistic regression, with one row of weights per class.

    P(W, b) = sum_i p_i [log sum_k exp(m_ik) - m_i,c(i)] + l2 / 2 ||W||^2,    m = X W' + b,

with c(i) the class of row i and shares p_i. The parameter vector holds the rows of W one after the
other, then the intercepts b, which are not penalised.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from accelegrad.errors import Vector, whole_number
from accelegrad.models.linear_model import LinearModel
from accelegrad.models.parted_model import PartedModel
from accelegrad.models.row_parts import Where
from accelegrad.models.streamed_model import StreamedMatrix, StreamedModel

Matrix = npt.NDArray[np.float64]


class ClassesPoint:
    """A point of a multinomial model: margins, and further values on demand."""

    def __init__(self, model: MultinomialModel, point: Vector, margins: Matrix) -> None:
        self.model, self.point, self.margins = model, point, margins

    @cached_property
    def _softmax(self) -> tuple[Matrix, Vector]:
        return softmax(self.margins)

    @property
    def distributions(self) -> Matrix:
        """Each row's distribution over the classes."""
        return self._softmax[0]

    @cached_property
    def mean_loss(self) -> float:
        """The objective without the l2 term."""
        model = self.model
        own = self.margins[np.arange(model.n_samples), model.classes]
        return float(model.rows.shares @ (self._softmax[1] - own))

    @property
    def value(self) -> float:
        """The objective."""
        return self.mean_loss + self.model.penalty(self.point)

    @cached_property
    def gradient(self) -> Vector:
        """The gradient: one product with the transpose of X."""
        model, shares, index = self.model, self.model.rows.shares, np.arange(self.model.n_samples)
        slopes = self.distributions * shares[:, None]
        slopes[index, model.classes] = (self.distributions[index, model.classes] - 1.0) * shares
        return model.combined(slopes, model.split(self.point)[0])


class MultinomialModel:
    """The regularised mean multinomial loss of classes 0 to n_classes - 1; see `LinearModel`."""

    def __init__(
        self,
        X: Any,
        classes: npt.ArrayLike,
        n_classes: int,
        *,
        l2: float = 0.0,
        fit_intercept: bool = False,
        sample_weight: npt.ArrayLike | None = None,
    ) -> None:
        self.n_classes = whole_number("n_classes", n_classes, least=2)
        index = np.asarray(classes)
        if index.dtype.kind not in "iu" or (
            index.size and not 0 <= index.min() <= index.max() < self.n_classes
        ):
            raise ValueError(f"classes must hold whole numbers from 0 to {self.n_classes - 1}.")
        # A linear model checks the data and holds the shares; its targets, all +1, are not used.
        options: dict[str, Any] = {"l2": l2, "fit_intercept": fit_intercept}
        rows = LinearModel(X, np.ones(index.shape), sample_weight=sample_weight, **options)
        self._take(rows, index)

    @classmethod
    def of(cls, rows: LinearModel, classes: Any, n_classes: int) -> Self:
        """Return the model of a linear model's rows, which are not checked again."""
        model = object.__new__(cls)
        model.n_classes = n_classes
        model._take(rows, classes)
        return model

    def _take(self, rows: LinearModel, classes: Any) -> None:
        self.rows, self.classes, self.l2 = rows, classes, rows.l2
        self.n_samples, self.n_features = rows.n_samples, rows.n_features
        self.n_weights = self.n_classes * self.n_features
        self.n_parameters = self.n_weights + self.n_classes * rows.fit_intercept

    def with_l2(self, l2: float) -> Self:
        """Return a model of the same data with another l2."""
        other = copy(self)
        other.rows = self.rows.with_l2(l2)
        other.l2 = other.rows.l2
        return other

    def of_rows(self, rows: Any, l2: float) -> MultinomialModel:
        """Return a model of some rows, which are copied to memory but not checked again."""
        some = self.rows.of_rows(rows, l2)
        return MultinomialModel.of(some, self._classes_of(rows, some.y), self.n_classes)

    @cached_property
    def class_shares(self) -> Vector:
        """The share of each class."""
        shares = np.bincount(self.classes, self.rows.shares, self.n_classes)
        return shares.astype(np.float64)

    def value_and_gradient(self, x: Vector) -> tuple[float, Vector]:
        """Return P and its gradient."""
        at = self.at(x)
        return at.value, at.gradient

    def at(self, x: Vector, margins: Matrix | None = None) -> Any:
        """Return the point x, which is copied; its margins are computed if not given."""
        if margins is None:
            W, b = self.split(x)
            margins = self.rows.products.forward(W.T) + b
        return ClassesPoint(self, x.copy(), margins)

    def total(self, name: str, task: Callable[..., Any], at: Any, *more: Any) -> Any:  # noqa: ARG002
        """Return a task's result on the rows and a point, summed over parts."""
        return task(None, at, *more)

    def batch_value_and_gradient(self, x: Vector, rows: Any) -> tuple[float, Vector]:
        """Return estimates of P and its gradient from some rows, unbiased for uniform rows."""
        rows = np.asarray(rows)
        X, y, shares = self.rows.taken(rows)
        shares = shares * (self.n_samples / y.size)
        some = self.rows._of_data(X, y, shares, shares, self.l2)
        return MultinomialModel.of(
            some, self._classes_of(rows, y), self.n_classes
        ).value_and_gradient(x)

    def _classes_of(self, rows: Any, y: Vector) -> Any:  # noqa: ARG002
        return self.classes[rows]

    def penalty(self, x: Vector) -> float:
        """Return the l2 term."""
        weights = x[: self.n_weights]
        return 0.5 * self.l2 * float(weights @ weights)

    def split(self, x: Vector) -> tuple[Matrix, Vector]:
        """Return W, of shape (n_classes, n_features), and b, zeros without intercepts."""
        W = x[: self.n_weights].reshape(self.n_classes, self.n_features)
        return W, x[self.n_weights :] if self.rows.fit_intercept else np.zeros(self.n_classes)

    def combined(self, slopes: Matrix, W: Matrix) -> Vector:
        """Return the gradient for slopes that include the rows' shares."""
        weights = self.rows.products.backward(slopes).T + self.l2 * W
        free = slopes.sum(axis=0) if self.rows.fit_intercept else np.zeros(0)
        return np.concatenate([weights.ravel(), free])


class PartedPoint:
    """A point of `PartedClasses`; margins and distributions stay with the rows."""

    def __init__(self, model: PartedClasses, point: Vector) -> None:
        self.model, self.point = model, point
        self.where = Where(model.rows.new_name(model.n_classes), model.n_classes)
        found = model.rows.parts.total("value-and-gradient", _loss_and_gradient, *self.ref)
        self.mean_loss, self.gradient = found
        self.gradient[: model.n_weights] += model.l2 * point[: model.n_weights]
        self.value = self.mean_loss + model.penalty(point)

    @property
    def ref(self) -> tuple[Where, Vector]:
        """The arguments by which tasks find the point."""
        return self.where, self.point


class PartedClasses(MultinomialModel):
    """A `MultinomialModel` of rows in parts, whose targets are class numbers."""

    rows: PartedModel
    _at: PartedPoint | None = None

    @cached_property
    def class_shares(self) -> Vector:
        """The share of each class."""
        shares: Vector = self.rows.parts.total("classes", _class_shares, self.n_classes)
        return shares

    def at(self, x: Vector, margins: Matrix | None = None) -> PartedPoint:  # noqa: ARG002
        """Return the point x: one pass, and none if x was the last point."""
        known = self._at
        if known is None or known.model is not self or not np.array_equal(known.point, x):
            known = self._at = PartedPoint(self, x.copy())
        return known

    def total(self, name: str, task: Callable[..., Any], at: Any, *more: Any) -> Any:
        """Return a task's result on the rows and a point, summed over parts."""
        refs = [part for one in (at, *more) for part in getattr(one, "ref", (one,))]
        return self.rows.parts.total(name, task, *refs)

    def _classes_of(self, rows: Any, y: Vector) -> Any:  # noqa: ARG002
        return y.astype(np.intp)


def classes_model(X: Any, classes: Any, n_classes: int, **options: Any) -> MultinomialModel:
    """Return the multinomial model of rows in memory or in a stream."""
    if not isinstance(X, StreamedMatrix):
        return MultinomialModel(X, np.asarray(classes).astype(np.intp), n_classes, **options)
    # The squared loss accepts class numbers as targets.
    return PartedClasses.of(StreamedModel.of(X, classes, "squared", **options), None, n_classes)


def _loss_and_gradient(part: Any, at: ClassesPoint) -> tuple[float, Vector]:  # noqa: ARG001
    # A copy: workers may be threads of the client, which adds the l2 term in place.
    return at.mean_loss, at.gradient.copy()


def _class_shares(part: Any, n_classes: int) -> Vector:
    shares: Vector = part.model(n_classes).class_shares
    return shares


def softmax(margins: Matrix) -> tuple[Matrix, Vector]:
    """Return exp(m_ik) / sum_k exp(m_ik), a new array, and log sum_k exp(m_ik)."""
    largest = margins.max(axis=1)
    shares = np.exp(margins - largest[:, None])
    sums = shares.sum(axis=1)
    shares /= sums[:, None]
    return shares, largest + np.log(sums)
