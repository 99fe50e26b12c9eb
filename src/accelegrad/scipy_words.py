"""SciPy's bounds, constraints and option names, and CVXPY's, in accelegrad's terms."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import Bounds, LinearConstraint

from accelegrad.errors import Vector, real_array
from accelegrad.geometry.nearest_point import Rows, lowest_of_cuts, nearest_point
from accelegrad.geometry.polyhedron import Polyhedron
from accelegrad.geometry.sets import Affine, Box, FeasibleSet, Halfspace, Simplex
from accelegrad.linalg import norm

_GAP = "it is the certified gap that a run stops on"
#: What to use instead of options of SciPy's and CVXPY's solvers.
_INSTEAD = {
    "give max_iter=...": "maxiter",
    "give max_iter=... or time_limit=...": "maxfun maxfev",
    f"give rtol=... (relative) or tol=...: {_GAP}": "ftol",
    f"give tol=... or rtol=...: {_GAP}, not the gradient": "gtol",
    f"give tol=... or rtol=...: {_GAP}, not the step": "xtol xatol",
    f"give tol=...: {_GAP}": "fatol eps_abs abstol",
    f"give tol=...: {_GAP}; gradients are not approximated": "eps",
    f"give rtol=...: {_GAP}": "eps_rel reltol",
    "leave it out: every returned point is projected onto the constraints": "feastol",
    "give progress=True": "disp iprint verbose",
    "give callback=... or trace=True": "return_all",
    "give method=...": "solver",
    "give x0=...": "warm_start x_init",
    "leave it out: second derivatives are not used": "hess hessp",
    "leave it out: gradients are not approximated": "finite_diff_rel_step",
    "give target=...": "f_min",
    "leave it out: there is no memory of gradients to choose": "maxcor",
    "give max_trials=..., of the universal methods": "maxls",
    "leave it out: step sizes are found; step_size=... is of method='subgradient'": (
        "learning_rate lr"
    ),
    "give rng=...": "seed random_state",
}
WORDS = {word: instead for instead, words in _INSTEAD.items() for word in words.split()}


def hint(name: str) -> str | None:
    """Return what to use instead of another library's option, None if it is unknown."""
    instead = WORDS.get(name)
    return None if instead is None else f"it is another library's word; {instead}."


class Limits:
    """SciPy's bounds and linear constraints, for points of x0's shape."""

    def __init__(self, bounds: Any, rows: list[LinearConstraint], shape: tuple[int, ...]) -> None:
        size = math.prod(shape)
        self._shape, self._bounded = shape, bounds is not None
        self._sizes, A, low, high = _stacked(rows, size)
        box = _box(bounds, shape) if self._bounded else None
        self._kept = _rows_that_say_something(self._sizes, A, low, high)
        A, low, high = A[self._kept], low[self._kept], high[self._kept]
        #: the set they describe, None if all points are feasible
        self.feasible_set = _simplest(A, low, high, box) if len(A) else box
        ends = (-math.inf, math.inf) if box is None else (box.lower, box.upper)
        # Powers of two, so that scaling is exact.
        self._factors = np.ldexp(1.0, -np.frexp(np.abs(A).sum(axis=1))[1])
        low, high = low * self._factors, high * self._factors
        sides = (np.array(np.broadcast_to(end, size), dtype=np.float64) for end in ends)
        self._rows = Rows(A * self._factors[:, None], low, high, *sides)

    def multipliers(self, x: Vector, slopes: Vector, below: Vector, reach: float) -> list[Vector]:
        """Return Lagrange multipliers at x, one array per constraint, then those of the bounds.

        `slopes` and `below` are the slopes of cuts, and how far these are below f(x). `reach` is
        the length of a step along the negative gradient: only constraints that it meets may have
        nonzero multipliers.
        """
        on_box, found = self._at(x, slopes, below, reach)
        every = np.zeros(sum(self._sizes))
        every[self._kept] = found * self._factors
        parts = np.split(every, np.cumsum(self._sizes)[:-1]) if self._sizes else []
        return [*parts, on_box.reshape(self._shape)] if self._bounded else parts

    def _at(self, x: Vector, slopes: Vector, below: Vector, reach: float) -> tuple[Vector, Vector]:
        """Return the multipliers of the coordinates' bounds, and of the nontrivial rows."""
        rows, g = self._rows, slopes[int(below.argmin())]
        steepest = norm(g)
        if steepest == 0.0:
            return np.zeros(x.size), np.zeros(rows.low.size)
        step = reach / steepest
        found = lowest_of_cuts(rows, x, slopes, below, step)
        if found is not None:
            return found.on_box, found.multipliers
        # from the gradient alone
        point, m = nearest_point(rows, x - step * g)
        return (x - point - m @ rows.A) / step - g, m / step


