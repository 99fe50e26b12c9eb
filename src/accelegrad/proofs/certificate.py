r"""Cuts -> lower bound -> gap: a proof of accuracy that costs no call of its own.

Convexity gives :math:`f(u) \ge f(x_t) + \langle g_t, u - x_t\rangle` for every u. Two lower bounds
on the minimum over a region K follow: the best single cut, and the average of all the cuts with the
method's weights. Near the end of a smooth run the single cut is the tight one, on non-smooth
functions the average. For a linear model with an l2 term, the cut of the loss alone, with the l2
term kept as it is, gives the Fenchel dual value: a bound that needs no K.

Every bound is lowered by what rounding can have added to it: see
`accelegrad.proofs.rounding`. Of a user's function value and gradient are taken to be right to
some units of rounding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from accelegrad.errors import NonFiniteError, Vector
from accelegrad.problems.linear_model import Evaluation as ModelEvaluation
from accelegrad.problems.linear_model import LinearModel
from accelegrad.problems.penalties import Penalty
from accelegrad.problems.sets import FeasibleSet, WholeSpace
from accelegrad.problems.squares import norm
from accelegrad.proofs.rounding import FEW, SMALLEST, UNIT, growth, scaled_bound, slopes_norm
from accelegrad.rules.base import Evaluation, inner

BLOCK = 16  # cuts that are added to the aggregate together, of long vectors or without a goal
LONG = 2048  # entries: of shorter ones they are added one by one, which proves more
BLOCK_NUMBERS = 1 << 20  # numbers that may wait for it: huge vectors are not gathered
PATIENCE = 20  # steps before a dual bound of a model without an l2 term, and between two
LATE_PATIENCE = 8  # the same for the steps of a method that needs few of them
OFTEN, SELDOM = (
    0.25,
    3.0,
)  # more steps between two, as a share of those so far: with a goal, without
MOST_STEPS = 10  # tried for the least value of a cut and a penalty together,
SPARE = 1e-12  # the longest of which gives away so much, relative to the cut's terms,
LONGEST_STEP = 1e250  # and is not longer than this: a square of it may be needed
LEAST_WEIGHT = 1e-200  # the sum of smaller weights is no mean: their products vanish
PROVABLE = 2.0  # times what rounding can add to a bound: a smaller gap is not asked for
NEAR = 0.05  # how near to the region's boundary, in radii, a minimum on it has to be found


class Change(Protocol):
    """A linear change of coordinates x = T v; the certificate needs the adjoint only."""

    def adjoint(self, gradient: Vector) -> Vector:
        """Return T' g."""


