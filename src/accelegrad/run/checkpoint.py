"""Checkpoints: a run's state in a file, refused by any other run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelegrad import archive

FORMAT = archive.Format("accelegrad-checkpoint", 2, "checkpoint")


class CheckpointError(ValueError):
    """A checkpoint that cannot be used."""


def save(path: Path, kind: Mapping[str, Any], content: Mapping[str, Any]) -> None:
    """Write `content` (nested mappings of arrays and plain values) to `path`, atomically.

    `kind` says what the run is; `load` refuses a file of another kind.
    """
    archive.save(path, FORMAT, {"kind": dict(kind), "content": content})


def load(path: Path, kind: Mapping[str, Any]) -> dict[str, Any]:
    """Read what `save` wrote, or say why it cannot be used for a run of this kind."""
    try:
        tree = archive.load(path, FORMAT)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"resume={error}") from None
    except archive.ArchiveError as error:
        raise CheckpointError(f"resume={error}") from error
    _check_kind(path, tree["kind"], json.loads(json.dumps(dict(kind))))
    content: dict[str, Any] = tree["content"]
    return content


def _check_kind(path: Path, written: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    for name in [*wanted, *(name for name in written if name not in wanted)]:
        if written.get(name) != wanted.get(name):
            raise CheckpointError(
                f"resume={str(path)!r}: the checkpoint is of another run: {name} was "
                f"{written.get(name)!r} there and is {wanted.get(name)!r} now."
            )
