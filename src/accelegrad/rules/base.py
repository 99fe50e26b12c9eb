"""The contracts of a rule.

A **query rule** asks for one gradient per step, at a point that it need not return. A **two-phase
rule** (`unixgrad.py`) asks for two. A **step rule** (line search) compares values at several trial
points. The loop calls only `advance`.

Rules are immutable. Query and two-phase rules are pure: `update` returns a new state and changes no
array in place, so that a run stopped at any moment holds a complete state. States of step rules may
hold memories that grow in place, such as the cuts of a bundle.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections import namedtuple
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

from accelegrad.errors import real_number
from accelegrad.rules.arrays import Array, as_array, inner, where

Projection: TypeAlias = Callable[[Array], Array]
Prox: TypeAlias = Callable[[Array, Any], Array]  # (x, step) -> argmin phi + ||. - x||^2 / (2 step)
State: TypeAlias = Any  # a NamedTuple of arrays and numbers with `iteration` and `step_size`

#: The shortest distance that a user may give, the inverse of the longest: their squares, times
#: weights, neither vanish nor overflow. Chosen.
SHORTEST = 1e-100


def extended_state(module: str, name: str, base: Any, *fields: str) -> Any:
    """Return a type of states with the fields of another one and more, to be pickled by name."""
    names = (*base._fields, *fields)
    return namedtuple(name, names, module=module)


#: What a rule can do, and what it has for that.
ABILITIES = {
    "project": "stay in a set: the parameter `project`",
    "project_y": "leave y out of that, or not: the parameter `project_y`",
    "prox": "add a term to the function: the parameter `prox`",
    "term": "compare values of that term: the parameter `term`",
    "terms": "heed l1 terms and boxes, which its oracle knows, without `prox` and `project`",
    "radius": "find its radius: the parameter `initial_radius`, `start` and `radius` in its states",
    "largest_radius": "heed a bound on the radius: the parameter `largest_radius`",
    "probe": "look for its first radius by comparing values: the parameter `probe`",
    "cuts": "keep cuts: `cuts`, `estimated_gap` and `smooth` in its states; `rows`",
    "values": "compare values, without which (and under noise) it does not work",
}

__all__ = ["Array", "as_array", "inner", "where"]  # from `arrays`


def check_distance(name: str, given: Any) -> float:
    """Return a positive number whose square, times weights, stays in the range of floats."""
    number = real_number(name, given, above=0)
    longest = 1 / SHORTEST
    if isinstance(number, float) and not SHORTEST <= number <= longest:
        raise ValueError(
            f"{name} must be between {SHORTEST:g} and {longest:g}, but it is {given!r}; scale the "
            "problem."
        )
    return number


def check_radius(name: str, radius: Any) -> None:
    """Refuse an initial radius that is neither None nor a positive number of usable size."""
    if radius is not None:
        check_distance(name, radius)


def weighted_average(state: State, start: Array) -> Array:
    """Return the average that a state keeps as two sums, or the start before the first step."""
    first = state.iteration == 0
    return where(first, start, state.weighted_sum / (state.weight_sum + first))


class Evaluated(Protocol):
    """What an oracle knows at a point; the gradient may be computed on first access."""

    @property
    def point(self) -> Array:
        """The point."""

    @property
    def value(self) -> float:
        """The function's value; NaN if the oracle has no values."""

    @property
    def gradient(self) -> Array:
        """A (sub)gradient."""

    @property
    def squared_norm(self) -> float:
        """The gradient's squared norm."""

    @property
    def penalty(self) -> float:
        """The penalty's part of the value."""

    @property
    def unit(self) -> float:
        """The rounding unit of the type in which value and gradient were computed; 0: unknown."""

    @property
    def accuracy(self) -> float:
        """The absolute error of the value, as given by the user; the cut has the same error."""

    @property
    def lost(self) -> tuple[float, float]:
        """Errors of value and gradient, from `accuracy` or from types below 64 bits."""


Oracle: TypeAlias = Callable[[Array], Evaluated]


