"""A linear model as a finite sum: epochs of batches for the variance-reduced rule."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from accelegrad import kernels
from accelegrad.errors import Vector, whole_number
from accelegrad.problems.linear_model import Evaluation as ModelEvaluation
from accelegrad.problems.linear_model import LinearModel
from accelegrad.problems.squares import row_squares
from accelegrad.rows.variance_reduced import Epoch, VarianceReducedAcceleGrad
from accelegrad.run.oracle import QUIET, Evaluation, ModelOracle

#: Rows in a batch: fewer cost more time a row, more cost more epochs (measured).
BATCH_SIZE = 8


class FiniteSumOracle(ModelOracle):
    """A linear model's objective, and epochs of steps on batches of its rows.

    An epoch goes through all rows in a new random order; `njev` counts it as one gradient more.
    It is compiled for dense data in C order and for CSR data; see `accelegrad.kernels`.

    Parameters
    ----------
    model : LinearModel
        The model; its loss has to be smooth.
    rng : numpy.random.Generator
        Where the order of the rows comes from.
    batch_size : int, optional
        Rows in a batch.
    """

    def __init__(
        self, model: LinearModel, rng: np.random.Generator, batch_size: int | None = None
    ) -> None:
        super().__init__(model)
        if not math.isfinite(model.loss.curvature):
            raise ValueError(
                f"model must have a smooth loss, but it has {model.loss!r}; smoothed(mu) makes a "
                "smooth model of it."
            )
        size = BATCH_SIZE if batch_size is None else whole_number("batch_size", batch_size, least=1)
        self.rng, self.batch_size = rng, min(size, model.n_samples)
        self._largest_row: float | None = None
        self._room: Vector | None = None
        self._stage: ModelEvaluation | None = None  # where the stage began

    #: it is always the same sum
    changed = False

    @property
    def lowest(self) -> Evaluation | None:
        """What is known at the lowest point evaluated so far."""
        return self.best

    def original(self, evaluation: Evaluation) -> Evaluation:
        """Return the evaluation: the sum is what is minimised."""
        return evaluation

    def beside(self, model: LinearModel) -> FiniteSumOracle:
        """Return the oracle of a model of the same data with another loss, which knows the data."""
        other = FiniteSumOracle(model, self.rng, self.batch_size)
        for name in ("_largest_row", "_room", "_stage"):
            setattr(other, name, getattr(self, name))
        return other

    @property
    def n_batches(self) -> int:
        """How many batches an epoch has."""
        return -(-self.model.n_samples // self.batch_size)

    @property
    def strong_convexity(self) -> float:
        """The l2 term's weight; 0 with an intercept, which has no l2 term."""
        return 0.0 if self.model.fit_intercept else self.model.l2

    @property
    def smoothness(self) -> float:
        """The largest curvature of a row's loss, with the l2 term."""
        model = self.model
        if self._largest_row is None:
            weight = model.n_samples * float(model.shares.max())
            self._largest_row = weight * (float(row_squares(model.X).max()) + model.fit_intercept)
        return model.loss.curvature * self._largest_row + model.l2

    def epoch(self, rule: VarianceReducedAcceleGrad, epoch: Epoch, anchor: Evaluation) -> Epoch:
        """Do a step on each batch of rows, in a new random order."""
        order = self.rng.permutation(self.model.n_samples)
        self.njev += 1
        if epoch.start is anchor.point:
            self._stage = anchor.model
        with np.errstate(**QUIET):
            if kernels.wanted_for_rows(kernels.readable(self.model.X)):
                return self._compiled_epoch(epoch, anchor, order)
            for first in range(0, order.size, self.batch_size):
                rows = order[first : first + self.batch_size]
                difference = self.difference(rule.query(epoch), anchor, rows)
                epoch = rule.batch_step(epoch, difference + epoch.full_gradient)
        return epoch

    def difference(self, point: Vector, anchor: Evaluation, rows: Any) -> Vector:
        """Return how the gradient of a batch differs at a point and at the anchor."""
        model, d = self.model, self.model.n_features
        block = model.block(rows)
        margins = block.margins(point[:d])
        if model.fit_intercept:
            margins += point[-1]
        slopes = (
            model.loss.derivative(margins, model.y[rows]) - self._known(anchor).derivatives[rows]
        )
        factors = slopes * model.shares[rows] * (model.n_samples / rows.size)
        change = model.l2 * (point - anchor.point)
        block.add_combination(factors, change[:d])
        if model.fit_intercept:
            change[-1] = factors.sum()
        return change

    def _margins_at(self, start: Vector) -> Vector:
        """Return the margins where the stage began, which were computed as those of an anchor."""
        if self._stage is None or not np.array_equal(self._stage.w, start):
            self._stage = self.model.evaluate(start)
        return self._stage.margins

    def _compiled_epoch(self, epoch: Epoch, anchor: Evaluation, order: Any) -> Epoch:
        from accelegrad.kernels import variance_reduced as dense
        from accelegrad.kernels import variance_reduced_sparse as sparse
        from accelegrad.kernels.arrays import read_only

        data, known = self.model.kernel_data(), self._known(anchor)
        by_row = known.derivatives, known.margins, known.margins - self._margins_at(epoch.start)
        given = dense.Sum(data.y, data.shares, data.loss, *(read_only(part) for part in by_row))
        fixed = [read_only(point) for point in (epoch.anchor, epoch.full_gradient, epoch.start)]
        path = dense.Path._make([*fixed, epoch.mirror_point.copy(), np.zeros_like(epoch.anchor)])
        numbers = np.zeros(1, dense.NUMBERS)
        for name in dense.NUMBERS.names or ():
            numbers[name] = self.model.l2 if name == "l2" else getattr(epoch, name)
        if len(data.matrix) == 1:
            dense.run_dense(numbers, data.matrix[0], given, path, order, self.batch_size)
        else:
            if self._room is None:
                self._room = sparse.room(self.model.n_features)
            arrays = (data.matrix, given, path, self._room, order)
            sparse.run_sparse(numbers, *arrays, self.batch_size)
        changed = {
            name: numbers[name].item() for name in ("radius", "squares", "step_size", "done")
        }
        return epoch._replace(mirror_point=path.mirror, point_sum=path.total, **changed)

    def state(self) -> dict[str, Any]:
        """Return all that has to be kept to go on."""
        return {**super().state(), "rng": dict(self.rng.bit_generator.state)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        super().restore(state)
        self.rng.bit_generator.state = state["rng"]
