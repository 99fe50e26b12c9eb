"""`partial_fit`: a rule that goes on from one chunk of a stream to the next.

Two things are read off the first rows of a stream, and stay: the columns' scales and the first
radius. A single row says too little about either, so the first `FIRST_CHUNK` rows count as one
chunk, however they come. And a step from a single row would weigh as much as one from a whole
batch, so rows wait until they fill a batch. Waiting rows are kept, and each call learns from all of
them afresh: the points it gives to predict with have seen every row.

A stream that begins at coefficients which were learnt from n rows, by `fit` or by a stream with
other parameters, gives them the weight of n rows: see `with_past_rows`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from accelegrad import kernels
from accelegrad.choose import Space
from accelegrad.errors import Vector
from accelegrad.kernels.loss_shape import Shape
from accelegrad.models.matrix import RowNumbers
from accelegrad.models.model_input import check_places, row_shares
from accelegrad.models.multinomial import MultinomialModel
from accelegrad.models.scaling import ColumnScaling, column_scaling
from accelegrad.rules import DistanceFreeAcceleGrad, Rescaled, Rule
from accelegrad.rules.base import KnownEvaluation, State
from accelegrad.rules.distance import smallest_radius
from accelegrad.rules.schedules import importance_weight
from accelegrad.run.oracle import QUIET
from accelegrad.setting import stream_rule
from accelegrad.sklearn.data import Data, joined
from accelegrad.sklearn.objective import Problem

BATCH = 16  # rows per step by default, as `batch_size` documents
# The first rows of a stream count as one chunk, until there are this many. With 100 rows a stream
# of the digits in `tests/estimators/test_sklearn_streams.py` gets 75 % right, with 300 93 %.
FIRST_CHUNK = 300
# Coefficients count for at most this many steps: it bounds the time that it takes to sum up
# the weights of these steps. Chosen, not measured.
MOST_STEPS = 10**6
# Different scales of sparse columns: neighbours differ by a factor of 2 where the scales span a
# factor of 128. A step's numbers are computed for each of them. Chosen.
MOST_SCALES = 8


class StreamState(NamedTuple):
    """What goes on from chunk to chunk: a rule's state for each problem, in fixed coordinates."""

    meaning: tuple[Any, ...]  # the parameters that all the rest depends on
    starts: tuple[Vector, ...]  # where the stream began; empty while that depends on waiting rows
    rows: float  # so far, with those that the first coefficients were learnt from
    weight: float  # of all of them
    # Before the waiting rows: a tuple, empty before the first step, or a `SparseSteps` for all.
    states: Any = ()
    change: ColumnScaling | None = None  # the coordinates, from the first rows
    waiting: Data | None = None  # rows that are too few for the first chunk, or for a batch
    target_scale: float | None = None  # of a regression; None until the first chunk is complete


class Learnt(NamedTuple):
    """What the next rows of a stream lead to."""

    stream: StreamState
    rows: float
    weight: float
    problems: Callable[[], list[Problem]]
    rules: Callable[[], list[Rule]]
    states: Any

    @property
    def iteration(self) -> int:
        """How many steps were done."""
        first = self.states[0] if isinstance(self.states, tuple) else self.states
        return int(first.iteration)

    def points(self, *, last: bool) -> list[Vector]:
        """Return the points to predict with: averages, or the last iterates."""
        return [
            problem.nearest(rule.last(state) if last else rule.output(state))
            for rule, state, problem in zip(self.rules(), self.states, self.problems(), strict=True)
        ]

    def coefficients(self, *, last: bool) -> tuple[Vector, Vector] | None:
        """Return the weights and intercepts of a `SparseSteps`, which has no points; else None."""
        if isinstance(self.states, tuple):
            return None
        found: tuple[Vector, Vector] = self.states.coefficients(last=last)
        return found


