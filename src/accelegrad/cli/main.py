"""The command `accelegrad`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from accelegrad import __version__
from accelegrad.cli.bench import INTERRUPTED, add_bench
from accelegrad.cli.compare import add_compare
from accelegrad.cli.fit import add_fit, add_inspect, add_predict
from accelegrad.cli.warmup import add_warmup


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0, 1 for an error, 2 for wrong usage."""
    given = _parser().parse_args(arguments)
    try:
        result: int = given.run(given)
    except (ValueError, TypeError, OSError, ImportError, RuntimeError) as error:
        print(f"accelegrad {given.command}: {error}", file=sys.stderr)  # noqa: T201
        return 1
    except KeyboardInterrupt:
        print(  # noqa: T201
            f"\naccelegrad {given.command}: interrupted. What is done is kept: the same command "
            "goes on.",
            file=sys.stderr,
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
    _add_reproduce(commands)
    add_compare(commands)
    add_warmup(commands)
    add_bench(commands)
    return parser


def _add_reproduce(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "reproduce",
        help="run the paper's experiments and write a report",
        description="Run the experiments of 'Online Adaptive Methods, Universality and "
        "Acceleration' and write a report: index.html, with figures/ and traces/ beside it. "
        "Results that are there already are used again unless their parameters changed, so a "
        "stopped run goes on where it was.",
        epilog="Example: accelegrad reproduce --quick --jobs 2 --out report",
    )
    command.add_argument("names", nargs="*", metavar="NAME", help="experiments (default: all)")
    command.add_argument("--list", action="store_true", help="list the experiments and stop")
    command.add_argument(
        "--out", type=Path, default=Path("report"), metavar="DIR", help="folder (default: report)"
    )
    command.add_argument(
        "--quick", action="store_true", help="reduced size: minutes instead of an hour"
    )
    command.add_argument(
        "--seeds", type=_positive, default=0, metavar="K", help="seeds (default: 1 quick, 3 full)"
    )
    command.add_argument(
        "--jobs",
        type=_positive,
        default=os.cpu_count() or 1,
        metavar="N",
        help="processes (default: one a core); the numbers do not depend on it",
    )
    command.add_argument(
        "--data",
        type=Path,
        metavar="FILE",
        help="a LIBSVM file (.bz2, .gz, .xz too) for the large-batch experiment; by default "
        "rcv1_subsets_binary in the folder that ACCELEGRAD_DATA names, else generated data",
    )
    command.add_argument("--no-progress", action="store_true", help="show no progress bars")
    command.set_defaults(run=_reproduce)


def _positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number >= 1, not {text!r}")
    return number


def _reproduce(given: argparse.Namespace) -> int:
    from accelegrad.lab.paper.reproduce import EXPERIMENTS, Request, reproduce

    if given.list:
        for name, experiment in EXPERIMENTS.items():
            print(f"{name:<28}{experiment.title}")  # noqa: T201
        return 0
    request = Request(
        out=given.out,
        names=given.names,
        quick=given.quick,
        seeds=given.seeds,
        jobs=given.jobs,
        data=given.data,
        progress=not given.no_progress,
    )
    page = reproduce(request)
    print(f"The report is {page.resolve()}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
