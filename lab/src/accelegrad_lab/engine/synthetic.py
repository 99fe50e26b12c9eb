"""Generated data: the paper's regression, with its minimum by independent solvers, and sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog

from accelegrad.errors import Vector, real_number, whole_number

Matrix = npt.NDArray[np.float64]
Generated = tuple[Any, Vector]  # X and y
DENSE = 0.25  # from this share of non-zeros on, a set is stored as a dense array


@dataclass(frozen=True, eq=False)
class PaperProblem:
    """F(x) = ||A x - b||_p^p, a sum over the rows and not a mean, with p = 1 or 2.

    Attributes
    ----------
    A, b
        The data.
    p : int
        1: non-smooth; 2: smooth.
    x_natural : Vector
        The point from which b was made; not the minimiser, because of the noise.
    """

    A: Matrix
    b: Vector
    p: int
    x_natural: Vector

    def __repr__(self) -> str:
        n, d = self.A.shape
        return f"PaperProblem(n={n}, d={d}, p={self.p})"

    def fun(self, x: Vector) -> tuple[float, Vector]:
        """Return F(x) and a (sub)gradient; rows without residual count 0 for p = 1."""
        residual = self.A @ x - self.b
        if self.p == 1:
            return float(np.abs(residual).sum()), self.A.T @ np.sign(residual)
        return float(residual @ residual), 2.0 * (self.A.T @ residual)

    def minimum(self) -> tuple[Vector, float]:
        """Return a minimiser and the minimum, by least squares (p = 2) or a linear program (p = 1).

        The linear program takes seconds at the paper's size.
        """
        x = self._least_squares() if self.p == 2 else self._least_absolute()
        return x, self.fun(x)[0]

    def _least_squares(self) -> Vector:
        return np.asarray(np.linalg.lstsq(self.A, self.b, rcond=None)[0], dtype=np.float64)

    def _least_absolute(self) -> Vector:
        """Solve the dual, max <b, s> over A^T s = 0, |s| <= 1, which is smaller than the primal.

        The multipliers of A^T s = 0 are a minimiser; duality confirms that.
        """
        program: Any = linprog(
            -self.b,
            A_eq=self.A.T,
            b_eq=np.zeros(self.A.shape[1]),
            bounds=(-1.0, 1.0),
            method="highs-ipm",  # several times as fast here as the simplex method
        )
        if not program.success:
            raise RuntimeError(f"HiGHS did not solve {self!r}: {program.message}")
        x = -np.asarray(program.eqlin.marginals, dtype=np.float64)
        value, bound = self.fun(x)[0], -float(program.fun)
        if abs(value - bound) > 1e-8 * (1.0 + bound):
            raise RuntimeError(f"HiGHS's dual value {bound} does not confirm the minimum {value}.")
        return x


def paper_regression(
    p: int, *, n: int = 2000, d: int = 500, noise: float = 1e-2, seed: int
) -> PaperProblem:
    """Make the regression problem of the paper's experiments.

    A (n x d) and x_natural have standard Gaussian entries, b = A x_natural + Gaussian noise.

    Parameters
    ----------
    p : int
        The norm: 1 or 2.
    n, d : int
        Rows and columns.
    noise : float
        The variance of the noise, at least 0.
    seed : int
        The seed of `numpy.random.default_rng`. One seed gives the same data for both p.
    """
    if p not in (1, 2):
        raise ValueError(f"p must be 1 or 2, but it is {p!r}.")
    n, d = whole_number("n", n, least=1), whole_number("d", d, least=1)
    variance = real_number("noise", noise, least=0.0)
    rng = np.random.default_rng(whole_number("seed", seed, least=0))
    A = rng.standard_normal((n, d))
    x_natural = rng.standard_normal(d)
    b = A @ x_natural + np.sqrt(variance) * rng.standard_normal(n)
    return PaperProblem(A, b, int(p), x_natural)


# -- sets for benchmarks


def _correlated(rng: np.random.Generator, n: int, d: int) -> Matrix:
    """Return correlated columns with heavy tails."""
    mixing = np.eye(d) + rng.standard_normal((d, d)) / np.sqrt(d)
    return np.asarray(rng.standard_t(4, (n, d)) @ mixing, dtype=np.float64)


def made_classes(n: int, d: int) -> Generated:
    """Make two classes that overlap."""
    rng = np.random.default_rng(1)
    X = _correlated(rng, n, d)
    margins = X @ rng.standard_normal(d) / np.sqrt(d) + rng.logistic(size=n)
    return X, np.where(margins > 0, 1.0, -1.0)


def made_numbers(n: int, d: int) -> Generated:
    """Make a regression whose noise has heavy tails and grows with the first column."""
    rng = np.random.default_rng(2)
    X = _correlated(rng, n, d)
    noise = rng.standard_t(3, n) * (0.5 + 0.2 * np.abs(X[:, 0]))
    return X, X @ rng.standard_normal(d) / np.sqrt(d) + noise
