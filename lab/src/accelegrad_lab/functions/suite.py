"""The suite: convex functions by name.

``SUITE["max-linear"].build()`` gives a `Function`; ``minima()["max-linear"]`` of `minima.py` its
minimum, which another solver found (`accelegrad bench --functions --minima` finds them anew).

References
----------
.. [1] Haarala, Miettinen, Mäkelä (2004). New limited memory bundle method for large-scale nonsmooth
   optimization. Optim. Methods Softw. 19(6). (MXHILB, chained CB3.)
.. [2] Lukšan, Vlček (2000). Test problems for nonsmooth unconstrained and linearly constrained
   optimization. Report 798, Academy of Sciences of the Czech Republic. (MAXQUAD, Goffin.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import spsolve

import accelegrad as ag
from accelegrad_lab.functions import formulas
from accelegrad_lab.functions.formulas import (
    Cases,
    Formula,
    Function,
    Vector,
    max_at,
    of_formula,
    of_neighbours,
)

SUITE = Cases()


def gaussian(seed: int, *shape: int) -> Vector:
    """Return standard normal numbers, the same on every machine."""
    return np.random.default_rng(seed).standard_normal(shape)


def signs_of(margins: Vector, seed: int, noise: float) -> Vector:
    """Return labels +1 and -1: the signs of noisy margins, so that no plane separates them."""
    labels: Vector = np.where(margins + noise * gaussian(seed, margins.size) >= 0, 1.0, -1.0)
    return labels


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


# -- smooth ----------------------------------------------------------------------------------------


@SUITE.add("smooth", "logistic regression, 1000 x 60, columns' scales from 1 to 0.01")
def logistic() -> Function:
    """Ill-conditioned logistic regression."""
    A = gaussian(101, 1000, 60) * np.geomspace(1.0, 0.01, 60)
    y = signs_of(A @ gaussian(102, 60), 103, 0.5)
    return of_formula(formulas.mean_logistic(y).of(A), 60, smooth=True)


@SUITE.add("smooth", "quadratic, condition 1e4, d=200")
def quadratic_ill_conditioned() -> Function:
    """x'Hx/2 - b'x with b = H z and a Gaussian minimiser z."""
    H, z = conditioned(200, 1e4, 111), gaussian(112, 200)
    formula = formulas.quadratic(H, H @ z)
    return of_formula(formula, 200, minimum=formula.fun(z)[0], smooth=True)


@SUITE.add("smooth", "Nesterov's worst function, d=500")
def nesterov_worst() -> Function:
    """(x_1^2 + sum (x_j - x_{j+1})^2 + x_d^2)/2 - x_1, whose minimum is -d / (2 (d + 1))."""
    d = 500
    steps = sp.diags([1.0, -1.0], [0, -1], shape=(d + 1, d)).tocsr()
    first = np.zeros(d)
    first[0] = 1.0
    formula = formulas.quadratic((steps.T @ steps).tocsr(), first)
    return of_formula(formula, d, minimum=-d / (2 * (d + 1)), smooth=True)


@SUITE.add("smooth", "log-sum-exp of 300 linear functions, d=40")
def log_sum_exp() -> Function:
    """A soft maximum."""
    A, b = gaussian(121, 300, 40), gaussian(122, 300)
    return of_formula(formulas.log_sum_exp().of(A, b), 40, smooth=True)


@SUITE.add("smooth", "residuals to the power 3/2, 200 x 50")
def hoelder() -> Function:
    """Its gradient is only Hölder continuous, with exponent 1/2."""
    A = gaussian(171, 200, 50)
    b = A @ gaussian(172, 50) + gaussian(173, 200)
    return of_formula(formulas.mean_power(1.5).of(A, -b), 50, smooth=True)


@SUITE.add("smooth", "Poisson equation on a 100 x 100 grid, d=10,000")
def grid_quadratic() -> Function:
    """A sparse quadratic with condition number 2e3 or so (a small multiple of I is added)."""
    H = (grid_laplacian(100) + 1e-3 * sp.identity(10_000)).tocsr()
    b = gaussian(182, 10_000)
    formula = formulas.quadratic(H, b)
    return of_formula(formula, 10_000, minimum=formula.fun(spsolve(H.tocsc(), b))[0], smooth=True)


@SUITE.add("smooth", "sparse logistic regression with l2, 5000 x 10,000")
def sparse_logistic() -> Function:
    """More columns than rows; the l2 term makes the minimiser unique."""
    rng = np.random.default_rng(191)
    columns, rows = rng.integers(0, 10_000, size=100_000), np.repeat(np.arange(5000), 20)
    A: Any = sp.csr_matrix((rng.standard_normal(100_000), (rows, columns)), shape=(5000, 10_000))
    y = signs_of(A @ gaussian(192, 10_000), 193, 1.0)
    formula = formulas.mean_logistic(y).of(A) + formulas.squares(1e-4)
    return of_formula(formula, 10_000, smooth=True)


# -- the largest of others -------------------------------------------------------------------------


@SUITE.add("max-type", "max of 300 linear functions, d=40")
def max_linear() -> Function:
    """A polyhedral function with a sharp minimum."""
    return of_formula(formulas.largest_linear(gaussian(201, 300, 40), gaussian(202, 300)), 40)


@SUITE.add("max-type", "max of 100 linear functions plus ||x||^2/2, d=1000")
def max_linear_regularised() -> Function:
    """Strongly convex; its dual is a quadratic programme of 100 variables."""
    sharp = formulas.largest_linear(gaussian(221, 100, 1000) / 10, gaussian(222, 100))
    return of_formula(sharp + formulas.squares(1.0), np.ones(1000))


@SUITE.add("max-type", "smallest enclosing ball of 300 points, d=20")
def enclosing_ball() -> Function:
    """max_i ||x - p_i||."""
    P = gaussian(241, 300, 20)

    def fun(x: Vector) -> tuple[float, Vector]:
        moves = x - P
        value, place = max_at(np.sqrt(np.einsum("ij,ij->i", moves, moves)))
        return value, moves[place] / value

    def statement(cp: Any, x: Any) -> Any:
        rows = np.ones((300, 1)) @ cp.reshape(x, (1, 20), order="C")
        return cp.max(cp.norm(P - rows, axis=1))

    return of_formula(Formula(fun, statement), 3.0 * np.ones(20))


@SUITE.add("max-type", "MXHILB: the largest entry of Hilbert's matrix times x, d=50")
def mxhilb() -> Function:
    """max_i |(H x)_i| from ones, where no float can hold the condition number of H."""
    i = np.arange(50, dtype=np.float64)
    H = 1.0 / (i[:, None] + i + 1.0)
    return of_formula(formulas.largest_linear(np.vstack([H, -H])), np.ones(50), minimum=0.0)


@SUITE.add("max-type", "Goffin's function, d=50")
def goffin() -> Function:
    """D max_j x_j - sum_j x_j: flat along one direction, sharp across it."""
    d = 50
    formula = formulas.largest_linear(d * np.eye(d) - 1.0)
    return of_formula(formula, np.arange(1.0, d + 1) - (d + 1) / 2, minimum=0.0)


@SUITE.add("max-type", "MAXQUAD: Lemaréchal's max of 5 quadratics, d=10")
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
    return of_formula(formulas.largest_quadratic(matrices, linear), np.ones(10))


@SUITE.add("max-type", "chained CB3 II: the largest of three sums, d=100")
def chained_cb3_two() -> Function:
    """Charalambous and Bandler's function of neighbours; its minimum is 2 (d - 1), at ones."""

    @np.errstate(over="ignore")  # far away, and inf then
    def fun(x: Vector) -> tuple[float, Vector]:
        a, b = x[:-1], x[1:]
        slope = np.exp(np.minimum(b - a, 700.0))  # near the end of floats exp goes on as a line
        rise = slope * (1.0 + np.maximum(b - a - 700.0, 0.0))
        pieces = a**4 + b**2, (2 - a) ** 2 + (2 - b) ** 2, 2 * rise
        value, place = max_at(np.array([piece.sum() for piece in pieces]))
        slopes = (4 * a**3, 2 * b), (2 * (a - 2), 2 * (b - 2)), (-2 * slope, 2 * slope)
        return value, of_neighbours(*slopes[place])

    def statement(cp: Any, x: Any) -> Any:
        a, b = x[:-1], x[1:]
        first = cp.sum(cp.power(a, 4) + cp.square(b))
        second = cp.sum(cp.square(2 - a) + cp.square(2 - b))
        return cp.maximum(first, second, cp.sum(2 * cp.exp(b - a)))

    return of_formula(Formula(fun, statement), np.full(100, 2.0), minimum=198.0)


