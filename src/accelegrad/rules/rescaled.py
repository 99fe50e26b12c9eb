"""Any rule, run in other coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from accelegrad.rules.base import (
    Array,
    Evaluation,
    KnownEvaluation,
    Oracle,
    QueryRule,
    Rule,
    State,
    Step,
    inner,
)


class Change(Protocol):
    """An invertible linear change of coordinates x = T v."""

    def apply(self, v: Array) -> Array:
        """Return x = T v."""

    def adjoint(self, gradient: Array) -> Array:
        """Return T' g, the gradient with respect to v."""

    def invert(self, x: Array) -> Array:
        """Return v, such that T v = x."""

    def invert_adjoint(self, gradient: Array) -> Array:
        """Return g, such that T' g is the gradient given."""


class ChangedEvaluation:
    """What an oracle knows at x = T v, as a function of v."""

    __slots__ = ("_change", "_gradient", "original", "point")

    def __init__(self, point: Array, original: Evaluation, change: Change) -> None:
        self.point, self.original = point, original
        self._change, self._gradient = change, None

    @property
    def value(self) -> float:
        """F there."""
        return self.original.value

    @property
    def gradient(self) -> Array:
        """T' g, computed when first asked for."""
        if self._gradient is None:
            self._gradient = self._change.adjoint(self.original.gradient)
        return self._gradient

    @property
    def squared_norm(self) -> float:
        """The squared norm of T' g."""
        return float(inner(self.gradient, self.gradient))


class ChangedOracle:
    """An oracle as a function of v; one that can freeze its noise still can."""

    def __init__(self, oracle: Any, change: Change) -> None:
        self.oracle, self.change = oracle, change
        if hasattr(oracle, "frozen"):
            self.frozen = self._frozen

    def __call__(self, v: Array) -> ChangedEvaluation:
        """Evaluate at T v."""
        return ChangedEvaluation(v, self.oracle(self.change.apply(v)), self.change)

    def _frozen(self) -> tuple[ChangedOracle, ...]:
        return tuple(ChangedOracle(sample, self.change) for sample in self.oracle.frozen())


@dataclass(frozen=True, eq=False)
class Rescaled(Rule):
    """A rule that runs in the coordinates v of x = T v, and is seen in those of x.

    A linear change of coordinates makes another method of a gradient method: it is as if the
    function were v -> f(T v). The state is the inner rule's, in v; what it asks for, is told and
    returns is in x. Where the inner rule is a `QueryRule`, `query`, `update` and `weight` are there
    too.

    Parameters
    ----------
    rule : Rule
        The rule to run. What it knows of the space (diameter, projection) is meant in v.
    change : object
        The change of coordinates: `apply` (T v), `adjoint` (T' g), `invert` (T^-1 x), and
        `invert_adjoint` (T'^-1 g) for rules that carry gradients over from step to step.
        `accelegrad.problems.scaling.column_scaling` makes one from a linear model's data.
    """

    rule: Rule
    change: Change

    def __post_init__(self) -> None:
        if not isinstance(self.rule, Rule):
            raise TypeError(f"rule must be a rule object, not {self.rule!r}.")
        missing = [name for name in OPERATIONS if not callable(getattr(self.change, name, None))]
        if missing:
            raise TypeError(
                f"change must have the methods {', '.join(OPERATIONS)}, but {self.change!r} has no "
                f"{missing[0]}."
            )
        object.__setattr__(self, "needs_values", self.rule.needs_values)

    def init(self, x0: Array) -> State:
        """Return the inner rule's state at T^-1 x0."""
        return self.rule.init(self.change.invert(x0))

    def step(self, state: State, oracle: Oracle) -> Step:
        """Do one step of the inner rule; the evaluation it leaves is the one in x."""
        step = self.rule.step(state, ChangedOracle(oracle, self.change))
        return step._replace(evaluation=self._original(step.evaluation))

    def _original(self, evaluation: Any) -> Evaluation:
        """Return an evaluation in x; one that the rule carried over has to be mapped back."""
        if isinstance(evaluation, ChangedEvaluation):
            return evaluation.original
        return KnownEvaluation(
            self.change.apply(evaluation.point),
            evaluation.value,
            self.change.invert_adjoint(evaluation.gradient),
        )

    def query(self, state: State) -> Array:
        """Return the point where the next gradient is wanted."""
        return self.change.apply(self._query_rule.query(state))

    def update(self, state: State, gradient: Array) -> State:
        """Return the state after the gradient at the query point."""
        return self._query_rule.update(state, self.change.adjoint(gradient))

    def weight(self, state: State) -> Any:
        """Return the weight of the next gradient in the method's average."""
        return self._query_rule.weight(state)

    def output(self, state: State) -> Array:
        """Return the point that the method's theorem speaks of."""
        return self.change.apply(self.rule.output(state))

    def last(self, state: State) -> Array:
        """Return the last iterate."""
        return self.change.apply(self.rule.last(state))

    @property
    def _query_rule(self) -> QueryRule:
        if not isinstance(self.rule, QueryRule):
            raise TypeError(
                f"{type(self.rule).__name__} searches for its step and has `step` only; `query` "
                "and `update` need a rule that takes one gradient a step."
            )
        return self.rule


OPERATIONS = ("apply", "adjoint", "invert", "invert_adjoint")
