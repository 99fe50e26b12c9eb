"""Pointwise losses l(m) = l(m, y) of a margin or prediction m against a target y.

Each loss is convex in m, nonnegative and has infimum 0, so theta = 0 lies in the domain of every
conjugate, with l*(0) = 0. The Fenchel dual gap of a linear model rests on that.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import xlog1py, xlogy

from accelegrad.errors import Vector, nearest, real_number

Array = npt.NDArray[np.floating[Any]]

# How many units of rounding a theta may lie outside the domain of a conjugate.
_ROUNDING_UNITS = 8.0


class Loss(ABC):
    """A convex loss of a number m (margin or prediction) and a target y.

    Every method is vectorised over `m` and `y` and works in the floating type of `m`: float32
    stays float32.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The name by which `make_loss` and `LinearModel` know the loss."""

    @property
    def classification(self) -> bool:
        """Whether targets are the labels -1 and +1."""
        return False

    @property
    def parameter(self) -> float:
        """The loss's quantile, epsilon or delta; 0 for losses without a parameter."""
        return 0.0

    @property
    def smoothing(self) -> float:
        """The parameter mu of a Moreau envelope; 0 for a loss that is none."""
        return 0.0

    @property
    def plain(self) -> Loss:
        """The loss that this one is the Moreau envelope of, or the loss itself if it is none."""
        return self

    def smoothed(self, mu: float) -> Loss:
        r"""Return the Moreau envelope of a loss with kinks, a smooth loss close below it.

        That is :math:`l_\mu(m) = \max_\theta\, \theta m - l^*(\theta) - \mu \theta^2 / 2`, with
        :math:`0 \le l - l_\mu \le \mu L^2 / 2` where L is the loss's Lipschitz constant, and
        derivatives that change by at most 1 / mu times the change of m.

        Parameters
        ----------
        mu : float
            At least 0; 0 gives the loss itself.

        References
        ----------
        Y. Nesterov, Smooth minimization of non-smooth functions, Mathematical Programming 103,
        2005.
        """
        mu = real_number("mu", mu, least=0.0)
        if mu == 0.0:
            return self
        if self.curvature < np.inf:
            raise ValueError(f"smoothed takes losses with kinks, but {self!r} has none.")
        return Smoothed(self, mu)

    def value(self, m: npt.ArrayLike, y: npt.ArrayLike) -> Array:
        """Return l(m, y)."""
        return self._value(*_operands(m, y))

    def derivative(self, m: npt.ArrayLike, y: npt.ArrayLike) -> Array:
        """Return l'(m, y), a subgradient in m; the choice at kinks is 0 for every loss here."""
        return self._derivative(*_operands(m, y))

    def value_and_derivative(self, m: npt.ArrayLike, y: npt.ArrayLike) -> tuple[Array, Array]:
        """Return both at once, the same to the last bit, with shared work where there is any."""
        return self._value_and_derivative(*_operands(m, y))

    def conjugate(self, theta: npt.ArrayLike, y: npt.ArrayLike) -> Vector:
        """Return l*(theta) = sup_m theta m - l(m, y) in float64, infinite outside its domain.

        A theta outside the domain by no more than a few units of rounding (of its own floating
        type, relative to its size and the domain's) counts as lying on the domain's end.
        """
        slope = np.asarray(theta)
        unit = np.finfo(slope.dtype if slope.dtype.kind == "f" else np.float64).eps
        slope, target = slope.astype(np.float64), np.asarray(y, dtype=np.float64)
        low, high = self.domain(target)
        slack = _ROUNDING_UNITS * unit * (np.abs(slope) + np.minimum(high - low, 1.0))
        allowed = np.isfinite(slope) & (slope >= low - slack) & (slope <= high + slack)
        inside = np.where(allowed, np.clip(slope, low, high), 0.0)
        return np.where(allowed, self._conjugate(inside, target), np.inf)

    @property
    def has_logarithms(self) -> bool:
        """Whether the conjugate has logarithms, which are steep at the ends of its domain."""
        return False

    @property
    @abstractmethod
    def curvature(self) -> float:
        """An upper bound of l''; infinite for a loss with kinks."""

    @property
    @abstractmethod
    def lipschitz(self) -> float:
        """An upper bound of the absolute value of l'; infinite where there is none."""

    def reach(self, value: float) -> float:
        """Return how far from its target a prediction can be whose loss is at most `value`.

        For losses of labels: how far on the wrong side of 0, which all of them grow with.
        """
        return self._reach(value)

    @abstractmethod
    def _reach(self, value: float) -> float: ...

    @abstractmethod
    def _value(self, m: Array, y: Array) -> Array: ...

    @abstractmethod
    def _derivative(self, m: Array, y: Array) -> Array: ...

    def _value_and_derivative(self, m: Array, y: Array) -> tuple[Array, Array]:
        return self._value(m, y), self._derivative(m, y)

    def domain(self, y: Vector) -> tuple[Vector | float, Vector | float]:
        """Return the ends of the closed interval in which the conjugate is finite."""
        return self._domain(y)

    @abstractmethod
    def _domain(self, y: Vector) -> tuple[Vector | float, Vector | float]:
        """Return the ends of that interval."""

    @abstractmethod
    def _conjugate(self, theta: Vector, y: Vector) -> Vector:
        """Return the conjugate at a theta inside the domain."""


