"""What an estimator minimises: from its samples and parameters to a problem for `minimize`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.special import entr

from accelegrad import kernels
from accelegrad.errors import Vector
from accelegrad.geometry.penalties import L1, OnLeading, Penalty
from accelegrad.geometry.sets import Box, FeasibleSet, Product, WholeSpace
from accelegrad.models.linear_model import LinearModel
from accelegrad.models.losses import DELTA, EPSILON, LOSSES, Loss, make_loss
from accelegrad.models.matrix import checked_weights, design_matrix
from accelegrad.models.multinomial import MultinomialModel, classes_model
from accelegrad.models.parted_model import PartedModel, weighted_quantile
from accelegrad.models.row_file import RowFile, together
from accelegrad.models.streamed_model import StreamedMatrix, StreamedModel
from accelegrad.proofs.fenchel import Terms

LENGTHS = (DELTA.name, EPSILON.name)  # loss parameters in the units of residuals
#: Objectives below this share of a constant prediction's count as this share, since a relative
#: tolerance cannot be met at a minimum of zero. Chosen; documented under `tol`.
NEGLIGIBLE = 1e-3


class Data(NamedTuple):
    """Checked samples with targets and weights."""

    X: Any
    y: Any  # an array, or a `RowFile`
    weights: Any
    columns: Any = None  # the columns that X keeps, if empty ones were removed
    rows: Any = None  # the samples that it keeps, if some were removed

    def seen(self) -> tuple[int, float]:
        """Return the number of samples with positive weight, and their total weight."""
        if self.weights is None:
            return int(self.y.size), float(self.y.size)
        count, sums = 0, []
        for _, weights in self.blocks():
            count += int(np.count_nonzero(weights))
            sums.append(float(weights.sum()))
        return count, math.fsum(sums)

    def blocks(self) -> Iterator[Any]:
        """Yield blocks of targets and weights in memory."""
        in_files = isinstance(self.y, RowFile)
        return together(self.y, self.weights) if in_files else iter([(self.y, self.weights)])


def refuse_missing(y: Any) -> None:
    """Raise ValueError if an object array of targets contains None, NaN or pandas' NA."""
    dtype = getattr(y, "dtype", None)  # pandas has its own types
    if y is None or isinstance(y, str) or (isinstance(dtype, np.dtype) and dtype.kind != "O"):
        return
    try:
        targets = np.asarray(y)
    except ValueError:  # rows of different lengths, refused elsewhere
        return
    if dtype is None and targets.dtype.kind == "U":  # NumPy converts NaN among strings to "nan"
        targets = np.asarray(y, dtype=object)
    for place, value in np.ndenumerate(targets) if targets.dtype == object else ():
        is_nan = isinstance(value, float) and value != value
        if value is None or is_nan or type(value).__name__ in ("NAType", "NaTType"):
            shown = ", ".join(map(str, place))
            raise ValueError(
                f"y must have no missing values, but y[{shown}] is {value!r}: leave such rows out."
            )


def weights_of(given: Any, X: Any) -> Vector | None:
    """Return checked weights of samples; all may be zero in a chunk of a stream."""
    if given is None:
        return None
    weights = np.asarray(given)
    if weights.dtype == object:
        weights = weights.astype(np.float64)
    if weights.ndim == 0:
        weights = np.full(X.shape[0], weights)
    return checked_weights(weights, X.shape[0], all_may_be_zero=True)


def rows_of(data: Data, rows: Any) -> Data:
    """Return the selected samples."""
    weights = None if data.weights is None else data.weights[rows]
    kept = rows if data.rows is None else data.rows[rows]
    return Data(data.X[rows], data.y[rows], weights, data.columns, kept)


def without_weightless(data: Data) -> Data:
    """Remove samples with weight 0, except from a stream; they do not even add a class."""
    if data.weights is None or isinstance(data.X, StreamedMatrix) or data.weights.min() > 0.0:
        return data
    return rows_of(data, np.flatnonzero(data.weights))


