"""Standardise columns by a change of the coefficients, without touching the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from accelegrad.errors import Vector, finite_vector
from accelegrad.geometry.penalties import L1, OnLeading, Penalty
from accelegrad.geometry.sets import Box, FeasibleSet, WholeSpace, read_only
from accelegrad.linalg import root_between
from accelegrad.models.linear_model import LinearModel
from accelegrad.models.losses import Loss
from accelegrad.models.matrix import BLOCK_ENTRIES, row_runs

# A column counts as constant if it varies less, in rounding units of its mean: that is noise.
_CONSTANT = 1e3
# The most rows to which an intercept is fitted: a start need not be exact.
MOST_ROWS = 10_000
# Fit the intercept if that alone leaves at most this share of the loss. Chosen.
_WORTH_FITTING = 0.1
# `unevenness` ignores extreme columns with at most this share of the entries: news20 with rows of
# length 1 then has 60, otherwise 621.
_FEW_ENTRIES = 1e-3


@dataclass(frozen=True, eq=False)
class ColumnScaling:
    """The change of coordinates x = T v that scales and centres a linear model's columns.

    x holds the weights of one class after the other, then one intercept per class, or none. With x
    = (w, b) and v = (u, c), for each class w = s u and b = c - sum_j mu_j s_j u_j: the margins X w
    + b are those of columns s_j (a_j - mu_j), s_j > 0, with weights u and intercept c. Without
    intercepts mu does not matter.
    """

    scale: Vector
    shift: Any = None
    n_classes: int = 1

    def __post_init__(self) -> None:
        scale = finite_vector("scale", self.scale, above=0.0)
        shift = np.zeros(scale.size) if self.shift is None else finite_vector("shift", self.shift)
        if shift.size != scale.size:
            raise ValueError(
                f"shift must have scale's length {scale.size}, but its length is {shift.size}."
            )
        object.__setattr__(self, "scale", read_only(scale))
        object.__setattr__(self, "shift", read_only(shift))

    def apply(self, v: Vector) -> Vector:
        """Return x = T v."""
        W, b = self._split(v)
        W = self.scale * W
        return np.append(W, b - W @ self.shift if b.size else b)

    def adjoint(self, gradient: Vector) -> Vector:
        """Return T' g, the gradient with respect to v."""
        W, b = self._split(gradient)
        return np.append(self.scale * (W - np.outer(b, self.shift) if b.size else W), b)

    def invert(self, x: Vector) -> Vector:
        """Return v with T v = x."""
        W, b = self._split(x)
        return np.append(W / self.scale, b + W @ self.shift if b.size else b)

    def invert_adjoint(self, gradient: Vector) -> Vector:
        """Return g with T' g equal to the given gradient."""
        W, b = self._split(gradient)
        W = W / self.scale
        return np.append(W + np.outer(b, self.shift) if b.size else W, b)

    def _split(self, x: Vector) -> tuple[npt.NDArray[np.float64], Vector]:
        size = self.n_classes * self.scale.size
        return x[:size].reshape(self.n_classes, -1), x[size:]

    def scaled_penalty(self, penalty: Penalty | None) -> Penalty | None:
        """Return an l1 penalty of the weights as a function of v."""
        if penalty is None:
            return None
        if isinstance(penalty, OnLeading):
            inner = self.scaled_penalty(penalty.penalty)
            assert inner is not None
            return OnLeading(inner, penalty.size, penalty.total)
        assert isinstance(penalty, L1)
        return L1(penalty.strength * np.tile(self.scale, self.n_classes))

    def scaled_set(self, feasible_set: FeasibleSet | None, size: int) -> FeasibleSet | None:
        """Return the set of v, a vector of length `size`."""
        if not isinstance(feasible_set, Box):
            return feasible_set  # None or the whole space
        factors = np.ones(size)
        factors[: self.n_classes * self.scale.size] = np.tile(self.scale, self.n_classes)
        # A bound beyond the range of floats is no bound.
        with np.errstate(over="ignore"):
            return Box(feasible_set.lower / factors, feasible_set.upper / factors)


def column_scaling(
    model: LinearModel, *, center: bool = True, noisy: bool = False, n_classes: int = 1
) -> ColumnScaling:
    """Return the change of coordinates that standardises a model's columns.

    Without an intercept column j is divided by sqrt(q_j + l2), with q_j the mean of its squares;
    with one it is centred (unless constant) and divided by sqrt(variance_j + l2). The objective's
    curvature then is about 1 in every direction. Columns of zeros without an l2 term, and those
    whose squares overflow, stay as they are.

    With noise the scale of a column with entries in a share p_j of the rows is multiplied by
    p_j^(1/4). The error is about ||w*/s|| (sum_j s_j^2 q_j)^(1/2). With entries of size u_j, q_j =
    p_j u_j^2, and weights about 1/u_j, it is least for s_j = p_j^(-1/4) / u_j: the scales of a
    diagonal AdaGrad.
    """
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        mean, variance = _moments(model)
        rarity = _filled(model) ** 0.25 if noisy else 1.0
        if not (model.fit_intercept and center):
            scale = _inverse_root(mean * mean + variance + model.l2)
            return ColumnScaling(scale * rarity, None, n_classes)
        precision = _CONSTANT * float(np.finfo(model.dtype).eps)
        varies = np.sqrt(variance) > precision * np.abs(mean)
        squares = np.where(varies, variance, mean * mean) + model.l2
        known = varies & np.isfinite(variance)
        shift = np.where(known, mean, 0.0)
        return ColumnScaling(_inverse_root(squares) * rarity, shift, n_classes)


