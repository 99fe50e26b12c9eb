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
) -> Problem:
    """Return the problem of one set of coefficients."""
    settings = RowSettings(objective.pointwise, objective.fit_intercept, recode, weigh)
    return Problem.of(RowModel.of_data(data, settings, objective.l2), objective)


def classes_problem(
    objective: Objective,
    data: ClusterData,
    classes: npt.NDArray[Any],
    weigh: Callable[[Any], Vector] | None,
) -> Problem:
    """Return the multinomial problem, with a row of coefficients for each class."""
    # The loss of the rows is not used; the squared one accepts class numbers.
    places = partial(_places, classes=classes)
    settings = RowSettings(make_loss("squared"), objective.fit_intercept, places, weigh)
    model = PartedClasses.of(RowModel.of_data(data, settings, objective.l2), None, classes.size)
    return Problem.of(model, objective)


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
    return np.bincount(_places(block.y, classes), weights, classes.size).astype(np.float64)


def _places(y: npt.NDArray[Any], classes: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    # Rows without weight may have labels that are no classes.
    return np.minimum(np.searchsorted(classes, y), classes.size - 1)


def against_rest(classes: npt.NDArray[Any], positive: int) -> Callable[[Any], Vector]:
    """Return a function that maps labels to +1 for a class and -1 for all others."""
    return partial(_against_rest, label=classes[positive])


def _against_rest(y: npt.NDArray[Any], label: Any) -> Vector:
    return np.where(y == label, 1.0, -1.0)


def class_factors(classes: npt.NDArray[Any], factors: Vector) -> Callable[[Any], Vector]:
    """Return a function that gives each row the weight of its class."""
    return partial(_factors_of, classes=classes, factors=factors)


def _factors_of(y: npt.NDArray[Any], classes: npt.NDArray[Any], factors: Vector) -> Vector:
    return factors[_places(y, classes)]
