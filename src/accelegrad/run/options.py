"""When a run stops, what it returns and who looks on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy.optimize import OptimizeResult

OUTPUTS = ("auto", "average", "last", "best")


@dataclass(frozen=True)
class Options:
    """When to stop, what to return and who looks on."""

    max_iter: int = 1000
    tol: float | None = None
    rtol: float | None = None
    time_limit: float | None = None
    target: float | None = None  # a value that is low enough
    output: str = "auto"
    exact: bool = True  # gradients (and values, where there are any) are free of noise
    callback: Callable[[OptimizeResult], Any] | None = None
    callback_at: frozenset[int] | None = None  # iterations; None: all
    progress: bool = False
    trace: bool = False
    checkpoint: Path | None = None
    checkpoint_every: int = 100

    @property
    def has_goal(self) -> bool:
        """Whether the run is to end at a certified gap."""
        return self.tol is not None or self.rtol is not None

    @property
    def has_end(self) -> bool:
        """Whether values or bounds may end the run: at a certified gap or at a target."""
        return self.has_goal or self.target is not None

    def goal(self, value: float) -> float:
        """Return the certified gap at which a point with this value is good enough."""
        return max((self.tol or 0.0) * max(1.0, abs(value)), (self.rtol or 0.0) * abs(value))
