"""A linear model whose rows are read chunk by chunk, for data larger than memory.

Targets, shares and margins are kept in temporary files.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from functools import partial, reduce
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from accelegrad.errors import Vector, finite_vector
from accelegrad.models.linear_model import LinearModel
from accelegrad.models.losses import Loss, make_loss
from accelegrad.models.matrix import (
    BLOCK_ENTRIES,
    Storage,
    pairs_per_row,
)
from accelegrad.models.model_input import (
    check_labels,
    checked_intercept,
    checked_l2,
    checked_weights,
    design_matrix,
    targets,
)
from accelegrad.models.parted_model import PartedModel
from accelegrad.models.row_file import RowFile, mapped, of_blocks
from accelegrad.models.row_parts import Where, add, model_by

#: Small chunks are processed together, up to BLOCK_ENTRIES numbers. A row counts as its entries
#: plus about this many vectors that a task needs.
VECTORS = 12


class StreamedMatrix:
    """The rows of a source as a matrix, in parts: a large chunk, or several small ones."""

    ndim = 2

    def __init__(
        self,
        read: Callable[[], Iterator[Any]],
        ends: npt.NDArray[np.int64],
        n_features: int,
        storage: Storage,
        dtype: Any,
    ) -> None:
        self._read, self.ends = read, ends
        self.shape = (int(ends[-1]), n_features)
        self.storage, self.dtype = storage, dtype

    @property
    def nnz(self) -> int:
        """The number of stored entries."""
        return self.storage.entries

    def chunks(self) -> Iterator[tuple[slice, Any]]:
        """Yield each part with its rows: one pass over the source."""
        start = end = count = number = 0
        waiting: list[Any] = []
        for X in self._read():
            end += X.shape[0]
            if count == self.ends.size or end > self.ends[count]:
                break
            number += 1
            waiting.append(X)
            del X  # keep no chunk while others are processed
            if end == self.ends[count]:
                yield slice(start, end), _stacked(waiting)
                start, count = end, count + 1
        if not start == end == self.shape[0]:
            raise ValueError(
                f"source must give the same chunks in every pass, but chunk {number + 1} is not as "
                "it was in the first pass."
            )

    def fingerprint(self) -> str:
        """Return a hash of the contents: one pass."""
        digest = hashlib.blake2b(f"{self.shape}".encode())
        for _, X in self.chunks():
            parts = (X,) if isinstance(X, np.ndarray) else (X.data, X.indices, np.diff(X.indptr))
            for part in parts:
                digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()


class _Reader:
    """One pass over the chunks, which begins at the first request."""

    def __init__(self, X: StreamedMatrix) -> None:
        self._matrix, self._number, self._now = X, -1, None
        self._chunks: Iterator[tuple[slice, Any]] | None = None

    def chunk(self, number: int) -> Any:
        if self._chunks is None:
            self._chunks = self._matrix.chunks()
        while self._number < number:
            self._now = None  # keep one chunk in memory at a time
            _, self._now = next(self._chunks)
            self._number += 1
        return self._now


class _ChunkRows(LinearModel):
    """The rows of a chunk as a model without an l2 term; X is read at the first access."""

    def __init__(
        self,
        like: tuple[Loss, bool],
        n_features: int,
        y: Vector,
        shares: Vector,
        read: Callable[[], Any],
    ) -> None:
        (self.loss, self.fit_intercept), self.l2 = like, 0.0
        self.n_samples, self.n_features = y.size, n_features
        self.n_parameters = n_features + self.fit_intercept
        self.y, self.sample_weight, self.shares = y, shares, shares
        self._read_rows = read

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_read_rows" not in self.__dict__ or "X" in self.__dict__:
            raise AttributeError(name)
        X = self._read_rows()
        self._take(X)
        self.dtype = X.dtype
        return getattr(self, name)


class _Chunk:
    def __init__(self, rows: _ChunkRows, first: int) -> None:
        self.rows, self.first = rows, first
        self._where = slice(first, first + rows.n_samples)

    def model(self, by: Any) -> Any:
        return self.rows if by == self.rows.loss else model_by(self.rows, by)

    def of_columns(self, columns: None) -> LinearModel:
        assert columns is None
        return self.rows

    def at(self, where: Where, w: Vector) -> Any:
        """Return the point's values, and write its margins to its file."""
        model, margins, kept = self.model(where.by), self._margins(where), where.name
        with np.errstate(over="ignore", invalid="ignore"):
            known = model.at(w) if margins is None else model.with_margins(w, margins)
        if kept.size == self.first:
            kept.append(known.margins)
        return known

    def _margins(self, where: Where) -> Any:
        if where.name.size >= self._where.stop:
            return where.name[self._where]
        if where.between is None:
            return None
        p, q, t = where.between
        if min(p.size, q.size) < self._where.stop:
            return None
        start = p[self._where]
        return start + t * (q[self._where] - start)


