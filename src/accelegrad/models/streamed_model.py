"""A linear model read chunk by chunk, with targets, shares and margins in temporary files."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial, reduce
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from accelegrad.errors import Vector, finite_vector
from accelegrad.models.linear_model import LinearModel
from accelegrad.models.losses import Loss, check_labels, make_loss, targets
from accelegrad.models.matrix import (
    BLOCK_ENTRIES,
    Storage,
    checked_weights,
    design_matrix,
    pairs_per_row,
)
from accelegrad.models.parted_model import PartedModel
from accelegrad.models.row_file import RowFile, mapped, of_blocks
from accelegrad.models.row_parts import Part, Where, add, on_part

#: Small chunks are merged; a row counts as its entries plus about this many vectors of a task.
VECTORS = 12


class StreamedMatrix:
    """The rows of a source as a matrix, in parts: a large chunk, or several small ones."""

    ndim = 2

    def __init__(self, read: Callable[[], Iterator[Any]]) -> None:
        self._read, self.shape = read, (0, 0)
        self.dtype: Any = np.dtype(np.float32)
        self._ends: list[int] = []
        self._room = 0  # for further entries in the last part
        self._entries, self._dense, self._pairs = 0, True, 0.0

    def add(self, X: Any) -> None:
        """Take note of the next chunk, in the first pass."""
        rows, dense = X.shape[0], isinstance(X, np.ndarray)
        entries = int(X.size if dense else X.nnz)
        self.shape = self.shape[0] + rows, int(X.shape[1])
        size = entries + VECTORS * rows
        if size > self._room:
            self._ends.append(0)
            self._room = BLOCK_ENTRIES
        self._ends[-1], self._room = self.shape[0], self._room - size
        self.dtype = np.promote_types(self.dtype, X.dtype)
        self._entries, self._dense = self._entries + entries, self._dense and dense
        self._pairs += 0.0 if dense else pairs_per_row(X) * rows

    @property
    def ends(self) -> npt.NDArray[np.int64]:
        """The number of the row behind each part."""
        return np.array(self._ends)

    @property
    def storage(self) -> Storage:
        """How the rows are stored."""
        pairs = math.inf if self._dense else self._pairs / self.shape[0]
        return Storage(self._entries, self._dense, pairs)

    def chunks(self) -> Iterator[tuple[slice, Any]]:
        """Yield each part with its rows: one pass over the source."""
        ends, start, end, number = iter(self._ends), 0, 0, 0
        last, waiting = next(ends), list[Any]()
        for chunk in self._read():
            if _is_empty(chunk):
                continue
            waiting.append(design_matrix(chunk[0], checked=True))
            del chunk  # keep no chunk while others are processed
            end += waiting[-1].shape[0]
            if end > last:
                break
            number += 1
            if end == last:
                yield slice(start, end), _stacked(waiting)
                start, last = end, next(ends, 0)
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

    def __init__(self, model: StreamedModel, rows: slice, read: Callable[[], Any]) -> None:
        self.loss, self.fit_intercept, self.l2 = model.loss, model.fit_intercept, 0.0
        self.n_samples, self.n_features = rows.stop - rows.start, model.X.shape[1]
        self.n_parameters = self.n_features + self.fit_intercept
        self.y, self.shares = model.y[rows], np.array(model.shares[rows])
        self.sample_weight, self._read_rows = self.shares, read

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_read_rows" not in self.__dict__ or "X" in self.__dict__:
            raise AttributeError(name)
        self._set_up(self._read_rows(), self.loss, 0.0, self.fit_intercept)
        return getattr(self, name)


class _Chunk(Part):
    def __init__(self, rows: LinearModel, first: int) -> None:
        super().__init__(rows)
        self.first = first  # the number of the first row

    def at(self, where: Where, w: Vector) -> Any:
        """Return the point's values, and write its margins to its file."""
        known = super().at(where, w)
        if where.name.size == self.first:
            where.name.append(known.margins)
        return known

    def margins(self, name: RowFile) -> Any:
        """Return the margins in a file."""
        end = self.first + self.rows.n_samples
        return name[self.first : end] if name.size >= end else None


