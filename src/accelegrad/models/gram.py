"""Weighted Gram matrices of rows, by BLAS or by pairs of sparse entries, and their cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from accelegrad import kernels
from accelegrad.errors import Vector
from accelegrad.kernels import blocks
from accelegrad.models.matrix import (
    BLOCK_ENTRIES,
    Matrix,
    Products,
    RowNumbers,
    runs,
    stored_entries,
)

# Measured seconds, of which only the ratios matter: copying an entry of a dense and of a sparse row
# for BLAS, one product in BLAS, one pair of entries in the kernel.
DENSE_COPY, SPARSE_COPY, BLAS_PRODUCT, PAIR = 3e-9, 1e-8, 3e-11, 1.1e-9
# SciPy's sparse product computes each pair twice.
SCIPY_PAIR = 1e-8
# Rows per block copied for BLAS: with fewer, adding up Gram matrices takes longer than computing
# them (4000 x 1500, half the rows: 500 ms with 21 rows, 130 with 384).
_BLOCK_ROWS = 384
# Indexing rows takes about this many times as long as a product with them.
INDEXING = 5


class Storage(NamedTuple):
    """How rows are stored, which decides the cost of products."""

    entries: int
    dense: bool
    pairs_per_row: float
    """Mean number of pairs of entries of a row; infinite without a kernel for pairs."""

    def gram_seconds_per_row(self, n_parameters: int) -> float:
        """Return the cost of one row in a Gram matrix."""
        return min(_blas_seconds(n_parameters, self.dense), PAIR * self.pairs_per_row)

    def is_faster_by_pairs(self, n_parameters: int) -> bool:
        """Return whether the kernel over pairs is faster than BLAS."""
        return PAIR * self.pairs_per_row < _blas_seconds(n_parameters, self.dense)


def _blas_seconds(n_parameters: int, dense: bool) -> float:
    copy = DENSE_COPY if dense else SPARSE_COPY
    return n_parameters * (copy + BLAS_PRODUCT * n_parameters)


def pairs_per_row(X: Any) -> float:
    """Return the mean of k (k + 1) / 2 over the rows of a CSR matrix, k being a row's entries."""
    lengths = np.diff(X.indptr).astype(np.float64)
    return float((lengths * (lengths + 1.0)).mean()) / 2.0 if lengths.size else 0.0


def gram_matrix(
    X: Any,
    rows: RowNumbers | None,
    weights: Vector,
    *,
    intercept: bool,
    pairs_of: tuple[Any, ...] | None = None,
) -> Matrix:
    """Return sum_k weights_k a_k a_k' over some rows (None: all), with a 1 for an intercept."""
    d = int(X.shape[1])
    matrix = np.zeros((d + intercept, d + intercept), order="F")
    if pairs_of is not None:
        matrix[:d, :d] = _by_pairs(pairs_of, d, rows, weights)
    elif not isinstance(X, np.ndarray) and SCIPY_PAIR * pairs_per_row(X) < _blas_seconds(d, False):
        matrix[:d, :d] = _by_scipy(X, rows, weights)
    else:
        matrix[:d, :d] = _by_blocks(X, rows, weights)
    if intercept:
        matrix[d, :d] = matrix[:d, d] = _combination(X, rows, weights)
        matrix[d, d] = weights.sum()
    return matrix


def _by_scipy(X: Any, rows: RowNumbers | None, weights: Vector) -> Matrix:
    scaled = (X if rows is None else X[rows]).astype(np.float64)  # a copy
    scaled.data *= np.repeat(np.sqrt(weights), np.diff(scaled.indptr))
    product: Matrix = (scaled.T @ scaled).toarray()
    return product


