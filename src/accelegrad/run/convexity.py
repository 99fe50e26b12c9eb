"""Checks during a run that the function's values and gradients fit a convex function.

Every tangent of a convex function lies below every value: f(x_j) >= f(x_i) + <g_i, x_j - x_i>. If
that fails by more than rounding, nothing is proved: the function is not convex, its gradient is
wrong, or its values are noisy. A run that would end with a proof first evaluates around its point,
because a gradient entry that is always zero shows only where the run never went.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from accelegrad.errors import NotConvexError, Vector
from accelegrad.files.saved import Saved
from accelegrad.linalg import UNIT, norm
from accelegrad.rules.base import Evaluated
from accelegrad.run.oracle import Evaluation
from accelegrad.run.progress import Progress

#: Allowed rounding, relative to the values and to the tangent's rise between the points: generous,
#: as nothing is known about the computation. For functions with less than 64 bits in units of their
#: rounding: 1e-4 for float32
ALLOWED, ALLOWED_UNITS_OF_FEW_BITS = 1e-9, 1e3
#: The same relative to the largest value so far, whose terms may have been that large all along,
ALLOWED_OF_LARGEST, ALLOWED_UNITS_OF_LARGEST = 1e-12, 8.0
#: and for numbers so small that digits of their products vanish
VANISHING = 1e-290
#: Rounding may be this much larger than the differences between values at neighbouring numbers
ALLOWED_OF_JITTER = 100.0
#: The number of neighbours evaluated, and their relative distance per coordinate in units of
#: rounding
NEIGHBOURS, NEIGHBOURHOOD = 8, 4.0
#: Distances of the final evaluations, in distances from the start: near enough for curvature not to
#: hide a wrong slope, far enough for rounding not to; and once as far as a region reaches, because
#: a function may be convex only near its point. The first is also the shortest distance from the
#: start that counts, relative to 1 + ||x||. Chosen.
NEAR, FAR = 1e-3, 3.0
#: The latter in a bounded set, in diameters, and another one there as a share of it. Chosen.
ACROSS = 0.5
#: This many different float32 values with more than so many bits show that a function computes in
#: float32. Chosen.
TELLING_VALUES, SIMPLE_BITS = 3, 12
LARGEST_FLOAT32 = float(np.finfo(np.float32).max)


class Convexity(Saved):
    """Compares every evaluation with the last ones."""

    saved = ("_largest", "_rounding", "_fits_float32")

    _largest = 0.0  # the size of the largest value so far
    _rounding = 0.0  # the largest excess found to be rounding
    _fits_float32 = True  # whether every value so far fits into float32

    def __init__(self, progress: Progress) -> None:
        self.progress = progress

    def compare(self, at: Evaluated) -> None:
        """Compare an evaluation with the last ones."""
        point, gradient, term = at.point, at.gradient, at.penalty
        value = at.value - term
        size = abs(at.value) + abs(term)  # terms of the difference that gives the value
        self._largest = max(self._largest, size)
        if self._fits_float32:
            fits = abs(at.value) < LARGEST_FLOAT32 and float(np.float32(at.value)) == at.value
            self._fits_float32 = fits
        recent = self.progress.recent
        points, gradients, values = recent.points, recent.gradients, recent.values
        offsets = np.subtract(point, points, out=recent.offsets)
        # the rise of the earlier tangents to this point, and of this one's to the earlier points
        rises = np.einsum("ij,ij->i", gradients, offsets)
        returns = offsets.dot(gradient)
        lower = values - value
        over, under = rises + lower, returns + lower
        if lower.size and not over[over.argmax()] <= 0.0 <= under[under.argmin()]:
            unit, sizes = self.progress.oracle.unit, recent.sizes + size
            inexact = 2.0 * self.progress.oracle.accuracy  # of the tangent, and of the value
            allowed = inexact + allowance(unit, sizes, rises, self._largest)
            self._refuse(at, values + rises - value, allowed, tangent_is_new=False)
            allowed = inexact + allowance(unit, sizes, returns, self._largest)
            self._refuse(at, value - returns - values, allowed, tangent_is_new=True)

    def _refuse(
        self, at: Evaluated, excess: Vector, allowed: Vector, *, tangent_is_new: bool
    ) -> None:
        beyond = excess - np.maximum(allowed, self._rounding)
        if not beyond.size or not beyond.max() > 0.0:
            return
        i = int(beyond.argmax())
        by = float(excess[i])
        if self._is_rounding(at, by, float(allowed[i])):
            self._rounding = max(self._rounding, by)
            return
        earlier, point = self.progress.recent.points[i].copy(), at.point.copy()
        pair = (point, earlier) if tangent_is_new else (earlier, point)
        raise NotConvexError(*pair, by=by)

    def _is_rounding(self, at: Evaluated, by: float, allowed: float) -> bool:
        """Return whether values at neighbouring numbers differ about as much.

        The terms of a value that is nearly zero may be large. Noise differs at the point itself.
        """
        again = self._evaluated(at.point)
        if again is None or not abs(again.value - at.value) <= allowed:
            return False
        return by <= ALLOWED_OF_JITTER * jitter(self._evaluated, at, self.progress.oracle.unit)

    # -- before a run ends -------------------------------------------------------------------------

    def confirm(self, final: Evaluation) -> None:
        """Evaluate around a point that is about to be returned."""
        self.compare(final)
        for point in self._around(final):
            evaluation = self._evaluated(point)
            if evaluation is not None:
                self.compare(evaluation)
                self.progress.recent.add(evaluation)

    def computes_in_float32(self) -> bool:
        """Return whether all values are float32 numbers, though they came as float64.

        Some of the last ones must need more than `SIMPLE_BITS`: simple numbers may be exact. The
        last ones alone are not enough: small values have few digits if terms cancel.
        """
        if self.progress.oracle.unit > UNIT or not self._fits_float32:
            return False
        values = self.progress.recent.values
        mantissas = np.ldexp(np.frexp(values)[0], SIMPLE_BITS)
        return len(set(values[mantissas != np.rint(mantissas)])) >= TELLING_VALUES

    def _around(self, final: Evaluation) -> Iterator[Vector]:
        """Yield a few points around it, moved in all coordinates."""
        point, feasible_set = final.point, self.progress.feasible_set
        way = max(norm(point - self._start), NEAR * (1.0 + norm(point)))
        cuts = self.progress.bracket.cuts
        bounded = cuts is not None and not cuts.region.assumed
        far = ACROSS * cuts.region.radius if cuts is not None and bounded else FAR * way
        near, across = _signs(point.size)[:2].astype(np.float64)
        looks = [(NEAR * way, near), (NEAR * way, -near), (far, across)]
        if bounded:  # the distance of the start from the minimiser says nothing here
            turned = across.copy()
            turned[::2] *= -1.0  # nearly orthogonal to the first direction
            looks += [(far, -across), (ACROSS * far, turned), (ACROSS * far, -turned)]
        for distance, direction in looks:
            trial = point + distance / math.sqrt(point.size) * direction
            if feasible_set is None:
                yield trial
                continue
            try:
                yield feasible_set.project(trial)
            except Exception:  # a failing projection; the run has its answer
                continue

    @property
    def _start(self) -> Vector:
        start: Vector | None = getattr(self.progress.rule_state, "start", None)
        points = self.progress.recent.points
        if start is None:
            start = points[0] if len(points) else self.progress.point("last")
        return start

    def _evaluated(self, point: Vector) -> Evaluation | None:
        """Evaluate at a point, without making it the best one; None if the function fails there."""
        judge = self.progress.judge
        assert judge is not None
        best = judge.best
        try:
            evaluation = judge.exactly(point)
            _ = evaluation.gradient  # it may be computed late, and not be finite
        except Exception:
            return None
        finally:
            judge.best = best
        return evaluation


def allowance(unit: float, sizes: Any, rises: Any, largest: float) -> Any:
    """Return how far rounding may lift a tangent above a value, for one pair or for many.

    `sizes` are those of both values together, `rises` those of the tangent between the points, and
    `largest` is the size of the largest value so far.
    """
    share, of_largest = ALLOWED, ALLOWED_OF_LARGEST
    if unit > UNIT:
        share, of_largest = ALLOWED_UNITS_OF_FEW_BITS * unit, ALLOWED_UNITS_OF_LARGEST * unit
    return share * (sizes + abs(rises)) + of_largest * largest + VANISHING


def jitter(evaluated: Callable[[Vector], Evaluated | None], at: Evaluated, unit: float) -> float:
    """Return how much the value changes when the last digits of the point change."""
    largest, nearest = 0.0, NEIGHBOURHOOD * unit
    for k, signs in enumerate(_signs(at.point.size)):
        near = evaluated(at.point * (1.0 + (k + 1) * nearest * signs))
        if near is not None:
            largest = max(largest, abs(near.value - at.value))
    return largest


@functools.lru_cache(maxsize=1)
def _signs(size: int) -> np.ndarray:
    """Return rows of signs, the same in every run; kept, as a generator takes as long as a step."""
    return 2 * np.random.default_rng(0).integers(0, 2, (NEIGHBOURS, size), dtype=np.int8) - 1
