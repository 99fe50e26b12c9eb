"""Products with a data matrix in float64, whatever the type of its entries.

Values, gradients and bounds are computed in float64. float32 data are not copied for that, unless
they are small: they are converted a block of rows (or, in Fortran order, of columns) at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from accelegrad import kernels
from accelegrad.kernels import blocks
from accelegrad.models.gram import Matrix
from accelegrad.models.row_blocks import runs

#: float32 data with at most this many entries are kept as a float64 copy too (8 MB).
SMALL_DATA = 1 << 20
#: Entries that are converted at a time: their copy fits into the cache.
BLOCK_ENTRIES = 1 << 17
#: A product with fewer columns takes about as long as one with this many: reading X takes longest.
NARROW = 8


class MatrixProducts(Protocol):
    """What multiplies a matrix and its transpose, in float64."""

    def forward(self, w: Matrix) -> Matrix:
        """Return X w, for a vector or the columns of a matrix."""

    def backward(self, theta: Matrix) -> Matrix:
        """Return X' theta, for a vector or the columns of a matrix."""

    def through(self, w: Matrix, between: Callable[[slice, Matrix], Matrix]) -> Matrix:
        """Return X' theta for theta = between(rows, X w), by the rows that are in memory."""


def products_with(X: Any) -> MatrixProducts:
    """Return what multiplies a matrix: itself, where its rows are elsewhere."""
    return X if hasattr(X, "storage") else Products(X)


class Products:
    """Products of a dense or CSR matrix and of its transpose with vectors or matrices.

    Parameters
    ----------
    X : array or CSR matrix
        float32 or float64. It is not copied, and must not change.
    """

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

    def through(self, w: Matrix, between: Callable[[slice, Matrix], Matrix]) -> Matrix:
        """Return X' theta for theta = between(rows, X w): here all rows at once."""
        return self.backward(between(slice(None), self.forward(w)))

    def _count_parts(self, factors: Matrix) -> int:
        """Return into how many parts, one per thread, a product with dense rows is split."""
        columns = 1 if factors.ndim == 1 else factors.shape[1]
        return kernels.count_parts(self.X.size * max(columns, NARROW))

    def _in_double(self) -> Any:
        """Return the matrix in float64, or None where a copy would take too much memory."""
        if self._whole is None:
            entries = self.X.nnz if self._is_sparse else self.X.size
            if entries <= SMALL_DATA:
                self._whole = self.X.astype(np.float64)
        return self._whole

    @cached_property
    def _transpose(self) -> Any:
        """The transpose in float64, a view: SciPy is slow to make one."""
        return self._in_double().T

    def _blocks(self) -> Iterator[tuple[slice, slice, Any]]:
        """Yield parts of the matrix in float64, each with the rows and columns it covers."""
        n, d = self.X.shape
        every = slice(None)
        if not self._is_sparse and not self.X.flags.c_contiguous:
            for some in runs(d, BLOCK_ENTRIES // n):
                yield every, some, self.X[:, some].astype(np.float64)
            return
        entries = self.X.nnz if self._is_sparse else self.X.size
        for some in runs(n, BLOCK_ENTRIES * n // max(entries, 1)):
            yield some, every, self.X[some].astype(np.float64)
