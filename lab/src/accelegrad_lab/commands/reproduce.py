"""The command `accelegrad reproduce`: the paper's experiments."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from accelegrad.cli import common
from accelegrad_lab.commands import add_flags, add_options, add_out_folder, request_of


def add_reproduce(commands: common.Commands[argparse.ArgumentParser]) -> None:
    """Add the command to the parser's commands."""
    command = common.add_command(
        commands,
        "reproduce",
        run_reproduce,
        help="run the paper's experiments and write a report",
        description="Run the experiments of 'Online Adaptive Methods, Universality and "
        "Acceleration' and write a report: index.html, with figures/ and traces/ beside it. "
        "Results that are there already are used again unless their parameters changed, so a "
        "stopped run goes on where it was.",
        epilog="Example: accelegrad reproduce --quick --jobs 2 --out report",
    )
    command.add_argument("names", nargs="*", metavar="NAME", help="experiments (default: all)")
    add_flags(command, list="list the experiments and stop")
    add_out_folder(command, "report")
    add_flags(command, quick="reduced size: minutes instead of an hour")
    jobs = "processes (default: one per core); the numbers do not depend on it"
    data = "a LIBSVM file (.bz2, .gz, .xz too) for the large-batch experiment; by default "
    data += "rcv1_subsets_binary in the folder that ACCELEGRAD_DATA names, else generated data"
    add_options(
        command,
        ("--seeds", int, "K", "seeds (default: 1 quick, 3 full)"),
        ("--jobs", int, "N", jobs),
        ("--data", Path, "FILE", data),
    )
    command.set_defaults(jobs=os.cpu_count() or 1)
    common.add_no_progress(command)


def run_reproduce(given: argparse.Namespace) -> int:
    """Do what the options ask for."""
    from accelegrad_lab.paper.reproduce import EXPERIMENTS, Request, reproduce

    if given.list:
        for name, experiment in EXPERIMENTS.items():
            common.say(f"{name:<28}{experiment.title}")
        return 0
    page = reproduce(request_of(Request, given))
    common.say(f"The report is {page.resolve()}")
    return 0
