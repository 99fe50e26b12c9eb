"""The functions of the suite that are a maximum of others, or an eigenvalue or singular value.

References
----------
.. [1] Haarala, Miettinen, Mäkelä (2004). New limited memory bundle method for large-scale nonsmooth
   optimization. Optim. Methods Softw. 19(6). (MAXQ, MXHILB, the chained functions.)
.. [2] Lukšan, Vlček (2000). Test problems for nonsmooth unconstrained and linearly constrained
   optimization. Report 798, Academy of Sciences of the Czech Republic. (MAXQUAD, Goffin.)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from accelegrad.errors import Vector
from accelegrad_lab.functions.problem import (
    MAX,
    SPECTRAL,
    Cases,
    Evaluate,
    Function,
    gaussian,
    max_at,
)
from accelegrad_lab.functions.smooth import conditioned, exponential

CASES = Cases()


def largest_linear(A: Vector, b: Vector) -> Evaluate:
    """Return max_i <a_i, x> + b_i."""

    def fun(x: Vector) -> tuple[float, Vector]:
        value, place = max_at(A @ x + b)
        return value, A[place].copy()

    return fun


@CASES.add(MAX, "max of 300 linear functions, d=40")
def max_linear() -> Function:
    """A polyhedral function with a sharp minimum."""
    A, b = gaussian(201, 300, 40), gaussian(202, 300)

    def statement(cp: Any, x: Any) -> Any:
        return cp.max(A @ x + b)

    return Function(largest_linear(A, b), np.zeros(40), statement)


@CASES.add(MAX, "max of 12 linear functions in the plane")
def max_linear_plane() -> Function:
    """Sides of very different slopes."""
    angles = np.linspace(0.0, 2 * math.pi, 12, endpoint=False)
    slopes = np.geomspace(1.0, 100.0, 12)
    A = np.column_stack([np.cos(angles), np.sin(angles)]) * slopes[:, None]
    b = gaussian(211, 12)

    def statement(cp: Any, x: Any) -> Any:
        return cp.max(A @ x + b)

    return Function(largest_linear(A, b), np.array([5.0, -3.0]), statement)


@CASES.add(MAX, "max of 100 linear functions plus ||x||^2/2, d=1000")
def max_linear_regularised() -> Function:
    """Strongly convex; its dual is a quadratic programme of 100 variables."""
    A, b = gaussian(221, 100, 1000) / 10, gaussian(222, 100)
    sharp = largest_linear(A, b)

    def fun(x: Vector) -> tuple[float, Vector]:
        value, gradient = sharp(x)
        return value + float(x @ x) / 2, gradient + x

    def statement(cp: Any, x: Any) -> Any:
        return cp.max(A @ x + b) + cp.sum_squares(x) / 2

    return Function(fun, np.ones(1000), statement)


@CASES.add(MAX, "smallest enclosing ball of 300 points, d=20")
def enclosing_ball() -> Function:
    """max_i ||x - p_i||."""
    P = gaussian(241, 300, 20)

    def fun(x: Vector) -> tuple[float, Vector]:
        moves = x - P
        value, place = max_at(np.sqrt(np.einsum("ij,ij->i", moves, moves)))
        return value, moves[place] / value

    def statement(cp: Any, x: Any) -> Any:
        return cp.max(cp.norm(P - np.ones((300, 1)) @ cp.reshape(x, (1, 20), order="C"), axis=1))

    return Function(fun, 3.0 * np.ones(20), statement)


@CASES.add(MAX, "MAXQ: the largest square, d=20")
def maxq() -> Function:
    """max_j x_j^2 from 1, ..., 10, -11, ..., -20."""

    def fun(x: Vector) -> tuple[float, Vector]:
        value, place = max_at(x**2)
        gradient = np.zeros(20)
        gradient[place] = 2 * x[place]
        return value, gradient

    def statement(cp: Any, x: Any) -> Any:
        return cp.max(cp.square(x))

    x0 = np.arange(1.0, 21.0) * np.where(np.arange(20) < 10, 1.0, -1.0)
    return Function(fun, x0, statement, minimum=0.0)


@CASES.add(MAX, "MXHILB: the largest entry of Hilbert's matrix times x, d=50")
def mxhilb() -> Function:
    """max_i |(H x)_i| from ones, where no float can hold the condition number of H."""
    i = np.arange(50, dtype=np.float64)
    H = 1.0 / (i[:, None] + i + 1.0)

    def fun(x: Vector) -> tuple[float, Vector]:
        z = H @ x
        value, place = max_at(np.abs(z))
        return value, math.copysign(1.0, z[place]) * H[place]

    def statement(cp: Any, x: Any) -> Any:
        return cp.norm_inf(H @ x)

    return Function(fun, np.ones(50), statement, minimum=0.0)


@CASES.add(MAX, "Goffin's function, d=50")
def goffin() -> Function:
    """D max_j x_j - sum_j x_j: flat along one direction, sharp across it."""
    d = 50

    def fun(x: Vector) -> tuple[float, Vector]:
        value, place = max_at(x)
        gradient = np.full(d, -1.0)
        gradient[place] += d
        return d * value - float(x.sum()), gradient

    def statement(cp: Any, x: Any) -> Any:
        return d * cp.max(x) - cp.sum(x)

    return Function(fun, np.arange(1.0, d + 1) - (d + 1) / 2, statement, minimum=0.0)


def largest_quadratic(matrices: Vector, linear: Vector) -> Evaluate:
    """Return max_k x'A_k x - b_k'x."""

    def fun(x: Vector) -> tuple[float, Vector]:
        products = matrices @ x
        value, place = max_at(products @ x - linear @ x)
        return value, 2 * products[place] - linear[place]

    return fun


@CASES.add(MAX, "MAXQUAD: Lemaréchal's max of 5 quadratics, d=10")
def maxquad() -> Function:
    """max_k x'A_k x - b_k'x from ones; the literature's minimum is -0.8414083."""
    i, k = np.arange(1.0, 11.0), np.arange(1.0, 6.0)
    low, high = np.minimum(i[:, None], i), np.maximum(i[:, None], i)
    shape = np.exp(low / high) * np.cos(i[:, None] * i) * (low < high)
    matrices = shape * np.sin(k)[:, None, None]
    sums = np.abs(matrices).sum(axis=2)
    diagonal = i / 10 * np.abs(np.sin(k))[:, None] + sums
    matrices[:, np.arange(10), np.arange(10)] = diagonal
    linear = np.exp(i / k[:, None]) * np.sin(i * k[:, None])

    def statement(cp: Any, x: Any) -> Any:
        pieces = [cp.quad_form(x, cp.psd_wrap(matrices[j])) - linear[j] @ x for j in range(5)]
        return cp.maximum(*pieces)

    return Function(largest_quadratic(matrices, linear), np.ones(10), statement)


