"""Dense and CSR matrices and weights of their rows: checks, products, Gram matrices, in float64."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from accelegrad import kernels
from accelegrad.errors import Vector, finite_vector, real_array
from accelegrad.kernels import blocks

Matrix = npt.NDArray[np.float64]
RowNumbers = npt.NDArray[np.integer[Any]]  # indices of rows, from 0

#: float32 data with at most this many entries are also kept as float64 (8 MB). Chosen.
SMALL_DATA = 1 << 20
#: Entries per block in blockwise work: 1 MB, which a cache holds. Chosen.
BLOCK_ENTRIES = 1 << 17
#: Reading X dominates: a product with fewer columns takes about as long as one with this many.
NARROW = 8
# Measured seconds, of which only the ratios matter: copying an entry of a dense and of a sparse row
# for BLAS, one product in BLAS, one pair of entries in the kernel and in SciPy (which computes each
# pair twice).
DENSE_COPY, SPARSE_COPY, BLAS_PRODUCT, PAIR, SCIPY_PAIR = 3e-9, 1e-8, 3e-11, 1.1e-9, 1e-8
# Rows per block copied for BLAS: adding up smaller blocks takes longer than computing them (4000 x
# 1500, half the rows: 500 ms with 21 rows, 130 with 384).
_BLOCK_ROWS = 384
#: The largest share of rows to sample: drawing more takes as long as using all rows (measured).
MOST_SAMPLED = 0.3
# Indexing rows takes about this many times as long as a product with them.
INDEXING = 5


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


def design_matrix(given: Any, *, checked: bool = False) -> Any:
    """Return X as a dense or CSR matrix of floats; `checked` says that they are finite."""
    X: Any = given if sp.issparse(given) else real_array("X", given)
    real_array("X", np.empty(0, X.dtype))
    if X.ndim != 2:
        raise ValueError(f"X must be two-dimensional, but its shape is {X.shape}.")
    if 0 in X.shape:
        raise ValueError(
            f"X must have at least one row and one column, but its shape is {X.shape}."
        )
    dense = isinstance(X, np.ndarray)
    if not dense:
        X = X.tocsr()
        if not checked:
            check_places(X)
    if X.dtype not in (np.float32, np.float64):
        X = X.astype(np.float64)
    if dense and not (X.flags.aligned and min(X.strides) == X.itemsize):
        X = np.ascontiguousarray(X)  # NumPy would not use BLAS: one copy now saves much time later
    if not checked:
        entries = X if dense else X.data
        with np.errstate(over="ignore", invalid="ignore"):
            total = entries.sum(dtype=np.float64)
        if not np.isfinite(total):  # otherwise all entries are finite
            _refuse_bad_row(X, entries)
    return X


def check_places(X: Any) -> None:
    """Refuse CSR indices outside the matrix, where kernels would read or write."""
    if (np.diff(X.indptr) < 0).any():
        raise ValueError("X must have an indptr that does not fall, but it does.")
    columns = X.indices[: X.indptr[-1]]
    # As unsigned numbers, negative ones are the largest.
    if columns.size and columns.view(f"u{columns.itemsize}").max() >= X.shape[1]:
        raise ValueError(
            f"X must have column numbers from 0 to {X.shape[1] - 1}, but it has numbers from "
            f"{columns.min()} to {columns.max()}."
        )


def _refuse_bad_row(X: Any, entries: Any) -> None:
    for block in runs(len(entries), BLOCK_ENTRIES * len(entries) // entries.size):
        bad = np.argwhere(~np.isfinite(entries[block]))
        if bad.size:
            row = int(block.start + bad[0, 0])
            if entries is not X:
                row = int(np.searchsorted(X.indptr, row, "right")) - 1
            raise ValueError(f"X must be finite, but row {row} has an entry that is not.")


def checked_weights(
    given: npt.ArrayLike | None, n_samples: int, *, all_may_be_zero: bool = False
) -> Vector | None:
    """Return the sample weights in float64."""
    if given is None:
        return None
    weights = finite_vector("sample_weight", given, least=0.0)
    if weights.size != n_samples:
        raise ValueError(
            f"sample_weight must have one entry per row of X, {n_samples}, but it has "
            f"{weights.size}."
        )
    if weights.max() == 0.0 and not all_may_be_zero:
        raise ValueError("sample_weight must have an entry > 0, but all of them are 0.")
    return weights


def row_shares(weights: Vector | None, n_samples: int) -> Vector:
    """Return the rows' shares p_i, which sum to 1."""
    if weights is None:
        return np.full(n_samples, 1.0 / n_samples)
    # Divided by the largest first: the sum of huge weights would overflow.
    relative: Vector = weights / weights.max()
    relative /= relative.sum()
    return relative


