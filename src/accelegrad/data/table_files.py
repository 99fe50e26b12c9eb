"""Tables in files, whole or in blocks of rows: LIBSVM and CSV text, NumPy's npz, parquet.

What `datasets.read` does for numbers, with names of columns and labels that are text as well, and
without holding more of a file than a block.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from accelegrad.data import datasets
from accelegrad.data.csv_text import (
    FIRST_ROWS,
    check_csv,
    csv_rows,
    csv_start,
    is_blank,
    parse_csv,
    separator_of,
)
from accelegrad.data.data_text import (
    DataError,
    as_unicode,
    compression,
    number_in,
    opened,
    shown,
)
from accelegrad.data.npz_files import NpzFile
from accelegrad.data.parquet_files import ParquetFile
from accelegrad.data.tables import (
    EVERYTHING,
    Block,
    TableFile,
    Targets,
    Wanted,
    chosen_columns,
    rows_of_bytes,
)
from accelegrad.data.text_blocks import Place, TextBlock, block_at, row_blocks, text_blocks

__all__ = [
    "EVERYTHING",
    "Block",
    "CsvFile",
    "LibsvmFile",
    "NpzFile",
    "ParquetFile",
    "TableFile",
    "Targets",
    "Wanted",
    "open_table",
    "rows_of_bytes",
]

NPZ_ENDING, PARQUET_ENDINGS = ".npz", (".parquet", ".pq")


def open_table(path: str | os.PathLike[str], wanted: Wanted | None = None) -> TableFile:
    """Return the file as a table; the kind is told by the name, or by the text itself."""
    path, wanted = Path(path), wanted or Wanted()
    ending = path.suffix.lower()
    if ending == NPZ_ENDING:
        _check_no_column(path, wanted, "an .npz file, where the targets are the array y")
        return NpzFile(path, wanted)
    if ending in PARQUET_ENDINGS:
        return ParquetFile(path, wanted)
    separator = separator_of(path, _beginning(path, text_blocks(path, FIRST_ROWS)))
    if separator is not None:
        return CsvFile(path, wanted, separator)
    _check_no_column(path, wanted, "a LIBSVM file, where the label comes first in each line")
    return LibsvmFile(path, wanted)


def _check_no_column(path: Path, wanted: Wanted, kind: str) -> None:
    if wanted.target is not None and not wanted.optional:
        raise DataError(
            f"{path}: target is {wanted.target!r}, but only tables with columns have one to "
            f"choose; this is {kind}. Leave target out."
        )


def _beginning(path: Path, blocks: Iterator[TextBlock]) -> bytes:
    """Return the text up to some lines that are neither blank nor comments, or to the end."""
    parts: list[bytes] = []
    count = 0
    for block in blocks:
        parts.append(block.text)
        lines = (line.partition(b"#")[0].strip() for line in io.BytesIO(block.text))
        count += sum(map(bool, lines))
        if count >= FIRST_ROWS:
            break
    text = b"".join(parts)
    if not text or text.isspace():
        raise DataError(f"{path}: the file is empty, but it must hold at least one row.")
    return text


# LIBSVM


class LibsvmFile(TableFile):
    """LIBSVM text. Without a known number of features a block has as many as its largest index."""

    def __init__(self, path: Path, wanted: Wanted) -> None:
        super().__init__(path, wanted)
        self._places: list[Place] = []
        self.in_any_order = compression(path) is None

    def blocks(self, rows: int | None) -> Iterator[Block]:
        """Yield blocks in the order of the file."""
        places: list[Place] = []
        width = 0
        for text in text_blocks(self.path, rows):
            block = self._block(text)
            if block is not None:
                places.append(text.place)
                width = max(width, block.X.shape[1])
                yield block
        if not places:
            raise DataError(
                f"{self.path}: only blank lines and comments, but at least one row is needed."
            )
        datasets.check_width(self.path, width)
        self._places = places

    def whole(self) -> Block:
        """Return all rows."""
        block = super().whole()
        datasets.check_width(self.path, block.X.shape[1])
        return block

    def shuffled(self, rng: np.random.Generator) -> Iterator[Block]:
        """Yield the blocks of the last complete reading in random order."""
        with opened(self.path) as file:
            for place in rng.permutation(len(self._places)):
                block = self._block(block_at(self.path, file, self._places[place]))
                if block is not None:
                    yield block

    def knows_width(self) -> bool:
        """Tell whether the number of features was given."""
        return self.wanted.n_features is not None

    def _block(self, block: TextBlock) -> Block | None:
        """Parse a block; None if it has comments only."""
        lines = (line.partition(b"#")[0].strip() for line in io.BytesIO(block.text))
        if not any(lines):
            return None
        known = self.wanted.n_features
        X, y = datasets.read_libsvm(self.path, block.text, known, block.first_line)
        return Block(X, y)


# CSV


class CsvFile(TableFile):
    """Numbers between commas or tabs; the target alone may be text.

    It is text if one target of the file is. Before the first of several blocks, the file is read
    once to find that out, so that all blocks agree.
    """

    def __init__(self, path: Path, wanted: Wanted, separator: str) -> None:
        super().__init__(path, wanted)
        self._separator = separator
        start = _beginning(path, row_blocks(path, FIRST_ROWS, separator))
        target = -1 if wanted.target is None else wanted.target
        content = as_unicode(path, start)
        self._start = csv_start(path, content, separator, target, wanted.features or ())
        names = self._start.names
        self._columns = chosen_columns(path, names, self._start.width, wanted)
        place = self.target = self._columns.target
        if names:
            self.names = tuple(names[column] for column in self._columns.features)
            self.target = None if place is None else names[place]
        self._text_labels: bool | None = None
        if place is None or wanted.targets is Targets.NUMBERS:
            self._text_labels = False
        elif wanted.targets is Targets.TEXT:
            self._text_labels = True

    def blocks(self, rows: int | None) -> Iterator[Block]:
        """Yield blocks in the order of the file."""
        texts = self._texts(rows)
        first, second = next(texts, None), next(texts, None)
        if first is None:
            raise DataError(
                f"{self.path}: nothing follows the header, but at least one row is needed."
            )
        undecided = self._text_labels is None and self.wanted.targets is not Targets.UNUSED
        if undecided and second is not None:
            self._text_labels = any(self._is_text(*text) for text in self._texts(rows))
        yield self._block(*first)
        if second is not None:
            yield self._block(*second)
        for text in texts:
            yield self._block(*text)

    def _texts(self, rows: int | None) -> Iterator[tuple[str, int]]:
        """Yield the blocks of text behind the header, each with the number of its first line."""
        for text in row_blocks(self.path, rows, self._separator):
            content = as_unicode(self.path, text.text, text.first_line)
            skipped = max(0, self._start.end + 1 - text.first_line)
            content = "".join(content.split("\n", skipped)[skipped:])
            if not is_blank(content):
                yield content, text.first_line + skipped

    def _block(self, content: str, first_line: int) -> Block:
        place, is_text = self._columns.target, self._text_labels
        table = None if is_text else self._numbers(content)
        labels: npt.NDArray[Any] | None = None
        if table is None and place is not None and is_text is not False:
            if is_text is None or self._start.label:
                is_text = self._is_text(content, first_line) or is_text
            if is_text:
                without, labels = self._without_labels(content, place)
                table = self._numbers(without)
        if table is None:
            rows = csv_rows(self.path, content, self._separator, first_line)
            start, text_column = self._start, place if is_text else None
            check_csv(self.path, rows, start.names, start.width, text_column)
            raise DataError(f"{self.path}: cannot be read as CSV.")
        X = np.ascontiguousarray(table[:, self._columns.features])
        if self.wanted.targets is Targets.UNUSED:
            return Block(X, None)
        if labels is None and place is not None:
            labels = table[:, place].copy()
        return Block(X, labels)

    def _numbers(self, content: str) -> npt.NDArray[np.float64] | None:
        table, _ = parse_csv(content, self._separator)
        width = self._start.width
        right = table is not None and table.shape[1] == width and np.isfinite(table).all()
        return table if right else None

    def _is_text(self, content: str, first_line: int) -> bool:
        """Tell whether a target in a block is no number."""
        if self._numbers(content) is not None:
            return False
        place = self._columns.target
        for line, row in csv_rows(self.path, content, self._separator, first_line):
            label = row[place].strip() if place is not None and place < len(row) else ""
            if label and number_in(label) is None:
                self._check_header(line, label)
                return True
        return False

    def _check_header(self, line: int, label: str) -> None:
        """Refuse a header that was taken for one because its label alone is no number."""
        if self._start.label:
            raise DataError(
                f"{self.path}, line {self._start.end}: this may be a header or data: its cell "
                f"{shown(self._start.label)} is no number, but neither is {shown(label)} in line "
                f"{line}. If it is a header, give the name of the target column (target, "
                "--target); if it is data, put a header above it."
            )

    def _without_labels(self, content: str, place: int) -> tuple[str, npt.NDArray[Any]]:
        """Return the text with 0 for the labels, and the labels."""
        labels: list[str] = []
        written = io.StringIO()
        writer = csv.writer(written, delimiter=self._separator, lineterminator="\n")
        for _, row in csv_rows(self.path, content, self._separator):
            if place < len(row):
                labels.append(row[place].strip())
                # An empty label stays, for the check to find.
                row[place] = "0" if labels[-1] else ""
            writer.writerow(row)
        return written.getvalue(), np.array(labels)
