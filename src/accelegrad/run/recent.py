"""The last evaluations of a run: for the check of convexity, and for extrapolation."""

from __future__ import annotations

import numpy as np

from accelegrad.errors import Vector
from accelegrad.rules.base import Evaluated
from accelegrad.run.checkpoint import Saved

#: How many are kept: comparing an evaluation with them costs about what a step does. Fewer of long
#: vectors, so that they take no more memory than these bytes, which a cache may hold: with 1e6
#: variables comparing with 20 took half the time of a run.
KEPT, KEPT_BYTES, FEWEST_KEPT = 20, 16 * 2**20, 4


class Recent(Saved):
    """The last evaluations, in the rows of arrays: the function alone, without a penalty.

    Parameters
    ----------
    dimension : int
        The number of coordinates.
    """

    saved = ("_points", "_gradients", "_values", "_sizes", "_seen")

    def __init__(self, dimension: int) -> None:
        kept = max(FEWEST_KEPT, min(KEPT, KEPT_BYTES // (16 * dimension)))
        self._points, self._gradients = np.zeros((kept, dimension)), np.zeros((kept, dimension))
        self._values, self._sizes = np.zeros(kept), np.zeros(kept)
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
        return min(self._seen, len(self._values))

    def add(self, at: Evaluated) -> None:
        """Keep an evaluation in place of the oldest."""
        row, term = self._seen % len(self._values), at.penalty
        self._points[row], self._gradients[row] = at.point, at.gradient
        self._values[row], self._sizes[row] = at.value - term, abs(at.value) + abs(term)
        self._seen += 1
