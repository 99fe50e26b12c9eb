"""Loss and gradient of a linear model in one pass over the rows.

Rows are taken in chunks that fit into the first-level cache: margins, then vectorised losses and
slopes, then the chunk's part of the gradient. All arithmetic is in float64.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accelegrad.errors import Vector
from accelegrad.kernels import count_blocks, read_only
from accelegrad.kernels.blocks import run
from accelegrad.kernels.compile import Kernel, summing
from accelegrad.kernels.loss_shape import Shape, for_kernels
from accelegrad.kernels.losses import losses
from accelegrad.kernels.rows import add_row, add_sparse_row, row_product, sparse_product

Array = npt.NDArray[Any]

#: Bytes of X in a chunk of several rows (measured).
CHUNK_BYTES = 1 << 14


class Task(NamedTuple):
    """A kernel's task; kernels unpack it before loops to save reference counts."""

    rows: Array  # the rows, or empty for all
    start: int  # the range within `rows`, or of all rows
    stop: int
    w: Vector
    intercept: float
    y: Vector
    shares: Vector  # the p_i, empty if equal; multiplied by `scale`
    scale: float
    loss: Shape | None
    kept: Array  # for margins and slopes, if it has room


# Chunks of rows


@summing
def _weigh(
    first: int,
    count: int,
    chosen: Array,
    shares: Vector,
    scale: float,
    m: Vector,
    costs: Vector,
    slopes: Vector,
    factors: Vector,
    kept: Array,
) -> tuple[float, float]:
    """Fill in the factors p_i l'(m_i) and return the sums of p_i l(m_i) and of the factors."""
    total, slope = 0.0, 0.0
    for i in range(count):
        share = scale * shares[chosen[i]] if shares.size > 0 else scale
        factors[i] = share * slopes[i]
        costs[i] *= share
    for i in range(count):
        total += costs[i]
        slope += factors[i]
    if kept.shape[1] > 0:
        for i in range(count):
            kept[0, first + i] = m[i]
            kept[1, first + i] = slopes[i]
    return total, slope


# The kernel allocates its arrays, so that compilers see that none overlap: otherwise loops take up
# to 1.5 times as long, and their rounding depends on where arrays are in memory.


@Kernel
def passed(
    X: Array | None, entries: Any, columns: Any, ends: Any, task: Task, length: int
) -> tuple[float, float, Vector]:
    """Return sum_i p_i l(m_i), sum_i p_i l'(m_i) and sum_i p_i l'(m_i) a_i.

    Rows are those of X, or of a CSR matrix if X is None. They are taken in chunks of `length`.
    """
    rows, start, stop, given, intercept, y, shares, scale, loss, kept = task
    w, gradient = given.copy(), np.zeros(given.size)
    chosen, m, targets = np.zeros(length, np.uint64), np.zeros(length), np.zeros(length)
    costs, slopes, factors = np.zeros(length), np.zeros(length), np.zeros(length)
    total, slope, one = 0.0, 0.0, np.uint64(1)
    for first in range(start, stop, length):
        count = min(length, stop - first)
        for i in range(count):
            chosen[i] = rows[first + i] if rows.size > 0 else np.uint64(first + i)
            targets[i] = y[chosen[i]]
        if X is not None:
            for i in range(count):
                m[i] = intercept + row_product(X, chosen[i], w)
        if entries is not None:
            for i in range(count):
                begin, end = ends[chosen[i]], ends[chosen[i] + one]
                m[i] = intercept + sparse_product(entries, columns, begin, end, w)
        losses(loss, m, targets, costs, slopes)
        found = _weigh(first, count, chosen, shares, scale, m, costs, slopes, factors, kept)
        total, slope = total + found[0], slope + found[1]
        if X is not None:
            for i in range(count):
                add_row(X, chosen[i], factors[i], gradient)
        if entries is not None:
            for i in range(count):
                if factors[i] != 0.0:
                    begin, end = ends[chosen[i]], ends[chosen[i] + one]
                    add_sparse_row(entries, columns, begin, end, factors[i], gradient)
    return total, slope, gradient


