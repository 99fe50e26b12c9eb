"""What a run checks before it relies on a bound: that its region holds a minimiser, and convexity.

Every tangent of a convex function lies below every value: f(x_j) >= f(x_i) + <g_i, x_j - x_i>. If
that fails by more than rounding, nothing is proved: the function is not convex, its gradient is
wrong, or its values are noisy. A run that would end with a proof first evaluates around its point,
because a gradient entry that is always zero shows only where the run never went.

If the region of the cuts is the user's ball or a guess of the rule, such a run also tests whether
the function is lower just beyond.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from accelegrad.errors import DivergedError, NonFiniteError, NotConvexError, Vector
from accelegrad.files.saved import Saved
from accelegrad.linalg import SMALLEST, UNIT, norm
from accelegrad.rules.base import Evaluated
from accelegrad.rules.distance import distance, smallest_radius
from accelegrad.run.oracle import LARGEST_SQUARE, Evaluation
from accelegrad.run.result import Progress

# Of the check for convexity:
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
BETWEEN = (math.sqrt(5.0) - 1.0) / 2.0  # a share of the way that is no float32 number
LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
# Of the questions asked about a region:
#: Trial distances beyond the boundary of a given ball, in radii: a function that falls there does
#: so at all of them, or, if it is curved, at the smaller ones. Chosen.
TRIALS_BEYOND = [10.0**-power for power in range(1, 5)]
#: A point at this share of the radius or farther counts as being on the boundary. Chosen.
ON_BOUNDARY = 0.99
#: Trials of a guessed region. Chosen: two scales of curvature show in two.
TRIALS = 4
#: The part of the gradient that the last evaluations need not explain. Chosen.
EXPLAINED = 1e-3
#: How far a trial goes beyond what the last evaluations show, and the cut model's minimum may be
#: from the best point, in radii; and the factor between trials. Chosen: 2 and 100 change nothing.
FARTHER = 10.0
#: A prediction is right if it reduces steps to at most this share. Chosen.
VERIFIED = 0.3
#: The largest radius and step
LONGEST = math.sqrt(LARGEST_SQUARE)
#: A guessed region's radius, in the rule's radii. Chosen: a rule's radius is a lower estimate of
#: the distance to a minimiser, and a region that is too wide only proves less.
GUESSED_RADII = 3.0
#: Radii are rounded up to powers of this, because each change bounds the sum of cuts again: bounds
#: are looser by at most a quarter, and 1000 times the first radius takes 31 changes.
RADIUS_GRID = 1.25
#: Values do not distinguish points that are closer than this many units of rounding, relative to 1
#: + ||x||. Chosen.
RESOLVED = 4096.0


@dataclass(eq=False)
class Convexity(Saved):
    """Compares every evaluation with the last ones."""

    progress: Progress

    saved = ("_largest", "_rounding", "_fits_float32")

    _largest = 0.0  # the size of the largest value so far
    _rounding = 0.0  # the largest excess found to be rounding
    _fits_float32 = True  # whether every value so far fits into float32

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
            sizes = recent.sizes + size
            self._refuse(at, over, self._allowed(sizes, rises), tangent_is_new=False)
            self._refuse(at, -under, self._allowed(sizes, returns), tangent_is_new=True)

    def _allowed(self, sizes: Vector, rises: Vector) -> Vector:
        """Return how far rounding, or the given accuracy, may lift tangents above values.

        `sizes` are those of both values together, `rises` those of tangents between the points.
        """
        oracle = self.progress.oracle
        share, of_largest = ALLOWED, ALLOWED_OF_LARGEST
        if oracle.unit > UNIT:
            share = ALLOWED_UNITS_OF_FEW_BITS * oracle.unit
            of_largest = ALLOWED_UNITS_OF_LARGEST * oracle.unit
        inexact = 2.0 * oracle.accuracy  # of the tangent, and of the value
        return inexact + (share * (sizes + abs(rises)) + of_largest * self._largest + VANISHING)

    def _refuse(
        self, at: Evaluated, excess: Vector, allowed: Vector, *, tangent_is_new: bool
    ) -> None:
        """Raise if a tangent is higher above a value than rounding explains."""
        beyond = excess - np.maximum(allowed, self._rounding)
        i = int(beyond.argmax())
        if not beyond[i] > 0.0:
            return
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
        tried, nearest = self.progress.tried, NEIGHBOURHOOD * self.progress.oracle.unit
        again = tried(at.point, keep=False)
        if again is None or not abs(again.value - at.value) <= allowed:
            return False
        largest = 0.0
        for k, signs in enumerate(_signs(at.point.size)):
            near = tried(at.point * (1.0 + (k + 1) * nearest * signs), keep=False)
            if near is not None:
                largest = max(largest, abs(near.value - at.value))
        return by <= ALLOWED_OF_JITTER * largest

    def confirm(self, final: Evaluation) -> None:
        """Evaluate around a point that is about to be returned."""
        self.compare(final)
        for point in self._around(final):
            evaluation = self.progress.tried(point, keep=False)
            if evaluation is not None:
                self.compare(evaluation)
                self.progress.recent.add(evaluation)

    def computes_in_float32(self) -> bool:
        """Return whether all values are float32 numbers, though they came as float64.

        Some of the last ones must need more than `SIMPLE_BITS`: simple numbers may be exact. The
        last ones alone are not enough: small values have few digits if terms cancel. And a value
        between two points must be one as well: a function may take integers at all of its points.
        """
        if self.progress.oracle.unit > UNIT or not self._fits_float32:
            return False
        values = self.progress.recent.values
        mantissas = np.ldexp(np.frexp(values)[0], SIMPLE_BITS)
        telling = np.flatnonzero(mantissas != np.rint(mantissas))
        if len(set(values[telling])) < TELLING_VALUES:
            return False
        points, (i, *_, j) = self.progress.recent.points, telling
        between = self.progress.tried(points[i] + BETWEEN * (points[j] - points[i]), keep=False)
        return between is None or float(np.float32(between.value)) == between.value

    def _around(self, final: Evaluation) -> Iterator[Vector]:
        """Yield a few points around it, moved in all coordinates."""
        progress, point = self.progress, final.point
        feasible_set, cuts = progress.feasible_set, progress.bracket.cuts
        way = max(norm(point - progress.start), NEAR * (1.0 + norm(point)))
        bounded = cuts is not None and not cuts.region.assumed
        far = ACROSS * cuts.region.radius if cuts is not None and bounded else FAR * way
        near, across = _signs(point.size)[:2].astype(np.float64)
        looks = [(NEAR * way, near), (NEAR * way, -near), (far, across)]
        if bounded:  # the distance of the start from the minimiser says nothing here
            turned = across.copy()
            turned[::2] *= -1.0  # nearly orthogonal to the first direction
            looks += [(far, -across), (ACROSS * far, turned), (ACROSS * far, -turned)]
        for away, direction in looks:
            trial = point + away / math.sqrt(point.size) * direction
            try:
                yield trial if feasible_set is None else feasible_set.project(trial)
            except Exception:  # a failing projection; the run has its answer
                continue


@functools.lru_cache(maxsize=1)
def _signs(size: int) -> np.ndarray:
    """Return rows of signs, the same in every run; kept, as a generator takes as long as a step."""
    return 2 * np.random.default_rng(0).integers(0, 2, (NEIGHBOURS, size), dtype=np.int8) - 1


@dataclass(eq=False)
class AssumedRegion:
    """A ball that contains a minimiser according to the user; None: bounds need no such ball."""

    progress: Progress
    region: Any  # a `Region`, or None

    #: whether the run has guessed it
    is_guess: ClassVar[bool] = False

    def follow(self) -> None:
        """Let a guessed region grow with the rule's radius."""

    def admit(self, final: Evaluation) -> None:
        """Widen a guessed region that a value refutes."""

    def stands(self, final: Evaluation, *, everywhere: bool = False) -> bool:
        """Look beyond an assumed region before a point is called optimal.

        If the region is too small, the function falls beyond it: a value below the lower bound at
        one of a few trial points proves that. `everywhere` looks even if the point is far from the
        boundary.
        """
        if self.region is None:
            return True
        bracket = self.progress.bracket
        proved = bracket.proved(final)  # else rounding ended the run
        margin = bracket.goal(final.value) if proved else bracket.resolution(final)
        if bracket.bound_everywhere >= final.value - margin:
            return True
        slope = norm(final.gradient)  # unlike a square it does not underflow
        if slope == 0 and self.progress.oracle.penalty is None:
            return True
        return self.region.radius > 0 and self._nothing_lower_beyond(
            final, slope, margin, everywhere
        )

    def _nothing_lower_beyond(
        self, final: Evaluation, slope: float, margin: float, everywhere: bool
    ) -> bool:
        """Evaluate a little beyond the boundary, downhill from a point."""
        region, refuted = self.region, self.progress.bracket.refuted
        if refuted(final):
            return False
        on_boundary = math.dist(final.point, region.center) >= ON_BOUNDARY * region.radius
        if not (on_boundary or everywhere) or region.radius * slope <= 2 * margin:
            return True
        inside = region.distance_to_boundary(final.point, -final.gradient)
        steps = ((inside + share * region.radius) / slope for share in TRIALS_BEYOND)
        points = (self._downhill(final.point, final.gradient, step) for step in steps)
        trials = map(self.progress.tried, points)
        return not any(trial is not None and refuted(trial) for trial in trials)

    def _downhill(self, point: Vector, gradient: Vector, step: float) -> Vector:
        """Return the feasible point after a step of the (proximal) gradient method."""
        penalty = self.progress.oracle.penalty
        moved = point - step * gradient
        if penalty is not None:
            moved = penalty.prox(moved, step)
        projected: Vector = self.region.feasible_set.project(moved)
        return projected


