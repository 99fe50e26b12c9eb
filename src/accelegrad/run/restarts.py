r"""Restarts, which give a linear rate on strongly convex and sharp functions.

A rule's weights and its sum of squared gradients remember the whole run. On a function that grows
away from its minimisers it pays to restart from the best point when the second half of a stage
lowered the best value by less than a tenth of what the first half did (after T. Alamo, D. Limon, P.
Krupa: Restart FISTA with global linear convergence, ECC 2019). After a stage without gain the next
ones are twice as long: at the minimum of a non-smooth function, short stages prove little.
"""

from __future__ import annotations

from accelegrad.files.saved import Saved
from accelegrad.linalg import UNIT, norm
from accelegrad.rules import Rule
from accelegrad.rules.distance import distance
from accelegrad.run.progress import Progress
from accelegrad.run.region import RESOLVED

#: Least steps of a stage, before any stage without gain
SHORTEST_STAGE = 30
#: A stage ends if its second half gained at most this share of what its first half did.
STALLED_GAIN = 0.1
#: The next stage's first radius, as a share of the distance travelled in this one: one that is too
#: small grows quickly, one that is too large costs more than the restart gains. Chosen.
RADIUS_SHARE = 0.03


class Restarts(Saved):
    """Stages, each of which starts from the best point of the one before."""

    saved = ("count", "radius", "shortest", "_values")

    def __init__(self, rule: Rule) -> None:
        self._first_rule = rule
        self.count = 0
        self.radius: float | None = None  # of the current stage; None: the first one
        self.shortest = SHORTEST_STAGE
        self._values: list[float] = []  # the best value after each step of the stage

    @property
    def rule(self) -> Rule:
        """The rule with the stage's radius."""
        rule = self._first_rule
        return rule if self.radius is None else rule.with_radius(self.radius)

    def before_next(self, progress: Progress) -> None:
        """Restart from the best point if that is due."""
        best = progress.best
        assert best is not None
        if not self.stalled(best.value):
            return
        start = progress.rule.init(best.point).start  # in the rule's coordinates
        self.end_stage(float(distance(start, progress.rule_state.start)), norm(start))
        progress.rule = self.rule
        progress.rule_state = progress.rule.init(best.point)
        progress.bracket.forget()

    def stalled(self, best_value: float) -> bool:
        """Record the best value after a step; True if the stage should end."""
        self._values.append(best_value)
        length = len(self._values)
        if length < self.shortest:
            return False
        first, middle = self._values[0], self._values[length // 2]
        return middle - best_value <= STALLED_GAIN * (first - middle)

    def end_stage(self, travelled: float, size: float) -> None:
        """Begin a stage after one that travelled a distance and ended at a point of norm `size`."""
        self.count += 1
        if self._values and not self._values[-1] < self._values[0]:
            self.shortest *= 2
        self.radius = max(RADIUS_SHARE * travelled, RESOLVED * UNIT * (1 + size))
        self._values = []
