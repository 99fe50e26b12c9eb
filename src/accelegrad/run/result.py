"""How a run can end, and what the user is told."""

from __future__ import annotations

from enum import IntEnum


class Status(IntEnum):
    """How a run ended."""

    CONVERGED = 0
    STATIONARY = 1
    MAX_ITER = 2
    TIME_LIMIT = 3
    CALLBACK = 4
    INTERRUPTED = 5
    NON_FINITE = 6
    LINE_SEARCH_FAILED = 7
    DIVERGING = 8
    REGION_REFUTED = 9
    AT_ROUNDING = 10

    @property
    def message(self) -> str:
        """One sentence for the user."""
        return MESSAGES[self]


MESSAGES = {
    Status.CONVERGED: "Converged: the certified gap is within tol.",
    Status.STATIONARY: "The gradient is zero: the point is a minimiser.",
    Status.MAX_ITER: "Did max_iter iterations.",
    Status.TIME_LIMIT: "Stopped by time_limit.",
    Status.CALLBACK: "Stopped by the callback.",
    Status.INTERRUPTED: "Interrupted from the keyboard; the best point so far is returned.",
    Status.NON_FINITE: "The function is not finite at a point; the best point so far is returned.",
    Status.LINE_SEARCH_FAILED: "The line search failed; the best point so far is returned.",
    Status.DIVERGING: "The iterates diverge; the best point so far is returned.",
    Status.AT_ROUNDING: "The certified gap is as small as rounding lets it be proved.",
    Status.REGION_REFUTED: "The certified gap is below zero, so no minimiser is where it was said.",
}
