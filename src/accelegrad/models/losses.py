"""Pointwise losses l(m) = l(m, y) of a margin or prediction m against a target y: one table.

Each loss is convex in m, nonnegative and has infimum 0, so theta = 0 lies in the domain of every
conjugate, with l*(0) = 0. The Fenchel dual gap of a linear model rests on that. Losses of labels
are at least -y m, on which bounds of the intercept rest.

The logistic loss has a special formula. All others share one, whose numbers an entry of the
table `LOSSES` gives: see `accelegrad.kernels.loss_shape`, which compiled code reads too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import xlog1py, xlogy

from accelegrad.errors import Vector, nearest, real_number
from accelegrad.kernels.loss_shape import LABELS, LOGISTIC, LOGISTIC_SHAPE, TARGETS, Shape

Array = npt.NDArray[np.floating[Any]]

# How many units of rounding a theta may lie outside the domain of a conjugate.
_ROUNDING_UNITS = 8.0
_INF = math.inf


# -- the table -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parameter:
    """A number that users give some losses."""

    name: str
    default: float
    words: str
    """What it is."""
    above: float = -_INF
    least: float = -_INF
    below: float = _INF

    def checked(self, given: Any) -> float:
        """Return it as a float, or say what is wrong with it."""
        if self.below == _INF:
            return real_number(self.name, given, above=self.above, least=self.least)
        number = real_number(self.name, given)
        if not self.above < number < self.below:
            allowed = f"> {self.above:g} and < {self.below:g}"
            raise ValueError(f"{self.name} must be {allowed}, but it is {given!r}.")
        return number


QUANTILE = Parameter("quantile", 0.5, "the quantile to estimate", above=0.0, below=1.0)
EPSILON = Parameter("epsilon", 0.1, "half the width of the zone without cost", least=0.0)
DELTA = Parameter("delta", 1.35, "the residual beyond which the loss is linear", above=0.0)
PARAMETERS = {parameter.name: parameter for parameter in (QUANTILE, EPSILON, DELTA)}


@dataclass(frozen=True)
class LossEntry:
    """A loss of the table."""

    name: str
    """By which `make_loss` and `LinearModel` know it."""
    sklearn_name: str
    """By which scikit-learn and its users know it."""
    words: str
    """What a linear model with this loss is called."""
    formula: str
    """l, where r = m - y."""
    shape: Callable[[float], Shape]
    """Its numbers, which may depend on its parameter."""
    parameter: Parameter | None = None

    @property
    def classification(self) -> bool:
        """Whether targets are the labels -1 and +1."""
        return self._usual.kind != TARGETS

    @property
    def smooth(self) -> bool:
        """Whether there are no kinks."""
        return self._usual.softness > 0.0

    @property
    def _usual(self) -> Shape:
        return self.shape(0.0 if self.parameter is None else self.parameter.default)

    @property
    def class_name(self) -> str:
        """The name in CamelCase, such as SquaredHinge."""
        return self.name.title().replace("_", "")


#: The losses by name.
LOSSES = {
    entry.name: entry
    for entry in (
        LossEntry(
            "logistic",
            "log_loss",
            "logistic regression",
            "log(1 + exp(-y m))",
            lambda _: LOGISTIC_SHAPE,
        ),
        LossEntry(
            "hinge",
            "hinge",
            "SVM (hinge loss)",
            "max(0, 1 - y m)",
            lambda _: Shape(LABELS, low=-1.0, high=0.0),
        ),
        LossEntry(
            "squared_hinge",
            "squared_hinge",
            "SVM (squared hinge loss)",
            "max(0, 1 - y m)^2",
            lambda _: Shape(LABELS, low=-_INF, high=0.0, softness=0.5),
        ),
        LossEntry(
            "modified_huber",
            "modified_huber",
            "classification with the modified Huber loss",
            "max(0, 1 - y m)^2 down to y m = -1, then -4 y m",
            lambda _: Shape(LABELS, low=-4.0, high=0.0, softness=0.5),
        ),
        LossEntry(
            "squared",
            "squared_error",
            "least squares",
            "r^2 / 2",
            lambda _: Shape(TARGETS, low=-_INF, high=_INF, softness=1.0),
        ),
        LossEntry(
            "absolute",
            "absolute_error",
            "least absolute deviations",
            "|r|",
            lambda _: Shape(TARGETS, low=-1.0, high=1.0),
        ),
        LossEntry(
            "huber",
            "huber",
            "regression with Huber's loss",
            "r^2 / 2 up to |r| = delta, then delta (|r| - delta / 2)",
            lambda delta: Shape(TARGETS, low=-delta, high=delta, softness=1.0),
            DELTA,
        ),
        LossEntry(
            "quantile",
            "quantile",
            "quantile regression",
            "the pinball loss: quantile |r| for r < 0, (1 - quantile) |r| else",
            lambda quantile: Shape(TARGETS, low=-quantile, high=1.0 - quantile),
            QUANTILE,
        ),
        LossEntry(
            "epsilon_insensitive",
            "epsilon_insensitive",
            "regression with the epsilon-insensitive loss",
            "max(0, |r| - epsilon)",
            lambda epsilon: Shape(TARGETS, low=-1.0, high=1.0, epsilon=epsilon),
            EPSILON,
        ),
        LossEntry(
            "squared_epsilon_insensitive",
            "squared_epsilon_insensitive",
            "regression with the squared epsilon-insensitive loss",
            "max(0, |r| - epsilon)^2",
            lambda epsilon: Shape(TARGETS, low=-_INF, high=_INF, softness=0.5, epsilon=epsilon),
            EPSILON,
        ),
    )
}


def by_sklearn_name(*, classification: bool) -> dict[str, LossEntry]:
    """Return the losses of labels, or those of other targets, by scikit-learn's names."""
    entries = LOSSES.values()
    return {one.sklearn_name: one for one in entries if one.classification == classification}


