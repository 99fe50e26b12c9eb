"""What happened in each iteration, as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from accelegrad.extras import require
from accelegrad.files.saved import Saved

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

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

    def _column(self, name: str) -> npt.NDArray[Any]:
        index = FIELDS.index(name)
        kind = np.int64 if name in ("iteration", "calls") else np.float64
        return np.array([row[index] for row in self._rows], dtype=kind)

    def __getattr__(self, name: str) -> npt.NDArray[Any]:
        if name in FIELDS:
            return self._column(name)
        raise AttributeError(f"Trace has no {name!r}; it has {', '.join(FIELDS)}.")

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        if name not in FIELDS:
            raise KeyError(f"Trace has no {name!r}; it has {', '.join(FIELDS)}.")
        return self._column(name)

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
