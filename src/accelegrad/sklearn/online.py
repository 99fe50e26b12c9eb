"""`partial_fit`: a rule that continues from one chunk of a stream to the next.

The column scales and the first radius are estimated from the first `FIRST_CHUNK` samples, which
form one chunk even if they arrive one by one. Later samples wait until they fill a batch. Each call
also learns from all waiting samples, on a copy, so predictions have seen every sample.

Coefficients learnt from n earlier samples get the weight of n samples: see `with_past_rows`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from accelegrad import kernels
from accelegrad.choose import Space, stream_rule
from accelegrad.errors import Vector
from accelegrad.kernels.loss_shape import Shape
from accelegrad.models.matrix import RowNumbers, check_places, row_shares
from accelegrad.models.multinomial import softmax
from accelegrad.models.scaling import ColumnScaling, can_scale, column_scaling
from accelegrad.rules import DistanceFreeAcceleGrad, Rescaled, Rule
from accelegrad.rules.accelegrad import importance_weight
from accelegrad.rules.base import KnownEvaluation, State
from accelegrad.rules.distance import smallest_radius
from accelegrad.run.oracle import QUIET
from accelegrad.sklearn.data import joined
from accelegrad.sklearn.objective import Data, Problem

if TYPE_CHECKING:
    from accelegrad.kernels.steps import Chunk

BATCH = 16  # the default of `batch_size`
# Accuracy on the digits in tests/estimators/test_partial_fit.py: 75 % with 100, 93 % with 300.
FIRST_CHUNK = 300
# Earlier coefficients count for at most this many steps, which bounds the time to sum the weights
# of these steps. Chosen.
MOST_STEPS = 10**6
# Number of different scales of sparse columns, a factor of 2 apart if scales span a factor of 128.
# A step computes its numbers for each of them. Chosen.
MOST_SCALES = 8


class StreamState(NamedTuple):
    """What continues from chunk to chunk: the rules' states, in fixed coordinates."""

    meaning: tuple[Any, ...]  # the parameters on which the rest depends
    starts: tuple[Vector, ...]  # where the stream began; empty if that depends on waiting samples
    rows: float  # number of samples, with those of the first coefficients
    weight: float  # their total weight
    # Before the waiting samples: a tuple, empty before the first step, or one `SparseSteps`.
    states: Any = ()
    change: ColumnScaling | None = None  # the coordinates, from the first samples
    waiting: Data | None = None  # samples too few for the first chunk, or for a batch


class Learnt(NamedTuple):
    """The result of learning from the next samples of a stream."""

    stream: StreamState
    rows: float
    weight: float
    iteration: int  # the number of steps done
    # the points to predict with, one per problem; of a `SparseSteps`, weights and intercepts
    found: list[Vector] | tuple[Vector, Vector]


