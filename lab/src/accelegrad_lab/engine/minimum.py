"""Minima of linear models without an intercept, with lower bounds, for all that is compared.

None of the methods compared takes part.

Smooth losses are minimised by Newton's method. Losses with kinks get the method of multipliers, as
in [1]_: each of its subproblems is smooth enough for (semismooth) Newton steps, and its multipliers
are a point of the dual, so a lower bound. Without an l2 term the dual is a linear programme, for
HiGHS, whose answer is refined by the equations of the rows that lie on a kink.

References
----------
.. [1] Li, Sun and Toh (2018). A highly efficient semismooth Newton augmented Lagrangian method for
   solving lasso problems. SIAM J. Optim. 28(1).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.optimize import linprog
from scipy.sparse.linalg import LinearOperator, cg

from accelegrad import LinearModel
from accelegrad.errors import Vector
from accelegrad_lab.engine.rows import is_sparse

ENOUGH = 1e-9  # a certified gap, relative to the value, at which a search ends
CLOSE = 1e-13  # the same for a smooth loss, where one step of Newton's method leads from 1e-9 to it
DIRECT = 2500  # the largest system of equations that is solved by factorisation
FEW_SPARSE = 500  # the same with one equation per row, where products of sparse rows are slow
MOST_NEWTON = 60  # steps for one smooth function
MOST_CG = 300  # steps for one system of equations
MOST_ROUNDS = 100  # of multipliers
INNER = 0.1  # the share of the certified gap that a subproblem may leave
SMOOTHING = 0.1  # of the first subproblem, times the objective at zero
SHRINK = 0.5  # of the smoothing, from one subproblem to the next
LEAST_SMOOTHING = 1e-7
MOST_SECONDS = 600.0  # for a linear programme
ON_KINK = 1e-7  # of the largest target: a residual this small is on a kink
# HiGHS allows no smaller ones; what they leave is removed by solving for the rows on kinks.
EXACT: Any = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


class Minimum(NamedTuple):
    """The lowest value found and where, a certified lower bound, and by what."""

    x: Vector
    value: float
    lower: float  # -inf where there is none
    solver: str


def find_minimum(model: LinearModel, seconds: float = math.inf) -> Minimum:
    """Return the minimum to a relative 1e-9, or what is known after about this many seconds."""
    end = time.perf_counter() + seconds
    rows = _Rows(model)
    if math.isfinite(model.loss.curvature):
        enough = CLOSE * model.value(rows.zero)
        x, lower = _newton(rows, _smooth_loss(model), rows.zero, enough, end), -math.inf
        solver = "Newton's method"
    elif model.l2 == 0:
        (x, lower), solver = _by_linear_programme(rows, seconds), "HiGHS"
    else:
        (x, lower), solver = _by_multipliers(rows, end), "the method of multipliers"
    at = model.at(x)
    lower = max(lower, at.dual_value) if model.l2 > 0 else lower
    return Minimum(x, at.value, min(lower, at.value), solver)


class _Rows:
    """The rows of a model."""

    def __init__(self, model: LinearModel) -> None:
        self.model, self.n, self.l2 = model, model.n_samples, model.l2
        self.matrix: Any = model.X
        self.zero = np.zeros(model.n_parameters)

    def gradient(self, slopes: Vector, w: Vector) -> Vector:
        """Return the gradient at w, where the losses have these slopes."""
        found: Vector = self.matrix.T @ slopes / self.n + self.l2 * w
        return found

    @property
    def sizes(self) -> Vector:
        """The root mean square of each column; 1 where that is 0."""
        X = self.matrix
        squares = X.multiply(X) if is_sparse(X) else X * X
        found = np.sqrt(np.asarray(squares.mean(axis=0), dtype=np.float64).ravel())
        found[found == 0] = 1.0
        return found


# -- smooth losses ---------------------------------------------------------------------------------


class _Smooth(NamedTuple):
    """A function of each row's margin: values, slopes, and curvatures (of one side at a kink)."""

    values: Callable[[Vector], Vector]
    slopes: Callable[[Vector], Vector]
    curvatures: Callable[[Vector], Vector]


def _smooth_loss(model: LinearModel) -> _Smooth:
    loss, y = model.loss, model.y

    def slopes(margins: Vector) -> Vector:
        return np.asarray(loss.derivative(margins, y), dtype=np.float64)

    return _Smooth(
        lambda m: np.asarray(loss.value(m, y), dtype=np.float64),
        slopes,
        lambda m: loss.second_derivative(m, slopes(m), y),
    )


