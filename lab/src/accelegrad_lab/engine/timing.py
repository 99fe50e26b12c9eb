"""Clocks: how long a call takes, of a short one the best of three, and calls that take turns."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

SHORT = 0.05  # seconds: calls this short are timed three times

Key = TypeVar("Key")
Found = TypeVar("Found")


def timed(run: Callable[[], Found]) -> tuple[Found, float]:
    """Return an answer and the seconds it took; numerical trouble shows in the answer."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # too few iterations are given on purpose
        begun = time.perf_counter()
        answer = run()
        return answer, time.perf_counter() - begun


def fastest(
    make: Callable[[], Callable[[], Found]], begun: Callable[[], None] = lambda: None
) -> tuple[Found, float]:
    """Return the answer and the seconds of a call, the fastest of three where it is short.

    Parameters
    ----------
    make : callable
        Prepares, outside of the clock, and returns what to time.
    begun : callable
        Is told whenever a clock starts.
    """
    best: tuple[Found, float] | None = None
    short = compiled = 0
    while short < 3 and compiled < 3:
        run = make()
        with compilations() as found:
            begun()
            answer, seconds = timed(run)
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


def in_turns(
    candidates: Mapping[Key, Callable[[], object]],
    repeat: int,
    seconds: Callable[[Callable[[], object]], float],
) -> dict[Key, list[float]]:
    """Return the times of each candidate; they take turns, so that other work disturbs all alike.

    `seconds` measures a call: processor time, wall time, or what else tells.
    """
    times: dict[Key, list[float]] = {name: [] for name in candidates}
    for _ in range(repeat):
        for name, call in candidates.items():
            times[name].append(seconds(call))
    return times


def processor_seconds(call: Callable[[], object]) -> float:
    """Return the processor time of a call."""
    begun = time.process_time()
    call()
    return time.process_time() - begun
