"""Objective values far beyond float64, written from the documented formulas.

Nothing here calls the product. One set of formulas serves several kinds of numbers: `LONG`, NumPy's
long double, which is fast, and `MANY`, mpmath with 60 digits, which decides. Where long double is no
wider than float64, every comparison goes to `MANY`. `PLAIN` is float64, as users compute.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import mpmath
import numpy as np
from scipy.optimize import nnls

from reference.losses import loss_values

EPS = float(np.finfo(np.float64).eps)
LONG_EPS = float(np.finfo(np.longdouble).eps)
#: Where long double is no wider than float64 its own rounding is as large as what is looked for.
LONG_IS_WIDE = LONG_EPS < 1e-18
SMALLEST = 5e-324  # of float64: what an underflow may lose
mpmath.mp.dps = 60

Array = Any  # of long doubles, or of mpmath's numbers as objects


class Kind:
    """A kind of numbers: how arrays of them are made, and the functions that NumPy lacks."""

    def __init__(self, name: str) -> None:
        self.name, self.many = name, name == "many"

    def array(self, given: Any) -> Array:
        """Return numbers of this kind that are exactly those given."""
        if self.name == "plain":
            return np.asarray(given, dtype=np.float64)
        wide = np.asarray(given, dtype=np.longdouble)
        if not self.many:
            return wide
        high = wide.astype(np.float64)
        low = np.where(np.isfinite(high), wide - high, 0).astype(np.float64)
        exact = [
            mpmath.mpf(float(a)) + mpmath.mpf(float(b))
            for a, b in zip(high.flat, low.flat, strict=True)
        ]
        return np.array([*exact, None], dtype=object)[:-1].reshape(wide.shape)

    def _map(self, function: Any, numpys: Any, x: Array) -> Array:
        if not self.many:
            return numpys(x)
        if not isinstance(x, np.ndarray):
            return function(x)
        return np.array([*(function(one) for one in x.flat), None], dtype=object)[:-1].reshape(
            x.shape
        )

    def exp(self, x: Array) -> Array:
        return self._map(mpmath.exp, np.exp, x)

    def log1p(self, x: Array) -> Array:
        return self._map(mpmath.log1p, np.log1p, x)

    def log(self, x: Array) -> Array:
        return self._map(mpmath.log, np.log, x)

    def sqrt(self, x: Array) -> Array:
        return self._map(mpmath.sqrt, np.sqrt, x)

    def norm(self, x: Array) -> Any:
        """Return the Euclidean norm of a vector."""
        largest = abs(x).max() if x.size else 0
        if not largest > 0:
            return x.sum() * 0
        return largest * self.sqrt(((x / largest) ** 2).sum())

    def nuclear_norm(self, matrix: Array) -> Any:
        """Return the sum of the singular values; of long doubles to float64's precision only."""
        if not self.many:
            return np.longdouble(np.linalg.svd(matrix.astype(np.float64), compute_uv=False).sum())
        tall = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T
        return sum(mpmath.svd_r(mpmath.matrix(tall.tolist()), compute_uv=False))


LONG, MANY, PLAIN = Kind("long"), Kind("many"), Kind("plain")


class Known(NamedTuple):
    """A value, and the size of the terms it came from, times their steepness: what rounding is relative to."""

    value: Any
    size: Any


# -- losses ----------------------------------------------------------------------------------------


#: The losses with kinks, and the curvature of the others.
CURVATURES = {
    "logistic": 0.25,
    "hinge": np.inf,
    "squared_hinge": 2.0,
    "modified_huber": 2.0,
    "squared": 1.0,
    "absolute": np.inf,
    "huber": 1.0,
    "quantile": np.inf,
    "epsilon_insensitive": np.inf,
    "squared_epsilon_insensitive": 2.0,
}
LOSSES = tuple(CURVATURES)
CLASSIFICATION = ("logistic", "hinge", "squared_hinge", "modified_huber")


