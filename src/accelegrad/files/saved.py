"""Parts of a run that declare what a checkpoint holds of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np


class Saved:
    """A part that declares which of its fields (`saved`) a checkpoint holds.

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
            after = _restored(before, state[name])
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
    fields = fields_of(part)
    if fields is None:
        return part
    return {name: content_of(field) for name, field in fields.items()}


def _restored(part: Any, content: Any) -> Any:
    """Return a part as it was when `content` was taken of it, changed in place if it can be."""
    if hasattr(part, "restore"):
        part.restore(content)
        return part
    if isinstance(part, np.random.Generator):
        part.bit_generator.state = content
        return part
    if isinstance(part, list) and isinstance(content, np.ndarray):
        return content.tolist()
    before = fields_of(part)
    if before is None:
        return content
    fields = {name: _restored(before.get(name), field) for name, field in content.items()}
    if isinstance(part, Mapping):
        return fields
    replaced = part._replace if hasattr(part, "_replace") else partial(dataclasses.replace, part)
    return replaced(**fields)


def fields_of(part: Any) -> dict[str, Any] | None:
    """Return the fields of a NamedTuple, dataclass or mapping by name, None for anything else."""
    if hasattr(part, "_asdict"):
        return dict(part._asdict())
    if dataclasses.is_dataclass(part):
        return {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    return dict(part) if isinstance(part, Mapping) else None