def _newton(rows: _Rows, f: _Smooth, w: Vector, enough: float, end: float) -> Vector:
    """Minimise mean f(Xw) + l2/2 ||w||^2, to about a gap of `enough`, or as far as values tell."""
    margins = rows.matrix @ w
    for _ in range(MOST_NEWTON):
        gradient = rows.gradient(f.slopes(margins), w)
        # Strong convexity bounds the gap.
        if time.perf_counter() > end or float(gradient @ gradient) <= 2 * rows.l2 * enough:
            break
        step = _newton_step(rows, f.curvatures(margins), gradient)
        along, slope, share = rows.matrix @ step, float(gradient @ step), 1.0

        def value(share: float) -> float:  # the margins are known: it costs no product
            at, losses = w + share * step, f.values(margins + share * along)  # noqa: B023
            return float(losses.mean()) + rows.l2 * float(at @ at) / 2

        start = value(0.0)
        while share > 1e-12 and value(share) > start + 1e-4 * share * slope:
            share /= 2
        if share <= 1e-12 or value(share) >= start:  # only rounding is left
            break
        w, margins = w + share * step, margins + share * along
    return w


def _newton_step(rows: _Rows, curvatures: Vector, gradient: Vector) -> Vector:
    """Return -(X' C X / n + l2)^-1 gradient, by whichever way is the shortest."""
    curved = np.flatnonzero(curvatures)
    weights = np.sqrt(curvatures[curved] / rows.n)
    chosen = rows.matrix[curved]
    S = sp.diags_array(weights) @ chosen if is_sparse(chosen) else weights[:, None] * chosen
    few_rows = rows.l2 > 0 and curved.size <= min(DIRECT, FEW_SPARSE if is_sparse(S) else DIRECT)
    if gradient.size <= DIRECT and not (few_rows and curved.size < gradient.size):
        return -_solved(S.T @ S, rows.l2, gradient)
    if few_rows:  # the same by Woodbury's identity, with one equation for each row
        inner = S.T @ _solved(S @ S.T, rows.l2, S @ gradient)
        return np.asarray(inner - gradient, dtype=np.float64) / rows.l2
    return -_by_cg(S, rows.l2, gradient)


def _solved(gram: Any, ridge: float, right: Vector) -> Vector:
    """Return (gram + ridge)^-1 right, of least squares where that has no inverse.

    The system's diagonal is scaled to 1 at first.
    """
    if right.size == 0:
        return right
    A = gram.toarray() if is_sparse(gram) else np.array(gram)
    A[np.diag_indices_from(A)] += ridge
    diagonal = np.diag(A)
    scale = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    even, right = A * scale[:, None] * scale, right * scale
    try:
        factor = scipy.linalg.cho_factor(even, check_finite=False)
        found = scipy.linalg.cho_solve(factor, right, check_finite=False)
    except scipy.linalg.LinAlgError:
        found = scipy.linalg.lstsq(even, right, check_finite=False)[0]
    return np.asarray(found, dtype=np.float64) * scale


def _by_cg(S: Any, ridge: float, right: Vector) -> Vector:
    """Return about (S'S + ridge)^-1 right, by conjugate gradients scaled by the diagonal."""
    d = right.size
    squares = S.multiply(S) if is_sparse(S) else S * S
    diagonal = np.asarray(squares.sum(axis=0)).ravel() + ridge
    diagonal[diagonal == 0] = 1.0
    transpose = S.T.tocsr() if is_sparse(S) else S.T
    operator = LinearOperator((d, d), matvec=lambda v: transpose @ (S @ v) + ridge * v)
    scaling = LinearOperator((d, d), matvec=lambda v: v / diagonal)
    found, _ = cg(operator, right, rtol=0.1, maxiter=MOST_CG, M=scaling)
    return np.asarray(found, dtype=np.float64)


# -- losses with kinks -----------------------------------------------------------------------------


