r"""Penalties: the convex terms phi of the composite problem min f(x) + phi(x).

phi may have kinks; it is given by its proximal map

.. math:: \mathrm{prox}(x, s) = \arg\min_u \; \phi(u) + \tfrac{1}{2 s} \|u - x\|^2 .

Rules use `prox`; the certificate uses `affine_minorant` and `level_radius`. All work on
one-dimensional float64 arrays, do not modify them, and never change after construction.

References
----------
Parikh, Boyd (2014). Proximal algorithms. Section 6.5 has the proximal maps below.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from accelegrad import kernels
from accelegrad.errors import (
    NonFiniteError,
    Vector,
    finite_vector,
    real_array,
    real_number,
    whole_number,
)
from accelegrad.geometry.sets import (
    OnVectors,
    check_users_object,
    dot,
    length,
    named,
    read_only,
    require_shape,
    users_dimension,
)
from accelegrad.linalg import scaled_square

_Labels = npt.NDArray[np.intp]


class Penalty(OnVectors):
    """A convex function with a known proximal map.

    A user-defined penalty needs `value` and `prox`; the rest follows.
    """

    role = "penalty"
    #: Whether it is a sum over the coordinates: then clipping the prox to a box gives the prox of
    #: penalty and box together.
    separable: bool = False
    #: Whether phi(t x) = t phi(x) for t >= 0, as for a norm: then phi is the maximum of its affine
    #: minorants through zero.
    homogeneous: bool = False
    #: Whether it is nonnegative: then the objective bounds its other terms.
    nonnegative: bool = False

    @abstractmethod
    def value(self, x: Vector) -> float:
        """Return phi(x)."""

    @abstractmethod
    def prox(self, x: Vector, step: float) -> Vector:
        """Return argmin over u of phi(u) + ||u - x||^2 / (2 step), as a new array.

        `step` is not negative, and a step of 0 gives a copy of `x`.
        """

    def level_radius(self, value: float) -> float:  # noqa: ARG002
        """Return an R such that phi(u) <= value implies ||u|| <= R, or inf."""
        return math.inf

    def affine_minorant(self, slope: Vector) -> tuple[Vector, float]:
        r"""Return (q, c) with phi(u) >= <q, u> + c for all u, and q as near -slope as phi allows.

        A cut of f with slope s and the minorant add up to an affine lower bound on f + phi. With
        :math:`p = \mathrm{prox}(-s, 1)`, the vector

        .. math:: q = -s - p \in \partial\phi(p), \qquad c = \phi(p) - \langle q, p \rangle

        is a subgradient at p, so the minorant touches phi there, and the sum has the slope :math:`s
        + q = -p`: zero where -s is itself a subgradient of phi at 0. If phi is a norm, q is the
        point of its dual ball nearest to -s, and c is 0. All this holds up to rounding.
        """
        p = self.prox(-slope, 1.0)
        q: Vector = -slope - p
        # For a norm the difference would be only rounding error.
        return q, 0.0 if self.homogeneous else self.value(p) - float(q.dot(p))


class L1(Penalty):
    """The l1 norm ``strength * sum of |x_i|``, or ``sum of strength_i |x_i|``.

    Parameters
    ----------
    strength : float or array_like
        A positive number for every coordinate; or one nonnegative weight per coordinate, where 0
        leaves the coordinate unpenalised.
    """

    separable = True
    homogeneous = True
    nonnegative = True
    _shown = ("strength",)

    def __init__(self, strength: npt.ArrayLike) -> None:
        self.strength: float | Vector
        if real_array("strength", strength).ndim == 0:
            self.strength = real_number("strength", strength, above=0.0)
        else:
            self.strength = _weights("strength", strength)
        self.dimension = length(self.strength)
        self._least = float(np.min(self.strength))

    def value(self, x: Vector) -> float:
        """Return the weighted sum of |x_i|."""
        self.check_dimension(x.size)
        return dot(np.abs(x), self.strength)

    def prox(self, x: Vector, step: float) -> Vector:
        """Return sign(x) max(|x| - step * strength, 0)."""
        self.check_dimension(x.size)
        return _soft_threshold(x, _checked_step(step) * self.strength)

    def level_radius(self, value: float) -> float:
        """Return value / (the least weight): the Euclidean norm is at most the l1 norm."""
        return _level(value) / self._least if self._least > 0.0 else math.inf


class ElasticNet(Penalty):
    """The elastic net ``l1 * sum of |x_i| + l2 / 2 * sum of x_i^2``.

    Parameters
    ----------
    l1, l2 : float
        Not negative, and at least one of them positive.
    """

    separable = True
    nonnegative = True
    _shown = ("l1", "l2")

    def __init__(self, l1: float, l2: float) -> None:
        self.l1 = real_number("l1", l1, least=0.0)
        self.l2 = real_number("l2", l2, least=0.0)
        if self.l1 == self.l2 == 0.0:
            raise ValueError("l1 or l2 must be > 0, but both are 0.")

    def value(self, x: Vector) -> float:
        """Return l1 ||x||_1 + l2 / 2 ||x||^2."""
        return self.l1 * float(np.abs(x).sum()) + scaled_square(0.5 * self.l2, x)

    def prox(self, x: Vector, step: float) -> Vector:
        """Return sign(x) max(|x| - step * l1, 0) / (1 + step * l2)."""
        step = _checked_step(step)
        shrunk: Vector = _soft_threshold(x, step * self.l1) / (1.0 + step * self.l2)
        return shrunk

    def level_radius(self, value: float) -> float:
        """Return the positive root of l1 R + l2 / 2 R^2 = value."""
        level = _level(value)
        if level in (0.0, math.inf):
            return level
        # Written to avoid the cancellation in the usual formula.
        half = 0.5 * self.l1
        root = math.hypot(half, math.sqrt(0.5 * self.l2) * math.sqrt(level))
        return level / (half + root)


class GroupL2(Penalty):
    """The group norm ``strength * sum over groups g of weight_g ||x_g||``.

    Parameters
    ----------
    strength : float
        Positive.
    groups : array_like of int, or a list of index lists
        Either one integer label per coordinate, -1 for no group; or the indices of each group's
        coordinates. Groups must not overlap; coordinates in no group are not penalised.
    weights : array_like, optional
        One nonnegative factor per group, in the order of the lists or of the sorted labels; 1 by
        default.
    size : int, optional
        With index lists: the number of coordinates. Without it the penalty fits every dimension
        that has these indices, and `level_radius` is inf because some coordinate may be free.

    References
    ----------
    Yuan, Lin (2006). Model selection and estimation in regression with grouped variables.
    """

    homogeneous = True
    nonnegative = True

    def __init__(
        self,
        strength: float,
        groups: npt.ArrayLike | Sequence[Sequence[int]],
        weights: npt.ArrayLike | None = None,
        size: int | None = None,
    ) -> None:
        self.strength = real_number("strength", strength, above=0.0)
        self.dimension = None if size is None else whole_number("size", size, least=1)
        lists = _index_lists(groups)
        if lists is not None:
            labels, self._count = _labels_of_lists(lists, self.dimension), len(lists)
        else:
            labels, self._count = _consecutive_labels(groups)
            if self.dimension not in (None, labels.size):
                raise ValueError(
                    f"size must be {labels.size}, the number of labels in groups, "
                    f"but it is {self.dimension}."
                )
            self.dimension = labels.size
        # Coordinates in no group get an extra one, whose factor is always 1: see prox.
        self._member = read_only(np.where(labels == -1, self._count, labels))
        factors = np.ones(self._count) if weights is None else _weights("weights", weights)
        if factors.size != self._count:
            raise ValueError(
                f"weights must have one entry per group, {self._count}, but it has {factors.size}."
            )
        self._strengths = self.strength * factors

    def check_dimension(self, size: int) -> None:
        """Raise ValueError unless points of `size` coordinates have all the indices."""
        super().check_dimension(size)
        if size < self._member.size:
            raise ValueError(
                f"penalty {self!r} has the index {self._member.size - 1} in its groups, but the "
                f"points have {size} coordinates; it needs at least {self._member.size}."
            )

    def value(self, x: Vector) -> float:
        """Return the weighted sum of the groups' norms."""
        self.check_dimension(x.size)
        return float(self._strengths.dot(self._norms(x)))

    def prox(self, x: Vector, step: float) -> Vector:
        """Return x_g max(1 - step * strength * weight_g / ||x_g||, 0) for every group."""
        self.check_dimension(x.size)
        thresholds = _checked_step(step) * self._strengths
        norms = self._norms(x)
        lost = np.where(thresholds > 0.0, 1.0, 0.0)  # the whole group, unless its norm is larger
        np.divide(thresholds, norms, out=lost, where=norms > thresholds)
        factors = np.append(1.0 - lost, 1.0)
        shrunk = x.copy()
        shrunk[: self._member.size] *= factors[self._member]
        return shrunk

    def level_radius(self, value: float) -> float:
        """Return value / (strength * the least weight), inf if a coordinate may be free."""
        least = float(self._strengths.min())
        has_free = self.dimension != self._member.size or bool((self._member == self._count).any())
        return math.inf if has_free or least == 0.0 else _level(value) / least

    def _norms(self, x: Vector) -> Vector:
        """Return the norms of the groups; the scale avoids overflow of squares."""
        inside = x[: self._member.size]
        largest = float(np.abs(inside).max())
        scale = largest if 0.0 < largest < math.inf else 1.0
        squares = np.bincount(self._member, np.square(inside / scale), minlength=self._count)
        norms: Vector = scale * np.sqrt(squares[: self._count])
        return norms

    def __repr__(self) -> str:
        grouped = np.count_nonzero(self._member < self._count)
        return (
            f"GroupL2(strength={self.strength!r}, groups={self._count} groups of {grouped} "
            f"coordinates, size={self.dimension})"
        )


