"""The command `accelegrad`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from accelegrad import __version__
from accelegrad.experiments.demo import demo


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="accelegrad", description=__doc__)
    parser.add_argument("--version", action="version", version=f"accelegrad {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("demo", help="the paper's regression problem, with certified gaps")
    parser.parse_args(arguments)
    sys.stdout.write(demo() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