def learn(
    stream: StreamState,
    data: Data,
    problems_of: Callable[[Data], list[Problem]],
    targets_of: Callable[[Data], tuple[Sequence[Vector], Shape]],
    *,
    diameter: float | str,
    batch_size: int,
    seed: int,
) -> Learnt:
    """Learn from the next rows of a stream.

    Parameters
    ----------
    stream : StreamState
        The stream so far.
    data : Data
        The rows, all of which have weight.
    problems_of : callable
        The problems of some rows.
    targets_of : callable
        The targets of these problems, and their loss.
    diameter : float or "auto"
        The rule's `diameter`.
    batch_size : int
        Rows per step.
    seed : int
        For the order of the rows.
    """
    before = stream.waiting
    data = data if before is None else joined(before, data)
    # A `SparseSteps` that goes on needs neither problems nor rules, which take time to make.
    problems = cache(lambda: problems_of(data))
    rows, weight = stream.rows + data.y.size, stream.weight + data.weight
    rng = np.random.default_rng([seed, int(stream.rows)])
    share = data.weight / data.y.size / (weight / rows)
    batches = Batches.of(rng.permutation(data.y.size), batch_size)
    oracles = cache(lambda: [ChunkOracle(problem, batches, share) for problem in problems()])
    starts = stream.starts or tuple(problem.start() for problem in problems())
    change = stream.change if stream.states else first_change(problems()[0], diameter)
    rules = cache(
        lambda: [
            rule_for(problem, diameter, start, change)
            for problem, start in zip(problems(), starts, strict=True)
        ]
    )
    states = stream.states or tuple(
        with_past_rows(rule.init(start), start, oracle, change, stream.rows)
        for rule, start, oracle in zip(rules(), starts, oracles(), strict=True)
    )
    first = not stream.states and isinstance(diameter, str)
    waits = data.y.size < (max(FIRST_CHUNK, batch_size) if first else batch_size)
    if waits and not isinstance(states, tuple):  # it is changed, and the rows are used again
        states = deepcopy(states)
    matrix = kernels.readable(data.X) if sp.issparse(data.X) else None
    compiled = kernels.wanted(
        # whether the stream has had so many entries that compiling pays, by its chunk
        matrix,
        lambda known: known.entries * rows >= kernels.FEW_ENTRIES * data.y.size,
    )
    chunk = partial(_chunk, data, targets_of, share) if compiled else None
    moved = after_chunk(rules, states, oracles, batches, chunk)
    if waits:
        # Copied: a caller may use these arrays again.
        after = stream._replace(waiting=joined(data) if before is None else data)
    else:
        after = StreamState(stream.meaning, starts, rows, weight, moved, change)
    return Learnt(after, rows, weight, problems, rules, moved)


def with_past_rows(
    state: State, start: Vector, oracle: ChunkOracle, change: ColumnScaling | None, rows: float
) -> State:
    """Return the first state of a stream whose start was learnt from this many rows.

    It is as if the rule had done the steps for these rows and stayed where it is. So a new row
    counts as much as one of them, and one that is far off does no harm. The radius is about the
    standard error of the start: the norm of a row's gradient over the root of the number of rows,
    since in the rule's coordinates the curvature is about 1. It grows where the rows prove more.
    """
    if not rows:
        return state
    squares = oracle.mean_square(start, change)
    steps = min(int(np.ceil(rows * oracle.batches.number / oracle.n_rows)), MOST_STEPS)
    weights = importance_weight(np.arange(steps))
    total = float(weights.sum())
    x0 = state.query_point
    radius = 1.0
    if hasattr(state, "radius"):
        radius = max(float(np.sqrt(squares / steps)), smallest_radius(x0))
        state = state._replace(radius=radius)
    return state._replace(
        iteration=steps,
        weighted_squares=float(weights @ weights) * squares,
        weighted_sum=total * radius * x0,
        weight_sum=total * radius,
    )


