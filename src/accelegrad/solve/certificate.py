r"""Cuts -> lower bound -> gap: a proof of accuracy that costs no call of its own.

Convexity gives :math:`f(u) \ge f(x_t) + \langle g_t, u - x_t\rangle` for every u. Two lower bounds
on the minimum over a region K follow: the best single cut, and the average of all the cuts with the
method's weights. Near the end of a smooth run the single cut is the tight one, on non-smooth
functions the average. For a linear model with an l2 term, the cut of the loss alone, with the l2
term kept as it is, gives the Fenchel dual value: a bound that needs no K.

Every bound is lowered by a multiple of the unit roundoff times the size of its terms, so that
rounding does not make it claim too much.
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
from accelegrad.rules.base import Evaluation, inner

BLOCK = 16  # cuts that are added to the aggregate together
BLOCK_NUMBERS = 1 << 20  # numbers that may wait for it: huge vectors are not gathered
PATIENCE = 20  # steps before a dual bound of a model without an l2 term, and between two
LATE_PATIENCE = 8  # the same for the steps of a method that needs few of them
ROUNDOFFS = 64  # how many units of roundoff, times the terms' size, a bound gives away
MOST_STEPS = 10  # tried for the least value of a cut and a penalty together,
SPARE = 1e-12  # the longest of which gives away so much, relative to the cut's terms
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
    ) -> None:
        self.feasible_set, self.center, self.radius = feasible_set, center, radius
        self.assumed, self.growing = assumed, growing
        self.penalty, self.change = penalty, change
        self._is_ball = isinstance(feasible_set, WholeSpace)
        bounded = math.isfinite(feasible_set.diameter_for(center.size))
        probe = feasible_set.linear_minimum(np.ones_like(center))
        self._closed_form = bounded and not assumed and math.isfinite(probe)
        #: searching for a minimum in both set and ball takes many projections
        self.costly = not (self._is_ball or self._closed_form)
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

    def minimum(self, gradient: Vector, squared_norm: float) -> float:
        """Return (a lower bound on) the minimum of <gradient, u - center> over the region."""
        if self._is_ball:
            if self.change is not None:
                gradient = self.change.adjoint(gradient)
                squared_norm = inner(gradient, gradient)
            return -self.radius * math.sqrt(squared_norm)
        if self._closed_form:
            least = self.feasible_set.linear_minimum(gradient)
        else:
            least = self.feasible_set.linear_minimum_in_ball(gradient, self.center, self.radius)
        return least - float(gradient @ self.center)

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
        norm = math.sqrt(inner(gradient, gradient))
        step = longest = radius * radius / (2 * SPARE * max(size, radius * norm))
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
            shorter = 0.1 * high if norm == 0 else min(0.1 * high, radius / norm)
            step = math.sqrt(low * high) if low > 0 else shorter
        return max(bounds)

    def _after_step(self, gradient: Vector, step: float) -> Vector | None:
        """Return prox(center - step gradient, step), in the set; None where it is not finite."""
        assert self.penalty is not None
        try:
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
        size = abs(slope) + abs(value) + abs(slack)
        return (bound, size) if math.isfinite(bound) else (-math.inf, 0.0)


class Cut(NamedTuple):
    """A cut as a linear function around the region's centre, with its weight in the average."""

    weight: float
    level: float  # its value at the centre
    size: float  # the magnitude of its terms, for the rounding allowance
    gradient: Vector


