"""Stochastic runs on linear models whose steps are done many at a time, in compiled code.

`compiled_twin` returns, for AcceleGrad or AdaGrad on minibatches of a linear model, a rule that
does the same steps up to rounding: O(nonzeros of the batch) per step on CSR data. One call does all
steps up to the next one at which the loop has something to do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from accelegrad import kernels
from accelegrad.errors import NonFiniteError, Vector
from accelegrad.geometry.sets import Ball
from accelegrad.models.linear_model import LinearModel
from accelegrad.models.squares import row_squares
from accelegrad.rules import AcceleGrad, AdaGrad
from accelegrad.rules.base import Rule, Step
from accelegrad.run.oracle import QUIET, Evaluation

if TYPE_CHECKING:
    from accelegrad.kernels.epochs import Epochs

#: Entries of X that a call reads at most: some milliseconds, so that Ctrl-C and time limits work
CHUNK_ENTRIES = 1 << 21
#: With fewer rows and fewer entries, loading Numba would take longer than what it saves.
LEAST_ROWS, LEAST_ENTRIES = 5_000, 1 << 18


class CompiledState:
    """What the loop sees of a state that compiled code changes in place."""

    def __init__(self, epochs: Epochs) -> None:
        self.epochs = epochs

    @property
    def iteration(self) -> int:
        """How many steps were done."""
        return self.epochs.iteration

    @property
    def step_size(self) -> float:
        """The last step's size."""
        return self.epochs.step_size

    def state(self) -> dict[str, Any]:
        """Return all that has to be kept to go on."""
        return self.epochs.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.epochs.restore(state)


class CompiledRule(Rule):
    """The compiled twin of a rule on minibatches of a linear model.

    Parameters
    ----------
    rule : AcceleGrad or AdaGrad
        The rule, projecting onto a ball around its start at most.
    model : LinearModel
        Where the rows come from.
    values : bool
        Whether steps, one at a time then, also compute the value of their batch.
    """

    def __init__(
        self, rule: AcceleGrad | AdaGrad, model: LinearModel, *, values: bool = False
    ) -> None:
        self.rule, self.can = rule, rule.can
        self.title = rule.title  # type: ignore[misc]
        self.model, self.values = model, values
        X: Any = model.X
        entries = X.size if isinstance(X, np.ndarray) else X.nnz
        self._rows_at_once = max(1, CHUNK_ENTRIES * model.n_samples // max(entries, 1))

    def init(self, x0: Vector) -> CompiledState:
        """Return the state before the first step."""
        from accelegrad.kernels.dense_epochs import DenseEpochs
        from accelegrad.kernels.sparse_coupled import SparseEpochs

        rule, model, ball = self.rule, self.model, _ball_of(self.rule)
        settings: dict[str, Any] = {
            "l2": model.l2,
            "fit_intercept": model.fit_intercept,
            "diameter": rule.diameter,
            "ball_radius": math.inf if ball is None else ball.radius,
        }
        kind = "adagrad"
        if isinstance(rule, AcceleGrad):
            kind, settings["gradient_bound"] = "accelegrad", rule.gradient_bound
        data = model.kernel_data()
        if len(data.matrix) == 1:
            return CompiledState(DenseEpochs(kind, data, x0, **settings))
        squares = row_squares(model.X)
        return CompiledState(SparseEpochs(kind, data, x0, squares=squares, **settings))

    def step(self, state: CompiledState, oracle: Any) -> Step:
        """Do one step."""
        return self.advance(state, oracle, 1)

    def advance(self, state: CompiledState, oracle: Any, most: int) -> Step:
        """Do up to `most` steps in one compiled call."""
        sampler = oracle.sampler
        most = max(1, min(most, self._rows_at_once // sampler.batch_size))
        rows = sampler.next_batches(most)
        batches = -(-rows.size // sampler.batch_size)
        seen = self._seen(state, rows) if self.values and batches == 1 else None
        done = state.epochs.advance(rows, sampler.batch_size)
        oracle.count(batches, rows.size)
        if done < batches:
            raise NonFiniteError("the gradient of a batch is not finite")
        evaluation = Evaluation(self.last(state), math.nan) if seen is None else seen
        return Step(state, evaluation, 1.0, done)

    def _seen(self, state: CompiledState, rows: Any) -> Evaluation:
        """Return the value of a batch where its gradient is taken."""
        point = state.epochs.query()
        with np.errstate(**QUIET):
            return Evaluation(point, self.model.batch_value_and_gradient(point, rows)[0])

    def output(self, state: CompiledState) -> Vector:
        """Return the average that the rule's theorem speaks of."""
        return state.epochs.output()

    def last(self, state: CompiledState) -> Vector:
        """Return the last iterate."""
        return state.epochs.last()


def _ball_of(rule: Any) -> Ball | None:
    """Return the ball whose projection the rule uses."""
    ball = getattr(rule.project, "__self__", None)
    return ball if isinstance(ball, Ball) else None


def compiled_twin(rule: Rule, model: LinearModel, x0: Vector, *, values: bool = False) -> Rule:
    """Return the compiled twin of a rule where there is one and it pays, else the rule itself.

    There is one with no set but a ball around x0 for z; and on CSR rows from x0 = 0.
    """
    # A user's subclass may do other steps.
    if type(rule) not in (AcceleGrad, AdaGrad) or not _pays(model):
        return rule
    assert isinstance(rule, (AcceleGrad, AdaGrad))
    if not isinstance(model.X, np.ndarray) and x0.any():
        return rule
    if rule.project is not None:
        ball = _ball_of(rule)
        if getattr(rule, "project_y", False) or ball is None:
            return rule
        if not np.array_equal(ball.center, x0):
            return rule
    return CompiledRule(rule, model, values=values)


def _pays(model: LinearModel) -> bool:
    def pays(matrix: kernels.Readable) -> bool:
        return model.n_samples >= LEAST_ROWS or matrix.entries >= LEAST_ENTRIES

    return kernels.wanted(kernels.readable(model.X), pays)
