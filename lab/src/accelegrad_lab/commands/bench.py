"""The command `accelegrad bench`: its options, and what they ask for."""

from __future__ import annotations

import argparse

from accelegrad.cli import common
from accelegrad_lab.commands import Request, add_flags, add_options, add_out_folder, request_of

EPILOG = """\
examples:
  accelegrad bench --quick
  accelegrad bench --only a9a,cadata,logistic,absolute --out bench-some
  accelegrad bench --resume
  accelegrad bench --functions --solvers auto,lbfgs-b --only max-linear,lasso
  accelegrad bench --everyday --only text,hinge
  accelegrad bench --shapes 60 --seed 1
"""


def add_bench(commands: common.Commands[argparse.ArgumentParser]) -> None:
    """Add the command to the parser's commands."""
    command = common.add_command(
        commands,
        "bench",
        run_bench,
        help="time the default against other packages' solvers and write a report",
        description="Time solvers of the same objective (data sets times losses times strengths of "
        "l2), or with --everyday estimators with all their defaults, or with --functions methods "
        "for convex functions. The report is index.html, with table.md, table.csv and figures/ "
        "beside it; every run is kept in results.jsonl. Data sets are those of the folder that "
        "ACCELEGRAD_DATA names, scikit-learn's and generated ones. Leave the machine alone "
        "meanwhile: runs go one after the other.",
        epilog=EPILOG,
    )
    add_flags(
        command,
        everyday="estimators with all their defaults beside those of other packages; the report "
        "goes to the folder everyday in --out",
        functions="calls and seconds of methods on convex functions with exact gradients; the "
        "report goes to the folder functions in --out",
        quick="small cases that need no files, in a minute or two",
    )
    only = "groups, data sets (or functions) and goals by name, as the report shows them (all)"
    add_options(
        command,
        ("--shapes", int, "N", "estimators with all their defaults on N fits of random shapes; the "
         "report goes to the folder shapes in --out"),
        ("--seed", int, "S", "of the random shapes (0)"),
        ("--only", common.names, "A,B", only),
        ("--solvers", common.names, "A,B", "others to time (all)"),
        ("--time-limit", float, "S", "most seconds of one run (4, 60 or 5)"),
    )  # fmt: skip
    add_flags(command, minima="with --functions: find the functions' minima anew, and nothing else")
    add_out_folder(command, "bench")
    add_flags(command, resume="go on with the results in --out")
    common.add_no_progress(command)


def run_bench(given: argparse.Namespace) -> int:
    """Do what the options ask for."""
    from accelegrad_lab.bench.harness import BenchRequest, bench
    from accelegrad_lab.peers import EVERYDAY, FUNCTIONS, PEERS, SHAPES, SOLVERS

    suites = [name for name in (FUNCTIONS, EVERYDAY, SHAPES) if getattr(given, name)]
    if len(suites) > 1:
        raise ValueError(f"--{suites[0]} does not go with --{suites[1]}.")
    if given.minima and not given.functions:
        raise ValueError("--minima needs --functions.")
    given.suite = suites[0] if suites else SOLVERS
    if suites:
        given.out = given.out / given.suite
    request = request_of(BenchRequest, given)
    if given.minima:
        return _renew_minima(request)
    absent = {peer.needs for peer in PEERS.values() if given.suite in peer.suites and peer.missing}
    if absent:
        common.say(f"Left out, because not installed: {', '.join(sorted(absent))}")
    page, interrupted = bench(request)
    if interrupted:
        common.say("Interrupted: the report shows what was done; --resume goes on.")
    common.say(f"The report is {page.resolve()}")
    return common.INTERRUPTED if interrupted else 0


def _renew_minima(request: Request) -> int:
    """Find the minima of the functions anew; say each."""
    from accelegrad.extras import require
    from accelegrad_lab.bench.cases import chosen_cases
    from accelegrad_lab.engine.worker import one_thread
    from accelegrad_lab.functions.contest import write_minima
    from accelegrad_lab.functions.suite import SUITE

    require("--minima", "bench", "cvxpy", "clarabel", distribution="accelegrad-lab")
    with one_thread():
        for case in chosen_cases(request):
            one = write_minima([SUITE[case.data]])[case.data]
            common.say(f"{case.data}: {one.value:.15g}, to {one.error:.0e} ({one.ways})")
    return 0
