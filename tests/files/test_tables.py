"""Tables in files: what a first line is, which column is which, and the same rows whole or in blocks."""

import bz2
import decimal
import gzip
import lzma
import sys
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp

from accelegrad.files.formats import open_table
from accelegrad.files.tables import Column, DataError, Reading, Targets, Wanted
from accelegrad.sklearn import AcceleGradClassifier

pandas = pytest.importorskip("pandas", reason="the extra files is not installed")

COMPRESSIONS = {"": bytes, ".bz2": bz2.compress, ".gz": gzip.compress, ".xz": lzma.compress}
RNG = np.random.default_rng(9)
X = RNG.standard_normal((40, 3)).round(3)
X[RNG.random(X.shape) < 0.4] = 0.0
X[0, -1] = 0.75  # LIBSVM text has no other sign of the last column
Y = np.where(X[:, 0] + 0.1 * RNG.standard_normal(40) > 0, 1.0, -1.0)
SIZES = [7, None]


def written(folder, text, name="table.csv"):
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def rows_of(path, rows="whole", **wanted):
    table = open_table(path, Wanted(**wanted))
    blocks = [table.whole()] if rows == "whole" else list(table.blocks(rows))
    dense = [part.X.toarray() if sp.issparse(part.X) else part.X for part in blocks]
    labels = [part.y for part in blocks if part.y is not None]
    return np.concatenate(dense), np.concatenate(labels) if labels else None


def assert_rows(path, expected, labels=None, **wanted):
    """Check that a file holds these rows, whole and in blocks of any size."""
    for rows in ("whole", *SIZES):
        got, found = rows_of(path, rows, **wanted)
        np.testing.assert_array_equal(got, expected)
        if labels is not None:
            np.testing.assert_array_equal(found, labels)


def refused(path, *parts, rows="whole", **wanted):
    """Check that the message names the file and has all the parts."""
    with pytest.raises(DataError) as caught:
        rows_of(path, rows, **wanted)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert message.endswith(".")
    assert len(message) < len(str(path)) + 500
    for part in parts:
        assert part in message, message


SMALL = "+1 1:0.5 3:-2\n-1 2:1e-3\n"
X_SMALL = np.array([[0.5, 0.0, -2.0], [0.0, 1e-3, 0.0]])


@pytest.mark.parametrize("ending", COMPRESSIONS)
def test_libsvm_round_trip_is_exact(tmp_path, ending):
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((40, 17)) * 10.0 ** rng.integers(-300, 300, (40, 17))
    rows[rng.random(rows.shape) < 0.6] = 0.0
    rows[5], rows[0, -1] = 0.0, 1.0 / 3.0
    text = ""
    for row in rows.tolist():
        pairs = (f"{j + 1}:{x!r}" for j, x in enumerate(row) if x)
        text += " ".join([repr(row[3]), *pairs]) + "\n"
    path = written(tmp_path, COMPRESSIONS[ending](text.encode()), f"some.set{ending}")
    assert_rows(path, rows, rows[:, 3], n_features=17)
    whole = open_table(path).whole().X
    assert isinstance(whole, sp.csr_matrix)
    assert whole.has_canonical_format
    assert whole.nnz == np.count_nonzero(rows)


@pytest.mark.parametrize(
    "text",
    [
        "+1 1:0.5 3:-2\r\n-1 2:1e-3\r\n",
        "+1 1:0.5 3:-2\n-1 2:1e-3",
        "\ufeff+1 1:0.5 3:-2\n-1 2:1e-3\n",
        "# some_thing: 1,2\n\n 1\t1:.5  3:-2.0e0 # caf\u00e9\n\n-1.0 +2:0.001\n# end",
        "1 qid:7 1:0.5 3:-2\n-1 qid:8 2:1e-3\n",
        "1 01:0.5 3:-2\n-1 2:1e-3 3:0\n",
    ],
)
def test_libsvm_variants(tmp_path, text):
    assert_rows(written(tmp_path, text, "data"), X_SMALL, [1.0, -1.0], n_features=3)


