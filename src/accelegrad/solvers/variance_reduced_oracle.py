"""A linear model as a finite sum: epochs of batches for the variance-reduced rule."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np

from accelegrad import kernels
from accelegrad.errors import Vector, whole_number
from accelegrad.models.linear_model import LinearModel, ModelPoint
from accelegrad.models.row_sum import RowSum
from accelegrad.run.oracle import QUIET, Evaluation
from accelegrad.solvers.row_oracle import Goal, RowOracle, rows_in_memory
from accelegrad.solvers.variance_reduced import Epoch, VarianceReducedAcceleGrad

#: Rows in a batch: fewer cost more time per row, more cost more epochs (measured).
BATCH_SIZE = 8


class RowEpochs:
    """RowEpochs of steps on batches of a model's rows, which are in memory.

    An epoch goes through all rows in a new random order. It is compiled for dense data in C order
    and for CSR data; see `accelegrad.kernels`.

    Parameters
    ----------
    model : LinearModel
        The model; its loss has to be smooth.
    rng : numpy.random.Generator
        Where the order of the rows comes from.
    batch_size : int
        Rows in a batch.
    """

    def __init__(self, model: LinearModel, rng: np.random.Generator, batch_size: int) -> None:
        self.model, self.rng, self.batch_size = model, rng, min(batch_size, model.n_samples)
        self._largest_row: float | None = None
        self._room: Vector | None = None
        self._stage: ModelPoint | None = None  # where the stage began

    def beside(self, model: LinearModel) -> RowEpochs:
        """Return the epochs of a model with the same data and another loss."""
        other = RowEpochs(model, self.rng, self.batch_size)
        other._largest_row, other._room = self._largest_row, self._room
        other._stage = self._stage
        return other

    @property
    def n_batches(self) -> int:
        """How many batches an epoch has."""
        return -(-self.model.n_samples // self.batch_size)

    @property
    def smoothness(self) -> float:
        """The largest curvature of a row's loss, with the l2 term."""
        model = self.model
        if self._largest_row is None:
            weight = model.n_samples * float(model.shares.max())
            self._largest_row = weight * (float(model.row_squares().max()) + model.fit_intercept)
        return model.loss.curvature * self._largest_row + model.l2

    def run(self, rule: VarianceReducedAcceleGrad, epoch: Epoch, anchor: Evaluation) -> Epoch:
        """Do a step on each batch of rows, in a new random order."""
        order = self.rng.permutation(self.model.n_samples)
        at = self._known(anchor)
        if epoch.start is anchor.point:
            self._stage = at
        with np.errstate(**QUIET):
            if kernels.wanted_for_rows(kernels.readable(self.model.X)):
                return self._compiled(epoch, at, order)
            for first in range(0, order.size, self.batch_size):
                rows = order[first : first + self.batch_size]
                difference = self._difference(rule.query(epoch), at, rows)
                epoch = rule.batch_step(epoch, difference + epoch.full_gradient)
        return epoch

    def _known(self, anchor: Evaluation) -> ModelPoint:
        """Return what is known at the anchor; its margins are in memory, since all rows are."""
        if anchor.model is None:  # it comes from a checkpoint
            anchor.model = self.model.at(anchor.point)
        return cast("ModelPoint", anchor.model)

    def _difference(self, point: Vector, anchor: ModelPoint, rows: Any) -> Vector:
        """Return how the gradient of a batch differs at a point and at the anchor."""
        model, d = self.model, self.model.n_features
        block = model.block(rows)
        margins = block.margins(point[:d])
        if model.fit_intercept:
            margins += point[-1]
        slopes = model.loss.derivative(margins, model.y[rows]) - anchor.derivatives[rows]
        factors = slopes * model.shares[rows] * (model.n_samples / rows.size)
        change = model.l2 * (point - anchor.w)
        block.add_combination(factors, change[:d])
        if model.fit_intercept:
            change[-1] = factors.sum()
        return change

    def _margins_at(self, start: Vector) -> Vector:
        """Return the margins where the stage began, which were computed as those of an anchor."""
        if self._stage is None or not np.array_equal(self._stage.w, start):
            self._stage = self.model.at(start)
        return self._stage.margins

    def _compiled(self, epoch: Epoch, anchor: ModelPoint, order: Any) -> Epoch:
        from accelegrad.kernels import variance_reduced as dense
        from accelegrad.kernels import variance_reduced_sparse as sparse
        from accelegrad.kernels.arrays import read_only
        from accelegrad.kernels.loss_shape import for_kernels

        data, margins = self.model.kernel_data(), anchor.margins
        by_row = anchor.derivatives, margins, margins - self._margins_at(epoch.start)
        loss = for_kernels(data.loss)
        given = dense.Sum(data.y, data.shares, loss, *(read_only(part) for part in by_row))
        fixed = [read_only(point) for point in (epoch.anchor, epoch.full_gradient, epoch.start)]
        path = dense.Path._make([*fixed, epoch.mirror_point.copy(), np.zeros_like(epoch.anchor)])
        numbers = np.zeros(1, dense.NUMBERS)
        for name in dense.NUMBERS.names or ():
            numbers[name] = self.model.l2 if name == "l2" else getattr(epoch, name)
        first, last = [numbers, *data.matrix, given], [read_only(order), self.batch_size]
        arguments: list[Any]
        if len(data.matrix) == 1:
            arguments = [*first, path, *last]
            dense.dense_epoch(*arguments)
        else:
            if self._room is None:
                self._room = sparse.room(self.model.n_features)
            shrink = self.model.l2 * epoch.coupling
            room = sparse.Room.for_epoch(self._room, path, shrink, self.batch_size)
            arguments = [*first, path.full_gradient, room, *last]
            sparse.sparse_epoch(*arguments)
            kept = numbers["done"].item() - numbers["kept_from"].item()
            room.write(path, epoch.coupling, kept)
        changed = {
            name: numbers[name].item() for name in ("radius", "squares", "step_size", "done")
        }
        return epoch._replace(mirror_point=path.mirror, point_sum=path.total, **changed)


