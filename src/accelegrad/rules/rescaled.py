"""Any rule, run in other coordinates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from accelegrad.rules.arrays import Array, as_array, inner
from accelegrad.rules.base import Evaluated, KnownEvaluation, Oracle, Rule, State, Step


class ChangedEvaluation:
    """An evaluation at x = T v, as a function of v."""

    def __init__(self, point: Array, original: Evaluated, change: Any) -> None:
        self.point, self.original, self._change = point, original, change
        self.value, self.penalty = original.value, original.penalty
        self.unit, self.accuracy = original.unit, original.accuracy
        #: errors of value and gradient, in x
        self.lost = original.lost

    @cached_property
    def gradient(self) -> Array:
        """T' g, computed on first access."""
        return self._change.adjoint(self.original.gradient)

    @property
    def squared_norm(self) -> float:
        """The squared norm of T' g."""
        return inner(self.gradient, self.gradient)  # type: ignore[no-any-return]


class ChangedOracle:
    """An oracle as a function of v, with `frozen` if the original can freeze its noise."""

    def __init__(self, oracle: Any, change: Any) -> None:
        self.oracle, self.change = oracle, change
        if hasattr(oracle, "frozen"):
            # A method of this object would make a reference cycle and keep data in memory.
            self.frozen = partial(_frozen, oracle, change)

    def __call__(self, v: Array) -> ChangedEvaluation:
        """Evaluate at T v."""
        return ChangedEvaluation(v, self.oracle(self.change.apply(v)), self.change)


def _frozen(oracle: Any, change: Any) -> tuple[ChangedOracle, ...]:
    return tuple(ChangedOracle(sample, change) for sample in oracle.frozen())


@dataclass(frozen=True, eq=False)
class Rescaled(Rule):
    """A rule that runs in the coordinates v of x = T v, that is, on v -> f(T v).

    The state is the inner rule's, in v; the points that it evaluates and returns are in x.

    Parameters
    ----------
    rule : Rule
        The rule to run; its diameter and projection are in v.
    change : object
        The change of coordinates: `apply` (T v), `adjoint` (T' g), `invert` (T^-1 x), and
        `invert_adjoint` (T'^-1 g) for rules that carry gradients from step to step.
        `accelegrad.models.scaling.column_scaling` makes one from a linear model's data.
    """

    rule: Rule
    change: Any

    @property
    def title(self) -> str:  # type: ignore[override]
        """The inner rule's title."""
        return self.rule.title

    @property
    def can(self) -> frozenset[str]:  # type: ignore[override]
        """The inner rule's abilities, except for sets and terms, which are meant in x."""
        return self.rule.can - {"project", "project_y", "prox"}

    def init(self, x0: Array) -> State:
        """Return the inner rule's state at T^-1 x0."""
        return self.rule.init(self.change.invert(as_array(x0)))

    def prepared(self, state: State, oracle: Oracle) -> tuple[State, Oracle]:
        """Return the inner rule's prepared state."""
        return self.rule.prepared(state, ChangedOracle(oracle, self.change))[0], oracle

    def with_radius(self, radius: float) -> Rule:
        """Return the rule with another initial radius, in v."""
        return replace(self, rule=self.rule.with_radius(radius))

    def step(self, state: State, oracle: Oracle) -> Step:
        """Do one step of the inner rule; the evaluation is returned in x."""
        step = self.rule.step(state, ChangedOracle(oracle, self.change))
        return step._replace(evaluation=self._original(step.evaluation))

    def _original(self, evaluation: Any) -> Evaluated:
        if isinstance(evaluation, ChangedEvaluation):
            return evaluation.original
        return KnownEvaluation(
            self.change.apply(evaluation.point),
            evaluation.value,
            self.change.invert_adjoint(evaluation.gradient),
        )

    def output(self, state: State) -> Array:
        """Return the point that the method's theorem is about."""
        return self.change.apply(self.rule.output(state))

    def last(self, state: State) -> Array:
        """Return the last iterate."""
        return self.change.apply(self.rule.last(state))
