"""Quasi-Newton steps with a set or a penalty that do not look at values.

A proof by cuts of a smooth function needs the last digits of the gradient, when values no longer
show any progress. On functions with kinks such steps gain nothing, and are given up.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from accelegrad.errors import Vector
from accelegrad.rules.base import Evaluated

#: Steps continue while the shortest movement falls to this share within so many steps; chosen.
WORTH, PATIENCE = 0.5, 30


class LastDigits(NamedTuple):
    """A sequence of such steps, or the pause before the next."""

    point: Vector | None = None  # None: no sequence in progress
    gradient: Vector | None = None
    shortest: float = math.inf  # shortest movement so far
    worth: float = math.inf  # the movement that continues the sequence
    left: int = PATIENCE  # steps left to reach it
    pause: int = 0  # turns to wait
    next_pause: int = PATIENCE  # doubled each time

    @property
    def waits(self) -> bool:
        """Whether it is pausing."""
        return self.pause > 0

    def waited(self) -> LastDigits:
        """Return the pause, a turn shorter."""
        return self._replace(pause=self.pause - 1)

    def begun(self, point: Vector, gradient: Vector) -> LastDigits:
        """Return a sequence that begins at a point, unless one is in progress."""
        if self.point is not None:
            return self
        return LastDigits(point, gradient, next_pause=self.next_pause)

    def after(self, at: Evaluated) -> LastDigits:
        """Return the sequence after a step, or the pause if it does not pay."""
        moved = at.point - self.point
        movement = math.sqrt(float(moved @ moved))
        if movement == 0.0:
            return self.given_up()
        shortest, left, worth = min(self.shortest, movement), self.left - 1, self.worth
        if shortest <= worth:
            worth, left = WORTH * shortest, PATIENCE
        elif left == 0:
            return self.given_up()
        return LastDigits(at.point, at.gradient, shortest, worth, left, next_pause=self.next_pause)

    def given_up(self) -> LastDigits:
        """Return the pause before another sequence."""
        return LastDigits(pause=self.next_pause, next_pause=2 * self.next_pause)
