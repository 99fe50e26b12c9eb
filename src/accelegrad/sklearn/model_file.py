"""Fitted estimators in files of arrays and JSON, without pickle: loading can run no code."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType
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
    name: getattr(sets, name)
    for name in ["Ball", "Box", "Halfspace", "L1Ball", "NonNegative", "Simplex", "WholeSpace"]
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
        Fitted.
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
    given = feature_names
    if given is None:
        given = getattr(estimator, "feature_names_in_", None)
    names = None if given is None else tuple(map(str, given))
    known = None if columns is None else tuple(columns)
    check_model(SavedModel(estimator, names, target, __version__, first_feature, known))
    fitted = {key: value for key, value in vars(estimator).items() if _is_fitted_name(key)}
    content = {
        "estimator": name,
        "accelegrad": __version__,
        "parameters": _kept(estimator.get_params(deep=False), "the parameter"),
        "fitted": _kept(fitted, "the attribute"),
        "feature_names": names,
        "target": target,
        "first_feature": int(first_feature),
        "columns": None if known is None else [column._asdict() for column in known],
    }
    archive.save(Path(path), FORMAT, content)


def load_model(path: str | os.PathLike[str]) -> Any:
    """Read a fitted estimator from a file that `save_model` wrote.

    It has the same parameters, coefficients and predictions. A file that is damaged, no model file
    or of another format version raises an ArchiveError.
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
        if columns is not None:
            columns = tuple(
                Column(each["name"], each["categories"] and tuple(each["categories"]), each["mean"])
                for each in columns
            )
        names = None if names is None else tuple(names)
        target, version = content["target"], content["accelegrad"]
        first_feature = content.get("first_feature", 0)
        saved = SavedModel(estimator, names, target, version, first_feature, columns)
        check_model(saved)
        return saved
    except Exception as error:  # a damaged file can cause any error
        raise ArchiveError(
            f"{str(path)!r}: the model file is damaged ({type(error).__name__}: {error})."
        ) from error


def check_model(saved: SavedModel) -> None:
    """Raise ValueError if parameters, fitted attributes and names are inconsistent."""
    estimator = saved.estimator
    check_is_fitted(estimator)
    if estimator._loss_name not in estimator._losses:
        raise ValueError(estimator._wrong_loss())
    width = whole_number("n_features_in_", estimator.n_features_in_, least=1)
    coefficients: Any = estimator.coef_
    intercepts = np.ravel(estimator.intercept_)
    shape = np.shape(coefficients)
    if len(shape) not in (1, 2) or shape[-1] != width:
        raise ValueError(f"coef_ has the shape {shape}, but n_features_in_ is {width}")
    rows = shape[0] if len(shape) == 2 else 1
    is_sparse = bool(sp.issparse(coefficients))
    entries = np.asarray(coefficients.data if is_sparse else coefficients)
    for name, values in (("coef_", entries), ("intercept_", intercepts)):
        if values.dtype.kind not in "fiu":
            raise ValueError(f"{name} must hold numbers, but it holds {values.dtype}")
        if not np.isfinite(values).all():
            raise ValueError(f"{name} must be finite, but it holds NaN or infinity")
    if intercepts.size != rows:
        raise ValueError(f"intercept_ has {intercepts.size} entries, but coef_ has {rows} row(s)")
    if hasattr(estimator, "classes_"):
        classes = np.asarray(estimator.classes_)
        if classes.ndim != 1 or not len(set(classes.tolist())) == classes.size >= 2:
            raise ValueError(
                f"classes_ must be two or more distinct labels in one dimension, not {classes!r}"
            )
        needed = 1 if classes.size == 2 else classes.size
        if rows != needed:
            raise ValueError(f"coef_ has {rows} rows, but its classes need {needed}")
    for name in ("objective_", "gap_", "certified_radius_", "n_iter_"):
        number = getattr(estimator, name, 0)
        if not isinstance(number, (int, float, np.number)):
            raise ValueError(f"{name} must be a number, not {number!r}")
    names = saved.feature_names
    for given in (names, getattr(estimator, "feature_names_in_", None)):
        if given is not None and not all(isinstance(name, str) for name in given):
            raise ValueError("feature_names must be text, one name for each feature")
        if given is not None and len(given) != width:
            raise ValueError(f"feature_names must have {width} entries, but it has {len(given)}")
    if saved.columns is not None:
        features = tuple(name for column in saved.columns for name in column.features)
        means = [column.mean for column in saved.columns if column.mean is not None]
        if features != names or not np.isfinite(means).all():
            raise ValueError("the columns do not make the features")
    if not isinstance(saved.target, (str, int, NoneType)):
        raise ValueError(f"target must be a name, a number or nothing, not {saved.target!r}")
    if not isinstance(saved.version, str):
        raise ValueError(f"the version must be text, not {saved.version!r}")
    whole_number("first_feature", saved.first_feature, least=0)


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


def _restored(value: Any) -> Any:
    """Return the value that `_packed` converted."""
    if not isinstance(value, dict):
        return value
    kind = value.get(_KIND)
    parts = {name: _restored(part) for name, part in value.items() if name != _KIND}
    items = list(parts.get("items", {}).values())
    if kind is None:
        return parts
    if kind == "mapping":
        return {parts["keys"][place]: part for place, part in parts["values"].items()}
    if kind in ("list", "tuple"):
        return items if kind == "list" else tuple(items)
    if kind == "objects":
        return np.array([*items, None], dtype=object)[:-1]  # never nested
    if kind == "csr":
        arrays = (parts["data"], parts["indices"], parts["indptr"])
        rows: Any = sp.csr_array(arrays, shape=tuple(parts["shape"].tolist()))
        # An index out of range would make products read outside the array.
        rows.check_format(full_check=True)
        return rows
    if kind == "set":
        return SAVED_SETS[parts["name"]](**parts["arguments"])
    if kind == "scalar":  # written by older versions
        return parts["array"][()]
    raise ValueError(f"{kind!r} is no kind of value")