# -- sums of many kinks ----------------------------------------------------------------------------


@SUITE.add("sum of kinks", "l1 regression, 500 x 50")
def absolute_regression() -> Function:
    """Mean of |<a_i, x> - b_i|."""
    A = gaussian(301, 500, 50)
    b = A @ gaussian(302, 50) + gaussian(303, 500)
    return of_formula(formulas.absolute(1 / 500).of(A, -b), 50)


@SUITE.add("sum of kinks", "hinge loss with l2, 1000 x 60")
def hinge() -> Function:
    """A support vector machine."""
    A = gaussian(311, 1000, 60)
    y = signs_of(A @ gaussian(312, 60) / 8, 313, 0.5)
    return of_formula(formulas.mean_hinge(y).of(A) + formulas.squares(1e-3), 60)


def _denoising(d: int, seed: int) -> Function:
    """Return ||x - b||^2/2 + 2 total variation: noisy steps of random heights."""
    rng = np.random.default_rng(seed)
    b = np.repeat(3 * rng.standard_normal(d // 20), 20) + 0.5 * rng.standard_normal(d)
    shifted = formulas.squares(1.0).of(sp.identity(d, format="csr"), -b)
    return of_formula(shifted + formulas.total_variation(2.0), d)


@SUITE.add("sum of kinks", "total variation, d=200")
def total_variation() -> Function:
    """Denoising of a signal with ten steps."""
    return _denoising(200, 321)


@SUITE.add("sum of kinks", "total variation, d=10,000")
def total_variation_long() -> Function:
    """Denoising of a signal with 500 steps."""
    return _denoising(10_000, 331)


@SUITE.add("sum of kinks", "max of 60 linear functions plus 0.1 ||x - g||_1, d=40")
def max_and_distance() -> Function:
    """max_i (P x)_i + 0.1 ||x - g||_1: many kinks meet at the minimiser."""
    P, g = gaussian(341, 60, 40), gaussian(342, 40)
    return of_formula(formulas.largest_linear(P) + formulas.absolute(0.1).of(np.eye(40), -g), 40)


@SUITE.add("sum of kinks", "|x_1 - 1| + 100 |x_1 + x_2|")
def valley() -> Function:
    """A narrow valley with a kink along it, in the plane."""
    A, weights = np.array([[1.0, 0.0], [1.0, 1.0]]), np.array([1.0, 100.0])
    formula = formulas.absolute(weights).of(A, np.array([-1.0, 0.0]))
    return of_formula(formula, np.array([-2.0, 3.0]), minimum=0.0)


@SUITE.add("sum of kinks", "weighted l1 distance, d=10,000")
def weighted_distance() -> Function:
    """Sum of w_j |x_j - c_j|, weights from 0.01 to 1: cuts say little of separable kinks."""
    weights, c = np.geomspace(0.01, 1.0, 10_000), gaussian(352, 10_000)
    formula = formulas.absolute(weights).of(sp.identity(10_000, format="csr"), -c)
    return of_formula(formula, 10_000, minimum=0.0)


# -- eigenvalues of an affine matrix ---------------------------------------------------------------


@SUITE.add("eigenvalues", "largest eigenvalue of an affine 15 x 15 matrix, d=20")
def largest_eigenvalue() -> Function:
    """lambda_max(A_0 + sum_k x_k A_k); traces of zero: no combination is negative definite."""
    raw = gaussian(401, 21, 15, 15)
    matrices = (raw + raw.transpose(0, 2, 1)) / 2
    traces = np.trace(matrices, axis1=1, axis2=2) / 15
    matrices -= traces[:, None, None] * np.eye(15)
    return of_formula(formulas.largest_eigenvalue(matrices[0], matrices[1:]), 20)


@SUITE.add("eigenvalues", "the dual of maximum cut on 40 nodes, d=40")
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

    return of_formula(Formula(fun, statement), d)


# -- with a set ------------------------------------------------------------------------------------


def _on_simplex(formula: Formula, d: int, *, smooth: bool) -> Function:
    """Return a function on the simplex, from its centre."""
    return of_formula(
        formula,
        np.full(d, 1 / d),
        feasible_set=ag.Simplex(),
        limits=lambda cp, x: [x >= 0, cp.sum(x) == 1],
        equations=(np.ones((1, d)), np.ones(1)),
        smooth=smooth,
    )


def _nonnegative(formula: Formula, d: int) -> Function:
    """Return a smooth function of coordinates that are not negative."""

    def limits(_: Any, x: Any) -> Any:
        return [x >= 0]

    return of_formula(formula, d, feasible_set=ag.NonNegative(), limits=limits, smooth=True)


@SUITE.add("constrained", "entropy and costs on the simplex, d=100")
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

    formula = Formula(fun, lambda cp, x: -cp.sum(cp.entr(x + shift)) + c @ x)
    return _on_simplex(formula, 100, smooth=True)


@SUITE.add("constrained", "quadratic of condition 1e4 in a box, d=200")
def box_quadratic() -> Function:
    """Many coordinates end at a bound."""
    return of_formula(
        formulas.quadratic(conditioned(200, 1e4, 521), gaussian(522, 200)),
        200,
        feasible_set=ag.Box(-np.ones(200), np.ones(200)),
        limits=lambda cp, x: [cp.abs(x) <= 1],
        smooth=True,
    )


@SUITE.add("constrained", "non-negative least squares, 300 x 100")
def nonnegative_least_squares() -> Function:
    """About half of the coordinates end at zero."""
    A = gaussian(531, 300, 100) * np.geomspace(1.0, 0.1, 100)
    b = A @ gaussian(532, 100) + gaussian(533, 300)
    return _nonnegative(formulas.squares(1 / 300).of(A, -b), 100)


@SUITE.add("constrained", "logistic regression in an l1 ball, 400 x 100")
def l1_ball_logistic() -> Function:
    """A sparse minimiser on the boundary."""
    A = gaussian(541, 400, 100)
    y = signs_of(A[:, :10] @ gaussian(542, 10), 543, 1.0)
    return of_formula(
        formulas.mean_logistic(y).of(A),
        100,
        feasible_set=ag.L1Ball(4.0),
        limits=lambda cp, x: [cp.norm1(x) <= 4.0],
        smooth=True,
    )


@SUITE.add("constrained", "matrix game, 60 x 50, on the simplex")
def matrix_game() -> Function:
    """max_i (P x)_i over the simplex: the value of a game for two."""
    return _on_simplex(formulas.largest_linear(gaussian(551, 60, 50)), 50, smooth=False)


@SUITE.add("constrained", "mean of the worst 5 % of 400 losses, on the simplex, d=30")
def tail_risk() -> Function:
    """Conditional value at risk of a portfolio."""
    losses = gaussian(561, 400, 30) * np.linspace(0.5, 2.0, 30) - 0.1 * gaussian(562, 30)

    def fun(x: Vector) -> tuple[float, Vector]:
        values = losses @ x
        places = np.argpartition(values, -20)[-20:]
        return float(values[places].sum()) / 20, losses[places].sum(axis=0) / 20

    formula = Formula(fun, lambda cp, x: cp.sum_largest(losses @ x, 20) / 20)
    return _on_simplex(formula, 30, smooth=False)


@SUITE.add("constrained", "obstacle problem on a 100 x 100 grid, d=10,000")
def obstacle() -> Function:
    """A membrane over a floor at zero: a sparse quadratic with x >= 0."""
    i = (np.arange(100) + 1) / 101
    b = 0.02 * np.outer(np.sin(3 * np.pi * i), np.sin(2 * np.pi * i)).ravel()
    return _nonnegative(formulas.quadratic(grid_laplacian(100), b), 10_000)


@SUITE.add("constrained", "basis pursuit: the least l1 norm under 30 equations, d=100")
def basis_pursuit() -> Function:
    """||x||_1 with A x = b, from the solution of least Euclidean norm."""
    A, sparse = gaussian(571, 30, 100), np.zeros(100)
    sparse[::20] = gaussian(572, 5)
    b = A @ sparse
    plane = ag.Affine(A, b)
    return of_formula(
        formulas.absolute(1.0),
        plane.project(np.zeros(100)),
        feasible_set=plane,
        limits=lambda _, x: [A @ x == b],
        equations=(A, b),
    )


# -- with a penalty --------------------------------------------------------------------------------


def _sparse_regression(rows: int, true: Vector, seeds: tuple[int, int]) -> Formula:
    """Return least squares of noisy values of a sparse linear function."""
    A = gaussian(seeds[0], rows, true.size)
    b = A @ true + 0.5 * gaussian(seeds[1], rows)
    return formulas.squares(1 / rows).of(A, -b)


@SUITE.add("composite", "least squares with an l1 penalty, 200 x 400")
def lasso() -> Function:
    """More columns than rows, 20 of which matter."""
    true = np.zeros(400)
    true[::20] = gaussian(602, 20)
    smooth = _sparse_regression(200, true, (601, 603))
    return of_formula(smooth, 400, penalty=ag.L1(0.1), term=formulas.absolute(0.1), smooth=True)


@SUITE.add("composite", "group lasso, 150 x 200, groups of 5")
def group_lasso() -> Function:
    """Four groups of forty matter."""
    true = np.zeros(200)
    true[:20] = gaussian(622, 20)

    def norms(x: Vector) -> tuple[float, Vector]:
        groups = x.reshape(40, 5)
        sizes = np.sqrt((groups**2).sum(axis=1, keepdims=True))
        slopes = (groups / np.where(sizes > 0, sizes, 1.0)).ravel()
        return 0.2 * float(sizes.sum()), 0.2 * slopes

    def statement(cp: Any, x: Any) -> Any:
        return 0.2 * cp.sum(cp.norm(cp.reshape(x, (40, 5), order="C"), axis=1))

    smooth, term = _sparse_regression(150, true, (621, 623)), Formula(norms, statement)
    penalty = ag.GroupL2(0.2, np.arange(200) // 5)
    return of_formula(smooth, 200, penalty=penalty, term=term, smooth=True)


@SUITE.add("composite", "matrix completion by the nuclear norm, 30 x 20, d=600")
def matrix_completion() -> Function:
    """Half of the entries of a noisy matrix of rank 2 are seen."""
    shape = (30, 20)
    full = gaussian(631, 30, 2) @ gaussian(632, 2, 20) + 0.1 * gaussian(633, *shape)
    seen = (np.random.default_rng(634).uniform(size=shape) < 0.5).ravel().astype(np.float64)
    known: Vector = full.ravel()

    def norm(x: Vector) -> tuple[float, Vector]:
        left, sizes, right = np.linalg.svd(x.reshape(shape), full_matrices=False)
        return float(sizes.sum()), ((left * (sizes > 0)) @ right).ravel()

    smooth = formulas.squares(1.0).of(sp.diags_array(seen).tocsr(), -seen * known)
    term = Formula(norm, lambda cp, x: cp.normNuc(cp.reshape(x, shape, order="C")))
    return of_formula(smooth, 600, penalty=ag.NuclearNorm(1.0, shape), term=term, smooth=True)