def _operands(m: npt.ArrayLike, y: npt.ArrayLike) -> tuple[Array, Array]:
    margin = np.asarray(m)
    if margin.dtype.kind != "f":
        margin = margin.astype(np.float64)
    return margin, np.asarray(y, dtype=margin.dtype)


def _towards_label(y: Vector, most: float) -> tuple[Vector, Vector]:
    """Return the ends of the thetas with 0 <= -y theta <= most."""
    return np.where(y > 0, -most, 0.0), np.where(y > 0, 0.0, most)


@dataclass(frozen=True)
class Logistic(Loss):
    """l(m) = log(1 + exp(-y m)); with u = -y theta in [0, 1], l* = u log u + (1 - u) log(1 - u)."""

    name: ClassVar[str] = "logistic"
    classification: ClassVar[bool] = True
    has_logarithms: ClassVar[bool] = True
    curvature: ClassVar[float] = 0.25
    lipschitz: ClassVar[float] = 1.0

    def _reach(self, value: float) -> float:
        return value

    def _value(self, m: Array, y: Array) -> Array:
        z, decay = self._decay(m, y)
        return np.log1p(decay) - np.minimum(z, 0)

    def _derivative(self, m: Array, y: Array) -> Array:
        return self._slope(y, *self._decay(m, y))

    def _value_and_derivative(self, m: Array, y: Array) -> tuple[Array, Array]:
        z, decay = self._decay(m, y)
        return np.log1p(decay) - np.minimum(z, 0), self._slope(y, z, decay)

    @staticmethod
    def _decay(m: Array, y: Array) -> tuple[Array, Array]:
        """Return z = y m and exp(-|z|), in which nothing overflows."""
        z = y * m
        return z, np.exp(-np.abs(z))

    @staticmethod
    def _slope(y: Array, z: Array, decay: Array) -> Array:
        return -y * np.where(z > 0, decay, 1.0) / (1 + decay)

    def _domain(self, y: Vector) -> tuple[Vector | float, Vector | float]:
        return _towards_label(y, 1.0)

    def _conjugate(self, theta: Vector, y: Vector) -> Vector:
        u = -y * theta
        # These two take 0 log 0 as 0.
        return np.asarray(xlogy(u, u) + xlog1py(1.0 - u, -u), dtype=np.float64)


@dataclass(frozen=True)
class Hinge(Loss):
    """l(m) = max(0, 1 - y m); l* = y theta for 0 <= -y theta <= 1. Kink at y m = 1."""

    name: ClassVar[str] = "hinge"
    classification: ClassVar[bool] = True
    curvature: ClassVar[float] = np.inf
    lipschitz: ClassVar[float] = 1.0

    def _reach(self, value: float) -> float:
        return value

    def _value(self, m: Array, y: Array) -> Array:
        return np.maximum(1 - y * m, 0)

    def _derivative(self, m: Array, y: Array) -> Array:
        return np.where(y * m < 1, -y, np.zeros_like(y))

    def _domain(self, y: Vector) -> tuple[Vector | float, Vector | float]:
        return _towards_label(y, 1.0)

    def _conjugate(self, theta: Vector, y: Vector) -> Vector:
        return y * theta


@dataclass(frozen=True)
class SquaredHinge(Loss):
    """l(m) = max(0, 1 - y m)^2; with u = -y theta >= 0, l* = u^2 / 4 - u."""

    name: ClassVar[str] = "squared_hinge"
    classification: ClassVar[bool] = True
    curvature: ClassVar[float] = 2.0
    lipschitz: ClassVar[float] = np.inf

    def _reach(self, value: float) -> float:
        return value

    def _value(self, m: Array, y: Array) -> Array:
        return np.square(np.maximum(1 - y * m, 0))

    def _derivative(self, m: Array, y: Array) -> Array:
        return -2 * y * np.maximum(1 - y * m, 0)

    def _domain(self, y: Vector) -> tuple[Vector | float, Vector | float]:
        return _towards_label(y, np.inf)

    def _conjugate(self, theta: Vector, y: Vector) -> Vector:
        u = -y * theta
        return u * (0.25 * u - 1.0)


