"""The command `accelegrad bench`: its options, and what they ask for."""

from __future__ import annotations

import argparse
from pathlib import Path

from accelegrad.cli.common import INTERRUPTED, Commands, add_no_progress, names, request_of, say

EPILOG = """\
losses:   logistic, hinge, squared_hinge (two classes); squared, absolute, quantile, huber (numbers)
solvers:  accelegrad (always), accelegrad.sklearn, lbfgs, newton-cg, sag, saga, liblinear, sgd,
          sgd-tuned, ridge, ridge-lsqr, quantile, quantreg, highs-dual, huber, lbfgs-b,
          skglm

examples:
  accelegrad bench --quick
  accelegrad bench --sets a9a,cadata --losses logistic,absolute --out bench-some
  accelegrad bench --resume
"""


def add_bench(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command to the parser's commands."""
    command = commands.add_parser(
        "bench",
        help="time the default against other packages' solvers and write a report",
        description="Run the benchmark suite: data sets times losses times strengths of l2, each "
        "solver on the same objective and one thread, one run at a time. The report is index.html, "
        "with table.md, table.csv and figures/ beside it; every run is kept in results.jsonl. The "
        "sets are those of the folder that ACCELEGRAD_DATA names, or generated ones. Leave the "
        "machine alone meanwhile: there is no --jobs.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument(
        "--quick", action="store_true", help="small generated sets, within two minutes"
    )
    command.add_argument("--sets", type=names, default=(), metavar="A,B", help="data sets (all)")
    command.add_argument("--losses", type=names, metavar="A,B", help="losses, see below (all)")
    command.add_argument(
        "--l2",
        dest="strengths",
        type=_numbers,
        metavar="A,B",
        help="strengths, times 1/rows (1,0.01,0; 0 is for absolute and quantile alone)",
    )
    command.add_argument(
        "--solvers", type=names, metavar="A,B", help="solvers, see below (all; quick: no skglm)"
    )
    command.add_argument(
        "--time-limit", type=float, metavar="S", help="most seconds of one run (4; quick: 0.5)"
    )
    command.add_argument(
        "--rows",
        type=int,
        metavar="N",
        help="take a random sample of so many rows of larger sets (100000; 0: all rows)",
    )
    command.add_argument(
        "--relative",
        default="start",
        metavar="WHAT",
        help="what accuracies are relative to: start, P(0) - P* (default), or minimum, P*",
    )
    command.add_argument(
        "--out", type=Path, default=Path("bench"), metavar="DIR", help="folder (default: bench)"
    )
    command.add_argument("--resume", action="store_true", help="go on with the results in --out")
    add_no_progress(command)
    command.set_defaults(run=run_bench)


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in names(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be numbers between commas, not {text!r}") from None


def run_bench(given: argparse.Namespace) -> int:
    """Do what the options ask for."""
    from accelegrad.lab.bench.bench import BenchRequest, bench

    report = bench(request_of(BenchRequest, given))
    if report.interrupted:
        say("Interrupted: the report shows what was done; --resume goes on.")
    say(f"The report is {report.page.resolve()}")
    return INTERRUPTED if report.interrupted else 0
