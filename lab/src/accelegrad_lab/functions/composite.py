"""The functions of the suite with a penalty, whose proximal operator is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from accelegrad.errors import Vector
from accelegrad.geometry.penalties import L1, ElasticNet, GroupL2, NuclearNorm
from accelegrad_lab.functions.problem import COMPOSITE, Cases, Function, gaussian, signs_of
from accelegrad_lab.functions.smooth import least_squares, logistic_loss

CASES = Cases()


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
