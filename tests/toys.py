"""Small functions with known minima."""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from accelegrad import LinearModel
from accelegrad.geometry.sets import Box, L1Ball, Simplex
from accelegrad.models.losses import make_loss
from reference.losses import minimiser_by_highs

Vector = NDArray[np.float64]


@dataclass
class LeastSquares:
    """||A x - b||^2 / 2."""

    A: NDArray[np.float64]
    b: Vector

    @classmethod
    def random(cls, n, d, seed, decay=0.0, noise=0.1):
        """Gaussian data; `decay` > 0 makes the columns' scales fall like j^-decay."""
        rng = np.random.default_rng(seed)
        A = rng.standard_normal((n, d)) / np.sqrt(n) * np.arange(1, d + 1) ** -decay
        return cls(A, A @ rng.standard_normal(d) + noise * rng.standard_normal(n))

    def __call__(self, x):
        r = self.A @ x - self.b
        return 0.5 * r @ r, self.A.T @ r

    def value(self, x):
        return self(x)[0]

    def gradient(self, x):
        return self(x)[1]

    @property
    def minimiser(self):
        return np.linalg.lstsq(self.A, self.b, rcond=None)[0]

    @property
    def smoothness(self):
        return np.linalg.norm(self.A, 2) ** 2


@dataclass
class AbsoluteDeviations:
    """||A x - b||_1, minimised by HiGHS."""

    A: NDArray[np.float64]
    b: Vector

    @classmethod
    def random(cls, n, d, seed):
        rng = np.random.default_rng(seed)
        A = rng.standard_normal((n, d))
        return cls(A, A @ rng.standard_normal(d) + 0.1 * rng.standard_normal(n))

    def __call__(self, x):
        r = self.A @ x - self.b
        return np.abs(r).sum(), self.A.T @ np.sign(r)

    @property
    def minimiser(self):
        return minimiser_by_highs("absolute", self.A, self.b, np.ones(len(self.A)))


def largest_of(A, b, curvature=0.0):
    """Return max_i (A x - b)_i + curvature / 2 ||x||^2."""

    def fun(x):
        heights = A @ x - b
        i = int(heights.argmax())
        return float(heights[i] + 0.5 * curvature * x @ x), A[i] + curvature * x

    return fun


class OnTheBoundary:
    """A flat quadratic plus a linear term that makes a given boundary point the minimiser.

    (x - x*)' H (x - x*) / 2 + <c, x - x*>, curvatures from 1e-8 to 1, c in the normal cone with the
    opposite sign: the minimum over the set is 0.
    """

    smoothness = 1.0

    def __init__(self, name, seed, d=60):
        rng = np.random.default_rng(seed)
        basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
        self.H = basis * np.logspace(-8, 0, d) @ basis.T
        bound = np.arange(d) % 3 == 0  # a third of the coordinates is held by the set
        slack = 0.1 * rng.uniform(size=d)
        if name == "simplex":
            self.set, self.x0 = Simplex(), np.full(d, 1 / d)
            self.x_star = np.where(bound, 0, rng.exponential(size=d))
            self.x_star /= self.x_star.sum()
            self.c = np.where(bound, slack, 0) + 0.3
        elif name == "box":
            self.set, self.x0 = Box(np.full(d, -1.0), np.ones(d)), np.zeros(d)
            self.x_star = np.where(bound, 1, rng.uniform(-0.9, 0.9, d))
            self.c = np.where(bound, -slack, 0)
        else:
            self.set, self.x0 = L1Ball(2.0), np.zeros(d)
            self.x_star = np.where(bound, 0, rng.laplace(size=d))
            self.x_star *= 2.0 / np.abs(self.x_star).sum()
            self.c = -0.1 * np.sign(self.x_star) + np.where(bound, 0.1 - slack, 0)
        self.diameter = self.set.diameter_for(d)

    def __call__(self, x):
        offset = x - self.x_star
        curved = self.H @ offset
        return 0.5 * offset @ curved + self.c @ offset, curved + self.c


def linear_problem(loss, kind, shape, *, density, noise, l2, seed, **options):
    """Return a linear model of rows with some entries, dense or CSR, with labels where it has to."""
    rng = np.random.default_rng(seed)
    rows, columns = shape
    X = sp.random(rows, columns, density=density, format="csr", rng=rng)
    X.data[:] = rng.normal(size=X.nnz)
    y = X @ rng.normal(size=columns) + noise * rng.normal(size=rows) + 0.3
    if make_loss(loss).classification:
        y = np.where(y > 0, 1.0, -1.0)
    return LinearModel(X.toarray() if kind == "dense" else X, y, loss, l2=l2, **options)
