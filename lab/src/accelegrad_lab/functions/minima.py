"""Minima of the suite's functions: found once by other solvers, and kept in minima.json.

Each is known in two ways at least: by a formula, by the primal and dual objectives of Clarabel (or
of HiGHS, for linear programmes that were found before), by L-BFGS-B on smooth functions. The lowest
value counts, or the formula; how far it is from the nearest other way is kept as its error. All
values are the suite's own at points of the set, so that no method can come below a minimum by more
than that.

CVXPY is an optional package (extra `bench`), and imported here alone.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize as typed_minimize

from accelegrad.errors import Vector
from accelegrad_lab.engine.line_file import put
from accelegrad_lab.functions.formulas import Case, Function

PATH = Path(__file__).with_name("minima.json")
TOLERANCES = (1e-12, 1e-10)  # Clarabel's; the second where it does not reach the first
TIME_LIMIT = 600.0  # seconds for one solution; sparse-logistic needs 150


@dataclass(frozen=True)
class Minimum:
    """A minimum, and what is known of it."""

    start: float  # f(x0): a function that was changed since shows by it
    value: float
    error: float  # the distance to the nearest other way, over f(x0) - value
    distance: float  # from x0 to the minimiser that was found
    ways: str  # which way it is of, and which is nearest


class Answer(NamedTuple):
    """What Clarabel says."""

    x: Vector  # in the set
    value: float  # of the suite's own function at x
    dual: float  # the solver's dual objective
    solved: bool  # to the tolerance that was asked for


@cache
def minima() -> dict[str, Minimum]:
    """Return the minima that are kept, by the functions' names."""
    return {name: Minimum(**kept) for name, kept in json.loads(PATH.read_text()).items()}


def has_cvxpy() -> bool:
    """Tell whether CVXPY and Clarabel are installed."""
    return find_spec("cvxpy") is not None and find_spec("clarabel") is not None


def find_minimum(function: Function) -> Minimum:
    """Find the minimum in all the ways that there are."""
    points: dict[str, tuple[float, Vector]] = {}
    figures: dict[str, float] = {}
    for tolerance in TOLERANCES:
        answer = by_clarabel(function, tolerance, TIME_LIMIT)
        if answer is not None and answer.value < points.get("Clarabel", (math.inf,))[0]:
            points["Clarabel"] = answer.value, answer.x
            figures["Clarabel's dual"] = answer.dual
        if answer is not None and answer.solved:
            break
    if function.smooth and function.feasible_set is None and function.penalty is None:
        x = _by_lbfgs(function)
        points["L-BFGS-B"] = function.value(x), x
    way = min(points, key=lambda way: points[way][0])
    value, x = points[way]
    figures |= {other: found for other, (found, _) in points.items()}
    if function.minimum is not None:
        way, value = "formula", function.minimum
    others = {other: figure for other, figure in figures.items() if other != way}
    nearest = min(others, key=lambda other: abs(others[other] - value))
    start = function.value(function.x0)
    return Minimum(
        start=start,
        value=value,
        error=abs(others[nearest] - value) / (start - value),
        distance=float(np.linalg.norm(x - function.x0)),
        ways=f"{way}, {nearest}",
    )


def by_clarabel(function: Function, tolerance: float, time_limit: float) -> Answer | None:
    """State a function, solve it by Clarabel; None where there is no point within the limit."""
    import cvxpy as cp

    x = cp.Variable(function.x0.size)
    limits = [] if function.limits is None else function.limits(cp, x)
    problem = cp.Problem(cp.Minimize(function.statement(cp, x)), limits)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "may be inaccurate": that is measured here
        accept = {"accept_unknown": True}  # a point short of the tolerance is a point
        data, chain, inverse = problem.get_problem_data(cp.CLARABEL, solver_opts=accept)
        options = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), tolerance)
        options["time_limit"] = time_limit
        raw = chain.solve_via_data(problem, data, solver_opts=options)
        try:
            problem.unpack_results(raw, chain, inverse)
        except cp.SolverError:
            return None
    if x.value is None:
        return None
    point: Vector = np.array(x.value, dtype=np.float64)
    if function.feasible_set is not None:
        point = function.feasible_set.project(point)
    dual = float(raw.obj_val_dual + problem.value - raw.obj_val)
    return Answer(point, function.value(point), dual, str(raw.status) == "Solved")


def _by_lbfgs(function: Function) -> Vector:
    """Return where L-BFGS-B ends when only rounding ends it."""
    options = {"maxiter": 50_000, "maxfun": 50_000, "ftol": 0.0, "gtol": 0.0, "maxcor": 50}
    scipy_minimize: Any = typed_minimize  # its stubs allow no plain arrays
    result = scipy_minimize(function.fun, function.x0, jac=True, method="L-BFGS-B", options=options)
    found: Vector = result.x
    return found


def write_minima(cases: Iterable[Case]) -> dict[str, Minimum]:
    """Find minima anew and keep them beside those of the other functions."""
    kept = json.loads(PATH.read_text()) if PATH.exists() else {}
    for case in cases:
        kept[case.name] = asdict(find_minimum(case.build()))
        put(PATH, json.dumps(kept, indent=1, sort_keys=True) + "\n")
    minima.cache_clear()
    return minima()
