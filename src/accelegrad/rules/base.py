"""The two contracts of a rule.

A **query rule** asks for a gradient at a point that it does not necessarily return: `init`,
`query`, `update`, and `output` for the point that its theorem speaks of. A **step rule** (line
search) needs values and several trials: it has `step`. The loop knows `step` only, which is derived
for query rules.

Rules are immutable and pure: `update` returns a new state and never changes an array in place, so
that a run stopped at any moment still holds a complete state.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

Array: TypeAlias = Any  # a vector of NumPy, torch or JAX: formulas use + - * / and `inner` alone
Projection: TypeAlias = Callable[[Array], Array]
Prox: TypeAlias = Callable[[Array, Any], Array]  # (x, step) -> argmin phi + ||. - x||^2 / (2 step)
State: TypeAlias = Any  # a NamedTuple of arrays and numbers with `iteration` and `step_size`


def inner(a: Array, b: Array) -> Any:
    """Return the inner product over all entries, for arrays of any shape.

    For NumPy it is a Python float, whose arithmetic is far faster.
    """
    product = a.dot(b) if getattr(a, "ndim", 1) == 1 else (a * b).sum()
    return float(product) if isinstance(product, float) else product


def where(condition: Any, yes: Any, no: Any) -> Any:
    """Return one of two numbers or arrays; a condition that is traced chooses entry by entry."""
    if isinstance(condition, bool | np.bool_):
        return yes if condition else no
    return type_library(condition).where(condition, yes, no)


def type_library(array: Any) -> Any:
    """Return the module whose functions take an array: NumPy, torch or jax.numpy."""
    name = type(array).__module__.partition(".")[0]
    if name == "torch":
        return sys.modules["torch"]
    return sys.modules["jax.numpy"] if name in ("jax", "jaxlib") else np


def weighted_average(state: State, start: Array) -> Array:
    """Return the average that a state keeps as two sums, the start before any step."""
    return start if state.iteration == 0 else state.weighted_sum / state.weight_sum


class Evaluation(Protocol):
    """What an oracle knows at a point; the gradient may be computed when first asked for."""

    @property
    def point(self) -> Array:
        """Where."""

    @property
    def value(self) -> float:
        """F there; NaN where the oracle has no values."""

    @property
    def gradient(self) -> Array:
        """A (sub)gradient there."""

    @property
    def squared_norm(self) -> float:
        """The gradient's squared norm."""


Oracle: TypeAlias = Callable[[Array], Evaluation]


class KnownEvaluation(NamedTuple):
    """An evaluation carried over from an earlier step: it costs no call."""

    point: Array
    value: float
    gradient: Array

    @property
    def squared_norm(self) -> float:
        """The gradient's squared norm."""
        return float(inner(self.gradient, self.gradient))


class Step(NamedTuple):
    """What a step leaves: the new state, and the evaluation it used with its weight."""

    state: State
    evaluation: Evaluation
    weight: Any
    steps: int = 1  # more where a compiled call did several steps at once


class Rule(ABC):
    """A method, with its parameters, apart from any function."""

    #: whether the rule compares function values, which noise would make meaningless
    needs_values: bool = False

    @abstractmethod
    def init(self, x0: Array) -> State:
        """Return the state before the first step."""

    @abstractmethod
    def step(self, state: State, oracle: Oracle) -> Step:
        """Do one step."""

    def advance(self, state: State, oracle: Oracle, most: int) -> Step:  # noqa: ARG002
        """Do at least one and up to `most` steps; one, unless a rule has compiled ones."""
        return self.step(state, oracle)

    @abstractmethod
    def output(self, state: State) -> Array:
        """Return the point that the method's theorem speaks of."""

    @abstractmethod
    def last(self, state: State) -> Array:
        """Return the last iterate."""


class QueryRule(Rule):
    """A rule that needs one gradient a step and no value."""

    @abstractmethod
    def query(self, state: State) -> Array:
        """Return the point where the next gradient is wanted."""

    @abstractmethod
    def update(self, state: State, gradient: Array) -> State:
        """Return the state after the gradient at the query point."""

    @abstractmethod
    def weight(self, state: State) -> Any:
        """Return the weight of the next gradient in the method's average."""

    def step(self, state: State, oracle: Oracle) -> Step:
        """Do one step: query, gradient, update."""
        evaluation = oracle(self.query(state))
        return Step(self.update(state, evaluation.gradient), evaluation, self.weight(state))


class StepRule(Rule):
    """A rule that searches for its step by comparing values."""

    needs_values = True
