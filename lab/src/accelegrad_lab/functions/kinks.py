"""The functions of the suite that are sums of many kinks (references: see max_type.py)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from accelegrad.errors import Vector
from accelegrad_lab.functions.max_type import largest_linear, paired
from accelegrad_lab.functions.problem import (
    KINKS,
    Cases,
    Evaluate,
    Function,
    gaussian,
    signs_of,
)

CASES = Cases()


@CASES.add(KINKS, "l1 regression, 500 x 50")
def absolute_regression() -> Function:
    """Mean of |<a_i, x> - b_i|."""
    A = gaussian(301, 500, 50)
    b = A @ gaussian(302, 50) + gaussian(303, 500)

    def fun(x: Vector) -> tuple[float, Vector]:
        r = A @ x - b
        return float(np.abs(r).mean()), A.T @ np.sign(r) / 500

    def statement(cp: Any, x: Any) -> Any:
        return cp.norm1(A @ x - b) / 500

    return Function(fun, np.zeros(50), statement)


def hinge_loss(A: Vector, y: Vector, l2: float) -> Evaluate:
    """Return the mean of max(0, 1 - y_i <a_i, x>) with l2/2 ||x||^2."""

    def fun(x: Vector) -> tuple[float, Vector]:
        left = 1.0 - y * (A @ x)
        inside = left > 0
        value = float(left[inside].sum()) / y.size + l2 / 2 * float(x @ x)
        return value, -(A.T @ (y * inside)) / y.size + l2 * x

    return fun


@CASES.add(KINKS, "hinge loss with l2, 1000 x 60")
def hinge() -> Function:
    """A support vector machine."""
    A = gaussian(311, 1000, 60)
    y = signs_of(A @ gaussian(312, 60) / 8, 313, 0.5)

    def statement(cp: Any, x: Any) -> Any:
        losses = cp.sum(cp.pos(1 - cp.multiply(y, A @ x))) / 1000
        return losses + 5e-4 * cp.sum_squares(x)

    return Function(hinge_loss(A, y, 1e-3), np.zeros(60), statement)


def denoising(d: int, seed: int, strength: float) -> Function:
    """Return ||x - b||^2/2 + strength * total variation: noisy steps of random heights."""
    rng = np.random.default_rng(seed)
    b = np.repeat(3 * rng.standard_normal(d // 20), 20) + 0.5 * rng.standard_normal(d)

    def fun(x: Vector) -> tuple[float, Vector]:
        r, jumps = x - b, np.diff(x)
        signs = strength * np.sign(jumps)
        value = float(r @ r) / 2 + strength * float(np.abs(jumps).sum())
        return value, r + paired(-signs, signs)

    def statement(cp: Any, x: Any) -> Any:
        return cp.sum_squares(x - b) / 2 + strength * cp.norm1(x[1:] - x[:-1])

    return Function(fun, np.zeros(d), statement)


@CASES.add(KINKS, "total variation, d=200")
def total_variation() -> Function:
    """Denoising of a signal with ten steps."""
    return denoising(200, 321, 2.0)


@CASES.add(KINKS, "total variation, d=10,000")
def total_variation_long() -> Function:
    """Denoising of a signal with 500 steps."""
    return denoising(10_000, 331, 2.0)


@CASES.add(KINKS, "max of 60 linear functions plus 0.1 ||x - g||_1, d=40")
def max_and_distance() -> Function:
    """max_i (P x)_i + 0.1 ||x - g||_1: many kinks meet at the minimiser."""
    P, g = gaussian(341, 60, 40), gaussian(342, 40)
    sharp = largest_linear(P, np.zeros(60))

    def fun(x: Vector) -> tuple[float, Vector]:
        value, gradient = sharp(x)
        return value + 0.1 * float(np.abs(x - g).sum()), gradient + 0.1 * np.sign(x - g)

    def statement(cp: Any, x: Any) -> Any:
        return cp.max(P @ x) + 0.1 * cp.norm1(x - g)

    return Function(fun, np.zeros(40), statement)


@CASES.add(KINKS, "chained LQ, d=100")
def chained_lq() -> Function:
    """Sum of max(-x_j - x_j+1, -x_j - x_j+1 + x_j^2 + x_j+1^2 - 1): minimum -(d - 1) sqrt 2."""
    d = 100

    def fun(x: Vector) -> tuple[float, Vector]:
        a, b = x[:-1], x[1:]
        outside = a**2 + b**2 - 1
        inside = outside > 0
        value = float((-a - b + np.maximum(outside, 0.0)).sum())
        return value, paired(-1.0 + 2 * a * inside, -1.0 + 2 * b * inside)

    def statement(cp: Any, x: Any) -> Any:
        a, b = x[:-1], x[1:]
        return cp.sum(-a - b + cp.pos(cp.square(a) + cp.square(b) - 1))

    return Function(fun, np.full(d, -0.5), statement, minimum=-(d - 1) * math.sqrt(2))


@CASES.add(KINKS, "|x_1 - 1| + 100 |x_1 + x_2|")
def valley() -> Function:
    """A narrow valley with a kink along it, in the plane."""

    def fun(x: Vector) -> tuple[float, Vector]:
        along, across = x[0] - 1.0, x[0] + x[1]
        slope = 100.0 * np.sign(across)
        value = abs(along) + 100.0 * abs(across)
        return float(value), np.array([np.sign(along) + slope, slope])

    def statement(cp: Any, x: Any) -> Any:
        return cp.abs(x[0] - 1) + 100 * cp.abs(x[0] + x[1])

    return Function(fun, np.array([-2.0, 3.0]), statement, minimum=0.0)


@CASES.add(KINKS, "weighted l1 distance, d=10,000")
def weighted_distance() -> Function:
    """Sum of w_j |x_j - c_j|, weights from 0.01 to 1: cuts say little of separable kinks."""
    weights, c = np.geomspace(0.01, 1.0, 10_000), gaussian(352, 10_000)

    def fun(x: Vector) -> tuple[float, Vector]:
        r = x - c
        return float(weights @ np.abs(r)), weights * np.sign(r)

    def statement(cp: Any, x: Any) -> Any:
        return cp.sum(cp.multiply(weights, cp.abs(x - c)))

    return Function(fun, np.zeros(10_000), statement, minimum=0.0)


@CASES.add(KINKS, "Fermat-Weber: distances to 50 points, one of them heavy, d=10")
def fermat_weber_heavy() -> Function:
    """The minimiser is the heavy point, where the function has a kink in all directions."""
    points, weights = gaussian(361, 50, 10), np.ones(50)
    weights[0] = 60.0

    def fun(x: Vector) -> tuple[float, Vector]:
        moves = x - points
        lengths = np.sqrt(np.einsum("ij,ij->i", moves, moves))
        slopes = np.divide(weights, lengths, out=np.zeros_like(lengths), where=lengths > 0)
        return float(weights @ lengths), slopes @ moves

    def statement(cp: Any, x: Any) -> Any:
        moves = points - np.ones((50, 1)) @ cp.reshape(x, (1, 10), order="C")
        return weights @ cp.norm(moves, axis=1)

    return Function(fun, 5.0 * np.ones(10), statement)
