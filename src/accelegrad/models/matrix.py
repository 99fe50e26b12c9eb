"""Products with a dense or CSR matrix, and sums of its squares, in float64."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from accelegrad import kernels
from accelegrad.errors import Vector
from accelegrad.kernels import blocks

Matrix = npt.NDArray[np.float64]
RowNumbers = npt.NDArray[np.integer[Any]]  # indices of rows, from 0

#: float32 data with at most this many entries are also kept as float64 (8 MB). Chosen.
SMALL_DATA = 1 << 20
#: Entries per block in blockwise work: 1 MB, which a cache holds. Chosen.
BLOCK_ENTRIES = 1 << 17
#: Reading X dominates: a product with fewer columns takes about as long as one with this many.
NARROW = 8


def runs(count: int, length: int) -> Iterator[slice]:
    """Yield slices of at most `length` (at least 1) that cover 0 to `count`."""
    length = max(length, 1)
    for start in range(0, count, length):
        yield slice(start, min(start + length, count))


def stored_entries(X: Any) -> int:
    """Return how many entries a dense or CSR matrix stores."""
    return int(X.size if isinstance(X, np.ndarray) else X.nnz)


def row_runs(X: Any, entries: int = BLOCK_ENTRIES) -> Iterator[slice]:
    """Yield slices of rows with about `entries` stored entries each."""
    return runs(X.shape[0], entries * X.shape[0] // max(stored_entries(X), 1))


class Products:
    """Products of a dense or CSR matrix, which must not change, and of its transpose."""

    def __init__(self, X: Any) -> None:
        self.X = X
        self._is_sparse = bool(sp.issparse(X))
        self._is_double = X.dtype == np.float64
        self._whole: Any = X if self._is_double else None

    def forward(self, w: Matrix) -> Matrix:
        """Return X w, for a vector or the columns of a matrix."""
        whole = self._in_double()
        if whole is not None:
            if self._is_sparse:
                return np.asarray(whole @ w)
            count = self._count_parts(w)
            parts = blocks.of_rows(lambda part: whole[part] @ w, len(whole), count)
            return parts[0] if count == 1 else np.concatenate(parts)
        product = np.zeros((self.X.shape[0], *w.shape[1:]))
        for rows, columns, block in self._blocks():
            product[rows] += block @ w[columns]
        return product

    def backward(self, theta: Matrix) -> Matrix:
        """Return X' theta, for a vector or the columns of a matrix."""
        whole = self._in_double()
        if whole is not None:
            if self._is_sparse:
                return np.asarray(self._transpose @ theta)

            def of_part(part: slice) -> Matrix:
                # BLAS takes twice as long for a vector from the right.
                some = whole[part]
                return np.asarray(theta[part] @ some if theta.ndim == 1 else some.T @ theta[part])

            first, *others = blocks.of_rows(of_part, len(whole), self._count_parts(theta))
            return sum(others, start=first)
        product = np.zeros((self.X.shape[1], *theta.shape[1:]))
        for rows, columns, block in self._blocks():
            product[columns] += block.T @ theta[rows]
        return product

    def _count_parts(self, factors: Matrix) -> int:
        columns = 1 if factors.ndim == 1 else factors.shape[1]
        return kernels.count_parts(self.X.size * max(columns, NARROW))

    def _in_double(self) -> Any:
        """Return the matrix in float64, or None if a copy would take too much memory."""
        if self._whole is None and stored_entries(self.X) <= SMALL_DATA:
            self._whole = self.X.astype(np.float64)
        return self._whole

    @cached_property
    def _transpose(self) -> Any:
        return self._in_double().T

    def _blocks(self) -> Iterator[tuple[slice, slice, Any]]:
        every = slice(None)
        if not self._is_sparse and not self.X.flags.c_contiguous:
            for some in runs(self.X.shape[1], BLOCK_ENTRIES // self.X.shape[0]):
                yield every, some, self.X[:, some].astype(np.float64)
            return
        for some in row_runs(self.X):
            yield some, every, self.X[some].astype(np.float64)


class RowBlock:
    """Some rows of a dense or CSR matrix (gathered: SciPy takes 5 times as long to index them)."""

    def __init__(self, X: Any, rows: RowNumbers) -> None:
        self._dense: Matrix | None = None
        if isinstance(X, np.ndarray):
            # A slice is a view; an index makes a copy.
            index = slice(rows[0], rows[0] + 1) if rows.size == 1 else rows
            self._dense = X[index].astype(np.float64, copy=False)
            return
        starts = X.indptr[rows]
        lengths = X.indptr[rows + 1] - starts
        ends = np.cumsum(lengths)
        where = np.repeat(starts - (ends - lengths), lengths) + np.arange(ends[-1])
        self._entries, self._columns = X.data[where].astype(np.float64), X.indices[where]
        self._owners = np.repeat(np.arange(rows.size), lengths)
        self._n_rows = rows.size

    def margins(self, w: Vector) -> Vector:
        """Return <a_i, w>."""
        if self._dense is not None:
            # BLAS may raise spurious floating-point flags beside small matrices.
            with np.errstate(invalid="ignore"):
                margins: Vector = self._dense @ w
            return margins
        sums = np.bincount(self._owners, self._entries * w[self._columns], self._n_rows)
        return sums.astype(np.float64, copy=False)  # without entries bincount returns integers

    def add_combination(self, coefficients: Vector, target: Vector) -> None:
        """Add sum_i coefficients_i a_i to a vector, in place."""
        if self._dense is not None:
            with np.errstate(invalid="ignore"):  # as above
                target += self._dense.T @ coefficients
        else:
            # Not target[columns] += ..., which would drop repeated columns.
            np.add.at(target, self._columns, self._entries * coefficients[self._owners])


def row_squares(X: Any) -> Vector:
    """Return the squared norms of the rows of a dense or CSR matrix."""
    if isinstance(X, np.ndarray):
        squares: Vector = np.einsum("ij,ij->i", X, X, dtype=np.float64)
        return squares
    squares = np.empty(X.shape[0])
    for rows, block in _squared_blocks(X, BLOCK_ENTRIES):
        squares[rows] = np.asarray(block.sum(axis=1)).ravel()
    return squares


def column_squares(X: Any, shares: Vector) -> Vector:
    """Return sum_i shares_i x_ij^2 for the columns of a dense or CSR matrix."""
    if isinstance(X, np.ndarray):
        squares: Vector = np.einsum("i,ij,ij->j", shares, X, X, dtype=np.float64)
        return squares
    squares = np.zeros(X.shape[1])
    # Each block costs a vector as long as a row.
    for rows, block in _squared_blocks(X, max(BLOCK_ENTRIES, 4 * X.shape[1])):
        squares += shares[rows] @ block
    return squares


def _squared_blocks(X: Any, entries: int) -> Iterator[tuple[slice, Any]]:
    """Yield blocks of CSR rows with squared entries, duplicates summed first."""
    whole = bool(X.has_canonical_format)
    for rows in row_runs(X, entries):
        block = X[rows].astype(np.float64)
        if not whole:
            block.sum_duplicates()
        np.square(block.data, out=block.data)
        yield rows, block
