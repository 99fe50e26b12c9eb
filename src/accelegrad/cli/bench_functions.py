"""`accelegrad bench --functions`: its options, and what they ask for."""

from __future__ import annotations

import argparse

from accelegrad.cli import common

METHODS_IN_WORDS = """\
methods:  (--functions) auto, accelegrad, accelegrad-restarted, bundle, lbfgs-b, bfgs, trust-constr,
          slsqp, nsopy, ac-fgm, uni-fast-sgd, ad-gd, universal-fast, cvxpy
"""

OF_SETS = {"sets": "--sets", "losses": "--losses", "strengths": "--l2", "solvers": "--solvers"}
OF_FUNCTIONS = {
    "methods": "--methods",
    "only": "--only",
    "max_calls": "--max-calls",
    "minima": "--minima",
}
"""The options that are for one of the two benchmarks alone, by the names of their values."""


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
    group.add_argument("--only", type=common.names, metavar="A,B", help="functions by name (all)")
    group.add_argument(
        "--max-calls", type=int, metavar="N", help="most calls of one run (5000; quick: 500)"
    )
    group.add_argument(
        "--minima",
        action="store_true",
        help="find the functions' minima anew by other solvers, and nothing else",
    )


def wants_functions(given: argparse.Namespace) -> bool:
    """Tell which benchmark is asked for, and refuse options of the other."""
    strange, words = OF_FUNCTIONS, "needs --functions"
    if given.functions:
        strange, words = OF_SETS, "does not go with --functions"
    for value, option in strange.items():
        if getattr(given, value):
            raise ValueError(f"{option} {words}.")
    return bool(given.functions)


def run_functions(given: argparse.Namespace) -> int:
    """Compare methods on functions, or find the functions' minima anew."""
    from accelegrad.lab.functions.comparison import (
        FunctionsRequest,
        compare_functions,
        renew_minima,
    )

    given.out = given.out / "functions"
    request = common.request_of(FunctionsRequest, given)
    if given.minima:
        for line in renew_minima(request):
            common.say(line)
        return 0
    report = compare_functions(request)
    if report.interrupted:
        common.say("Interrupted: the report shows what was done; --resume goes on.")
    common.say(f"The report is {report.page.resolve()}")
    return common.INTERRUPTED if report.interrupted else 0
