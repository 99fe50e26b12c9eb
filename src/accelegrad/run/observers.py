"""Observers of a run, which change nothing: trace, progress bar and callback."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import OptimizeResult

from accelegrad.extras import require
from accelegrad.files.saved import Saved
from accelegrad.rules.base import Step
from accelegrad.run.result import Progress, Result

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

#: The columns of a trace
FIELDS = ("iteration", "value", "gap", "step", "calls", "seconds")


class Trace(Saved):
    """Arrays with one entry per iteration.

    Attributes
    ----------
    iteration : int array
        1, 2, ...
    value : float array
        The function's value at the point of the iteration's gradient (NaN without values).
    gap : float array
        The certified gap so far: best value seen minus lower bound (inf where nothing is proved).
    step : float array
        The step size.
    calls : int array
        Points at which value or gradient were computed, so far.
    seconds : float array
        Time so far, without that of tracing, callbacks, progress and checkpoints.
    """

    saved = ("columns",)

    def __init__(self) -> None:
        self._rows: list[tuple[float, ...]] = []

    def add(self, *row: float) -> None:
        """Append one iteration, in the order of the fields."""
        self._rows.append(row)

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"Trace({len(self)} iterations: {', '.join(FIELDS)})"

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        if name not in FIELDS:
            raise KeyError(f"Trace has no {name!r}; it has {', '.join(FIELDS)}.")
        index = FIELDS.index(name)
        kind = np.int64 if name in ("iteration", "calls") else np.float64
        return np.array([row[index] for row in self._rows], dtype=kind)

    def __getattr__(self, name: str) -> npt.NDArray[Any]:
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(*error.args) from None

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas DataFrame (needs pandas)."""
        require("trace.to_frame()", None, "pandas")
        import pandas as pd

        return pd.DataFrame(self.columns)

    def plot(self, *, minimum: float | None = None, ax: Axes | None = None) -> Axes:
        """Draw value (above `minimum`, where given) and certified gap (needs matplotlib)."""
        require("trace.plot()", None, "matplotlib")
        import matplotlib.pyplot as plt

        if ax is None:
            _, ax = plt.subplots(layout="constrained")
        value = self["value"] - (0.0 if minimum is None else minimum)
        ax.plot(self["calls"], value, label="value" if minimum is None else "value - minimum")
        if np.isfinite(self["gap"]).any():
            ax.plot(self["calls"], self["gap"], label="certified gap", linestyle="--")
        # A log axis if every curve shows on it.
        if minimum is not None or (value > 0).all():
            ax.set_yscale("log")
        ax.set_xlabel("oracle calls")
        ax.legend()
        return ax

    @property
    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """All arrays by name."""
        return {name: self[name] for name in FIELDS}

    @columns.setter
    def columns(self, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        self._rows = list(zip(*(columns[name].tolist() for name in FIELDS), strict=True))


class Observers:
    """Trace, progress bar and callback, whose time is not counted."""

    def __init__(self, progress: Progress, trace: Trace | None) -> None:
        self.progress, self.options, self.trace = progress, progress.options, trace
        self._bar: Any = None

    def open(self) -> None:
        """Open the progress bar."""
        if self.options.progress:
            from tqdm.auto import tqdm

            total, done = self.options.max_iter, self.progress.iteration
            title = self.progress.rule.title
            self._bar = tqdm(total=total, initial=done, desc=title, unit="it")

    def close(self) -> None:
        """Close the progress bar."""
        if self._bar is not None:
            self._bar.close()

    def next_look(self) -> float:
        """Return the latest iteration after which an observer has to be called."""
        iteration, wanted = self.progress.iteration, self.options.callback_at
        if self.trace is None and self.options.callback is None:
            return math.inf
        if self.trace is not None or wanted is None:
            return iteration + 1
        return min((number for number in wanted if number > iteration), default=math.inf)

    def look(self, step: Step) -> bool:
        """Let all observers look at a step; True if the run should stop."""
        progress, value, callback = self.progress, step.evaluation.value, self.options.callback
        with progress.clock.paused():
            if self.trace is not None:
                size = float(getattr(step.state, "step_size", math.nan))
                known = progress.iteration, value, progress.gap, size
                self.trace.add(*known, progress.calls, progress.clock.seconds)
            if self._bar is not None:
                lowest = value if progress.best is None else progress.best.value
                gap = f"{progress.gap:.1e}"
                self._bar.set_postfix(value=f"{lowest:.6g}", gap=gap, refresh=False)
                self._bar.update(step.steps)
            return callback is not None and self._call_back(callback)

    def _call_back(self, callback: Callable[[OptimizeResult], Any]) -> bool:
        """Call back if it is due; True if the run should stop."""
        wanted = self.options.callback_at
        if wanted is not None and self.progress.iteration not in wanted:
            return False
        try:
            callback(Result(self._known()))
        except StopIteration:
            return True
        return False

    def _known(self) -> dict[str, Any]:
        progress, best = self.progress, self.progress.best
        known: dict[str, Any] = {"nit": progress.iteration, **progress.counters()}
        known["seconds"] = progress.clock.seconds  # it is paused meanwhile
        known |= progress.points()
        shown = best
        if progress.output != "best" or best is None:
            shown = progress.judged_now()
            known["x"] = progress.point(progress.output).copy()
        else:
            known["x"] = best.point.copy()
        known["fun"] = math.nan if shown is None else shown.value
        at = shown or best  # whose value's rounding the bound allows for
        bound = -math.inf if at is None else progress.bracket.lower_bound(at)
        gap = known["fun"] - bound  # NaN if the point has not been judged
        known |= {"lower_bound": bound, "gap": math.inf if math.isnan(gap) else gap}
        known["certified_radius"] = 0.0 if best is None else progress.bracket.radius_of(bound)
        return known
