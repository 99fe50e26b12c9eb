"""`accelegrad bench --everyday`: its options, and what they ask for."""

from __future__ import annotations

import argparse

from accelegrad_lab.commands import options


def add_everyday(command: argparse.ArgumentParser) -> None:
    """Add the options to those of `accelegrad bench`."""
    group = command.add_argument_group("everyday fits instead of solvers of one objective")
    group.add_argument(
        "--everyday",
        action="store_true",
        help="estimators with all their defaults beside scikit-learn's, celer's and skglm's with "
        "theirs: intercepts, penalties, many classes, cross-validation; --only takes groups "
        "(text, rows, sparse, l1, wide, numbers, classes, cv, small), sets and goals (hinge, "
        'ridge, "lasso 0.1", ...); the report goes to the folder everyday in --out (--quick: small '
        "sets that are everywhere, about a minute)",
    )
    group.add_argument(
        "--no-cold",
        dest="cold",
        action="store_false",
        help="leave out first fits in new processes, which compile",
    )


def run_everyday(given: argparse.Namespace) -> int:
    """Time everyday fits."""
    from accelegrad_lab.everyday.everyday import EverydayRequest, bench_everyday

    given.out = given.out / "everyday"
    return options.say_report(bench_everyday(options.request_of(EverydayRequest, given)))
