"""CSV text as tables, read by pandas."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from accelegrad.extras import require
from accelegrad.files.frames import FrameFile
from accelegrad.files.libsvm import COMPRESSION_DAMAGE
from accelegrad.files.tables import DataError, Wanted, unreadable


class CsvFile(FrameFile):
    """Text with a comma, a tab or another mark between columns."""

    def __init__(self, path: Path, wanted: Wanted, separator: str = ",") -> None:
        require(f"{path}: reading CSV files", "files", "pandas")
        self._separator = wanted.reading.sep or separator
        super().__init__(path, wanted)

    def _read_header(self) -> tuple[list[str], bool]:
        """Return the names of all columns, and whether the first line has them.

        The first line is a header if none of its cells is a number, or if it has the name of the
        target or of all known columns. A line of numbers and other cells may be either: then the
        user has to say it.
        """
        cells = next(self._read(header=None, nrows=1, dtype=str, na_filter=False))
        first = [str(cell).strip() for cell in cells.iloc[0]]
        first[0] = first[0].lstrip("# ")  # numpy.savetxt marks the header as a comment
        if len(first) < 2:
            raise self._one_column(first[0])
        wanted, header = self.wanted, self.wanted.reading.header
        known = {column.name for column in wanted.columns or ()}
        if header is None and (wanted.target in first or (known and known <= set(first))):
            header = True
        if header is None:
            numbers = self.parsed(self.pandas.Series(first, dtype=object)).notna()
            marks = self.pandas.Series(first).isin([*(wanted.reading.na or ()), *_MISSING])
            header = not (numbers | marks).all()
            if header and numbers.any():
                word = first[int((numbers | marks).to_numpy().argmin())]
                raise DataError(
                    f"{self.path}, line 1: this may be a header or data: the cell {word[:40]!r} is "
                    "no number, but others are. If it is data, give --no-header; if it is a "
                    "header, give the name of the target column (--target)."
                )
        if not header:
            return [f"column {place}" for place in range(len(first))], False
        dropped = {place % len(first) for place in wanted.reading.drop if isinstance(place, int)}
        for place, name in enumerate(first):
            if not name and place not in dropped and not known:
                raise DataError(
                    f"{self.path}: column {place} has no name, like the index that pandas writes. "
                    f"Leave it out (--drop {place}), or give it a name if it is data."
                )
        return first, True

    def _one_column(self, cell: str) -> DataError:
        other = next((mark for mark in ";\t,| " if mark != self._separator and mark in cell), None)
        hint = f" The columns seem to be separated by {other!r}: give --sep {other!r}."
        return DataError(
            f"{self.path}: found one column, {cell[:40]!r}, but at least one feature and the "
            f"target are needed, separated by {self._separator!r}.{hint if other else ''}"
        )

    def _frames(self, rows: int | None) -> Iterator[Any]:
        frames = self._read(
            header=0 if self.has_names else None,
            names=self.header,
            dtype=dict.fromkeys(self._as_text, str),
            chunksize=rows,
        )
        for frame in frames:
            for name in frame.select_dtypes(["object", "string"]):
                if self.pandas.api.types.infer_dtype(frame[name]) == "string":
                    frame[name] = frame[name].str.strip()
            yield frame

    def _read(self, chunksize: int | None = None, **options: Any) -> Iterator[Any]:
        """Yield what pandas reads; its errors become a DataError."""
        reading, errors = self.wanted.reading, self.pandas.errors
        na = ["?"] if reading.na is None else ["", *reading.na]
        options |= {"keep_default_na": reading.na is None, "na_values": na}
        try:
            with warnings.catch_warnings():
                # What pandas drops silently, or nearly so: cells behind the last column.
                warnings.simplefilter("error", errors.ParserWarning)
                frames = self.pandas.read_csv(
                    self.path,
                    sep=self._separator,
                    decimal=reading.decimal,
                    thousands=reading.thousands,
                    encoding=reading.encoding,
                    index_col=False,
                    skipinitialspace=True,
                    low_memory=False,
                    chunksize=chunksize,
                    **options,
                )
                yield from [frames] if chunksize is None else frames
        except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
            raise unreadable(self.path, error) from None
        except errors.EmptyDataError:
            raise self.no_rows() from None
        except UnicodeError as error:
            raise DataError(
                f"{self.path}: not text in {reading.encoding} ({error}). Give its encoding, such "
                "as --encoding latin-1."
            ) from None
        except (LookupError, OverflowError, MemoryError, ValueError, *COMPRESSION_DAMAGE) as error:
            raise self.damaged("CSV", error) from None
        except errors.ParserWarning as error:
            raise DataError(
                f"{self.path}: rows have more cells than the first line ({error})."
            ) from None


_MISSING = ("", "?", "NA", "N/A", "n/a", "nan", "NaN", "null", "NULL", "None")
"""Cells of a first line that do not make it a header: marks of a missing number."""
