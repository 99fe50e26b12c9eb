"""The state of a run, shared by the loop, its policies, the observers and the report."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import OptimizeResult

from accelegrad.errors import NonFiniteError, Vector
from accelegrad.files.saved import Saved
from accelegrad.geometry.sets import FeasibleSet
from accelegrad.proofs.bracket import Bracket
from accelegrad.rules.base import Evaluated, Rule
from accelegrad.run.oracle import Evaluation, Oracle

#: The number of evaluations kept: comparing with them costs about one step. Fewer long vectors,
#: limited by these bytes: with 1e6 variables comparing with 20 took half the time of a run.
KEPT, KEPT_BYTES, FEWEST_KEPT = 20, 16 * 2**20, 4

OUTPUTS = ("auto", "average", "last", "best")


@dataclass(frozen=True)
class Options:
    """When to stop, what to return and who observes."""

    max_iter: int = 1000
    goal: Callable[[float], float] | None = None  # the gap that is asked for at a value
    time_limit: float | None = None
    target: float | None = None
    output: str = "auto"
    exact: bool = True  # gradients, and values if any, are free of noise
    callback: Callable[[OptimizeResult], Any] | None = None
    callback_at: frozenset[int] | None = None  # iterations; None: all
    progress: bool = False
    trace: bool = False
    checkpoint: Path | None = None
    checkpoint_every: int = 100

    @property
    def has_end(self) -> bool:
        """Whether values or bounds may end the run: at a certified gap or at a target."""
        return self.goal is not None or self.target is not None


class Clock(Saved):
    """Seconds since the start, summed over the processes of a resumed run, without pauses."""

    saved = ("_before",)  # checkpoints are written in a pause

    _before = 0.0  # seconds before it was last started
    _since: float | None = None  # time of that start; None: paused

    @property
    def seconds(self) -> float:
        """Time so far."""
        return self._before + (0.0 if self._since is None else time.perf_counter() - self._since)

    def start(self) -> None:
        """Start, or continue after a pause."""
        self._since = time.perf_counter()

    def pause(self) -> None:
        """Pause."""
        self._before, self._since = self.seconds, None


class Recent(Saved):
    """The last evaluations, in the rows of arrays and in any order, without a penalty.

    `sizes` are those of the terms of the values; `offsets` is work space of the same shape as
    `points`.
    """

    saved = ("_rows", "_numbers", "_seen")

    def __init__(self, dimension: int) -> None:
        kept = max(FEWEST_KEPT, min(KEPT, KEPT_BYTES // (16 * dimension)))
        self._rows, self._numbers = np.zeros((2, kept, dimension)), np.zeros((2, kept))
        self._work = np.empty((kept, dimension))
        self._seen = 0
        self._show()

    def _show(self) -> None:
        count, rows, numbers = min(self._seen, len(self._work)), self._rows, self._numbers
        self.points, self.gradients = rows[0, :count], rows[1, :count]
        self.values, self.sizes = numbers[0, :count], numbers[1, :count]
        self.offsets = self._work[:count]

    def add(self, at: Evaluated) -> None:
        """Keep an evaluation in place of the oldest."""
        kept, term = len(self._work), at.penalty
        row = self._seen % kept
        self._seen += 1
        if self._seen <= kept:
            self._show()
        self.points[row], self.gradients[row] = at.point, at.gradient
        self.values[row], self.sizes[row] = at.value - term, abs(at.value) + abs(term)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint."""
        super().restore(state)
        self._show()


