"""`accelegrad bench --functions`: its options, and what they ask for."""

from __future__ import annotations

import argparse

from accelegrad.cli import common
from accelegrad_lab.commands import options

METHODS_IN_WORDS = """\
methods:  (--functions) auto, accelegrad, accelegrad-restarted, bundle, lbfgs-b, bfgs, trust-constr,
          slsqp, nsopy, ac-fgm, uni-fast-sgd, ad-gd, universal-fast, cvxpy
"""


def add_functions(command: argparse.ArgumentParser) -> None:
    """Add the options to those of `accelegrad bench`."""
    group = command.add_argument_group("convex functions instead of data sets")
    group.add_argument(
        "--functions",
        action="store_true",
        help="calls and seconds of methods on convex functions with exact gradients; the report "
        "goes to the folder functions in --out (--quick: twelve functions, about a minute)",
    )
    group.add_argument(
        "--methods", type=common.names, metavar="A,B", help="methods, see below (all)"
    )
    group.add_argument(
        "--only",
        type=common.names,
        metavar="A,B",
        help="functions, or everyday fits, by name (all)",
    )
    group.add_argument(
        "--max-calls", type=int, metavar="N", help="most calls of one run (5000; quick: 500)"
    )
    group.add_argument(
        "--minima",
        action="store_true",
        help="find the functions' minima anew by other solvers, and nothing else",
    )


def run_functions(given: argparse.Namespace) -> int:
    """Compare methods on functions, or find the functions' minima anew."""
    from accelegrad_lab.functions.comparison import (
        FunctionsRequest,
        compare_functions,
        renew_minima,
    )

    given.out = given.out / "functions"
    request = options.request_of(FunctionsRequest, given)
    if given.minima:
        for line in renew_minima(request):
            common.say(line)
        return 0
    return options.say_report(compare_functions(request))
