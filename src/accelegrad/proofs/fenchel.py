r"""The Fenchel dual of a linear model: sums over rows that can be added, and the bound they prove.

For any slopes theta in the domain of the conjugates l(m) >= theta m - l*(theta). So, with
v = sum_i p_i theta_i x_i and s = sum_i p_i theta_i, the minimum over weights w and intercept b of
sum_i p_i l(<x_i, w> + b) + l1 ||w||_1 + l2 / 2 ||w||^2, for (w, b) in a set K, is at least

    -sum_i p_i l*(theta_i) + min over (w, b) in K of <v, w> + s b + l1 ||w||_1 + l2 / 2 ||w||^2 .

The first sum is called the level. An unlimited intercept requires s = 0: slopes are balanced by
scaling down the positive or the negative ones, and what rounding leaves of s is multiplied by the
largest intercept that a minimiser can have. For 0 <= c <= 1 the slopes c theta are allowed too,
with at least c times the level, since l* is convex and l*(0) = 0: an l1 term may require c < 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from accelegrad.errors import Vector
from accelegrad.geometry.penalties import L1, ElasticNet, OnLeading, Penalty
from accelegrad.geometry.sets import LARGEST, Box, FeasibleSet, Product, WholeSpace
from accelegrad.linalg import FEW, SMALLEST, UNIT, growth, norm, pairwise_growth
from accelegrad.models.linear_model import LinearModel, ModelPoint
from accelegrad.models.losses import Loss
from accelegrad.models.rounding import slopes_norm

#: l* of a loss with logarithms is off by up to this many units of rounding times |theta|, near the
#: ends of its domain.
STEEPEST_LOGARITHM = 40.0
#: Factor by which estimates of a minimiser's size are raised: far more than their rounding.
SIZE_ROUNDED_UP = 1.01
#: Factor that keeps the largest multiple of slopes on the safe side of its limit.
MULTIPLE_ROUNDED_DOWN = 1.0 - 1e-12


def level(loss: Loss, shares: Vector, theta: Vector, y: Vector) -> tuple[float, float]:
    """Return -sum_i p_i l*(theta_i) and its error bound; -inf if a slope is outside the domain."""
    if not theta.any():
        return 0.0, 0.0
    counts = shares > 0.0
    conjugates = np.where(counts, loss.conjugate(theta, y), 0.0)
    total = -float(np.sum(shares * conjugates))
    if not math.isfinite(total):
        return -math.inf, 0.0
    steepest = loss.shape.epsilon + (STEEPEST_LOGARITHM if loss.has_logarithms else 0.0)
    sizes = np.abs(theta)
    sizes = np.abs(conjugates) + sizes * (sizes + np.abs(y) + steepest)
    error = pairwise_growth(theta.size) * float(np.sum(shares * sizes)) + theta.size * SMALLEST
    return total, error


def heights(model: LinearModel, theta: Vector) -> tuple[float, float, float, float]:
    """Return level and mean (for an intercept) of slopes, each with its error bound."""
    shares = np.asarray(model.shares)
    height, error = level(model.loss, shares, theta, np.asarray(model.y))
    if not model.fit_intercept:
        return height, error, 0.0, 0.0
    weighted = shares * theta
    off = pairwise_growth(theta.size) * float(np.sum(np.abs(weighted)))
    return height, error, float(np.sum(weighted)), off


def scaled_bound(level: float, length: float, l2: float) -> float:
    """Return the largest of c level - c^2 length^2 / (2 l2) over 0 <= c <= 1; at least 0."""
    if not level > 0.0 or not math.isfinite(length):
        return 0.0
    curvature = length * (length / l2)
    c = 1.0 if level >= curvature else level / curvature
    return max(c * (level - 0.5 * c * curvature) * (1.0 - FEW * UNIT) - SMALLEST, 0.0)


@dataclass(frozen=True, slots=True)
class SlopeSums:
    """Weighted sums over rows of what their slopes give, each with its rounding error bound."""

    level: float  # minus the sum of the conjugates l*(theta_i)
    level_error: float
    mean: float  # the sum of theta_i
    mean_error: float
    combination: Vector  # the sum of theta_i x_i
    combination_error: Vector

    @classmethod
    def of(cls, model: LinearModel, theta: Vector) -> SlopeSums:
        """Return the sums over all rows of a model, given one slope per row."""
        off = model.rounding.combination(norm(np.sqrt(model.shares) * theta))
        return cls(*heights(model, theta), model.combination(theta)[: model.n_features], off)

    @classmethod
    def at(cls, model: LinearModel, known: ModelPoint) -> SlopeSums:
        """Return the sums for the slopes at a point from its loss and gradient: no pass over rows.

        The level at theta = l'(margins) is loss - <h, w>, with h the gradient of the loss, if there
        is no intercept.
        """
        w, loss = known.w, known.mean_loss
        pull = known.model.l2 * w
        combination = known.gradient - pull
        off = model.rounding.combination(slopes_norm(model.loss, loss))
        off += growth(0) * (np.abs(combination) + np.abs(pull))
        height = loss - float(combination @ w)
        error = known.model.rounding_at(w, known.value).level
        error += growth(w.size) * (2.0 * known.value + abs(height))
        return cls(height, error, 0.0, 0.0, combination, off)

    def __add__(self, other: SlopeSums) -> SlopeSums:
        """Return the sum over the rows of both."""
        level, mean = self.level + other.level, self.mean + other.mean
        combination = self.combination + other.combination
        # UNIT is twice the error of one operation: enough for the rounding of the errors too.
        return SlopeSums(
            level,
            self.level_error + other.level_error + 2.0 * (UNIT * abs(level) + SMALLEST),
            mean,
            self.mean_error + other.mean_error + 2.0 * (UNIT * abs(mean) + SMALLEST),
            combination,
            self.combination_error
            + other.combination_error
            + 2.0 * (UNIT * np.abs(combination) + SMALLEST),
        )


class DataSizes(NamedTuple):
    """What the rows, by their shares, say about the size of a minimiser's intercept."""

    size: float  # the root of the mean of the rows' squared norms, rounded up
    target_size: float  # the same of the squared targets
    above: float  # the share of rows with targets above 0
    below: float


