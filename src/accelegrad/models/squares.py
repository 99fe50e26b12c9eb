"""Sums of squares of rows and columns, in blocks of rows, so that X is not copied."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from accelegrad.errors import Vector
from accelegrad.models.row_blocks import runs

# Entries of a block of rows, which is copied.
_BLOCK_ENTRIES = 1 << 18


def row_chunks(X: Any) -> Iterator[tuple[slice, Any]]:
    """Yield the parts of a matrix that are in memory, one after the other, with their rows.

    That is all of a dense or CSR matrix, and one chunk at a time of rows that are read in chunks.
    """
    if hasattr(X, "chunks"):
        yield from X.chunks()
    else:
        yield slice(0, X.shape[0]), X


def row_squares(X: Any) -> Vector:
    """Return the squared norms of the rows of a dense or CSR matrix."""
    if isinstance(X, np.ndarray):
        squares: Vector = np.einsum("ij,ij->i", X, X, dtype=np.float64)
        return squares
    squares = np.empty(X.shape[0])
    for rows, block in _squared_blocks(X, _BLOCK_ENTRIES):
        squares[rows] = np.asarray(block.sum(axis=1)).ravel()
    return squares


def column_squares(X: Any, shares: Vector) -> Vector:
    """Return sum_i shares_i x_ij^2 for the columns of a matrix."""
    if hasattr(X, "chunks"):
        parts = [column_squares(part, shares[rows]) for rows, part in X.chunks()]
        return np.asarray(np.sum(parts, axis=0))
    if isinstance(X, np.ndarray):
        squares: Vector = np.einsum("i,ij,ij->j", shares, X, X, dtype=np.float64)
        return squares
    squares = np.zeros(X.shape[1])
    # Each block costs a vector as long as a row.
    for rows, block in _squared_blocks(X, max(_BLOCK_ENTRIES, 4 * X.shape[1])):
        squares += shares[rows] @ block
    return squares


def _squared_blocks(X: Any, entries: int) -> Iterator[tuple[slice, Any]]:
    """Yield blocks of rows with all entries squared, an entry stored in pieces as one."""
    length = entries * X.shape[0] // max(1, X.nnz)
    whole = bool(X.has_canonical_format)
    for rows in runs(X.shape[0], length):
        block = X[rows].astype(np.float64)
        if not whole:
            block.sum_duplicates()
        np.square(block.data, out=block.data)
        yield rows, block