def loss_slopes(name: str, m: Any, y: Any, parameter: float, smoothing: float = 0.0) -> Any:
    """Return l'(m), with kinks smoothed over about `smoothing` on each side."""
    if name == "logistic":
        z = y * m
        return -y * np.exp(-np.maximum(z, 0)) / (1 + np.exp(-abs(z)))
    if name == "squared_hinge":
        return -2 * y * np.maximum(1 - y * m, 0)
    if name == "modified_huber":
        return -2 * y * np.clip(1 - y * m, 0, 2)
    r = m - y
    if name == "squared":
        return r
    if name == "huber":
        return np.clip(r, -parameter, parameter)
    if name == "squared_epsilon_insensitive":
        return 2 * np.sign(r) * np.maximum(abs(r) - parameter, 0)
    width = max(smoothing, 1e-300)
    if name == "hinge":
        return -y * np.clip((1 - y * m) / width, 0, 1)
    if name == "absolute":
        return np.clip(r / width, -1, 1)
    if name == "quantile":
        return np.clip(r / width, -parameter, 1 - parameter)
    return np.sign(r) * np.clip((abs(r) - parameter) / width, 0, 1)


def steepness(name: str, m: Any, y: Any, parameter: float) -> Any:
    """Return the largest |l'| next to m: at kinks that of the steeper side."""
    if name in ("hinge", "absolute", "epsilon_insensitive"):
        return np.ones_like(m)
    if name == "quantile":
        return np.full_like(m, max(parameter, 1 - parameter))
    return abs(loss_slopes(name, m, y, parameter))


