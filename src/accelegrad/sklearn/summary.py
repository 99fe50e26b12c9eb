"""Printable summaries of fitted estimators."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from accelegrad.run.result import rounded_down, rounded_up

Facts = list[tuple[str, str]]

NOT_KNOWN = "not known"
MOST_NAMED = 10  # classes and columns shown at most. Chosen


def model_in_words(estimator: Any) -> str:
    """Return the kind of a fitted model in one line."""
    penalty = "no penalty"
    if estimator.penalty is not None:
        alpha = estimator.alpha_ if hasattr(estimator, "alpha_") else estimator.alpha
        penalty = f"{estimator.penalty} penalty, alpha {alpha:g}"
    intercept = "with" if estimator.fit_intercept else "without"
    words = f"{type(estimator).__name__}, {estimator.loss}, {penalty}, {intercept} intercept"
    scales = np.ravel(getattr(estimator, "target_scale_", 1.0))
    if (scales == 1.0).all():
        return words
    shown = ", ".join(f"{scale:.6g}" for scale in scales[:MOST_NAMED])
    return f"{words}, target scale {shown}{', ...' if scales.size > MOST_NAMED else ''}"


def labels_in_words(labels: Any) -> list[str]:
    """Return labels as text, whole numbers without a decimal point."""
    values = np.asarray(labels).tolist()
    whole = all(isinstance(value, float) and value.is_integer() for value in values)
    return [str(int(value) if whole else value) for value in values]


class Summary:
    """What `summary()` returns: title, facts, and a table of the largest coefficients.

    `heads` names the columns of the table: classes, quantiles or outputs. Features with only zero
    coefficients are left out.
    """

    def __init__(
        self, estimator: Any, top: int, name_of: Callable[[int], str] | None = None
    ) -> None:
        # A sparse model may have more columns than fit in memory.
        entries = sp.coo_array(_two_dimensional(estimator.coef_))
        entries.eliminate_zeros()
        places, columns = np.unique(entries.col, return_inverse=True)
        used = np.zeros((entries.shape[0], places.size))
        used[entries.row, columns] = entries.data
        self.title = model_in_words(estimator)
        self.facts = _facts(estimator, entries)
        self.heads = _heads(estimator, len(used))
        order = np.argsort(-np.abs(used).max(axis=0, initial=0.0), kind="stable")[:top]
        name = name_of or partial(_name, getattr(estimator, "feature_names_in_", None))
        self.coefficients = [(name(int(places[k])), used[:, k]) for k in order]
        self._intercepts = np.ravel(estimator.intercept_)
        self._unused = entries.shape[1] - places.size
        self._left_out = places.size - len(self.coefficients)

    def __repr__(self) -> str:
        width = max(len(name) for name, _ in self.facts) + 2
        lines = [self.title, *(f"{name:<{width}}{value}" for name, value in self.facts), ""]
        lines += _aligned(self._table())
        return "\n".join([*lines, *self._rest()])

    def _table(self) -> list[list[str]]:
        columns = len(self.heads)
        digits = 6 if columns <= 3 else 3
        table = [["", *self.heads]] if columns > 1 else []
        rows = [("intercept", np.broadcast_to(self._intercepts, columns)), *self.coefficients]
        table += [[name, *(f"{value:+.{digits}g}" for value in row)] for name, row in rows]
        if columns > MOST_NAMED:
            table = [[*row[: MOST_NAMED + 1], "..."] for row in table]
        return table

    def _rest(self) -> list[str]:
        rest = [f"and {self._left_out} smaller ones"] if self._left_out else []
        return rest + ([f"and {self._unused} that are zero"] if self._unused else [])


def _two_dimensional(coefficients: Any) -> Any:
    return coefficients if sp.issparse(coefficients) else np.atleast_2d(coefficients)


def _name(names: Sequence[str] | None, place: int) -> str:
    return f"x{place}" if names is None else str(names[place])


def _facts(estimator: Any, entries: Any) -> Facts:
    rows, columns = entries.shape
    facts = [("rows", str(estimator.n_samples_seen_)), ("features", str(estimator.n_features_in_))]
    if hasattr(estimator, "classes_"):
        facts.append(("classes", _classes_in_words(estimator, rows)))
    if getattr(estimator, "method_", ""):
        facts.append(("method", estimator.method_))
    facts += _quality(estimator)
    facts.append(("converged", f"{'yes' if estimator.converged_ else 'no'} (tol {estimator.tol})"))
    if hasattr(estimator, "seconds_"):
        facts.append(("seconds", f"{estimator.seconds_:.3g}"))
    facts.append(("coefficients", f"{entries.nnz} of {rows * columns} not zero"))
    return facts


def _quality(estimator: Any) -> Facts:
    objective, gap = float(estimator.objective_), float(estimator.gap_)
    share = f" ({gap / objective:.1e} of the objective)" if objective > 0.0 else ""
    proved = math.isfinite(gap)
    return [
        ("objective", f"{objective:.8g}" if math.isfinite(objective) else NOT_KNOWN),
        ("certified gap", f"{rounded_up(gap, 3)}{share}" if proved else NOT_KNOWN),
        *([("proved for", _reach(estimator))] if proved else []),
        ("iterations", str(estimator.n_iter_)),
    ]


def _classes_in_words(estimator: Any, columns: int) -> str:
    """Return the classes; for two, also the one that positive coefficients favour."""
    labels = labels_in_words(estimator.classes_)
    if len(labels) > MOST_NAMED:
        return f"{len(labels)}: {', '.join(labels[:MOST_NAMED])}, ..."
    side = f" (positive coefficients: {labels[-1]})" if columns == 1 else ""
    return ", ".join(labels) + side


def _reach(estimator: Any) -> str:
    if math.isinf(estimator.certified_radius_):
        return "all coefficients"
    return f"coefficients within {rounded_down(estimator.certified_radius_)} of the start"


def _heads(estimator: Any, count: int) -> list[str]:
    if count == 1:
        return ["coefficient"]
    if hasattr(estimator, "classes_"):
        return labels_in_words(estimator.classes_)
    levels = np.ravel(getattr(estimator, "quantile", ()))
    if levels.size == count:
        return [f"{level:g}" for level in levels]
    return [f"output {place}" for place in range(count)]


def _aligned(table: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            [f"{row[0]:<{widths[0]}}"]
            + [f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)]
        ).rstrip()
        for row in table
    ]
