"""The command `accelegrad inspect`: what a model file holds."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

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
    command.add_argument(
        "--top",
        type=int,
        default=common.SHOWN_VALUES,
        metavar="N",
        help="how many coefficients are shown (%(default)s)",
    )


def run_inspect(given: argparse.Namespace) -> int:
    """Do what the options ask for."""
    from accelegrad.sklearn.model_file import FORMAT, read_model
    from accelegrad.sklearn.summary import model_in_words, quality_facts

    saved = read_model(given.model)
    estimator = saved.estimator
    coefficients = estimator.coef_
    if not sp.issparse(coefficients):
        coefficients = np.atleast_2d(coefficients)
    # Sparse, because a sparse model may have more columns than memory has room for.
    coefficients = sp.coo_array(coefficients)
    rows, columns = coefficients.shape
    lines = [
        ("file", f"{given.model}: format {FORMAT.version}, written by accelegrad {saved.version}"),
        ("model", model_in_words(estimator)),
        ("features", str(estimator.n_features_in_) + (", named" if saved.feature_names else "")),
    ]
    if saved.target is not None:
        named = isinstance(saved.target, str)
        lines.append(("target", str(saved.target) if named else f"column {saved.target}"))
    used = int(coefficients.count_nonzero())
    lines += [
        *common.class_facts(estimator),
        *quality_facts(estimator),
        ("converged", f"{'yes' if estimator.converged_ else 'no'} (tol {estimator.tol})"),
        (
            "intercept",
            common.first_of([f"{value:.6g}" for value in np.ravel(estimator.intercept_)]),
        ),
        (
            "coefficients",
            f"{rows} x {columns}, {coefficients.dtype}, {used} not zero "
            f"({100 * used / max(1, rows * columns):.1f} %)",
        ),
    ]
    common.say_facts(lines)
    _tell_largest(coefficients, saved, given.top)
    return 0


def _tell_largest(coefficients: Any, saved: SavedModel, count: int) -> None:
    """Print the coefficients that are largest in absolute value, with what they belong to."""
    order = np.argsort(-np.abs(coefficients.data), kind="stable")[: max(0, count)]
    from accelegrad.sklearn.summary import labels_in_words

    lines = []
    classes = labels_in_words(getattr(saved.estimator, "classes_", []))
    for row, column, value in zip(
        *(part[order] for part in (coefficients.row, coefficients.col, coefficients.data)),
        strict=True,
    ):
        name = _feature_name(saved, int(column))
        if coefficients.shape[0] > 1:
            name = f"{classes[row] if classes else f'output {row}'}: {name}"
        lines.append((f"  {name}", f"{value:+.6g}"))
    if lines:
        common.say("largest coefficients")
        common.say_facts(lines)


def _feature_name(saved: SavedModel, place: int) -> str:
    """Return a feature's name, or its number as the data file counts."""
    if saved.feature_names:
        return saved.feature_names[place]
    if saved.first_feature:
        return f"index {place + saved.first_feature}"
    if isinstance(saved.target, int):  # columns count from 0, the target's too
        return f"column {place + (place >= saved.target)}"
    return f"column {place} of X"
