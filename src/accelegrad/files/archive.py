"""Files that are written whole or not at all; arrays and JSON in one .npz file, without pickle."""

from __future__ import annotations

import json
import math
import os
import stat
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

_STANDARD_OUTPUT = 1
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

    def packed(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            arrays[name := f"a{len(arrays)}"] = value
            return {_ARRAY: name}
        return dict(value) if isinstance(value, Mapping) else value.item()  # a NumPy number

    tree = {"format": form.name, "version": form.version, "content": content}
    header = json.dumps(tree, default=packed)
    arrays[_HEADER] = np.frombuffer(header.encode(), dtype=np.uint8)
    with whole_file(path) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def load(path: Path, form: Format) -> dict[str, Any]:
    """Read what `save` wrote, or raise an ArchiveError."""
    try:
        arrays = load_arrays(path)
        if _HEADER not in arrays:
            raise ValueError("it is an .npz file of something else")
        tree = json.loads(
            arrays.pop(_HEADER).tobytes(),
            object_hook=lambda found: arrays[found[_ARRAY]] if _ARRAY in found else found,
        )
        known = tree["format"], tree["version"]
        content: dict[str, Any] = tree["content"]
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
    most = path.stat().st_size * (LARGEST_RATIO if compressed else 1)
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            most -= _checked_size(archive, entry, most)
    with np.load(path, allow_pickle=False) as stored:
        return dict(stored)


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


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a file to write to that replaces `path` when it is complete.

    A crash or an exception leaves the previous file. Links and permissions are kept. A pipe or a
    device, such as /dev/stdout, must not be replaced: it is written to directly.
    """
    mode = path.stat().st_mode if path.exists() else None
    target: int | Path = path
    is_device = mode is not None and path.absolute().parts[1:2] in (("dev",), ("proc",))
    if is_device and os.path.samestat(path.stat(), os.fstat(_STANDARD_OUTPUT)):
        # Opened again, a redirected file would be overwritten from its beginning.
        sys.stdout.flush()
        target = os.dup(_STANDARD_OUTPUT)
    if target is not path or (mode is not None and not stat.S_ISREG(mode)):
        with open(target, "wb") as file:  # opening a folder raises the error
            yield file
        return
    path = path.resolve()
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix="accelegrad-", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes private files; a new one gets the permissions of any new file.
        os.umask(mask := os.umask(0))
        Path(temporary).chmod(0o666 & ~mask if mode is None else stat.S_IMODE(mode))
        os.replace(temporary, path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            before = "was not written" if mode is None else "is as it was before"
            raise OSError(error.errno, f"{path} {before}: {error.strerror or error}") from error
        raise
