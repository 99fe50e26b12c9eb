"""Newton's method with the curvature of a sample of rows, corrected by the last steps (L-BFGS)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from accelegrad.errors import LineSearchError, Vector, whole_number
from accelegrad.linalg import UNIT
from accelegrad.models.linear_model import LinearModel, ModelPoint
from accelegrad.proofs.model_dual import LateBound
from accelegrad.rules.base import Array, Step, inner
from accelegrad.run.oracle import QUIET, Evaluation
from accelegrad.solvers.curvature import (
    COPIED_ENTRIES,
    NO_FALL,
    PROMISING,
    SHORTEST_STEP,
    Diagonal,
    Factored,
    Goal,
    next_caution,
    second_derivative_matrix,
)
from accelegrad.solvers.quadratic import DESCENT
from accelegrad.solvers.row_oracle import (
    RowOracle,
    RowRule,
    SmoothedOracle,
    SmoothOracle,
    no_goal,
    rows_in_memory,
    smoothing_gap,
)

#: The share of the Newton decrement expected to remain after a step with new curvature (half or
#: twice as much: 1 % of the time)
EXPECTED_DECREMENT = 0.05
#: A run starts near the minimum over a sample: at most this share of the rows, and so many per
#: parameter (without it tall data take 1.4 times as long).
START_SHARE, START_PER_PARAMETER = 0.1, 150
#: The least rows per parameter and in all of that sample; otherwise none is taken: small data are
#: read as quickly, and steps then depend only on the rows with weight. Chosen.
FEWEST_PER_PARAMETER, FEWEST_SAMPLED = 5, 100
#: Most steps on that sample, until the value's error is this share of the sampling error; chosen.
START_STEPS, START_PRECISION = 20, 0.3

#: What the rule works on: a smooth sum, or a smooth one close to a sum with kinks.
Sum: TypeAlias = "CurvedOracle | SmoothedCurvedOracle"


class SketchedNewtonState(NamedTuple):
    """The last accepted point, and the next trial or what leads to it."""

    iteration: int
    point: Array
    value: float
    gradient: Array
    trial: Array
    direction: Array
    step_size: float  # trial = point + step_size * direction
    slope: float  # minus the slope along the direction
    moves: Array
    gradient_changes: Array
    sketched_at: Array  # where the curvature was taken
    sketches: int  # how often
    sketched_with: float  # the caution then
    caution: float  # of the next one, from 0 to 1
    used: int  # steps done with this curvature
    due: str  # what leads to the next trial: "begin", "start over" or "aim"; "" if it is known


@dataclass(frozen=True)
class SketchedNewton(RowRule):
    r"""Newton's method with sketched curvature and quasi-Newton corrections.

    The direction is :math:`d = -B g`, where B is the inverse of the curvature C of a sample of the
    summands, taken at an earlier point, corrected by the last `memory` steps (L-BFGS with
    :math:`B_0 = C^{-1}`). The trial :math:`x + d` is accepted if :math:`f(x + d) \le f(x) + 10^{-4}
    \langle g, d \rangle`; otherwise the step is halved until that holds, without a pass over the
    rows. New curvature, from a larger sample, is taken when more than the share
    :math:`0.05^{2/(1+c)}` of the squared Newton decrement :math:`\langle g, B g\rangle` remains
    after a step, c being its cost in evaluations (and, if it is expensive, only after c steps with
    the old one). Before the first sample C is diagonal; if a sample costs too much it stays
    diagonal, and the method is L-BFGS. `output` and `last` are the last accepted point.

    Parameters
    ----------
    memory : int, default 10
        Number of steps that are remembered.

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

    def oracle(
        self, model: LinearModel, rng: np.random.Generator, goal: Goal, *_: Any
    ) -> CurvedOracle | SmoothedCurvedOracle:
        """Return the sum with second derivatives, smoothed if it has kinks."""
        smooth = math.isfinite(model.loss.curvature)
        return (CurvedOracle if smooth else SmoothedCurvedOracle)(model, rng, goal)

    def init(self, x0: Array) -> SketchedNewtonState:
        """Return the state before the first evaluation."""
        none = np.empty((0, x0.size))
        return SketchedNewtonState(
            0, x0, math.inf, 0 * x0, x0, 0 * x0, 0.0, 0.0, none, none, x0, 0, 1.0, 1.0, 0, ""
        )

    def step(self, state: SketchedNewtonState, oracle: Sum) -> Step:  # type: ignore[override]
        """Find the next trial, evaluate it, and accept it or shorten the step."""
        state = self.aimed(state, oracle)
        trial, is_guess = oracle(state.trial), state.slope == 0.0
        state = state._replace(iteration=state.iteration + 1)
        reached, due = trial, "start over"
        if state.iteration == 1 or oracle.changed:
            reached = oracle.sum.best or trial
            due = "begin" if state.iteration == 1 else due
        elif not self._acceptable(state, trial):
            shorter = state._replace(due=due) if is_guess else self._shortened(state, trial, oracle)
            return Step(shorter, oracle.original(trial), 0.0)
        elif not is_guess:
            state, due = self._corrected(state, trial), "aim"
        point, value, gradient = reached.point, reached.value, reached.gradient
        state = state._replace(point=point, value=value, gradient=gradient, due=due)
        return Step(state, oracle.original(trial), 0.0)

    def aimed(self, state: SketchedNewtonState, oracle: Sum) -> SketchedNewtonState:
        """Return the state with the next trial, which may take new curvature."""
        due, before = state.due, state.slope
        if due == "":
            return state
        guess = oracle.sum.guess(state.point) if due == "begin" else None
        if guess is not None:
            return state._replace(trial=guess, direction=guess - state.point, due="")
        if due != "aim":
            none = state.moves[:0]
            state = state._replace(
                moves=none, gradient_changes=none, sketches=0, caution=1.0, used=0
            )
        at, number, caution = state.sketched_at, state.sketches, state.sketched_with
        curvature = oracle.sum.curvature(at, number, caution)
        if due == "aim" or curvature.patience > 0.0:
            directed = self._directed(state, curvature)
            expected = float(EXPECTED_DECREMENT ** (2.0 / (1.0 + curvature.cost)))
            is_slow = directed.slope > expected * before and state.used >= curvature.patience
            if due != "aim" or not is_slow:
                return directed
        at, number, caution = state.point, number + 1, state.caution
        curvature = oracle.sum.curvature(at, number, caution)
        state = state._replace(sketched_at=at, sketches=number, sketched_with=caution, used=0)
        if curvature.scaled:
            state = state._replace(moves=state.moves[:0], gradient_changes=state.moves[:0])
        return self._directed(state, curvature)

    def _acceptable(self, state: SketchedNewtonState, trial: Evaluation) -> bool:
        if trial.value <= state.value - DESCENT * state.step_size * state.slope:
            return True
        # If values differ only by rounding, a flatter slope shows that the trial is better.
        near = trial.value <= state.value + 2.0 * UNIT * abs(state.value)
        return near and 2.0 * abs(inner(trial.gradient, state.direction)) <= state.slope

    def _corrected(self, state: SketchedNewtonState, trial: Evaluation) -> SketchedNewtonState:
        """Return the state with what the step to the trial says about the curvature."""
        caution = state.caution if state.step_size < 1.0 else next_caution(state.caution, 1.0)
        moves, changes = state.moves, state.gradient_changes
        move, change = trial.point - state.point, trial.gradient - state.gradient
        if inner(move, change) > np.finfo(np.float64).tiny:  # it can be divided by
            moves = np.vstack([moves, move])[-self.memory or len(moves) + 1 :]
            changes = np.vstack([changes, change])[-self.memory or len(changes) + 1 :]
        return state._replace(
            moves=moves, gradient_changes=changes, caution=caution, used=state.used + 1
        )

    def _directed(
        self, state: SketchedNewtonState, curvature: Factored | Diagonal
    ) -> SketchedNewtonState:
        """Return the state with the trial x - B g, by the two loops of L-BFGS."""
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
        return state._replace(
            trial=state.point - vector,
            direction=-vector,
            step_size=1.0,
            slope=inner(state.gradient, vector),
            due="",
        )

    def _shortened(
        self, state: SketchedNewtonState, trial: Evaluation, oracle: Sum
    ) -> SketchedNewtonState:
        t = state.step_size
        share = oracle.sum.shorter(state.point, trial.point, state.value, t * state.slope)
        if share * t <= SHORTEST_STEP:
            raise LineSearchError(NO_FALL)
        t *= share
        trial_point = state.point + t * state.direction
        caution = next_caution(state.caution, 0.0)
        return state._replace(trial=trial_point, step_size=t, caution=caution)