@CASES.add(MAX, "max of 20 quadratics of condition 100, d=100")
def max_quadratics() -> Function:
    """Smooth along a surface of kinks."""
    matrices = np.stack([conditioned(100, 100.0, 251 + j) for j in range(20)])
    linear = gaussian(250, 20, 100) / 5

    def statement(cp: Any, x: Any) -> Any:
        pieces = [cp.quad_form(x, cp.psd_wrap(matrices[j])) - linear[j] @ x for j in range(20)]
        return cp.maximum(*pieces)

    return Function(largest_quadratic(matrices, linear), np.ones(100), statement)


def paired(by_a: Vector, by_b: Vector) -> Vector:
    """Return the gradient of a sum over neighbours from the derivatives of its terms."""
    gradient = np.zeros(by_a.size + 1)
    gradient[:-1] += by_a
    gradient[1:] += by_b
    return gradient


@CASES.add(MAX, "chained CB3 II: the largest of three sums, d=100")
def chained_cb3_two() -> Function:
    """Charalambous and Bandler's function of neighbours; its minimum is 2 (d - 1), at ones."""

    def fun(x: Vector) -> tuple[float, Vector]:
        a, b = x[:-1], x[1:]
        rise, slope = exponential(b - a)
        pieces = a**4 + b**2, (2 - a) ** 2 + (2 - b) ** 2, 2 * rise
        value, place = max_at(np.array([piece.sum() for piece in pieces]))
        slopes = (4 * a**3, 2 * b), (2 * (a - 2), 2 * (b - 2)), (-2 * slope, 2 * slope)
        return value, paired(*slopes[place])

    def statement(cp: Any, x: Any) -> Any:
        a, b = x[:-1], x[1:]
        first = cp.sum(cp.power(a, 4) + cp.square(b))
        second = cp.sum(cp.square(2 - a) + cp.square(2 - b))
        return cp.maximum(first, second, cp.sum(2 * cp.exp(b - a)))

    return Function(fun, np.full(100, 2.0), statement, minimum=198.0)


