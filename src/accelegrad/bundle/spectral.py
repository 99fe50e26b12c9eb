r"""Steps whose length is the inverse of the curvature just seen, with a set or a penalty.

Barzilai and Borwein's (IMA J. Numer. Anal. 8, 1988), projected or proximal: with the last step s
and the change y of the gradient over it, the next one has the length <s, s> / <s, y> or
<s, y> / <y, y>, in turn. No value judges them, so that they go on to the last digits of the
gradient, where values tell nothing any more: that is what a proof by cuts needs of a smooth
function. They tell nothing of one with kinks, so that they are given up where they do not pay.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from accelegrad.errors import Vector
from accelegrad.rules.base import Evaluated

#: Steps are worth it while the shortest movement, relative to its length, falls to this share
#: within so many steps; chosen.
WORTH, PATIENCE = 0.5, 30
#: The length changes by this factor at most: at the last digits changes are rounding.
LARGEST_CHANGE = 100.0


class Spectral(NamedTuple):
    """A sequence of such steps, or the pause before the next."""

    point: Vector | None = None  # None: none goes on
    gradient: Vector | None = None
    length: float = 0.0  # of the next step, as a multiple of the gradient
    shortest: float = math.inf  # the shortest movement so far, relative to its length
    worth: float = math.inf  # what it has to fall to
    left: int = PATIENCE  # steps that it may take to
    pause: int = 0  # turns to wait
    next_pause: int = PATIENCE  # where they do not pay; twice as many turns the next time
    turns: int = 0

    @property
    def waits(self) -> bool:
        """Whether it is not to have a step."""
        return self.pause > 0

    @property
    def target(self) -> Vector:
        """Where the next step leads, before projection or prox."""
        assert self.point is not None
        assert self.gradient is not None
        return self.point - self.length * self.gradient

    def waited(self) -> Spectral:
        """Return the pause, a turn shorter."""
        return self._replace(pause=self.pause - 1)

    def begun(self, point: Vector, gradient: Vector, length: float) -> Spectral:
        """Return a sequence that begins at a point, if none goes on."""
        if self.point is not None:
            return self
        return Spectral(point, gradient, length, next_pause=self.next_pause)

    def after(self, at: Evaluated) -> Spectral:
        """Return the sequence after a step to an evaluation, or the pause where it does not pay."""
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
