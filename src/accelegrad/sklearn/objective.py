"""What an estimator minimises: from its parameters to a problem that `minimize` takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import entr

from accelegrad import threads
from accelegrad.errors import Vector, nearest
from accelegrad.geometry.penalties import L1, OnLeading, Penalty
from accelegrad.geometry.sets import (
    Box,
    FeasibleSet,
    Product,
    WholeSpace,
)
from accelegrad.models.linear_model import LinearModel
from accelegrad.models.losses import DELTA, EPSILON, LOSSES, Loss, make_loss
from accelegrad.models.multinomial import MultinomialModel, classes_model
from accelegrad.models.parted_model import PartedModel
from accelegrad.models.scaling import can_scale
from accelegrad.models.streamed_model import model_of
from accelegrad.proofs.fenchel import Terms
from accelegrad.solvers.direct import DirectNewton

PENALTIES = ("l2", "l1", "elasticnet")
LENGTHS = (DELTA.name, EPSILON.name)  # parameters of losses that are compared with residuals


@dataclass(frozen=True)
class Objective:
    """Mean loss, l2 term, penalty and constraint, apart from any data."""

    loss: str  # as LinearModel names it
    l2: float
    l1: float
    feasible_set: FeasibleSet | None
    fit_intercept: bool
    loss_parameters: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_scaled(self) -> bool:
        """Whether the scale of the targets matters: squared error has scikit-learn's meaning."""
        loss = LOSSES[self.loss]
        return not loss.classification and loss.sklearn_name != "squared_error"

    def in_units(self, scale: float) -> Objective:
        """Return the objective whose strengths, epsilon and delta are those of y / scale.

        The mean loss stays in the units of y. With k = 1 for a loss that grows linearly with all
        residuals and k = 2 for one that is quadratic near 0, it is scale**k times the objective of
        the targets y / scale: so its minimiser is scale times theirs, and relative gaps are theirs.
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
        """The loss of a prediction."""
        return make_loss(self.loss, **self.loss_parameters)

    def _model_options(self, weights: Vector | None) -> dict[str, Any]:
        """Return what models of all kinds are given."""
        return {"l2": self.l2, "fit_intercept": self.fit_intercept, "sample_weight": weights}

    def on(self, X: Any, y: Vector, weights: Vector | None) -> Problem:
        """Return the problem of one set of coefficients."""
        options = self._model_options(weights) | dict(self.loss_parameters)
        model = model_of(X)(X, y, self.loss, **options)
        return Problem(
            model,
            self.l1,
            parameter_set(self.feasible_set, model.n_features, 1, int(self.fit_intercept)),
            null_value(model),
        )

    def on_classes(self, X: Any, classes: Any, n_classes: int, weights: Vector | None) -> Problem:
        """Return the multinomial problem, with a row of coefficients for each class."""
        model = classes_model(X, classes, n_classes, **self._model_options(weights))
        free = model.n_parameters - model.n_weights
        return Problem(
            model,
            self.l1,
            parameter_set(self.feasible_set, model.n_features, n_classes, free),
            null_value_of_classes(model),
        )


@dataclass(frozen=True)
class Problem:
    """A model of some rows, with l1 term and constraint."""

    model: LinearModel | MultinomialModel
    l1: float  # the weight of the l1 norm of all weights
    feasible_set: FeasibleSet | None  # of all parameters
    null_value: float  # the loss of a constant prediction: the natural size of values
    kept: dict[str, Any] = field(default_factory=dict)  # what problems of other strengths share

    def with_penalty(self, l2: float, l1: float) -> Problem:
        """Return the problem of the same rows, which are not checked again, by other strengths."""
        return replace(self, model=self.model.with_l2(l2), l1=l1)

    def with_targets(self, y: Vector) -> Problem:
        """Return the problem of the same rows, which are not checked again, by other targets."""
        assert isinstance(self.model, LinearModel)
        model = self.model.with_targets(y)
        return Problem(model, self.l1, self.feasible_set, null_value(model))

    def single_thread(self) -> AbstractContextManager[None]:
        """Return a ``with`` block in which BLAS takes one thread, if it would take several."""
        return threads.single_for(self.model.n_samples * self.model.n_parameters)

    @property
    def is_free(self) -> bool:
        """Whether there is neither a penalty beyond l2 nor a constraint."""
        return self.l1 == 0.0 and self.feasible_set is None

    @cached_property
    def terms(self) -> Terms | None:
        """What the Fenchel bound has to know beyond the losses; None for several classes."""
        model = self.model
        if not isinstance(model, LinearModel):
            return None
        terms = (model.n_features, model.l2, self.l1, self.feasible_set)
        return Terms(*terms, fit_intercept=model.fit_intercept)

    @property
    def direct(self) -> DirectNewton | None:
        """What finds the minimum without a run, where that is faster."""
        model, terms = self.model, self.terms
        if not isinstance(model, LinearModel) or terms is None:
            return None
        if not DirectNewton.serves(model, terms):
            return None
        if "direct" not in self.kept:
            self.kept["direct"] = DirectNewton(model)
        found: DirectNewton = self.kept["direct"]
        return found

    @property
    def can_be_scaled(self) -> bool:
        """Whether the set stays one that can be projected onto when columns are scaled."""
        return can_scale(None, self.feasible_set)

    @property
    def rows(self) -> LinearModel:
        """The model that has the rows, their weights and the intercept's flag."""
        return self.model if isinstance(self.model, LinearModel) else self.model.rows

    @property
    def n_weights(self) -> int:
        """The number of parameters that are not intercepts, which come after them."""
        model = self.model
        return model.n_features if isinstance(model, LinearModel) else model.n_weights

    def start(self) -> Vector:
        """Return zero weights with the best constant prediction, or the feasible point nearest."""
        x, model = np.zeros(self.model.n_parameters), self.model
        if isinstance(model, LinearModel) and model.fit_intercept:
            x[-1] = 0.0 if model.loss.classification else best_constant(model)
        return self.nearest(x)

    def nearest(self, x: Vector) -> Vector:
        """Return the feasible point that is nearest."""
        return x if self.feasible_set is None else self.feasible_set.project(x)

    def value(self, x: Vector) -> float:
        """Return the objective, in float64 whatever the data's type."""
        weights = x[: self.n_weights]
        l2 = 0.5 * self.model.l2 * float(weights @ weights)
        return float(self.model.at(x).mean_loss) + l2 + self.l1_value(x)

    def l1_value(self, x: Vector) -> float:
        """Return the l1 term."""
        return self.l1 * float(np.abs(x[: self.n_weights]).sum())

    def rounding(self, value: float) -> float:
        """Return by how much a bound may exceed a value by rounding alone: half of its digits."""
        return math.sqrt(np.finfo(self.rows.dtype).eps) * abs(value)

    def l2_slope(self, x: Vector) -> Vector:
        """Return the gradient of the l2 term."""
        slope = self.model.l2 * x
        slope[self.n_weights :] = 0.0
        return slope

    def penalty(self) -> Penalty | None:
        """Return the l1 term of all parameters."""
        if self.l1 == 0.0:
            return None
        return OnLeading(L1(self.l1), self.n_weights, self.model.n_parameters)


