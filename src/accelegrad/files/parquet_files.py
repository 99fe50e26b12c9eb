"""Parquet files as tables, read by pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from accelegrad.extras import require
from accelegrad.files.frames import FrameFile
from accelegrad.files.libsvm import opened_text
from accelegrad.files.tables import Wanted


class ParquetFile(FrameFile):
    """Columns of numbers and text; the index of a data frame, which pandas keeps, is no data."""

    def __init__(self, path: Path, wanted: Wanted) -> None:
        opened_text(path).close()
        require(f"{path}: reading Parquet files", "files")
        super().__init__(path, wanted)

    def _read_header(self) -> tuple[list[str], bool]:
        import pyarrow
        import pyarrow.parquet as parquet

        self._arrow = pyarrow
        self._damage = (pyarrow.ArrowException, OSError, ValueError, MemoryError, AttributeError)
        try:
            self._file = parquet.ParquetFile(self.path, page_checksum_verification=True)
            schema = self._file.schema_arrow
            index = (schema.pandas_metadata or {}).get("index_columns", ())
            return [str(name) for name in schema.names if name not in index], True
        except (*self._damage, TypeError) as error:
            raise self.damaged("parquet", error) from None

    def _frames(self, rows: int | None) -> Iterator[Any]:
        done = 0
        try:
            total = self._file.metadata.num_rows
            count = min(total if rows is None else rows, total)
            if rows is None or not total:
                yield self._frame(self._file.read(columns=self.header), 0)
                return
            for batch in self._file.iter_batches(count, columns=self.header):
                yield self._frame(batch, done)
                done += len(batch)
        except self._damage as error:
            raise self.damaged("parquet", error) from None

    def _frame(self, batch: Any, first_row: int) -> Any:
        """Return rows as a data frame of numbers and text, numbered on."""
        columns = {name: self._plain(batch.column(name), name) for name in self.header}
        index = self.pandas.RangeIndex(first_row, first_row + len(batch))
        return self.pandas.DataFrame(
            {name: column.to_pandas().to_numpy() for name, column in columns.items()}, index=index
        )

    def _plain(self, column: Any, name: str) -> Any:
        """Return a column without encodings: text, or numbers."""
        arrow, types, kind = self._arrow, self._arrow.types, column.type
        if types.is_dictionary(kind):
            kind = kind.value_type
            column = column.cast(kind)
        if name in self._as_text or types.is_binary(kind) or types.is_large_binary(kind):
            return column.cast(arrow.string())
        if types.is_boolean(kind):
            return column.cast(arrow.uint8())
        return column.cast(arrow.float64()) if types.is_decimal(kind) else column
