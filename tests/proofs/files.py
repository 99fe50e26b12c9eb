"""A random table in a random format with random quirks, read whole and in chunks: always the same.

`check(seed)` writes one table, reads it back in several ways, fits a small model to it by chunks
and from memory, and raises an AssertionError that names the seed and the file's kind where two of
these differ.
"""

from __future__ import annotations

import bz2
import gzip
import importlib.util
import lzma
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from accelegrad.files.formats import open_table
from accelegrad.files.streams import FileChunks
from accelegrad.files.tables import Column, DataError, Reading, Wanted
from accelegrad.sklearn import AcceleGradClassifier, AcceleGradRegressor
from accelegrad_lab.datasets import read

COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".bz2": bz2.compress,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
}
WORDS = [
    "yes",
    "no",
    "jä",
    'say "so"',
    "a, b",
    "two\nlines",
    "tab\tbed",
    "5'",
    "x y",
    "#1",
    "1.2.3",
]
LINE_ENDS = ["\n", "\n", "\r\n"]
DOUBTFUL = "may be a header or data"


@dataclass
class Table:
    """What is written, and what has to be read."""

    X: Any
    y: Any
    names: tuple[str, ...] | None = None
    target: str | None = None
    wanted: dict[str, Any] = field(default_factory=dict)
    kind: str = ""
    may_be_refused: bool = False

    @property
    def classes(self) -> bool:
        """Whether the targets are labels."""
        return self.y.dtype.kind == "U" or np.unique(self.y).size <= 3


def chance(rng: np.random.Generator, share: float = 0.5) -> bool:
    return bool(rng.random() < share)


def one_of(rng: np.random.Generator, options: Any) -> Any:
    return options[int(rng.integers(len(options)))]


# Tables


def random_table(rng: np.random.Generator, *, quarters: bool) -> Table:
    """Return rows with many zeros; sums of quarters are exact, whatever their order."""
    n, d = int(rng.integers(4, 40)), int(rng.integers(1, 6))
    X = rng.standard_normal((n, d))
    if quarters or chance(rng):
        X = np.round(4 * X) / 4
    elif chance(rng):
        X = X * 10.0 ** rng.integers(-12, 12, size=(n, d))
    X[rng.random((n, d)) < 0.4] = 0.0
    X[0, -1] = 0.75  # LIBSVM text has no other sign of the last column
    if chance(rng, 0.3):
        return Table(X, np.round(rng.standard_normal(n), 3) + np.arange(n))
    labels = rng.choice([-1.0, 1.0] if chance(rng) else [0.0, 1.0, 7.0], n)
    labels[:2] = [0.0, 1.0] if 0.0 in labels else [-1.0, 1.0]
    return Table(X, labels)


def with_text_labels(rng: np.random.Generator, table: Table) -> Table:
    """Give labels that are text, or that turn into text at some row behind the first."""
    n = len(table.y)
    if chance(rng):
        words = rng.choice(WORDS, 3, replace=False).astype(object)
        labels = rng.choice(words, n)
        labels[:2] = words[:2]
    else:
        labels = rng.choice(np.array(["1", "2"], dtype=object), n)
        labels[int(rng.integers(1, n))] = one_of(rng, WORDS)
    return replace(table, y=labels.astype(str))


def with_categories(rng: np.random.Generator, table: Table, names: list[str]) -> tuple[Any, Table]:
    """Make the first column text, and return it beside the table with its indicators."""
    words = rng.choice([word for word in WORDS if word != "two\nlines"], 3, replace=False)
    cells = rng.choice(words, len(table.y))
    seen = np.unique(cells)
    X = np.hstack([(cells[:, None] == seen).astype(float), table.X[:, 1:]])
    return cells, replace(table, X=X, names=(*(f"{names[0]}={word}" for word in seen), *names[1:]))


# LIBSVM text


def libsvm_row(rng: np.random.Generator, x: Any, target: float) -> str:
    pieces = [("+" if target > 0 and chance(rng, 0.2) else "") + repr(float(target))]
    if chance(rng, 0.1):
        pieces.append("qid:3")
    for place, value in enumerate(x):
        if value or chance(rng, 0.1):
            pieces.append(f"{'0' if chance(rng, 0.05) else ''}{place + 1}:{float(value)!r}")
    row = one_of(rng, [" ", " ", "  ", "\t"]).join(pieces)
    return row + (" # a comment: 1,2" if chance(rng, 0.1) else "")