def penalty_weights(penalty: Any, alpha: float, l1_ratio: float) -> tuple[float, float]:
    """Return the factors (l2, l1) of half the squared norm and of the l1 norm."""
    if penalty is None:
        return 0.0, 0.0
    if not isinstance(penalty, str) or penalty not in PENALTIES:
        raise ValueError(
            f"penalty must be None or a name, not {penalty!r}: {nearest(str(penalty), PENALTIES)}"
        )
    share = {"l2": 0.0, "l1": 1.0, "elasticnet": l1_ratio}[penalty]
    return alpha * (1.0 - share), alpha * share


def parameter_set(
    given: FeasibleSet | None, size: int, copies: int, free: int
) -> FeasibleSet | None:
    """Return the set of all parameters: the given one for each block of `size`, then free ones.

    A box stays a box, which a penalty can be used with.
    """
    if given is None:
        return None
    dimension = given.dimension
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
    """Return the constant prediction with the least mean loss, or one that is about as good.

    It is the mean for squared losses, and the median or the quantile for the others.
    """
    if isinstance(model, PartedModel):
        return model.best_constant()
    y, weights, loss = model.y, model.sample_weight, model.loss.shape
    if model.loss.lipschitz == np.inf:
        # Rounding may put the mean of equal targets beyond them, and a minimum of 0 out of sight.
        return float(min(max(np.average(y, weights=weights), y.min()), y.max()))
    level = -loss.low / (loss.high - loss.low)
    if weights is None:
        return float(np.quantile(y, level))
    order = np.argsort(y)
    reached = np.cumsum(weights[order])
    return float(y[order[np.searchsorted(reached, level * reached[-1])]])


def null_value(model: LinearModel) -> float:
    """Return the mean loss of the best constant prediction (0 without an intercept), or about it.

    It is the size of the objective before anything is learnt.
    """
    if isinstance(model, PartedModel):
        if model.loss.classification and model.fit_intercept:
            return null_value_of_labels(model.loss, model.target_sizes()[1])
        constant = model.best_constant() if model.fit_intercept else 0.0
        return float(model.losses_of([constant])[0])
    y, weights = model.y, model.sample_weight
    if model.loss.classification and model.fit_intercept:
        return null_value_of_labels(model.loss, float(np.average(y > 0.0, weights=weights)))
    constant = best_constant(model) if model.fit_intercept else 0.0
    return float(np.average(model.loss.value(np.full_like(y, constant), y), weights=weights))


def null_value_of_labels(loss: Loss, positive: float) -> float:
    """Return the least mean loss of constant scores, given the share of positive labels.

    The best score is between -1 and 1. It is one of those, or where the slopes for both labels add
    up to 0: both on their parabolas, or one beyond it, where its slope is the steepest.
    """
    negative = 1.0 - positive
    if loss.has_logarithms:
        return float(entr(positive) + entr(negative))
    scores = np.array([-1.0, 1.0, positive - negative])
    if 0.0 < positive < 1.0 and loss.lipschitz < np.inf:
        far = loss.lipschitz * loss.shape.softness
        ends = [1.0 - far * negative / positive, far * positive / negative - 1.0]
        scores = np.append(scores, ends)
    return float((positive * loss.value(scores, 1.0) + negative * loss.value(scores, -1.0)).min())


def null_value_of_classes(model: MultinomialModel) -> float:
    """Return the entropy of the classes, the least mean loss of constant predictions."""
    if not model.rows.fit_intercept:
        return float(np.log(model.n_classes))
    return float(entr(model.class_shares).sum())