class Chunks:
    """The chunks as parts of a sum; the source is read only if a task needs the rows."""

    def __init__(self, model: StreamedModel) -> None:
        self._of = model

    def _results(
        self, task: Callable[..., Any], arguments: Sequence[Any], by_part: Sequence[Any]
    ) -> Iterator[Any]:
        model, first = self._of, 0
        reader, own = _Reader(model.X), zip(*by_part, strict=True) if by_part else repeat(())
        for number, (end, more) in enumerate(zip(model.X.ends.tolist(), own, strict=False)):
            rows = _ChunkRows(model, slice(first, end), partial(reader.chunk, number))
            yield on_part(task, _Chunk(rows, first), *arguments, *more)
            first = end

    def each(
        self, _: str, task: Callable[..., Any], *arguments: Any, by_part: Sequence[Any] = ()
    ) -> list[Any]:
        """Return a task's result for each part; `by_part` are lists with one item per part."""
        return list(self._results(task, arguments, by_part))

    def total(
        self, _: str, task: Any, *arguments: Any, by_part: Sequence[Any] = (), **__: Any
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
        self._set_up(X, chosen, l2, fit_intercept)
        self.y = _in_file(y, self.n_samples, self.loss)
        self.sample_weight, self.shares = _weights_in_files(sample_weight, self.n_samples)

    @property
    def parts(self) -> Chunks:
        """The chunks."""
        return Chunks(self)

    def new_name(self, n_classes: int = 1) -> RowFile:
        """Return a file for the margins of a new point, one or several per row."""
        return RowFile(n_classes)

    def with_targets(self, y: npt.ArrayLike) -> StreamedModel:
        """Return a model of the same X with other targets."""
        other = self._with(y=_in_file(y, self.n_samples, self.loss), _of_targets={})
        assert isinstance(other, StreamedModel)
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
    read, y = _reader(source), RowFile() if targets is None else targets
    X, all_weights = StreamedMatrix(read), None
    for number, chunk in enumerate(read(), start=1):
        if not isinstance(chunk, tuple) or len(chunk) not in (2, 3):
            raise TypeError(
                f"chunk {number} must be a tuple (X, y) or (X, y, sample_weight), not "
                f"{type(chunk).__name__}."
            )
        if _is_empty(chunk):
            continue
        try:
            rows, some, weights = check(chunk)
        except ValueError as error:
            raise ValueError(f"chunk {number}: {error}") from error
        if some.size != rows.shape[0]:
            raise ValueError(f"chunk {number} has {rows.shape[0]} rows, but {some.size} targets.")
        if y.size and rows.shape[1] != X.shape[1]:
            raise ValueError(
                f"chunk {number} has {rows.shape[1]} columns, but the chunks before it have "
                f"{X.shape[1]}."
            )
        if weights is not None and all_weights is None:
            all_weights = mapped(np.ones_like, y)
        y.append(some)
        if all_weights is not None:
            all_weights.append(np.ones(some.size) if weights is None else weights)
        X.add(rows)
        del chunk, rows  # keep no chunk while the next one is read
    if not y.size:
        raise ValueError("source must have at least one chunk with rows, but it has none.")
    return X, y, all_weights


def _reader(source: Any) -> Callable[[], Iterator[Any]]:
    if callable(source):
        return lambda: iter(source())
    if isinstance(source, Iterator) or not isinstance(source, Iterable):
        raise TypeError(
            "source must be a list of chunks, a function that makes an iterator of them, or "
            f"another iterable that can be read again and again, not {type(source).__name__}."
        )
    return lambda: iter(source)


def _is_empty(chunk: Any) -> bool:
    X = chunk[0]
    return hasattr(X, "shape") and len(X.shape) == 2 and X.shape[0] == 0
