"""`partial_fit`: a rule that goes on from one chunk of a stream to the next."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from accelegrad.errors import Vector
from accelegrad.problems.multinomial import MultinomialModel, ScaledClasses
from accelegrad.problems.sampling import Rows
from accelegrad.problems.scaling import ColumnScaling, column_scaling
from accelegrad.problems.sets import Ball
from accelegrad.rules import AcceleGrad, DistanceFreeAcceleGrad, Rescaled, Rule
from accelegrad.rules.base import KnownEvaluation, State
from accelegrad.sklearn.objective import Change, Problem

BATCH = 16  # rows a step where nothing is said


class StreamState(NamedTuple):
    """What goes on from chunk to chunk: a rule's state a problem, in coordinates that stay."""

    starts: tuple[Vector, ...]  # where the stream began
    states: tuple[State, ...]
    change: Change | None  # the coordinates, from the first chunk
    rows: float  # so far
    weight: float  # of all of them

    def mean_weight(self) -> float:
        """Return the mean weight of the rows so far."""
        return self.weight / self.rows if self.rows else 1.0


class ChunkOracle:
    """The gradients of a chunk's batches, each row used once, in random order.

    Parameters
    ----------
    problem : Problem
        The chunk's rows, whose loss is averaged with weights that sum to 1.
    batch_size : int
        Rows a step.
    rng : Generator
        For the order.
    share : float
        The mean weight of this chunk's rows relative to that of all rows so far.
    """

    def __init__(
        self, problem: Problem, batch_size: int, rng: np.random.Generator, share: float
    ) -> None:
        self.problem, self.share = problem, share
        order = rng.permutation(problem.model.n_samples)
        self.batches = np.array_split(order, -(-order.size // batch_size))
        self._order = order
        self._next = 0

    def __call__(self, point: Vector) -> KnownEvaluation:
        """Estimate value and gradient from the next batch."""
        rows = self.batches[self._next]
        self._next += 1
        return self._at(point, rows)

    def _at(self, point: Vector, rows: Rows) -> KnownEvaluation:
        value, gradient = self.problem.model.batch_value_and_gradient(point, rows)
        # The share is of the loss alone: what it does to the l2 term is taken back.
        rest = (1.0 - self.share) * self.problem.l2_slope(point)
        return KnownEvaluation(
            point,
            self.share * value + 0.5 * float(rest @ point),
            self.share * gradient + rest,
        )

    def frozen(self) -> tuple[Any, Any]:
        """Return two halves of the chunk, for the rule's probe."""
        middle = (self._order.size + 1) // 2
        return (
            lambda point: self._at(point, self._order[:middle]),
            lambda point: self._at(point, self._order[-middle:]),
        )


def first_change(problem: Problem, diameter: float | str) -> Change | None:
    """Return coordinates in which the first chunk's columns are standardised, where possible.

    A column that the chunk says nothing about gets the median of the others' scales: it may be rare
    rather than small.
    """
    if not problem.can_be_scaled or not isinstance(diameter, str):
        return None
    model = problem.model
    rows = model.rows if isinstance(model, MultinomialModel) else model
    found = column_scaling(rows)
    seen = np.asarray(abs(rows.X).sum(axis=0)).ravel() > 0.0
    typical = float(np.median(found.scale[seen])) if seen.any() else 1.0
    change = ColumnScaling(np.where(seen, found.scale, typical), found.shift)
    if isinstance(model, MultinomialModel):
        return ScaledClasses(change, model.n_classes)
    return change


def rule_for(problem: Problem, diameter: float | str, start: Vector, change: Change | None) -> Rule:
    """Return AcceleGrad, with an automatic diameter or the one given."""
    scale = None if change is None else change.scale
    chosen = problem.scaled_set(scale)
    project = None if chosen is None else chosen.project
    if isinstance(diameter, str):
        penalty = problem.penalty(scale)
        prox = None if penalty is None else penalty.prox
        rule = DistanceFreeAcceleGrad(probe=True, project=project, prox=prox)
        return rule if change is None else Rescaled(rule, change)
    if problem.l1 > 0.0:
        raise ValueError(
            "partial_fit with a penalty other than 'l2' needs diameter='auto', but diameter is "
            f"{diameter!r}."
        )
    ball = Ball(start, diameter / 2).project
    return AcceleGrad(diameter, project=project or ball, project_y=project is not None)


def advanced(rule: Rule, state: State, oracle: ChunkOracle) -> State:
    """Return the state after all batches of a chunk, a step each."""
    for _ in oracle.batches:
        state = rule.step(state, oracle).state
    return state
