"""Compiled stochastic runs on linear models, many steps per call.

For AcceleGrad (diameter given or automatic) or AdaGrad on minibatches of a linear model,
`compiled_twin` returns a rule that does the same steps up to rounding: O(nonzeros of the batch) per
step on CSR data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from accelegrad import kernels
from accelegrad.errors import NonFiniteError, Vector
from accelegrad.geometry.sets import Ball
from accelegrad.models.linear_model import LinearModel
from accelegrad.models.scaling import ColumnScaling
from accelegrad.rules import AcceleGrad, AdaGrad, DistanceFreeAcceleGrad, Rescaled
from accelegrad.rules.base import Rule, Step
from accelegrad.rules.rescaled import ChangedOracle
from accelegrad.run.oracle import QUIET, Evaluation

if TYPE_CHECKING:
    from accelegrad.kernels.dense_steps import DenseSteps
    from accelegrad.kernels.sparse_steps import SparseSteps
    from accelegrad.kernels.steps import Chunk

    Steps: TypeAlias = DenseSteps | SparseSteps

#: Most entries of X that a call reads: some milliseconds, so that Ctrl-C and time limits work
CHUNK_ENTRIES = 1 << 21
#: With fewer rows and entries, loading Numba would take longer than it saves.
LEAST_ROWS, LEAST_ENTRIES = 5_000, 1 << 18
#: Compiled rules: the kernels' name for each, and the parameters passed to them
TWINS: Mapping[type[Rule], tuple[str, tuple[str, ...]]] = {
    AcceleGrad: ("accelegrad", ("diameter", "gradient_bound")),
    AdaGrad: ("adagrad", ("diameter",)),
    DistanceFreeAcceleGrad: ("distance_free", ("largest_radius",)),
}


class CompiledRule(Rule):
    """The compiled twin of a rule on minibatches of a linear model.

    The rule may project onto a ball around its start; it may be rescaled on dense rows only. With
    `values`, single steps also compute the value of their batch.
    """

    def __init__(self, rule: Rule, model: LinearModel, *, values: bool = False) -> None:
        self.rule, self.change = _parts(rule)
        self.can = self.rule.can
        self.title = self.rule.title  # type: ignore[misc]
        self.model, self.values = model, values
        X: Any = model.X
        entries = X.size if isinstance(X, np.ndarray) else X.nnz
        self._rows_at_once = max(1, CHUNK_ENTRIES * model.n_samples // max(entries, 1))

    def init(self, x0: Vector) -> Steps:
        """Return the state before the first step, in the rule's coordinates."""
        from accelegrad.kernels.dense_steps import DenseSteps
        from accelegrad.kernels.sparse_steps import SparseSteps
        from accelegrad.kernels.steps import Settings

        rule, model, change, ball = self.rule, self.model, self.change, _ball_of(self.rule)
        kind, parameters = TWINS[type(rule)]
        start = x0 if change is None else change.invert(x0)
        given: dict[str, Any] = {name: getattr(rule, name) for name in parameters}
        given["ball_radius"] = None if ball is None else ball.radius
        if "radius" in self.can:
            given["initial_radius"] = rule.init(start).radius
        settings = Settings(kind, **{name: n for name, n in given.items() if n is not None})
        terms: dict[str, Any] = {"l2": model.l2, "fit_intercept": model.fit_intercept}
        if not isinstance(model.X, np.ndarray):
            return SparseSteps(settings, [start], **terms)
        if change is not None:
            terms["change"] = change.scale, change.shift
        return DenseSteps(settings, start, **terms)

    @cached_property
    def _chunk(self) -> Chunk:
        from accelegrad.kernels.steps import Chunk

        data, n = self.model.kernel_data(), self.model.n_samples
        return Chunk(data, n * data.shares if data.shares.size else np.ones(n))

    def step(self, state: Steps, oracle: Any) -> Step:
        """Do one step."""
        return self.advance(state, oracle, 1)

    def advance(self, state: Steps, oracle: Any, most: int) -> Step:
        """Do up to `most` steps in one compiled call, the first after the rule's probe."""
        if state.iteration == 0 and "radius" in self.can:
            seen = oracle if self.change is None else ChangedOracle(oracle, self.change)
            found, _ = self.rule.prepared(self.rule.init(state.start), seen)
            state.numbers["radius"] = float(found.radius)
        sampler = oracle.sampler
        most = max(1, min(most, self._rows_at_once // sampler.batch_size))
        rows = sampler.next_batches(most)
        batches = -(-rows.size // sampler.batch_size)
        evaluation = None
        if self.values and batches == 1:  # the value of the batch where its gradient is taken
            point = self._unscaled(state.query())
            with np.errstate(**QUIET):
                value, _ = self.model.batch_value_and_gradient(point, rows)
            evaluation = Evaluation(point, value)
        ends = np.minimum(sampler.batch_size * np.arange(1, batches + 1), rows.size)
        done = state.advance(self._chunk, rows, ends)
        oracle.count(batches, rows.size)
        if done < batches:
            raise NonFiniteError("the gradient of a batch is not finite")
        return Step(state, evaluation or Evaluation(self.last(state), math.nan), 1.0, done)

    def output(self, state: Steps) -> Vector:
        """Return the average that the rule's theorem is about."""
        return self._unscaled(state.output())

    def last(self, state: Steps) -> Vector:
        """Return the last iterate."""
        return self._unscaled(state.last())

    def _unscaled(self, point: Vector) -> Vector:
        return point if self.change is None else self.change.apply(point)


def _parts(rule: Rule) -> tuple[Rule, ColumnScaling | None]:
    if isinstance(rule, Rescaled) and isinstance(rule.change, ColumnScaling):
        return rule.rule, rule.change
    return rule, None


def _ball_of(rule: Any) -> Ball | None:
    ball = getattr(rule.project, "__self__", None)
    return ball if isinstance(ball, Ball) else None


def compiled_twin(rule: Rule, model: LinearModel, x0: Vector, *, values: bool = False) -> Rule:
    """Return the compiled twin of a rule if there is one and it pays, else the rule itself.

    There is one if z is limited by nothing but a ball around x0 and, on CSR rows, if the
    coordinates are not scaled.
    """
    inner, change = _parts(rule)
    if change is not None and not isinstance(model.X, np.ndarray):
        return rule  # shifted columns are not sparse

    def pays(matrix: kernels.Readable) -> bool:
        return model.n_samples >= LEAST_ROWS or matrix.entries >= LEAST_ENTRIES

    start = x0 if change is None else change.invert(x0)
    if not (kernels.wanted(kernels.readable(model.X), pays) and _has_twin(inner, start)):
        return rule
    return CompiledRule(rule, model, values=values)


def _has_twin(rule: Any, x0: Vector) -> bool:
    if type(rule) not in TWINS:  # a user's subclass may do other steps
        return False
    if isinstance(rule, DistanceFreeAcceleGrad):
        return rule.project is None and rule.prox is None
    if rule.project is None:
        return True
    ball = _ball_of(rule)
    projects_y = getattr(rule, "project_y", False)
    return ball is not None and not projects_y and np.array_equal(ball.center, x0)