def lines_as_bytes(rng: np.random.Generator, lines: list[str], mark: bool) -> bytes:
    """Join lines, with or without an end of the last one, and a mark of UTF-8 at the beginning."""
    end = one_of(rng, LINE_ENDS)
    text = end.join(lines) + (end if chance(rng, 0.7) else "")
    return text.encode("utf-8-sig" if mark else "utf-8")


def write_libsvm(rng: np.random.Generator, folder: Path) -> tuple[Path, Table]:
    table = random_table(rng, quarters=False)
    lines = []
    for x, target in zip(table.X, table.y, strict=True):
        while chance(rng, 0.15):
            lines.append(one_of(rng, ["", "# 1:2 a comment", "   ", "\t"]))
        lines.append(libsvm_row(rng, x, target))
    ending = one_of(rng, list(COMPRESSIONS))
    path = folder / f"table{one_of(rng, ['', '.svm', '.libsvm', '.txt'])}{ending}"
    path.write_bytes(COMPRESSIONS[ending](lines_as_bytes(rng, lines, chance(rng, 0.1))))
    return path, replace(table, wanted={"n_features": table.X.shape[1]}, kind="LIBSVM")


# CSV and TSV


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def cell(rng: np.random.Generator, text: str, separator: str) -> str:
    """Return a cell, in quotes where it has to be or by chance, with spaces where these are free."""
    if text[:1] in '"#' or any(mark in text for mark in (separator, "\n")) or chance(rng, 0.1):
        return quoted(text)
    return f" {text} " if chance(rng, 0.05) else text


def column_names(rng: np.random.Generator, width: int) -> tuple[list[str], bool]:
    """Return names of columns and the target, and whether they may be taken for numbers."""
    style = one_of(rng, ["words", "words", "counted", "odd"])
    if style == "counted":
        return [*(str(place) for place in range(width)), "t"], True
    if style == "odd":
        pool = ["a\nb", "c, d", "ü", 'e"f', "x y", "p\u2028q", "p\x85q"]
        return [*(pool[place] for place in rng.permutation(len(pool))[:width]), "the target"], False
    return [*(f"column {place}" for place in range(width)), "target"], False


def write_delimited(rng: np.random.Generator, folder: Path) -> tuple[Path, Table]:
    table = random_table(rng, quarters=False)
    if chance(rng):
        table = with_text_labels(rng, table)
    separator, format_ending = (",", ".csv") if chance(rng, 0.7) else ("\t", ".tsv")
    place = int(rng.integers(table.X.shape[1] + 1)) if chance(rng, 0.4) else table.X.shape[1]
    columns = [[repr(float(value)) for value in column] for column in table.X.T]
    is_text = table.y.dtype.kind == "U"
    columns.insert(place, table.y.tolist() if is_text else [repr(float(t)) for t in table.y])
    lines = []
    if chance(rng, 0.6):
        names, like_numbers = column_names(rng, table.X.shape[1])
        table = replace(table, names=tuple(names[:-1]), target=names[-1])
        if chance(rng, 0.4):
            cells, table = with_categories(rng, table, names[:-1])
            columns[0 if place else 1] = cells.tolist()
        table.may_be_refused = like_numbers
        header = [*names[:-1]]
        header.insert(place, names[-1])
        mark = "# " if chance(rng, 0.1) and header[0][0] not in '"#' else ""
        lines.append(
            separator.join(
                [
                    mark + cell(rng, header[0], separator).strip(),
                    *(cell(rng, name, separator) for name in header[1:]),
                ]
            )
        )
        if mark and lines[0][2] == '"':
            lines[0] = lines[0].removeprefix(mark)
    else:
        table.may_be_refused = is_text
    lines += [
        separator.join(cell(rng, text, separator) for text in row)
        for row in zip(*columns, strict=True)
    ]
    spaced: list[str] = []
    for line in lines:
        spaced += [""] * int(rng.geometric(0.85) - 1)
        spaced.append(line)
    if place != len(columns) - 1:
        table.wanted = {"target": place}
    ending = one_of(rng, list(COMPRESSIONS))
    path = folder / f"table{format_ending}{ending}"
    mark_of_utf8 = chance(rng, 0.1)
    path.write_bytes(COMPRESSIONS[ending](lines_as_bytes(rng, spaced, mark_of_utf8)))
    return path, replace(table, kind="text between " + ("commas" if separator == "," else "tabs"))


