"""Newton's method with the curvature of a sample of rows, corrected by the last steps (L-BFGS)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from accelegrad.errors import LineSearchError, whole_number
from accelegrad.rules.base import Array, Evaluated, Step, StepRule, inner

# Chosen, where nothing else is said; `accelegrad bench` times the whole method.
#: A step is too long if it gains less than this share of the fall that the slope promises (Armijo's
#: rule, with the customary constant).
DESCENT = 1e-4
#: Where values differ by rounding alone, a step may leave this share of the slope at most.
FLATTER = 0.9
#: A step this short that gains nothing means that rounding hides any further fall.
SHORTEST_STEP = 1e-12
#: The least product of a move and the change of the gradient along it that can be divided by
LEAST_PRODUCT = 1e-290
#: After a step that was too long, the next trial has at most this share of its length.
NARROWING = 0.9
#: A value that is higher by at most this, relative to it, may be as low: two units of rounding.
VALUE_ROUNDING = 4e-16
#: The share of the Newton decrement that is expected to remain after a step with new curvature
EXPECTED_DECREMENT = 0.05
#: The share of its square that is expected to remain after a step without any curvature
EXPECTED_SQUARE = 0.2
#: Caution is multiplied by BOLDER after a step that is not too long, and is 0 once it is below
#: BOLD; after a step that is too long it is divided by BOLDER, and is at least WARNED.
BOLDER, BOLD, WARNED = 0.1, 3e-3, 0.03
# What has to be done before the next trial is known.
BEGIN, START_OVER, SKETCH, AIM, NOTHING = "begin", "start over", "sketch", "aim", ""


def bolder(caution: float) -> float:
    """Return the caution after a step that was not too long."""
    less = caution * BOLDER
    return less if less > BOLD else 0.0


def more_careful(caution: float) -> float:
    """Return the caution after a step that was too long."""
    return min(max(caution / BOLDER, WARNED), 1.0)


class Curvature(Protocol):
    """An approximation of the second derivatives, whose inverse can be applied."""

    @property
    def scaled(self) -> bool:
        """Whether lengths mean something, or only the proportions of coordinates do."""

    @property
    def cost(self) -> float:
        """What a new one takes, in evaluations; infinite where there is no better one."""

    @property
    def patience(self) -> float:
        """How many steps to do with this one at least, where a new one is expensive."""

    def solve(self, vector: Array) -> Array:
        """Return the inverse times a vector."""


class Curved(Protocol):
    """What the rule needs from an oracle: values and gradients of a smooth sum, and curvature."""

    @property
    def lowest(self) -> Evaluated | None:
        """What is known at the lowest point evaluated so far."""

    @property
    def changed(self) -> bool:
        """Whether the last evaluation was of another sum than the one before."""

    def __call__(self, point: Array) -> Evaluated:
        """Evaluate the sum at a point, exactly."""

    def original(self, evaluation: Evaluated) -> Evaluated:
        """Return what is known of the function itself, if the sum is one close to it."""

    def guess(self, point: Array) -> Array | None:
        """Return a point that may be much better than the start, None where there is none."""

    def between(self, point: Array, trial: Evaluated) -> float:
        """Return where the function is lowest between a point (0) and a trial beyond that (1)."""

    def curvature(self, point: Array, number: int, caution: float) -> Curvature:
        """Return the curvature at a point that was evaluated; the same for the same arguments.

        It is taken from the `number`-th sample, each larger than the one before. With caution, from
        0 to 1, it errs upwards where the curvature is smaller nearby than farther away.
        """


class SketchedNewtonState(NamedTuple):
    """The last point that was accepted, and the trial that comes next, or what leads to it."""

    iteration: int
    point: Array
    value: float
    gradient: Array
    trial: Array
    direction: Array
    step_size: float  # trial = point + step_size * direction
    slope: float  # minus the slope along the direction
    moves: Array  # the last steps, oldest first
    gradient_changes: Array  # along each of them
    sketched_at: Array  # where the curvature was taken
    sketches: int  # how often it was
    sketched_with: float  # the caution then
    caution: float  # of the next one, from 0 to 1
    used: int  # steps that were done with this curvature
    due: str  # what has to be done before the next trial is known


@dataclass(frozen=True)
class SketchedNewton(StepRule):
    r"""Newton's method with sketched curvature and quasi-Newton corrections.

    The direction is :math:`d = -B g`, where B is the inverse of the curvature C of a sample of the
    summands, taken at some point before, with the corrections of the last ten steps (L-BFGS with
    :math:`B_0 = C^{-1}`). The trial :math:`x + d` is accepted if
    :math:`f(x + d) \le f(x) + 10^{-4} \langle g, d \rangle`; else the lowest point on the way to it
    is tried next. New curvature is taken, from a larger sample, when steps gain too little with the
    old one: when more than the share :math:`0.05^{2/(1+c)}` of the squared Newton decrement
    :math:`\langle g, B g\rangle` remains after a step, c being the cost of new curvature in
    evaluations (and, where it is expensive, only after c steps with the old one). Before the first
    sample C is diagonal; where a sample costs too much it stays diagonal, and the method is L-BFGS.

    `output` and `last` are the last point that was accepted.

    Parameters
    ----------
    memory : int, default 10
        How many steps are remembered.

    References
    ----------
    D. C. Liu, J. Nocedal: On the limited memory BFGS method for large scale optimization.
    Mathematical Programming 45, 1989. R. H. Byrd, G. M. Chin, W. Neveitt, J. Nocedal: On the use of
    stochastic Hessian information in optimization methods for machine learning. SIAM Journal on
    Optimization 21, 2011.
    """

    title = "AcceleGrad-Newton"

    memory: int = 10

    def __post_init__(self) -> None:
        whole_number("memory", self.memory, least=0)

    def init(self, x0: Array) -> SketchedNewtonState:
        """Return the state before the first evaluation."""
        none = np.empty((0, x0.size))
        return SketchedNewtonState(
            0, x0, math.inf, 0 * x0, x0, 0 * x0, 0.0, 0.0, none, none, x0, 0, 1.0, 1.0, 0, NOTHING
        )

    def step(self, state: SketchedNewtonState, oracle: Curved) -> Step:  # type: ignore[override]
        """Find the next trial, evaluate it, and accept it or make the next one nearer."""
        state = self.aimed(state, oracle)
        trial = oracle(state.trial)
        state = state._replace(iteration=state.iteration + 1)
        if state.iteration == 1:
            state = self._at(state, self._lower(trial, oracle), BEGIN)
        elif oracle.changed:
            state = self._at(state, self._lower(trial, oracle), START_OVER)
        elif self._acceptable(state, trial):
            state = self._accepted(state, trial)
        else:
            state = self._shortened(state, trial, oracle)
        return Step(state, oracle.original(trial), 0.0)

    def aimed(self, state: SketchedNewtonState, oracle: Curved) -> SketchedNewtonState:
        """Return the state with the next trial.

        That may take new curvature, so it is not done before the trial is wanted: a run that ends
        does not pay for it.
        """
        if state.due == NOTHING:
            return state
        if state.due == BEGIN:
            state = self._begun(state, oracle)
        elif state.due == START_OVER:
            state = self._started_over(state, oracle)
        elif state.due == SKETCH:
            state = self._sketched(state, oracle)
        else:
            state = self._improved(self._directed(state, oracle), state.slope, oracle)
        return state._replace(due=NOTHING)

    def _lower(self, trial: Evaluated, oracle: Curved) -> Evaluated:
        """Return the first trial of a function, or what is known of a lower point from before."""
        known = oracle.lowest
        return known if known is not None and known.value < trial.value else trial

    def _at(self, state: SketchedNewtonState, trial: Evaluated, due: str) -> SketchedNewtonState:
        """Return the state with the trial accepted."""
        return state._replace(
            point=trial.point, value=trial.value, gradient=trial.gradient, due=due
        )

    def _begun(self, state: SketchedNewtonState, oracle: Curved) -> SketchedNewtonState:
        """Return the state with the oracle's guess as a trial, or else a step from the start."""
        guess = oracle.guess(state.point)
        if guess is None:
            return self._started_over(state, oracle)
        return state._replace(trial=guess, direction=guess - state.point)

    def _started_over(self, state: SketchedNewtonState, oracle: Curved) -> SketchedNewtonState:
        """Return the state for another function, of which nothing else is known yet."""
        none = state.moves[:0]
        state = state._replace(moves=none, gradient_changes=none, sketches=0, caution=1.0, used=0)
        if self._pays(EXPECTED_SQUARE, 0, self._curvature(state, oracle)):
            return self._sketched(state, oracle)
        return self._directed(state, oracle)

    def _acceptable(self, state: SketchedNewtonState, trial: Evaluated) -> bool:
        promised = DESCENT * state.step_size * state.slope
        if trial.value <= state.value - promised:
            return True
        # Where values differ by rounding alone, a flatter slope shows that the trial is better.
        near = trial.value <= state.value + VALUE_ROUNDING * abs(state.value)
        return near and abs(inner(trial.gradient, state.direction)) <= FLATTER * state.slope

    def _accepted(self, state: SketchedNewtonState, trial: Evaluated) -> SketchedNewtonState:
        if state.slope == 0.0:  # a guess
            return self._at(state, trial, SKETCH)
        caution = bolder(state.caution) if state.step_size == 1.0 else state.caution
        state = self._at(self._remembered(state, trial), trial, AIM)
        return state._replace(caution=caution, used=state.used + 1)

    def _improved(
        self, state: SketchedNewtonState, before: float, oracle: Curved
    ) -> SketchedNewtonState:
        """Return the state with new curvature, if steps gain too little with the old one."""
        curvature = self._curvature(state, oracle)
        better = self._pays(state.slope / before, state.used, curvature)
        return self._sketched(state, oracle) if better else state

    def _pays(self, remaining: float, used: int, curvature: Curvature) -> bool:
        """Return whether new curvature pays.

        `remaining` is the share of the squared decrement that remains after a step.
        """
        slow = remaining > float(EXPECTED_DECREMENT ** (2.0 / (1.0 + curvature.cost)))
        return slow and used >= curvature.patience

    def _remembered(self, state: SketchedNewtonState, trial: Evaluated) -> SketchedNewtonState:
        """Return the state with the last step among those remembered."""
        move, change = trial.point - state.point, trial.gradient - state.gradient
        if not inner(move, change) > LEAST_PRODUCT:
            return state
        moves, changes = state.moves, state.gradient_changes
        return state._replace(
            moves=np.vstack([moves, move])[-self.memory or len(moves) + 1 :],
            gradient_changes=np.vstack([changes, change])[-self.memory or len(changes) + 1 :],
        )

    def _sketched(self, state: SketchedNewtonState, oracle: Curved) -> SketchedNewtonState:
        """Return the state with the curvature at its point, and a direction from it."""
        new = state._replace(
            sketched_at=state.point,
            sketches=state.sketches + 1,
            sketched_with=state.caution,
            used=0,
        )
        if self._curvature(new, oracle).scaled:
            new = new._replace(moves=state.moves[:0], gradient_changes=state.moves[:0])
        return self._directed(new, oracle)

    def _curvature(self, state: SketchedNewtonState, oracle: Curved) -> Curvature:
        return oracle.curvature(state.sketched_at, state.sketches, state.sketched_with)

    def _directed(self, state: SketchedNewtonState, oracle: Curved) -> SketchedNewtonState:
        """Return the state with a direction from its point, and the trial at its end."""
        direction = -self._corrected(state, self._curvature(state, oracle))
        slope = -inner(state.gradient, direction)
        return state._replace(
            trial=state.point + direction, direction=direction, step_size=1.0, slope=slope
        )

    def _corrected(self, state: SketchedNewtonState, curvature: Curvature) -> Array:
        """Return B g: the two loops of L-BFGS."""
        vector, shares = state.gradient, []
        pairs = list(zip(state.moves, state.gradient_changes, strict=True))
        for move, change in reversed(pairs):
            share = inner(move, vector) / inner(move, change)
            vector = vector - share * change
            shares.append(share)
        vector = curvature.solve(vector)
        if pairs and not curvature.scaled:
            move, change = pairs[-1]
            vector = inner(move, change) / inner(change, curvature.solve(change)) * vector
        for (move, change), share in zip(pairs, reversed(shares), strict=True):
            vector = vector + (share - inner(change, vector) / inner(move, change)) * move
        return vector

    def _shortened(
        self, state: SketchedNewtonState, trial: Evaluated, oracle: Curved
    ) -> SketchedNewtonState:
        """Return the state with a trial that is nearer."""
        t = state.step_size
        if state.slope == 0.0:  # a guess
            return state._replace(due=START_OVER)
        if t <= SHORTEST_STEP:
            raise LineSearchError(
                "the value falls no further along the direction of descent: rounding has the last "
                "word, or the gradient is wrong."
            )
        t = min(t * oracle.between(state.point, trial), NARROWING * t)
        trial_point = state.point + t * state.direction
        caution = more_careful(state.caution)
        return state._replace(trial=trial_point, step_size=t, caution=caution)

    def output(self, state: SketchedNewtonState) -> Array:
        """Return the last point that was accepted."""
        return state.point
