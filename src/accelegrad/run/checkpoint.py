"""Checkpoints: a run's state in a file, refused by any other run.

Runs are told apart by fingerprints of data, weights, sets and parameters.
"""

from __future__ import annotations

import contextlib
import json
import math
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import joblib
import numpy as np
import scipy.sparse as sp

from accelegrad.errors import NonFiniteError, Vector
from accelegrad.files import archive
from accelegrad.files.saved import content_of, fields_of
from accelegrad.geometry.penalties import Penalty
from accelegrad.geometry.sets import FeasibleSet
from accelegrad.models.linear_model import LinearModel
from accelegrad.rules import Rescaled, Rule

if TYPE_CHECKING:
    from accelegrad.run.oracle import Oracle

#: 2: 0.1.0; 3: the parts of a run declare their fields; 4: fewer parts; 5: one record of cuts; 6:
#: joblib's fingerprints; 8: all parts declare their fields; 9: the trace is a part of its own; 10:
#: solvers count their work
FORMAT = archive.Format("accelegrad-checkpoint", 10, "checkpoint")
#: Tolerance on a recomputed value, relative to the values' size: thousands of units of rounding,
#: for sums that threads split differently
SAME_VALUE = 1e-12
#: Parameters of rules that come from the set and the penalty
BOUND = ("project", "prox", "rows")


class CheckpointError(ValueError):
    """A checkpoint that cannot be used."""


def save(path: Path, kind: Mapping[str, Any], part: Any) -> None:
    """Write what a part declares to `path`, atomically; `kind` describes the run."""
    archive.save(path, FORMAT, {"kind": dict(kind), "content": content_of(part)})


def load(path: Path, kind: Mapping[str, Any]) -> dict[str, Any]:
    """Read what `save` wrote, or say why a run of this kind cannot use it."""
    try:
        tree = archive.load(path, FORMAT)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"resume={error}") from None
    except archive.ArchiveError as error:
        raise CheckpointError(f"resume={error}") from error
    written, wanted = tree["kind"], json.loads(json.dumps(dict(kind)))
    for name in {**wanted, **written}:
        if written.get(name) != wanted.get(name):
            raise CheckpointError(
                f"resume={str(path)!r}: the checkpoint is of another run: {name} was "
                f"{written.get(name)!r} there and is {wanted.get(name)!r} now."
            )
    content: dict[str, Any] = tree["content"]
    return content


def refuse_other_function(path: Path, oracle: Oracle | None, size: float) -> None:
    """Refuse a checkpoint whose best value is not the function's at that point.

    `size` is that of the run's first value: the best one may be close to zero.
    """
    if oracle is None or oracle.best is None:
        return
    best, value = oracle.best, math.nan
    with oracle.uncounted(), contextlib.suppress(NonFiniteError):
        value = oracle.exactly(best.point).value
    oracle.best = best
    if not abs(value - best.value) <= SAME_VALUE * max(abs(best.value), size):
        raise CheckpointError(
            f"resume={str(path)!r}: the checkpoint is of another function: its best point has "
            f"the value {best.value!r} there and {value!r} now."
        )


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
    parameters = fields_of(inner) or dict(sorted(vars(inner).items()))
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
        **{name: _plain(value) for name, value in parameters.items() if name not in BOUND},
    }


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return repr(value) if isinstance(value, Rule) else fingerprint(value)


def _content(thing: Any, base: type) -> str:
    """Return a fingerprint of the attributes of this library's classes; a user's are unknown."""
    package, _, _ = base.__module__.rpartition(".")
    return fingerprint(thing) if type(thing).__module__.startswith(package) else ""
