"""The command `accelegrad`."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from importlib.metadata import EntryPoints, entry_points

from accelegrad import __version__
from accelegrad.cli.common import FAILED, INTERRUPTED, warn
from accelegrad.cli.fit import add_fit
from accelegrad.cli.predict import add_inspect, add_predict
from accelegrad.cli.warmup import add_warmup

GROUP = "accelegrad.commands"
"""The entry-point group of functions that add a command: each takes the parser's commands."""

LAB_COMMANDS = {
    "reproduce": "run the paper's experiments and write a report",
    "compare": "compare methods on a data file and write a report",
    "bench": "time the default against other packages' solvers and write a report",
}
"""The commands of accelegrad-lab, listed even if it is not installed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0, 1 for an error, 2 for wrong usage."""
    arguments = sys.argv[1:] if arguments is None else arguments
    installed = entry_points(group=GROUP)
    parser = _parser(installed)
    if not arguments:
        parser.print_help(sys.stderr)
        return 2  # as argparse does for wrong usage
    if arguments[0] in set(LAB_COMMANDS) - installed.names:
        warn(
            f"accelegrad {arguments[0]}: this command is part of accelegrad-lab, which is not "
            "installed; in a clone of the repository: pip install ./lab"
        )
        return FAILED
    given = parser.parse_args(arguments)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = lambda message, *_, **__: warn(
                f"accelegrad {given.command}: warning: {message}"
            )
            result: int = given.run(given)
    except (ValueError, TypeError, OSError, ImportError, RuntimeError, MemoryError) as error:
        words = "there is not enough memory. " if isinstance(error, MemoryError) else ""
        warn(f"accelegrad {given.command}: {words}{error}".rstrip())
        return FAILED
    except KeyboardInterrupt:
        warn(f"\naccelegrad {given.command}: interrupted; {given.interrupted}.")
        return INTERRUPTED
    return result


def _parser(installed: EntryPoints) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="accelegrad",
        description="Universal, accelerated, tuning-free convex minimisation with a certified gap.",
    )
    parser.add_argument("--version", action="version", version=f"accelegrad {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add_fit(commands)
    add_predict(commands)
    add_inspect(commands)
    add_warmup(commands)
    for command in installed:
        command.load()(commands)
    for name, words in LAB_COMMANDS.items():
        if name not in installed.names:
            commands.add_parser(name, help=f"{words} (needs accelegrad-lab)", add_help=False)
    return parser
