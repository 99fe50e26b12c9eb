r"""Memory of cuts: affine functions below a function.

A cut :math:`f(u) \ge h + \langle g, u - x_0\rangle` is stored as (g, h).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.linalg.blas import ddot  # @ takes longer to begin

from accelegrad.errors import Vector
from accelegrad.linalg import FEW, SMALLEST, UNIT, norm
from accelegrad.rules.base import Evaluated

#: The memory that cuts take by default, in bytes; chosen
DEFAULT_BYTES = 64 * 2**20
#: Cuts beyond the dimension that are kept by default: up to d + 1 can be active at a minimiser of a
#: max-type function (with 30 in 40 dimensions the last digits are lost).
SPARE_CUTS = 20
#: The fewest cuts that a bundle works with: the newest, an older one, and their sum
FEWEST_CUTS = 4
#: The sum of smaller weights loses its digits.
SMALLEST_TOTAL = 1e-200
#: The share of the memory that is kept when it is full; chosen
KEPT_SHARE = 0.8


def default_size(dimension: int) -> int:
    """Return the default number of cuts."""
    return max(FEWEST_CUTS, min(dimension + SPARE_CUTS, DEFAULT_BYTES // (8 * dimension)))


#: The numbers of a cut: its value at the origin; its weight in the last combination; when it was
#: added; the size of the terms of its value; the length of its slope; and how far value and slope
#: can be off, because of adding cuts or of low precision.
LEVEL, WEIGHT, ADDED, SIZE, LENGTH, LOST, BLURRED = NUMBERS = range(7)


class CutMemory:
    """At most `size` cuts around `origin`, x0."""

    def __init__(self, origin: Vector, size: int) -> None:
        self.origin, self.size = origin, size
        self.count = 0
        rows = min(size, 2 * FEWEST_CUTS)
        self._slopes = np.empty((rows, origin.size))
        self._numbers = np.zeros((rows, len(NUMBERS)))
        self._gram = np.zeros((0, 0))
        self._gram_rows = 0  # rows that are up to date
        self.added = 0  # cuts so far

    @property
    def slopes(self) -> np.ndarray:
        """The slopes of the cuts, one per row."""
        return self._slopes[: self.count]

    @property
    def levels(self) -> Vector:
        """The cuts at the origin."""
        return self._numbers[: self.count, LEVEL]

    @property
    def lengths(self) -> Vector:
        """The lengths of the slopes."""
        return self._numbers[: self.count, LENGTH]

    @property
    def last_weights(self) -> Vector:
        """The weights of the last combination."""
        return self._numbers[: self.count, WEIGHT]

    @property
    def has_weights(self) -> bool:
        """Whether there was a combination of cuts."""
        return bool(self.last_weights.any())

    def take(self, evaluation: Evaluated) -> None:
        """Keep the cut at an evaluation: that of the function alone, without a penalty."""
        slope, term = evaluation.gradient, evaluation.penalty
        offset = evaluation.point - self.origin
        length, away = norm(slope), norm(offset)
        size = abs(evaluation.value) + abs(term) + length * away
        level = evaluation.value - term - ddot(slope, offset)
        off, blurred = evaluation.lost
        self._add(slope, (level, 0.0, 0.0, size, length, off + blurred * away, blurred))

    def blur(self, share: float) -> None:
        """Add this share of value, rise and slope to the errors of the cuts so far."""
        numbers = self._numbers[: self.count]
        numbers[:, LOST] += share * (numbers[:, SIZE] + numbers[:, LENGTH] * norm(self.origin))
        numbers[:, BLURRED] += share * numbers[:, LENGTH]

    def _add(self, slope: Vector, numbers: tuple[float, ...]) -> None:
        """Keep a cut unless it repeats the newest; if memory is full, drop the least important."""
        if self.count:
            last = self._numbers[self.count - 1]
            size = max(last[SIZE], numbers[SIZE])
            same = abs(last[LEVEL] - numbers[LEVEL]) <= FEW * UNIT * size
            if same and np.array_equal(self._slopes[self.count - 1], slope):
                return
        if self.count == self.size:
            self._make_room()
        if self.count == len(self._numbers):
            self._grow()
        i = self.count
        self.added += 1
        self._slopes[i], self._numbers[i] = slope, numbers
        self._numbers[i, ADDED] = self.added
        self.count = i + 1

    def values_at(self, point: Vector) -> Vector:
        """Return the cuts at a point."""
        n = self.count
        values: Vector = self._slopes[:n].dot(point - self.origin)
        values += self._numbers[:n, LEVEL]
        return values

    def combined_slope(self, weights: Vector) -> Vector:
        """Return the weighted sum of the slopes."""
        (active,) = weights.nonzero()
        slope: Vector = weights[active].dot(self._slopes.take(active, axis=0))
        return slope

    def products(self) -> np.ndarray:
        """Return the inner products of all slopes, computing those that are missing."""
        known, n = self._gram_rows, self.count
        if len(self._gram) < n:
            gram, self._gram = self._gram, np.zeros((len(self._numbers), len(self._numbers)))
            self._gram[:known, :known] = gram[:known, :known]
        if known < n:
            rows = self._slopes[known:n] @ self._slopes[:n].T
            self._gram[known:n, :n] = rows
            self._gram[:n, known:n] = rows.T
            self._gram_rows = n
        return self._gram[:n]

    def keep_weights(self, weights: Vector) -> None:
        """Store weights to start the next combination; cuts with a weight are kept longest."""
        self._numbers[: self.count, WEIGHT] = weights

    def mean(self, weights: Vector) -> tuple[Vector, tuple[float, ...]] | None:
        """Return the mean of the cuts, as slope and numbers; None if no weight is positive.

        It is a cut of the function whatever the weights add up to: dividing k of them by their sum
        leaves shares that add up to 1 within (k + 1) / 2 units of rounding, and their sum with the
        cuts is off by k / 2 units more, relative to the sizes of its terms. The sizes are sums too,
        so twice as much is allowed for, plus products that underflow.
        """
        positive = np.maximum(weights, 0.0)
        total = float(np.add.reduce(positive))
        if not (SMALLEST_TOTAL < total < math.inf):
            return None
        shares = positive / total
        numbers = shares.dot(self._numbers[: self.count]).tolist()
        level, _, _, size, length, lost, blurred = numbers
        slope = self.combined_slope(shares)
        count = np.count_nonzero(shares) + 1
        rounded, vanished = 2 * count * UNIT, count * SMALLEST
        lost += rounded * (size + lost) + vanished
        blurred += rounded * (length + blurred) + slope.size * vanished
        return slope, (level, 0.0, 0.0, size + vanished, length + vanished, lost, blurred)

    def _grow(self) -> None:
        rows, n = min(self.size, 2 * len(self._numbers)), self.count
        slopes, self._slopes = self._slopes, np.empty((rows, self.origin.size))
        self._slopes[:n] = slopes[:n]
        numbers, self._numbers = self._numbers, np.zeros((rows, len(NUMBERS)))
        self._numbers[:n] = numbers[:n]

    def _make_room(self) -> None:
        """Drop cuts without weight, the oldest first; one cut, their mean, replaces them."""
        kept = max(FEWEST_CUTS - 2, int(KEPT_SHARE * self.size) - 1)
        weights = self.last_weights.copy()
        order = np.lexsort((self._numbers[: self.count, ADDED], weights))[::-1]
        keep = np.sort(order[:kept])
        total = self.mean(weights)
        n = len(keep)
        known = int(np.searchsorted(keep, self._gram_rows))  # whose products are up to date
        self._gram[:known, :known] = self._gram[keep[:known, None], keep[:known]]
        for new, old in enumerate(keep.tolist()):  # in place: all at once would be copied twice
            if new < old:
                self._slopes[new] = self._slopes[old]
        self._numbers[:n] = self._numbers[keep]
        self.count, self._gram_rows = n, known
        if total is not None:
            self._add(*total)

    def state(self) -> dict[str, Any]:
        """Return all that a checkpoint has to keep, bit for bit."""
        n, known = self.count, self._gram_rows
        return {
            "slopes": self._slopes[:n].copy(),
            "numbers": self._numbers[:n].copy(),
            "gram": self._gram[:known, :known].copy(),
            "added": self.added,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint."""
        n = len(state["slopes"])
        self.count = 0
        while len(self._numbers) < n:
            self._grow()
        self.count, self.added = n, int(state["added"])
        self._slopes[:n], self._numbers[:n] = state["slopes"], state["numbers"]
        self._gram, self._gram_rows = np.array(state["gram"]), len(state["gram"])
