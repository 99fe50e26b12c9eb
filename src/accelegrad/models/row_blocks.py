"""Some rows of a dense or CSR matrix, for products with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from accelegrad.errors import Vector

RowNumbers = npt.NDArray[np.integer[Any]]  # indices of rows, from 0

# Below this many rows of a sparse matrix gathering them here beats SciPy's indexing (measured).
_GATHERED_ROWS = 128


def runs(count: int, length: int) -> Iterator[slice]:
    """Yield slices of at most `length` (at least 1) that cover 0 to `count`."""
    length = max(length, 1)
    for start in range(0, count, length):
        yield slice(start, min(start + length, count))


class RowBlock(Protocol):
    """Some rows of a matrix."""

    def margins(self, w: Vector) -> Vector:
        """Return <a_i, w> in float64."""

    def add_combination(self, coefficients: Vector, target: Vector) -> None:
        """Add sum_i coefficients_i a_i to a vector, in place."""


def row_block(X: Any, rows: RowNumbers) -> RowBlock:
    """Return some rows of a matrix; a few of a sparse one are not made a new matrix."""
    if not sp.issparse(X) or rows.size > _GATHERED_ROWS:
        # A slice is a view, where an index makes a copy.
        index = slice(rows[0], rows[0] + 1) if rows.size == 1 else rows
        return MatrixRows(X[index])
    return _gathered(X, rows)


class MatrixRows:
    """Rows that are copied to a new matrix, in float64."""

    def __init__(self, matrix: Any) -> None:
        self.matrix = matrix.astype(np.float64, copy=False)

    def margins(self, w: Vector) -> Vector:
        """Return <a_i, w> in float64."""
        # BLAS may set flags of numbers beside those of small matrices, which no result has.
        with np.errstate(invalid="ignore"):
            margins: Vector = self.matrix @ w
        return margins

    def add_combination(self, coefficients: Vector, target: Vector) -> None:
        """Add sum_i coefficients_i a_i to a vector, in place."""
        with np.errstate(invalid="ignore"):  # as above
            target += self.matrix.T @ coefficients


class GatheredRows:
    """The entries of a few sparse rows, in float64, with the number of the row each belongs to."""

    def __init__(self, entries: Vector, columns: RowNumbers, lengths: RowNumbers) -> None:
        self.entries, self.columns, self.n_rows = entries, columns, lengths.size
        self.owners = np.repeat(np.arange(lengths.size), lengths)

    def margins(self, w: Vector) -> Vector:
        """Return <a_i, w> in float64."""
        products = self.entries * w[self.columns]
        sums = np.bincount(self.owners, weights=products, minlength=self.n_rows)
        return sums.astype(np.float64, copy=False)  # of no entries they are whole numbers

    def add_combination(self, coefficients: Vector, target: Vector) -> None:
        """Add sum_i coefficients_i a_i to a vector, in place."""
        # Not target[columns] += ...: that would lose columns that come more than once.
        np.add.at(target, self.columns, self.entries * coefficients[self.owners])


def _gathered(X: Any, rows: RowNumbers) -> GatheredRows:
    """Return some rows of a CSR matrix."""
    starts = X.indptr[rows]
    lengths = X.indptr[rows + 1] - starts
    where: slice | RowNumbers
    if rows.size == 1:
        where = slice(starts[0], starts[0] + lengths[0])
    else:
        ends = np.cumsum(lengths)
        where = np.repeat(starts - (ends - lengths), lengths) + np.arange(ends[-1])
    return GatheredRows(X.data[where].astype(np.float64, copy=False), X.indices[where], lengths)
