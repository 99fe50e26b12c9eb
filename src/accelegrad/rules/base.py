"""The contracts of a rule.

A **query rule** asks for a gradient at a point that it does not necessarily return: `init`,
`query`, `update`, and `output` for the point that its theorem speaks of. A **two-phase rule** asks
twice per step: `query`, `look_ahead`, `second_query`, `update`. A **step rule** (line search) needs
values and several trials: it has `step`. The loop knows `advance` only, which is `step` unless a
rule has compiled steps; for the first two kinds `step` is derived.

Rules are immutable. Query and two-phase rules are pure: `update` returns a new state and never
changes an array in place, so that a run stopped at any moment still holds a complete state. Step
rules may keep memories in their states that grow in place, as the bundle's cuts do. What a rule can
do beyond its steps is in its set `can`, by the names in `ABILITIES`.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

from accelegrad.rules.arrays import Array, as_array, inner, where

Projection: TypeAlias = Callable[[Array], Array]
Prox: TypeAlias = Callable[[Array, Any], Array]  # (x, step) -> argmin phi + ||. - x||^2 / (2 step)
State: TypeAlias = Any  # a NamedTuple of arrays and numbers with `iteration` and `step_size`

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
    "cuts": "keep cuts: `cuts`, `estimated_gap` and `smooth` in its states; `lowest_of_cuts`",
    "values": "compare values, without which (and under noise) it does not work",
}

__all__ = ["Array", "as_array", "inner", "where"]  # from `arrays`


def weighted_average(state: State, start: Array) -> Array:
    """Return the average that a state keeps as two sums, the start before any step."""
    first = state.iteration == 0
    return where(first, start, state.weighted_sum / (state.weight_sum + first))


class Evaluated(Protocol):
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

    @property
    def penalty(self) -> float:
        """The penalty's part of the value."""

    @property
    def unit(self) -> float:
        """The unit of rounding of the numbers that value and gradient came as; 0: not known."""

    @property
    def accuracy(self) -> float:
        """How far the value can be off, as the user says; so can the cut at the point."""

    @property
    def lost(self) -> tuple[float, float]:
        """How far value and gradient can be off: by `accuracy`, or in less than 64 bits."""


Oracle: TypeAlias = Callable[[Array], Evaluated]


class KnownEvaluation(NamedTuple):
    """An evaluation carried over from an earlier step: it costs no call."""

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
    """What a step returns: the new state, and the evaluation it used with its weight."""

    state: State
    evaluation: Evaluated
    weight: Any
    steps: int = 1  # more where a compiled call did several steps at once


class Rule(ABC):
    """A method, with its parameters, apart from any function."""

    #: what it can do beyond its steps: names of `ABILITIES`
    can: frozenset[str] = frozenset()
    #: what users call it; where a class says nothing, its name
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
        """Return how many steps `advance` does before its next evaluation, if it is let."""
        return 1

    def advance(self, state: State, oracle: Oracle, most: int) -> Step:  # noqa: ARG002
        """Do at least one and up to `most` steps; one, unless a rule has compiled ones."""
        return self.step(state, oracle)

    @abstractmethod
    def output(self, state: State) -> Array:
        """Return the point that the method's theorem speaks of."""

    @abstractmethod
    def last(self, state: State) -> Array:
        """Return the last iterate."""

    def prepared(self, state: State, oracle: Oracle) -> tuple[State, Oracle]:
        """Return the state with what values show before the first step, and the oracle to use then.

        `step` calls it. To trace `query` and `update`, call this first: a search that compares
        values is no formula.
        """
        return state, oracle

    def with_parameters(self, **parameters: Any) -> Rule:
        """Return the rule with other parameters, those that it `can` have among them."""
        return dataclasses.replace(self, **parameters)  # type: ignore[type-var]

    def with_radius(self, radius: float) -> Rule:
        """Return a rule that can "radius" with another radius to begin with."""
        return self.with_parameters(initial_radius=radius)


class GradientRule(Rule):
    """A rule that asks for gradients, and keeps an average as two sums in its states."""

    def query(self, state: State) -> Array:
        """Return the point where the next gradient is wanted, the first one of a step."""
        return state.query_point

    def weight(self, state: State) -> Any:  # noqa: ARG002
        """Return the weight of the next step in the method's average: 1, for a uniform one."""
        return 1.0

    def output(self, state: State) -> Array:
        """Return the weighted average that the state keeps (x_0 before any step)."""
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


class TwoPhaseRule(GradientRule):
    """A rule that needs two gradients per step, the second where the first one leads."""

    @abstractmethod
    def look_ahead(self, state: State, prediction: Array) -> State:
        """Return the state after the first gradient."""

    @abstractmethod
    def second_query(self, state: State) -> Array:
        """Return the point where the second gradient is wanted, from the state in between."""

    @abstractmethod
    def update(self, state: State, prediction: Array, gradient: Array) -> State:
        """Return the state after the step's two gradients, from the state in between."""

    def step(self, state: State, oracle: Oracle) -> Step:
        """Do one step: twice a query and a gradient."""
        prediction = oracle(self.query(state)).gradient
        ahead = self.look_ahead(state, prediction)
        evaluation = oracle(self.second_query(ahead))
        following = self.update(ahead, prediction, evaluation.gradient)
        return Step(following, evaluation, self.weight(state))


class StepRule(Rule):
    """A rule that searches for its step by comparing values."""

    can: frozenset[str] = frozenset({"values"})

    def last(self, state: State) -> Array:
        """Return the output, as rules that do not average do."""
        return self.output(state)