class _Kinks:
    """A loss with kinks as slopes that go from `low` to `high` where the prediction passes y.

    All four have this form: l(m) = max over low <= theta <= high of theta (m - y) - zone |theta|,
    where the zone is that of the epsilon-insensitive loss, and 0 for the others.
    """

    def __init__(self, model: LinearModel) -> None:
        self.model = model
        self.zone = model.loss.shape.epsilon
        far = 2.0 + self.zone + np.abs(model.y)
        self.low = np.asarray(model.loss.derivative(model.y - far, model.y), dtype=np.float64)
        self.high = np.asarray(model.loss.derivative(model.y + far, model.y), dtype=np.float64)

    def smoothed(self, mu: float, centre: Vector | float = 0.0) -> _Smooth:
        """Return the loss smoothed around multipliers: less mu/2 (theta - centre)^2."""
        y, low, high, zone = self.model.y, self.low, self.high, self.zone

        def free(margins: Vector) -> Vector:
            best: Vector = centre + (margins - y) / mu
            return np.sign(best) * np.maximum(np.abs(best) - zone / mu, 0.0) if zone else best

        def slopes(margins: Vector) -> Vector:
            return np.clip(free(margins), low, high)

        def values(margins: Vector) -> Vector:
            theta = slopes(margins)
            found: Vector = (
                theta * (margins - y) - zone * np.abs(theta) - mu / 2 * (theta - centre) ** 2
            )
            return found

        def curvatures(margins: Vector) -> Vector:
            theta = free(margins)
            curved = (low < theta) & (theta < high) & ((theta != 0) | (zone == 0))
            return np.where(curved, 1 / mu, 0.0)

        return _Smooth(values, slopes, curvatures)


def _by_multipliers(rows: _Rows, end: float) -> tuple[Vector, float]:
    """Minimise mean max_theta (theta (m - y) - mu/2 (theta - theta_k)^2) + l2/2 ||w||^2 in turn.

    The maximisers theta are the next multipliers theta_k.
    """
    model, kinks = rows.model, _Kinks(rows.model)
    best = w = rows.zero
    theta = np.clip(np.zeros(rows.n), kinks.low, kinks.high)
    value, lower = model.value(w), 0.0
    unit, share = value or 1.0, SMOOTHING
    for _ in range(MOST_ROUNDS):
        if value - lower <= ENOUGH * value or time.perf_counter() > end:
            break
        f = kinks.smoothed(share * unit, theta)
        w = _newton(rows, f, w, INNER * min(value - lower, value), end)
        theta = f.slopes(rows.matrix @ w)
        lower = max(lower, model.dual_value_at(theta))
        best, value = min((w, model.value(w)), (best, value), key=lambda found: found[1])
        share = max(SHRINK * share, LEAST_SMOOTHING)
    return best, lower


def _by_linear_programme(rows: _Rows, seconds: float) -> tuple[Vector, float]:
    """Solve max -<y, theta> / n - zone |theta| / n over X' theta = 0; its multipliers are w.

    The minimiser goes through as many points as it has coordinates; these equations give it to the
    last digits.
    """
    model, kinks, sizes = rows.model, _Kinks(rows.model), rows.sizes
    even = (
        rows.matrix @ sp.diags_array(1 / sizes) if is_sparse(rows.matrix) else (rows.matrix / sizes)
    )
    costs, equations = model.y, even.T
    bounds: Any = np.column_stack([kinks.low, kinks.high])
    if kinks.zone:  # theta = above - below, so that |theta| is linear
        costs = np.concatenate([model.y + kinks.zone, kinks.zone - model.y])
        stack: Any = sp.hstack if is_sparse(even) else np.hstack
        equations = stack([even.T, -even.T])
        zeros = np.zeros(rows.n)
        bounds = np.vstack([np.c_[zeros, kinks.high], np.c_[zeros, -kinks.low]])
    options: Any = {**EXACT, "time_limit": min(seconds, MOST_SECONDS)}
    program: Any = linprog(
        costs, A_eq=equations, b_eq=rows.zero, bounds=bounds, method="highs-ipm", options=options
    )
    if program.status != 0:  # the time limit
        return rows.zero, 0.0
    v = np.asarray(program.eqlin.marginals, dtype=np.float64)
    theta = program.x[: rows.n] - program.x[rows.n :] if kinks.zone else program.x
    best = min((v, _through_kinks(rows, kinks, even, v)), key=lambda u: model.value(u / sizes))
    lower = 0.0  # losses are not negative; with few rows the minimum is zero
    if rows.n > model.n_parameters:
        lower = float(model.dual_value_at(np.clip(theta, kinks.low, kinks.high)))
    return best / sizes, lower


def _through_kinks(rows: _Rows, kinks: _Kinks, even: Any, v: Vector) -> Vector:
    """Return the solution of the equations of the rows that lie on a kink."""
    y = rows.model.y
    residual = even @ v - y
    targets = y + np.sign(residual) * kinks.zone
    on = np.flatnonzero(np.abs(even @ v - targets) < ON_KINK * (np.abs(y).max() or 1.0))
    if on.size == 0 or v.size > DIRECT:
        return v
    A = even[on].toarray() if is_sparse(even) else even[on]
    return np.asarray(scipy.linalg.lstsq(A, targets[on])[0], dtype=np.float64)
