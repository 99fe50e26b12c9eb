"""Pointwise losses l(m) = l(m, y) of a margin or prediction m against a target y: one table.

Each loss is convex in m and has infimum 0, so l*(0) = 0, as the Fenchel dual gap requires. Losses
of labels are at least -y m, which bounds on the intercept use. All but the logistic loss share one
formula, with numbers from the table: see `accelegrad.kernels.loss_shape`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import xlog1py, xlogy

from accelegrad.errors import Vector, finite_vector, nearest, real_number
from accelegrad.kernels.loss_shape import LABELS, LOGISTIC, LOGISTIC_SHAPE, TARGETS, Shape
from accelegrad.linalg import FEW

Array = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Parameter:
    """A loss's parameter: its default, meaning and limits."""

    name: str
    default: float
    words: str
    above: float = -inf
    least: float = -inf
    below: float = inf


QUANTILE = Parameter("quantile", 0.5, "the quantile to estimate", above=0.0, below=1.0)
EPSILON = Parameter("epsilon", 0.1, "half the width of the zone without cost", least=0.0)
DELTA = Parameter("delta", 1.35, "the residual beyond which the loss is linear", above=0.0)
PARAMETERS = {parameter.name: parameter for parameter in (QUANTILE, EPSILON, DELTA)}


@dataclass(frozen=True)
class LossEntry:
    """A loss of the table: its names, its linear model's name, and the numbers of its formula."""

    name: str
    sklearn_name: str
    words: str
    shape: Callable[[float], Shape]
    parameter: Parameter | None = None

    @property
    def classification(self) -> bool:
        """Whether targets are the labels -1 and +1."""
        return self._usual.kind != TARGETS

    @property
    def smooth(self) -> bool:
        """Whether the loss has no kinks."""
        return self._usual.softness > 0.0

    @property
    def _usual(self) -> Shape:
        return self.shape(0.0 if self.parameter is None else self.parameter.default)


_TABLE = (
    # log(1 + exp(-y m))
    LossEntry("logistic", "log_loss", "logistic regression", lambda _: LOGISTIC_SHAPE),
    # max(0, 1 - y m)
    LossEntry("hinge", "hinge", "SVM (hinge loss)", lambda _: Shape(LABELS, -1.0, 0.0)),
    # max(0, 1 - y m)^2
    LossEntry(
        "squared_hinge", "squared_hinge", "SVM (squared hinge loss)",
        lambda _: Shape(LABELS, -inf, 0.0, softness=0.5),
    ),
    # max(0, 1 - y m)^2 down to y m = -1, then -4 y m
    LossEntry(
        "modified_huber", "modified_huber", "classification with the modified Huber loss",
        lambda _: Shape(LABELS, -4.0, 0.0, softness=0.5),
    ),
    # r^2 / 2 with r = m - y, here and below
    LossEntry(
        "squared", "squared_error", "least squares",
        lambda _: Shape(TARGETS, -inf, inf, softness=1.0),
    ),
    # |r|
    LossEntry(
        "absolute", "absolute_error", "least absolute deviations",
        lambda _: Shape(TARGETS, -1.0, 1.0),
    ),
    # r^2 / 2 up to |r| = delta, then delta (|r| - delta / 2)
    LossEntry(
        "huber", "huber", "regression with Huber's loss",
        lambda delta: Shape(TARGETS, -delta, delta, softness=1.0), DELTA,
    ),
    # the pinball loss: quantile |r| for r < 0, (1 - quantile) |r| else
    LossEntry(
        "quantile", "quantile", "quantile regression",
        lambda quantile: Shape(TARGETS, -quantile, 1.0 - quantile), QUANTILE,
    ),
    # max(0, |r| - epsilon)
    LossEntry(
        "epsilon_insensitive", "epsilon_insensitive",
        "regression with the epsilon-insensitive loss",
        lambda epsilon: Shape(TARGETS, -1.0, 1.0, epsilon=epsilon), EPSILON,
    ),
    # max(0, |r| - epsilon)^2
    LossEntry(
        "squared_epsilon_insensitive", "squared_epsilon_insensitive",
        "regression with the squared epsilon-insensitive loss",
        lambda epsilon: Shape(TARGETS, -inf, inf, softness=0.5, epsilon=epsilon), EPSILON,
    ),
)  # fmt: skip

