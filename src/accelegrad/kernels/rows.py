"""Products with dense and CSR rows, their Gram matrices, and prefetching of the next CSR rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from accelegrad.kernels.compile import Kernel, compiled, summing


@summing
def row_product(X: Any, i: int, x: Any) -> float:
    """Return a_i.x over the features."""
    total = 0.0
    for j in range(X.shape[1]):
        total += X[i, j] * x[j]
    return total


@summing
def add_row(X: Any, i: int, c: float, g: Any) -> None:
    """Add c a_i to g."""
    for j in range(X.shape[1]):
        g[j] += c * X[i, j]


@compiled
def sparse_product(data: Any, indices: Any, start: int, stop: int, x: Any) -> float:
    """Return a_i.x for the entries from start to stop, by four independent sums for speed."""
    e, last = np.uint64(start), np.uint64(stop)
    one, two, three, four = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    first = second = third = fourth = 0.0
    while e + four <= last:
        first += data[e] * x[indices[e]]
        second += data[e + one] * x[indices[e + one]]
        third += data[e + two] * x[indices[e + two]]
        fourth += data[e + three] * x[indices[e + three]]
        e += four
    while e < last:
        first += data[e] * x[indices[e]]
        e += one
    return (first + second) + (third + fourth)


@compiled
def add_sparse_row(data: Any, indices: Any, start: int, stop: int, c: float, x: Any) -> None:
    """Add c a_i to x."""
    for e in range(np.uint64(start), np.uint64(stop)):
        x[indices[e]] += c * data[e]


def _prefetch(_: Any, array: Any, index: Any) -> Any:  # noqa: ARG001
    """Prefetch the cache line of array[index]."""

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
    """Prefetch the row after the next, and what the next row's columns hold.

    Rows come in random order: without this a step waits for memory half of its time if the columns
    do not fit into the cache.
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
            for k in range(0, width, 8):  # numbers in a cache line
                prefetch(flat, np.uint64(width) * np.uint64(indices[e]) + np.uint64(k))


@Kernel
def add_gram(data: Any, indices: Any, indptr: Any, rows: Any, weights: Any, gram: Any) -> None:
    """Add weights[k] a_i a_i' for i = rows[k], in one triangle for each pair of entries."""
    for k in range(rows.size):
        i = rows[k]
        if weights[k] == 0.0:
            continue
        for e in range(indptr[i], indptr[i + 1]):
            row, factor = indices[e], weights[k] * data[e]
            for f in range(indptr[i], e):
                # Duplicate entries of a column count twice on the diagonal.
                twice = 2.0 if indices[f] == row else 1.0
                gram[row, indices[f]] += twice * factor * data[f]
            gram[row, row] += factor * data[e]