class KnownEvaluation(NamedTuple):
    """An evaluation carried over from an earlier step, at no call."""

    point: Array
    value: float
    gradient: Array
    penalty: float = 0.0
    unit: float = 0.0
    accuracy: float = 0.0
    lost: tuple[float, float] = (0.0, 0.0)
    # What linear models add to an evaluation: see `accelegrad.run.oracle.Evaluation`.
    dual_value: float | None = None
    late_bound: Any = None
    model: Any = None
    rounding: Any = None

    @property
    def squared_norm(self) -> float:
        """The gradient's squared norm."""
        return float(inner(self.gradient, self.gradient))


class Step(NamedTuple):
    """The new state, and the evaluation that the step used with its weight."""

    state: State
    evaluation: Evaluated
    weight: Any
    steps: int = 1  # more if one compiled call did several steps


class Rule(ABC):
    """A method with its parameters, independent of any function."""

    #: abilities beyond the steps: keys of `ABILITIES`
    can: frozenset[str] = frozenset()
    project: Projection | None = None
    prox: Prox | None = None
    #: the name shown to users; by default the class name
    title: ClassVar[str] = "Rule"

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.title = cls.__dict__.get("title", cls.__name__)

    @abstractmethod
    def init(self, x0: Array) -> State:
        """Return the state before the first step."""

    @abstractmethod
    def step(self, state: State, oracle: Oracle) -> Step:
        """Do one step."""

    def stride(self, state: State) -> int:  # noqa: ARG002
        """Return how many steps `advance` would do before its next evaluation."""
        return 1

    def advance(self, state: State, oracle: Oracle, most: int) -> Step:  # noqa: ARG002
        """Do up to `most` steps in one call; only rules with compiled steps do more than one."""
        return self.step(state, oracle)

    @abstractmethod
    def output(self, state: State) -> Array:
        """Return the point that the method's theorem is about."""

    @abstractmethod
    def last(self, state: State) -> Array:
        """Return the last iterate."""

    def proximal(self, point: Array, step: Any = 0.0) -> Array:
        """Return the point after the prox for this step and the projection, if given."""
        if self.prox is not None:
            point = self.prox(point, step)
        return point if self.project is None else self.project(point)

    def prepared(self, state: State, oracle: Oracle) -> tuple[State, Oracle]:
        """Return the state with what values show before the first step, and the oracle to use then.

        `step` calls it. Call it first to trace `query` and `update` with JAX.
        """
        return state, oracle

    def with_parameters(self, **parameters: Any) -> Rule:
        """Return the rule with other parameters."""
        return dataclasses.replace(self, **parameters)  # type: ignore[type-var]

    def with_radius(self, radius: float) -> Rule:
        """Return the rule with another initial radius."""
        return self.with_parameters(initial_radius=radius)


class GradientRule(Rule):
    """A rule that asks for gradients and keeps an average as two sums."""

    def query(self, state: State) -> Array:
        """Return the point of the step's first gradient."""
        return state.query_point

    def weight(self, state: State) -> Any:  # noqa: ARG002
        """Return the weight of the next step in the average: 1, for a uniform one."""
        return 1.0

    def output(self, state: State) -> Array:
        """Return the weighted average (x_0 before any step)."""
        return weighted_average(state, self.last(state))


class QueryRule(GradientRule):
    """A rule that needs one gradient per step and no value."""

    @abstractmethod
    def update(self, state: State, gradient: Array) -> State:
        """Return the state after the gradient at the query point."""

    def step(self, state: State, oracle: Oracle) -> Step:
        """Do one step: query, gradient, update."""
        evaluation = oracle(self.query(state))
        return Step(self.update(state, evaluation.gradient), evaluation, self.weight(state))


class StepRule(Rule):
    """A rule that searches for its step by comparing values."""

    can: frozenset[str] = frozenset({"values"})

    def last(self, state: State) -> Array:
        """Return the output: these rules do not average."""
        return self.output(state)