class NuclearNorm(Penalty):
    """The nuclear norm ``strength * sum of the singular values`` of x as a matrix.

    Parameters
    ----------
    strength : float
        Positive.
    shape : (int, int)
        The matrix's shape; x holds its rows, one after the other.
    """

    homogeneous = True
    nonnegative = True
    _shown = ("strength", "shape")

    def __init__(self, strength: float, shape: Sequence[int]) -> None:
        self.strength = real_number("strength", strength, above=0.0)
        if not isinstance(shape, (tuple, list)) or len(shape) != 2:
            raise TypeError(f"shape must be a pair of whole numbers >= 1, not {shape!r}.")
        self.shape = tuple(whole_number(f"shape[{i}]", shape[i], least=1) for i in (0, 1))
        self.dimension = self.shape[0] * self.shape[1]

    def value(self, x: Vector) -> float:
        """Return the sum of the singular values, times the strength."""
        matrix = self._matrix(x)
        if not np.isfinite(matrix).all():  # LAPACK would report failed convergence
            return math.nan
        return self.strength * float(np.linalg.svd(matrix, compute_uv=False).sum())

    def prox(self, x: Vector, step: float) -> Vector:
        """Return the matrix with singular values max(sigma - step * strength, 0)."""
        matrix = self._matrix(x)
        threshold = _checked_step(step) * self.strength
        if threshold == 0.0:
            return x.copy()
        if not np.isfinite(matrix).all():
            return np.full_like(x, math.nan)
        left, sizes, right = np.linalg.svd(matrix, full_matrices=False)
        rank = np.count_nonzero(sizes > threshold)
        shrunk: Vector = (left[:, :rank] * (sizes[:rank] - threshold)).dot(right[:rank]).ravel()
        return shrunk

    def level_radius(self, value: float) -> float:
        """Return value / strength: the Euclidean norm is at most the nuclear norm."""
        return _level(value) / self.strength

    def _matrix(self, x: Vector) -> Vector:
        self.check_dimension(x.size)
        return x.reshape(self.shape)