LOSSES = {entry.name: entry for entry in _TABLE}
_PLAIN_NAMES = {entry.sklearn_name: entry.name for entry in _TABLE}


def by_sklearn_name(*, classification: bool) -> dict[str, LossEntry]:
    """Return the losses for labels, or for other targets, by scikit-learn's names."""
    return {one.sklearn_name: one for one in _TABLE if one.classification == classification}


def plain_loss_name(name: Any) -> Any:
    """Return the name in `LOSSES` for one of scikit-learn's; others unchanged."""
    return _PLAIN_NAMES.get(name, name) if isinstance(name, str) else name


def losses_with(parameter: Parameter) -> list[LossEntry]:
    """Return the losses that have a parameter."""
    return [entry for entry in _TABLE if entry.parameter == parameter]


def make_loss(
    name: str,
    *,
    quantile: float = QUANTILE.default,
    epsilon: float = EPSILON.default,
    delta: float = DELTA.default,
) -> Loss:
    """Return the loss with this name in `LOSSES` or scikit-learn; all parameters are checked."""
    given = {QUANTILE: quantile, EPSILON: epsilon, DELTA: delta}
    for parameter, number in given.items():
        above, least = parameter.above, parameter.least
        given[parameter] = real_number(parameter.name, number, above=above, least=least)
        if not given[parameter] < parameter.below:
            limit = f"{parameter.name} must be < {parameter.below:g}"
            raise ValueError(f"{limit}, but it is {number!r}.")
    if not isinstance(name, str):
        raise TypeError(f"loss must be the name of a loss, not {name!r}; {nearest('', LOSSES)}")
    name = _PLAIN_NAMES.get(name, name)
    if name not in LOSSES:
        raise ValueError(f"loss must be the name of a loss, not {name!r}; {nearest(name, LOSSES)}")
    used = LOSSES[name].parameter
    return _made(name, 0.0 if used is None else given[used])


@lru_cache(maxsize=64)  # immutable; fits along a path reuse them
def _made(name: str, parameter: float) -> Loss:
    return Loss(name, parameter)


