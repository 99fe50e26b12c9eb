"""Checked samples: selection by weight, empty columns, scale of targets, held-out parts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.model_selection import train_test_split

from accelegrad.errors import Vector
from accelegrad.models.model_input import checked_weights
from accelegrad.models.row_file import RowFile, together
from accelegrad.models.streamed_model import StreamedMatrix


class LabelFile(RowFile):
    """Labels of any kind in a file, stored as indices into `labels`."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers: dict[Any, int] = {}
        self._found: list[npt.NDArray[Any]] = []

    def append(self, values: Any) -> None:
        """Append labels, adding new ones to `labels`."""
        labels, places = np.unique(np.asarray(values), return_inverse=True)
        known = len(self._numbers)
        numbers = [self._numbers.setdefault(one, len(self._numbers)) for one in labels.tolist()]
        found = np.array(numbers)
        if len(self._numbers) > known:
            self._found.append(labels[found >= known])
        super().append(found[places])

    @property
    def labels(self) -> npt.NDArray[Any]:
        """The distinct labels, in order of first appearance."""
        return np.concatenate(self._found)


class Data(NamedTuple):
    """Checked samples with targets and weights."""

    X: Any
    y: Any  # an array, or a `RowFile`
    weights: Any
    columns: Any = None  # the columns that X keeps, if empty ones were removed
    rows: Any = None  # the samples that it keeps, if some were removed

    @property
    def weight(self) -> float:
        """The total weight; without weights, the number of samples."""
        if self.weights is None:
            return float(self.y.size)
        return math.fsum(float(weights.sum()) for _, weights in self.blocks())

    @property
    def n_counted(self) -> int:
        """The number of samples with positive weight."""
        if self.weights is None:
            return int(self.y.size)
        return sum(int(np.count_nonzero(weights)) for _, weights in self.blocks())

    def blocks(self) -> Iterator[Any]:
        """Yield blocks of targets and weights in memory."""
        in_files = isinstance(self.y, RowFile)
        return together(self.y, self.weights) if in_files else iter([(self.y, self.weights)])

    def target_scale(self, *, centred: bool) -> float:
        """Return the mean absolute deviation of the targets from their mean, or from 0."""
        middle = target_mean(target_sums(*block) for block in self.blocks()) if centred else 0.0
        return mean_deviation(deviations(y, weights, middle) for y, weights in self.blocks())


def weights_of(given: Any, X: Any) -> Vector | None:
    """Return checked weights of samples; all may be zero in a chunk of a stream."""
    if given is None:
        return None
    weights = np.asarray(given)
    if weights.dtype == object:
        weights = weights.astype(np.float64)
    if weights.ndim == 0:
        weights = np.full(X.shape[0], weights)
    return checked_weights(weights, X.shape[0], all_may_be_zero=True)


def class_counts(data: Data, n_classes: int) -> Vector:
    """Return the total weight of each class; targets are class indices."""
    counts = np.zeros(n_classes)
    for places, weights in data.blocks():
        counts += np.bincount(places.astype(np.intp), weights, minlength=n_classes)
    return counts


def rows_of(data: Data, rows: Any) -> Data:
    """Return the selected samples."""
    weights = None if data.weights is None else data.weights[rows]
    kept = rows if data.rows is None else data.rows[rows]
    return Data(data.X[rows], data.y[rows], weights, data.columns, kept)


def without_weightless(data: Data) -> Data:
    """Remove samples with weight 0, except from a stream; they do not even add a class."""
    if data.weights is None or isinstance(data.X, StreamedMatrix) or data.weights.min() > 0.0:
        return data
    return rows_of(data, np.flatnonzero(data.weights))


def joined(*parts: Data) -> Data:
    """Return the samples of all parts, in order, in new arrays."""
    tables = [part.X for part in parts]
    if any(sp.issparse(table) for table in tables):
        X: Any = sp.vstack([sp.csr_array(table) for table in tables], format="csr")
    else:
        X = np.concatenate(tables)
    weights = None
    if any(part.weights is not None for part in parts):
        each = (np.ones(part.y.size) if part.weights is None else part.weights for part in parts)
        weights = np.concatenate(list(each))
    return Data(X, np.concatenate([part.y for part in parts]), weights)


