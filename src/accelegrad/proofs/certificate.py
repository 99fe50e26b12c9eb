"""Lower bounds by the Fenchel dual of a linear model, in the course of a run.

They need no region: see `accelegrad.proofs.fenchel`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from accelegrad.errors import Vector
from accelegrad.models.linear_model import LinearModel, ModelPoint
from accelegrad.models.rounding import slopes_norm
from accelegrad.models.row_sum import RowPoint, RowSum
from accelegrad.proofs.cuts import (
    BLOCK_CUTS,
    BLOCK_NUMBERS,
    LEAST_WEIGHT,
    PROVABLE,
    columns_of,
    rounding_of,
    rows_of,
)
from accelegrad.proofs.fenchel import SlopeSums
from accelegrad.proofs.model_dual import ModelDual
from accelegrad.rounding import SMALLEST, UNIT, growth

# How often bounds are computed: chosen, not measured.
#: The least number of steps before an expensive bound (in the null space, or a `LateBound`), and
#: between two of them: with 20 in the null space, 46 fits without a penalty took 1.13 times as long
PATIENCE = 8
#: Steps between two expensive bounds, as a share of those done: with a goal, and without
OFTEN, SELDOM = 0.25, 3.0
#: Steps between two bounds that cost a few products, as a share of those done
SPACING = 0.1
#: The same for slopes of rows with an l1 term or a set, where a bound takes as long as some steps
TERMS_SPACING = 0.25
#: Where the gap is far from its goal, these bounds wait: the logarithm of the factor by which a gap
#: is taken to fall in a step at most
LARGEST_FALL = math.log(100.0)
#: One in this many of these bounds also tries what seldom helps.
ALL_EVERY = 8
#: With an l1 term or a set, slopes are averaged with weights that grow as this power of the step:
#: with the rule's weights, which grow as the first, hinge and absolute losses took up to twice as
#: many steps to a gap of 1e-3.
FORGETTING = 2.0


class LateBound:
    """A lower bound of the minimum of a sum over rows: expensive, and computed when called.

    Parameters
    ----------
    model : RowSum
        The sum.
    point : Vector, optional
        The point whose slopes give it, or
    slopes : Vector, optional
        the slopes themselves, of rows in memory.
    smoothing : float
        The parameter mu of the smoothed loss whose slopes are meant; 0: no smoothing.
    known : RowPoint, optional
        What the sum whose slopes are meant knows at the point already.
    """

    def __init__(
        self,
        model: RowSum,
        point: Vector | None = None,
        slopes: Vector | None = None,
        smoothing: float = 0.0,
        known: RowPoint | None = None,
    ) -> None:
        self._model, self._known = model, known
        self._point, self._slopes, self._smoothing = point, slopes, smoothing

    def __call__(self) -> float:
        """Return the bound."""
        model = self._model
        if self._slopes is not None:
            assert model.in_memory is not None
            return float(model.in_memory.dual.bound(self._slopes))
        assert self._point is not None
        known = self._known
        if known is None:
            source = model.smoothed(self._smoothing) if self._smoothing else model
            known = source.at(self._point)
        return known.dual_value if not self._smoothing else known.beside(model).dual_value_by(known)

    def state(self) -> dict[str, Any]:
        """Return all that has to be kept to compute it later."""
        return {"point": self._point, "slopes": self._slopes, "smoothing": self._smoothing}


class Seen(NamedTuple):
    """What loss and gradient at a point give to a bound, with its weight in the average.

    Nothing in it is as long as the rows are many.
    """

    weight: float
    value: float  # of the model, without a penalty
    size: float  # of the value with it, from which that comes
    steep: float  # a bound on the norm of the slopes
    error: float  # how far rounding can have taken the level
    point: Vector
    gradient: Vector

    @classmethod
    def of(cls, model: LinearModel, evaluation: Any, weight: float) -> Seen:
        """Return it for an evaluation."""
        value = evaluation.value - evaluation.penalty
        return cls(
            weight,
            value,
            abs(evaluation.value),
            slopes_norm(model.loss, value),
            rounding_of(model, evaluation).level,
            evaluation.point,
            evaluation.gradient,
        )

    def sums(self, model: LinearModel) -> SlopeSums:
        """Return the sums of its slopes."""
        level, error, combination, off = _level_and_combination(model, *self[1:])
        return SlopeSums(level, error, 0.0, 0.0, combination, off)


def _weighted_sums(model: LinearModel, block: list[Seen]) -> SlopeSums:
    """Return the sums of several, each times its weight."""
    columns = [np.array(column) for column in zip(*block, strict=True)]
    # Numbers stand beside the rows of the points and of their gradients.
    numbers = [column[:, np.newaxis] for column in columns[1:-2]]
    found = _level_and_combination(model, *numbers, *columns[-2:])
    weights, (level, error, combination, off) = columns[0], found
    level, error = weights * level.ravel(), weights * error.ravel()
    # What is lost in the sums, and in the sums of what was lost before.
    lost, vanished = growth(len(block)), len(block) * SMALLEST
    return SlopeSums(
        float(level.sum()),
        float((1.0 + lost) * error.sum() + lost * np.abs(level).sum()) + vanished,
        0.0,
        0.0,
        weights @ combination,
        weights @ ((1.0 + lost) * off + lost * np.abs(combination)) + vanished,
    )


def _level_and_combination(
    model: LinearModel,
    value: Any,
    size: Any,
    steep: Any,
    error: Any,
    point: Vector,
    gradient: Vector,
) -> tuple[Any, Any, Vector, Vector]:
    """Return loss - <h, w> and h, the gradient of the loss, each with how far it can be off.

    For one point, or for several: then points and gradients are rows, and numbers are columns.
    """
    if model.l2 > 0.0:
        pull = model.l2 * point
        combination = gradient - pull
        sizes = np.abs(combination) + np.abs(pull)
        loss = value - 0.5 * model.l2 * _inner(point, point)
    else:
        combination, sizes, loss = gradient, np.abs(gradient), value
    off = model.rounding.combination(steep) + growth(0) * sizes
    level = loss - _inner(combination, point)
    error = error + growth(point.shape[-1]) * (size + abs(value) + abs(level))
    return level, error, combination, off


def _inner(one: Vector, other: Vector) -> Any:
    """Return the product of two vectors, or a column of those of their rows."""
    if one.ndim == 1:
        return float(one @ other)
    return (one * other).sum(axis=1, keepdims=True)


class DualCertificate:
    """The Fenchel dual of a linear model, with its penalty and constraint: valid everywhere.

    Without an intercept it costs no product with the data: with h the gradient of the mean loss,
    the level at theta = l'(margins) is loss - <h, w> and the combination of the rows is h; both can
    be averaged. An intercept without limits takes the slopes themselves and some products with the
    data, so it is done at ever rarer steps. Where nothing but the losses bounds the weights it is
    not done in a short run at all, because the first time takes longest.

    Parameters
    ----------
    dual : ModelDual
        What gives the bounds.
    often : bool
        Whether a bound that is up to date may end the run.
    goal : callable, optional
        From the value at a point to the gap at which the run ends; 0 if none is wanted.
    """

    def __init__(
        self,
        dual: ModelDual,
        *,
        often: bool = True,
        goal: Callable[[float], float] | None = None,
    ) -> None:
        self.dual, self.model = dual, dual.model
        self.lower_bound = 0.0  # losses are nonnegative
        self._by_rows = self.model.fit_intercept or dual.needs_null_space
        #: how many more steps, as a share of those so far, there are between two costly bounds
        self._spacing, self._goal = OFTEN if often else SELDOM, goal
        #: whether average slopes prove more than those at a point, which jump at kinks; without
        #: kinks they seldom do while those at points get better
        self._averages = self.model.loss.curvature == math.inf
        #: whether bounds without l1 term and constraint are tried: until one is no better
        self._drops_terms = True
        self._count = self._looks = 0
        self._next = PATIENCE if dual.needs_null_space else 0
        self._next_late = PATIENCE
        self._weight = 0.0
        # The average is of what loss and gradient give, or of the slopes of all rows.
        self._sums = SlopeSums.zero(0 if self._by_rows else self.model.n_features)
        kept = self._by_rows and dual.has_slopes_here
        self._slopes = np.zeros(self.model.n_samples if kept else 0)
        # Cheap to keep, they are summed a block at a time, or when a bound is due.
        self._pending: list[Seen] = []
        self._block = max(1, min(BLOCK_CUTS, BLOCK_NUMBERS // self.model.n_parameters))
        self._best: ModelPoint | None = None
        self._best_seen: Seen | None = None
        self._best_value = math.inf
        self._late: LateBound | None = None  # of the last evaluation, not computed yet

    def add(self, evaluation: Any, weight: float) -> None:
        """Take in the slopes at an evaluation with their weight in the average."""
        self._count += 1
        if weight > 0 and not self.dual.has_only_l2:
            weight = float(self._count) ** FORGETTING
        known, late = evaluation.dual_value, evaluation.late_bound
        if known is not None:
            self._raise_to(known)
        elif late is not None:
            self._late = late
            if self._count >= self._next_late:
                self._next_late = self._count + self._wait()
                self.finish()
        elif self._by_rows:
            self._add_rows(evaluation, weight)
        else:
            self._add_sums(evaluation, weight)

    def _wait(self) -> int:
        """Return how many steps to wait for the next expensive bound."""
        return max(PATIENCE, int(self._spacing * self._count))

    def _plan(self) -> None:
        """Set when the next bound that costs a few products is due."""
        if self._by_rows:  # at the same steps always: one in some bounds is better than the others
            spacing = SPACING if self.dual.has_only_l2 else TERMS_SPACING
            wait = int(spacing * self._count)
        else:
            wait = max(int(SPACING * self._count), self._steps_to_goal())
        self._next = self._count + 1 + wait

    def _steps_to_goal(self) -> int:
        """Return how many steps the run takes at least, most likely, until its gap is the goal."""
        value = self._best_value
        goal = 0.0 if self._goal is None else self._goal(value)
        gap = value - self.lower_bound
        if not 0.0 < goal < gap < math.inf:
            return 0
        return int(math.log(gap / max(goal, UNIT * gap)) / LARGEST_FALL)

    def _add_sums(self, evaluation: Any, weight: float) -> None:
        """Use loss and gradient alone."""
        seen = Seen.of(self.model, evaluation, weight)
        self._weight += weight
        if self.dual.has_only_l2:  # the bound costs next to nothing then
            one = seen.sums(self.model)
            if weight > 0:
                self._sums = self._sums.plus(one, weight)
            self._raise_by_sums(one, both=True)
            return
        if weight > 0:
            self._pending.append(seen)
        if self._best_seen is None or evaluation.value < self._best_value:
            self._best_seen, self._best_value = seen, float(evaluation.value)
        if self._count >= self._next or weight == 0:
            self._looks += 1
            chosen = self._best_seen if self._looks % 2 else seen
            self._raise_by_sums(chosen.sums(self.model), both=self._averages)
            self._plan()
        elif len(self._pending) >= self._block:
            self._sum_up()

    def _sum_up(self) -> None:
        """Bring the average up to date."""
        if self._pending:
            self._sums = self._sums.plus(_weighted_sums(self.model, self._pending))
            self._pending = []

    def _raise_by_sums(self, one: SlopeSums, *, both: bool) -> None:
        """Raise the bound by the sums at a point, and by the average ones: `both` if need be."""
        terms, reach = self.dual.terms, self.dual.reach
        raised = self._raise_to(terms.lower_bound(one, reach))
        if (both or not raised) and self._weight > LEAST_WEIGHT:
            self._sum_up()
            self._raise_to(terms.lower_bound(self._sums, reach, weight=self._weight))

    def _raise_to(self, bound: float) -> bool:
        """Take a bound if it is better."""
        better = bound > self.lower_bound
        if better:
            self.lower_bound = bound
        return better

    def resolution(self, evaluation: Any) -> float:
        """Return roughly the smallest gap that rounding lets a dual point prove at a point."""
        value = evaluation.value - evaluation.penalty
        return PROVABLE * self.dual.resolution(evaluation.point, value)

    @property
    def gets_tight(self) -> bool:
        """Whether the bound is sure to reach the minimum."""
        return self.dual.terms.gets_tight

    def _add_rows(self, evaluation: Any, weight: float) -> None:
        at = self._at(evaluation)
        if weight > 0 and self.dual.has_slopes_here:
            self._weight += weight
            self._slopes = self._slopes + weight * at.derivatives
        if self._best is None or evaluation.value < self._best_value:
            self._best, self._best_value = at, float(evaluation.value)
        if self.dual.needs_null_space:
            if self._count >= self._next:
                self._next = self._count + self._wait()
                self.finish()
        elif self._count >= self._next or weight == 0:
            # The best point and the latest in turn: in the end values do not show which is better.
            is_bests_turn = self._looks % 2 == 0 and not self.dual.has_only_l2
            self._look(self._best if is_bests_turn else at)
            self._plan()

    def _look(self, at: ModelPoint) -> None:
        """Raise the bound by slopes at a point and by average ones; now and then by others too."""
        dual, self._looks = self.dual, self._looks + 1
        tries_all = not dual.has_only_l2 and self._looks % ALL_EVERY == 0
        # The point keeps the model's bound; an l2 term of a penalty makes it another one.
        is_models = dual.has_only_l2 and dual.terms.l2 == self.model.l2
        raised = self._raise_to(at.dual_value if is_models else dual.at(at))
        if self._weight > LEAST_WEIGHT and (self._averages or not raised or tries_all):
            average = self._slopes / self._weight
            self._raise_to(dual.at_slopes(average, least=self.lower_bound))
        if tries_all and self._drops_terms and self.model.has_dual_bound:
            # Without l1 term and constraint the minimum is no larger; it may be near.
            self._drops_terms = self._raise_to(at.dual_value)

    def finish(self) -> None:
        """Compute the expensive bounds from what is known by now.

        In the null space that costs as much as some dozens of gradients, best spent at the best
        point; the average is tried only if that did not help.
        """
        if self._late is not None:
            late, self._late = self._late, None
            self._raise_to(late())
        if self._best_seen is not None:
            self._raise_by_sums(self._best_seen.sums(self.model), both=True)
        if self._best is None:
            return
        if not self.dual.needs_null_space:
            if not self.dual.has_only_l2:
                self._looks, self._drops_terms = -1, True  # the next look tries all
                self._look(self._best)
        elif not self._raise_to(self._best.dual_value) and self._weight > LEAST_WEIGHT:
            self._raise_to(self.dual.at_slopes(self._slopes / self._weight))

    def _at(self, evaluation: Any) -> ModelPoint:
        """Return what the model knows at the point; margins that a rule carried over are gone."""
        known: ModelPoint | None = evaluation.model
        return self.model.at(evaluation.point) if known is None else known

    def forget(self) -> None:
        """Start a new average."""
        self._weight, self._pending = 0.0, []
        self._sums = SlopeSums.zero(self._sums.combination.size)
        self._slopes = np.zeros_like(self._slopes)

    _KEPT = (
        "lower_bound",
        "_best_value",
        "_count",
        "_drops_terms",
        "_looks",
        "_next",
        "_next_late",
        "_slopes",
        "_weight",
    )

    def state(self) -> dict[str, Any]:
        """Return all that has to be kept to go on."""
        return {
            "best": None if self._best is None else self._best.w,
            "late": None if self._late is None else self._late.state(),
            "sums": asdict(self._sums),
            "best_seen": None if self._best_seen is None else self._best_seen._asdict(),
            "pending": columns_of(Seen, self._pending),
            **{name: getattr(self, name) for name in self._KEPT},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        for name in self._KEPT:
            setattr(self, name, state[name])
        best, late, seen = state["best"], state["late"], state["best_seen"]
        self._sums = SlopeSums(**state["sums"])
        self._best_seen = None if seen is None else Seen(**seen)
        self._pending = rows_of(Seen, state["pending"])
        self._best = None if best is None else self.model.at(best)
        self._late = None if late is None else LateBound(self.model, **late)
