"""Arrays in .npz and .npy files, read without trust in what a file says of itself.

A size is compared with the file before memory is asked for. An array of an .npz file is read to
the end of its entry, for only then is the entry's checksum compared.
"""

from __future__ import annotations

import io
import math
import struct
import tempfile
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

DAMAGE = (
    OSError,
    EOFError,
    ValueError,
    LookupError,
    TypeError,
    ArithmeticError,
    RuntimeError,  # NotImplementedError too: zipfile's word for a changed version or flag
    MemoryError,  # a size that the file declares and nothing else tells
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
)
"""What reading a damaged file can raise."""

_ENDING = ".npy"
_PIECE = 1 << 20
# A byte of deflated data stands for at most this many: 258 for every 2 bits.
_LARGEST_RATIO = 1032
# Numbers, truth values, text, bytes and times: what NumPy stores without pickle.
_KINDS = "biufcSUmM"


class ArrayHeader(NamedTuple):
    """What an array says of itself."""

    shape: tuple[int, ...]
    by_columns: bool
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """The bytes of all entries."""
        return math.prod(self.shape) * self.dtype.itemsize

    def filled(self, content: bytes | bytearray) -> npt.NDArray[Any]:
        """Return the array of this content; it can be written to if that can be."""
        return np.ndarray(self.shape, self.dtype, content, order="F" if self.by_columns else "C")


def read_header(file: IO[bytes], name: str, end: int) -> ArrayHeader:
    """Read the header of an array, whose entries must be all that follows in the file.

    Parameters
    ----------
    file : binary file
        At the array's beginning; afterwards at its first entry.
    name : str
        What the array is called in messages.
    end : int
        The position in the file where the array ends.
    """
    header = _parsed(file, name)
    held = end - file.tell()
    if header.dtype.hasobject:
        raise ValueError(f"the array {name!r} holds Python objects, which are not read")
    if header.dtype.kind not in _KINDS or header.dtype.itemsize == 0:
        raise ValueError(f"the array {name!r} is of the type {header.dtype}, which is not read")
    if any(length < 0 for length in header.shape) or header.size != held:
        raise ValueError(
            f"the array {name!r} claims the shape {header.shape}, {header.size} bytes, but the "
            f"file holds {held} bytes for it"
        )
    return header


def _parsed(file: IO[bytes], name: str) -> ArrayHeader:
    try:
        with warnings.catch_warnings():
            # Of files that Python 2 wrote, which are right all the same.
            warnings.simplefilter("ignore", UserWarning)
            version = np.lib.format.read_magic(file)
            if version == (1, 0):
                return ArrayHeader(*np.lib.format.read_array_header_1_0(file))
            return ArrayHeader(*np.lib.format.read_array_header_2_0(file))
    except (*DAMAGE, SyntaxError, tokenize.TokenError) as error:
        # Python's own parser reads the header; in nonsense it finds any fault.
        raise ValueError(f"the array {name!r} has no header that can be read ({error})") from None


def check_npy(file: BinaryIO, name: str) -> None:
    """Raise a ValueError where a .npy file is not exactly as long as its header claims."""
    end = file.seek(0, io.SEEK_END)
    file.seek(0)
    read_header(file, name, end)


class StoredArrays:
    """The arrays of an .npz file, by their names.

    Parameters
    ----------
    file : binary file
        The .npz file, open for as long as arrays are read.
    compressed : bool
        Whether entries may be compressed.
    """

    def __init__(self, file: BinaryIO, *, compressed: bool) -> None:
        length = file.seek(0, io.SEEK_END)
        self._archive = zipfile.ZipFile(file)
        self._entries: dict[str, zipfile.ZipInfo] = {}
        for entry in self._archive.infolist():
            name = entry.filename.removesuffix(_ENDING)
            if name == entry.filename:
                continue
            if name in self._entries:
                raise ValueError(f"the array {name!r} is there twice")
            _check_entry(entry, name, length, compressed)
            self._entries[name] = entry

    @property
    def names(self) -> frozenset[str]:
        """The names of all arrays."""
        return frozenset(self._entries)

    def open(self, name: str) -> StoredArray:
        """Return an array to be read from its beginning."""
        entry = self._entries[name]
        return StoredArray(self._archive.open(entry), name, entry.file_size)

    def read(self, name: str) -> npt.NDArray[Any]:
        """Return a whole array, which can be written to."""
        return self.open(name).whole()