def plain_loss_name(name: Any) -> Any:
    """Return the name in `LOSSES` of a loss that may have scikit-learn's; others as they are."""
    return _PLAIN_NAMES.get(name, name) if isinstance(name, str) else name


_PLAIN_NAMES = {entry.sklearn_name: entry.name for entry in LOSSES.values()}


def losses_with(parameter: Parameter) -> list[LossEntry]:
    """Return the losses that have a parameter."""
    return [entry for entry in LOSSES.values() if entry.parameter == parameter]


def make_loss(
    name: str,
    *,
    quantile: float = QUANTILE.default,
    epsilon: float = EPSILON.default,
    delta: float = DELTA.default,
) -> Loss:
    """Return the loss of the given name.

    Parameters
    ----------
    name : str
        A name of the table `LOSSES`, or scikit-learn's, such as "log_loss".
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
    given = {"quantile": quantile, "epsilon": epsilon, "delta": delta}
    numbers = {key: PARAMETERS[key].checked(value) for key, value in given.items()}
    if not isinstance(name, str):
        raise TypeError(f"loss must be the name of a loss, not {name!r}; {nearest('', LOSSES)}")
    name = plain_loss_name(name)
    if name not in LOSSES:
        raise ValueError(f"loss must be the name of a loss, not {name!r}; {nearest(name, LOSSES)}")
    parameter = LOSSES[name].parameter
    return _made(name, 0.0 if parameter is None else numbers[parameter.name])


@lru_cache(maxsize=64)  # they cannot change, and fits along a path make each many times
def _made(name: str, parameter: float) -> Loss:
    return Loss(name, parameter)


# -- losses ----------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Loss:
    """A convex loss of a number m (margin or prediction) and a target y: see `make_loss`.

    Every method is vectorised over `m` and `y` and works in the floating type of `m`: float32
    stays float32. The parameter is also an attribute by its name, such as `delta`.
    """

    plain_name: str
    """In the table, where Moreau envelopes have none."""
    parameter: float = 0.0
    """The loss's quantile, epsilon or delta; 0 for losses without a parameter."""
    smoothing: float = 0.0
    """The parameter mu of a Moreau envelope; 0 for a loss that is none."""
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
    _is_kinked: bool = field(init=False, compare=False)
    _is_parabola: bool = field(init=False, compare=False)
    """Whether slopes grow without end, where there are any."""

    def __post_init__(self) -> None:
        # All at once, and none when it is first asked for: fingerprints of runs take them in.
        entry = LOSSES[self.plain_name]
        shape = entry.shape(self.parameter)
        shape = shape._replace(softness=shape.softness + self.smoothing)
        curvature = 1.0 / shape.softness if shape.softness > 0.0 else _INF
        known: dict[str, Any] = {
            "shape": shape,
            "classification": shape.kind != TARGETS,
            "has_logarithms": shape.kind == LOGISTIC,
            "curvature": curvature,
            "lipschitz": max(-shape.low, shape.high),
            "_is_kinked": curvature == _INF,
            "_is_parabola": curvature < _INF and shape.low == -_INF and shape.high in (0.0, _INF),
        }
        if entry.parameter is not None:
            known[entry.parameter.name] = self.parameter
        for name, value in known.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        if self.smoothing > 0.0:
            return f"Smoothed(loss={self.plain!r}, mu={self.smoothing!r})"
        entry = LOSSES[self.plain_name]
        parameter = "" if entry.parameter is None else f"{entry.parameter.name}={self.parameter!r}"
        return f"{entry.class_name}({parameter})"

    @property
    def name(self) -> str:
        """The name in the table, after the word smoothed for a Moreau envelope."""
        return f"smoothed_{self.plain_name}" if self.smoothing > 0.0 else self.plain_name

    @property
    def plain(self) -> Loss:
        """The loss that this one is the Moreau envelope of, or the loss itself if it is none."""
        return replace(self, smoothing=0.0) if self.smoothing > 0.0 else self

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
        if self.curvature < _INF:
            raise ValueError(f"smoothed takes losses with kinks, but {self!r} has none.")
        return self.envelope(mu)

    def envelope(self, mu: float) -> Loss:
        """Return the Moreau envelope, also of a loss without kinks; the logistic loss has none."""
        assert not self.has_logarithms
        return replace(self, smoothing=self.smoothing + mu)

    def value(self, m: npt.ArrayLike, y: npt.ArrayLike) -> Array:
        """Return l(m, y)."""
        m, y, is_number = _operands(m, y)
        if self.has_logarithms:
            value = _logistic_value(*_decay(m, y))
        else:
            s = _beyond(self.shape, m, y)
            value = _kinked_value(self.shape, s) if self._is_kinked else self._value(s, None)
        return value[0] if is_number else value

    def derivative(self, m: npt.ArrayLike, y: npt.ArrayLike) -> Array:
        """Return l'(m, y), a subgradient in m; the choice at kinks is 0 for every loss here."""
        m, y, is_number = _operands(m, y)
        if self.has_logarithms:
            slope = _logistic_slope(y, *_decay(m, y))
        else:
            slope = self._slope(_beyond(self.shape, m, y))
            if self.classification:
                slope *= y
        return slope[0] if is_number else slope

    def value_and_derivative(self, m: npt.ArrayLike, y: npt.ArrayLike) -> tuple[Array, Array]:
        """Return both at once, the same to the last bit, with shared work where there is any."""
        m, y, is_number = _operands(m, y)
        if self.has_logarithms:
            z, decay = _decay(m, y)
            value, slope = _logistic_value(z, decay), _logistic_slope(y, z, decay)
        else:
            s = _beyond(self.shape, m, y)
            slope = self._slope(s)
            value = self._value(s, slope)
            if self.classification:
                slope *= y
        return (value[0], slope[0]) if is_number else (value, slope)

    def conjugate(self, theta: npt.ArrayLike, y: npt.ArrayLike) -> Vector:
        """Return l*(theta) = sup_m theta m - l(m, y) in float64, infinite outside its domain.

        A theta outside the domain by no more than a few units of rounding (of its floating
        type, relative to its size and the domain's) counts as lying on the domain's end.
        """
        slope = np.asarray(theta)
        unit = np.finfo(slope.dtype if slope.dtype.kind == "f" else np.float64).eps
        slope, target = slope.astype(np.float64), np.asarray(y, dtype=np.float64)
        low, high = self.domain(target)
        slack = _ROUNDING_UNITS * unit * (np.abs(slope) + np.minimum(high - low, 1.0))
        allowed = np.isfinite(slope) & (slope >= low - slack) & (slope <= high + slack)
        inside = np.where(allowed, np.clip(slope, low, high), 0.0)
        formula = _logistic_conjugate if self.has_logarithms else self._conjugate
        return np.where(allowed, formula(inside, target), np.inf)

    def domain(self, y: Vector) -> tuple[Vector | float, Vector | float]:
        """Return the ends of the closed interval in which the conjugate is finite."""
        low, high = self.shape.low, self.shape.high
        if not self.classification:
            return low, high
        return np.where(y > 0, low, 0.0 - high), np.where(y > 0, high, 0.0 - low)

    def reach(self, value: float) -> float:
        """Return how far from its target a prediction can be whose loss is at most `value`.

        For losses of labels: how far on the wrong side of 0, which all of them grow with.
        """
        if self.smoothing > 0.0:  # then the plain loss is above by this at most
            return self.plain.reach(value + 0.5 * self.smoothing * self.lipschitz**2)
        if self.classification:
            return value
        flatter = min(-self.shape.low, self.shape.high)
        if flatter == _INF:
            return math.sqrt(2.0 * self.shape.softness * value) + self.shape.epsilon
        return value / flatter + 0.5 * self.shape.softness * flatter + self.shape.epsilon

    def _slope(self, s: Array) -> Array:
        """Return the slopes in the residual, given by how much that is beyond the flat zone.

        The array may be s itself.
        """
        curvature = self.curvature
        if self._is_parabola:
            return s if curvature == 1.0 else curvature * s
        _, low, high, _, _ = self.shape
        steepest = _INF
        if self._is_kinked:
            steepest = max(self.lipschitz, 1.0)
            slope = np.sign(s)
            if steepest > 1.0:
                slope *= steepest
        elif curvature == 1.0:
            slope = s.copy()
        else:
            with np.errstate(over="ignore"):  # an infinite slope is cut off
                slope = curvature * s
        # Only the ends are looked at that slopes may be beyond.
        if low > -steepest:
            np.maximum(slope, low, out=slope)
        if 0.0 < high < steepest:  # s is never above 0 where high is 0
            np.minimum(slope, high, out=slope)
        return slope

    def _value(self, s: Array, slope: Array | None) -> Array:
        """Return the values, given that and the slopes, if they are known; s may be changed."""
        if self._is_parabola:
            if slope is s:
                s = s * s
            else:
                s *= s
            if self.curvature != 2.0:
                s *= 0.5 * self.curvature
            return s
        slope = self._slope(s) if slope is None else slope
        if not self._is_kinked:  # no squares here: those of huge residuals would overflow
            s -= (0.5 * self.shape.softness) * slope
        s *= slope
        return s

    def _conjugate(self, theta: Vector, y: Vector) -> Vector:
        """Return the conjugate at a theta inside the domain; y theta is that of a label's 1."""
        shape = self.shape
        conjugate = theta * (0.5 * shape.softness * theta + y) if shape.softness else theta * y
        return conjugate + shape.epsilon * np.abs(theta) if shape.epsilon else conjugate


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
    """Return by how much residuals are beyond the flat zone, as a new array.

    Where there is no slope above the zone, being above it does not count.
    """
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


def _kinked_value(shape: Shape, s: Array) -> Array:
    """Return the values of a loss with kinks without its slopes, and the same to the last bit."""
    if shape.high == 0.0:
        s *= shape.low
    elif shape.high == -shape.low == 1.0:
        np.abs(s, out=s)
    else:
        np.maximum(shape.low * s, shape.high * s, out=s)
    return s


# -- the logistic loss: with u = -y theta in [0, 1], l* = u log u + (1 - u) log(1 - u) -------------


def _decay(m: Array, y: Array) -> tuple[Array, Array]:
    """Return z = y m and exp(-|z|), in which nothing overflows."""
    z = y * m
    return z, np.exp(-np.abs(z))


def _logistic_value(z: Array, decay: Array) -> Array:
    return np.log1p(decay) - np.minimum(z, 0)


def _logistic_slope(y: Array, z: Array, decay: Array) -> Array:
    return -y * np.where(z > 0, decay, 1.0) / (1 + decay)


def _logistic_conjugate(theta: Vector, y: Vector) -> Vector:
    u = -y * theta
    # These two take 0 log 0 as 0.
    return np.asarray(xlogy(u, u) + xlog1py(1.0 - u, -u), dtype=np.float64)