# npz and npy


def random_kind(rng: np.random.Generator, table: Table) -> Any:
    """Return the rows as an array of some type and order."""
    kind = one_of(rng, ["<f8", "<f8", ">f8", "<f4", ">f4", "<i4", ">i8", "<i2"])
    rows = table.X.astype(kind) if kind[1] == "f" else (4 * table.X).astype(kind)
    return np.asfortranarray(rows) if chance(rng) else rows


def random_targets(rng: np.random.Generator, y: Any) -> Any:
    if y.dtype.kind == "U":
        return np.char.encode(y, "utf-8") if chance(rng, 0.3) else y
    if np.array_equal(y, y.astype(np.int8)) and chance(rng):
        return y.astype(one_of(rng, ["<i8", ">i4", "i1"]))
    return y.astype(one_of(rng, ["<f8", ">f8"]))


def write_dense_npz(rng: np.random.Generator, folder: Path) -> tuple[Path, Table]:
    table = random_table(rng, quarters=True)
    if chance(rng, 0.4):
        table = with_text_labels(rng, table)
    rows = random_kind(rng, table)
    names = tuple(f"f{place}" for place in range(rows.shape[1])) if chance(rng) else None
    more = {} if names is None else {"feature_names": np.array(names)}
    if chance(rng, 0.2):
        more["other"] = np.ones(3)
    path = folder / "table.npz"
    save = np.savez_compressed if chance(rng) else np.savez
    save(path, X=rows, y=random_targets(rng, table.y), **more)
    return path, replace(table, X=rows, names=names, kind=f"npz, {rows.dtype.str}")


def split_entries(rng: np.random.Generator, table: Table) -> tuple[Any, Any, Any]:
    """Return entries in any order, some in two parts and some that are 0."""
    rows, columns = np.nonzero((table.X != 0.0) | (rng.random(table.X.shape) < 0.05))
    values = table.X[rows, columns]
    twice = rng.random(values.size) < 0.2
    rows, columns = np.append(rows, rows[twice]), np.append(columns, columns[twice])
    values = np.append(values - 2.5 * twice, np.full(twice.sum(), 2.5))
    order = rng.permutation(values.size)
    return values[order], rows[order], columns[order]


def write_sparse_npz(rng: np.random.Generator, folder: Path) -> tuple[Path, Table]:
    table = random_table(rng, quarters=True)
    if chance(rng, 0.3):
        table = with_text_labels(rng, table)
    kind = one_of(rng, ["csr", "csr", "csc", "coo", "bsr", "dia"])
    values, rows, columns = split_entries(rng, table)
    values = values.astype(one_of(rng, ["<f8", "<f4"]))
    index = one_of(rng, ["<i4", "<i8"])
    if kind == "coo":
        arrays = {"data": values, "row": rows.astype(index), "col": columns.astype(index)}
    elif kind in ("csr", "csc"):
        lines, across = (rows, columns) if kind == "csr" else (columns, rows)
        order = np.argsort(lines, kind="stable")
        count = table.X.shape[0 if kind == "csr" else 1]
        starts = np.concatenate([[0], np.cumsum(np.bincount(lines, minlength=count))])
        arrays = {"data": values[order], "indices": across[order].astype(index)}
        arrays["indptr"] = starts.astype(index)
    else:
        stored: Any = sp.csr_matrix(table.X).asformat(kind)
        parts = ("data", "offsets") if kind == "dia" else ("data", "indices", "indptr")
        arrays = {name: getattr(stored, name) for name in parts}
    arrays["format"] = kind.encode() if chance(rng) else kind
    path = folder / "table.npz"
    save = np.savez_compressed if chance(rng) else np.savez
    save(path, **arrays, shape=np.array(table.X.shape), y=random_targets(rng, table.y))
    return path, replace(table, kind=f"npz, {kind}")


