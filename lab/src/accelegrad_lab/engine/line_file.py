"""Results in a file, a line each, so that an interrupted benchmark loses at most one run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar


class Found(Protocol):
    """What was measured so far."""

    def take(self, kind: str, content: dict[str, Any]) -> None:
        """Take in one line of a file."""


Kept = TypeVar("Kept", bound=Found)


class LineFile(Generic[Kept]):
    """A file of results, whose first line holds the settings that decide numbers.

    Parameters
    ----------
    path : Path
        The file.
    nothing : callable
        Makes what holds no results yet.
    """

    def __init__(self, path: Path, nothing: Callable[[], Kept]) -> None:
        self.path, self._nothing = path, nothing

    def begin(self, settings: Mapping[str, Any], *, resume: bool) -> Kept:
        """Return what is there already; settings that decide numbers must be the same."""
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.add("settings", dict(settings))
            return self._nothing()
        if not resume:
            raise ValueError(
                f"{self.path} holds results already: --resume goes on with them, and --out names "
                "another folder."
            )
        return self._read(settings)

    def _read(self, settings: Mapping[str, Any]) -> Kept:
        lines = list(self._lines())
        before = dict(lines[0][1]) if lines and lines[0][0] == "settings" else None
        if before != dict(settings):
            raise ValueError(
                f"{self.path} was made with {before}, but now the settings are {dict(settings)}: "
                "--out names another folder."
            )
        found = self._nothing()
        for kind, content in lines[1:]:
            found.take(kind, content)
        self._rewrite(lines)  # without half a line at the end, which the next would be added to
        return found

    def _lines(self) -> Iterable[tuple[str, dict[str, Any]]]:
        for line in self.path.read_text("utf-8").splitlines():
            try:
                plain = json.loads(line)
                yield plain.pop("kind"), plain
            except (ValueError, KeyError, AttributeError):
                return  # half a line: the run that wrote it was ended

    def _rewrite(self, lines: Sequence[tuple[str, dict[str, Any]]]) -> None:
        from accelegrad.files import whole_file

        with whole_file(self.path) as file:
            file.writelines(_line(kind, content) for kind, content in lines)

    def add(self, kind: str, content: dict[str, Any]) -> None:
        """Keep one result."""
        with self.path.open("ab") as file:
            file.write(_line(kind, content))


def _line(kind: str, content: dict[str, Any]) -> bytes:
    return (json.dumps({"kind": kind, **content}, allow_nan=False) + "\n").encode()
