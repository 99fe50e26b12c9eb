"""The smooth functions of the suite."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import spsolve
from scipy.special import expit, logsumexp

from accelegrad.errors import Vector
from accelegrad_lab.functions.problem import (
    SMOOTH,
    Cases,
    Evaluate,
    Function,
    gaussian,
    signs_of,
)

CASES = Cases()


def logistic_loss(A: Any, y: Vector, l2: float = 0.0) -> Evaluate:
    """Return the mean logistic loss of y_i <a_i, x> with l2/2 ||x||^2."""
    n = y.size

    def fun(x: Vector) -> tuple[float, Vector]:
        margins = y * (A @ x)
        value = np.logaddexp(0.0, -margins).mean() + l2 / 2 * (x @ x)
        return float(value), A.T @ (-y * expit(-margins)) / n + l2 * x

    return fun


def least_squares(A: Any, b: Vector) -> Evaluate:
    """Return ||A x - b||^2 / (2 n)."""
    n = b.size

    def fun(x: Vector) -> tuple[float, Vector]:
        r = A @ x - b
        return float(r @ r) / (2 * n), A.T @ r / n

    return fun


def quadratic(H: Any, b: Vector) -> Evaluate:
    """Return x'Hx/2 - b'x."""

    def fun(x: Vector) -> tuple[float, Vector]:
        Hx = H @ x
        return float(x @ Hx) / 2 - float(b @ x), Hx - b

    return fun


def conditioned(d: int, condition: float, seed: int) -> Vector:
    """Return a symmetric matrix with eigenvalues from 1/condition to 1, evenly on a log scale."""
    basis = np.linalg.qr(gaussian(seed, d, d))[0]
    matrix: Vector = (basis * np.geomspace(1 / condition, 1.0, d)) @ basis.T
    return matrix


def grid_laplacian(side: int) -> Any:
    """Return the five-point Laplacian of a square grid with zero boundary, as CSR."""
    one = sp.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(side, side))
    eye = sp.identity(side)
    return (sp.kron(one, eye) + sp.kron(eye, one)).tocsr()


def sparse_rows(n: int, d: int, per_row: int, seed: int) -> Any:
    """Return a CSR matrix with Gaussian entries, `per_row` in each row."""
    rng = np.random.default_rng(seed)
    columns = rng.integers(0, d, size=n * per_row)
    rows = np.repeat(np.arange(n), per_row)
    return sp.csr_matrix((rng.standard_normal(n * per_row), (rows, columns)), shape=(n, d))


def exponential(z: Vector) -> tuple[Vector, Vector]:
    """Return exp(z) and its slope; beyond 700, near the end of floats, it goes on as a line."""
    slope: Vector = np.exp(np.minimum(z, 700.0))
    return slope * (1.0 + np.maximum(z - 700.0, 0.0)), slope


@CASES.add(SMOOTH, "logistic regression, 1000 x 60, columns' scales from 1 to 0.01")
def logistic() -> Function:
    """Ill-conditioned logistic regression."""
    A = gaussian(101, 1000, 60) * np.geomspace(1.0, 0.01, 60)
    y = signs_of(A @ gaussian(102, 60), 103, 0.5)

    def statement(cp: Any, x: Any) -> Any:
        return cp.sum(cp.logistic(cp.multiply(-y, A @ x))) / 1000

    return Function(logistic_loss(A, y), np.zeros(60), statement, smooth=True)


@CASES.add(SMOOTH, "quadratic, condition 1e4, d=200")
def quadratic_ill_conditioned() -> Function:
    """x'Hx/2 - b'x with b = H z and a Gaussian minimiser z."""
    H, z = conditioned(200, 1e4, 111), gaussian(112, 200)
    b: Vector = H @ z
    fun = quadratic(H, b)
    least = fun(z)[0]

    def statement(cp: Any, x: Any) -> Any:
        return cp.quad_form(x, cp.psd_wrap(H)) / 2 - b @ x

    return Function(fun, np.zeros(200), statement, minimum=least, smooth=True)


@CASES.add(SMOOTH, "Nesterov's worst function, d=500")
def nesterov_worst() -> Function:
    """(x_1^2 + sum (x_j - x_{j+1})^2 + x_d^2)/2 - x_1, whose minimum is -d / (2 (d + 1))."""
    d = 500

    def fun(x: Vector) -> tuple[float, Vector]:
        steps = np.diff(x, prepend=0.0, append=0.0)
        gradient = -np.diff(steps)
        gradient[0] -= 1.0
        return float(steps @ steps) / 2 - float(x[0]), gradient

    def statement(cp: Any, x: Any) -> Any:
        ends = cp.square(x[0]) + cp.square(x[d - 1])
        return (ends + cp.sum_squares(x[1:] - x[:-1])) / 2 - x[0]

    return Function(fun, np.zeros(d), statement, minimum=-d / (2 * (d + 1)), smooth=True)


@CASES.add(SMOOTH, "log-sum-exp of 300 linear functions, d=40")
def log_sum_exp() -> Function:
    """A soft maximum."""
    A, b = gaussian(121, 300, 40), gaussian(122, 300)

    def fun(x: Vector) -> tuple[float, Vector]:
        z = A @ x + b
        value = float(logsumexp(z))
        return value, np.exp(z - value) @ A

    def statement(cp: Any, x: Any) -> Any:
        return cp.log_sum_exp(A @ x + b)

    return Function(fun, np.zeros(40), statement, smooth=True)


@CASES.add(SMOOTH, "sum of 4th powers, d=20")
def fourth_powers() -> Function:
    """Sum of (x_j - 1)^4: no curvature at the minimiser."""

    def fun(x: Vector) -> tuple[float, Vector]:
        r = x - 1.0
        return float((r**4).sum()), 4 * r**3

    def statement(cp: Any, x: Any) -> Any:
        return cp.sum(cp.power(x - 1.0, 4))

    x0 = 1.0 + np.linspace(-2.0, 3.0, 20)
    return Function(fun, x0, statement, minimum=0.0, smooth=True)


@CASES.add(SMOOTH, "geometric programme: sum of 200 exponentials, d=30")
def geometric_programme() -> Function:
    """A posynomial in log variables; its logarithm's curvature varies by orders of magnitude."""
    A, b = 0.5 * gaussian(151, 200, 30), gaussian(152, 200)
    start = 1.5 * gaussian(153, 30)

    def fun(x: Vector) -> tuple[float, Vector]:
        terms, slopes = exponential(A @ x + b)
        return float(terms.sum()), A.T @ slopes

    def statement(cp: Any, x: Any) -> Any:
        return cp.sum(cp.exp(A @ x + b))

    return Function(fun, start, statement, smooth=True)


