"""A text file in blocks of whole lines, decompressed as it is read."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from accelegrad.data.text import DataError, content_pieces, plain_lines

FIRST_ROWS = 16
"""The rows that tell of a table whether it has a header, and of a text what it is."""

# A block has about this many bytes where nothing says how many rows it has: 16 MB, which users are
# told. What is parsed takes some times as much.
BLOCK_BYTES = 1 << 24
PIECE = 1 << 20  # bytes of a plain file that are read in one go
_LINE_FEED, _CARRIAGE_RETURN = 10, 13


class TextBlock(NamedTuple):
    """Whole lines of a file, and where they stand."""

    text: bytes
    first_line: int


def text_blocks(path: Path, rows: int | None) -> Iterator[TextBlock]:
    """Yield blocks of at most `rows` lines, or of about 16 MB, in the order of the file."""
    line = 1
    for text in _cut(content_pieces(path, PIECE), rows):
        yield TextBlock(plain_lines(path, text, line), line)
        line += _count_lines(text)


def has_content(block: TextBlock) -> bool:
    """Tell whether a line is neither blank nor a comment."""
    return any(_contents(block.text))


def first_content(text: bytes) -> bytes:
    """Return the first line that is neither blank nor a comment, without a comment behind it."""
    return next(filter(None, _contents(text)), b"")


def beginning(path: Path, blocks: Iterator[TextBlock]) -> bytes:
    """Return the text up to some lines that are neither blank nor comments, or to the end."""
    parts: list[bytes] = []
    count = 0
    for block in blocks:
        parts.append(block.text)
        count += sum(map(bool, _contents(block.text)))
        if count >= FIRST_ROWS:
            break
    text = b"".join(parts)
    if not text or text.isspace():
        raise DataError(f"{path}: the file is empty, but it must hold at least one row.")
    return text


def _contents(text: bytes) -> Iterator[bytes]:
    """Yield the lines without comments and spaces around."""
    return (line.partition(b"#")[0].strip() for line in io.BytesIO(text))


def _cut(pieces: Iterator[bytes], rows: int | None) -> Iterator[bytes]:
    """Yield the pieces anew, cut behind line ends; the last one may have none."""
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
