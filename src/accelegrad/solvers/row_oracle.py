"""The common base of the oracles of all row methods: a sum over rows, randomness and a goal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from accelegrad.errors import Vector
from accelegrad.models.linear_model import LinearModel, ModelPoint
from accelegrad.proofs.model_dual import LateBound
from accelegrad.run.oracle import QUIET, Evaluation, ModelOracle
from accelegrad.solvers.search import shorter_share

#: Maps the value at a point to the wanted gap, 0 for none.
Goal: TypeAlias = Callable[[float], float]


def no_goal(value: float) -> float:  # noqa: ARG001
    """Return 0: no gap is wanted."""
    return 0.0


class RowOracle(ModelOracle):
    """A sum over rows; `rng` gives samples, or the order of the rows."""

    saved = (*ModelOracle.saved, "rng")

    def __init__(
        self, model: LinearModel, rng: np.random.Generator, goal: Goal | None = None
    ) -> None:
        super().__init__(model)
        self.rng, self.goal = rng, no_goal if goal is None else goal

    def _late_bound(self, at: ModelPoint, smoothing: float = 0.0) -> LateBound:
        """Return the bound by the slopes at a point, for later; `smoothing` is their mu."""
        return LateBound(self.model, at.w, smoothing=smoothing, known=at)


class SmoothOracle(RowOracle):
    """A smooth sum over rows, which remembers its last two evaluations."""

    #: it is always the same sum: see `accelegrad.solvers.smoothing.SmoothedOracle`
    changed = False

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._latest: list[Evaluation] = []

    @property
    def sum(self) -> Any:
        """The smooth sum: this one."""
        return self

    def __call__(self, point: Vector) -> Evaluation:
        """Evaluate at the point."""
        return self._remembered(super().__call__(point))

    def seen(self, point: Vector, other: ModelPoint) -> Evaluation:
        """Evaluate from another sum over the same rows: no pass over them before the gradient."""
        with np.errstate(**QUIET):
            at = other.beside(self.model)
            value = at.value
        evaluation = Evaluation(point, value, late_gradient=self._late_gradient, model=at)
        return self._remembered(self._finish(evaluation))

    def _remembered(self, evaluation: Evaluation) -> Evaluation:
        self._latest = [*self._latest[-1:], evaluation]
        return evaluation

    def _evaluation(self, point: Vector) -> Evaluation:
        """Return what is known at a point, usually one of the last two evaluated."""
        for known in (*self._latest, self.best):
            if known is not None and known.point is point:
                return known
        if self.points == 0:
            return self(point)
        # It was already counted before the run was resumed.
        counts, evaluation = self.counts(), self(point)
        self.set_counts(counts)
        return evaluation

    def shorter(self, start: Vector, end: Vector, value: float, fall: float) -> float:
        """Return the share of the way between two points that lowers the value: no pass."""
        before, after = (self._known(self._evaluation(point)) for point in (start, end))

        def value_at(share: float) -> float:
            at = self.model.between(before, after, share)
            return at.value + (0.0 if self.penalty is None else self.penalty.value(at.w))

        with np.errstate(**QUIET):
            return shorter_share(value_at, value, fall)


def rows_in_memory(model: LinearModel) -> LinearModel:
    """Return the model with its rows in memory, or refuse."""
    rows = model.in_memory
    if rows is None:
        raise ValueError(
            "this method goes from row to row in random order, so that all rows have to be in "
            f"memory, but those of {model!r} are not: use method 'accelegrad-newton'."
        )
    return rows