class SumsAtPoint(NamedTuple):
    """Mean loss and slope sums at a point."""

    mean_loss: float
    error: float  # of the mean loss, by rounding
    slopes: SlopeSums


class ColumnSums:
    r"""Value and slope sums of a least-squares model at any point, without the rows.

    With the columns N = [X, 1, y] (1 for an intercept) and z = (w, b, -1) the residuals, which are
    also the slopes, are r = N z. Value and Fenchel bound need only M = N'PN:

        sum_i p_i r_i^2 = z'Mz,    sum_i p_i r_i N_ij = (Mz)_j .

    Differences of such sums cancel, so errors are relative to S = sum_j |z_j| ||N_j||: an entry of
    M is off by at most ||N_j|| ||N_k|| times the error of a sum of n products, hence (Mz)_j by
    ||N_j|| S and z'Mz by S^2 times that error.
    """

    def __init__(self, model: LinearModel) -> None:
        y, shares, self._d = model.y, model.shares, model.n_features
        size = model.n_parameters
        products = np.empty((size + 1, size + 1))
        products[:size, :size] = model.gram_of_columns()
        products[size, :size] = products[:size, size] = model.combination(y)
        products[size, size] = float(shares @ (y * y))
        self._products = products
        #: the gradient of the mean loss at zero
        self.slopes_at_zero: Vector = -products[-1, :-1]
        ones = [SIZE_ROUNDED_UP] * model.fit_intercept
        target_size = SIZE_ROUNDED_UP * norm(np.sqrt(shares) * y)
        self._sizes = np.concatenate([model.rounding.columns, ones, [target_size]])
        # The first for the products, the second for sums of them.
        self._growth = growth(model.n_samples) + growth(size + 1)
        self._lost = (model.n_samples + size) * SMALLEST
        self._fit_intercept = model.fit_intercept

    def at(self, x: Vector) -> SumsAtPoint:
        """Return the sums at a point; overflow makes some of them not finite."""
        d, z = self._d, np.append(x, -1.0)
        sizes = np.abs(z)
        whole = float(sizes @ self._sizes)
        lost = self._lost * (1.0 + float(sizes.sum()))
        combination = self._products @ z
        off = self._growth * whole * self._sizes + lost
        square = float(z @ combination)
        half_error = 0.5 * ((self._growth + growth(z.size)) * whole * whole + lost * whole)
        by_targets = float(combination[-1])
        level = -0.5 * square - by_targets
        level_error = half_error + float(off[-1]) + growth(0) * (abs(square) + abs(by_targets))
        mean = mean_error = 0.0
        if self._fit_intercept:
            mean, mean_error = float(combination[d]), float(off[d])
        sums = SlopeSums(level, level_error, mean, mean_error, combination[:d], off[:d])
        return SumsAtPoint(max(0.5 * square, 0.0), half_error, sums)


