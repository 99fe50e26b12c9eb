"""Checkpoints: a run's state in a file, refused by any other run."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelegrad.errors import NonFiniteError
from accelegrad.files import archive
from accelegrad.files.saved import content_of

if TYPE_CHECKING:
    from accelegrad.run.oracle import Oracle

#: 2: 0.1.0; 3: the parts of a run declare their fields; 4: fewer parts; 5: one record of cuts; 6:
#: joblib's fingerprints; 8: all parts declare their fields
FORMAT = archive.Format("accelegrad-checkpoint", 8, "checkpoint")
#: Tolerance on a recomputed value, relative to the values' size: thousands of units of rounding,
#: for sums that threads split differently
SAME_VALUE = 1e-12


class CheckpointError(ValueError):
    """A checkpoint that cannot be used."""


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