@dataclass(frozen=True, repr=False)
class Loss:
    """A convex loss of a number m (margin or prediction) and a target y: see `make_loss`."""

    plain_name: str
    """The name in the table, also for Moreau envelopes."""
    parameter: float = 0.0
    """The loss's quantile, epsilon or delta; 0 for losses without a parameter."""
    smoothing: float = 0.0
    """The parameter mu of a Moreau envelope; 0 for a plain loss."""
    name: str = field(init=False, compare=False)
    """The name in the table, prefixed with "smoothed_" for a Moreau envelope."""
    shape: Shape = field(init=False, compare=False)
    """The numbers in its formula."""
    classification: bool = field(init=False, compare=False)
    """Whether targets are the labels -1 and +1."""
    has_logarithms: bool = field(init=False, compare=False)
    """Whether the conjugate has logarithms, which are steep at the ends of its domain."""
    curvature: float = field(init=False, compare=False)
    """An upper bound of l''; infinite for a loss with kinks."""
    lipschitz: float = field(init=False, compare=False)
    """An upper bound of the absolute value of l'; infinite where there is none."""
    has_one_kink: bool = field(init=False, compare=False)
    """Whether it is linear on either side of its target, the only kink."""

    def __post_init__(self) -> None:
        kind, low, high, softness, epsilon = LOSSES[self.plain_name].shape(self.parameter)
        softness += self.smoothing
        vars(self).update(
            name=f"smoothed_{self.plain_name}" if self.smoothing > 0.0 else self.plain_name,
            shape=Shape(kind, low, high, softness, epsilon),
            classification=kind != TARGETS,
            has_logarithms=kind == LOGISTIC,
            curvature=1.0 / softness if softness > 0.0 else inf,
            lipschitz=max(-low, high),
            has_one_kink=softness == epsilon == 0.0 and max(-low, high) < inf,
        )

    def __repr__(self) -> str:
        if self.smoothing > 0.0:
            return f"Smoothed(loss={self.plain!r}, mu={self.smoothing!r})"
        entry = LOSSES[self.plain_name]
        parameter = "" if entry.parameter is None else f"{entry.parameter.name}={self.parameter!r}"
        return f"{entry.name.title().replace('_', '')}({parameter})"

    @property
    def plain(self) -> Loss:
        """The loss without smoothing."""
        return replace(self, smoothing=0.0) if self.smoothing > 0.0 else self

    def smoothed(self, mu: float) -> Loss:
        r"""Return the Moreau envelope of a loss with kinks, a smooth loss close below it.

        It is :math:`l_\mu(m) = \max_\theta\, \theta m - l^*(\theta) - \mu \theta^2 / 2`, with
        :math:`0 \le l - l_\mu \le \mu L^2 / 2` for the Lipschitz constant L of the loss, and
        derivatives with the Lipschitz constant 1 / mu (Nesterov, Smooth minimization of non-smooth
        functions, Mathematical Programming 103, 2005). mu = 0 gives the loss itself.
        """
        mu = real_number("mu", mu, least=0.0)
        if mu > 0.0 and self.curvature < inf:
            raise ValueError(f"smoothed takes losses with kinks, but {self!r} has none.")
        return self.envelope(mu) if mu > 0.0 else self

    def envelope(self, mu: float) -> Loss:
        """Return the Moreau envelope of any loss but the logistic one."""
        return replace(self, smoothing=self.smoothing + mu)

    def value(self, m: npt.ArrayLike, y: npt.ArrayLike) -> Array:
        """Return l(m, y)."""
        return self.value_and_derivative(m, y)[0]

    def derivative(self, m: npt.ArrayLike, y: npt.ArrayLike) -> Array:
        """Return l'(m, y), a subgradient in m; 0 at kinks."""
        m, y, is_number = _operands(m, y)
        if self.has_logarithms:
            slope = _logistic(m, y)[2]
        else:
            slope = self._slope(_beyond(self.shape, m, y))
            if self.classification:
                slope *= y
        return slope[0] if is_number else slope

    def value_and_derivative(self, m: npt.ArrayLike, y: npt.ArrayLike) -> tuple[Array, Array]:
        """Return l(m, y) and l'(m, y)."""
        m, y, is_number = _operands(m, y)
        if self.has_logarithms:
            z, decay, slope = _logistic(m, y)
            value = np.log1p(decay) - np.minimum(z, 0)
        else:
            s = _beyond(self.shape, m, y)
            slope, value = self._slope(s), s
            if self.shape.low == -inf:  # unbounded slopes
                value *= 0.5
            elif self.shape.softness:  # no squares here: those of huge residuals would overflow
                value -= (0.5 * self.shape.softness) * slope
            value *= slope
            if self.classification:
                slope *= y
        return (value[0], slope[0]) if is_number else (value, slope)

    def conjugate(self, theta: npt.ArrayLike, y: npt.ArrayLike) -> Vector:
        """Return l*(theta) = sup_m theta m - l(m, y), infinite outside its domain and rounding."""
        slope = np.asarray(theta)
        unit = np.finfo(slope.dtype if slope.dtype.kind == "f" else np.float64).eps
        slope, target = slope.astype(np.float64), np.asarray(y, dtype=np.float64)
        low, high = self.domain(target)
        # Slopes, which take a few operations, may lie outside by their rounding.
        slack = FEW * unit * (np.abs(slope) + np.minimum(high - low, 1.0))
        allowed = np.isfinite(slope) & (slope >= low - slack) & (slope <= high + slack)
        inside = np.where(allowed, np.clip(slope, low, high), 0.0)
        if self.has_logarithms:
            u = -target * inside
            found = xlogy(u, u) + xlog1py(1.0 - u, -u)  # these treat 0 log 0 as 0
        else:  # for labels, y theta stems from the margin 1
            found = inside * (0.5 * self.shape.softness * inside + target)
            found = found + self.shape.epsilon * np.abs(inside)
        return np.where(allowed, found, np.inf)

    def domain(self, y: Vector) -> tuple[Vector | float, Vector | float]:
        """Return the ends of the closed interval in which the conjugate is finite."""
        low, high = self.shape.low, self.shape.high
        if not self.classification:
            return low, high
        return np.where(y > 0, low, 0.0 - high), np.where(y > 0, high, 0.0 - low)

    def curved(self, slopes: Vector) -> npt.NDArray[np.bool_]:
        """Return which slopes are on a curved piece, for all but the logistic loss."""
        if self.classification:  # one end of the domain is 0
            sizes = np.abs(slopes)
            return np.asarray((sizes > 0.0) & (sizes < self.lipschitz))
        curved = (slopes > self.shape.low) & (slopes < self.shape.high)
        if self.shape.epsilon > 0.0:  # the flat zone
            curved &= slopes != 0.0
        return np.asarray(curved)

    def second_derivative(
        self, m: Vector, slopes: Vector, y: Vector, caution: float = 0.0
    ) -> Vector:
        """Return l'' at margins with these slopes.

        On a linear piece that is 0, or `caution` times the curvature of the parabola with the same
        slope here and its minimum where the loss is lowest; with `caution` 1 no step is too long.
        """
        if self.has_logarithms:
            size = np.abs(slopes)
            return size * (1.0 - size)
        curved = self.curved(slopes)
        derivatives = np.where(curved, self.curvature, 0.0)
        if caution == 0.0:
            return derivatives
        distance = y * m - 1.0 if self.classification else m - y
        with np.errstate(divide="ignore", invalid="ignore"):
            secant = np.abs(slopes / distance)
        beyond = ~curved & (slopes != 0.0) & (secant < self.curvature)
        return np.where(beyond, caution * secant, derivatives)

    def reach(self, value: float) -> float:
        """Return the largest distance of a prediction with loss at most `value` from its target."""
        if self.smoothing > 0.0:  # the plain loss is larger by at most this
            return self.plain.reach(value + 0.5 * self.smoothing * self.lipschitz**2)
        if self.classification:  # how far on the wrong side of 0
            return value
        flatter = min(-self.shape.low, self.shape.high)
        if flatter == inf:
            return sqrt(2.0 * self.shape.softness * value) + self.shape.epsilon
        return value / flatter + 0.5 * self.shape.softness * flatter + self.shape.epsilon

    def _slope(self, s: Array) -> Array:
        _, low, high, softness, _ = self.shape
        if low == -inf:
            return s * (1.0 / softness)
        if softness:
            with np.errstate(over="ignore"):  # an infinite slope is clipped
                slope = s * (1.0 / softness)
        else:
            slope = np.sign(s)
            slope *= self.lipschitz
        np.maximum(slope, low, out=slope)
        np.minimum(slope, high, out=slope)
        return slope


