"""Stochastic steps on dense rows, compiled, without temporary arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from accelegrad.errors import Vector
from accelegrad.kernels import read_only
from accelegrad.kernels.compile import Kernel, compiled, summing
from accelegrad.kernels.rows import add_row, row_product
from accelegrad.kernels.steps import (
    NUMBERS,
    TRUST,
    Chunk,
    Settings,
    Steps,
    coefficient,
    importance,
    over_root,
    reach_of,
    record,
)

NO_CHANGE = read_only(np.empty((2, 0)))


@summing
def _squares(a: Any) -> float:
    total = 0.0
    for j in range(a.size):
        total += a[j] * a[j]
    return total


@summing
def _move(z: Any, step: float, g: Any, x0: Any) -> float:
    total = 0.0
    for j in range(z.size):
        z[j] -= step * g[j]
    for j in range(z.size):
        total += (z[j] - x0[j]) * (z[j] - x0[j])
    return total


@summing
def _hold(z: Any, x0: Any, distance: float, reach: float) -> None:
    """Project z onto the ball around x0."""
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
    for j in range(g.size):
        total[j] += w * g[j]
    return _squares(total)


@summing
def _weights(change: Any, x: Any, w: Any) -> float:
    """Write the weights w of the point T x; return what the shift adds to margins."""
    added = 0.0
    for j in range(w.size):
        w[j] = change[0, j] * x[j]
    for j in range(w.size):
        added -= change[1, j] * w[j]
    return added


@summing
def _adjoint(change: Any, slope: float, g: Any) -> None:
    """Turn the gradient in the weights into that in the scaled coordinates."""
    for j in range(change.shape[1]):
        g[j] = change[0, j] * (g[j] - slope * change[1, j])


@summing
def _follow(
    x: Any, y: Any, z: Any, g: Any, total: Any, eta: float, weight: float, rest: float
) -> None:
    """Compute y from x and its gradient, add it to the average, and compute the next x."""
    for j in range(x.size):
        y[j] = x[j] - eta * g[j]
        total[j] += weight * y[j]
        x[j] = z[j] + rest * (y[j] - z[j])


@compiled
def _gradient(
    f: Any,
    X: Any,
    y: Any,
    weights: Any,
    change: Any,
    x: Any,
    w: Any,
    g: Any,
    order: Any,
    first: int,
    last: int,
) -> None:
    """Write the gradient at x of the rows order[first:last]; w is x, or room for T x."""
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
        c = coefficient(f, m, y[i], weights[i] / (last - first))
        total += c
        if c != 0.0:
            add_row(X, i, c, g)
    if scaled:
        _adjoint(change, total, g)
    if x.size > d:
        g[d] = total


@Kernel
def dense_steps(
    state: Any,
    fixed: Any,
    X: Any,
    targets: Any,
    weights: Any,
    change: Any,
    points: Any,
    x0: Any,
    g: Any,
    order: Any,
    ends: Any,
) -> Any:
    """Do one step per batch and return how many were done."""
    s, f, first = state[0], fixed[0], 0
    x, total, y, z, gradients = points[0], points[1], points[2], points[3], points[4]
    w = np.empty(X.shape[1]) if change.shape[1] > 0 else x
    for step in range(ends.size):
        last = ends[step]
        _gradient(f, X, targets, weights, change, x, w, g, order, first, last)
        first = last
        alpha = importance(s.iteration) if f.coupled else 1.0
        squares = s.weighted_squares + alpha * alpha * _squares(g)
        if not math.isfinite(squares):
            return step
        s.weighted_squares = squares
        scale, reach, weight = reach_of(s, f, alpha)
        if f.coupled:
            s.step_size = over_root(scale, f.squared_bound + squares)
            _hold(z, x0, math.sqrt(_move(z, alpha * s.step_size, g, x0)), reach)
            if f.tracked:
                heavier = weight * s.radius
                s.evidence += heavier * _descent(g, x0, x)
                proven = over_root(s.evidence, _accumulate(gradients, heavier, g))
                s.radius = min(max(s.radius, TRUST * proven), f.cap)
            rest = 1.0 - 1.0 / importance(s.iteration + 1)
            _follow(x, y, z, g, total, s.step_size, weight, rest)
        else:
            s.step_size = over_root(scale, 2.0 * squares)
            for j in range(x.size):
                total[j] += x[j]
            _hold(x, x0, math.sqrt(_move(x, s.step_size, g, x0)), reach)
        s.weight_sum += weight
        s.iteration += 1
    return ends.size


class DenseSteps(Steps):
    """Steps of a rule on dense rows, each O(entries of its batch).

    `change` has the scale s and shift m of columns: points, x0 and radii are then in coordinates v,
    with weights s v and intercept v's less m.(s v).
    """

    def __init__(
        self,
        settings: Settings,
        x0: Vector,
        *,
        l2: float,
        fit_intercept: bool,
        change: tuple[Vector, Vector] | None = None,
    ) -> None:
        self.coupled = settings.coupled
        self.start = x0.copy()  # writeable, since Numba has another type for read-only arrays
        self._fixed = settings.fixed(l2=l2, fit_intercept=fit_intercept)
        self._numbers = np.zeros(1, record(NUMBERS, ["iteration"]))
        self._numbers["radius"] = settings.initial_radius
        self._change = NO_CHANGE if change is None else read_only(np.stack(change))
        self.points = np.zeros((5, x0.size))  # x, the weighted sum, y, z, the gradients' sum
        self.points[[0, 2, 3]] = x0
        self._gradient = np.zeros(x0.size)

    def _advanced(self, chunk: Chunk, order: npt.NDArray[Any], ends: npt.NDArray[Any]) -> Any:
        (X,) = chunk.data.matrix
        rows = (X, chunk.data.y, read_only(chunk.weights))
        points = (self._change, self.points, self.start, self._gradient)
        return dense_steps(self._numbers, self._fixed, *rows, *points, order, ends)

    def query(self) -> Vector:
        """Return the point of the next gradient."""
        point: Vector = self.points[0].copy()
        return point

    def output(self) -> Vector:
        """Return the average that the rule's theorem is about."""
        if self.iteration == 0:
            return self.start.copy()
        average: Vector = self.points[1] / float(self.numbers["weight_sum"])
        return average

    def last(self) -> Vector:
        """Return the last iterate: y of AcceleGrad, x of AdaGrad."""
        point: Vector = self.points[2 if self.coupled else 0].copy()
        return point
