"""Bounds by the Fenchel dual of a linear model: the choice of slopes, and bounds during a run.

Any slopes give a bound (`accelegrad.proofs.fenchel`); those at a point, at the best intercept for
its weights, or of a smoothed loss give a tight one. If only losses and signs bound the weights, see
`accelegrad.proofs.null_space`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np

from accelegrad.errors import Vector
from accelegrad.linalg import ROUNDED_UP, UNIT, growth, norm, pairwise_growth, root_between
from accelegrad.models.linear_model import LinearModel, ModelPoint
from accelegrad.models.rounding import slopes_norm
from accelegrad.proofs.cuts import PROVABLE
from accelegrad.proofs.fenchel import (
    MULTIPLE_ROUNDED_DOWN,
    DataSizes,
    Reach,
    SlopeSums,
    Terms,
    heights,
)
from accelegrad.proofs.null_space import (
    NO_PROOF,
    DualBounds,
    NullSpace,
    Proof,
    needed_signs,
    obstacle,
)

#: Shifts at which the search for the best intercept looks for a change of sign, relative to the
#: size of margins and targets: from 5e-7 to 1e8. Chosen.
FIRST_SHIFTS = 8.0 ** np.arange(-7.0, 10.0)
#: Slopes are balanced, up to rounding, if their sum is at most this share of the sum of sizes.
BALANCED = 1e-13
# How often bounds are computed: chosen unless a measurement is given.
#: Steps before an expensive bound (in the null space, or a `LateBound`) and between two of them;
#: with 20 in the null space, 46 fits without a penalty took 1.13 times as long
PATIENCE = 8
#: Steps between two bounds, as a share of those done
SPACING = 0.1
#: The same between two expensive bounds that cannot end the run
SELDOM = 3.0
#: Slopes are averaged with weights that grow as this power of the step. With the rule's weights,
#: which grow as the first power, hinge and absolute losses took up to twice as many steps to a gap
#: of 1e-3 with an l1 term or a set.
FORGETTING = 2.0


BY_BOUND = attrgetter("bound")


class ModelDual:
    """Lower bounds of a linear model's minimum, with a penalty and a constraint if given.

    `terms` defaults to the model's l2 term. `kept` stores results that are used again; it never
    refers to the model, which may refer to it.
    """

    #: whether the slopes of all rows are in this process, so that they can be averaged
    has_slopes_here = True

    def __init__(
        self, model: LinearModel, terms: Terms | None = None, kept: dict[str, Any] | None = None
    ) -> None:
        self.model = model
        self._kept = {} if kept is None else kept
        if terms is None and "terms" not in self._kept:
            self._kept["terms"] = Terms.of(model)
        self.terms: Terms = terms or self._kept["terms"]
        #: whether there is neither an l1 term nor a constraint
        self.has_only_l2 = self.terms.feasible_set is None and not self.terms.has_l1
        #: whether nothing but the losses bounds the weights
        self.needs_null_space = self.has_only_l2 and self.terms.l2 == 0.0

        #: whether it is least squares with one sign per weight, for which there are bounds
        self.has_only_signs = False
        if self.terms.has_only_signs and model.loss.name == "squared" and not self._obstacle():
            self.has_only_signs = self._in_null_space.gets_tight

    @property
    def is_there(self) -> bool:
        """Whether a term or limit bounds each weight, or `null_space.obstacle` finds none."""
        if self.needs_null_space:
            return self._obstacle() is None
        return self.terms.gets_tight or self.has_only_signs

    def _obstacle(self) -> str | None:
        """Return why there is no affordable bound in the null space, or None if there is one."""
        if not self.model.in_memory:
            return "it takes all rows in memory"
        return obstacle(self.model.X, self.model.n_parameters, self.model.rounding.columns)

    def at(self, known: ModelPoint, *, best_intercept: bool = True) -> float:
        """Return the best bound by the slopes at a point of a model of the same data.

        They may be those of a smoothed loss, which are also in the domain of this loss's conjugate
        and prove much more than the jumping slopes of a loss with kinks. With `best_intercept` they
        are taken at the best intercept for the weights, so that a poor intercept costs little.
        """
        model, theta = self.model, known.derivatives
        is_smoothed = known.model.loss is not model.loss
        if self.needs_null_space or self.has_only_signs:
            bounds = self.without_terms("dual_gap")
            return bounds.at(theta) if is_smoothed else bounds.near(known.margins, theta)
        if model.fit_intercept and not self._is_balanced(theta):
            if best_intercept and self.terms.intercept_is_free:
                theta = self._at_best_intercept(known)
            return self.bound(self.balanced(theta))
        if not (is_smoothed or model.fit_intercept):
            bound = self.terms.lower_bound(SlopeSums.at(model, known), self.reach)
            return self._noted(bound, theta)
        l2, w = known.model.l2, known.w[: model.n_features]
        combination = known.gradient[: w.size] - l2 * w
        return self.bound(theta, combination, slack=growth(0) * l2 * np.abs(w))

    def _is_balanced(self, theta: Vector) -> bool:
        """Return whether the mean slope is zero up to rounding."""
        weighted = self.model.shares * theta
        return abs(float(weighted.sum())) <= BALANCED * float(np.abs(weighted).sum())

    def at_slopes(self, theta: Vector, least: float = 0.0) -> float:
        """Return the bound by given slopes, or by balanced ones near them."""
        if self.needs_null_space or self.has_only_signs:
            return self.without_terms("dual_value_at").at(theta)
        return self.bound(self.balanced(theta), least=least)

    def bound(
        self,
        theta: Vector,
        combination: Vector | None = None,
        *,
        slack: Vector | float = 0.0,
        least: float = 0.0,
    ) -> float:
        """Return the bound by slopes, or by a multiple of them if that is better; at least 0.

        The mean of `theta` must be 0 up to rounding if the intercept is free. `combination`,
        sum_i p_i theta_i x_i, may be given; `slack` then bounds the error of its entries beyond
        that of a product with the data. A result seen to be below `least` is replaced by 0.
        """
        model, terms = self.model, self.terms
        level, error, mean, mean_error = heights(model, theta)
        if terms.intercept_is_free and terms.holds_origin and not level - error > least:
            return 0.0  # avoids a product with the data
        if combination is None:
            combination = model.combination(theta)[: model.n_features]
        off = model.rounding.combination(norm(np.sqrt(model.shares) * theta)) + slack
        sums = SlopeSums(level, error, mean, mean_error, combination, off)
        return self._noted(terms.lower_bound(sums, self.reach), theta)

    def _noted(self, bound: float, slopes: Vector) -> float:
        """Return a bound, and keep the slopes if it is the largest so far."""
        if self.has_slopes_here and bound > self.proof.bound:
            self._kept["proof"] = Proof(bound, slopes)
        return bound

    @property
    def proof(self) -> Proof:
        """The largest bound by slopes of rows in this process, and the slopes."""
        known: Proof = self._kept.get("proof", NO_PROOF)
        in_null_space: DualBounds | None = self._kept.get("null space")
        return known if in_null_space is None else max(known, in_null_space.proof, key=BY_BOUND)

    def without_terms(self, wish: str) -> DualBounds:
        """Return the bounds for a model whose weights only the losses bound, or refuse."""
        reason = self._obstacle()
        if reason is not None:
            raise ValueError(
                f"{wish} needs l2 > 0, but l2 is 0: without it there is no affordable bound here, "
                f"as {reason}."
            )
        return self._in_null_space

    @property
    def _in_null_space(self) -> DualBounds:
        model, terms = self.model, self.terms
        if "null space" not in self._kept:
            given = model.X, model.shares, model.fit_intercept
            space = model.of_data_alone("null space", NullSpace, *given)
            signs = needed_signs(space, terms.lower, terms.upper) if terms.has_only_signs else None
            self._kept["null space"] = DualBounds(space, model.loss, model.y, signs)
        found: DualBounds = self._kept["null space"]
        return found

    def balanced(self, theta: Vector) -> Vector:
        """Scale down the slopes above or below 0 so that sum_i p_i theta_i = 0, as needed."""
        if not self.model.fit_intercept:
            return theta
        weighted = self.model.shares * theta
        positive = float(weighted.sum(where=weighted > 0.0))
        negative = -float(weighted.sum(where=weighted < 0.0))
        up, down = self.terms.balance(positive, negative)
        if up < 1.0:
            return np.where(theta > 0.0, theta * up, theta)
        return theta if down == 1.0 else np.where(theta < 0.0, theta * down, theta)

    def _at_best_intercept(self, known: ModelPoint) -> Vector:
        """Return slopes at the shift of all margins that minimises the mean loss.

        The sum of slopes is nondecreasing in the shift. Slopes just below and just above its root
        are nearly subgradients there; their mixture with sum 0 also works where the sum jumps
        across 0, at kinks.
        """
        model, margins = known.model, known.margins

        def slopes(shift: float) -> Vector:
            return model.slopes(margins + shift)

        def total(shift: float) -> float:
            return float(model.shares @ slopes(shift))

        size = float(np.abs(margins).max() + np.abs(model.y).max()) + 1.0
        ends = _bracket(total, size)
        if ends is None:
            return slopes(0.0)
        unit = 4.0 * UNIT
        shift = root_between(total, *ends, xtol=unit * size, rtol=unit, maxiter=500, disp=False)
        width = 2.0 * unit * (size + abs(shift))
        below, above = slopes(shift - width), slopes(shift + width)
        low, high = float(model.shares @ below), float(model.shares @ above)
        if not low < 0.0 < high:
            return slopes(shift)
        return (high * below - low * above) / (high - low)

    def reach(self) -> Reach:
        """Return how large a minimiser can be, given the objective at a feasible point.

        That is w = 0, with a good intercept if it is free.
        """
        if "reach" not in self._kept:
            model, chosen, value = self.model, self.terms.feasible_set, None
            if chosen is not None:
                point = chosen.project(np.zeros(model.n_parameters))
                weights = point[: model.n_features]
                if weights.any() or not self.terms.intercept_is_free:
                    loss = model.value(point) - 0.5 * model.l2 * float(weights @ weights)
                    value = float(self.terms.objective(loss, weights))
            if value is None:
                constants = [0.0]
                if model.fit_intercept and not model.loss.classification:
                    constants += model.good_constants()
                value = float(model.losses_of(constants).min())
            sizes = DataSizes(model.rounding.size, *model.target_sizes())
            self._kept["reach"] = Reach(self.terms, model.loss, sizes, value)
        reach: Reach = self._kept["reach"]
        return reach

    def resolution(self, w: Vector, value: float) -> float:
        """Return roughly the smallest gap that can be proved at w; 0 if unknown."""
        if not self.terms.gets_tight and not self.has_only_signs:
            return 0.0
        model = self.model
        rounding = model.rounding_at(w, value)
        least = rounding.level + rounding.value
        if self.terms.has_l1 and self.terms.l2 == 0.0:
            # Slopes, with their rounding errors, are scaled down to within the l1 term.
            off = model.rounding.combination(slopes_norm(model.loss, value))
            with np.errstate(divide="ignore"):
                held = np.isfinite(self.terms.lower) & np.isfinite(self.terms.upper)
                shares = np.where(held, 0.0, off / self.terms.l1)
            least += (float(shares.max()) + 1.0 - MULTIPLE_ROUNDED_DOWN) * value
        if self.has_only_signs:
            steep = slopes_norm(model.loss, value)
            return least + self._in_null_space.resolution(steep, w)
        if model.fit_intercept:
            mean = pairwise_growth(model.n_samples) * slopes_norm(model.loss, value)
            least += mean * self.reach().intercept
        return least

    def distance_bound(self, x0: Vector) -> float:
        """Return a bound of the distance from x0 to the minimiser: `LinearModel.distance_bound`."""
        if self.model.l2 == 0.0 or self.model.fit_intercept:
            return math.inf
        from_origin = math.sqrt(2.0 * self.reach().value / self.model.l2) + norm(x0)
        return min(self.distance_by_gap(x0), ROUNDED_UP * from_origin)

    def distance_by_gap(self, x0: Vector) -> float:
        """Return the bound of the distance to the minimiser by the dual gap at x0, for l2 > 0."""
        at = self.model.at(x0)
        excess = at.dual_gap + self.model.rounding_at(x0, at.value).value
        return ROUNDED_UP * math.sqrt(2.0 * excess / self.model.l2)


def _bracket(total: Callable[[float], float], size: float) -> tuple[float, float] | None:
    """Return two shifts between which a nondecreasing function changes its sign, or None."""
    start = total(0.0)
    if start == 0.0:
        return None
    direction, shift = -math.copysign(1.0, start), 0.0
    for step in size * FIRST_SHIFTS:
        next_shift = direction * float(step)
        if total(next_shift) * direction >= 0.0:
            return min(shift, next_shift), max(shift, next_shift)
        shift = next_shift
    return None


@dataclass(frozen=True, eq=False)
class LateBound:
    """An expensive lower bound of the minimum of a sum over rows, computed when called.

    It is given by the slopes at `point`, or by `slopes` of rows in memory. `smoothing` is the
    parameter mu of the smoothed loss (0: none), `known` what is already known at the point.
    """

    model: LinearModel
    point: Any = None
    slopes: Vector | None = None
    smoothing: float = 0.0
    known: ModelPoint | None = None

    def __call__(self) -> float:
        """Return the bound."""
        model, known = self.model, self.known
        if self.slopes is not None:
            return float(model.dual.bound(self.slopes))
        if known is None:
            known = model.smoothed(self.smoothing).at(self.point)
        return float(model.dual.at(known)) if self.smoothing else known.dual_value

    def state(self) -> dict[str, Any]:
        """Return all that is needed to compute it later."""
        return {"point": self.point, "slopes": self.slopes, "smoothing": self.smoothing}


class DualCertificate:
    """Bounds by the Fenchel dual of a linear model, with penalty and constraint: valid everywhere.

    They come from the slopes at a point, or from average slopes, which prove more for losses with
    kinks. Many cost a product with the data, so they are computed at ever rarer steps. `often` says
    whether an up-to-date bound may end the run.
    """

    def __init__(self, dual: ModelDual, *, often: bool = True) -> None:
        self.dual, self.model = dual, dual.model
        self.lower_bound = 0.0  # losses are nonnegative
        #: steps between two costly bounds, as a share of those so far
        self._spacing = SPACING if often else SELDOM
        self._count = 0
        self._next = 0
        self._weight, self._slopes = 0.0, np.zeros(0)  # of the average
        self._best: ModelPoint | None = None
        self._best_value = math.inf
        self._late: LateBound | None = None  # of the last evaluation, not computed yet

    def add(self, evaluation: Any, weight: float) -> None:
        """Take in the slopes at an evaluation; weight 0 keeps them out of the average."""
        self._count += 1
        known, self._late = evaluation.dual_value, evaluation.late_bound
        if known is not None:
            self.lower_bound, self._late = max(self.lower_bound, known), None
        elif self._late is None:
            self._add_slopes(evaluation, weight)
        else:
            self._finish_if_due()

    def _finish_if_due(self) -> None:
        if self._count >= max(self._next, PATIENCE):
            self._next = self._count + max(PATIENCE, int(self._spacing * self._count))
            self.finish()

    def _add_slopes(self, evaluation: Any, weight: float) -> None:
        at: ModelPoint | None = evaluation.model  # None for evaluations that a rule carried over
        if weight > 0.0 and at is not None and self.dual.has_slopes_here:
            share = float(self._count) ** FORGETTING
            self._weight += share
            moved = share * at.derivatives
            self._slopes = self._slopes + moved if self._slopes.size else moved
        is_due = self._count >= max(self._next, PATIENCE if self.dual.needs_null_space else 0)
        is_best = self._best is None or evaluation.value < self._best_value
        if at is None and (is_due or is_best):
            at = self.model.at(evaluation.point)
        if is_best:
            self._best, self._best_value = at, float(evaluation.value)
        if self.dual.needs_null_space:
            self._finish_if_due()
        elif is_due or weight == 0.0:
            assert at is not None
            self._next = self._count + 1 + int(SPACING * self._count)
            self._look(at)

    def _look(self, at: ModelPoint) -> None:
        """Raise the bound by the slopes at a point and, if useful, by average slopes."""
        dual = self.dual
        # The point stores the model's own bound; an l2 term of a penalty changes it.
        is_models = dual.has_only_l2 and dual.terms.l2 == self.model.l2
        before = self.lower_bound
        self.lower_bound = best = max(before, at.dual_value if is_models else dual.at(at))
        # Without kinks the slopes improve steadily, so their average seldom proves more.
        if self._weight > 0.0 and (best == before or self.model.loss.curvature == math.inf):
            average = self._slopes / self._weight
            self.lower_bound = max(best, dual.at_slopes(average, least=best))

    def resolution(self, evaluation: Any) -> float:
        """Return roughly the smallest gap that rounding lets a dual point prove at a point."""
        value = evaluation.value - evaluation.penalty
        return PROVABLE * self.dual.resolution(evaluation.point, value)

    def finish(self) -> None:
        """Compute the expensive bounds from what is known now."""
        if self._late is not None:
            late, self._late = self._late, None
            self.lower_bound = max(self.lower_bound, late())
        if self._best is not None:
            self._look(self._best)

    def forget(self) -> None:
        """Start a new average."""
        self._weight, self._slopes = 0.0, np.zeros(0)

    _KEPT = ("lower_bound", "_best_value", "_count", "_next", "_slopes", "_weight")

    def state(self) -> dict[str, Any]:
        """Return all that a checkpoint has to keep."""
        return {
            "best": None if self._best is None else self._best.w,
            "late": None if self._late is None else self._late.state(),
            **{name: getattr(self, name) for name in self._KEPT},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint."""
        for name in self._KEPT:
            setattr(self, name, state[name])
        best, late = state["best"], state["late"]
        self._best = None if best is None else self.model.at(best)
        self._late = None if late is None else LateBound(self.model, **late)