class Batches(NamedTuple):
    """All rows of a chunk, in random order, and where each batch of them ends."""

    order: RowNumbers
    ends: RowNumbers

    @classmethod
    def of(cls, order: RowNumbers, batch_size: int) -> Batches:
        """Return batches of at most so many rows, of nearly the same size."""
        count = -(-order.size // batch_size)
        return cls(order, order.size * np.arange(1, count + 1) // count)

    @property
    def number(self) -> int:
        """How many there are."""
        return int(self.ends.size)

    def rows(self, batch: int) -> RowNumbers:
        """Return the rows of a batch."""
        return self.order[self.ends[batch - 1] if batch else 0 : self.ends[batch]]

    def rest(self, first: int) -> tuple[RowNumbers, RowNumbers]:
        """Return the rows from a batch on, in their order, and where each batch ends."""
        begin = self.ends[first - 1] if first else 0
        return self.order[begin:], self.ends[first:] - begin


class ChunkOracle:
    """The gradients of a chunk's batches, each row used once, in random order.

    Parameters
    ----------
    problem : Problem
        The chunk's rows, whose loss is averaged with weights that sum to 1.
    batches : Batches
        The rows of each step.
    share : float
        The mean weight of this chunk's rows relative to that of all rows so far.
    """

    def __init__(self, problem: Problem, batches: Batches, share: float) -> None:
        self.problem, self.batches, self.share = problem, batches, share
        self.n_rows = problem.model.n_samples
        self._next = 0
        self._halves: tuple[tuple[Any, float], tuple[Any, float]] | None = None

    def skip_to(self, batch: int) -> None:
        """Go on with this batch."""
        self._next = batch

    def __call__(self, point: Vector) -> KnownEvaluation:
        """Estimate value and gradient from the next batch."""
        rows = self.batches.rows(self._next)
        self._next += 1
        return self._at(point, rows)

    def _at(self, point: Vector, rows: RowNumbers) -> KnownEvaluation:
        with np.errstate(**QUIET):  # BLAS may raise flags for entries that are not there
            found = self.problem.model.batch_value_and_gradient(point, rows)
        return self._shared(point, self.share, *found)

    def _shared(
        self, point: Vector, share: float, value: float, gradient: Vector
    ) -> KnownEvaluation:
        """Return what rows with this share of the loss say, of which the l2 term has all."""
        rest = (1.0 - share) * self.problem.l2_slope(point)
        return KnownEvaluation(
            point, share * value + 0.5 * float(rest @ point), share * gradient + rest
        )

    def mean_square(self, point: Vector, change: ColumnScaling | None) -> float:
        """Return the mean squared norm of the batches' gradients, in changed coordinates."""
        gradients = (
            self._at(point, self.batches.rows(batch)).gradient
            for batch in range(self.batches.number)
        )
        changed = (g if change is None else change.adjoint(g) for g in gradients)
        return float(np.mean([g @ g for g in changed]))

    def frozen(self) -> tuple[Any, Any]:
        """Return oracles of two halves of the chunk, for the rule's probe.

        Their rows are copied once: it asks about many points.
        """
        if self._halves is None:
            order = self.batches.order
            middle = (order.size + 1) // 2
            self._halves = self._part(order[:middle]), self._part(order[-middle:])
        first, second = self._halves
        return partial(self._at_part, *first), partial(self._at_part, *second)

    def _part(self, rows: RowNumbers) -> tuple[Any, float]:
        """Return a model of some rows, whose weights sum to 1, and its share of the loss."""
        model = self.problem.model
        weight = float(self.problem.rows.shares[rows].sum()) * self.n_rows / rows.size
        return model.of_rows(rows, model.l2), self.share * weight

    def _at_part(self, part: Any, share: float, point: Vector) -> KnownEvaluation:
        with np.errstate(**QUIET):
            return self._shared(point, share, *part.value_and_gradient(point))


def first_change(problem: Problem, diameter: float | str) -> ColumnScaling | None:
    """Return coordinates in which the first chunk's columns are standardised, where possible.

    Sparse ones are not centred, and have few different scales: so the steps of
    `accelegrad.kernels.sparse_steps` take no longer than their rows are long.
    A column that the chunk says nothing about gets the median of the others' scales: it may be rare
    rather than small.
    """
    if not problem.can_be_scaled or not isinstance(diameter, str):
        return None
    model, rows = problem.model, problem.rows
    sparse = sp.issparse(rows.X)
    found = column_scaling(rows, center=not sparse)
    seen = np.asarray(abs(rows.X).sum(axis=0)).ravel() > 0.0
    typical = float(np.median(found.scale[seen])) if seen.any() else 1.0
    scale = np.where(seen, found.scale, typical)
    n_classes = model.n_classes if isinstance(model, MultinomialModel) else 1
    return ColumnScaling(few_scales(scale) if sparse else scale, found.shift, n_classes)


def few_scales(scale: Vector) -> Vector:
    """Return scales of at most `MOST_SCALES` different sizes, each next to the one given."""
    least, largest = np.log2([scale.min(), scale.max()])
    step = max(1.0, float(largest - least) / (MOST_SCALES - 1))
    rounded: Vector = np.exp2(least + step * np.rint((np.log2(scale) - least) / step))
    return rounded


def rule_for(
    problem: Problem, diameter: float | str, start: Vector, change: ColumnScaling | None
) -> Rule:
    """Return the rule that `accelegrad.choose` has for streams, for this problem."""
    if problem.l1 > 0.0 and not isinstance(diameter, str):
        raise ValueError(
            "partial_fit with a penalty other than 'l2' needs diameter='auto', but diameter is "
            f"{diameter!r}."
        )
    return stream_rule(Space(start, problem.feasible_set, problem.penalty()), diameter, change)


def after_chunk(
    rules: Callable[[], list[Rule]],
    states: Any,
    oracles: Callable[[], list[ChunkOracle]],
    batches: Batches,
    chunk: Callable[[], Any] | None,
) -> Any:
    """Return the states after all batches of a chunk, with one step for each.

    `chunk` makes the rows that compiled steps take; it is None where those are not wanted. A
    `SparseSteps`, which stands for the states of all problems, is changed; a rule's own state is
    not.
    """
    done = 0
    if isinstance(states, tuple) and states[0].iteration == 0:  # the first looks for a radius
        states, done = _after_steps(rules(), states, oracles(), 0, 1), 1
    if chunk is not None and isinstance(states, tuple) and done < batches.number:
        states = _sparse_stream(rules()[0], states, oracles()[0].problem)
    if chunk is not None and not isinstance(states, tuple):
        done += states.advance(chunk(), *batches.rest(done))
    if done == batches.number:
        return states
    if not isinstance(states, tuple):
        states = tuple(states.states())
    return _after_steps(rules(), states, oracles(), done, batches.number)


def _after_steps(
    rules: list[Rule], states: tuple[State, ...], oracles: list[ChunkOracle], first: int, end: int
) -> tuple[State, ...]:
    """Return the states after some of the batches, by the rules' own steps."""
    after = []
    for rule, state, oracle in zip(rules, states, oracles, strict=True):
        oracle.skip_to(first)
        for _ in range(first, end):
            state = rule.step(state, oracle).state
        after.append(state)
    return tuple(after)


def _sparse_stream(rule: Rule, states: Any, problem: Problem) -> Any:
    """Return the states for compiled steps, or as they are where there are none.

    There are some without a set or a term, in coordinates with few scales and no shift.
    """
    inner: Any = rule.rule if isinstance(rule, Rescaled) else rule
    bound = ("project", "prox", "largest_radius")
    if not isinstance(inner, DistanceFreeAcceleGrad) or any(
        getattr(inner, name) is not None for name in bound
    ):
        return states
    model, scale = problem.model, np.ones(problem.rows.n_features)
    if isinstance(rule, Rescaled):
        scale = rule.change.scale
        if rule.change.shift.any() or np.unique(scale).size > MOST_SCALES:
            return states
    from accelegrad.kernels.sparse_steps import SparseSteps

    n_classes = model.n_classes if isinstance(model, MultinomialModel) else 1
    return SparseSteps.of_states(states, scale, model.l2, n_classes)


def _chunk(
    data: Data, targets_of: Callable[[Data], tuple[Sequence[Vector], Shape]], share: float
) -> Any:
    """Return the rows of a chunk as compiled steps take them."""
    from accelegrad.kernels import gradient
    from accelegrad.kernels.steps import Chunk

    check_places(data.X)  # kernels would read and write beyond the columns
    columns, loss = targets_of(data)
    targets = np.column_stack(columns).astype(np.float64, copy=False)
    weights = share * data.y.size * row_shares(data.weights, data.y.size)
    return Chunk(gradient.data(data.X, targets, None, loss), weights)
