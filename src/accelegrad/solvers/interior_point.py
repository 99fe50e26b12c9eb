"""An interior-point method for losses with one kink, for one target or several at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accelegrad.errors import LineSearchError, NonFiniteError, Vector
from accelegrad.geometry.penalties import Penalty
from accelegrad.geometry.sets import FeasibleSet
from accelegrad.models.linear_model import LinearModel
from accelegrad.proofs.fenchel import Terms
from accelegrad.rules.base import Array, Step
from accelegrad.run.oracle import QUIET, Evaluation
from accelegrad.solvers.curvature import Factored, Goal
from accelegrad.solvers.row_oracle import RowRule, TermsOracle
from accelegrad.solvers.work import INSIDE_ROW

Matrix = npt.NDArray[np.float64]

#: The first barrier in units of the mean loss: a larger one makes the first steps longer.
FIRST_BARRIER = 10.0
#: The share of the way to the nearest end that a step goes.
TOWARDS_END = 0.99
#: More steps do not get any further: ten to thirty are usual.
MOST_STEPS = 60
#: An l1 term makes a weight 0 if its slope is more than this share of its range from both ends.
INSIDE = 1e-3


class Inside(NamedTuple):
    """A point inside all limits, with one row per target."""

    w: Matrix
    margins: Matrix  # relative to the kinks, m - y; `above` - `below` at the minimum
    to_low: Matrix  # slope - low
    to_high: Matrix  # high - slope
    above: Matrix  # barrier / to_high; at the minimum 0 unless the slope is at its upper end
    below: Matrix  # barrier / to_low; at the minimum 0 unless the slope is at its lower end

    def of(self, chosen: Any) -> Inside:
        """Return the point of some targets."""
        return Inside(*(part[chosen] for part in self))

    def slopes(self, rows: KinkedRows) -> Matrix:
        """Return the slopes, as exactly as the distance to the nearer end is known."""
        near = self.to_low < self.to_high
        return np.where(near, rows.low + self.to_low, rows.high - self.to_high)

    def barrier(self, rows: KinkedRows) -> Vector:
        """Return the mean product of distances and multipliers."""
        return np.asarray((self.to_high * self.above + self.to_low * self.below) @ rows.shares) / 2

    def advanced(self, rows: KinkedRows) -> Inside:
        """Return the point after a step."""
        curvatures = 1.0 / (self.above / self.to_high + self.below / self.to_low)
        factors = [rows.factored(row) for row in curvatures]
        stationary = rows.penalties * self.w + rows.backward(self.slopes(rows))

        def direction(high: Any, low: Any) -> Inside:
            """Return the move after which the products with the distances have these values."""
            more = high / self.to_high - low / self.to_low - self.margins
            right = rows.backward(curvatures * more) - stationary
            w = np.array([f.solve(part) for f, part in zip(factors, right, strict=True)])
            margins = rows.forward(w)
            slopes = curvatures * (margins - more)
            above = (high + self.above * slopes) / self.to_high - self.above
            below = (low - self.below * slopes) / self.to_low - self.below
            return Inside(w, margins, slopes, -slopes, above, below)

        barrier = self.barrier(rows)
        guess = direction(0.0, 0.0)
        left = self._moved(guess, self._longest(guess)).barrier(rows)
        aim = (barrier * (left / barrier) ** 3)[:, None]  # Mehrotra's power
        slopes = guess.to_low
        chosen = direction(aim + slopes * guess.above, aim - slopes * guess.below)
        return self._moved(chosen, TOWARDS_END * self._longest(chosen))

    def _longest(self, move: Inside) -> Vector:
        """Return the share of a move, at most 1, that keeps everything positive."""
        pairs = zip(move[2:], self[2:], strict=True)
        steepest = np.max([(-change / part).max(axis=1) for change, part in pairs], axis=0)
        return np.asarray(1.0 / np.maximum(steepest, 1.0))

    def _moved(self, move: Inside, shares: Vector) -> Inside:
        t = shares[:, None]
        return Inside(*(part + t * change for part, change in zip(self, move, strict=True)))


class InteriorPointState(NamedTuple):
    """The parameters and their point inside all limits."""

    iteration: int
    point: Array  # x0 before the first step
    inside: Inside  # empty before the first step
    step_size: float  # there is none: 0


@dataclass(frozen=True)
class InteriorPoint(RowRule):
    r"""An interior-point method for losses with one kink, such as hinge and quantile loss.

    Such a loss is :math:`l_i(m) = \max_\theta \theta (m - y_i)` over :math:`\theta` between two
    ends. A barrier keeps the dual slopes :math:`\theta_i` between them: the objective gets

    .. math:: -\mu \sum_i p_i \bigl(\log(\theta_i - low_i) + \log(high_i - \theta_i)\bigr),

    and Newton's method follows the saddle point of parameters and slopes as :math:`\mu` vanishes,
    by Mehrotra's predictor and corrector. That takes ten to thirty steps on any data, each with the
    Gram matrix of all rows: it is for few rows with few columns.

    An l1 term is treated as further rows: :math:`\alpha |w_j|` is the loss of a row with a single 1
    in column j, the target 0 and slopes between :math:`-\alpha` and :math:`\alpha`. `output` and
    `last` are the last point.

    References
    ----------
    S. Mehrotra: On the implementation of a primal-dual interior point method. SIAM Journal on
    Optimization 2, 1992. M. C. Ferris, T. S. Munson: Interior-point methods for massive support
    vector machines. SIAM Journal on Optimization 13, 2002.
    """

    title = "interior point"
    can = frozenset({"values", "terms"})

    def oracle(
        self,
        model: LinearModel,
        rng: np.random.Generator,
        goal: Goal,
        penalty: Penalty | None = None,
        feasible_set: FeasibleSet | None = None,
    ) -> BarrierOracle:
        """Return the sum with its terms; refuse other losses, and weights without a term."""
        terms = Terms.of(model, penalty, feasible_set)
        held = terms is not None and terms.feasible_set is None and terms.gets_tight
        if terms is None or not held or not model.loss.has_one_kink:
            raise ValueError(
                "method 'interior-point' takes losses with one kink ('hinge', 'absolute', "
                "'quantile'), l1 and elastic net terms and no constraint, and each weight has to "
                f"have an l1 or l2 term; the loss is {model.loss.name!r}, penalty {penalty!r}, "
                f"feasible_set {feasible_set!r}, and the model's l2 {model.l2!r}."
            )
        return BarrierOracle(model, rng, goal, terms, penalty)

    def init(self, x0: Array) -> InteriorPointState:
        """Return the state before the first step."""
        nothing = Inside(*(np.empty(0) for _ in Inside._fields))
        return InteriorPointState(0, x0, nothing, 0.0)

    def step(self, state: InteriorPointState, oracle: BarrierOracle) -> Step:  # type: ignore[override]
        """Follow the saddle point; the evaluation carries the bound that the slopes prove."""
        if state.iteration >= MOST_STEPS:
            raise LineSearchError("the barrier falls no further: rounding error allows no more.")
        before = state.inside
        with np.errstate(all="ignore"):
            if state.iteration == 0:
                before = oracle.kinked.inside([state.point])
            try:
                after = before.advanced(oracle.kinked)
            except NonFiniteError as error:
                raise LineSearchError(f"{error}: rounding error allows no more.") from None
            barrier = float(after.barrier(oracle.kinked)[0])
        if not np.isfinite(barrier):
            raise LineSearchError("the barrier is lost: rounding error allows no more.")
        known = oracle.proved(after)
        moved = InteriorPointState(state.iteration + 1, known.point, after, 0.0)
        return Step(moved, known, 0.0)


class Found(NamedTuple):
    """Parameters, and the slopes of the rows that prove them good."""

    parameters: Vector
    slopes: Vector
    steps: int


class KinkedRows:
    """Rows shared by several models that differ only in their targets, with the l2 term of `terms`.

    Each weight with an l1 term adds one row, with the rows' mean share, so that all have the same
    barrier. Rows without a share are left out: the barrier would see them.
    """

    def __init__(self, models: Sequence[LinearModel], terms: Terms) -> None:
        model = models[0]
        self._model = model
        self.n_features, self.intercept = model.n_features, model.fit_intercept
        shares = model.shares
        self._rows: Any = slice(None) if shares.all() else np.flatnonzero(shares)  # with a share
        self.count = shares[self._rows].size
        strengths = np.broadcast_to(np.asarray(terms.l1, dtype=np.float64), self.n_features)
        self._columns = np.flatnonzero(strengths > 0.0)  # with an l1 term
        self.l2, self.l1 = terms.l2, strengths[self._columns]
        self.penalties = np.append(
            np.full(self.n_features, terms.l2), np.zeros(int(self.intercept))
        )
        self.shares = np.append(shares[self._rows], np.full(self._columns.size, 1.0 / self.count))
        targets = np.array([model.y[self._rows] for model in models])
        ends = (np.broadcast_to(end, targets.shape) for end in model.loss.domain(targets))
        steepest = self.l1 * self.count  # times a share it is l1
        self.kinks, self.low, self.high = (
            np.hstack([numbers, np.tile(sign * steepest, (len(models), 1))])
            for numbers, sign in zip((targets, *ends), (0.0, -1.0, 1.0), strict=True)
        )

    def _of_all(self, numbers: Matrix) -> Matrix:
        """Return numbers of the rows with zeros for those that are left out."""
        if self.count == self._model.n_samples:
            return numbers
        every = np.zeros((*numbers.shape[:-1], self._model.n_samples))
        every[..., self._rows] = numbers
        return every

    def of(self, chosen: Any) -> KinkedRows:
        """Return the same rows with some of the targets."""
        part = object.__new__(KinkedRows)
        part.__dict__.update(self.__dict__)
        part.kinks, part.low, part.high = (
            ends[chosen] for ends in (self.kinks, self.low, self.high)
        )
        return part

    def inside(self, starts: Sequence[Vector]) -> Inside:
        """Return a starting point with the intercepts of `starts` and zero weights."""
        # Good weights without matching slopes would be further from the middle.
        w = np.zeros((len(starts), self.penalties.size))
        if self.intercept:
            w[:, -1] = [start[-1] for start in starts]
        margins = self.forward(w) - self.kinks
        half = 0.5 * (self.high - self.low)  # slopes half-way between their ends
        barrier = FIRST_BARRIER * 0.5 * ((half * np.abs(margins)) @ self.shares)
        barrier[barrier == 0.0] = FIRST_BARRIER  # all margins are at their kinks
        above, below = (
            np.maximum(part, 0.0) + barrier[:, None] / half for part in (margins, -margins)
        )
        return Inside(w, margins, half, half, above, below)

    def forward(self, w: Matrix) -> Matrix:
        """Return the margins for each row of parameters."""
        d = self.n_features
        products = self._model.products.forward(w[:, :d].T).T
        margins = np.ascontiguousarray(products[:, self._rows])
        if self.intercept:
            margins += w[:, d:]
        return np.hstack([margins, w[:, self._columns]]) if self.l1.size else margins

    def backward(self, slopes: Matrix) -> Matrix:
        """Return the sum of the rows by each target's slopes and the shares."""
        weighted = slopes * self.shares
        of_rows = weighted[:, : self.count]
        products: Matrix = self._model.products.backward(self._of_all(of_rows).T).T
        if self.l1.size:
            products = products.copy()
            products[:, self._columns] += weighted[:, self.count :]
        if not self.intercept:
            return products
        return np.column_stack([products, of_rows.sum(axis=1)])

    def factored(self, curvatures: Vector) -> Factored:
        """Return the factored second derivatives of one target's losses and terms."""
        weights = self.shares * curvatures
        n = self.count
        matrix = self._model.gram(None, self._of_all(weights[:n]))
        ends = np.arange(len(matrix))
        matrix[ends, ends] += self.penalties
        ends = ends[self._columns]
        matrix[ends, ends] += weights[n:]
        return Factored(matrix)

    def parameters(self, inside: Inside, place: int) -> Vector:
        """Return a target's parameters, with weights of 0 where the l1 term holds them there."""
        w: Vector = inside.w[place].copy()
        n = self.count
        if self.l1.size:
            nearer = np.minimum(inside.to_low, inside.to_high)[place, n:]
            between = nearer > INSIDE * (self.high - self.low)[place, n:]
            w[self._columns[between]] = 0.0
        return w

    def slopes(self, inside: Inside, place: int) -> Vector:
        """Return the slopes of the data's rows for a target."""
        return self._of_all(inside.slopes(self)[place, : self.count]).copy()

    def values_and_bounds(self, inside: Inside) -> tuple[Vector, Vector]:
        """Return the objectives, and estimates of the bounds that the slopes prove."""
        m, slopes, d, n = inside.margins, inside.slopes(self), self.n_features, self.count
        weights = inside.w[:, :d]
        losses = np.maximum(self.high * m, self.low * m) @ self.shares
        values = losses + 0.5 * self.l2 * (weights * weights).sum(axis=1)
        sums = self.backward(slopes)
        bounds = -(slopes * self.kinks) @ self.shares
        if self.l2 > 0.0:
            bounds = bounds - 0.5 * (sums[:, :d] ** 2).sum(axis=1) / self.l2
        else:  # slopes are scaled down to within the l1 term
            held = slopes[:, n:] * self.shares[n:]
            bounds = bounds / np.maximum((np.abs(sums[:, :d] - held) / self.l1).max(axis=1), 1.0)
        if self.intercept:  # slopes of one side are scaled down until their mean is 0
            size = np.abs(self.kinks).max(axis=1) + np.abs(inside.w[:, -1])
            bounds = bounds - np.abs(sums[:, -1]) * size
        return values, np.maximum(bounds, 0.0)


