"""Fingerprints of runs, so that checkpoints of other data, weights or sets are refused."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import joblib
import numpy as np
import scipy.sparse as sp

from accelegrad.errors import Vector
from accelegrad.geometry.penalties import Penalty
from accelegrad.geometry.sets import FeasibleSet
from accelegrad.models.linear_model import LinearModel
from accelegrad.rules import Rescaled, Rule


def fingerprint(content: Any) -> str:
    """Return a text that identifies numbers, texts and arrays, nested or not."""
    if hasattr(content, "fingerprint"):  # rows that are read chunk by chunk
        return str(content.fingerprint())
    if sp.issparse(content):  # without what SciPy stores about the order of its indices
        rows: Any = content
        content = (rows.format, rows.shape, rows.data, rows.indices, rows.indptr)
    try:
        return str(joblib.hash(content))
    except (pickle.PicklingError, AttributeError, TypeError):  # a local function or class
        return type(content).__qualname__


def behaviour(start: Vector, *functions: Callable[[Vector], Any]) -> str:
    """Return a text that identifies functions by what they return near the start and far away."""
    directions = np.random.default_rng(0).standard_normal((3, start.size))
    points = [start + 1e3**k * way for k, way in enumerate(directions, -1)]
    return fingerprint([f(x.copy()) for f in functions for x in points])


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
    change = rule.change if isinstance(rule, Rescaled) else None
    inner = rule.rule if isinstance(rule, Rescaled) else rule
    of_set = of_term = of_data = None
    if feasible_set is not None:
        of_set = behaviour(start, feasible_set.project) + _content(feasible_set, FeasibleSet)
    if penalty is not None:
        of_term = behaviour(start, penalty.value, lambda x: penalty.prox(x, 1.0))
        of_term += _content(penalty, Penalty)
    if model is not None:
        rows = [fingerprint(part) for part in (model.X, model.y, model.sample_weight)]
        of_data = fingerprint([*rows, model.l2, model.loss, model.fit_intercept])
    return {
        "method": type(inner).__name__,
        "scale": None if change is None else repr(change),
        "scale (fingerprint)": None if change is None else fingerprint(change),
        "penalty": repr(penalty),
        "penalty (fingerprint)": of_term,
        "feasible_set": repr(feasible_set),
        "feasible_set (fingerprint)": of_set,
        "dimension": start.size,
        "x0 (fingerprint)": fingerprint(start),
        **how,
        "problem": "function" if model is None else repr(model),
        "data (fingerprint)": of_data,
        **{name: _plain(value) for name, value in _parameters(inner).items()},
    }


def _parameters(rule: Rule) -> dict[str, Any]:
    """Return a rule's parameters, without those that come from the set and the penalty."""
    if dataclasses.is_dataclass(rule):
        names = [field.name for field in dataclasses.fields(rule)]
    else:
        names = sorted(vars(rule))
    bound = ("project", "prox", "lowest_of_cuts", "lowest_of_quadratic")
    return {name: getattr(rule, name) for name in names if name not in bound}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return repr(value) if isinstance(value, Rule) else fingerprint(value)


def _content(thing: Any, base: type) -> str:
    """Return a fingerprint of the attributes of this library's classes; a user's are unknown."""
    package, _, _ = base.__module__.rpartition(".")
    return fingerprint(thing) if type(thing).__module__.startswith(package) else ""
