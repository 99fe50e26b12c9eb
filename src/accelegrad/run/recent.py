"""The last evaluations of a run: for the check of convexity, and for extrapolation."""

from __future__ import annotations

import numpy as np

from accelegrad.errors import Vector
from accelegrad.rules.base import Evaluated, term_of
from accelegrad.run.checkpoint import Saved

#: How many are kept: comparing an evaluation with them costs about what a step does.
KEPT = 20


class Recent(Saved):
    """The last evaluations, in the rows of arrays: the function alone, without a penalty.

    Parameters
    ----------
    dimension : int
        The number of coordinates.
    """

    saved = ("_points", "_gradients", "_values", "_sizes", "_seen")

    def __init__(self, dimension: int) -> None:
        self._points, self._gradients = np.zeros((KEPT, dimension)), np.zeros((KEPT, dimension))
        self._values, self._sizes = np.zeros(KEPT), np.zeros(KEPT)
        self._seen = 0

    @property
    def points(self) -> np.ndarray:
        """Where, one row per evaluation, in any order."""
        return self._points[: self._count]

    @property
    def gradients(self) -> np.ndarray:
        """The gradients there."""
        return self._gradients[: self._count]

    @property
    def values(self) -> Vector:
        """The values there."""
        return self._values[: self._count]

    @property
    def sizes(self) -> Vector:
        """The sizes of the terms of these values."""
        return self._sizes[: self._count]

    @property
    def _count(self) -> int:
        return min(self._seen, KEPT)

    def add(self, at: Evaluated) -> None:
        """Keep an evaluation in place of the oldest."""
        row, term = self._seen % KEPT, term_of(at)
        self._points[row], self._gradients[row] = at.point, at.gradient
        self._values[row], self._sizes[row] = at.value - term, abs(at.value) + abs(term)
        self._seen += 1
