"""Minima for the benchmark, with lower bounds, by Newton's method: by none of the solvers compared.

Smooth losses are minimised by Newton's method. Losses with kinks get the method of multipliers, as
in [1]_: each of its subproblems is smooth enough for (semismooth) Newton steps, and its multipliers
are a point of the dual, so a lower bound. Without an l2 term the dual is a linear programme, for
HiGHS.

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
from scipy.special import expit

from accelegrad.errors import Vector
from accelegrad.lab.bench.problems import is_sparse
from accelegrad.lab.compare.problem import Kinks
from accelegrad.problems.linear_model import LinearModel

ENOUGH = 1e-9  # a certified gap, relative to the value, at which a search ends
DIRECT = 2500  # the largest system of equations that is solved by factorisation
MOST_NEWTON = 60  # steps for one smooth function
MOST_CG = 300  # steps for one system of equations
INNER = 0.1  # the share of the certified gap that a subproblem may leave
SMOOTHING = 0.1  # of the first subproblem, times the objective at zero
SHRINK = 0.5  # of the smoothing, from one subproblem to the next
LEAST_SMOOTHING = 1e-7


class Minimum(NamedTuple):
    """The lowest value found, a certified lower bound, and the seconds that took."""

    value: float
    lower: float
    seconds: float


def find_minimum(model: LinearModel, seconds: float) -> Minimum:
    """Return the minimum to a relative 1e-9, or what is known after about so many seconds."""
    begun = time.perf_counter()
    if math.isfinite(model.loss.curvature):
        value, lower = _by_newton(model, begun + seconds)
    elif model.l2 > 0:
        value, lower = _by_multipliers(model, begun + seconds)
    else:
        value, lower = _by_linear_programme(model)
    return Minimum(value, lower, time.perf_counter() - begun)


def _by_newton(model: LinearModel, end: float) -> tuple[float, float]:
    at = model.evaluate(np.zeros(model.n_features))
    while at.dual_gap > ENOUGH * at.value and time.perf_counter() < end:
        w = _newton(model, _own_loss(model), at.w, ENOUGH * at.value, end)
        if np.array_equal(w, at.w):
            break  # rounding is all that is left
        at = model.evaluate(w)
    return at.value, at.dual_value


def _by_multipliers(model: LinearModel, end: float) -> tuple[float, float]:
    """Minimise mean max_theta (theta (m - y) - mu/2 (theta - theta_k)^2) + l2/2 ||w||^2 in turn.

    The maximisers theta are the next multipliers theta_k.
    """
    kinks, w = Kinks(model), np.zeros(model.n_features)
    theta = np.clip(np.zeros(model.n_samples), kinks.low, kinks.high)
    value, lower = model.value(w), 0.0
    unit, share = value or 1.0, SMOOTHING
    while value - lower > ENOUGH * value and time.perf_counter() < end:
        f = _shifted(kinks, theta, share * unit)
        w = _newton(model, f, w, INNER * (value - lower), end)
        margins = model.X @ w
        theta = f.slopes(margins)
        value, lower = min(value, model.value(w)), max(lower, model.dual_value_at(theta))
        share = max(SHRINK * share, LEAST_SMOOTHING)
    return value, lower


def _by_linear_programme(model: LinearModel) -> tuple[float, float]:
    """Solve max -<y, theta> / n over X' theta = 0, low <= theta <= high; its multipliers are w."""
    kinks = Kinks(model)
    bounds: Any = np.column_stack([kinks.low, kinks.high])
    zero = np.zeros(model.n_features)
    program: Any = linprog(model.y, A_eq=model.X.T, b_eq=zero, bounds=bounds, method="highs")
    if program.x is None:
        return model.value(zero), 0.0
    value = model.value(program.eqlin.marginals)
    return value, min(value, model.dual_value_at(program.x))


# -- Newton's method -------------------------------------------------------------------------------


class _Smooth(NamedTuple):
    """A function of each row's margin: values, slopes, and curvatures (of one side at a kink)."""

    values: Callable[[Vector], Vector]
    slopes: Callable[[Vector], Vector]
    curvatures: Callable[[Vector], Vector]


def _own_loss(model: LinearModel) -> _Smooth:
    loss, y = model.loss, model.y
    curvatures: dict[str, Callable[[Vector], Vector]] = {
        "logistic": lambda m: expit(m) * expit(-m),
        "squared_hinge": lambda m: np.where(y * m < 1, 2.0, 0.0),
        "squared": np.ones_like,
        "huber": lambda m: np.where(np.abs(m - y) <= getattr(loss, "delta", 0.0), 1.0, 0.0),
    }
    return _Smooth(
        lambda m: np.asarray(loss.value(m, y), dtype=np.float64),
        lambda m: np.asarray(loss.derivative(m, y), dtype=np.float64),
        curvatures[loss.name],
    )


