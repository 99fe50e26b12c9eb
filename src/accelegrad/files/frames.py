"""Tables with columns, read by pandas or pyarrow: numbers, categories, and a target.

A text column is one-hot encoded. The categories are learnt from the file, or come from a model;
values unknown to the model are encoded as zeros, with a warning.
"""

from __future__ import annotations

import csv
import io
import warnings
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from accelegrad.errors import nearest
from accelegrad.extras import require
from accelegrad.files.tables import (
    BLOCK_BYTES,
    Block,
    Column,
    DataError,
    TableFile,
    Targets,
    Wanted,
    few,
    opened,
)

# With more features per column than this the matrix is sparse: at most a quarter of its entries is
# not 0. Chosen.
_SPARSE_FROM = 4
# Text with a distinct value in more than every second row is a name or a date, not a category, if
# there are at least so many rows. Chosen.
_ROWS_TO_JUDGE = 20
_MISSING = ("", "?", "NA", "N/A", "n/a", "nan", "NaN", "null", "NULL", "None")
"""Cells of a first line that do not make it a header: marks of a missing number."""


class FrameFile(TableFile):
    """A file that pandas reads; columns without a name are "column 0", ..."""

    def __init__(self, path: Path, wanted: Wanted) -> None:
        super().__init__(path, wanted)
        import pandas

        self.pandas: Any = pandas
        self.header, self.has_names = self._read_header()
        for name, count in Counter(self.header).items():
            if count > 1:
                raise self.error(f"{count} columns have the same name, {name!r}")
        self._categories = {self._named(given) for given in wanted.reading.text}
        self._block_rows = max(1, BLOCK_BYTES // (8 * len(self.header)))
        self._features, target = self._chosen()
        if target is not None:
            self.target = target if self.has_names else self.header.index(target)
        self._target = [] if target is None or wanted.targets is Targets.UNUSED else [target]
        self._as_text = set(self._categories)
        if wanted.targets is Targets.TEXT:
            self._as_text.update(self._target)
        self._known: tuple[Column, ...] | None = None
        if wanted.columns is not None:
            pairs = zip(wanted.columns, self._features, strict=True)
            self._know(tuple(column._replace(name=name) for column, name in pairs))
            self._as_text |= {column.name for column in wanted.columns if column.categories}
        # Whether it is still unknown which columns are text.
        unsure_target = self._target and wanted.targets is Targets.AS_WRITTEN
        self._unsure = wanted.columns is None or bool(unsure_target)

    @abstractmethod
    def _read_header(self) -> tuple[list[str], bool]:
        """Return the names of all columns, and whether the file has them."""

    @abstractmethod
    def _frames(self, rows: int | None) -> Iterator[Any]:
        """Yield frames of so many rows (None: one) numbered from 0, with `_as_text` as str."""

    # -- which columns ---------------------------------------------------------------------------

    def _named(self, given: str | int, what: str = "column") -> str:
        width = len(self.header)
        if isinstance(given, str):
            if given in self.header and self.has_names:
                return given
            found = nearest(given, self.header) if self.has_names else "the file has no header."
            raise DataError(f"{self.path}: there is no column {given!r}: {found}")
        if isinstance(given, bool) or not -width <= given < width:
            raise self.error(
                f"the {what} is {given!r}, but the columns have the numbers 0 to {width - 1} (or "
                f"-{width} to -1, from the end)"
            )
        return self.header[given]

    def _chosen(self) -> tuple[list[str], str | None]:
        """Return the columns with features, and the target's if there is one."""
        wanted = self.wanted
        target, names = wanted.target, [column.name for column in wanted.columns or ()]
        if wanted.optional and isinstance(target, str) and target not in self.header:
            target = None  # the file has no targets
        chosen = None if target is None else self._named(target, "target")
        if names and self.has_names:
            missing = [name for name in names if name not in self.header]
            if missing:
                raise self.error(
                    f"{len(missing)} of the model's {len(names)} columns are not among those of "
                    f"the file: {few(missing)}. These are {few(self.header)}"
                )
            if chosen in names:
                raise self.error(
                    f"the target is {target!r}, but this column, {chosen!r}, is a feature of the "
                    "model"
                )
            return names, chosen
        dropped = {self._named(given) for given in wanted.reading.drop}
        rest = [name for name in self.header if name not in dropped]
        count = len(names) or wanted.n_features
        if wanted.optional and len(rest) == count:
            chosen = None
        elif chosen is None:
            chosen = rest[-1]
        features = [name for name in rest if name != chosen]
        if not features or (count is not None and len(features) != count):
            raise self.error(
                f"found {len(rest)} columns, but {count or 'some'} features and the target are "
                "needed"
            )
        if names and not wanted.by_position:
            raise self.error(
                f"the model knows its {len(names)} columns by name ({few(names)}), but the "
                f"{len(self.header)} columns have no header. If they are in the model's order, "
                "give --by-position; else put a header above"
            )
        if names and chosen is not None and isinstance(wanted.target, str):
            raise self.error(
                f"without a header it is not known which column is the target {wanted.target!r}. "
                "Give its number (--target), or leave it out of the file"
            )
        return features, chosen

    # -- what they hold --------------------------------------------------------------------------

    def _know(self, known: tuple[Column, ...]) -> None:
        self._known = known
        names = tuple(name for column in known for name in column.features)
        plain = all(column.categories is None and column.mean is None for column in known)
        self.columns = None if plain else known
        self.names = names if self.has_names or not plain else None
        self.n_features = len(names)

    def survey(self, rows: int | None = None) -> None:
        """Read the file once to learn which columns are text, their categories and their means."""
        while self._unsure:
            self._learn(self._frames(rows or self._block_rows))

    def _learn(self, frames: Iterable[Any]) -> None:
        """Learn the columns from all frames, or else which of them are to be read as text."""
        features = [] if self._known else self._features
        used = features + self._target
        counts, totals, rows = np.zeros(len(used)), np.zeros(len(used)), 0
        texts: dict[str, dict[str, int]] = {}  # values of text columns, each with its first row
        unclear = False  # booleans and huge numbers are read again as text
        for frame in frames:
            frame = self._kept(frame, used)
            rows += len(frame)
            numeric = np.array([self._is_number(kind) for kind in frame.dtypes], dtype=bool)
            array = frame.loc[:, numeric].to_numpy(np.float64)
            counts[numeric] += (~np.isnan(array)).sum(axis=0)
            totals[numeric] += np.nansum(array, axis=0)
            for name, values in frame.loc[:, ~numeric].items():
                values = values.dropna()
                if not len(values):
                    continue
                kind = self.pandas.api.types.infer_dtype(values)
                if kind not in ("string", "integer", "boolean"):
                    raise self.error(
                        f"the column {name!r} must hold numbers or text, but it holds "
                        f"{values.dtype} ({kind}). It is left out with --drop {name!r}"
                    )
                first_rows = texts.setdefault(name, {})
                unclear |= kind != "string"
                if kind == "string" and name not in self._target:
                    for row, value in values.drop_duplicates().items():
                        first_rows.setdefault(str(value), int(row))
        if not rows:
            raise self.no_rows()
        self._as_text |= set(texts)
        mixed = any(count and name in texts for name, count in zip(used, counts, strict=True))
        self._unsure = mixed or unclear
        if self._known is None and not self._unsure:
            sums = zip(features, counts.tolist(), totals.tolist(), strict=False)
            self._know(tuple(self._column(*one, texts, rows) for one in sums))

    def _column(
        self, name: str, count: float, total: float, texts: dict[str, dict[str, int]], rows: int
    ) -> Column:
        """Return a column after reading, or refuse a likely mistake."""
        filled = self.wanted.reading.missing == "mean"
        if count:
            return Column(name, None, total / count if filled else None)
        if name not in texts:
            raise self.error(
                f"the column {name!r} has no values. It is left out with --drop {name!r}"
            )
        if name not in self._categories:
            self._check_text(name, texts[name], rows)
        return Column(name, tuple(sorted(texts[name])), 0.0 if filled else None)

    def _check_text(self, name: str, first_rows: dict[str, int], rows: int) -> None:
        """Refuse text that is mistyped numbers, or no category."""
        values = self.pandas.Series(list(first_rows), dtype=object)
        like_numbers = self.parsed(values.str.replace(",", ".", regex=False)).notna().sum()
        word, hint = values[0], ""
        if 2 * like_numbers >= len(values):
            word = values[int(self.parsed(values).notna().argmin())]
            wrong = "most of its values are numbers"
            hint = (
                "Correct it, say how numbers are written (--decimal, --thousands) or which cells "
                f"are missing (--na), take its values as categories (--text {name!r}), or leave it "
                f"out (--drop {name!r})."
            )
        elif self.wanted.numbers_only:
            wrong = "it must be a number"
        elif rows >= _ROWS_TO_JUDGE and 2 * len(values) > rows:
            raise self.error(
                f"the column {name!r} has {len(values)} different texts in {rows} rows, such as "
                f"{few(values.tolist()[:2])}. Leave it out (--drop {name!r}), or take its values "
                f"as categories nevertheless (--text {name!r})"
            )
        else:
            return
        raise self.cell_error(first_rows[word], name, f"is {word[:40]!r}, but {wrong}", hint)

    # -- rows ------------------------------------------------------------------------------------

    def _blocks(self, rows: int | None) -> Iterator[Block]:
        self.survey(rows)
        return map(self._encoded, self._frames(rows or self._block_rows))

    def whole(self) -> Block:
        """Return all rows."""
        frame = next(self._frames(None))
        while self._unsure:
            self._learn([frame])
            if self._unsure:
                frame = next(self._frames(None))  # with more columns as text
        block = self._encoded(frame)
        if not block.X.shape[0]:
            raise self.no_rows()
        return block

    def _kept(self, frame: Any, names: list[str]) -> Any:
        """Return some columns, and the rows that count."""
        frame = frame if names == list(frame.columns) else frame[names]
        return frame.dropna() if self.wanted.reading.missing == "drop" else frame

    def _is_number(self, dtype: Any) -> bool:
        types = self.pandas.api.types
        return types.is_numeric_dtype(dtype) and not types.is_bool_dtype(dtype)

    def _encoded(self, frame: Any) -> Block:
        """Return features and targets of a frame, sparse with many categories."""
        columns = self._known or ()
        names = [column.name for column in columns]
        frame = self._kept(frame, names + self._target)
        y = self._labels(frame[self._target[0]]) if self._target else None
        if self.columns is None and all(self._is_number(kind) for kind in frame.dtypes[names]):
            X = np.ascontiguousarray(frame[names].to_numpy(np.float64))
            if np.isfinite(X).all():
                return Block(X, y)
        parts = [self._features_of(frame[column.name], column) for column in columns]
        if self.n_features is not None and self.n_features > _SPARSE_FROM * len(columns):
            return Block(sp.hstack(parts, format="csr"), y)
        dense = [part if isinstance(part, np.ndarray) else part.toarray() for part in parts]
        return Block(np.hstack(dense), y)

    def _features_of(self, values: Any, column: Column) -> Any:
        if column.mean is None:
            self._check_present(values)
        present = values.notna().to_numpy()
        if column.categories is None:
            numbers = np.full(present.size, column.mean, dtype=np.float64)
            numbers[present] = self._numbers(values[present])
            return numbers[:, None]
        categories = self.pandas.Index(column.categories, dtype=object)
        codes = categories.get_indexer(values.astype(object))
        found = codes >= 0
        unknown = values[present & ~found].unique()
        if len(unknown):
            warnings.warn(
                f"{self.path}: the column {column.name!r} has values that the model does not know "
                f"({few([str(value) for value in unknown])}): all its categories are 0 there.",
                UserWarning,
                stacklevel=2,
            )
        places = np.flatnonzero(found), codes[found]
        return sp.csr_matrix((np.ones(found.sum()), places), (codes.size, len(categories)))

    def _check_present(self, values: Any) -> None:
        missing, name = values.isna().to_numpy(), values.name
        hint = "Give --missing drop to leave such rows out."
        if self.wanted.columns is not None:
            hint = "The model was fitted without --missing mean, so nothing stands in for it."
        elif name not in self._target:
            hint += f" Or give --missing mean to put in the column's mean, or --drop {name!r}."
        if missing.any():
            raise self.cell_error(values.index[missing.argmax()], name, "has no value", hint)

    def _labels(self, values: Any) -> npt.NDArray[Any]:
        """Return the targets, none of which may be missing: numbers, or else text."""
        self._check_present(values)
        if self._is_number(values.dtype) or self.wanted.targets is Targets.NUMBERS:
            return self._numbers(values)
        labels: npt.NDArray[Any] = values.to_numpy(str)
        return labels

    def _numbers(self, values: Any) -> npt.NDArray[np.float64]:
        """Return a column as finite numbers, or name the first bad cell."""
        numbers = values if self._is_number(values.dtype) else self.parsed(values.astype(str))
        array: npt.NDArray[np.float64] = numbers.to_numpy(np.float64)
        if not np.isfinite(array).all():
            place = int(np.isfinite(array).argmin())
            words = f"is {str(values.iloc[place])[:40]!r}, but it must be a finite number"
            raise self.cell_error(values.index[place], values.name, words)
        return array

    def parsed(self, text: Any) -> Any:
        """Return a series of text as numbers, NaN for other text."""
        reading = self.wanted.reading
        for mark, stands_for in ((reading.thousands, ""), (reading.decimal, ".")):
            text = text.str.replace(mark, stands_for, regex=False) if mark else text
        return self.pandas.to_numeric(text, errors="coerce")

    def cell_error(self, row: int, name: str, words: str, hint: str = "") -> DataError:
        """Return the error for a cell; rows are counted from 1 without the header."""
        return DataError(
            f"{self.path}, row {row + 1}: the column {name!r} {words}. {hint}".rstrip()
        )


class CsvFile(FrameFile):
    """Text with a comma, a tab or another separator between columns."""

    def __init__(self, path: Path, wanted: Wanted, separator: str = ",") -> None:
        require(f"{path}: reading CSV files", "files", "pandas")
        self._separator = wanted.reading.sep or separator
        super().__init__(path, wanted)

    def _read_header(self) -> tuple[list[str], bool]:
        """Return the names of all columns, and whether the first line has them.

        It has if none of its cells is a number, or if it contains the target or all known columns.
        A mixed line is ambiguous: then the user has to say.
        """
        first = self._first_line()
        first[0] = first[0].lstrip("# ")  # numpy.savetxt marks the header as a comment
        known = {column.name for column in self.wanted.columns or ()}
        if len(first) < 2 and known != set(first):
            mark = next((c for c in ";\t,| " if c in first[0] and c != self._separator), None)
            hint = f". The columns seem to be separated by {mark!r}: give --sep {mark!r}"
            raise self.error(
                f"found one column, {first[0][:40]!r}, but at least one feature and the target are "
                f"needed, separated by {self._separator!r}{hint if mark else ''}"
            )
        wanted, header = self.wanted, self.wanted.reading.header
        if header is None and (wanted.target in first or (known and known <= set(first))):
            header = True
        if header is None:
            cells = self.pandas.Series(first, dtype=object)
            numbers = self.parsed(cells).notna()
            words = cells[~numbers & ~cells.isin([*(wanted.reading.na or ()), *_MISSING])].tolist()
            header = bool(words)
            if header and numbers.any():
                raise DataError(
                    f"{self.path}, line 1: this may be a header or data: the cell "
                    f"{words[0][:40]!r} is no number, but others are. If it is data, give "
                    "--no-header; if it is a header, give the name of the target column (--target)."
                )
        if not header:
            return [f"column {place}" for place in range(len(first))], False
        dropped = {place % len(first) for place in wanted.reading.drop if isinstance(place, int)}
        for place, name in enumerate(first):
            if not name and place not in dropped and not known:
                raise self.error(
                    f"column {place} has no name, like the index that pandas writes. Leave it out "
                    f"(--drop {place}), or give it a name if it is data"
                )
        return first, True

    def _first_line(self) -> list[str]:
        """Return the cells of the first nonempty line; pandas is slow for wide ones."""
        encoding = self.wanted.reading.encoding
        encoding = "utf-8-sig" if encoding == "utf-8" else encoding
        with opened(self.path) as file, self._errors():
            text = io.TextIOWrapper(file, encoding, newline="")
            lines = csv.reader(text, delimiter=self._separator, skipinitialspace=True)
            first = next((cells for cells in lines if cells not in ([], [""])), None)
            if first is None:
                raise self.no_rows()
            return [cell.strip() for cell in first]

    def _frames(self, rows: int | None) -> Iterator[Any]:
        reading = self.wanted.reading
        with self._errors():
            found = self.pandas.read_csv(
                self.path,
                sep=self._separator,
                decimal=reading.decimal,
                thousands=reading.thousands,
                encoding=reading.encoding,
                keep_default_na=reading.na is None,
                na_values=["?"] if reading.na is None else ["", *reading.na],
                index_col=False,
                skipinitialspace=True,
                low_memory=False,
                header=0 if self.has_names else None,
                names=self.header,
                dtype=dict.fromkeys(self._as_text, str),
                chunksize=rows,
            )
            with nullcontext([found]) if rows is None else found as frames:
                for frame in frames:
                    for name in frame.select_dtypes(["object", "string"]):
                        if self.pandas.api.types.infer_dtype(frame[name]) == "string":
                            frame[name] = frame[name].str.strip()
                    yield frame.copy()  # in one block: pandas is slow with wide frames in pieces

    @contextmanager
    def _errors(self) -> Iterator[None]:
        errors, encoding = self.pandas.errors, self.wanted.reading.encoding
        try:
            with warnings.catch_warnings():
                # pandas drops cells behind the last column with a mere warning.
                warnings.simplefilter("error", errors.ParserWarning)
                yield
        except UnicodeError as error:
            hint = "Give its encoding, such as --encoding latin-1"
            raise self.error(f"not text in {encoding} ({error}). {hint}") from None
        except errors.ParserWarning as error:
            raise self.error(f"rows have more cells than the first line ({error})") from None
        except Exception as error:  # of the parser, of the compression, of an unknown encoding
            raise self.damaged("CSV", error) from None


class ParquetFile(FrameFile):
    """Columns of numbers and text, without the stored index of a data frame."""

    def __init__(self, path: Path, wanted: Wanted) -> None:
        require(f"{path}: reading Parquet files", "files")
        super().__init__(path, wanted)

    def _read_header(self) -> tuple[list[str], bool]:
        import pyarrow.parquet as parquet

        try:
            self._file = parquet.ParquetFile(self.path, page_checksum_verification=True)
            schema = self._file.schema_arrow
            index = (schema.pandas_metadata or {}).get("index_columns", ())
            return [str(name) for name in schema.names if name not in index], True
        except Exception as error:  # a damaged file may raise anything
            raise self.damaged("parquet", error) from None

    def _frames(self, rows: int | None) -> Iterator[Any]:
        done, total = 0, self._file.metadata.num_rows
        try:
            if rows is None or not total:
                yield self._frame(self._file.read(columns=self.header), 0)
                return
            # An iterator keeps the pages of all its row groups until it has read the last, so each
            # gets groups of about so many rows.
            groups = range(self._file.num_row_groups)
            count = max(1, rows * len(groups) // total)
            for first in groups[::count]:
                options = {"columns": self.header, "row_groups": groups[first : first + count]}
                for batch in self._file.iter_batches(min(rows, total), **options):
                    yield self._frame(batch, done)
                    done += len(batch)
        except Exception as error:
            raise self.damaged("parquet", error) from None

    def _frame(self, batch: Any, first_row: int) -> Any:
        """Return rows as columns of numbers or objects."""
        import pyarrow as arrow

        columns, types = {}, arrow.types
        for name in self.header:
            column = batch.column(name)
            if types.is_dictionary(column.type):
                column = column.cast(column.type.value_type)
            kind = column.type
            if name in self._as_text or types.is_binary(kind) or types.is_large_binary(kind):
                column = column.cast(arrow.string())
            elif types.is_boolean(kind):
                column = column.cast(arrow.uint8())
            elif types.is_decimal(kind):
                column = column.cast(arrow.string()).cast(arrow.float64())  # once rounds wrongly
            columns[name] = column.to_pandas().to_numpy()
        index = self.pandas.RangeIndex(first_row, first_row + len(batch))
        return self.pandas.DataFrame(columns, index=index)
