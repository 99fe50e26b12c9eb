"""Fingerprints of runs, so that checkpoints of other data, weights or sets are refused."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from accelegrad.errors import Vector
from accelegrad.geometry.penalties import Penalty
from accelegrad.geometry.sets import FeasibleSet
from accelegrad.models.linear_model import LinearModel
from accelegrad.rules import Rescaled, Rule

#: Bytes of a digest: in practice different contents never collide.
DIGEST_SIZE = 16
#: Distances from the start at which functions are compared: near, at unit distance, remote.
DISTANCES = (1e-3, 1.0, 1e3)


def fingerprint(content: Any) -> str:
    """Return a text that identifies numbers, texts and arrays, nested or not."""
    digest = hashlib.blake2b(digest_size=DIGEST_SIZE)
    _take(digest, content)
    return digest.hexdigest()


def behaviour(functions: Mapping[str, Any], start: Vector) -> str:
    """Return a text that identifies functions by what they return near the start."""
    directions = np.random.default_rng(0).standard_normal((len(DISTANCES), start.size))
    points = [start + size * way for size, way in zip(DISTANCES, directions, strict=True)]
    return fingerprint({name: [f(x.copy()) for x in points] for name, f in functions.items()})


def run_kind(
    rule: Rule,
    start: Vector,
    feasible_set: FeasibleSet | None,
    penalty: Penalty | None,
    model: LinearModel | None,
    how: Mapping[str, Any],
) -> dict[str, Any]:
    """Describe a run, so that a checkpoint of another one is refused.

    `how` says in plain values how gradients are computed. The content of a user's function is
    unknown.
    """
    rescaled = rule if isinstance(rule, Rescaled) else None
    inner = rule if rescaled is None else rescaled.rule
    return {
        "method": type(inner).__name__,
        "scale": None if rescaled is None else repr(rescaled.change),
        "scale (fingerprint)": None if rescaled is None else fingerprint(rescaled.change),
        "penalty": repr(penalty),
        "penalty (fingerprint)": None if penalty is None else _term_fingerprint(penalty, start),
        "feasible_set": repr(feasible_set),
        "feasible_set (fingerprint)": None
        if feasible_set is None
        else _set_fingerprint(feasible_set, start),
        "dimension": start.size,
        "x0 (fingerprint)": fingerprint(start),
        **how,
        "problem": "function" if model is None else repr(model),
        "data (fingerprint)": None if model is None else _data_fingerprint(model),
        **{name: _plain(value) for name, value in _parameters(inner).items()},
    }


def _parameters(rule: Rule) -> dict[str, Any]:
    """Return a rule's parameters, without those that come from the set and the penalty."""
    if dataclasses.is_dataclass(rule):
        names = [field.name for field in dataclasses.fields(rule)]
    else:
        names = sorted(vars(rule))
    bound = ("project", "prox", "lowest_of_cuts")
    return {name: getattr(rule, name) for name in names if name not in bound}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return repr(value) if isinstance(value, Rule) else fingerprint(value)


def _set_fingerprint(chosen: FeasibleSet, start: Vector) -> str:
    return behaviour({"project": chosen.project}, start) + _library_content(chosen, FeasibleSet)


def _term_fingerprint(penalty: Penalty, start: Vector) -> str:
    functions = {"value": penalty.value, "prox": lambda x: penalty.prox(x, 1.0)}
    return behaviour(functions, start) + _library_content(penalty, Penalty)


def _library_content(thing: Any, base: type) -> str:
    """Return a fingerprint of the attributes of this library's classes; a user's are unknown."""
    package, _, _ = base.__module__.rpartition(".")
    return fingerprint(thing) if type(thing).__module__.startswith(package) else ""


def _data_fingerprint(model: LinearModel) -> str:
    parts = (model.X, model.y, model.sample_weight, model.l2, model.loss, model.fit_intercept)
    return fingerprint(parts)


def _take(digest: Any, content: Any) -> None:
    if sp.issparse(content):
        _take_sparse(digest, content)
    elif isinstance(content, np.ndarray):
        _take_array(digest, content)
    elif isinstance(content, Mapping):
        _take(digest, [[name, content[name]] for name in sorted(content)])
    elif isinstance(content, (list, tuple)):
        digest.update(f"[{len(content)}".encode())
        for part in content:
            _take(digest, part)
    elif isinstance(content, float):
        digest.update(float(content).hex().encode())
    elif content is None or isinstance(content, (bool, int, str, np.generic)):
        digest.update(f"{type(content).__name__} {content!r};".encode())
    elif hasattr(content, "fingerprint"):  # rows that are read chunk by chunk
        digest.update(content.fingerprint().encode())
    elif hasattr(content, "__dict__"):
        _take(digest, [type(content).__qualname__, vars(content)])
    else:
        digest.update(f"{type(content).__qualname__};".encode())


def _take_sparse(digest: Any, matrix: Any) -> None:
    parts = (matrix.data, matrix.indices, matrix.indptr)
    _take(digest, [matrix.format, list(matrix.shape), *parts])


def _take_array(digest: Any, array: np.ndarray[Any, Any]) -> None:
    """Take an array in without copying it, unless it is neither in C nor in Fortran order."""
    digest.update(f"{array.dtype.str} {array.shape}".encode())
    if array.dtype == object:
        _take(digest, array.tolist())
        return
    if array.flags.f_contiguous and not array.flags.c_contiguous:
        array = array.T
    digest.update(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
