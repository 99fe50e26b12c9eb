"""A linear model as a finite sum with curvature: what Newton's steps ask for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accelegrad.errors import Vector
from accelegrad.problems.linear_model import Evaluation as ModelEvaluation
from accelegrad.problems.linear_model import LinearModel
from accelegrad.problems.squares import column_squares
from accelegrad.proofs.certificate import LateBound
from accelegrad.proofs.mended_bound import Sample, mended_bound
from accelegrad.rows.curvature import (
    Costs,
    Diagonal,
    Factored,
    coordinate_curvatures,
    drawn,
    second_derivative_matrix,
    second_derivatives,
    stored_entries,
)
from accelegrad.rows.newton import SketchedNewton
from accelegrad.rows.smoothing import SmoothedSumOracle
from accelegrad.rows.variance_reduced_oracle import FiniteSumOracle
from accelegrad.run.oracle import QUIET, Evaluation

#: A run starts from the minimum over a sample of the rows, at most this share of them and so many
#: entries (a copy), which is found in the same way. It has at least so many rows, and so many a
#: parameter; else there is none.
SAMPLE_SHARE, SAMPLE_ENTRIES, FEWEST_SAMPLED, ROWS_A_PARAMETER = 0.1, 1 << 22, 100, 5
#: Of the rows, and a parameter: more are not needed.
LEAST_SHARE, PLENTY = 0.02, 150
#: The most evaluations of a sample, which end where this share of what it leaves unknown is left.
GUESSES, PRECISE = 20, 0.3
#: With so many rows, so many epochs of steps on a few of them are a good beginning.
FEWEST_ROWS, EPOCHS = 1000, 2
#: Of a sample on which a dual point is mended: rows a parameter, and more where what is left to
#: gain, times this, is too much for so few. What is left has to be so much less than what was too
#: much before when that is tried again.
MENDED, SPREAD, LESS = 30, 2.0, 0.3
#: In evaluations: what that may cost; with an intercept a plain bound takes the time of many.
WORTH, WORTH_WITH_INTERCEPT = 1.5, 25.0
#: A slope that is flat enough, as a share of the one at the start, and the most trials for it.
FLAT, TRIALS = 0.1, 12


class _Origin(NamedTuple):
    """What a matrix of second derivatives is made from: see `CurvedOracle.curvature`."""

    point: Vector
    number: int
    caution: float


class CurvedOracle(FiniteSumOracle):
    """A linear model as a finite sum, with its second derivatives from samples of rows.

    Where a matrix of them would cost too much, a number a coordinate takes its place.

    Parameters
    ----------
    model : LinearModel
        The model; its loss has to be smooth.
    rng : numpy.random.Generator
        Where the samples and the order of the rows come from.
    goal : callable, optional
        The gap that is wanted, for a value; 0 if there is none.
    """

    def __init__(
        self,
        model: LinearModel,
        rng: np.random.Generator,
        goal: Callable[[float], float] | None = None,
    ) -> None:
        super().__init__(model, rng)
        self.goal = goal
        self._seed = int(rng.integers(2**63))
        self._costs = Costs.of(model)
        self._made: Factored | None = None
        self._made_from: _Origin | None = None
        self._tried = math.inf  # how much was too much to be left, when that was tried last
        self._coordinates: Diagonal | None = None
        self._squares: Vector | None = None
        self._latest: list[Evaluation] = []  # the last two

    def beside(self, model: LinearModel) -> CurvedOracle:
        """Return the oracle of a model of the same data with another loss, which knows the data."""
        other = CurvedOracle(model, self.rng)
        for name in ("_largest_row", "_room", "_stage", "_squares"):
            setattr(other, name, getattr(self, name))
        return other

    def __call__(self, point: Vector) -> Evaluation:
        """Evaluate at the point."""
        evaluation = super().__call__(point)
        self._latest = [*self._latest[-1:], evaluation]
        return evaluation

    def seen(self, point: Vector, other: ModelEvaluation) -> Evaluation:
        """Evaluate where a model of the same data was: that costs no product with them at once."""
        with np.errstate(**QUIET):
            at = other.beside(self.model)
            value = at.value
        evaluation = Evaluation(point, value, late_gradient=self._late_gradient, model=at)
        self._latest = [*self._latest[-1:], evaluation]
        return self._finish(evaluation)

    def original(self, evaluation: Evaluation) -> Evaluation:
        """Return the evaluation, with a sharper lower bound if that may reach the goal."""
        goal = 0.0 if self.goal is None else self.goal(evaluation.value)
        if not (goal > 0.0 and self.model.l2 > 0.0 and self._costs.least) or self._starts_warm:
            return evaluation
        at, left = self._known(evaluation), self.left(evaluation)
        bound = self.mended_bound(at, evaluation, left, goal)
        if self.model.fit_intercept:
            if bound >= evaluation.value - goal:
                evaluation.dual_value = bound
            elif left > goal:  # a plain bound takes its time, and would not do
                evaluation.late_bound = LateBound(self.model, evaluation.point, known=at)
        elif bound > -math.inf:
            evaluation.dual_value = max(bound, at.dual_value)
        return evaluation

    @property
    def _starts_warm(self) -> bool:
        """Whether the one evaluation so far is at a point that may be the minimum already."""
        return self.points == 1 and bool(self._latest[-1].point.any())

    def left(self, evaluation: Evaluation) -> float:
        """Return about how far the value is from the minimum: half of Newton's squared decrement.

        It is infinite where there is no matrix of second derivatives to tell.
        """
        curvature = self._curvature_made
        if curvature is None:
            return math.inf
        return 0.5 * float(evaluation.gradient @ curvature.solve(evaluation.gradient))

    def mended_bound(
        self,
        own: ModelEvaluation,
        evaluation: Evaluation,
        left: float,
        goal: float,
        smoothing: float = 0.0,
    ) -> float:
        """Return the lower bound that a dual point proves which is mended on some rows.

        It is minus infinity where that can't be expected to reach the goal, or costs too much.

        Parameters
        ----------
        own : ModelEvaluation
            What the model that is to be minimised knows at the point.
        evaluation : Evaluation
            What this one knows, which may be a smooth one close to it.
        left : float
            What `left` says of that.
        goal : float
            The gap that is wanted.
        smoothing : float
            The part of the gap that is due to the difference of the two.
        """
        curvature, model = self._curvature_made, self.model
        if curvature is None:
            return -math.inf
        rest = goal - smoothing - left
        if not (rest > 0.0 and left <= LESS * self._tried):
            return -math.inf
        size = int(max(MENDED * model.n_parameters, SPREAD * left / rest * model.n_samples))
        worth = WORTH_WITH_INTERCEPT if model.fit_intercept else WORTH
        if self._costs.of_products(size) > worth:
            return -math.inf
        at = self._known(evaluation)
        with np.errstate(**QUIET):
            bends = second_derivatives(model.loss, at, 0.0) * model.shares
            rows, weights = drawn(bends, size, lambda: self._generator(1 << 32))
            if rows is None:
                rows = np.flatnonzero(weights)
                weights = weights[rows]
            entries = stored_entries(model) * rows.size / model.n_samples
            if rows.size == 0 or entries > SAMPLE_ENTRIES:
                return -math.inf
            bound = mended_bound(own, at, Sample.of(at, rows, weights), curvature, goal)
        # What the rows of the sample can't mend grows with what is left.
        gap = own.value - bound
        self._tried = left * min(1.0, goal / gap) if gap > 0.0 else left
        return bound

    @property
    def first_epochs(self) -> int:
        """How many epochs of variance-reduced steps are a good beginning."""
        return _first_epochs(self.model)

    @property
    def _guess_size(self) -> int:
        """How many rows the sample has that gives a start; 0 where there is none."""
        model, costs = self.model, self._costs
        most = SAMPLE_ENTRIES * model.n_samples / max(1, stored_entries(model))
        plenty = max(LEAST_SHARE * model.n_samples, PLENTY * model.n_parameters)
        size = int(min(SAMPLE_SHARE * model.n_samples, most, plenty))
        enough = size >= max(ROWS_A_PARAMETER * model.n_parameters, FEWEST_SAMPLED)
        return size if enough and costs.least and not costs.constant else 0

    def guess(self, point: Vector) -> Vector | None:
        """Return about the minimum over a sample of the rows, None where there are too few."""
        size, rng = self._guess_size, self._generator(0)
        if size == 0:
            return None
        sample = _sampled(self.model, rng.integers(self.model.n_samples, size=size))
        oracle, rule = CurvedOracle(sample, rng), SketchedNewton()
        state = rule.init(point)
        unknown = sample.n_parameters / size  # of the value, about
        for _ in range(GUESSES):
            state = rule.aimed(rule.step(state, oracle).state, oracle)  # type: ignore[arg-type]
            if 0.0 < state.slope <= PRECISE * unknown * state.value:
                break
        found: Vector = state.trial
        return found

    def between(self, point: Vector, trial: Evaluation) -> float:
        """Return where the objective is lowest between a point (0) and a trial beyond that (1).

        The margins in between are known from those at both ends, so that it costs no product with
        the data.
        """
        model, d = self.model, self.model.n_features
        before, after = self._evaluated(point), self._known(trial)
        move, change = trial.point - point, after.margins - before.margins
        start = model.l2 * float(point[:d] @ move[:d])
        bend = model.l2 * float(move[:d] @ move[:d])

        def slope(t: float) -> float:
            slopes = model.slopes(before.margins + t * change)
            return float(model.shares @ (slopes * change)) + start + t * bend

        with np.errstate(**QUIET):
            return _zero(slope, float(before.gradient @ move), float(trial.gradient @ move))

    def curvature(self, point: Vector, number: int, caution: float) -> Factored | Diagonal:
        """Return the curvature at a point from the `number`-th sample; 0: a number a coordinate."""
        size = self._costs.sample(number)
        if number == 0 or size == 0:
            return self._diagonal()
        origin = _Origin(point, number, caution)
        if self._made is None or self._made_from is None or self._made_from[1:] != origin[1:]:
            matrix, bent = self._matrix(point, size, number, caution)
            self._made = Factored(matrix, *self._costs.price(number + 1, bent))
            self._made_from = origin
        return self._made

    @property
    def _curvature_made(self) -> Factored | None:
        """The last matrix of second derivatives, None before there is one."""
        if self._made is None and self._made_from is not None:  # it comes from a checkpoint
            self.curvature(*self._made_from)
        return self._made

    def _diagonal(self) -> Diagonal:
        if self._coordinates is None:
            self._coordinates = Diagonal(self._coordinate_curvatures, *self._costs.price(1))
        return self._coordinates

    def _coordinate_curvatures(self) -> Vector:
        return coordinate_curvatures(self.model, self._column_squares())

    def _matrix(
        self, point: Vector, size: int, number: int, caution: float
    ) -> tuple[npt.NDArray[np.float64], int]:
        """Return the second derivatives from a sample, and how many of all rows bend."""
        model = self.model
        with np.errstate(**QUIET):
            bends = second_derivatives(model.loss, self._evaluated(point), caution)
            bends *= model.shares
            rows, weights = drawn(bends, size, lambda: self._generator(number))
            matrix = second_derivative_matrix(model, bends, self._column_squares, rows, weights)
        return matrix, int(np.count_nonzero(bends))

    def _generator(self, number: int) -> np.random.Generator:
        """Return the same random numbers for the same sample, whenever it is drawn."""
        return np.random.default_rng([self._seed, number])

    def _column_squares(self) -> Vector:
        if self._squares is None:
            self._squares = column_squares(self.model.X, self.model.shares)
        return self._squares

    def _evaluated(self, point: Vector) -> ModelEvaluation:
        """Return what is known at a point; mostly it was one of the last two evaluated."""
        for known in (*self._latest, self.best):
            if known is not None and known.model is not None and known.point is point:
                return known.model
        return self.model.evaluate(point)

    def state(self) -> dict[str, Any]:
        """Return all that has to be kept to go on."""
        made = None if self._made_from is None else self._made_from._asdict()
        return {**super().state(), "seed": self._seed, "made": made, "tried": self._tried}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        super().restore(state)
        self._seed, self._made, self._latest = state["seed"], None, []
        self._tried, made = state["tried"], state["made"]
        self._made_from = None if made is None else _Origin(**made)


class SmoothedCurvedOracle(SmoothedSumOracle):
    """A linear model whose loss has kinks, and a smooth one close below with its curvature."""

    smooth: Any  # a CurvedOracle

    def _smooth_with(self, mu: float) -> None:
        model, before = self.model.smoothed(mu), self.smooth
        self.smooth = CurvedOracle(model, self.rng) if before is None else before.beside(model)

    @property
    def first_epochs(self) -> int:
        """How many epochs of variance-reduced steps are a good beginning."""
        return _first_epochs(self.model)

    @property
    def lowest(self) -> Evaluation | None:
        """What is known of the smooth sum where the function itself was lowest so far."""
        best, known = self.best, self.smooth.lowest
        if best is not None and self._latest is not None and best.point is not self._latest.point:
            known = self.smooth.seen(best.point, self._known(best))
        lowest: Evaluation | None = known
        return lowest

    def guess(self, point: Vector) -> Vector | None:
        """Return the minimum over a sample of the rows, None where there are too few of them."""
        found: Vector | None = self.smooth.guess(point)
        return found

    def between(self, point: Vector, trial: Evaluation) -> float:
        """Return where the smooth objective is lowest between two points."""
        return float(self.smooth.between(point, trial))

    def curvature(self, point: Vector, number: int, caution: float) -> Factored | Diagonal:
        """Return the curvature of the smooth objective."""
        made: Factored | Diagonal = self.smooth.curvature(point, number, caution)
        return made

    def _gap(self, evaluation: Evaluation, known: Evaluation, part: float, goal: float) -> float:
        """Return the gap, or about what it is, and let what is known hold the bound."""
        if self.model.l2 == 0.0 or not self.smooth._costs.least or self.smooth._starts_warm:
            return super()._gap(evaluation, known, part, goal)
        own, left = self._known(known), float(self.smooth.left(evaluation))
        about = part + left
        mended = self.smooth.mended_bound(own, evaluation, left, goal, part)
        if mended >= own.value - goal:
            known.dual_value = mended
        elif self.model.fit_intercept and about > goal:
            # A plain bound takes its time, and would not do.
            known.late_bound = self._late_bound(self.smooth._known(evaluation))
        else:
            about = min(super()._gap(evaluation, known, part, goal), about)
        return about


def _first_epochs(model: LinearModel) -> int:
    """Return how many epochs pay: none where curvature, which does more, costs little."""
    return 0 if model.n_samples < FEWEST_ROWS or Costs.of(model).least else EPOCHS


def _sampled(model: LinearModel, rows: npt.NDArray[np.int64]) -> LinearModel:
    """Return the model of some rows.

    A weak l2 term gets the weight against a row that it had before, up to that of a row: fewer rows
    are fitted too well sooner.
    """
    weight = min(model.l2 * model.n_samples, 1.0) / rows.size
    return model.of_rows(rows, max(model.l2, weight))


def _zero(slope: Callable[[float], float], low: float, high: float) -> float:
    """Return about where a slope that is `low` < 0 at 0 and `high` > 0 at 1 is zero.

    By regula falsi, the Illinois way.
    """
    if not (low < 0.0 < high < math.inf):
        return 0.5
    left, right, enough = 0.0, 1.0, FLAT * -low
    for _ in range(TRIALS):
        t = (left * high - right * low) / (high - low)
        found = slope(t)
        if not math.isfinite(found):
            return 0.5 * (left + t)
        if abs(found) <= enough:
            return t
        if found < 0.0:
            left, low, high = t, found, 0.5 * high
        else:
            right, high, low = t, found, 0.5 * low
    return left if left > 0.0 else right
