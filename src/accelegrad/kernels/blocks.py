"""Running a kernel on several blocks of rows at once, in a pool of Python threads.

Kernels release the GIL. Unlike Numba's threads, these work from several threads and after a fork.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TypeVar

import numpy as np

T = TypeVar("T")


def run(task: Callable[[int], T], count: int) -> list[T]:
    """Return task(0), ..., task(count - 1), computed in parallel."""
    if count == 1:
        return [task(0)]
    pool = _pool(count - 1)
    others = [pool.submit(task, block) for block in range(1, count)]
    return [task(0), *(other.result() for other in others)]


def of_rows(task: Callable[[slice], T], n: int, count: int) -> list[T]:
    """Return the task's results for `count` parts of n rows, computed in parallel."""

    def quietly(part: int) -> T:
        with np.errstate(all="ignore"):  # the caller's setting does not reach other threads
            return task(slice(n * part // count, n * (part + 1) // count))

    return [task(slice(0, n))] if count == 1 else run(quietly, count)


_executor: ThreadPoolExecutor | None = None
_size = 0
_lock = Lock()


def _pool(size: int) -> ThreadPoolExecutor:
    """Return a pool of at least this many threads, for the life of the process."""
    global _executor, _size
    with _lock:
        if _executor is None or _size < size:
            _executor, _size = ThreadPoolExecutor(size, thread_name_prefix="accelegrad"), size
        return _executor


def _forget() -> None:
    """Forget the pool in a forked process, where its threads do not exist."""
    global _executor, _size, _lock
    _executor, _size, _lock = None, 0, Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
