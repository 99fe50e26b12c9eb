"""Linear models: the weighted mean of a pointwise loss over rows, plus an l2 term.

P(w) = sum_i p_i l(m_i, y_i) + l2 / 2 ||w||^2 with margins m_i = <a_i, w> and shares p_i of sum 1.
An intercept is the last coordinate of w and is not penalised. The rows of a `LinearModel` are in
memory, those of a `PartedModel` in files (`StreamedModel`) or on a cluster. Both offer

    at(w)                    the point w, by one pass over the rows: value, gradient, dual_value...
    between(p, q, t)         the point p + t (q - p) without a pass: margins are affine
    sampled(count, seed, p)  rows drawn in proportion to their curvature p_i l'' at a point
    of_rows(rows, l2)        a model in memory of some rows

Samples are stratified, and do not depend on how the rows are split.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from accelegrad import kernels
from accelegrad.errors import Vector, finite_vector, real_array, real_number
from accelegrad.linalg import norm
from accelegrad.models.losses import Loss, check_labels, make_loss, targets
from accelegrad.models.matrix import (
    PAIR,
    SCIPY_PAIR,
    CurvedRows,
    Matrix,
    Products,
    RowBlock,
    RowNumbers,
    Storage,
    TakenRows,
    blas_seconds,
    checked_weights,
    column_squares,
    design_matrix,
    drawn_by_weight,
    gram_matrix,
    pairs_per_row,
    row_shares,
    row_squares,
)
from accelegrad.models.rounding import DataRounding, PointRounding

if TYPE_CHECKING:
    from accelegrad.kernels import gradient as one_pass_gradient


class ModelPoint:
    """A point of a linear model, computed on demand and cached; do not change its arrays."""

    __slots__ = ("_derivatives", "_dual_value", "_gradient", "_mean_loss", "margins", "model", "w")

    def __init__(self, model: LinearModel, w: Vector, margins: Vector | None = None) -> None:
        self.model = model
        self.w = w
        self._mean_loss: float | None = None
        self._derivatives: Vector | None = None
        self._gradient: Vector | None = None
        self._dual_value: float | None = None
        if margins is not None:
            self.margins = margins
        elif kernels.wanted(model._readable):
            found = model._one_pass(w, keep=True)
            self.margins, self._derivatives = found.margins, found.slopes
            self._mean_loss, self._gradient = found.loss, model._with_penalty(found.gradient, w)
        else:
            some = model.products.forward(w[: model.n_features]) if w.any() else None
            self.margins = np.zeros(model.n_samples) if some is None else some
            if model.fit_intercept:
                self.margins += w[-1]

    def beside(self, model: LinearModel) -> ModelPoint:
        """Return the same point of a model of the same data with another loss."""
        return ModelPoint(model, self.w, self.margins)

    @property
    def mean_loss(self) -> float:
        """The weighted mean of the losses, sum_i p_i l(m_i)."""
        if self._mean_loss is None:
            model = self.model
            losses, slopes = model.loss.value_and_derivative(self.margins, model.y)
            self._derivatives = slopes.astype(np.float64, copy=False)
            self._mean_loss = float(model.shares @ losses)
        return self._mean_loss

    @property
    def value(self) -> float:
        """The objective P(w)."""
        return self.mean_loss + self.model._penalty(self.w)

    @property
    def derivatives(self) -> Vector:
        """The slopes theta_i = l'(m_i)."""
        if self._derivatives is None:
            self._derivatives = self.model.slopes(self.margins)
        return self._derivatives

    @property
    def gradient(self) -> Vector:
        """A (sub)gradient of P at w: sum_i p_i theta_i a_i + l2 w."""
        if self._gradient is None:
            model = self.model
            self._gradient = model._with_penalty(model.combination(self.derivatives), self.w)
        return self._gradient

    @property
    def squared_slopes(self) -> float:
        """The mean square of the slopes, sum_i p_i theta_i^2."""
        theta = self.derivatives
        return float((self.model.shares * theta) @ theta)

    def curvatures(self, caution: float = 0.0) -> Vector:
        """Return p_i l''(m_i): see `Loss.second_derivative`."""
        model, slopes = self.model, self.derivatives
        curvatures = model.loss.second_derivative(self.margins, slopes, model.y, caution)
        curvatures *= model.shares
        return curvatures

    def slopes_at(self, other: ModelPoint, caution: float = 0.0) -> Vector:
        """Return the slopes at another point as the second derivatives here predict them."""
        model, slopes = self.model, self.derivatives
        curvatures = model.loss.second_derivative(self.margins, slopes, model.y, caution)
        low, high = model.loss.domain(model.y)
        moved: Vector = slopes + curvatures * (other.margins - self.margins)
        return np.minimum(np.maximum(moved, low), high)

    @property
    def dual_gap(self) -> float:
        """P(w) minus `dual_value`."""
        return max(self.value - self.dual_value, 0.0)

    @property
    def dual_value(self) -> float:
        """The lower bound of the minimum: see `LinearModel.dual_value`."""
        if self._dual_value is None:
            self._dual_value = float(self.model.dual.at(self))
        return self._dual_value


