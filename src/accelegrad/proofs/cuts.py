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
from typing import Any, NamedTuple

import numpy as np

from accelegrad.bundle.cut_memory import (
    SMALLEST_TOTAL,
    Average,
    CutMemory,
    CutModel,
    Lowest,
    Piece,
)
from accelegrad.errors import NonFiniteError, Vector
from accelegrad.files.saved import Saved
from accelegrad.geometry.penalties import Penalty
from accelegrad.geometry.sets import FeasibleSet, WholeSpace
from accelegrad.linalg import FEW, SMALLEST, UNIT, growth, norm
from accelegrad.models.linear_model import LinearModel
from accelegrad.models.rounding import PointRounding, few_bits_rounding
from accelegrad.models.scaling import ColumnScaling
from accelegrad.proofs.sharp_average import sharp_average
from accelegrad.rules.base import Evaluated, KnownEvaluation

#: Bounds that are costly or cannot end the run are computed once per this many cuts, and at least
#: this many steps pass between two searches for the best average of the kept cuts, each of which
#: costs as much as several steps. Chosen.
PAUSE = 20
#: The smallest gap that is asked for, as a multiple of what rounding can add to a bound
PROVABLE = 2.0
#: The best average is searched in at most this many rounds, as long as each raises the bound.
#: Chosen: with 2 or 8 the battery takes as many calls.
MOST_TIGHTENED = 4
#: It ends where its gap is at most so many times one that no average can go below. Chosen.
NEARLY_ALL = 1.01
#: If the slope of the best average is a smaller share of the cuts' slopes, their Gram matrix has
#: lost too many digits. Twice or half of it changes nothing on the battery; without the limit,
#: 500 steps on a total variation of 2000 numbers take 5.6 times as long (gate.py).
CANCELLED = 1e-5
#: Most steps tried for the minimum of a cut plus a penalty.
MOST_STEPS = 10
#: What the bound of the longest of these steps loses, relative to the cut's terms
GIVEN_AWAY = 1e-12
#: No step is longer: its square may be needed.
LONGEST_STEP = 1e100
#: Tolerance, in radii, on a minimum at the region's boundary.
NEAR_BOUNDARY = 0.05


