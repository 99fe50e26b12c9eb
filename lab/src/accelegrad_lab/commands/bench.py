"""The command `accelegrad bench`: its options, and what they ask for."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from accelegrad.cli import common
from accelegrad_lab.commands import bench_everyday, bench_functions, options

EPILOG = f"""\
losses:   logistic, hinge, squared_hinge (two classes); squared, absolute, quantile, huber (numbers)
solvers:  accelegrad (always), accelegrad.sklearn, lbfgs, newton-cg, sag, saga, liblinear, sgd,
          sgd-tuned, ridge, ridge-lsqr, quantile, quantreg, highs-dual, huber, lbfgs-b,
          skglm
{bench_functions.METHODS_IN_WORDS}
examples:
  accelegrad bench --quick
  accelegrad bench --sets a9a,cadata --losses logistic,absolute --out bench-some
  accelegrad bench --resume
  accelegrad bench --functions --methods auto,lbfgs-b --only max-linear,lasso
  accelegrad bench --everyday --only text,hinge
"""


def add_bench(commands: common.Commands[argparse.ArgumentParser]) -> None:
    """Add the command to the parser's commands."""
    command = common.add_command(
        commands,
        "bench",
        run_bench,
        help="time the default against other packages' solvers and write a report",
        description="Run the benchmark suite: data sets times losses times strengths of l2, each "
        "solver on the same objective, one run at a time. The report is index.html, "
        "with table.md, table.csv and figures/ beside it; every run is kept in results.jsonl. The "
        "sets are those of the folder that ACCELEGRAD_DATA names, or generated ones. Leave the "
        "machine alone meanwhile: there is no --jobs.",
        epilog=EPILOG,
    )
    command.add_argument(
        "--quick", action="store_true", help="small generated sets, within two minutes"
    )
    command.add_argument(
        "--sets", type=common.names, default=(), metavar="A,B", help="data sets (all)"
    )
    command.add_argument(
        "--losses", type=common.names, metavar="A,B", help="losses, see below (all)"
    )
    command.add_argument(
        "--l2",
        dest="strengths",
        type=_numbers,
        metavar="A,B",
        help="strengths, times 1/rows (1,0.01,0; 0 is for absolute and quantile alone)",
    )
    command.add_argument(
        "--solvers",
        type=common.names,
        metavar="A,B",
        help="solvers, see below (all; quick: no skglm)",
    )
    command.add_argument(
        "--time-limit", type=float, metavar="S", help="most seconds of one run (4; quick: 0.5)"
    )
    command.add_argument(
        "--rows",
        type=int,
        metavar="N",
        help="take a random sample of this many rows of larger sets (100000; 0: all rows)",
    )
    command.add_argument(
        "--relative",
        default="start",
        metavar="WHAT",
        help="what accuracies are relative to: start, P(0) - P* (default), or minimum, P*",
    )
    options.add_out_folder(command, "bench")
    command.add_argument("--resume", action="store_true", help="go on with the results in --out")
    common.add_no_progress(command)
    bench_functions.add_functions(command)
    bench_everyday.add_everyday(command)


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in common.names(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be numbers between commas, not {text!r}") from None


OF_SETS = {"sets": "--sets", "losses": "--losses", "strengths": "--l2", "solvers": "--solvers"}
OF_FUNCTIONS = {"methods": "--methods", "max_calls": "--max-calls", "minima": "--minima"}
ONLY = {"only": "--only"}


def run_bench(given: argparse.Namespace) -> int:
    """Do what the options ask for."""
    if given.functions and given.everyday:
        raise ValueError("--functions does not go with --everyday.")
    if given.functions:
        _refuse(given, OF_SETS, "does not go with --functions")
        return bench_functions.run_functions(given)
    if given.everyday:
        _refuse(given, OF_SETS, "does not go with --everyday")
        _refuse(given, OF_FUNCTIONS, "needs --functions")
        return bench_everyday.run_everyday(given)
    _refuse(given, OF_FUNCTIONS, "needs --functions")
    _refuse(given, ONLY, "needs --functions or --everyday")
    from accelegrad_lab.bench.bench import BenchRequest, bench

    return options.say_report(bench(options.request_of(BenchRequest, given)))


def _refuse(given: argparse.Namespace, options: Mapping[str, str], words: str) -> None:
    """Refuse options of another benchmark; they are given by the names of their values."""
    for value, option in options.items():
        if getattr(given, value):
            raise ValueError(f"{option} {words}.")
