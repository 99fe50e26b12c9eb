"""Tables in files, whole or in blocks of rows: LIBSVM and CSV text, NumPy's npz, parquet.

What `datasets.read` does for numbers, with names of columns and labels that are text as well, and
without holding more of a file than a block.
"""

from __future__ import annotations

import csv
import io
import os
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from accelegrad.errors import nearest
from accelegrad.problems import datasets
from accelegrad.problems.datasets import DataError
from accelegrad.problems.text_blocks import (
    BLOCK_BYTES,
    Place,
    TextBlock,
    block_at,
    compression,
    opened,
    text_blocks,
)

EVERYTHING = 1 << 62
"""A number of rows that makes one block of any file."""

NPZ_ENDING, PARQUET_ENDINGS = ".npz", (".parquet", ".pq")
_SHOWN_NAMES = 5
# What is looked at to tell the kind of a text, and to find its header.
_FIRST_LINES = 16


class Block(NamedTuple):
    """Some rows; `y` is None where a file has no targets."""

    X: Any
    y: npt.NDArray[Any] | None


class Wanted(NamedTuple):
    """What is to be read.

    Attributes
    ----------
    target : str, int or None
        The column with the targets: its name, or its number from 0; None for the last one (of a
        table that is to be learnt from).
    features : sequence of str or None
        The names of the columns that a model knows, in its order.
    n_features : int or None
        The number of features, where it is known.
    optional : bool
        Whether a file may lack targets.
    """

    target: str | int | None = None
    features: Sequence[str] | None = None
    n_features: int | None = None
    optional: bool = False


class TableFile(ABC):
    """A file with rows.

    Attributes
    ----------
    names : tuple of str or None
        The names of the features, where the file has some.
    target : str or None
        The name of the target.
    in_any_order : bool
        Whether blocks can be read in any order once they were read in theirs.
    """

    names: tuple[str, ...] | None = None
    target: str | None = None
    in_any_order = False

    def __init__(self, path: Path, wanted: Wanted) -> None:
        self.path, self.wanted = path, wanted

    @abstractmethod
    def blocks(self, rows: int | None) -> Iterator[Block]:
        """Yield blocks of so many rows (None: of about 16 MB) in the order of the file."""

    def whole(self) -> Block:
        """Return all rows."""
        return next(self.blocks(EVERYTHING))

    def shuffled(self, rng: np.random.Generator) -> Iterator[Block]:
        """Yield the blocks of the last complete reading in random order, where that is possible."""
        raise NotImplementedError

    def knows_width(self) -> bool:
        """Tell whether the number of features is known before all rows are read."""
        return True

    def set_width(self, n_features: int) -> None:
        """Set the number of features, once it is known."""
        self.wanted = self.wanted._replace(n_features=n_features)


def open_table(path: str | os.PathLike[str], wanted: Wanted | None = None) -> TableFile:
    """Return the file as a table; the kind is told by the name, or by the text itself."""
    path, wanted = Path(path), wanted or Wanted()
    ending = path.suffix.lower()
    if ending == NPZ_ENDING:
        return NpzFile(path, wanted)
    if ending in PARQUET_ENDINGS:
        return ParquetFile(path, wanted)
    starts = text_blocks(path, _FIRST_LINES)
    first = next((block for block in starts if block.text.strip()), None)
    if first is None:
        raise DataError(f"{path}: the file is empty, but it must hold at least one row.")
    if b"\0" in first.text:
        raise DataError(
            f"{path}: found a NUL byte, so this is no text (or UTF-16). Allowed are text in LIBSVM "
            "or CSV format, plain or in .bz2, .gz or .xz, and .npz and .parquet files."
        )
    if datasets.is_csv(path, first.text):
        return CsvFile(path, wanted, first.text)
    if wanted.target is not None and not wanted.optional:
        raise DataError(
            f"{path}: target is {wanted.target!r}, but only tables with columns have one to "
            "choose; this is a LIBSVM file, where the label comes first in each line. Leave target "
            "out."
        )
    return LibsvmFile(path, wanted)


# Columns


class Columns(NamedTuple):
    """Which columns of a table are the features, in this order, and which is the target."""

    features: list[int]
    target: int | None


def chosen_columns(path: Path, names: Sequence[str], width: int, wanted: Wanted) -> Columns:
    """Find the wanted columns by name, or else by place."""
    if wanted.features is not None and names:
        missing = [name for name in wanted.features if name not in names]
        if missing:
            raise DataError(
                f"{path}: {len(missing)} of the model's {len(wanted.features)} features are not "
                f"among the columns: {_few(missing)}. The columns are {_few(names)}."
            )
        features = [list(names).index(name) for name in wanted.features]
        return Columns(features, _optional_target(names, wanted.target))
    count = wanted.n_features
    if wanted.optional and width == count:
        return Columns(list(range(width)), None)
    chosen = wanted.target
    if chosen is None or (wanted.optional and isinstance(chosen, str) and chosen not in names):
        chosen = -1
    target = datasets.target_column(path, list(names), width, chosen)
    if count is not None and width != count + 1:
        with_target = f" (or {count + 1} with the target)" if wanted.optional else ""
        raise DataError(
            f"{path}: found {width} columns, but {count} features are expected{with_target}."
        )
    target %= width
    return Columns([column for column in range(width) if column != target], target)


