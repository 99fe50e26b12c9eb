"""CVXPY's solvers on functions of the suite: Clarabel for all, HiGHS for linear programmes.

CVXPY is an optional package (extra `bench`), and imported here alone.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from accelegrad.errors import Vector
from accelegrad_lab.functions.problem import Function


class Answer(NamedTuple):
    """What a solver says."""

    x: Vector  # in the set
    value: float  # of the suite's own function at x
    dual: float  # the solver's dual objective, NaN where it tells none
    solved: bool  # to the tolerance that was asked for
    seconds: float  # of processor time: stating and solving


def has_cvxpy() -> bool:
    """Tell whether CVXPY and Clarabel are installed."""
    return find_spec("cvxpy") is not None and find_spec("clarabel") is not None


def by_clarabel(
    function: Function,
    tolerance: float,
    time_limit: float,
    clock: Callable[[], float] = time.perf_counter,
) -> Answer | None:
    """State a function, solve it by Clarabel; None where there is no point within the limit."""
    begun = clock()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "may be inaccurate": that is measured here
        cp, x, problem = _stated(function)
        options = {"accept_unknown": True}  # a point short of the tolerance is a point
        data, chain, inverse = problem.get_problem_data(cp.CLARABEL, solver_opts=options)
        limits = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), tolerance)
        limits["time_limit"] = time_limit
        raw = chain.solve_via_data(problem, data, solver_opts=limits)
        try:
            problem.unpack_results(raw, chain, inverse)
        except cp.SolverError:
            return None
    seconds = clock() - begun
    if x.value is None:
        return None
    dual = float(raw.obj_val_dual + problem.value - raw.obj_val)
    return _answer(function, x.value, dual, str(raw.status) == "Solved", seconds)


def by_highs(function: Function) -> Answer | None:
    """Solve a function that is a linear programme by HiGHS; None where it is none."""
    begun = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cp, x, problem = _stated(function)
        if not _is_linear(problem.get_problem_data(cp.CLARABEL)[0]):
            return None
        problem.solve(cp.SCIPY, scipy_options={"method": "highs"})
    seconds = time.process_time() - begun
    return _answer(function, x.value, np.nan, problem.status == cp.OPTIMAL, seconds)


def _stated(function: Function) -> tuple[Any, Any, Any]:
    """Return the module, the variable and the problem."""
    import cvxpy as cp

    x = cp.Variable(function.x0.size)
    limits = [] if function.limits is None else function.limits(cp, x)
    return cp, x, cp.Problem(cp.Minimize(function.statement(cp, x)), limits)


def _is_linear(data: Any) -> bool:
    """Tell whether a conic problem has neither a quadratic term nor a curved cone."""
    cones = data["dims"]
    return data.get("P") is None and not (cones.exp or cones.soc or cones.psd or cones.p3d)


def _answer(function: Function, x: Any, dual: float, solved: bool, seconds: float) -> Answer:
    point: Vector = np.array(x, dtype=np.float64)
    if function.feasible_set is not None:
        point = function.feasible_set.project(point)
    return Answer(point, function.value(point), dual, solved, seconds)
