"""Streams: sources of rows in chunks, with one chunk in memory at a time, read several times."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from accelegrad.files.formats import open_table
from accelegrad.files.tables import TableFile, Wanted, rows_per_block


def is_stream(given: Any) -> bool:
    """Tell a source of chunks from rows that are lists or tuples, for a `fit` without targets."""
    if isinstance(given, (str, os.PathLike)) or callable(given):
        return True
    if isinstance(given, tuple):
        return bool(given) and (_is_table(given[0]) or isinstance(given[0], (str, os.PathLike)))
    if isinstance(given, list):
        first = given[0] if given else None
        return isinstance(first, tuple) and bool(first) and _is_table(first[0])
    is_array = hasattr(given, "shape") or hasattr(given, "__array__")
    return isinstance(given, Iterable) and not is_array


def _is_table(given: Any) -> bool:
    return len(getattr(given, "shape", ())) == 2


def open_source(source: Any, wanted: Wanted) -> Callable[[], Any] | Iterable[Any]:
    """Return the chunks of a source as an object that can be read repeatedly.

    A source is the path of a data file; a tuple ``(X, y)`` or ``(X, y, sample_weight)`` of arrays,
    CSR matrices, memory maps or paths of .npy files; a list of such chunks; a function that returns
    a new iterator of chunks; or another iterable of them.
    """
    if isinstance(source, (str, os.PathLike)):
        return FileChunks(open_table(Path(source), wanted))
    if isinstance(source, tuple):
        return ArrayChunks(source)
    if isinstance(source, Iterator):
        raise TypeError(
            f"a stream is read several times over, but an iterator ({type(source).__name__}) can "
            "be read once. Give a function that makes a new one each time, or give each chunk to "
            "partial_fit."
        )
    known: Callable[[], Any] | Iterable[Any] = source
    return known


class FileChunks:
    """The blocks of a file, of so many rows or about 16 MB, surveyed first if needed."""

    def __init__(self, table: TableFile, rows: int | None = None) -> None:
        self._table, self._rows = table, rows

    def __iter__(self) -> Iterator[Any]:
        self._table.survey(self._rows)
        return self._table.blocks(self._rows)


class ArrayChunks:
    """Slices of arrays ``(X, y)`` or ``(X, y, sample_weight)``, in memory or in .npy files."""

    def __init__(self, arrays: tuple[Any, ...]) -> None:
        if len(arrays) not in (2, 3):
            raise ValueError(
                "a stream must be a tuple (X, y) or (X, y, sample_weight), but it has "
                f"{len(arrays)} entries. Chunks are given as a list."
            )
        self._arrays = tuple(_sliceable(array) for array in arrays if array is not None)
        lengths = [array.shape[0] if array.shape else 0 for array in self._arrays]
        if len(set(lengths)) != 1:
            raise ValueError(f"the arrays of a stream must have equal lengths, not {lengths}.")
        self._rows = lengths[0]
        if not self._rows:
            raise ValueError("the arrays of a stream have no rows.")
        self._step = rows_per_block(self._arrays[0])

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, self._rows, self._step):
            yield tuple(array[start : start + self._step] for array in self._arrays)


class NpyFile:
    """An array in a .npy file; each slice is mapped separately, so that its pages are freed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        mapped = self._map()
        self.shape, self.nbytes = mapped.shape, mapped.nbytes

    def _map(self) -> Any:
        try:
            return np.load(self._path, mmap_mode="r", allow_pickle=False)
        except OSError:
            raise
        except Exception as error:  # a damaged header may raise anything
            raise ValueError(f"{self._path}: no .npy file that can be mapped ({error}).") from None

    def __getitem__(self, part: slice) -> npt.NDArray[Any]:
        return np.array(self._map()[part])


def _sliceable(array: Any) -> Any:
    if isinstance(array, (str, os.PathLike)):
        return NpyFile(Path(array))
    if hasattr(array, "tocsr"):
        return array.tocsr()
    return array if hasattr(array, "shape") else np.asarray(array)
