"""What the benchmark measured: kept line by line in a file, and read as times to accuracies."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from accelegrad.lab.bench.profile import ratios
from accelegrad.lab.bench.runs import ACCURACIES, Record, Yardstick, seconds_to
from accelegrad.lab.engine.peers import BENCHED, OURS, SMOOTH

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


class ResultFile:
    """Results in a file, a line each, so that an interrupted benchmark loses at most one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self, settings: Mapping[str, Any], *, resume: bool) -> Results:
        """Return what is there already; settings that decide numbers must be the same."""
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._add("settings", dict(settings))
            return Results()
        if not resume:
            raise ValueError(
                f"{self.path} holds results already: --resume goes on with them, and --out names "
                "another folder."
            )
        return self._read(settings)

    def _read(self, settings: Mapping[str, Any]) -> Results:
        lines = list(self._lines())
        before = dict(lines[0][1]) if lines and lines[0][0] == "settings" else None
        if before != dict(settings):
            raise ValueError(
                f"{self.path} was made with {before}, but now the settings are {dict(settings)}: "
                "--out names another folder."
            )
        found = Results()
        for kind, content in lines[1:]:
            found.take(kind, content)
        self._rewrite(lines)  # without half a line at the end, which the next would be added to
        return found

    def _lines(self) -> Iterable[tuple[str, dict[str, Any]]]:
        for line in self.path.read_text("utf-8").splitlines():
            try:
                plain = json.loads(line)
                yield plain.pop("kind"), plain
            except (ValueError, KeyError, AttributeError):
                return  # half a line: the run that wrote it was ended

    def _rewrite(self, lines: Sequence[tuple[str, dict[str, Any]]]) -> None:
        from accelegrad.files import whole_file

        with whole_file(self.path) as file:
            file.writelines(_line(kind, content) for kind, content in lines)

    def _add(self, kind: str, content: dict[str, Any]) -> None:
        with self.path.open("ab") as file:
            file.write(_line(kind, content))

    def add_problem(self, problem: Measured) -> None:
        """Keep a problem."""
        self._add("problem", asdict(problem))

    def add_record(self, record: Record) -> None:
        """Keep the runs of a solver."""
        self._add("record", record.to_json())

    def add_done(self, data: str) -> None:
        """Keep that a set is complete."""
        self._add("set done", {"data": data})


def _line(kind: str, content: dict[str, Any]) -> bytes:
    return (json.dumps({"kind": kind, **content}, allow_nan=False) + "\n").encode()


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

    def times(self, accuracy: float, *, tuning: bool = False) -> dict[str, dict[str, float]]:
        """Return the seconds by problem and solver; inf where the accuracy was not reached.

        `tuning` tells whether the time that a solver takes to be tuned counts.
        """
        counted = self.counted(accuracy)
        times: dict[str, dict[str, float]] = {key: {} for key in counted}
        for (key, solver), record in self.records.items():
            if key in times:
                minimum = self.problems[key].minimum
                seconds = seconds_to(record, accuracy, minimum, self.yardstick(key))
                times[key][solver] = seconds + (record.tuning if tuning else 0.0)
        return times

    def ratios(self, accuracy: float) -> dict[str, dict[str, float]]:
        """Return each time over the best one of its problem."""
        return ratios(self.times(accuracy))

    @property
    def accuracies(self) -> tuple[float, ...]:
        """The accuracies asked for."""
        return ACCURACIES


def _lowest(problem: Measured, records: Iterable[Record]) -> float:
    values = [r.value for one in records if one.problem == problem.key for r in one.rungs]
    return min([problem.minimum, *values])