class Terms:
    """Penalty and constraint of a linear model.

    The penalty is l1 ||w||_1 + l2 / 2 ||w||^2 with one l1 factor, or one per weight; the feasible
    set limits all parameters, of which an intercept is the last.
    """

    def __init__(
        self,
        n_features: int,
        l2: float,
        l1: float | Vector = 0.0,
        feasible_set: FeasibleSet | None = None,
        *,
        fit_intercept: bool = False,
    ) -> None:
        if isinstance(feasible_set, WholeSpace):
            feasible_set = None
        self.n_features, self.l2, self.l1 = n_features, l2, l1
        self.fit_intercept, self.feasible_set = fit_intercept, feasible_set
        self.has_l1 = bool(np.any(np.asarray(l1) > 0.0))
        #: whether the set limits each parameter separately
        self.separable = feasible_set is None or isinstance(feasible_set, Box)
        ends = np.repeat([[-math.inf], [math.inf]], n_features + fit_intercept, axis=1)
        if isinstance(feasible_set, Box):
            ends[0], ends[1] = feasible_set.lower, feasible_set.upper
            # Products with larger ends would overflow: they count as open.
            far = np.abs(ends) > LARGEST
            ends[far] = np.copysign(math.inf, ends[far])
        #: the ends of the box for all parameters, and for the weights
        self.ends, (self.lower, self.upper) = ends, ends[:, :n_features]
        #: the allowed weight nearest to 0, where an l1 term has its kink
        self._kink = np.minimum(np.maximum(0.0, self.lower), self.upper)
        #: whether zero weights are allowed: then slopes with a negative level prove nothing
        self.holds_origin = not self._kink.any()
        if feasible_set is not None and not self.separable:
            origin = feasible_set.project(np.zeros(n_features + fit_intercept))
            self.holds_origin = not origin[:n_features].any()
        #: limits of the intercept
        self.intercept = tuple(ends[:, -1].tolist()) if fit_intercept else (-math.inf, math.inf)
        self.intercept_is_free = self.intercept == (-math.inf, math.inf)
        #: whether the weights are not limited at all
        self.free = self.separable and bool(np.isinf(ends[:, :n_features]).all())
        held = np.isfinite(self.lower) & np.isfinite(self.upper) | (np.asarray(l1) > 0.0)
        #: whether a term or two ends bound each weight
        self.hold_each_weight = self.separable and (l2 > 0.0 or bool(held.all()))
        #: whether the only information is that each weight lies on one side of 0
        self.has_only_signs = False
        if self.separable and not self.has_l1 and l2 == 0.0 and self.intercept_is_free:
            above = (self.lower == 0.0) & (self.upper == np.inf)
            below = (self.lower == -np.inf) & (self.upper == 0.0)
            self.has_only_signs = bool((above | below).all())
        #: whether the bound approaches the minimum at good slopes: something has to bound each
        #: weight. A set other than a box must come without an l1 term, as for `minimize`.
        self.gets_tight = self.hold_each_weight
        if not (self.separable or self.has_l1) and self._leaves_intercept_free():
            self.gets_tight = l2 > 0.0 or self.diameter < math.inf

    @classmethod
    def of(
        cls,
        model: LinearModel,
        penalty: Penalty | None = None,
        feasible_set: FeasibleSet | None = None,
    ) -> Terms | None:
        """Return the terms of a model with a penalty and a constraint; None for other penalties."""
        if isinstance(penalty, OnLeading) and penalty.size == model.n_features:
            penalty = penalty.penalty
        l1: float | Vector = 0.0
        l2 = model.l2
        if isinstance(penalty, ElasticNet):
            l1, l2 = penalty.l1, l2 + penalty.l2
        elif isinstance(penalty, L1):
            l1 = penalty.strength
        elif penalty is not None:
            return None
        return cls(model.n_features, l2, l1, feasible_set, fit_intercept=model.fit_intercept)

    @cached_property
    def diameter(self) -> float:
        """The diameter of the set of weights."""
        chosen, d = self.feasible_set, self.n_features
        if self.free:
            return math.inf
        if chosen is None or self.separable:
            with np.errstate(over="ignore"):
                return float(np.linalg.norm(self.upper - self.lower))
        if not isinstance(chosen, Product):
            return chosen.diameter_for(d + self.fit_intercept)
        parts = [(part, where) for part, where in chosen.blocks if where.stop <= d]
        sizes = (part.diameter_for(where.stop - where.start) for part, where in parts)
        return math.hypot(*sizes)

    def _leaves_intercept_free(self) -> bool:
        """Return whether a set other than a box has free intercepts, if there are any."""
        if not self.fit_intercept:
            return True
        if not isinstance(self.feasible_set, Product):
            return False
        last, where = self.feasible_set.blocks[-1]
        return isinstance(last, WholeSpace) and where.start == self.n_features

    def objective(self, mean_loss: float, x: Vector) -> float:
        """Return the mean loss plus l1 ||w||_1 + l2 / 2 ||w||^2."""
        w = x[: self.n_features]
        value = mean_loss + 0.5 * self.l2 * float(w @ w)
        return value + float(np.sum(self.l1 * np.abs(w))) if self.has_l1 else value

    def balance(self, above: float, below: float) -> tuple[float, float]:
        """Return the factors for slopes above and below 0, given the sizes of their sums.

        Only an open end needs balance: towards it the intercept would gain without limit.
        """
        low, high = self.intercept
        if above > below and low == -math.inf:
            return below / above, 1.0
        if below > above and high == math.inf:
            return 1.0, above / below
        return 1.0, 1.0

    def lower_bound(self, sums: SlopeSums, reach: Callable[[], Reach] | None = None) -> float:
        """Return a proved lower bound of the objective from balanced slopes, at least 0.

        It allows for all rounding, and so holds whatever the slopes are. `reach` returns how large
        a minimiser can be; an intercept, or a set other than a box, needs it.
        """
        height = sums.level - sums.level_error
        if self.fit_intercept:
            assert reach is not None
            height += self._least_with_intercept(sums, reach)
        if height == -math.inf or (self.holds_origin and not height > 0.0):
            return 0.0
        v, off = sums.combination, sums.combination_error
        if self.free and not self.has_l1 and self.l2 > 0.0:
            sizes = np.abs(v) + off
            return scaled_bound(height, norm(sizes) * (1.0 + growth(sizes.size)), self.l2)
        # Products with the multiple are rounded too.
        off = off + growth(0) * np.abs(v) + SMALLEST
        with np.errstate(over="ignore", invalid="ignore"):
            c = self._largest_multiple(v, off)
            if self.separable:
                least = self._separable_least(c * v, c * off)
            else:
                assert reach is not None
                least = self._least_in_set(c * v, c * off, reach().weights)
        bound = c * height + least
        bound -= growth(0) * (abs(bound) + abs(height))
        return max(bound, 0.0) if math.isfinite(bound) else 0.0

    def _least_with_intercept(self, sums: SlopeSums, reach: Callable[[], Reach]) -> float:
        """Return a lower bound of the mean slope times the intercept of a minimiser."""
        lowest, highest = sums.mean - sums.mean_error, sums.mean + sums.mean_error
        if lowest == highest == 0.0:
            return 0.0
        low, high = self.intercept
        if low == -math.inf or high == math.inf:
            size = reach().intercept
            low, high = max(low, -size), min(high, size)
        least = min(lowest * low, lowest * high, highest * low, highest * high)
        return least - growth(0) * abs(least) if math.isfinite(least) else -math.inf

    def _largest_multiple(self, v: Vector, off: Vector) -> float:
        """Return the largest c <= 1 for which the minimum over all weights is finite for c v."""
        if self.l2 > 0.0 or not self.separable:
            return 1.0
        # Towards an open end the slope l1 - c |v| must not be negative.
        if self.free:
            steep = np.abs(v) + off
        else:
            down, up = np.isinf(self.lower), np.isinf(self.upper)
            steep = np.maximum(np.where(down, v + off, 0.0), np.where(up, off - v, 0.0))
        l1 = np.broadcast_to(self.l1, steep.shape)
        too_steep = steep > l1
        if not too_steep.any():
            return 1.0
        return MULTIPLE_ROUNDED_DOWN * float((l1[too_steep] / steep[too_steep]).min())

    def _separable_least(self, v: Vector, off: Vector) -> float:
        """Return a lower bound of the minimum of <v, w> + l1 ||w||_1 + l2 / 2 ||w||^2 over the box.

        Each entry of v may be off by `off`, which acts as an l1 that is smaller by `off`.
        """
        # Rounded down: the difference can be off by one unit of l1.
        l1, l2 = self.l1 * (1.0 - growth(0)) - off, self.l2
        if self.free:
            if l2 == 0.0:
                return 0.0  # ensured by `_largest_multiple`
            beyond = np.maximum(np.abs(v) - l1, 0.0)
            return -0.5 * float(beyond @ (beyond / l2)) * (1.0 + growth(v.size))
        kink = self._kink
        if l2 > 0.0:  # a parabola on either side of the kink: clip its lowest point
            ends = [
                np.minimum(np.maximum((l1 - v) / l2, self.lower), kink),
                np.minimum(np.maximum((-l1 - v) / l2, kink), self.upper),
            ]
        else:  # a straight line, which does not fall towards an open end
            ends = [np.where(np.isinf(end), kink, end) for end in (self.lower, self.upper)]
        w = np.array([*ends, kink])
        parts = np.array([v * w, l1 * np.abs(w), (0.5 * l2) * w * w])
        values = parts.sum(axis=0)
        lowest = np.argmin(values, axis=0)
        columns = np.arange(v.size)
        sizes = np.abs(parts).sum(axis=0)[lowest, columns]
        total = float(values[lowest, columns].sum()) - growth(v.size) * float(sizes.sum())
        return total if math.isfinite(total) else -math.inf

    def _least_in_set(self, v: Vector, off: Vector, largest: float) -> float:
        """Return a lower bound of the minimum of <v, w> + l2 / 2 ||w||^2 over a non-box set.

        Each entry of v may be off by `off`. `largest` bounds the norm of a minimiser's weights.
        """
        chosen, l2, d = self.feasible_set, self.l2, self.n_features
        assert chosen is not None
        rest = np.zeros(int(self.fit_intercept))
        unknown = norm(off) * largest
        if l2 == 0.0:
            least = chosen.linear_minimum(np.append(v, rest))
            return least - growth(d) * norm(v) * largest - unknown
        size = (norm(v) + l2 * largest) * largest
        if self.diameter == math.inf:
            g = np.append(v, rest)  # the set leaves an intercept free, so that it is 0 here
            distance, least = chosen.proximal_minimum(g, np.zeros_like(g), largest, l2)
            return least + 0.5 * l2 * distance**2 - growth(d) * size - unknown
        w = chosen.project(np.append(-v / l2, rest))[:d]
        value = float(v @ w) + 0.5 * l2 * float(w @ w)
        # Holds however accurate the projection is: the tangent at w is below the function.
        slope = v + l2 * w
        tangent = chosen.linear_minimum(np.append(slope, rest)) - float(slope @ w)
        return value + min(tangent, 0.0) - 3.0 * growth(d) * size - unknown