def refuse_missing(y: Any) -> None:
    """Raise ValueError if an object array of targets contains None, NaN or pandas' NA."""
    dtype = getattr(y, "dtype", None)  # pandas has its own types
    if y is None or isinstance(y, str) or (isinstance(dtype, np.dtype) and dtype.kind != "O"):
        return
    try:
        targets = np.asarray(y)
    except ValueError:  # rows of different lengths, refused elsewhere
        return
    if dtype is None and targets.dtype.kind == "U":  # NumPy converts NaN among strings to "nan"
        targets = np.asarray(y, dtype=object)
    for place, value in np.ndenumerate(targets) if targets.dtype == object else ():
        is_nan = isinstance(value, float) and value != value
        if value is None or is_nan or type(value).__name__ in ("NAType", "NaTType"):
            shown = ", ".join(map(str, place))
            raise ValueError(
                f"y must have no missing values, but y[{shown}] is {value!r}: leave such rows out."
            )


def without_empty_columns(data: Data) -> Data:
    """Remove the columns of a sparse X without entries, if they are at least half.

    Their coefficients are zero at a minimiser, but every step takes time for each column.
    """
    X = data.X
    filled = np.flatnonzero(np.bincount(X.indices[: X.indptr[-1]], minlength=X.shape[1]))
    if not 0 < filled.size <= X.shape[1] // 2:  # half is chosen
        return data
    places = np.zeros(X.shape[1], X.indices.dtype)
    places[filled] = np.arange(filled.size)
    parts = X.data, places[X.indices], X.indptr  # the entries are not copied
    return data._replace(X=type(X)(parts, shape=(X.shape[0], filled.size)), columns=filled)


# -- the scale of targets --------------------------------------------------------------------------
#
# It is the weighted mean absolute deviation from the mean, or from 0 without an intercept. It
# scales with the targets and does not change when they are shifted. It is zero only if a constant
# fits exactly, whereas the median absolute deviation is zero for any target that is mostly one
# value, such as rainfall. It consists of two sums, which chunks and workers can add up, and an
# outlier moves it less than the standard deviation.


def target_sums(y: Vector, weights: Vector | None) -> tuple[float, float, float, float]:
    """Return weighted sum, weight, least and largest of the targets with positive weight."""
    weights = np.ones(y.size) if weights is None else weights
    kept = y[weights > 0.0]
    low, high = kept.min(initial=math.inf), kept.max(initial=-math.inf)
    return float(weights @ y), float(weights.sum()), float(low), float(high)


def target_mean(parts: Iterable[tuple[float, float, float, float]]) -> float:
    """Return the mean of all targets from the `target_sums` of parts; exact if all are equal."""
    kept = [part for part in parts if part[1] > 0.0]
    if not kept:  # which others refuse
        return 0.0
    totals, weights, lows, highs = zip(*kept, strict=True)
    mean = math.fsum(totals) / math.fsum(weights)
    return float(min(max(mean, min(lows)), max(highs)))


def deviations(y: Vector, weights: Vector | None, middle: float) -> tuple[float, float]:
    """Return the weighted sum of absolute deviations, and the total weight."""
    sizes = np.abs(y - middle)
    if weights is None:
        return float(sizes.sum()), float(y.size)
    return float(weights @ sizes), float(weights.sum())


def mean_deviation(parts: Iterable[tuple[float, float]]) -> float:
    """Return the mean absolute deviation from the `deviations` of parts, or 1 if it is zero."""
    sums, weights = zip(*parts, strict=True)
    total = math.fsum(sums)
    return total / math.fsum(weights) if total > 0.0 else 1.0


# -- held-out rows ---------------------------------------------------------------------------------


def split(data: Data, fraction: float, classes: Any, seed: int) -> tuple[Data, Data]:
    """Return training and held-out samples, stratified by `classes` unless it is None."""
    n, count = data.y.size, math.ceil(fraction * data.y.size)
    sizes = [n] if classes is None else np.unique(classes, return_counts=True)[1]
    reason = ""
    if classes is not None and min(sizes) < 2:
        reason = "a class with a single row cannot be in both parts"
    elif min(count, n - count) < len(sizes):
        reason = f"both parts need at least {len(sizes)} rows"
    if reason:
        raise ValueError(
            f"early_stopping=True holds back {count} of {n} rows (validation_fraction="
            f"{fraction!r}), but {reason}. Increase validation_fraction, give more rows, or set "
            "early_stopping=False."
        )
    parts = train_test_split(np.arange(n), test_size=count, stratify=classes, random_state=seed)
    return rows_of(data, parts[0]), rows_of(data, parts[1])