def _optional_target(names: Sequence[str], target: str | int | None) -> int | None:
    if isinstance(target, str):
        return list(names).index(target) if target in names else None
    return None if target is None else target % len(names)


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_SHOWN_NAMES])
    return shown + (", ..." if len(names) > _SHOWN_NAMES else "")


# LIBSVM


class LibsvmFile(TableFile):
    """LIBSVM text. Without a known number of features a block has as many as its largest index."""

    def __init__(self, path: Path, wanted: Wanted) -> None:
        super().__init__(path, wanted)
        self._places: list[Place] = []
        self.in_any_order = compression(path) is None

    def blocks(self, rows: int | None) -> Iterator[Block]:
        """Yield blocks in the order of the file."""
        places: list[Place] = []
        for text in text_blocks(self.path, rows):
            block = self._block(text)
            if block is not None:
                places.append(text.place)
                yield block
        if not places:
            raise DataError(
                f"{self.path}: only blank lines and comments, but at least one row is needed."
            )
        self._places = places

    def shuffled(self, rng: np.random.Generator) -> Iterator[Block]:
        """Yield the blocks of the last complete reading in random order."""
        with opened(self.path) as file:
            for place in rng.permutation(len(self._places)):
                block = self._block(block_at(file, self._places[place]))
                if block is not None:
                    yield block

    def knows_width(self) -> bool:
        """Tell whether the number of features was given."""
        return self.wanted.n_features is not None

    def _block(self, block: TextBlock) -> Block | None:
        """Parse a block; None if it has comments only."""
        lines = (line.partition(b"#")[0].strip() for line in io.BytesIO(block.text))
        if not any(lines):
            return None
        known = self.wanted.n_features
        try:
            X, y = datasets.read_libsvm(self.path, block.text, known or datasets.MOST_COLUMNS)
        except DataError:
            # Once more with the lines before it, so that the message has the right number.
            before = b"\n" * (block.first_line - 1)
            datasets.check_libsvm(self.path, before + block.text, known)
            raise
        if known is None:
            width = int(X.indices.max(initial=-1)) + 1
            X = sp.csr_matrix((X.data, X.indices, X.indptr), shape=(y.size, width))
        return Block(X, y)


# CSV


class CsvFile(TableFile):
    """Numbers between commas; the target alone may be text."""

    def __init__(self, path: Path, wanted: Wanted, start: bytes) -> None:
        super().__init__(path, wanted)
        content = datasets.as_unicode(path, start)
        target = wanted.target if wanted.target is not None else -1
        lines, header, self._width = datasets._csv_start(path, content, target)
        self._header_text = "".join(content.splitlines(keepends=True)[:lines])
        self._header = header
        self._columns = chosen_columns(path, header, self._width, wanted)
        if header:
            self.names = tuple(header[column] for column in self._columns.features)
            place = self._columns.target
            self.target = None if place is None else header[place]
        self._text_labels: bool | None = None  # not known before the first rows

    def blocks(self, rows: int | None) -> Iterator[Block]:
        """Yield blocks in the order of the file."""
        empty = True
        for text in text_blocks(self.path, rows):
            content = datasets.as_unicode(self.path, text.text)
            if text.first_line == 1:
                content = content[len(self._header_text) :]
            if content.strip():
                empty = False
                yield self._block(content, text.first_line)
        if empty:
            raise DataError(
                f"{self.path}: nothing follows the header, but at least one row is needed."
            )

    def _block(self, content: str, first_line: int) -> Block:
        header_lines = self._header_text.count("\n")
        before = "\n" * (first_line - 1 - header_lines if first_line > 1 else 0)
        place = self._columns.target
        table = None if self._text_labels else self._numbers(content)
        labels: npt.NDArray[Any] | None = None
        if table is None and place is not None and self._text_labels is not False:
            content, labels = self._without_labels(content, place)
            table = self._numbers(content)
        if table is None:
            whole = self._header_text + before + content
            datasets._check_csv(self.path, whole, self._header, self._width)
            raise DataError(f"{self.path}: cannot be read as CSV.")
        self._text_labels = labels is not None
        X = np.ascontiguousarray(table[:, self._columns.features])
        if labels is None and place is not None:
            labels = table[:, place].copy()
        return Block(X, labels)

    def _numbers(self, content: str) -> npt.NDArray[np.float64] | None:
        table, _ = datasets.parse_csv(content, 0)
        right = table is not None and table.shape[1] == self._width and np.isfinite(table).all()
        return table if right else None

    def _without_labels(self, content: str, place: int) -> tuple[str, npt.NDArray[Any]]:
        """Return the text with 0 for the labels, line by line where it was, and the labels."""
        labels: list[str] = []
        written = io.StringIO()
        writer = csv.writer(written, lineterminator="\n")
        done = 0
        for line, row in datasets.csv_rows(self.path, content):
            written.write("\n" * (line - 1 - done))
            if place < len(row):
                labels.append(row[place].strip())
                # An empty label stays, for the check to find.
                row[place] = "0" if labels[-1] else ""
            writer.writerow(row)
            done = line
        return written.getvalue(), np.array(labels)


