"""The commands `accelegrad predict` and `accelegrad inspect`: apply a model file, and show it."""

from __future__ import annotations

import argparse
import codecs
import csv
import os
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from accelegrad.cli import common
from accelegrad.files import whole_file

if TYPE_CHECKING:
    from accelegrad.files.tables import TableFile
    from accelegrad.sklearn.model_file import SavedModel


def add_predict(commands: common.Commands[argparse.ArgumentParser]) -> None:
    """Add the command to the parser's commands."""
    command = common.add_command(
        commands,
        "predict",
        _predict,
        help="predict with a model file",
        description="Predict for the rows of a file, chunk by chunk, and write CSV text with a "
        "header. Columns of a CSV or parquet file are found by the names the model knows, if it "
        "knows some; the target may be absent. A value of a text column that the model does not "
        "know belongs to none of its categories, with a warning.",
        interrupted="the predictions are not complete",
        epilog="Example: accelegrad predict model.agm new.csv --proba --out predictions.csv",
    )
    common.add_files(command, "model", "data")
    common.add_out(command, "write here (default: standard output)")
    add = partial(command.add_argument, action="store_true")
    add("--proba", help="the probability of each class, each in a column")
    words = "print the accuracy (or R^2 and the mean absolute error) instead; the predictions are "
    add("--score", help=f"{words}written with --out only")
    words = "take the columns of a CSV file without a header in the order of the model's features"
    add("--by-position", help=words)
    common.add_reading(command, learning=False)


def _predict(given: argparse.Namespace) -> int:
    from accelegrad.files.formats import open_table
    from accelegrad.files.tables import Column, Targets, Wanted
    from accelegrad.sklearn.model_file import read_model
    from accelegrad.sklearn.summary import labels_in_words

    if given.out is not None:
        common.check_out(given.out, given.data, given.model)
    saved = read_model(given.model)
    estimator = saved.estimator
    if given.proba and not hasattr(estimator, "predict_proba"):
        raise ValueError(
            f"--proba: the loss {estimator.loss} gives no probabilities; log_loss and "
            "modified_huber do."
        )
    columns = saved.columns
    if columns is None and saved.feature_names is not None:
        columns = tuple(map(Column, saved.feature_names))
    # A text label is compared as written: "1" may be a class beside "xyz".
    targets = Targets.TEXT if hasattr(estimator, "classes_") else Targets.NUMBERS
    wanted = Wanted(
        saved.target if given.target is None else given.target,
        columns,
        int(estimator.n_features_in_),
        optional=given.target is None,
        targets=targets if given.score else Targets.UNUSED,
        by_position=given.by_position,
        reading=common.reading(given),
    )
    # The table orders columns by name; scikit-learn would warn of arrays without names.
    vars(estimator).pop("feature_names_in_", None)
    scored: list[tuple[Any, Any]] | None = [] if given.score else None
    blocks = _predictions(saved, open_table(given.data, wanted), given.proba, scored)
    if given.out is not None or scored is None:
        first = next(blocks, [])  # before anything is written: it may be wrong
        header = [saved.target if isinstance(saved.target, str) else "prediction"]
        if given.proba:
            header = labels_in_words(estimator.classes_)
        with _output(given.out) as file:
            write = csv.writer(file, lineterminator="\n").writerows
            write([header, *first])
            for rows in blocks:
                write(rows)
    if scored is not None:
        deque(blocks, maxlen=0)  # unless they are written
        true, predicted = map(np.concatenate, zip(*scored, strict=True))
        common.say_facts(_scores(estimator, true, predicted))
    return 0


@contextmanager
def _output(path: Path | None) -> Iterator[Any]:
    if path is not None:
        with whole_file(path) as file:
            yield codecs.getwriter("utf-8")(file)
        return
    try:
        yield sys.stdout
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, such as `head`, has closed. Flushing the rest must not fail at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _predictions(
    saved: SavedModel, table: TableFile, proba: bool, scored: list[tuple[Any, Any]] | None
) -> Iterator[list[Any]]:
    """Yield the rows to write for each chunk; keep targets and predictions for scores."""
    from accelegrad.sklearn.summary import labels_in_words

    estimator = saved.estimator
    classes = getattr(estimator, "classes_", np.array([]))
    labels = dict(zip(classes.tolist(), labels_in_words(classes), strict=True))
    for X, y in table.blocks(None):
        predicted = estimator.predict(X)
        if scored is not None:
            if y is None:
                raise ValueError(
                    f"{table.path}: --score needs the true targets, but the file has none."
                )
            scored.append((y, predicted))
        if proba:
            yield estimator.predict_proba(X).tolist()
        else:
            yield [[labels.get(value, value)] for value in predicted.tolist()]


def _scores(estimator: Any, true: Any, predicted: Any) -> list[tuple[str, str]]:
    from sklearn.metrics import mean_absolute_error, r2_score

    from accelegrad.files.tables import few

    lines = [("rows", str(true.size))]
    if not hasattr(estimator, "classes_"):
        lines.append(("R^2", f"{r2_score(true, predicted):.6f}"))
        error = mean_absolute_error(true, predicted)
        return [*lines, ("mean absolute error", f"{error:.8g}")]
    places = class_places(true, estimator.classes_)
    right = places == class_places(predicted, estimator.classes_)
    lines.append(("accuracy", f"{right.mean():.6f}"))
    unknown = true[places < 0]
    if unknown.size:
        labels = few(np.unique(unknown).astype(str).tolist())
        lines.append(("labels not known to the model", f"{unknown.size} rows: {labels}"))
    return lines


def class_places(labels: npt.NDArray[Any], classes: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return each label's place among the classes, -1 for an unknown label.

    A label is the class written the same way, or else the class that is the same number: 1, 1.0,
    "1" and "1.0" are one class, unless the model has several of these.
    """
    known = classes.tolist()
    by_text = {str(label): place for place, label in enumerate(known)}
    numbers = [_number(label) for label in known]
    by_number = {n: -1 if numbers.count(n) > 1 else place for place, n in enumerate(numbers)}
    by_number.pop(None, None)
    values, inverse = np.unique(labels, return_inverse=True)
    places = [
        by_text.get(str(label), by_number.get(_number(label), -1)) for label in values.tolist()
    ]
    found: npt.NDArray[np.int64] = np.array(places, dtype=np.int64)[inverse]
    return found


def _number(label: Any) -> float | None:
    try:
        # float() accepts 1_000, which no data format does.
        return None if isinstance(label, str) and "_" in label else float(label)
    except ValueError:
        return None


# -- inspect ---------------------------------------------------------------------------------------


def add_inspect(commands: common.Commands[argparse.ArgumentParser]) -> None:
    """Add the command to the parser's commands."""
    command = common.add_command(
        commands,
        "inspect",
        _inspect,
        help="show what a model file holds",
        description="Show loss, penalty, size, classes, certified gap, sparsity and the largest "
        "coefficients of a model file.",
        epilog="Example: accelegrad inspect model.agm",
    )
    common.add_files(command, "model")
    common.add_number(command, "--top", 10, "how many features are shown")


def _inspect(given: argparse.Namespace) -> int:
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
