"""Regions that are only assumed to hold a minimiser: questioned, and widened where they are wrong.

Bounds by cuts hold over a region. Where that is the user's ball or a guess of the rule's, a run
that would end there first asks for a second opinion: is the function lower just beyond?
"""

from __future__ import annotations

import math

from accelegrad.errors import NonFiniteError, Vector
from accelegrad.norms import norm
from accelegrad.problems.rounding import SMALLEST
from accelegrad.proofs.region import Region
from accelegrad.rules.base import State, Step
from accelegrad.rules.cut_model import Center
from accelegrad.rules.distance import distance, smallest_radius
from accelegrad.run.oracle import Evaluation
from accelegrad.run.policies.base import Policy
from accelegrad.run.progress import Progress

#: Distances beyond the boundary of a given ball at which to evaluate, in radii: a function that
#: falls there does so at all of them, or, if it is curved, at the smaller ones
TRIALS_BEYOND = (1e-1, 1e-2, 1e-3, 1e-4)
#: A point at this share of the radius or farther counts as being on the boundary.
ON_BOUNDARY = 0.99
#: Steps of another method before a guessed radius is trusted: where no curvature is seen eight lead
#: from the first length to the longest one, and the others are to spare.
SECOND_OPINION_STEPS = 12
#: The length of the first of them, and the most that any may have, in radii
FIRST_TRIAL, FARTHEST_TRIAL = 0.1, 1e6
#: The longest step of a trial: squares of it can still be computed with.
LONGEST_STEP = 1e250
#: The factor by which the trial step grows where no curvature is seen
STEP_GROWTH = 10.0
#: Trials of the model that past cuts make, and how far from the best point they are, in radii
MODEL_TRIALS, FARTHER = 5, 10.0
#: A guessed region's radius, in the rule's radii. Chosen, not measured: a rule's radius is a lower
#: estimate of the distance to a minimiser, and a region that is too wide only proves less.
GUESSED_RADII = 3.0
#: Radii are rounded up to powers of this, because the sum of cuts is bounded again whenever they
#: change: a bound is looser by a quarter at most, and 1000 times the first radius takes 31 changes.
RADIUS_GRID = 1.25
#: Points nearer to each other than this, relative to 1 + ||x||, cannot be distinguished by their
#: values: thousands of units of rounding.
RESOLVED = 1e-12
#: The most doublings of a radius that a value refutes: it is 1e19 times the guess by then, and the
#: region counts as refuted.
MOST_DOUBLINGS = 64


def region_policy(progress: Progress) -> RegionPolicy:
    """Return the policy for the region over which a run's bounds hold."""
    region = progress.certificate.assumed_region
    if region is None:
        return RegionPolicy()
    policy = GuessedRegion(region) if region.growing else AssumedRegion(region)
    policy.begin(progress)
    return policy


class RegionPolicy(Policy):
    """A region that is sure to hold a minimiser, or bounds that need none: nothing to question."""

    #: the region, if the run has guessed it
    guess: Region | None = None

    def admit(self, final: Evaluation) -> None:
        """Widen a guessed region that a value found refutes: it was only a guess."""

    def stands(self, final: Evaluation) -> bool:  # noqa: ARG002
        """Look beyond an assumed region before a point is called optimal."""
        return True


class AssumedRegion(RegionPolicy):
    """A ball that the user says holds a minimiser."""

    def __init__(self, region: Region) -> None:
        self.region = region

    def stands(self, final: Evaluation) -> bool:
        """Look beyond an assumed region before a point is called optimal.

        If the region is too small, the function falls on beyond it: a value below the lower bound,
        found at one of a few trial points, proves it.
        """
        margin = self._margin(final)
        if self.progress.certificate.bound_everywhere >= final.value - margin:
            return True
        slope = norm(final.gradient)  # unlike a square it does not vanish with tiny gradients
        if slope == 0 and self.progress.oracle.penalty is None:
            return True
        return self.region.radius > 0 and self._nothing_lower_beyond(final, slope, margin)

    def _margin(self, final: Evaluation) -> float:
        """Return the gap that is wanted at a point, or the smallest that can be proved there."""
        progress = self.progress
        if progress.is_good_enough(final):
            return progress.options.goal(final.value)
        return progress.certificate.resolution(final)

    def _nothing_lower_beyond(self, final: Evaluation, slope: float, margin: float) -> bool:
        """Evaluate a little beyond the boundary, downhill from a point on it."""
        region, refuted = self.region, self.progress.certificate.refuted
        on_boundary = math.dist(final.point, region.center) >= ON_BOUNDARY * region.radius
        if not on_boundary or region.radius * slope <= 2 * margin:
            return True
        steps = (share * region.radius / slope for share in TRIALS_BEYOND)
        trials = (self._evaluated_after(final, step) for step in steps)
        return not any(trial is not None and refuted(trial) for trial in trials)

    def _evaluated_after(self, at: Evaluation, step: float) -> Evaluation | None:
        """Evaluate after a step downhill; None where the function is not finite."""
        judge = self.progress.judge
        assert judge is not None
        trial = at.point - step * at.gradient
        if judge.penalty is not None:
            trial = judge.penalty.prox(trial, step)
        return self._evaluated(trial)

    def _evaluated(self, point: Vector) -> Evaluation | None:
        """Evaluate at the nearest feasible point; None where the function is not finite."""
        judge = self.progress.judge
        assert judge is not None
        try:
            evaluation = judge.exactly(self.region.feasible_set.project(point))
            _ = evaluation.gradient  # it may come late, and not be finite
        except NonFiniteError:
            return None
        return evaluation


