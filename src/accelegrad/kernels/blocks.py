"""Running a kernel on several blocks of rows at once, in a pool of Python threads.

Kernels release the GIL. Unlike Numba's threads, these work from several threads and after a fork.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import numpy as np

T = TypeVar("T")


def run(task: Callable[[int], T], count: int) -> list[T]:
    """Return task(0), ..., task(count - 1), computed in parallel."""
    if count == 1:
        return [task(0)]
    others = [_pool().submit(task, block) for block in range(1, count)]
    return [task(0), *(other.result() for other in others)]


def of_rows(task: Callable[[slice], T], n: int, count: int) -> list[T]:
    """Return the task's results for `count` parts of n rows, computed in parallel."""

    def quietly(part: int) -> T:
        with np.errstate(all="ignore"):  # the caller's setting does not reach other threads
            return task(slice(n * part // count, n * (part + 1) // count))

    return [task(slice(0, n))] if count == 1 else run(quietly, count)


@cache
def _pool() -> ThreadPoolExecutor:
    """Return the pool, which starts a thread for a task when no other is idle."""
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="accelegrad")


if hasattr(os, "register_at_fork"):  # the pool's threads do not exist in a forked process
    os.register_at_fork(after_in_child=_pool.cache_clear)