def targets(given: npt.ArrayLike, n_samples: int, loss: Loss) -> Vector:
    """Return y in float64."""
    y = finite_vector("y", given)
    if y.size != n_samples:
        raise ValueError(f"y must have one entry per row of X, {n_samples}, but it has {y.size}.")
    check_labels(y, loss)
    return y


def check_labels(y: Vector, loss: Loss) -> None:
    """Refuse targets that are not labels if the loss needs labels."""
    if loss.classification and not (np.abs(y) == 1.0).all():
        seen = np.unique(y)
        labels = ", ".join(f"{label:g}" for label in seen[:5]) + (", ..." if seen.size > 5 else "")
        raise ValueError(
            f"y must hold the labels -1 and +1 for the loss {loss.name!r}, but it holds {labels}. "
            "Labels 0 and 1 are mapped by 2 * y - 1."
        )


def _operands(m: npt.ArrayLike, y: npt.ArrayLike) -> tuple[Array, Array, bool]:
    """Return both as arrays of one type, and whether they were numbers: then m is a vector."""
    margin = np.asarray(m)
    if margin.dtype.kind != "f":
        margin = margin.astype(np.float64)
    target = np.asarray(y, dtype=margin.dtype)
    if margin.ndim or target.ndim:
        return margin, target, False
    return margin.reshape(1), target, True


def _beyond(shape: Shape, m: Array, y: Array) -> Array:
    """Return by how much residuals exceed the flat zone, on a side with a slope."""
    kind, _, high, _, epsilon = shape
    if kind == TARGETS:
        s = m - y
    else:
        s = y * m
        s -= 1.0
    if epsilon > 0.0:
        near = np.minimum(s, epsilon)
        s -= np.maximum(near, -epsilon, out=near)
    if high == 0.0:
        np.minimum(s, 0.0, out=s)
    return s


def _logistic(m: Array, y: Array) -> tuple[Array, Array, Array]:
    """Return z = y m, exp(-|z|) and the slope."""
    z = y * m
    decay = np.exp(-np.abs(z))
    return z, decay, -y * np.where(z > 0, decay, 1.0) / (1 + decay)
