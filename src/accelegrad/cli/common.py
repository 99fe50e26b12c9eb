"""Shared by the commands: exit codes, types of options, printing."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TextIO

from accelegrad.models.losses import PARAMETERS, LossEntry, losses_with

Commands = argparse._SubParsersAction
"""Where each command adds its parser."""

FAILED = 1  # what shells use for any error
INTERRUPTED = 130  # what shells use for Ctrl-C

FILES = {
    "data": "a LIBSVM, CSV or .tsv file (plain, .bz2, .gz, .xz), an .npz file with the arrays X "
    "and y, or a .parquet file",
    "model": "what `accelegrad fit` wrote",
}
"""The files that commands read, in words."""

HELP_WIDTH = 98
"""The width of help texts: two less than a line of code."""


def _name_or_number(text: str) -> str | int:
    return int(text) if text.strip().lstrip("+-").isdecimal() else text


def names(text: str) -> tuple[str, ...]:
    """Split names at commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def columns(text: str) -> tuple[str | int, ...]:
    """Split names or numbers of columns at commas."""
    return tuple(map(_name_or_number, names(text)))


def check_out(path: Path, *inputs: Path) -> None:
    """Refuse an output path that is not writable or is an input, before any work."""
    if not path.absolute().parent.is_dir():
        raise ValueError(f"--out {path}: there is no folder {path.absolute().parent}.")
    if path.is_dir():
        raise ValueError(f"--out {path}: this is a folder; the name of a file is needed.")
    if path.is_file() and any(path.samefile(given) for given in inputs if given.exists()):
        raise ValueError(f"--out {path}: this file is what is read; give another name.")


def add_command(
    commands: Commands[argparse.ArgumentParser],
    name: str,
    run: Callable[[argparse.Namespace], int],
    *,
    interrupted: str = "what is done is kept: the same command goes on",
    **words: str,
) -> argparse.ArgumentParser:
    """Add a command with its function, help, description and epilog, and what Ctrl-C leaves."""
    words["description"] = textwrap.fill(words["description"], HELP_WIDTH)
    # Keep the lines of an epilog.
    keep_lines = argparse.RawDescriptionHelpFormatter
    command = commands.add_parser(name, formatter_class=keep_lines, **words)  # type: ignore[arg-type]
    command.set_defaults(run=run, interrupted=interrupted)
    return command


def add_files(command: argparse.ArgumentParser, *files: str) -> None:
    """Add arguments for input files: "model", "data"."""
    for name in files:
        command.add_argument(name, type=Path, metavar=name.upper(), help=FILES[name])


def add_out(command: argparse.ArgumentParser, words: str, default: Path | None = None) -> None:
    """Add the option for the file that a command writes."""
    command.add_argument("--out", type=Path, default=default, metavar="FILE", help=words)


def add_reading(group: argparse._ActionsContainer, *, learning: bool) -> None:
    """Add the options for tables with columns, some only for learning a model."""
    add = group.add_argument
    words = "the column to predict of a CSV or parquet file, by name or number from 0 (default: "
    words += "the last when fitting, the model's when predicting); a first line with this name is "
    words += "a header"
    add("--target", type=_name_or_number, metavar="COLUMN", help=words)
    words = "columns that are left out, by name or number from 0"
    add("--drop", type=columns, default=(), metavar="A,B", help=words)
    words = "the mark between columns of a CSV file (default: a comma; in .tsv files a tab)"
    add("--sep", metavar="C", help=words)
    add("--decimal", default=".", metavar="C", help="the decimal point (.)")
    add("--thousands", metavar="C", help="the mark between thousands (none)")
    add("--encoding", default="utf-8", metavar="NAME", help="of text (utf-8)")
    words = "what stands for a missing cell, beside nothing (default: ?, NA, NaN, null, ...)"
    add("--na", type=names, metavar="A,B", help=words)
    words = "the first line of a CSV file is data (default: data if it has numbers only)"
    add("--no-header", action="store_true", help=words)
    if learning:
        words = "what to do with missing cells: put in the column's mean, or drop the row (error)"
        add("--missing", choices=("mean", "drop"), help=words)
        words = "columns whose values are categories, even if they look like numbers"
        add("--text", type=columns, default=(), metavar="A,B", help=words)


def reading(given: argparse.Namespace) -> Any:
    """Return the reading options given by `add_reading`."""
    from accelegrad.files.tables import Reading

    chosen = {name: getattr(given, name) for name in Reading._fields if hasattr(given, name)}
    return Reading(**chosen, header=False if given.no_header else None)


def add_number(group: argparse._ActionsContainer, name: str, default: float, words: str) -> None:
    """Add an option for a number, an integer if the default is one."""
    kind, letter = type(default), "X" if isinstance(default, float) else "N"
    words = f"{words} ({default:g})"
    group.add_argument(name, type=kind, default=default, metavar=letter, help=words)


def add_loss_parameters(
    group: argparse._ActionsContainer, loss_name: Callable[[LossEntry], str], **options: str
) -> None:
    """Add an option for each parameter of losses; `options` are names that are not theirs."""
    for name, parameter in PARAMETERS.items():
        losses = ", ".join(map(loss_name, losses_with(parameter)))
        words = f"{parameter.words}, of {losses} ({parameter.default:g})"
        group.add_argument(f"--{options.get(name, name)}", type=float, metavar="X", help=words)


def add_no_progress(command: argparse._ActionsContainer) -> None:
    """Add the option that hides progress bars."""
    words = "show no progress bars"
    command.add_argument("--no-progress", dest="progress", action="store_false", help=words)


def printable(text: str) -> str:
    """Return text with control characters escaped: names in files must not steer a terminal."""
    escaped = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return "".join(escaped)


def say(text: str, file: TextIO | None = None) -> None:
    """Print lines to a file, by default standard output."""
    print("\n".join(map(printable, text.split("\n"))), file=file)


def warn(text: str) -> None:
    """Print lines to standard error."""
    say(text, sys.stderr)


def say_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Print names with their values, one pair per line, in two columns."""
    width = max(len(printable(name)) for name, _ in facts) + 2
    for name, value in facts:
        say(f"{printable(name):<{width}}{printable(value)}")


def in_lines(listed: Iterable[str]) -> str:
    """Return names for the end of a command's help."""
    text = textwrap.fill(", ".join(listed), HELP_WIDTH - 10)
    return textwrap.indent(text, " " * 10)
