"""Stochastic steps on dense rows: the rules' formulas, compiled, without temporary arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from accelegrad.errors import Vector
from accelegrad.kernels.arrays import read_only
from accelegrad.kernels.compile import Call, announces, compiled, dense_layouts, kernel, summing
from accelegrad.kernels.dense_rows import add_row, row_product
from accelegrad.kernels.epochs import (
    FIXED,
    NO_ROWS,
    TRUST,
    Epochs,
    coefficient,
    importance,
    over_root,
    reach_of,
    record,
)
from accelegrad.kernels.gradient import Data

NO_CHANGE = read_only(np.empty((2, 0)))
#: All numbers that change; only the distance-free rule has the last two.
NUMBERS = record(["squares", "eta", "weight_sum", "radius", "evidence"], ["iteration"])


@summing
def _squares(a: Any) -> float:
    total = 0.0
    for j in range(a.size):
        total += a[j] * a[j]
    return total


@summing
def _move(z: Any, step: float, g: Any, x0: Any) -> float:
    """Move z by -step g; return its squared distance from x0."""
    total = 0.0
    for j in range(z.size):
        z[j] -= step * g[j]
    for j in range(z.size):
        total += (z[j] - x0[j]) * (z[j] - x0[j])
    return total


@summing
def _hold(z: Any, x0: Any, distance: float, reach: float) -> None:
    """Move z back into the ball around x0."""
    if distance > reach:
        held = reach / distance
        for j in range(z.size):
            z[j] = x0[j] + held * (z[j] - x0[j])


@summing
def _descent(g: Any, x0: Any, x: Any) -> float:
    """Return <g, x0 - x>."""
    total = 0.0
    for j in range(g.size):
        total += g[j] * (x0[j] - x[j])
    return total


@summing
def _accumulate(total: Any, w: float, g: Any) -> float:
    """Add w g to a sum; return its squared norm."""
    squares = 0.0
    for j in range(g.size):
        total[j] += w * g[j]
    for j in range(g.size):
        squares += total[j] * total[j]
    return squares


@summing
def _weights(change: Any, x: Any, w: Any) -> float:
    """Write down the weights w of the point T x, and return what the shift adds to margins."""
    added = 0.0
    for j in range(w.size):
        w[j] = change[0, j] * x[j]
    for j in range(w.size):
        added -= change[1, j] * w[j]
    return added


@summing
def _adjoint(change: Any, slope: float, g: Any) -> None:
    """Turn the gradient of the weights into that of the scaled coordinates."""
    for j in range(change.shape[1]):
        g[j] = change[0, j] * (g[j] - slope * change[1, j])


@summing
def _follow(
    x: Any, y: Any, z: Any, g: Any, total: Any, eta: float, weight: float, rest: float
) -> None:
    """Let y follow from x and its gradient, add it to the average, and find the next x."""
    for j in range(x.size):
        y[j] = x[j] - eta * g[j]
        total[j] += weight * y[j]
        x[j] = z[j] + rest * (y[j] - z[j])


@compiled
def _gradient(
    f: Any,
    X: Any,
    table: Any,
    change: Any,
    x: Any,
    w: Any,
    g: Any,
    order: Any,
    first: int,
    last: int,
) -> None:
    """Write down the gradient at x of the rows order[first:last]; w is x, or room for T x."""
    d, total = X.shape[1], 0.0
    scaled = change.shape[1] > 0
    offset = _weights(change, x, w) if scaled else 0.0
    if x.size > d:
        offset += x[d]
    for j in range(d):
        g[j] = f.l2 * w[j]
    for k in range(first, last):
        i = order[k]
        m = row_product(X, i, w) + offset
        c = coefficient(f, m, table[i, 0], table[i, 1] / (last - first))
        total += c
        if c != 0.0:
            add_row(X, i, c, g)
    if scaled:
        _adjoint(change, total, g)
    if x.size > d:
        g[d] = total


@kernel
def dense_steps(
    state: Any,
    fixed: Any,
    X: Any,
    table: Any,
    change: Any,
    points: Any,
    x0: Any,
    g: Any,
    order: Any,
    batch_size: int,
) -> Any:
    """Do a step for each batch and return how many were done."""
    s, f = state[0], fixed[0]
    x, total, y, z, gradients = points[0], points[1], points[2], points[3], points[4]
    w = np.empty(X.shape[1]) if change.shape[1] > 0 else x
    for first in range(0, order.size, batch_size):
        last = min(first + batch_size, order.size)
        _gradient(f, X, table, change, x, w, g, order, first, last)
        alpha = importance(s.iteration) if f.coupled else 1.0
        squares = s.squares + alpha * alpha * _squares(g)
        if not math.isfinite(squares):
            return first // batch_size
        s.squares = squares
        scale, reach, weight = reach_of(s, f, alpha)
        if f.coupled:
            s.eta = over_root(scale, f.squared_bound + squares)
            _hold(z, x0, math.sqrt(_move(z, alpha * s.eta, g, x0)), reach)
            if f.tracked:
                heavier = weight * s.radius
                s.evidence += heavier * _descent(g, x0, x)
                proven = over_root(s.evidence, _accumulate(gradients, heavier, g))
                s.radius = min(max(s.radius, TRUST * proven), f.cap)
            rest = 1.0 - 1.0 / importance(s.iteration + 1)
            _follow(x, y, z, g, total, s.eta, weight, rest)
        else:
            s.eta = over_root(scale, 2.0 * squares)
            for j in range(x.size):
                total[j] += x[j]
            _hold(x, x0, math.sqrt(_move(x, s.eta, g, x0)), reach)
        s.weight_sum += weight
        s.iteration += 1
    return -(-order.size // batch_size)


class DenseEpochs(Epochs):
    """Steps of a rule on dense rows, each O(entries of its batch).

    Parameters
    ----------
    kind, data, x0, **settings
        As for `Epochs`.
    change : tuple of two arrays, optional
        The scale s and the shift m of columns: points, x0 and radii are then those of coordinates
        v, in which the weights are s v and the intercept is v's less m.(s v).
    """

    numbers_type = NUMBERS

    def __init__(
        self,
        kind: str,
        data: Data,
        x0: Vector,
        *,
        change: tuple[Vector, Vector] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(kind, data, x0, **settings)
        self._change = NO_CHANGE if change is None else read_only(np.stack(change))
        self._table = np.empty((data.y.size, 2))
        self._table[:, 0], self._table[:, 1] = data.y, self._row_weights
        self.points = np.zeros((5, x0.size))  # x, the weighted sum, y, z, the gradients' sum
        self.points[[0, 2, 3]] = x0
        self._gradient = np.zeros(x0.size)

    def _run(self, rows: npt.NDArray[np.int64], batch_size: int) -> int:
        (X,) = self.data.matrix
        arrays = (X, self._table, self._change, self.points, self.x0, self._gradient)
        return int(dense_steps(self._state, self._fixed, *arrays, rows, batch_size))

    def query(self) -> Vector:
        """Return the point where the next gradient is wanted, a new array."""
        point: Vector = self.points[0].copy()
        return point

    def output(self) -> Vector:
        """Return the average that the rule's theorem speaks of, a new array."""
        if self.iteration == 0:
            return self.x0.copy()
        average: Vector = self.points[1] / float(self.numbers["weight_sum"])
        return average

    def last(self) -> Vector:
        """Return the last iterate, y of AcceleGrad and x of AdaGrad, a new array."""
        point: Vector = self.points[2 if self.coupled else 0].copy()
        return point


@announces
def _calls() -> Iterator[Call]:
    """Yield a call for rows of all the types that there are kernels for."""
    numbers, fixed, one = np.zeros(1, NUMBERS), np.zeros(1, FIXED), np.ones(1)
    for end, matrix in dense_layouts():
        arrays = (*matrix, np.ones((1, 2)), NO_CHANGE, np.ones((5, 1)), one, one)
        yield Call(f"epochs, {end}", dense_steps, (numbers, fixed, *arrays, NO_ROWS, 1))
