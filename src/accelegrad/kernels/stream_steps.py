"""AcceleGrad's distance-free steps on chunks of CSR rows, in scaled coordinates.

Points are dense there, so that a step takes O(columns), in as few passes over them as there can be.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accelegrad.errors import Vector
from accelegrad.kernels.arrays import read_only
from accelegrad.kernels.compile import Call, announces, compiled, kernel, layout, summing
from accelegrad.kernels.dense_epochs import NUMBERS
from accelegrad.kernels.epochs import (
    FIXED,
    GO,
    NO_ROWS,
    REACH,
    STEP,
    STOP,
    TRUST,
    coefficient,
    importance,
    over_root,
)
from accelegrad.kernels.gradient import Data


@summing
def _products(g: Any, x: Any, z: Any, total: Any, x0: Any) -> Any:
    """Return <g, g>, <g, x0 - x>, <g, z - x0>, |z - x0|^2, <S, g> and |S|^2, S the sum given."""
    gg, gx, gz, zz, sg, ss = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for j in range(g.size):
        away = z[j] - x0[j]
        gg += g[j] * g[j]
        gx += g[j] * (x0[j] - x[j])
        gz += g[j] * away
        zz += away * away
        sg += total[j] * g[j]
        ss += total[j] * total[j]
    return gg, gx, gz, zz, sg, ss


@summing
def _moved(
    x: Any,
    z: Any,
    g: Any,
    x0: Any,
    average: Any,
    total: Any,
    eta: float,
    step: float,
    held: float,
    weight: float,
    heavier: float,
    rest: float,
) -> None:
    """Move z and x, and add to both sums."""
    for j in range(x.size):
        z[j] = x0[j] + held * (z[j] - step * g[j] - x0[j])
        y = x[j] - eta * g[j]
        average[j] += weight * y
        total[j] += heavier * g[j]
        x[j] = z[j] + rest * (y - z[j])


@summing
def _gradient_step(x: Any, g: Any, eta: float, y: Any) -> None:
    """Write down y, which only the last step of a chunk has to."""
    for j in range(x.size):
        y[j] = x[j] - eta * g[j]


@compiled
def _step(
    s: Any, x: Any, average: Any, y: Any, z: Any, total: Any, g: Any, x0: Any, last: bool
) -> Any:
    """Do a step of `DistanceFreeAcceleGrad` with the gradient g at x, in two passes over points.

    Norms after the step follow from products before it.
    """
    alpha, radius = importance(s.iteration), s.radius
    gg, gx, gz, zz, sg, ss = _products(g, x, z, total, x0)
    squares = s.squares + alpha * alpha * gg
    if not math.isfinite(squares):
        return STOP
    eta = over_root(STEP * radius, squares)
    step, weight, reach = alpha * eta, alpha * radius, REACH * radius
    away = max(zz - 2.0 * step * gz + step * step * gg, 0.0)
    held = 1.0 if away <= reach * reach else over_root(reach, away)
    heavier = weight * radius
    s.evidence += heavier * gx
    square = max(ss + 2.0 * heavier * sg + heavier * heavier * gg, 0.0)
    s.radius = max(radius, TRUST * over_root(s.evidence, square))
    rest = 1.0 - 1.0 / importance(s.iteration + 1)
    if last:
        _gradient_step(x, g, eta, y)
    _moved(x, z, g, x0, average, total, eta, step, held, weight, heavier, rest)
    s.squares, s.eta = squares, eta
    s.weight_sum += weight
    s.iteration += 1
    return GO


@summing
def _product(a: Any, b: Any) -> float:
    """Return <a, b>, over the entries of a."""
    total = 0.0
    for j in range(a.size):
        total += a[j] * b[j]
    return total


@compiled
def _gradient(f: Any, X: Any, table: Any, terms: Any, x: Any, g: Any, order: Any) -> None:
    """Write down the gradient at x of some rows, for one set of coefficients."""
    data, indices, indptr = X
    l2, shift, d, total = terms[0], terms[1], terms.shape[1], 0.0
    offset = -_product(shift, x)
    if x.size > d:
        offset += x[d]
    for j in range(d):
        g[j] = l2[j] * x[j]
    for i in order:
        m = offset
        for k in range(indptr[i], indptr[i + 1]):
            m += data[k] * x[indices[k]]
        c = coefficient(f, m, table[i, 0], table[i, 1] / order.size)
        total += c
        for k in range(indptr[i], indptr[i + 1]):
            g[indices[k]] += c * data[k]
    for j in range(d):
        g[j] -= total * shift[j]
    if x.size > d:
        g[d] = total


@compiled
def _gradient_of_classes(
    X: Any, table: Any, terms: Any, x: Any, g: Any, room: Any, order: Any
) -> None:
    """The same for several classes: vectors have all classes' numbers for a column together."""
    data, indices, indptr = X
    d, K = terms.shape[1], room.shape[1]
    offsets, totals, slopes = room[0], room[1], room[2]
    last = x.size > K * d
    for c in range(K):
        offsets[c], totals[c] = x[d * K + c] if last else 0.0, 0.0
    for j in range(d):
        l2, shift = terms[0, j], terms[1, j]
        for c in range(K):
            g[j * K + c] = l2 * x[j * K + c]
            offsets[c] -= shift * x[j * K + c]
    for i in order:
        for c in range(K):
            slopes[c] = offsets[c]
        for k in range(indptr[i], indptr[i + 1]):
            v, first = data[k], indices[k] * K
            for c in range(K):
                slopes[c] += v * x[first + c]
        largest = slopes[0]
        for c in range(1, K):
            largest = max(largest, slopes[c])
        whole = 0.0
        for c in range(K):
            slopes[c] = math.exp(slopes[c] - largest)
            whole += slopes[c]
        share = table[i, 1] / order.size
        for c in range(K):
            slopes[c] *= share / whole
        slopes[int(table[i, 0])] -= share
        for c in range(K):
            totals[c] += slopes[c]
        for k in range(indptr[i], indptr[i + 1]):
            v, first = data[k], indices[k] * K
            for c in range(K):
                g[first + c] += v * slopes[c]
    for j in range(d):
        shift = terms[1, j]
        for c in range(K):
            g[j * K + c] -= totals[c] * shift
    if last:
        for c in range(K):
            g[d * K + c] = totals[c]


