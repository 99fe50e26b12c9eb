"""What all readers of data files share: their error, compression, lines, numbers."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, BinaryIO, NamedTuple, Protocol

import numpy as np

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Bytes that a decoder gets in one go: it bounds what is copied where a file has many streams.
_DECODED_AT_ONCE = 1 << 16
# Bytes of a file that tell its compression: more than the longest `magic` below.
_BEGINNING = 16
# Characters of a file's piece in a message; the rest is cut, so that messages stay readable.
_SHOWN = 40


class DataError(ValueError):
    """A data file cannot be used; the message says which, where in it, and what is allowed."""


def opened(path: Path) -> BinaryIO:
    """Open a file, or say why that cannot be done."""
    try:
        return path.open("rb")
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror}). Give the path of a file with data."
        ) from None


# Compression


class _Decoder(Protocol):
    """What the decompressors of bz2, lzma and zlib have in common."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


class Compression(NamedTuple):
    """A way of compressing files: how names end, how contents begin, and what decodes them."""

    ending: str
    magic: bytes
    decoder: Callable[[], _Decoder]


COMPRESSIONS = (
    Compression(".bz2", b"BZh", bz2.BZ2Decompressor),
    Compression(".gz", b"\x1f\x8b", lambda: zlib.decompressobj(wbits=31)),
    Compression(".xz", b"\xfd7zXZ\x00", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ)),
)


def compression(path: Path) -> Compression | None:
    """Return how a file is compressed, which must be what its name tells."""
    with opened(path) as file:
        first = file.read(_BEGINNING)
    actual = next((kind for kind in COMPRESSIONS if first.startswith(kind.magic)), None)
    named = next((kind for kind in COMPRESSIONS if path.suffix.lower() == kind.ending), None)
    if first and named is not None and actual is not named:
        content = "not compressed, or not in a known way" if actual is None else actual.ending
        raise DataError(
            f"{path}: the name says {named.ending}, but the content is {content}. Allowed are "
            "files in .bz2, .gz or .xz with the ending that fits, or with none."
        )
    return actual


def content_pieces(path: Path, size: int) -> Iterator[bytes]:
    """Yield the content of a file, decompressed, in pieces (of this size where it is plain)."""
    kind = compression(path)
    with opened(path) as file:
        if kind is None:
            yield from iter(lambda: file.read(size), b"")
            return
        try:
            yield from _decoded(file, kind)
        except (EOFError, OSError, ValueError, lzma.LZMAError, zlib.error) as error:
            raise DataError(
                f"{path}: the {kind.ending} compression is damaged ({error}). Get the file anew; a "
                "complete compressed file is needed."
            ) from None


def _decoded(file: IO[bytes], kind: Compression) -> Iterator[bytes]:
    """Decompress all streams of a file.

    Not by bz2.open and its like: these pass over anything that follows the first stream.
    """
    rest = file.read(_DECODED_AT_ONCE)
    while rest:
        stream = kind.decoder()
        while not stream.eof:
            if not rest:
                raise EOFError("it ends too early")
            yield stream.decompress(rest)
            rest = b"" if stream.eof else file.read(_DECODED_AT_ONCE)
        # Archives may be padded with zeros.
        rest = stream.unused_data.lstrip(b"\0")
        while not rest:
            following = file.read(_DECODED_AT_ONCE)
            if not following:
                return
            rest = following.lstrip(b"\0")


# Text


def plain_lines(path: Path, text: bytes, first_line: int = 1) -> bytes:
    """Return text with lines that end in a line feed; a NUL byte in it is a DataError.

    `first_line` is the number in the file of the first line that is given.
    """
    if first_line == 1:
        text = text.removeprefix(BYTE_ORDER_MARK)
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    nul = text.find(b"\0")
    if nul >= 0:
        raise DataError(
            f"{path}, line {line_of(text, nul, first_line)}: found a NUL byte, so this is no text "
            "(or UTF-16). Allowed are text in LIBSVM or CSV format, plain or in .bz2, .gz or .xz, "
            "and .npz and .parquet files."
        )
    return text


def as_unicode(path: Path, text: bytes, first_line: int = 1) -> str:
    """Return a text that has to be UTF-8, or raise a DataError."""
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        line = line_of(text, error.start, first_line)
        raise DataError(
            f"{path}, line {line}: found {shown(text[error.start :][:1])}, which is not UTF-8. A "
            "CSV file must be text in UTF-8."
        ) from None


def line_of(text: bytes, position: int, first_line: int = 1) -> int:
    """Return the number of the line at a position."""
    return text.count(b"\n", 0, position) + first_line


def shown(piece: str | bytes) -> str:
    """Return a piece of a file for a message: quoted, escaped and not too long."""
    written = piece.decode("utf-8", "backslashreplace") if isinstance(piece, bytes) else piece
    return ascii(written if len(written) <= _SHOWN else written[:_SHOWN] + "...")


# Numbers


def number_in(piece: str | bytes) -> float | None:
    """Return the number (perhaps infinite or NaN) that is written, None where it is none."""
    # float() takes 1_000 and digits of other scripts, which no data format knows.
    if not piece.isascii() or ("_" in piece if isinstance(piece, str) else b"_" in piece):
        return None
    try:
        return float(piece)
    except ValueError:
        return None


def check_number(what: str, piece: str | bytes) -> None:
    """Raise a ValueError where a piece of a file is not a finite number."""
    number = number_in(piece)
    if number is None:
        found = f"is {shown(piece)}" if piece.strip() else "is missing"
        raise ValueError(f"{what} {found}, but it must be a number.")
    if not np.isfinite(number):
        raise ValueError(f"{what} is {shown(piece)}, but it must be finite.")