class LinearModel:
    r"""The regularised mean loss of a linear model, with its gradients, minibatches and dual gap.

    The objective is :math:`P(w) = \sum_i p_i\, l(m_i, y_i) + \frac{l_2}{2} \lVert w \rVert^2` with
    :math:`m = X w` (plus the intercept) and :math:`p_i = 1/n`, or proportional to `sample_weight`.

    Parameters
    ----------
    X : array or sparse matrix of shape (n_samples, n_features)
        It must not change afterwards: dense (C or Fortran order) and CSR data in float32 and
        float64 are not copied. Other sparse formats become CSR, integers and booleans float64. All
        computations are in float64.
    y : array of shape (n_samples,)
        Targets; for classification losses the labels -1 and +1.
    loss : str
        A name in `accelegrad.models.losses.LOSSES`: "logistic", "hinge", "squared", "quantile"...
    l2 : float
        The weight of the l2 term, at least 0.
    fit_intercept : bool
        Whether the last parameter is an intercept, which is not penalised.
    sample_weight : array of shape (n_samples,), optional
        Nonnegative weights of the rows; only their ratios matter.
    quantile, epsilon, delta : float
        Parameters of the losses "quantile", "epsilon_insensitive" (and its square) and "huber".

    Attributes
    ----------
    X, y, l2, fit_intercept, sample_weight
        As given, `y` and `sample_weight` as float64 copies.
    loss : Loss
        The pointwise loss.
    shares : Vector
        The weights p_i of the rows, which sum to 1.
    n_samples, n_features, n_parameters : int
        The shape of X, and the length of a parameter vector.
    dtype : dtype
        The floating type of X.
    """

    #: proves lower bounds; set by `accelegrad.proofs`, which builds on models
    prover: ClassVar[Callable[..., Any]]

    def __init__(
        self,
        X: Any,
        y: npt.ArrayLike,
        loss: str = "logistic",
        *,
        l2: float = 0.0,
        fit_intercept: bool = False,
        sample_weight: npt.ArrayLike | None = None,
        quantile: float = 0.5,
        epsilon: float = 0.1,
        delta: float = 1.35,
    ) -> None:
        chosen = make_loss(loss, quantile=quantile, epsilon=epsilon, delta=delta)
        self._set_up(design_matrix(X), chosen, l2, fit_intercept)
        self.y = targets(y, self.n_samples, self.loss)
        self.sample_weight = checked_weights(sample_weight, self.n_samples)
        self.shares = row_shares(self.sample_weight, self.n_samples)

    @staticmethod
    def of_checked(
        X: Any,
        y: Vector,
        weights: Vector | None,
        loss: Loss,
        *,
        l2: float,
        fit_intercept: bool,
        shares: Vector | None = None,
    ) -> LinearModel:
        """Return a model of X from `design_matrix` with checked targets and weights."""
        model = object.__new__(LinearModel)
        model._set_up(X, loss, l2, fit_intercept)
        model.y, model.sample_weight = y, weights
        model.shares = row_shares(weights, model.n_samples) if shares is None else shares
        return model

    def _set_up(self, X: Any, loss: Loss, l2: float, fit_intercept: bool) -> None:
        if not isinstance(fit_intercept, (bool, np.bool_)):
            raise TypeError(f"fit_intercept must be True or False, not {fit_intercept!r}.")
        self.loss, self.l2 = loss, real_number("l2", l2, least=0.0)
        self.fit_intercept = bool(fit_intercept)
        self.n_samples, self.n_features = map(int, X.shape)
        self.n_parameters, self.dtype = self.n_features + fit_intercept, X.dtype
        self.X = X
        self._readable = kernels.readable(X)
        self._of_data_alone: dict[str, Any] = {}  # shared by copies with another loss or l2 term
        self._proved: dict[str, Any] = {}  # the cache of `dual`
        self._kernel_data: one_pass_gradient.Data | None = None

    @property
    def weighted(self) -> bool:
        """Whether sample weights were given."""
        return self.sample_weight is not None

    def __repr__(self) -> str:
        kind = "dense" if self.storage.dense else "CSR"
        weighted = ", weighted" if self.weighted else ""
        return (
            f"{type(self).__name__}({self.n_samples} x {self.n_features} {kind} {self.dtype}"
            f"{weighted}, loss={self.loss!r}, l2={self.l2:g}, fit_intercept={self.fit_intercept})"
        )

    def with_loss(self, loss: Loss) -> LinearModel:
        """Return a model of the same data, neither copied nor checked, with another loss."""
        if not isinstance(loss, Loss):
            raise TypeError(f"loss must be a Loss, such as make_loss returns, not {loss!r}.")
        if loss.classification and not self.loss.classification:
            check_labels(self.y, loss)
        return self._with(loss=loss, _kernel_data=None)

    def with_l2(self, l2: float) -> LinearModel:
        """Return a model of the same data, neither copied nor checked, with another l2."""
        return self._with(l2=real_number("l2", l2, least=0.0))

    def with_targets(self, y: npt.ArrayLike) -> LinearModel:
        """Return a model of the same X, neither copied nor checked, with other targets."""
        return self._with(y=targets(y, self.n_samples, self.loss), _kernel_data=None)

    def _with(self, **attributes: Any) -> LinearModel:
        other = copy(self)
        vars(other).update(attributes, _proved={})
        return other

    def of_rows(self, rows: RowNumbers, l2: float) -> LinearModel:
        """Return a model of some rows, which are copied but not checked again."""
        weights = None if self.sample_weight is None else self.sample_weight[rows]
        # `take` is faster than indexing.
        X = np.take(self.X, rows, axis=0) if isinstance(self.X, np.ndarray) else self.X[rows]
        options: dict[str, Any] = {"l2": l2, "fit_intercept": self.fit_intercept}
        return LinearModel.of_checked(X, self.y[rows], weights, self.loss, **options)

    def taken(self, rows: RowNumbers) -> TakenRows:
        """Return some rows with their targets and shares."""
        return TakenRows(self.X[rows], self.y[rows], self.shares[rows])

    def over_chunks(self, function: Callable[[Any, Vector], Any]) -> Iterable[Any]:
        """Return a function's result on the rows and shares of each chunk, computed there."""
        return [function(self.X, self.shares)]

    def without_kernels(self) -> LinearModel:
        """Return the same model without compiled kernels."""
        return self._with(_readable=None)

    def of_columns(self, columns: Any, l2: float) -> LinearModel:
        """Return a model of some columns, copied but not checked again (None: all, not copied)."""
        if columns is None:
            other = self.with_l2(l2)
        else:
            X = self.X[:, columns]
            other = self._of_data(X, self.y, self.sample_weight, self.shares, l2)
        # If the whole is not worth compiling kernels for, some columns are not.
        return other if kernels.wanted(self._readable) else other.without_kernels()

    def _of_data(
        self, X: Any, y: Vector, weights: Vector | None, shares: Vector, l2: float
    ) -> LinearModel:
        options: dict[str, Any] = {"fit_intercept": self.fit_intercept, "shares": shares}
        return LinearModel.of_checked(X, y, weights, self.loss, l2=l2, **options)

    def smoothed(self, mu: float) -> LinearModel:
        """Return a model by the Moreau envelope of the loss: see `Loss.smoothed`."""
        return self.with_loss(self.loss.smoothed(mu))

    #: whether `of_columns` can be asked
    has_columns: ClassVar[bool] = True
    #: whether methods can go from row to row
    in_memory: ClassVar[bool] = True

    @property
    def storage(self) -> Storage:
        """How the rows are stored."""
        if isinstance(self.X, np.ndarray):
            return Storage(self.X.size, True, math.inf)
        pairs = self.of_data_alone("pairs", pairs_per_row, self.X)
        compiled = kernels.wanted_for_rows(self._readable)
        return Storage(self.X.nnz, False, pairs, PAIR if compiled else SCIPY_PAIR)

    def at(self, w: npt.ArrayLike, margins: Any = None) -> ModelPoint:
        """Return the point w; its margins are computed if not given, the rest on demand."""
        # A copy: the caller may change the array before the gradient is computed.
        return ModelPoint(self, self._parameters(w).copy(), margins)

    def between(self, p: Any, q: Any, t: float) -> ModelPoint:
        """Return the point p + t (q - p) without a product with X."""
        margins = p.margins + t * (q.margins - p.margins)
        return ModelPoint(self, p.w + t * (q.w - p.w), margins)

    def sampled(self, count: int, seed: Any, by: Any, caution: float = 0.0) -> CurvedRows:
        """Return rows drawn in proportion to their curvature at a point, or all if they are few."""
        curvatures = by.curvatures(caution)
        rows, weights = drawn_by_weight(curvatures, count, seed)
        n_curved, weight = int(np.count_nonzero(curvatures)), float(weights.sum())
        return CurvedRows(weights.size, n_curved, weight, self.gram(rows, weights))

    def gram(self, rows: RowNumbers | None, weights: Vector) -> Matrix:
        """Return sum_k weights_k a_k a_k' over some rows (None: all), with any intercept's 1."""
        storage = self.storage
        by_blas = blas_seconds(self.n_parameters, storage.dense)
        by_pairs = storage.pair == PAIR and PAIR * storage.pairs_per_row < by_blas
        parts = self.kernel_data().matrix if by_pairs else None
        return gram_matrix(self.X, rows, weights, intercept=self.fit_intercept, pairs_of=parts)

    def gram_of_columns(self) -> Matrix:
        """Return sum_i p_i a_i a_i', cached; for least squares this is the Hessian everywhere."""
        gram: Matrix = self.of_data_alone("gram", self.gram, None, self.shares)
        return gram

    def of_data_alone(self, name: str, compute: Callable[..., Any], *given: Any) -> Any:
        """Return a cached result that depends on X and the weights only, shared by copies."""
        if name not in self._of_data_alone:
            self._of_data_alone[name] = compute(*given)
        return self._of_data_alone[name]

    def row_squares(self) -> Vector:
        """Return the squared norms of the rows of X, cached."""
        squares: Vector = self.of_data_alone("row squares", row_squares, self.X)
        return squares

    def column_squares(self) -> Vector:
        """Return sum_i p_i x_ij^2 for the columns of X, cached."""
        known = self._of_data_alone.get("gram")
        if known is not None:
            diagonal: Vector = known.diagonal()[: self.n_features]
            return diagonal
        squares: Vector = self.of_data_alone("squares", column_squares, self.X, self.shares)
        return squares

    def value(self, w: npt.ArrayLike) -> float:
        """Return the objective P(w)."""
        return self.at(w).value

    def gradient(self, w: npt.ArrayLike) -> Vector:
        """Return a (sub)gradient of P at w, of length `n_parameters`."""
        return self.at(w).gradient

    def value_and_gradient(self, w: npt.ArrayLike) -> tuple[float, Vector]:
        """Return P(w) and a (sub)gradient there."""
        if kernels.wanted(self._readable):  # needs no vector with one entry per row
            w = self._parameters(w)
            found = self._one_pass(w)
            return found.loss + self._penalty(w), self._with_penalty(found.gradient, w)
        at = self.at(w)
        return at.value, at.gradient

    @property
    def dual(self) -> Any:
        """The `ModelDual` that proves lower bounds of the minimum."""
        return self.prover(self, kept=self._proved)

    def dual_with(self, terms: Any) -> Any:
        """Return the `ModelDual` with other terms than the l2 term."""
        return self.prover(self, terms)

    def dual_gap(self, w: npt.ArrayLike) -> float:
        r"""Return a proven bound of P(w) - min P, if `has_dual_bound`.

        With l2 > 0 it is P(w) minus the Fenchel dual

        .. math:: D(\theta) = -\sum_i p_i\, l^*(\theta_i)
                  - \frac{1}{2 l_2} \Big\lVert \sum_i p_i \theta_i a_i \Big\rVert^2

        at :math:`\theta_i = l'(m_i)`, or at a better multiple :math:`c\,\theta`, 0 <= c <= 1.
        Without an intercept the gap at theta is ||gradient||^2 / (2 l2). With an intercept theta
        must satisfy sum_i p_i theta_i = 0: the best intercept for these weights is used, and one
        side is scaled down to remove the remainder, at the cost of one or two products with X^T.
        The bound is lowered by the possible rounding error.

        With l2 = 0 theta must satisfy sum_i p_i theta_i a_i = 0 within the domain of the
        conjugates: see `accelegrad.proofs.null_space`. That costs a Gram matrix of X once, then
        about 5 to 50 gradients (up to 200 on sparse data). Columns dependent up to 1e-13 of their
        size count as dependent.
        """
        return self.at(w).dual_gap

    def dual_value(self, w: npt.ArrayLike) -> float:
        """Return a lower bound of min P, namely P(w) - `dual_gap` (w)."""
        return self.at(w).dual_value

    def dual_value_at(self, derivatives: npt.ArrayLike) -> float:
        """Return the Fenchel dual at given slopes theta, or at a multiple: a lower bound of min P.

        Slopes are first made feasible, as for `dual_gap`. The bound is at least 0 up to rounding,
        and 0 if the slope of a row with weight is outside the conjugate's domain.
        """
        theta = finite_vector("derivatives", derivatives)
        if theta.size != self.n_samples:
            raise ValueError(
                f"derivatives must have one entry per row, {self.n_samples} of them, but it has "
                f"{theta.size}."
            )
        return float(self.dual.at_slopes(theta))

    def rounding_at(self, w: Vector, value: float) -> PointRounding:
        """Return bounds of the rounding errors at w; no loss exceeds the value."""
        d = self.n_features
        intercept = float(w[d]) if self.fit_intercept else 0.0
        return self.rounding.at(self.loss, value, w[:d], intercept, self.l2)

    @property
    def rounding(self) -> DataRounding:
        """Bounds on the rounding of products with the data, cached."""
        rounding: DataRounding = self.of_data_alone("rounding", DataRounding, self)
        return rounding

    @property
    def has_dual_bound(self) -> bool:
        """Whether `dual_gap`, `dual_value` and `dual_value_at` can be computed.

        They can with l2 > 0, and otherwise with fewer parameters than rows, at most 1000, if the
        Gram matrix of X costs no more than some dozens of gradients, or a second.
        """
        return bool(self.dual.is_there)

    def batch_value_and_gradient(
        self, w: npt.ArrayLike, rows: npt.ArrayLike
    ) -> tuple[float, Vector]:
        """Return an estimate of P(w) from some rows B, which may repeat, and its gradient.

        That is ``(n / |B|) sum_{i in B} p_i l(m_i) + l2 / 2 ||w||^2``: unbiased for uniform rows.
        """
        w, rows = self._parameters(w), self._checked_rows(rows)
        if kernels.wanted(self._readable):
            found = self._one_pass(w, rows)
            return found.loss + self._penalty(w), self._with_penalty(found.gradient, w)
        features = w[: self.n_features]
        block = RowBlock(self.X, rows)
        margins, y = block.margins(features), self.y[rows]
        if self.fit_intercept:
            margins += w[-1]
        shares = self.shares[rows] * (self.n_samples / rows.size)
        losses, slopes = self.loss.value_and_derivative(margins, y)
        coefficients = shares * slopes
        value = float(shares @ losses) + self._penalty(w)
        gradient = self.l2 * w
        block.add_combination(coefficients, gradient[: self.n_features])
        if self.fit_intercept:
            gradient[-1] = coefficients.sum()
        return value, gradient

    def distance_bound(self, x0: npt.ArrayLike | None = None) -> float:
        """Return a bound of the distance from x0 (by default 0) to the minimiser w*.

        By strong convexity, l2 / 2 ||w* - x0||^2 <= P(x0) - min P <= `dual_gap` (x0); losses >= 0
        give l2 / 2 ||w*||^2 <= P(0). The bound is infinite if l2 = 0, and with an intercept.
        """
        start = np.zeros(self.n_parameters) if x0 is None else self._parameters(x0, "x0")
        return float(self.dual.distance_bound(start))

    @cached_property
    def products(self) -> Products:
        """Products with X and its transpose."""
        return Products(self.X)

    def kernel_data(self) -> one_pass_gradient.Data:
        """Return views of the data for the kernels, cached."""
        if self._kernel_data is None:
            from accelegrad.kernels import gradient

            shares = None if self.sample_weight is None else self.shares
            self._kernel_data = gradient.data(self.X, self.y, shares, self.loss.shape)
        return self._kernel_data

    def _one_pass(
        self, w: Vector, rows: RowNumbers | None = None, *, keep: bool = False
    ) -> one_pass_gradient.Pass:
        from accelegrad.kernels import gradient

        size = self.n_samples if rows is None else rows.size
        scale = 1.0 / size if self.sample_weight is None else self.n_samples / size
        return gradient.one_pass(
            self.kernel_data(), w, intercept=self.fit_intercept, rows=rows, scale=scale, keep=keep
        )

    def _parameters(self, w: npt.ArrayLike, name: str = "w") -> Vector:
        if not (isinstance(w, np.ndarray) and w.dtype == np.float64):
            w = real_array(name, w).astype(np.float64)
        if w.shape != (self.n_parameters,):
            intercept = " and the intercept, which comes last" if self.fit_intercept else ""
            raise ValueError(
                f"{name} must be a vector of {self.n_parameters} numbers (one for each of the "
                f"{self.n_features} columns of X{intercept}), but its shape is {w.shape}."
            )
        return w

    def _checked_rows(self, rows: npt.ArrayLike) -> RowNumbers:
        index = np.asarray(rows)
        if index.ndim != 1 or index.size == 0 or index.dtype.kind not in "iu":
            raise ValueError(
                f"rows must be a vector of at least one row number, but its shape is "
                f"{index.shape} and its dtype {index.dtype}."
            )
        if index.min() < 0 or index.max() >= self.n_samples:
            raise ValueError(
                f"rows must be row numbers from 0 to {self.n_samples - 1}, but they are from "
                f"{index.min()} to {index.max()}."
            )
        return index

    def target_sizes(self) -> tuple[float, float, float]:
        """Return the norm of the targets by shares, and the shares of those above and below 0."""
        y, shares = self.y, self.shares
        return norm(np.sqrt(shares) * y), float(shares @ (y > 0.0)), float(shares @ (y < 0.0))

    def good_constants(self) -> list[float]:
        """Return constant predictions of which one has nearly the least mean loss."""
        mean = float(self.shares @ self.y)
        # With steep losses the mean is close to the best.
        return [mean] if self.loss.lipschitz == np.inf else [mean, float(np.median(self.y))]

    def losses_of(self, constants: Sequence[float]) -> Vector:
        """Return the mean losses of constant predictions."""
        zeros, found = np.zeros(self.n_samples), np.empty(len(constants))
        with np.errstate(over="ignore"):
            for place, b in enumerate(constants):
                losses, _ = self.loss.value_and_derivative(zeros + b, self.y)
                found[place] = self.shares @ losses
        return found

    def slopes(self, margins: Vector) -> Vector:
        """Return l'(m_i), the loss's slopes at the rows' margins."""
        return self.loss.derivative(margins, self.y).astype(np.float64, copy=False)

    def _penalty(self, w: Vector) -> float:
        if self.l2 == 0.0:
            return 0.0
        features = w[: self.n_features]
        return 0.5 * self.l2 * float(features @ features)

    def _with_penalty(self, gradient: Vector, w: Vector) -> Vector:
        if self.l2 > 0.0:
            gradient[: self.n_features] += self.l2 * w[: self.n_features]
        return gradient

    def combination(self, theta: Vector) -> Vector:
        """Return sum_i p_i theta_i a_i, a new vector; with an intercept every a_i ends with a 1."""
        weighted = theta if self.sample_weight is None else self.shares * theta
        combination: Vector = self.products.backward(weighted)
        if self.sample_weight is None:
            combination *= 1.0 / self.n_samples  # the result is mostly shorter than theta
        if self.fit_intercept:
            combination = np.append(combination, self.shares @ theta)
        return combination
