"""What a benchmark measured, and what it comes to: costs of accuracies, and who is the best."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from accelegrad_lab.bench.cases import Suite
from accelegrad_lab.engine.fit import Rung
from accelegrad_lab.peers import PEERS

KNOWN = 0.1  # a minimum has to be known to this share of an accuracy for the problem to count
ROUNDING = 1e-9  # relative: a value so far below a bound does not refute it
Costs = dict[str, dict[str, float]]  # by problem and solver; inf where it did not get there


class Problem(NamedTuple):
    """A problem, and what is known of it before anybody solves it."""

    key: str
    group: str
    data: str
    goal: str
    words: str
    start: float  # P(0), from which accuracies are counted; inf: they are relative to P*
    floor: float  # what P* is at least counted as, where they are
    minimum: float  # inf: not known
    lower: float  # -inf: not known
    solvers: list[str]  # who takes part

    @property
    def shown(self) -> str:
        """Its name in tables."""
        return ", ".join(filter(None, (self.data, self.goal)))

    def unit(self, value: float) -> float:
        """Return what an accuracy is relative to, at this value of the minimum."""
        if math.isfinite(self.start):
            return max(self.start - value, 0.0)
        return max(value, self.floor) or 1.0

    def reached(self, rung: Rung, accuracy: float, minimum: float, *, proved: bool) -> bool:
        """Tell whether a run reached an accuracy; `proved`: and says so itself."""
        allowed = accuracy * (1 + 1e-6)  # a tolerance is met up to rounding
        if not math.isnan(rung.value) and math.isfinite(minimum):
            accurate = rung.value - minimum <= allowed * self.unit(minimum)
        else:
            accurate = math.isinf(minimum) and not math.isnan(rung.value)
        told = rung.value - rung.bound <= allowed * self.unit(rung.value)
        return accurate and (told or not proved)


@dataclass(frozen=True)
class Record:
    """All runs of a solver on a problem."""

    problem: str
    solver: str
    rungs: tuple[Rung, ...]
    status: str  # "reached", "time limit", "stalled", "failed: ...", or its own words

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**vars(self), "rungs": [list(rung) for rung in self.rungs]}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Record:
        """Return what `to_json` gave."""
        rungs = tuple(Rung(*map(float, rung)) for rung in plain["rungs"])
        return cls(**{**plain, "rungs": rungs})


@dataclass
class Results:
    """All that was measured so far."""

    suite: Suite
    problems: dict[str, Problem] = field(default_factory=dict)
    records: dict[tuple[str, str], Record] = field(default_factory=dict)  # by problem and solver

    def take(self, kind: str, content: Mapping[str, Any]) -> None:
        """Take in one line of a file."""
        if kind == "problem":
            numbers = {name: float(content[name]) for name in ("start", "floor", "minimum")}
            one = Problem(**{**content, **numbers, "lower": float(content["lower"])})
            self.problems[one.key] = one
        elif kind == "record":
            record = Record.from_json(dict(content))
            self.records[record.problem, record.solver] = record

    @property
    def solvers(self) -> list[str]:
        """Those that took part somewhere and count, in the order of the table."""
        seen = {solver for _, solver in self.records}
        return [name for name in PEERS if name in seen and PEERS[name].counts]

    def lowest(self, key: str) -> float:
        """Return P*: the lowest value that anything found."""
        values = [
            rung.value
            for name in self.problems[key].solvers
            if (key, name) in self.records
            for rung in self.records[key, name].rungs
            if not math.isnan(rung.value)
        ]
        return min([self.problems[key].minimum, *values])

    def refuted(self, key: str) -> bool:
        """Tell whether anything found a value below a bound that a run of ours proves."""
        lowest = self.lowest(key)
        bounds = [r.bound for (k, _), one in self.records.items() if k == key for r in one.rungs]
        return max(bounds, default=-math.inf) > lowest + ROUNDING * max(abs(lowest), 1e-6)

    def unsure(self, key: str) -> float:
        """Return how well a minimum is known, as an accuracy; NaN where no bound is known."""
        one, lowest = self.problems[key], self.lowest(key)
        if math.isinf(one.lower):
            return math.nan
        return max(lowest - one.lower, 0.0) / (one.unit(lowest) or math.inf)

    def costs(self, measure: str, accuracy: float, group: str = "") -> Costs:
        """Return the least cost of an accuracy by problem and solver.

        Problems whose minimum is not known well enough are left out, and solvers that do not count
        (or not their calls).
        """
        place = Rung._fields.index({"CPU seconds": "cpu"}.get(measure, measure))
        table: Costs = {}
        for key, one in self.problems.items():
            if (group and one.group != group) or self.unsure(key) > KNOWN * accuracy:
                continue
            lowest, table[key] = self.lowest(key), {}
            for name in one.solvers:
                record, peer = self.records.get((key, name)), PEERS[name]
                counted = peer.counts and (measure != "calls" or peer.make is not None)
                if record is not None and counted:
                    proved = self.suite.proves and peer.own
                    table[key][name] = min(
                        (
                            rung[place]
                            for rung in record.rungs
                            if one.reached(rung, accuracy, lowest, proved=proved)
                        ),
                        default=math.inf,
                    )
        return {key: by for key, by in table.items() if self.suite.ours in by}

    def over_best_peer(self, measure: str, group: str = "") -> dict[str, tuple[float, str]]:
        """Return our cost over the best peer's, with its name, where any peer got there."""
        found = {}
        for key, by in self.costs(measure, self.suite.judged, group).items():
            peers = {n: cost for n, cost in by.items() if not PEERS[n].own}
            best = min(peers, key=lambda name: peers[name], default="")
            if best and math.isfinite(peers[best]):
                found[key] = by[self.suite.ours] / max(peers[best], 1e-9), best
        return found
