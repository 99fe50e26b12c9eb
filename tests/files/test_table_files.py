"""Tables in files: what a first line is, which column is which, and the same rows whole or in blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from accelegrad.files.datasets import DataError, read
from accelegrad.files.formats import open_table
from accelegrad.files.streams import FileChunks
from accelegrad.files.tables import Targets, Wanted
from accelegrad.sklearn import AcceleGradClassifier, AcceleGradRegressor

RNG = np.random.default_rng(9)
X = RNG.standard_normal((40, 3)).round(3)
X[RNG.random(X.shape) < 0.4] = 0.0
Y = np.where(X[:, 0] + 0.1 * RNG.standard_normal(40) > 0, 1.0, -1.0)
SIZES = [1, 2, 3, 7, 40, 1000, None]


def written(folder: Path, text: str | bytes, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def together(path: Path, rows: int | None, **wanted: Any) -> tuple[Any, Any]:
    """All blocks of a file as one table."""
    blocks = list(open_table(path, Wanted(**wanted)).blocks(rows))
    dense = [part.X.toarray() if sp.issparse(part.X) else part.X for part in blocks]
    labels = [part.y for part in blocks if part.y is not None]
    return np.concatenate(dense), np.concatenate(labels) if labels else None


def refused(path: Path, *parts: str, rows: int | None = None, **wanted: Any) -> str:
    """The message, which names the file and has all the parts."""
    with pytest.raises(DataError) as caught:
        together(path, rows, **wanted)
    message = str(caught.value)
    assert message.startswith(str(path))
    for part in parts:
        assert part in message, message
    return message


# The first line of a CSV file: names or numbers


HEADERS = [
    "a,b,t\n1,2,0\n3,4,1\n",
    "0,1,t\n1,2,0\n3,4,1\n",  # pandas' names for columns without names
    "t,0,1\n1,2,0\n3,4,1\n",
    "2019,2020,change\n1,2,0\n3,4,1\n",
    "0,b,1\n1,2,0\n3,4,1\n",
    "a,b,t\n1,2,no\n3,4,yes\n",
    "0,b,1\n1,2,no\n3,4,yes\n",
    ",b,t\n1,2,0\n3,4,1\n",
    "# a,b,t\n1,2,0\n3,4,1\n",
    "\n\na,b,t\n\n1,2,0\n3,4,1\n",
    '"a\n\nb",b,t\n1,2,0\n3,4,1\n',
    "a\x85\u2028,b,t\n1,2,0\n3,4,1\n",
    "a,b,t\n",
]
NO_HEADERS = [
    "1,2,0\n3,4,1\n",
    "0,1,2\n3,4,1\n",
    "1,2,no\n3,4,yes\n",
    "1,2,no\n3,4,1\n5,6,no\n",
    "1.5,2,no\n3,4,yes\n",
    "0,1,no\n3,4,yes\n2,2,no\n",
    "1,2,0\n",
]


@pytest.mark.parametrize("text", HEADERS)
def test_a_first_line_of_names(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)
    assert open_table(path).names is not None
    if text.count("\n") > 1:
        for rows in (1, 2, 5, None):
            np.testing.assert_array_equal(together(path, rows)[0], [[1, 2], [3, 4]])


@pytest.mark.parametrize("text", NO_HEADERS)
def test_a_first_line_of_data(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)
    assert open_table(path).names is None
    for rows in (1, 2, None):
        assert together(path, rows)[0].shape == (len(text.split()), 2)


def test_pandas_names_with_text_labels(tmp_path: Path) -> None:
    rows = "".join(f"{i},{i}.5,{i % 3},{'ab'[i % 2]}\n" for i in range(30))
    table = open_table(written(tmp_path, "0,1,2,t\n" + rows))
    assert (table.names, table.target) == (("0", "1", "2"), "t")
    np.testing.assert_array_equal(np.unique(table.whole().y), ["a", "b"])


def test_pandas_round_trip(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas writes the files")
    frame = pandas.DataFrame(X).assign(t=Y)
    frame.to_csv(tmp_path / "table.csv", index=False)
    for rows in SIZES:
        got, labels = together(tmp_path / "table.csv", rows)
        np.testing.assert_array_equal(got, X)
        np.testing.assert_array_equal(labels, Y)
    data = read(tmp_path / "table.csv")
    np.testing.assert_array_equal(data.X, X)


def test_a_target_by_name_makes_a_header_of_numbers(tmp_path: Path) -> None:
    path = written(tmp_path, "10,20,30\n1,2,0\n3,4,1\n")
    np.testing.assert_array_equal(together(path, None, target="30")[0], [[1, 2], [3, 4]])
    np.testing.assert_array_equal(read(path, target="10").y, [1, 3])
    names = ("20", "10")
    got, labels = together(path, 1, target="30", features=names, n_features=2, optional=True)
    np.testing.assert_array_equal(got, [[2, 1], [4, 3]])
    np.testing.assert_array_equal(labels, [0, 1])


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("0.5,x\n3,4\n5,6\n", "'x'"),  # names like 0.5, or a wrong label?
        ("-1,2,x\n3,4,0\n", "'x'"),
        ("1.5,b,t\n3,4,0\n", "'b'"),
        ("0,setosa\n1,other\n2,more\n", "'setosa'"),
        ("0,1,setosa\n1,4,other\n2,5,other\n", "'setosa'"),
    ],
)
def test_a_first_line_that_may_be_either_is_refused(tmp_path: Path, text: str, cell: str) -> None:
    path = written(tmp_path, text)
    message = refused(path, "line 1", cell, "target")
    with pytest.raises(DataError, match="line 1"):
        read(path)
    # As the message says: the target's name, or a header above.
    assert "header" in message
    last = text.split("\n")[0].split(",")[-1]
    assert open_table(path, Wanted(last)).names is not None
    names = ",".join("abc"[: text.split("\n")[0].count(",")]) + ",target\n"
    if cell != "'b'":
        table = open_table(written(tmp_path, names + text))
        assert table.whole().X.shape[0] == text.count("\n")


@pytest.mark.parametrize("mark", ["?", "NA", "n/a", "NULL", "none", "-", "."])
def test_a_missing_value_makes_no_header(tmp_path: Path, mark: str) -> None:
    path = written(tmp_path, f"1,{mark},0\n2,3,1\n")
    refused(path, "line 1", "column 2", mark)
    with pytest.raises(DataError, match=r"line 1.*column 2"):
        read(path)


def test_a_line_taken_for_a_header_because_of_its_label_is_no_lost_row(tmp_path: Path) -> None:
    # The labels are text after all: the first line may be a row.
    rows = "".join(f"{i},{i % 5},{i % 2}\n" for i in range(30))
    path = written(tmp_path, "7,8,xyz\n" + rows + "1,2,abc\n")
    for size in (1, 4, None):
        refused(path, "line 1", "'xyz'", "line 32", "'abc'", rows=size)


def test_a_name_that_comes_twice(tmp_path: Path) -> None:
    path = written(tmp_path, "a,b,a,t\n1,2,3,0\n4,5,6,1\n")
    refused(path, "line 1", "'a'", "columns 1 and 3")
    refused(path, "'a'", target="t", features=("a", "b"), n_features=2, optional=True)
    with pytest.raises(DataError, match=r"line 1.*'a'"):
        read(path, target=3)
    refused(written(tmp_path, "a, a,t\n1,2,3\n"), "'a'")
    refused(written(tmp_path, ",,t\n1,2,3\n"), "''")
    np.savez(tmp_path / "table.npz", X=X, y=Y, feature_names=["a", "b", "a"])
    refused(tmp_path / "table.npz", "'a'")
    refused(written(tmp_path, "a,b\n1,2\n"), "'a'", features=("a", "b", "a"), optional=True)


def test_the_index_that_pandas_writes_is_no_feature(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas writes the files")
    frame = pandas.DataFrame(X, columns=list("abc")).assign(t=Y)
    frame.to_csv(tmp_path / "table.csv")
    refused(tmp_path / "table.csv", "line 1", "index=False")
    refused(tmp_path / "table.csv", "index=False", target="t")
    with pytest.raises(DataError, match="index=False"):
        read(tmp_path / "table.csv")
    # A model that knows its columns does not care for others.
    known = {"target": "t", "features": ("c", "a"), "n_features": 2, "optional": True}
    np.testing.assert_array_equal(together(tmp_path / "table.csv", 7, **known)[0], X[:, [2, 0]])
    # Numbers that do not count the rows are data.
    path = written(tmp_path, ",b,t\n0,2,0\n2,4,1\n")
    np.testing.assert_array_equal(together(path, None)[0], [[0, 2], [2, 4]])


# Columns by number


def test_numbers_of_columns_are_checked(tmp_path: Path) -> None:
    path = written(tmp_path, "a,b,t\n1,2,0\n3,4,1\n")
    for target in (3, 7, -4):
        refused(path, f"target is {target}", "0 to 2", target=target, features=("a", "b"))
    refused(path, "'b'", "feature", target=1, features=("a", "b"))


def test_a_target_that_has_no_name_keeps_its_place(tmp_path: Path) -> None:
    path = written(tmp_path, "0,1,2\n1,3,4\n")
    assert open_table(path, Wanted(0)).target == 0
    assert open_table(path, Wanted(-1)).target == 2
    assert open_table(path).target == 2


def test_without_a_header_a_named_target_is_not_guessed(tmp_path: Path) -> None:
    path = written(tmp_path, "1,2,0\n3,4,1\n")
    known = {"features": ("a", "b"), "n_features": 2, "optional": True}
    refused(path, "'a', 'b'", "no header", "--by-position", target=0, **known)
    known["by_position"] = True
    refused(path, "no header", "'t'", target="t", **known)
    np.testing.assert_array_equal(together(path, None, target=0, **known)[0], [[2, 0], [4, 1]])


# Quotes


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('a,b,t\n1,2,"0\n', 2),
        ('1,2,0\n3,4,"1', 2),
        ('1,2,0\n"3,4,1\n5,6,1\n', 2),
        ('1,2,no\n3,4,"yes\n', 2),
        ('a,b,"t\n1,2,3\n', 1),
        ('1,2,0\n3,4,""1""\n', 2),
        ('1,2,0\n3,"4"5,1\n', 2),
        ('1,2,0\n3,"4" ,1\n', 2),
    ],
)
def test_a_wrong_quote_is_named(tmp_path: Path, text: str, line: int) -> None:
    path = written(tmp_path, text)
    for rows in (1, 2, None):
        refused(path, f"line {line}: ", "quot", rows=rows)
    with pytest.raises(DataError, match=f"line {line}: .*quot"):
        read(path)


def test_a_quote_that_never_ends_is_not_read_to_the_end(tmp_path: Path) -> None:
    text = "1,2,0\n" * 10 + '1,2,"0\n' + "1,2,0\n" * 60_000
    refused(written(tmp_path, text), "line 11: ", "quot", rows=5)


def test_line_breaks_in_quotes_at_every_border(tmp_path: Path) -> None:
    labels = ['"a\nb"', '"a\n\n\nb"', '"c ""d"", e"', '"\n"', "plain", '"a,\nb"', 'x"y']
    lines = [f"{i},{i}.5,{labels[i % 7] if i % 7 != 3 else 'q'}" for i in range(30)]
    path = written(tmp_path, '"x\n1","y,",t\n' + "\n".join(lines))
    whole = together(path, None)
    assert set(whole[1]) == {"a\nb", "a\n\n\nb", 'c "d", e', "q", "plain", "a,\nb", 'x"y'}
    assert whole[0].shape == (30, 2)
    for rows in range(1, 12):
        got = together(path, rows)
        np.testing.assert_array_equal(got[0], whole[0])
        np.testing.assert_array_equal(got[1], whole[1])


# Labels


@pytest.mark.parametrize("place", [0, 3, 20, 39])
def test_labels_that_turn_into_text(tmp_path: Path, place: int) -> None:
    labels = ["1", "2"] * 20
    labels[place] = "xyz"
    rows = [",".join([*map(repr, x.tolist()), t]) for x, t in zip(X, labels, strict=True)]
    path = written(tmp_path, "a,b,c,t\n" + "\n".join(rows))
    for size in SIZES:
        np.testing.assert_array_equal(together(path, size)[1], labels)
    for done in (
        AcceleGradClassifier().fit(FileChunks(open_table(path), 6)),
        AcceleGradClassifier().fit(*open_table(path).whole()),
    ):
        np.testing.assert_array_equal(done.classes_, ["1", "2", "xyz"])
    refused(path, f"line {place + 2}", "'xyz'", "number", targets=Targets.NUMBERS, rows=6)
    with pytest.raises(DataError, match=f"line {place + 2}: .*'xyz'"):
        AcceleGradRegressor().fit(FileChunks(open_table(path, Wanted(targets=Targets.NUMBERS)), 6))


@pytest.mark.parametrize("cell", ["nan", "inf", "-Infinity", "1e999"])
def test_a_label_that_is_not_finite_is_no_class(tmp_path: Path, cell: str) -> None:
    path = written(tmp_path, f"a,t\n1,0\n2,1\n3,{cell}\n4,0\n")
    for rows in (1, 2, None):
        refused(path, "line 4", f"'{cell}'", "finite", rows=rows)


def test_an_empty_label(tmp_path: Path) -> None:
    for text in ("a,t\n1,x\n2,\n3,y\n", "a,t\n1,0\n2,\n3,y\n", "a,t\n1,0\n2,\n3,1\n"):
        for rows in (1, 2, None):
            refused(written(tmp_path, text), "line 3", "missing", rows=rows)


# Lines


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("name", ["table.csv", "table.svm"])
def test_line_ends(tmp_path: Path, end: str, name: str) -> None:
    lines = ["1,2,0", "3,4,1", "", "5,6,0"] if name == "table.csv" else ["1 1:2", "0 2:3", "", "1"]
    path = written(tmp_path, end.join(lines), name)
    assert len(list(open_table(path, Wanted(n_features=2)).blocks(1))) == 3
    bad = "1,2,0,9" if name == "table.csv" else "1 2:x"
    path = written(tmp_path, end.join([*lines, bad, "1"]), name)
    for rows in (1, 3, None):
        refused(path, "line 5", rows=rows, n_features=2)


def test_a_carriage_return_at_the_end_of_a_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from accelegrad.data import text_blocks

    path = written(tmp_path, "\r\n".join(f"{i},{i % 7}" for i in range(50)))
    for piece in range(1, 12):
        monkeypatch.setattr(text_blocks, "PIECE", piece)
        for rows in (1, 4, 1000):
            blocks = list(open_table(path).blocks(rows))
            np.testing.assert_array_equal(np.concatenate([b.X for b in blocks])[:, 0], range(50))
            assert len(blocks) == -(-50 // rows)


@pytest.mark.parametrize("name", ["table.csv", "table.svm"])
def test_a_nul_byte_anywhere(tmp_path: Path, name: str) -> None:
    row = b"1,2,0\n" if name == "table.csv" else b"1 1:2\n"
    path = written(tmp_path, row * 40 + row[:3] + b"\0" + row[3:] + row, name)
    for rows in (5, None):
        refused(path, "line 41", "NUL", rows=rows, n_features=2)


def test_bytes_that_are_no_text_are_named_by_their_line(tmp_path: Path) -> None:
    path = written(tmp_path, b"a,t\n" + b"1,2\n" * 40 + b"1,\xe9\n")
    for rows in (5, None):
        refused(path, "line 42", "UTF-8", rows=rows)


def test_blank_lines_before_the_header(tmp_path: Path) -> None:
    path = written(tmp_path, "\n" * 50 + "a,b,t\n1,2,0\n3,4,1\n")
    for rows in (1, 7, None):
        np.testing.assert_array_equal(together(path, rows)[0], [[1, 2], [3, 4]])


@pytest.mark.parametrize("rows", [1, 3, None])
def test_no_rows(tmp_path: Path, rows: int | None) -> None:
    np.savez(tmp_path / "table.npz", X=X[:0], y=Y[:0])
    empty = sp.csr_matrix(X[:0])
    parts = {name: getattr(empty, name) for name in ("data", "indices", "indptr", "shape")}
    np.savez(tmp_path / "sparse.npz", **parts, y=Y[:0])
    for name in ("table.npz", "sparse.npz"):
        refused(tmp_path / name, "at least one", rows=rows)
        with pytest.raises(DataError, match="at least one"):
            open_table(tmp_path / name).whole()
    refused(written(tmp_path, "a,t\n"), "at least one", rows=rows)


def test_tabs_between_columns(tmp_path: Path) -> None:
    path = written(tmp_path, 'a\tb, c\tt\n1\t2\t"x\ty"\n3\t4\tz\n', "table.tsv")
    table = open_table(path)
    assert table.names == ("a", "b, c")
    assert table.whole().y.tolist() == ["x\ty", "z"]
    np.testing.assert_array_equal(together(path, 1)[0], [[1, 2], [3, 4]])
    assert read(written(tmp_path, "1\t2\n", "table.tsv")).X.tolist() == [[1.0]]
    refused(written(tmp_path, "1,2\n", "table.tsv"), "one column", "','")


# npz


def sparse_arrays(stored: Any) -> dict[str, Any]:
    """What `scipy.sparse.save_npz` writes."""
    names = ("data", "indices", "indptr", "row", "col", "offsets", "shape")
    return {name: getattr(stored, name) for name in names if hasattr(stored, name)}


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia"])
@pytest.mark.parametrize("compressed", [False, True])
def test_every_sparse_format(tmp_path: Path, kind: str, compressed: bool) -> None:
    path = tmp_path / "table.npz"
    stored = sp.csr_matrix(X).asformat(kind)
    save = np.savez_compressed if compressed else np.savez
    save(path, **sparse_arrays(stored), format=kind.encode(), y=Y)
    for rows in SIZES:
        got, labels = together(path, rows)
        np.testing.assert_array_equal(got, X)
        np.testing.assert_array_equal(labels, Y)
    for made in (stored, sp.csr_array(X).asformat(kind)):
        sp.save_npz(path, made, compressed)
        for rows in SIZES:
            got, labels = together(path, rows, n_features=3, optional=True)
            np.testing.assert_array_equal(got, X)
            assert labels is None
    assert sp.issparse(next(open_table(path, Wanted(optional=True)).blocks(5)).X)


def test_a_sparse_format_that_is_not_known(tmp_path: Path) -> None:
    arrays = sparse_arrays(sp.csr_matrix(X))
    np.savez(tmp_path / "table.npz", **arrays, format="lil", y=Y)
    refused(tmp_path / "table.npz", "'lil'", "csc")
    np.savez(tmp_path / "table.npz", data=X, format="dia", shape=[40, 3], y=Y)
    refused(tmp_path / "table.npz", "offsets")
    np.savez(tmp_path / "table.npz", data=X[0], format="coo", coords=X, shape=[40, 3], y=Y)
    refused(tmp_path / "table.npz", "row")


def test_duplicates_and_unsorted_indices(tmp_path: Path) -> None:
    path = tmp_path / "table.npz"
    arrays = {"data": [1.0, 2.0, 3.0, 4.0], "indices": [2, 0, 2, 1], "indptr": [0, 3, 3, 4]}
    wanted = [[2.0, 0.0, 4.0], [0.0, 0.0, 0.0], [0.0, 4.0, 0.0]]
    np.savez(path, **arrays, shape=[3, 3], y=[1.0, 2.0, 3.0])
    for rows in (1, 2, None):
        np.testing.assert_array_equal(together(path, rows)[0], wanted)
        for block in open_table(path).blocks(rows):
            assert block.X.has_canonical_format
    places = {"row": [0, 2, 0, 0], "col": [2, 1, 2, 0], "data": [1.0, 4.0, 3.0, 2.0]}
    np.savez(path, **places, shape=[3, 3], y=[1.0, 2.0, 3.0], format="coo")
    for rows in (1, 2, None):
        np.testing.assert_array_equal(together(path, rows)[0], wanted)


WRONG_INDICES = {
    "a column out of range": {"indices": [2, 0, 3, 1]},
    "a negative column": {"indices": [2, 0, -1, 1]},
    "columns that are no whole numbers": {"indices": [2.0, 0.0, 1.0, 1.0]},
    "too few columns": {"indices": [2, 0, 1]},
    "rows that go back": {"indptr": [0, 3, 2, 4]},
    "rows that begin late": {"indptr": [1, 3, 3, 4]},
    "rows that end early": {"indptr": [0, 1, 2, 3]},
    "rows that end late": {"indptr": [0, 3, 3, 5]},
    "too few rows": {"indptr": [0, 3, 4]},
    "too many rows": {"indptr": [0, 3, 3, 3, 4]},
    "rows in a matrix": {"indptr": [[0, 3, 3, 4]]},
    "data that are no numbers": {"data": ["a", "b", "c", "d"]},
    "data in a matrix": {"data": [[1.0, 2.0, 3.0, 4.0]]},
}


@pytest.mark.parametrize("name", WRONG_INDICES)
def test_indices_that_do_not_fit(tmp_path: Path, name: str) -> None:
    path = tmp_path / "table.npz"
    right = {"data": [1.0, 2.0, 3.0, 4.0], "indices": [2, 0, 1, 1], "indptr": [0, 3, 3, 4]}
    arrays = {**right, **WRONG_INDICES[name]}
    for kind in ("csr", "csc"):
        np.savez(path, **arrays, shape=[3, 3], y=[1.0, 2.0, 3.0], format=kind)
        for rows in (1, 2, None):
            refused(path, rows=rows)


def test_places_out_of_range(tmp_path: Path) -> None:
    path = tmp_path / "table.npz"
    for changes in ({"row": [0, 3]}, {"row": [-1, 0]}, {"col": [0, 2]}, {"col": [0.0, 1.0]}):
        arrays = {"row": [0, 1], "col": [0, 1], "data": [1.0, 2.0], **changes}
        np.savez(path, **arrays, shape=[3, 2], format="coo", y=[1.0, 2.0, 3.0])
        refused(path)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("kind", ["<f8", ">f8", "<f4", ">f4", "<i4", ">i2", "?"])
def test_arrays_of_any_order_and_type(tmp_path: Path, kind: str, compressed: bool) -> None:
    save = np.savez_compressed if compressed else np.savez
    rows = (10 * X).astype(kind)
    for array in (np.asfortranarray(rows), rows, np.asfortranarray(rows)[::2]):
        save(tmp_path / "table.npz", X=array, y=Y[: len(array)].astype(">f4"))
        for size in SIZES:
            got, labels = together(tmp_path / "table.npz", size)
            np.testing.assert_array_equal(got, array)
            np.testing.assert_array_equal(labels, Y[: len(array)])
            assert got.dtype.isnative
            assert labels.dtype.isnative
            assert got.dtype == array.dtype.newbyteorder("=")


def test_bytes_as_labels_are_text(tmp_path: Path) -> None:
    labels = np.where(Y > 0, "jä", "no")
    np.savez(tmp_path / "table.npz", X=X, y=np.char.encode(labels, "utf-8"))
    np.testing.assert_array_equal(together(tmp_path / "table.npz", 6)[1], labels)


@pytest.mark.parametrize("wrong", [X.astype(str), X + 1j, X.astype("M8[s]"), X[0], X[None]])
def test_features_that_are_no_numbers(tmp_path: Path, wrong: Any) -> None:
    np.savez(tmp_path / "table.npz", X=wrong, y=Y)
    refused(tmp_path / "table.npz", "X")


def test_targets_of_npz_are_checked(tmp_path: Path) -> None:
    np.savez(tmp_path / "table.npz", X=X, y=np.where(Y > 0, "yes", "no"))
    refused(tmp_path / "table.npz", "y", "numbers", targets=Targets.NUMBERS)
    refused(tmp_path / "table.npz", "target is 2", target=2)
    np.savez(tmp_path / "table.npz", X=X, y=Y.astype("M8[s]"))
    refused(tmp_path / "table.npz", "y")


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_named_by_their_row(tmp_path: Path, wrong: float) -> None:
    path = tmp_path / "table.npz"
    for place in (0, 25):
        bad_rows, bad_targets = X.copy(), Y.copy()
        bad_rows[place, 1] = bad_targets[place] = wrong
        for rows in (None, 10):
            for array in (bad_rows, bad_rows.astype(np.float32)):
                np.savez(path, X=array, y=Y)
                refused(path, f"row {place}", str(wrong), "X", rows=rows)
            np.savez(path, X=X, y=bad_targets)
            refused(path, f"row {place}", str(wrong), "y", rows=rows)
            for kind in ("csr", "csc", "coo"):
                np.savez(
                    path, **sparse_arrays(sp.csr_matrix(bad_rows).asformat(kind)), y=Y, format=kind
                )
                refused(path, f"row {place}", str(wrong), "X", rows=rows)


# parquet


def parquet_file(path: Path, frame: Any, **options: Any) -> Path:
    pytest.importorskip("pyarrow", reason="the extra parquet is not installed")
    frame.to_parquet(path, **options)
    return path


def test_the_index_of_pandas_is_no_column(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas writes the files")
    frame = pandas.DataFrame(X, columns=list("abc")).assign(t=Y)
    indices = [
        pandas.RangeIndex(40),
        pandas.Index(np.arange(40) * 2),
        pandas.Index([f"row {i}" for i in range(40)], name="id"),
        pandas.MultiIndex.from_arrays([np.arange(40), np.arange(40) % 3], names=["id", None]),
    ]
    for index in indices:
        path = parquet_file(tmp_path / "table.parquet", frame.set_axis(index), index=True)
        table = open_table(path)
        assert (table.names, table.target) == (("a", "b", "c"), "t")
        for rows in SIZES:
            got, labels = together(path, rows)
            np.testing.assert_array_equal(got, X)
            np.testing.assert_array_equal(labels, Y)


def test_names_that_come_twice_in_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="the extra parquet is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table([X[:, 0], X[:, 1], Y], names=["a", "a", "t"])
    parquet.write_table(table, tmp_path / "table.parquet")
    refused(tmp_path / "table.parquet", "'a'", "columns 1 and 2")


def test_kinds_of_parquet_columns(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="the extra parquet is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "table.parquet"
    words = np.where(Y > 0, "jä", "no").tolist()
    for kind in (pyarrow.string(), pyarrow.large_string(), pyarrow.binary()):
        labels = pyarrow.array(words).cast(kind)
        for column in (labels, labels.dictionary_encode()):
            columns = {"a": X[:, 0], "b": Y > 0, "c": X[:, 1].astype(np.float32), "t": column}
            parquet.write_table(pyarrow.table(columns), path, row_group_size=9)
            for rows in SIZES:
                got, labels_read = together(path, rows)
                np.testing.assert_array_equal(labels_read, words)
                np.testing.assert_array_equal(got[:, 1], Y > 0)
    lists = pyarrow.array([[1.0, 2.0]] * 40)
    for wrong in (lists, pyarrow.array(words), pyarrow.array(np.arange(40).astype("M8[s]"))):
        parquet.write_table(pyarrow.table({"a": wrong, "t": Y}), path)
        refused(path, "'a'", "numbers")
    parquet.write_table(pyarrow.table({"a": Y, "t": lists}), path)
    refused(path, "'t'")
    parquet.write_table(pyarrow.table({"a": Y, "t": words}), path)
    refused(path, "'t'", "numbers", targets=Targets.NUMBERS)
    late = np.append(np.ones(30), [np.nan] * 10)
    for name in ("a", "t"):
        parquet.write_table(pyarrow.table({"a": Y, "t": Y, name: late}).select(["a", "t"]), path)
        refused(path, f"'{name}'", "row 30", "nan", rows=7)
    parquet.write_table(pyarrow.table({"a": Y[:0], "t": Y[:0]}), path)
    refused(path, "at least one")


def test_damaged_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="the extra parquet is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "table.parquet"
    parquet.write_table(pyarrow.table({"a": X[:, 0], "t": Y}), path, write_page_checksum=True)
    whole, right = path.read_bytes(), together(path, 7)
    rng = np.random.default_rng(1)
    noticed = 0
    for place, bit in enumerate(rng.integers(8, size=len(whole))):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(bit)
        path.write_bytes(bytes(damaged))
        try:
            got, message = together(path, 7), str(path)
        except DataError as error:
            got, message = right, str(error)
            noticed += 1
        assert message.startswith(str(path))
        # Names and numbers of rows are not part of any checksum.
        assert got[0].shape[1] == right[0].shape[1]
    assert noticed > len(whole) // 4


# Whole files that are read in several blocks


@pytest.mark.parametrize("place", [None, 0, 39])
def test_a_whole_csv_file_of_several_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int | None
) -> None:
    from accelegrad.data import text_blocks

    labels = ["1", "2"] * 20
    if place is not None:
        labels[place] = "xyz"
    rows = [",".join([*map(repr, x.tolist()), t]) for x, t in zip(X, labels, strict=True)]
    path = written(tmp_path, "a,b,c,t\n" + "\n".join(rows))
    monkeypatch.setattr(text_blocks, "BLOCK_BYTES", 200)
    monkeypatch.setattr(text_blocks, "PIECE", 50)
    assert len(list(open_table(path).blocks(None))) > 3
    got, found = open_table(path).whole()
    np.testing.assert_array_equal(got, X)
    expected = [1.0, 2.0] * 20 if place is None else labels
    np.testing.assert_array_equal(found, expected)
    assert found.dtype.kind == ("f" if place is None else "U")


def test_a_whole_libsvm_file_of_several_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from accelegrad.data import text_blocks

    # Blocks have fewer columns at first than later.
    lines = [f"{i} {1 + i // 4}:{i}.5 {2 + i // 4}:1" for i in range(40)]
    path = written(tmp_path, "\n".join(lines), "table.svm")
    once = read(path)
    monkeypatch.setattr(text_blocks, "BLOCK_BYTES", 100)
    monkeypatch.setattr(text_blocks, "PIECE", 30)
    assert len(list(open_table(path).blocks(None))) > 3
    again = read(path)
    assert again.X.has_canonical_format
    assert again.X.indices.dtype == once.X.indices.dtype
    np.testing.assert_array_equal(again.X.toarray(), once.X.toarray())
    np.testing.assert_array_equal(again.y, np.arange(40.0))


def test_read_takes_every_format(tmp_path: Path) -> None:
    np.savez(tmp_path / "dense.npz", X=X.astype(np.float32), y=Y.astype(int))
    dense = read(tmp_path / "dense.npz")
    assert (dense.name, dense.X.dtype, dense.y.dtype) == ("dense", np.float64, np.float64)
    np.testing.assert_array_equal(dense.X, X.astype(np.float32))
    np.savez(tmp_path / "sparse.npz", **sparse_arrays(sp.csc_matrix(X)), format="csc", y=Y)
    sparse = read(tmp_path / "sparse.npz")
    assert isinstance(sparse.X, sp.csr_matrix)
    np.testing.assert_array_equal(sparse.X.toarray(), X)
    pandas = pytest.importorskip("pandas", reason="pandas writes the files")
    frame = pandas.DataFrame(X, columns=list("abc")).assign(t=Y)
    table = read(parquet_file(tmp_path / "table.parquet", frame), target="a")
    np.testing.assert_array_equal(table.y, X[:, 0])
