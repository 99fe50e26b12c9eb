"""The formats of data files: one table of them, and the way from a path to its reader."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from accelegrad.errors import whole_number
from accelegrad.files.csv_files import CsvFile
from accelegrad.files.libsvm import (
    COMPRESSION_DAMAGE,
    COMPRESSIONS,
    LARGEST_INDEX,
    LibsvmFile,
    opened_text,
)
from accelegrad.files.npz import NpzFile
from accelegrad.files.parquet_files import ParquetFile
from accelegrad.files.tables import DataError, Reading, TableFile, Wanted

_FIRST_BYTES = 1 << 16  # in which the first line with data is looked for


class TableFormat(NamedTuple):
    """A format of data files.

    Attributes
    ----------
    name : str
        What such a file is called, with an article.
    endings : tuple of str
        How names of such files end, without the ending of a compression.
    reader : callable
        What makes a table of a path and of what is wanted.
    targets : str
        Where the targets are, in a format that has no columns to choose; else empty.
    """

    name: str
    endings: tuple[str, ...]
    reader: Callable[[Path, Wanted], TableFile]
    targets: str = ""


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
    """Return a file as a table, by the reader of its format.

    Parameters
    ----------
    path : str or path
        The file.
    wanted : Wanted, optional
        Which columns are read; by default all, with the last one as the target.
    """
    path, wanted = Path(path), wanted or Wanted()
    if wanted.n_features is not None:
        width = whole_number("n_features", wanted.n_features, least=1)
        if width > LARGEST_INDEX:
            raise ValueError(f"n_features must be <= {LARGEST_INDEX}, but it is {width}.")
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
    """Return the format that the name tells, or else the first line with data."""
    for known in FORMATS:
        if plain_path(path).suffix.lower() in known.endings:
            return known
    if reading is not None and reading.sep is not None:
        return CSV
    with opened_text(path) as file:
        try:
            lines = file.read(_FIRST_BYTES).split(b"\n")
        except COMPRESSION_DAMAGE as error:
            words = "damaged, or not compressed as its name says"
            raise DataError(f"{path}: {words} ({error}).") from None
    contents = (line.partition(b"#")[0].strip() for line in lines)
    first = next(filter(None, contents), b"")
    return CSV if b"," in first and b":" not in first else LIBSVM


def plain_path(path: Path) -> Path:
    """Return a path without the ending of a compression."""
    return path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
