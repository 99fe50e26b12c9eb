"""Newton's method with the curvature of all rows: for smooth sums so small that a run costs more.

A step goes from w to w + d, where d solves the equations of second order at w. The slopes that are
foretold for w + d (`ModelPoint.slopes_at`) meet the optimality conditions there, whatever the step
leaves of the gradient. So they prove a gap that is smaller by an order than that of the slopes at
w + d itself, and a step or two sooner.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from accelegrad.errors import NonFiniteError, Vector
from accelegrad.models.linear_model import LinearModel, ModelPoint
from accelegrad.models.sampled_rows import ModelRows
from accelegrad.run.oracle import QUIET
from accelegrad.solvers.curvature import Costs, Factored, second_derivative_matrix
from accelegrad.solvers.newton import DESCENT, bolder, more_careful
from accelegrad.solvers.row_oracle import Goal

#: A matrix of second derivatives and its factors may take this many seconds, by the estimates of
#: `Costs`: for more or longer rows a sample's are faster (measured on 20 shapes: up to here it took
#: 0.2 to 0.9 of the time of a run, with twice as much up to 1.8).
MOST_STEP_SECONDS = 2.5e-3
#: What has not ended after so many steps goes on in a run. Separable classes take up to 50.
MOST_STEPS = 60
#: A bound is computed where half of Newton's squared decrement, about the gap before the step, is
#: at most this many times the gap that is wanted after it.
PROMISING = 10.0
#: A step this short that gains nothing means that rounding hides any further fall.
SHORTEST_STEP = 1e-8


class NewtonMinimum(NamedTuple):
    """What was found, and the lower bound that proves it to be good enough."""

    parameters: Vector
    value: float
    bound: float
    steps: int


class _Step(NamedTuple):
    """A step from a point to a trial, by the curvatures of the rows, with some caution."""

    start: ModelPoint
    trial: ModelPoint
    caution: float
    decrement: float  # squared

    def bound(self) -> float:
        """Return the lower bound by the slopes that the start foretells for the trial."""
        slopes = self.start.slopes_at(self.trial, self.caution)
        return float(self.start.model.dual.at_slopes(slopes))

    def taken(self) -> tuple[ModelPoint, bool] | None:
        """Return a point that is low enough, and whether it is the trial; None if there is none."""
        start, point, share = self.start, self.trial, 1.0
        while not point.value <= start.value - DESCENT * share * self.decrement:
            share *= 0.5
            if share < SHORTEST_STEP:
                return None
            point = start.model.between(start, self.trial, share)
        return point, share == 1.0


def serves(model: LinearModel) -> bool:
    """Return whether the method is the right one for a model without other terms.

    Least squares take one step, whatever the curvature costs: see `accelegrad.solvers.at_once`.
    """
    smooth = model.loss.curvature < np.inf and model.loss.name != "squared"
    if not (smooth and model.l2 > 0.0 and model.in_memory is not None):
        return False
    costs = Costs.of(model)
    return model.n_samples * costs.row + costs.factor <= MOST_STEP_SECONDS


def minimum(model: LinearModel, start: Vector, goal: Goal, most_steps: int) -> NewtonMinimum | None:
    """Return a minimum that is proved to be good enough; None where these steps do not find it.

    Parameters
    ----------
    model : LinearModel
        A model that this method `serves`.
    start : Vector
        The parameters to start from.
    goal : callable
        From the value at a point to the gap that is wanted there.
    most_steps : int
        How many steps to do at most.
    """
    with np.errstate(**QUIET):
        point, caution, bound = model.at(start), 1.0, 0.0
        for number in range(1, min(most_steps, MOST_STEPS) + 1):
            try:
                step = _next(point, caution)
            except NonFiniteError:
                return None
            x, value = step.trial.w, step.trial.value
            wanted = goal(value)
            if 0.5 * step.decrement <= PROMISING * wanted:
                bound = max(bound, step.bound())
                if value - bound <= wanted:
                    return NewtonMinimum(x, value, bound, number)
            taken = step.taken()
            if taken is None:
                return None
            point, whole = taken
            if not whole and point.value - bound <= goal(point.value):
                point = model.at(point.w)  # its margins are a mean of others, and rounded
                if point.value - bound <= goal(point.value):
                    return NewtonMinimum(point.w, point.value, bound, number)
            caution = bolder(caution) if whole else more_careful(caution)
    return None


def _next(point: ModelPoint, caution: float) -> _Step:
    """Return Newton's step from a point, by curvature that errs upwards with caution."""
    model, curvatures = point.model, point.curvatures(caution)
    rows = ModelRows(model, None, curvatures, int(np.count_nonzero(curvatures)))
    curvature = Factored(second_derivative_matrix(model, point, rows), 0.0, 0.0)
    direction = -curvature.solve(point.gradient)
    decrement = -float(point.gradient @ direction)
    return _Step(point, model.at(point.w + direction), caution, decrement)