class Region:
    """Where a minimiser is known to be (a bounded set) or assumed to be (near the start).

    Parameters
    ----------
    feasible_set : FeasibleSet
        The constraint, or `WholeSpace()`.
    center, radius
        A ball that holds the minimiser too: by assumption where the set is unbounded, and by the
        set's diameter where it is bounded.
    assumed : bool
        Which of the two.
    growing : bool
        Whether the radius is the run's own guess, which grows with the distance travelled.
    penalty : Penalty, optional
        A term that is added to the function: bounds are on the sum of both.
    change : object, optional
        x = T v: the ball is then one in v, an ellipsoid in x.
    stretch : float
        By what factor T' can lengthen the error of a gradient.
    """

    def __init__(
        self,
        feasible_set: FeasibleSet,
        center: Vector,
        radius: float,
        *,
        assumed: bool,
        growing: bool = False,
        penalty: Penalty | None = None,
        change: Change | None = None,
        stretch: float = 1.0,
    ) -> None:
        self.feasible_set, self.center, self.radius = feasible_set, center, radius
        self.assumed, self.growing = assumed, growing
        self.penalty, self.change, self.stretch = penalty, change, stretch
        #: whether the constraint is none
        self.is_ball = isinstance(feasible_set, WholeSpace)
        bounded = math.isfinite(feasible_set.usable_diameter(center.size))
        probe = feasible_set.linear_minimum(np.ones_like(center))
        self._closed_form = bounded and not assumed and math.isfinite(probe)
        #: searching for a minimum in both set and ball takes many projections
        self.costly = not (self.is_ball or self._closed_form)
        #: whether an affine minorant of the penalty is all that a tight bound takes
        self.minorant_suffices = (
            penalty is not None
            and penalty.homogeneous
            and feasible_set.contains(np.zeros_like(center))
        )

    @property
    def certified_radius(self) -> float:
        """How far from the centre the bounds hold; infinite where no minimiser is farther."""
        return self.radius if self.assumed else math.inf

    def minimum(self, gradient: Vector, length: float) -> tuple[float, float]:
        """Return a lower bound on the minimum of <gradient, u - center>, and its terms' size.

        `length` is the gradient's norm.
        """
        if self.is_ball:
            if self.change is not None:
                length = norm(self.change.adjoint(gradient))
            least = -self.radius * length
            return least, -least
        reach = norm(self.center) + self.radius
        if self._closed_form:
            least = self.feasible_set.linear_minimum(gradient)
        else:
            least = self.feasible_set.linear_minimum_in_ball(gradient, self.center, self.radius)
        return least - float(gradient @ self.center), 2.0 * reach * length

    def minimum_with_penalty(self, gradient: Vector, size: float) -> tuple[float, float]:
        """Return a lower bound on the minimum of <gradient, u - center> + phi(u) over the region.

        The second number is the size of its terms. For every step s > 0 the point
        p = prox(center - s gradient, s) minimises that sum plus ||u - center||^2 / (2 s), and the
        latter is at most R^2 / (2 s) in the region, so the sum at p plus
        (||p - center||^2 - R^2) / (2 s) is a lower bound. It is the minimum where p is on the
        boundary of the ball, and nearly where s is long and p inside. The distance of p grows with
        s, and its ratio to s falls: hence the search. `size`, that of the cut, tells what is long.
        """
        assert self.penalty is not None
        bounds, radius = [(-math.inf, 0.0)], self.radius
        if not radius > 0:
            value = self.penalty.value(self.center)
            return value, abs(value)
        length = norm(gradient)
        size = max(size, radius * length, SMALLEST / SPARE)
        step = longest = min(radius * (radius / (2 * SPARE * size)), LONGEST_STEP)
        low, high = 0.0, longest
        for _ in range(MOST_STEPS):
            point = self._after_step(gradient, step)
            if point is None:
                high, away = step, math.inf
            else:
                away = math.dist(point, self.center)
                bounds.append(self._lagrangian(gradient, point, away, step))
                if abs(away - radius) <= NEAR * radius or (away < radius and step == longest):
                    break
                if away > radius:
                    high = step * radius / away
                else:
                    low = step * radius / away if away > 0 else step
            shorter = 0.1 * high if length == 0 else min(0.1 * high, radius / length)
            between = math.sqrt(low) * math.sqrt(high) if low > 0 else shorter
            step = min(between, LONGEST_STEP)
        return max(bounds)

    def _after_step(self, gradient: Vector, step: float) -> Vector | None:
        """Return prox(center - step gradient, step), in the set; None where it is not finite."""
        assert self.penalty is not None
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                moved = self.penalty.prox(self.center - step * gradient, step)
        except NonFiniteError:
            return None
        return self.feasible_set.project(moved) if np.isfinite(moved).all() else None

    def _lagrangian(
        self, gradient: Vector, point: Vector, away: float, step: float
    ) -> tuple[float, float]:
        """Return the bound that a step gives, and the size of its terms."""
        assert self.penalty is not None
        slope = inner(gradient, point - self.center)
        value = self.penalty.value(point)
        slack = (away - self.radius) * (away + self.radius) / (2 * step)
        bound = slope + value + slack
        # The point is a prox of terms that may be far larger than it is.
        size = abs(slope) + abs(value) + abs(slack) + norm(gradient) * (away + self.radius)
        return (bound, size) if math.isfinite(bound) else (-math.inf, 0.0)


class Cut(NamedTuple):
    """A cut as a linear function around the region's centre, with its weight in the average."""

    weight: float
    level: float  # its value at the centre
    size: float  # the size of that; of a sum, of all its terms
    error: float  # how far rounding can have taken it
    slack: float  # how far rounding can have taken the gradient, as a norm
    length: float  # the gradient's norm
    gradient: Vector


