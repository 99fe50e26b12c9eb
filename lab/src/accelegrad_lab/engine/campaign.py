"""What all benchmarks share: their parts one after the other, kept line by line, then a report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from accelegrad_lab.engine.runner import Progress

RESULTS = "results.jsonl"
CLOCK = "wall, default threads; CPU, one thread"
"""A setting of every file of results: those by other clocks do not belong to it."""

Part = tuple[str, Callable[[Progress], None]]  # a name, and what runs what is missing


class Finished(NamedTuple):
    """Where the page is, and whether the run was interrupted."""

    page: Path
    interrupted: bool


def campaign(
    parts: Iterable[Part],
    count: int,
    *,
    shown: bool,
    measured: Callable[[], bool],
    nothing: str,
    write: Callable[[float, bool], Path],
) -> Finished:
    """Run what is missing, and write the report, after an interruption too.

    Parameters
    ----------
    parts, count
        What to run, and how many parts that is.
    shown : bool
        Whether to show progress bars.
    measured : callable
        Tells whether there are any results.
    nothing : str
        The error where there are none.
    write : callable
        ``write(seconds, interrupted)`` writes the report and returns its page.
    """
    begun = time.perf_counter()
    progress = Progress(count, shown=shown)
    interrupted = False
    try:
        for name, run in parts:
            progress.part(name)
            run(progress)
            progress.part_done()
    except KeyboardInterrupt:
        interrupted = True
    finally:
        progress.close()
    if not measured():
        if interrupted:
            raise KeyboardInterrupt
        raise ValueError(nothing)
    return Finished(write(time.perf_counter() - begun, interrupted), interrupted)
