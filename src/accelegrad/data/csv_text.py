"""Cells between commas or tabs, in quotes or not: blocks of whole rows, cells, numbers."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accelegrad.data.text import DataError, check_number, line_of, shown
from accelegrad.data.text_blocks import TextBlock, text_blocks

SEPARATORS = {",": "a comma", "\t": "a tab"}
"""What may be between columns, in words."""

LONGEST_CELL = csv.field_size_limit()
"""The most characters of a cell in quotes; one that is longer was never closed."""


# Quotes


class QuoteFault(NamedTuple):
    """A cell whose quotes are wrong: where it begins, and whether it is just not closed yet."""

    position: int
    is_open: bool


@cache
def _quoted_cells(separator: str) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Return patterns of a right cell in quotes, and of any cell that begins with a quote."""
    border = f"[{separator}\n]".encode()
    begun = rb'(?:\A|(?<=%b))"' % border
    inside = rb'[^"]*+(?:""[^"]*+)*+'
    right = begun + inside + rb'"(?=%b|\Z)' % border
    return re.compile(right), re.compile(begun + inside + rb'("?)')


def quote_fault(text: bytes, separator: str) -> QuoteFault | None:
    """Return the first cell whose quotes are wrong, None if there is none."""
    right, begun = _quoted_cells(separator)
    # Without the right ones, no cell begins with a quote: much faster than to look at each.
    if b'"' not in text or not begun.search(right.sub(b"", text)):
        return None
    for cell in begun.finditer(text):
        behind = text[cell.end() : cell.end() + 1]
        if not cell[1]:
            return QuoteFault(cell.start(), True)
        if behind not in (b"", b"\n", separator.encode()):
            return QuoteFault(cell.start(), False)
    return None


def start_of_row(text: bytes, position: int, separator: str) -> int:
    """Return where the row begins that has a cell at this position; cells before it are right."""
    right, _ = _quoted_cells(separator)
    before = right.sub(lambda cell: cell[0].replace(b"\n", b" "), text[:position])
    return before.rfind(b"\n") + 1


def wrong_quotes(path: Path, text: bytes, fault: QuoteFault, first_line: int = 1) -> DataError:
    """Return the error for a cell whose quotes are wrong."""
    line = line_of(text, fault.position, first_line)
    cell = shown(text[fault.position : fault.position + LONGEST_CELL].partition(b"\n")[0])
    if fault.is_open:
        return DataError(
            f"{path}, line {line}: a cell begins with a quote, {cell}, but no quote ends it. Close "
            "it, or leave the quote out."
        )
    return DataError(
        f"{path}, line {line}: a cell in quotes goes on behind the closing quote: {cell}. A quote "
        "within quotes is written twice."
    )


# Rows


def row_blocks(path: Path, rows: int | None, separator: str) -> Iterator[TextBlock]:
    """Yield blocks of a table, where a line that ends within quotes does not end a row."""
    held: TextBlock | None = None
    fault: QuoteFault | None = None
    for more in text_blocks(path, rows):
        block = more if held is None else held._replace(text=held.text + more.text)
        if fault is None or b'"' in more.text:
            fault = quote_fault(block.text, separator)
        if fault is None:
            held = None
            yield block
        elif fault.is_open and len(block.text) - fault.position <= LONGEST_CELL:
            start = start_of_row(block.text, fault.position, separator)
            if start:
                yield block._replace(text=block.text[:start])
            line = line_of(block.text, start, block.first_line)
            held = TextBlock(block.text[start:], line)
            fault = QuoteFault(fault.position - start, is_open=True)
        else:
            raise wrong_quotes(path, block.text, fault, block.first_line)
    if held is not None and fault is not None:
        raise wrong_quotes(path, held.text, fault, held.first_line)


def csv_rows(
    path: Path, content: str, separator: str, first_line: int = 1
) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not blank, each with the number of its (last) line."""
    reader = csv.reader(io.StringIO(content), delimiter=separator, strict=True)
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            line = first_line - 1 + reader.line_num
            raise DataError(
                f"{path}, line {line}: {error}, but numbers, separated by {SEPARATORS[separator]}, "
                "are needed."
            ) from None
        if row is None:
            return
        if row:
            yield first_line - 1 + reader.line_num, row


def parsed_numbers(
    content: str,
    separator: str,
    width: int,
    converters: dict[int | str, Callable[[str], Any]] | None = None,
) -> npt.NDArray[np.float64] | None:
    """Return a table of finite numbers with this width; None where the text holds no such.

    `converters` make numbers of the cells of some columns.
    """
    try:
        table = np.loadtxt(
            io.StringIO(content),
            delimiter=separator,
            comments=None,
            quotechar='"',
            converters=converters,
            ndmin=2,
            encoding=None,
        )
    except ValueError:
        return None
    return table if table.shape[1] == width and np.isfinite(table).all() else None


def check_csv(
    path: Path,
    rows: Iterator[tuple[int, list[str]]],
    header: Sequence[str],
    width: int,
    text_column: int | None = None,
) -> None:
    """Raise a DataError for the first cell that is wrong; one column may hold text."""
    for line, row in rows:
        if len(row) != width:
            raise DataError(
                f"{path}, line {line}: found {len(row)} cells, but all rows must have {width}, as "
                "the first line has."
            )
        for column, cell in enumerate(row):
            if column == text_column and cell.strip():
                continue
            name = f" ({shown(header[column])})" if header else ""
            try:
                check_number(f"the cell in column {column + 1}{name}", cell)
            except ValueError as error:
                raise DataError(f"{path}, line {line}: {error}") from None
