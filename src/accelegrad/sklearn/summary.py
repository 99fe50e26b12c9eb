"""What is known of a fitted estimator, in text and in HTML."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from accelegrad.run.proof_words import rounded_down, rounded_up

Facts = list[tuple[str, str]]

NOT_KNOWN = "not known"


def model_in_words(estimator: Any) -> str:
    """Return the kind of a fitted model in one line."""
    penalty = "no penalty"
    if estimator.penalty is not None:
        alpha = estimator.alpha_ if hasattr(estimator, "alpha_") else estimator.alpha
        penalty = f"{estimator.penalty} penalty, alpha {alpha:g}"
    intercept = "with" if estimator.fit_intercept else "without"
    return f"{type(estimator).__name__}, {estimator.loss}, {penalty}, {intercept} intercept"


def quality_facts(estimator: Any) -> Facts:
    """Return what is known of how well a model was fitted."""
    objective, gap = float(estimator.objective_), float(estimator.gap_)
    share = f" ({gap / objective:.1e} of the objective)" if objective > 0.0 else ""
    return [
        ("objective", f"{objective:.8g}" if math.isfinite(objective) else NOT_KNOWN),
        ("certified gap", f"{rounded_up(gap, 3)}{share}" if math.isfinite(gap) else NOT_KNOWN),
        ("iterations", str(estimator.n_iter_)),
    ]


def labels_in_words(labels: Any) -> list[str]:
    """Return labels as files have them: whole numbers without a point."""
    values = np.asarray(labels).tolist()
    whole = all(isinstance(value, float) and value.is_integer() for value in values)
    return [str(int(value) if whole else value) for value in values]


class Summary:
    """What `summary()` returns: printed as text, and as HTML in notebooks.

    Attributes
    ----------
    title : str
        The kind of the model.
    facts : list of pairs
        Names and values: size, method, objective, certified gap and how far it reaches, ...
    heads : list of str
        The names of the columns of coefficients: classes, quantiles or outputs.
    coefficients : list of pairs
        The features with the largest coefficients, each with one number per column.
    """

    def __init__(self, estimator: Any, top: int) -> None:
        rows = _rows_of(estimator)
        self.title = model_in_words(estimator)
        self.facts = _facts(estimator, rows)
        self.heads = _heads(estimator, len(rows))
        self.coefficients = _largest(estimator, rows, top)
        self._left_out = rows.shape[1] - len(self.coefficients)

    def __repr__(self) -> str:
        width = max(len(name) for name, _ in self.facts) + 2
        lines = [self.title, *(f"{name:<{width}}{value}" for name, value in self.facts), ""]
        table = [["", *self.heads]] if len(self.heads) > 1 else []
        table += [[name, *(f"{value:+.6g}" for value in row)] for name, row in self.coefficients]
        lines += _aligned(table)
        return "\n".join([*lines, *self._rest()])

    def _rest(self) -> list[str]:
        return [f"and {self._left_out} smaller ones"] if self._left_out else []

    def _repr_html_(self) -> str:
        return self.html

    @property
    def html(self) -> str:
        """The same as HTML, which notebooks show."""
        facts = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th>"
            f"<td style='text-align:left'>{escape(value)}</td></tr>"
            for name, value in self.facts
        )
        heads = "".join(f"<th>{escape(head)}</th>" for head in self.heads)
        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th>"
            + "".join(f"<td>{value:+.6g}</td>" for value in row)
            + "</tr>"
            for name, row in self.coefficients
        )
        rest = "".join(f"<p>{line}</p>" for line in self._rest())
        return (
            f"<div><p><b>{escape(self.title)}</b></p><table>{facts}</table>"
            f"<table><thead><tr><th></th>{heads}</tr></thead><tbody>{rows}</tbody></table>"
            f"{rest}</div>"
        )


def _rows_of(estimator: Any) -> npt.NDArray[Any]:
    """Return the coefficients, a row for each class, quantile or output."""
    coefficients = estimator.coef_
    dense = coefficients.toarray() if hasattr(coefficients, "toarray") else coefficients
    return np.atleast_2d(dense)


def _facts(estimator: Any, rows: npt.NDArray[Any]) -> Facts:
    used = int(np.count_nonzero(rows))
    facts = [("rows", str(estimator.n_samples_seen_)), ("features", str(estimator.n_features_in_))]
    if hasattr(estimator, "classes_"):
        facts.append(("classes", ", ".join(labels_in_words(estimator.classes_))))
    if getattr(estimator, "method_", ""):
        facts.append(("method", estimator.method_))
    facts += quality_facts(estimator)
    facts.append(("proved", _reach(estimator)))
    facts.append(("converged", f"{'yes' if estimator.converged_ else 'no'} (tol {estimator.tol})"))
    if hasattr(estimator, "seconds_"):
        facts.append(("seconds", f"{estimator.seconds_:.3g}"))
    intercepts = np.ravel(estimator.intercept_)
    facts.append(("intercept", ", ".join(f"{value:.6g}" for value in intercepts)))
    facts.append(("coefficients", f"{used} of {rows.size} not zero"))
    return facts


def _reach(estimator: Any) -> str:
    if not math.isfinite(estimator.gap_):
        return "nothing"
    if math.isinf(estimator.certified_radius_):
        return "for all coefficients"
    return f"for coefficients within {rounded_down(estimator.certified_radius_)} of the start"


def _heads(estimator: Any, count: int) -> list[str]:
    if count == 1:
        return ["coefficient"]
    if hasattr(estimator, "classes_"):
        return labels_in_words(estimator.classes_)
    levels = np.ravel(getattr(estimator, "quantile", ()))
    if levels.size == count:
        return [f"{level:g}" for level in levels]
    return [f"output {place}" for place in range(count)]


def _largest(
    estimator: Any, rows: npt.NDArray[Any], top: int
) -> list[tuple[str, npt.NDArray[Any]]]:
    """Return the features with the largest coefficients, in absolute value, with all of these."""
    places = np.argsort(-np.abs(rows).max(axis=0), kind="stable")[:top]
    names: Sequence[Any] = getattr(estimator, "feature_names_in_", range(rows.shape[1]))
    return [
        (str(names[place]) if hasattr(estimator, "feature_names_in_") else f"x{place}", column)
        for place, column in ((int(place), rows[:, place]) for place in places)
    ]


def _aligned(table: list[list[str]]) -> list[str]:
    """Return the lines of a table, names to the left and numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            [f"{row[0]:<{widths[0]}}"]
            + [f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)]
        ).rstrip()
        for row in table
    ]
