"""Accelerated variance-reduced gradients for finite sums, with nothing to tune: "accelegrad-vr".

A step of the loop is an epoch: the exact gradient at a snapshot, and then as many steps as there
are batches of rows. `FiniteSum` says what the rule needs from an oracle.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from accelegrad.rules.arrays import larger
from accelegrad.rules.base import Array, Evaluated, Step, StepRule, inner
from accelegrad.rules.distance import check_radius, distance
from accelegrad.rules.schedules import adaptive_step

SHORTER = 0.7  # times the step of the theory (measured: 1 costs up to twice as much, 1.5 diverges)
KEPT = 0.5  # the share of an epoch's steps, its last ones, whose points are averaged; chosen
CAUTION = 0.5  # steps are multiplied by this, for the rest of the run, when a value rose; chosen
#: A stage ends when m A mu exceeds this many times sqrt(S) / D; chosen.
EXHAUSTED = 2.0


class ExactSum(Protocol):
    """What rules for sums over rows need from an oracle: values and gradients, and these."""

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


class FiniteSum(ExactSum, Protocol):
    """What the rule needs besides."""

    @property
    def n_batches(self) -> int:
        """m, the number of batches in an epoch."""

    @property
    def smoothness(self) -> float:
        """The largest curvature of any of the summands."""

    @property
    def strong_convexity(self) -> float:
        """The curvature that the sum has everywhere at least, 0 if it need not have any."""

    def epoch(self, rule: VarianceReducedAcceleGrad, epoch: Epoch, anchor: Evaluated) -> Epoch:
        """Do `n_batches` steps: see `VarianceReducedAcceleGrad.batch_step`."""


class Epoch(NamedTuple):
    """An epoch that is under way."""

    anchor: Array  # s, the snapshot
    full_gradient: Array  # the sum's gradient there
    start: Array  # c, where the stage began
    mirror_point: Array  # v
    gradient: Array  # the estimate of the step before
    radius: Any  # D
    squares: Any  # S
    weight: Any  # a
    coupling: Any  # tau = a / (A + a)
    length: Any  # what steps are multiplied with
    step_size: Any
    done: int  # steps
    kept_from: int  # the number of the first step whose point is averaged
    point_sum: Array  # of the averaged points


class VarianceReducedState(NamedTuple):
    """What is kept from epoch to epoch."""

    iteration: int
    snapshot: Array  # the point to be evaluated next
    value: float  # the sum's at the snapshot before, infinite at the beginning of a stage
    start: Array  # c
    mirror_point: Array  # v
    radius: Any  # D
    squares: Any  # S
    total_weight: Any  # A, 0 at the beginning of a stage
    length: Any  # what steps are multiplied with
    step_size: Any  # the last one


def epoch_weight(total: float) -> float:
    """Return the root a > 0 of a^2 / (A + a) + a^2 / A = 1 for A > 0."""
    # a^3 + 2 A a^2 - A a - A^2 is convex and positive at sqrt(A): Newton's steps fall to the root.
    a, last = math.sqrt(total), math.inf
    while a < last:
        cubic = ((a + 2.0 * total) * a - total) * a - total * total
        slope = (3.0 * a + 4.0 * total) * a - total
        a, last = a - cubic / slope, a
    return last


@dataclass(frozen=True)
class VarianceReducedAcceleGrad(StepRule):
    r"""Accelerated steps with variance-reduced gradients of a finite sum; no parameter to tune.

    The sum is :math:`P = \frac1m \sum_B P_B` over m batches. An epoch takes the exact gradient at
    the snapshot s and estimates those of its steps by

    .. math:: g = \nabla P_B(x) - \nabla P_B(s) + \nabla P(s)

    with each batch in turn, in random order. With :math:`a` from
    :math:`a^2 / (A + a) + a^2 / A = 1` and :math:`\tau = a / (A + a)` a step is

    .. math::
        x &= s + \tau (v - s), \qquad S \leftarrow S + a^2 \|g - g_{\text{before}}\|^2 \\
        v &\leftarrow v - 0.7\, a\, D\, S^{-1/2} g, \qquad D \leftarrow \max(D, \|v - c\|),

    where the first step of an epoch leaves S alone. At the end of the epoch the mean of the x of
    its last half is the next snapshot, and A grows by a. A stage begins at a snapshot with
    :math:`c = v = s`, :math:`A = 1/m`, :math:`D = \|\nabla P(s)\| / L` with the curvature L
    of the steepest summand, and :math:`S = a^2 \|\nabla P(s)\|^2`. The next stage begins

    - at the best snapshot, when the value rose; then all further steps are half as long;
    - at the last one, when :math:`m A \mu \ge 2 \sqrt{S} / D`, :math:`\mu` being the strong
      convexity that is known of the sum: by then acceleration has done what it can.

    `output` and `last` are the snapshot that comes next, whose value is not known yet.

    Parameters
    ----------
    initial_radius : float, optional
        The D that stages begin with, in place of the one above.

    References
    ----------
    A. Rodomanov, X. Jiang, S. Stich: Universality of AdaGrad stepsizes for stochastic optimization:
    inexact oracle, acceleration and variance reduction. NeurIPS 2024 (UniFastSvrg, which needs a
    diameter D). The distance travelled in its place: M. Ivgi, O. Hinder, Y. Carmon (DoG), ICML
    2023. The combination, the stages and the factor 0.7 are new in accelegrad and have no proof;
    the certificate proves each result.
    """

    initial_radius: float | None = None

    title = "AcceleGrad-VR"
    can = StepRule.can | {"radius"}

    def __post_init__(self) -> None:
        check_radius("initial_radius", self.initial_radius)

    def init(self, x0: Array) -> VarianceReducedState:
        """Return the state before the first epoch."""
        return VarianceReducedState(0, x0, math.inf, x0, x0, 0.0, 0.0, 0.0, SHORTER, 0.0)

    def step(self, state: VarianceReducedState, oracle: FiniteSum) -> Step:  # type: ignore[override]
        """Evaluate the snapshot and do an epoch from it, or from the best one if the value rose."""
        evaluation = anchor = oracle(state.snapshot)
        if evaluation.value > state.value and not oracle.changed:
            assert oracle.lowest is not None
            anchor = oracle.lowest
            state = state._replace(total_weight=0.0, length=CAUTION * state.length)
        elif self._exhausted(state, oracle):
            state = state._replace(total_weight=0.0)
        if state.total_weight == 0.0:
            state = self._stage(state, anchor, oracle)
        done = oracle.epoch(self, self.begun(state, anchor, oracle.n_batches), anchor)
        return Step(self._ended(state, done, anchor), oracle.original(evaluation), 0.0)

    def _exhausted(self, state: VarianceReducedState, oracle: FiniteSum) -> bool:
        """Return whether strong convexity makes a new stage better than going on."""
        gained = oracle.n_batches * state.total_weight * oracle.strong_convexity
        return bool(gained * state.radius >= EXHAUSTED * state.squares**0.5 > 0.0)

    def _stage(
        self, state: VarianceReducedState, anchor: Evaluated, oracle: FiniteSum
    ) -> VarianceReducedState:
        """Return the state at the beginning of a stage."""
        A, s = 1.0 / oracle.n_batches, anchor.point
        square = inner(anchor.gradient, anchor.gradient)
        radius = self.initial_radius
        if radius is None:
            # Without curvature the function is constant, and so is its gradient zero.
            radius = square**0.5 / oracle.smoothness if oracle.smoothness > 0 else 0.0
        return state._replace(
            start=s,
            mirror_point=s,
            radius=radius,
            squares=epoch_weight(A) ** 2 * square,
            total_weight=A,
        )

    def begun(self, state: VarianceReducedState, anchor: Evaluated, n_batches: int) -> Epoch:
        """Return the beginning of an epoch."""
        A = state.total_weight
        a = epoch_weight(A)
        return Epoch(
            anchor=anchor.point,
            full_gradient=anchor.gradient,
            start=state.start,
            mirror_point=state.mirror_point,
            gradient=anchor.gradient,
            radius=state.radius,
            squares=state.squares,
            weight=a,
            coupling=a / (A + a),
            length=state.length,
            step_size=0.0,
            done=0,
            kept_from=int((1.0 - KEPT) * n_batches),
            point_sum=0 * anchor.point,
        )

    def query(self, epoch: Epoch) -> Array:
        """Return x, where the next gradient is wanted."""
        return epoch.anchor + epoch.coupling * (epoch.mirror_point - epoch.anchor)

    def batch_step(self, epoch: Epoch, gradient: Array) -> Epoch:
        """Return the epoch after the estimate g at x."""
        a, squares = epoch.weight, epoch.squares
        if epoch.done > 0:
            change = gradient - epoch.gradient
            squares = squares + a * a * inner(change, change)
        step = adaptive_step(epoch.length * a * epoch.radius, squares)
        v = epoch.mirror_point - step * gradient
        moved = epoch._replace(
            mirror_point=v,
            gradient=gradient,
            radius=larger(epoch.radius, distance(v, epoch.start)),
            squares=squares,
            step_size=step,
            done=epoch.done + 1,
        )
        if epoch.done < epoch.kept_from:
            return moved
        return moved._replace(point_sum=epoch.point_sum + self.query(moved))

    def _ended(
        self, state: VarianceReducedState, epoch: Epoch, anchor: Evaluated
    ) -> VarianceReducedState:
        """Return the state after an epoch; if it is not finite, the anchor with shorter steps."""
        ended = state._replace(
            iteration=state.iteration + 1,
            snapshot=epoch.point_sum / (epoch.done - epoch.kept_from),
            value=anchor.value,
            mirror_point=epoch.mirror_point,
            radius=epoch.radius,
            squares=epoch.squares,
            total_weight=state.total_weight + epoch.weight,
            step_size=epoch.step_size,
        )
        sizes = inner(ended.snapshot, ended.snapshot) + ended.squares + ended.radius
        if math.isfinite(sizes):
            return ended
        return ended._replace(
            snapshot=anchor.point,
            value=math.inf,
            total_weight=0.0,
            length=CAUTION * state.length,
        )

    def output(self, state: VarianceReducedState) -> Array:
        """Return the snapshot that comes next."""
        return state.snapshot
