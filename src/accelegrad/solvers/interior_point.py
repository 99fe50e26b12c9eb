"""An interior-point method for losses with one kink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from accelegrad.errors import LineSearchError, NonFiniteError, Vector
from accelegrad.rounding import UNIT
from accelegrad.rules.base import Array, Evaluated, Step, StepRule

Matrix = npt.NDArray[np.float64]

#: The first barrier in units of the mean loss: with more of it the first steps are longer.
FIRST_BARRIER = 10.0
#: The share of the way to the nearest end that a step goes.
TOWARDS_END = 0.99
#: The power of the share of the barrier that the predictor leaves, for the corrector (Mehrotra's).
CENTRING = 3
#: A step that leaves more of the barrier than this has hardly moved; after so many of them in a row
#: the method does not get any further.
IDLE, MOST_IDLE = 0.9, 10


class Solves(Protocol):
    """A matrix of second derivatives, factored."""

    def solve(self, right: Vector) -> Vector:
        """Return the solution of a system of equations."""


class Kinked(Protocol):
    """Rows whose losses have one kink each, with several targets at once.

    Matrices have a row for each target, and in it a number for each of the data's rows.
    """

    shares: Vector  # the rows' weights in the mean
    penalties: Vector  # the l2 term of each parameter
    kinks: Matrix  # where the kinks are
    low: Matrix  # the slopes on their left
    high: Matrix  # the slopes on their right

    def forward(self, w: Matrix) -> Matrix:
        """Return the margins for each row of parameters."""

    def backward(self, slopes: Matrix) -> Matrix:
        """Return the sum of the rows by each target's slopes and the shares."""

    def factored(self, curvatures: Vector) -> Solves:
        """Return the second derivatives of one target, from one number per row."""


class _Direction(NamedTuple):
    """How everything moves."""

    w: Matrix
    margins: Matrix
    slopes: Matrix
    above: Matrix
    below: Matrix


class Inside(NamedTuple):
    """A point inside of all limits: a row of parameters for each target, and what the rows have.

    `margins` are those beyond the kinks, m - y. At the minimum they are `above` - `below`, where
    `above` is 0 unless the slope is at its upper end, and `below` unless it is at its lower end;
    before, above * to_high and below * to_low are the barrier, and both sides of that differ.
    """

    w: Matrix
    margins: Matrix
    to_low: Matrix  # slope - low
    to_high: Matrix  # high - slope
    above: Matrix
    below: Matrix

    @classmethod
    def first(cls, rows: Kinked, w: Matrix) -> Inside:
        """Return slopes half-way between their ends."""
        margins = rows.forward(w) - rows.kinks
        half = 0.5 * (rows.high - rows.low)
        barrier = FIRST_BARRIER * 0.5 * means(rows, half * np.abs(margins))
        barrier[barrier == 0.0] = FIRST_BARRIER  # all margins are at their kinks
        above, below = (
            np.maximum(part, 0.0) + barrier[:, None] / half for part in (margins, -margins)
        )
        return cls(w, margins, half, half, above, below)

    def of(self, chosen: Any) -> Inside:
        """Return the point of some targets."""
        return Inside(*(part[chosen] for part in self))

    def slopes(self, rows: Kinked) -> Matrix:
        """Return the slopes, as exactly as the distance to the nearer end is known."""
        near = self.to_low < self.to_high
        return np.where(near, rows.low + self.to_low, rows.high - self.to_high)

    def barrier(self, rows: Kinked) -> Vector:
        """Return what the products of distances and multipliers are in the mean."""
        return 0.5 * means(rows, self.to_high * self.above + self.to_low * self.below)

    def advanced(self, rows: Kinked) -> Inside:
        """Return the point after a step."""
        curvatures = 1.0 / (self.above / self.to_high + self.below / self.to_low)
        factors = [rows.factored(row) for row in curvatures]
        stationary = rows.penalties * self.w + rows.backward(self.slopes(rows))

        def direction(high: Any, low: Any) -> _Direction:
            """Return where the products with the distances to the ends become these."""
            more = high / self.to_high - low / self.to_low - self.margins
            right = rows.backward(curvatures * more) - stationary
            w = np.array([f.solve(part) for f, part in zip(factors, right, strict=True)])
            margins = rows.forward(w)
            slopes = curvatures * (margins - more)
            above = (high + self.above * slopes) / self.to_high - self.above
            below = (low - self.below * slopes) / self.to_low - self.below
            return _Direction(w, margins, slopes, above, below)

        barrier = self.barrier(rows)
        guess = direction(0.0, 0.0)
        left = self._moved(guess, self._longest(guess)).barrier(rows)
        aim = (barrier * (left / barrier) ** CENTRING)[:, None]
        chosen = direction(aim + guess.slopes * guess.above, aim - guess.slopes * guess.below)
        return self._moved(chosen, TOWARDS_END * self._longest(chosen))

    def _longest(self, move: _Direction) -> Vector:
        """Return how much of a move, at most all of it, keeps everything positive."""
        falls = (
            move.slopes / self.to_high,
            -move.slopes / self.to_low,
            -move.above / self.above,
            -move.below / self.below,
        )
        steepest = np.max([fall.max(axis=1) for fall in falls], axis=0)
        return np.asarray(1.0 / np.maximum(steepest, 1.0))

    def _moved(self, move: _Direction, shares: Vector) -> Inside:
        t = shares[:, None]
        return Inside(
            self.w + t * move.w,
            self.margins + t * move.margins,
            self.to_low + t * move.slopes,
            self.to_high - t * move.slopes,
            self.above + t * move.above,
            self.below + t * move.below,
        )


