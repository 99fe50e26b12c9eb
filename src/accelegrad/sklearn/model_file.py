"""Fitted estimators in files of arrays and JSON, without pickle: loading can run no code."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from accelegrad import __version__
from accelegrad import sklearn as estimators
from accelegrad.errors import whole_number
from accelegrad.files import archive
from accelegrad.files.archive import ArchiveError
from accelegrad.files.tables import Column
from accelegrad.geometry import sets

FORMAT = archive.Format("accelegrad-model", 1, "model file")

ESTIMATORS: dict[str, type[Any]] = {name: getattr(estimators, name) for name in estimators.__all__}
# Sets that can be saved, by their constructors' arguments.
SAVED_SETS: dict[str, type[sets.FeasibleSet]] = {
    kind.__name__: kind
    for kind in (
        sets.Ball,
        sets.Box,
        sets.Halfspace,
        sets.L1Ball,
        sets.NonNegative,
        sets.Simplex,
        sets.WholeSpace,
    )
}
# Key of the kind of a value that neither JSON nor arrays can represent.
_KIND = "__kind__"


class SavedModel(NamedTuple):
    """The contents of a model file.

    `target` is a name, or a column number in a table without names; `first_feature` is the number
    of the first feature in the data file (LIBSVM counts from 1); `columns` are the data file's
    columns if text was encoded as several features.
    """

    estimator: Any
    feature_names: tuple[str, ...] | None
    target: str | int | None
    version: str
    first_feature: int = 0
    columns: tuple[Column, ...] | None = None


def save_model(
    estimator: Any,
    path: str | os.PathLike[str],
    *,
    feature_names: Sequence[str] | None = None,
    target: str | int | None = None,
    first_feature: int = 0,
    columns: Sequence[Column] | None = None,
) -> None:
    """Write a fitted estimator to a file, completely or not at all.

    All parameters and fitted attributes are stored exactly, except the position within a stream:
    `partial_fit` on a loaded model starts a new stream from its coefficients.

    Parameters
    ----------
    estimator : AcceleGradClassifier, AcceleGradRegressor or one of their CV forms
        A fitted estimator.
    path : str or path
        The file, usually with the extension .agm.
    feature_names : sequence of str, optional
        The names of the features; by default `feature_names_in_`, if the estimator has them.
    target : str or int, optional
        The name of the target, or its column number in a table without names.
    first_feature : int
        The number of the first feature in the data file, for readers of the coefficients.
    columns : sequence of Column, optional
        The columns of a data file with text, whose categories are features.

    Raises
    ------
    ValueError
        If a parameter cannot be stored without pickle (a function, a user-defined set), or if the
        coefficients are not finite or do not match the number of features or classes.
    """
    name = type(estimator).__name__
    if ESTIMATORS.get(name) is not type(estimator):
        raise TypeError(f"estimator must be one of {', '.join(ESTIMATORS)}, not {name}.")
    check_is_fitted(estimator)
    names = (
        getattr(estimator, "feature_names_in_", None) if feature_names is None else feature_names
    )
    kept = None if names is None else tuple(str(name) for name in names)
    known = None if columns is None else tuple(columns)
    check_model(SavedModel(estimator, kept, target, __version__, first_feature, known))
    fitted = {name: value for name, value in vars(estimator).items() if _is_fitted_name(name)}
    archive.save(
        Path(path),
        FORMAT,
        {
            "estimator": name,
            "accelegrad": __version__,
            "parameters": _kept(estimator.get_params(deep=False), "the parameter"),
            "fitted": _kept(fitted, "the attribute"),
            "feature_names": None if kept is None else list(kept),
            "target": target,
            "first_feature": int(first_feature),
            "columns": None if known is None else [column._asdict() for column in known],
        },
    )


def load_model(path: str | os.PathLike[str]) -> Any:
    """Read a fitted estimator from a file that `save_model` wrote.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    estimator
        With the same parameters, coefficients and predictions.

    Raises
    ------
    ArchiveError
        If the file is damaged, not a model file, or of another format version.
    """
    return read_model(path).estimator


def read_model(path: str | os.PathLike[str]) -> SavedModel:
    """Read a model file with everything it contains."""
    path = Path(path)
    content = archive.load(path, FORMAT)
    try:
        parameters = _restored(content["parameters"])
        estimator = ESTIMATORS[content["estimator"]](**parameters)
        if hasattr(estimator, "target_scale") and "target_scale" not in parameters:
            # Models of 0.2.0 and earlier use the plain objective.
            estimator.target_scale = estimator.target_scale_ = 1.0
        for name, value in _restored(content["fitted"]).items():
            if not _is_fitted_name(name):
                raise ValueError(f"{name!r} is no fitted attribute")
            setattr(estimator, name, value)
        names, columns = content["feature_names"], content.get("columns")  # old models lack some
        saved = SavedModel(
            estimator,
            None if names is None else tuple(names),
            content["target"],
            content["accelegrad"],
            content.get("first_feature", 0),
            None if columns is None else tuple(_column(**entry) for entry in columns),
        )
        check_model(saved)
        return saved
    except Exception as error:  # a damaged file can cause any error
        raise ArchiveError(
            f"{str(path)!r}: the model file is damaged ({type(error).__name__}: {error})."
        ) from error


def _column(name: str, categories: Any, mean: float | None) -> Column:
    return Column(name, None if categories is None else tuple(categories), mean)


def check_model(saved: SavedModel) -> None:
    """Raise ValueError if parameters, fitted attributes and names are inconsistent."""
    estimator = saved.estimator
    check_is_fitted(estimator)
    if estimator._loss_name not in estimator._losses:
        raise ValueError(estimator._wrong_loss())
    width = whole_number("n_features_in_", estimator.n_features_in_, least=1)
    shape, intercepts = np.shape(estimator.coef_), np.ravel(estimator.intercept_)
    _check(
        len(shape) in (1, 2) and shape[-1] == width,
        f"coef_ has the shape {shape}, but n_features_in_ is {width}",
    )
    rows = shape[0] if len(shape) == 2 else 1
    is_sparse = bool(sp.issparse(estimator.coef_))
    entries = estimator.coef_.data if is_sparse else estimator.coef_
    for name, values in (("coef_", entries), ("intercept_", intercepts)):
        kind = np.asarray(values).dtype
        _check(kind.kind in "fiu", f"{name} must hold numbers, but it holds {kind}")
        _check(np.isfinite(values).all(), f"{name} must be finite, but it holds NaN or infinity")
    _check(
        intercepts.size == rows,
        f"intercept_ has {intercepts.size} entries, but coef_ has {rows} row(s)",
    )
    if hasattr(estimator, "classes_"):
        classes = np.asarray(estimator.classes_)
        _check(
            classes.ndim == 1 and len(set(classes.tolist())) == classes.size >= 2,
            f"classes_ must be two or more distinct labels in one dimension, not {classes!r}",
        )
        needed = 1 if classes.size == 2 else classes.size
        verb = "is" if needed == 1 else "are"
        _check(rows == needed, f"coef_ has {rows} rows, but {needed} {verb} needed")
    for name in ("objective_", "gap_", "certified_radius_", "n_iter_"):
        number = getattr(estimator, name, 0)
        is_number = isinstance(number, (int, float, np.number))
        _check(is_number, f"{name} must be a number, not {number!r}")
    _check_names(saved, width)


def _check_names(saved: SavedModel, width: int) -> None:
    names = saved.feature_names
    for given in (names, getattr(saved.estimator, "feature_names_in_", None)):
        if given is not None:
            text = all(isinstance(name, str) for name in given)
            _check(text, "feature_names must be text, one name for each feature")
            wrong = f"feature_names must have {width} entries, but it has {len(given)}"
            _check(len(given) == width, wrong)
    if saved.columns is not None:
        features = tuple(name for column in saved.columns for name in column.features)
        means = [column.mean for column in saved.columns if column.mean is not None]
        fits = features == names and bool(np.isfinite(means).all())
        _check(fits, "the columns do not make the features")
    is_target = saved.target is None or isinstance(saved.target, (str, int))
    _check(is_target, f"target must be a name, a number or nothing, not {saved.target!r}")
    is_text = isinstance(saved.version, str)
    _check(is_text, f"the version must be text, not {saved.version!r}")
    whole_number("first_feature", saved.first_feature, least=0)


def _check(right: Any, words: str) -> None:
    if not right:
        raise ValueError(words)


def _is_fitted_name(name: str) -> bool:
    return name.endswith("_") and not name.startswith("_")


# -- values ----------------------------------------------------------------------------------------


def _kept(values: Mapping[str, Any], what: str) -> dict[str, Any]:
    kept = {}
    for name, value in values.items():
        try:
            kept[name] = _packed(value)
        except TypeError as error:
            raise ValueError(
                f"{what} {name!r} cannot be kept in a model file: {error}. Predictions do not need "
                "parameters; set_params can change it before saving."
            ) from None
    return kept


def _packed(value: Any) -> Any:
    """Return a value as plain values, arrays and mappings of these."""
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value
    kind = type(value).__name__
    if isinstance(value, Mapping):
        return {_KIND: "mapping", "keys": _items(value.keys()), "values": _items(value.values())}
    if isinstance(value, (list, tuple)):
        return {_KIND: kind, "items": _items(value)}
    if isinstance(value, np.ndarray) and value.ndim == 1:
        return {_KIND: "objects", "items": _items(value)}
    if sp.issparse(value):
        rows: Any = sp.csr_array(value)  # type: ignore[call-overload]
        parts = {"data": rows.data, "indices": rows.indices, "indptr": rows.indptr}
        return {_KIND: "csr", **parts, "shape": np.array(rows.shape)}
    if SAVED_SETS.get(kind) is type(value):
        names = inspect.signature(type(value)).parameters
        arguments = {name: _packed(getattr(value, name)) for name in names}
        return {_KIND: "set", "name": kind, "arguments": arguments}
    raise TypeError(f"it is a {kind}, {value!r}")


def _items(values: Any) -> dict[str, Any]:
    return {str(place): _packed(value) for place, value in enumerate(values)}


def _listed(items: Mapping[str, Any]) -> list[Any]:
    return [_restored(items[str(place)]) for place in range(len(items))]


def _restored(value: Any) -> Any:
    """Return the value that `_packed` converted."""
    if not isinstance(value, dict):
        return value
    kind = value.get(_KIND)
    if kind is None:
        return {name: _restored(part) for name, part in value.items()}
    if kind == "mapping":
        return dict(zip(_listed(value["keys"]), _listed(value["values"]), strict=True))
    if kind in ("list", "tuple"):
        items = _listed(value["items"])
        return items if kind == "list" else tuple(items)
    if kind == "objects":
        return np.array([*_listed(value["items"]), None], dtype=object)[:-1]  # never nested
    if kind == "csr":
        parts = (value["data"], value["indices"], value["indptr"])
        rows: Any = sp.csr_array(parts, shape=tuple(value["shape"].tolist()))
        # An index out of range would make products read outside the array.
        rows.check_format(full_check=True)
        return rows
    if kind == "set":
        return SAVED_SETS[value["name"]](**_restored(value["arguments"]))
    if kind == "scalar":  # written by older versions
        return value["array"][()]
    raise ValueError(f"{kind!r} is no kind of value")