# npz


class NpzFile(TableFile):
    """Arrays `X` and `y`, or a CSR matrix's `data`, `indices`, `indptr` and `shape`, and `y`.

    `feature_names` may be there as well. The arrays are read in step, a block at a time, compressed
    or not.
    """

    def __init__(self, path: Path, wanted: Wanted) -> None:
        super().__init__(path, wanted)
        try:
            with opened(path) as file, zipfile.ZipFile(file) as archive:
                members = {name.removesuffix(".npy") for name in archive.namelist()}
                self._check_members(members)
                self._has_targets = "y" in members
                self._is_sparse = "X" not in members
                if "feature_names" in members:
                    given = _Member(archive, "feature_names").take(EVERYTHING)
                    self.names = tuple(str(name) for name in given)
                    self._check_names(self.names)
        except (zipfile.BadZipFile, zlib.error, ValueError, EOFError) as error:
            raise self._damaged(error) from None

    def _check_members(self, members: set[str]) -> None:
        sparse = {"data", "indices", "indptr", "shape"}
        if not ("X" in members or sparse <= members):
            raise DataError(
                f"{self.path}: the arrays are {sorted(members)}, but 'X' (or 'data', 'indices', "
                "'indptr' and 'shape' of a CSR matrix) and 'y' are needed."
            )
        if "y" not in members and not self.wanted.optional:
            raise DataError(f"{self.path}: there is no array 'y' with the targets.")

    def _check_names(self, names: tuple[str, ...]) -> None:
        wanted = self.wanted.features
        if wanted is not None and names != tuple(wanted):
            raise DataError(
                f"{self.path}: feature_names are {_few(names)}, but the model's features are "
                f"{_few(wanted)}, in this order."
            )

    def _damaged(self, error: Exception) -> DataError:
        if isinstance(error, DataError):
            return error
        return DataError(f"{self.path}: no npz file, or a damaged one ({error}).")

    def blocks(self, rows: int | None) -> Iterator[Block]:
        """Yield blocks in the order of the file."""
        try:
            with opened(self.path) as file, zipfile.ZipFile(file) as archive:
                yield from self._blocks(archive, rows)
        except (zipfile.BadZipFile, zlib.error, ValueError, EOFError) as error:
            raise self._damaged(error) from None

    def _blocks(self, archive: zipfile.ZipFile, rows: int | None) -> Iterator[Block]:
        targets = _Member(archive, "y") if self._has_targets else None
        n = _Member(archive, "indptr").shape[0] - 1 if self._is_sparse else None
        n = _Member(archive, "X").shape[0] if n is None else n
        if targets is not None and targets.shape != (n,):
            raise DataError(
                f"{self.path}: X has {n} rows, but y has the shape {targets.shape}; ({n},) is "
                "needed."
            )
        source = self._sparse_rows if self._is_sparse else self._dense_rows
        for X in source(archive, rows):
            yield Block(self._checked(X), None if targets is None else targets.take(X.shape[0]))

    def _checked(self, X: Any) -> Any:
        known = self.wanted.n_features
        if known is not None and X.shape[1] != known:
            raise DataError(
                f"{self.path}: found {X.shape[1]} columns, but {known} features are expected."
            )
        return X

    def _dense_rows(self, archive: zipfile.ZipFile, rows: int | None) -> Iterator[Any]:
        member = _Member(archive, "X")
        if len(member.shape) != 2:
            raise DataError(f"{self.path}: X must have two dimensions, not shape {member.shape}.")
        count = rows_of_bytes(member.item_bytes) if rows is None else rows
        for _ in range(0, member.shape[0], count):
            yield member.take(count)

    def _sparse_rows(self, archive: zipfile.ZipFile, rows: int | None) -> Iterator[Any]:
        n, d = (int(length) for length in _Member(archive, "shape").take(2))
        data, indices = _Member(archive, "data"), _Member(archive, "indices")
        starts = _Member(archive, "indptr")
        count = rows or rows_of_bytes(12 * max(1, data.shape[0] // max(1, n)))
        first = starts.take(1)
        for _ in range(0, n, count):
            ends = np.concatenate([first, starts.take(count)])
            entries = int(ends[-1] - ends[0])
            yield sp.csr_matrix(
                (data.take(entries), indices.take(entries), ends - ends[0]),
                shape=(ends.size - 1, d),
            )
            first = ends[-1:]


def rows_of_bytes(row_bytes: int) -> int:
    """Return how many rows of so many bytes make a block."""
    return max(1, BLOCK_BYTES // max(1, row_bytes))


class _Member:
    """An array in a zip archive, read from its beginning to its end."""

    def __init__(self, archive: zipfile.ZipFile, name: str) -> None:
        self._name = name
        self._file = archive.open(f"{name}.npy")
        major = np.lib.format.read_magic(self._file)
        read = np.lib.format.read_array_header_1_0
        if major != (1, 0):
            read = np.lib.format.read_array_header_2_0
        self.shape, by_columns, self._kind = read(self._file)
        if self._kind.hasobject:
            raise ValueError(f"the array {name!r} holds Python objects, which are not read")
        if by_columns and len(self.shape) > 1:
            raise ValueError(
                f"the array {name!r} is in Fortran order; save numpy.ascontiguousarray of it"
            )
        self.item_bytes = self._kind.itemsize * int(np.prod(self.shape[1:]))
        self._left = self.shape[0] if self.shape else 1

    def take(self, count: int) -> npt.NDArray[Any]:
        """Return the next entries, as many as asked for or as there are."""
        count = min(count, self._left)
        raw = self._file.read(count * self.item_bytes)
        if len(raw) != count * self.item_bytes:
            raise EOFError(f"the array {self._name!r} ends too early")
        self._left -= count
        return np.frombuffer(raw, dtype=self._kind).reshape(count, *self.shape[1:])


# parquet


class ParquetFile(TableFile):
    """Columns of numbers and a target, which may be text. Needs pyarrow."""

    def __init__(self, path: Path, wanted: Wanted) -> None:
        super().__init__(path, wanted)
        opened(path).close()
        self._file = self._opened()
        header = list(self._file.schema_arrow.names)
        target = wanted.target
        if isinstance(target, str) and target not in header and not wanted.optional:
            raise DataError(f"{path}: there is no column {target!r}: {nearest(target, header)}")
        self._columns = chosen_columns(path, header, len(header), wanted)
        self._header = header
        self.names = tuple(header[column] for column in self._columns.features)
        place = self._columns.target
        self.target = None if place is None else header[place]

    def _opened(self) -> Any:
        try:
            import pyarrow
            import pyarrow.parquet as parquet
        except ImportError:
            raise ImportError(
                f"{self.path}: reading parquet files needs pyarrow: pip install "
                "'accelegrad[parquet]'."
            ) from None
        try:
            return parquet.ParquetFile(self.path)
        except (pyarrow.ArrowException, OSError) as error:
            raise DataError(f"{self.path}: no parquet file, or a damaged one ({error}).") from None

    def blocks(self, rows: int | None) -> Iterator[Block]:
        """Yield blocks in the order of the file."""
        total = self._file.metadata.num_rows
        count = min(rows or rows_of_bytes(8 * len(self._header)), max(1, total))
        needed = [*self.names] + ([] if self.target is None else [self.target])  # type: ignore[misc]
        done = 0
        for batch in self._file.iter_batches(batch_size=count, columns=needed):
            columns = {name: self._column(batch, name, done) for name in needed}
            X = np.column_stack([self._numbers(columns[name], name) for name in self.names or ()])
            done += len(X)
            yield Block(X, None if self.target is None else columns[self.target])

    def whole(self) -> Block:
        """Return all rows."""
        parts = list(self.blocks(EVERYTHING))  # several, if the file is in row groups
        if not parts:
            raise DataError(f"{self.path}: no rows, but at least one is needed.")
        labels = [part.y for part in parts if part.y is not None]
        X = np.concatenate([part.X for part in parts])
        return Block(X, np.concatenate(labels) if labels else None)

    def _column(self, batch: Any, name: str, done: int) -> npt.NDArray[Any]:
        column = batch.column(name)
        if column.null_count:
            raise DataError(
                f"{self.path}: the column {name!r} has {column.null_count} missing values in the "
                f"rows from {done} on, but all must be given."
            )
        values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
        return values.astype(str) if values.dtype == object else values

    def _numbers(self, values: npt.NDArray[Any], name: str) -> npt.NDArray[np.float64]:
        if values.dtype.kind not in "fiub":
            raise DataError(
                f"{self.path}: the column {name!r} must hold numbers, not {values.dtype}."
            )
        return values.astype(np.float64)
