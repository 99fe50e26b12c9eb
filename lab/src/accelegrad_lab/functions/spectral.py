"""The functions of the suite that are eigenvalues or singular values of an affine matrix."""

from __future__ import annotations

from typing import Any

import numpy as np

from accelegrad.errors import Vector
from accelegrad_lab.functions.problem import SPECTRAL, Cases, Function, gaussian

CASES = Cases()


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
