"""Stochastic dual coordinate ascent, for linear models with an l2 term."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from accelegrad.errors import Vector
from accelegrad.linalg import UNIT, root_between
from accelegrad.models.linear_model import LinearModel
from accelegrad.models.losses import Loss
from accelegrad.models.matrix import RowBlock
from accelegrad.models.scaling import near_start
from accelegrad.proofs.fenchel import level
from accelegrad.proofs.model_dual import LateBound
from accelegrad.rules.base import Array, Step
from accelegrad.run.oracle import QUIET, Evaluation
from accelegrad.solvers.curvature import Goal
from accelegrad.solvers.row_oracle import RowOracle, RowRule, no_goal, rows_in_memory
from accelegrad.solvers.work import EPOCH, STEP, visit_seconds, visits_are_compiled

#: rho, in units of l2 over the median of the rows' squared norms (seven text data sets, hinge loss:
#: 10 to 40 agree within a tenth, 3 and 300 take up to four times as many epochs)
INTERCEPT_L2 = 20.0
#: Most epochs that a row rests: 15 take a twelfth more visits, 255 as many (same data)
LONGEST_REST = 63


class Ascent(NamedTuple):
    """Dual variables, the corresponding point, and which rows rest."""

    slopes: Array  # theta
    point: Array  # w, with the intercept last where there is one
    rests: Array  # shape (2, n): epochs of rest left, and length of the last rest


class Gap(NamedTuple):
    """The estimated gap at an epoch."""

    epoch: int
    size: float


class DualAscentState(NamedTuple):
    """A point and its dual variables."""

    iteration: int  # epochs
    point: Array  # x0 before the first step
    slopes: Array | None  # theta, None before the first step
    rests: Array | None  # as in `Ascent`
    gap: Gap  # at the last evaluation
    due: int  # how many epochs until the next evaluation
    step_size: float  # there is none: 0


@dataclass(frozen=True)
class DualAscent(RowRule):
    r"""Stochastic dual coordinate ascent (SDCA); a step is an epoch; no parameter to tune.

    The dual of :math:`\sum_i p_i\, l_i(a_i^\top w) + \frac{\lambda}{2} \|w\|^2` is

    .. math:: D(\theta) = -\sum_i p_i\, l_i^*(\theta_i) - \frac{\lambda}{2} \|w(\theta)\|^2, \qquad
              w(\theta) = -\frac1\lambda \sum_i p_i \theta_i a_i.

    An epoch goes through the rows in random order and maximises over each :math:`\theta_i` with all
    others fixed:

    .. math:: \theta_i \leftarrow l_{i,q}'(a_i^\top w + q\,\theta_i), \qquad
              q = p_i \|a_i\|^2 / \lambda,

    where :math:`l_{i,q}` is the Moreau envelope of the loss with parameter q, and w follows. The
    loss need not be smooth. A row whose slope did not change, as at an end of the conjugate's
    domain, is skipped for one epoch, and for about twice as many each further time.

    An intercept b without an l2 term is the multiplier of the constraint :math:`\sum_i p_i \theta_i
    = 0`. By the method of multipliers the objective gets the term :math:`\frac\rho2 (b - b_k)^2`,
    which makes b a weight like the others,

    .. math:: b = b_k - \frac1\rho \sum_i p_i \theta_i, \qquad
              q = p_i \bigl(\|a_i\|^2 / \lambda + 1 / \rho\bigr),

    and after each epoch :math:`b_{k+1} = b`. The objective is evaluated only when the gap is
    expected to be small enough. `output` and `last` are the last point.

    References
    ----------
    C.-J. Hsieh, K.-W. Chang, C.-J. Lin, S. S. Keerthi, S. Sundararajan: A dual coordinate descent
    method for large-scale linear SVM. ICML 2008. S. Shalev-Shwartz, T. Zhang: Stochastic dual
    coordinate ascent methods for regularized loss minimization. JMLR 14, 2013. M. J. D. Powell: A
    method for nonlinear constraints in minimization problems. In: Optimization, 1969.
    """

    title = "dual ascent"

    def oracle(
        self, model: LinearModel, rng: np.random.Generator, goal: Goal, *_: Any
    ) -> DualOracle:
        """Return the model's objective, with ascent on its dual."""
        return DualOracle(model, rng, goal)

    def init(self, x0: Array) -> DualAscentState:
        """Return the state before the first epoch."""
        return DualAscentState(0, x0, None, None, Gap(0, math.inf), 1, 0.0)

    def stride(self, state: DualAscentState) -> int:
        """Return the number of epochs until the next evaluation."""
        return state.due

    def step(self, state: DualAscentState, oracle: DualOracle) -> Step:  # type: ignore[override]
        """Do one epoch; the evaluation carries the bound that proves the accuracy."""
        return self.advance(state, oracle, 1)

    def advance(self, state: DualAscentState, oracle: DualOracle, most: int) -> Step:  # type: ignore[override]
        """Do epochs until the next evaluation is due."""
        if state.slopes is None:
            ascent = oracle.feasible(state.point)
        else:
            ascent = Ascent(state.slopes, state.point, state.rests)
        epochs = min(state.due, most)
        ascent = oracle.ascend(ascent, epochs)
        at: Any = oracle(ascent.point)
        iteration = state.iteration + epochs
        gap, due = state.gap, state.due - epochs
        size, wanted = oracle.gap(ascent.slopes, at)
        if due == 0:  # otherwise as if the gap had not been computed
            gap = Gap(iteration, size)
            due = epochs_to(wanted, state.gap, gap)
        slopes, point, rests = ascent
        moved = DualAscentState(iteration, point, slopes, rests, gap, due, 0.0)
        evaluation = oracle.minorant(slopes, at, at_once=size <= wanted)
        return Step(moved, evaluation, 0.0, epochs)