def write_npy(rng: np.random.Generator, folder: Path) -> tuple[Any, Table]:
    table = random_table(rng, quarters=True)
    rows = random_kind(rng, table)
    np.save(folder / "X.npy", rows)
    np.save(folder / "y.npy", random_targets(rng, table.y))
    return (folder / "X.npy", folder / "y.npy"), replace(table, X=rows, kind="npy")


# parquet


def write_parquet(rng: np.random.Generator, folder: Path) -> tuple[Path, Table]:
    import pandas

    table = random_table(rng, quarters=True)
    if chance(rng):
        table = with_text_labels(rng, table)
    n, d = table.X.shape
    names = tuple(f"c{place}" for place in range(d))
    single = [chance(rng, 0.3) for _ in names]
    columns = {
        name: column.astype(np.float32 if small else np.float64)
        for name, column, small in zip(names, table.X.T, single, strict=True)
    }
    y = pandas.Series(table.y)
    if table.y.dtype.kind == "U" and chance(rng):
        y = y.astype("category")
    if chance(rng, 0.4):
        columns["c0"], table = with_categories(rng, table, list(names))
        names = table.names or ()
    frame = pandas.DataFrame({**columns, "target": y})
    if chance(rng):
        index = pandas.Index(rng.permutation(n), name=one_of(rng, [None, "id"]))
        frame = frame.set_axis(index)
    path = folder / "table.parquet"
    frame.to_parquet(
        path,
        index=one_of(rng, [None, True]),
        row_group_size=int(rng.integers(1, n + 1)),
        compression=one_of(rng, [None, "snappy", "gzip"]),
    )
    return path, replace(table, names=names, target="target", kind="parquet")


WRITERS = [write_libsvm, write_delimited, write_delimited, write_dense_npz, write_sparse_npz]
WRITERS += [write_npy]
if importlib.util.find_spec("pandas") and importlib.util.find_spec("pyarrow"):
    WRITERS.append(write_parquet)


# Reading


def joined(blocks: list[Any]) -> tuple[Any, Any]:
    dense = [part.X.toarray() if sp.issparse(part.X) else part.X for part in blocks]
    return np.concatenate(dense), np.concatenate([part.y for part in blocks])


def assert_same(got: tuple[Any, Any], table: Table, how: str) -> None:
    X, y = got
    assert X.shape == table.X.shape, f"{how}: shape {X.shape} in place of {table.X.shape}"
    assert np.array_equal(X, table.X), f"{how}: other features"
    assert (y.dtype.kind == "U") == (table.y.dtype.kind == "U"), f"{how}: targets are {y.dtype}"
    assert np.array_equal(y, table.y), f"{how}: other targets: {y} in place of {table.y}"
    assert X.dtype.isnative, f"{how}: features in foreign byte order"
    assert y.dtype.isnative, f"{how}: targets in foreign byte order"


def surveyed(path: Path, wanted: Wanted) -> Any:
    """Return a table whose columns are known."""
    table = open_table(path, wanted)
    table.survey()
    return table


def check_reading(rng: np.random.Generator, path: Path, table: Table) -> None:
    wanted = Wanted(**table.wanted)
    whole = open_table(path, wanted).whole()
    assert_same(joined([whole]), table, "whole")
    assert surveyed(path, wanted).names == table.names, "other names"
    if table.kind.startswith(("LIBSVM", "text")) and table.y.dtype.kind != "U":
        data = read(path, **table.wanted)
        X = data.X.toarray() if sp.issparse(data.X) else data.X
        assert_same((X, data.y), table, "datasets.read")
    n = len(table.y)
    for rows in (1, int(rng.integers(1, n + 3)), int(rng.integers(1, n + 3)), None):
        blocks = list(open_table(path, wanted).blocks(rows))
        assert_same(joined(blocks), table, f"in blocks of {rows}")
        if rows is not None:
            assert max(part.X.shape[0] for part in blocks) <= rows, f"blocks of {rows} are larger"
    if table.names is not None and table.target is not None:
        check_columns(rng, path, table)


