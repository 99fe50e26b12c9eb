"""What a function of the suite is: a callable with its start, its set or penalty, its statement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from accelegrad_lab.functions.formulas import Evaluate, Formula, Statement, Vector

if TYPE_CHECKING:
    from accelegrad.geometry.penalties import Penalty
    from accelegrad.geometry.sets import FeasibleSet

SMOOTH = "smooth"
MAX = "max-type"
KINKS = "sum of kinks"
SPECTRAL = "eigenvalues"
CONSTRAINED = "constrained"
COMPOSITE = "composite"
KINDS = (SMOOTH, MAX, KINKS, SPECTRAL, CONSTRAINED, COMPOSITE)


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
    kind: str
    words: str
    build: Builder


class Cases(dict[str, Case]):
    """Cases by name, with a decorator that adds one."""

    def add(self, kind: str, words: str) -> Callable[[Builder], Builder]:
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
