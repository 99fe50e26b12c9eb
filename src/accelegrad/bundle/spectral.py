r"""Spectral steps with a set or a penalty: their length is the inverse of the last curvature.

Barzilai and Borwein's (IMA J. Numer. Anal. 8, 1988), projected or proximal: with the last step s
and the change y of the gradient over it, the next length is <s, s> / <s, y> or <s, y> / <y, y>, in
turn. They do not depend on values, so they reach the last digits of the gradient, which a proof by
cuts of a smooth function needs. On functions with kinks they gain nothing, and are given up.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from accelegrad.errors import Vector
from accelegrad.rules.base import Evaluated

#: Steps continue while the shortest movement, relative to its length, falls to this share within so
#: many steps; chosen.
WORTH, PATIENCE = 0.5, 30
#: The largest change factor of the length: at the last digits changes are rounding.
LARGEST_CHANGE = 100.0


class Spectral(NamedTuple):
    """A sequence of such steps, or the pause before the next."""

    point: Vector | None = None  # None: no sequence in progress
    gradient: Vector | None = None
    length: float = 0.0  # of the next step, as a multiple of the gradient
    shortest: float = math.inf  # shortest movement so far, relative to its length
    worth: float = math.inf  # the movement that continues the sequence
    left: int = PATIENCE  # steps left to reach it
    pause: int = 0  # turns to wait
    next_pause: int = PATIENCE  # doubled each time
    turns: int = 0

    @property
    def waits(self) -> bool:
        """Whether it is pausing."""
        return self.pause > 0

    @property
    def target(self) -> Vector:
        """The end of the next step, before projection or prox."""
        assert self.point is not None
        assert self.gradient is not None
        return self.point - self.length * self.gradient

    def waited(self) -> Spectral:
        """Return the pause, a turn shorter."""
        return self._replace(pause=self.pause - 1)

    def begun(self, point: Vector, gradient: Vector, length: float) -> Spectral:
        """Return a sequence that begins at a point, unless one is in progress."""
        if self.point is not None:
            return self
        return Spectral(point, gradient, length, next_pause=self.next_pause)

    def after(self, at: Evaluated) -> Spectral:
        """Return the sequence after a step, or the pause if it does not pay."""
        assert self.point is not None
        moved, change = at.point - self.point, at.gradient - self.gradient
        square, growth = float(moved @ moved), float(moved @ change)
        movement = math.sqrt(square) / self.length
        if not square > 0.0:
            return self.given_up()
        shortest, left, worth = min(self.shortest, movement), self.left - 1, self.worth
        if shortest <= worth:
            worth, left = WORTH * shortest, PATIENCE
        elif left == 0:
            return self.given_up()
        steep = float(change @ change)
        wanted = self.length
        if growth > 0.0 and steep > 0.0:
            wanted = growth / steep if self.turns % 2 else square / growth
        return self._replace(
            point=at.point,
            gradient=at.gradient,
            length=min(max(wanted, self.length / LARGEST_CHANGE), LARGEST_CHANGE * self.length),
            shortest=shortest,
            worth=worth,
            left=left,
            turns=self.turns + 1,
        )

    def given_up(self) -> Spectral:
        """Return the pause before another sequence."""
        return Spectral(pause=self.next_pause, next_pause=2 * self.next_pause)
