"""From Dask collections to checked blocks of rows, targets and weights on the workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from dask import delayed, is_dask_collection
from dask.delayed import Delayed
from distributed import Client, Future

from accelegrad.dask.cluster import BlockError, Cluster
from accelegrad.dask.part import Part, part_of_rows
from accelegrad.errors import Vector, finite_vector
from accelegrad.models.losses import Loss, check_labels
from accelegrad.models.matrix import (
    RowNumbers,
    Storage,
    checked_weights,
    design_matrix,
    pairs_per_row,
)

#: The most blocks after merging: this many, or this many per thread of the cluster if that is more.
#: Each costs the scheduler a fraction of a millisecond in every round trip.
FEWEST_BLOCKS, BLOCKS_PER_THREAD = 64, 4


class Block(NamedTuple):
    """A block of checked rows, with targets as given."""

    X: Any
    y: Any
    weights: Vector | None


class Facts(NamedTuple):
    """What the client knows of a block."""

    rows: int
    columns: int
    storage: Storage
    dtype: Any
    largest_weight: float  # 1 without weights
    weight: float  # of all rows
    weighted: bool
    counted: int = 0  # rows with weight
    error: str = ""  # the error found in it


#: How often each row of a block counts; None: once.
Counts = npt.NDArray[np.unsignedinteger[Any]] | None


class RowSettings(NamedTuple):
    """What turns a block into a part: the loss, and the rows' weights."""

    loss: Loss
    fit_intercept: bool
    recode: Callable[[Any], Any] | None = None  # maps given targets to those of the loss
    weigh: Callable[[Any], Vector] | None = None  # maps given targets to factors of the weights


def read_block(number: int, pieces: Sequence[Any]) -> Block | str:
    """Return merged and checked pieces, numbered from `number`, or the error found in them."""
    checked = []
    for place, piece in enumerate(pieces, start=number):
        try:
            checked.append(_checked(piece))
        except (TypeError, ValueError) as error:
            return f"block {place}: {error}"
    checked = [block for block in checked if block.X.shape[0]] or checked[:1]
    if len(checked) == 1:
        return checked[0]
    widths = {block.X.shape[1] for block in checked}
    if len(widths) > 1:
        return (
            f"blocks {number} to {number + len(pieces) - 1} have rows of {sorted(widths)} columns."
        )
    Xs, ys, weights = zip(*checked, strict=True)
    X = sp.vstack(Xs, format="csr") if any(map(sp.issparse, Xs)) else np.vstack(Xs)
    given = None if weights[0] is None else np.concatenate(weights)
    return Block(X, np.concatenate(ys), given)


def _checked(piece: Any) -> Block:
    if not isinstance(piece, tuple | list) or len(piece) not in (2, 3):
        raise TypeError(
            f"it must be a tuple (X, y) or (X, y, sample_weight), not {type(piece).__name__}."
        )
    X, y = _matrix(piece[0]), _vector(piece[1])
    rows = int(X.shape[0])
    if y.shape != (rows,):
        raise ValueError(f"it has {rows} rows, but targets of the shape {y.shape}.")
    weights = piece[2] if len(piece) == 3 else None
    if rows == 0:
        return Block(X, y, None if weights is None else np.zeros(0))
    if weights is not None:
        weights = checked_weights(_vector(weights), rows, all_may_be_zero=True)
    return Block(design_matrix(X), y, weights)


def _matrix(X: Any) -> Any:
    """Return rows of a DataFrame or an array as an array or a CSR matrix."""
    if hasattr(X, "to_numpy"):
        X = X.to_numpy()
    if not sp.issparse(X):
        X = np.asarray(X)
    return X.reshape(-1, 1) if X.ndim == 1 else X


def _vector(y: Any) -> Any:
    y = y.to_numpy() if hasattr(y, "to_numpy") else np.asarray(y)
    return y.ravel() if y.ndim == 2 and y.shape[1] == 1 else y


def facts_of(block: Block | str) -> Facts:
    """Return what the client has to know of a block."""
    if isinstance(block, str):
        empty = Storage(0, True, 0.0), np.dtype(np.float64)
        return Facts(0, 0, *empty, 0.0, 0.0, False, error=block)
    X = block.X
    rows, columns = (int(size) for size in X.shape)
    dense = isinstance(X, np.ndarray)
    pairs = 0.0 if dense or not rows else pairs_per_row(X)
    storage = Storage(int(X.size if dense else X.nnz), dense, pairs)
    if block.weights is None:
        return Facts(rows, columns, storage, X.dtype, 1.0, float(rows), False, rows)
    largest, weight = float(block.weights.max(initial=0.0)), float(block.weights.sum())
    counted = int(np.count_nonzero(block.weights))
    return Facts(rows, columns, storage, X.dtype, largest, weight, True, counted)


