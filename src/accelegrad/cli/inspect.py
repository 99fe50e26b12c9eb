"""The command `accelegrad inspect`: show a model file."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from accelegrad.cli import common

if TYPE_CHECKING:
    from accelegrad.sklearn.model_file import SavedModel


def add_inspect(commands: common.Commands[argparse.ArgumentParser]) -> None:
    """Add the command to the parser's commands."""
    command = common.add_command(
        commands,
        "inspect",
        run_inspect,
        help="show what a model file holds",
        description="Show loss, penalty, size, classes, certified gap, sparsity and the largest "
        "coefficients of a model file.",
        epilog="Example: accelegrad inspect model.agm",
    )
    common.add_files(command, "model")
    common.add_number(command, "--top", 10, "how many features are shown")


def run_inspect(given: argparse.Namespace) -> int:
    """Run the command."""
    from accelegrad.sklearn.model_file import FORMAT, read_model
    from accelegrad.sklearn.summary import Summary

    saved = read_model(given.model)
    target = saved.target if isinstance(saved.target, str | None) else f"column {saved.target}"
    common.say_facts(
        [
            ("file", f"{given.model}: format {FORMAT.version}, by accelegrad {saved.version}"),
            *([] if target is None else [("target", target)]),
        ]
    )
    summary = Summary(saved.estimator, given.top, lambda place: _feature_name(saved, place))
    common.say(str(summary))
    return 0


def _feature_name(saved: SavedModel, place: int) -> str:
    """Return a feature's name, or its number as the data file counts."""
    if saved.feature_names:
        return common.printable(saved.feature_names[place])
    if saved.first_feature:
        return f"index {place + saved.first_feature}"
    if isinstance(saved.target, int):  # columns count from 0, including the target
        return f"column {place + (place >= saved.target)}"
    return f"column {place} of X"