class CurvedOracle(SmoothOracle):
    """A smooth sum with curvature from samples of rows, or per coordinate if they cost too much."""

    saved = (*SmoothOracle.saved, "seed", "made")

    def __init__(self, model: LinearModel, rng: np.random.Generator, goal: Goal = no_goal) -> None:
        super().__init__(model, rng, goal)
        if not math.isfinite(model.loss.curvature):
            raise ValueError(
                f"model must have a smooth loss, but it has {model.loss!r}; smoothed(mu) makes a "
                "smooth model of it."
            )
        self.seed = int(rng.integers(2**63))
        self._made: Factored | None = None
        #: of this curvature the arguments of `curvature`
        self.made: dict[str, Any] | None = None
        _, *price = self.costs.sample(1)
        self._coordinates = Diagonal(model, *price)

    def original(self, evaluation: Evaluation) -> Evaluation:
        """Return the evaluation; a costly bound that would miss the goal is postponed."""
        model, goal = self.model, self.goal(evaluation.value)
        if model.fit_intercept and model.l2 > 0.0:
            waits = self.bound_can_wait(evaluation, goal)
            if not waits:
                # At a good intercept, the slopes prove this gap.
                gradient = evaluation.gradient[: model.n_features]
                waits = float(gradient @ gradient) > 2.0 * model.l2 * PROMISING * goal > 0.0
            if waits:
                at = self._known(evaluation)
                evaluation.late_bound = LateBound(model, at.w, known=at)
        return evaluation

    def bound_can_wait(self, evaluation: Evaluation, goal: float, part: float = 0.0) -> bool:
        """Return whether a bound would miss the goal; `part` is due to smoothing."""
        if not goal > 0.0:
            return False
        if self._curvature_made is None:
            return not evaluation.point.any()  # a nonzero start may be the minimum
        return part + self.remaining(evaluation) > goal

    def remaining(self, evaluation: Evaluation) -> float:
        """Return half of Newton's squared decrement, an estimate of the gap; infinite at first."""
        curvature = self._curvature_made
        if curvature is None:
            return math.inf
        return 0.5 * float(evaluation.gradient @ curvature.solve(evaluation.gradient))

    def guess(self, point: Vector) -> Vector | None:
        """Return roughly the minimum over a sample of the rows; None if there are too few."""
        model, costs = self.model, self.costs
        if not costs.least or costs.constant:
            return None
        most = COPIED_ENTRIES * model.n_samples / max(1, model.storage.entries)
        enough = START_PER_PARAMETER * model.n_parameters
        size = int(min(START_SHARE * model.n_samples, most, enough))
        if size < max(FEWEST_PER_PARAMETER * model.n_parameters, FEWEST_SAMPLED):
            return None
        rng = np.random.default_rng([self.seed, 0])
        # A weak l2 term keeps its weight relative to a row, up to one row's: few rows overfit.
        weight = min(model.l2 * model.n_samples, 1.0) / size
        rows = rng.integers(model.n_samples, size=size)
        sample = model.of_rows(rows, max(model.l2, weight))
        oracle, rule = CurvedOracle(sample, rng), SketchedNewton()
        state = rule.init(point)
        unknown = sample.n_parameters / size  # relative error of the value, about
        for _ in range(START_STEPS):
            try:
                state = rule.aimed(rule.step(state, oracle).state, oracle)
            except LineSearchError:  # the minimum up to rounding, perhaps a value of 0
                return np.asarray(state.point)
            if 0.0 < state.slope <= START_PRECISION * unknown * state.value:
                break
        found: Vector = state.trial
        return found

    def curvature(self, point: Vector, number: int, caution: float) -> Factored | Diagonal:
        """Return the curvature at a point from the `number`-th sample; 0: one per coordinate."""
        known = self.made
        if self._made and known and (known["number"], known["caution"]) == (number, caution):
            return self._made
        size = 0 if number == 0 else self.costs.sample(number).size
        if size == 0:
            return self._coordinates
        model = self.model
        with np.errstate(**QUIET):
            at = self._known(self._evaluation(point))
            rows = model.sampled(size, [self.seed, number], at, caution)
            matrix = second_derivative_matrix(model, rows)
        self.more_work += self.costs.evaluation * self.costs.sample(number, rows.n_curved).cost
        _, *price = self.costs.sample(number + 1, rows.n_curved)
        self._made = Factored(matrix, *price)
        self.made = {"point": point, "number": number, "caution": caution}
        return self._made

    @property
    def _curvature_made(self) -> Factored | None:
        if self._made is None and self.made is not None:  # from a checkpoint
            self.curvature(**self.made)
        return self._made