@dataclass(eq=False)
class Reach:
    """Bounds on the size of a minimiser, given the objective's `value` at a feasible point.

    Losses are nonnegative, so the terms are at most `value`. By Jensen's inequality the loss at the
    mean margin of a class is at most the objective over the class's share, and classification
    losses are at least -y m; other losses at the mean residual are at most the objective.
    """

    terms: Terms
    loss: Loss
    data: DataSizes
    value: float
    weights: float = field(init=False)
    """A bound on the norm of the weights."""
    intercept: float = field(init=False)
    """A bound on the intercept, infinite if nothing is known."""

    def __post_init__(self) -> None:
        terms, loss, data, value = self.terms, self.loss, self.data, self.value
        bounds = [math.inf]
        if terms.l2 > 0.0:
            bounds.append(math.sqrt(2.0 * value / terms.l2))
        if isinstance(terms.l1, float) and terms.l1 > 0.0:
            bounds.append(value / terms.l1)
        elif terms.has_l1 and terms.separable:
            with np.errstate(divide="ignore", over="ignore"):
                by_l1 = np.divide(value, terms.l1)
            by_box = np.maximum(np.abs(terms.lower), np.abs(terms.upper))
            bounds.append(norm(np.minimum(by_l1, by_box)))
        if not terms.free and terms.diameter < math.inf:
            origin = np.zeros(terms.n_features + terms.fit_intercept)
            nearest = origin if terms.feasible_set is None else terms.feasible_set.project(origin)
            bounds.append(norm(nearest[: terms.n_features]) + terms.diameter)
        self.weights = SIZE_ROUNDED_UP * min(bounds)
        size, near, share = data.size * self.weights, math.inf, min(data.above, data.below)
        if not loss.classification:
            near = data.target_size + loss.reach(value) + size
        elif share > 0.0:
            near = value / share + size / math.sqrt(share)
        self.intercept = SIZE_ROUNDED_UP * near
