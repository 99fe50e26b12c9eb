"""Running tasks on several processes, with progress, so that a stopped run can go on."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from accelegrad_lab.engine.tasks import TASKS, Store, Task, TaskFunction
from accelegrad_lab.engine.worker import ignore_interrupts, one_thread


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
    """A bar for the tasks of the running experiment. Silent unless shown."""

    def __init__(self, experiments: int, *, shown: bool) -> None:
        self._experiments, self._done, self._shown = experiments, 0, shown
        self._bar: Any = None

    def part(self, name: str) -> None:
        """Say which experiment runs now."""
        self.close()
        if self._shown:
            from tqdm.auto import tqdm

            words = f"{self._done + 1}/{self._experiments} {name}"
            self._bar = tqdm(desc=words, unit="run", leave=False)

    def begin(self, total: int, *, done: int) -> None:
        """Say how many runs there are, and how many were there already."""
        if self._bar is not None:
            self._bar.total = total
            self._bar.n = self._bar.initial = done
            self._bar.refresh()

    def advance(self) -> None:
        """One run is done."""
        if self._bar is not None:
            self._bar.update(1)

    def part_done(self) -> None:
        """One experiment is done."""
        self._done += 1

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
