"""What the benchmark measured: kept line by line in a file, and read as times to accuracies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from accelegrad_lab.bench.profile import ratios
from accelegrad_lab.bench.runs import ACCURACIES, Record, Yardstick, seconds_to
from accelegrad_lab.engine.line_file import LineFile
from accelegrad_lab.engine.peers import BENCHED, OURS, SMOOTH

KNOWN = 0.1  # a minimum has to be known to this share of an accuracy for the problem to count


@dataclass(frozen=True)
class Measured:
    """A problem, and what is known of its minimum."""

    key: str
    data: str
    loss: str
    strength: float
    rows: int
    columns: int
    words: str  # on the data
    start: float
    minimum: float
    lower: float
    seconds: float  # that finding the minimum took
    options: Mapping[str, float] = field(default_factory=dict)

    @property
    def smooth(self) -> bool:
        """Whether the loss is."""
        return self.loss in SMOOTH

    @property
    def shown(self) -> str:
        """Its name in tables."""
        l2 = f"l2 = {self.strength:g}/n" if self.strength else "l2 = 0"
        return f"{self.data}, {self.loss}, {l2}"


class ResultFile(LineFile["Results"]):
    """The results of the benchmark in a file."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, Results)

    def add_problem(self, problem: Measured) -> None:
        """Keep a problem."""
        self.add("problem", asdict(problem))

    def add_record(self, record: Record) -> None:
        """Keep the runs of a solver."""
        self.add("record", record.to_json())

    def add_done(self, data: str) -> None:
        """Keep that a set is complete."""
        self.add("set done", {"data": data})


@dataclass
class Results:
    """All that was measured so far."""

    problems: dict[str, Measured] = field(default_factory=dict)
    records: dict[tuple[str, str], Record] = field(default_factory=dict)  # by problem and solver
    done: set[str] = field(default_factory=set)

    def take(self, kind: str, content: dict[str, Any]) -> None:
        """Take in one line of a file."""
        if kind == "problem":
            self.problems[content["key"]] = Measured(**content)
        elif kind == "record":
            record = Record.from_json(content)
            self.records[record.problem, record.solver] = record
        elif kind == "set done":
            self.done.add(content["data"])


@dataclass(frozen=True)
class Suite:
    """Finished results, judged: P* is the lowest value that anything found."""

    problems: Mapping[str, Measured]
    records: Mapping[tuple[str, str], Record]
    relative: str

    @classmethod
    def of(cls, results: Results, relative: str) -> Suite:
        """Judge the problems of which ours was run."""
        problems = {
            key: replace(one, minimum=_lowest(one, results.records.values()))
            for key, one in results.problems.items()
            if (key, OURS) in results.records
        }
        return cls(problems, dict(results.records), relative)

    @cached_property
    def solvers(self) -> list[str]:
        """Those that took part somewhere, in the order of the table."""
        seen = {solver for _, solver in self.records}
        return [name for name in BENCHED if name in seen]

    def yardstick(self, key: str) -> Yardstick:
        """Return what a problem's accuracies are relative to."""
        return Yardstick(self.problems[key].start, self.relative)

    def unsure(self, key: str) -> float:
        """Return how well a minimum is known, relative to the yardstick."""
        one = self.problems[key]
        return max(one.minimum - one.lower, 0.0) / (
            self.yardstick(key).size(one.minimum) or math.inf
        )

    def counted(self, accuracy: float) -> list[str]:
        """Return the problems whose minimum is known well enough for an accuracy."""
        return [key for key in self.problems if self.unsure(key) <= KNOWN * accuracy]

    def times(
        self, accuracy: float, *, tuning: bool = False, cpu: bool = False
    ) -> dict[str, dict[str, float]]:
        """Return the seconds by problem and solver; inf where the accuracy was not reached.

        `tuning` tells whether the time that a solver takes to be tuned counts, `cpu` whether it is
        CPU time on one thread and not wall time on the default number of threads.
        """
        counted = self.counted(accuracy)
        times: dict[str, dict[str, float]] = {key: {} for key in counted}
        for (key, solver), record in self.records.items():
            if key in times:
                minimum = self.problems[key].minimum
                seconds = seconds_to(record, accuracy, minimum, self.yardstick(key), cpu=cpu)
                times[key][solver] = seconds + (record.tuning if tuning else 0.0)
        return times

    def ratios(self, accuracy: float, *, cpu: bool = False) -> dict[str, dict[str, float]]:
        """Return each time over the best one of its problem."""
        return ratios(self.times(accuracy, cpu=cpu))

    @property
    def accuracies(self) -> tuple[float, ...]:
        """The accuracies asked for."""
        return ACCURACIES


def _lowest(problem: Measured, records: Iterable[Record]) -> float:
    values = [r.value for one in records if one.problem == problem.key for r in one.rungs]
    return min([problem.minimum, *values])
