"""Checkpoints: arrays and JSON in one file, written so that a crash leaves the one before.

No pickle: loading a file can run no code.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from accelegrad.files import whole_file

FORMAT = "accelegrad-checkpoint"
VERSION = 1
_HEADER = "header"
_ARRAY = "__array__"


class CheckpointError(ValueError):
    """A checkpoint that cannot be used."""


def save(path: Path, kind: Mapping[str, Any], content: Mapping[str, Any]) -> None:
    """Write `content` (nested mappings of arrays and plain values) to `path`, atomically.

    `kind` says what the run is; `load` refuses a file of another kind.
    """
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    tree = {
        "format": FORMAT,
        "version": VERSION,
        "kind": dict(kind),
        "content": _pack(content, arrays),
    }
    arrays[_HEADER] = np.frombuffer(json.dumps(tree).encode(), dtype=np.uint8)
    with whole_file(path) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def load(path: Path, kind: Mapping[str, Any]) -> dict[str, Any]:
    """Read what `save` wrote, or say why it cannot be used for a run of this kind."""
    if not path.exists():
        raise FileNotFoundError(f"resume={str(path)!r}: there is no such file.")
    try:
        # Opened here: np.load would leave a damaged file open.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        tree = json.loads(arrays.pop(_HEADER).tobytes())
        known = tree["format"], tree["version"]
    except (
        OSError,
        EOFError,
        ValueError,
        KeyError,
        TypeError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise CheckpointError(
            f"resume={str(path)!r}: not a checkpoint of accelegrad, or a damaged one "
            f"({type(error).__name__}: {error})."
        ) from error
    if known != (FORMAT, VERSION):
        raise CheckpointError(
            f"resume={str(path)!r}: format {known[0]!r} version {known[1]!r} cannot be read; this "
            f"version of accelegrad reads {FORMAT!r} version {VERSION}."
        )
    _check_kind(path, tree["kind"], json.loads(json.dumps(dict(kind))))
    content: dict[str, Any] = _unpack(tree["content"], arrays)
    return content


def _check_kind(path: Path, written: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    for name in [*wanted, *(name for name in written if name not in wanted)]:
        if written.get(name) != wanted.get(name):
            raise CheckpointError(
                f"resume={str(path)!r}: the checkpoint is of another run: {name} was "
                f"{written.get(name)!r} there and is {wanted.get(name)!r} now."
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
