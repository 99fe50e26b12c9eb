"""What the kernels on CSR rows share: rows, the columns seen so far, the gradient of a batch."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from accelegrad.errors import Vector
from accelegrad.kernels.compile import compiled

REBASE = 2  # beside STOP and GO: what follows on the part of a step that is done by numbers
TARGET, SHARE, OFFSET, SQUARES = range(4)  # columns of the table of rows
DENSE_SHARE = 4  # from a quarter of all columns on, a rebase walks through all in order
LINE = 64  # bytes of a cache line
AHEAD = 16  # entries between one that is asked for from memory and the one worked on

BOOKS = ["iteration", "rebases", "fresh", "touched", "dense"]
SUMS = ["squares", "eta", "weight_sum"]


class CsrRows(NamedTuple):
    """The CSR matrix, and a table of numbers for each row, which lie together in the memory.

    Indices are unsigned: the loops then need no test for negative numbers.
    """

    data: npt.NDArray[Any]
    indices: npt.NDArray[Any]
    indptr: npt.NDArray[Any]
    table: Vector  # y_i, n p_i, x0.a_i, ||a_i||^2


class Seen(NamedTuple):
    """Which rows were used, and which columns may hold anything but zero."""

    rows: npt.NDArray[np.uint8]
    fresh: npt.NDArray[np.int64]  # rows used since the last rebase
    columns: npt.NDArray[np.uint8]
    touched: npt.NDArray[Any]


class Scratch(NamedTuple):
    """The gradient of a batch: `total` is zero between steps."""

    total: Vector
    columns: npt.NDArray[Any]
    entries: Vector


def aligned(rows: int, columns: int) -> Vector:
    """Return zeros such that no row straddles two cache lines, in memory that is there already."""
    flat = np.empty(rows * columns + LINE // 8)
    flat.fill(0.0)
    first = -(flat.ctypes.data // 8) % (LINE // 8)
    return flat[first : first + rows * columns].reshape(rows, columns)


@compiled
def sparse_product(data: Any, indices: Any, start: int, stop: int, x: Any) -> float:
    """Return a_i.x for a row whose entries are from start to stop.

    By four sums in turn: one addition would wait for the one before (a tenth of an epoch of dual
    ascent on text).
    """
    e, last, one, four = np.uint64(start), np.uint64(stop), np.uint64(1), np.uint64(4)
    first = second = third = fourth = 0.0
    while e + four <= last:
        first += data[e] * x[indices[e]]
        e += one
        second += data[e] * x[indices[e]]
        e += one
        third += data[e] * x[indices[e]]
        e += one
        fourth += data[e] * x[indices[e]]
        e += one
    while e < last:
        first += data[e] * x[indices[e]]
        e += one
    return (first + second) + (third + fourth)


@compiled
def add_sparse_row(data: Any, indices: Any, start: int, stop: int, c: float, x: Any) -> None:
    """Add c a_i to x."""
    for e in range(start, stop):
        x[indices[e]] += c * data[e]


def _prefetch(_: Any, array: Any, index: Any) -> Any:  # noqa: ARG001
    """Ask for the cache line of array[index], an array of one dimension; nothing else happens."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        place = builder.bitcast(builder.gep(data, [arguments[1]]), byte)
        reading, keep, as_data = (ir.Constant(number, flag) for flag in (0, 3, 1))
        builder.call(function, [place, reading, keep, as_data])
        return context.get_dummy_value()

    return types.void(array, types.uintp), generate


prefetch: Any = intrinsic(_prefetch)


@compiled
def look_ahead(
    data: Any, indices: Any, indptr: Any, flat: Any, width: int, order: Any, k: int
) -> None:
    """Fetch the row after the next, and for the next one what its columns hold.

    Rows come in random order: without this a step waits for the memory half of its time where the
    columns do not fit into the cache.
    """
    if k + 2 < order.size:
        i = order[k + 2]
        e = indptr[i]
        while e < indptr[i + 1]:
            prefetch(data, e)
            prefetch(data, e + np.uint64(8))
            prefetch(indices, e)
            e += np.uint64(16)
    if k + 1 < order.size:
        i = order[k + 1]
        for e in range(indptr[i], indptr[i + 1]):
            prefetch(flat, np.uint64(width) * np.uint64(indices[e]))


@compiled
def note(s: Any, seen_rows: Any, fresh: Any, order: Any, first: int, size: int) -> None:
    """Take note of the rows of a batch, which are used."""
    if s.dense == 0:
        for k in range(first, first + size):
            i = order[k]
            if seen_rows[i] == 0:
                seen_rows[i] = 1
                fresh[s.fresh] = i
                s.fresh += 1


@compiled
def walk(s: Any, seen: Any, indices: Any, indptr: Any) -> Any:
    """Add the columns of the fresh rows to those touched; return how many a rebase has to visit."""
    # Fields are taken out of their tuples before loops: each access would count references.
    fresh, known, touched = seen.fresh, seen.columns, seen.touched
    if s.dense == 0:
        last, count = np.uint64(indices.size - 1), s.touched
        for k in range(s.fresh):
            for e in range(indptr[fresh[k]], indptr[fresh[k] + 1]):
                prefetch(known, indices[min(e + np.uint64(AHEAD), last)])
                j = indices[e]
                if known[j] == 0:
                    known[j] = 1
                    touched[count] = j
                    count += 1
        s.fresh, s.touched = 0, count
        if DENSE_SHARE * count > known.size:
            s.dense = 1
    return known.size if s.dense else s.touched


@compiled
def visited(s: Any, touched: Any, flat: Any, width: int, k: int) -> Any:
    """Return the k-th of the columns that a rebase has to visit."""
    if s.dense:
        return np.uint64(k)
    if k + AHEAD < s.touched:
        prefetch(flat, np.uint64(width) * np.uint64(touched[k + AHEAD]))
    return np.uint64(touched[k])


@compiled
def scatter(
    data: Any, indices: Any, start: int, stop: int, c: float, total: Any, listed: Any, count: int
) -> int:
    """Add c a_i to the batch's gradient; return how many columns are listed.

    A column is listed again where its total had come to zero: see `gathered`.
    """
    for e in range(start, stop):
        j = indices[e]
        if total[j] == 0.0:
            listed[count] = j
            count += 1
        total[j] += c * data[e]
    return count


@compiled
def gathered(total: Any, listed: Any, entries: Any, count: int) -> float:
    """Move the totals to the list, zero for a column's second listing; return ||g_s||^2."""
    squares = 0.0
    for k in range(count):
        j = listed[k]
        entry = total[j]
        total[j] = 0.0
        entries[k] = entry
        squares += entry * entry
    return squares
