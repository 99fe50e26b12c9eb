"""CSV files as tables: numbers between commas or tabs, and a target that may be text."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, starmap
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from accelegrad.data.columns import Targets, Wanted, chosen_columns
from accelegrad.data.csv_header import MISSING, csv_start
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
            self._text_labels = any(self._has_text_labels(*text) for text in self._texts(rows))
        while ahead:
            yield self._block(*ahead.pop(0))
        yield from starmap(self._block, texts)  # which keeps no text that was parsed

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
        labels = _LabelNumbers()
        table = None if self._text_labels else self._numbers(content)
        if table is None and self._text_labels is not False:
            table = self._numbers(content, labels)
            self._check_labels(labels, content, first_line)
        is_text = self._text_labels or labels.are_text
        if table is None or (labels.places and not is_text):
            rows = csv_rows(self.path, content, self._separator, first_line)
            text_column = self._columns.target if is_text else None
            check_csv(self.path, rows, self._start.names, self._start.width, text_column)
            # Nothing is known to lead here: the check is stricter than NumPy's parser.
            raise DataError(f"{self.path}: cannot be read as CSV.")
        X = np.ascontiguousarray(table[:, self._columns.features])
        if self.wanted.targets is Targets.UNUSED or self._columns.target is None:
            return Block(X, None)
        y = table[:, self._columns.target]
        return Block(X, labels.of(y) if is_text else y.copy())

    def _numbers(
        self, content: str, labels: _LabelNumbers | None = None
    ) -> npt.NDArray[np.float64] | None:
        """Return all cells as numbers, those of labels where these may be text; else None."""
        place, start = self._columns.target, self._start
        if labels is None or place is None:
            return parsed_numbers(content, self._separator, start.width)
        return parsed_numbers(content, self._separator, start.width, {place: labels.number})

    def _has_text_labels(self, content: str, first_line: int) -> bool:
        """Tell whether a target in a block is no number."""
        labels = _LabelNumbers()
        if self._numbers(content) is None:
            self._numbers(content, labels)
        self._check_labels(labels, content, first_line)
        return labels.are_text

    def _check_labels(self, labels: _LabelNumbers, content: str, first_line: int) -> None:
        """Refuse what is a label by mistake: a missing number, or what a header says."""
        if labels.lack_numbers:
            rows = csv_rows(self.path, content, self._separator, first_line)
            check_csv(self.path, rows, self._start.names, self._start.width)
        place = self._columns.target
        if not self._start.label or not labels.are_text or place is None:
            return
        # The header was taken for one because its label alone is no number.
        for line, row in csv_rows(self.path, content, self._separator, first_line):
            label = row[place].strip()
            if number_in(label) is None:
                raise DataError(
                    f"{self.path}, line {self._start.end}: this may be a header or data: its cell "
                    f"{shown(self._start.label)} is no number, but neither is {shown(label)} in "
                    f"line {line}. If it is a header, give the name of the target column "
                    "(target, --target); if it is data, put a header above it."
                )


class _LabelNumbers:
    """Labels as text, numbered in the order in which they first come."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}

    @property
    def are_text(self) -> bool:
        """Whether one of them is no number."""
        return any(number_in(label) is None for label in self.places)

    @property
    def lack_numbers(self) -> bool:
        """Whether they are numbers, but for marks of missing ones."""
        words = [label for label in self.places if number_in(label) is None]
        missing = all(word.lower() in MISSING for word in words)
        return bool(words) and missing and len(words) < len(self.places)

    def number(self, cell: str) -> float:
        """Return the number of a label, which must not be empty."""
        label = cell.strip()
        if not label:
            raise ValueError("the label is missing")
        return self.places.setdefault(label, len(self.places))

    def of(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
        """Return the labels that have these numbers."""
        return np.array(list(self.places))[numbers.astype(np.intp)]