class Chunks:
    """The chunks as parts of a sum; the source is read only if a task needs the rows."""

    def __init__(
        self, X: StreamedMatrix, y: RowFile, shares: Any, loss: Loss, fit_intercept: bool
    ) -> None:
        self._X, self._y, self._shares = X, y, shares
        self._like = loss, fit_intercept

    def _results(
        self, task: Callable[..., Any], arguments: Sequence[Any], by_part: Sequence[Any]
    ) -> Iterator[Any]:
        reader, first = _Reader(self._X), 0
        own = zip(*by_part, strict=True) if by_part else repeat(())
        for number, (end, more) in enumerate(zip(self._X.ends.tolist(), own, strict=False)):
            where = slice(first, end)
            y, shares = self._y[where], np.array(self._shares[where])
            read = partial(reader.chunk, number)
            rows = _ChunkRows(self._like, self._X.shape[1], y, shares, read)
            part, rest = _Chunk(rows, first), iter(arguments)
            given = [
                part.at(some, next(rest)) if isinstance(some, Where) else some for some in rest
            ]
            yield task(part, *given, *more)
            first = end

    def each(
        self,
        name: str,  # noqa: ARG002
        task: Callable[..., Any],
        *arguments: Any,
        by_part: Sequence[Any] = (),
    ) -> list[Any]:
        """Return a task's result for each part; `by_part` are lists with one item per part."""
        return list(self._results(task, arguments, by_part))

    def total(
        self,
        name: str,  # noqa: ARG002
        task: Callable[..., Any],
        *arguments: Any,
        by_part: Sequence[Any] = (),
        result_bytes: int = 0,  # noqa: ARG002
    ) -> Any:
        """Return the sum of a task's results over the parts."""
        return reduce(add, self._results(task, arguments, by_part))