class SmoothedCurvedOracle(SmoothedOracle[CurvedOracle]):
    """A sum over rows with kinks and a dual bound, and a smooth sum close below it."""

    # Setting mu makes the sum, so it comes after mu.
    saved = (*RowOracle.saved, "mu", "_next_mu", "smooth")

    def __init__(self, model: LinearModel, rng: np.random.Generator, goal: Goal = no_goal) -> None:
        super().__init__(model, rng, goal)
        if not model.has_dual_bound:
            raise ValueError(
                f"the {model.loss.name} loss is smoothed as far as the dual gap allows; that needs "
                "a LinearModel with l2 > 0, or few columns and more rows: the model has l2 = 0 and "
                f"{model.n_samples} rows of {model.n_features} columns."
            )
        self._latest: Evaluation | None = None

    def _smoothed(self, mu: float) -> CurvedOracle:
        return CurvedOracle(self.model.smoothed(mu), self.rng)

    def __call__(self, point: Vector) -> Evaluation:
        """Evaluate the smooth sum and the function itself, and choose the next mu."""
        self.changed = self._smooth_as_due(point)
        evaluation = self.sum(point)
        known = self._latest = self._itself_at(evaluation)
        best = self.best
        if self.changed and best is not None and best is not known:
            self.sum.seen(best.point, self._known(best))  # perhaps the lowest of the new sum
        at, smooth = self._known(known), self.sum._known(evaluation)
        mu, goal = self.sum.model.loss.smoothing, self.goal(at.value)
        part = smoothing_gap(at, smooth)
        if self.model.l2 > 0.0:
            costly = self.model.fit_intercept
            waits = costly and self.sum.bound_can_wait(evaluation, goal, part)
            gap = part + self.sum.remaining(evaluation) if waits else 0.0
        else:  # a bound is costly
            gap = part + self._remaining(smooth)
            waits = gap > PROMISING * goal
        if waits:
            known.late_bound = LateBound(self.model, smooth.w, smoothing=mu, known=smooth)
        else:
            known.dual_value = self.model.dual.at(smooth)
            gap = at.value - known.dual_value
        self._shrink(part, gap, goal, at.value)
        return evaluation

    def _remaining(self, smooth: ModelPoint) -> float:
        """Estimate the smooth sum's gap by half of Newton's squared decrement."""
        # Second derivatives are taken to be those of all rows times the share that is curved.
        curved = smooth.model.loss.curved(smooth.derivatives).mean()
        curved = max(curved, 1.0 / self.model.n_samples)
        space = rows_in_memory(self.model).dual.without_terms("a smoothed loss").space
        mu = self.sum.model.loss.smoothing
        return float(0.5 * mu * space.distance(smooth.gradient) ** 2 / curved)

    def original(self, evaluation: Evaluation) -> Evaluation:
        """Return the evaluation of the function itself at the last point."""
        assert self._latest is not None
        assert self._latest.point is evaluation.point
        return self._latest

    def _late_gradient(self, evaluation: Evaluation) -> Vector:
        """Return the unsmoothed gradient, recomputed: a checkpoint does not hold margins."""
        self.njev += 1
        with np.errstate(**QUIET):
            return self.model.at(evaluation.point).gradient
