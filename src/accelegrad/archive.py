"""Arrays and JSON in one file, written so that a crash leaves the one before.

No pickle: loading a file can run no code.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from accelegrad.files import whole_file
from accelegrad.stored_arrays import DAMAGE, StoredArrays

_HEADER = "header"
_ARRAY = "__array__"


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
        with path.open("rb") as stream:
            stored = StoredArrays(stream, compressed=False)
            arrays = {name: stored.read(name) for name in stored.names}
        if _HEADER not in arrays:
            raise ValueError("it is an .npz file of something else")
        tree = json.loads(arrays.pop(_HEADER).tobytes())
        known = tree["format"], tree["version"]
        content: dict[str, Any] = _unpack(tree["content"], arrays)
    except FileNotFoundError:
        raise FileNotFoundError(f"{str(path)!r}: there is no such file.") from None
    except IsADirectoryError:
        raise ArchiveError(f"{str(path)!r}: this is a folder, not a {form.noun}.") from None
    except zipfile.BadZipFile:
        raise _unusable(path, form, "the content is of another kind, or cut off") from None
    except DAMAGE as error:
        raise _unusable(path, form, str(error)) from error
    if known != (form.name, form.version):
        raise ArchiveError(
            f"{str(path)!r}: format {known[0]!r} version {known[1]!r} cannot be read; this "
            f"version of accelegrad reads {form.name!r} version {form.version}."
        )
    return content


def _unusable(path: Path, form: Format, why: str) -> ArchiveError:
    return ArchiveError(
        f"{str(path)!r}: not a {form.noun} of accelegrad, or a damaged one ({why})."
    )


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