@dataclass(frozen=True, eq=False)
class LinearObjective:
    """sum_i p_i l(a_i w + b, y_i) + l2 / 2 ||w||^2, p in proportion to the weights."""

    X: Any  # dense, float64 (which holds float32 exactly)
    y: Any
    loss: str
    parameter: float
    l2: float
    fit_intercept: bool
    sample_weight: Any = None

    def at(self, x: Array, kind: Kind) -> Known:
        """Return the objective at one point."""
        X, y = kind.array(self.X), kind.array(self.y)
        parameter = kind.array(self.parameter)[()]
        if kind.many and X.size > 4000:
            return self._in_blocks(x, kind)
        n, d = X.shape
        w = x[:d]
        margins = X @ w
        reach = abs(X) @ abs(w) + abs(y)
        if self.fit_intercept:
            margins, reach = margins + x[d], reach + abs(x[d])
        weights = kind.array(np.ones(n) if self.sample_weight is None else self.sample_weight)
        losses = loss_values(self.loss, margins, y, kind, parameter)
        steep = steepness(self.loss, margins.astype(float), self.y, self.parameter)
        total = weights.sum()
        ridge = kind.array(self.l2)[()] * (w * w).sum() / 2
        size = (weights * (losses + kind.array(steep) * reach)).sum() / total + ridge
        return Known((weights * losses).sum() / total + ridge, size)

    def _in_blocks(self, x: Array, kind: Kind) -> Known:
        """The same for many rows, a few of them at a time."""
        rows = max(1, 4000 // self.X.shape[1])
        weights = np.ones(len(self.y)) if self.sample_weight is None else self.sample_weight
        value = size = total = kind.array(0.0)[()]
        ridge = kind.array(self.l2)[()] * (x[: self.X.shape[1]] ** 2).sum() / 2
        for first in range(0, len(self.y), rows):
            some = slice(first, first + rows)
            if not weights[some].any():
                continue
            part = LinearObjective(
                self.X[some],
                self.y[some],
                self.loss,
                self.parameter,
                0.0,
                self.fit_intercept,
                weights[some],
            )
            share, known = kind.array(weights[some]).sum(), part.at(x, kind)
            value, size, total = (
                value + share * known.value,
                size + share * known.size,
                total + share,
            )
        return Known(value / total + ridge, size / total + ridge)

    def rounding(self, x: Any, eps: float) -> float:
        """Return how far float64 may be off at x, if the products with X have this unit of rounding.

        A margin is off by at most d + 2 units of |a| |w| + |b|, a sum of n losses by n units of
        float64; what an error of a margin does to a loss is its slope there and its curvature.
        """
        n, d = self.X.shape
        x = np.asarray(x, dtype=np.longdouble)
        margins, reach = self.X @ x[:d], abs(self.X) @ abs(x[:d])
        off = (d + 4) * eps * reach
        if self.fit_intercept:
            margins = margins + x[d]
            off = off + (d + 4) * EPS * (reach + abs(x[d]))
        weights = np.ones(n) if self.sample_weight is None else np.asarray(self.sample_weight)
        shares = weights / np.longdouble(weights.max())
        shares = shares / shares.sum()
        steep = steepness(self.loss, margins, self.y, self.parameter)
        curvature = CURVATURES[self.loss]
        bent = 0.0 if curvature == np.inf else curvature
        own = off + 4 * EPS * (abs(margins) + abs(self.y) + 1)
        losses = loss_values(self.loss, margins, self.y, LONG, self.parameter)
        errors = steep * own + bent * own * own + (n + 8) * EPS * losses
        ridge = self.l2 * (x[:d] ** 2).sum() / 2
        return float((shares * errors).sum() + (d + 8) * EPS * ridge)


# -- penalties -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PenaltyFormula:
    """The documented value of a penalty of the first `size` coordinates."""

    name: str
    arguments: dict[str, Any]
    size: int

    def at(self, x: Array, kind: Kind) -> Any:
        """Return its value."""
        x, given = x[: self.size], self.arguments
        if self.name == "L1":
            return (kind.array(given["strength"]) * abs(x)).sum()
        if self.name in ("ElasticNet", "OwnRidge"):
            l1, l2 = kind.array(given["l1"])[()], kind.array(given["l2"])[()]
            return l1 * abs(x).sum() + l2 * (x * x).sum() / 2
        if self.name == "GroupL2":
            labels = np.asarray(given["groups"])
            weights = given.get("weights")
            total = x.sum() * 0
            for number, label in enumerate(sorted(set(labels.tolist()) - {-1})):
                weight = 1.0 if weights is None else weights[number]
                total = total + kind.array(weight)[()] * kind.norm(x[labels == label])
            return kind.array(given["strength"])[()] * total
        assert self.name == "NuclearNorm", self.name
        return kind.array(given["strength"])[()] * kind.nuclear_norm(x.reshape(given["shape"]))


# -- sets ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SetFormula:
    """A feasible set by its documented definition: the nearest point, and how far outside a point is."""

    name: str
    arguments: dict[str, Any]

    #: whether it has equations, which a point of finitely many digits meets only nearly
    @property
    def has_equations(self) -> bool:
        if self.name == "Product":
            return any(block.has_equations for block, _ in self.arguments["blocks"])
        return self.name in ("Simplex", "Affine", "Polyhedron") or (
            self.name in ("Box",)
            and bool(np.any(np.equal(self.arguments["lower"], self.arguments["upper"])))
        )

    def nearest(self, x: Any) -> Any:
        """Return about the nearest point of the set, in long doubles; `excess` tells whether it is inside."""
        given = self.arguments
        x = np.asarray(x, dtype=np.longdouble)
        if self.name in ("WholeSpace",):
            return x
        if self.name in ("Ball", "OnlyBall"):
            offset = x - given["center"]
            length = LONG.norm(offset)
            inside = length <= given["radius"]
            return (
                x
                if inside
                else given["center"]
                + offset * (given["radius"] / length * (1 - 4 * np.longdouble(LONG_EPS)))
            )
        if self.name in ("Box", "OnlyBox"):
            return np.minimum(np.maximum(x, given["lower"]), given["upper"])
        if self.name == "NonNegative":
            return np.maximum(x, 0)
        if self.name == "Simplex":
            return _on_simplex(x, np.longdouble(given["total"]))
        if self.name == "L1Ball":
            offset = x - given["center"]
            if abs(offset).sum() <= given["radius"]:
                return x
            short = _on_simplex(
                abs(offset), np.longdouble(given["radius"]) * (1 - 16 * np.longdouble(LONG_EPS))
            )
            return given["center"] + np.sign(offset) * short
        if self.name == "Halfspace":
            normal = np.asarray(given["normal"], dtype=np.longdouble)
            over = normal @ x - given["offset"]
            size = abs(normal) @ abs(x) + abs(given["offset"])
            return x if over <= 0 else x - (over + 8 * LONG_EPS * size) / (normal @ normal) * normal
        if self.name == "Affine":
            return self._on_affine(x)
        if self.name == "Polyhedron":
            return self._on_polyhedron(x)
        assert self.name == "Product", self.name
        parts, first = [], 0
        for block, size in given["blocks"]:
            parts.append(block.nearest(x[first : first + size]))
            first += size
        return np.concatenate(parts)

    def _on_affine(self, x: Any) -> Any:
        A, b = (np.asarray(self.arguments[name], dtype=np.longdouble) for name in ("A", "b"))
        inverse = np.linalg.pinv(A.astype(np.float64))
        for _ in range(4):  # each round leaves float64's precision of what was left
            x = x - inverse @ (A @ x - b).astype(np.float64)
        return x

    def _inequalities(self) -> tuple[Any, Any]:
        """Return G and h of a polyhedron {u: G u <= h}."""
        given = self.arguments
        A, d = given["A"], given["A"].shape[1]
        low, high = (-np.inf, np.inf) if given["bounds"] is None else given["bounds"]
        limits = [
            given["upper"],
            -given["lower"],
            np.broadcast_to(high, d),
            -np.broadcast_to(low, d),
        ]
        G, h = np.vstack([A, -A, np.eye(d), -np.eye(d)]), np.concatenate(limits)
        lengths = np.linalg.norm(G, axis=1)
        kept = np.isfinite(h) & (lengths > 0)
        return G[kept] / lengths[kept, None], h[kept] / lengths[kept]

    def _on_polyhedron(self, x: Any) -> Any:
        """Least distance programming, then the equations that hold; else the point drawn around."""
        G, h = self._inequalities()
        for _ in range(4):  # from far away the first time leaves the rounding of large numbers
            distance = (h - G @ x).astype(np.float64)
            if self.excess(x, LONG) <= 4 * LONG_EPS:
                return x
            rows = np.vstack([-G.T, -distance / abs(distance).max()])
            held = nnls(rows, np.eye(len(rows))[-1], maxiter=10**4)[0] > 0
            inverse = np.linalg.pinv(G[held])
            for _ in range(4):
                x = x - inverse @ (G[held] @ x - h[held]).astype(np.float64)
        inside = self.excess(x, LONG) <= 4 * LONG_EPS
        return x if inside else np.asarray(self.arguments["inner"], dtype=np.longdouble)

    def excess(self, x: Any, kind: Kind) -> Any:
        """Return how far outside a point is, relative to the numbers involved; at most 0 inside."""
        given, zero = self.arguments, kind.array(0.0)[()]
        tiny = kind.array(1e-300)[()]
        if self.name == "WholeSpace":
            return zero
        if self.name in ("Ball", "OnlyBall", "L1Ball"):
            center, radius = kind.array(given["center"]), kind.array(given["radius"])[()]
            offset = x - center
            length = abs(offset).sum() if self.name == "L1Ball" else kind.norm(offset)
            scale = radius + abs(center).max() + abs(x).max()
            return (length - radius) / scale
        if self.name in ("Box", "OnlyBox"):
            lower, upper = (
                np.broadcast_to(np.asarray(given[name], dtype=float), x.shape)
                for name in ("lower", "upper")
            )
            worst = zero
            for ends, sign in ((lower, -1), (upper, 1)):
                finite = np.isfinite(ends)
                if finite.any():
                    end = kind.array(ends[finite])
                    worst = max(
                        worst, (sign * (x[finite] - end) / (abs(end) + abs(x[finite]) + tiny)).max()
                    )
            return worst
        if self.name == "NonNegative":
            return (-x).max() / (abs(x).max() + tiny)
        if self.name == "Simplex":
            total = kind.array(given["total"])[()]
            return max((-x).max(), abs(x.sum() - total)) / total
        if self.name == "Halfspace":
            normal, offset = kind.array(given["normal"]), kind.array(given["offset"])[()]
            return ((normal * x).sum() - offset) / (
                abs(normal * x).sum() + abs(offset) + kind.norm(normal) * abs(x).max() + tiny
            )
        if self.name == "Affine":
            A, b = kind.array(given["A"]), kind.array(given["b"])
            scale = np.array([kind.norm(row) for row in A]) * kind.norm(x) + abs(b) + tiny
            return (abs(A @ x - b) / scale).max()
        if self.name == "Polyhedron":
            G, h = (kind.array(part) for part in self._inequalities())
            return ((G @ x - h) / (kind.norm(x) + abs(h) + tiny)).max() if len(h) else zero
        worst, first = zero, 0
        for block, size in given["blocks"]:
            worst = max(worst, block.excess(x[first : first + size], kind))
            first += size
        return worst


def _on_simplex(x: Any, total: Any) -> Any:
    below = x - x.max()
    ordered = np.sort(below)[::-1]
    sums = np.cumsum(ordered) - total
    counts = np.arange(1, x.size + 1)
    kept = np.flatnonzero(ordered * counts > sums)
    count = kept[-1] + 1 if kept.size else 1
    return np.maximum(below - sums[count - 1] / count, 0)