@kernel
def linear_steps(
    state: Any,
    fixed: Any,
    X: Any,
    table: Any,
    terms: Any,
    points: Any,
    x0: Any,
    order: Any,
    ends: Any,
) -> Any:
    """Do a step for each batch of rows, for one set of coefficients; return how many were done."""
    x, average, y, z, total, g = points
    first = 0
    for step in range(ends.size):
        _gradient(fixed[0], X, table, terms, x, g, order[first : ends[step]])
        last = step == ends.size - 1
        if _step(state[0], x, average, y, z, total, g, x0, last) == STOP:
            return step
        first = ends[step]
    return ends.size


@kernel
def classes_steps(
    state: Any,
    X: Any,
    table: Any,
    terms: Any,
    points: Any,
    x0: Any,
    room: Any,
    order: Any,
    ends: Any,
) -> Any:
    """Do the same for several classes."""
    x, average, y, z, total, g = points
    first = 0
    for step in range(ends.size):
        _gradient_of_classes(X, table, terms, x, g, room, order[first : ends[step]])
        last = step == ends.size - 1
        if _step(state[0], x, average, y, z, total, g, x0, last) == STOP:
            return step
        first = ends[step]
    return ends.size


class Chunk(NamedTuple):
    """Rows as kernels read them.

    Attributes
    ----------
    data : Data
        The rows with their loss; targets are numbers of classes where there are several.
    weights : Vector
        What each row counts, 1 on average.
    l2 : float
        The weight of the l2 term.
    n_classes : int
        How many there are; 1 for one set of coefficients.
    change : array of shape (2, n_features)
        Scale and shift of the columns.
    """

    data: Data
    weights: Vector
    l2: float
    n_classes: int
    change: Vector


