"""NumPy's npz files as tables: a dense matrix, or a sparse one in any format that SciPy saves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from accelegrad.data.columns import Targets, Wanted, check_distinct, few
from accelegrad.data.tables import (
    MOST_COLUMNS,
    Block,
    TableFile,
    check_finite,
    checked_targets,
    native,
    no_rows,
    rows_of_bytes,
    rows_of_entries,
)
from accelegrad.data.text import DataError, opened
from accelegrad.stored_arrays import DAMAGE, StoredArray, StoredArrays

Array = npt.NDArray[Any]

# The arrays of each format of scipy.sparse.save_npz, beside `shape`.
_BY_ROWS_OR_COLUMNS = ("data", "indices", "indptr")
_PARTS = {
    "csr": _BY_ROWS_OR_COLUMNS,
    "csc": _BY_ROWS_OR_COLUMNS,
    "bsr": _BY_ROWS_OR_COLUMNS,
    "coo": ("data", "row", "col"),
    "dia": ("data", "offsets"),
}


class NpzFile(TableFile):
    """Arrays `X` and `y`, or `y` beside the arrays that `scipy.sparse.save_npz` writes for X.

    `feature_names` may be there as well. The arrays are read in step, a block at a time, compressed
    or not. Sparse matrices are CSR where there is no `format`; those of another format are held in
    memory, since their rows are not in one place.
    """

    def __init__(self, path: Path, wanted: Wanted) -> None:
        super().__init__(path, wanted)
        with self._arrays() as arrays:
            self._look(arrays)

    def blocks(self, rows: int | None) -> Iterator[Block]:
        """Yield blocks in the order of the file."""
        with self._arrays() as arrays:
            yield from self._blocks(arrays, rows)

    def whole(self) -> Block:
        """Return all rows, in one block: arrays in Fortran order are then read as they are."""
        [block] = self.blocks(self._shape[0])
        return block

    @contextmanager
    def _arrays(self) -> Iterator[StoredArrays]:
        """Open the arrays, and say of what fails meanwhile that the file is damaged."""
        try:
            with opened(self.path) as file:
                yield StoredArrays(file, compressed=True)
        except DAMAGE as error:
            raise self.damaged("npz", error) from None

    # What there is

    def _look(self, arrays: StoredArrays) -> None:
        """Check that all that is needed is there, and that the shapes fit."""
        self._format = self._found_format(arrays)
        self._shape = self._found_shape(arrays)
        n, d = self._shape
        known = self.wanted.n_features
        if known is not None and d != known:
            raise DataError(f"{self.path}: found {d} columns, but {known} features are expected.")
        if known is None and d > MOST_COLUMNS:
            raise DataError(
                f"{self.path}: the matrix claims {d} columns, but more than {MOST_COLUMNS} are "
                "almost surely a mistake. They are allowed where n_features is given."
            )
        if n == 0:
            raise no_rows(self.path)
        self.n_features = d
        self._check_targets(arrays)
        if "feature_names" in arrays.names:
            self.names = self._found_names(arrays.read("feature_names"))

    def _found_format(self, arrays: StoredArrays) -> str | None:
        """Return the format of a sparse matrix, None for a dense one."""
        names = arrays.names
        if "X" in names:
            return None
        kind = "csr"
        if "format" in names:
            kind = str(checked_targets(self.path, "format", arrays.read("format"), Targets.TEXT))
        if kind not in _PARTS:
            raise DataError(
                f"{self.path}: the sparse format is {kind!r}. Allowed: {', '.join(_PARTS)}."
            )
        missing = [name for name in (*_PARTS[kind], "shape") if name not in names]
        if missing:
            raise DataError(
                f"{self.path}: the arrays are {sorted(names)}, but 'X' (or what "
                f"scipy.sparse.save_npz writes, of which {few(missing)} is missing) and 'y' are "
                "needed."
            )
        return kind

    def _found_shape(self, arrays: StoredArrays) -> tuple[int, int]:
        if self._format is None:
            shape = arrays.open("X").header.shape
            if len(shape) != 2:
                raise DataError(f"{self.path}: X must have two dimensions, not shape {shape}.")
            return shape[0], shape[1]
        given = arrays.read("shape")
        right = given.shape == (2,) and given.dtype.kind in "iu" and bool((given >= 0).all())
        if not right:
            raise DataError(
                f"{self.path}: 'shape' must hold the numbers of rows and columns, not "
                f"{given.tolist()}."
            )
        return int(given[0]), int(given[1])

    def _check_targets(self, arrays: StoredArrays) -> None:
        self._has_targets = "y" in arrays.names and self.wanted.targets is not Targets.UNUSED
        if "y" not in arrays.names and not self.wanted.optional:
            raise DataError(f"{self.path}: there is no array 'y' with the targets.")
        if self._has_targets:
            shape, n = arrays.open("y").header.shape, self._shape[0]
            if shape != (n,):
                raise DataError(
                    f"{self.path}: X has {n} rows, but y has the shape {shape}; ({n},) is needed."
                )

    def _found_names(self, given: Array) -> tuple[str, ...]:
        if given.shape != (self._shape[1],):
            raise DataError(
                f"{self.path}: feature_names must have {self._shape[1]} entries, one for each "
                f"feature, but its shape is {given.shape}."
            )
        read = checked_targets(self.path, "feature_names", given, Targets.TEXT)
        names = tuple(str(name) for name in read)
        check_distinct(f"{self.path}: feature_names", names)
        wanted = self.wanted.features
        if wanted is not None and names != tuple(wanted):
            raise DataError(
                f"{self.path}: feature_names are {few(names)}, but the model's features are "
                f"{few(wanted)}, in this order."
            )
        return names

    # Rows

    def _blocks(self, arrays: StoredArrays, rows: int | None) -> Iterator[Block]:
        targets = arrays.open("y") if self._has_targets else None
        if self._format is None:
            source = self._dense_rows(arrays.open("X"), rows)
        elif self._format == "csr":
            source = self._csr_rows(arrays, rows)
        else:
            source = self._sorted_rows(self._entries(arrays, self._format), rows)
        done = 0
        for X in source:
            check_finite(self.path, "X", X, done)
            y = None if targets is None else targets.take(X.shape[0])
            if y is not None:
                y = checked_targets(self.path, "y", y, self.wanted.targets, done)
            done += X.shape[0]
            yield Block(X, y)

    def _dense_rows(self, X: StoredArray, rows: int | None) -> Iterator[Array]:
        self._check_kind("X", X.header.dtype)
        for block in X.blocks(rows_of_bytes(X.row_bytes) if rows is None else rows):
            yield native(block)

    def _csr_rows(self, arrays: StoredArrays, rows: int | None) -> Iterator[Any]:
        n, d = self._shape
        data, indices, starts = (arrays.open(name) for name in _PARTS["csr"])
        self._check_csr(data, indices, starts)
        entries = data.header.shape[0]
        first = starts.take(1).astype(np.int64)
        self._check_starts(first[0] == 0)
        for done in range(0, n, count := rows or rows_of_entries(entries, n)):
            ends = np.concatenate([first, starts.take(count).astype(np.int64)])
            last = entries if done + count >= n else int(ends[-1])
            self._check_starts((np.diff(ends) >= 0).all() and ends[-1] == last <= entries)
            size = int(ends[-1] - ends[0])
            columns = self._indices(indices.take(size))
            block: Any = sp.csr_matrix(
                (native(data.take(size)), columns, ends - ends[0]), shape=(ends.size - 1, d)
            )
            if not block.has_canonical_format:
                block = block.copy()  # what comes from a file cannot be written to
                block.sum_duplicates()
            yield block
            first = ends[-1:]

    def _entries(self, arrays: StoredArrays, kind: str) -> tuple[Array, Array, Array]:
        """Return data, rows and columns of a matrix of another format, sorted by rows."""
        parts = {name: native(arrays.read(name)) for name in _PARTS[kind]}
        for name, part in parts.items():
            self._check_kind(name, part.dtype)
        data, *places = parts.values()
        make: Any = getattr(sp, f"{kind}_matrix")
        given = (data, tuple(places)) if kind == "coo" else (data, *places)
        made = make(given, shape=self._shape)
        if kind in ("csc", "bsr"):
            # SciPy drops what is behind the last entry; here it is a sign of damage.
            self._check_starts(places[1].size > 0 and places[1][-1] == len(data))
            made.check_format(full_check=True)
        if kind == "bsr" and any(np.remainder(self._shape, made.blocksize)):
            raise DataError(
                f"{self.path}: blocks of {made.blocksize} make no {self._shape} matrix."
            )
        found = made.tocoo()
        order = np.argsort(found.row, kind="stable")
        return found.data[order], found.row[order], found.col[order]

    def _sorted_rows(self, entries: tuple[Array, Array, Array], rows: int | None) -> Iterator[Any]:
        data, row, col = entries
        n, d = self._shape
        count = rows or rows_of_entries(data.size, n)
        for start in range(0, n, count):
            end = min(n, start + count)
            part = slice(*np.searchsorted(row, [start, end]))
            places = (row[part] - start, col[part])
            # Entries of the same place are added, as SciPy does.
            yield sp.csr_matrix((data[part], places), shape=(end - start, d))

    # Checks

    def _check_kind(self, name: str, dtype: np.dtype[Any]) -> None:
        """Raise a DataError where data are no numbers, or places no whole numbers."""
        kinds, words = ("fiub", "numbers") if name in ("X", "data") else ("iu", "whole numbers")
        if dtype.kind not in kinds:
            raise DataError(f"{self.path}: {name} must hold {words}, but it holds {dtype}.")

    def _check_csr(self, *arrays: StoredArray) -> None:
        for name, array in zip(_PARTS["csr"], arrays, strict=True):
            self._check_kind(name, array.header.dtype)
        shapes = [array.header.shape for array in arrays]
        n = self._shape[0]
        if len(shapes[0]) != 1 or shapes[0] != shapes[1] or shapes[2] != (n + 1,):
            raise DataError(
                f"{self.path}: data, indices and indptr have the shapes {shapes}, but data and "
                f"indices must be equally long, and indptr must have {n + 1} entries."
            )

    def _check_starts(self, right: Any) -> None:
        if not right:
            raise DataError(
                f"{self.path}: indptr must begin with 0, never decrease, and end with the number "
                "of entries."
            )

    def _indices(self, given: Array) -> Array:
        """Return the numbers of columns, or say which is out of range."""
        d = self._shape[1]
        if given.size and not (given.min() >= 0 and given.max() < d):
            wrong = int(given.min() if given.min() < 0 else given.max())
            raise DataError(f"{self.path}: indices holds {wrong}, but 0 to {d - 1} are allowed.")
        return native(given)
