"""Multinomial logistic regression: one row of weights per class, as a function for `minimize`.

The objective is

    P(W, b) = sum_i p_i [log sum_k exp(m_ik) - m_i,c(i)] + l2 / 2 ||W||^2,    m = X W' + b,

with c(i) the class of row i and p_i = weight_i / sum(weights). The parameter vector holds the rows
of W one after the other, then the intercepts b, which are not penalised.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from accelegrad.errors import Vector, whole_number
from accelegrad.models.linear_model import LinearModel
from accelegrad.models.products import Products
from accelegrad.models.scaling import ColumnScaling
from accelegrad.models.streamed_model import model_of

Matrix = npt.NDArray[np.float64]


class ClassesPoint(NamedTuple):
    """What a multinomial model knows at a point."""

    point: Vector
    margins: Matrix
    distributions: Matrix  # of the rows over the classes
    value: float
    gradient: Vector


class MultinomialModel:
    r"""The regularised mean logistic loss of several classes, with gradients and a dual gap.

    Parameters
    ----------
    X : array or sparse matrix of shape (n_samples, n_features)
        As for `LinearModel`: float32 and float64 are kept without copying.
    classes : array of int of shape (n_samples,)
        The class of each row, from 0 to n_classes - 1.
    n_classes : int
        How many classes there are, at least 2.
    l2 : float
        The weight of the l2 term, at least 0.
    fit_intercept : bool
        Whether each class has an intercept, which is not penalised.
    sample_weight : array of shape (n_samples,), optional
        Nonnegative weights of the rows; only their ratios matter.
    """

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
        # The checks of data and weights, the shares of the rows and the columns' scaling are those
        # of a linear model; its targets, all of them +1, are not used.
        self.rows = model_of(X)(
            X,
            np.ones(index.shape),
            "logistic",
            l2=l2,
            fit_intercept=fit_intercept,
            sample_weight=sample_weight,
        )
        self._take(self.rows, index)

    @classmethod
    def of(cls, rows: LinearModel, classes: Any, n_classes: int) -> Self:
        """Return the model of the rows of a linear model, which are not checked again."""
        model = object.__new__(cls)
        model.n_classes = n_classes
        model._take(rows, classes)
        return model

    def _take(self, rows: LinearModel, classes: Any) -> None:
        self.rows, self.classes, self.l2 = rows, classes, rows.l2
        self.n_samples, self.n_features = rows.n_samples, rows.n_features
        self.n_weights = self.n_classes * self.n_features
        self.n_parameters = self.n_weights + self.n_classes * rows.fit_intercept

    def with_l2(self, l2: float) -> MultinomialModel:
        """Return a model of the same data, which are neither copied nor checked, by another l2."""
        other = copy(self)
        other.rows = self.rows.with_l2(l2)
        other.l2 = other.rows.l2
        return other

    def of_rows(self, rows: Any, l2: float) -> MultinomialModel:
        """Return a model of some rows, which are copied to memory but not checked again."""
        other = copy(self)
        other.rows, other.l2 = self.rows.of_rows(rows, l2), l2
        other.classes, other.n_samples = self.classes[rows], rows.size
        return other

    def value_and_gradient(self, x: Vector) -> tuple[float, Vector]:
        """Return P and its gradient."""
        at = self._part(x, None)
        return at.value, at.gradient

    def at(self, x: Vector) -> ClassesPoint:
        """Return what is known at a point, of which a copy is kept."""
        return self._part(x.copy(), None)

    def batch_value_and_gradient(self, x: Vector, rows: Any) -> tuple[float, Vector]:
        """Return estimates of P and its gradient from some rows, unbiased for uniform rows."""
        at = self._part(x, np.asarray(rows))
        return at.value, at.gradient

    def _part(self, x: Vector, rows: Any) -> ClassesPoint:
        """Return what is known, from all rows (None) or estimated from some."""
        W, b = self.split(x)
        classes = self.classes if rows is None else self.classes[rows]
        shares = self.shares_of(rows)
        products = self.rows.products if rows is None else Products(self.rows.X[rows])
        parts: list[tuple[Matrix, Matrix]] = []
        loss, sums = 0.0, np.zeros(self.n_classes)

        def slopes_of(where: slice, found: Matrix) -> Matrix:
            nonlocal loss, sums
            margins, p, own = found + b, shares[where], classes[where]
            distributions, totals = softmax(margins)
            index = np.arange(own.size)
            loss += float(p @ (totals - margins[index, own]))
            slopes = distributions * p[:, None]
            slopes[index, own] = (distributions[index, own] - 1.0) * p
            sums += slopes.sum(axis=0)
            parts.append((margins, distributions))
            return slopes

        weights = products.through(W.T, slopes_of).T + self.l2 * W
        value = loss + 0.5 * self.l2 * float(np.vdot(W, W))
        free = sums if self.rows.fit_intercept else np.zeros(0)
        known = parts[0] if len(parts) == 1 else map(np.concatenate, zip(*parts, strict=True))
        margins, distributions = known
        gradient = np.concatenate([weights.ravel(), free])
        return ClassesPoint(x, margins, distributions, value, gradient)

    def split(self, x: Vector) -> tuple[Matrix, Vector]:
        """Return W, of shape (n_classes, n_features), and b, zeros where there is none."""
        W = x[: self.n_weights].reshape(self.n_classes, self.n_features)
        return W, x[self.n_weights :] if self.rows.fit_intercept else np.zeros(self.n_classes)

    def shares_of(self, rows: Any) -> Vector:
        """Return what each of these rows counts, such that a sum over them estimates the whole."""
        shares = self.rows.shares
        return shares if rows is None else shares[rows] * (self.n_samples / rows.size)

    def margins(self, products: Products | None, x: Vector) -> Matrix:
        """Return the margins of some rows, or of all (None)."""
        W, b = self.split(x)
        return (products or self.rows.products).forward(W.T) + b

    def combined(self, products: Products | None, slopes: Matrix, W: Matrix) -> Vector:
        """Return the gradient that these slopes, times the rows' shares, make."""
        weights = (products or self.rows.products).backward(slopes).T + self.l2 * W
        if not self.rows.fit_intercept:
            return weights.ravel()
        return np.concatenate([weights.ravel(), slopes.sum(axis=0)])