@dataclass(frozen=True)
class ModifiedHuber(Loss):
    """l(m) = max(0, 1 - y m)^2 up to y m = -1, then -4 y m; l* = u^2 / 4 - u, u = -y theta <= 4."""

    name: ClassVar[str] = "modified_huber"
    classification: ClassVar[bool] = True
    curvature: ClassVar[float] = 2.0
    lipschitz: ClassVar[float] = 4.0

    def _reach(self, value: float) -> float:
        return value

    def _value(self, m: Array, y: Array) -> Array:
        short = np.maximum(1 - y * m, 0)
        # The square is taken of the part up to 2 only: a huge margin does not overflow.
        near = np.minimum(short, 2)
        cost: Array = near * (2 * short - near)
        return cost

    def _derivative(self, m: Array, y: Array) -> Array:
        return -2 * y * np.clip(1 - y * m, 0, 2)

    def _domain(self, y: Vector) -> tuple[Vector | float, Vector | float]:
        return _towards_label(y, 4.0)

    def _conjugate(self, theta: Vector, y: Vector) -> Vector:
        u = -y * theta
        return u * (0.25 * u - 1.0)


@dataclass(frozen=True)
class Squared(Loss):
    """l(m) = (m - y)^2 / 2; l* = theta^2 / 2 + y theta for every theta."""

    name: ClassVar[str] = "squared"
    curvature: ClassVar[float] = 1.0
    lipschitz: ClassVar[float] = np.inf

    def _reach(self, value: float) -> float:
        return math.sqrt(2.0 * value)

    def _value(self, m: Array, y: Array) -> Array:
        cost = m - y
        # In place: with few columns the temporaries would be a good part of an evaluation.
        cost *= cost
        cost *= 0.5
        return cost

    def _derivative(self, m: Array, y: Array) -> Array:
        return m - y

    def _value_and_derivative(self, m: Array, y: Array) -> tuple[Array, Array]:
        residual = m - y
        cost = residual * residual
        cost *= 0.5
        return cost, residual

    def _domain(self, y: Vector) -> tuple[Vector | float, Vector | float]:  # noqa: ARG002
        return -np.inf, np.inf

    def _conjugate(self, theta: Vector, y: Vector) -> Vector:
        return theta * (0.5 * theta + y)


@dataclass(frozen=True)
class Absolute(Loss):
    """l(m) = |m - y|; l* = y theta for |theta| <= 1. Kink at m = y."""

    name: ClassVar[str] = "absolute"
    curvature: ClassVar[float] = np.inf
    lipschitz: ClassVar[float] = 1.0

    def _reach(self, value: float) -> float:
        return value

    def _value(self, m: Array, y: Array) -> Array:
        return np.abs(m - y)

    def _derivative(self, m: Array, y: Array) -> Array:
        return np.sign(m - y)

    def _domain(self, y: Vector) -> tuple[Vector | float, Vector | float]:  # noqa: ARG002
        return -1.0, 1.0

    def _conjugate(self, theta: Vector, y: Vector) -> Vector:
        return y * theta


@dataclass(frozen=True)
class Huber(Loss):
    """With r = m - y: l(m) = r^2 / 2 up to |r| = delta, then delta (|r| - delta / 2).

    l* = theta^2 / 2 + y theta for |theta| <= delta.
    """

    delta: float = 1.35

    name: ClassVar[str] = "huber"
    curvature: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "delta", real_number("delta", self.delta, above=0.0))

    @property
    def lipschitz(self) -> float:
        """The slope delta of the two linear ends."""
        return self.delta

    @property
    def parameter(self) -> float:
        """The loss's delta."""
        return self.delta

    def _reach(self, value: float) -> float:
        return value / self.delta + 0.5 * self.delta

    def _value(self, m: Array, y: Array) -> Array:
        distance = np.abs(m - y)
        # The square is taken of the part within delta only: a huge distance does not overflow.
        near = np.minimum(distance, self.delta)
        return near * (distance - 0.5 * near)

    def _derivative(self, m: Array, y: Array) -> Array:
        return np.clip(m - y, -self.delta, self.delta)

    def _domain(self, y: Vector) -> tuple[Vector | float, Vector | float]:  # noqa: ARG002
        return -self.delta, self.delta

    def _conjugate(self, theta: Vector, y: Vector) -> Vector:
        return theta * (0.5 * theta + y)


