"""The table of data file formats, and the choice of a reader for a path."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from accelegrad.errors import whole_number
from accelegrad.files.frames import CsvFile, ParquetFile
from accelegrad.files.matrix_files import LibsvmFile, NpzFile
from accelegrad.files.tables import COMPRESSIONS, DataError, Reading, TableFile, Wanted, opened


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
