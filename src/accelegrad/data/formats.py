"""The formats of data files: one table of them, and the way from a path to its reader."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from accelegrad.data.columns import Wanted
from accelegrad.data.csv_files import CsvFile
from accelegrad.data.libsvm_files import LARGEST_INDEX, LibsvmFile
from accelegrad.data.npz_files import NpzFile
from accelegrad.data.parquet_files import ParquetFile
from accelegrad.data.tables import TableFile
from accelegrad.data.text import COMPRESSIONS, DataError
from accelegrad.data.text_blocks import FIRST_ROWS, beginning, first_content, text_blocks
from accelegrad.errors import whole_number


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
    is_text : bool
        Whether it is text, which may be compressed.
    targets : str
        Where the targets are, in a format that has no column to choose; else empty.
    """

    name: str
    endings: tuple[str, ...]
    reader: Callable[[Path, Wanted], TableFile]
    is_text: bool
    targets: str = ""


LIBSVM = TableFormat(
    "a LIBSVM file", (".svm", ".libsvm"), LibsvmFile, True, "the label comes first in each line"
)
CSV = TableFormat("a CSV file", (".csv",), CsvFile, True)
FORMATS = (
    LIBSVM,
    CSV,
    TableFormat("a .tsv file", (".tsv", ".tab"), partial(CsvFile, separator="\t"), True),
    TableFormat("an .npz file", (".npz",), NpzFile, False, "the targets are the array y"),
    TableFormat("a parquet file", (".parquet", ".pq"), ParquetFile, False),
)
UNKNOWN_TEXT_ENDING = ".txt"
"""The ending of text whose first line must tell the format, as where there is no ending."""


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
    known = format_of(path)
    if known.targets and wanted.target is not None and not wanted.optional:
        raise DataError(
            f"{path}: target is {wanted.target!r}, but only tables with columns have one to "
            f"choose; this is {known.name}, where {known.targets}. Leave target out."
        )
    return known.reader(path, wanted)


def format_of(path: Path) -> TableFormat:
    """Return the format that the name tells, or else the first line with data."""
    endings = {True: _without_compression(path).suffix.lower(), False: path.suffix.lower()}
    for known in FORMATS:
        if endings[known.is_text] in known.endings:
            return known
    first = first_content(beginning(path, text_blocks(path, FIRST_ROWS)))
    return CSV if b"," in first and b":" not in first else LIBSVM


def plain_name(path: Path) -> str:
    """Return the file's name without the endings of compression and format."""
    path = _without_compression(path)
    known = {ending for entry in FORMATS for ending in entry.endings} | {UNKNOWN_TEXT_ENDING}
    return path.stem if path.suffix.lower() in known else path.name


def _without_compression(path: Path) -> Path:
    compressed = any(path.suffix.lower() == kind.ending for kind in COMPRESSIONS)
    return path.with_suffix("") if compressed else path
