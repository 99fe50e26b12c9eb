"""The time of a run, without that of those who look on."""

from __future__ import annotations

import time

from accelegrad.run.checkpoint import Saved


class Clock(Saved):
    """Seconds since the start, over all processes that a resumed run took, without pauses."""

    saved = ("seconds",)

    def __init__(self) -> None:
        self._before = 0.0  # seconds until it was started or went on last
        self._since: float | None = None  # when that was; None: it stands still

    @property
    def seconds(self) -> float:
        """Time so far."""
        return self._before + (0.0 if self._since is None else time.perf_counter() - self._since)

    @seconds.setter
    def seconds(self, seconds: float) -> None:
        self._before = seconds

    def start(self) -> None:
        """Let it run."""
        self._since = time.perf_counter()

    def pause(self) -> None:
        """Let it stand still until it is started again."""
        self._before, self._since = self.seconds, None