def counted_weights(block: Block, counts: Counts) -> Vector:
    """Return the rows' weights, multiplied by their counts."""
    weights = np.ones(block.X.shape[0]) if block.weights is None else block.weights
    return weights if counts is None else weights * counts


def relative_weight(block: Block, settings: RowSettings, largest: float, counts: Counts) -> float:
    """Return the sum of the rows' weights, each divided by the largest."""
    return float(_relative(block, settings, largest, counts).sum())


def _relative(block: Block, settings: RowSettings, largest: float, counts: Counts) -> Vector:
    weights = counted_weights(block, counts) / largest
    return weights if settings.weigh is None else weights * settings.weigh(block.y)


def part_of(
    block: Block,
    settings: RowSettings,
    largest: float,
    weight: float,
    number: int,
    counts: Counts,
) -> Part:
    """Return a block as a part of the sum over all rows, of total weight `weight`."""
    shares = _relative(block, settings, largest, counts) / weight
    y = block.y if settings.recode is None else settings.recode(block.y)
    try:
        y = finite_vector("y", y)
        check_labels(y, settings.loss)
    except ValueError as error:
        raise BlockError(f"block {number}: {error}") from None
    return part_of_rows(block.X, y, shares, settings.loss, settings.fit_intercept)


def pieces_of(X: Any, y: Any, sample_weight: Any = None) -> list[Any]:
    """Return the data's blocks as delayed tuples or futures; y and weights follow X's blocks."""
    listed = isinstance(X, Sequence) and not isinstance(X, str)
    if listed:
        _check_list(X)
        if y is None:
            return list(X)
    elif not is_dask_collection(X):
        raise TypeError(
            "X must be a dask.array, a dask.dataframe or a list of delayed values or futures, not "
            f"{type(X).__name__}."
        )
    elif y is None:
        raise ValueError("y must be given with a Dask collection, but it is None.")
    given = [part for part in (X, y, sample_weight) if part is not None]
    if all(map(_is_frame, given)):
        return _frame_blocks(*given)
    columns = [list(part) if listed else _delayed_blocks(part, like=X) for part in given]
    if len({len(column) for column in columns}) > 1:
        raise ValueError(
            "X, y and sample_weight must have as many blocks of rows each, but they have "
            f"{', '.join(str(len(column)) for column in columns)}."
        )
    return [delayed(tuple, nout=None)(list(parts)) for parts in zip(*columns, strict=True)]


def _check_list(X: Sequence[Any]) -> None:
    if len(X) == 0:
        raise ValueError("X must have at least one block, but it is an empty list.")
    for element in X:
        if not isinstance(element, Delayed | Future):
            raise TypeError(
                f"X must be a list of delayed values or futures, but it holds a "
                f"{type(element).__name__}."
            )


def _is_frame(part: Any) -> bool:
    return hasattr(part, "map_partitions")


def _frame_blocks(X: Any, *others: Any) -> list[Any]:
    """Return the partitions of several frames together: Dask may merge them differently."""
    pieces = X.map_partitions(_as_piece, *others, meta=[(0, object)], enforce_metadata=False)
    return list(pieces.to_delayed())


def _as_piece(*columns: Any) -> tuple[Any, ...]:
    return columns


def _delayed_blocks(part: Any, like: Any) -> list[Any]:
    """Return the blocks of a collection, split along the rows only."""
    if _is_frame(part):
        return list(part.to_delayed())
    if not hasattr(part, "rechunk"):  # an array in memory
        import dask.array as da

        part = da.from_array(np.asarray(part))
    if part.ndim == 2 and part.numblocks[1] > 1:
        part = part.rechunk({1: -1})
    rows = like.chunks[0] if hasattr(like, "chunks") else None
    if rows is not None and part.chunks[0] != rows and not _unknown(part.chunks[0], rows):
        part = part.rechunk({0: rows})
    return list(part.to_delayed().ravel())


def _unknown(*chunks: Any) -> bool:
    """Return whether sizes of blocks are unknown, as for arrays made from a DataFrame."""
    return any(np.isnan(size) for sizes in chunks for size in sizes)