class OnLeading(Penalty):
    """A penalty of the first `size` of `total` coordinates; the others are free."""

    def __init__(self, penalty: Penalty, size: int, total: int) -> None:
        penalty.check_dimension(size)
        self.penalty, self.size, self.total, self.dimension = penalty, size, total, total
        self.separable, self.homogeneous = penalty.separable, penalty.homogeneous
        self.nonnegative = penalty.nonnegative

    def value(self, x: Vector) -> float:
        """Return the penalty of the leading coordinates."""
        self.check_dimension(x.size)
        return self.penalty.value(x[: self.size])

    def prox(self, x: Vector, step: float) -> Vector:
        """Return the prox of the leading coordinates, and the others unchanged."""
        self.check_dimension(x.size)
        return np.concatenate([self.penalty.prox(x[: self.size], step), x[self.size :]])

    def level_radius(self, value: float) -> float:
        """Return the inner penalty's if it applies to all coordinates, else inf."""
        return self.penalty.level_radius(value) if self.size == self.total else math.inf

    def __repr__(self) -> str:
        return f"OnLeading({self.penalty!r}, size={self.size}, total={self.total})"


class _Foreign(Penalty):
    """A user's object with `value` and `prox`, and optionally the other methods."""

    def __init__(self, given: Any) -> None:
        self._given = given
        self._level_radius = getattr(given, "level_radius", None)
        self.dimension = users_dimension(self.role, given)
        self.separable = getattr(given, "separable", False)
        if not isinstance(self.separable, bool):
            raise TypeError(f"penalty.separable must be True or False, not {self.separable!r}.")

    def value(self, x: Vector) -> float:
        value = _number("penalty.value", self._given.value(x.copy()))
        if not math.isfinite(value):
            raise NonFiniteError(f"the value of the penalty is {value}")
        return value

    def prox(self, x: Vector, step: float) -> Vector:
        """Return a copy of the object's prox of a copy of `x`: it may work in place."""
        step = _checked_step(step)
        if step == 0.0:
            return x.copy()
        with kernels.as_given():
            answer = real_array("the answer of penalty.prox", self._given.prox(x.copy(), step))
        require_shape("penalty.prox", answer, x)
        nearby = np.array(answer, dtype=np.float64)
        if not np.isfinite(nearby).all():
            first = int(np.flatnonzero(~np.isfinite(nearby))[0])
            raise NonFiniteError(f"the prox of the penalty has entry {first} = {nearby[first]}")
        return nearby

    def level_radius(self, value: float) -> float:
        if self._level_radius is None:
            return math.inf
        radius = _number("penalty.level_radius", self._level_radius(value))
        if not radius >= 0.0:
            raise ValueError(f"penalty.level_radius must return a number >= 0, not {radius}.")
        return radius

    def __repr__(self) -> str:
        return f"as_penalty({self._given!r})"


