"""Arrays and JSON in one .npz file, written so that a crash leaves the one before.

No pickle: loading a file can run no code.
"""

from __future__ import annotations

import io
import json
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from accelegrad.files.atomic import whole_file

DAMAGE = (
    OSError,
    EOFError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RuntimeError,  # NotImplementedError too: zipfile's word for a changed version or flag
    MemoryError,  # a size that the file declares and nothing else tells
    SyntaxError,  # Python's own parser reads the headers of arrays
    Warning,  # NumPy's, where warnings are errors
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
)
"""What reading a damaged file can raise."""

_HEADER = "header"
_ARRAY = "__array__"
# A byte of deflated data stands for at most this many: 258 for every 2 bits.
_LARGEST_RATIO = 1032


class Format(NamedTuple):
    """A kind of file, as it says itself in its header, and what users call it."""

    name: str
    version: int
    noun: str


class ArchiveError(ValueError):
    """A file that cannot be used: another kind, another version, or damaged."""


def save(path: Path, form: Format, content: Mapping[str, Any]) -> None:
    """Write `content`, nested mappings of arrays and plain values, whole or not at all."""
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    tree = {"format": form.name, "version": form.version, "content": _pack(content, arrays)}
    arrays[_HEADER] = np.frombuffer(json.dumps(tree).encode(), dtype=np.uint8)
    with whole_file(path) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def load(path: Path, form: Format) -> dict[str, Any]:
    """Read what `save` wrote, or say why that cannot be done."""
    try:
        arrays = load_arrays(path)
        if _HEADER not in arrays:
            raise ValueError("it is an .npz file of something else")
        tree = json.loads(arrays.pop(_HEADER).tobytes())
        known = tree["format"], tree["version"]
        content: dict[str, Any] = _unpack(tree["content"], arrays)
    except FileNotFoundError:
        raise FileNotFoundError(f"{str(path)!r}: there is no such file.") from None
    except IsADirectoryError:
        raise ArchiveError(f"{str(path)!r}: this is a folder, not a {form.noun}.") from None
    except DAMAGE as error:
        kind = isinstance(error, zipfile.BadZipFile)
        why = "the content is of another kind, or cut off" if kind else str(error)
        raise ArchiveError(
            f"{str(path)!r}: not a {form.noun} of accelegrad, or a damaged one ({why})."
        ) from error
    if known != (form.name, form.version):
        raise ArchiveError(
            f"{str(path)!r}: format {known[0]!r} version {known[1]!r} cannot be read; this "
            f"version of accelegrad reads {form.name!r} version {form.version}."
        )
    return content


def load_arrays(path: Path, *, compressed: bool = False) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of an .npz file, after a check that none claims more than the file holds.

    Raises one of `DAMAGE` for a file that cannot be read.
    """
    with path.open("rb") as file:
        check_sizes(file, compressed=compressed)
        with np.load(file, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}


def check_sizes(file: BinaryIO, *, compressed: bool) -> None:
    """Raise a ValueError where an array of an .npz file claims a size that the file cannot hold.

    NumPy asks for all the memory that an array claims before it reads. An array of exactly the
    claimed size is read to its end, where zipfile compares the checksum.
    """
    length = file.seek(0, io.SEEK_END)
    with zipfile.ZipFile(file) as archive:
        for entry in archive.infolist():
            name = entry.filename.removesuffix(".npy")
            most = min(entry.compress_size, length) * (_LARGEST_RATIO if compressed else 1)
            if entry.file_size > most:
                raise ValueError(
                    f"the array {name!r} claims {entry.file_size} bytes, but the file holds at "
                    f"most {most} for it"
                )
            with archive.open(entry) as content:
                _check_header(content, name, entry.file_size)
    file.seek(0)


def _check_header(content: Any, name: str, end: int) -> None:
    """Raise a ValueError where the entries of an array are not all that follows its header."""
    version = np.lib.format.read_magic(content)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(content)
    else:
        shape, _, dtype = np.lib.format.read_array_header_2_0(content)
    size, held = math.prod(shape) * dtype.itemsize, end - content.tell()
    if size != held or dtype.itemsize == 0 or any(count < 0 for count in shape):
        raise ValueError(
            f"the array {name!r} claims the shape {shape}, {size} bytes, but the file holds {held} "
            "bytes for it"
        )
    if not size and content.read():
        raise ValueError(f"the array {name!r} should be empty")


def _pack(value: Any, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    if isinstance(value, Mapping):
        return {name: _pack(part, arrays) for name, part in value.items()}
    if isinstance(value, np.ndarray):
        name = f"a{len(arrays)}"
        arrays[name] = value
        return {_ARRAY: name}
    if isinstance(value, np.generic):
        return value.item()
    return value


def _unpack(value: Any, arrays: Mapping[str, np.ndarray[Any, Any]]) -> Any:
    if isinstance(value, dict):
        if _ARRAY in value:
            return arrays[value[_ARRAY]]
        return {name: _unpack(part, arrays) for name, part in value.items()}
    return value
