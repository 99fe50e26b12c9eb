"""What the commands share: exit codes, kinds of options, printing."""

from __future__ import annotations

import argparse
import math
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

Commands = argparse._SubParsersAction
"""Where each command adds its parser."""

FAILED = 1
INTERRUPTED = 130  # what shells use for Ctrl-C

DATA_FORMATS = (
    "a LIBSVM, CSV or .tsv file (plain, .bz2, .gz, .xz), an .npz file with the arrays X and y, or "
    "a .parquet file"
)
SHOWN_VALUES = 10
"""How many values a line shows of a longer list."""

_NOT_KNOWN = "not known"


# Options


def name_or_number(text: str) -> str | int:
    """Return a column's number, or else its name."""
    try:
        return int(text)
    except ValueError:
        return text


def names(text: str) -> tuple[str, ...]:
    """Return the names between commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def check_out(path: Path, *inputs: Path) -> None:
    """Refuse a place that cannot be written to, or holds what is read, before any work."""
    if not path.absolute().parent.is_dir():
        raise ValueError(f"--out {path}: there is no folder {path.absolute().parent}.")
    if path.is_dir():
        raise ValueError(f"--out {path}: this is a folder; the name of a file is needed.")
    if path.is_file() and any(path.samefile(given) for given in inputs if given.exists()):
        raise ValueError(f"--out {path}: this file is what is read; give another name.")


def request_of(kind: type[Any], given: argparse.Namespace) -> Any:
    """Return a request whose fields are the options of the same names.

    An option that is None leaves the field's default.
    """
    chosen = {field.name: getattr(given, field.name, None) for field in fields(kind)}
    return kind(**{name: value for name, value in chosen.items() if value is not None})


def add_no_progress(command: argparse._ActionsContainer) -> None:
    """Add the option for a run without bars."""
    command.add_argument(
        "--no-progress", dest="progress", action="store_false", help="show no progress bars"
    )


# Printing


def say(text: str) -> None:
    """Print a line of what a command is for."""
    print(text)  # noqa: T201


def warn(text: str) -> None:
    """Print a line beside that, on standard error."""
    print(text, file=sys.stderr)  # noqa: T201


def say_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Print names with their values, a pair a line, in two columns."""
    width = max(len(name) for name, _ in facts) + 2
    for name, value in facts:
        say(f"{name:<{width}}{value}")


def first_of(values: Sequence[Any]) -> str:
    """Return the first values of a list, for a line."""
    shown = ", ".join(str(value) for value in values[:SHOWN_VALUES])
    return shown + (", ..." if len(values) > SHOWN_VALUES else "")


def model_in_words(estimator: Any) -> str:
    """Return the kind of a fitted model in one line."""
    penalty = "no penalty"
    if estimator.penalty is not None:
        alpha = estimator.alpha_ if hasattr(estimator, "alpha_") else estimator.alpha
        penalty = f"{estimator.penalty} penalty, alpha {alpha:g}"
    intercept = "with" if estimator.fit_intercept else "without"
    return f"{type(estimator).__name__}, {estimator.loss}, {penalty}, {intercept} intercept"


def quality_facts(estimator: Any) -> list[tuple[str, str]]:
    """Return what is known of how well a model was fitted."""
    objective, gap = float(estimator.objective_), float(estimator.gap_)
    share = f" ({gap / objective:.1e} of the objective)" if objective > 0.0 else ""
    return [
        ("objective", f"{objective:.8g}" if math.isfinite(objective) else _NOT_KNOWN),
        ("certified gap", f"{gap:.2e}{share}" if math.isfinite(gap) else _NOT_KNOWN),
        ("iterations", str(estimator.n_iter_)),
    ]


def in_lines(listed: Iterable[str]) -> str:
    """Return names for the end of a command's help."""
    indent = " " * 10
    return textwrap.fill(", ".join(listed), 98, initial_indent=indent, subsequent_indent=indent)
