"""Clocks: how long a call takes, of a short one the best of three."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

SHORT = 0.05  # seconds: calls this short are timed three times

Found = TypeVar("Found")
Clock = Callable[[], float]


def timed(run: Callable[[], Found], clock: Clock = time.perf_counter) -> tuple[Found, float]:
    """Return an answer and the seconds it took; numerical trouble shows in the answer."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # too few iterations are given on purpose
        begun = clock()
        answer = run()
        return answer, clock() - begun


def fastest(
    make: Callable[[], Callable[[], Found]],
    begun: Callable[[], None] = lambda: None,
    clock: Clock = time.perf_counter,
) -> tuple[Found, float]:
    """Return the answer and the seconds of a call, the fastest of three where it is short.

    Parameters
    ----------
    make : callable
        Prepares, outside of the clock, and returns what to time.
    begun : callable
        Is told whenever a clock starts.
    clock : callable
        `time.perf_counter` for wall time, `time.process_time` for CPU time.
    """
    best: tuple[Found, float] | None = None
    short = compiled = 0
    while short < 3 and compiled < 3:
        run = make()
        with compilations() as found:
            begun()
            answer, seconds = timed(run, clock)
        if found:  # something was compiled after all: it is done again
            compiled += 1
        else:
            short += 1 if seconds <= SHORT else 3
        if best is None or seconds < best[1]:
            best = answer, seconds
    assert best is not None
    return best


@contextlib.contextmanager
def compilations() -> Iterator[list[Any]]:
    """Give a list that holds what Numba compiled within the block."""
    from numba.core.event import install_recorder

    found: list[Any] = []
    with install_recorder("numba:compile") as recorder:
        yield found
    found.extend(recorder.buffer)
