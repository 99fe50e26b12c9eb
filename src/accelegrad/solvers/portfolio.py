"""Two solvers for one sum over rows: the second joins where the first gains too little.

Facts about the data say which solvers can run, not always which is fastest. Each counts its work
(`accelegrad.solvers.work`), so that a run depends on the data alone. Once the first solver has done
more than either was likely to need, the second starts from the best point so far, and from then on
the one with less work does the next step. Best point and best bound count wherever they come from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from accelegrad.errors import LineSearchError
from accelegrad.models.linear_model import LinearModel
from accelegrad.rules.base import Array, Step
from accelegrad.solvers.curvature import Goal
from accelegrad.solvers.row_oracle import RowOracle, RowRule

#: The second joins after this many steps at the latest: `max_iter` leaves it some. Chosen.
MOST_ALONE = 300
#: A turn ends at this many times the work of the other solver; chosen.
BEYOND = 1.3
#: The seed of the second solver's samples; chosen.
SEED = 0


class PortfolioState(NamedTuple):
    """The states of both solvers, and whose turn it is."""

    iteration: int
    point: Array
    first: Any
    second: Any  # before it has joined, that at the start
    turn: int  # 0: the first; 1: the second
    joined: int  # the iteration before the second's first step; -1: it has not joined
    alone: bool  # whether the other one can do no more
    step_size: float


@dataclass(frozen=True)
class Portfolio(RowRule):
    """Two rules for sums over rows; see the module.

    Parameters
    ----------
    first, second : RowRule
        The rules.
    patience : float
        The work after which the second one joins.
    """

    first: RowRule
    second: RowRule
    patience: float

    @property
    def title(self) -> str:  # type: ignore[override]
        """The first rule's."""
        return self.first.title

    @property
    def rules(self) -> tuple[RowRule, RowRule]:
        """Both rules, in their order."""
        return self.first, self.second

    def oracle(
        self, model: LinearModel, rng: np.random.Generator, goal: Goal, *_: Any
    ) -> SharedOracle:
        """Return the sum for both rules."""
        return SharedOracle(model, rng, goal, self.rules)

    def init(self, x0: Array) -> PortfolioState:
        """Return the state before the first step."""
        first, second = (rule.init(x0) for rule in self.rules)
        return PortfolioState(0, x0, first, second, 0, -1, False, 0.0)

    def stride(self, state: PortfolioState) -> int:
        """Return the number of steps until the next evaluation, 1 where both take turns."""
        if state.joined >= 0 and not state.alone:
            return 1
        return self.rules[state.turn].stride((state.first, state.second)[state.turn])

    def step(self, state: PortfolioState, oracle: SharedOracle) -> Step:  # type: ignore[override]
        """Do one step of the rule whose turn it is."""
        return self.advance(state, oracle, 1)

    def advance(self, state: PortfolioState, oracle: SharedOracle, most: int) -> Step:  # type: ignore[override]
        """Do the steps of one turn; they count as one once both rules take turns."""
        rule, own = self.rules[state.turn], (state.first, state.second)[state.turn]
        in_turns = state.joined >= 0 and not state.alone
        steps: float = rule.stride(own) if in_turns else most
        if not state.alone:
            steps = min(steps, self._most(state, oracle))
        try:
            step = oracle.by(state.turn, rule, own, int(steps))
        except LineSearchError:
            if state.alone:
                raise
            return self.advance(self._passed_on(state, oracle)._replace(alone=True), oracle, 1)
        done = 1 if in_turns else step.steps
        which = ("first", "second")[state.turn]
        state = state._replace(
            **{which: step.state},
            iteration=state.iteration + done,
            point=step.state.point,
            step_size=step.state.step_size,
        )
        works, turn = oracle.works, state.turn
        if state.joined >= 0:
            due = works[1 - turn] < works[turn]
        else:
            due = works[0] > self.patience or state.iteration >= MOST_ALONE
        if due and not state.alone:
            state = self._passed_on(state, oracle)
        return step._replace(state=state, steps=done)

    def _most(self, state: PortfolioState, oracle: SharedOracle) -> float:
        """Return how many steps take a rule a little beyond the other's work, or the patience."""
        works, own = oracle.works, (state.first, state.second)[state.turn]
        work = works[state.turn]
        if not work > 0.0:
            return math.inf
        limit = self.patience if state.joined < 0 else works[1 - state.turn]
        steps: float = (BEYOND * limit - work) / work * own.iteration
        return max(1.0, steps)

    def _passed_on(self, state: PortfolioState, oracle: SharedOracle) -> PortfolioState:
        """Return the state in which it is the other rule's turn."""
        if state.joined < 0:
            best = state.point if oracle.best is None else oracle.best.point
            state = state._replace(joined=state.iteration, second=self.second.init(best))
        return state._replace(turn=1 - state.turn)


def _of_all(name: str) -> Any:
    """Return a property: a count of the parts, and of what is computed for none of them."""

    def of_parts(oracle: SharedOracle) -> int:
        return sum(getattr(part, name) for part in oracle.parts if part is not None)

    def read(oracle: SharedOracle) -> int:
        return oracle.own_counts.get(name, 0) + of_parts(oracle)

    def write(oracle: SharedOracle, count: int) -> None:
        oracle.own_counts[name] = count - of_parts(oracle)

    return property(read, write)


class SharedOracle(RowOracle):
    """The oracles of two rules, with the calls of both and their best point."""

    nfev, njev, points, rows = map(_of_all, ("nfev", "njev", "points", "rows"))

    def __init__(
        self, model: LinearModel, rng: np.random.Generator, goal: Goal, rules: tuple[RowRule, ...]
    ) -> None:
        super().__init__(model, rng, goal)
        self.own_counts: dict[str, int] = {}
        self._rules = rules
        self.parts: list[RowOracle | None] = [rules[0].oracle(model, rng, goal), None]

    @property
    def works(self) -> tuple[float, ...]:
        """The work of each rule so far."""
        return tuple(0.0 if part is None else part.work for part in self.parts)

    def part(self, turn: int) -> RowOracle:
        """Return the oracle of a rule, made on first use."""
        part = self.parts[turn]
        if part is None:
            rng = np.random.default_rng(SEED)
            part = self.parts[turn] = self._rules[turn].oracle(self.model, rng, self.goal)
        return part

    def by(self, turn: int, rule: RowRule, state: Any, most: int) -> Step:
        """Advance a rule on its oracle."""
        part = self.part(turn)
        try:
            return rule.advance(state, part, most)
        finally:
            best = part.best
            if best is not None and (self.best is None or best.value < self.best.value):
                self.best = best

    def state(self) -> dict[str, Any]:
        """Return all that a checkpoint has to keep."""
        parts = [None if part is None else part.state() for part in self.parts]
        return {**super().state(), "first": parts[0], "second": parts[1]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint."""
        for turn, name in enumerate(("first", "second")):
            if state[name] is not None:
                self.part(turn).restore(state[name])
        super().restore(state)