def _check_entry(entry: zipfile.ZipInfo, name: str, length: int, compressed: bool) -> None:
    """Raise a ValueError where an entry of a zip archive cannot be what it claims to be."""
    allowed = {zipfile.ZIP_STORED: 1}
    if compressed:
        allowed[zipfile.ZIP_DEFLATED] = _LARGEST_RATIO
    if entry.compress_type not in allowed:
        raise ValueError(f"the array {name!r} is compressed in a way that is not read")
    most = allowed[entry.compress_type] * min(entry.compress_size, length)
    if entry.file_size > most:
        raise ValueError(
            f"the array {name!r} claims {entry.file_size} bytes, but the file holds at most {most} "
            "for it"
        )


class StoredArray:
    """An array of an .npz file, read once, from its beginning to its end.

    Attributes
    ----------
    header : ArrayHeader
        Shape, order and type.
    """

    def __init__(self, file: IO[bytes], name: str, end: int) -> None:
        self._file, self._name = file, name
        self.header = read_header(file, name, end)
        self._rows_left = self.header.shape[0] if self.header.shape else 1
        # Of an array without entries, nothing is read later on.
        if not self.header.size:
            self._finish()

    @property
    def row_bytes(self) -> int:
        """The bytes of one entry along the first axis."""
        return self.header.dtype.itemsize * math.prod(self.header.shape[1:])

    def whole(self) -> npt.NDArray[Any]:
        """Return all entries, in an array that can be written to."""
        content = bytearray(self._content(self.header.size))
        self._finish()
        return self.header.filled(content)

    def take(self, count: int) -> npt.NDArray[Any]:
        """Return the next entries along the first axis, as many as asked for or as there are."""
        count = min(count, self._rows_left)
        content = self._content(count * self.row_bytes)
        self._rows_left -= count
        if not self._rows_left:
            self._finish()
        shape = (count, *self.header.shape[1:])
        return self.header._replace(shape=shape, by_columns=False).filled(content)

    def blocks(self, count: int) -> Iterator[npt.NDArray[Any]]:
        """Yield all rows of a matrix, so many at a time."""
        rows = self.header.shape[0]
        if not self.header.by_columns:
            for _ in range(0, rows, count):
                yield self.take(count)
        elif count >= rows:
            yield self.whole()
        else:
            yield from self._blocks_by_columns(count)

    def _blocks_by_columns(self, count: int) -> Iterator[npt.NDArray[Any]]:
        """Yield rows of an array in Fortran order, which has to be read whole for its first row.

        It goes through a temporary file, so that no more than a block is in memory.
        """
        shape, _, dtype = self.header
        with tempfile.TemporaryFile() as spilled:
            for start in range(0, self.header.size, _PIECE):
                spilled.write(self._content(min(_PIECE, self.header.size - start)))
            self._finish()
            spilled.flush()
            for start in range(0, shape[0], count):
                # Mapped anew for each block: pages of a mapping that stays count as memory in use.
                mapped = np.memmap(spilled, dtype, "r", shape=shape, order="F")
                yield np.array(mapped[start : start + count], order="C")

    def _content(self, size: int) -> bytes:
        content = self._file.read(size)
        if len(content) != size:
            raise EOFError(f"the array {self._name!r} ends too early")
        return content

    def _finish(self) -> None:
        """Meet the end of the entry: there, and only there, its checksum is compared."""
        if self._file.read(1):
            raise ValueError(f"the array {self._name!r} goes on behind its last entry")
