r"""Lower bounds from cuts: a proof of accuracy that needs no additional call.

Convexity gives :math:`f(u) \ge f(x_t) + \langle g_t, u - x_t\rangle` for every u. Hence two lower
bounds on the minimum over a region K: the best single cut, which is tight near the end of a smooth
run, and the average of all cuts with the method's weights, which is tight for non-smooth functions.
The best average of the kept cuts proves more than both; it is computed where it may end the run,
and at the end.

Every bound is lowered by what rounding can have added to it (`accelegrad.models.rounding`). Values
and gradients of a user's function are assumed right to a few units in the last place of its dtype.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from accelegrad.bundle.cut_memory import SMALLEST_TOTAL, CutMemory
from accelegrad.bundle.cut_model import Center, CutModel, Lowest
from accelegrad.errors import NonFiniteError, Vector
from accelegrad.geometry.penalties import Penalty
from accelegrad.models.linear_model import LinearModel
from accelegrad.models.rounding import PointRounding, few_bits_rounding
from accelegrad.norms import norm
from accelegrad.proofs.region import LONGEST_STEP, Region
from accelegrad.proofs.sharp_average import sharp_average
from accelegrad.rounding import FEW, SMALLEST, UNIT, growth
from accelegrad.rules.base import Evaluated, KnownEvaluation, inner

#: Bounds that are costly or cannot end the run are computed once per this many cuts, and at least
#: this many steps pass between two searches for the best average of the kept cuts, each of which
#: costs as much as several steps. Chosen.
PAUSE = 20
#: The smallest gap that is asked for, as a multiple of what rounding can add to a bound
PROVABLE = 2.0
#: The best average is searched in at most this many rounds, as long as each raises the bound.
#: Chosen: with 4 or 16 the battery takes 0.998 or 1.000 of the calls.
MOST_TIGHTENED = 8
#: If the slope of the best average is a smaller share of the cuts' slopes, their Gram matrix has
#: lost too many digits. Twice or half of it changes nothing on the battery; without the limit,
#: 500 steps on a total variation of 2000 numbers take 5.6 times as long (gate.py).
CANCELLED = 1e-5


def rounding_of(model: LinearModel, evaluation: Any) -> PointRounding:
    """Return how far value and gradient of an evaluation can be off, stored if possible."""
    kept = evaluation.rounding
    if kept is not None and kept[0] is model:
        known: PointRounding = kept[1]
        return known
    value = evaluation.value - evaluation.penalty
    found = model.rounding_at(evaluation.point, value)
    if not isinstance(evaluation, KnownEvaluation):
        evaluation.rounding = model, found
    return found


class Cut(NamedTuple):
    """A cut as a linear function around the region's centre, with its weight in the average."""

    weight: float
    level: float  # its value at the centre
    size: float  # its absolute value; for a sum, over all terms
    error: float  # how far rounding can have moved the level
    slack: float  # the same for the gradient, as a norm
    length: float  # the gradient's norm
    gradient: Vector

    def plus(self, cut: Cut) -> Cut:
        """Return the sum of this cut and the weighted other one."""
        weight = cut.weight
        added: list[tuple[Any, Any]] = list(zip(self[1:], cut[1:], strict=True))
        return Cut._make([self.weight + weight, *(old + weight * new for old, new in added)])