class Products:
    """Products of a dense or CSR matrix, which must not change, and of its transpose."""

    def __init__(self, X: Any) -> None:
        self.X = X
        self._is_sparse = bool(sp.issparse(X))
        # None: a copy in float64 would take too much memory.
        self._whole: Any = X if X.dtype == np.float64 else None
        if self._whole is None and stored_entries(X) <= SMALL_DATA:
            self._whole = X.astype(np.float64)

    def forward(self, w: Matrix) -> Matrix:
        """Return X w, for a vector or the columns of a matrix."""
        whole = self._whole
        if whole is not None:
            products = whole.size * max(w.size // len(w), NARROW)
            count = 1 if self._is_sparse else kernels.count_parts(products)
            if count == 1:
                return np.asarray(whole @ w)
            return np.concatenate(blocks.of_rows(lambda part: whole[part] @ w, len(whole), count))
        product = np.zeros((self.X.shape[0], *w.shape[1:]))
        for rows, columns, block in self._blocks():
            product[rows] += block @ w[columns]
        return product

    def backward(self, theta: Matrix) -> Matrix:
        """Return X' theta, for a vector or the columns of a matrix."""
        whole = self._whole
        if self._is_sparse and whole is not None:
            return np.asarray(self._transpose @ theta)
        if whole is not None:
            count = kernels.count_parts(whole.size * max(theta.size // len(theta), NARROW))
            # BLAS takes twice as long for a vector from the right.
            if count == 1:
                return np.asarray(theta @ whole if theta.ndim == 1 else whole.T @ theta)
            if theta.ndim == 1:
                parts = blocks.of_rows(lambda i: theta[i] @ whole[i], len(whole), count)
            else:
                parts = blocks.of_rows(lambda i: whole[i].T @ theta[i], len(whole), count)
            return np.asarray(sum(parts[1:], start=parts[0]))
        product = np.zeros((self.X.shape[1], *theta.shape[1:]))
        for rows, columns, block in self._blocks():
            product[columns] += block.T @ theta[rows]
        return product

    @cached_property
    def _transpose(self) -> Any:
        return self._whole.T

    def _blocks(self) -> Iterator[tuple[slice, slice, Any]]:
        every = slice(None)
        if not self._is_sparse and not self.X.flags.c_contiguous:
            for some in runs(self.X.shape[1], BLOCK_ENTRIES // self.X.shape[0]):
                yield every, some, self.X[:, some].astype(np.float64)
            return
        for some in row_runs(self.X):
            yield some, every, self.X[some].astype(np.float64)


class TakenRows(NamedTuple):
    """Some rows of a model, in the requested order."""

    X: Any
    y: Vector
    shares: Vector


class CurvedRows(NamedTuple):
    """Rows drawn by their curvature at a point, each with a weight."""

    n_drawn: int  # with repetition
    n_curved: int  # how many of all rows have curvature
    weight: float  # sum_k weights_k, the curvature of all rows
    gram: Matrix  # sum_k weights_k a_k a_k'


def drawn_by_weight(weights: Vector, size: int, seed: Any) -> tuple[RowNumbers | None, Vector]:
    """Return row numbers, drawn in proportion to weights, and new weights; None: all rows."""
    weighty = np.flatnonzero(weights)
    if weighty.size <= min(size, MOST_SAMPLED * weights.size):
        return weighty, weights[weighty]
    if size >= weighty.size:
        return None, weights
    ends = np.cumsum(weights)
    # Stratified, one row per part of equal weight: sorted, and with less noise.
    places = (np.arange(size) + np.random.default_rng(seed).random(size)) * (ends[-1] / size)
    chosen = np.searchsorted(ends, places, side="right")
    return np.minimum(chosen, weights.size - 1), np.full(size, ends[-1] / size)


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


class Storage(NamedTuple):
    """How rows are stored, which decides the cost of products."""

    entries: int
    dense: bool
    pairs_per_row: float
    """Mean number of pairs of entries of a row; infinite if only BLAS multiplies rows."""
    pair: float = PAIR
    """The cost of one of them."""


def blas_seconds(n_parameters: int, dense: bool) -> float:
    """Return the cost of one row in a Gram matrix by BLAS, for which rows are copied."""
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
    elif not isinstance(X, np.ndarray) and SCIPY_PAIR * pairs_per_row(X) < blas_seconds(d, False):
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
    equal = rows is None and is_double and weights.min() == weights.max()  # as for least squares
    roots = np.sqrt(weights)
    most = min(max(_BLOCK_ROWS, BLOCK_ENTRIES // d), max(n, 1))

    def added_up(whole: slice) -> Matrix:
        if equal:
            return np.asarray(X[whole].T @ X[whole])
        total, room = np.zeros((d, d)), np.empty((most, d))
        for start in range(whole.start, whole.stop, most):
            part = slice(start, min(start + most, whole.stop))
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

    count = kernels.count_parts(n * d * d // 2)
    total = added_up(slice(0, n)) if count == 1 else sum(blocks.of_rows(added_up, n, count))
    return np.asarray(weights[0] * total if equal else total)