class BarrierOracle(TermsOracle):
    """A sum of losses with one kink, with l1 and l2 terms; rows are in memory."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.kinked = KinkedRows([self.model], self.terms)

    def proved(self, inside: Inside) -> Evaluation:
        """Evaluate at the parameters, with the bound that the slopes prove."""
        costs = self.costs
        self.more_work += costs.all_curvature + costs.evaluation + INSIDE_ROW * self.model.n_samples
        evaluation = self(self.kinked.parameters(inside, 0))
        with np.errstate(**QUIET):
            evaluation.dual_value = self.dual.at_slopes(self.kinked.slopes(inside, 0))
        return evaluation


def interior_points(
    models: Sequence[LinearModel],
    terms: Terms,
    starts: Sequence[Vector],
    allowed: Callable[[Vector, Vector], Vector],
    proved: Callable[[int, Found, float], bool],
    most_steps: int,
) -> None:
    """Take steps for each model until it is proved good enough, or rounding ends them.

    `allowed` returns the gaps that suffice, given all values and estimated lower bounds; `proved`
    tells whether a point has at most its gap, once the estimate does. `starts` give only
    intercepts.
    """
    values, bounds = np.full(len(models), np.inf), np.zeros(len(models))
    active = np.arange(len(models))
    with np.errstate(all="ignore"):
        rows = KinkedRows(models, terms)
        state = rows.inside(starts)
        for step in range(min(most_steps, MOST_STEPS)):
            values[active], bounds[active] = rows.values_and_bounds(state)
            gaps = allowed(values, bounds)[active]
            done = values[active] - bounds[active] <= gaps
            for place in np.flatnonzero(done).tolist():
                point = Found(rows.parameters(state, place), rows.slopes(state, place), step)
                done[place] = proved(int(active[place]), point, float(gaps[place]))
            going = ~done & np.isfinite(values[active])
            if not going.all():
                rows, state, active = rows.of(going), state.of(going), active[going]
            if not active.size:
                break
            try:
                state = state.advanced(rows)
            except NonFiniteError:
                break