class CutCertificate:
    """The single and the aggregate cut over a region, with the region's penalty on top.

    The aggregate is brought up to date a block of cuts at a time: at every step it would cost as
    much as the method itself. So is the single cut, where a minimum over the region is costly.

    Parameters
    ----------
    region : Region
        Where the bounds are to hold.
    model : LinearModel, optional
        The function, where it is one: how far its rounding can go is known.
    often : bool
        Whether a bound that is up to date may end the run.
    """

    def __init__(
        self, region: Region, model: LinearModel | None = None, *, often: bool = True
    ) -> None:
        self.region, self.model = region, model
        self.lower_bound = -math.inf
        size = region.center.size
        self._growth = growth(size)
        self._sum = Cut(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, np.zeros_like(region.center))
        self._count = 0
        self._pending: list[Cut] = []
        short = often and size <= LONG and not region.costly
        self._block = 1 if short else max(1, min(BLOCK, BLOCK_NUMBERS // size))
        self._centred = not region.center.any()

    def add(self, evaluation: Evaluation, weight: float) -> None:
        """Take in the cut at an evaluation with its weight in the average (zero: not in it)."""
        cut = self._cut(evaluation, weight)
        if not self.region.costly:
            self._raise_to(self._bound(cut))
        self._pending.append(cut)
        if weight == 0 or len(self._pending) >= self._block:
            self.refresh()

    def _cut(self, evaluation: Evaluation, weight: float) -> Cut:
        gradient, value, point = evaluation.gradient, evaluation.value, evaluation.point
        offset = point if self._centred else point - self.region.center
        slope = inner(gradient, offset)
        square = evaluation.squared_norm
        length = math.sqrt(square) if square > 1e-280 else norm(gradient)
        away = norm(offset)
        penalty = getattr(evaluation, "penalty", 0.0)  # the cuts are those of the function alone
        off, slack = self._rounding(evaluation, value - penalty)
        # The product is at most `size`; so may each of its terms be.
        size = abs(value) + abs(penalty) + length * away
        error = self._growth * size + off + slack * away + offset.size * SMALLEST
        level = value - penalty - slope
        return Cut(weight, level, abs(level), error, slack, length, gradient)

    def _rounding(self, evaluation: Evaluation, value: float) -> tuple[float, float]:
        """Return how far value and gradient can be off: nothing is known of a user's function."""
        if self.model is None:
            return 0.0, 0.0
        rounding = self.model.rounding_at(evaluation.point, value)
        return rounding.value, rounding.gradient

    def resolution(self, evaluation: Evaluation) -> float:
        """Return about the smallest gap that rounding lets a cut prove at a point."""
        cut, radius = self._cut(evaluation, 0.0), self.region.radius
        slack = cut.slack * self.region.stretch + self._growth * cut.length
        return PROVABLE * (cut.error + self._growth * cut.size + slack * radius)

    def refresh(self) -> None:
        """Bring the bound up to date with all the cuts so far."""
        block = self._pending
        if not block:
            return
        if self.region.costly:
            self._raise_to(self._bound(block[-1]))
        # An interrupt between the assignments counts a block twice: still a mean of cuts.
        self._sum = _summed(self._sum, block)
        self._count += len(block)
        self._pending = []
        self._raise_by_sum()

    def _raise_by_sum(self) -> None:
        """Take the mean of all cuts, with what rounding can have done to the sums."""
        total = self._sum
        if not total.weight > LEAST_WEIGHT:
            return
        # Each term is rounded as often as something was added to it, at most.
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
        """Make the region larger; what was proved of the smaller one holds no longer."""
        self.refresh()
        self.region.radius = radius
        self.lower_bound = -math.inf
        self._raise_by_sum()

    def forget(self) -> None:
        """Start a new average: after a restart the old cuts would only weigh it down."""
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
        """Return a cut of the sum: that of the function plus an affine minorant of the penalty."""
        slope, constant = penalty.affine_minorant(cut.gradient)
        at_center = constant + inner(slope, self.region.center)
        gradient, steep = cut.gradient + slope, norm(slope)
        length = norm(gradient)
        # The constant is a difference of terms as large as the product of the two norms.
        size = abs(constant) + steep * (length + norm(self.region.center))
        # The slope is a difference, and off by some units of rounding of its terms.
        off = FEW * UNIT * (cut.length + steep)
        slack = cut.slack + off
        error = cut.error + self._growth * size + off * norm(self.region.center)
        level = cut.level + at_center
        return Cut(cut.weight, level, cut.size + size, error, slack, length, gradient)

    def _raise_to(self, bound: float) -> None:
        if bound > self.lower_bound:
            self.lower_bound = bound

    def state(self) -> dict[str, Any]:
        """Return all that has to be kept to go on."""
        columns = zip(*self._pending, strict=True) if self._pending else [()] * len(Cut._fields)
        pending = zip(Cut._fields, columns, strict=True)
        return {
            "lower_bound": self.lower_bound,
            "radius": self.region.radius,
            "sum": self._sum._asdict(),
            "count": self._count,
            "pending": {name: np.array(column) for name, column in pending},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.lower_bound = state["lower_bound"]
        self.region.radius = state["radius"]
        self._sum, self._count = Cut(**state["sum"]), state["count"]
        columns = [state["pending"][name] for name in Cut._fields]
        self._pending = [
            Cut._make([*(float(number) for number in numbers), gradient])
            for *numbers, gradient in zip(*columns, strict=True)
        ]


def _summed(total: Cut, block: list[Cut]) -> Cut:
    """Return the sum of cuts, each times its weight, and those before."""
    if len(block) == 1:
        cut = block[0]
        weight = cut.weight
        added: list[Any] = list(cut[1:])
        sums = [old + weight * new for old, new in zip(total[1:], added, strict=True)]
        return Cut._make([total.weight + weight, *sums])
    weights = np.array([cut.weight for cut in block])
    numbers = weights @ np.array([cut[1:-1] for cut in block])
    gradients = weights @ np.array([cut.gradient for cut in block])
    sums = [float(old + new) for old, new in zip(total[1:-1], numbers, strict=True)]
    return Cut._make([total.weight + math.fsum(weights), *sums, total.gradient + gradients])


class LateBound:
    """A lower bound of a linear model's minimum that takes some time, when it is asked for.

    Parameters
    ----------
    model : LinearModel
        The model.
    point : Vector, optional
        The point whose slopes give it, or
    slopes : Vector, optional
        the slopes themselves.
    smoothing : float
        The parameter mu of the smoothed loss whose slopes are meant; 0: the loss's own.
    known : ModelEvaluation, optional
        What the model whose slopes are meant knows at the point already.
    """

    def __init__(
        self,
        model: LinearModel,
        point: Vector | None = None,
        slopes: Vector | None = None,
        smoothing: float = 0.0,
        known: ModelEvaluation | None = None,
    ) -> None:
        self._model, self._known = model, known
        self._point, self._slopes, self._smoothing = point, slopes, smoothing

    def __call__(self) -> float:
        """Return the bound."""
        model = self._model
        if self._slopes is not None:
            return model.dual_bound(self._slopes)
        assert self._point is not None
        known = self._known
        if known is None:
            source = model.smoothed(self._smoothing) if self._smoothing else model
            known = source.evaluate(self._point)
        return known.dual_value if not self._smoothing else known.beside(model).dual_value_by(known)

    def state(self) -> dict[str, Any]:
        """Return all that has to be kept to compute it later."""
        return {"point": self._point, "slopes": self._slopes, "smoothing": self._smoothing}


class DualCertificate:
    """The Fenchel dual value of a linear model: valid everywhere.

    With an l2 term and no intercept it costs no product with the data: with h the gradient of the
    mean loss, the dual value at theta = l'(margins) is loss - <h, w> - ||h||^2 / (2 l2), and the
    cuts' average has the same form. With an (unpenalised) intercept, or without an l2 term, the
    dual point has to be made feasible, at some products with the data, so it is done at ever rarer
    steps; without an l2 term not at all in a short run, for the first time takes longest.
    """

    def __init__(self, model: LinearModel, *, often: bool = True) -> None:
        self.model = model
        self.lower_bound = 0.0  # losses are nonnegative
        self._by_rows = model.fit_intercept or model.l2 == 0
        #: how many more steps, as a share of those so far, there are between two costly bounds
        self._spacing = OFTEN if often else SELDOM
        self._count = 0
        self._next = 0 if model.l2 > 0 else PATIENCE
        self._next_late = LATE_PATIENCE
        self._weight = 0.0
        self._level = 0.0
        self._size = 0.0
        # The average is of loss gradients, or of loss derivatives a row.
        length = model.n_samples if self._by_rows else model.n_parameters
        self._sum = np.zeros(length)
        self._off = np.zeros(0 if self._by_rows else length)  # what rounding can do to it
        self._best: ModelEvaluation | None = None
        self._late: LateBound | None = None  # of the last evaluation, not computed yet

    def add(self, evaluation: Any, weight: float) -> None:
        """Take in the dual point of an evaluation with its weight in the average."""
        self._count += 1
        known = getattr(evaluation, "dual_value", None)
        late = getattr(evaluation, "late_bound", None)
        if known is not None:
            self._raise_to(known)
        elif late is not None:
            self._late = late
            if self._count >= self._next_late:
                self._next_late = self._count + self._wait(LATE_PATIENCE)
                self.finish()
        elif self._by_rows:
            self._add_rows(evaluation, weight)
        else:
            self._add(evaluation, weight)

    def _wait(self, patience: int) -> int:
        """Return how many steps to wait for the next bound that takes its time."""
        return max(patience, int(self._spacing * self._count))

    def _add(self, evaluation: Any, weight: float) -> None:
        """Use loss and gradient alone: with h that of the loss, loss - <h, w> is the level."""
        model, point, value = self.model, evaluation.point, evaluation.value
        loss = value - model.l2 / 2 * float(point @ point)
        loss_gradient = evaluation.gradient - model.l2 * point
        level = loss - float(loss_gradient @ point)
        rounding = model.rounding_at(point, value)
        level -= rounding.level + growth(point.size) * (abs(value) + abs(level))
        sizes, steep = np.abs(loss_gradient), slopes_norm(model.loss, value)
        off = model.rounding.combination(steep) + growth(0) * (sizes + model.l2 * np.abs(point))
        self._raise_to(scaled_bound(level, self._length(sizes + off), model.l2))
        if weight > 0:
            self._weight += weight
            self._level += weight * level
            self._size += weight * abs(level)
            self._off = self._off + weight * (off + (UNIT * self._count) * sizes)
            self._sum = self._sum + weight * loss_gradient
            if not self._weight > LEAST_WEIGHT:
                return
            mean = self._level - (FEW + self._count) * UNIT * self._size
            length = self._length(np.abs(self._sum) + self._off)
            share = (1 + growth(0)) / self._weight
            self._raise_to(scaled_bound(mean / self._weight, share * length, model.l2))

    @staticmethod
    def _length(sizes: Vector) -> float:
        return norm(sizes) * (1 + growth(sizes.size))

    def _raise_to(self, bound: float) -> bool:
        """Take a bound if it is better."""
        better = bound > self.lower_bound
        if better:
            self.lower_bound = bound
        return better

    def resolution(self, evaluation: Any) -> float:
        """Return about the smallest gap that rounding lets a dual point prove at a point."""
        if self.model.l2 == 0.0:
            return 0.0  # it is not known
        return PROVABLE * self.model.resolution_at(evaluation.point, evaluation.value)

    @property
    def gets_tight(self) -> bool:
        """Whether the bound is sure to reach the minimum: without an l2 term it may not."""
        return self.model.l2 > 0

    def _add_rows(self, evaluation: Any, weight: float) -> None:
        at = self._at(evaluation)
        if weight > 0:
            self._weight += weight
            self._sum = self._sum + weight * at.derivatives
        if self._best is None or evaluation.value < self._best.value:
            self._best = at
        if self._count < self._next and (weight > 0 or self.model.l2 == 0):
            return
        if self.model.l2 == 0:
            self._next = self._count + self._wait(PATIENCE)
            self.finish()
            return
        self._next = self._count + 1 + self._count // 10
        self._raise_to(at.dual_value)
        if self._weight > LEAST_WEIGHT:
            self._raise_to(self.model.dual_value_at(self._sum / self._weight))

    def finish(self) -> None:
        """Make a bound that takes its time as good as it can be by now.

        Without an l2 term it takes the time of some dozens of gradients, best spent at the best
        point; the average is asked only if that did not help.
        """
        if self._late is not None:
            late, self._late = self._late, None
            self._raise_to(late())
        if self.model.l2 > 0 or self._best is None:
            return
        if not self._raise_to(self._best.dual_value) and self._weight > LEAST_WEIGHT:
            self._raise_to(self.model.dual_value_at(self._sum / self._weight))

    def _at(self, evaluation: Any) -> ModelEvaluation:
        """Return what the model knows at the point; margins that a rule carried over are gone."""
        known: ModelEvaluation | None = getattr(evaluation, "model", None)
        return self.model.evaluate(evaluation.point) if known is None else known

    def forget(self) -> None:
        """Start a new average."""
        self._weight = self._level = self._size = 0.0
        self._sum, self._off = np.zeros_like(self._sum), np.zeros_like(self._off)

    _KEPT = (
        "lower_bound",
        "_count",
        "_next",
        "_next_late",
        "_weight",
        "_level",
        "_size",
        "_off",
        "_sum",
    )

    def state(self) -> dict[str, Any]:
        """Return all that has to be kept to go on."""
        return {
            "best": None if self._best is None else self._best.w,
            "late": None if self._late is None else self._late.state(),
            **{name: getattr(self, name) for name in self._KEPT},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        for name in self._KEPT:
            setattr(self, name, state[name])
        best, late = state["best"], state["late"]
        self._best = None if best is None else self.model.evaluate(best)
        self._late = None if late is None else LateBound(self.model, **late)


class Certificate:
    """All that is proved about the minimum: cuts over a region, and the dual where there is one.

    Parameters
    ----------
    cuts, dual
        The two, where they can be had.
    model : LinearModel, optional
        The function, where it is one: how far its rounding can go is known.
    everywhere : float
        A lower bound that is known beforehand.
    """

    def __init__(
        self,
        cuts: CutCertificate | None,
        dual: DualCertificate | None,
        *,
        model: LinearModel | None = None,
        everywhere: float = -math.inf,
    ) -> None:
        self.cuts, self.dual, self._model = cuts, dual, model
        self._parts = [part for part in (cuts, dual) if part is not None]
        #: what takes in an evaluation with its weight
        self.adders = tuple(part.add for part in self._parts)
        self._everywhere = everywhere

    def add(self, evaluation: Evaluation, weight: float) -> None:
        """Take in an evaluation."""
        for add in self.adders:
            add(evaluation, weight)

    def add_minimiser(self, value: float) -> None:
        """Take in that the gradient at a point with this value is zero.

        That of a linear model is so only up to rounding: its dual knows more.
        """
        if self._model is not None:
            return
        self._everywhere = max(self._everywhere, value - FEW * UNIT * abs(value))

    def refresh(self) -> None:
        """Bring the bounds up to date, as far as that costs little."""
        if self.cuts is not None:
            self.cuts.refresh()

    def finish(self) -> None:
        """Bring the bounds up to date for the last time."""
        self.refresh()
        if self.dual is not None:
            self.dual.finish()

    @property
    def assumed_region(self) -> Region | None:
        """The region, if it is only assumed that it holds a minimiser."""
        return self.cuts.region if self.cuts is not None and self.cuts.region.assumed else None

    @property
    def bound_everywhere(self) -> float:
        """What is proved without any region."""
        dual = -math.inf if self.dual is None else self.dual.lower_bound
        return max(dual, self._everywhere)

    def radius_of(self, lower_bound: float) -> float:
        """Return how far from the start a lower bound of this certificate is proved to hold."""
        if self.cuts is None or self.bound_everywhere >= lower_bound:
            return math.inf
        return self.cuts.region.certified_radius

    def forget(self) -> None:
        """Start new averages."""
        for part in self._parts:
            part.forget()

    def resolution(self, evaluation: Evaluation) -> float:
        """Return about the smallest gap that rounding lets anybody prove at a point."""
        return min((part.resolution(evaluation) for part in self._parts), default=0.0)

    def refuted(self, final: Evaluation) -> bool:
        """Tell whether the cuts lie above a value that was attained: no minimiser is in K."""
        if self.cuts is None or not self.cuts.lower_bound > final.value:
            return False
        return self.cuts.lower_bound > final.value + self._value_error(final)

    def lower_bound(self, final: Evaluation) -> float:
        """Return the lower bound to set against a point's value, so that the gap is a proof.

        It is lowered by what rounding can have taken from that value. A refuted region counts only
        where nothing else is known.
        """
        bound = min(self.bound_everywhere, final.value)  # else it would be the value's rounding
        if self.cuts is not None:
            refuted = self.refuted(final)
            if not refuted:
                bound = max(bound, min(self.cuts.lower_bound, final.value))
            elif bound == -math.inf:
                bound = self.cuts.lower_bound
        return bound - self._value_error(final)

    def _value_error(self, final: Evaluation) -> float:
        """Return how far rounding can have taken a value; nothing is known of a user's function."""
        model = self._model
        if model is None:
            return 0.0
        penalty = float(getattr(final, "penalty", 0.0))
        error = float(model.rounding_at(final.point, final.value - penalty).value)
        return error + growth(final.point.size) * abs(penalty)

    def state(self) -> dict[str, Any]:
        """Return all that has to be kept to go on."""
        return {
            "cuts": None if self.cuts is None else self.cuts.state(),
            "dual": None if self.dual is None else self.dual.state(),
            "everywhere": self._everywhere,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._everywhere = state["everywhere"]
        if self.cuts is not None:
            self.cuts.restore(state["cuts"])
        if self.dual is not None:
            self.dual.restore(state["dual"])