@dataclass(frozen=True)
class Quantile(Loss):
    """The pinball loss: with r = y - m, l(m) = q max(r, 0) + (1 - q) max(-r, 0).

    l* = y theta for -q <= theta <= 1 - q. Kink at m = y.
    """

    quantile: float = 0.5

    name: ClassVar[str] = "quantile"
    curvature: ClassVar[float] = np.inf

    def __post_init__(self) -> None:
        quantile = real_number("quantile", self.quantile)
        if not 0.0 < quantile < 1.0:
            raise ValueError(f"quantile must be > 0 and < 1, but it is {self.quantile!r}.")
        object.__setattr__(self, "quantile", quantile)

    @property
    def lipschitz(self) -> float:
        """The steeper of the two slopes, max(q, 1 - q)."""
        return max(self.quantile, 1.0 - self.quantile)

    @property
    def parameter(self) -> float:
        """The loss's quantile."""
        return self.quantile

    def _reach(self, value: float) -> float:
        return value / min(self.quantile, 1.0 - self.quantile)

    def _value(self, m: Array, y: Array) -> Array:
        residual = y - m
        return np.maximum(self.quantile * residual, (self.quantile - 1.0) * residual)

    def _derivative(self, m: Array, y: Array) -> Array:
        return self._slope(m - y)

    def _value_and_derivative(self, m: Array, y: Array) -> tuple[Array, Array]:
        residual = m - y
        slope = self._slope(residual)
        residual *= slope
        return residual, slope

    def _slope(self, residual: Array) -> Array:
        """Return the slopes without np.where, whose branches the processor cannot foresee."""
        kind = residual.dtype.type
        slope: Array = np.multiply(residual > 0, kind(1.0 - self.quantile), dtype=residual.dtype)
        slope -= np.multiply(residual < 0, kind(self.quantile), dtype=residual.dtype)
        return slope

    def _domain(self, y: Vector) -> tuple[Vector | float, Vector | float]:  # noqa: ARG002
        return -self.quantile, 1.0 - self.quantile

    def _conjugate(self, theta: Vector, y: Vector) -> Vector:
        return y * theta


@dataclass(frozen=True)
class EpsilonInsensitive(Loss):
    """l(m) = max(0, |m - y| - epsilon); l* = y theta + epsilon |theta| for |theta| <= 1.

    Kinks at |m - y| = epsilon.
    """

    epsilon: float = 0.1

    name: ClassVar[str] = "epsilon_insensitive"
    curvature: ClassVar[float] = np.inf
    lipschitz: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", real_number("epsilon", self.epsilon, least=0.0))

    @property
    def parameter(self) -> float:
        """The loss's epsilon."""
        return self.epsilon

    def _reach(self, value: float) -> float:
        return value + self.epsilon

    def _value(self, m: Array, y: Array) -> Array:
        return np.maximum(np.abs(m - y) - self.epsilon, 0)

    def _derivative(self, m: Array, y: Array) -> Array:
        residual = m - y
        return np.sign(residual) * (np.abs(residual) > self.epsilon)

    def _domain(self, y: Vector) -> tuple[Vector | float, Vector | float]:  # noqa: ARG002
        return -1.0, 1.0

    def _conjugate(self, theta: Vector, y: Vector) -> Vector:
        return y * theta + self.epsilon * np.abs(theta)


@dataclass(frozen=True)
class SquaredEpsilonInsensitive(Loss):
    """l(m) = max(0, |m - y| - epsilon)^2; l* = theta^2 / 4 + y theta + epsilon |theta|."""

    epsilon: float = 0.1

    name: ClassVar[str] = "squared_epsilon_insensitive"
    curvature: ClassVar[float] = 2.0
    lipschitz: ClassVar[float] = np.inf

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", real_number("epsilon", self.epsilon, least=0.0))

    @property
    def parameter(self) -> float:
        """The loss's epsilon."""
        return self.epsilon

    def _reach(self, value: float) -> float:
        return math.sqrt(value) + self.epsilon

    def _value(self, m: Array, y: Array) -> Array:
        return np.square(np.maximum(np.abs(m - y) - self.epsilon, 0))

    def _derivative(self, m: Array, y: Array) -> Array:
        return 2 * _shrunk(m - y, self.epsilon)

    def _domain(self, y: Vector) -> tuple[Vector | float, Vector | float]:  # noqa: ARG002
        return -np.inf, np.inf

    def _conjugate(self, theta: Vector, y: Vector) -> Vector:
        return theta * (0.25 * theta + y) + self.epsilon * np.abs(theta)