@dataclass(frozen=True)
class Objective:
    """Mean loss, penalties and constraint, without data."""

    loss: str  # LinearModel's name of it
    l2: float
    l1: float
    feasible_set: FeasibleSet | None
    fit_intercept: bool
    loss_parameters: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_scaled(self) -> bool:
        """Whether the targets' scale matters; squared error keeps scikit-learn's meaning."""
        return not LOSSES[self.loss].classification and self.loss != "squared"

    def in_units(self, scale: float) -> Objective:
        """Return the objective whose strengths, epsilon and delta are those of y / scale.

        The mean loss stays in the units of y. With k = 2 for a loss that is quadratic near 0 and
        k = 1 otherwise, it is scale**k times the objective of the targets y / scale. So its
        minimiser is scale times theirs, and relative gaps are the same.
        """
        if not self.is_scaled or scale == 1.0:
            return self
        quadratic = LOSSES[self.loss].smooth
        numbers = self.loss_parameters.items()
        return replace(
            self,
            l2=self.l2 if quadratic else self.l2 / scale,
            l1=self.l1 * scale if quadratic else self.l1,
            loss_parameters={key: v * scale if key in LENGTHS else v for key, v in numbers},
        )

    @property
    def pointwise(self) -> Loss:
        """The loss of one prediction."""
        return make_loss(self.loss, **self.loss_parameters)

    def on(self, X: Any, y: Any, weights: Vector | None, n_classes: int = 1) -> Problem:
        """Return the problem on samples; `y` are class numbers if there are several classes."""
        options: dict[str, Any] = {"l2": self.l2, "fit_intercept": self.fit_intercept}
        model: Any
        if n_classes > 1:
            model = classes_model(X, y, n_classes, sample_weight=weights, **options)
        elif isinstance(X, StreamedMatrix):
            options |= self.loss_parameters
            model = StreamedModel.of(X, y, self.loss, sample_weight=weights, **options)
        else:
            loss = make_loss(self.loss, **self.loss_parameters)
            model = LinearModel.of_checked(design_matrix(X), y, weights, loss, **options)
        return Problem.of(model, self)


@dataclass(frozen=True)
class Problem:
    """A model with its data, l1 term and constraint."""

    model: LinearModel | MultinomialModel
    l1: float  # weight of the l1 norm
    feasible_set: FeasibleSet | None  # for all parameters
    floor: float  # a tolerance relative to the objective counts smaller objectives as this
    kept: dict[str, Any] = field(default_factory=dict)  # shared by problems of other strengths

    @classmethod
    def of(cls, model: LinearModel | MultinomialModel, objective: Objective) -> Self:
        """Return the problem of an objective, whose loss and l2 term the model has."""
        given = objective.feasible_set
        chosen = None if given is None else parameter_set(given, model)
        return cls(model, objective.l1, chosen, NEGLIGIBLE * null_value(model))

    def with_targets(self, y: Vector) -> Problem:
        """Return the problem of the same samples with other targets; nothing is checked again."""
        assert isinstance(self.model, LinearModel)
        model = self.model.with_targets(y)
        return Problem(model, self.l1, self.feasible_set, NEGLIGIBLE * null_value(model))

    def single_thread(self) -> AbstractContextManager[None]:
        """Return a context in which BLAS uses one thread, if it would use several."""
        return kernels.single_for(self.model.n_samples * self.model.n_parameters)

    @cached_property
    def terms(self) -> Terms | None:
        """What the Fenchel bound needs besides the losses; None for several classes."""
        model = self.model
        if not isinstance(model, LinearModel):
            return None
        terms = (model.n_features, model.l2, self.l1, self.feasible_set)
        return Terms(*terms, fit_intercept=model.fit_intercept)

    @property
    def rows(self) -> LinearModel:
        """The model that has the samples, their weights and `fit_intercept`."""
        return self.model if isinstance(self.model, LinearModel) else self.model.rows

    @property
    def n_classes(self) -> int:
        """The number of rows of coefficients."""
        return 1 if isinstance(self.model, LinearModel) else self.model.n_classes

    @property
    def n_weights(self) -> int:
        """The number of parameters before the intercepts."""
        return self.n_classes * self.model.n_features

    def start(self) -> Vector:
        """Return zero weights with the best constant prediction, or the nearest feasible point."""
        x, model = np.zeros(self.model.n_parameters), self.model
        if isinstance(model, LinearModel) and model.fit_intercept:
            x[-1] = 0.0 if model.loss.classification else best_constant(model)
        return x if self.feasible_set is None else self.nearest(x)

    def nearest(self, x: Vector) -> Vector:
        """Return the nearest feasible point."""
        return x if self.feasible_set is None else self.feasible_set.project(x)

    def value(self, x: Vector) -> float:
        """Return the objective, in float64 for any type of data."""
        weights = x[: self.n_weights]
        l2 = 0.5 * self.model.l2 * float(weights @ weights)
        return float(self.model.at(x).mean_loss) + l2 + self.l1_value(x)

    def l1_value(self, x: Vector) -> float:
        """Return the l1 term."""
        return self.l1 * float(np.abs(x[: self.n_weights]).sum())

    def rounding(self, value: float) -> float:
        """Return by how much rounding alone may lift a bound above a value: half of its digits."""
        return math.sqrt(np.finfo(self.rows.dtype).eps) * abs(value)

    def penalty(self) -> Penalty | None:
        """Return the l1 term of all parameters; None if there is none."""
        if self.l1 == 0.0:
            return None
        return OnLeading(L1(self.l1), self.n_weights, self.model.n_parameters)