class CutCertificate:
    """The single and the aggregate cut over a region, with the region's penalty on top.

    The aggregate is brought up to date a block of cuts at a time: at every step it would cost as
    much as the method itself. So is the single cut, where a minimum over the region is costly.
    """

    def __init__(self, region: Region, roundoff: float) -> None:
        self.region = region
        self.lower_bound = -math.inf
        self._allowance = ROUNDOFFS * roundoff
        self._sum = Cut(0.0, 0.0, 0.0, np.zeros_like(region.center))
        self._pending: list[Cut] = []
        self._block = max(1, min(BLOCK, BLOCK_NUMBERS // region.center.size))
        self._centred = not region.center.any()

    def add(self, evaluation: Evaluation, weight: float) -> None:
        """Take in the cut at an evaluation with its weight in the average (zero: not in it)."""
        gradient, value, point = evaluation.gradient, evaluation.value, evaluation.point
        slope = inner(gradient, point if self._centred else point - self.region.center)
        penalty = getattr(evaluation, "penalty", 0.0)  # the cuts are those of the function alone
        cut = Cut(weight, value - penalty - slope, abs(value) + abs(slope), gradient)
        if not self.region.costly:
            self._raise_to(self._bound(cut, evaluation.squared_norm))
        self._pending.append(cut)
        if weight == 0 or len(self._pending) >= self._block:
            self.refresh()

    def refresh(self) -> None:
        """Bring the bound up to date with all the cuts so far."""
        block = self._pending
        if not block:
            return
        if self.region.costly:
            last = block[-1]
            self._raise_to(self._bound(last, inner(last.gradient, last.gradient)))
        weights = np.array([cut.weight for cut in block])
        gradients = np.array([cut.gradient for cut in block])
        old = self._sum
        # An interrupt between the two assignments counts a block twice: still a mean of cuts.
        self._sum = Cut(
            old.weight + math.fsum(cut.weight for cut in block),
            old.level + sum(cut.weight * cut.level for cut in block),
            old.size + sum(cut.weight * cut.size for cut in block),
            old.gradient + weights @ gradients,
        )
        self._pending = []
        self._raise_by_sum()

    def _raise_by_sum(self) -> None:
        total = self._sum
        if not total.weight > 0:
            return
        if self.region.penalty is None:
            squared_norm = inner(total.gradient, total.gradient)
            self._raise_to(self._bound(total, squared_norm) / total.weight)
        else:
            share = 1 / total.weight
            mean = Cut(1.0, share * total.level, share * total.size, share * total.gradient)
            self._raise_to(self._bound(mean, math.nan))

    def widen(self, radius: float) -> None:
        """Make the region larger; what was proved of the smaller one holds no longer."""
        self.refresh()
        self.region.radius = radius
        self.lower_bound = -math.inf
        self._raise_by_sum()

    def forget(self) -> None:
        """Start a new average: after a restart the old cuts would only weigh it down."""
        self.refresh()
        self._sum = Cut(0.0, 0.0, 0.0, np.zeros_like(self.region.center))

    def _bound(self, cut: Cut, squared_norm: float) -> float:
        """Return the minimum of a cut over the region, lowered by what rounding may have added."""
        penalty = self.region.penalty
        if penalty is None:
            return self._linear_bound(cut, squared_norm)
        if self.region.minorant_suffices:
            return self._linear_bound(*self._with_penalty(cut, penalty))
        least, size = self.region.minimum_with_penalty(cut.gradient, cut.size)
        return cut.level + least - self._allowance * (cut.size + size)

    def _linear_bound(self, cut: Cut, squared_norm: float) -> float:
        least = self.region.minimum(cut.gradient, squared_norm)
        if least == -math.inf:
            return least
        return cut.level + least - self._allowance * (cut.size + abs(least))

    def _with_penalty(self, cut: Cut, penalty: Penalty) -> tuple[Cut, float]:
        """Return a cut of the sum: that of the function plus an affine minorant of the penalty."""
        slope, constant = penalty.affine_minorant(cut.gradient)
        at_center = constant + inner(slope, self.region.center)
        gradient = cut.gradient + slope
        size = cut.size + abs(constant) + abs(at_center) + math.sqrt(inner(slope, slope))
        return Cut(cut.weight, cut.level + at_center, size, gradient), inner(gradient, gradient)

    def _raise_to(self, bound: float) -> None:
        if bound > self.lower_bound:
            self.lower_bound = bound

    def state(self) -> dict[str, Any]:
        """Return all that has to be kept to go on."""
        columns = zip(*self._pending, strict=True) if self._pending else [()] * 4
        pending = zip(Cut._fields, columns, strict=True)
        return {
            "lower_bound": self.lower_bound,
            "radius": self.region.radius,
            "sum": self._sum._asdict(),
            "pending": {name: np.array(column) for name, column in pending},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.lower_bound = state["lower_bound"]
        self.region.radius = state["radius"]
        self._sum = Cut(**state["sum"])
        columns = [state["pending"][name] for name in Cut._fields]
        self._pending = [
            Cut(float(weight), float(level), float(size), gradient)
            for weight, level, size, gradient in zip(*columns, strict=True)
        ]


class DualCertificate:
    """The Fenchel dual value of a linear model: valid everywhere.

    With an l2 term and no intercept it costs no product with the data: with h the gradient of the
    mean loss, the dual value at theta = l'(margins) is loss - <h, w> - ||h||^2 / (2 l2), and the
    cuts' average has the same form. With an (unpenalised) intercept, or without an l2 term, the
    dual point has to be made feasible, at some products with the data, so it is done at ever rarer
    steps; without an l2 term not at all in a short run, for the first time takes longest.
    """

    def __init__(self, model: LinearModel, roundoff: float) -> None:
        self.model = model
        self.lower_bound = -math.inf
        self._allowance = ROUNDOFFS * roundoff
        self._by_rows = model.fit_intercept or model.l2 == 0
        self._count = 0
        self._next = 0 if model.l2 > 0 else PATIENCE
        self._next_late = LATE_PATIENCE
        self._weight = 0.0
        self._level = 0.0
        self._size = 0.0
        # The average is of loss gradients, or of loss derivatives a row.
        length = model.n_samples if self._by_rows else model.n_parameters
        self._sum = np.zeros(length)
        self._best: ModelEvaluation | None = None
        self._latest: Any = None  # whose bound is not known yet
        #: whether anybody looks at the bound before the run's end
        self.watched = True

    def add(self, evaluation: Any, weight: float) -> None:
        """Take in the dual point of an evaluation with its weight in the average."""
        self._count += 1
        known = getattr(evaluation, "dual_value", None)
        if known is not None:
            self._raise_if_better(known, evaluation.value)
        elif getattr(evaluation, "late_bound", None) is not None:
            self._latest = evaluation
            if self.watched and self._count >= self._next_late:
                self._next_late = self._count + max(LATE_PATIENCE, self._count // 4)
                self.finish()
        elif self._by_rows:
            self._add_rows(evaluation, weight)
        else:
            self._add(evaluation, weight)

    def _add(self, evaluation: Any, weight: float) -> None:
        l2, point = self.model.l2, evaluation.point
        loss = evaluation.value - l2 / 2 * float(point @ point)
        loss_gradient = evaluation.gradient - l2 * point
        slope = float(loss_gradient @ point)
        size = abs(evaluation.value) + abs(slope)
        self._raise_to(loss - slope, size, float(loss_gradient @ loss_gradient))
        if weight > 0:
            self._weight += weight
            self._level += weight * (loss - slope)
            self._size += weight * size
            self._sum = self._sum + weight * loss_gradient
            mean = self._sum / self._weight
            self._raise_to(
                self._level / self._weight, self._size / self._weight, float(mean @ mean)
            )

    def _raise_to(self, level: float, size: float, squared_norm: float) -> None:
        """Use D(c theta) >= c level - c^2 ||h||^2 / (2 l2) at its best c in [0, 1].

        It holds because the conjugates are convex and zero at zero. Away from the minimum c < 1.
        """
        curvature = squared_norm / self.model.l2
        c = 1.0
        if curvature > max(level, 0.0):
            c = max(level, 0.0) / curvature
        bound = c * level - c * c * curvature / 2
        bound -= self._allowance * (size + c * c * curvature)
        if bound > self.lower_bound:
            self.lower_bound = bound

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
            if self.watched:
                self._next = self._count + max(PATIENCE, self._count // 4)
                self.finish()
            return
        self._next = self._count + 1 + self._count // 10
        self._raise_if_better(at.dual_value, evaluation.value)
        if self._weight > 0:
            mean = self._sum / self._weight
            self._raise_if_better(self.model.dual_value_at(mean), evaluation.value)

    def finish(self) -> None:
        """Make the bound of a model without an l2 term as good as it can be by now.

        It takes the time of some dozens of gradients, best spent at the best point; the average is
        asked only if that did not help.
        """
        if self._latest is not None:
            self._raise_if_better(self._latest.late_bound(), self._latest.value)
            self._latest = None
        if self.model.l2 > 0 or self._best is None:
            return
        value = self._best.value
        if not self._raise_if_better(self._best.dual_value, value) and self._weight > 0:
            self._raise_if_better(self.model.dual_value_at(self._sum / self._weight), value)

    def _raise_if_better(self, bound: float, value: float) -> bool:
        """Lower a bound by what rounding may have added, and take it if it is better."""
        bound -= self._allowance * (abs(bound) + abs(value))
        better = bound > self.lower_bound
        if better:
            self.lower_bound = bound
        return better

    def _at(self, evaluation: Any) -> ModelEvaluation:
        """Return what the model knows at the point; margins that a rule carried over are gone."""
        known: ModelEvaluation | None = getattr(evaluation, "model", None)
        return self.model.evaluate(evaluation.point) if known is None else known

    def forget(self) -> None:
        """Start a new average."""
        self._weight = self._level = self._size = 0.0
        self._sum = np.zeros_like(self._sum)

    def state(self) -> dict[str, Any]:
        """Return all that has to be kept to go on."""
        names = (
            "lower_bound",
            "_count",
            "_next",
            "_next_late",
            "_weight",
            "_level",
            "_size",
            "_sum",
        )
        best = None if self._best is None else self._best.w
        return {"best": best, **{name: getattr(self, name) for name in names}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        for name, kept in state.items():
            if name != "best":
                setattr(self, name, kept)
        best = state["best"]
        self._best = None if best is None else self.model.evaluate(best)


class Certificate:
    """All that is proved about the minimum: cuts over a region, and the dual where there is one."""

    def __init__(self, cuts: CutCertificate | None, dual: DualCertificate | None) -> None:
        self.cuts, self.dual = cuts, dual
        self._parts = [part for part in (cuts, dual) if part is not None]
        #: what takes in an evaluation with its weight
        self.adders = tuple(part.add for part in self._parts)

    def add(self, evaluation: Evaluation, weight: float) -> None:
        """Take in an evaluation."""
        for add in self.adders:
            add(evaluation, weight)

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
    def dual_bound(self) -> float:
        """What is proved without any region."""
        return -math.inf if self.dual is None else self.dual.lower_bound

    def radius_of(self, lower_bound: float) -> float:
        """Return how far from the start a lower bound of this certificate is proved to hold."""
        if self.cuts is None or self.dual_bound >= lower_bound:
            return math.inf
        return self.cuts.region.certified_radius

    def forget(self) -> None:
        """Start new averages."""
        for part in self._parts:
            part.forget()

    def refuted(self, best_value: float) -> bool:
        """Tell whether the cuts lie above a value that was attained: no minimiser is in K."""
        return self.cuts is not None and self.cuts.lower_bound > best_value

    def lower_bound(self, best_value: float) -> float:
        """Return the best lower bound; a refuted region counts only where nothing else is known."""
        bounds = [part.lower_bound for part in self._parts]
        if self.dual is not None and self.refuted(best_value):
            return self.dual.lower_bound
        return max(bounds, default=-math.inf)

    def state(self) -> dict[str, Any]:
        """Return all that has to be kept to go on."""
        return {
            "cuts": None if self.cuts is None else self.cuts.state(),
            "dual": None if self.dual is None else self.dual.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        if self.cuts is not None:
            self.cuts.restore(state["cuts"])
        if self.dual is not None:
            self.dual.restore(state["dual"])
