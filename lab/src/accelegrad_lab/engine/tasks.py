"""Tasks: the smallest pieces of an experiment, each a pure function of its parameters.

A task's result depends on nothing but its parameters, whatever ran before, after or beside it. It
is kept in a store under a key made of them: what is there already is not computed again.
Benchmarks keep their runs as lines of one file.
"""

from __future__ import annotations

import hashlib
import json
import math
import multiprocessing
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm.auto import tqdm

from accelegrad.errors import Vector
from accelegrad.files import whole_file
from accelegrad.files.archive import load_arrays
from accelegrad_lab.engine.worker import ignore_interrupts, one_thread

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
    """Results in files, one per task; written atomically, and nothing damaged is ever trusted."""

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

    def get(self, task: Task) -> Outcome:
        """Return a task's result, computing it where it is not there."""
        outcome = self.load(task)
        if outcome is None:
            arrays, more = TASKS[task.kind](dict(task.parameters), self)
            facts = json.dumps({"parameters": dict(task.parameters), **more}).encode()
            packed: dict[str, Any] = {"facts": np.frombuffer(facts, np.uint8), **arrays}
            self.folder.mkdir(parents=True, exist_ok=True)
            with whole_file(self.path(task)) as file:
                np.savez_compressed(file, **packed)
            outcome = Outcome(arrays, json.loads(facts))
        return outcome


TaskFunction = Callable[[dict[str, Any], Store], Outcome]
TASKS: dict[str, TaskFunction] = {}


def task(kind: str) -> Callable[[TaskFunction], TaskFunction]:
    """Register a task function under a name."""

    def register(function: TaskFunction) -> TaskFunction:
        TASKS[kind] = function
        return function

    return register


# -- running them ----------------------------------------------------------------------------------


class TaskError(RuntimeError):
    """A task failed; the message says which."""


def run_tasks(
    tasks: Sequence[Task],
    store: Store,
    *,
    jobs: int,
    progress: Progress,
    default_threads: bool = False,
) -> None:
    """Compute the tasks that the store does not hold yet.

    Each runs on one thread, so that numbers do not depend on the machine; or on the default number
    of threads, where times count.
    """
    wanted = {one.key: one for one in tasks}
    missing = [one for one in wanted.values() if store.load(one) is None]
    progress.begin(len(wanted), done=len(wanted) - len(missing))
    if jobs == 1:
        for one in missing:
            compute(one, store.folder, TASKS[one.kind], default_threads)
            progress.advance()
        return
    context = multiprocessing.get_context("spawn")
    # Workers leave Ctrl-C to the parent, which then ends them.
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=ignore_interrupts)
    try:
        started = [
            pool.submit(compute, one, store.folder, TASKS[one.kind], default_threads)
            for one in missing
        ]
        for future in as_completed(started):
            future.result()
            progress.advance()
    except BaseException:
        processes = dict(pool._processes)
        pool.shutdown(wait=False, cancel_futures=True)
        for process in list(processes.values()):
            process.terminate()
        raise
    pool.shutdown()


def compute(
    one: Task,
    folder: Path,
    function: TaskFunction,  # noqa: ARG001
    default_threads: bool,
) -> None:
    """Compute one task.

    A new process knows the tasks as soon as it has unpickled the function, from their module.
    """
    try:
        with nullcontext() if default_threads else one_thread():
            Store(folder).get(one)
    except Exception as error:
        raise TaskError(f"{one.kind} with {dict(one.parameters)}: {error}") from error


class Progress:
    """A bar for the runs of each part in turn. Silent unless shown."""

    def __init__(self, parts: int, *, shown: bool) -> None:
        self._parts, self._begun, self._shown = parts, 0, shown
        self._bar = tqdm(disable=True)

    def part(self, name: str) -> None:
        """Say which part runs now."""
        self.close()
        self._begun += 1
        words = f"{self._begun}/{self._parts} {name}"
        self._bar = tqdm(desc=words, unit="run", leave=False, disable=not self._shown)

    def begin(self, total: int, *, done: int) -> None:
        """Say how many runs there are, and how many were there already."""
        self._bar.total, self._bar.n, self._bar.initial = total, done, done
        self._bar.refresh()

    def advance(self) -> None:
        """One run is done."""
        self._bar.update(1)

    def close(self) -> None:
        """Remove the bar."""
        self._bar.close()


# -- lines -----------------------------------------------------------------------------------------


Lines = list[tuple[str, dict[str, Any]]]


class LineFile:
    """A file of results, whose first line holds the settings that decide numbers."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self, settings: Mapping[str, Any], *, resume: bool) -> Lines:
        """Return what is there already; settings that decide numbers must be the same."""
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.add("settings", dict(settings))
            return []
        if not resume:
            raise ValueError(
                f"{self.path} holds results already: --resume goes on with them, and --out names "
                "another folder."
            )
        lines = list(self._lines())
        before = dict(lines[0][1]) if lines and lines[0][0] == "settings" else None
        if before != dict(settings):
            raise ValueError(
                f"{self.path} was made with {before}, but now the settings are {dict(settings)}: "
                "--out names another folder."
            )
        # Without half a line at the end, which the next would be added to.
        put(self.path, b"".join(json_line(kind, content) for kind, content in lines))
        return lines[1:]

    def _lines(self) -> Iterable[tuple[str, dict[str, Any]]]:
        for line in self.path.read_text("utf-8").splitlines():
            try:
                plain = json.loads(line)
                yield plain.pop("kind"), plain
            except (ValueError, KeyError, AttributeError):
                return  # half a line: the run that wrote it was ended

    def add(self, kind: str, content: Mapping[str, Any]) -> None:
        """Keep one result."""
        with self.path.open("ab") as file:
            file.write(json_line(kind, content))


def json_line(kind: str, content: Mapping[str, Any]) -> bytes:
    """Return a line of such a file."""
    plain = {"kind": kind, **{name: _plain(value) for name, value in content.items()}}
    return (json.dumps(plain, allow_nan=False) + "\n").encode()


def _plain(value: Any) -> Any:
    """Return what JSON can hold; "inf" and "nan" are written as words, which `float` reads."""
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def put(path: Path, content: bytes | str) -> None:
    """Write a file, whole or not at all; its folder is made where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)