def _shifted(kinks: Kinks, centre: Vector, mu: float) -> _Smooth:
    """Return a loss with kinks, smoothed around the multipliers so far."""
    y, low, high = kinks.model.y, kinks.low, kinks.high

    def slopes(margins: Vector) -> Vector:
        return np.clip(centre + (margins - y) / mu, low, high)

    def values(margins: Vector) -> Vector:
        theta = slopes(margins)
        smoothed: Vector = theta * (margins - y) - mu / 2 * (theta - centre) ** 2
        return smoothed

    def curvatures(margins: Vector) -> Vector:
        free = centre + (margins - y) / mu
        return np.where((low < free) & (free < high), 1 / mu, 0.0)

    return _Smooth(values, slopes, curvatures)


def _newton(model: LinearModel, f: _Smooth, w: Vector, enough: float, end: float) -> Vector:
    """Minimise mean f(Xw) + l2/2 ||w||^2, which is l2-strongly convex, to a gap of `enough`."""
    X, l2, n = model.X, model.l2, model.n_samples
    margins = X @ w
    for _ in range(MOST_NEWTON):
        gradient = X.T @ f.slopes(margins) / n + l2 * w
        if gradient @ gradient <= 2 * l2 * enough or time.perf_counter() > end:
            break
        step = _newton_step(model, f.curvatures(margins), gradient)
        line = _Line(f, margins, X @ step, l2, w, step)
        share = line.descent(float(gradient @ step))
        if not share:
            break
        w, margins = w + share * step, margins + share * line.along
    return w


class _Line(NamedTuple):
    """The function along a step; the margins along it are known, so it costs no product."""

    f: _Smooth
    margins: Vector
    along: Vector
    l2: float
    w: Vector
    step: Vector

    def value(self, share: float) -> float:
        w = self.w + share * self.step
        losses = self.f.values(self.margins + share * self.along)
        return float(losses.mean()) + self.l2 / 2 * float(w @ w)

    def descent(self, slope: float) -> float:
        """Return a share of the step by which the function falls enough; 0 where rounding rules."""
        start, share = self.value(0.0), 1.0
        while share > 1e-12:
            if self.value(share) <= start + 1e-4 * share * slope:
                return share
            share /= 2
        return 0.0


def _newton_step(model: LinearModel, curvatures: Vector, gradient: Vector) -> Vector:
    """Return -(X' C X / n + l2 I)^-1 gradient, by whichever way is the shortest."""
    curved = np.flatnonzero(curvatures)
    weights = np.sqrt(curvatures[curved] / model.n_samples)
    rows = model.X[curved]
    S = sp.diags_array(weights) @ rows if is_sparse(rows) else weights[:, None] * rows
    if model.n_features <= min(DIRECT, max(curved.size, 1)):
        return -_solved(S.T @ S, model.l2, gradient)
    if curved.size <= DIRECT:  # the same by Woodbury's identity, with a system a row
        inner = S.T @ _solved(S @ S.T, model.l2, S @ gradient)
        return np.asarray(inner - gradient, dtype=np.float64) / model.l2
    return -_by_cg(S, model.l2, gradient)


def _solved(gram: Any, ridge: float, right: Vector) -> Vector:
    """Return (gram + ridge I)^-1 right."""
    if right.size == 0:
        return right
    A = gram.toarray() if is_sparse(gram) else gram
    A[np.diag_indices_from(A)] += ridge
    factor = scipy.linalg.cho_factor(A, overwrite_a=True, check_finite=False)
    return np.asarray(scipy.linalg.cho_solve(factor, right, check_finite=False), dtype=np.float64)


def _by_cg(S: Any, ridge: float, right: Vector) -> Vector:
    """Return about (S'S + ridge I)^-1 right, by conjugate gradients scaled by the diagonal."""
    d = right.size
    squares = S.multiply(S) if is_sparse(S) else S * S
    diagonal = np.asarray(squares.sum(axis=0)).ravel() + ridge
    transpose = S.T.tocsr() if is_sparse(S) else S.T
    operator = LinearOperator((d, d), matvec=lambda v: transpose @ (S @ v) + ridge * v)
    scaling = LinearOperator((d, d), matvec=lambda v: v / diagonal)
    found, _ = cg(operator, right, rtol=1e-3, maxiter=MOST_CG, M=scaling)
    return np.asarray(found, dtype=np.float64)