def after_steps(
    state: Any, chunk: Chunk, order: npt.NDArray[Any], ends: npt.NDArray[Any]
) -> tuple[Any, int]:
    """Return the state of `DistanceFreeAcceleGrad` after batches of rows, and how many were used.

    It is the rule's twin: the same points up to rounding. Where the gradient of a batch is not
    finite, nothing is done.

    Parameters
    ----------
    state : DistanceFreeState
        The state before, which is not changed.
    chunk : Chunk
        The rows.
    order, ends : array of int
        The rows in the order in which they are used, and where each batch ends.
    """
    d, K = chunk.change.shape[1], chunk.n_classes
    numbers, fixed = np.zeros(1, NUMBERS), np.zeros(1, FIXED)
    numbers["squares"], numbers["eta"] = state.weighted_squares, state.step_size
    numbers["weight_sum"], numbers["radius"] = state.weight_sum, state.radius
    numbers["evidence"], numbers["iteration"] = state.evidence, state.iteration
    for name, number in chunk.data.loss._asdict().items():
        fixed[name] = number
    names = ("query_point", "weighted_sum", "gradient_point", "mirror_point", "gradient_sum")
    points = np.zeros((6, state.start.size))
    for point, name in zip(points, names, strict=False):
        point[:] = _turned(getattr(state, name), K, d)
    # Rows, l2 term and shift in the rule's coordinates v: weights are scale v.
    scale, shift = chunk.change
    (entries, indices, indptr), terms = (
        chunk.data.matrix,
        np.stack([chunk.l2 * scale**2, shift * scale]),
    )
    rows = entries * scale[indices], indices, indptr
    table = np.column_stack([chunk.data.y, chunk.weights])
    parts = (rows, table, terms, tuple(points), _turned(state.start, K, d))
    if K == 1:
        done = int(linear_steps(numbers, fixed, *parts, order, ends))
    else:
        done = int(classes_steps(numbers, *parts, np.empty((3, K)), order, ends))
    if done < ends.size:
        return state, 0
    vectors = {n: _turned(point, d, K) for n, point in zip(names, points, strict=False)}
    after = state._replace(
        iteration=int(numbers["iteration"][0]),
        weighted_squares=float(numbers["squares"][0]),
        step_size=float(numbers["eta"][0]),
        weight_sum=float(numbers["weight_sum"][0]),
        radius=float(numbers["radius"][0]),
        evidence=float(numbers["evidence"][0]),
        **vectors,
    )
    return after, done


def _turned(vector: Vector, rows: int, columns: int) -> Vector:
    """Return a copy in which a matrix at the beginning is transposed."""
    turned: Vector = vector.copy()
    if min(rows, columns) > 1:
        size = rows * columns
        turned[:size] = vector[:size].reshape(rows, columns).T.ravel()
    return turned


@announces
def _calls() -> Iterator[Call]:
    """Yield a call for rows of all the types that there are kernels for."""
    numbers, fixed = np.zeros(1, NUMBERS), np.zeros(1, FIXED)
    for index in (np.uint32, np.uint64):
        X = np.ones(1), read_only(np.zeros(1, index)), read_only(np.zeros(2, index))
        parts = (X, np.ones((1, 2)), np.ones((2, 1)), tuple(np.ones((6, 1))), np.ones(1))
        rows, end = (np.array(NO_ROWS), np.array(NO_ROWS)), layout(np.float64, index)
        yield Call(f"stream, {end}", linear_steps, (numbers, fixed, *parts, *rows))
        room = np.ones((3, 2))
        yield Call(f"stream of classes, {end}", classes_steps, (numbers, *parts, room, *rows))
