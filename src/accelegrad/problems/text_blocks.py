"""A text file in blocks of whole lines, decompressed as it is read."""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from accelegrad.problems.datasets import COMPRESSIONS, DECODED_AT_ONCE, Compression, DataError
from accelegrad.problems.datasets import decompressed as refused

# A block has about this many bytes where its number of rows is left open.
BLOCK_BYTES = 1 << 24
_PIECE = 1 << 20
_MARK = b"\xef\xbb\xbf"
_LINE_FEED = 10


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


def compression(path: Path) -> Compression | None:
    """Return how a file is compressed, which must be what its name tells."""
    with opened(path) as file:
        first = file.read(_PIECE)
    actual = next((kind for kind in COMPRESSIONS if first.startswith(kind.magic)), None)
    named = next((kind for kind in COMPRESSIONS if path.suffix.lower() == kind.ending), None)
    if first and named is not None and actual is not named:
        refused(path, first)
    return actual


def opened(path: Path) -> BinaryIO:
    """Open a file, or say why that cannot be done."""
    try:
        return path.open("rb")
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror}). Give the path of a file with data."
        ) from None


def text_blocks(path: Path, rows: int | None) -> Iterator[TextBlock]:
    """Yield blocks of at most so many lines, or of about 16 MB, in the order of the file."""
    start, line = 0, 1
    for text in _cut(_pieces(path), rows):
        place = Place(start, len(text), line)
        yield TextBlock(_cleaned(text, line), line, place)
        start, line = start + len(text), line + text.count(b"\n")


def block_at(file: BinaryIO, place: Place) -> TextBlock:
    """Read a block again from a file that is not compressed."""
    file.seek(place.start)
    text = file.read(place.size)
    return TextBlock(_cleaned(text, place.first_line), place.first_line, place)


def _cleaned(text: bytes, first_line: int) -> bytes:
    if first_line == 1:
        text = text.removeprefix(_MARK)
    return text.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in text else text


def _cut(pieces: Iterator[bytes], rows: int | None) -> Iterator[bytes]:
    """Yield the pieces anew, cut behind line feeds; the last one may lack its own."""
    kept: list[bytes] = []
    amount = 0  # lines or bytes, whichever counts, in what is kept
    for piece in pieces:
        while piece:
            behind = _enough(piece, amount, rows)
            if behind == 0:
                kept.append(piece)
                amount += len(piece) if rows is None else piece.count(b"\n")
                break
            yield b"".join([*kept, piece[:behind]])
            kept, amount, piece = [], 0, piece[behind:]
    if kept:
        yield b"".join(kept)


def _enough(piece: bytes, amount: int, rows: int | None) -> int:
    """Return where in a piece the block is full, 0 if it is not."""
    if rows is None:
        return piece.rfind(b"\n") + 1 if amount + len(piece) >= BLOCK_BYTES else 0
    if amount + piece.count(b"\n") < rows:
        return 0
    feeds = np.flatnonzero(np.frombuffer(piece, dtype=np.uint8) == _LINE_FEED)
    return int(feeds[rows - amount - 1]) + 1


def _pieces(path: Path) -> Iterator[bytes]:
    """Yield the content of a file, decompressed."""
    kind = compression(path)
    with opened(path) as file:
        if kind is None:
            yield from iter(lambda: file.read(_PIECE), b"")
            return
        try:
            yield from _decoded(file, kind)
        except (EOFError, OSError, ValueError, lzma.LZMAError, zlib.error) as error:
            raise DataError(
                f"{path}: the {kind.ending} compression is damaged ({error}). Get the file anew; a "
                "complete compressed file is needed."
            ) from None


def _decoded(file: BinaryIO, kind: Compression) -> Iterator[bytes]:
    """Decompress all streams of a file, as `datasets.read` does, but piece by piece."""
    rest = file.read(DECODED_AT_ONCE)
    while rest:
        stream = kind.decoder()
        while not stream.eof:
            if not rest:
                raise EOFError("it ends too early")
            yield stream.decompress(rest)
            rest = b"" if stream.eof else file.read(DECODED_AT_ONCE)
        # Archives may be padded with zeros.
        rest = stream.unused_data.lstrip(b"\0")
        while not rest:
            following = file.read(DECODED_AT_ONCE)
            if not following:
                return
            rest = following.lstrip(b"\0")
