r"""Lower bounds on the minimum that hold everywhere, with penalties and constraints too.

For any slopes theta in the domain of the conjugates, with sum_i p_i theta_i = 0 where there is an
intercept, Fenchel's inequality l(m) >= theta m - l*(theta) gives, with v = sum_i p_i theta_i a_i,

    min P >= -sum_i p_i l*(theta_i) + min over w in K of <v, w> + l1 ||w||_1 + l2 / 2 ||w||^2 .

The slopes at a good point make it tight for smooth losses, the average slopes of a run for others.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from scipy.optimize import minimize_scalar

from accelegrad.errors import Vector
from accelegrad.problems.linear_model import LinearModel
from accelegrad.problems.sets import LARGEST, Box, FeasibleSet, Product
from accelegrad.problems.squares import norm
from accelegrad.proofs.null_space import AllRows, obstacle, reach
from accelegrad.proofs.rounding import growth, level
from accelegrad.sklearn.objective import Problem


class DualBound:
    """The bound for one problem, whose coefficients are one block."""

    def __init__(self, problem: Problem) -> None:
        assert isinstance(problem.model, LinearModel)
        self.model, self.l1, self.chosen = problem.model, problem.l1, problem.feasible_set
        size = problem.n_weights
        box = Box(-np.inf, np.inf) if self.chosen is None else self.chosen
        self.lower = self.upper = None
        if isinstance(box, Box):
            ends = (np.broadcast_to(end, self.model.n_parameters) for end in (box.lower, box.upper))
            # Ends so far away that products with them overflow are as good as open.
            self.lower, self.upper = (
                np.where(np.abs(end[:size]) <= LARGEST, end[:size], np.copysign(np.inf, end[:size]))
                for end in ends
            )
        self.bounded = problem.bounded
        self._diameter = math.inf
        if self.lower is not None and self.upper is not None:
            with np.errstate(over="ignore"):
                self._diameter = float(np.linalg.norm(self.upper - self.lower))
        elif self.bounded:
            assert self.chosen is not None
            self._diameter = _weights_diameter(self.chosen, size)

    @property
    def gets_tight(self) -> bool:
        """Whether the bound comes near to the minimum at good slopes.

        Something has to hold the weights; and a set that is no box excludes the l1 norm, as it
        does for `minimize`.
        """
        possible = self.lower is not None or self.l1 == 0.0
        return possible and (self.bounded or self.model.l2 > 0.0 or self.l1 > 0.0)

    def at(self, theta: Vector) -> float:
        """Return the bound at slopes, or at a multiple of them where that is better.

        It is lowered by what rounding can have added, for weights as large as a minimiser's can be.
        """
        model = self.model
        if model.fit_intercept:
            theta = model.balanced(theta)
        height, error = level(model.loss, model.shares, theta, model.y)
        farthest = self._farthest
        height -= error + model.imbalance_cost(theta, farthest)
        if not height > 0.0 or not math.isfinite(farthest):
            return 0.0
        v = model.combination(theta)[: model.n_features]
        slack = norm(model.rounding.combination(norm(np.sqrt(model.shares) * theta)))
        slack += growth(v.size) * (norm(v) + self.l1 * math.sqrt(v.size) + model.l2 * farthest)
        height -= slack * farthest

        def negative(c: float) -> float:
            # l*(c theta) <= c l*(theta), by convexity and l*(0) = 0.
            return -c * height - self._least(c * v)

        most = self._largest_multiple(v)
        inner = float(minimize_scalar(negative, bounds=(0.0, most), method="bounded").x)
        bound = -min(negative(multiple) for multiple in (inner, most))
        bound -= growth(0) * (abs(bound) + height)
        return max(bound, 0.0) if math.isfinite(bound) else 0.0

    @cached_property
    def _farthest(self) -> float:
        """How large the weights of a minimiser can be, as a norm."""
        model, size = self.model, self.model.n_features
        start = np.zeros(model.n_parameters)
        point = start if self.chosen is None else self.chosen.project(start)
        weights = point[:size]
        value = model.value(point) + self.l1 * float(np.abs(weights).sum())
        bounds = [math.inf]
        if model.l2 > 0.0:
            bounds.append(math.sqrt(2.0 * value / model.l2))
        if self.l1 > 0.0:
            bounds.append(value / self.l1)
        if self.bounded:
            bounds.append(norm(weights) + self._diameter)
        return 1.01 * min(bounds)

    @property
    def can_repair(self) -> bool:
        """Whether `repaired` is there, at a reasonable price, and of use."""
        # Without ends to keep within, as for the squared loss, the slopes at a point are as good.
        kept = self.model.loss.lipschitz < np.inf and self.chosen is None
        return kept and self.gets_tight and obstacle(self.model.X, self.model.n_parameters) is None

    def repaired(self, theta: Vector, w: Vector) -> Vector:
        """Return slopes nearby that meet the optimality condition for these weights, or nearly so.

        What v differs from the slope of l2 term and l1 term at w costs dearly, all the more the
        smaller l2 is. Here the slopes move within the conjugates' domain until v is as it should be
        at w (or, where w_j = 0, the nearest that is allowed).
        """
        model = self.model
        bounds = model.bounds_without_l2("DualBound")
        space = bounds.space
        theta = np.clip(theta, bounds.low, bounds.high)
        wanted = model.combination(theta)
        wanted[model.n_features :] = 0.0  # the intercept's
        rest = -wanted[: w.size] - model.l2 * w
        signs = np.where(w == 0.0, np.clip(rest, -self.l1, self.l1), self.l1 * np.sign(w))
        wanted[: w.size] = -model.l2 * w - signs
        reached, _ = reach(AllRows(space), space.scale * wanted, theta, bounds.low, bounds.high)
        return reached

    def _largest_multiple(self, v: Vector) -> float:
        """Return up to which c, at most 1, the minimum over all w is finite for c v."""
        if self.model.l2 > 0.0 or self.bounded or self.lower is None or self.upper is None:
            return 1.0
        # Towards an open end the slope c v + l1 (or -c v + l1) has to be nonnegative.
        down, up = np.isinf(self.lower) & (v > 0.0), np.isinf(self.upper) & (v < 0.0)
        steepest = float(np.abs(v[down | up]).max(initial=0.0))
        return 1.0 if steepest <= self.l1 else (1.0 - 1e-12) * self.l1 / steepest

    def _least(self, v: Vector) -> float:
        """Return the minimum over w in K of <v, w> + l1 ||w||_1 + l2 / 2 ||w||^2."""
        l1, l2 = self.l1, self.model.l2
        if l2 > 0.0:
            # In a box the minimiser of a separable function is the free one moved into the box.
            w = -np.sign(v) * np.maximum(np.abs(v) - l1, 0.0) / l2
            w = w if self.chosen is None else self._inside(w)
            return float(v @ w) + l1 * float(np.abs(w).sum()) + 0.5 * l2 * float(w @ w)
        if self.lower is not None and self.upper is not None:
            return float(_least_on_intervals(v, l1, self.lower, self.upper).sum())
        assert self.chosen is not None
        return self.chosen.linear_minimum(self._with_intercept(v))

    def _inside(self, w: Vector) -> Vector:
        assert self.chosen is not None
        return self.chosen.project(self._with_intercept(w))[: w.size]

    def _with_intercept(self, w: Vector) -> Vector:
        return np.append(w, np.zeros(self.model.n_parameters - w.size))


def _weights_diameter(chosen: FeasibleSet, size: int) -> float:
    """Return the diameter of what a set allows for the first `size` coordinates."""
    if not isinstance(chosen, Product):
        return chosen.usable_diameter(size)
    parts = [(part, where) for part, where in chosen.blocks if where.stop <= size]
    return math.hypot(*(part.usable_diameter(where.stop - where.start) for part, where in parts))


def _least_on_intervals(v: Vector, l1: float, lower: Vector, upper: Vector) -> Vector:
    """Return the minima of v w + l1 |w| over lower <= w <= upper, entry by entry.

    The function is linear but for a kink at 0: its minimum is at an end or there. Towards an
    infinite end it does not fall, which is what `_largest_multiple` sees to.
    """
    kink = np.clip(0.0, lower, upper)
    ends = [np.where(np.isinf(end), kink, end) for end in (lower, upper)]
    least: Vector = np.min([v * w + l1 * np.abs(w) for w in (*ends, kink)], axis=0)
    return least
