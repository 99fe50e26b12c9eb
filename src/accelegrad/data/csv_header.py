"""Whether the first line of a CSV file is a header, and what its columns are called."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from accelegrad.data.columns import check_distinct
from accelegrad.data.csv_text import SEPARATORS, csv_rows
from accelegrad.data.text import DataError, number_in, shown
from accelegrad.data.text_blocks import FIRST_ROWS

MISSING = ("?", "-", ".", "na", "n/a", "#n/a", "null", "none", "missing")
"""What people write in a cell for a number that they do not have; it is no name of a column."""

# A line of data may well begin with 0, 1; from this many counted cells on it is taken for names.
_COUNTED_NAMES = 3


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
        f"target are needed, separated by {SEPARATORS[separator]}.{hint}"
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
        if any(self.cells[place].lower() in MISSING for place in words):
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