def can_scale(penalty: Penalty | None, feasible_set: FeasibleSet | None) -> bool:
    """Return whether penalty and set keep their form when scaled: l1 norms and boxes do."""
    term = penalty.penalty if isinstance(penalty, OnLeading) else penalty
    return (term is None or isinstance(term, L1)) and (
        feasible_set is None or isinstance(feasible_set, Box | WholeSpace)
    )


def limits_intercept(feasible_set: FeasibleSet | None) -> bool:
    """Return whether a set that `can_scale` limits the last parameter."""
    if not isinstance(feasible_set, Box):
        return False
    ends = np.array([np.ravel(feasible_set.lower)[-1], np.ravel(feasible_set.upper)[-1]])
    return bool(np.isfinite(ends).any())


def near_start(model: LinearModel, x: Vector) -> Vector:
    """Return x with a fitted intercept if that alone removes nine tenths of the loss.

    Noise costs more the further the start is, and most of that distance may be the intercept's.
    Otherwise x stays: the distance that a run can prove depends on the intercept too.
    """
    if not model.fit_intercept:
        return x
    count = min(model.n_samples, MOST_ROWS)
    rows = np.unique(np.linspace(0, model.n_samples - 1, count).astype(np.intp))
    X, y, shares = model.taken(rows)
    with np.errstate(over="ignore", invalid="ignore"):
        margins = x[-1] + (X @ x[:-1] if x[:-1].any() else np.zeros(y.size))
        shift = _best_shift(model.loss, margins, y, shares)
        before, after = (shares @ model.loss.value(margins + by, y) for by in (0.0, shift))
    return np.append(x[:-1], x[-1] + shift) if after <= _WORTH_FITTING * before < np.inf else x


def _best_shift(loss: Loss, margins: Vector, y: Vector, shares: Vector) -> float:
    """Return the shift of all margins with the least mean loss, between the extreme residuals."""

    def slope(shift: float) -> float:
        return float(shares @ loss.derivative(margins + shift, y))

    low, high = float((y - margins).min()), float((y - margins).max())
    if not slope(low) < 0.0:
        return low
    if not slope(high) > 0.0:
        return high
    return root_between(slope, low, high, xtol=1e-6 * (high - low))


def unevenness(model: LinearModel) -> float:
    """Return the ratio of the sizes of entries between the largest and the smallest column.

    On sparse data only stored entries count. Ignored are extreme columns with almost no entries
    (some rare words occur only in the shortest texts), columns of zeros and of a single entry.
    """
    found: float = model.of_data_alone("unevenness", _unevenness, model)
    return found


def _unevenness(model: LinearModel) -> float:
    dense = model.storage.dense
    with np.errstate(over="ignore", invalid="ignore"):
        squares = model.column_squares()
        filled = np.ones(model.n_features) if dense else _filled(model)
        counted = (squares > 0) & (filled * model.n_samples > 1.5)
        sizes, filled = np.sqrt(squares / filled)[counted], filled[counted]
    if not sizes.size:
        return 1.0
    if dense:
        return float(sizes.max() / sizes.min())
    order = np.argsort(sizes)
    up_to = np.cumsum(filled[order])
    ends = np.searchsorted(up_to, [_FEW_ENTRIES * up_to[-1], (1.0 - _FEW_ENTRIES) * up_to[-1]])
    smallest, largest = sizes[order[ends]]
    return float(largest / smallest)


def _inverse_root(squares: Vector) -> Vector:
    """Return 1/sqrt, and 1 for zeros and non-finite numbers."""
    usable = (squares >= np.finfo(np.float64).tiny) & np.isfinite(squares)
    return 1.0 / np.sqrt(np.where(usable, squares, 1.0))


def _moments(model: LinearModel) -> tuple[Vector, Vector]:
    """Return the columns' weighted means and variances, merged by Chan et al.'s formula."""
    total, mean, squares = 0.0, np.zeros(model.n_features), np.zeros(model.n_features)
    for blocks in model.over_chunks(_moments_of_blocks):
        for weight, middle, spread in blocks:
            step = middle - mean
            total += weight
            mean += step * (weight / total)
            squares += spread + step * step * (weight * (total - weight) / total)
    return mean, np.maximum(squares / total, 0.0)


def _moments_of_blocks(X: Any, shares: Vector) -> list[tuple[float, Vector, Vector]]:
    found = []
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for rows in row_runs(X, BLOCK_ENTRIES):
            weights = shares[rows]
            weight = float(weights.sum())
            if weight == 0.0:
                continue
            block = X[rows].astype(np.float64)
            if sp.issparse(X):
                from sklearn.utils.sparsefuncs import mean_variance_axis  # slow import

                block.sum_duplicates()  # before squaring
                mean, variance = mean_variance_axis(block, axis=0, weights=weights)
                found.append((weight, mean, weight * variance))
                continue
            mean = weights @ block / weight
            block -= mean
            off = weights @ block / weight  # the mean's rounding error, which would add variance
            block *= block
            found.append((weight, mean + off, weights @ block - weight * off * off))
    return found


def _filled(model: LinearModel) -> Vector:
    """Return each column's share of rows with an entry; 1 for empty columns."""
    filled: Vector = np.sum(list(model.over_chunks(_filled_shares)), axis=0)
    return np.where(filled > 0.0, np.minimum(filled, 1.0), 1.0)


def _filled_shares(X: Any, shares: Vector) -> Vector:
    filled = np.zeros(X.shape[1])
    for rows in row_runs(X, BLOCK_ENTRIES):
        filled += shares[rows] @ (X[rows] != 0)
    return filled
