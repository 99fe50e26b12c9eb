"""Stochastic steps on dense rows: the rules' formulas, compiled, without temporary arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from accelegrad.errors import Vector
from accelegrad.kernels.compile import Call, announces, compiled, dense_layouts, kernel, summing
from accelegrad.kernels.dense_rows import add_row, row_product
from accelegrad.kernels.epochs import (
    FIXED,
    NO_ROWS,
    Epochs,
    coefficient,
    importance,
    over_root,
    record,
)
from accelegrad.kernels.gradient import Data

#: All numbers that change.
NUMBERS = record(["squares", "eta", "weight_sum"], ["iteration"])


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
def _follow(
    x: Any, y: Any, z: Any, g: Any, total: Any, eta: float, weight: float, rest: float
) -> None:
    """Let y follow from x and its gradient, add it to the average, and find the next x."""
    for j in range(x.size):
        y[j] = x[j] - eta * g[j]
        total[j] += weight * y[j]
        x[j] = z[j] + rest * (y[j] - z[j])


@compiled
def _gradient(f: Any, X: Any, table: Any, x: Any, g: Any, order: Any, first: int, last: int) -> Any:
    """Write down the gradient at x of the rows order[first:last]."""
    d, total = X.shape[1], 0.0
    offset = x[d] if x.size > d else 0.0
    for j in range(d):
        g[j] = f.l2 * x[j]
    for k in range(first, last):
        i = order[k]
        m = row_product(X, i, x) + offset
        c = coefficient(f, m, table[i, 0], table[i, 1] / (last - first))
        total += c
        if c != 0.0:
            add_row(X, i, c, g)
    if x.size > d:
        g[d] = total


@kernel
def dense_steps(
    state: Any,
    fixed: Any,
    X: Any,
    table: Any,
    points: Any,
    x0: Any,
    g: Any,
    order: Any,
    batch_size: int,
) -> Any:
    """Do a step for each batch and return how many were done."""
    s, f = state[0], fixed[0]
    x, total, y, z = points[0], points[1], points[2], points[3]
    for first in range(0, order.size, batch_size):
        _gradient(f, X, table, x, g, order, first, min(first + batch_size, order.size))
        alpha = importance(s.iteration) if f.coupled else 1.0
        squares = s.squares + alpha * alpha * _squares(g)
        if not math.isfinite(squares):
            return first // batch_size
        s.squares = squares
        if f.coupled:
            s.eta = over_root(f.scale, f.squared_bound + squares)
            _hold(z, x0, math.sqrt(_move(z, alpha * s.eta, g, x0)), f.ball)
            rest = 1.0 - 1.0 / importance(s.iteration + 1)
            _follow(x, y, z, g, total, s.eta, alpha, rest)
        else:
            s.eta = over_root(f.scale, 2.0 * squares)
            for j in range(x.size):
                total[j] += x[j]
            _hold(x, x0, math.sqrt(_move(x, s.eta, g, x0)), f.ball)
        s.weight_sum += alpha
        s.iteration += 1
    return -(-order.size // batch_size)


class DenseEpochs(Epochs):
    """Steps of a rule on dense rows, each O(entries of its batch): see `Epochs`."""

    def __init__(self, kind: str, data: Data, x0: Vector, **settings: Any) -> None:
        super().__init__(kind, data, x0, **settings)
        self._table = np.empty((data.y.size, 2))
        self._table[:, 0], self._table[:, 1] = data.y, self._row_weights
        self.points = np.zeros((4, x0.size))  # x, the weighted sum, y, z
        self.points[[0, 2, 3]] = x0
        self._gradient = np.zeros(x0.size)
        self._state = np.zeros(1, NUMBERS)
        self.numbers = self._state[0]

    def _run(self, rows: npt.NDArray[np.int64], batch_size: int) -> int:
        (X,) = self.data.matrix
        arrays = (X, self._table, self.points, self.x0, self._gradient)
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
        arrays = (*matrix, np.ones((1, 2)), np.ones((4, 1)), one, one)
        yield Call(f"epochs, {end}", dense_steps, (numbers, fixed, *arrays, NO_ROWS, 1))
