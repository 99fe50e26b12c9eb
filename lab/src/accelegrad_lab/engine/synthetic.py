"""The paper's regression problem, with its minimum by independent solvers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from accelegrad import LinearModel
from accelegrad.errors import Vector, real_number, whole_number
from accelegrad_lab.engine.minimum import find_minimum

Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PaperProblem:
    """F(x) = ||A x - b||_p^p, a sum over the rows: smooth with p = 2, non-smooth with p = 1."""

    A: Matrix
    b: Vector
    p: int
    x_natural: Vector  # from which b was made; not the minimiser, because of the noise

    def fun(self, x: Vector) -> tuple[float, Vector]:
        """Return F(x) and a (sub)gradient; rows without residual count 0 for p = 1."""
        residual = self.A @ x - self.b
        if self.p == 1:
            return float(np.abs(residual).sum()), self.A.T @ np.sign(residual)
        return float(residual @ residual), 2.0 * (self.A.T @ residual)

    def minimum(self) -> tuple[Vector, float]:
        """Return a minimiser and the minimum, by Newton's method (p = 2) or HiGHS (p = 1)."""
        loss = "squared" if self.p == 2 else "absolute"
        x = find_minimum(LinearModel(self.A, self.b, loss)).x
        return x, self.fun(x)[0]


def paper_regression(
    p: int, *, n: int = 2000, d: int = 500, noise: float = 1e-2, seed: int
) -> PaperProblem:
    """Make the regression problem of the paper's experiments, with the same data for both p.

    A (n x d) and x_natural have standard Gaussian entries, b = A x_natural + Gaussian noise of the
    given variance.
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