class GuessedRegion(AssumedRegion):
    """A ball around the start that grows with the radius that the rule finds."""

    def __init__(self, region: Region) -> None:
        super().__init__(region)
        self.guess = region

    def begin(self, progress: Progress) -> None:
        """Take part in a run from its start on."""
        super().begin(progress)
        # x0 in the rule's coordinates
        self._start = getattr(progress.rule_state, "start", None)

    def after(self, step: Step, before: State) -> None:  # noqa: ARG002
        """Let the region grow with the rule's radius, and with the way to where it restarted."""
        state = self.progress.rule_state
        reach = GUESSED_RADII * float(state.radius)
        if self._start is not None and state.start is not self._start:
            reach += float(distance(state.start, self._start))
        if reach > self.region.radius:
            self._widen(reach)

    def _widen(self, reach: float) -> None:
        cuts = self.progress.certificate.cuts
        assert cuts is not None
        cuts.widen(RADIUS_GRID ** math.ceil(math.log(reach, RADIUS_GRID)))

    def admit(self, final: Evaluation) -> None:
        """Widen the region until a value found does not refute it."""
        refuted = self.progress.certificate.refuted
        for _ in range(MOST_DOUBLINGS):
            if not refuted(final):
                return
            self._widen(2 * self.region.radius)
            self.progress.certificate.tighten(final)  # kept cuts may prove it of this one too

    def _nothing_lower_beyond(self, final: Evaluation, slope: float, margin: float) -> bool:
        """Look for lower values beyond the region: downhill, and where the cuts suggest them."""
        if self._nothing_is_known():
            self._widen(max(1.0, norm(self.region.center)))
            return False
        return self._downhill_is_nothing(final, slope) and self._model_is_right(
            final, slope, margin
        )

    def _nothing_is_known(self) -> bool:
        """Return whether the radius is still the first one, which stands for no knowledge at all.

        At a kink, as x0 often is, no subgradient need point downhill.
        """
        state = self.progress.rule_state
        known = smallest_radius(state.start)
        return float(state.radius) <= known and self.region.radius < max(
            1.0, norm(self.region.center)
        )

    def _model_is_right(self, final: Evaluation, slope: float, margin: float) -> bool:
        """Evaluate where the model of the kept cuts is lowest, far beyond the region.

        Where it promises nothing, or what it promises is not found, the region stands.
        """
        cuts, region = self.progress.certificate.cuts, self.region
        if cuts is None or cuts.kept is None or slope == 0.0:
            return True
        kept, far = cuts.kept, FARTHER * region.radius
        center = Center(final.point, final.value, final.penalty)
        step = far / slope
        for _ in range(MODEL_TRIALS):
            lowest = cuts.lowest(center, step)
            if lowest is None:
                return True
            offset = lowest.point - final.point
            length = norm(offset)
            if lowest.promise <= margin or length == 0.0:
                return True
            share = min(1.0, far / length)
            trial = self._evaluated(final.point + share * offset)
            if trial is None:
                return True
            if self.progress.certificate.refuted(trial):
                self._widen(2 * max(region.radius, math.dist(trial.point, region.center)))
                return False
            kept.take(trial)
            step *= share if share < 1.0 else min(STEP_GROWTH, far / length)
        return True

    def _downhill_is_nothing(self, final: Evaluation, slope: float) -> bool:
        """Ask another method whether the function falls on beyond the region.

        A few steps of Barzilai and Borwein's, whose length is the inverse of the curvature just
        seen: along a flat valley they soon are as long as the valley. A value below the lower bound
        refutes the region, which is widened to hold the point.
        """
        region = self.region
        at, step = final, min(FIRST_TRIAL * region.radius / max(slope, SMALLEST), LONGEST_STEP)
        for _ in range(SECOND_OPINION_STEPS):
            trial = self._evaluated_after(at, step)
            if trial is None:
                return True
            if not (trial.point != at.point).any():
                if at.gradient.any() and not (step * at.gradient + at.point != at.point).any():
                    # The region is so small that values cannot distinguish its points.
                    self._widen(max(2 * region.radius, _resolved_distance(at)))
                    return False
                return True  # a minimiser: the prox, or the projection, leads back to it
            if self.progress.certificate.refuted(trial):
                self._widen(2 * max(region.radius, math.dist(trial.point, region.center)))
                return False
            moved, gradient_change = trial.point - at.point, trial.gradient - at.gradient
            length, curvature = float(moved @ moved), float(moved @ gradient_change)
            steepness = norm(trial.gradient)
            farthest = FARTHEST_TRIAL * max(region.radius, _resolved_distance(at))
            longest = farthest / steepness if steepness > 0 else step
            wanted = length / curvature if curvature > 0 else STEP_GROWTH * step
            at, step = trial, min(wanted, longest)
        return True


def _resolved_distance(at: Evaluation) -> float:
    """Return the distance from a point beyond which values distinguish other points."""
    return RESOLVED * (1 + math.hypot(*at.point))
