"""All that is proved about a minimum in the course of a run: cuts, and the Fenchel dual of a model.

Cuts hold over a region; the dual of a linear model needs none: see `accelegrad.proofs.cuts` and
`accelegrad.proofs.fenchel`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from accelegrad.errors import Vector
from accelegrad.problems.linear_model import LinearModel, ModelPoint
from accelegrad.problems.rounding import FEW, UNIT, growth, slopes_norm
from accelegrad.proofs.cuts import LEAST_WEIGHT, PROVABLE, CutCertificate
from accelegrad.proofs.fenchel import SlopeSums
from accelegrad.proofs.model_dual import ModelDual
from accelegrad.proofs.region import Region
from accelegrad.rules.base import Evaluated

# How often bounds are computed: chosen, not measured.
#: The least number of steps before an expensive bound (in the null space), and between two of them
PATIENCE = 20
#: The same for a method that needs few steps, whose bounds come as `LateBound`.
LATE_PATIENCE = 8
#: Steps between two expensive bounds, as a share of those done: with a goal, and without
OFTEN, SELDOM = 0.25, 3.0
#: Steps between two bounds that cost a few products, as a share of those done
SPACING = 0.1
#: The same for slopes of rows with an l1 term or a set, where a bound takes as long as some steps
TERMS_SPACING = 0.25
#: One in this many of these bounds also tries repaired slopes, which cost more.
REPAIRED_EVERY = 8
#: With an l1 term or a set, slopes are averaged with weights that grow as this power of the step:
#: with the rule's weights, which grow as the first, hinge and absolute losses took up to twice as
#: many steps to a gap of 1e-3.
FORGETTING = 2.0


class LateBound:
    """A lower bound of a linear model's minimum that is expensive, and computed when called.

    Parameters
    ----------
    model : LinearModel
        The model.
    point : Vector, optional
        The point whose slopes give it, or
    slopes : Vector, optional
        the slopes themselves.
    smoothing : float
        The parameter mu of the smoothed loss whose slopes are meant; 0: no smoothing.
    known : ModelPoint, optional
        What the model whose slopes are meant knows at the point already.
    """

    def __init__(
        self,
        model: LinearModel,
        point: Vector | None = None,
        slopes: Vector | None = None,
        smoothing: float = 0.0,
        known: ModelPoint | None = None,
    ) -> None:
        self._model, self._known = model, known
        self._point, self._slopes, self._smoothing = point, slopes, smoothing

    def __call__(self) -> float:
        """Return the bound."""
        model = self._model
        if self._slopes is not None:
            return model.dual.bound(self._slopes)
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
    """The Fenchel dual of a linear model, with its penalty and constraint: valid everywhere.

    Without an intercept it costs no product with the data: with h the gradient of the mean loss,
    the level at theta = l'(margins) is loss - <h, w> and the combination of the rows is h; both can
    be averaged. An intercept without limits, or an optimality condition that slopes are repaired to
    meet, takes the slopes themselves and some products with the data, so it is done at ever rarer
    steps. Where nothing but the losses bounds the weights it is not done in a short run at all,
    because the first time takes longest.

    Parameters
    ----------
    dual : ModelDual
        What gives the bounds.
    often : bool
        Whether a bound that is up to date may end the run.
    """

    def __init__(self, dual: ModelDual, *, often: bool = True) -> None:
        self.dual, self.model = dual, dual.model
        self.lower_bound = 0.0  # losses are nonnegative
        self._repairs = dual.can_repair and not dual.has_only_l2
        self._by_rows = self.model.fit_intercept or dual.needs_null_space or self._repairs
        #: how many more steps, as a share of those so far, there are between two costly bounds
        self._spacing = OFTEN if often else SELDOM
        self._count = self._looks = 0
        self._next = PATIENCE if dual.needs_null_space else 0
        self._next_late = LATE_PATIENCE
        self._weight = 0.0
        # The average is of what loss and gradient give, or of the slopes of all rows.
        self._sums = SlopeSums.zero(0 if self._by_rows else self.model.n_features)
        self._slopes = np.zeros(self.model.n_samples if self._by_rows else 0)
        self._best: ModelPoint | None = None
        self._best_sums: SlopeSums | None = None
        self._best_value = math.inf
        self._late: LateBound | None = None  # of the last evaluation, not computed yet

    def add(self, evaluation: Any, weight: float) -> None:
        """Take in the slopes at an evaluation with their weight in the average."""
        self._count += 1
        if weight > 0 and not self.dual.has_only_l2:
            weight = float(self._count) ** FORGETTING
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
            self._add_sums(evaluation, weight)

    def _wait(self, patience: int) -> int:
        """Return how many steps to wait for the next expensive bound."""
        return max(patience, int(self._spacing * self._count))

    def _is_due(self) -> bool:
        """Return whether a bound that costs a few products is due, and set when the next one is."""
        due = self._count >= self._next
        if due:
            by_terms = self._by_rows and not self.dual.has_only_l2
            spacing = TERMS_SPACING if by_terms else SPACING
            self._next = self._count + 1 + int(spacing * self._count)
        return due

    def _add_sums(self, evaluation: Any, weight: float) -> None:
        """Use loss and gradient alone."""
        one = self._sums_at(evaluation)
        if weight > 0:
            self._weight += weight
            self._sums = self._sums.plus(one, weight)
        if self.dual.has_only_l2:  # the bound costs next to nothing then
            self._raise_by_sums(one)
            return
        if self._best_sums is None or evaluation.value < self._best_value:
            self._best_sums, self._best_value = one, float(evaluation.value)
        if self._is_due() or weight == 0:
            self._looks += 1
            self._raise_by_sums(self._best_sums if self._looks % 2 else one)

    def _raise_by_sums(self, one: SlopeSums) -> None:
        """Raise the bound by the sums at a point and by the average ones."""
        terms, reach = self.dual.terms, self.dual.reach
        self._raise_to(terms.lower_bound(one, reach))
        if self._weight > LEAST_WEIGHT:
            self._raise_to(terms.lower_bound(self._sums, reach, weight=self._weight))

    def _sums_at(self, evaluation: Any) -> SlopeSums:
        """Return what loss and gradient at a point say: with h that of the loss, loss - <h, w>."""
        model, point = self.model, evaluation.point
        value = evaluation.value - getattr(evaluation, "penalty", 0.0)
        loss = value - model.l2 / 2 * float(point @ point)
        combination = evaluation.gradient - model.l2 * point
        level = loss - float(combination @ point)
        rounding = model.rounding_at(point, value)
        size = abs(evaluation.value) + abs(value) + abs(level)
        error = rounding.level + growth(point.size) * size
        off = model.rounding.combination(slopes_norm(model.loss, value))
        off += growth(0) * (np.abs(combination) + model.l2 * np.abs(point))
        return SlopeSums(level, error, 0.0, 0.0, combination, off)

    def _raise_to(self, bound: float) -> bool:
        """Take a bound if it is better."""
        better = bound > self.lower_bound
        if better:
            self.lower_bound = bound
        return better

    def resolution(self, evaluation: Any) -> float:
        """Return roughly the smallest gap that rounding lets a dual point prove at a point."""
        value = evaluation.value - getattr(evaluation, "penalty", 0.0)
        return PROVABLE * self.dual.resolution(evaluation.point, value)

    @property
    def gets_tight(self) -> bool:
        """Whether the bound is sure to reach the minimum."""
        return self.dual.terms.gets_tight

    def _add_rows(self, evaluation: Any, weight: float) -> None:
        at = self._at(evaluation)
        if weight > 0:
            self._weight += weight
            self._slopes = self._slopes + weight * at.derivatives
        if self._best is None or evaluation.value < self._best_value:
            self._best, self._best_value = at, float(evaluation.value)
        if self.dual.needs_null_space:
            if self._count >= self._next:
                self._next = self._count + self._wait(PATIENCE)
                self.finish()
        elif self._is_due() or weight == 0:
            # The best point and the latest in turn: in the end values do not show which is better.
            is_bests_turn = self._looks % 2 == 0 and not self.dual.has_only_l2
            self._look(self._best if is_bests_turn else at)

    def _look(self, at: ModelPoint) -> None:
        """Raise the bound by slopes at a point and by average ones; now and then by others too."""
        dual = self.dual
        # The point keeps the model's bound; an l2 term of a penalty makes it another one.
        is_models = dual.has_only_l2 and dual.terms.l2 == self.model.l2
        self._raise_to(at.dual_value if is_models else dual.at(at))
        slopes = [at.derivatives]
        if self._weight > LEAST_WEIGHT:
            slopes.append(self._slopes / self._weight)
            self._raise_to(dual.at_slopes(slopes[-1], least=self.lower_bound))
        self._looks += 1
        if dual.has_only_l2 or self._looks % REPAIRED_EVERY:
            return
        if self._repairs:
            weights = at.w[: self.model.n_features]
            for theta in slopes:
                self._raise_to(dual.bound(dual.repaired(theta, weights), least=self.lower_bound))
        if self.model.has_dual_bound:
            # Without l1 term and constraint the minimum is no larger; it may be near.
            self._raise_to(at.dual_value)

    def finish(self) -> None:
        """Compute the expensive bounds from what is known by now.

        In the null space that costs as much as some dozens of gradients, best spent at the best
        point; the average is tried only if that did not help.
        """
        if self._late is not None:
            late, self._late = self._late, None
            self._raise_to(late())
        if self._best_sums is not None:
            self._raise_by_sums(self._best_sums)
        if self._best is None:
            return
        if not self.dual.needs_null_space:
            if not self.dual.has_only_l2:
                self._looks = -1  # the next look tries all
                self._look(self._best)
        elif not self._raise_to(self._best.dual_value) and self._weight > LEAST_WEIGHT:
            self._raise_to(self.dual.at_slopes(self._slopes / self._weight))

    def _at(self, evaluation: Any) -> ModelPoint:
        """Return what the model knows at the point; margins that a rule carried over are gone."""
        known: ModelPoint | None = getattr(evaluation, "model", None)
        return self.model.evaluate(evaluation.point) if known is None else known

    def forget(self) -> None:
        """Start a new average."""
        self._weight = 0.0
        self._sums = SlopeSums.zero(self._sums.combination.size)
        self._slopes = np.zeros_like(self._slopes)

    _KEPT = (
        "lower_bound",
        "_best_value",
        "_count",
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
            "best_sums": None if self._best_sums is None else asdict(self._best_sums),
            **{name: getattr(self, name) for name in self._KEPT},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        for name in self._KEPT:
            setattr(self, name, state[name])
        best, late = state["best"], state["late"]
        self._sums, sums = SlopeSums(**state["sums"]), state["best_sums"]
        self._best_sums = None if sums is None else SlopeSums(**sums)
        self._best = None if best is None else self.model.evaluate(best)
        self._late = None if late is None else LateBound(self.model, **late)


class Certificate:
    """All that is proved about the minimum: cuts over a region, and the dual where there is one.

    Parameters
    ----------
    cuts, dual
        The two, where there are such bounds.
    model : LinearModel, optional
        The function, where it is a linear model: then its rounding is known.
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

    def add(self, evaluation: Evaluated, weight: float) -> None:
        """Take in an evaluation."""
        for add in self.adders:
            add(evaluation, weight)

    def add_minimiser(self, value: float) -> None:
        """Note that the gradient at a point with this value is zero.

        A linear model's is zero only up to rounding: its dual proves more.
        """
        if self._model is not None:
            return
        self._everywhere = max(self._everywhere, value - FEW * UNIT * abs(value))

    def refresh(self) -> None:
        """Bring the cheap bounds up to date."""
        if self.cuts is not None:
            self.cuts.refresh()

    def tighten(self, best: Evaluated) -> None:
        """Prove as much as the kept cuts let be proved, given a point with a low value."""
        if self.cuts is not None:
            self.cuts.tighten(best)

    def finish(self, best: Evaluated | None) -> None:
        """Bring the bounds up to date for the last time."""
        self.refresh()
        if best is not None:
            self.tighten(best)
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

    def resolution(self, evaluation: Evaluated) -> float:
        """Return roughly the smallest gap that can be proved at a point, given rounding."""
        return min((part.resolution(evaluation) for part in self._parts), default=0.0)

    def refuted(self, final: Evaluated) -> bool:
        """Return whether the cuts lie above a value that was attained: no minimiser is in K."""
        if self.cuts is None or not self.cuts.lower_bound > final.value:
            return False
        return self.cuts.lower_bound > final.value + self._value_error(final)

    def lower_bound(self, final: Evaluated) -> float:
        """Return the lower bound to subtract from a point's value, so that the gap is proved.

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

    def _value_error(self, final: Evaluated) -> float:
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
