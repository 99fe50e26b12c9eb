"""The command `accelegrad`."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence

from accelegrad import __version__
from accelegrad.cli.bench import add_bench
from accelegrad.cli.common import FAILED, INTERRUPTED, WRONG_USAGE, warn
from accelegrad.cli.compare import add_compare
from accelegrad.cli.fit import add_fit
from accelegrad.cli.inspect import add_inspect
from accelegrad.cli.predict import add_predict
from accelegrad.cli.reproduce import add_reproduce
from accelegrad.cli.warmup import add_warmup


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0, 1 for an error, 2 for wrong usage."""
    parser = _parser()
    if not (sys.argv[1:] if arguments is None else arguments):
        parser.print_help(sys.stderr)
        return WRONG_USAGE
    given = parser.parse_args(arguments)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = lambda message, *_, **__: warn(
                f"accelegrad {given.command}: warning: {message}"
            )
            result: int = given.run(given)
    except (ValueError, TypeError, OSError, ImportError, RuntimeError) as error:
        warn(f"accelegrad {given.command}: {error}")
        return FAILED
    except MemoryError as error:
        warn(f"accelegrad {given.command}: there is not enough memory. {error}".rstrip())
        return FAILED
    except KeyboardInterrupt:
        warn(
            f"\naccelegrad {given.command}: interrupted. What is done is kept: the same command "
            "goes on."
        )
        return INTERRUPTED
    return result


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="accelegrad",
        description="Universal, accelerated, tuning-free convex minimisation with a certified gap.",
    )
    parser.add_argument("--version", action="version", version=f"accelegrad {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add_fit(commands)
    add_predict(commands)
    add_inspect(commands)
    add_reproduce(commands)
    add_compare(commands)
    add_warmup(commands)
    add_bench(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
