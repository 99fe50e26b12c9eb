"""Minima of the suite's functions: found once by other solvers, and kept in minima.json.

Every minimum is found in at least two ways: a formula, Clarabel's primal and dual objectives, HiGHS
on linear programmes, L-BFGS-B on smooth functions. The lowest value counts, or the formula; how far
it is from the nearest other way is kept as its error. All values are the suite's own at points of
the set, so that no method can come below a minimum by more than that.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize as typed_minimize

from accelegrad.errors import Vector
from accelegrad_lab.functions.problem import Case, Function
from accelegrad_lab.functions.stated import by_clarabel, by_highs
from accelegrad_lab.report.tables import put

PATH = Path(__file__).with_name("minima.json")
TOLERANCES = (1e-12, 1e-10)  # Clarabel's; the second where it does not reach the first
CLARABEL = "Clarabel"
TIME_LIMIT = 600.0  # seconds for one solution; sparse-logistic needs 150


@dataclass(frozen=True)
class Minimum:
    """A minimum, and what is known of it."""

    start: float  # f(x0): a function that was changed since shows by it
    value: float
    error: float  # the distance to the nearest other way, over f(x0) - value
    distance: float  # from x0 to the minimiser that was found
    ways: str  # which way it is of, and which is nearest


class _Found:
    """The ways that were tried: values of points, and other figures for the minimum."""

    def __init__(self) -> None:
        self.points: dict[str, tuple[float, Vector]] = {}
        self.figures: dict[str, float] = {}

    def add(self, way: str, value: float, x: Vector) -> None:
        self.points[way] = value, x
        self.figures[way] = value


@cache
def minima() -> dict[str, Minimum]:
    """Return the minima that are kept, by the functions' names."""
    return {name: Minimum(**kept) for name, kept in json.loads(PATH.read_text()).items()}


def find_minimum(function: Function) -> Minimum:
    """Find the minimum in all the ways that there are."""
    found = _Found()
    for tolerance in TOLERANCES:
        answer = by_clarabel(function, tolerance, TIME_LIMIT)
        if answer is not None:
            if answer.value < found.figures.get(CLARABEL, math.inf):
                found.add(CLARABEL, answer.value, answer.x)
                found.figures["Clarabel's dual"] = answer.dual
            if answer.solved:
                break
    answer = by_highs(function)
    if answer is not None:
        found.add("HiGHS", answer.value, answer.x)
    if function.smooth and function.feasible_set is None and function.penalty is None:
        x, value = _by_lbfgs(function)
        found.add("L-BFGS-B", value, x)
    return _judged(function, found)


def _judged(function: Function, found: _Found) -> Minimum:
    """Return the lowest value, or the formula's, with the nearest other figure."""
    way = min(found.points, key=lambda way: found.points[way][0])
    value, x = found.points[way]
    if function.minimum is not None:
        way, value = "formula", function.minimum
    others = {other: figure for other, figure in found.figures.items() if other != way}
    nearest = min(others, key=lambda other: abs(others[other] - value))
    start = function.value(function.x0)
    return Minimum(
        start=start,
        value=value,
        error=abs(others[nearest] - value) / (start - value),
        distance=float(np.linalg.norm(x - function.x0)),
        ways=f"{way}, {nearest}",
    )


def _by_lbfgs(function: Function) -> tuple[Vector, float]:
    """Return where L-BFGS-B ends when only rounding ends it."""
    options = {"maxiter": 50_000, "maxfun": 50_000, "ftol": 0.0, "gtol": 0.0, "maxcor": 50}
    scipy_minimize: Any = typed_minimize  # its stubs allow no plain arrays
    result = scipy_minimize(function.fun, function.x0, jac=True, method="L-BFGS-B", options=options)
    return result.x, function.value(result.x)


def write_minima(cases: Iterable[Case]) -> dict[str, Minimum]:
    """Find minima anew and keep them beside those of the other functions."""
    kept = json.loads(PATH.read_text()) if PATH.exists() else {}
    for case in cases:
        kept[case.name] = asdict(find_minimum(case.build()))
        put(PATH, json.dumps(kept, indent=1, sort_keys=True) + "\n")
    minima.cache_clear()
    found = minima()
    doubtful = [name for name, one in found.items() if not math.isfinite(one.value)]
    if doubtful:
        raise ArithmeticError(f"no minimum was found of {', '.join(doubtful)}.")
    return found
