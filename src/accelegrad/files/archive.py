"""Arrays and JSON in one .npz file, written atomically and read without pickle."""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accelegrad.files.atomic import whole_file

_HEADER = "header"
_ARRAY = "__array__"
# The largest expansion of deflated data: 258 bytes for every 2 bits.
LARGEST_RATIO = 1032


class Format(NamedTuple):
    """A kind of file: its name in the header, and for users."""

    name: str
    version: int
    noun: str


class ArchiveError(ValueError):
    """A file that cannot be used: another kind, another version, or damaged."""


def save(path: Path, form: Format, content: Mapping[str, Any]) -> None:
    """Write `content`, nested mappings of arrays and plain values, atomically."""
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    tree = {"format": form.name, "version": form.version, "content": _pack(content, arrays)}
    arrays[_HEADER] = np.frombuffer(json.dumps(tree).encode(), dtype=np.uint8)
    with whole_file(path) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def load(path: Path, form: Format) -> dict[str, Any]:
    """Read what `save` wrote, or raise an ArchiveError."""
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
    except Exception as error:  # zipfile, NumPy and json raise a dozen kinds for damaged content
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
    """Return the arrays of an .npz file, or raise any exception if it is damaged."""
    with path.open("rb") as file:
        with zipfile.ZipFile(file) as archive:
            left = os.fstat(file.fileno()).st_size * (LARGEST_RATIO if compressed else 1)
            for entry in archive.infolist():
                left -= _checked_size(archive, entry, left)
        file.seek(0)
        with np.load(file, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}


def _checked_size(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, most: int) -> int:
    """Return the size of an array, or raise a ValueError if the file cannot hold it.

    NumPy allocates the claimed memory before it reads. An array of exactly the claimed size is read
    to its end, where zipfile compares the checksum.
    """
    with archive.open(entry) as content:
        version = np.lib.format.read_magic(content)
        first = version == (1, 0)
        read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(content)
        size, held = math.prod(shape) * dtype.itemsize, entry.file_size - content.tell()
        right = size == held <= most and dtype.itemsize > 0 and all(count >= 0 for count in shape)
        if not right or (not size and content.read()):
            raise ValueError(
                f"the array {entry.filename.removesuffix('.npy')!r} claims the shape {shape}, "
                f"{size} bytes, but the file holds {held} bytes for it, of at most {most}"
            )
        return int(size)


def _pack(value: Any, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    if isinstance(value, Mapping):
        return {name: _pack(part, arrays) for name, part in value.items()}
    if isinstance(value, np.ndarray):
        name = f"a{len(arrays)}"
        arrays[name] = value
        return {_ARRAY: name}
    return value.item() if isinstance(value, np.generic) else value


def _unpack(value: Any, arrays: Mapping[str, np.ndarray[Any, Any]]) -> Any:
    if not isinstance(value, dict):
        return value
    if _ARRAY in value:
        return arrays[value[_ARRAY]]
    return {name: _unpack(part, arrays) for name, part in value.items()}
