"""Data files against matrices written by hand and a strict parser; the text generator's statistics.

The parser here is a few regular expressions and shares no code with the package's reader.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import pickle
import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import LinearSVC

from accelegrad import LinearModel
from accelegrad.data.datasets import DataError, Dataset, as_binary, find, read, sparse_text

COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".bz2": bz2.compress,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
}
SMALL = b"+1 1:0.5 3:-2\n-1 2:1e-3\n"
X_SMALL = np.array([[0.5, 0.0, -2.0], [0.0, 1e-3, 0.0]])


def written(tmp_path: Path, content: bytes | str, name: str = "data") -> Path:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def dense(data: Dataset) -> np.ndarray:
    assert data.X.dtype == np.float64
    return data.X if isinstance(data.X, np.ndarray) else data.X.toarray()


def libsvm_text(X: np.ndarray, y: np.ndarray) -> str:
    rows = [
        " ".join([repr(float(t)), *(f"{j + 1}:{float(x[j])!r}" for j in np.flatnonzero(x))])
        for x, t in zip(X, y, strict=True)
    ]
    return "\n".join(rows) + "\n"


def assert_error(path: Path, line: int | None, *parts: str, **options: object) -> None:
    """Check that the message has the file, the line and all the parts."""
    with pytest.raises(DataError) as caught:
        read(path, **options)  # type: ignore[arg-type]
    message = str(caught.value)
    start = f"{path}: " if line is None else f"{path}, line {line}: "
    assert message.startswith(start), message
    assert message.endswith("."), message
    for part in parts:
        assert part in message, message


# LIBSVM files that are right


@pytest.mark.parametrize("ending", COMPRESSIONS)
def test_libsvm_round_trip_is_exact(tmp_path: Path, ending: str) -> None:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((40, 17)) * 10.0 ** rng.integers(-300, 300, (40, 17))
    X[rng.random(X.shape) < 0.6] = 0.0
    X[5] = 0.0
    X[0, -1] = 1.0 / 3.0
    y = rng.standard_normal(40)
    content = COMPRESSIONS[ending](libsvm_text(X, y).encode())
    data = read(written(tmp_path, content, f"some.set{ending}"))
    assert isinstance(data.X, sp.csr_matrix)
    assert data.X.has_sorted_indices
    assert data.X.nnz == np.count_nonzero(X)
    assert np.array_equal(dense(data), X)
    assert np.array_equal(data.y, y)
    assert data.y.dtype == np.float64
    assert data.name == "some.set"
    assert data.source == str(tmp_path / f"some.set{ending}")


@pytest.mark.parametrize("compress", [bz2.compress, gzip.compress, lzma.compress])
def test_compression_is_known_by_content(
    tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    for name in ["data", "data.txt", "data.t", "data.svm"]:
        assert np.array_equal(dense(read(written(tmp_path, compress(SMALL), name))), X_SMALL)


@pytest.mark.parametrize("ending", [".bz2", ".gz", ".xz"])
def test_streams_that_follow_each_other(tmp_path: Path, ending: str) -> None:
    compress = COMPRESSIONS[ending]
    # Parallel compressors write many streams; tar and gzip may pad with zeros.
    content = b"".join(compress(line) for line in SMALL.splitlines(keepends=True)) + b"\0" * 8
    assert np.array_equal(dense(read(written(tmp_path, content, f"a{ending}"))), X_SMALL)


def test_a_stream_longer_than_a_chunk(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    X, y = rng.standard_normal((3000, 5)), rng.standard_normal(3000)
    content = gzip.compress(libsvm_text(X, y).encode())
    assert len(content) > 2 * 65536
    assert np.array_equal(dense(read(written(tmp_path, content + content, "a.gz")))[3000:], X)


@pytest.mark.parametrize(
    "text",
    [
        "+1 1:0.5 3:-2\r\n-1 2:1e-3\r\n",
        "+1 1:0.5 3:-2\r-1 2:1e-3\r",
        "+1 1:0.5 3:-2\n-1 2:1e-3",
        "\ufeff+1 1:0.5 3:-2\n-1 2:1e-3\n",
        "# some_thing: 1,2\n\n 1\t1:.5  3:-2.0e0 # caf\u00e9 1_000\n\n-1.0 +2:0.001\n# end",
        "1 qid:7 1:0.5 3:-2\n-1 qid:8 2:1e-3\n",
        "1 01:0.5 3:-2\n-1 2:1e-3 3:0\n",
    ],
)
def test_libsvm_variants(tmp_path: Path, text: str) -> None:
    data = read(written(tmp_path, text))
    assert np.array_equal(dense(data), X_SMALL)
    assert np.array_equal(data.y, [1.0, -1.0])


def test_indices_are_not_shifted(tmp_path: Path) -> None:
    # No row has feature 1, so that the base cannot be told from the data.
    assert np.array_equal(dense(read(written(tmp_path, "1 2:5\n0 3:7\n"))), [[0, 5, 0], [0, 0, 7]])


def test_rows_without_features(tmp_path: Path) -> None:
    data = read(written(tmp_path, "1\n0 2:3\n1\n"))
    assert np.array_equal(dense(data), [[0, 0], [0, 3], [0, 0]])
    assert read(written(tmp_path, "1\n0\n"), n_features=4).X.shape == (2, 4)


def test_n_features_adds_columns(tmp_path: Path) -> None:
    path = written(tmp_path, SMALL)
    data = read(path, n_features=7)
    assert np.array_equal(dense(data), np.pad(X_SMALL, ((0, 0), (0, 4))))
    assert read(path, n_features=3).X.shape == (2, 3)
    # An index that is refused without n_features.
    assert read(written(tmp_path, "1 200000000:1\n"), n_features=2**31 - 1).X.nnz == 1


@pytest.mark.parametrize("given", [0, -3, 1.5, True, "3", 2**31])
def test_n_features_is_checked(tmp_path: Path, given: object) -> None:
    with pytest.raises((TypeError, ValueError), match="n_features must be"):
        read(written(tmp_path, SMALL), n_features=given)  # type: ignore[arg-type]


def test_a_data_set_fits_a_linear_model(tmp_path: Path) -> None:
    data = read(written(tmp_path, SMALL))
    model = LinearModel(data.X, data.y, l2=0.1)
    assert model.value(np.zeros(3)) == pytest.approx(np.log(2.0))


# LIBSVM files that are wrong


BAD_LIBSVM = [
    ("1 1:2\nabc 1:2\n", 2, ["the label", "'abc'", "must be a number"]),
    ("1 1:2\n1,2 1:2\n", 2, ["the label", "'1,2'"]),
    ("1 1:2\n1:2 2:3\n", 2, ["the label", "'1:2'"]),
    ("1_0 1:2\n", 1, ["the label", "'1_0'"]),
    ("nan 1:2\n", 1, ["the label", "'nan'", "finite"]),
    ("# c\n\n-inf 1:2\n", 3, ["the label", "'-inf'", "finite"]),
    ("1 1:2\n1 1:2 3\n", 2, ["'3'", "index:value"]),
    ("1 1:2\n1 1: 3\n", 2, ["the value of index 1", "missing"]),
    ("1 1:2\n1 a:3\n", 2, ["'a:3'", "index:value"]),
    ("1 1:2\n1 1.5:3\n", 2, ["'1.5:3'", "index:value"]),
    ("1 1:2\n1 1_0:3\n", 2, ["'1_0:3'", "index:value"]),
    ("1 1:2\n1 :3\n", 2, ["':3'", "index:value"]),
    ("1 1:2 qid:3\n", 1, ["'qid:3'", "index:value"]),
    ("1 1:x\n", 1, ["the value of index 1", "'x'", "must be a number"]),
    ("1 1:2:3\n", 1, ["the value of index 1", "'2:3'"]),
    ("1 1:1_0\n", 1, ["the value of index 1", "'1_0'"]),
    ("1 1:0x10\n", 1, ["the value of index 1", "'0x10'"]),
    ("1 1:2\n1 4:nan\n", 2, ["the value of index 4", "'nan'", "finite"]),
    ("1 1:2\n1 4:Infinity\n", 2, ["the value of index 4", "'Infinity'", "finite"]),
    ("1 1:2\n1 4:1e999\n", 2, ["the value of index 4", "'1e999'", "finite"]),
    ("1 1:2\n1 0:3\n", 2, ["the index is 0", "start at 1"]),
    ("1 1:2\n1 -2:3\n", 2, ["the index is -2", "start at 1"]),
    ("1 1:2\n1 3:3 3:4\n", 2, ["the index 3 comes twice"]),
    ("1 1:2\n1 3:3 2:4\n", 2, ["the index 2 follows 3", "increase"]),
    ("1 1:2\n1 100000001:3\n", 2, ["100000001", "100000000 columns", "n_features"]),
    ("1 1:2\n1 2147483648:3\n", 2, ["2147483648", "at most 2147483647"]),
    ("1 1:2\n1 99999999999999999999:3\n", 2, ["at most 2147483647"]),
    (f"1 1:2\n1 {'9' * 5000}:3\n", 2, ["'999", "...'", "at most 2147483647"]),
    ("1 1:2\n\u0663 1:3\n", 2, ["the label", r"'\u0663'"]),
]


@pytest.mark.parametrize(("text", "line", "parts"), BAD_LIBSVM)
def test_the_first_bad_line_is_named(
    tmp_path: Path, text: str, line: int, parts: list[str]
) -> None:
    # Alone, and before a second fault, which must not be the one that is named.
    for later in ["", "later 0:0\n"]:
        assert_error(written(tmp_path, text + later), line, *parts)


def test_messages_stay_short(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read(written(tmp_path, f"1 1:{'x' * 100000}\n"))
    assert len(str(caught.value)) < len(str(tmp_path)) + 200


def test_an_index_beyond_n_features(tmp_path: Path) -> None:
    path = written(tmp_path, "1 1:2 3:1\n1 4:2 5:1\n")
    assert_error(path, 2, "the index is 4", "3 features are expected", n_features=3)


@pytest.mark.parametrize("content", [b"", b"\n \r\n\t\n", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("ending", COMPRESSIONS)
def test_empty_files(tmp_path: Path, content: bytes, ending: str) -> None:
    path = written(tmp_path, COMPRESSIONS[ending](content), f"a{ending}")
    assert_error(path, None, "empty", "at least one row")


def test_no_rows_or_no_features(tmp_path: Path) -> None:
    assert_error(written(tmp_path, "# only\n\n# comments\n"), None, "comments", "at least one row")
    assert_error(written(tmp_path, "1\n-1\n"), None, "no row has an index:value", "n_features")


def test_files_of_other_kinds(tmp_path: Path) -> None:
    assert_error(written(tmp_path, "1 1:2\n1 \0 1:3\n"), 2, "NUL", "LIBSVM or CSV")
    assert_error(written(tmp_path, "1 1:2\n".encode("utf-16")), 1, "NUL", "UTF-16")
    rng = np.random.default_rng(3)
    for _ in range(50):
        garbage = rng.integers(0, 256, 300, dtype=np.uint8).tobytes()
        for name in ["garbage", "garbage.csv"]:
            with pytest.raises(DataError, match=re.escape(str(tmp_path / name))):
                read(written(tmp_path, garbage, name))
    # Without NUL bytes the parser itself meets them.
    assert_error(written(tmp_path, b"\x93\xff\x01\x02 1:2\n"), 1, "the label", r"\\x93")


@pytest.mark.parametrize("name", ["none", "none.bz2", "none.csv"])
def test_missing_files_and_folders(tmp_path: Path, name: str) -> None:
    assert_error(tmp_path / name, None, "cannot be read", "No such file")
    (tmp_path / name).mkdir()
    assert_error(tmp_path / name, None, "cannot be read")


@pytest.mark.parametrize("ending", [".bz2", ".gz", ".xz"])
def test_wrong_or_damaged_compression(tmp_path: Path, ending: str) -> None:
    good = COMPRESSIONS[ending](SMALL * 50)
    assert_error(written(tmp_path, SMALL, f"a{ending}"), None, f"says {ending}", "not compressed")
    other = ".xz" if ending == ".gz" else ".gz"
    swapped = written(tmp_path, COMPRESSIONS[other](SMALL), f"a{ending}")
    assert_error(swapped, None, f"says {ending}", f"content is {other}")
    # From half-way on: a few bytes alone are not recognised.
    for end in [len(good) // 2, len(good) - 9, len(good) - 1]:
        assert_error(written(tmp_path, good[:end], f"a{ending}"), None, ending, "too early")
    flipped = bytearray(good)
    flipped[len(good) // 2] ^= 0xFF
    assert_error(written(tmp_path, bytes(flipped), f"a{ending}"), None, ending, "damaged")
    assert_error(written(tmp_path, good + b"more", f"a{ending}"), None, ending, "damaged")
    assert_error(written(tmp_path, good[:3], f"a{ending}"), None, ending)


# A strict parser as the judge of random lines


LABEL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
PIECES = ["1", "-1", "+1", "0.5", "x", "nan", "1:2", "2:3", "2:1", "3:-1e5", "4:0", "5:.5", "7:1."]
PIECES += ["0:1", "-1:1", "3:nan", "3:1_0", "qid:3", "2:", ":2", "6:inf", "1e5", "#", "#2:x", "9:1"]


def strict(text: str, columns: int) -> tuple[np.ndarray, list[float]] | int:
    """Return X and y, or the number of the first line that is wrong."""
    X, y = [], []
    for line, content in enumerate(text.split("\n"), start=1):
        pieces = content.split("#")[0].split()
        if not pieces:
            continue
        if len(pieces) > 1 and pieces[1].startswith("qid:"):
            del pieces[1]
        if not LABEL.fullmatch(pieces[0]):
            return line
        row, last = np.zeros(columns), 0
        for piece in pieces[1:]:
            index, _, value = piece.partition(":")
            if not (re.fullmatch(r"\d+", index) and LABEL.fullmatch(value) and int(index) > last):
                return line
            last = int(index)
            row[last - 1] = float(value)
        X.append(row)
        y.append(float(pieces[0]))
    return np.array(X), y


def test_random_lines_against_a_strict_parser(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    good = bad = 0
    for _ in range(1500):
        lines = []
        for _ in range(rng.integers(1, 4)):
            chosen = [str(piece) for piece in rng.choice(PIECES, rng.integers(0, 4))]
            if rng.random() < 0.8:
                chosen.sort(key=lambda piece: ":" in piece)
            lines.append(" ".join(chosen))
        text = "1 1:1\n" + "\n".join(lines)
        wanted = strict(text, 9)
        path = written(tmp_path, text)
        if isinstance(wanted, int):
            bad += 1
            assert_error(path, wanted)
        else:
            good += 1
            data = read(path, n_features=9)
            assert np.array_equal(dense(data), wanted[0]), text
            assert np.array_equal(data.y, wanted[1]), text
    assert min(good, bad) > 200


# CSV


TABLE = np.array([[1.0, 2.5, -3.0], [0.0, 0.0, 1e-7], [4.0, -1e300, 0.1]])
CSV = "1,2.5,-3\n0,0,1e-7\n4,-1e300,.1\n"


def test_csv_has_the_target_last(tmp_path: Path) -> None:
    data = read(written(tmp_path, CSV, "table.csv"))
    assert isinstance(data.X, np.ndarray)
    assert data.X.flags.c_contiguous
    assert np.array_equal(data.X, TABLE[:, :2])
    assert np.array_equal(data.y, TABLE[:, 2])
    assert data.name == "table"


@pytest.mark.parametrize("ending", COMPRESSIONS)
@pytest.mark.parametrize(
    "text",
    [
        "a,b,t\n" + CSV,
        '"a","b, c","t"\n' + CSV,
        "\ufeffa,b,t\n" + CSV,
        "# a,b,t\n" + CSV,
        ",b,t\n" + CSV,
        "\n\na,b,t\n\n" + CSV.replace("\n", "\n\n"),
        CSV.replace("\n", "\r\n"),
        CSV.replace("\n", "\r"),
        '"1","2.5",-3\n0, 0 ,1e-7\n4,-1e300,.1',
        '"a\nb",b,t\n' + CSV,
    ],
)
def test_csv_variants(tmp_path: Path, text: str, ending: str) -> None:
    path = written(tmp_path, COMPRESSIONS[ending](text.encode()), f"table.csv{ending}")
    data = read(path)
    assert np.array_equal(data.X, TABLE[:, :2])
    assert np.array_equal(data.y, TABLE[:, 2])
    assert data.name == "table"


@pytest.mark.parametrize(
    ("target", "column"), [("a", 0), ("b", 1), ("t", 2), (0, 0), (1, 1), (-1, 2), (-3, 0)]
)
def test_csv_target(tmp_path: Path, target: str | int, column: int) -> None:
    for header in ["a, b ,t\n", "# a,b,t\n"]:
        data = read(written(tmp_path, header + CSV, "table.csv"), target=target)
        assert np.array_equal(data.y, TABLE[:, column])
        assert np.array_equal(data.X, np.delete(TABLE, column, axis=1))


def test_csv_target_makes_a_header_of_numbers(tmp_path: Path) -> None:
    data = read(written(tmp_path, "0,1,t\n" + CSV, "table.csv"), target="t")
    assert np.array_equal(data.X, TABLE[:, :2])


def test_csv_is_known_by_content(tmp_path: Path) -> None:
    for name in ["table", "table.txt", "table.data", "table.gz"]:
        content = gzip.compress(CSV.encode()) if name == "table.gz" else CSV.encode()
        assert np.array_equal(read(written(tmp_path, content, name)).X, TABLE[:, :2])
    assert np.array_equal(read(written(tmp_path, "# a,b,t\n" + CSV)).X, TABLE[:, :2])
    # The ending goes before the content.
    assert_error(written(tmp_path, CSV, "table.svm"), 1, "the label", "'1,2.5,-3'")
    assert_error(written(tmp_path, SMALL, "table.csv"), 1, "one column")


BAD_CSV = [
    ("1,2\n3\n", 2, ["found 1 cells", "must have 2"]),
    ("1,2\n3,4\n5,6,7\n", 3, ["found 3 cells", "must have 2"]),
    ("a,b,c\n1,2\n3,4\n", 2, ["found 2 cells", "must have 3"]),
    ("1,2\n3,x\n", 2, ["column 2", "'x'", "must be a number"]),
    ("a,b\n1,2\n\n3,x\n", 4, ["column 2 ('b')", "'x'"]),
    ("1,2\n,4\n", 2, ["column 1", "missing"]),
    ("1,2\n3, \n", 2, ["column 2", "missing"]),
    (",,\n1,2,3\n", 1, ["column 1", "missing"]),
    ("1,2\nnan,4\n", 2, ["column 1", "'nan'", "finite"]),
    ("1,2\n3,-inf\n", 2, ["column 2", "'-inf'", "finite"]),
    ("1,2\n3,1e999\n", 2, ["column 2", "'1e999'", "finite"]),
    ("1,2\n3,1_0\n", 2, ["column 2", "'1_0'"]),
    ('1,2\n3,"1,000"\n', 2, ["column 2", "'1,000'"]),
    ("1,x\n3,y\n", 1, ["column 2", "'x'"]),
    ("1,?\n3,4\n", 1, ["column 2", "'?'"]),
    ("nan,x\n3,4\n", 1, ["'x'", "header or data"]),
    ("1,2\n  \n3,4\n", 2, ["found 1 cells"]),
    ("a;b\n1;2\n", 1, ["one column", "'a;b'", "seem to be separated by ';'"]),
    ("1\n2\n", 1, ["one column", "comma"]),
    ("1,2\n3,\u0664\n", 2, ["column 2", r"'\u0664'"]),
    ('1,2\n3,"' + "4" * 200000 + '"\n', 2, ["field"]),
]


@pytest.mark.parametrize(("text", "line", "parts"), BAD_CSV)
def test_the_first_bad_cell_is_named(
    tmp_path: Path, text: str, line: int, parts: list[str]
) -> None:
    for later in ["", "later,later,\n"]:
        assert_error(written(tmp_path, text + later, "table.csv"), line, *parts)


def test_other_faults_of_csv(tmp_path: Path) -> None:
    table = written(tmp_path, "a,b,t\n" + CSV, "table.csv")
    assert_error(written(tmp_path, "a,b\n", "a.csv"), None, "header", "at least one row")
    assert_error(written(tmp_path, b"1,2\n3,\xe9\n", "a.csv"), 2, "not UTF-8", r"\\xe9")
    assert_error(table, None, "n_features is 3", "2 columns", n_features=3)
    assert_error(table, None, "no column 'tt'", "did you mean 't'", target="tt")
    twice = written(tmp_path, "t,b,t\n" + CSV, "a.csv")
    for target in ["t", 0]:
        assert_error(twice, 1, "'t'", "columns 1 and 3", "must differ", target=target)
    bare = written(tmp_path, CSV, "a.csv")
    assert_error(bare, None, "'t'", "no header", "0 to 2", target="t")
    for target in [3, -4, True, 0.5]:
        assert_error(table, None, f"target is {target}", "0 to 2", "-3 to -1", target=target)
    assert_error(
        written(tmp_path, SMALL), None, "target is 0", "only tables with columns", target=0
    )


# Names, descriptions, labels


def test_description_of_labels(tmp_path: Path) -> None:
    text = "+1 1:1 2:0\n-1 2:1 3:1\n+1 3:4\n"
    data = read(written(tmp_path, bz2.compress(text.encode()), "few.bz2"))
    # An explicit 0 is not counted.
    assert data.description == "few: 3 x 3, 4 non-zeros (1.3 a row), labels -1: 1, +1: 2"
    assert repr(data) == f"Dataset({data.description})"
    zero_one = read(written(tmp_path, "0 1:1\n1 1:1\n0 1:2\n"))
    assert zero_one.description.endswith("labels 0: 2, 1: 1")


def test_description_of_a_regression(tmp_path: Path) -> None:
    text = "".join(f"{i},0,{i}.5\n" for i in range(12))
    data = read(written(tmp_path, text, "many.csv"))
    assert data.description == (
        "many: 12 x 2, 11 non-zeros (0.9 a row), 12 distinct targets from 0.5 to 11.5"
    )


def test_a_data_set_is_frozen_and_pickles(tmp_path: Path) -> None:
    data = read(written(tmp_path, SMALL))
    with pytest.raises(FrozenInstanceError):
        data.name = "other"  # type: ignore[misc]
    again = pickle.loads(pickle.dumps(data))
    assert np.array_equal(dense(again), X_SMALL)


@pytest.mark.parametrize(
    ("name", "plain"),
    [("a9a.t.bz2", "a9a.t"), ("a.TXT", "a"), ("a.svm.gz", "a"), ("a.b.libsvm", "a.b"), ("a", "a")],
)
def test_names(tmp_path: Path, name: str, plain: str) -> None:
    compress = COMPRESSIONS.get(Path(name).suffix, bytes)
    assert read(written(tmp_path, compress(SMALL), name)).name == plain


@pytest.mark.parametrize("labels", [(-1, 1), (0, 1), (1, 2), (-3.5, -2.0)])
def test_as_binary(labels: tuple[float, float]) -> None:
    y = as_binary([labels[1], labels[0], labels[1]])
    assert y.dtype == np.float64
    assert np.array_equal(y, [1.0, -1.0, 1.0])


def test_as_binary_needs_two_labels() -> None:
    with pytest.raises(ValueError, match=r"two distinct labels, but it holds 1: 3\."):
        as_binary([3, 3])
    with pytest.raises(ValueError, match=r"holds 3: -1, 0, 0\.5\."):
        as_binary([0.5, 0, -1, 0])
    with pytest.raises(ValueError, match=r"holds 20: 1, 2, 3, 4, 5, \.\.\.\."):
        as_binary(np.arange(20, 0, -1))
    with pytest.raises(ValueError, match="finite"):
        as_binary([1.0, np.nan])


# find


@pytest.mark.parametrize("ending", ["", ".bz2", ".gz", ".xz", ".txt", ".svm", ".libsvm"])
def test_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    monkeypatch.setenv("ACCELEGRAD_DATA", str(tmp_path))
    assert find("a9a") is None
    written(tmp_path, SMALL, f"a9a.t{ending}")
    (tmp_path / "a9a").mkdir()
    assert find("a9a") is None
    path = written(tmp_path, SMALL, f"a9a{ending or '.bz2'}")
    assert find("a9a") == path
    assert find("a9a.t") == tmp_path / f"a9a.t{ending}"


def test_find_prefers_the_exact_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELEGRAD_DATA", str(tmp_path))
    written(tmp_path, SMALL, "a.bz2")
    exact = written(tmp_path, SMALL, "a")
    assert find("a") == exact
    assert find("a.bz2") == tmp_path / "a.bz2"


def test_find_without_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACCELEGRAD_DATA", raising=False)
    assert find("a9a") is None
    monkeypatch.setenv("ACCELEGRAD_DATA", "")
    assert find("a9a") is None
    for wrong in [tmp_path / "none", written(tmp_path, SMALL, "file")]:
        monkeypatch.setenv("ACCELEGRAD_DATA", str(wrong))
        with pytest.raises(DataError, match=f"{re.escape(str(wrong))}.*ACCELEGRAD_DATA"):
            find("a9a")


# The generator


@pytest.fixture(scope="module")
def text_data() -> Dataset:
    return sparse_text(5000, 20000, seed=5)


def held_out_accuracy(data: Dataset) -> float:
    cut = 4 * data.y.size // 5
    classifier = LinearSVC(C=1.0, random_state=0).fit(data.X[:cut], data.y[:cut])
    return float(classifier.score(data.X[cut:], data.y[cut:]))


def test_text_has_the_wanted_size(text_data: Dataset) -> None:
    X = text_data.X
    assert isinstance(X, sp.csr_matrix)
    assert X.shape == (5000, 20000)
    assert X.has_canonical_format
    assert X.nnz / 5000 == pytest.approx(74, rel=0.03)
    assert X.data.min() > 0.0
    assert np.sqrt(X.multiply(X).sum(axis=1)) == pytest.approx(1.0, rel=1e-12)
    assert text_data.source == "sparse_text(n=5000, d=20000, nnz=74, seed=5, label_noise=0.05)"


def test_text_has_varied_lengths(text_data: Dataset) -> None:
    lengths = np.diff(text_data.X.indptr)
    # Those of RCV1: the median is 0.8 of the mean, the logs' standard deviation 0.7.
    assert 0.7 < np.median(lengths) / lengths.mean() < 0.85
    assert 0.6 < np.log(lengths).std() < 0.85
    # Lengths must not go with the order of the rows.
    assert abs(np.corrcoef(lengths, np.arange(5000))[0, 1]) < 0.06


def test_text_follows_zipf(text_data: Dataset) -> None:
    frequencies = np.bincount(text_data.X.indices, minlength=20000)
    ranked = np.sort(frequencies)[::-1]
    ranks = np.arange(10, 1000)
    slope = np.polyfit(np.log(ranks), np.log(ranked[ranks]), 1)[0]
    assert -1.2 < slope < -0.85
    assert ranked[0] < 0.8 * 5000
    # The columns are in random order: frequent words are spread evenly.
    frequent = np.sort(np.argsort(frequencies)[-1000:])
    assert np.abs(frequent / 20000 - np.arange(1000) / 1000).max() < 0.07


def test_text_is_balanced_and_can_be_learned(text_data: Dataset) -> None:
    assert set(text_data.y.tolist()) == {-1.0, 1.0}
    assert abs(text_data.y.mean()) < 0.05
    assert 0.85 < held_out_accuracy(text_data) < 0.95


def test_label_noise_flips_labels_only(text_data: Dataset) -> None:
    clean = sparse_text(5000, 20000, seed=5, label_noise=0.0)
    assert (clean.X != text_data.X).nnz == 0
    assert np.mean(clean.y != text_data.y) == pytest.approx(0.05, abs=0.012)
    assert abs(clean.y.sum()) <= 2
    assert 0.91 < held_out_accuracy(clean) < 0.99
    noise = sparse_text(5000, 20000, seed=5, label_noise=0.5)
    assert 0.4 < held_out_accuracy(noise) < 0.6


def test_text_is_made_by_its_seed() -> None:
    first, again, other = (sparse_text(300, 2000, 30, seed=seed) for seed in (6, 6, 7))
    for name in ["data", "indices", "indptr"]:
        assert np.array_equal(getattr(first.X, name), getattr(again.X, name))
    assert np.array_equal(first.y, again.y)
    assert not np.array_equal(first.X.toarray(), other.X.toarray())
    assert not np.array_equal(first.y, other.y)


@pytest.mark.parametrize(
    ("n", "d", "nnz"),
    [(2, 4, 1), (50, 100, 1), (1000, 1000, 2), (200, 50, 12), (300, 400, 100), (500, 5000, 74)],
)
def test_sizes_of_text(n: int, d: int, nnz: int) -> None:
    for seed in range(3):
        data = sparse_text(n, d, nnz, seed=seed)
        assert data.X.shape == (n, d)
        assert data.X.nnz / n == pytest.approx(nnz, rel=0.05)
        assert np.diff(data.X.indptr).min() >= 1
        assert np.isfinite(data.X.data).all()
        assert data.X.data.min() > 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 1}, "n must be a whole number >= 2"),
        ({"d": 3}, "d must be a whole number >= 4"),
        ({"nnz": 0}, "nnz must be a whole number >= 1"),
        ({"d": 100, "nnz": 26}, "nnz must be at most d / 4 = 25, but it is 26"),
        ({"seed": -1}, "seed must be a whole number >= 0"),
        ({"seed": None}, "seed must be a whole number >= 0"),
        ({"label_noise": -0.1}, "label_noise must be a finite number >= 0"),
        ({"label_noise": 0.6}, "label_noise must be at most 0.5"),
    ],
)
def test_arguments_of_text(arguments: dict[str, object], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        sparse_text(**{"seed": 0, **arguments})  # type: ignore[arg-type]


def test_text_of_the_size_of_rcv1() -> None:
    data = sparse_text(seed=8)
    assert data.X.shape == (20242, 47236)
    assert data.X.nnz / 20242 == pytest.approx(74, rel=0.03)
    assert data.X.indices.dtype == np.int32


# Real files


# name, n_features to give, rows, features, non-zeros, the end of the description
REAL = [
    ("rcv1_subsets_binary", 47236, 23749, 47236, 1783774, "labels -1: 11920, +1: 11829"),
    ("a9a", None, 32561, 123, 451592, "labels -1: 24720, +1: 7841"),
    ("a9a.t", None, 16281, 122, 225731, "labels -1: 12435, +1: 3846"),
    ("w8a", None, 49749, 300, 579586, "labels -1: 48270, +1: 1479"),
    ("mushrooms", None, 8124, 112, 170604, "labels 1: 3916, 2: 4208"),
    ("svmlight_reuters_acq.t", None, 600, 9930, 23730, "labels -1: 300, +1: 300"),
    ("pol", 48, 15000, 48, 205963, "targets from 0 to 100"),
    ("bodyfat", None, 252, 14, 3528, "176 distinct targets from 0 to 47.5"),
]


@pytest.mark.parametrize(("name", "given", "rows", "columns", "nonzeros", "targets"), REAL)
def test_real_files(
    name: str, given: int | None, rows: int, columns: int, nonzeros: int, targets: str
) -> None:
    if not os.environ.get("ACCELEGRAD_DATA"):
        pytest.skip("ACCELEGRAD_DATA is not set: it names the folder of real data files")
    path = find(name)
    if path is None:
        pytest.skip(f"the folder that ACCELEGRAD_DATA names has no {name}")
    data = read(path, n_features=given)
    assert data.name == name
    assert data.X.shape == (rows, columns)
    assert f"{rows} x {columns}, {nonzeros} non-zeros" in data.description
    assert data.description.endswith(targets)
