"""CSV files as tables: numbers between commas or tabs, and a target that may be text."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from accelegrad.data.columns import Targets, Wanted, chosen_columns
from accelegrad.data.csv_header import csv_start
from accelegrad.data.csv_text import check_csv, csv_rows, parsed_numbers, row_blocks
from accelegrad.data.tables import Block, TableFile, joined
from accelegrad.data.text import DataError, as_unicode, number_in, shown
from accelegrad.data.text_blocks import FIRST_ROWS, beginning


class CsvFile(TableFile):
    """Numbers between commas or tabs; the target alone may be text.

    It is text if one target of the file is. Before the first of several blocks, the file is read
    once to find that out, so that all blocks agree.
    """

    def __init__(self, path: Path, wanted: Wanted, separator: str = ",") -> None:
        super().__init__(path, wanted)
        self._separator = separator
        content = as_unicode(path, beginning(path, row_blocks(path, FIRST_ROWS, separator)))
        target = -1 if wanted.target is None else wanted.target
        self._start = csv_start(path, content, separator, target, wanted.features or ())
        names = self._start.names
        self._columns = chosen_columns(path, names, self._start.width, wanted)
        self.n_features = len(self._columns.features)
        place = self.target = self._columns.target
        if names:
            self.names = tuple(names[column] for column in self._columns.features)
            self.target = None if place is None else names[place]
        # None: not known before all targets are read.
        self._text_labels: bool | None = None
        if place is None or wanted.targets is Targets.NUMBERS:
            self._text_labels = False
        elif wanted.targets is Targets.TEXT:
            self._text_labels = True

    def blocks(self, rows: int | None) -> Iterator[Block]:
        """Yield blocks in the order of the file."""
        texts = self._texts(rows)
        ahead = list(islice(texts, 2))
        undecided = self._text_labels is None and self.wanted.targets is not Targets.UNUSED
        if undecided and len(ahead) > 1:
            self._text_labels = any(self._is_text(*text) for text in self._texts(rows))
        for text in chain(ahead, texts):
            yield self._block(*text)

    def whole(self) -> Block:
        """Return all rows, after one reading where all blocks have the same kind of labels."""
        blocks = [self._block(*text) for text in self._texts(None)]
        kinds = {None if block.y is None else block.y.dtype.kind for block in blocks}
        if len(kinds) > 1:
            self._text_labels = True
            blocks = [self._block(*text) for text in self._texts(None)]
        return joined(blocks)

    def _texts(self, rows: int | None) -> Iterator[tuple[str, int]]:
        """Yield the blocks of text behind the header, each with the number of its first line."""
        found = False
        for block in row_blocks(self.path, rows, self._separator):
            content = as_unicode(self.path, block.text, block.first_line)
            skipped = max(0, self._start.end + 1 - block.first_line)
            if skipped:
                content = "".join(content.split("\n", skipped)[skipped:])
            if content.strip("\n"):
                found = True
                yield content, block.first_line + skipped
        if not found:
            raise DataError(
                f"{self.path}: nothing follows the header, but at least one row is needed."
            )

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
            # Nothing is known to lead here: the check is stricter than NumPy's parser.
            raise DataError(f"{self.path}: cannot be read as CSV.")
        X = np.ascontiguousarray(table[:, self._columns.features])
        if self.wanted.targets is Targets.UNUSED:
            return Block(X, None)
        if labels is None and place is not None:
            labels = table[:, place].copy()
        return Block(X, labels)

    def _numbers(self, content: str) -> npt.NDArray[np.float64] | None:
        return parsed_numbers(content, self._separator, self._start.width)

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