class ColumnProducts:
    """Weighted products of the columns of a CSR matrix, with a cache of `most` columns."""

    def __init__(self, X: Any, weights: Vector, most: int) -> None:
        self._X, self._roots, self._most = X, np.sqrt(weights), most
        self._forget()

    def _forget(self) -> None:
        n, d = self._X.shape
        self._place = np.full(d, -1)  # positions of the cached columns
        self._known: Any = sp.csc_matrix((n, 0))
        self._matrix: Matrix = np.zeros((0, 0))

    def of(self, columns: Any) -> Matrix:
        """Return sum_i w_i x_ij x_ik for some columns j and k."""
        missing = columns[self._place[columns] < 0]
        if len(self._matrix) + missing.size > self._most:
            self._forget()
            missing = columns
        if missing.size:
            self._add(missing)
        places = self._place[columns]
        return self._matrix[np.ix_(places, places)]

    def _add(self, columns: Any) -> None:
        rows = self._X[:, columns].astype(np.float64)
        rows.data *= np.repeat(self._roots, np.diff(rows.indptr))
        self._known = sp.hstack([self._known, rows.tocsc()], format="csc")
        block = (self._known.T @ rows).toarray()
        size, before = len(block), len(self._matrix)
        matrix = np.empty((size, size))
        matrix[:before, :before] = self._matrix
        matrix[:, before:] = block
        matrix[before:, :before] = block[:before].T
        self._matrix = matrix
        self._place[columns] = np.arange(before, size)


def _combination(X: Any, rows: RowNumbers | None, weights: Vector) -> Vector:
    if rows is None:
        return Products(X).backward(weights)
    n = X.shape[0]
    if rows.size > n // INDEXING:
        return Products(X).backward(np.bincount(rows, weights, n).astype(np.float64, copy=False))
    total = np.zeros(X.shape[1])
    entries_per_row = max(stored_entries(X) // n, 1)
    for part in runs(weights.size, BLOCK_ENTRIES // entries_per_row):
        total += weights[part] @ X[rows[part]]
    return total


def _by_pairs(parts: tuple[Any, ...], d: int, rows: RowNumbers | None, weights: Vector) -> Matrix:
    from accelegrad.kernels.rows import add_gram

    half = np.zeros((d, d))
    chosen = np.arange(weights.size) if rows is None else rows
    data, indices, indptr = parts
    add_gram(data, indices, indptr, kernels.read_only(chosen), kernels.read_only(weights), half)
    diagonal = np.diag(half).copy()
    half += half.T
    np.fill_diagonal(half, diagonal)
    return half


def _by_blocks(X: Any, rows: RowNumbers | None, weights: Vector) -> Matrix:
    n, d = weights.size, int(X.shape[1])
    is_double = isinstance(X, np.ndarray) and X.dtype == np.float64
    if rows is None and is_double:
        least = float(weights.min())
        if least == weights.max():  # as for least squares
            return least * _summed(lambda part: X[part].T @ X[part], n, d)
    roots = np.sqrt(weights)
    most = min(max(_BLOCK_ROWS, BLOCK_ENTRIES // d), n)

    def added_up(whole: slice) -> Matrix:
        total, room = np.zeros((d, d)), np.empty((most, d))
        for part in runs(whole.stop - whole.start, most):
            part = slice(whole.start + part.start, whole.start + part.stop)
            scaled = room[: part.stop - part.start]
            chosen: Any = part if rows is None else rows[part]
            if rows is not None and is_double:
                np.take(X, chosen, axis=0, out=scaled, mode="clip")  # faster than indexing
                scaled *= roots[part, None]
            else:
                block: Any = X[chosen]
                dense = block if isinstance(block, np.ndarray) else block.toarray()
                np.multiply(dense, roots[part, None], out=scaled)
            total += scaled.T @ scaled
        return total

    return _summed(added_up, n, d)


def _summed(gram: Callable[[slice], Matrix], n: int, d: int) -> Matrix:
    first, *others = blocks.of_rows(gram, n, kernels.count_parts(n * d * d // 2))
    for other in others:
        first += other
    return first