def test_the_width_of_a_libsvm_file_and_its_faults(tmp_path):
    # No row has feature 1, so that the base cannot be told from the data.
    assert_rows(written(tmp_path, "1 2:5\n0 3:7\n", "a"), [[0, 5, 0], [0, 0, 7]], n_features=3)
    np.testing.assert_array_equal(rows_of(tmp_path / "a")[0], [[0, 5, 0], [0, 0, 7]])
    path = written(tmp_path, "1\n0 2:3\n1\n", "a")
    assert_rows(path, [[0, 0], [0, 3], [0, 0]], n_features=2)
    table = open_table(path)
    table.survey()
    assert table.n_features == 2
    assert rows_of(written(tmp_path, "1\n0\n", "a"), n_features=4)[0].shape == (2, 4)
    # An index that is refused without n_features.
    path = written(tmp_path, "1 200000000:1\n", "a")
    assert open_table(path, Wanted(n_features=2**31 - 1)).whole().X.nnz == 1
    for given in (0, -3, 1.5, True, "3", 2**31):
        with pytest.raises((TypeError, ValueError), match="n_features must be"):
            open_table(path, Wanted(n_features=given))
    path = written(tmp_path, "1 1:2 3:1\n1 4:2 5:1\n", "a")
    refused(path, "line 2: the index is 5, but 3 features are expected", n_features=3)
    for text in ("", "\n \r\n\t\n", "# only\n\n# comments\n"):
        for ending, compress in COMPRESSIONS.items():
            refused(written(tmp_path, compress(text.encode()), f"a{ending}"), "at least one")
    refused(written(tmp_path, "1\n-1\n", "a"), "no row has an index:value", "n_features")
    refused(written(tmp_path, "1 1:2\n".encode("utf-16"), "a"), "line 1: ", "UTF-16")


BAD_LINES = ["abc 1:2", "1,2 1:2", "nan 1:2", "1 1:2 3", "1 a:3", "1 1.5:3", "1 1:x", "1 1:nan"]
BAD_LINES += ["1 4:1e999", "1 0:3", "1 -2:3", "1 3:3 3:4", "1 3:3 2:4", "1 100000001:3", "1 :3"]
BAD_LINES += ["1 1:2\0", "1 99999999999999999999:3", f"1 1:{'x' * 100000}"]


@pytest.mark.parametrize("line", BAD_LINES, ids=lambda line: line[:20])
def test_the_first_bad_line_is_named(tmp_path, line):
    # Alone, among others, and before a second fault, which must not be the one that is named.
    refused(written(tmp_path, f"{line}\n", "data"), "line 1: ")
    text = f"1 1:2\n# a comment\n\n{line}\n" + "1 1:1\n" * 9 + "later\n"
    for rows in ("whole", 3):
        refused(written(tmp_path, text, "a"), "line 4: ", rows=rows)


@pytest.mark.parametrize("name", ["none", "none.bz2", "none.csv", "none.npz", "none.parquet"])
def test_missing_files_and_folders(tmp_path, name):
    refused(tmp_path / name, "cannot be read", "No such file")
    (tmp_path / name).mkdir()
    refused(tmp_path / name)