class Region(Saved):
    """Where a minimiser is known (a bounded set) or assumed (near the start) to be.

    The ball around `center` also contains it: by the diameter of a bounded set, or by assumption
    (`assumed`). A `growing` radius is a guess that grows with the distance travelled. Bounds are on
    the sum of the function and the penalty. With `change` the ball is one in v of x = T v, an
    ellipsoid in x, and `stretch` is the factor by which T' can lengthen the error of a gradient.
    """

    saved = ("radius",)

    def __init__(
        self,
        feasible_set: FeasibleSet,
        center: Vector,
        radius: float,
        *,
        assumed: bool,
        growing: bool = False,
        penalty: Penalty | None = None,
        change: ColumnScaling | None = None,
        stretch: float = 1.0,
    ) -> None:
        self.feasible_set, self.center, self.radius = feasible_set, center, radius
        self.assumed, self.growing = assumed, growing
        self.penalty, self.change, self.stretch = penalty, change, stretch
        self._inner = center, feasible_set  # in the coordinates of the ball
        if change is not None:
            chosen = change.scaled_set(feasible_set, center.size)
            self._inner = change.invert(center), chosen or WholeSpace()
        #: whether there is no constraint
        self.is_ball = isinstance(feasible_set, WholeSpace)
        self._closed_form = (
            not (assumed or self.is_ball)
            and math.isfinite(feasible_set.diameter_for(center.size))
            and math.isfinite(feasible_set.linear_minimum(np.ones_like(center)))
        )
        #: a minimum over both set and ball takes many projections
        self.costly = not (self.is_ball or self._closed_form) or feasible_set.costly_minimum
        #: whether an affine minorant of the penalty suffices for a tight bound, or is all there is:
        #: the penalty is not known in scaled coordinates
        self.minorant_suffices = penalty is not None and (
            change is not None
            or (penalty.homogeneous and feasible_set.contains(np.zeros_like(center)))
        )

    def distance_to_boundary(self, point: Vector, direction: Vector) -> float:
        """Return the distance from a point in the ball to its boundary, along a direction."""
        offset = point - self.center
        along = float(offset.dot(direction / norm(direction)))
        inside = max(self.radius * self.radius - float(offset.dot(offset)), 0.0)
        return float(math.sqrt(along * along + inside) - along)

    def minimum(self, gradient: Vector, length: float) -> tuple[float, float]:
        """Return a lower bound of the minimum of <gradient, u - center>, and its terms' size."""
        center, feasible_set = self._inner
        if self.change is not None:
            gradient = self.change.adjoint(gradient)
            length = norm(gradient)
        if self.is_ball:
            least = -self.radius * length
            return least, -least
        reach = norm(center) + self.radius
        if self._closed_form:
            least = feasible_set.linear_minimum(gradient)
        else:
            least = feasible_set.linear_minimum_in_ball(gradient, center, self.radius)
        return least - float(gradient @ center), 2.0 * reach * length

    def minimum_with_penalty(self, gradient: Vector, size: float) -> tuple[float, float]:
        """Return a lower bound of the minimum of <gradient, u - center> + phi(u) over the region.

        The second number is the size of its terms. For every step s > 0 the point p = prox(center -
        s gradient, s) minimises that sum plus ||u - center||^2 / (2 s), and the latter is at most
        R^2 / (2 s) in the region, so the sum at p plus (||p - center||^2 - R^2) / (2 s) is a lower
        bound. It is the minimum if p is on the boundary of the ball, and nearly if s is long and p
        inside. The distance of p grows with s, and its ratio to s falls: hence the search. `size`,
        that of the cut, determines the longest step.
        """
        assert self.penalty is not None
        phi, bounds, radius = self.penalty, [(-math.inf, 0.0)], self.radius
        if not radius > 0:
            value = phi.value(self.center)
            return value, abs(value)
        length = norm(gradient)
        size = max(size, radius * length, SMALLEST / GIVEN_AWAY)
        step = longest = min(radius * (radius / (2 * GIVEN_AWAY * size)), LONGEST_STEP)
        low, high = 0.0, longest
        with np.errstate(over="ignore", invalid="ignore"):
            for _ in range(MOST_STEPS):
                try:
                    moved = phi.prox(self.center - step * gradient, step)
                except NonFiniteError:
                    moved = np.full_like(gradient, math.nan)
                if not math.isfinite(norm(moved)):
                    high, away = step, math.inf
                else:
                    point = self.feasible_set.project(moved)
                    away = math.dist(point, self.center)
                    bounds.append(self._lagrangian(gradient, point, away, step))
                    on_boundary = abs(away - radius) <= NEAR_BOUNDARY * radius
                    if on_boundary or (away < radius and step == longest):
                        break
                    if away > radius:
                        high = step * radius / away
                    else:
                        low = step * radius / away if away > 0 else step
                shorter = 0.1 * high if length == 0 else min(0.1 * high, radius / length)
                between = math.sqrt(low) * math.sqrt(high) if low > 0 else shorter
                step = min(between, LONGEST_STEP)
        return max(bounds)

    def _lagrangian(
        self, gradient: Vector, point: Vector, away: float, step: float
    ) -> tuple[float, float]:
        """Return the bound that a step gives, and the size of its terms."""
        assert self.penalty is not None
        slope = float(gradient.dot(point - self.center))
        value = self.penalty.value(point)
        slack = (away - self.radius) * (away + self.radius) / (2 * step)
        bound = slope + value + slack
        # The point is a prox of terms that may be much larger than itself.
        size = abs(slope) + abs(value) + abs(slack) + norm(gradient) * (away + self.radius)
        return (bound, size) if math.isfinite(bound) else (-math.inf, 0.0)


def rounding_of(model: LinearModel, evaluation: Any) -> PointRounding:
    """Return how far value and gradient of an evaluation can be off, stored if possible."""
    kept = evaluation.rounding
    if kept is not None and kept[0] is model:
        return kept[1]  # type: ignore[no-any-return]
    found = model.rounding_at(evaluation.point, evaluation.value - evaluation.penalty)
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
        return Cut(
            self.weight + weight,
            self.level + weight * cut.level,
            self.size + weight * cut.size,
            self.error + weight * cut.error,
            self.slack + weight * cut.slack,
            self.length + weight * cut.length,
            self.gradient + weight * cut.gradient,
        )


class Evidence(NamedTuple):
    """The cuts of an average, and how far its level and slope are off besides their rounding."""

    pieces: list[Piece] | None  # None: some are not kept
    error: tuple[float, float]