class Progress(Saved):
    """The state of a run, and what is known of the point that it would return.

    `judge` is an oracle with exact values for the output point, if `oracle` is noisy;
    `feasible_set` is the constraint on every returned point.
    """

    saved = (
        *("iteration", "next_judgement", "rule_state"),
        *("oracle", "separate_judge", "bracket", "recent", "clock"),
    )

    def __init__(
        self,
        rule: Rule,
        oracle: Oracle,
        x0: Vector,
        options: Options,
        bracket: Bracket,
        judge: Oracle | None = None,
        feasible_set: FeasibleSet | None = None,
    ) -> None:
        self.rule, self.oracle, self.options = rule, oracle, options
        self.bracket, self.feasible_set = bracket, feasible_set
        self.judge = oracle if oracle.exact_values else judge
        #: the judge, unless it is the oracle itself
        self.separate_judge = None if oracle.exact_values else judge
        self.rule_state: Any = rule.init(x0)
        cuts = bracket.cuts
        # A rule's cuts do not know the rounding errors of a linear model.
        if "cuts" in rule.can and cuts is not None and cuts.model is None:
            cuts.share(self.rule_state.cuts)
        #: the last evaluations, if values are exact
        self.recent = Recent(x0.size)
        self.clock = Clock()
        self.iteration = self.next_judgement = 0
        #: what is returned: "average", "last" or "best"
        self.output = options.output
        if options.output == "auto":
            self.output = "best" if oracle.exact_values else "average"
        self._judged: tuple[int, Evaluation] | None = None  # the last (iteration, output point)

    @property
    def best(self) -> Evaluation | None:
        """The point with the lowest exact value, if there are exact values."""
        return None if self.judge is None else self.judge.best

    def point(self, output: str) -> Vector:
        """Return the point that the rule's theorem is about ("average"), or the last iterate."""
        average = output == "average"
        point = self.rule.output(self.rule_state) if average else self.rule.last(self.rule_state)
        # Rounding in an average may leave it outside the constraint.
        return point if self.feasible_set is None else self.feasible_set.project(point)

    def points(self) -> dict[str, Vector | None]:
        """Return the average, the last and the best point, as results name them."""
        best = self.best
        return {
            "x_average": self.point("average").copy(),
            "x_last": self.point("last").copy(),
            "x_best": None if best is None else best.point.copy(),
        }

    def judged_output(self) -> Evaluation:
        """Evaluate the output point exactly, at most once per iteration."""
        assert self.judge is not None
        if self._judged is None or self._judged[0] != self.iteration:
            evaluation = self.judge.exactly(self.point(self.output))
            self.bracket.add(evaluation, 0.0)
            self._judged = self.iteration, evaluation
        return self._judged[1]

    def tried(self, point: Vector, *, keep: bool = True) -> Evaluation | None:
        """Evaluate exactly; None if the function fails there. `keep`: it may be the best point."""
        assert self.judge is not None
        best = self.judge.best
        try:
            evaluation = self.judge.exactly(point)
            _ = evaluation.gradient  # it may be computed late, and not be finite
        except Exception:
            return None
        finally:
            if not keep:
                self.judge.best = best
        return evaluation

    def value_judged_now(self) -> float:
        """Return the output point's value, NaN if it was not judged in this iteration."""
        judged = self._judged
        return judged[1].value if judged and judged[0] == self.iteration else math.nan

    def final_evaluation(self) -> Evaluation | None:
        """Return the evaluation at the returned point, computed if necessary."""
        if self.output == "best" and self.best is not None:
            return self.best
        try:
            if self.judge is not None:
                return self.judged_output()
            return self.oracle(self.point(self.output)) if self.oracle.has_values else None
        except NonFiniteError:
            return None

    @property
    def gap(self) -> float:
        """The certified gap of the best point; reading it computes no new bounds."""
        best = self.best
        return math.inf if best is None else self.bracket.gap(best)

    @property
    def calls(self) -> int:
        """The number of points at which anything was computed."""
        judge = self.separate_judge
        return self.oracle.points + (0 if judge is None else judge.points)

    def counters(self) -> dict[str, int]:
        """Return the calls so far, as results name them."""
        oracle, judge = self.oracle, self.separate_judge
        counts = {"nfev": oracle.nfev, "njev": oracle.njev, "rows": oracle.rows}
        if judge is not None:
            counts = {name: count + getattr(judge, name) for name, count in counts.items()}
        return counts