@pytest.mark.parametrize(("ending", "name"), [(".bz2", "a"), (".gz", "a.csv"), (".xz", "a.svm")])
def test_wrong_or_damaged_compression(tmp_path, ending, name):
    row = "1,2,3\n" if name == "a.csv" else "1 1:2\n"
    good, name = COMPRESSIONS[ending](row.encode() * 50), f"{name}{ending}"
    refused(written(tmp_path, row, name))
    for end in (len(good) // 2, len(good) - 9, len(good) - 1):
        refused(written(tmp_path, good[:end], name))
    flipped = bytearray(good)
    flipped[len(good) // 2] ^= 0xFF
    refused(written(tmp_path, bytes(flipped), name))


def test_garbage_is_a_data_error(tmp_path):
    for seed in range(10):
        garbage = np.random.default_rng(seed).bytes(300)
        for name in ("garbage", "garbage.csv", "garbage.npz", "garbage.parquet"):
            refused(written(tmp_path, garbage, name))


CSV = "1,2.5,-3\n0,0,1e-7\n4,-1e300,.1\n"
TABLE = np.array([[1.0, 2.5, -3.0], [0.0, 0.0, 1e-7], [4.0, -1e300, 0.1]])


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize(
    "text",
    [
        CSV,
        "a,b,t\n" + CSV,
        '"a","b, c","t"\n' + CSV,
        "\ufeffa,b,t\n" + CSV,
        "# a,b,t\n" + CSV,
        "\n\na,b,t\n\n" + CSV.replace("\n", "\n\n"),
        CSV.replace("\n", "\r\n"),
        CSV.replace("\n", "\r"),
        '"1","2.5",-3\n0, 0 ,1e-7\n4,-1e300,.1',
        '"a\nb",b,t\n' + CSV,
    ],
)
def test_csv_variants(tmp_path, text, ending):
    path = written(tmp_path, COMPRESSIONS[ending](text.encode()), f"table.csv{ending}")
    assert_rows(path, TABLE[:, :2], TABLE[:, 2])
    table = open_table(path)
    table.survey()
    assert (table.names is None) == (text[:2] in ("1,", '"1'))


def test_csv_is_known_by_content(tmp_path):
    for name in ("table", "table.txt", "table.data", "table.gz"):
        content = gzip.compress(CSV.encode()) if name == "table.gz" else CSV.encode()
        assert_rows(written(tmp_path, content, name), TABLE[:, :2])
    # The ending goes before the content.
    refused(written(tmp_path, CSV, "table.svm"), "line 1: ")
    refused(written(tmp_path, SMALL, "table.csv"), "one column")


def test_a_first_line_of_names_or_numbers(tmp_path):
    rows = "1,2,0\n3,4,1\n"
    # A name of the target or of all columns makes a header of numbers.
    path = written(tmp_path, "10,20,30\n" + rows)
    assert_rows(path, [[1, 2], [3, 4]], [0, 1], target="30")
    known = (Column("20"), Column("10"))
    assert_rows(path, [[2, 1], [4, 3]], [0, 1], target="30", columns=known, optional=True)
    assert rows_of(path)[0].shape == (3, 2)
    # A line that may be either is refused; both ways out work.
    for first in ("0,1,t", "2019,2020,change", "1.5,b,t", "5,6,setosa", "0,setosa,7"):
        path = written(tmp_path, f"{first}\n" + rows)
        refused(path, "line 1", "header or data", "--no-header", "--target")
        assert open_table(path, Wanted(first.split(",")[2])).has_names
    path = written(tmp_path, "5,6,setosa\n" + rows.replace("0", "setosa"))
    plain = Reading(header=False)
    assert_rows(path, [[5, 6], [1, 2], [3, 4]], ["setosa", "setosa", "1"], reading=plain)
    # A missing value makes no header.
    for mark in ("?", "NA", "n/a", "NULL", ""):
        refused(written(tmp_path, f"1,{mark},0\n2,3,1\n"), "row 1", "'column 1' has no value")


def test_names_of_columns_and_targets_by_name_and_number(tmp_path):
    path = written(tmp_path, "a,b,a,t\n1,2,3,0\n4,5,6,1\n")
    refused(path, "2 columns have the same name, 'a'")
    refused(path, "'a'", target="t", columns=(Column("b"),), optional=True)
    pandas.DataFrame(X, columns=list("abc")).assign(t=Y).to_csv(tmp_path / "index.csv")
    refused(tmp_path / "index.csv", "column 0 has no name", "--drop 0")
    assert_rows(tmp_path / "index.csv", X, Y, reading=Reading(drop=(0,)))
    # A model that knows its columns does not care for others.
    known = {"target": "t", "columns": (Column("c"), Column("a")), "optional": True}
    assert_rows(tmp_path / "index.csv", X[:, [2, 0]], Y, **known)
    path = written(tmp_path, "a, b ,t\n" + CSV)
    for target, column in (("a", 0), ("b", 1), ("t", 2), (0, 0), (-1, 2), (-3, 0), (None, 2)):
        assert_rows(path, np.delete(TABLE, column, axis=1), TABLE[:, column], target=target)
    refused(path, "no column 'tt'", "did you mean 't'", target="tt")
    for target in (3, -4, True):
        refused(path, f"the target is {target}", "0 to 2", "-3 to -1", target=target)
    refused(path, "found 3 columns, but 3 features and the target", n_features=3)
    bare = written(tmp_path, CSV, "bare.csv")
    refused(bare, "no column 't'", "no header", target="t")
    assert [open_table(bare, Wanted(target)).target for target in (0, -1, None)] == [0, 2, 2]
    known = {"columns": (Column("a"), Column("b")), "optional": True}
    refused(bare, "'a', 'b'", "no header", "--by-position", target=0, **known)
    known["by_position"] = True
    refused(bare, "without a header", "'t'", target="t", **known)
    assert_rows(bare, TABLE[:, 1:], TABLE[:, 0], target=0, **known)
    refused(path, "'b'", "feature of the model", target=1, **known)
    refused(written(tmp_path, "a,b\n"), "at least one", **known)


def test_numbers_as_they_are_written_elsewhere(tmp_path):
    text = "größe;preis;t\n1.234,5;7,25;1\n-0,5;8;2\n"
    path = written(tmp_path, text.encode("latin-1"))
    refused(path, "--encoding latin-1", reading=Reading(sep=";"))
    refused(path, "no CSV file", "nothing-8", reading=Reading(encoding="nothing-8"))
    plain = Reading(sep=";", encoding="latin-1")
    refused(path, "'größe' is '1.234,5'", "--decimal", reading=plain)
    right = plain._replace(decimal=",", thousands=".")
    assert_rows(path, [[1234.5, 7.25], [-0.5, 8]], [1, 2], reading=right)
    refused(written(tmp_path, "a;b\n1;2\n"), "one column", "separated by ';'", "--sep ';'")
    refused(written(tmp_path, "1,2\n", "table.tsv"), "one column", "--sep ','")
    assert_rows(written(tmp_path, "a\tt\n1\t2\n", "table.tsv"), [[1]], [2])
    assert_rows(written(tmp_path, "a|t\n1|2\n", "data"), [[1]], [2], reading=Reading(sep="|"))
    for name in ("a.svm", "a.npz"):
        refused(written(tmp_path, "1 1:1\n", name), "--sep is for CSV", reading=plain)


BAD_CSV = [
    ("1,2\n3\n", ["row 2", "'column 1' has no value"]),
    ("1,2\n3,4\n5,6,7\n", ["line 3"]),
    ("a,b,c\n1,2\n3,4\n", ["row 1", "'c' has no value"]),
    ("a,b\n1,2,3\n4,5,6\n", ["more cells than the first line"]),
    ("1,2\n3,x\n", ["row 2", "'column 1' is 'x'", "finite number"]),
    ("a,b\n1,2\n\n3,x\n", ["row 2", "'b' is 'x'"]),
    ("1,2\n3,-inf\n", ["row 2", "'column 1' is '-inf'"]),
    ("1,2\n3,1e999\n", ["row 2", "'column 1' is 'inf'"]),
    ("1,2\n3,1_0\n", ["row 2", "'1_0'"]),
    ("1\n2\n", ["one column"]),
    ('a,b,t\n1,2,"0\n', ["EOF inside string"]),
    ("a,t\n", ["at least one"]),
    ("", ["at least one"]),
]


@pytest.mark.parametrize(("text", "parts"), BAD_CSV)
def test_bad_cells_are_named(tmp_path, text, parts):
    for rows in ("whole", 1, 5):
        refused(written(tmp_path, text), *parts, rows=rows, targets=Targets.NUMBERS)


def test_missing_cells(tmp_path):
    path = written(tmp_path, "a,b,t\n1,x,0\n,y,1\n4,,1\n3,x,\n")
    hints = ("--missing drop", "--missing mean", "--drop 'a'")
    for given in (Reading(), Reading(missing="mean"), Reading(drop=("b",))):
        refused(path, "row 4: the column 't' has no value", "--missing drop", reading=given)
    assert_rows(path, [[1, 1]], [0], reading=Reading(missing="drop"))
    path = written(tmp_path, "a,b,t\n1,x,0\n,y,1\n4,,1\n")
    refused(path, "row 2: the column 'a' has no value", *hints)
    refused(path, "row 3: the column 'b' has no value", reading=Reading(drop=("a",)))
    table = open_table(path, Wanted(reading=Reading(missing="mean")))
    table.survey()
    expected = [[1, 1, 0], [2.5, 0, 1], [4, 0, 0]]
    assert_rows(path, expected, [0, 1, 1], reading=Reading(missing="mean"))
    assert table.columns == (Column("a", None, 2.5), Column("b", ("x", "y"), 0.0))
    # What stands in for missing cells is known to the model.
    path = written(tmp_path, "b,a\n,\nx,7\n")
    assert_rows(path, [[2.5, 0, 0], [7, 1, 0]], columns=table.columns, optional=True)
    known = [Column("a"), Column("b", ("x",))]
    refused(path, "row 1: the column 'a'", "without --missing mean", columns=known, optional=True)
    # Marks of missing cells: those that are given take the place of the usual ones.
    path = written(tmp_path, "a,t\n1,NA\n-9,DE\n3,NA\n")
    assert_rows(path, [[1], [3]], ["NA", "NA"], reading=Reading(na=("-9",), missing="drop"))
    refused(written(tmp_path, "a,b,t\n,1,2\n,3,4\n"), "'a' has no values", "--drop 'a'")


def test_text_columns_are_categories_unless_by_mistake(tmp_path):
    colours = np.array(["red", "green, dark", "blue"])[np.arange(40) % 3]
    frame = pandas.DataFrame({"x": X[:, 0], "colour": colours, "t": Y})
    frame.to_csv(tmp_path / "table.csv", index=False)
    indicators = (colours[:, None] == ["blue", "green, dark", "red"]).astype(float)
    expected = np.column_stack([X[:, 0], indicators])
    assert_rows(tmp_path / "table.csv", expected, Y)
    table = open_table(tmp_path / "table.csv")
    table.survey()
    assert table.names == ("x", "colour=blue", "colour=green, dark", "colour=red")
    assert table.n_features == 4
    assert table.columns == (Column("x"), Column("colour", ("blue", "green, dark", "red")))
    # A model knows the categories: another file is encoded alike, and the unknown is 0.
    new = pandas.DataFrame({"colour": ["red", "pink"], "x": [1.0, 2.0]})
    new.to_csv(tmp_path / "new.csv", index=False)
    with pytest.warns(UserWarning, match=r"'colour' has values that the model does not know"):
        got, _ = rows_of(tmp_path / "new.csv", columns=table.columns, optional=True)
    np.testing.assert_array_equal(got, [[1, 0, 0, 1], [2, 0, 0, 0]])
    refused(tmp_path / "table.csv", "'colour' is 'red', but it must be a number", numbers_only=True)
    cells = [str(number) for number in range(40)]
    cells[17] = "x"
    frame = pandas.DataFrame({"a": cells, "x": X[:, 0], "t": Y})
    frame.to_csv(tmp_path / "a.csv", index=False)
    for rows in ("whole", 7):
        refused(tmp_path / "a.csv", "row 18: the column 'a' is 'x'", "--na", "--text", rows=rows)
    assert rows_of(tmp_path / "a.csv", reading=Reading(text=("a",)))[0].shape == (40, 41)
    assert rows_of(tmp_path / "a.csv", reading=Reading(na=("x",), missing="drop"))[0].shape[0] == 39
    frame.assign(a=[f"person {number}" for number in range(40)]).to_csv(tmp_path / "a.csv")
    kept = Reading(drop=(0,))
    refused(tmp_path / "a.csv", "'a' has 40 different texts in 40 rows", "--drop 'a'", reading=kept)
    # Booleans are text, which pandas does not know of the first frame.
    frame.assign(a=X[:, 0] > 0).to_csv(tmp_path / "a.csv", index=False)
    assert_rows(tmp_path / "a.csv", np.column_stack([X[:, 0] <= 0, X[:, 0] > 0, X[:, 0]]), Y)
    # Numbers that are codes.
    frame.assign(a=np.arange(40) % 4).to_csv(tmp_path / "a.csv", index=False)
    table = open_table(tmp_path / "a.csv", Wanted(reading=Reading(text=(0,))))
    table.survey()
    assert table.columns is not None
    assert table.columns[0] == Column("a", ("0", "1", "2", "3"))


@pytest.mark.parametrize("place", [0, 39])
def test_labels_that_turn_into_text(tmp_path, place):
    labels = ["1", "2"] * 20
    labels[place] = "two\nlines"
    pandas.DataFrame(X).assign(t=labels).to_csv(tmp_path / "a.csv", index=False)
    assert_rows(tmp_path / "a.csv", X, labels, target="t")
    table = open_table(tmp_path / "a.csv", Wanted("t"))
    done = AcceleGradClassifier().fit(partial(table.chunks, 6))
    np.testing.assert_array_equal(done.classes_, ["1", "2", "two\nlines"])
    for rows in ("whole", 6):
        words = (f"row {place + 1}", "two\\nlines", "number")
        refused(tmp_path / "a.csv", *words, rows=rows, target="t", targets=Targets.NUMBERS)


def test_parquet_is_read_as_csv_is(tmp_path):
    pytest.importorskip("pyarrow", reason="the extra files is not installed")
    words = np.where(Y > 0, "jä", "no")
    frame = pandas.DataFrame(X, columns=list("abc")).assign(word=words, t=Y)
    indices = [
        pandas.RangeIndex(40),
        pandas.Index([f"row {i}" for i in range(40)], name="id"),
        pandas.MultiIndex.from_arrays([np.arange(40), np.arange(40) % 3], names=["id", None]),
    ]
    expected = np.column_stack([X, words == "jä", words == "no"])
    for index in indices:
        frame.set_axis(index).to_parquet(tmp_path / "a.parquet", index=True, row_group_size=9)
        assert_rows(tmp_path / "a.parquet", expected, Y)
        assert len(list(open_table(tmp_path / "a.parquet").blocks())) == 1  # of small groups
        assert_rows(tmp_path / "a.parquet", X, words, target="word", reading=Reading(drop=("t",)))
    frame.loc[indices[1].get_indexer(["row 3"])[0], "a"] = np.nan
    frame.to_parquet(tmp_path / "a.parquet")
    for rows in ("whole", 2):
        refused(tmp_path / "a.parquet", "row 4: the column 'a' has no value", rows=rows)
    assert rows_of(tmp_path / "a.parquet", 2, reading=Reading(missing="drop"))[0].shape == (39, 5)
    frame[:0].to_parquet(tmp_path / "a.parquet")
    refused(tmp_path / "a.parquet", "at least one")
    written(tmp_path, b"PAR1 nothing", "a.parquet")
    refused(tmp_path / "a.parquet", "no parquet file, or a damaged one")


def test_kinds_of_parquet_columns(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="the extra files is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    path, words = tmp_path / "a.parquet", np.where(Y > 0, "jä", "no").tolist()
    columns = {"a": X[:, 0], "b": Y > 0, "c": X[:, 1].astype(np.float32)}
    for kind in (pyarrow.string(), pyarrow.large_string(), pyarrow.binary()):
        labels = pyarrow.array(words).cast(kind)
        for column in (labels, labels.dictionary_encode()):
            table = pyarrow.table({**columns, "t": column})
            parquet.write_table(table, path, row_group_size=9)
            assert_rows(path, np.column_stack([*columns.values()]), words)
    money = pyarrow.array([decimal.Decimal(str(x)) for x in X[:, 0]])
    parquet.write_table(pyarrow.table({"a": money, "t": Y}), path)
    assert_rows(path, X[:, :1], Y)
    lists = pyarrow.array([[1.0, 2.0]] * 40)
    for wrong in (lists, pyarrow.array(np.arange(40).astype("M8[s]"))):
        for columns in ({"a": wrong, "t": Y}, {"a": Y, "t": wrong}):
            parquet.write_table(pyarrow.table(columns), path)
            refused(path, f"'{'a' if columns['t'] is Y else 't'}'", "numbers or text")
    parquet.write_table(pyarrow.table([X[:, 0], X[:, 1], Y], names=["a", "a", "t"]), path)
    refused(path, "2 columns have the same name, 'a'")


@pytest.mark.parametrize(("missing", "name"), [("pandas", "a.csv"), ("pyarrow", "a.parquet")])
def test_a_missing_package_is_named(tmp_path, monkeypatch, missing, name):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=rf"{missing} is not.*pip install 'accelegrad\[files\]'"):
        open_table(written(tmp_path, "a,b\n1,2\n", name))
    # Others need neither.
    assert_rows(written(tmp_path, SMALL, "a.svm"), X_SMALL, n_features=3)


@pytest.mark.parametrize(
    ("kind", "compressed"), [("csr", False), ("csc", True), ("coo", False), ("dia", True)]
)
def test_every_sparse_format(tmp_path, kind, compressed):
    path = tmp_path / "table.npz"
    for form in (sp.csr_matrix, sp.csr_array):
        sp.save_npz(path, form(X).asformat(kind), compressed)
        assert_rows(path, X, n_features=3, optional=True)
    assert isinstance(open_table(path, Wanted(optional=True)).whole().X, sp.csr_matrix)
    arrays = dict(np.load(path))
    (np.savez_compressed if compressed else np.savez)(path, **arrays, y=Y)
    assert_rows(path, X, Y)
    np.savez(path, **arrays | {"format": "lil"}, y=Y)
    refused(path)


@pytest.mark.parametrize("kind", [">f8", "<f4", ">i2", "?"])
def test_arrays_of_any_order_and_type(tmp_path, kind):
    rows = (10 * X).astype(kind)
    for array in (np.asfortranarray(rows), rows, np.asfortranarray(rows)[::2]):
        np.savez(tmp_path / "table.npz", X=array, y=Y[: len(array)].astype(">f4"))
        assert_rows(tmp_path / "table.npz", array, Y[: len(array)])
        got, labels = open_table(tmp_path / "table.npz").whole()
        assert labels is not None
        assert got.dtype == array.dtype.newbyteorder("=")
        assert labels.dtype.isnative


def test_what_an_npz_file_has_to_hold(tmp_path):
    path, words = tmp_path / "table.npz", np.where(Y > 0, "jä", "no")
    for labels in (words, np.char.encode(words, "utf-8")):
        np.savez(path, X=X, y=labels)
        assert_rows(path, X, words)
        refused(path, "y must hold numbers", targets=Targets.NUMBERS)
    refused(path, "target is 2", target=2)
    refused(path, "found 3 columns, but 2 features are expected", n_features=2)
    wrong = [
        ({"X": X.astype(str)}, "X must hold numbers"),
        ({"X": X + 1j}, "X must hold numbers"),
        ({"X": X[0]}, "two dimensions"),
        ({"X": X[:0], "y": Y[:0]}, "at least one"),
        ({"y": Y[1:]}, "y must have 40 entries"),
        ({"y": Y.astype("M8[s]")}, "y must hold numbers or text"),
        ({"y": Y.astype(object)}, "damaged"),
        ({"feature_names": ["a", "b", "a"]}, "3 distinct names"),
        ({"feature_names": ["a", "b"]}, "3 distinct names"),
    ]
    for changes, message in wrong:
        np.savez(path, **{"X": X, "y": Y, **changes})
        refused(path, message)
    np.savez(path, X=X, y=Y, feature_names=["a", "b", "c"])
    table = open_table(path, Wanted(columns=tuple(map(Column, "abc"))))
    assert table.names == ("a", "b", "c")
    refused(path, "feature_names are 'a', 'b', 'c'", "'b', 'a'", columns=tuple(map(Column, "bac")))
    np.savez(path, X=X)
    refused(path, "no array 'y'")
    np.savez(path, a=X)
    refused(path, "the arrays are ['a']")
    for number, word in ((np.nan, "NaN"), (np.inf, "infinity")):
        bad = np.where(np.arange(40)[:, None] == 25, number, X)
        for arrays in ({"X": bad.astype(np.float32), "y": Y}, {"X": X, "y": bad[:, 0]}):
            np.savez(path, **arrays)
            refused(path, f"{'X' if arrays['y'] is Y else 'y'} contains {word}")
        sp.save_npz(path, sp.csc_matrix(bad))
        refused(path, f"X contains {word}", optional=True)
    right = {"data": [1.0, 2.0, 3.0, 4.0], "indices": [2, 0, 2, 1], "indptr": [0, 3, 3, 4]}
    path, right = tmp_path / "table.npz", right | {"shape": [3, 3], "y": [1.0, 2.0, 3.0]}
    np.savez(path, **right, format="csr")
    assert_rows(path, [[2.0, 0.0, 4.0], [0.0, 0.0, 0.0], [0.0, 4.0, 0.0]])
    assert open_table(path).whole().X.has_canonical_format
    wrong = [{"indices": [2, 0, 3, 1]}, {"indices": [2, 0, -1, 1]}]
    wrong += [{"indptr": [0, 3, 2, 4]}, {"indptr": [0, 3, 3, 5]}, {"data": list("abcd")}]
    for changes in wrong:
        for kind in ("csr", "csc"):
            np.savez(path, **right | changes, format=kind)
            refused(path)
