"""Streams: sources of rows in chunks, of which never more than a chunk has to be in memory.

A source is a file, a tuple of arrays or memory maps, a list of chunks, an iterator, or a function
that makes one.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accelegrad.data.columns import Wanted
from accelegrad.data.formats import open_table
from accelegrad.data.tables import TableFile, rows_of_bytes, rows_of_entries
from accelegrad.stored_arrays import check_npy


def is_stream(given: Any) -> bool:
    """Tell a source of chunks from a table of rows.

    Parameters
    ----------
    given : object
        What `fit` got without targets.

    Returns
    -------
    bool
        True for a path, a function, an iterator or another iterable that is no array; for a tuple
        that begins with a table or a path, and for a list of tuples that begin with a table. Rows
        that are lists or tuples of numbers are no stream.
    """
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


class Chunk(NamedTuple):
    """Rows with targets and, where there are some, weights."""

    X: Any
    y: Any
    weights: Any = None


class SourceFacts(NamedTuple):
    """What is known of a source ahead."""

    rows: int | None = None
    classes: npt.NDArray[Any] | None = None


class Source(ABC):
    """Something to read chunks from; `once` tells that one pass uses it up."""

    once = False

    def look(self, *, classes: bool) -> SourceFacts:  # noqa: ARG002
        """Find out what can be known ahead, with the classes if they are wanted."""
        return SourceFacts()

    @abstractmethod
    def chunks(self, order: np.random.Generator | None) -> Iterator[Any]:
        """Yield the chunks of one pass, shuffled by `order` where possible."""


def open_source(source: Any, chunk_rows: int | None, wanted: Wanted) -> Source:
    """Return what reads chunks of a source.

    Parameters
    ----------
    source : path, tuple of arrays or paths, list, callable, iterable or iterator
        As `accelegrad.sklearn.stream.fit_stream` takes it.
    chunk_rows : int, optional
        Rows in a chunk of a file or of arrays; by default as many as about 16 MB hold.
    wanted : Wanted
        What is to be read of a file.
    """
    if isinstance(source, (str, os.PathLike)):
        return FileSource(open_table(Path(source), wanted), chunk_rows)
    if isinstance(source, tuple):
        return ArraySource(source, chunk_rows)
    if isinstance(source, list):
        return ListSource(source)
    if callable(source):
        return IterableSource(source)
    if isinstance(source, Iterator):
        return IterableSource(lambda: source, once=True)
    if isinstance(source, Iterable) and not hasattr(source, "shape"):
        return IterableSource(lambda: source)
    raise TypeError(
        "source must be a path, a tuple (X, y) or (X, y, sample_weight), or chunks: a list, an "
        f"iterator, or a function that makes one; not {type(source).__name__}."
    )


class FileSource(Source):
    """A file; LIBSVM text that is not compressed can be read in any order."""

    def __init__(self, table: TableFile, chunk_rows: int | None) -> None:
        self._table, self._chunk_rows = table, chunk_rows
        self._read_before = False

    def look(self, *, classes: bool) -> SourceFacts:
        """Read the file once, unless all that matters is known."""
        if self._table.n_features is not None and not classes:
            return SourceFacts()
        rows, width, labels = 0, 1, Labels()
        for X, y in self._table.blocks(self._chunk_rows):
            rows, width = rows + X.shape[0], max(width, X.shape[1])
            if classes:
                labels.add(y)
        if self._table.n_features is None:
            self._table.n_features = width
        self._read_before = True
        return SourceFacts(rows, labels.found)

    def chunks(self, order: np.random.Generator | None) -> Iterator[Any]:
        """Yield the blocks of the file."""
        if order is not None and self._read_before and self._table.in_any_order:
            yield from self._table.shuffled(order)
        else:
            yield from self._table.blocks(self._chunk_rows)
            self._read_before = True


class ArraySource(Source):
    """Arrays that can be sliced, in memory or mapped to it."""

    def __init__(self, arrays: tuple[Any, ...], chunk_rows: int | None) -> None:
        if len(arrays) not in (2, 3):
            raise ValueError(
                "source must be a tuple (X, y) or (X, y, sample_weight), but it has "
                f"{len(arrays)} entries. Chunks are given as a list."
            )
        self._arrays = Chunk(*(_sliceable(array) for array in arrays))
        lengths = [
            array.shape[0] if array.shape else 0 for array in self._arrays if array is not None
        ]
        if len(set(lengths)) != 1:
            raise ValueError(f"the arrays of source must have equal lengths, not {lengths}.")
        self._rows = lengths[0]
        if not self._rows:
            raise ValueError("source has no rows.")
        X = self._arrays.X
        if chunk_rows is None and hasattr(X, "nbytes"):
            chunk_rows = rows_of_bytes(X.nbytes // self._rows)
        self._step = chunk_rows or rows_of_entries(X.nnz, self._rows)

    def look(self, *, classes: bool) -> SourceFacts:
        """Collect the classes, a chunk at a time."""
        labels = Labels()
        if classes:
            for start in range(0, self._rows, self._step):
                labels.add(self._arrays.y[start : start + self._step])
        return SourceFacts(self._rows, labels.found)

    def chunks(self, order: np.random.Generator | None) -> Iterator[Any]:
        """Yield slices."""
        starts = np.arange(0, self._rows, self._step)
        for start in starts if order is None else order.permutation(starts):
            part = slice(start, start + self._step)
            yield Chunk(*(None if array is None else array[part] for array in self._arrays))


class NpyFile:
    """An array in a .npy file, of which slices are read.

    Each slice is mapped by itself: the pages of a mapping that stays count as memory in use.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            with path.open("rb") as file:
                check_npy(file, path.name)
        except ValueError as error:
            raise ValueError(f"{path}: no .npy file, or a damaged one ({error}).") from None
        mapped = self._map()
        self.shape, self.nbytes = mapped.shape, mapped.nbytes

    def _map(self) -> Any:
        try:
            return np.load(self._path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise ValueError(f"{self._path}: no .npy file that can be mapped ({error}).") from None

    def __getitem__(self, part: slice) -> npt.NDArray[Any]:
        return np.array(self._map()[part])


def _sliceable(array: Any) -> Any:
    if isinstance(array, (str, os.PathLike)):
        return NpyFile(Path(array))
    if hasattr(array, "tocsr"):
        return array.tocsr()
    return array if hasattr(array, "shape") else np.asarray(array)


class ListSource(Source):
    """Chunks in a list."""

    def __init__(self, chunks: list[Any]) -> None:
        self._chunks = chunks

    def chunks(self, order: np.random.Generator | None) -> Iterator[Any]:
        """Yield the chunks."""
        places = np.arange(len(self._chunks))
        for place in places if order is None else order.permutation(places):
            yield self._chunks[place]


class IterableSource(Source):
    """A function that makes an iterator of chunks."""

    def __init__(self, make: Callable[[], Any], *, once: bool = False) -> None:
        self._make, self.once = make, once

    def chunks(self, order: np.random.Generator | None) -> Iterator[Any]:  # noqa: ARG002
        """Yield the chunks of a new iterator."""
        made = self._make()
        if not isinstance(made, Iterable):
            raise TypeError(
                f"source() must give an iterator of chunks, but it gave {type(made).__name__}."
            )
        yield from made


class Labels:
    """The distinct labels seen so far; None before the first."""

    def __init__(self) -> None:
        self.found: npt.NDArray[Any] | None = None

    def add(self, y: Any) -> None:
        """Add the labels of some rows."""
        seen = np.unique(np.asarray(y))
        self.found = seen if self.found is None else np.union1d(self.found, seen)