class CutCertificate:
    """Single and average cuts over a region, with the region's penalty added.

    If a minimum over the region is costly, bounds are computed only once per several steps. `model`
    gives the rounding errors of a linear model, `often` says whether an up-to-date bound may end
    the run, and `kept` stores cuts for their best average.
    """

    def __init__(
        self,
        region: Region,
        model: LinearModel | None = None,
        *,
        often: bool = True,
        kept: CutMemory | None = None,
    ) -> None:
        self.region, self.model = region, model
        self.kept, self._shared = kept, False
        self._lost_in_average = 0.0  # what rounding takes from the best average so far
        self._step = 0.0  # of the cut model, for the last best average
        #: the last cut, or average, that raised the bound: it also proves something over a larger
        #: region
        self._record: Cut | None = None
        self.lower_bound = -math.inf
        self._growth = growth(region.center.size)
        self._unit = UNIT  # unit of rounding of the user's function
        self._sum = Cut(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, np.zeros_like(region.center))
        self._count = self._waiting = 0  # cuts in the sum, and those since its bound was computed
        self._last: Cut | None = None
        self._every = 1 if often and not region.costly else PAUSE
        self._centred = not region.center.any()

    def share(self, kept: CutMemory) -> None:
        """Use the cuts that a rule keeps."""
        self.kept, self._shared = kept, True

    def add(self, evaluation: Evaluated, weight: float) -> None:
        """Take in the cut at an evaluation; weight 0 keeps it out of the average."""
        cut = self._cut(evaluation, weight)
        if self.kept is not None and not self._shared:
            self.kept.take(evaluation)
        if not self.region.costly:
            if self._raise_to(self._bound(cut), cut):
                self._lost_in_average = 0.0  # this cut alone proves more
            if weight == 0.0:
                return
        # An interrupt between the assignments counts a cut twice: still an average of cuts.
        self._sum = self._sum.plus(cut)
        self._count, self._waiting, self._last = self._count + 1, self._waiting + 1, cut
        # With kept cuts the bracket decides when a costly bound is due.
        if (weight == 0.0 and self.kept is None) or self._waiting >= self._every:
            self.refresh()

    def _cut(self, evaluation: Evaluated, weight: float) -> Cut:
        gradient, value, point = evaluation.gradient, evaluation.value, evaluation.point
        offset = point if self._centred else point - self.region.center
        slope = inner(gradient, offset)
        square = evaluation.squared_norm
        length = math.sqrt(square) if square > 1e-280 else norm(gradient)
        away = norm(offset)
        penalty = evaluation.penalty  # the cuts are those of the function alone
        off, slack = self._rounding(evaluation, length)
        # The product is at most `size`, and so is each of its terms.
        size = abs(value) + abs(penalty) + length * away
        error = self._growth * size + off + slack * away + offset.size * SMALLEST
        level = value - penalty - slope
        return Cut(weight, level, abs(level), error, slack, length, gradient)

    def _rounding(self, evaluation: Evaluated, length: float) -> tuple[float, float]:
        """Return how far value and gradient can be off; for a user's function, by its dtype."""
        if self.model is None:
            # An evaluation carried over by a rule does not know its dtype, but others of the run
            # do.
            if evaluation.unit > self._unit:
                self._blur(evaluation.unit)
            accuracy = evaluation.accuracy
            if self._unit == UNIT:
                return accuracy, 0.0
            size = abs(evaluation.value) + abs(evaluation.penalty)
            lost = few_bits_rounding(self._unit, size, length, evaluation.point)
            return accuracy + lost.value, lost.gradient
        rounding = rounding_of(self.model, evaluation)
        return rounding.value, rounding.gradient

    def lost_at(self, evaluation: Evaluated) -> float:
        """Return how far the value of a low-precision user function can be off."""
        if self._unit == UNIT:
            return 0.0
        return self._rounding(evaluation, norm(evaluation.gradient))[0]

    def _blur(self, unit: float) -> None:
        """Assume a larger unit of rounding and discard what was proved with the smaller one."""
        if self.kept is not None:
            self.kept.blur(growth(self.region.center.size, unit) - self._growth)
        self._unit, self.lower_bound, self._record = unit, -math.inf, None
        self._waiting = 0
        self.forget()

    def resolution(self, evaluation: Evaluated) -> float:
        """Return roughly the smallest gap that a cut can prove at a point, given rounding."""
        cut, radius = self._cut(evaluation, 0.0), self.region.radius
        if self.region.penalty is not None and self.region.minorant_suffices:
            cut = self._with_penalty(cut, self.region.penalty)  # both slopes cancel at a minimiser
        slack = cut.slack * self.region.stretch + self._growth * cut.length
        lost = cut.error + self._growth * cut.size + slack * radius
        return PROVABLE * max(lost, self._lost_in_average)

    def refresh(self) -> None:
        """Update the bound with all cuts so far."""
        if self._waiting == 0:
            return
        self._waiting = 0
        if self.region.costly and self._last is not None:
            self._raise_to(self._bound(self._last), self._last)
        self._raise_by_sum()

    @property
    def averages(self) -> bool:
        """Whether a rule works with averages of the kept cuts."""
        return self.kept is not None and self.kept.has_weights

    def take_last_average(self) -> bool:
        """Raise the bound by the average that a rule has just used, if there is one."""
        if self.kept is None or not self.averages:
            return False
        return self._raise_by_average(self.kept, self.kept.last_weights)

    def tighten(self, best: Evaluated, goal: float = 0.0) -> None:
        """Search for the average of the kept cuts that proves most at a point with a low value.

        For a ball of radius R around x0 the best weights minimise R ||g|| - h, with g and h the
        average's slope and level. A step t of the cut model gives those that minimise t ||g||^2 / 2
        - h; with t = R / ||g|| they agree, so t is corrected until they do. A gap of `goal` is
        small enough.
        """
        self.refresh()
        kept, region = self.kept, self.region
        if kept is None or kept.count == 0 or not region.radius > 0.0:
            return
        center = Center(best.point, best.value, best.penalty)
        steepness = math.sqrt(best.squared_norm)
        first = region.radius / steepness if steepness > 0.0 else region.radius
        step = max(first, self._step) if goal > 0.0 else first
        for _ in range(MOST_TIGHTENED):
            before = self.lower_bound
            lowest = self.lowest(center, step)
            if lowest is None:
                return
            weights, slope = lowest.weights, lowest.slope
            if self._raise_by_average(kept, weights):
                self._step = step
            elif step == self._step > first:  # too long: the products of these cuts lack digits
                self._step, step = 0.0, first
                continue
            if 0.0 <= best.value - self.lower_bound <= goal:
                return
            length = norm(slope)
            wanted = region.radius / length if length > 0.0 else math.inf
            # Inside a set a longer step moves the point no farther.
            raised = self.lower_bound > before
            if not raised and (wanted <= 2.0 * step or not region.is_ball):
                break
            step = min(max(wanted, 0.1 * step), 100.0 * step, LONGEST_STEP)
        if region.is_ball and region.penalty is None and region.change is None:
            self._sharpen(kept, best, weights)

    def _sharpen(self, kept: CutMemory, best: Evaluated, weights: Vector) -> None:
        """Continue from the slopes themselves where their products lack digits."""
        radius, slope = self.region.radius, weights @ kept.slopes
        below = np.maximum(best.value - kept.values_at(best.point), 0.0)
        for _ in range(MOST_TIGHTENED):
            before, length = self.lower_bound, norm(slope)
            if not 0.0 < length < CANCELLED * float(weights @ kept.lengths):
                return
            linear = below * (length / radius)
            weights = sharp_average(kept.slopes, linear, weights)
            self._raise_by_average(kept, weights)
            slope = weights @ kept.slopes
            if not self.lower_bound > before and norm(slope) > 0.5 * length:
                return

    def lowest(self, center: Center, step: float) -> Lowest | None:
        """Return the minimum of the cut model near a centre; None if numbers overflow."""
        kept = self.kept
        assert kept is not None
        model = cut_model(kept, self.region)
        try:
            return model.lowest(center, step, keep=False)
        except NonFiniteError:
            return None

    def _raise_by_average(self, kept: CutMemory, weights: Vector) -> bool:
        """Take an average of the kept cuts if it proves more; return whether it does."""
        mean = kept.mean(weights)
        if mean is None:
            return False
        slope, (level, _, _, size, length, lost, blurred) = mean
        # The rounding error of each cut's level is relative to its size.
        error = lost + self._growth * size + slope.size * SMALLEST
        length = norm(slope)
        cut = Cut(1.0, level, size, error, blurred, length, slope)
        if not self._raise_to(self._bound(cut), cut):
            return False
        reach = self.region.radius * (blurred + self._growth * length)
        self._lost_in_average = error + self._growth * size + reach
        return True

    def _raise_by_sum(self) -> None:
        total = self._sum
        if not total.weight > SMALLEST_TOTAL:
            return
        # Each term is rounded at most once per addition.
        times, size = FEW + self._count, total.gradient.size
        total = total._replace(
            error=total.error + times * (UNIT * total.size + SMALLEST),
            slack=total.slack + times * (UNIT * total.length + size * SMALLEST),
        )
        if self.region.penalty is None:  # the minimum of a multiple is a multiple of the minimum
            bound = self._bound(total._replace(length=norm(total.gradient))) / total.weight
            self._raise_to(bound - FEW * UNIT * abs(bound))
            return
        share = 1 / total.weight
        mean = Cut._make([1.0, *(share * part for part in total[1:])])
        self._raise_to(self._bound(mean._replace(length=norm(mean.gradient))))

    def widen(self, radius: float) -> None:
        """Enlarge the region and prove what the best cut so far proves over it."""
        self.refresh()
        self.region.radius = radius
        self.lower_bound = -math.inf if self._record is None else self._bound(self._record)
        self._raise_by_sum()

    def forget(self) -> None:
        """Start a new average: after a restart the old cuts would only weaken it."""
        self.refresh()
        self._sum = Cut(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, np.zeros_like(self.region.center))
        self._count = 0

    def _bound(self, cut: Cut) -> float:
        """Return the minimum of a cut over the region, lowered by what rounding may have added."""
        penalty, region = self.region.penalty, self.region
        slack = cut.slack * region.stretch * region.radius if cut.slack > 0.0 else 0.0
        if penalty is None:
            return self._linear_bound(cut, slack)
        if region.minorant_suffices:
            return self._linear_bound(self._with_penalty(cut, penalty), slack)
        least, size = region.minimum_with_penalty(cut.gradient, cut.size)
        return cut.level + least - (cut.error + slack + self._growth * (cut.size + size))

    def _linear_bound(self, cut: Cut, slack: float) -> float:
        least, size = self.region.minimum(cut.gradient, cut.length)
        if least == -math.inf:
            return least
        lost = cut.error + slack + self._growth * (cut.size + size)
        return cut.level + least - lost - cut.gradient.size * SMALLEST

    def _with_penalty(self, cut: Cut, penalty: Penalty) -> Cut:
        slope, constant = penalty.affine_minorant(cut.gradient)
        at_center = constant + inner(slope, self.region.center)
        gradient, steep = cut.gradient + slope, norm(slope)
        length = norm(gradient)
        # The constant is a difference of terms as large as the product of the two norms.
        size = abs(constant) + steep * (length + norm(self.region.center))
        # The slope is a difference, off by a few units of rounding of its terms.
        off = FEW * UNIT * (cut.length + steep)
        slack = cut.slack + off
        error = cut.error + self._growth * size + off * norm(self.region.center)
        level = cut.level + at_center
        return Cut(cut.weight, level, cut.size + size, error, slack, length, gradient)

    def _raise_to(self, bound: float, cut: Cut | None = None) -> bool:
        """Take a bound if it is better, and remember the cut that proves it."""
        if not bound > self.lower_bound:
            return False
        self.lower_bound = bound
        if cut is not None:
            self._record = cut
        return True

    def state(self) -> dict[str, Any]:
        """Return all that a checkpoint has to keep."""
        return {
            "lower_bound": self.lower_bound,
            "radius": self.region.radius,
            "sum": self._sum._asdict(),
            "count": self._count,
            "lost_in_average": self._lost_in_average,
            "step": self._step,
            "unit": self._unit,
            "waiting": self._waiting,
            "last": None if self._last is None else self._last._asdict(),
            "record": None if self._record is None else self._record._asdict(),
            "kept": None if self.kept is None or self._shared else self.kept.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint."""
        self.lower_bound = state["lower_bound"]
        self.region.radius = state["radius"]
        self._sum, self._count = Cut(**state["sum"]), state["count"]
        self._lost_in_average, self._unit = state["lost_in_average"], state["unit"]
        self._step = state["step"]
        if self.kept is not None and not self._shared:
            self.kept.restore(state["kept"])
        self._waiting, last, record = state["waiting"], state["last"], state["record"]
        self._last = None if last is None else Cut(**last)
        self._record = None if record is None else Cut(**record)


def cut_model(kept: CutMemory, region: Region) -> CutModel:
    """Return the model given by cuts, with the region's constraint and penalty."""
    chosen, penalty = region.feasible_set, region.penalty
    project, lowest = (None, None) if region.is_ball else (chosen.project, chosen.lowest_of_cuts)
    prox, value = (None, None) if penalty is None else (penalty.prox, penalty.value)
    return CutModel(kept, project, prox, value, lowest)
