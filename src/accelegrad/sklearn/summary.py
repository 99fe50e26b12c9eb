"""Printable summaries of fitted estimators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from accelegrad.run.result import rounded

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
        rows: Any = estimator.coef_  # sparse ones may have more columns than fit in memory
        if not sp.issparse(rows):
            rows = np.atleast_2d(rows)
        entries = sp.coo_array(rows)
        entries.eliminate_zeros()
        places, columns = np.unique(entries.col, return_inverse=True)
        used = np.zeros((entries.shape[0], places.size))
        used[entries.row, columns] = entries.data
        self.title = model_in_words(estimator)
        self.facts = _facts(estimator, entries)
        self.heads = _heads(estimator, len(used))
        order = np.argsort(-np.abs(used).max(axis=0, initial=0.0), kind="stable")[:top]
        names = getattr(estimator, "feature_names_in_", None)
        if name_of is None:
            name_of = "x{}".format if names is None else names.__getitem__
        self.coefficients = [(str(name_of(int(places[k]))), used[:, k]) for k in order]
        self._intercepts = np.broadcast_to(np.ravel(estimator.intercept_), len(used))
        self._unused = entries.shape[1] - places.size
        self._left_out = places.size - len(self.coefficients)

    def __repr__(self) -> str:
        width = max(len(name) for name, _ in self.facts) + 2
        lines = [self.title, *(f"{name:<{width}}{value}" for name, value in self.facts), ""]
        columns = len(self.heads)
        table = [["", *self.heads]] if columns > 1 else []
        for name, row in [("intercept", self._intercepts), *self.coefficients]:
            table.append([name, *(f"{value:+.{6 if columns <= 3 else 3}g}" for value in row)])
        if columns > MOST_NAMED:
            table = [[*row[: MOST_NAMED + 1], "..."] for row in table]
        first, *widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for name, *cells in table:
            right = [f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)]
            lines.append("  ".join([f"{name:<{first}}", *right]).rstrip())
        lines += [f"and {self._left_out} smaller ones"] if self._left_out else []
        lines += [f"and {self._unused} that are zero"] if self._unused else []
        return "\n".join(lines)


def _facts(estimator: Any, entries: Any) -> Facts:
    """Return what is known of a fit; `entries` are its coefficients that are not zero."""
    rows, columns = entries.shape
    facts = [("rows", str(estimator.n_samples_seen_)), ("features", str(estimator.n_features_in_))]
    if hasattr(estimator, "classes_"):
        labels = labels_in_words(estimator.classes_)
        shown = ", ".join(labels)
        if len(labels) > MOST_NAMED:
            shown = f"{len(labels)}: {', '.join(labels[:MOST_NAMED])}, ..."
        elif rows == 1:  # the class that positive coefficients favour
            shown += f" (positive coefficients: {labels[-1]})"
        facts.append(("classes", shown))
    if getattr(estimator, "method_", ""):
        facts.append(("method", estimator.method_))
    objective, gap = float(estimator.objective_), float(estimator.gap_)
    facts.append(("objective", f"{objective:.8g}" if math.isfinite(objective) else NOT_KNOWN))
    if math.isfinite(gap):
        share = f" ({gap / objective:.1e} of the objective)" if objective > 0.0 else ""
        everywhere = math.isinf(estimator.certified_radius_)
        near = "" if everywhere else rounded(estimator.certified_radius_, 3, up=False)
        reach = "all coefficients" if everywhere else f"coefficients within {near} of the start"
        facts += [("certified gap", f"{rounded(gap, 3, up=True)}{share}"), ("proved for", reach)]
    else:
        facts.append(("certified gap", NOT_KNOWN))
    facts.append(("iterations", str(estimator.n_iter_)))
    facts.append(("converged", f"{'yes' if estimator.converged_ else 'no'} (tol {estimator.tol})"))
    if hasattr(estimator, "seconds_"):
        facts.append(("seconds", f"{estimator.seconds_:.3g}"))
    facts.append(("coefficients", f"{entries.nnz} of {rows * columns} not zero"))
    return facts


def _heads(estimator: Any, count: int) -> list[str]:
    if count == 1:
        return ["coefficient"]
    if hasattr(estimator, "classes_"):
        return labels_in_words(estimator.classes_)
    levels = np.ravel(getattr(estimator, "quantile", ()))
    if levels.size == count:
        return [f"{level:g}" for level in levels]
    return [f"output {place}" for place in range(count)]
