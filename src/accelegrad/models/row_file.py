"""One number or vector per row in a temporary file, deleted with its object."""

from __future__ import annotations

import hashlib
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from accelegrad.errors import Vector
from accelegrad.models.matrix import BLOCK_ENTRIES, runs


def together(*files: Any) -> Iterator[list[Any]]:
    """Yield blocks of the same rows of several files; None for None."""
    for rows in runs(files[0].size, BLOCK_ENTRIES):
        yield [None if file is None else file[rows] for file in files]


def mapped(function: Callable[..., npt.ArrayLike], *files: Any) -> RowFile:
    """Return a file with a function's results on blocks of other files."""
    return of_blocks(function(*blocks) for blocks in together(*files))


def of_blocks(blocks: Iterable[npt.ArrayLike]) -> RowFile:
    """Return a file with the rows of all blocks."""
    file = RowFile()
    for block in blocks:
        file.append(block)
    return file


#: A file of up to this many bytes stays in memory: a quarter of what a part of X takes. Reading
#: and writing a few thousand rows is then ten times as fast.
KEPT_BYTES = 2 * BLOCK_ENTRIES


class RowFile:
    """A float64 vector or matrix in a file, to which rows can be appended; read on access."""

    dtype = np.dtype(np.float64)

    def __init__(self, columns: int = 1) -> None:
        self.size = 0  # in rows
        self._row = () if columns == 1 else (columns,)
        self._row_bytes = 8 * columns
        self._file = tempfile.SpooledTemporaryFile(KEPT_BYTES)  # noqa: SIM115
        self._lock = threading.Lock()
        weakref.finalize(self, self._file.close)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the vector or matrix."""
        return (self.size, *self._row)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.size

    def append(self, values: npt.ArrayLike) -> None:
        """Write rows to the end."""
        array = np.ascontiguousarray(values, np.float64)
        with self._lock:
            self._file.seek(self._row_bytes * self.size)
            self._file.write(array.data)
        self.size += len(array)

    def blocks(self) -> Iterator[Vector]:
        """Yield all numbers in blocks."""
        return (block for (block,) in together(self))

    def __getitem__(self, rows: Any) -> Vector:
        if not isinstance(rows, slice) or rows.step is not None:
            return np.asarray(self[:][rows])
        start, end, _ = rows.indices(self.size)
        found = np.empty((max(end - start, 0), *self._row))
        with self._lock:
            self._file.seek(self._row_bytes * start)
            self._file.readinto(found.data)
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("numbers in a file are copied to memory.")
        return self[:].astype(dtype or np.float64, copy=False)

    def __reduce__(self) -> Any:
        return of_blocks, ([np.asarray(self)],)

    def fingerprint(self) -> str:
        """Return a hash of the contents."""
        digest = hashlib.blake2b(f"{self.size}".encode())
        for block in self.blocks():
            digest.update(block.tobytes())
        return digest.hexdigest()
