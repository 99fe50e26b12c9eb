"""The functions of the suite that are minimised over a set."""

from __future__ import annotations

from typing import Any

import numpy as np

from accelegrad.errors import Vector
from accelegrad.geometry.sets import Affine, Box, L1Ball, NonNegative, Simplex
from accelegrad_lab.functions.max_type import largest_linear
from accelegrad_lab.functions.problem import (
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