class StreamedModel(PartedModel):
    """A `LinearModel` of rows that are read chunk by chunk, once per evaluation.

    The objective and the sampled rows equal those of a `LinearModel` of all rows up to rounding,
    however the rows are split. With l2 > 0 it has dual bounds. The method "dual-ascent" needs rows
    in memory. Every minibatch takes a pass.

    Parameters
    ----------
    source : list, callable or iterable of chunks
        Chunks ``(X, y)`` or ``(X, y, sample_weight)``: a list of them, a function that returns a
        new iterator at each call, or an object that can be iterated over repeatedly. Each pass
        must give the same chunks. The first pass, which checks everything, is made at once.
    loss, l2, fit_intercept, quantile, epsilon, delta
        As for `LinearModel`.

    Examples
    --------
    >>> import numpy as np, accelegrad as ag
    >>> def chunks():
    ...     rng = np.random.default_rng(0)
    ...     for _ in range(20):
    ...         X = rng.standard_normal((500, 3))
    ...         yield X, np.where(X @ [1.0, -2.0, 0.5] + rng.normal(size=500) > 0, 1.0, -1.0)
    >>> result = ag.minimize(ag.StreamedModel(chunks, "logistic", l2=1e-3), rtol=1e-6, rng=0)
    >>> bool(result.success)
    True
    """

    X: StreamedMatrix
    y: Any  # in a file, like the weights
    sample_weight: Any
    shares: Any

    def __init__(
        self,
        source: Any,
        loss: str = "logistic",
        *,
        l2: float = 0.0,
        fit_intercept: bool = False,
        **parameters: float,
    ) -> None:
        X, y, weights = read_rows(source)
        options: dict[str, Any] = {"l2": l2, "fit_intercept": fit_intercept, **parameters}
        self._take_rows(X, y, loss, sample_weight=weights, **options)

    @classmethod
    def of(
        cls, X: StreamedMatrix, y: npt.ArrayLike, loss: str = "logistic", **options: Any
    ) -> StreamedModel:
        """Return the model of a matrix that has been read once, with targets and weights."""
        model = object.__new__(cls)
        model._take_rows(X, y, loss, **options)
        return model

    def _take_rows(
        self,
        X: StreamedMatrix,
        y: npt.ArrayLike,
        loss: str,
        *,
        l2: float = 0.0,
        fit_intercept: bool = False,
        sample_weight: npt.ArrayLike | None = None,
        **parameters: float,
    ) -> None:
        chosen = make_loss(loss, **parameters)
        self._set_up(X, chosen, checked_l2(l2), checked_intercept(fit_intercept))
        self.y = _in_file(y, self.n_samples, self.loss)
        self.sample_weight, self.shares = _weights_in_files(sample_weight, self.n_samples)
        self._split()

    def _split(self) -> None:
        self.parts = Chunks(self.X, self.y, self.shares, self.loss, self.fit_intercept)

    def new_name(self, n_classes: int = 1) -> RowFile:
        """Return a file for the margins of a new point, one or several per row."""
        return RowFile(n_classes)

    def with_targets(self, y: npt.ArrayLike) -> StreamedModel:
        """Return a model of the same X with other targets."""
        other = copy(self)
        other.y = _in_file(y, self.n_samples, self.loss)
        other._proved, other._of_targets = {}, {}
        other._split()
        return other


def _in_file(given: Any, n_samples: int, loss: Loss) -> RowFile:
    if not isinstance(given, RowFile):
        return of_blocks([targets(given, n_samples, loss)])
    for block in given.blocks():
        if loss.classification and not (np.abs(block) == 1.0).all():
            check_labels(np.asarray(given), loss)
    return given


def _weights_in_files(given: Any, n_samples: int) -> tuple[RowFile | None, Any]:
    """Return weights and shares of the rows; equal shares take no memory."""
    if given is None:
        return None, np.broadcast_to(1.0 / n_samples, n_samples)
    weights = given
    if not isinstance(given, RowFile):
        checked = checked_weights(given, n_samples)
        assert checked is not None
        weights = of_blocks([checked])
    largest = max(float(block.max()) for block in weights.blocks())
    if largest == 0.0:
        checked_weights(np.zeros(1), 1)
    # Divided by the largest first: the sum of huge weights would overflow.
    total = math.fsum(float((block / largest).sum()) for block in weights.blocks())
    return weights, mapped(lambda block: block / largest / total, weights)


def model_of(X: Any) -> Callable[..., LinearModel]:
    """Return the constructor of a linear model for rows in memory or in a stream."""
    return StreamedModel.of if isinstance(X, StreamedMatrix) else LinearModel


def _stacked(chunks: list[Any]) -> Any:
    """Return the rows of some chunks as one matrix, and empty the list."""
    if len(chunks) == 1:
        return chunks.pop()
    sparse = any(map(sp.issparse, chunks))
    X = sp.vstack(chunks, format="csr") if sparse else np.concatenate(chunks)
    chunks.clear()
    return X


class Checked(NamedTuple):
    """A checked chunk of rows, dense or CSR."""

    X: Any
    y: npt.NDArray[Any]
    weights: Vector | None