#: Penalties that can be given by name, with strength 1
NAMED: dict[str, Callable[[], Penalty]] = {
    "l1": lambda: L1(1.0),
    "l2": lambda: ElasticNet(0.0, 1.0),
}


def as_penalty(given: Any) -> Penalty:
    """Return a penalty given by itself, by name ("l1", "l2") or as a user's object."""
    if isinstance(given, Penalty):
        return given
    if isinstance(given, str):
        more = " For other strengths give L1(strength) or ElasticNet(l1, l2)."
        found: Penalty = named("penalty", "penalty", given, NAMED, more)
        return found
    check_users_object("penalty", "penalty", given, "value(x)", "prox(x, step)")
    return _Foreign(given)


def _soft_threshold(x: Vector, threshold: float | Vector) -> Vector:
    clipped: Vector = np.maximum(x, -threshold)
    np.minimum(clipped, threshold, out=clipped)
    np.subtract(x, clipped, out=clipped)
    return clipped


def _checked_step(given: Any) -> float:
    if type(given) is float and 0.0 <= given < math.inf:  # the usual case, at every iteration
        return given
    return real_number("step", given, least=0.0)


def _level(value: Any) -> float:
    """Return a level of a nonnegative penalty, which rounding may have put below 0."""
    if isinstance(value, (float, np.floating)) and value == math.inf:
        return math.inf
    return max(0.0, real_number("value", value))


