"""The command `accelegrad compare`: its options, and what they ask for."""

from __future__ import annotations

import argparse

from accelegrad.cli import common
from accelegrad.models.losses import LOSSES
from accelegrad_lab.commands import add_options, add_out_folder, request_of

EPILOG = f"""\
losses for two classes:
{common.in_lines(name for name, entry in LOSSES.items() if entry.classification)}
losses for numbers:
{common.in_lines(name for name, entry in LOSSES.items() if not entry.classification)}
methods:  auto (what minimize takes by default), accelegrad-newton, dual-ascent,
          interior-point (losses with one kink), bundle, accelegrad, adagrad, universal,
          universal-dual, universal-fast
peers:    sklearn (all of scikit-learn's solvers with the same objective), or some of
          lbfgs, liblinear, sag, saga, sgd, cholesky, lsqr, quantile

examples:
  accelegrad compare a9a.bz2 --peers sklearn
  accelegrad compare a9a.bz2 --loss hinge --batch-size 64 --seeds 3 --peers liblinear,sgd
  accelegrad compare houses.csv --loss absolute --target price --l2 0.001
"""


def add_compare(commands: common.Commands[argparse.ArgumentParser]) -> None:
    """Add the command to the parser's commands."""
    command = common.add_command(
        commands,
        "compare",
        run_compare,
        help="compare methods on a data file and write a report",
        description="Compare methods on a linear model (without an intercept) of a data "
        "file, and write a report: index.html, with figures/ and "
        "curves.csv beside it. The minimum comes from an independent solver. Results that are "
        "there already are used again unless their parameters changed.",
        epilog=EPILOG,
    )
    common.add_files(command, "data")
    problem = command.add_argument_group("the problem")
    add_options(
        problem,
        ("--loss", str, "NAME", "see below (default: logistic)"),
        ("--l2", float, "X", "weight of the l2 term (default: 1/rows)"),
    )
    common.add_reading(problem, learning=True)
    # --epsilon is that of the universal methods.
    common.add_loss_parameters(problem, lambda entry: entry.name, epsilon="tube")
    diameter = "the D of accelegrad and adagrad: a ball of this diameter around zero has to hold "
    diameter += "the minimiser (default: automatic; adagrad is DoG then)"
    epsilon = "the accuracy the universal methods aim for, relative to the minimum (0.001)"
    add_options(
        command.add_argument_group("the runs"),
        ("--methods", _names, "A,B", "methods, see below (default: auto,accelegrad,adagrad)"),
        ("--peers", _names, "A,B", "solvers of scikit-learn, see below"),
        ("--batch-size", int, "B", "rows per gradient of accelegrad and adagrad (default: all)"),
        ("--epochs", int, "E", "data passes of each method (100)"),
        ("--diameter", float, "D", diameter),
        ("--epsilon", float, "X", epsilon),
        ("--seeds", int, "K", "orders of rows, with --batch-size (1)"),
    )
    add_out_folder(command, "comparison")
    common.add_no_progress(command)


def _names(text: str) -> tuple[str, ...]:
    return common.names(text.lower())


def run_compare(given: argparse.Namespace) -> int:
    """Do what the options ask for."""
    from accelegrad_lab.compare.compare import CompareRequest, compare

    given.reading = common.reading(given)
    page = compare(request_of(CompareRequest, given))
    common.say(f"The report is {page.resolve()}")
    return 0
