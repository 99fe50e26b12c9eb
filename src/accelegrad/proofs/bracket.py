"""The bracket around a minimum: the best bound, the gap, the goal, and what is proved.

Methods and oracles offer evaluations; everything that asks whether a run is done asks here.
Cuts hold over a region; the dual of a linear model needs none: see `accelegrad.proofs.cuts` and
`accelegrad.proofs.fenchel`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from accelegrad.models.linear_model import LinearModel
from accelegrad.proofs.certificate import SPACING, DualCertificate
from accelegrad.proofs.cuts import CutCertificate, rounding_of
from accelegrad.proofs.region import Region
from accelegrad.rounding import FEW, UNIT, growth
from accelegrad.rules.base import Evaluated

#: The best average of the kept cuts, which costs as much as some steps do, is looked for after so
#: many steps at least. Chosen.
PAUSE = 20
#: It is looked for sooner where the method's estimate of the gap has fallen to the first share and
#: is at most the second number times the goal: estimates are that much too large (maximum of ten
#: quadratics, d = 20: 1e-6 where 1e-9 is proved).
FALLEN, EARLY = 0.5, 1e3
#: The same where a linear function's minimum over the region is costly (40 polyhedra: 0.76 of the
#: time with 0.5 and 1e3, 1.01 of the steps).
COSTLY_FALLEN, COSTLY_EARLY = 0.2, 30.0
#: A gap due to rounding is a smaller share of the value than this, the worst loss of sums of
#: millions of terms; with larger gaps nothing has to be computed to see that.
ROUNDING_LEVEL = 1e-9


class Bracket:
    """What is proved about a minimum: cuts over a region, and a dual bound where there is one.

    Parameters
    ----------
    cuts, dual
        What turns evaluations into lower bounds, where there are such bounds.
    goal : callable, optional
        From the value at a point to the gap that is wanted there; None: no gap is asked for.
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
        goal: Callable[[float], float] | None = None,
        model: LinearModel | None = None,
        everywhere: float = -math.inf,
    ) -> None:
        self.cuts, self.dual, self._model = cuts, dual, model
        self._goal = goal
        self._parts = [part for part in (cuts, dual) if part is not None]
        #: what takes in an evaluation with its weight
        self.adders = tuple(part.add for part in self._parts)
        self._everywhere = everywhere
        #: the iteration when the bound was brought up to date, and when the best average was looked
        #: for, with the method's estimate of the gap then
        self._updated, self._tightened, self._estimate = 0, 0, math.inf

    # -- what is offered -------------------------------------------------------------------------

    def add(self, evaluation: Evaluated, weight: float) -> None:
        """Take in an evaluation."""
        for add in self.adders:
            add(evaluation, weight)

    def add_minimiser(self, at: Evaluated) -> None:
        """Note that the gradient at a point is zero.

        A linear model's is zero only up to rounding: its dual proves more.
        """
        if self._model is not None:
            return
        bound = at.value - FEW * UNIT * abs(at.value) - at.lost[0]
        self._everywhere = max(self._everywhere, bound)

    def update(self, best: Evaluated, iteration: int, estimate: float) -> bool:
        """Bring the bound of the kept cuts up to date, if that is due; return whether it was.

        Parameters
        ----------
        best : Evaluated
            The point with the lowest value.
        iteration : int
            Steps so far.
        estimate : float
            The gap that the method expects to be left, infinite where it expects nothing.
        """
        if self.cuts is None or self.cuts.kept is None:
            return False
        goal, waited = self.goal(best.value), iteration - self._tightened
        costly = self.cuts.region.costly
        fallen, early = (COSTLY_FALLEN, COSTLY_EARLY) if costly else (FALLEN, EARLY)
        near = estimate <= early * goal and estimate < fallen * self._estimate
        # Without a goal nothing waits for a bound, and single cuts show how a smooth run goes.
        wanted = goal > 0.0 or self.cuts.averages
        if near or (wanted and waited >= PAUSE + int(SPACING * self._tightened)):
            self._updated = self._tightened = iteration
            self._estimate = estimate
            self.cuts.tighten(best, goal)
            return True
        if iteration > self._updated + int(SPACING * self._updated):
            self._updated = iteration
            return self.cuts.take_last_average()
        return False

    def finish(self, best: Evaluated | None) -> None:
        """Bring the bounds up to date for the last time."""
        if self.cuts is not None:
            self.cuts.refresh()
            if best is not None and not self.is_small_enough(best):
                self.cuts.tighten(best)
            elif best is not None and self.cuts.averages:
                # Averages may prove more than was asked for: what a run with a larger tol says must
                # not be better than what one with a smaller tol says.
                least = ROUNDING_LEVEL * abs(best.value)
                if self.gap(best) > least:
                    self.cuts.tighten(best, least)
        if self.dual is not None:
            self.dual.finish()

    def forget(self) -> None:
        """Start new averages."""
        for part in self._parts:
            part.forget()

    # -- what is proved --------------------------------------------------------------------------

    def lower_bound(self, at: Evaluated) -> float:
        """Return the lower bound to subtract from a point's value, so that the gap is proved.

        It is lowered by what rounding can have taken from that value. A refuted region counts only
        where nothing else is known.
        """
        bound = min(self.bound_everywhere, at.value)  # else it would be the value's rounding
        if self.cuts is not None:
            if not self.refuted(at):
                bound = max(bound, min(self.cuts.lower_bound, at.value))
            elif bound == -math.inf:
                bound = self.cuts.lower_bound
        error = self._value_error(at)
        return math.nextafter(bound - error, -math.inf) if error > 0.0 else bound

    def gap(self, at: Evaluated) -> float:
        """Return the certified gap of a point; below zero where it refutes the region."""
        return at.value - self.lower_bound(at)

    def goal(self, value: float) -> float:
        """Return the gap that is asked for at a point with this value; 0 if none is."""
        return 0.0 if self._goal is None else self._goal(value)

    def proved(self, at: Evaluated) -> bool:
        """Return whether the certified gap of a point is what was asked for."""
        return self._goal is not None and 0.0 <= self.gap(at) <= self._goal(at.value)

    def is_small_enough(self, at: Evaluated) -> bool:
        """Return whether the gap of a point is what was asked for, or what rounding allows."""
        gap = self.gap(at)
        if self._goal is not None and 0.0 <= gap <= self._goal(at.value):
            return True
        return self._is_rounding(at, gap)

    def _is_rounding(self, at: Evaluated, gap: float) -> bool:
        """Return whether rounding lets no smaller gap than this be proved at a point."""
        # Of an inexact function the gap may be any share of the value.
        inexact = self._model is None and self._value_error(at) > 0.0
        if not (inexact or gap <= ROUNDING_LEVEL * abs(at.value)):
            return False
        return 0.0 <= gap <= self.resolution(at)

    def margin(self, at: Evaluated) -> float:
        """Return the gap that is wanted at a point, or the smallest that can be proved there."""
        return self.goal(at.value) if self.proved(at) else self.resolution(at)

    def refuted(self, at: Evaluated) -> bool:
        """Return whether the cuts lie above a value that was attained: no minimiser is in K."""
        if self.cuts is None or not self.cuts.lower_bound > at.value:
            return False
        return self.cuts.lower_bound > at.value + self._value_error(at)

    def resolution(self, at: Evaluated) -> float:
        """Return roughly the smallest gap that can be proved at a point, given rounding."""
        least = min((part.resolution(at) for part in self._parts), default=0.0)
        return least + at.lost[0]

    # -- where it is proved ----------------------------------------------------------------------

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
        """Return how far from the start a lower bound of this bracket is proved to hold."""
        if self.cuts is None or self.bound_everywhere >= lower_bound:
            return math.inf
        return self.cuts.region.certified_radius

    def _value_error(self, at: Evaluated) -> float:
        """Return how far rounding can have taken a value: of a user's function its type says it."""
        model = self._model
        if model is None:
            lost = at.lost[0]
            return lost if self.cuts is None else max(lost, self.cuts.lost_at(at))
        return rounding_of(model, at).value + growth(at.point.size) * abs(at.penalty)

    def state(self) -> dict[str, Any]:
        """Return all that has to be kept to go on."""
        return {
            "cuts": None if self.cuts is None else self.cuts.state(),
            "dual": None if self.dual is None else self.dual.state(),
            "everywhere": self._everywhere,
            "updated": self._updated,
            "tightened": self._tightened,
            "estimate": self._estimate,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._everywhere = state["everywhere"]
        self._updated, self._tightened = state["updated"], state["tightened"]
        self._estimate = state["estimate"]
        if self.cuts is not None:
            self.cuts.restore(state["cuts"])
        if self.dual is not None:
            self.dual.restore(state["dual"])