def learn(
    stream: StreamState,
    data: Data,
    problems_of: Callable[[Data], list[Problem]],
    targets_of: Callable[[Data], tuple[Sequence[Vector], Shape]],
    *,
    diameter: float | str,
    batch_size: int,
    seed: int,
    last: bool,
) -> Learnt:
    """Learn from the next samples of a stream, all of which have positive weight.

    `problems_of` returns the problems of some samples, `targets_of` their targets and loss. `seed`
    is for the order of the samples. `last` asks for the last iterates, not for averages.
    """
    before = stream.waiting
    data = data if before is None else joined(before, data)
    n = data.y.size
    new_weight = data.seen()[1]
    rows, weight = stream.rows + n, stream.weight + new_weight
    share = new_weight / n / (weight / rows)
    order = np.random.default_rng([seed, int(stream.rows)]).permutation(n)
    count = -(-n // batch_size)  # batches of nearly equal size
    ends = n * np.arange(1, count + 1) // count
    # Cached, because a `SparseSteps` needs neither problems nor rules, which take time to build.
    problems = cache(lambda: problems_of(data))
    oracles = cache(
        lambda: [ChunkOracle(each, np.split(order, ends[:-1]), share) for each in problems()]
    )
    starts = stream.starts or tuple(problem.start() for problem in problems())
    change = stream.change if stream.states else first_change(problems()[0], diameter)
    rules = cache(
        lambda: [
            rule_for(problem, diameter, start, change)
            for problem, start in zip(problems(), starts, strict=True)
        ]
    )
    matrix = kernels.readable(data.X) if sp.issparse(data.X) else None
    # whether compiling pays for the entries seen so far, in chunks of this size
    pays = kernels.wanted(matrix, lambda known: known.entries * rows >= kernels.FEW_ENTRIES * n)
    chunk = _chunk(data, *targets_of(data), share) if pays else None
    states = stream.states
    if chunk is not None and not states and not stream.starts:
        rule = rule_for(problems()[0], diameter, starts[0], change)
        states = _first_sparse(rule, problems()[0], starts, chunk, order)
    states = states or tuple(
        with_past_rows(rule.init(start), start, oracle, change, stream.rows)
        for rule, start, oracle in zip(rules(), starts, oracles(), strict=True)
    )
    first = not stream.states and isinstance(diameter, str)
    waits = n < (max(FIRST_CHUNK, batch_size) if first else batch_size)
    if waits and not isinstance(states, tuple):  # waiting samples are used again
        states = deepcopy(states)

    done = 0
    if isinstance(states, tuple) and states[0].iteration == 0:  # the first step probes for a radius
        states, done = _after_steps(rules(), states, oracles(), 0, 1), 1
    if chunk is not None and isinstance(states, tuple) and done < count:
        problem, scale = problems()[0], _sparse_scale(rules()[0], problems()[0])
        if scale is not None:
            from accelegrad.kernels.sparse_steps import SparseSteps

            states = SparseSteps.of_states(states, scale, problem.model.l2, problem.n_classes)
    if chunk is not None and not isinstance(states, tuple):
        begin = ends[done - 1] if done else 0
        done += states.advance(chunk, order[begin:], ends[done:] - begin)
    if done < count:
        if not isinstance(states, tuple):
            states = tuple(states.states())
        states = _after_steps(rules(), states, oracles(), done, count)

    if waits:
        # Copied, because a caller may reuse these arrays.
        after = stream._replace(waiting=joined(data) if before is None else data)
    else:
        after = StreamState(stream.meaning, starts, rows, weight, states, change)
    if not isinstance(states, tuple):
        found = states.coefficients(last=last)
        return Learnt(after, rows, weight, int(states.iteration), found)
    points = [
        problem.nearest(rule.last(state) if last else rule.output(state))
        for rule, state, problem in zip(rules(), states, problems(), strict=True)
    ]
    return Learnt(after, rows, weight, int(states[0].iteration), points)


def with_past_rows(
    state: State, start: Vector, oracle: ChunkOracle, change: ColumnScaling | None, rows: float
) -> State:
    """Return the first state of a stream whose start was learnt from `rows` samples.

    It is the state after the steps for these samples, if none of them had moved the iterate. So a
    new sample counts as much as an old one. The radius is about the standard error of the start:
    the norm of a sample's gradient over sqrt(rows), since in the rule's coordinates the curvature
    is about 1. The rule enlarges it later if necessary.
    """
    if not rows:
        return state
    squares = oracle.mean_square(start, change)
    steps = min(int(np.ceil(rows * len(oracle.batches) / oracle.n_rows)), MOST_STEPS)
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


class ChunkOracle:
    """The gradients of a chunk's batches.

    The weights of the problem's loss sum to 1; `share` is the mean weight of the chunk's samples
    relative to that of all samples so far.
    """

    def __init__(self, problem: Problem, batches: list[RowNumbers], share: float) -> None:
        self.problem, self.batches, self.share = problem, batches, share
        self.n_rows = problem.model.n_samples
        self.next = 0  # the next batch

    def __call__(self, point: Vector) -> KnownEvaluation:
        """Estimate value and gradient from the next batch."""
        self.next += 1
        batch = self.problem.model.batch_value_and_gradient
        return self._shared(self.share, batch, point, self.batches[self.next - 1])

    def _shared(
        self, share: float, evaluated: Callable[..., Any], point: Vector, *rows: RowNumbers
    ) -> KnownEvaluation:
        """Return the estimate with the loss multiplied by `share`, and the l2 term in full."""
        with np.errstate(**QUIET):  # BLAS may raise spurious flags
            value, gradient = evaluated(point, *rows)
        rest = (1.0 - share) * self.problem.model.l2 * point
        rest[self.problem.n_weights :] = 0.0  # the intercepts
        return KnownEvaluation(
            point, share * value + 0.5 * float(rest @ point), share * gradient + rest
        )

    def mean_square(self, point: Vector, change: ColumnScaling | None) -> float:
        """Return the mean squared norm of the batches' gradients, in coordinates of `change`."""
        self.next = 0
        gradients = (self(point).gradient for _ in self.batches)
        changed = (g if change is None else change.adjoint(g) for g in gradients)
        return float(np.mean([g @ g for g in changed]))

    def frozen(self) -> tuple[Any, Any]:
        """Return oracles of two halves of the chunk, for the rule's probe."""
        return self._halves

    @cached_property
    def _halves(self) -> tuple[Any, Any]:
        # The samples are copied once, because the probe evaluates many points.
        order = np.concatenate(self.batches)
        middle = (order.size + 1) // 2
        return self._half(order[:middle]), self._half(order[-middle:])

    def _half(self, rows: RowNumbers) -> Callable[[Vector], KnownEvaluation]:
        model = self.problem.model
        weight = float(self.problem.rows.shares[rows].sum()) * self.n_rows / rows.size
        part = model.of_rows(rows, model.l2)
        return partial(self._shared, self.share * weight, part.value_and_gradient)


def first_change(problem: Problem, diameter: float | str) -> ColumnScaling | None:
    """Return coordinates that standardise the first chunk's columns; None if not possible.

    Sparse columns are not centred and get few different scales, so that a step of
    `accelegrad.kernels.sparse_steps` takes time in proportion to its entries. A column without
    entries gets the median scale: it may be rare rather than small.
    """
    if not can_scale(None, problem.feasible_set) or not isinstance(diameter, str):
        return None
    rows = problem.rows
    sparse = sp.issparse(rows.X)
    found = column_scaling(rows, center=not sparse)
    seen = np.asarray(abs(rows.X).sum(axis=0)).ravel() > 0.0
    scale = np.where(seen, found.scale, np.median(found.scale[seen]) if seen.any() else 1.0)
    if sparse:
        least, largest = np.log2([scale.min(), scale.max()])
        step = max(1.0, float(largest - least) / (MOST_SCALES - 1))
        scale = np.exp2(least + step * np.rint((np.log2(scale) - least) / step))
    return ColumnScaling(scale, found.shift, problem.n_classes)


def rule_for(
    problem: Problem, diameter: float | str, start: Vector, change: ColumnScaling | None
) -> Rule:
    """Return the rule for streams, set up for this problem."""
    if problem.l1 > 0.0 and not isinstance(diameter, str):
        raise ValueError(
            "partial_fit with a penalty other than 'l2' needs diameter='auto', but diameter is "
            f"{diameter!r}."
        )
    return stream_rule(Space(start, problem.feasible_set, problem.penalty()), diameter, change)


def _after_steps(
    rules: list[Rule], states: tuple[State, ...], oracles: list[ChunkOracle], first: int, end: int
) -> tuple[State, ...]:
    after = []
    for rule, state, oracle in zip(rules, states, oracles, strict=True):
        oracle.next = first
        for _ in range(first, end):
            state = rule.step(state, oracle).state
        after.append(state)
    return tuple(after)


def _sparse_scale(rule: Rule, problem: Problem) -> Vector | None:
    """Return the scales for `SparseSteps`, or None if it does not have this rule's steps.

    It needs a rule without set and penalty, few scales and no shift.
    """
    inner: Any = rule.rule if isinstance(rule, Rescaled) else rule
    bound = ("project", "prox", "largest_radius")
    if not isinstance(inner, DistanceFreeAcceleGrad) or any(
        getattr(inner, name) is not None for name in bound
    ):
        return None
    if not isinstance(rule, Rescaled):
        return np.ones(problem.rows.n_features)
    scale: Vector = rule.change.scale
    rest = scale
    for _ in range(MOST_SCALES):  # several times as fast as sorting
        rest = rest[rest != rest[0]] if rest.size else rest
    return None if rest.size or rule.change.shift.any() else scale


@dataclass(frozen=True, eq=False)
class Line:
    """The objective of some samples along the slope of others, as an oracle for the rule's probe.

    The start has no weights but an intercept. Points have two coordinates: the first along the
    slope, the second the start's distance from zero.
    """

    losses: Callable[[Any], tuple[Vector, Any]]  # values and slopes, given the margins
    weights: Vector
    intercept: float
    length: float  # of the slope
    moves: Any  # the margins' changes per unit of length
    bending: float  # the second derivative of the l2 term

    def __call__(self, point: Vector) -> KnownEvaluation:
        """Evaluate on the samples that judge."""
        step = float(point[0])
        with np.errstate(**QUIET):
            values, slopes = self.losses(self.intercept + step * self.moves)
            slopes = (slopes * self.moves).reshape(self.weights.size, -1).sum(axis=1)
            slope = float(self.weights @ slopes) + step * self.bending
            value = float(self.weights @ values) + 0.5 * step**2 * self.bending
        return KnownEvaluation(point, value, np.array([slope, 0.0]))

    def frozen(self) -> tuple[Any, Any]:
        """Return oracles of the samples that guide, and of those that judge."""
        uphill = np.array([self.length, 0.0])
        return lambda point: KnownEvaluation(point, 0.0, uphill), self


def _lines(
    problem: Problem, starts: Sequence[Vector], scale: Vector, chunk: Chunk, order: RowNumbers
) -> list[Line]:
    """Return a line for each problem: half of the chunk guides, half judges.

    The products with the samples are computed for all problems at once.
    """
    (data, places, ends), y, several = chunk.data.matrix, chunk.data.y, problem.n_classes > 1
    n, d = y.shape[0], scale.size
    X = sp.csr_array((data, places.view(np.int32), ends.view(np.int32)), shape=(n, d))
    count = (n + 1) // 2
    guiding, judging = order[:count], order[-count:]
    intercepts = [float(start[-1]) if problem.rows.fit_intercept else 0.0 for start in starts]

    def losses(targets: Vector) -> Callable[[Any], Any]:
        if several:
            return partial(_softmax_losses, targets.astype(np.intp))
        return lambda margins: problem.rows.loss.value_and_derivative(margins, targets)

    shape = (count, problem.n_classes) if several else (count,)
    with np.errstate(**QUIET):
        slopes = [
            losses(y[guiding, g])(np.full(shape, b))[1].reshape(count, -1)
            for g, b in enumerate(intercepts)
        ]
        weighted = np.hstack(slopes) * (chunk.weights[guiding] / count)[:, None]
        moved = X[guiding].T @ weighted
        free = weighted.sum(axis=0) if problem.rows.fit_intercept else np.zeros(moved.shape[1])
        moved *= scale[:, None]
        squares = np.einsum("jk,jk->k", moved, moved) + free**2
        moved *= scale[:, None]
        bending = problem.model.l2 * np.einsum("jk,jk->k", moved, moved)
        moves = X[judging] @ moved + free
    weights = chunk.weights[judging] / count
    lines = []
    for g, intercept in enumerate(intercepts):
        own = slice(None) if several else g
        length = float(squares[own].sum()) ** 0.5
        unit = length if length > 0.0 else 1.0
        move, bend = moves[:, own] / unit, float(bending[own].sum()) / unit**2
        lines.append(Line(losses(y[judging, g]), weights, intercept, length, move, bend))
    return lines


def _softmax_losses(classes: RowNumbers, margins: Any) -> tuple[Vector, Any]:
    slopes, values = softmax(margins)
    own = np.arange(classes.size), classes
    slopes[own] -= 1.0
    return values - margins[own], slopes


def _first_sparse(
    rule: Any, problem: Problem, starts: Sequence[Vector], chunk: Chunk, order: RowNumbers
) -> Any:
    """Return a `SparseSteps` before its first step, with probed radii; () if there is none."""
    scale = _sparse_scale(rule, problem)
    if scale is None:
        return ()
    from accelegrad.kernels.sparse_steps import SparseSteps

    inner = rule.rule if isinstance(rule, Rescaled) else rule
    radii = []
    for line in _lines(problem, starts, scale, chunk, order):
        state = inner.init(np.array([0.0, line.intercept]))
        radii.append(inner.prepared(state, line)[0].radius)
    blank = inner.init(np.zeros(1))
    return SparseSteps.of_starts(blank, starts, radii, scale, problem.model.l2, problem.n_classes)


def _chunk(data: Data, targets: Sequence[Vector], loss: Shape, share: float) -> Chunk:
    from accelegrad.kernels import gradient
    from accelegrad.kernels.steps import Chunk

    check_places(data.X)  # kernels do not check column indices
    columns = np.column_stack(targets).astype(np.float64, copy=False)
    weights = share * data.y.size * row_shares(data.weights, data.y.size)
    return Chunk(gradient.data(data.X, columns, None, loss), weights)