class CutCertificate(Saved):
    """Single and average cuts over a region, with the region's penalty added.

    If a minimum over the region is costly, bounds are computed only once per several steps. `model`
    gives the rounding errors of a linear model, `often` says whether an up-to-date bound may end
    the run, and `kept` stores cuts for their best average.
    """

    saved = (
        *("lower_bound", "region", "_own", "_lost_in_average", "_step", "unit"),
        *("_sum", "_count", "_waiting", "_last", "_record"),
    )

    def __init__(
        self,
        region: Region,
        model: LinearModel | None = None,
        *,
        often: bool = True,
        kept: CutMemory | None = None,
    ) -> None:
        self.region, self.model = region, model
        self.kept = self._own = kept  # `_own`: unless a rule keeps them
        self.lower_bound = -math.inf
        self._lost_in_average = 0.0  # what rounding takes from the best average so far
        self._step = 0.0  # of the cut model, for the last best average
        self._growth = growth(region.center.size)
        self.unit = UNIT  # unit of rounding of the user's function, as far as it is known
        self._no_cut = Cut(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, np.zeros_like(region.center))
        self._sum = self._last = self._no_cut
        self._at_last: Any = None  # the evaluation of the last cut, for a function
        self._count = self._waiting = 0  # cuts in the sum, and those since its bound was computed
        #: the last cut, or average, that raised the bound: it also proves something over a larger
        #: region
        self._record = self._no_cut._replace(level=-math.inf)
        #: what proves the lower bound, and what the record does: an evaluation, or an average and
        #: its errors; None: it is not kept
        self._evidence: Any = None
        self._of_record: Any = None
        self._every = 1 if often and not region.costly else PAUSE

    def share(self, kept: CutMemory) -> None:
        """Use the cuts that a rule keeps."""
        self.kept, self._own = kept, None

    def add(self, evaluation: Evaluated, weight: float) -> None:
        """Take in the cut at an evaluation; weight 0 keeps it out of the average."""
        cut = self._cut(evaluation, weight)
        if self._own is not None:
            self._own.take(evaluation)
        if not self.region.costly:
            if self._raise_by(cut, evaluation if self.model is None else None):
                self._lost_in_average = 0.0  # this cut alone proves more
            if weight == 0.0:
                return
        # An interrupt between the assignments counts a cut twice: still an average of cuts.
        self._sum = self._sum.plus(cut)
        self._count, self._waiting, self._last = self._count + 1, self._waiting + 1, cut
        self._at_last = evaluation if self.model is None else None
        # With kept cuts the bracket decides when a costly bound is due.
        if (weight == 0.0 and self.kept is None) or self._waiting >= self._every:
            self.refresh()

    def _cut(self, evaluation: Evaluated, weight: float) -> Cut:
        gradient, value, penalty = evaluation.gradient, evaluation.value, evaluation.penalty
        offset = evaluation.point - self.region.center
        slope = float(gradient.dot(offset))
        square = evaluation.squared_norm
        length = math.sqrt(square) if square > 1e-280 else norm(gradient)
        away = norm(offset)
        off, slack = self.rounding(evaluation, length)
        # The product is at most `size`, and so is each of its terms.
        size = abs(value) + abs(penalty) + length * away
        error = self._growth * size + off + slack * away + offset.size * SMALLEST
        level = value - penalty - slope  # the cuts are those of the function alone
        return Cut(weight, level, abs(level), error, slack, length, gradient)

    def rounding(self, evaluation: Evaluated, length: float) -> tuple[float, float]:
        """Return how far value and gradient can be off; for a user's function, by its dtype."""
        if self.model is None:
            # An evaluation carried over by a rule does not know its dtype, but others of the run
            # do.
            if evaluation.unit > self.unit:
                self._blur(evaluation.unit)
            accuracy = evaluation.accuracy
            if self.unit == UNIT:
                return accuracy, 0.0
            size = abs(evaluation.value) + abs(evaluation.penalty)
            lost = few_bits_rounding(self.unit, size, length, evaluation.point)
            return accuracy + lost.value, lost.gradient
        rounding = rounding_of(self.model, evaluation)
        return rounding.value, rounding.gradient

    def _blur(self, unit: float) -> None:
        """Assume a larger unit of rounding and discard what was proved with the smaller one."""
        if self.kept is not None:
            self.kept.blur(growth(self.region.center.size, unit) - self._growth)
        self.unit, self.lower_bound = unit, -math.inf
        self._record = self._no_cut._replace(level=-math.inf)
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
        if self.region.costly:
            self._raise_by(self._last, self._at_last)
        self._raise_by_sum()

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
        steepness = math.sqrt(best.squared_norm)
        first = region.radius / steepness if steepness > 0.0 else region.radius
        step = max(first, self._step) if goal > 0.0 else first
        for _ in range(MOST_TIGHTENED):
            before = self.lower_bound
            lowest = self.lowest(best, step)
            if lowest is None:
                return
            weights, slope = lowest.weights, lowest.slope
            if self.raise_by_average(weights):
                self._step = step
            # In the region no average proves more than the height of the kept cuts at a point.
            gap, inside = best.value - self.lower_bound, norm(lowest.point - region.center)
            left = lowest.promise if inside <= region.radius else 0.0
            if 0.0 <= gap <= max(goal, NEARLY_ALL * left):
                return
            if self.lower_bound == before and step == self._step > first:
                # too long: the products of these cuts lack digits
                self._step, step = 0.0, first
                continue
            length = norm(slope)
            wanted = region.radius / length if length > 0.0 else math.inf
            # Inside a set a longer step moves the point no farther.
            raised = self.lower_bound > before
            if not raised and (wanted <= 2.0 * step or not region.is_ball):
                break
            step = min(max(wanted, 0.1 * step), 100.0 * step, LONGEST_STEP)
        if region.is_ball and region.penalty is None and region.change is None:
            self._sharpen(kept, best, weights, slope)

    def _sharpen(self, kept: CutMemory, best: Evaluated, weights: Vector, slope: Vector) -> None:
        """Continue from the slopes themselves where their products lack digits."""
        radius = self.region.radius
        below = np.maximum(best.value - kept.values_at(best.point), 0.0)
        for _ in range(MOST_TIGHTENED):
            before, length = self.lower_bound, norm(slope)
            if not 0.0 < length < CANCELLED * float(weights @ kept.lengths):
                return
            linear = below * (length / radius)
            weights = sharp_average(kept.slopes, linear, weights)
            self.raise_by_average(weights)
            slope = weights @ kept.slopes
            if not self.lower_bound > before and norm(slope) > 0.5 * length:
                return

    def lowest(self, center: Evaluated, step: float) -> Lowest | None:
        """Return the minimum of the cut model near a centre; None if numbers overflow."""
        assert self.kept is not None
        chosen, penalty = self.region.feasible_set, self.region.penalty
        model = CutModel(self.kept)
        if not self.region.is_ball:
            rows = chosen.rows_for(center.point.size)
            model = model._replace(project=chosen.project, rows=rows)
        if penalty is not None:
            model = model._replace(prox=penalty.prox, term=penalty.value)
        try:
            return model.lowest(center, step)
        except NonFiniteError:
            return None

    def raise_by_average(self, weights: Vector) -> bool:
        """Take an average of the kept cuts if it proves more; return whether it does."""
        mean = None if self.kept is None else self.kept.mean(weights)
        if mean is None:
            return False
        slope, (level, _, _, size, length, lost, blurred) = mean
        # The rounding error of each cut's level is relative to its size.
        error = lost + self._growth * size + slope.size * SMALLEST
        length = norm(slope)
        cut = Cut(1.0, level, size, error, blurred, length, slope)
        if not self._raise_by(cut):
            return False
        assert self.kept is not None
        average = self.kept.average(weights)
        self._evidence = self._of_record = average, (lost, blurred)
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
        mean = self._no_cut.plus(total._replace(weight=1 / total.weight))
        self._raise_by(mean._replace(length=norm(mean.gradient)), keep=False)

    def widen(self, radius: float) -> None:
        """Enlarge the region and prove what the best cut so far proves over it."""
        self.refresh()
        self.lower_bound, self.region.radius = -math.inf, radius
        self._raise_by(self._record, self._of_record)
        self._raise_by_sum()

    def forget(self) -> None:
        """Start a new average: after a restart the old cuts would only weaken it."""
        self.refresh()
        self._sum, self._count = self._no_cut, 0

    @property
    def evidence(self) -> Evidence:
        """What proves the lower bound."""
        found = self._evidence
        if found is None:
            return Evidence(None, (0.0, 0.0))
        if isinstance(found, tuple) and isinstance(found[0], Average):
            return Evidence(found[0].pieces(), found[1])
        off, slack = self.rounding(found, norm(found.gradient))
        away = norm(found.point - self.region.center)
        piece = Piece(1.0, found.point, found.value - found.penalty, found.gradient)
        return Evidence([piece], (off + slack * away, slack))

    def _raise_by(self, given: Cut, evidence: Any = None, *, keep: bool = True) -> bool:
        """Take what a cut proves if that is more than is known; return whether it is.

        It proves its minimum over the region, lowered by what rounding may have added. The cut is
        kept for larger regions, unless `keep` is false.
        """
        penalty, region, cut = self.region.penalty, self.region, given
        slack = cut.slack * region.stretch * region.radius if cut.slack > 0.0 else 0.0
        if penalty is not None and not region.minorant_suffices:
            least, size = region.minimum_with_penalty(cut.gradient, cut.size)
            vanished = 0.0
        else:
            if penalty is not None:
                cut = self._with_penalty(cut, penalty)
            least, size = region.minimum(cut.gradient, cut.length)
            vanished = cut.gradient.size * SMALLEST
        if least == -math.inf:
            return False
        lost = cut.error + slack + self._growth * (cut.size + size)
        bound = cut.level + least - lost - vanished
        if not bound > self.lower_bound:
            return False
        self.lower_bound, self._evidence = bound, evidence
        if keep:
            self._record, self._of_record = given, evidence
        return True

    def _with_penalty(self, cut: Cut, penalty: Penalty) -> Cut:
        slope, constant = penalty.affine_minorant(cut.gradient)
        at_center = constant + float(slope.dot(self.region.center))
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
