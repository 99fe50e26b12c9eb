"""The commands `accelegrad fit`, `predict` and `inspect`: linear models of data files."""

from __future__ import annotations

import argparse
import csv
import io
import os
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from accelegrad.cli.bench import INTERRUPTED
from accelegrad.cli.compare import in_lines, name_or_number
from accelegrad.errors import nearest
from accelegrad.files import whole_file
from accelegrad.problems.losses import LOSSES, PARAMETERS, by_sklearn_name, losses_with

if TYPE_CHECKING:
    from accelegrad.data.table_files import TableFile, Targets
    from accelegrad.sklearn.model_file import SavedModel

Commands = argparse._SubParsersAction

FORMATS = (
    "a LIBSVM, CSV or .tsv file (plain, .bz2, .gz, .xz), an .npz file with the arrays X and y, or "
    "a .parquet file"
)
OF_CLASSES, OF_NUMBERS = (by_sklearn_name(classification=classes) for classes in (True, False))
FIT_EPILOG = f"""\
losses for classes:
{in_lines(OF_CLASSES)}
losses for numbers:
{in_lines(OF_NUMBERS)}

examples:
  accelegrad fit a9a.bz2 --loss hinge --alpha 1e-4 --out model.agm
  accelegrad fit houses.csv --loss absolute_error --target price --out houses.agm
  accelegrad fit huge.libsvm --stream --epochs 5 --out huge.agm
"""
LARGEST_SHOWN = 10
MISSING = "not known"