def checked_chunk(chunk: tuple[Any, ...]) -> Checked:
    """Return a checked chunk with numeric targets."""
    X, y = design_matrix(chunk[0]), finite_vector("y", chunk[1])
    # The weights of one chunk may all be zero, though not those of all chunks.
    weights = chunk[2] if len(chunk) == 3 else None
    return Checked(X, y, checked_weights(weights, y.size, all_may_be_zero=True))


def read_rows(
    source: Any,
    check: Callable[[tuple[Any, ...]], Checked] = checked_chunk,
    targets: RowFile | None = None,
) -> tuple[StreamedMatrix, RowFile, RowFile | None]:
    """Return a source's rows as a matrix, with all targets and weights: the first pass."""
    read, first = _reader(source), _FirstPass(RowFile() if targets is None else targets)
    for number, chunk in enumerate(read(), start=1):
        first.add(number, chunk, check)
    if not first.targets.size:
        raise ValueError("source must have at least one chunk with rows, but it has none.")
    return first.matrix(lambda: _matrices(read)), first.targets, first.weights


class _FirstPass:
    def __init__(self, targets: RowFile) -> None:
        self.targets = targets
        self.weights: RowFile | None = None
        self._ends: list[int] = []
        self._n_features = self._entries = 0
        self._room = 0  # for further entries in the last part
        self._dense, self._pairs = True, 0.0
        self._types: set[Any] = set()

    def add(self, number: int, chunk: Any, check: Callable[[tuple[Any, ...]], Checked]) -> None:
        if not isinstance(chunk, tuple) or len(chunk) not in (2, 3):
            raise TypeError(
                f"chunk {number} must be a tuple (X, y) or (X, y, sample_weight), not "
                f"{type(chunk).__name__}."
            )
        if _is_empty(chunk):
            return
        try:
            X, y, weights = check(chunk)
        except ValueError as error:
            raise ValueError(f"chunk {number}: {error}") from error
        if y.size != X.shape[0]:
            raise ValueError(f"chunk {number} has {X.shape[0]} rows, but {y.size} targets.")
        if self.targets.size and X.shape[1] != self._n_features:
            raise ValueError(
                f"chunk {number} has {X.shape[1]} columns, but the chunks before it have "
                f"{self._n_features}."
            )
        if weights is not None and self.weights is None:
            self.weights = mapped(np.ones_like, self.targets)
        self.targets.append(y)
        if self.weights is not None:
            self.weights.append(np.ones(y.size) if weights is None else weights)
        self._n_features = int(X.shape[1])
        self._take_storage(X)

    def _take_storage(self, X: Any) -> None:
        self._types.add(X.dtype)
        dense = isinstance(X, np.ndarray)
        entries = int(X.size if dense else X.nnz)
        size = entries + VECTORS * X.shape[0]
        if size > self._room:
            self._ends.append(0)
            self._room = BLOCK_ENTRIES
        self._ends[-1], self._room = self.targets.size, self._room - size
        self._entries += entries
        self._dense &= dense
        if not dense:
            self._pairs += pairs_per_row(X) * X.shape[0]

    def matrix(self, read: Callable[[], Iterator[Any]]) -> StreamedMatrix:
        ends = np.array(self._ends)
        pairs = math.inf if self._dense else self._pairs / int(ends[-1])
        storage = Storage(self._entries, self._dense, pairs)
        dtype = np.result_type(*self._types)
        return StreamedMatrix(read, ends, self._n_features, storage, dtype)


def _reader(source: Any) -> Callable[[], Iterator[Any]]:
    if callable(source):
        return lambda: iter(source())
    if isinstance(source, Iterator) or not isinstance(source, Iterable):
        raise TypeError(
            "source must be a list of chunks, a function that makes an iterator of them, or "
            f"another iterable that can be read again and again, not {type(source).__name__}."
        )
    return lambda: iter(source)


def _matrices(read: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    for chunk in read():
        if not _is_empty(chunk):
            yield design_matrix(chunk[0], checked=True)


def _is_empty(chunk: Any) -> bool:
    X = chunk[0]
    return hasattr(X, "shape") and len(X.shape) == 2 and X.shape[0] == 0
