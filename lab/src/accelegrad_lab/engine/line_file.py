"""Results in a file, one line each, so that an interrupted benchmark loses at most one run."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from accelegrad.files import whole_file

Lines = list[tuple[str, dict[str, Any]]]


class LineFile:
    """A file of results, whose first line holds the settings that decide numbers."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self, settings: Mapping[str, Any], *, resume: bool) -> Lines:
        """Return what is there already; settings that decide numbers must be the same."""
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.add("settings", dict(settings))
            return []
        if not resume:
            raise ValueError(
                f"{self.path} holds results already: --resume goes on with them, and --out names "
                "another folder."
            )
        lines = list(self._lines())
        before = dict(lines[0][1]) if lines and lines[0][0] == "settings" else None
        if before != dict(settings):
            raise ValueError(
                f"{self.path} was made with {before}, but now the settings are {dict(settings)}: "
                "--out names another folder."
            )
        # Without half a line at the end, which the next would be added to.
        put(self.path, b"".join(_line(kind, content) for kind, content in lines))
        return lines[1:]

    def _lines(self) -> Iterable[tuple[str, dict[str, Any]]]:
        for line in self.path.read_text("utf-8").splitlines():
            try:
                plain = json.loads(line)
                yield plain.pop("kind"), plain
            except (ValueError, KeyError, AttributeError):
                return  # half a line: the run that wrote it was ended

    def add(self, kind: str, content: Mapping[str, Any]) -> None:
        """Keep one result."""
        with self.path.open("ab") as file:
            file.write(_line(kind, content))


def _line(kind: str, content: Mapping[str, Any]) -> bytes:
    plain = {"kind": kind, **{name: _plain(value) for name, value in content.items()}}
    return (json.dumps(plain, allow_nan=False) + "\n").encode()


def _plain(value: Any) -> Any:
    """Return what JSON can hold; "inf" and "nan" are written as words, which `float` reads."""
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def put(path: Path, content: bytes | str) -> None:
    """Write a file, whole or not at all; its folder is made where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)
