"""Words of a report as HTML: symbols typeset, headings in words, numbers in small tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby

_SUBSCRIPT = re.compile(r"\b([A-Za-z])_([A-Za-z0-9])\b")
_SPELLED = {
    "accelegrad": "AcceleGrad",
    "adagrad": "AdaGrad",
    "epsilon": "ε",
    "nonsmooth": "non-smooth",
    "svm": "SVM",
}


def typeset(text: str) -> str:
    """Return text as HTML, with y_t as a letter and its subscript."""
    return _SUBSCRIPT.sub(r"<i>\1</i><sub>\2</sub>", escape(text))


def claim_title(name: str) -> str:
    """Return a claim's name, such as "last-beats-average", as a heading in words."""
    words = " ".join(_SPELLED.get(word, word) for word in name.split("-"))
    first = words[:1].upper() if words[:1].isascii() else words[:1]  # a capital ε looks like an E
    return typeset(first + words[1:])


def evidence_tables(evidence: Iterable[tuple[str, str]]) -> str:
    """Return what was measured as tables; numbers "1: 0.5 · 2: 0.3" get a column for each key.

    Neighbours with the same keys share a table.
    """
    rows = [(what, text, cells_of(text)) for what, text in evidence]
    tables = []
    for keys, group in groupby(rows, key=lambda row: tuple(key for key, _ in row[2])):
        together = list(group)
        tables.append(_keyed_table(keys, together) if keys else _pairs_table(together))
    return "".join(f'<div class="numbers">{table}</div>' for table in tables)


Cells = list[tuple[str, str]]
Row = tuple[str, str, Cells]


def cells_of(text: str) -> Cells:
    """Return the cells of "1: 0.5 · 2: 0.3"; none where a text is something else."""
    parts = text.split(" · ")
    if len(parts) == 1 or not all(": " in part for part in parts):
        return []
    return [(key, value) for key, _, value in (part.partition(": ") for part in parts)]


def _keyed_table(keys: Sequence[str], rows: Sequence[Row]) -> str:
    heads = "".join(f'<th scope="col">{typeset(key)}</th>' for key in keys)
    lines = "".join(
        f'<tr><th scope="row">{typeset(what)}</th>'
        + "".join(f"<td>{typeset(value)}</td>" for _, value in cells)
        + "</tr>"
        for what, _, cells in rows
    )
    return f'<table class="evidence"><tr><td></td>{heads}</tr>{lines}</table>'


def _pairs_table(rows: Sequence[Row]) -> str:
    lines = "".join(
        f'<tr><th scope="row">{typeset(what)}</th><td>{typeset(text)}</td></tr>'
        for what, text, _ in rows
    )
    return f'<table class="evidence">{lines}</table>'