def add_fit(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command `fit`."""
    command = commands.add_parser(
        "fit",
        help="fit a linear model to a data file",
        description="Minimise the mean loss plus a penalty over the rows of a file, without "
        "tuning, print the objective with its certified gap, and write the model to a file.",
        epilog=FIT_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("data", type=Path, metavar="DATA", help=FORMATS)
    command.add_argument(
        "--out",
        type=Path,
        default=Path("model.agm"),
        metavar="FILE",
        help="where the model goes (default: model.agm)",
    )
    _add_objective(command)
    _add_reading(command)
    _add_running(command)
    command.set_defaults(run=run_fit)


def _add_objective(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("the objective")
    group.add_argument(
        "--loss", default="log_loss", metavar="NAME", help="see below (default: log_loss)"
    )
    group.add_argument(
        "--alpha", type=float, default=1e-4, metavar="X", help="weight of the penalty (1e-4)"
    )
    group.add_argument(
        "--penalty",
        choices=("l2", "l1", "elasticnet", "none"),
        default="l2",
        help="l2 is half the squared norm (default)",
    )
    group.add_argument(
        "--l1-ratio", type=float, default=0.15, metavar="X", help="l1 share of elasticnet (0.15)"
    )
    group.add_argument("--no-intercept", action="store_true", help="leave the intercept out")
    group.add_argument(
        "--balanced", action="store_true", help="give all classes the same total weight"
    )
    for name, parameter in PARAMETERS.items():
        of = ", ".join(entry.sklearn_name for entry in losses_with(parameter))
        words = f"{parameter.words}, of {of} ({parameter.default:g})"
        group.add_argument(f"--{name}", type=float, metavar="X", help=words)


def _add_reading(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("the data")
    group.add_argument(
        "--target",
        type=name_or_number,
        metavar="COLUMN",
        help="the column to predict of a CSV or parquet file, by name or number from 0 (default: "
        "the last); a first line with this name is a header",
    )
    group.add_argument(
        "--n-features",
        type=int,
        metavar="D",
        help="the number of features of a LIBSVM file (default: its largest index)",
    )
    group.add_argument(
        "--stream",
        action="store_true",
        help="read the file chunk by chunk: for data larger than memory",
    )
    group.add_argument("--epochs", type=int, metavar="E", help="passes of --stream (5)")
    group.add_argument(
        "--chunk-rows", type=int, metavar="N", help="rows a chunk of --stream (default: 16 MB)"
    )


def _add_running(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("the run")
    group.add_argument(
        "--tol",
        type=float,
        default=1e-3,
        metavar="X",
        help="stop at a certified gap of this share of the objective (1e-3)",
    )
    group.add_argument(
        "--max-iter", type=int, default=10_000, metavar="N", help="most iterations (10000)"
    )
    group.add_argument("--seed", type=int, default=0, metavar="S", help="of what is random (0)")
    group.add_argument("--no-progress", action="store_true", help="show no progress bar")


def add_predict(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command `predict`."""
    command = commands.add_parser(
        "predict",
        help="predict with a model file",
        description="Predict for the rows of a file, chunk by chunk, and write CSV text with a "
        "header. Columns of a CSV or parquet file are found by the names the model knows, if it "
        "knows some; the target may be absent.",
        epilog="Example: accelegrad predict model.agm new.csv --proba --out predictions.csv",
    )
    command.add_argument("model", type=Path, metavar="MODEL", help="what `accelegrad fit` wrote")
    command.add_argument("data", type=Path, metavar="DATA", help=FORMATS)
    command.add_argument(
        "--out", type=Path, metavar="FILE", help="write here (default: standard output)"
    )
    command.add_argument(
        "--proba", action="store_true", help="the probability of each class, a column a class"
    )
    command.add_argument(
        "--score",
        action="store_true",
        help="print the accuracy (or R^2 and the mean absolute error) instead; the predictions are "
        "written with --out only",
    )
    command.add_argument(
        "--target",
        type=name_or_number,
        metavar="COLUMN",
        help="the column with the true targets (default: as when fitting)",
    )
    command.set_defaults(run=run_predict)


def add_inspect(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command `inspect`."""
    command = commands.add_parser(
        "inspect",
        help="show what a model file holds",
        description="Show loss, penalty, size, classes, certified gap, sparsity and the largest "
        "coefficients of a model file.",
        epilog="Example: accelegrad inspect model.agm",
    )
    command.add_argument("model", type=Path, metavar="MODEL", help="what `accelegrad fit` wrote")
    command.add_argument(
        "--top",
        type=int,
        default=LARGEST_SHOWN,
        metavar="N",
        help=f"how many coefficients are shown ({LARGEST_SHOWN})",
    )
    command.set_defaults(run=run_inspect)


def _tell(lines: Sequence[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in lines) + 2
    for name, value in lines:
        print(f"{name:<{width}}{value}")  # noqa: T201


# fit


def run_fit(given: argparse.Namespace) -> int:
    """Do what the options of `fit` ask for."""
    try:
        return _fit(given)
    except KeyboardInterrupt:
        print("\naccelegrad fit: interrupted; no model was written.", file=sys.stderr)  # noqa: T201
        return INTERRUPTED


def _fit(given: argparse.Namespace) -> int:
    from sklearn.base import is_regressor

    from accelegrad.data.table_files import Targets, Wanted, open_table
    from accelegrad.sklearn.model_file import save_model

    _check_out(given.out, given.data)
    _check_stream_options(given)
    estimator = _estimator(given)
    targets = Targets.NUMBERS if is_regressor(estimator) else Targets.AS_WRITTEN
    wanted = Wanted(given.target, n_features=given.n_features, targets=targets)
    table = open_table(given.data, wanted)
    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        rows = (_streamed if given.stream else _fitted)(estimator, table, given)
    seconds = time.perf_counter() - started
    for warning in caught:
        print(f"accelegrad fit: warning: {warning.message}", file=sys.stderr)  # noqa: T201
    save_model(estimator, given.out, feature_names=table.names, target=table.target)
    _tell(
        [
            ("data", f"{given.data}: {rows} x {estimator.n_features_in_}"),
            ("model", _in_words(estimator)),
            *_quality(estimator),
            ("seconds", f"{seconds:.2f}"),
            ("written to", str(given.out.resolve())),
        ]
    )
    return 0


def _check_out(path: Path, *inputs: Path) -> None:
    """Refuse a place that cannot be written to, or holds what is read, before any work."""
    if not path.absolute().parent.is_dir():
        raise ValueError(f"--out {path}: there is no folder {path.absolute().parent}.")
    if path.is_dir():
        raise ValueError(f"--out {path}: this is a folder; the name of a file is needed.")
    if path.is_file() and any(path.samefile(given) for given in inputs if given.exists()):
        raise ValueError(f"--out {path}: this file is what is read; give another name.")


def _check_stream_options(given: argparse.Namespace) -> None:
    if not given.stream and (given.epochs is not None or given.chunk_rows is not None):
        raise ValueError("--epochs and --chunk-rows are of use with --stream only.")


def _estimator(given: argparse.Namespace) -> Any:
    """Return the estimator of the loss: a classifier or a regressor."""
    from accelegrad.sklearn import AcceleGradClassifier, AcceleGradRegressor

    names = {**OF_CLASSES, **OF_NUMBERS}
    # The names that `minimize` and `compare` use are taken too.
    loss = LOSSES[given.loss].sklearn_name if given.loss in LOSSES else given.loss
    if loss not in names:
        raise ValueError(f"--loss is {given.loss!r}: {nearest(given.loss, names)}")
    options: dict[str, Any] = {
        "penalty": None if given.penalty == "none" else given.penalty,
        "alpha": given.alpha,
        "l1_ratio": given.l1_ratio,
        "fit_intercept": not given.no_intercept,
        "tol": given.tol,
        "max_iter": given.max_iter,
        "random_state": given.seed,
        "verbose": int(not given.no_progress),
    }
    of_loss = {name: getattr(given, name) for name in PARAMETERS}
    of_loss = {name: value for name, value in of_loss.items() if value is not None}
    if loss in OF_NUMBERS:
        if given.balanced:
            raise ValueError(f"--balanced is for classes, but the loss {loss} is for numbers.")
        return AcceleGradRegressor(loss, **options, **of_loss)
    if of_loss:
        raise ValueError(f"--{next(iter(of_loss))} is of no use with the loss {loss}.")
    weight = "balanced" if given.balanced else None
    return AcceleGradClassifier(loss, class_weight=weight, **options)


def _fitted(estimator: Any, table: TableFile, given: argparse.Namespace) -> int:  # noqa: ARG001
    X, y = table.whole()
    estimator.fit(X, y)
    return int(X.shape[0])


def _streamed(estimator: Any, table: TableFile, given: argparse.Namespace) -> str:
    from accelegrad.sklearn.stream import EPOCHS, fit_stream

    done = fit_stream(
        estimator,
        table.path,
        epochs=EPOCHS if given.epochs is None else given.epochs,
        chunk_rows=given.chunk_rows,
        n_features=given.n_features,
        target=given.target,
        progress=not given.no_progress,
        rng=given.seed,
    )
    return f"{done.rows} rows streamed"


def _in_words(estimator: Any) -> str:
    penalty = "no penalty"
    if estimator.penalty is not None:
        alpha = estimator.alpha_ if hasattr(estimator, "alpha_") else estimator.alpha
        penalty = f"{estimator.penalty} penalty, alpha {alpha:g}"
    intercept = "with" if estimator.fit_intercept else "without"
    return f"{type(estimator).__name__}, {estimator.loss}, {penalty}, {intercept} intercept"


def _quality(estimator: Any) -> list[tuple[str, str]]:
    objective, gap = float(estimator.objective_), float(estimator.gap_)
    share = f" ({gap / objective:.1e} of the objective)" if objective > 0.0 else ""
    return [
        ("objective", f"{objective:.8g}" if np.isfinite(objective) else MISSING),
        ("certified gap", f"{gap:.2e}{share}" if np.isfinite(gap) else MISSING),
        ("iterations", str(estimator.n_iter_)),
    ]


# predict


def run_predict(given: argparse.Namespace) -> int:
    """Do what the options of `predict` ask for."""
    from accelegrad.data.table_files import Wanted, open_table
    from accelegrad.sklearn.classifier import PROBABILITIES
    from accelegrad.sklearn.model_file import read_model

    if given.out is not None:
        _check_out(given.out, given.data, given.model)
    saved = read_model(given.model)
    estimator = saved.estimator
    if given.proba and not hasattr(estimator, "predict_proba"):
        able = " and ".join(PROBABILITIES)
        raise ValueError(f"--proba: the loss {estimator.loss} gives no probabilities; {able} do.")
    wanted = Wanted(
        saved.target if given.target is None else given.target,
        saved.feature_names,
        int(estimator.n_features_in_),
        optional=given.target is None,
        targets=_scored_targets(estimator, given.score),
    )
    # The table puts columns in order by name; scikit-learn would warn of arrays without names.
    vars(estimator).pop("feature_names_in_", None)
    scores = _Scores(estimator) if given.score else None
    blocks = _predictions(saved, open_table(given.data, wanted), given.proba, scores)
    if given.out is not None:
        with whole_file(given.out) as file:
            text = io.TextIOWrapper(file, "utf-8", newline="")
            try:
                _write(text, _header(saved, given.proba), blocks)
            finally:
                text.detach()  # whoever opened the file closes it
    elif scores is None:
        _print(_header(saved, given.proba), blocks)
    else:
        for _ in blocks:
            pass
    if scores is not None:
        _tell(scores.lines())
    return 0


def _scored_targets(estimator: Any, score: bool) -> Targets:
    """Return what the targets must be to be scored; they are not read if they are not."""
    from sklearn.base import is_classifier

    from accelegrad.data.table_files import Targets

    if not score:
        return Targets.UNUSED
    # A label in text is compared as it is written: "1" may be a class beside "xyz".
    return Targets.TEXT if is_classifier(estimator) else Targets.NUMBERS


def _header(saved: SavedModel, proba: bool) -> list[str]:
    if proba:
        return [str(label) for label in saved.estimator.classes_.tolist()]
    return [saved.target if isinstance(saved.target, str) else "prediction"]


def _predictions(
    saved: SavedModel, table: TableFile, proba: bool, scores: _Scores | None
) -> Iterator[list[Any]]:
    """Yield the rows to write of each chunk."""
    estimator = saved.estimator
    for X, y in table.blocks(None):
        if scores is not None:
            scores.add(X, y, table.path)
        if proba:
            yield estimator.predict_proba(X).tolist()
        else:
            yield [[value] for value in estimator.predict(X).tolist()]


def _write(file: TextIO, header: Sequence[str], blocks: Iterator[list[Any]]) -> None:
    first = next(blocks, [])  # before anything is written: it may be wrong
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(first)
    for rows in blocks:
        writer.writerows(rows)


def _print(header: Sequence[str], blocks: Iterator[list[Any]]) -> None:
    try:
        _write(sys.stdout, header, blocks)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, such as `head`, has seen enough. What is left must not fail at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Scores:
    """Targets and predictions, collected for the score."""

    def __init__(self, estimator: Any) -> None:
        self._estimator = estimator
        self._true: list[Any] = []
        self._predicted: list[Any] = []

    def add(self, X: Any, y: Any, path: Path) -> None:
        if y is None:
            raise ValueError(f"{path}: --score needs the true targets, but the file has none.")
        self._true.append(y)
        self._predicted.append(self._estimator.predict(X))

    def lines(self) -> list[tuple[str, str]]:
        from sklearn.base import is_classifier
        from sklearn.metrics import mean_absolute_error, r2_score

        true, predicted = np.concatenate(self._true), np.concatenate(self._predicted)
        rows = ("rows", str(true.size))
        if is_classifier(self._estimator):
            return [rows, *self._share_of_right_ones(true, predicted)]
        return [
            rows,
            ("R^2", f"{r2_score(true, predicted):.6f}"),
            ("mean absolute error", f"{mean_absolute_error(true, predicted):.8g}"),
        ]

    def _share_of_right_ones(self, true: Any, predicted: Any) -> list[tuple[str, str]]:
        from accelegrad.sklearn.label_match import UNKNOWN, class_places

        classes = self._estimator.classes_
        places = class_places(true, classes)
        right = places == class_places(predicted, classes)
        lines = [("accuracy", f"{right.mean():.6f}")]
        unknown = true[places == UNKNOWN]
        if unknown.size:
            labels = _few(np.unique(unknown).tolist())
            lines.append(("labels not known to the model", f"{unknown.size} rows: {labels}"))
        return lines


# inspect


def run_inspect(given: argparse.Namespace) -> int:
    """Do what the options of `inspect` ask for."""
    from accelegrad.sklearn.model_file import FORMAT, read_model

    saved = read_model(given.model)
    estimator = saved.estimator
    coefficients = estimator.coef_
    if hasattr(coefficients, "toarray"):
        coefficients = coefficients.toarray()
    coefficients = np.atleast_2d(coefficients)
    classes = getattr(estimator, "classes_", None)
    lines = [
        ("file", f"{given.model}: format {FORMAT.version}, written by accelegrad {saved.version}"),
        ("model", _in_words(estimator)),
        ("features", str(estimator.n_features_in_) + (", named" if saved.feature_names else "")),
    ]
    if saved.target is not None:
        named = isinstance(saved.target, str)
        lines.append(("target", str(saved.target) if named else f"column {saved.target}"))
    if classes is not None:
        lines.append(("classes", f"{classes.size}: {_few(classes.tolist())}"))
    used = int(np.count_nonzero(coefficients))
    lines += [
        *_quality(estimator),
        ("converged", f"{'yes' if estimator.converged_ else 'no'} (tol {estimator.tol})"),
        ("intercept", _few([f"{value:.6g}" for value in np.ravel(estimator.intercept_)])),
        (
            "coefficients",
            f"{coefficients.shape[0]} x {coefficients.shape[1]}, {coefficients.dtype}, {used} not "
            f"zero ({100 * used / max(1, coefficients.size):.1f} %)",
        ),
    ]
    _tell(lines)
    _tell_largest(coefficients, saved, given.top)
    return 0


def _few(values: Sequence[Any]) -> str:
    shown = ", ".join(str(value) for value in values[:LARGEST_SHOWN])
    return shown + (", ..." if len(values) > LARGEST_SHOWN else "")


def _tell_largest(coefficients: Any, saved: SavedModel, count: int) -> None:
    """Print the coefficients that are largest in absolute value, with what they belong to."""
    sizes = np.abs(coefficients).ravel()
    places = np.argsort(-sizes, kind="stable")[: max(0, count)]
    lines = []
    for row, column in zip(*np.unravel_index(places, coefficients.shape), strict=True):
        name = saved.feature_names[column] if saved.feature_names else f"feature {column}"
        if coefficients.shape[0] > 1:
            name = f"{saved.estimator.classes_[row]}: {name}"
        lines.append((f"  {name}", f"{coefficients[row, column]:+.6g}"))
    if lines:
        print("largest coefficients (features count from 0)")  # noqa: T201
        _tell(lines)
