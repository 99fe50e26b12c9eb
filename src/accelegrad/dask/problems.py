"""The problems that estimators minimise, as sums over blocks on a cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from accelegrad.dask.blocks import Block, ClusterData, Counts, RowSettings, counted_weights
from accelegrad.dask.row_model import RowModel
from accelegrad.errors import Vector
from accelegrad.models.losses import make_loss
from accelegrad.models.multinomial import PartedClasses
from accelegrad.sklearn.data import deviations, mean_deviation, target_mean, target_sums
from accelegrad.sklearn.objective import Objective, Problem


def problem_on(
    objective: Objective,
    data: ClusterData,
    recode: Callable[[Any], Any] | None = None,
    weigh: Callable[[Any], Vector] | None = None,
    n_classes: int = 0,
) -> Problem:
    """Return the problem of one set of coefficients, or of `n_classes` of them together."""
    # The rows of a multinomial problem do not use their loss; the squared one takes class numbers.
    loss = make_loss("squared") if n_classes else objective.pointwise
    settings = RowSettings(loss, objective.fit_intercept, recode, weigh)
    model: Any = RowModel.of_data(data, settings, objective.l2)
    return Problem.of(PartedClasses.of(model, None, n_classes) if n_classes else model, objective)


def target_scale(data: ClusterData, *, centred: bool) -> float:
    """Return the scale of the targets of all rows: two round trips, or one from 0."""
    each = partial(data.cluster.each, by_part=[data.counts])
    middle = target_mean(each("targets", _sums_of)) if centred else 0.0
    return mean_deviation(each("targets", _deviations_of, middle))


def _sums_of(block: Block, counts: Counts) -> tuple[float, float, float, float]:
    return target_sums(block.y.astype(np.float64), counted_weights(block, counts))


def _deviations_of(block: Block, middle: float, counts: Counts) -> tuple[float, float]:
    return deviations(block.y.astype(np.float64), counted_weights(block, counts), middle)


def labels(data: ClusterData) -> npt.NDArray[Any]:
    """Return all labels of rows with weight."""
    found = data.cluster.each("labels", _labels_of, by_part=[data.counts])
    return np.unique(np.concatenate(found))


def _labels_of(block: Block, counts: Counts) -> npt.NDArray[Any]:
    return np.unique(block.y[counted_weights(block, counts) > 0.0])


def class_counts(data: ClusterData, classes: npt.NDArray[Any]) -> Vector:
    """Return the weight of each class."""
    weights: Vector = data.cluster.total("labels", _counts_of, classes, by_part=[data.counts])
    return weights


def _counts_of(block: Block, classes: npt.NDArray[Any], counts: Counts) -> Vector:
    weights = counted_weights(block, counts)
    return np.bincount(places(block.y, classes), weights, classes.size).astype(np.float64)


def places(y: npt.NDArray[Any], classes: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Return the number of each label's class; rows without weight may have other labels."""
    return np.minimum(np.searchsorted(classes, y), classes.size - 1)


def against_rest(y: npt.NDArray[Any], label: Any) -> Vector:
    """Return +1 for a class and -1 for all others."""
    return np.where(y == label, 1.0, -1.0)


def factors_of(y: npt.NDArray[Any], classes: npt.NDArray[Any], factors: Vector) -> Vector:
    """Return the weight of each row's class."""
    return factors[places(y, classes)]
