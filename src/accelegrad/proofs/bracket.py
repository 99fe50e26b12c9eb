"""The bracket around a minimum: the best lower bound, the gap, the goal, and what is proved.

Cuts hold over a region (`accelegrad.proofs.cuts`); the dual of a linear model holds everywhere
(`accelegrad.proofs.fenchel`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from accelegrad.bundle.cut_memory import Piece
from accelegrad.files.saved import Saved
from accelegrad.linalg import FEW, UNIT, growth, norm
from accelegrad.models.linear_model import LinearModel
from accelegrad.proofs import certificate
from accelegrad.proofs.certificate import Certificate
from accelegrad.proofs.cuts import PAUSE, CutCertificate, rounding_of
from accelegrad.proofs.model_dual import SPACING, DualCertificate
from accelegrad.rules.base import Evaluated

#: A search for the best average also comes as soon as the method's estimate of the gap has fallen
#: to the first share and it, or the proved gap, is at most the second number times the goal:
#: estimates are too large (maximum of ten quadratics, d = 20: 1e-6 where 1e-9 is proved). With 1e3
#: instead of 30 the 500 functions of the battery take 0.99 of the calls, and 40 polyhedra 1.35
#: times as long.
FALLEN, EARLY = 0.5, 30.0
#: A gap caused by rounding is a smaller share of the values: sums of millions of terms lose this
#: much at worst. Larger gaps need no further check.
ROUNDING_LEVEL = 1e-9


class Bracket(Saved):
    """Proved bounds on a minimum, from cuts over a region and from a dual where there is one.

    `goal` maps the value at a point to the wanted gap, `model` gives the rounding errors if the
    function is a linear model, and `everywhere` is a lower bound known beforehand.
    """

    saved = ("cuts", "dual", "_everywhere", "_size", "_updated", "_tightened", "_estimate")

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
        self.parts: list[Any] = [*filter(None, (cuts, dual))]
        self._everywhere = everywhere
        self._minimiser: Evaluated | None = None
        self._size = 0.0  # the largest value judged so far: a minimum of 0 has no size of its own
        #: the iterations of the last update and of the last search for the best average, and the
        #: method's estimate of the gap at that search
        self._updated, self._tightened, self._estimate = 0, 0, math.inf

    def add(self, evaluation: Evaluated, weight: float) -> None:
        """Take in an evaluation."""
        for part in self.parts:
            part.add(evaluation, weight)

    def add_minimiser(self, at: Evaluated) -> None:
        """Record a zero gradient; a linear model's is zero only up to rounding, and is ignored."""
        if self._model is not None:
            return
        bound = at.value - FEW * UNIT * abs(at.value) - at.lost[0]
        self._everywhere, self._minimiser = max(self._everywhere, bound), at

    def update(self, best: Evaluated, iteration: int, estimate: float) -> bool:
        """Update the bound of the kept cuts if that is due; `estimate` is the expected gap."""
        cuts = self.cuts
        if cuts is None or cuts.kept is None:
            return False
        combined = bool(cuts.kept.last_weights.any())
        if self._goal is None and not combined:
            return False  # no bound can end the run, and there is no average to take
        goal, waited = self.goal(best.value), iteration - self._tightened
        near = estimate < FALLEN * self._estimate and min(estimate, self.gap(best)) <= EARLY * goal
        # Without a goal no bound can end the run, and single cuts show how a smooth run goes.
        wanted = goal > 0.0 or combined
        if near or (wanted and waited >= PAUSE + int(SPACING * self._tightened)):
            self._updated = self._tightened = iteration
            self._estimate = estimate
            cuts.tighten(best, goal)
            return True
        # Where a linear minimum is costly, searches alone update the bound (least squares over
        # polyhedra take 1.2 times as long otherwise).
        is_due = iteration > self._updated + int(SPACING * self._updated)
        if is_due and not cuts.region.costly:
            self._updated = iteration
            return cuts.raise_by_average(cuts.kept.last_weights)
        return False

    def finish(self, best: Evaluated | None) -> None:
        """Compute the final bounds."""
        cuts = self.cuts
        if cuts is not None:
            cuts.refresh()
            if best is not None and not self.is_small_enough(best):
                cuts.tighten(best)
            elif best is not None and cuts.kept is not None and cuts.kept.last_weights.any():
                # Averages may prove more than was asked for: a run with a larger tol must not end
                # with a smaller gap than one with a smaller tol.
                least = ROUNDING_LEVEL * abs(best.value)
                if self.gap(best) > least:
                    cuts.tighten(best, least)
        if self.dual is not None:
            self.dual.finish()

    def forget(self) -> None:
        """Start new averages."""
        for part in self.parts:
            part.forget()

    def lower_bound(self, at: Evaluated) -> float:
        """Return the lower bound to subtract from a point's value to get a proved gap.

        It allows for rounding in that value. A refuted region counts only if nothing else is known.
        """
        error = self._value_error(at)
        bound = min(self.bound_everywhere, at.value)  # else it would be the value's rounding
        if self.cuts is not None:
            of_cuts = self.cuts.lower_bound
            if of_cuts <= at.value + error:
                bound = max(bound, min(of_cuts, at.value))
            elif bound == -math.inf:
                bound = of_cuts
        return math.nextafter(bound - error, -math.inf) if error > 0.0 else bound

    def gap(self, at: Evaluated) -> float:
        """Return the certified gap of a point; negative if it refutes the region."""
        return at.value - self.lower_bound(at)

    def certificate(self, at: Evaluated) -> Certificate | None:
        """Return what proves the gap of a point; None if that is not kept, or nothing is proved."""
        gap, given = self.gap(at), (at.point, float(at.value))
        if not 0.0 <= gap < math.inf:
            return None
        cuts, everywhere = self.cuts, self.bound_everywhere
        by_cuts = cuts is not None and cuts.lower_bound > everywhere
        if self._model is not None:
            if self.dual is None or by_cuts:
                return None
            dual = self.dual.dual
            # Without terms, or with the caller's model, more may have been proved.
            duals = dual, dual.model.dual, self._model.dual
            known = max((each.proof for each in duals), key=attrgetter("bound"))
            if known.bound < everywhere:
                return None
            return certificate.of_model(self._model, dual.terms, *given, gap, known.slopes)
        region, at_minimum = None, self._minimiser
        if by_cuts and cuts is not None:
            (pieces, error), region = cuts.evidence, cuts.region
            if not region.feasible_set.contains(at.point):
                return None  # as `project_y=False` allows
        elif at_minimum is not None:
            value = at_minimum.value - at_minimum.penalty
            pieces = [Piece(1.0, at_minimum.point, value, at_minimum.gradient)]
            error = at_minimum.lost
        else:
            return None
        error = (error[0] + at.lost[0], error[1])
        return certificate.of_function(*given, gap, pieces, error, region)

    def goal(self, value: float) -> float:
        """Return the gap that is asked for at a point with this value, 0 for none."""
        return 0.0 if self._goal is None else self._goal(value)

    def proved(self, at: Evaluated) -> bool:
        """Return whether the certified gap of a point is as small as was asked for."""
        return self._goal is not None and 0.0 <= self.gap(at) <= self._goal(at.value)

    def is_small_enough(self, at: Evaluated) -> bool:
        """Return whether a point's gap meets the goal or the limit set by rounding."""
        gap = self.gap(at)
        if self._goal is not None and 0.0 <= gap <= self._goal(at.value):
            return True
        # The gap of an inexact function may be any share of its value.
        inexact = self._model is None and self._value_error(at) > 0.0
        self._size = max(self._size, abs(at.value))
        if not (inexact or gap <= ROUNDING_LEVEL * self._size):
            return False
        return 0.0 <= gap <= self.resolution(at)

    def refuted(self, at: Evaluated) -> bool:
        """Return whether the cuts lie above an attained value: then no minimiser is in K."""
        if self.cuts is None or not self.cuts.lower_bound > at.value:
            return False
        return self.cuts.lower_bound > at.value + self._value_error(at)

    def resolution(self, at: Evaluated) -> float:
        """Return roughly the smallest gap that rounding allows to be proved at a point."""
        least = min((part.resolution(at) for part in self.parts), default=0.0)
        return least + at.lost[0]

    @property
    def bound_everywhere(self) -> float:
        """The lower bound that needs no region."""
        dual = -math.inf if self.dual is None else self.dual.lower_bound
        return max(dual, self._everywhere)

    def radius_of(self, lower_bound: float) -> float:
        """Return the distance from the start within which a lower bound is proved."""
        cuts = self.cuts
        if cuts is None or not cuts.region.assumed or self.bound_everywhere >= lower_bound:
            return math.inf
        return cuts.region.radius

    def _value_error(self, at: Evaluated) -> float:
        model = self._model
        if model is None:
            lost, cuts = at.lost[0], self.cuts
            if cuts is None or cuts.unit == UNIT:
                return lost
            return max(lost, cuts.rounding(at, norm(at.gradient))[0])
        return rounding_of(model, at).value + growth(at.point.size) * abs(at.penalty)