def softmax(margins: Matrix) -> tuple[Matrix, Vector]:
    """Return exp(m_ik) / sum_k exp(m_ik), a new array, and log sum_k exp(m_ik)."""
    largest = margins.max(axis=1)
    shares = np.exp(margins - largest[:, None])
    sums = shares.sum(axis=1)
    shares /= sums[:, None]
    return shares, largest + np.log(sums)


class ScaledClasses:
    """The change of coordinates that scales the columns, for each class: see `ColumnScaling`.

    Parameters
    ----------
    change : ColumnScaling
        The change for the coefficients of one class, with its intercept where there is one.
    n_classes : int
        How many classes there are.
    """

    def __init__(self, change: ColumnScaling, n_classes: int) -> None:
        self.of_one, self._n_classes = change, n_classes

    @property
    def scale(self) -> Vector:
        """What the weights are multiplied by, all classes' one after the other."""
        return np.tile(self.of_one.scale, self._n_classes)

    def apply(self, v: Vector) -> Vector:
        """Return x = T v."""
        return self._mapped(self.of_one.apply, v)

    def adjoint(self, gradient: Vector) -> Vector:
        """Return T' g, the gradient with respect to v."""
        return self._mapped(self.of_one.adjoint, gradient)

    def invert(self, x: Vector) -> Vector:
        """Return v, such that T v = x."""
        return self._mapped(self.of_one.invert, x)

    def invert_adjoint(self, gradient: Vector) -> Vector:
        """Return g, such that T' g is the gradient given."""
        return self._mapped(self.of_one.invert_adjoint, gradient)

    def _mapped(self, change: Callable[[Vector], Vector], x: Vector) -> Vector:
        """Change each class's weights and intercept, which stand apart."""
        size = self._n_classes * self.of_one.scale.size
        rows = x[:size].reshape(self._n_classes, -1)
        if x.size == size:
            return np.concatenate([change(row) for row in rows])
        changed = np.array([change(row) for row in np.column_stack([rows, x[size:]])])
        return np.concatenate([changed[:, :-1].ravel(), changed[:, -1]])
