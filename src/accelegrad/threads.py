"""BLAS threads: one for this package's own work, the user's number for the user's functions.

A run makes thousands of short BLAS calls, which OpenBLAS splits over threads that spin between
calls: with 100,000 variables a run took 8.6 s on two idle cores, with one thread 1.4 s. So BLAS is
limited to one thread while the package computes, and large work is split over threads that sleep
when idle (`accelegrad.kernels.blocks`). Switching takes 2 microseconds per library, and is skipped
if no call is large enough to be split.

The number of BLAS threads belongs to the process, so runs in several Python threads are counted:
while any of them is inside a user's function the user's number holds, otherwise the limit, and
after the last run the user's number again. Other BLAS calls of the process are limited meanwhile.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from typing import Any

#: OpenBLAS splits matrix-vector products from this number of entries on, other work later.
FEWEST_SPLIT = 9216

_OWN, _USERS = "own", "users"


class _Limit:
    """The limit of the process, and the threads that need it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._here = threading.local()  # what this Python thread does: own or user's work
        self._counts = {_OWN: 0, _USERS: 0}  # Python threads that do each of them
        #: libraries that are limited now, with their previous number of threads
        self.limited: list[tuple[Any, int]] = []
        self._is_limited = False

    @cached_property
    def libraries(self) -> list[Any]:
        """The controllers of NumPy's and SciPy's BLAS, found once: it takes milliseconds."""
        from threadpoolctl import ThreadpoolController

        return list(ThreadpoolController().select(user_api="blas").lib_controllers)

    def change(self, work: str | None) -> str | None:
        """Set what this Python thread does from now on, and return what it did before."""
        before: str | None = getattr(self._here, "work", None)
        if work == before or (work == _USERS and before is None):  # outside a run
            return before
        with self.lock:
            self._here.work = work
            if before is not None:
                self._counts[before] -= 1
            if work is not None:
                self._counts[work] += 1
            limited = self._counts[_OWN] > 0 and self._counts[_USERS] == 0
            if limited and not self._is_limited:
                for library in self.libraries:
                    number = library.get_num_threads()
                    if number is not None and number > 1:
                        self.limited.append((library, number))
                        library.set_num_threads(1)
            elif self._is_limited and not limited:
                for library, number in self.limited:
                    if library.get_num_threads() == 1:  # otherwise it was changed elsewhere
                        library.set_num_threads(number)
                self.limited = []
            self._is_limited = limited
        return before


_limit = _Limit()


@contextmanager
def _doing(work: str) -> Iterator[None]:
    """Return a context for the package's own or the user's work."""
    before = _limit.change(work)
    try:
        yield
    finally:
        _limit.change(before)


def single_for(entries: int) -> AbstractContextManager[None]:
    """Return a context for our work in which BLAS uses one thread if it splits so many entries."""
    return _doing(_OWN) if entries >= FEWEST_SPLIT else nullcontext()


def as_given() -> AbstractContextManager[None]:
    """Return a context in which BLAS uses as many threads as before the run."""
    return _doing(_USERS)


def for_user(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a user's function so that it is called with as many BLAS threads as before the run."""
    return _doing(_USERS)(function)


def allowed() -> int | None:
    """Return how many threads the user's settings allow BLAS; None if unknown."""
    with _limit.lock:
        given = {id(library): number for library, number in _limit.limited}
        numbers = [
            given.get(id(library)) or library.get_num_threads() for library in _limit.libraries
        ]
    return min((number for number in numbers if number), default=None)


def _forget() -> None:
    """Reset in a forked process, which has one Python thread."""
    global _limit
    limited = _limit.limited
    _limit = _Limit()
    for library, number in limited:
        library.set_num_threads(number)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