def check_columns(rng: np.random.Generator, path: Path, table: Table) -> None:
    """Ask for some columns by name, in another order, as a model does that predicts."""
    known = surveyed(path, Wanted(**table.wanted)).columns or tuple(map(Column, table.names or ()))
    starts = np.cumsum([0, *(len(column.features) for column in known)])
    order = rng.permutation(len(known))[: int(rng.integers(1, 6))]
    wanted = Wanted(table.target, [known[place] for place in order], optional=True)
    parts = [table.X[:, starts[place] : starts[place + 1]] for place in order]
    part = replace(table, X=np.hstack(parts))
    assert_same(joined(list(open_table(path, wanted).blocks(3))), part, "columns by name")


# Fitting


def estimator(table: Table, **options: Any) -> Any:
    kind = AcceleGradClassifier if table.classes else AcceleGradRegressor
    return kind(alpha=0.1, random_state=0, **options)


def check_fitting(rng: np.random.Generator, source: Any, table: Table) -> None:
    """Fit to the chunks of a file, and to the same chunks in memory."""
    n = len(table.y)
    rows = int(rng.integers(-(-n // 4), n + 2))
    wanted = table.wanted
    X, sparse = table.X, False
    given = source
    if not isinstance(source, tuple):
        blocks = list(open_table(source, Wanted(**wanted)).blocks(rows))
        sparse = sp.issparse(blocks[0].X)
        X = X.astype(blocks[0].X.dtype)
        given = FileChunks(open_table(source, Wanted(**wanted)), rows)
    steps = {"tol": None, "max_iter": 5}
    done = estimator(table, **steps).fit(given)
    plain = estimator(table, **steps).fit((sp.csr_matrix(X) if sparse else X, table.y))
    seen = done.n_samples_seen_
    assert seen == plain.n_samples_seen_ == n, f"{seen} rows were streamed in place of {n}"
    compare_objectives(done, plain, f"streamed, {rows} rows a chunk")
    if not isinstance(source, tuple) and chance(rng, 0.25):
        short = {"tol": None, "max_iter": 20}
        fitted = estimator(table, **short).fit(*open_table(source, Wanted(**wanted)).whole())
        memory = estimator(table, **short).fit(sp.csr_matrix(X) if sparse else X, table.y)
        compare_objectives(fitted, memory, "fitted whole")


def compare_classes(first: Any, second: Any, how: str) -> None:
    if hasattr(first, "classes_"):
        same = np.array_equal(first.classes_, second.classes_)
        assert same, f"{how}: classes {first.classes_} in place of {second.classes_}"


def compare_objectives(first: Any, second: Any, how: str) -> None:
    """Compare what was found of the same minimum: each objective is within its gap of it.

    Coefficients cannot be compared after twenty quasi-Newton steps on columns whose sizes differ by
    1e24: sparse sums are taken in another order, and the steps multiply that rounding.
    """
    compare_classes(first, second, how)
    error, gap = abs(first.objective_ - second.objective_), max(first.gap_, second.gap_)
    rounding = 1e-9 * max(1.0, second.objective_)
    assert error <= gap + rounding, f"{how}: objectives differ by {error}, gaps are up to {gap}"


def check(seed: int) -> None:
    """Write, read and fit one table; an AssertionError says what differs, and for which seed."""
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        source, table = one_of(rng, WRITERS)(rng, Path(folder))
        try:
            if isinstance(source, Path):
                table = settled(source, table)
                check_reading(rng, source, table)
            check_fitting(rng, source, table)
        except Exception as error:
            raise AssertionError(f"seed {seed}, {table.kind}, {source}: {error}") from error


def settled(path: Path, table: Table) -> Table:
    """Name the target where the first line may be a header or data, or say that it is data."""
    try:
        open_table(path, Wanted(**table.wanted)).whole()
    except DataError as error:
        if not (table.may_be_refused and DOUBTFUL in str(error)):
            raise
        if table.target is not None:
            return replace(table, wanted={"target": table.target})
        return replace(table, wanted={**table.wanted, "reading": Reading(header=False)})
    return table
