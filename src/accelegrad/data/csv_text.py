"""Tables as text: cells between commas or tabs, in quotes or not, with or without a header."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from accelegrad.data.data_text import (
    COMPRESSIONS,
    DataError,
    check_number,
    line_of,
    number_in,
    shown,
)
from accelegrad.errors import nearest

Matrix = npt.NDArray[np.float64]

FIRST_ROWS = 16
"""The rows that tell whether the first line is a header."""

LONGEST_CELL = csv.field_size_limit()
"""The most characters of a cell in quotes; one that is longer was never closed."""

_SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_IN_WORDS = {",": "a comma", "\t": "a tab"}
_LIBSVM_ENDINGS = (".svm", ".libsvm")
# What people write in a cell for a number that they do not have; it is no name of a column.
_MISSING = ("?", "-", ".", "na", "n/a", "#n/a", "null", "none", "missing")
# Fewer numbers 0, 1, ... in a line of data are no surprise.
_COUNTED_NAMES = 3


def separator_of(path: Path, text: bytes) -> str | None:
    """Return what is between the columns of a table; None for LIBSVM text.

    The name of the file tells it, or else the first line with data.
    """
    compressed = any(path.suffix.lower() == kind.ending for kind in COMPRESSIONS)
    ending = (path.with_suffix("") if compressed else path).suffix.lower()
    if ending in _SEPARATORS:
        return _SEPARATORS[ending]
    if ending in _LIBSVM_ENDINGS:
        return None
    lines = (line.partition(b"#")[0].strip() for line in io.BytesIO(text))
    first = next((line for line in lines if line), b"")
    return "," if b"," in first and b":" not in first else None


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
                f"{path}, line {line}: {error}, but numbers, separated by {_IN_WORDS[separator]}, "
                "are needed."
            ) from None
        if row is None:
            return
        if row:
            yield first_line - 1 + reader.line_num, row


def parse_csv(content: str, separator: str) -> tuple[Matrix | None, str]:
    """Return the table, or None and what is wrong."""
    # NumPy would warn of an empty table.
    if is_blank(content):
        return np.empty((0, 0)), ""
    stream = io.StringIO(content)
    try:
        return np.loadtxt(stream, delimiter=separator, comments=None, quotechar='"', ndmin=2), ""
    except ValueError as error:
        return None, str(error)


def is_blank(content: str) -> bool:
    """Tell whether there are only empty lines."""
    return not content.strip("\n")


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


# The header


class CsvStart(NamedTuple):
    """What the first line tells.

    Attributes
    ----------
    end : int
        The number of the header's last line; 0 without a header.
    names : list of str
        The names of the columns; empty without a header.
    width : int
        The number of columns.
    label : str
        The target's cell in the first line, where it alone makes this line a header: all other
        cells are numbers, and all targets of the next rows are. Else empty.
    """

    end: int
    names: list[str]
    width: int
    label: str


def csv_start(
    path: Path,
    content: str,
    separator: str,
    target: str | int,
    known: Collection[str] = (),
) -> CsvStart:
    """Read the first line of a table, and tell whether it is a header.

    It is one if it has a cell that is no number in a column of numbers: columns other than the
    target's must hold numbers, so any cell there counts, but for signs of a missing value. A line
    that might be a header or data is refused.

    Parameters
    ----------
    path, separator
        The file, and what is between its columns.
    content : str
        The first rows.
    target : str or int
        The target's column, by name or number. A line with this name is a header.
    known : collection of str
        The names of the features. A line with all of them is a header.
    """
    rows = islice(csv_rows(path, content, separator), FIRST_ROWS)
    line, first = next(rows)
    if len(first) < 2:
        raise _one_column(path, line, first[0], separator)
    # numpy.savetxt marks the header as a comment.
    names = [name.strip() for name in [first[0].lstrip("# "), *first[1:]]]
    width = len(names)
    others = [row for _, row in rows if len(row) == width]
    all_known = bool(known) and set(known) <= set(names)
    is_header, label = target in names or all_known, ""
    if not is_header:
        by_number = not isinstance(target, str) and -width <= target < width
        place = int(target) % width if by_number else width - 1
        first_line = _FirstLine(f"{path}, line {line}", names, place)
        is_header, label = first_line.judged(others)
    if not is_header:
        return CsvStart(0, [], width, "")
    check_distinct(f"{path}, line {line}", names)
    if not names[0] and not all_known:
        _check_no_index(f"{path}, line {line}", [row[0].strip() for row in others])
    return CsvStart(line, names, width, label)


def _check_no_index(where: str, cells: list[str]) -> None:
    """Refuse the index of a data frame as a feature: a first column without a name that counts."""
    if len(cells) > 1 and cells == [str(row) for row in range(len(cells))]:
        raise DataError(
            f"{where}: the first column has no name and counts the rows, as the index does that "
            "pandas writes. Leave it out (to_csv with index=False), or give it a name if it is "
            "data."
        )


def _one_column(path: Path, line: int, cell: str, separator: str) -> DataError:
    other = next((mark for mark in ";\t," if mark != separator and mark in cell), None)
    hint = f" The columns seem to be separated by {other!r}." if other else ""
    return DataError(
        f"{path}, line {line}: found one column, {shown(cell)}, but at least one feature and the "
        f"target are needed, separated by {_IN_WORDS[separator]}.{hint}"
    )


class _FirstLine(NamedTuple):
    """The cells of the first line, and which of them is the target's."""

    where: str
    cells: list[str]
    target: int

    def judged(self, rows: list[list[str]]) -> tuple[bool, str]:
        """Tell whether it is a header, and the target's cell if that alone makes it one."""
        words = [i for i, cell in enumerate(self.cells) if cell and number_in(cell) is None]
        numbers = [cell for cell in self.cells if number_in(cell) is not None]
        if not words or not numbers:
            return bool(words), ""
        if any(self.cells[place].lower() in _MISSING for place in words):
            return False, ""
        # pandas numbers columns that have no names; years are names as well.
        like_names = all(number.isdigit() for number in numbers)
        if words != [self.target]:
            place = next(place for place in words if place != self.target)
            return self._unless_doubtful(like_names, place), ""
        labels = [row[words[0]].strip() for row in rows]
        if not labels:
            return False, ""
        if all(number_in(label) is not None for label in labels):
            return self._unless_doubtful(like_names, words[0]), self.cells[words[0]]
        if self.cells[words[0]] in labels or numbers != [str(i) for i in range(len(numbers))]:
            return False, ""
        return self._unless_doubtful(len(numbers) >= _COUNTED_NAMES, words[0]), ""

    def _unless_doubtful(self, is_header: bool, place: int) -> bool:
        if is_header:
            return True
        raise DataError(
            f"{self.where}: this may be a header or data: the cell {shown(self.cells[place])} is "
            "no number, but others are. If it is a header, give the name of the target column "
            "(target, --target); if it is data, put a header above it."
        )


def check_distinct(where: str, names: Sequence[str]) -> None:
    """Raise a DataError where two columns have the same name."""
    places: dict[str, int] = {}
    for place, name in enumerate(names):
        if name in places:
            raise DataError(
                f"{where}: the columns {places[name] + 1} and {place + 1} have the same name, "
                f"{shown(name)}, but the names of columns must differ."
            )
        places[name] = place


def target_column(path: Path, header: Sequence[str], width: int, target: str | int) -> int:
    """Return the place of the target's column, or raise a DataError that says what there is."""
    if not isinstance(target, str):
        whole = isinstance(target, (int, np.integer)) and not isinstance(target, bool)
        if not (whole and -width <= target < width):
            raise DataError(
                f"{path}: target is {target!r}, but the columns have the numbers 0 to {width - 1} "
                f"(or -{width} to -1, from the end)."
            )
        return int(target) % width
    if not header:
        raise DataError(
            f"{path}: target is {target!r}, but the first line is no header with names. Allowed is "
            f"a column's number from 0 to {width - 1}."
        )
    if target not in header:
        raise DataError(f"{path}: there is no column {target!r}: {nearest(target, header)}")
    return list(header).index(target)