def parameter_set(given: FeasibleSet, model: LinearModel | MultinomialModel) -> FeasibleSet:
    """Return the set of all parameters: `given` for the weights of each class, then free ones.

    A box stays a box, which can be combined with a penalty.
    """
    size, dimension = model.n_features, given.dimension
    copies = model.n_classes if isinstance(model, MultinomialModel) else 1
    free = model.n_parameters - copies * size  # the intercepts
    if dimension not in (None, size):
        raise ValueError(
            f"feasible_set must fit the {size} coefficients, but {given!r} has dimension "
            f"{dimension}."
        )
    if isinstance(given, Box):
        open_end = np.full(free, np.inf)
        lower, upper = (
            np.tile(np.broadcast_to(end, size), copies) for end in (given.lower, given.upper)
        )
        return Box(np.append(lower, -open_end), np.append(upper, open_end))
    blocks: list[Any] = [(given, size)] * copies
    return Product([*blocks, (WholeSpace(), free)] if free else blocks)


def best_constant(model: LinearModel) -> float:
    """Return a constant prediction with (about) the least mean loss.

    This is the mean for squared losses, and the median or quantile for the others.
    """
    if isinstance(model, PartedModel):
        return model.best_constant()
    y, weights, loss = model.y, model.sample_weight, model.loss.shape
    if model.loss.lipschitz == np.inf:
        # Rounding may put the mean of equal targets outside their range, and hide a minimum of 0.
        return float(min(max(np.average(y, weights=weights), y.min()), y.max()))
    level = -loss.low / (loss.high - loss.low)
    return weighted_quantile(y, weights, level)


def null_value(model: LinearModel | MultinomialModel) -> float:
    """Return about the mean loss of the best constant prediction, or of 0 if no intercept."""
    if isinstance(model, MultinomialModel):
        if not model.rows.fit_intercept:
            return float(np.log(model.n_classes))
        return float(entr(model.class_shares).sum())
    loss = model.loss
    if not (loss.classification and model.fit_intercept):
        constant = best_constant(model) if model.fit_intercept else 0.0
        if isinstance(model, PartedModel):
            return float(model.losses_of([constant])[0])
        losses = loss.value(np.full_like(model.y, constant), model.y)
        return float(np.average(losses, weights=model.sample_weight))
    if isinstance(model, PartedModel):
        positive = model.target_sizes()[1]
    else:
        positive = float(np.average(model.y > 0.0, weights=model.sample_weight))
    negative = 1.0 - positive
    if loss.has_logarithms:
        return float(entr(positive) + entr(negative))
    # The best score is in [-1, 1]. It is an end, or a point where the slopes for both labels add up
    # to 0: both on their parabolas, or one beyond its parabola, where its slope is steepest.
    scores = np.array([-1.0, 1.0, positive - negative])
    if 0.0 < positive < 1.0 and loss.lipschitz < np.inf:
        far = loss.lipschitz * loss.shape.softness
        ends = [1.0 - far * negative / positive, far * positive / negative - 1.0]
        scores = np.append(scores, ends)
    return float((positive * loss.value(scores, 1.0) + negative * loss.value(scores, -1.0)).min())
