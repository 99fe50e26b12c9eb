"""Checkpoints: a run's state in a file, refused by any other run.

Every part of a run declares the fields that a checkpoint holds: see `Saved`.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from accelegrad.errors import NonFiniteError
from accelegrad.files import archive

if TYPE_CHECKING:
    from accelegrad.run.oracle import Oracle

#: 2: 0.1.0; 3: the parts of a run declare their fields; 4: fewer parts; 5: one record of cuts; 6:
#: joblib's fingerprints
FORMAT = archive.Format("accelegrad-checkpoint", 7, "checkpoint")
#: Tolerance on a recomputed value, relative to the values' size: thousands of units of rounding,
#: for sums that threads split differently
SAME_VALUE = 1e-12


class CheckpointError(ValueError):
    """A checkpoint that cannot be used."""


class Saved:
    """A part of a run that declares which of its fields (`saved`) a checkpoint holds.

    The fields hold plain values, arrays, lists of numbers, NamedTuples, dataclasses or mappings of
    these, random generators, or parts with `state` and `restore`.
    """

    saved: tuple[str, ...] = ()

    def state(self) -> dict[str, Any]:
        """Return all that a checkpoint has to keep."""
        return {name: content_of(getattr(self, name)) for name in self.saved}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint."""
        for name in self.saved:
            before = getattr(self, name)
            after = restored(before, state[name])
            if after is not before:
                setattr(self, name, after)


def content_of(part: Any) -> Any:
    """Return what a checkpoint holds of a part: nested mappings of arrays and plain values."""
    if hasattr(part, "restore"):
        return part.state()
    if isinstance(part, np.random.Generator):
        return dict(part.bit_generator.state)
    if isinstance(part, list) and all(isinstance(entry, float) for entry in part):
        return np.array(part, dtype=np.float64)
    fields = _fields_of(part)
    if fields is None:
        return part
    return {name: content_of(field) for name, field in fields.items()}


def restored(part: Any, content: Any) -> Any:
    """Return a part as it was when `content` was taken of it, changed in place if it can be."""
    if hasattr(part, "restore"):
        part.restore(content)
        return part
    if isinstance(part, np.random.Generator):
        part.bit_generator.state = content
        return part
    if isinstance(part, list) and isinstance(content, np.ndarray):
        return content.tolist()
    before = _fields_of(part)
    if before is None:
        return content
    fields = {name: restored(before.get(name), field) for name, field in content.items()}
    if isinstance(part, Mapping):
        return fields
    replaced = part._replace if hasattr(part, "_replace") else partial(dataclasses.replace, part)
    return replaced(**fields)


def _fields_of(part: Any) -> dict[str, Any] | None:
    if hasattr(part, "_asdict"):
        return dict(part._asdict())
    if dataclasses.is_dataclass(part):
        return {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    return dict(part) if isinstance(part, Mapping) else None


def save(path: Path, kind: Mapping[str, Any], part: Any) -> None:
    """Write what a part declares to `path`, atomically; `kind` describes the run."""
    archive.save(path, FORMAT, {"kind": dict(kind), "content": content_of(part)})


def load(path: Path, kind: Mapping[str, Any]) -> dict[str, Any]:
    """Read what `save` wrote, or say why a run of this kind cannot use it."""
    try:
        tree = archive.load(path, FORMAT)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"resume={error}") from None
    except archive.ArchiveError as error:
        raise CheckpointError(f"resume={error}") from error
    written, wanted = tree["kind"], json.loads(json.dumps(dict(kind)))
    for name in {**wanted, **written}:
        if written.get(name) != wanted.get(name):
            raise CheckpointError(
                f"resume={str(path)!r}: the checkpoint is of another run: {name} was "
                f"{written.get(name)!r} there and is {wanted.get(name)!r} now."
            )
    content: dict[str, Any] = tree["content"]
    return content


def refuse_other_function(path: Path, oracle: Oracle | None, size: float) -> None:
    """Refuse a checkpoint whose best value is not the function's at that point.

    `size` is that of the run's first value: the best one may be close to zero.
    """
    if oracle is None or oracle.best is None:
        return
    best, counts = oracle.best, oracle.counts()
    try:
        value = oracle.exactly(best.point).value
    except NonFiniteError:
        value = math.nan
    oracle.set_counts(counts)
    oracle.best = best
    if not abs(value - best.value) <= SAME_VALUE * max(abs(best.value), size):
        raise CheckpointError(
            f"resume={str(path)!r}: the checkpoint is of another function: its best point has "
            f"the value {best.value!r} there and {value!r} now."
        )
