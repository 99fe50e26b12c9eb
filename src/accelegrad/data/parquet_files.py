"""Parquet files as tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from accelegrad.data.columns import Targets, Wanted, check_distinct, chosen_columns
from accelegrad.data.tables import (
    Block,
    TableFile,
    check_finite,
    checked_targets,
    no_rows,
    rows_of_bytes,
)
from accelegrad.data.text import DataError, opened
from accelegrad.extras import require


class ParquetFile(TableFile):
    """Columns of numbers and a target, which may be text. Needs pyarrow.

    The index of a data frame, which pandas keeps in columns of the file, is no data.
    """

    def __init__(self, path: Path, wanted: Wanted) -> None:
        super().__init__(path, wanted)
        opened(path).close()
        self._file = self._opened()
        header = self._columns_of_data()
        check_distinct(str(path), header)
        columns = chosen_columns(path, header, len(header), wanted)
        self._features = [header[column] for column in columns.features]
        self.names, self.n_features = tuple(self._features), len(self._features)
        self.target = self._target = None if columns.target is None else header[columns.target]

    def _opened(self) -> Any:
        require(f"{self.path}: reading parquet files", "parquet")
        import pyarrow
        import pyarrow.parquet as parquet

        self._damage = (pyarrow.ArrowException, OSError, ValueError, MemoryError)
        try:
            return parquet.ParquetFile(self.path, page_checksum_verification=True)
        except self._damage as error:
            raise self.damaged("parquet", error) from None

    def _columns_of_data(self) -> list[str]:
        """Return the names of the columns, without those of a data frame's index."""
        schema = self._file.schema_arrow
        try:
            kept = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))
            index = {entry for entry in kept.get("index_columns", ()) if isinstance(entry, str)}
        except (ValueError, AttributeError, TypeError) as error:
            raise self.damaged("parquet", error) from None
        return [str(name) for name in schema.names if name not in index]

    def blocks(self, rows: int | None) -> Iterator[Block]:
        """Yield blocks in the order of the file."""
        target = None if self.wanted.targets is Targets.UNUSED else self._target
        needed = self._features + ([] if target is None else [target])
        done = 0
        for batch in self._batches(rows, needed):
            columns = {name: self._column(batch, name, done) for name in needed}
            read = [self._numbers(columns[name], name, done) for name in self._features]
            X = np.column_stack(read)
            y = None if target is None else self._labels(columns[target], target, done)
            done += len(X)
            yield Block(X, y)
        if not done:
            raise no_rows(self.path)

    def _batches(self, rows: int | None, needed: list[str]) -> Iterator[Any]:
        try:
            total = self._file.metadata.num_rows
            count = min(rows or rows_of_bytes(8 * len(needed)), max(1, total))
            yield from self._file.iter_batches(batch_size=count, columns=needed)
        except self._damage as error:
            raise self.damaged("parquet", error) from None

    def _column(self, batch: Any, name: str, done: int) -> Any:
        column = batch.column(name)
        if column.null_count:
            raise DataError(
                f"{self.path}: the column {name!r} has {column.null_count} missing values in the "
                f"rows from {done} on, but all must be given."
            )
        # Values that come in few kinds are stored by their numbers.
        return column.dictionary_decode() if hasattr(column, "dictionary_decode") else column

    def _numbers(self, column: Any, name: str, done: int) -> npt.NDArray[np.float64]:
        values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
        if values.dtype.kind not in "fiub":
            raise DataError(
                f"{self.path}: the column {name!r} must hold numbers, not {column.type}."
            )
        check_finite(self.path, f"the column {name!r}", values, done)
        return values.astype(np.float64)

    def _labels(self, column: Any, name: str, done: int) -> npt.NDArray[Any]:
        values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
        if values.dtype == object and all(isinstance(value, (str, bytes)) for value in values):
            values = np.array(values.tolist())
        return checked_targets(self.path, f"the column {name!r}", values, self.wanted.targets, done)
