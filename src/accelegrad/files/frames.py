"""Tables with columns, as pandas reads them: numbers, text as categories, a target.

A text column makes one feature for each of its values (categories): 1 in the rows that have the
value, else 0. The categories are learnt from the file, or come from a model. A value that the model
does not know is 0 in all of them, with a warning.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from accelegrad.errors import nearest
from accelegrad.files.tables import (
    Block,
    Column,
    DataError,
    TableFile,
    Targets,
    Wanted,
    few,
    rows_of_bytes,
)

# Features are a sparse matrix where there are more than this many for each column: then at most a
# quarter of the entries is not 0. Chosen.
_SPARSE_FROM = 4
# Text with a value of its own in more than every second row is a name or a date, not a category,
# if there are at least so many rows. Chosen.
_ROWS_TO_JUDGE = 20


class FrameFile(TableFile):
    """A file that pandas reads.

    Attributes
    ----------
    header : list of str
        The names of all columns: "column 0", ... where the file has none.
    has_names : bool
        Whether the file has names.
    """

    def __init__(self, path: Path, wanted: Wanted) -> None:
        super().__init__(path, wanted)
        import pandas

        self.pandas: Any = pandas
        self.header, self.has_names = self._read_header()
        for name, count in Counter(self.header).items():
            if count > 1:
                raise DataError(f"{path}: {count} columns have the same name, {name!r}.")
        self._as_text = {self._named(given) for given in wanted.reading.text}
        self._features, target = self._chosen()
        if target is not None:
            self.target = target if self.has_names else self.header.index(target)
        self._target = None if wanted.targets is Targets.UNUSED else target
        if self._target is not None and wanted.targets is Targets.TEXT:
            self._as_text.add(self._target)
        self._known: tuple[Column, ...] | None = None
        # Whether it is not known yet which columns are text.
        self._unsure = wanted.columns is None or (
            self._target is not None and wanted.targets is Targets.AS_WRITTEN
        )
        if wanted.columns is not None:
            pairs = zip(wanted.columns, self._features, strict=True)
            self._known = tuple(column._replace(name=name) for column, name in pairs)
            self._as_text |= {column.name for column in self._known if column.categories}

    @abstractmethod
    def _read_header(self) -> tuple[list[str], bool]:
        """Return the names of all columns, and whether the file has them."""

    @abstractmethod
    def _frames(self, rows: int | None) -> Iterator[Any]:
        """Yield data frames of this many rows (None: one), with the columns of `_as_text` as str.

        Their indices are the numbers of the rows, from 0.
        """

    # -- which columns ---------------------------------------------------------------------------

    def _named(self, given: str | int, what: str = "column") -> str:
        """Return the name of a column that is given by name or number."""
        width = len(self.header)
        if isinstance(given, str):
            if given in self.header and self.has_names:
                return given
            found = nearest(given, self.header) if self.has_names else "the file has no header."
            raise DataError(f"{self.path}: there is no column {given!r}: {found}")
        if isinstance(given, bool) or not -width <= given < width:
            raise DataError(
                f"{self.path}: the {what} is {given!r}, but the columns have the numbers 0 to "
                f"{width - 1} (or -{width} to -1, from the end)."
            )
        return self.header[given]

    def _chosen(self) -> tuple[list[str], str | None]:
        """Return the names of the feature columns, in order, and of the target's."""
        wanted = self.wanted
        dropped = {self._named(given) for given in wanted.reading.drop}
        rest = [name for name in self.header if name not in dropped]
        target, names = wanted.target, [column.name for column in wanted.columns or ()]
        if wanted.optional and isinstance(target, str) and target not in self.header:
            target = None  # the file has no targets
        if names and self.has_names:
            missing = [name for name in names if name not in self.header]
            if missing:
                raise DataError(
                    f"{self.path}: {len(missing)} of the model's {len(names)} columns are not "
                    f"among those of the file: {few(missing)}. These are {few(self.header)}."
                )
            chosen = None if target is None else self._named(target, "target")
            if chosen in names:
                raise DataError(
                    f"{self.path}: the target is {target!r}, but this column, {chosen!r}, is a "
                    "feature of the model."
                )
            return names, chosen
        count = len(names) or wanted.n_features
        if wanted.optional and len(rest) == count:
            chosen = None
        else:
            chosen = rest[-1] if target is None else self._named(target, "target")
        features = [name for name in rest if name != chosen]
        if not features or (count is not None and len(features) != count):
            raise DataError(
                f"{self.path}: found {len(rest)} columns, but {count or 'some'} features and the "
                "target are needed."
            )
        if names and not wanted.by_position:
            raise DataError(
                f"{self.path}: the model knows its {len(names)} columns by name ({few(names)}), "
                f"but the {len(self.header)} columns have no header. If they are in the model's "
                "order, give --by-position; else put a header above."
            )
        if names and chosen is not None and isinstance(wanted.target, str):
            raise DataError(
                f"{self.path}: without a header it is not known which column is the target "
                f"{wanted.target!r}. Give its number (--target), or leave it out of the file."
            )
        return features, chosen

    # -- what they hold --------------------------------------------------------------------------

    @property
    def n_features(self) -> int:  # type: ignore[override]
        """The number of features; the file may be read for it."""
        return sum(len(column.features) for column in self._learnt())

    @property
    def names(self) -> tuple[str, ...] | None:  # type: ignore[override]
        """The names of the features, None where columns have none; the file may be read for it."""
        if not self.has_names and self.columns is None:
            return None
        return tuple(name for column in self._learnt() for name in column.features)

    @property
    def columns(self) -> tuple[Column, ...] | None:  # type: ignore[override]
        """What a model has to know of the columns; None where the features are the columns."""
        known = self._learnt()
        return None if all(column == Column(column.name) for column in known) else known

    def _learnt(self) -> tuple[Column, ...]:
        if self._known is None:
            self.survey()
        return self._known or ()

    def survey(self, rows: int | None = None) -> None:
        """Read the file once to learn which columns are text, their categories and their means."""
        while self._unsure:
            self._learn(self._frames(rows or self._block_rows()))

    def _learn(self, frames: Iterable[Any]) -> None:
        """Learn the columns from all frames, or else which of them are to be read as text."""
        used = [] if self._target is None else [self._target]
        used += self._features if self._known is None else []
        seen, rows = {name: _Seen(self, name) for name in used}, 0
        for frame in frames:
            frame = self._kept(frame[used])
            rows += len(frame)
            numbers = frame.select_dtypes("number")
            array = numbers.to_numpy(np.float64)
            counts, totals = (~np.isnan(array)).sum(axis=0), np.nansum(array, axis=0)
            for name, total, count in zip(numbers, totals, counts, strict=True):
                seen[name].add_numbers(total, count)
            for name in frame.columns.difference(numbers.columns, sort=False):
                seen[name].add_others(frame[name].dropna())
        if not rows:
            raise self.no_rows()
        self._as_text |= {name for name in used if seen[name].kinds - {"number"}}
        self._unsure = any(seen[name].kinds not in _CLEAR for name in used)
        if self._known is None and not self._unsure:
            self._known = tuple(seen[name].column(rows) for name in self._features)

    def _block_rows(self) -> int:
        return rows_of_bytes(8 * len(self.header))

    # -- rows ------------------------------------------------------------------------------------

    def blocks(self, rows: int | None) -> Iterator[Block]:
        """Yield blocks in the order of the file."""
        self.survey(rows)
        encoded = map(self._encoded, self._frames(rows or self._block_rows()))
        first = next((block for block in encoded if block.X.shape[0]), None)
        if first is None:
            raise self.no_rows()
        yield first
        yield from (block for block in encoded if block.X.shape[0])

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

    def _kept(self, frame: Any) -> Any:
        return frame.dropna() if self.wanted.reading.missing == "drop" else frame

    def _encoded(self, frame: Any) -> Block:
        """Return features and targets of a frame, sparse where categories are many."""
        columns = self._learnt()
        names = [column.name for column in columns]
        frame = self._kept(frame[names if self._target is None else [*names, self._target]])
        y = None if self._target is None else self._labels(frame[self._target])
        if self.columns is None and all(map(self._holds_numbers, frame[names].dtypes)):
            X = np.ascontiguousarray(frame[names].to_numpy(np.float64))
            if np.isfinite(X).all():
                return Block(X, y)
        parts = (self._part(frame[column.name], column) for column in columns)
        width = sum(len(column.features) for column in columns)
        if width > _SPARSE_FROM * len(columns):
            return Block(sp.hstack(list(parts), format="csr"), y)
        X, start = np.empty((len(frame), width)), 0
        for part in parts:
            end = start + part.shape[1]
            X[:, start:end] = part if isinstance(part, np.ndarray) else part.toarray()
            start = end
        return Block(X, y)

    def _part(self, values: Any, column: Column) -> Any:
        """Return the features that a column makes: numbers, or a sparse matrix of 0 and 1."""
        self._check_present(values, column.mean is not None)
        present = values.notna().to_numpy()
        if column.categories is None:
            numbers = np.full(present.size, column.mean, dtype=np.float64)
            numbers[present] = self._numbers(values[present])
            return numbers[:, None]
        codes = self.pandas.Index(column.categories, dtype=object).get_indexer(
            values.astype(object)
        )
        unknown = values[present & (codes < 0)].unique()
        if len(unknown):
            warnings.warn(
                f"{self.path}: the column {column.name!r} has values that the model does not know "
                f"({few([str(value) for value in unknown])}): all its categories are 0 there.",
                UserWarning,
                stacklevel=2,
            )
        found = codes >= 0
        ends = np.concatenate([[0], np.cumsum(found)])
        parts = np.ones(ends[-1]), codes[found], ends
        return sp.csr_matrix(parts, shape=(codes.size, len(column.categories)))

    def _check_present(self, values: Any, allowed: bool = False) -> None:
        missing = values.isna().to_numpy()
        if allowed or not missing.any():
            return
        name = values.name
        hint = "Give --missing drop to leave such rows out."
        if self.wanted.columns is not None:
            hint = "The model was fitted without --missing mean, so nothing stands in for it."
        elif name != self._target:
            hint += f" Or give --missing mean to put in the column's mean, or --drop {name!r}."
        raise self.cell_error(values.index[missing.argmax()], name, "has no value", hint)

    def _labels(self, values: Any) -> npt.NDArray[Any]:
        """Return the targets, none of which may be missing: numbers, or else text."""
        self._check_present(values)
        if self._holds_numbers(values.dtype) or self.wanted.targets is Targets.NUMBERS:
            return self._numbers(values)
        return np.array([str(value) for value in values], dtype=np.str_)

    def _numbers(self, values: Any) -> npt.NDArray[np.float64]:
        """Return a column as finite numbers, or name the first cell that is none."""
        numbers = values if self._holds_numbers(values.dtype) else self.parsed(values.astype(str))
        array: npt.NDArray[np.float64] = numbers.to_numpy(np.float64)
        if not np.isfinite(array).all():
            place = int(np.isfinite(array).argmin())
            cell = str(values.iloc[place])[:40]
            raise self.cell_error(
                values.index[place], values.name, f"is {cell!r}, but it must be a finite number"
            )
        return array

    def _holds_numbers(self, dtype: Any) -> bool:
        types = self.pandas.api.types
        return types.is_numeric_dtype(dtype) and not types.is_bool_dtype(dtype)

    def parsed(self, text: Any) -> Any:
        """Return a series of text as numbers, NaN where they are none."""
        reading = self.wanted.reading
        if reading.thousands:
            text = text.str.replace(reading.thousands, "", regex=False)
        if reading.decimal != ".":
            text = text.str.replace(reading.decimal, ".", regex=False)
        return self.pandas.to_numeric(text, errors="coerce")

    def cell_error(self, row: int, name: str, words: str, hint: str = "") -> DataError:
        """Return the error for a cell; rows are counted from 1 without the header."""
        return DataError(
            f"{self.path}, row {row + 1}: the column {name!r} {words}. {hint}".rstrip()
        )