def delayed_blocks(client: Client, pieces: Sequence[Any]) -> list[Delayed]:
    """Return the blocks: neighbouring pieces, merged until there are few enough."""
    most = max(FEWEST_BLOCKS, BLOCKS_PER_THREAD * sum(client.nthreads().values()))
    length = -(-len(pieces) // most)
    groups = [pieces[i : i + length] for i in range(0, len(pieces), length)]
    run = uuid4().hex
    return [
        delayed(read_block, pure=False)(
            i * length, list(group), dask_key_name=f"accelegrad-read-{run}-{i}"
        )
        for i, group in enumerate(groups)
    ]


def _spread(client: Client, read: Sequence[Delayed]) -> list[Future]:
    """Return the blocks as futures, spread over the workers by their threads."""
    threads = client.nthreads()
    if len(threads) < 2 or any(map(_needs_futures, read)):  # data on workers stay there
        return list(client.compute(list(read)))
    # The scheduler alone would give idle workers more, and every round trip would wait for them.
    ends = np.cumsum(list(threads.values())) * len(read) // sum(threads.values())
    futures: list[Future] = []
    for worker, end in zip(threads, ends, strict=True):
        some = list(read[len(futures) : int(end)])
        futures += client.compute(some, workers=[worker], allow_other_workers=True)
    return futures


def _needs_futures(block: Delayed) -> bool:
    tasks = dict(block.__dask_graph__())
    needed = [getattr(task, "dependencies", ()) for task in tasks.values()]
    return any(key not in tasks for keys in needed for key in keys)


class ClusterData:
    """The checked blocks of a data set on a cluster, with their facts."""

    columns = None  # all of them: the estimators leave none out

    def __init__(self, client: Client, pieces: Sequence[Any], timeout: float | None = None) -> None:
        self._counts: Counts = None
        blocks = Cluster(client, _spread(client, delayed_blocks(client, pieces)), timeout)
        facts: list[Facts] = blocks.each("check", facts_of)
        _check(facts)
        self.numbers = kept = [number for number, known in enumerate(facts) if known.rows]
        self.cluster = blocks.of_parts([blocks.parts[i] for i in kept])
        self.facts = [facts[i] for i in kept]
        self.ends = np.cumsum([known.rows for known in self.facts])
        self.n_samples, self.n_features = int(self.ends[-1]), self.facts[0].columns
        self.dtype = np.result_type(*{known.dtype for known in self.facts})
        self.weighted = any(known.weighted for known in self.facts)
        self.largest_weight = max(known.largest_weight for known in self.facts)

    @property
    def is_counted(self) -> bool:
        """Whether rows have counts other than one."""
        return self._counts is not None

    @property
    def counts(self) -> list[Counts]:
        """How often each row counts, for each block."""
        if self._counts is None:
            return [None] * len(self.facts)
        return list(np.split(self._counts, self.ends[:-1]))

    def of_rows(self, rows: RowNumbers) -> ClusterData:
        """Return the same blocks with the selected rows, with repetition."""
        other, counts = copy(self), np.bincount(rows, minlength=self.n_samples)
        other._counts = counts.astype(np.min_scalar_type(int(counts.max())))
        return other

    def seen(self) -> tuple[int, float]:
        """Return the number of rows with weight, and their weight."""
        return sum(k.counted for k in self.facts), sum(k.weight for k in self.facts)

    @property
    def storage(self) -> Storage:
        """How the rows are stored."""
        entries = sum(known.storage.entries for known in self.facts)
        if all(known.storage.dense for known in self.facts):
            return Storage(entries, True, np.inf)
        pairs = sum(known.storage.pairs_per_row * known.rows for known in self.facts)
        return Storage(entries, False, pairs / self.n_samples)

    def parts(self, settings: RowSettings) -> Cluster:
        """Return the parts of a problem, whose shares sum to 1."""
        cluster, largest = self.cluster, self.largest_weight
        weight = 0.0
        if largest > 0.0:
            weighed = (relative_weight, settings, largest)
            weight = float(cluster.total("weigh", *weighed, by_part=[self.counts]))
        if not weight > 0.0:
            raise ValueError("sample_weight must have an entry > 0, but all of them are 0.")
        shared = [[given] * len(cluster.parts) for given in (settings, largest, weight)]
        columns = (cluster.parts, *shared, self.numbers, self.counts)
        run = uuid4().hex
        keys = [f"accelegrad-part-{run}-{i}" for i in range(len(cluster.parts))]
        made = cluster.of_parts(cluster.client.map(part_of, *columns, key=keys))
        made.ready("part")
        return made


def _check(facts: Sequence[Facts]) -> None:
    for known in facts:
        if known.error:
            raise BlockError(known.error)
    full = [(number, known.columns) for number, known in enumerate(facts) if known.rows]
    if not full:
        raise ValueError("X must have at least one row, but all its blocks are empty.")
    for number, columns in full:
        if columns != full[0][1]:
            raise BlockError(
                f"block {number} has {columns} columns, but block {full[0][0]} has {full[0][1]}."
            )
