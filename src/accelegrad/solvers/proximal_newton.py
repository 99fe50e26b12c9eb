"""Proximal Newton's method for sums over rows with an l1 term, within a box."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from accelegrad.errors import LineSearchError, Vector
from accelegrad.geometry.penalties import Penalty
from accelegrad.geometry.sets import FeasibleSet
from accelegrad.models.linear_model import LinearModel, ModelPoint
from accelegrad.models.matrix import Matrix
from accelegrad.proofs.fenchel import Terms
from accelegrad.proofs.model_dual import ModelDual
from accelegrad.rules.base import Array, Step
from accelegrad.run.oracle import QUIET, Evaluation
from accelegrad.solvers.curvature import (
    FEW_COLUMNS,
    MOST_PARAMETERS,
    PROMISING,
    Costs,
    Goal,
    falls_enough,
    least_squares_matrix,
    minimum_of_columns,
    next_caution,
    second_derivative_matrix,
)
from accelegrad.solvers.row_oracle import (
    LARGEST_SHRINK,
    NEGLIGIBLE_GAP,
    RowRule,
    SmoothedOracle,
    SmoothOracle,
    TermsOracle,
    no_goal,
    smoothing_gap,
)

#: After more steps in a row without gain, rounding hides any further fall.
MOST_IDLE = 3

#: What the rule works on: a smooth sum, or a smooth one close to a sum with kinks.
Sum: TypeAlias = "PenalisedOracle | SmoothedPenalisedOracle"


class Aim(NamedTuple):
    """The minimum of a model around a point."""

    target: Array
    fall: float  # from the point to the target, by the model
    value: float  # at the point; infinite if the model is exact and was not evaluated there


class ProximalNewtonState(NamedTuple):
    """The last accepted point, and how to continue."""

    iteration: int
    point: Array
    caution: float  # of the next model, from 0 to 1
    idle: int  # steps in a row that gained nothing
    step_size: float


@dataclass(frozen=True)
class ProximalNewton(RowRule):
    r"""Proximal Newton's method for a smooth sum over rows with an l1 term, within a box.

    Around a point w, with the gradient g and the curvature C of the sum f, the model

    .. math:: m(u) = \langle g, u - w\rangle + \tfrac12 (u - w)^\top C (u - w) + \phi(u)

    is minimised over the box, without a pass over the rows (`accelegrad.solvers.quadratic`). Of
    many columns only some move: those whose weights are not at a kink of the term or an end of the
    box, and as many others, the most promising ones. The minimum u is accepted if :math:`F(u) \le
    F(w) - 10^{-4} (m(w) - m(u))`; otherwise the step is halved until that holds, again without a
    pass. For least squares the model is exact: one step is the solution if all columns may move.

    C is from all rows for least squares, and otherwise from a sample that grows from step to step.
    Losses that are linear beyond a corner get some curvature there by caution. `output` and `last`
    are the last accepted point.

    References
    ----------
    J. D. Lee, Y. Sun, M. A. Saunders: Proximal Newton-type methods for minimizing composite
    functions. SIAM Journal on Optimization 24, 2014. M. Massias, A. Gramfort, J. Salmon: Celer: a
    fast solver for the lasso with dual extrapolation. ICML 2018.
    """

    title = "proximal Newton"
    can = frozenset({"values", "terms"})

    def oracle(
        self,
        model: LinearModel,
        rng: np.random.Generator,
        goal: Goal,
        penalty: Penalty | None = None,
        feasible_set: FeasibleSet | None = None,
    ) -> PenalisedOracle | SmoothedPenalisedOracle:
        """Return the sum with its terms, smoothed if it has kinks; refuse weights without terms."""
        terms = Terms.of(model, penalty, feasible_set)
        signs_suffice = terms is not None and terms.has_only_signs and model.loss.name == "squared"
        if terms is None or not (terms.hold_each_weight or signs_suffice):
            raise ValueError(
                "method 'proximal-newton' takes l1 and elastic net terms and boxes, and each "
                "weight has to have an l1 or l2 term or two ends (for least squares one end, at "
                f"0, will do); penalty is {penalty!r}, feasible_set {feasible_set!r}, and the "
                f"model's l2 {model.l2!r}."
            )
        smooth = math.isfinite(model.loss.curvature)
        kind = PenalisedOracle if smooth else SmoothedPenalisedOracle
        return kind(model, rng, goal, terms, penalty)

    def init(self, x0: Array) -> ProximalNewtonState:
        """Return the state before the first step."""
        return ProximalNewtonState(0, x0, 1.0, 0, 0.0)

    def step(self, state: ProximalNewtonState, oracle: Sum) -> Step:  # type: ignore[override]
        """Go to the minimum of the model, or as far towards it as the sum falls."""
        aim = oracle.aim(state.point, state.iteration + 1, state.caution)
        trial, share = oracle(aim.target), 1.0
        if not falls_enough(aim.value, trial.value, aim.fall, 1.0):
            share = oracle.sum.shorter(state.point, aim.target, aim.value, aim.fall)
            if share == 0.0:
                raise LineSearchError(
                    "the value falls no further towards the minimum of the model: rounding error "
                    "allows no more."
                )
            trial = oracle(state.point + share * (aim.target - state.point))
        known = oracle.original(trial)
        idle = state.idle + 1 if aim.value <= trial.value and not oracle.changed else 0
        if idle > MOST_IDLE:
            raise LineSearchError("the value falls no further: rounding error allows no more.")
        moved = ProximalNewtonState(
            state.iteration + 1,
            trial.point,
            1.0 if oracle.changed else next_caution(state.caution, share),
            idle,
            share,
        )
        return Step(moved, known, 0.0)


class PenalisedOracle(SmoothOracle, TermsOracle):
    """A smooth sum, its model around a point, and its bounds."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._before = math.nan  # value at the last model's point, infinite if unknown
        #: the last model's minimum, and the point and caution that it is around; if it has all rows
        self._aimed: tuple[Vector, ModelPoint, float] | None = None
        self._has_all_rows = False
        self._is_least_squares = self.model.loss.name == "squared"
        self._part: tuple[Any, LinearModel] | None = None  # some columns, and the model of them
        self._matrix: Matrix | None = None  # its curvature, if constant
        if self._is_least_squares and self.model.n_features <= FEW_COLUMNS:
            # Now, so that the sizes of columns, which bounds take from it, are always the same.
            with np.errstate(**QUIET):
                self._least_squares_matrix(self._columns(None))

    def original(self, evaluation: Evaluation) -> Evaluation:
        """Return the evaluation with a lower bound of the minimum."""
        with np.errstate(**QUIET):
            at, value = self._known(evaluation), evaluation.value
            goal = self.goal(value)
            slopes, settled = self.model_slopes(evaluation), self.is_settled(value)
            bound = best_bound(self.dual, at, value, goal, slopes, settled=settled)
            if value - bound > goal > 0.0 and settled and self.model.has_dual_bound:
                # Rounding may be larger than weak terms: without them the minimum is no larger.
                bound = max(bound, at.dual_value)
            evaluation.dual_value = bound
        return evaluation

    def model_slopes(self, evaluation: Evaluation) -> Vector | None:
        """Return the slopes of the last model at its minimum, if that was evaluated."""
        if self._aimed is None or self._aimed[0] is not evaluation.point:
            return None
        _, around, caution = self._aimed
        return around.slopes_at(self._known(evaluation), caution)

    def is_settled(self, value: float) -> bool:
        """Return whether the last step gained nothing, or was exact for least squares."""
        return self._before == math.inf or self._before <= value

    def aim(self, point: Vector, number: int, caution: float) -> Aim:
        """Return the minimum of the model around a point over the columns that may move."""
        self._before, self._aimed, self._has_all_rows = math.inf, None, False
        d, more = self.model.n_features, self.terms.l2 - self.model.l2
        columns: Any = None
        around: ModelPoint | None = None
        with np.errstate(**QUIET):
            few = d <= FEW_COLUMNS and self.model.in_memory
            if self._is_least_squares and number == 1 and few:
                # Products of columns suffice: no pass over the rows.
                part = self._columns(None)
                matrix = self._least_squares_matrix(part)
                gradient = part.combination(-part.y) + matrix @ point
            else:
                evaluation = self._evaluation(point)
                around = self._known(evaluation)
                self._before, gradient = evaluation.value, evaluation.gradient
                if more != 0.0:
                    gradient = gradient.copy()
                    gradient[:d] += more * point[:d]
                columns = self._chosen(point, gradient)
                matrix = self._curvature(self._columns(columns), around, number, caution)
            target, fall = minimum_of_columns(self.terms, columns, matrix, gradient, point)
        if self._has_all_rows and around is not None:
            self._aimed = target, around, caution
        return Aim(target, fall, self._before)

    def _chosen(self, point: Vector, gradient: Vector) -> Any:
        """Return the columns that may move, None for all of them."""
        d = self.model.n_features
        if d <= FEW_COLUMNS:
            return None
        l1, lower, upper = self.terms.l1, self.terms.lower, self.terms.upper
        w, g = point[:d], gradient[:d]
        kink = (w == 0.0) & (l1 > 0.0)
        # How fast the function falls to the right and to the left.
        right = np.where(w < upper, -g - np.where(w < 0.0, -l1, l1), 0.0)
        left = np.where(w > lower, g - np.where(w > 0.0, -l1, l1), 0.0)
        steepness = np.maximum(np.maximum(right, left), 0.0)
        between = ~kink & (w > lower) & (w < upper)
        moving = np.flatnonzero(between)
        others = np.flatnonzero(~between & (steepness > 0.0))
        most = min(max(FEW_COLUMNS, moving.size), max(MOST_PARAMETERS - moving.size, 0))
        if moving.size > MOST_PARAMETERS:
            moving, others, most = others[:0], np.flatnonzero(steepness > 0.0), MOST_PARAMETERS
        if others.size > most:
            # The fall from moving one column alone.
            curvatures = self.model.loss.curvature * self.model.column_squares() + self.terms.l2
            gain = steepness[others] ** 2 / curvatures[others]
            first = others.size - most
            others = others[np.argpartition(gain, first - 1)[first:]]
        chosen = np.sort(np.concatenate([moving, others]))
        if not chosen.size:  # only an intercept moves
            chosen = np.array([np.argmax(np.abs(g))])
        return chosen

    def _columns(self, columns: Any) -> LinearModel:
        """Return a model of some columns, with all l2 terms; kept until others are asked for."""
        kept = self._part
        if kept is not None and (kept[0] is columns or np.array_equal(kept[0], columns)):
            return kept[1]
        kept = self._part = self._matrix = None  # before the next copy of columns is made
        part = self.model.of_columns(columns, self.terms.l2)
        self._part = columns, part
        return part

    def _curvature(self, part: LinearModel, at: Any, number: int, caution: float) -> Matrix:
        """Return the second derivatives of mean loss and l2 terms by some columns."""
        if self._is_least_squares:
            return self._least_squares_matrix(part)
        size = Costs.of(part).sample(number).size or part.n_samples
        rows = part.sampled(size, [self._seed, number], at, caution)
        # Least squares do not need it: their slopes are the model's.
        self._has_all_rows = rows.n_drawn >= rows.n_curved
        return second_derivative_matrix(part, rows)

    def _least_squares_matrix(self, part: LinearModel) -> Matrix:
        if self._matrix is None:
            self._matrix = least_squares_matrix(part, part.l2)
        return self._matrix