@CASES.add(SMOOTH, "residuals to the power 3/2, 200 x 50")
def hoelder() -> Function:
    """Its gradient is only Hölder continuous, with exponent 1/2."""
    A = gaussian(171, 200, 50)
    b = A @ gaussian(172, 50) + gaussian(173, 200)

    def fun(x: Vector) -> tuple[float, Vector]:
        r = A @ x - b
        root = np.sqrt(np.abs(r))
        return float((root**3).mean()), A.T @ (1.5 * np.sign(r) * root) / 200

    def statement(cp: Any, x: Any) -> Any:
        return cp.sum(cp.power(cp.abs(A @ x - b), 1.5)) / 200

    return Function(fun, np.zeros(50), statement, smooth=True)


@CASES.add(SMOOTH, "Poisson equation on a 100 x 100 grid, d=10,000")
def grid_quadratic() -> Function:
    """A sparse quadratic with condition number 2e3 or so (a small multiple of I is added)."""
    H = grid_laplacian(100) + 1e-3 * sp.identity(10_000)
    b = gaussian(182, 10_000)
    fun = quadratic(H.tocsr(), b)
    least = fun(spsolve(H.tocsc(), b))[0]

    def statement(cp: Any, x: Any) -> Any:
        return cp.quad_form(x, cp.psd_wrap(H)) / 2 - b @ x

    return Function(fun, np.zeros(10_000), statement, minimum=least, smooth=True)


@CASES.add(SMOOTH, "sparse logistic regression with l2, 5000 x 10,000")
def sparse_logistic() -> Function:
    """More columns than rows; the l2 term makes the minimiser unique."""
    A = sparse_rows(5000, 10_000, 20, 191)
    y = signs_of(A @ gaussian(192, 10_000), 193, 1.0)

    def statement(cp: Any, x: Any) -> Any:
        losses = cp.sum(cp.logistic(cp.multiply(-y, A @ x))) / 5000
        return losses + 5e-5 * cp.sum_squares(x)

    return Function(logistic_loss(A, y, 1e-4), np.zeros(10_000), statement, smooth=True)