class FiniteSumOracle(RowOracle):
    """A smooth sum over rows, and epochs of steps on batches of its rows where they are in memory.

    `njev` counts an epoch as one gradient more.

    Parameters
    ----------
    model, rng, goal
        As for `RowOracle`; the loss has to be smooth.
    batch_size : int, optional
        Rows in a batch.
    """

    needs_rows_in_memory = True
    #: it is always the same sum
    changed = False

    def __init__(
        self,
        model: RowSum,
        rng: np.random.Generator,
        goal: Goal | None = None,
        *,
        batch_size: int | None = None,
    ) -> None:
        super().__init__(model, rng, goal)
        if not math.isfinite(model.loss.curvature):
            raise ValueError(
                f"model must have a smooth loss, but it has {model.loss!r}; smoothed(mu) makes a "
                "smooth model of it."
            )
        given = BATCH_SIZE if batch_size is None else batch_size
        self.batch_size = whole_number("batch_size", given, least=1)
        self._epochs: RowEpochs | None = None

    @property
    def epochs(self) -> RowEpochs:
        """The object that does the epochs, made at the first call."""
        if self._epochs is None:
            self._epochs = RowEpochs(rows_in_memory(self.model), self.rng, self.batch_size)
        return self._epochs

    @property
    def lowest(self) -> Evaluation | None:
        """What is known at the lowest point evaluated so far."""
        return self.best

    def original(self, evaluation: Evaluation) -> Evaluation:
        """Return the evaluation: the sum is what is minimised."""
        return evaluation

    def beside(self, model: RowSum) -> FiniteSumOracle:
        """Return the oracle of a sum over the same rows with another loss."""
        other = type(self)(model, self.rng, batch_size=self.batch_size)
        if self._epochs is not None:
            other._epochs = self._epochs.beside(rows_in_memory(model))
        return other

    @property
    def n_batches(self) -> int:
        """How many batches an epoch has."""
        return self.epochs.n_batches

    @property
    def strong_convexity(self) -> float:
        """The l2 term's weight; 0 with an intercept, which has no l2 term."""
        return 0.0 if self.model.fit_intercept else self.model.l2

    @property
    def smoothness(self) -> float:
        """The largest curvature of a row's loss, with the l2 term."""
        return self.epochs.smoothness

    def epoch(self, rule: VarianceReducedAcceleGrad, epoch: Epoch, anchor: Evaluation) -> Epoch:
        """Do a step on each batch of rows, in a new random order."""
        self.njev += 1
        self.rows += self.model.n_samples
        return self.epochs.run(rule, epoch, anchor)
