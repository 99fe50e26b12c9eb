"""Convex functions of a user's own.

Each is written once, for the kinds of numbers of `extended`. What the product is given is computed
in long doubles and then rounded, so that whatever is false is the product's own; or, where it is
`plain`, in float64 throughout, as users do: then gradients do not vanish where they should.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from proofs.extended import EPS, LONG, LONG_EPS, LONG_IS_WIDE, PLAIN, Kind, Rng

Vector = Any
#: The share of functions that are computed in float64, among those of ordinary size
PLAIN_SHARE = 0.4


class Parts(NamedTuple):
    value: Any
    gradient: Any
    size: Any


def _signs(x: Any) -> Any:
    """Return -1, 0 or 1; NumPy's own does not do for objects."""
    return (x > 0) * 1 - (x < 0) * 1


@dataclass(frozen=True, eq=False)
class Function:
    """A shape around `target`, where it is lowest: factor * shape(matrix (x - target)) + slope x + constant."""

    shape: str
    target: Vector
    matrix: Vector  # a row for each of the shape's coordinates; or one number for each of x's
    factor: float = 1.0
    constant: float = 0.0
    slope: Vector | None = None
    noise: float = 0.0
    plain: bool = False  # computed in float64 throughout

    @property
    def eps(self) -> float:
        """The precision with which the product is given values and gradients."""
        return EPS if self.plain or not LONG_IS_WIDE else LONG_EPS

    def at(self, x: Any, kind: Kind) -> Parts:
        """Return all that is known at x, in numbers of this kind."""
        matrix, factor = kind.array(self.matrix), kind.array(self.factor)[()]
        target, constant = kind.array(self.target), kind.array(self.constant)[()]
        moved, wide = x - target, abs(x) + abs(target)
        plain = matrix.ndim == 1
        r = matrix * moved if plain else matrix @ moved
        reach = abs(matrix) * wide if plain else abs(matrix) @ wide
        value, slopes = SHAPES[self.shape](r, kind)
        gradient = factor * (matrix * slopes if plain else slopes @ matrix)
        size = factor * (abs(value) + (abs(slopes) * reach).sum()) + abs(constant)
        value = factor * value + constant
        if self.slope is not None:
            slope = kind.array(self.slope)
            value, gradient = value + slope @ x, gradient + slope
            size = size + abs(slope) @ abs(x)
        return Parts(value, gradient, size)

    def __call__(self, x: Vector) -> tuple[float, Vector]:
        """Return value and gradient in float64, with noise where there is any."""
        with np.errstate(over="ignore", under="ignore"):
            kind = PLAIN if self.plain else LONG
            parts = self.at(kind.array(x), kind)
            value, gradient = float(parts.value), np.array(parts.gradient, dtype=np.float64)
        if self.noise > 0:  # a function of the point alone, so that a run can be had again
            rng = np.random.default_rng(zlib.crc32(x.tobytes()))
            value = value + self.noise * rng.standard_normal()
            gradient = gradient + self.noise * rng.standard_normal(x.size)
        return value, gradient

    def value(self, x: Vector) -> float:
        return self(x)[0]

    def gradient(self, x: Vector) -> Vector:
        return self(x)[1]


def _norm(r: Any, kind: Kind) -> tuple[Any, Any]:
    length = kind.norm(r)
    return length, (r / length if length > 0 else r * 0)


def _largest(r: Any, kind: Kind) -> tuple[Any, Any]:
    first = int(np.argmax(r))
    return r[first], (np.arange(r.size) == first) * 1


def _log_sum_exp(r: Any, kind: Kind) -> tuple[Any, Any]:
    largest = r.max()
    shares = kind.exp(r - largest)
    total = shares.sum()
    return largest + kind.log(total), shares / total


def _huber(r: Any, kind: Kind) -> tuple[Any, Any]:
    near = np.minimum(abs(r), 1)
    return (near * (abs(r) - near / 2)).sum(), _signs(r) * near


def _norm_beyond_one(r: Any, kind: Kind) -> tuple[Any, Any]:
    value, slopes = _norm(r, kind)
    return (value - 1, slopes) if value > 1 else (value * 0, r * 0)


def _root(r: Any, kind: Kind) -> tuple[Any, Any]:
    """Like a norm far away, smooth at the target: the sum of sqrt(1 + r^2) - 1."""
    roots = kind.sqrt(1 + r * r)
    return (r * r / (1 + roots)).sum(), r / roots


#: Value and slopes at r = matrix (x - target)
SHAPES: dict[str, Callable[[Any, Kind], tuple[Any, Any]]] = {
    "squares": lambda r, kind: ((r * r).sum() / 2, r),
    "absolute": lambda r, kind: (abs(r).sum(), _signs(r)),
    "norm": _norm,
    "largest": _largest,
    "log_sum_exp": _log_sum_exp,
    "huber": _huber,
    "beyond_one": lambda r, kind: (np.maximum(abs(r) - 1, 0).sum(), _signs(r) * (abs(r) > 1)),
    "norm_beyond_one": _norm_beyond_one,
    "constant": lambda r, kind: (r.sum() * 0, r * 0),
    "root": _root,
}


def drawn(rng: Rng, d: int) -> Function:
    shape = str(rng.choice(list(SHAPES)))
    target = rng.standard_normal(d) * 10.0 ** rng.choice([0, 0, 0, 1, 3, -3, 6])
    if rng.random() < 0.3:
        target = np.round(target)
    if rng.random() < 0.1:
        target = np.zeros(d)
    spread = rng.choice([0.0, 0.0, 1.0, 4.0])
    sizes = 10.0 ** rng.uniform(-spread, spread, d)
    if shape in ("largest", "log_sum_exp") or rng.random() < 0.4:
        rows = rng.standard_normal((int(rng.integers(1, d + 4)), d)) * sizes
        # With a row's opposite, or minus the sum of all rows, the target is a lowest point.
        opposite = -rows if rng.random() < 0.5 else -rows.sum(axis=0)
        matrix = np.vstack([rows, opposite])
    else:
        matrix = sizes
    factor = 10.0 ** rng.choice(
        [0] * 20 + [2, -2, 2, -2, 8, -8, 8, -8, 20, -20, 100, -100, 150, -150, 290, -290]
    )
    constant = rng.choice([0.0, 0.0, 0.0, -3.25, 1e6, -1e10]) if 1e-9 < factor < 1e9 else 0.0
    slope = None
    if rng.random() < 0.15 or (shape == "constant" and rng.random() < 0.5):
        slope = factor * rng.standard_normal(d) * 10.0 ** rng.choice([0, -2])
    # Of a stream of its own: what seeds drew before there were plain ones stays as it was.
    own = np.random.default_rng([29, zlib.crc32(target.tobytes())])
    plain = bool(1e-9 < factor < 1e9 and own.random() < PLAIN_SHARE)
    return Function(shape, target, matrix, float(factor), float(constant), slope, plain=plain)
