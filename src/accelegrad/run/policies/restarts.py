r"""When to restart: strongly convex and sharp functions are then solved at a linear rate.

A rule's weights and its sum of squared gradients remember the whole run. On a function that grows
away from its minimisers it pays to forget them now and then and to start again from the best point,
which is nearer by then. There are two policies:

- **adaptive**: when the second half of a stage lowered the best value by less than a tenth of what
  the first half did (after T. Alamo, D. Limon, P. Krupa: Restart FISTA with global linear
  convergence, ECC 2019). It knows nothing of the function. After a stage that brought nothing the
  next ones have to be twice as long: at the minimum of a non-smooth function, the average of the
  cuts of short stages proves little.
- **certified**: when the dual gap of a linear model with an l2 term has fallen to a hundredth of
  what it was at the stage's start; sooner costs more than it gains, above all under noise, where a
  restart throws an average away. The gap proves
  :math:`\|w - w^*\| \le \sqrt{2\,\mathrm{gap} / l_2}`, which caps the next stage's radius.
"""

from __future__ import annotations

import math
from typing import Any

from accelegrad.rules import Rule
from accelegrad.rules.distance import distance
from accelegrad.run.oracle import Evaluation
from accelegrad.run.policies.base import Policy
from accelegrad.run.progress import Progress

KINDS = ("certified", "adaptive")
#: Steps of a stage, at least, before any has been without gain
SHORTEST_STAGE = 30
#: A stage ends where its second half gained at most this share of what its first half did,
STALLED_GAIN = 0.1
#: or where its gap fell to this share of the first one: see above.
FALLEN_GAP = 0.01
#: The next stage's first radius, as a share of the distance travelled in this one: a radius that
#: is too small grows quickly, one that is too large costs more than the restart gains. Chosen.
RADIUS_SHARE = 0.03
#: The smallest first radius, relative to 1 + ||x||: some hundreds of units of rounding
SMALLEST_RADIUS = 1e-13


class Restarts(Policy):
    """Stages, each of which starts from the best point of the one before.

    Parameters
    ----------
    kind : {"certified", "adaptive"}
        Which of the two policies above.
    l2 : float
        The model's l2 term, for the certified kind's cap; zero: no cap.
    """

    saved = ("count", "radius", "cap", "shortest", "_values", "_first_gap")

    def __init__(self, kind: str, l2: float = 0.0) -> None:
        self.kind, self.l2 = kind, l2
        self.count = 0
        self.radius: float | None = None  # of the present stage; None: the first one
        self.cap: float | None = None
        self.shortest = SHORTEST_STAGE
        self._values: list[float] = []  # the best value after each step of the stage
        self._first_gap = math.inf

    def __repr__(self) -> str:
        return f"Restarts({self.kind!r})"

    # -- what the loop asks ------------------------------------------------------------------------

    def begin(self, progress: Progress) -> None:
        """Take part in a run from its start on."""
        super().begin(progress)
        self._first_rule = progress.rule

    def resumed(self) -> None:
        """Go on with the rule of the stage that a checkpoint holds."""
        self.progress.rule = self.staged(self._first_rule)

    def next_look(self) -> float:
        """Return the end of the epoch: a noisy run's output is judged there."""
        now, epoch = self.progress.iteration, self.progress.oracle.steps_per_epoch
        return now - now % epoch + epoch

    def before_next(self) -> None:
        """Restart from the best point, or the output of a noisy run, where that is due."""
        progress = self.progress
        if progress.oracle.exact_values:
            final = progress.best
        elif progress.judge is not None and (
            progress.iteration % progress.oracle.steps_per_epoch == 0
        ):
            final = progress.judged_output()
        else:
            return
        assert final is not None
        gap = progress.bracket.gap(final)
        if self.proved(gap) if self.kind == "certified" else self.stalled(final.value):
            self._restart(final, gap)

    def _restart(self, final: Evaluation, gap: float) -> None:
        progress = self.progress
        start = progress.rule.init(final.point).start  # in the rule's coordinates
        travelled = float(distance(start, progress.rule_state.start))
        self.end_stage(travelled, math.sqrt(float(start @ start)), gap)
        progress.rule = self.staged(self._first_rule)
        state = progress.rule.init(final.point)
        if progress.oracle.exact_values:
            state = progress.rule.with_start_value(state, final.value)
        progress.rule_state = state
        progress.bracket.forget()

    def report(self) -> dict[str, Any]:
        """Return how often the run restarted."""
        return {"n_restarts": self.count}

    # -- the decision ------------------------------------------------------------------------------

    def stalled(self, best_value: float) -> bool:
        """Take note of the best value after a step; True if the stage should end."""
        self._values.append(best_value)
        length = len(self._values)
        if length < self.shortest:
            return False
        first, middle = self._values[0], self._values[length // 2]
        return middle - best_value <= STALLED_GAIN * (first - middle)

    def proved(self, gap: float) -> bool:
        """Take note of a certified gap; True if it has fallen to the share `FALLEN_GAP`."""
        if not self._first_gap < math.inf:
            self._first_gap = gap
        return 0 < gap <= FALLEN_GAP * self._first_gap < math.inf

    def end_stage(self, travelled: float, size: float, gap: float) -> None:
        """Begin a stage after one that travelled a distance and ended at a point of norm `size`."""
        self.count += 1
        if self._values and not self._values[-1] < self._values[0]:
            self.shortest *= 2
        self.radius = max(RADIUS_SHARE * travelled, SMALLEST_RADIUS * (1 + size))
        if self.kind == "certified" and self.l2 > 0 and 0 < gap < math.inf:
            self.cap = math.sqrt(2 * gap / self.l2)
            self.radius = min(self.radius, self.cap)
        self._values = []
        self._first_gap = gap

    def staged(self, rule: Rule) -> Rule:
        """Return the rule with the stage's radius and cap."""
        return rule if self.radius is None else rule.with_radius(self.radius, self.cap)