# From Python


class Pass(NamedTuple):
    """Results of one pass: sum_i p_i l(m_i), its gradient, and if kept all m_i and l'(m_i)."""

    loss: float
    gradient: Vector
    margins: Vector
    slopes: Vector


class Data(NamedTuple):
    """What a pass reads: read-only views, which have one Numba type each."""

    matrix: tuple[Array, ...]  # X, or data, indices and indptr of CSR, the last two as uint32
    y: Vector
    shares: Vector  # the p_i, empty if equal
    loss: Shape


def data(X: Any, y: Vector, shares: Vector | None, loss: Shape) -> Data:
    """Return a model's dense or CSR data for kernels."""
    matrix: tuple[Array, ...]
    if isinstance(X, np.ndarray):
        matrix = (read_only(X),)
    else:
        # Unsigned indices need no check for negative ones. 64-bit indices are copied, so that
        # kernels are compiled for one type.
        places = (x.astype(np.int32, copy=False) for x in (X.indices, X.indptr))
        matrix = (read_only(X.data), *(read_only(x, np.uint32) for x in places))
    equal = np.empty(0) if shares is None else shares
    return Data(matrix, read_only(y), read_only(equal), loss)


def one_pass(
    given: Data,
    w: Vector,
    *,
    intercept: bool,
    rows: Array | None = None,
    scale: float,
    keep: bool = False,
) -> Pass:
    """Return the loss and its gradient over all rows or some.

    The intercept, if any, is the last entry of w. `rows` may repeat and are not checked. `scale`
    multiplies the shares, or is each row's share; `keep` keeps margins and slopes.
    """
    chosen = (
        _NO_ROWS if rows is None else read_only(np.ascontiguousarray(rows, np.int64), np.uint64)
    )
    count = given.y.size if rows is None else chosen.size
    ends = block_ends(given.matrix, count, rows is None, w.size)
    kept = np.empty((2, count if keep else 0))
    features = read_only(np.ascontiguousarray(w[:-1] if intercept else w))
    offset = float(w[-1]) if intercept else 0.0
    loss = for_kernels(given.loss)

    is_dense = len(given.matrix) == 1
    matrix = (*given.matrix, None, None, None) if is_dense else (None, *given.matrix)
    entry = given.matrix[0].itemsize + (0 if is_dense else given.matrix[1].itemsize)
    row_bytes = entry * (given.matrix[0].size // given.y.size + 1)

    def task(block: int) -> Any:
        first, last = int(ends[block]), int(ends[block + 1])
        length = max(1, min(CHUNK_BYTES // row_bytes, last - first))
        rest = (features, offset, given.y, given.shares, scale, loss, kept)
        return passed(*matrix, Task(chosen, first, last, *rest), length)

    values, slopes, gradients = zip(*run(task, len(ends) - 1), strict=True)
    with np.errstate(all="ignore"):
        gradient = sum(gradients[1:], start=gradients[0])
    if intercept:
        gradient = np.append(gradient, sum(slopes))
    return Pass(float(sum(values)), gradient, *kept)


_NO_ROWS = read_only(np.empty(0, np.uint64))


def block_ends(matrix: tuple[Array, ...], count: int, whole: bool, width: int) -> list[int]:
    """Return the ends of blocks with about equally many entries."""
    entries = matrix[0].size
    if not whole:
        n = matrix[0].shape[0] if len(matrix) == 1 else matrix[2].size - 1
        entries = entries * count // n
    blocks = count_blocks(entries, width)
    if len(matrix) == 1 or not whole or blocks == 1:
        return [count * block // blocks for block in range(blocks + 1)]
    # Of indptr's type, which would be converted otherwise.
    wanted = np.array([entries * block // blocks for block in range(1, blocks)], matrix[2].dtype)
    return [0, *(int(end) for end in np.searchsorted(matrix[2], wanted)), count]
