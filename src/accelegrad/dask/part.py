"""Parts of the rows on the workers, as linear models that cache the margins of the last points."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from accelegrad.errors import Vector
from accelegrad.models import row_parts as tasks
from accelegrad.models.linear_model import LinearModel
from accelegrad.models.losses import Loss
from accelegrad.models.row_parts import Where

#: NumPy aligns arrays to multiples of this many bytes.
ALIGNMENT = 16
#: Points whose margins a part caches: two of a step, the best, and the same of a smoothed loss.
KEPT_POINTS = 6


class Part(tasks.Part):
    """Some of the rows."""

    def __init__(self, rows: LinearModel) -> None:
        super().__init__(rows)
        self._models: dict[Loss | int, Any] = {rows.loss: rows}
        self._points: OrderedDict[tuple[str, Loss | int], Any] = OrderedDict()
        self._columns: tuple[Any, LinearModel] | None = None
        self._lock = threading.Lock()  # a worker may have several threads

    def __reduce__(self) -> Any:
        """Pickle without the cached points."""
        rows = self.rows
        return part_of_rows, (rows.X, rows.y, rows.shares, rows.loss, rows.fit_intercept)

    def __sizeof__(self) -> int:
        return sum(int(array.nbytes) for array in _arrays(self.rows))

    def model(self, by: Loss | int) -> Any:
        """Return these rows with a loss; the last ones are cached."""
        with self._lock:
            if by not in self._models:
                if len(self._models) > 2:  # keep only the current smoothed loss
                    self._models = {self.rows.loss: self.rows}
                self._models[by] = super().model(by)
            return self._models[by]

    def at(self, where: Where, w: Vector) -> Any:
        """Return the point w: at most one pass over the rows."""
        place = where.name, where.by
        known = self._points.get(place)
        if known is None:
            known = super().at(where, w)
        with self._lock:
            self._points[place] = known
            self._points.move_to_end(place)
            while len(self._points) > KEPT_POINTS:
                self._points.popitem(last=False)
        return known

    def margins(self, name: str) -> Any:
        """Return the margins of a cached point, with any loss."""
        with self._lock:
            found = (known for (one, _), known in self._points.items() if one == name)
            return next((known.margins for known in found), None)

    def of_columns(self, columns: Any) -> LinearModel:
        """Return some columns of these rows (None: all); the last choice is cached."""
        if columns is None:
            return self.rows
        with self._lock:
            if self._columns is None or not np.array_equal(self._columns[0], columns):
                self._columns = columns, super().of_columns(columns)
            return self._columns[1]


def part_of_rows(X: Any, y: Vector, shares: Vector, loss: Loss, fit_intercept: bool) -> Part:
    """Return checked rows as a part."""
    y, shares = aligned(y), aligned(shares)
    if isinstance(X, np.ndarray):
        X = aligned(X)
    else:
        X = type(X)((aligned(X.data), X.indices, X.indptr), shape=X.shape, copy=False)
    any_rows = LinearModel(np.zeros((1, X.shape[1])), np.ones(1), fit_intercept=fit_intercept)
    any_rows.loss = loss
    return Part(any_rows._of_data(X, y, shares, shares, 0.0))


def _arrays(rows: LinearModel) -> list[Any]:
    X = rows.X
    stored = (X,) if isinstance(X, np.ndarray) else (X.data, X.indices, X.indptr)
    return [*stored, rows.y, rows.shares]


def aligned(given: Any) -> Any:
    """Return arrays, or tuples of them, aligned as NumPy aligns new arrays.

    Arrays from the network begin anywhere, and the rounding of sums depends on the alignment:
    without a copy, repeated runs would differ in the last bits.
    """
    if isinstance(given, np.ndarray):
        return given if given.ctypes.data % ALIGNMENT == 0 else given.copy()
    if isinstance(given, tuple):
        parts = [aligned(part) for part in given]
        return type(given)(*parts) if hasattr(given, "_fields") else tuple(parts)
    return given


def on_part(task: Callable[..., Any], part: Any, *arguments: Any) -> Any:
    """Return a task's result for a part; all tasks run through here."""
    return tasks.on_part(task, part, *map(aligned, arguments))


def entries_of_columns(part: Part, columns: Any) -> int:
    """Return how many entries some columns have."""
    return part.of_columns(columns).storage.entries


def targets_of(part: Part) -> tuple[Vector, Vector]:
    """Return targets and shares of all rows."""
    return part.rows.y, part.rows.shares


def fingerprint(part: Part) -> str:
    """Return a hash of the contents."""
    digest = hashlib.blake2b(f"{part.rows.X.shape}".encode())
    for array in _arrays(part.rows):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
