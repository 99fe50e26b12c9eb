"""A text file in blocks of whole lines, or of whole rows of a table, decompressed as it is read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from accelegrad.data.csv_text import (
    LONGEST_CELL,
    QuoteFault,
    quote_fault,
    start_of_row,
    wrong_quotes,
)
from accelegrad.data.data_text import content_pieces, line_of, plain_lines

# A block has about this many bytes where its number of rows is left open.
BLOCK_BYTES = 1 << 24
_PIECE = 1 << 20
_LINE_FEED, _CARRIAGE_RETURN = 10, 13


class TextBlock(NamedTuple):
    """Whole lines of a file, and where they stand."""

    text: bytes
    first_line: int
    place: Place


class Place(NamedTuple):
    """Where a block is in a file that is not compressed."""

    start: int
    size: int
    first_line: int


def text_blocks(path: Path, rows: int | None) -> Iterator[TextBlock]:
    """Yield blocks of at most so many lines, or of about 16 MB, in the order of the file."""
    start, line = 0, 1
    for text in _cut(content_pieces(path, _PIECE), rows):
        place = Place(start, len(text), line)
        yield TextBlock(plain_lines(path, text, line), line, place)
        start, line = start + len(text), line + _count_lines(text)


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
            held = TextBlock(block.text[start:], line, block.place)
            fault = QuoteFault(fault.position - start, is_open=True)
        else:
            raise wrong_quotes(path, block.text, fault, block.first_line)
    if held is not None and fault is not None:
        raise wrong_quotes(path, held.text, fault, held.first_line)


def block_at(path: Path, file: BinaryIO, place: Place) -> TextBlock:
    """Read a block again from a file that is not compressed."""
    file.seek(place.start)
    text = file.read(place.size)
    return TextBlock(plain_lines(path, text, place.first_line), place.first_line, place)


def _cut(pieces: Iterator[bytes], rows: int | None) -> Iterator[bytes]:
    """Yield the pieces anew, cut behind line ends; the last one may lack its own."""
    kept: list[bytes] = []
    amount = 0  # lines or bytes, whichever counts, in what is kept
    held = b""
    for given in pieces:
        piece = held + given
        # A line feed may follow in the next piece: the two are one line end.
        held = b"\r" if piece.endswith(b"\r") else b""
        piece = piece.removesuffix(b"\r")
        start = 0
        for end in _ends_of_blocks(piece, amount, rows):
            yield b"".join([*kept, piece[start:end]])
            kept, amount, start = [], 0, end
        if start < len(piece):
            kept.append(piece[start:])
            amount += len(kept[-1]) if rows is None else _count_lines(kept[-1])
    if kept or held:
        yield b"".join([*kept, held])


def _count_lines(text: bytes) -> int:
    """Return the number of line ends: line feeds, carriage returns, or both together."""
    feeds = text.count(b"\n")
    return feeds + text.count(b"\r") - text.count(b"\r\n") if b"\r" in text else feeds


def _ends_of_blocks(piece: bytes, amount: int, rows: int | None) -> list[int]:
    """Return where in a piece blocks are full, the first of which has some amount already."""
    if rows is None:
        end = max(piece.rfind(b"\n"), piece.rfind(b"\r")) + 1
        return [end] if end and amount + len(piece) >= BLOCK_BYTES else []
    if amount + _count_lines(piece) < rows:
        return []
    characters = np.frombuffer(piece, dtype=np.uint8)
    ends = characters == _LINE_FEED
    if b"\r" in piece:
        returns = characters == _CARRIAGE_RETURN
        returns[:-1] &= ~ends[1:]
        ends |= returns
    behind: list[int] = (np.flatnonzero(ends)[rows - amount - 1 :: rows] + 1).tolist()
    return behind
