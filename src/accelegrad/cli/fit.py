"""The command `accelegrad fit`: a linear model of a data file."""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelegrad.cli import common
from accelegrad.errors import nearest, whole_number
from accelegrad.extras import require
from accelegrad.models.losses import LOSSES, PARAMETERS, by_sklearn_name

if TYPE_CHECKING:
    from accelegrad.files.tables import TableFile

OF_CLASSES, OF_NUMBERS = (by_sklearn_name(classification=classes) for classes in (True, False))
EPILOG = f"""\
losses for classes:
{common.in_lines(OF_CLASSES)}
losses for numbers:
{common.in_lines(OF_NUMBERS)}

examples:
  accelegrad fit a9a.bz2 --loss hinge --alpha 1e-4 --out model.agm
  accelegrad fit houses.csv --loss absolute_error --target price --out houses.agm
  accelegrad fit kunden.csv --sep ';' --decimal , --missing mean --drop id --out kunden.agm
  accelegrad fit huge.libsvm --stream --out huge.agm
  accelegrad fit shards.libsvm --dask local --out shards.agm
"""


def add_fit(commands: common.Commands[argparse.ArgumentParser]) -> None:
    """Add the command to the parser's commands."""
    command = common.add_command(
        commands,
        "fit",
        _fit,
        help="fit a linear model to a data file",
        description="Minimise the mean loss plus a penalty over the rows of a file, without "
        "tuning, print the objective with its certified gap, and write the model to a file.",
        epilog=EPILOG,
        interrupted="no model was written",
    )
    common.add_files(command, "data")
    common.add_out(command, "where the model goes (default: %(default)s)", Path("model.agm"))
    group = command.add_argument_group("the objective")
    words = "see below (default: log_loss)"
    group.add_argument("--loss", default="log_loss", metavar="NAME", help=words)
    common.add_number(group, "--alpha", 1e-4, "weight of the penalty")
    penalties, words = ("l2", "l1", "elasticnet", "none"), "l2 is half the squared norm (default)"
    group.add_argument("--penalty", choices=penalties, default="l2", help=words)
    common.add_number(group, "--l1-ratio", 0.15, "l1 share of elasticnet")
    group.add_argument("--no-intercept", action="store_true", help="leave the intercept out")
    words = "give all classes the same total weight"
    group.add_argument("--balanced", action="store_true", help=words)
    common.add_loss_parameters(group, lambda entry: entry.sklearn_name)
    words = "the unit of the targets in which alpha, epsilon and delta are meant, of all losses "
    words += "for numbers but squared_error (default: the mean absolute deviation of the targets; "
    words += "1 is the plain objective)"
    group.add_argument("--target-scale", type=float, metavar="X", help=words)
    group = command.add_argument_group("the data")
    common.add_reading(group, learning=True)
    words = "the number of features of a LIBSVM file (default: its largest index)"
    group.add_argument("--n-features", type=int, metavar="D", help=words)
    words = "rows in a chunk of --stream (default: 16 MB)"
    group.add_argument("--chunk-rows", type=int, metavar="N", help=words)
    words = "fit on a Dask cluster, whose workers read the file: 'local', which starts a process "
    words += "per core, or a scheduler's address, tcp://host:port"
    group.add_argument("--dask", metavar="CLUSTER", help=words)
    words = "read the file chunk by chunk: for data larger than memory"
    group.add_argument("--stream", action="store_true", help=words)
    group = command.add_argument_group("the run")
    common.add_number(group, "--tol", 1e-3, "certified gap to stop at, relative to the objective")
    common.add_number(group, "--max-iter", 10_000, "most iterations")
    common.add_number(group, "--seed", 0, "of what is random")
    common.add_no_progress(group)


def _fit(given: argparse.Namespace) -> int:
    from sklearn.base import is_regressor

    from accelegrad.files.formats import open_table
    from accelegrad.files.tables import Targets, Wanted

    common.check_out(given.out, given.data)
    if given.chunk_rows is not None:
        whole_number("--chunk-rows", given.chunk_rows, least=1)
        if not given.stream:
            raise ValueError("--chunk-rows is of use with --stream only.")
    if given.stream and given.dask:
        raise ValueError("--stream and --dask cannot be used together.")
    if given.dask:
        require("accelegrad fit --dask", "dask")
    estimator = _estimator(given)
    wanted = Wanted(
        given.target,
        n_features=given.n_features,
        targets=Targets.NUMBERS if is_regressor(estimator) else Targets.AS_WRITTEN,
        reading=common.reading(given),
    )
    table = open_table(given.data, wanted)
    try:
        if given.dask:
            from accelegrad.dask.command import fit_files

            fit_files(estimator, table, given.dask)
        else:
            chunks = partial(table.chunks, given.chunk_rows)
            estimator.fit(*((chunks,) if given.stream else table.whole()))
    except ValueError as error:
        if "Unknown label type: continuous" not in str(error):
            raise
        raise ValueError(
            f"{given.data}: the target holds numbers that are not whole, but --loss {given.loss} "
            f"is for classes. For numbers, give --loss {', '.join(OF_NUMBERS)}."
        ) from None
    failure = _saved(estimator, table, given)
    summary = estimator.summary()
    common.say_facts(
        [
            ("data", f"{given.data}: {estimator.n_samples_seen_} x {estimator.n_features_in_}"),
            ("model", summary.title),
            *summary.facts,
            ("written to", str(given.out.resolve())),
        ]
    )
    return failure


def _saved(estimator: Any, table: TableFile, given: argparse.Namespace) -> int:
    """Write the model; if that fails, to a temporary folder, so that the fit is not lost."""
    from accelegrad.sklearn.model_file import save_model

    facts: dict[str, Any] = {
        "feature_names": table.names,
        "target": table.target,
        "first_feature": table.first_feature,
        "columns": table.columns,
    }
    try:
        save_model(estimator, given.out, **facts)
        return 0
    except OSError as error:
        name = given.out.name
        given.out = Path(tempfile.mkdtemp(prefix="accelegrad-")) / name
        save_model(estimator, given.out, **facts)
        common.warn(f"accelegrad fit: {error}. The model is in {given.out} instead.")
        return common.FAILED


def _estimator(given: argparse.Namespace) -> Any:
    from accelegrad.sklearn import AcceleGradClassifier, AcceleGradRegressor

    names = {**OF_CLASSES, **OF_NUMBERS}
    # The names of `LinearModel` are accepted too.
    loss = LOSSES[given.loss].sklearn_name if given.loss in LOSSES else given.loss
    if loss not in names:
        raise ValueError(f"--loss is {given.loss!r}: {nearest(given.loss, names)}")
    options: dict[str, Any] = {
        "penalty": None if given.penalty == "none" else given.penalty,
        "fit_intercept": not given.no_intercept,
        "random_state": given.seed,
        "verbose": int(given.progress),
        **{name: getattr(given, name) for name in ("alpha", "l1_ratio", "tol", "max_iter")},
    }
    of_loss = {name: getattr(given, name) for name in (*PARAMETERS, "target_scale")}
    of_loss = {name: value for name, value in of_loss.items() if value is not None}
    if loss in OF_NUMBERS:
        if given.balanced:
            raise ValueError(f"--balanced is for classes, but the loss {loss} is for numbers.")
        return AcceleGradRegressor(loss, **options, **of_loss)
    if of_loss:
        option = next(iter(of_loss)).replace("_", "-")
        raise ValueError(f"--{option} is of no use with the loss {loss}.")
    weight = "balanced" if given.balanced else None
    return AcceleGradClassifier(loss, class_weight=weight, **options)
