"""The command `accelegrad warmup`: compile all kernels ahead."""

from __future__ import annotations

import argparse

from accelegrad.cli import common


def add_warmup(commands: common.Commands[argparse.ArgumentParser]) -> None:
    """Add the command to the parser's commands."""
    command = common.add_command(
        commands,
        "warmup",
        _warmup,
        help="compile everything ahead",
        description="Compile all kernels for large data and keep them on disk: beside the package, "
        "or in the user's cache folder where that is read-only (NUMBA_CACHE_DIR overrides both). "
        "What is there already is not compiled again. Without this a kernel is compiled when it is "
        "first needed, which takes some seconds, once on a machine.",
        epilog="Example: accelegrad warmup",
    )
    command.add_argument(
        "--list", action="store_true", help="list what would be compiled, and stop"
    )
    command.add_argument("--quiet", action="store_true", help="show nothing")


def _warmup(given: argparse.Namespace) -> int:
    from accelegrad.kernels import compile as compiling

    if given.list:
        for name in compiling.pending():
            common.say(name)
        return 0
    compiled: list[str] = []

    def tell(step: compiling.Progress) -> None:
        if step.compiled:
            compiled.append(step.name)
        if not given.quiet:
            how = "compiled" if step.compiled else "loaded"
            common.warn(f"[{step.done}/{step.total}] {step.name}: {how} in {step.seconds:.1f} s")

    seconds = compiling.warmup(tell)
    if not given.quiet:
        common.say(f"Compiled: {len(compiled)}. All together took {seconds:.1f} s.")
    return 0