def epochs_to(wanted: float, before: Gap, now: Gap) -> int:
    """Return how many epochs the gap takes at its rate of fall, at most as many as so far."""
    expected = math.inf
    if 0.0 < wanted < now.size < before.size < math.inf:
        fall = math.log(before.size / now.size) / (now.epoch - before.epoch)
        expected = math.log(now.size / wanted) / fall
    # An evaluation with its bound costs about as much as an epoch of active rows.
    return math.ceil(max(min(expected, now.epoch), 1.0))


class DualOracle(RowOracle):
    """A model's objective, and ascent on its dual; `njev` counts an epoch as one gradient."""

    model: LinearModel

    def __init__(self, model: LinearModel, rng: np.random.Generator, goal: Goal = no_goal) -> None:
        super().__init__(model, rng, goal)
        self.model = rows_in_memory(model)
        if model.l2 == 0.0:
            raise ValueError(
                "the dual can be climbed only with an l2 term: model must have an l2 term, but its "
                "l2 is 0; give l2 > 0."
            )
        self._squares = self.model.row_squares()
        self._visit = visit_seconds(self.model)
        self._pull = 0.0  # 1 / rho; 0 without an intercept
        if model.fit_intercept:
            positive = self._squares[self._squares > 0.0]
            typical = float(np.median(positive)) if positive.size else 1.0
            self._pull = typical / (INTERCEPT_L2 * model.l2)

    @property
    def work(self) -> float:
        """The work so far: visits of rows, and the evaluations in between."""
        visits = self.rows - self.nfev * self.model.n_samples
        evaluations = (self.costs.evaluation + STEP) * self.nfev
        return visits * self._visit + evaluations + self.more_work

    def feasible(self, x0: Vector) -> Ascent:
        """Return the slopes at x0, or zeros if those are better, with the corresponding point."""
        model = self.model
        start = near_start(model, x0)
        slopes, point = np.zeros(model.n_samples), np.zeros(model.n_parameters)
        if start.any():
            at = model.at(start)
            self._count_value()
            if model.dual_value_at(at.derivatives) > 0.0:
                slopes = at.derivatives.copy()
                point = model.combination(slopes) / -model.l2
        if model.fit_intercept:
            point[-1] = start[-1]
        return Ascent(slopes, point, np.zeros((2, model.n_samples), dtype=np.uint8))

    def ascend(self, ascent: Ascent, epochs: int) -> Ascent:
        """Return slopes and point after some epochs."""
        theta, w, rests = (part.copy() for part in ascent)
        epoch = self._compiled_epoch() if visits_are_compiled(self.model) else self._plain_epoch
        self.njev += epochs
        self.more_work += EPOCH * epochs
        with np.errstate(**QUIET):
            for _ in range(epochs):
                # One number per row: the place to which it moves in the random order.
                draws = self.rng.integers(1 << 32, size=self.model.n_samples, dtype=np.uint32)
                self.rows += epoch(theta, w, rests, draws)
                if self._pull > 0.0:  # b_k moves on to b
                    w[-1] -= self._pull * float(self.model.shares @ theta)
        return Ascent(theta, w, rests)

    def _plain_epoch(self, theta: Vector, w: Vector, rests: Any, draws: Any) -> int:
        """Do one epoch in place; return how many rows were read."""
        order = np.flatnonzero(rests[0] == 0)
        for last in range(order.size - 1, 0, -1):  # by Fisher and Yates
            place = int(draws[last]) * (last + 1) >> 32
            order[[last, place]] = order[[place, last]]
        np.subtract(rests[0], 1, out=rests[0], where=rests[0] > 0)
        model, pull = self.model, self._pull
        weights = w[: model.n_features]
        for i in order:
            block, row = RowBlock(model.X, np.array([i])), slice(i, i + 1)
            share = float(model.shares[i])
            q = share * (float(self._squares[i]) / model.l2 + pull)
            margin = block.margins(weights) + (w[-1] if pull > 0.0 else 0.0)
            best = proximal_slopes(model.loss, margin + q * theta[row], q, model.y[row])
            fall = share * (theta[row] - best)
            theta[row] = best
            longer = min(2 * int(rests[1, i]) + 1, LONGEST_REST)
            rests[:, i] = longer if fall[0] == 0.0 else 0
            block.add_combination(fall / model.l2, weights)
            if pull > 0.0:
                w[-1] += pull * fall[0]
        return int(order.size)

    def _compiled_epoch(self) -> Callable[[Vector, Vector, Any, Any], int]:
        from accelegrad.kernels import dual_ascent, read_only
        from accelegrad.kernels.loss_shape import for_kernels

        data = self.model.kernel_data()
        given = dual_ascent.DualRows(
            *(data.y, data.shares, read_only(self._squares), for_kernels(data.loss)),
            *(self.model.l2, self._pull, LONGEST_REST),
        )
        is_dense = len(data.matrix) == 1
        matrix = (*data.matrix, None, None, None) if is_dense else (None, *data.matrix)
        order = np.empty(self.model.n_samples, dtype=np.int64)

        def epoch(theta: Vector, w: Vector, rests: Any, draws: Any) -> int:
            seen = dual_ascent.ascent(*matrix, given, theta, w, rests, read_only(draws), order)
            return int(seen)

        return epoch

    def gap(self, slopes: Vector, at: Evaluation) -> tuple[float, float]:
        """Return an estimate of the gap, without a product with the data, and the wanted gap."""
        model = self.model
        weights = at.point[: model.n_features]
        height, _ = level(model.loss, model.shares, slopes, model.y)
        # Up to rounding, the slopes combine the rows to -l2 w; an intercept nearly balances them.
        size = at.value - (height - 0.5 * model.l2 * float(weights @ weights))
        return size, self.goal(at.value)

    def minorant(self, slopes: Vector, at: Evaluation, *, at_once: bool) -> Evaluation:
        """Return the evaluation with a bound; its product with X is postponed unless `at_once`."""
        balanced = self.model.dual.balanced(slopes)
        if at_once:
            at.dual_value = self.model.dual.bound(balanced)
        else:
            at.late_bound = LateBound(self.model, slopes=balanced)
        return at


def proximal_slopes(loss: Loss, z: Vector, q: float, y: Vector) -> Vector:
    """Return the slopes theta = l'(z - q theta): those at z of the loss's Moreau envelope."""
    if loss.has_logarithms:
        pairs = zip(z, y, strict=True)
        return np.array([_logistic_slope(loss, float(one), q, float(of)) for one, of in pairs])
    return loss.envelope(q).derivative(z, y).astype(np.float64, copy=False)


def _logistic_slope(loss: Loss, z: float, q: float, y: float) -> float:
    def slope(margin: float) -> float:
        return float(loss.derivative(margin, y))

    def rest(margin: float) -> float:
        return margin + q * slope(margin) - z

    # The margin m = z - q theta is between these two.
    other = z - q * slope(z)
    if rest(other) * rest(z) >= 0.0:  # the slope is constant in between, up to rounding
        return slope(other)
    ends = min(z, other), max(z, other)
    return slope(root_between(rest, *ends, xtol=1e-300, rtol=4 * UNIT, maxiter=500, disp=False))
