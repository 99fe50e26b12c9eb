"""Fitted estimators in files: arrays and JSON, no pickle, so that loading one can run no code."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from accelegrad import __version__
from accelegrad import sklearn as estimators
from accelegrad.errors import whole_number
from accelegrad.files import archive
from accelegrad.files.archive import DAMAGE, ArchiveError
from accelegrad.files.tables import Column
from accelegrad.geometry import sets

FORMAT = archive.Format("accelegrad-model", 1, "model file")

ESTIMATORS: dict[str, type[Any]] = {name: getattr(estimators, name) for name in estimators.__all__}
# Sets that are kept, by their constructors' arguments.
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
# Values that JSON or arrays do not have are mappings with their kind under this name.
_KIND = "__kind__"


class SavedModel(NamedTuple):
    """What a model file holds.

    Attributes
    ----------
    estimator : estimator
        Fitted, with its parameters.
    feature_names : tuple of str or None
        The names of the features, where they are known.
    target : str, int or None
        The name of what is predicted, or the number of its column in a table without names.
    version : str
        The version of accelegrad that wrote the file.
    first_feature : int
        The number of the first feature in the data file: LIBSVM counts from 1.
    columns : tuple of Column or None
        The columns that make the features, where these are more than the columns: text has
        categories.
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
    """Write a fitted estimator to a file, whole or not at all.

    All its parameters and fitted attributes are kept, bit for bit. Only the position within a
    stream is not: `partial_fit` starts a new one from the coefficients of a loaded model.

    Parameters
    ----------
    estimator : AcceleGradClassifier, AcceleGradRegressor or one of their CV forms
        A fitted one.
    path : str or path
        The file, by custom with the ending .agm.
    feature_names : sequence of str, optional
        The names of the features; by default `feature_names_in_`, where the estimator has them.
    target : str or int, optional
        The name of what is predicted, or the number of its column in a table without names.
    first_feature : int
        The number of the first feature in the data file, for those who read the coefficients.
    columns : sequence of Column, optional
        The columns of a file with text, whose categories are features.

    Raises
    ------
    ValueError
        If a parameter cannot be kept without pickle: a function, a user-defined set... Or if the
        coefficients are not finite, or do not fit the number of features or of classes.
    """
    name = type(estimator).__name__
    if ESTIMATORS.get(name) is not type(estimator):
        raise TypeError(f"estimator must be one of {', '.join(ESTIMATORS)}, not {name}.")
    check_is_fitted(estimator)
    names = (
        getattr(estimator, "feature_names_in_", None) if feature_names is None else feature_names
    )
    kept = None if names is None else tuple(str(name) for name in names)
    check_model(estimator)
    known = None if columns is None else tuple(columns)
    _check_description(SavedModel(estimator, kept, target, __version__, first_feature, known))
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
        If the file is damaged, foreign or of another version.
    """
    return read_model(path).estimator


def read_model(path: str | os.PathLike[str]) -> SavedModel:
    """Read a model file with all it holds; as `load_model` for the rest."""
    path = Path(path)
    content = archive.load(path, FORMAT)
    try:
        parameters = _restored(content["parameters"])
        estimator = ESTIMATORS[content["estimator"]](**parameters)
        if hasattr(estimator, "target_scale") and "target_scale" not in parameters:
            # Models of 0.2.0 and before have the plain objective.
            estimator.target_scale = estimator.target_scale_ = 1.0
        for name, value in _restored(content["fitted"]).items():
            if not _is_fitted_name(name):
                raise ValueError(f"{name!r} is no fitted attribute")
            setattr(estimator, name, value)
        check_model(estimator)
        names = content["feature_names"]
        saved = SavedModel(
            estimator,
            None if names is None else tuple(names),
            content["target"],
            content["accelegrad"],
            content.get("first_feature", 0),  # which old models lack, as they do `columns`
            _columns(content.get("columns")),
        )
        _check_description(saved)
        return saved
    except DAMAGE as error:
        raise ArchiveError(
            f"{str(path)!r}: the model file is damaged ({type(error).__name__}: {error})."
        ) from error


def _columns(given: Any) -> tuple[Column, ...] | None:
    """Return the columns that were saved, or raise a TypeError where they are none."""
    if given is None:
        return None
    columns = (Column(**entry) for entry in given)
    return tuple(
        Column(name, None if categories is None else tuple(categories), mean)
        for name, categories, mean in columns
    )


def check_model(estimator: Any) -> None:
    """Raise a ValueError where parameters and fitted attributes do not make one model."""
    check_is_fitted(estimator)
    if estimator._loss_name not in estimator._losses:
        raise ValueError(estimator._wrong_loss())
    width = whole_number("n_features_in_", estimator.n_features_in_, least=1)
    rows = _checked_coefficients(estimator.coef_, width)
    intercepts = np.ravel(estimator.intercept_)
    _check_numbers("intercept_", intercepts)
    if intercepts.size != rows:
        raise ValueError(f"intercept_ has {intercepts.size} entries, but coef_ has {rows} row(s)")
    if hasattr(estimator, "classes_"):
        _check_classes(np.asarray(estimator.classes_), rows)
    for name in ("objective_", "gap_", "certified_radius_", "n_iter_"):
        number = getattr(estimator, name, 0)
        if not isinstance(number, (int, float, np.number)):
            raise ValueError(f"{name} must be a number, not {number!r}")


def _checked_coefficients(coefficients: Any, width: int) -> int:
    """Return the number of rows, or raise where the coefficients are not right."""
    shape = np.shape(coefficients)
    if len(shape) not in (1, 2) or shape[-1] != width:
        raise ValueError(f"coef_ has the shape {shape}, but n_features_in_ is {width}")
    entries: Any = coefficients
    _check_numbers("coef_", entries.data if sp.issparse(coefficients) else entries)
    return shape[0] if len(shape) == 2 else 1


def _check_numbers(name: str, values: Any) -> None:
    if np.asarray(values).dtype.kind not in "fiu":
        raise ValueError(f"{name} must hold numbers, but it holds {np.asarray(values).dtype}")
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite, but it holds NaN or infinity")


def _check_classes(classes: npt.NDArray[Any], rows: int) -> None:
    if classes.ndim != 1 or len(set(classes.tolist())) != classes.size or classes.size < 2:
        raise ValueError(
            f"classes_ must be two or more distinct labels in one dimension, not {classes!r}"
        )
    needed = 1 if classes.size == 2 else classes.size
    if rows != needed:
        raise ValueError(
            f"coef_ has {rows} rows, but {needed} {'is' if needed == 1 else 'are'} needed for "
            f"{classes.size} classes"
        )


def _check_description(saved: SavedModel) -> None:
    """Raise a ValueError where what is said of the data does not fit the model."""
    names, width = saved.feature_names, int(saved.estimator.n_features_in_)
    for given in (names, getattr(saved.estimator, "feature_names_in_", None)):
        if given is not None and not all(isinstance(name, str) for name in given):
            raise ValueError("feature_names must be text, one name for each feature")
        if given is not None and len(given) != width:
            raise ValueError(f"feature_names must have {width} entries, but it has {len(given)}")
    if saved.columns is not None:
        features = [name for column in saved.columns for name in column.features]
        means = [column.mean for column in saved.columns if column.mean is not None]
        if names is None or tuple(features) != tuple(names) or not np.isfinite(means).all():
            raise ValueError("the columns do not make the features")
    if not (saved.target is None or isinstance(saved.target, (str, int))):
        raise ValueError(f"target must be a name, a number or nothing, not {saved.target!r}")
    if not isinstance(saved.version, str):
        raise ValueError(f"the version must be text, not {saved.version!r}")
    whole_number("first_feature", saved.first_feature, least=0)


def _is_fitted_name(name: str) -> bool:
    return name.endswith("_") and not name.startswith("_")


# Values


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
    if value is None or isinstance(value, (bool, int, float, str)):
        return value.item() if isinstance(value, np.generic) else value
    if isinstance(value, np.generic):
        return _tagged("scalar", array=np.asarray(value))
    if isinstance(value, np.ndarray):
        return _packed_array(value)
    if isinstance(value, Mapping):
        return _tagged("mapping", keys=_items(value.keys()), values=_items(value.values()))
    if isinstance(value, (list, tuple)):
        return _tagged(type(value).__name__, items=_items(value))
    if sp.issparse(value):
        rows: Any = sp.csr_array(value)  # type: ignore[call-overload]
        parts = {"data": rows.data, "indices": rows.indices, "indptr": rows.indptr}
        return _tagged("csr", **parts, shape=np.array(rows.shape))
    if SAVED_SETS.get(type(value).__name__) is type(value):
        names = inspect.signature(type(value)).parameters
        arguments = {name: _packed(getattr(value, name)) for name in names}
        return _tagged("set", name=type(value).__name__, arguments=arguments)
    raise TypeError(f"it is a {type(value).__name__}, {value!r}")


def _packed_array(array: np.ndarray[Any, Any]) -> Any:
    if array.dtype != object:
        return array
    if array.ndim != 1:
        raise TypeError("it is an array of Python objects")
    return _tagged("objects", items=_items(array))


def _items(values: Any) -> dict[str, Any]:
    return {str(place): _packed(value) for place, value in enumerate(values)}


def _tagged(kind: str, **parts: Any) -> dict[str, Any]:
    return {_KIND: kind, **parts}


def _restored(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if _KIND not in value:
        return {name: _restored(part) for name, part in value.items()}
    return _RESTORE[value[_KIND]](value)


def _listed(items: Mapping[str, Any]) -> list[Any]:
    return [_restored(items[str(place)]) for place in range(len(items))]


def _objects(value: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    items = _listed(value["items"])
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array


def _csr(value: Mapping[str, Any]) -> Any:
    parts = (value["data"], value["indices"], value["indptr"])
    rows: Any = sp.csr_array(parts, shape=tuple(value["shape"].tolist()))
    # An index out of range would make products read foreign memory.
    rows.check_format(full_check=True)
    return rows


_RESTORE: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "scalar": lambda value: value["array"][()],
    "mapping": lambda value: dict(
        zip(_listed(value["keys"]), _listed(value["values"]), strict=True)
    ),
    "list": lambda value: _listed(value["items"]),
    "tuple": lambda value: tuple(_listed(value["items"])),
    "objects": _objects,
    "csr": _csr,
    "set": lambda value: SAVED_SETS[value["name"]](**_restored(value["arguments"])),
}
