"""Tables as Markdown and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any


def table_lines(
    head: Sequence[Any], rows: Iterable[Sequence[Any]], *, numbers: bool = False
) -> Iterator[str]:
    """Go through the lines of a table; `numbers`: all columns but the first are to the right."""
    yield _line(head)
    yield _line(["---", *["---:" if numbers else "---"] * (len(head) - 1)])
    for cells in rows:
        if len(cells) != len(head):
            raise ValueError(f"{len(cells)} cells under {len(head)} heads: {cells}")
        yield _line(cells)


def _line(cells: Sequence[Any]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def csv_text(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table as CSV."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([head, *rows])
    return text.getvalue()