# -- eigenvalues and singular values of an affine matrix -------------------------------------------


def _traceless(seed: int, count: int, side: int) -> Vector:
    """Return symmetric matrices of trace zero: no combination of them is negative definite."""
    raw = gaussian(seed, count, side, side)
    matrices = (raw + raw.transpose(0, 2, 1)) / 2
    traces = np.trace(matrices, axis1=1, axis2=2) / side
    centred: Vector = matrices - traces[:, None, None] * np.eye(side)
    return centred


def _affine(cp: Any, constant: Vector, matrices: Vector, x: Any) -> Any:
    """Return constant + sum_k x_k matrices_k for CVXPY."""
    flat = matrices.reshape(len(matrices), -1).T @ x
    return constant + cp.reshape(flat, constant.shape, order="C")


@CASES.add(SPECTRAL, "largest eigenvalue of an affine 15 x 15 matrix, d=20")
def largest_eigenvalue() -> Function:
    """lambda_max(A_0 + sum_k x_k A_k)."""
    matrices = _traceless(401, 21, 15)
    constant, matrices = matrices[0], matrices[1:]

    def fun(x: Vector) -> tuple[float, Vector]:
        values, vectors = np.linalg.eigh(constant + np.tensordot(x, matrices, 1))
        top = vectors[:, -1]
        return float(values[-1]), matrices @ top @ top

    def statement(cp: Any, x: Any) -> Any:
        return cp.lambda_max(_affine(cp, constant, matrices, x))

    return Function(fun, np.zeros(20), statement)


@CASES.add(SPECTRAL, "the dual of maximum cut on 40 nodes, d=40")
def maximum_cut() -> Function:
    """D lambda_max(L/4 + Diag(x)) - sum_j x_j with a graph's Laplacian L."""
    d = 40
    edges = np.triu(np.random.default_rng(411).uniform(size=(d, d)) < 0.2, 1).astype(np.float64)
    edges += edges.T
    quarter = (np.diag(edges.sum(axis=1)) - edges) / 4

    def fun(x: Vector) -> tuple[float, Vector]:
        values, vectors = np.linalg.eigh(quarter + np.diag(x))
        return d * float(values[-1]) - float(x.sum()), d * vectors[:, -1] ** 2 - 1.0

    def statement(cp: Any, x: Any) -> Any:
        return d * cp.lambda_max(quarter + cp.diag(x)) - cp.sum(x)

    return Function(fun, np.zeros(d), statement)


@CASES.add(SPECTRAL, "spectral norm of an affine 20 x 15 matrix, d=10")
def spectral_norm() -> Function:
    """||A_0 + sum_k x_k A_k||_2."""
    raw = gaussian(421, 11, 20, 15)
    constant, matrices = 3 * raw[0], raw[1:]

    def fun(x: Vector) -> tuple[float, Vector]:
        left, sizes, right = np.linalg.svd(
            constant + np.tensordot(x, matrices, 1), full_matrices=False
        )
        return float(sizes[0]), left[:, 0] @ matrices @ right[0]

    def statement(cp: Any, x: Any) -> Any:
        return cp.sigma_max(_affine(cp, constant, matrices, x))

    return Function(fun, np.ones(10), statement)