def means(rows: Kinked, numbers: Matrix) -> Vector:
    """Return the mean of each row of a matrix by the data's weights."""
    return np.asarray(numbers @ rows.shares)


class BarrierRows(Protocol):
    """What the rule needs from an oracle."""

    @property
    def kinked(self) -> Kinked:
        """The rows, with one target."""

    def inside(self, x0: Array) -> Inside:
        """Return a point inside of all limits to start from."""

    def proved(self, point: Inside) -> Evaluated:
        """Evaluate the objective at the parameters, with the bound that the slopes prove."""


class InteriorPointState(NamedTuple):
    """The parameters, and the point inside of all limits that they are of."""

    iteration: int
    point: Array  # x0 before the first step
    inside: Inside  # of nothing before the first step
    barrier: float
    idle: int  # steps in a row that hardly moved
    step_size: float  # there is none: 0


@dataclass(frozen=True)
class InteriorPoint(StepRule):
    r"""An interior-point method for losses with one kink, as hinge and quantile loss have.

    Such a loss is :math:`l_i(m) = \max_\theta \theta (m - y_i)` over :math:`\theta` between two
    ends. The dual slopes :math:`\theta_i` are kept between theirs by a barrier: the objective gets

    .. math:: -\mu \sum_i p_i \bigl(\log(\theta_i - low_i) + \log(high_i - \theta_i)\bigr),

    and Newton's method follows the saddle point of parameters and slopes as :math:`\mu` vanishes,
    by Mehrotra's predictor and corrector. That takes ten to thirty steps, whatever the data's
    scale, each with the Gram matrix of all rows: it is for rows that are few and short.

    An l1 term is the same once more: :math:`\alpha |w_j|` is the loss of a row that has nothing but
    a 1 in column j, with the target 0 and slopes between :math:`-\alpha` and :math:`\alpha`.

    `output` and `last` are the last point.

    References
    ----------
    S. Mehrotra: On the implementation of a primal-dual interior point method. SIAM Journal on
    Optimization 2, 1992. M. C. Ferris, T. S. Munson: Interior-point methods for massive support
    vector machines. SIAM Journal on Optimization 13, 2002.
    """

    title = "interior point"
    can = frozenset({"values", "terms"})

    def init(self, x0: Array) -> InteriorPointState:
        """Return the state before the first step."""
        nothing = Inside(*(np.empty(0) for _ in Inside._fields))
        return InteriorPointState(0, x0, nothing, np.inf, 0, 0.0)

    def step(self, state: InteriorPointState, oracle: BarrierRows) -> Step:  # type: ignore[override]
        """Follow the saddle point; the evaluation has the bound that the slopes prove."""
        if state.idle > MOST_IDLE:
            raise LineSearchError("the barrier falls no further: rounding has the last word.")
        before = oracle.inside(state.point) if state.iteration == 0 else state.inside
        with np.errstate(all="ignore"):
            try:
                after = before.advanced(oracle.kinked)
            except NonFiniteError as error:
                raise LineSearchError(f"{error}: rounding has the last word.") from None
            barrier = float(after.barrier(oracle.kinked)[0])
        if not np.isfinite(barrier):
            raise LineSearchError("the barrier is lost: rounding has the last word.")
        known = oracle.proved(after)
        hardly = barrier > IDLE * state.barrier or barrier <= UNIT * known.value
        moved = InteriorPointState(
            state.iteration + 1,
            known.point,
            after,
            barrier,
            state.idle + 1 if hardly else 0,
            0.0,
        )
        return Step(moved, known, 0.0)

    def output(self, state: InteriorPointState) -> Array:
        """Return the last point."""
        return state.point

    def last(self, state: InteriorPointState) -> Array:
        """Return the last point."""
        return state.point
