"""Objective values far beyond float64, written from the documented formulas.

Nothing here calls the product. One set of formulas serves several kinds of numbers: `LONG`, NumPy's
long double, which is fast, and `MANY`, mpmath with 60 digits, which decides. Where long double is no
wider than float64, every comparison goes to `MANY`. `PLAIN` is float64, as users compute.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
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
MPF = np.vectorize(lambda number: mpmath.mpf(float(number)), otypes=[object])

Rng = np.random.Generator
Array = Any  # of long doubles, or of mpmath's numbers as objects


class Kind:
    """A kind of numbers: how arrays of them are made, and their functions."""

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
        return np.asarray(MPF(high) + MPF(low), dtype=object)

    def __getattr__(self, name: str) -> Any:
        """Return a function of single numbers: exp, log, log1p, sqrt."""
        if not self.many:
            return getattr(np, name)
        function = np.vectorize(getattr(mpmath, name), otypes=[object])
        return lambda x: function(x)[()]

    def norm(self, x: Array) -> Any:
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

    @property
    def rows(self) -> Any:
        return np.column_stack([self.X, np.ones(len(self.X))]) if self.fit_intercept else self.X

    @property
    def weights(self) -> Any:
        given = self.sample_weight
        return np.ones(len(self.y)) if given is None else np.asarray(given)

    @property
    def shares(self) -> Any:
        """The weights in proportion, which sum to one."""
        shares = self.weights / self.weights.max()
        return shares / shares.sum()

    @property
    def ridge(self) -> Any:
        """The curvature of the l2 term, which the intercept has no part in."""
        return np.append(np.full(self.X.shape[1], self.l2), [0.0] * self.fit_intercept)

    def at(self, x: Array, kind: Kind) -> Known:
        rows, y, weights = (kind.array(part) for part in (self.rows, self.y, self.weights))
        parameter, w = kind.array(self.parameter)[()], x[: self.X.shape[1]]
        margins = rows @ x
        reach = abs(rows) @ abs(x) + abs(y)
        losses = loss_values(self.loss, margins, y, kind, parameter)
        steep = steepness(self.loss, margins.astype(float), self.y, self.parameter)
        total = weights.sum()
        ridge = kind.array(self.l2)[()] * (w * w).sum() / 2
        size = (weights * (losses + kind.array(steep) * reach)).sum() / total + ridge
        return Known((weights * losses).sum() / total + ridge, size)

    def rounding(self, x: Any) -> float:
        """Return how far float64 may be off at x.

        A margin is off by at most d + 3 units of |a| |w| + |b|, a sum of n losses by n units of
        float64; what an error of a margin does to a loss is its slope there and its curvature.
        """
        n, d = self.X.shape
        x = np.asarray(x, dtype=np.longdouble)
        margins = self.rows @ x
        off = (d + 5) * EPS * (abs(self.rows) @ abs(x))
        steep = steepness(self.loss, margins, self.y, self.parameter)
        curvature = CURVATURES[self.loss]
        bent = 0.0 if curvature == np.inf else curvature
        own = off + 4 * EPS * (abs(margins) + abs(self.y) + 1)
        losses = loss_values(self.loss, margins, self.y, LONG, self.parameter)
        errors = steep * own + bent * own * own + (n + 8) * EPS * losses
        ridge = self.l2 * (x[:d] ** 2).sum() / 2
        return float((self.shares * errors).sum() + (d + 8) * EPS * ridge)


@dataclass(frozen=True, eq=False)
class Classes:
    """The logistic loss of several classes; parameters are one row per class, its intercept last."""

    X: Any
    y: Any
    shares: Any
    count: int
    l2: float
    eps: float = EPS
    plain: bool = True
    slope: Any = None

    @property
    def target(self) -> Any:
        return np.zeros(self.count * (self.X.shape[1] + 1))

    def _losses(self, x: Any, kind: Kind) -> tuple[Any, Any, Any]:
        rows = x.reshape(self.count, -1)
        margins = kind.array(self.X) @ rows[:, :-1].T + rows[:, -1]
        shifted = margins - margins.max(axis=1)[:, None]
        exponents = kind.exp(shifted)
        totals = exponents.sum(axis=1)
        own = shifted[np.arange(self.y.size), self.y]
        return rows, kind.log(totals) - own, exponents / totals[:, None]

    def at(self, x: Any, kind: Kind) -> Known:
        rows, losses, _ = self._losses(x, kind)
        ridge = self.l2 * (rows[:, :-1] ** 2).sum() / 2
        value = (kind.array(self.shares) * losses).sum() + ridge
        reach = abs(kind.array(self.X)) @ abs(rows[:, :-1].T) + abs(rows[:, -1])
        return Known(value, value + (kind.array(self.shares)[:, None] * reach).sum())

    def __call__(self, x: Any) -> tuple[float, Any]:
        """Return value and gradient in float64, for the search."""
        rows, losses, s = self._losses(np.asarray(x, dtype=np.longdouble), LONG)
        s[np.arange(self.y.size), self.y] -= 1
        slopes = self.shares[:, None] * s
        gradient = np.column_stack([slopes.T @ self.X + self.l2 * rows[:, :-1], slopes.sum(axis=0)])
        value = self.shares @ losses + self.l2 * (rows[:, :-1] ** 2).sum() / 2
        return float(value), gradient.ravel().astype(np.float64)


# -- penalties -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PenaltyFormula:
    name: str
    arguments: dict[str, Any]
    size: int  # of the first coordinates, which it is of

    def at(self, x: Array, kind: Kind) -> Any:
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

    @property
    def has_equations(self) -> bool:
        """Whether there are equations, which a point of finitely many digits meets only nearly."""
        if self.name == "Product":
            return any(block.has_equations for block, _ in self.arguments["blocks"])
        level = self.name == "Box" and bool(np.any(np.equal(*self._ends)))
        return level or self.name in ("Simplex", "Affine", "Polyhedron")

    @property
    def _ends(self) -> Any:
        """The limits of the coordinates; None for sets that are no boxes."""
        known = {"NonNegative": (0.0, np.inf), "WholeSpace": (-np.inf, np.inf)}
        if self.name in ("Box", "OnlyBox"):
            return self.arguments["lower"], self.arguments["upper"]
        return known.get(self.name)

    def nearest(self, x: Any) -> Any:
        """Return about the nearest point of the set, in long doubles; `excess` tells whether it is inside."""
        given = self.arguments
        x = np.asarray(x, dtype=np.longdouble)
        if self._ends is not None:
            return np.minimum(np.maximum(x, self._ends[0]), self._ends[1])
        if self.name in ("Ball", "OnlyBall"):
            offset = x - given["center"]
            length = LONG.norm(offset)
            if length <= given["radius"]:
                return x
            share = given["radius"] / length * (1 - 4 * np.longdouble(LONG_EPS))
            return given["center"] + offset * share
        if self.name == "Simplex":
            return _on_simplex(x, np.longdouble(given["total"]))
        if self.name == "L1Ball":
            offset = x - given["center"]
            if abs(offset).sum() <= given["radius"]:
                return x
            radius = np.longdouble(given["radius"]) * (1 - 16 * np.longdouble(LONG_EPS))
            return given["center"] + np.sign(offset) * _on_simplex(abs(offset), radius)
        if self.name == "Halfspace":
            normal = np.asarray(given["normal"], dtype=np.longdouble)
            over = normal @ x - given["offset"]
            size = abs(normal) @ abs(x) + abs(given["offset"])
            return x if over <= 0 else x - (over + 8 * LONG_EPS * size) / (normal @ normal) * normal
        if self.name == "Affine":
            return _solved(x, np.asarray(given["A"], np.longdouble), given["b"])
        if self.name == "Polyhedron":
            return self._on_polyhedron(x)
        assert self.name == "Product", self.name
        return np.concatenate([block.nearest(x[some]) for block, some in self.blocks()])

    def blocks(self) -> Any:
        """Return each block of a product with its coordinates; the set itself if it is none."""
        if self.name != "Product":
            return [(self, slice(None))]
        ends = np.cumsum([0, *(size for _, size in self.arguments["blocks"])])
        slices = (slice(*pair) for pair in pairwise(ends.tolist()))
        return list(zip((block for block, _ in self.arguments["blocks"]), slices, strict=True))

    def _inequalities(self) -> tuple[Any, Any]:
        """Return G and h of a polyhedron {u: G u <= h}."""
        given = self.arguments
        A, d = given["A"], given["A"].shape[1]
        low, high = (-np.inf, np.inf) if given["bounds"] is None else given["bounds"]
        ends = np.broadcast_to(high, d), -np.broadcast_to(low, d)
        limits = [given["upper"], -given["lower"], *ends]
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
            x = _solved(x, G[held], h[held])
        inside = self.excess(x, LONG) <= 4 * LONG_EPS
        return x if inside else np.asarray(self.arguments["inner"], dtype=np.longdouble)

    def excess(self, x: Any, kind: Kind) -> Any:
        """Return how far outside a point is, relative to the numbers involved; at most 0 inside."""
        given, zero = self.arguments, kind.array(0.0)[()]
        tiny = kind.array(1e-300)[()]
        if self.name in ("Ball", "OnlyBall", "L1Ball"):
            center, radius = kind.array(given["center"]), kind.array(given["radius"])[()]
            offset = x - center
            length = abs(offset).sum() if self.name == "L1Ball" else kind.norm(offset)
            scale = radius + abs(center).max() + abs(x).max()
            return (length - radius) / scale
        if self._ends is not None:
            worst = zero
            for ends, sign in zip(self._ends, (-1, 1), strict=True):
                ends = np.broadcast_to(np.asarray(ends, dtype=float), x.shape)
                finite = np.isfinite(ends)
                if finite.any():
                    end, own = kind.array(ends[finite]), x[finite]
                    worst = max(worst, (sign * (own - end) / (abs(end) + abs(own) + tiny)).max())
            return worst
        if self.name == "Simplex":
            total = kind.array(given["total"])[()]
            return max((-x).max(), abs(x.sum() - total)) / total
        if self.name == "Halfspace":
            normal, offset = kind.array(given["normal"]), kind.array(given["offset"])[()]
            scale = abs(normal * x).sum() + abs(offset) + kind.norm(normal) * abs(x).max() + tiny
            return ((normal * x).sum() - offset) / scale
        if self.name == "Affine":
            A, b = kind.array(given["A"]), kind.array(given["b"])
            scale = np.array([kind.norm(row) for row in A]) * kind.norm(x) + abs(b) + tiny
            return (abs(A @ x - b) / scale).max()
        if self.name == "Polyhedron":
            G, h = (kind.array(part) for part in self._inequalities())
            return ((G @ x - h) / (kind.norm(x) + abs(h) + tiny)).max() if len(h) else zero
        return max(block.excess(x[some], kind) for block, some in self.blocks())


def _solved(x: Any, A: Any, b: Any) -> Any:
    inverse = np.linalg.pinv(A.astype(np.float64))
    for _ in range(4):  # each round leaves float64's precision of what was left
        x = x - inverse @ (A @ x - b).astype(np.float64)
    return x


def _on_simplex(x: Any, total: Any) -> Any:
    below = x - x.max()
    ordered = np.sort(below)[::-1]
    sums = np.cumsum(ordered) - total
    counts = np.arange(1, x.size + 1)
    kept = np.flatnonzero(ordered * counts > sums)
    count = kept[-1] + 1 if kept.size else 1
    return np.maximum(below - sums[count - 1] / count, 0)