# What a column may hold; else it is read again, as text in all frames.
_CLEAR = (set[str](), {"number"}, {"text"})


class _Seen:
    """What was seen of a column, frame by frame."""

    def __init__(self, table: FrameFile, name: str) -> None:
        self._table, self._name = table, name
        self.kinds: set[str] = set()
        self._first_rows: dict[str, int] = {}  # of each value of a text column
        self._total, self._count = 0.0, 0

    def add_numbers(self, total: float, count: int) -> None:
        """Take note of some rows that hold numbers: of their sum, and how many are not missing."""
        if count:
            self.kinds.add("number")
            self._total, self._count = self._total + float(total), self._count + int(count)

    def add_others(self, values: Any) -> None:
        """Take note of the values of some rows, without missing ones."""
        if not len(values):
            return
        kind = self._table.pandas.api.types.infer_dtype(values)
        if kind not in ("string", "integer", "boolean"):
            raise DataError(
                f"{self._table.path}: the column {self._name!r} must hold numbers or text, but it "
                f"holds {values.dtype} ({kind}). It is left out with --drop {self._name!r}."
            )
        # Truth values, and whole numbers beyond 64 bits, are read again as text.
        self.kinds.add("text" if kind == "string" else "unclear")
        if kind == "string" and self._name != self._table._target:
            first = values.drop_duplicates()
            for value, row in zip(first, first.index, strict=True):
                self._first_rows.setdefault(str(value), int(row))

    def column(self, rows: int) -> Column:
        """Return the column, or refuse what looks like a mistake."""
        path, name, wanted = self._table.path, self._name, self._table.wanted
        filled = wanted.reading.missing == "mean"
        if not self.kinds:
            raise DataError(
                f"{path}: the column {name!r} has no values. It is left out with --drop {name!r}."
            )
        if "number" in self.kinds:
            return Column(name, None, self._total / self._count if filled else None)
        if name not in map(self._table._named, wanted.reading.text):
            self._check_text(rows)
        return Column(name, tuple(sorted(self._first_rows)), 0.0 if filled else None)

    def _check_text(self, rows: int) -> None:
        """Refuse text that is numbers by mistake, or no category."""
        table, name, count = self._table, self._name, len(self._first_rows)
        texts = table.pandas.Series(list(self._first_rows), dtype=object)
        if 2 * table.parsed(texts.str.replace(",", ".", regex=False)).notna().sum() >= count:
            word = texts[int(table.parsed(texts).notna().argmin())]
            raise table.cell_error(
                self._first_rows[word],
                name,
                f"is {word[:40]!r}, but most of its values are numbers",
                "Correct it, say how numbers are written (--decimal, --thousands) or which cells "
                f"are missing (--na), take its values as categories (--text {name!r}), or leave it "
                f"out (--drop {name!r}).",
            )
        if table.wanted.numbers_only:
            raise table.cell_error(
                self._first_rows[texts[0]], name, f"is {texts[0][:40]!r}, but it must be a number"
            )
        if rows >= _ROWS_TO_JUDGE and 2 * count > rows:
            raise DataError(
                f"{table.path}: the column {name!r} has {count} different texts in {rows} rows, "
                f"such as {few(texts.tolist()[:2])}. Leave it out (--drop {name!r}), or take its "
                f"values as categories nevertheless (--text {name!r})."
            )
