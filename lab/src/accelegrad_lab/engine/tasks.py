"""Tasks: the smallest pieces of an experiment, each a pure function of its parameters.

A task's result depends on nothing but its parameters, whatever ran before, after or beside it. It
is kept in a store under a key made of them: what is there already is not computed again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from accelegrad.errors import Vector
from accelegrad.files import whole_file
from accelegrad.files.archive import load_arrays

GENERATION = 1  # raised when a task's meaning changes, so that old results are not taken for new


@dataclass(frozen=True)
class Task:
    """What to compute: the name of a task function and its parameters (plain JSON values)."""

    kind: str
    parameters: Mapping[str, Any]

    @property
    def key(self) -> str:
        """A name for the result, the same for the same parameters."""
        text = json.dumps([GENERATION, self.kind, self.parameters], sort_keys=True)
        return f"{self.kind}-{hashlib.sha256(text.encode()).hexdigest()[:20]}"


class Outcome(NamedTuple):
    """A task's result: arrays, and plain values."""

    arrays: dict[str, Vector]
    facts: dict[str, Any]


class Store:
    """Results in files, one a task; written atomically, and nothing damaged is ever trusted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, task: Task) -> Path:
        """Return where a task's result is, or will be."""
        return self.folder / f"{task.key}.npz"

    def load(self, task: Task) -> Outcome | None:
        """Return a task's result, or None if it is not there (or is damaged)."""
        try:
            arrays = load_arrays(self.path(task), compressed=True)
            facts = json.loads(arrays.pop("facts").tobytes())
        except Exception:  # any, of a damaged file
            return None
        return Outcome(arrays, facts)

    def save(self, task: Task, outcome: Outcome) -> None:
        """Keep a task's result."""
        self.folder.mkdir(parents=True, exist_ok=True)
        facts = json.dumps({"parameters": dict(task.parameters), **outcome.facts}).encode()
        with whole_file(self.path(task)) as file:
            packed: dict[str, Any] = {"facts": np.frombuffer(facts, np.uint8), **outcome.arrays}
            np.savez_compressed(file, **packed)

    def get(self, task: Task) -> Outcome:
        """Return a task's result, computing it where it is not there."""
        outcome = self.load(task)
        if outcome is None:
            outcome = TASKS[task.kind](dict(task.parameters), self)
            self.save(task, outcome)
            outcome = self.load(task)
            assert outcome is not None
        return outcome


TaskFunction = Callable[[dict[str, Any], Store], Outcome]
TASKS: dict[str, TaskFunction] = {}


def task(kind: str) -> Callable[[TaskFunction], TaskFunction]:
    """Register a task function under a name."""

    def register(function: TaskFunction) -> TaskFunction:
        TASKS[kind] = function
        return function

    return register


def log_spaced(last: int, count: int = 120) -> list[int]:
    """Return whole numbers from 1 to `last`, about evenly spaced in their logarithms."""
    return sorted({round(number) for number in np.geomspace(1, last, count)} | {last})