def _number(name: str, given: Any) -> float:
    array = real_array(f"the answer of {name}", given)
    if array.ndim != 0:
        raise TypeError(f"{name} must return a number, not an array of shape {array.shape}.")
    return float(array)


def _weights(name: str, given: Any) -> Vector:
    weights = finite_vector(name, given, least=0.0)
    if not weights.any():
        raise ValueError(f"{name} must have an entry > 0, but all are 0.")
    return read_only(weights)


def _whole_vector(name: str, given: Any) -> _Labels:
    array = np.asarray(given)
    if array.size > 0 and array.dtype.kind not in "iu":
        raise TypeError(f"{name} must hold whole numbers, but its dtype is {array.dtype}.")
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must be a vector with entries, but its shape is {array.shape}.")
    return array.astype(np.intp)


def _index_lists(groups: Any) -> list[Any] | None:
    """Return the members of `groups` if it is a list of lists, None if it may be labels."""
    if isinstance(groups, np.ndarray) and groups.ndim == 1 and groups.dtype != object:
        return None  # the usual labels; there may be very many
    try:
        members = list(groups)
    except TypeError:
        raise TypeError(
            f"groups must be a vector of labels or a list of index lists, not {groups!r}."
        ) from None
    nested = [isinstance(member, (list, tuple, range, np.ndarray)) for member in members]
    if any(nested) and not all(nested):
        raise TypeError(
            "groups must be labels or index lists only, but "
            f"groups[{nested.index(False)}] is {members[nested.index(False)]!r}."
        )
    return members if any(nested) else None


def _consecutive_labels(groups: Any) -> tuple[_Labels, int]:
    """Return the labels as 0, 1, ... in their order, -1 for no group, and their number."""
    given = _whole_vector("groups", groups)
    if (given < -1).any():
        first = int(np.argmax(given < -1))
        raise ValueError(
            f"groups must be labels >= 0, or -1 for no group, but groups[{first}] is "
            f"{given[first]}."
        )
    grouped = given != -1
    if not grouped.any():
        raise ValueError("groups must have a label >= 0, but all are -1.")
    distinct, order = np.unique(given[grouped], return_inverse=True)
    labels = np.full_like(given, -1)
    labels[grouped] = order
    return labels, distinct.size


def _labels_of_lists(lists: list[Any], size: int | None) -> _Labels:
    """Return a label for every coordinate up to `size` (None: up to the last index)."""
    indices = [_whole_vector(f"groups[{number}]", given) for number, given in enumerate(lists)]
    flat = np.concatenate(indices)
    owners = np.repeat(np.arange(len(indices)), [members.size for members in indices])
    end = int(flat.max()) + 1 if size is None else size
    outside = (flat < 0) | (flat >= end)
    if outside.any():
        first = int(np.argmax(outside))
        allowed = ">= 0" if size is None else f"from 0 to {size - 1}"
        raise ValueError(
            f"groups must hold indices {allowed}, but groups[{owners[first]}] has {flat[first]}."
        )
    order = np.argsort(flat, kind="stable")
    repeated = np.flatnonzero(np.diff(flat[order]) == 0)
    if repeated.size:
        first, second = order[repeated[0]], order[repeated[0] + 1]
        raise ValueError(
            f"groups must not overlap, but the coordinate {flat[first]} is in groups"
            f"[{owners[first]}] and again in groups[{owners[second]}]."
        )
    labels = np.full(end, -1, dtype=np.intp)
    labels[flat] = owners
    return labels