class SmoothedPenalisedOracle(SmoothedOracle[PenalisedOracle], TermsOracle):
    """A sum whose loss has kinks, with a smooth sum close below it, and its own bounds."""

    saved = (*TermsOracle.saved, "mu", "_next_mu")

    def _smoothed(self, mu: float) -> PenalisedOracle:
        rng, smooth = np.random.default_rng(self._seed), self.model.smoothed(mu)
        oracle = PenalisedOracle(smooth, rng, no_goal, self.terms, self.penalty)
        if self.smooth is not None:  # what is known there needs no pass
            for known in self.smooth._latest:
                oracle.seen(known.point, self.smooth._known(known))
        return oracle

    def aim(self, point: Vector, number: int, caution: float) -> Aim:
        """Return the minimum of the smooth sum's model, less smooth if that is due."""
        self._smooth_as_due(point)
        return self.sum.aim(point, number, caution)

    def __call__(self, point: Vector) -> Evaluation:
        """Evaluate the smooth sum."""
        return self.sum(point)

    def original(self, evaluation: Evaluation) -> Evaluation:
        """Return the evaluation of the sum itself, with a bound, and choose the next smoothing."""
        with np.errstate(**QUIET):
            known = self._itself_at(evaluation)
            at, smooth = self._known(known), self.sum._known(evaluation)
            value, goal = known.value, self.goal(known.value)
            slopes = self.sum.model_slopes(evaluation)
            settled = self.sum.is_settled(evaluation.value)
            bound = best_bound(self.dual, smooth, value, goal, slopes, settled=settled)
            if value - bound > goal > 0.0 and settled and self.model.has_dual_bound:
                bound = max(bound, self.model.dual.at(smooth))
            known.dual_value = bound
            mu, part, gap = smooth.model.loss.smoothing, smoothing_gap(at, smooth), value - bound
            self._shrink(part, gap, goal, value)
            if settled and gap > goal and part > NEGLIGIBLE_GAP * value:
                self._next_mu = min(self._next_mu, mu / LARGEST_SHRINK)
        self.changed = self._next_mu != mu
        return known


def best_bound(
    dual: ModelDual, at: Any, value: float, goal: float, slopes: Vector | None, *, settled: bool
) -> float:
    """Return the bound by given slopes, or by those at a point if no better step is left."""
    bound = 0.0 if slopes is None else dual.at_slopes(slopes)
    if slopes is not None and not (settled and value - bound > goal):
        return bound
    bound = max(bound, dual.at(at, best_intercept=False))
    # The best intercept for the weights costs a search.
    if dual.model.fit_intercept and goal < value - bound <= PROMISING * goal:
        bound = max(bound, dual.at(at))
        if value - bound > goal and dual.has_slopes_here:
            # The mean of the slopes themselves is known more exactly than that of the gradient.
            bound = max(bound, dual.at_slopes(at.derivatives))
    return bound