def _shrunk(residual: Array, epsilon: float) -> Array:
    """Return residuals brought closer to 0 by epsilon, 0 for those that are as close."""
    return np.copysign(np.maximum(np.abs(residual) - epsilon, 0), residual)


@dataclass(frozen=True)
class Smoothed(Loss):
    """The Moreau envelope of a loss with kinks: see `Loss.smoothed`.

    The conjugate of each of these losses is y theta + epsilon |theta| on an interval (epsilon is 0
    for all but the epsilon-insensitive loss), so with s the residual m - y, brought closer to 0 by
    epsilon, the slope theta is s / mu clipped to that interval, the loss is
    theta (s - mu theta / 2), and the envelope's conjugate is l*(theta) + mu theta^2 / 2.
    """

    loss: Loss
    mu: float

    @property
    def name(self) -> str:
        """The loss's name after the word smoothed; `make_loss` does not know it."""
        return f"smoothed_{self.loss.name}"

    @property
    def plain(self) -> Loss:
        """The loss with kinks."""
        return self.loss

    @property
    def classification(self) -> bool:
        """Whether targets are the labels -1 and +1."""
        return self.loss.classification

    @property
    def parameter(self) -> float:
        """The parameter of the loss with kinks."""
        return self.loss.parameter

    @property
    def smoothing(self) -> float:
        """The parameter mu."""
        return self.mu

    @property
    def curvature(self) -> float:
        """That of the parabola in place of a kink, 1 / mu."""
        return 1.0 / self.mu

    @property
    def lipschitz(self) -> float:
        """That of the loss with kinks."""
        return self.loss.lipschitz

    def _reach(self, value: float) -> float:
        return self.loss.reach(value + 0.5 * self.mu * self.lipschitz**2)

    def _value(self, m: Array, y: Array) -> Array:
        return self._value_and_derivative(m, y)[0]

    def _derivative(self, m: Array, y: Array) -> Array:
        return self._slope(self._excess(m, y), y)

    def _value_and_derivative(self, m: Array, y: Array) -> tuple[Array, Array]:
        excess = self._excess(m, y)
        slope = self._slope(excess, y)
        return slope * (excess - 0.5 * self.mu * slope), slope

    def _excess(self, m: Array, y: Array) -> Array:
        if self.classification:  # y = 1 / y, and there is nothing beyond the label
            return y * np.minimum(y * m - 1, 0)
        return _shrunk(m - y, getattr(self.loss, "epsilon", 0.0))

    def _slope(self, excess: Array, y: Array) -> Array:
        with np.errstate(over="ignore"):  # an infinite quotient is clipped
            steep = excess / self.mu
        ends: tuple[Vector | float, Vector | float] = (-self.lipschitz, self.lipschitz)
        if not self.classification:  # there the excess is 0 or has the sign that slopes may have
            ends = self.domain(y.astype(np.float64, copy=False))
        low, high = (np.asarray(end, dtype=steep.dtype) for end in ends)
        slope: Array = np.clip(steep, low, high)
        return slope

    def _domain(self, y: Vector) -> tuple[Vector | float, Vector | float]:
        return self.loss.domain(y)

    def _conjugate(self, theta: Vector, y: Vector) -> Vector:
        return self.loss._conjugate(theta, y) + 0.5 * self.mu * theta * theta


def make_loss(
    name: str, *, quantile: float = 0.5, epsilon: float = 0.1, delta: float = 1.35
) -> Loss:
    """Return the loss of the given name.

    Parameters
    ----------
    name : str
        "logistic", "hinge", "squared_hinge", "modified_huber", "squared", "absolute", "huber",
        "quantile", "epsilon_insensitive" or "squared_epsilon_insensitive".
    quantile : float
        The quantile that "quantile" estimates, between 0 and 1.
    epsilon : float
        The half width of the zone in which "epsilon_insensitive" and its square are zero, at
        least 0.
    delta : float
        The residual beyond which "huber" is linear, above 0.

    Notes
    -----
    All three numbers are checked, also those that the named loss does not use.
    """
    losses: tuple[Loss, ...] = (
        Logistic(),
        Hinge(),
        SquaredHinge(),
        ModifiedHuber(),
        Squared(),
        Absolute(),
        Huber(delta),
        Quantile(quantile),
        EpsilonInsensitive(epsilon),
        SquaredEpsilonInsensitive(epsilon),
    )
    by_name = {loss.name: loss for loss in losses}
    if not isinstance(name, str):
        raise TypeError(f"loss must be the name of a loss, not {name!r}; {nearest('', by_name)}")
    if name not in by_name:
        raise ValueError(f"loss must be the name of a loss, not {name!r}; {nearest(name, by_name)}")
    return by_name[name]
