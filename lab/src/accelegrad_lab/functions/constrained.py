"""The functions of the suite with a set or a penalty."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from accelegrad.errors import Vector
from accelegrad.geometry.penalties import L1, ElasticNet, GroupL2, NuclearNorm
from accelegrad.geometry.sets import Affine, Box, L1Ball, NonNegative, Simplex
from accelegrad_lab.functions.max_type import largest_linear
from accelegrad_lab.functions.problem import (
    COMPOSITE,
    CONSTRAINED,
    Cases,
    Evaluate,
    Function,
    Statement,
    gaussian,
    signs_of,
)
from accelegrad_lab.functions.smooth import (
    conditioned,
    grid_laplacian,
    least_squares,
    logistic_loss,
    quadratic,
)

CASES = Cases()


def _on_simplex(fun: Evaluate, d: int, statement: Statement, *, smooth: bool) -> Function:
    """Return a function on the simplex, from its centre."""

    def limits(cp: Any, x: Any) -> Any:
        return [x >= 0, cp.sum(x) == 1]

    return Function(
        fun,
        np.full(d, 1 / d),
        statement,
        feasible_set=Simplex(),
        limits=limits,
        equations=(np.ones((1, d)), np.ones(1)),
        smooth=smooth,
    )


def _not_negative(cp: Any, x: Any) -> Any:  # noqa: ARG001
    return [x >= 0]


@CASES.add(CONSTRAINED, "entropy and costs on the simplex, d=100")
def entropy() -> Function:
    """Sum of (x_j + 0.01) log(x_j + 0.01) + c_j x_j; some coordinates end at zero.

    The shift keeps the gradient finite on the simplex; below zero the function goes on as a
    quadratic with the same slope, so that it has a value everywhere.
    """
    shift, c = 0.01, 3 * gaussian(501, 100)
    at_zero, slope = shift * np.log(shift), np.log(shift) + 1

    def fun(x: Vector) -> tuple[float, Vector]:
        moved = np.maximum(x, 0.0) + shift
        below = np.minimum(x, 0.0)
        logs = np.log(moved)
        inside = moved * logs
        terms = np.where(x >= 0, inside, at_zero + slope * below + below**2 / (2 * shift))
        return float(terms.sum() + c @ x), logs + 1.0 + below / shift + c

    def statement(cp: Any, x: Any) -> Any:
        return -cp.sum(cp.entr(x + shift)) + c @ x

    return _on_simplex(fun, 100, statement, smooth=True)


@CASES.add(CONSTRAINED, "quadratic of condition 1e4 in a box, d=200")
def box_quadratic() -> Function:
    """Many coordinates end at a bound."""
    H, b = conditioned(200, 1e4, 521), gaussian(522, 200)

    def statement(cp: Any, x: Any) -> Any:
        return cp.quad_form(x, cp.psd_wrap(H)) / 2 - b @ x

    def limits(cp: Any, x: Any) -> Any:
        return [cp.abs(x) <= 1]

    box, x0 = Box(-np.ones(200), np.ones(200)), np.zeros(200)
    return Function(quadratic(H, b), x0, statement, box, limits=limits, smooth=True)


@CASES.add(CONSTRAINED, "non-negative least squares, 300 x 100")
def nonnegative_least_squares() -> Function:
    """About half of the coordinates end at zero."""
    A = gaussian(531, 300, 100) * np.geomspace(1.0, 0.1, 100)
    b = A @ gaussian(532, 100) + gaussian(533, 300)

    def statement(cp: Any, x: Any) -> Any:
        return cp.sum_squares(A @ x - b) / 600

    return Function(
        least_squares(A, b),
        np.zeros(100),
        statement,
        NonNegative(),
        limits=_not_negative,
        smooth=True,
    )


@CASES.add(CONSTRAINED, "logistic regression in an l1 ball, 400 x 100")
def l1_ball_logistic() -> Function:
    """A sparse minimiser on the boundary."""
    A = gaussian(541, 400, 100)
    y = signs_of(A[:, :10] @ gaussian(542, 10), 543, 1.0)

    def statement(cp: Any, x: Any) -> Any:
        return cp.sum(cp.logistic(cp.multiply(-y, A @ x))) / 400

    def limits(cp: Any, x: Any) -> Any:
        return [cp.norm1(x) <= 4.0]

    return Function(
        logistic_loss(A, y), np.zeros(100), statement, L1Ball(4.0), limits=limits, smooth=True
    )


@CASES.add(CONSTRAINED, "matrix game, 60 x 50, on the simplex")
def matrix_game() -> Function:
    """max_i (P x)_i over the simplex: the value of a game for two."""
    P = gaussian(551, 60, 50)

    def statement(cp: Any, x: Any) -> Any:
        return cp.max(P @ x)

    return _on_simplex(largest_linear(P, np.zeros(60)), 50, statement, smooth=False)


@CASES.add(CONSTRAINED, "mean of the worst 5 % of 400 losses, on the simplex, d=30")
def tail_risk() -> Function:
    """Conditional value at risk of a portfolio."""
    losses = gaussian(561, 400, 30) * np.linspace(0.5, 2.0, 30) - 0.1 * gaussian(562, 30)

    def fun(x: Vector) -> tuple[float, Vector]:
        values = losses @ x
        places = np.argpartition(values, -20)[-20:]
        return float(values[places].sum()) / 20, losses[places].sum(axis=0) / 20

    def statement(cp: Any, x: Any) -> Any:
        return cp.sum_largest(losses @ x, 20) / 20

    return _on_simplex(fun, 30, statement, smooth=False)


@CASES.add(CONSTRAINED, "obstacle problem on a 100 x 100 grid, d=10,000")
def obstacle() -> Function:
    """A membrane over a floor at zero: a sparse quadratic with x >= 0."""
    H = grid_laplacian(100)
    i = (np.arange(100) + 1) / 101
    b = 0.02 * np.outer(np.sin(3 * np.pi * i), np.sin(2 * np.pi * i)).ravel()

    def statement(cp: Any, x: Any) -> Any:
        return cp.quad_form(x, cp.psd_wrap(H)) / 2 - b @ x

    return Function(
        quadratic(H, b),
        np.zeros(10_000),
        statement,
        NonNegative(),
        limits=_not_negative,
        smooth=True,
    )


@CASES.add(CONSTRAINED, "basis pursuit: the least l1 norm under 30 equations, d=100")
def basis_pursuit() -> Function:
    """||x||_1 with A x = b, from the solution of least Euclidean norm."""
    A = gaussian(571, 30, 100)
    sparse = np.zeros(100)
    sparse[::20] = gaussian(572, 5)
    b = A @ sparse

    def fun(x: Vector) -> tuple[float, Vector]:
        return float(np.abs(x).sum()), np.sign(x)

    def statement(cp: Any, x: Any) -> Any:
        return cp.norm1(x)

    def limits(cp: Any, x: Any) -> Any:  # noqa: ARG001
        return [A @ x == b]

    plane = Affine(A, b)
    x0 = plane.project(np.zeros(100))
    return Function(fun, x0, statement, plane, limits=limits, equations=(A, b))


# -- penalties -------------------------------------------------------------------------------------


def _signs(strength: float) -> Callable[[Vector], Vector]:
    """Return a subgradient of the l1 norm times a strength."""
    return lambda x: strength * np.sign(x)


@CASES.add(COMPOSITE, "least squares with an l1 penalty, 200 x 400")
def lasso() -> Function:
    """More columns than rows, 20 of which matter."""
    A = gaussian(601, 200, 400)
    true = np.zeros(400)
    true[::20] = gaussian(602, 20)
    b = A @ true + 0.5 * gaussian(603, 200)

    def statement(cp: Any, x: Any) -> Any:
        return cp.sum_squares(A @ x - b) / 400 + 0.1 * cp.norm1(x)

    return Function(
        least_squares(A, b),
        np.zeros(400),
        statement,
        penalty=L1(0.1),
        slope=_signs(0.1),
        smooth=True,
    )


@CASES.add(COMPOSITE, "logistic regression with an elastic net, 300 x 100")
def elastic_net() -> Function:
    """Correlated columns."""
    A = gaussian(611, 300, 100) + 2 * gaussian(612, 300, 1)
    y = signs_of(A[:, :10] @ gaussian(613, 10), 614, 1.0)

    def statement(cp: Any, x: Any) -> Any:
        losses = cp.sum(cp.logistic(cp.multiply(-y, A @ x))) / 300
        return losses + 0.01 * cp.norm1(x) + 0.0005 * cp.sum_squares(x)

    def slope(x: Vector) -> Vector:
        return 0.01 * np.sign(x) + 0.001 * x

    return Function(
        logistic_loss(A, y),
        np.zeros(100),
        statement,
        penalty=ElasticNet(0.01, 0.001),
        slope=slope,
        smooth=True,
    )


@CASES.add(COMPOSITE, "group lasso, 150 x 200, groups of 5")
def group_lasso() -> Function:
    """Four groups of forty matter."""
    A = gaussian(621, 150, 200)
    true = np.zeros(200)
    true[:20] = gaussian(622, 20)
    b = A @ true + 0.5 * gaussian(623, 150)

    def statement(cp: Any, x: Any) -> Any:
        norms = cp.norm(cp.reshape(x, (40, 5), order="C"), axis=1)
        return cp.sum_squares(A @ x - b) / 300 + 0.2 * cp.sum(norms)

    def slope(x: Vector) -> Vector:
        groups = x.reshape(40, 5)
        norms = np.sqrt((groups**2).sum(axis=1, keepdims=True))
        return 0.2 * (groups / np.where(norms > 0, norms, 1.0)).ravel()

    return Function(
        least_squares(A, b),
        np.zeros(200),
        statement,
        penalty=GroupL2(0.2, np.arange(200) // 5),
        slope=slope,
        smooth=True,
    )


@CASES.add(COMPOSITE, "matrix completion by the nuclear norm, 30 x 20, d=600")
def matrix_completion() -> Function:
    """Half of the entries of a noisy matrix of rank 2 are seen."""
    shape = (30, 20)
    full = gaussian(631, 30, 2) @ gaussian(632, 2, 20) + 0.1 * gaussian(633, *shape)
    seen = (np.random.default_rng(634).uniform(size=shape) < 0.5).ravel().astype(np.float64)
    known = full.ravel()

    def fun(x: Vector) -> tuple[float, Vector]:
        r = seen * (x - known)
        return float(r @ r) / 2, r

    def statement(cp: Any, x: Any) -> Any:
        return cp.sum_squares(cp.multiply(seen, x - known)) / 2 + cp.normNuc(
            cp.reshape(x, shape, order="C")
        )

    def slope(x: Vector) -> Vector:
        left, sizes, right = np.linalg.svd(x.reshape(shape), full_matrices=False)
        return np.asarray((left * (sizes > 0)) @ right, dtype=np.float64).ravel()

    penalty = NuclearNorm(1.0, shape)
    return Function(fun, np.zeros(600), statement, penalty=penalty, slope=slope, smooth=True)
