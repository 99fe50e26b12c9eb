"""Loss and gradient of a linear model in one pass over the rows.

Rows are taken in chunks that fit into the first-level cache: margins, then vectorised losses and
slopes, then the chunk's part of the gradient. All arithmetic is in float64.

What keeps a pass from waiting for memory (measured):

- A chunk of dense rows comes from four parts of the block: processors prefetch several long runs
  better than one. One chunk's part of the gradient is computed with the margins of the next.
- While sparse rows are added to the gradient, the next chunk is prefetched.
- If the cache does not hold parameters and gradient of sparse rows, they are interleaved in one
  table: the places fetched for a row's margin serve its gradient too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accelegrad.errors import Vector
from accelegrad.kernels import count_blocks
from accelegrad.kernels.arrays import read_only
from accelegrad.kernels.blocks import run
from accelegrad.kernels.compile import compiled, kernel, summing
from accelegrad.kernels.loss_shape import Shape, for_kernels
from accelegrad.kernels.losses import losses
from accelegrad.kernels.sparse_rows import prefetch

Array = npt.NDArray[Any]

#: Bytes of X in a chunk, if that makes 4 to 64 rows (measured).
DENSE_CHUNK, SPARSE_CHUNK = 1 << 14, 1 << 13
_LONGEST_CHUNK = 64
# Numbers between two arrays, so that vectorised loops see that they do not overlap.
ROOM = 128
#: Sparse data with at least this many columns, and this many entries per column in a block, keep
#: parameters and gradient interleaved in one table (measured: filling and emptying it must pay).
WIDE, ENTRIES_PER_COLUMN = 1 << 17, 2


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
    gradient: Vector  # the rows' part is added to it
    kept: Array  # for margins and slopes, if it has room


class Room(NamedTuple):
    """Memory of a kernel for the rows of a chunk."""

    chosen: Array  # their row numbers
    margins: Vector
    targets: Vector
    costs: Vector
    slopes: Vector
    factors: Vector


# Chunks of rows


@summing
def _choose(
    rows: Array, first: int, count: int, at: int, y: Vector, chosen: Array, targets: Vector
) -> None:
    """Store the numbers and targets of the next rows from place `at` of a chunk on."""
    if rows.size > 0:
        for i in range(count):
            chosen[at + i] = rows[first + i]
            targets[at + i] = y[rows[first + i]]
    else:
        for i in range(count):
            chosen[at + i] = np.uint64(first + i)
            targets[at + i] = y[first + i]


@summing
def _weigh(
    first: int,
    count: int,
    at: int,
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
    for i in range(at, at + count):
        share = scale * shares[chosen[i]] if shares.size > 0 else scale
        factors[i] = share * slopes[i]
        costs[i] *= share
    for i in range(at, at + count):
        total += costs[i]
        slope += factors[i]
    if kept.shape[1] > 0:
        for i in range(count):
            kept[0, first + i] = m[at + i]
            kept[1, first + i] = slopes[at + i]
    return total, slope


@summing
def _clear(factors: Vector) -> None:
    for i in range(factors.size):
        factors[i] = 0.0


@summing
def _four_dense_rows(
    X: Array,
    new: Array,
    old: Array,
    i: int,
    w: Vector,
    m: Vector,
    factors: Vector,
    gradient: Vector,
) -> None:
    """Multiply four new rows by w while adding four old rows to the gradient."""
    i1, i2, i3 = i + m.size // 4, i + m.size // 4 * 2, i + m.size // 4 * 3
    n0, n1, n2, n3 = new[i], new[i1], new[i2], new[i3]
    o0, o1, o2, o3 = old[i], old[i1], old[i2], old[i3]
    f0, f1, f2, f3 = factors[i], factors[i1], factors[i2], factors[i3]
    m0, m1, m2, m3 = 0.0, 0.0, 0.0, 0.0
    for j in range(X.shape[1]):
        gradient[j] += f0 * X[o0, j] + f1 * X[o1, j] + f2 * X[o2, j] + f3 * X[o3, j]
        m0 += w[j] * X[n0, j]
        m1 += w[j] * X[n1, j]
        m2 += w[j] * X[n2, j]
        m3 += w[j] * X[n3, j]
    m[i], m[i1], m[i2], m[i3] = m0, m1, m2, m3


# Kernels on dense rows allocate their arrays: so compilers see that none overlap, without which
# loops take up to 1.5 times as long. `np.zeros` would take twice as long to compile as `np.empty`.


@kernel
def _dense(X: Array, task: Task, length: int) -> tuple[float, float]:
    """Return sums of p_i l(m_i) and p_i l'(m_i); add sum_i p_i l'(m_i) a_i to the gradient.

    Rows are taken in chunks of `length` (4, 8, 12, ...).
    """
    rows, start, stop, w, intercept, y, shares, scale, loss, gradient, kept = task
    new, old = np.empty(length, np.uint64), np.empty(length, np.uint64)
    m, targets, costs = np.empty(length), np.empty(length), np.empty(length)
    slopes, factors = np.empty(length), np.empty(length)
    for i in range(length):
        new[i], old[i], targets[i], factors[i] = np.uint64(0), np.uint64(0), 0.0, 0.0
    quarter, part = length // 4, (stop - start + 3) // 4
    lanes = length // quarter  # 4; compilers would unroll loops if they knew
    total, slope = 0.0, 0.0
    for step in range(0, part + quarter, quarter):  # the last one only adds old rows
        for lane in range(lanes):
            first = start + lane * part + step
            count = max(0, min(quarter, part - step, stop - first))
            _choose(rows, first, count, lane * quarter, y, new, targets)
        for i in range(quarter):
            _four_dense_rows(X, new, old, i, w, m, factors, gradient)
        for i in range(length):
            m[i] += intercept
        losses(loss, m, targets, costs, slopes)
        _clear(factors)
        for lane in range(lanes):
            first = start + lane * part + step
            count = max(0, min(quarter, part - step, stop - first))
            found = _weigh(
                first, count, lane * quarter, new, shares, scale, m, costs, slopes, factors, kept
            )
            total, slope = total + found[0], slope + found[1]
        new, old = old, new
    return total, slope


_ONE, _TWO, _THREE, _FOUR = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)

# Parameters and gradient are two vectors (`turns` None) or interleaved in one table (2). Kernels
# are compiled for either: a runtime choice would be twice as slow for some types of data.


@compiled
def _parameter_place(turns: Any, column: Any) -> Any:
    if turns is None:
        return column
    return _TWO * column


@compiled
def _gradient_place(turns: Any, column: Any) -> Any:
    if turns is None:
        return column
    return _TWO * column + _ONE


# Not `summing`: vectorised gathers take twice as long on many processors.
@compiled
def _sparse_product(
    entries: Array, columns: Array, ends: Array, row: Any, w: Vector, turns: Any
) -> float:
    """Return the product of a row with w, by four sums so that additions need not wait."""
    s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
    k, end = np.uint64(ends[row]), np.uint64(ends[row + _ONE])
    while k + _FOUR <= end:
        s0 += entries[k] * w[_parameter_place(turns, columns[k])]
        s1 += entries[k + _ONE] * w[_parameter_place(turns, columns[k + _ONE])]
        s2 += entries[k + _TWO] * w[_parameter_place(turns, columns[k + _TWO])]
        s3 += entries[k + _THREE] * w[_parameter_place(turns, columns[k + _THREE])]
        k += _FOUR
    while k < end:
        s0 += entries[k] * w[_parameter_place(turns, columns[k])]
        k += _ONE
    return (s0 + s1) + (s2 + s3)


@compiled
def _fetch(turns: Any, entries: Array, columns: Array, k: Any, sums: Vector) -> None:
    """Prefetch four entries from k on, or the places of the table that they need."""
    if turns is None:
        prefetch(entries, k)
        prefetch(columns, k)
    else:
        prefetch(sums, _TWO * columns[k])
        prefetch(sums, _TWO * columns[k + _ONE])
        prefetch(sums, _TWO * columns[k + _TWO])
        prefetch(sums, _TWO * columns[k + _THREE])


@compiled
def _add_sparse(
    entries: Array,
    columns: Array,
    ends: Array,
    row: Any,
    factor: float,
    sums: Vector,
    turns: Any,
    ahead: Any,
) -> None:
    """Add a multiple of a row, and prefetch the entries `ahead` places farther on."""
    k, end = np.uint64(ends[row]), np.uint64(ends[row + _ONE])
    while k + _FOUR <= end:
        _fetch(turns, entries, columns, k + ahead, sums)
        sums[_gradient_place(turns, columns[k])] += factor * entries[k]
        sums[_gradient_place(turns, columns[k + _ONE])] += factor * entries[k + _ONE]
        sums[_gradient_place(turns, columns[k + _TWO])] += factor * entries[k + _TWO]
        sums[_gradient_place(turns, columns[k + _THREE])] += factor * entries[k + _THREE]
        k += _FOUR
    while k < end:
        sums[_gradient_place(turns, columns[k])] += factor * entries[k]
        k += _ONE


@compiled
def _next_chunk(entries: Array, ends: Array, rows: Array, first: int, count: int) -> Any:
    """Return how many entries ahead the next chunk is: 0 for chosen rows and the last chunk."""
    begin, end = np.uint64(ends[first]), np.uint64(ends[first + count])
    if rows.size > 0 or end + (end - begin) > np.uint64(entries.size):
        return np.uint64(0)
    return end - begin


@kernel
def _sparse(
    entries: Array, columns: Array, ends: Array, task: Task, room: Room, turns: Any
) -> tuple[float, float]:
    """Do the rows of a CSR matrix; see `_dense` for the sums."""
    rows, start, stop, w, intercept, y, shares, scale, loss, gradient, kept = task
    chosen, m, targets, costs, slopes, factors = room
    total, slope = 0.0, 0.0
    for first in range(start, stop, m.size):
        count = min(m.size, stop - first)
        _choose(rows, first, count, 0, y, chosen, targets)
        for i in range(count):
            m[i] = intercept + _sparse_product(entries, columns, ends, chosen[i], w, turns)
        losses(loss, m, targets, costs, slopes)
        found = _weigh(first, count, 0, chosen, shares, scale, m, costs, slopes, factors, kept)
        total, slope = total + found[0], slope + found[1]
        ahead = _next_chunk(entries, ends, rows, first, count)
        for i in range(count):
            if factors[i] != 0.0:
                _add_sparse(entries, columns, ends, chosen[i], factors[i], gradient, turns, ahead)
    return total, slope


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

    def task(block: int) -> tuple[float, float, Vector]:
        gradient = np.zeros(w.size)
        first, last = int(ends[block]), int(ends[block + 1])
        rest = (features, offset, given.y, given.shares, scale, loss, gradient, kept)
        sums = _summed(given.matrix, Task(chosen, first, last, *rest))
        return *sums, gradient

    losses, slopes, gradients = zip(*run(task, len(ends) - 1), strict=True)
    gradient = gradients[0]
    with np.errstate(all="ignore"):
        for other in gradients[1:]:
            gradient += other
    if intercept:
        gradient[-1] = sum(slopes)
    return Pass(float(sum(losses)), gradient, *kept)


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


# Which kernel, and the memory that it takes


def _summed(matrix: tuple[Array, ...], task: Task) -> Any:
    """Run the kernel for some rows; it adds the features' part to the task's gradient."""
    d, gradient = task.w.size, task.gradient
    if len(matrix) == 1:
        # Copies with room around them: vectorisation, hence rounding, must not depend on where
        # arrays happen to be.
        copies = np.zeros(2 * d + 3 * ROOM)
        weights, sums = copies[ROOM : ROOM + d], copies[2 * ROOM + d : 2 * ROOM + 2 * d]
        weights[:] = task.w
        length = _chunk_length(task, d * matrix[0].itemsize, DENSE_CHUNK)
        found = _dense(matrix[0], task._replace(w=weights, gradient=sums), length)
        gradient[:d] += sums
        return found
    entries, columns, _ = matrix
    per_row = entries.size // task.y.size + 1
    row_bytes = per_row * (entries.itemsize + columns.itemsize)
    room = _room(_chunk_length(task, row_bytes, SPARSE_CHUNK))
    if d < WIDE or (task.stop - task.start) * per_row < ENTRIES_PER_COLUMN * d:
        return _sparse(*matrix, task, room, None)
    table = np.zeros(2 * d)
    table[::2] = task.w
    found = _sparse(*matrix, task._replace(w=table, gradient=table), room, 2)
    gradient[:d] += table[1::2]
    return found


def _room(length: int) -> Room:
    return Room(np.zeros(length, np.uint64), *(np.zeros(length) for _ in range(5)))


def _chunk_length(task: Task, row_bytes: int, chunk_bytes: int) -> int:
    """Return a multiple of 4 up to `_LONGEST_CHUNK`, not much more than there are rows."""
    rows = task.stop - task.start
    fitting = min(chunk_bytes // max(row_bytes, 1), _LONGEST_CHUNK, rows)
    return max(4, (fitting + 3) // 4 * 4)
