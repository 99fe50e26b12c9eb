"""Tables as Markdown and CSV, and files written whole: for the lab's pages and the benchmarks."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from accelegrad.files import whole_file

PLAIN, RIGHT = "---", "---:"


def table_lines(
    head: Sequence[Any], rows: Iterable[Sequence[Any]], *, numbers: bool = False
) -> Iterator[str]:
    """Go through the lines of a table; with `numbers` all columns but the first are to the right.

    Lines come as rows do, so that a table can be printed while it is being measured.
    """
    yield table_line(head)
    yield table_line([PLAIN, *[RIGHT if numbers else PLAIN] * (len(head) - 1)])
    for cells in rows:
        if len(cells) != len(head):
            raise ValueError(f"{len(cells)} cells under {len(head)} heads: {cells}")
        yield table_line(cells)


def number_table(head: Sequence[Any], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Go through the lines of a table with a column of names and columns of numbers."""
    return table_lines(head, rows, numbers=True)


def table_line(cells: Sequence[Any]) -> str:
    """Return one line of a table."""
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def csv_text(head: Sequence[str], rows: Iterable[Sequence[Any]], *, end: str) -> str:
    """Return a table as CSV; `end` is what ends a line."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=end).writerows([head, *rows])
    return text.getvalue()


def put(path: Path, content: bytes | str) -> None:
    """Write a file, whole or not at all; its folder is made where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)
