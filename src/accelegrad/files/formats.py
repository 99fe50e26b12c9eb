"""The table of data file formats; a reader for a path, and for sources of rows in chunks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from accelegrad.errors import whole_number
from accelegrad.files.frames import CsvFile, ParquetFile
from accelegrad.files.matrix_files import LibsvmFile, NpzFile
from accelegrad.files.tables import (
    COMPRESSIONS,
    DataError,
    Reading,
    TableFile,
    Wanted,
    opened,
    rows_per_block,
)

PATH = (str, os.PathLike)


class TableFormat(NamedTuple):
    """A format of data files."""

    name: str  # what such a file is called, with an article
    endings: tuple[str, ...]  # of names, before that of a compression
    reader: Callable[[Path, Wanted], TableFile]
    targets: str = ""  # where they are, in formats without columns


LIBSVM = TableFormat(
    "a LIBSVM file", (".svm", ".libsvm"), LibsvmFile, "the label comes first in each line"
)
CSV = TableFormat("a CSV file", (".csv",), CsvFile)
FORMATS = (
    LIBSVM,
    CSV,
    TableFormat("a .tsv file", (".tsv", ".tab"), partial(CsvFile, separator="\t")),
    TableFormat("an .npz file", (".npz",), NpzFile, "the targets are the array y"),
    TableFormat("a parquet file", (".parquet", ".pq"), ParquetFile),
)


def open_table(path: str | os.PathLike[str], wanted: Wanted | None = None) -> TableFile:
    """Return a file as a table, by default with all columns and the last one as the target."""
    path, wanted = Path(path), wanted or Wanted()
    if wanted.n_features is not None:
        width = whole_number("n_features", wanted.n_features, least=1)
        largest = np.iinfo(np.int32).max  # LIBSVM programs keep an index in a C int
        if width > largest:
            raise ValueError(f"n_features must be <= {largest}, but it is {width}.")
    opened(path).close()
    known = format_of(path, wanted.reading)
    if known.targets and wanted.target is not None and not wanted.optional:
        raise DataError(
            f"{path}: target is {wanted.target!r}, but only tables with columns have one to "
            f"choose; this is {known.name}, where {known.targets}. Leave target out."
        )
    if known.targets and wanted.reading != Reading():
        pairs = zip(Reading._fields, wanted.reading, Reading(), strict=True)
        given = next(name for name, value, default in pairs if value != default)
        raise DataError(
            f"{path}: --{given} is for CSV and parquet files, but this is {known.name}."
        )
    return known.reader(path, wanted)


def format_of(path: Path, reading: Reading | None = None) -> TableFormat:
    """Return the format given by the name, or else by the first line with data."""
    for known in FORMATS:
        if plain_path(path).suffix.lower() in known.endings:
            return known
    if reading is not None and reading.sep is not None:
        return CSV
    with opened(path) as file:
        try:
            lines = file.read(1 << 16).split(b"\n")
        except Exception as error:  # each compression has its own
            words = "damaged, or not compressed as its name says"
            raise DataError(f"{path}: {words} ({error}).") from None
    contents = (line.partition(b"#")[0].strip() for line in lines)
    first = next(filter(None, contents), b"")
    return CSV if b"," in first and b":" not in first else LIBSVM


def plain_path(path: Path) -> Path:
    """Return a path without the extension of a compression."""
    return path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path


# -- sources of rows in chunks, which are read several times with one chunk in memory ------------


def is_stream(given: Any) -> bool:
    """Tell a source of chunks from rows that are lists or tuples, for a `fit` without targets."""
    if isinstance(given, PATH) or callable(given):
        return True
    if isinstance(given, (list, tuple)):
        first = given[0] if given else None
        if isinstance(given, list):
            first = first[0] if isinstance(first, tuple) and first else None
        is_table = len(getattr(first, "shape", ())) == 2
        return is_table or (isinstance(given, tuple) and isinstance(first, PATH))
    is_array = hasattr(given, "shape") or hasattr(given, "__array__")
    return isinstance(given, Iterable) and not is_array


def open_source(source: Any, wanted: Wanted) -> Any:
    """Return the chunks of a source as a function or another object that can be read repeatedly.

    A source is the path of a data file; a tuple ``(X, y)`` or ``(X, y, sample_weight)`` of arrays,
    CSR matrices, memory maps or paths of .npy files; a list of such chunks; a function that returns
    a new iterator of chunks; or another iterable of them.
    """
    if isinstance(source, PATH):
        return open_table(source, wanted).chunks
    if isinstance(source, tuple):
        return _slices(source)
    if isinstance(source, Iterator):
        raise TypeError(
            f"a stream is read several times over, but an iterator ({type(source).__name__}) can "
            "be read once. Give a function that makes a new one each time, or give each chunk to "
            "partial_fit."
        )
    return source


def _slices(given: tuple[Any, ...]) -> Callable[[], Iterator[Any]]:
    """Return the function that slices ``(X, y)`` or ``(X, y, sample_weight)``."""
    if len(given) not in (2, 3):
        raise ValueError(
            f"a stream must be a tuple (X, y) or (X, y, sample_weight), but it has {len(given)} "
            "entries. Chunks are given as a list."
        )
    parts = [part if isinstance(part, PATH) else _array(part) for part in given if part is not None]
    arrays = list(map(_array, parts))
    lengths = [array.shape[0] if array.shape else 0 for array in arrays]
    if len(set(lengths)) != 1:
        raise ValueError(f"the arrays of a stream must have equal lengths, not {lengths}.")
    if not lengths[0]:
        raise ValueError("the arrays of a stream have no rows.")
    starts = range(0, lengths[0], step := rows_per_block(arrays[0]))
    # A file is mapped anew for each slice, so that its pages are freed.
    return lambda: (tuple(_array(part)[i : i + step] for part in parts) for i in starts)


def _array(given: Any) -> Any:
    """Return an array that can be sliced, mapped if it is the path of a .npy file."""
    if hasattr(given, "tocsr"):
        return given.tocsr()
    if not isinstance(given, PATH):
        return given if hasattr(given, "shape") else np.asarray(given)
    try:
        return np.load(given, mmap_mode="r", allow_pickle=False)
    except OSError:
        raise
    except Exception as error:  # a damaged header may raise anything
        raise ValueError(f"{given}: no .npy file that can be mapped ({error}).") from None
