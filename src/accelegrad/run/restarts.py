r"""When to start afresh: strongly convex and sharp functions are then solved at a linear rate.

A rule's weights and its sum of squared gradients remember the whole run. On a function that grows
away from its minimisers it pays to forget them now and then and to start again from the best point,
which is nearer by then. Two policies tell when:

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
from collections.abc import Mapping
from typing import Any

import numpy as np

from accelegrad.rules import Rule

KINDS = ("certified", "adaptive")
SHORTEST = 30  # steps of a stage, at first
STALLED = 0.1  # of the first half's progress
FALLEN = 0.01  # of the stage's first gap
SHRINK = (
    0.03  # of the distance travelled: the next radius; it grows quickly where that is too small
)
SMALLEST = 1e-13  # of the point's size


class Restarts:
    """The policy and its memory of the stage.

    Parameters
    ----------
    kind : {"certified", "adaptive"}
        Which of the two.
    l2 : float
        The model's l2 term, for the certified kind's cap; zero: no cap.
    """

    def __init__(self, kind: str, l2: float = 0.0) -> None:
        self.kind, self.l2 = kind, l2
        self.count = 0
        self.radius: float | None = None  # of the present stage; None: the first one
        self.cap: float | None = None
        self.shortest = SHORTEST
        self._values: list[float] = []  # the best value after each step of the stage
        self._first_gap = math.inf

    def stalled(self, best_value: float) -> bool:
        """Take note of the best value after a step; True if the stage should end."""
        self._values.append(best_value)
        length = len(self._values)
        if length < self.shortest:
            return False
        first, middle = self._values[0], self._values[length // 2]
        return middle - best_value <= STALLED * (first - middle)

    def proved(self, gap: float) -> bool:
        """Take note of a certified gap; True if it has fallen far enough."""
        if not self._first_gap < math.inf:
            self._first_gap = gap
        return 0 < gap <= FALLEN * self._first_gap < math.inf

    def begin(self, travelled: float, size: float, gap: float) -> None:
        """Begin a stage after one that travelled so far and ended at a point of this norm."""
        self.count += 1
        if self._values and not self._values[-1] < self._values[0]:
            self.shortest *= 2
        self.radius = max(SHRINK * travelled, SMALLEST * (1 + size))
        if self.kind == "certified" and self.l2 > 0 and 0 < gap < math.inf:
            self.cap = math.sqrt(2 * gap / self.l2)
            self.radius = min(self.radius, self.cap)
        self._values = []
        self._first_gap = gap

    def staged(self, rule: Rule) -> Rule:
        """Return the rule with the stage's radius and cap."""
        return rule if self.radius is None else rule.with_radius(self.radius, self.cap)

    def state(self) -> dict[str, Any]:
        """Return all that has to be kept to go on."""
        return {
            "count": self.count,
            "radius": self.radius,
            "cap": self.cap,
            "shortest": self.shortest,
            "values": np.array(self._values),
            "first_gap": self._first_gap,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.count, self.radius, self.cap = state["count"], state["radius"], state["cap"]
        self.shortest = state["shortest"]
        self._values = [float(value) for value in state["values"]]
        self._first_gap = state["first_gap"]