@dataclass(eq=False)
class GuessedRegion(AssumedRegion):
    """A ball around the start that grows with the radius that the rule finds."""

    is_guess = True

    def __post_init__(self) -> None:
        self._start = self.progress.rule_state.start  # x0 in the rule's coordinates

    def follow(self) -> None:
        """Let the region grow with the rule's radius, and with the distance of the last restart."""
        state = self.progress.rule_state
        reach = GUESSED_RADII * float(state.radius)
        if state.start is not self._start:
            reach += float(distance(state.start, self._start))
        if reach > self.region.radius:
            self._widen(reach)

    def _widen(self, reach: float) -> None:
        cuts = self.progress.bracket.cuts
        assert cuts is not None
        if not reach < LONGEST:
            if not norm(self.region.center) < LONGEST:
                raise NonFiniteError("squares of distances overflow, because x0 is so large")
            raise DivergedError
        cuts.widen(RADIUS_GRID ** math.ceil(math.log(reach, RADIUS_GRID)))

    def admit(self, final: Evaluation) -> None:
        """Widen the region until the value does not refute it."""
        while self.progress.bracket.refuted(final):
            self._widen(2 * self.region.radius)

    def _nothing_lower_beyond(
        self,
        final: Evaluation,
        slope: float,
        margin: float,
        everywhere: bool,  # noqa: ARG002
    ) -> bool:
        """Look for lower values beyond the region: where gradients vanish, and where cuts do."""
        # The rule's first radius is arbitrary: at a kink, as x0 often is, no subgradient need point
        # downhill.
        state, size = self.progress.rule_state, max(1.0, norm(self.region.center))
        if self.region.radius < size and float(state.radius) <= smallest_radius(state.start):
            self._widen(size)
            return False
        resolved = RESOLVED * self.progress.oracle.unit * (1.0 + norm(final.point))
        if self.region.radius < resolved:  # values cannot distinguish its points
            self._widen(2.0 * resolved)
            return False
        keeps_cuts = "cuts" in self.progress.rule.can
        if not (keeps_cuts and self.progress.rule_state.smooth):
            before = self.progress.calls
            if not self._model_is_right(final, slope, margin):
                return False
            if self.progress.calls == before:
                return True
        return self._gradients_vanish_inside(final, slope)

    def _gradients_vanish_inside(self, final: Evaluation, slope: float) -> bool:
        """Return whether gradients, extrapolated from the nearest points, vanish in the region.

        With steps s_i of the (proximal) gradient method from points x_i, and s from the point c,
        numbers a_i with sum a_i (s_i - s) = -s predict that the steps vanish at c + sum a_i (x_i -
        c). The function is evaluated there, or farther on if the a_i leave a part of s unexplained.
        A value below the lower bound refutes the region, which is widened to contain the point. The
        region stands once a prediction has proved right and the next one is also in the region.
        """
        region, recent = self.region, self.progress.recent
        radius = region.radius
        length = min(radius / max(slope, SMALLEST), LONGEST)

        def step_from(point: Vector, gradient: Vector) -> Vector:
            return self._downhill(point, gradient, length) - point

        points = recent.points
        if region.is_ball and self.progress.oracle.penalty is None:
            steps = points - length * recent.gradients - points
        else:
            pairs = zip(points, recent.gradients, strict=True)
            steps = np.array([step_from(*pair) for pair in pairs]).reshape(points.shape)
        at, step = final, step_from(final.point, final.gradient)
        verified = False
        for trials in range(TRIALS):
            if not step.any():
                return True  # a minimiser, up to rounding
            ahead, unexplained = _extrapolated(points - at.point, steps - step, step)
            falls = float(ahead @ step) > 0.0
            explained = falls and norm(unexplained) <= EXPLAINED * norm(step)
            if verified and explained and not math.dist(at.point + ahead, region.center) > radius:
                return True
            if not falls:
                ahead, unexplained = np.zeros_like(step), step
            if not explained:
                ahead = ahead + FARTHER * radius / norm(unexplained) * unexplained
            farthest = radius * FARTHER ** (trials + 1)
            ahead = ahead * min(1.0, farthest / max(norm(ahead), SMALLEST))
            trial = self.progress.tried(region.feasible_set.project(at.point + ahead))
            if trial is None or not (trial.point != at.point).any():
                return True
            if self._refuted_by(trial):
                return False
            moved = step_from(trial.point, trial.gradient)
            verified = explained and norm(moved) <= VERIFIED * norm(step)
            points, steps = np.vstack((points, trial.point)), np.vstack((steps, moved))
            if trial.value <= at.value:
                at, step = trial, moved
        return True

    def _model_is_right(self, final: Evaluation, slope: float, margin: float) -> bool:
        """Return whether the cut model's minimum far beyond the region does not refute it."""
        cuts, region = self.progress.bracket.cuts, self.region
        if cuts is None or cuts.kept is None or slope == 0.0:
            return True
        far = FARTHER * region.radius
        step = min(far / max(slope, SMALLEST), LONGEST)
        lowest = cuts.lowest(final, step)
        if lowest is None or lowest.promise <= margin:
            return True
        offset = lowest.point - final.point
        share = min(1.0, far / max(norm(offset), SMALLEST))
        trial = self.progress.tried(region.feasible_set.project(final.point + share * offset))
        if trial is None:
            return True
        cuts.kept.take(trial)
        return not self._refuted_by(trial)

    def _refuted_by(self, trial: Evaluation) -> bool:
        """Return whether a value refutes the region, which is then widened to contain the point."""
        if not self.progress.bracket.refuted(trial):
            return False
        reach = max(self.region.radius, math.dist(trial.point, self.region.center))
        self._widen(2 * reach)
        return True


def _extrapolated(offsets: np.ndarray, changes: np.ndarray, step: Vector) -> tuple[Vector, Vector]:
    """Return the way to where steps vanish, and the part of the step that is not explained."""
    nearest = np.einsum("ij,ij->i", offsets, offsets).argsort(kind="stable")
    telling = np.abs(changes).max(axis=1, initial=0.0) > 0.0
    chosen = nearest[telling[nearest]][: step.size]
    if not chosen.size:
        return np.zeros_like(step), step
    offsets, changes = offsets.take(chosen, axis=0), changes.take(chosen, axis=0)
    shares: Vector = np.linalg.lstsq(changes.T, -step)[0]
    return shares.dot(offsets), step + shares.dot(changes)