def limits_of(
    bounds: Any, constraints: Any, feasible_set: Any, shape: tuple[int, ...]
) -> Limits | None:
    """Return what SciPy's arguments describe, None if there are neither bounds nor constraints."""
    rows = _linear_constraints(constraints)
    if bounds is None and not rows:
        return None
    if feasible_set is not None:
        given = "constraints" if bounds is None else "bounds"
        raise ValueError(
            f"{given} and feasible_set cannot both be given; Polyhedron(A, lower, upper, bounds) "
            "is a set that holds bounds and rows."
        )
    return Limits(bounds, rows, shape)


def _box(bounds: Any, shape: tuple[int, ...]) -> Box:
    if isinstance(bounds, Box):
        return bounds
    if isinstance(bounds, Bounds):
        lower, upper = (np.asarray(end, dtype=float) for end in (bounds.lb, bounds.ub))
    else:
        try:
            pairs = [
                (-math.inf if low is None else low, math.inf if high is None else high)
                for low, high in bounds
            ]
            lower, upper = np.array(pairs, dtype=float).reshape(-1, 2).T
        except (TypeError, ValueError):
            raise TypeError(
                "bounds must be scipy.optimize.Bounds(lower, upper) or a pair (min, max) per entry "
                f"of x0, with None for no limit; not {bounds!r}."
            ) from None
        size = math.prod(shape)
        if len(pairs) != size:
            raise ValueError(f"bounds must be one pair per entry of x0, {size}, not {len(pairs)}.")
        lower, upper = lower.reshape(shape), upper.reshape(shape)
    try:  # SciPy makes vectors of numbers
        ends = [
            np.broadcast_to(end.reshape(()) if end.size == 1 else end, shape)
            for end in (lower, upper)
        ]
    except ValueError:
        raise ValueError(
            f"bounds must fit x0's shape {shape}, but theirs are {lower.shape} and {upper.shape}."
        ) from None
    try:
        return Box(*(end.ravel() for end in ends))
    except ValueError as error:
        raise ValueError(f"bounds: {error}") from None


def _linear_constraints(constraints: Any) -> list[LinearConstraint]:
    if constraints is None:
        return []
    if isinstance(constraints, (LinearConstraint, dict)) or not isinstance(constraints, Iterable):
        constraints = [constraints]
    for constraint in constraints:
        if not isinstance(constraint, LinearConstraint):
            raise TypeError(
                f"constraints must be scipy.optimize.LinearConstraint(A, lb, ub), one or several, "
                f"not {constraint!r}; for other convex sets give feasible_set=..., an object with "
                "project(x)."
            )
    return list(constraints)


def _stacked(rows: list[LinearConstraint], size: int) -> tuple[list[int], Vector, Vector, Vector]:
    """Return the number of rows of each constraint, all rows, and their limits."""
    matrices, lows, highs = [np.zeros((0, size))], [np.zeros(0)], [np.zeros(0)]
    for number, row in enumerate(rows):
        given = row.A.toarray() if sp.issparse(row.A) else row.A
        A = np.asarray(real_array("constraints", given), dtype=float)
        if A.shape[1] != size:
            raise ValueError(
                f"constraints[{number}].A must have a column per entry of x0, {size}, but it has "
                f"{A.shape[1]}."
            )
        matrices.append(A)
        lows.append(np.broadcast_to(row.lb, len(A)))  # SciPy has checked their shapes
        highs.append(np.broadcast_to(row.ub, len(A)))
    sizes = [len(A) for A in matrices[1:]]
    return sizes, np.vstack(matrices), np.concatenate(lows), np.concatenate(highs)


def _rows_that_say_something(sizes: list[int], A: Vector, low: Vector, high: Vector) -> Any:
    """Return the rows that exclude any point; refuse rows that exclude every point."""
    zero = ~A.any(axis=1)
    excluding = np.flatnonzero(zero & ((low > 0.0) | (high < 0.0)))
    if excluding.size:
        first = int(excluding[0])
        ends = np.cumsum(sizes)
        number = int(np.searchsorted(ends, first, side="right"))
        row = first - int(ends[number] - sizes[number])
        raise ValueError(
            f"no point meets constraints[{number}]: row {row} of its A is zero, and 0 is not "
            f"between its limits {low[first]:g} and {high[first]:g}."
        )
    return np.flatnonzero(~zero & ~((low == -math.inf) & (high == math.inf)))


def _simplest(A: Vector, low: Vector, high: Vector, box: Box | None) -> FeasibleSet:
    """Return the equivalent set with the cheapest projection and tightest bounds."""
    equations = bool((low == high).all())
    free = box is None or not (np.isfinite(box.lower).any() or np.isfinite(box.upper).any())
    if equations and free:
        return Affine(A, low)
    if len(A) == 1 and free and np.isinf(low[0]) != np.isinf(high[0]):
        return Halfspace(A[0], high[0]) if np.isinf(low[0]) else Halfspace(-A[0], -low[0])
    if box is not None and len(A) == 1 and equations and (A == 1.0).all() and low[0] > 0.0:
        total = float(low[0])
        if not np.any(box.lower) and np.all(np.asarray(box.upper) >= total):
            return Simplex(total)
    return Polyhedron(A, low, high, bounds=box)
