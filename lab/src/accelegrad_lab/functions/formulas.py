"""Convex formulas: each computes a value with a subgradient, and states itself for CVXPY.

``first + second`` is a sum, ``outer.of(A, b)`` is outer(A x + b). A function of the suite is a
formula with its start, and its set or penalty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logsumexp

if TYPE_CHECKING:
    from accelegrad.geometry.penalties import Penalty
    from accelegrad.geometry.sets import FeasibleSet

Vector = npt.NDArray[Any]
Evaluate = Callable[[Vector], tuple[float, Vector]]
Statement = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Formula:
    """A convex function of a vector."""

    fun: Evaluate  # the exact value and one subgradient; it does not change x
    statement: Statement  # the same, given CVXPY and its variable

    def __add__(self, other: Formula) -> Formula:
        def fun(x: Vector) -> tuple[float, Vector]:
            (value, gradient), (more, slope) = self.fun(x), other.fun(x)
            return value + more, gradient + slope

        return Formula(fun, lambda cp, x: self.statement(cp, x) + other.statement(cp, x))

    def of(self, A: Any, b: Vector | float = 0.0) -> Formula:
        """Return this function of A x + b."""

        def fun(x: Vector) -> tuple[float, Vector]:
            value, slopes = self.fun(A @ x + b)
            return value, A.T @ slopes

        return Formula(fun, lambda cp, x: self.statement(cp, A @ x + b))


# -- smooth ----------------------------------------------------------------------------------------


def mean_logistic(y: Vector) -> Formula:
    """Return the mean of log(1 + exp(-y_i z_i))."""

    def fun(z: Vector) -> tuple[float, Vector]:
        margins = y * z
        return float(np.logaddexp(0.0, -margins).mean()), -y * expit(-margins) / y.size

    return Formula(fun, lambda cp, z: cp.sum(cp.logistic(cp.multiply(-y, z))) / y.size)


def squares(strength: float) -> Formula:
    """Return strength/2 ||z||^2."""
    return Formula(
        lambda z: (strength / 2 * float(z @ z), strength * z),
        lambda cp, z: strength / 2 * cp.sum_squares(z),
    )


def quadratic(H: Any, b: Vector) -> Formula:
    """Return x'Hx/2 - b'x."""

    def fun(x: Vector) -> tuple[float, Vector]:
        Hx = H @ x
        return float(x @ Hx) / 2 - float(b @ x), Hx - b

    return Formula(fun, lambda cp, x: cp.quad_form(x, cp.psd_wrap(H)) / 2 - b @ x)


def log_sum_exp() -> Formula:
    """Return log sum_i exp(z_i)."""

    def fun(z: Vector) -> tuple[float, Vector]:
        value = float(logsumexp(z))
        return value, np.exp(z - value)

    return Formula(fun, lambda cp, z: cp.log_sum_exp(z))


def mean_power(power: float) -> Formula:
    """Return the mean of |z_i|^power, a power above 1."""

    def fun(z: Vector) -> tuple[float, Vector]:
        sizes = np.abs(z)
        slopes = power / z.size * np.sign(z) * sizes ** (power - 1)
        return float((sizes**power).mean()), slopes

    return Formula(fun, lambda cp, z: cp.sum(cp.power(cp.abs(z), power)) / z.size)


# -- with kinks ------------------------------------------------------------------------------------


def absolute(weights: Vector | float) -> Formula:
    """Return sum_i weights_i |z_i|."""

    def fun(z: Vector) -> tuple[float, Vector]:
        return float((weights * np.abs(z)).sum()), weights * np.sign(z)

    return Formula(fun, lambda cp, z: cp.sum(cp.multiply(weights, cp.abs(z))))


def mean_hinge(y: Vector) -> Formula:
    """Return the mean of max(0, 1 - y_i z_i)."""

    def fun(z: Vector) -> tuple[float, Vector]:
        left = 1.0 - y * z
        inside = left > 0
        return float(left[inside].sum()) / y.size, -y * inside / y.size

    return Formula(fun, lambda cp, z: cp.sum(cp.pos(1 - cp.multiply(y, z))) / y.size)


def max_at(values: Vector) -> tuple[float, int]:
    """Return the largest entry and where it is."""
    place = int(values.argmax())
    return float(values[place]), place


def largest_linear(A: Vector, b: Vector | float = 0.0) -> Formula:
    """Return max_i <a_i, x> + b_i."""

    def fun(x: Vector) -> tuple[float, Vector]:
        value, place = max_at(A @ x + b)
        return value, A[place].copy()

    return Formula(fun, lambda cp, x: cp.max(A @ x + b))


def largest_quadratic(matrices: Vector, linear: Vector) -> Formula:
    """Return max_k x'A_k x - b_k'x."""

    def fun(x: Vector) -> tuple[float, Vector]:
        products = matrices @ x
        value, place = max_at(products @ x - linear @ x)
        return value, 2 * products[place] - linear[place]

    def statement(cp: Any, x: Any) -> Any:
        pairs = zip(matrices, linear, strict=True)
        return cp.maximum(*(cp.quad_form(x, cp.psd_wrap(H)) - b @ x for H, b in pairs))

    return Formula(fun, statement)


def of_neighbours(by_a: Vector, by_b: Vector) -> Vector:
    """Return the gradient of a sum over neighbours from the derivatives of its terms."""
    gradient = np.zeros(by_a.size + 1)
    gradient[:-1] += by_a
    gradient[1:] += by_b
    return gradient


def total_variation(strength: float) -> Formula:
    """Return strength sum_j |x_j+1 - x_j|."""

    def fun(x: Vector) -> tuple[float, Vector]:
        jumps = np.diff(x)
        signs = strength * np.sign(jumps)
        return strength * float(np.abs(jumps).sum()), of_neighbours(-signs, signs)

    return Formula(fun, lambda cp, x: strength * cp.norm1(x[1:] - x[:-1]))


def largest_eigenvalue(constant: Vector, matrices: Vector) -> Formula:
    """Return lambda_max(A_0 + sum_k x_k A_k)."""

    def fun(x: Vector) -> tuple[float, Vector]:
        values, vectors = np.linalg.eigh(constant + np.tensordot(x, matrices, 1))
        top = vectors[:, -1]
        return float(values[-1]), matrices @ top @ top

    def statement(cp: Any, x: Any) -> Any:
        combined = matrices.reshape(len(matrices), -1).T @ x
        return cp.lambda_max(constant + cp.reshape(combined, constant.shape, order="C"))

    return Formula(fun, statement)


# -- functions of the suite ------------------------------------------------------------------------

Kind = Literal["smooth", "max-type", "sum of kinks", "eigenvalues", "constrained", "composite"]


@dataclass(frozen=True)
class Function:
    """A convex function, with all that a method or a solver is told of it."""

    fun: Evaluate  # the exact value and one subgradient; it does not change x
    x0: Vector  # lies in the set
    statement: Statement  # the objective with its penalty for CVXPY, given the module and x
    feasible_set: FeasibleSet | None = None
    penalty: Penalty | None = None
    limits: Statement | None = None  # the set for CVXPY: a list of constraints
    equations: tuple[Vector, Vector] | None = None  # A and b of the set's equations A x = b
    slope: Callable[[Vector], Vector] | None = None  # a subgradient of the penalty
    minimum: float | None = None  # where a formula gives it
    smooth: bool = False  # whether `fun` has a continuous gradient

    def value(self, x: Vector) -> float:
        """Return f(x) + penalty(x)."""
        value = float(self.fun(x)[0])
        return value if self.penalty is None else value + self.penalty.value(x)

    def whole(self, x: Vector) -> tuple[float, Vector]:
        """Return f(x) + penalty(x) and a subgradient of the sum."""
        value, gradient = self.fun(x)
        if self.penalty is None or self.slope is None:
            return value, gradient
        return value + self.penalty.value(x), gradient + self.slope(x)


Builder = Callable[[], Function]


@dataclass(frozen=True)
class Case:
    """A function by name. `build` makes its data anew, always the same."""

    name: str
    kind: Kind
    words: str
    build: Builder


class Cases(dict[str, Case]):
    """Cases by name, with a decorator that adds one."""

    def add(self, kind: Kind, words: str) -> Callable[[Builder], Builder]:
        """Return the decorator: the builder's name, with hyphens, is the case's."""

        def adding(build: Builder) -> Builder:
            name = build.__name__.replace("_", "-")
            self[name] = Case(name, kind, words, build)
            return build

        return adding


def of_formula(
    formula: Formula, start: Vector | int, *, term: Formula | None = None, **more: Any
) -> Function:
    """Return the function of a formula from a start, or from the origin of so many coordinates.

    `term` is the formula of the penalty.
    """
    x0 = np.zeros(start) if isinstance(start, int) else start
    if term is None:
        return Function(formula.fun, x0, formula.statement, **more)
    slope, statement = term.fun, (formula + term).statement
    return Function(formula.fun, x0, statement, slope=lambda x: slope(x)[1], **more)
