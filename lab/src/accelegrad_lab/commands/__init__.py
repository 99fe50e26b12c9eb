"""Commands that join `accelegrad` through the entry-point group `accelegrad.commands`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

Request = Any  # a dataclass whose fields are options


def request_of(kind: type[Any], given: argparse.Namespace) -> Request:
    """Return a request whose fields are the options of the same names.

    Where an option is None, the field has its default.
    """
    chosen = {field.name: getattr(given, field.name, None) for field in fields(kind)}
    return kind(**{name: value for name, value in chosen.items() if value is not None})


def add_options(
    group: argparse._ActionsContainer, *options: tuple[str, Callable[[str], Any], str, str]
) -> None:
    """Add options with a value: their names, types, placeholders and words.

    None that is not given has a default here: `request_of` takes it from the request.
    """
    for name, kind, metavar, words in options:
        group.add_argument(name, type=kind, metavar=metavar, help=words)


def add_flags(command: argparse.ArgumentParser, **flags: str) -> None:
    """Add options without a value: their names and words."""
    for name, words in flags.items():
        command.add_argument(f"--{name}", action="store_true", help=words)


def add_out_folder(command: argparse.ArgumentParser, name: str) -> None:
    """Add the option for a report's folder, which has this name by default."""
    words = f"folder (default: {name})"
    command.add_argument("--out", type=Path, default=Path(name), metavar="DIR", help=words)
