"""Streams against plain loops over `partial_fit`, for every kind of source; memory; what goes wrong."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.datasets import dump_svmlight_file
from sklearn.linear_model import LinearRegression
from sklearn.utils import check_random_state

from accelegrad.data import text_blocks
from accelegrad.data.columns import Wanted
from accelegrad.data.datasets import DataError, read
from accelegrad.data.formats import open_table
from accelegrad.sklearn import AcceleGradClassifier, AcceleGradRegressor
from accelegrad.sklearn.base import SEEDS
from accelegrad.sklearn.stream import StreamInterruptedWarning, fit_stream, is_stream
from accelegrad.sklearn.stream_certificate import StreamCertificate

COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".bz2": bz2.compress,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
}
ROWS, WIDTH, CHUNK = 230, 6, 50


def data(seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Rows with many zeros, the last column empty after the first rows, and labels -1 and 1."""
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((ROWS, WIDTH)) < 0.5, rng.standard_normal((ROWS, WIDTH)).round(3), 0.0)
    X[60:, -1] = 0.0
    y = np.where(X @ np.arange(1.0, WIDTH + 1) + 0.3 * rng.standard_normal(ROWS) > 0.0, 1.0, -1.0)
    return X, y


def parts(*arrays: Any, size: int = CHUNK) -> list[tuple[Any, ...]]:
    n = arrays[0].shape[0]
    return [tuple(a[start : start + size] for a in arrays) for start in range(0, n, size)]


def by_hand(estimator: Any, chunks: list[tuple[Any, ...]], epochs: int = 1, **options: Any) -> Any:
    for _ in range(epochs):
        for X, y in chunks:
            estimator.partial_fit(X, y, **options)
    return estimator


def classifier(**options: Any) -> AcceleGradClassifier:
    return AcceleGradClassifier(random_state=5, **options)


def libsvm(path: Path, X: Any, y: Any, compress: Callable[[bytes], bytes] = bytes) -> Path:
    plain = path.parent / "plain"
    dump_svmlight_file(X, y, str(plain), zero_based=False)
    path.write_bytes(compress(plain.read_bytes()))
    return path


# Sources


@pytest.mark.parametrize("ending", COMPRESSIONS)
@pytest.mark.parametrize("rows", [1, 7, 64, 230, 1000, None])
def test_the_blocks_of_a_libsvm_file_are_the_file(tmp_path: Path, ending: str, rows: int) -> None:
    X, y = data()
    path = libsvm(tmp_path / f"data{ending}", X, y, COMPRESSIONS[ending])
    blocks = list(open_table(path, Wanted(n_features=WIDTH)).blocks(rows))
    whole = read(path)
    assert (sp.vstack([block.X for block in blocks]) != whole.X).nnz == 0
    np.testing.assert_array_equal(np.concatenate([block.y for block in blocks]), whole.y)
    if rows is not None:
        assert [block.X.shape[0] for block in blocks[:-1]] == [rows] * (len(blocks) - 1)


def test_blocks_are_cut_by_size_where_no_number_of_rows_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_blocks, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(text_blocks, "PIECE", 300)
    X, y = data()
    path = libsvm(tmp_path / "data", X, y)
    blocks = list(open_table(path, Wanted(n_features=WIDTH)).blocks(None))
    assert len(blocks) > 3
    np.testing.assert_array_equal(np.concatenate([block.y for block in blocks]), y)
    assert (sp.vstack([block.X for block in blocks]) != sp.csr_matrix(X)).nnz == 0


def test_line_ends_comments_and_a_missing_last_line_end(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"\xef\xbb\xbf# made by hand\r\n1 1:2\r\n\r\n# more\r\n-1 2:3 # x\r\n1 3:1")
    blocks = list(open_table(path, Wanted(n_features=3)).blocks(2))
    np.testing.assert_array_equal(
        sp.vstack([block.X for block in blocks]).toarray(), [[2, 0, 0], [0, 3, 0], [0, 0, 1]]
    )


def sources(folder: Path) -> dict[str, Any]:
    """The same rows in the same chunks from everywhere."""
    X, y = data()
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", y)
    np.savez(folder / "dense.npz", X=X, y=y)
    np.savez_compressed(folder / "compressed.npz", X=X, y=y)
    rows = sp.csr_matrix(X)
    pieces = {"data": rows.data, "indices": rows.indices, "indptr": rows.indptr}
    np.savez(folder / "sparse.npz", **pieces, shape=np.array(rows.shape), y=y)
    chunks = parts(X, y)
    return {
        "arrays": (X, y),
        "lists": (X.tolist(), y.tolist()),
        "mapped": (np.load(folder / "X.npy", mmap_mode="r"), np.load(folder / "y.npy")),
        "npy": (folder / "X.npy", str(folder / "y.npy")),
        "npz": folder / "dense.npz",
        "npz compressed": folder / "compressed.npz",
        "npz sparse": folder / "sparse.npz",
        "csr": (rows, y),
        "libsvm": libsvm(folder / "data", X, y),
        "libsvm.bz2": libsvm(folder / "data.bz2", X, y, bz2.compress),
        "list": chunks,
        "function": lambda: iter(chunks),
        "iterable": Chunks(chunks),
    }


SPARSE = ("npz sparse", "csr", "libsvm", "libsvm.bz2")


class Chunks:
    def __init__(self, chunks: list[Any]) -> None:
        self.chunks = chunks

    def __iter__(self) -> Iterator[Any]:
        return iter(self.chunks)


@pytest.mark.parametrize(
    "name",
    [
        *("arrays", "lists", "mapped", "npy", "npz", "npz compressed", "npz sparse", "csr"),
        *("libsvm", "libsvm.bz2", "list", "function", "iterable"),
    ],
)
def test_a_stream_is_partial_fit_chunk_by_chunk(tmp_path: Path, name: str) -> None:
    X, y = data()
    # Sparse products are summed in another order, so sparse chunks are compared with sparse ones:
    # the same computation, which has the same rounding.
    rows = sp.csr_matrix(X) if name in SPARSE else X
    plain = by_hand(classifier(), parts(rows, y), epochs=3, classes=[-1, 1])
    done = fit_stream(
        classifier(), sources(tmp_path)[name], epochs=3, chunk_rows=CHUNK, shuffle=False
    )
    assert (done.rows, done.epochs, done.interrupted) == (3 * ROWS, 3, False)
    np.testing.assert_array_equal(done.estimator.coef_, plain.coef_)
    np.testing.assert_array_equal(done.estimator.intercept_, plain.intercept_)
    np.testing.assert_array_equal(done.estimator.classes_, [-1.0, 1.0])


def test_sparse_chunks_give_what_dense_ones_give() -> None:
    X, y = data()
    # One step, whose result is a sum of products of numbers of about 1. Rounding is multiplied by
    # every step after it, so that long runs may differ by far more.
    one = {"batch_size": ROWS, "diameter": 1.0}
    dense = by_hand(classifier(**one), [(X, y)], classes=[-1, 1])
    sparse = by_hand(classifier(**one), [(sp.csr_matrix(X), y)], classes=[-1, 1])
    allowed = 4 * ROWS * np.finfo(float).eps
    np.testing.assert_allclose(sparse.coef_, dense.coef_, rtol=0, atol=allowed)
    np.testing.assert_allclose(sparse.intercept_, dense.intercept_, rtol=0, atol=allowed)


def test_csv_in_chunks_with_names_and_text_labels(tmp_path: Path) -> None:
    X, y = data()
    labels = np.where(y > 0, "yes", "no")
    path = tmp_path / "table.csv"
    lines = [",".join([*map(repr, x.tolist()), t]) for x, t in zip(X, labels, strict=True)]
    path.write_text("\n".join([",".join([*"abcdef", "bought"]), *lines]) + "\n")
    table = open_table(path)
    assert table.names == tuple("abcdef")
    assert table.target == "bought"
    done = fit_stream(classifier(), path, chunk_rows=40, shuffle=False)
    # The header is a line of the first chunk.
    chunks = [(X[:39], labels[:39]), *parts(X[39:], labels[39:], size=40)]
    plain = by_hand(classifier(), chunks, classes=["no", "yes"])
    np.testing.assert_array_equal(done.estimator.coef_, plain.coef_)
    np.testing.assert_array_equal(done.estimator.classes_, ["no", "yes"])


def test_weights_go_along(tmp_path: Path) -> None:
    X, y = data()
    weights = np.random.default_rng(2).uniform(0.5, 2.0, ROWS)
    plain = classifier()
    for part, labels, share in parts(X, y, weights):
        plain.partial_fit(part, labels, classes=[-1, 1], sample_weight=share)
    done = fit_stream(classifier(), (X, y, weights), chunk_rows=CHUNK, shuffle=False)
    np.testing.assert_array_equal(done.estimator.coef_, plain.coef_)


class Recorder(BaseEstimator):
    """Not an estimator of ours: it keeps what it is given."""

    def __init__(self) -> None:
        self.seen: list[np.ndarray] = []

    def partial_fit(self, X: Any, y: Any) -> None:
        self.seen.append(np.asarray(y))


@pytest.mark.parametrize("name", ["arrays", "npy", "libsvm", "list"])
def test_chunks_are_shuffled_whole_in_each_epoch(tmp_path: Path, name: str) -> None:
    X, _ = data()
    y = np.arange(float(ROWS))
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    source = {
        "arrays": (X, y),
        "npy": (tmp_path / "X.npy", tmp_path / "y.npy"),
        "libsvm": libsvm(tmp_path / "data", X, y),
        "list": parts(X, y, size=20),
    }[name]
    orders = []
    for seed in (1, 1, 2):
        recorder = Recorder()
        fit_stream(recorder, source, epochs=2, chunk_rows=20, rng=seed)
        first, second = recorder.seen[:12], recorder.seen[12:]
        for epoch in (first, second):
            assert {chunk[0] for chunk in epoch} == set(range(0, ROWS, 20))
            assert all((np.diff(chunk) == 1.0).all() for chunk in epoch)
        orders.append([chunk[0] for chunk in recorder.seen])
        assert orders[-1][:12] != orders[-1][12:]
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]


def test_a_compressed_file_stays_in_order(tmp_path: Path) -> None:
    X, _ = data()
    path = libsvm(tmp_path / "data.gz", X, np.arange(float(ROWS)), gzip.compress)
    recorder = Recorder()
    fit_stream(recorder, path, epochs=2, chunk_rows=20, rng=0)
    np.testing.assert_array_equal(np.concatenate(recorder.seen), [*range(ROWS), *range(ROWS)])


# How good it is


def test_least_squares_streamed_is_least_squares() -> None:
    rng = np.random.default_rng(8)
    X = rng.standard_normal((8000, 5)) * [1.0, 10.0, 0.1, 1.0, 5.0] + [3.0, 0.0, 0.0, 0.0, 0.0]
    y = X @ [1.0, -0.2, 4.0, 0.5, 0.0] + 2.0 + 0.1 * rng.standard_normal(8000)
    done = fit_stream(
        AcceleGradRegressor(alpha=0.0, random_state=0), (X, y), epochs=8, chunk_rows=500, rng=0
    )
    exact = LinearRegression().fit(X, y)
    residual = y - exact.predict(X)
    least = 0.5 * residual @ residual / y.size
    assert done.estimator.objective_ <= 1.01 * least
    assert done.estimator.objective_ >= least


@pytest.mark.parametrize("loss", ["log_loss", "hinge", "squared_hinge", "modified_huber"])
@pytest.mark.parametrize("intercept", [True, False])
def test_the_gap_of_a_stream_is_a_gap(loss: str, intercept: bool) -> None:
    X, y = data()
    settings = {"loss": loss, "alpha": 1e-2, "fit_intercept": intercept}
    done = fit_stream(classifier(**settings), (X, y), epochs=20, chunk_rows=CHUNK, rng=0)
    estimator = done.estimator
    exact = classifier(**settings, tol=1e-6).fit(X, y)
    minimum_above = exact.objective_ - exact.gap_
    assert estimator.objective_ >= minimum_above
    assert estimator.objective_ - estimator.gap_ <= exact.objective_
    assert estimator.gap_ < 0.5 * estimator.objective_
    assert not estimator.converged_ or estimator.gap_ <= 1e-3 * estimator.objective_


def test_the_certificate_at_the_minimiser_is_tight_and_the_objective_the_same() -> None:
    X, y = data()
    weights = np.random.default_rng(0).uniform(0.5, 2.0, ROWS)
    estimator = AcceleGradClassifier(alpha=1e-2, tol=1e-9, class_weight={1: 2.0, -1: 0.7})
    estimator.fit(X, y, weights)
    certificate = StreamCertificate(estimator)
    for chunk in parts(X, y, weights):
        certificate.add(*chunk)
    assert certificate.objective == pytest.approx(estimator.objective_, rel=1e-13)
    assert 0.0 <= certificate.gap <= 1e-5 * estimator.objective_


def test_what_cannot_be_certified_says_so() -> None:
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((120, 4)), rng.integers(0, 3, 120)
    several = fit_stream(classifier(), (X, y), chunk_rows=40).estimator
    assert several.gap_ == np.inf
    # The multinomial objective, written out.
    scores = X @ several.coef_.T + several.intercept_
    losses = np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(120), y]
    expected = losses.mean() + 0.5e-4 * (several.coef_**2).sum()
    assert several.objective_ == pytest.approx(expected, rel=1e-12)
    once = fit_stream(AcceleGradRegressor(), iter(parts(X, y, size=40))).estimator
    assert np.isnan(once.objective_)
    assert once.gap_ == np.inf
    none = fit_stream(AcceleGradRegressor(), (X, y), certify=False).estimator
    assert np.isnan(none.objective_)


# Edges


def test_a_last_chunk_of_one_row_and_empty_chunks() -> None:
    X, y = data()
    chunks = [(X[:0], y[:0]), (X[:50], y[:50]), (X[50:50], y[50:50]), (X[50:51], y[50:51])]
    done = fit_stream(classifier(), iter(chunks), classes=[-1, 1])
    assert done.rows == 51
    plain = by_hand(classifier(), [chunks[1], chunks[3]], classes=[-1, 1])
    np.testing.assert_array_equal(done.estimator.coef_, plain.coef_)


def test_blocks_of_a_libsvm_file_are_padded(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_text("1 1:1\n-1 1:2\n1 2:1\n-1 2:-1\n1 4:1\n-1 3:1\n")
    done = fit_stream(classifier(), path, chunk_rows=2)
    assert done.estimator.coef_.shape == (1, 4)
    wider = fit_stream(classifier(), path, chunk_rows=2, n_features=9)
    assert wider.estimator.coef_.shape == (1, 9)


def test_chunks_of_differing_width() -> None:
    X, y = data()
    chunks = [(X[:50], y[:50]), (X[50:100, :4], y[50:100])]
    with pytest.raises(ValueError, match=r"chunk 2 of epoch 1 has 4 columns.*before it have 6"):
        fit_stream(classifier(), iter(chunks))


def test_a_class_never_seen_before() -> None:
    X, y = data()
    late = y.copy()
    late[120] = 7.0
    with pytest.raises(
        ValueError, match=r"chunk 3 of epoch 1 holds the labels \[7.0\].*Give class"
    ):
        fit_stream(classifier(), iter(parts(X, late)))
    with pytest.raises(ValueError, match=r"\[7.0\], which are not among classes \[-1, 1\]"):
        fit_stream(classifier(), (X, late), classes=[-1, 1], chunk_rows=CHUNK)
    # Arrays and files are looked through ahead.
    done = fit_stream(classifier(), (X, late), chunk_rows=CHUNK)
    np.testing.assert_array_equal(done.estimator.classes_, [-1.0, 1.0, 7.0])


def test_one_class_only() -> None:
    X, _ = data()
    with pytest.raises(ValueError, match=r"the first, holds only the class .*Give classes"):
        fit_stream(classifier(), iter([(X, np.ones(ROWS))]))
    with pytest.raises(ValueError, match="at least 2 classes"):
        fit_stream(classifier(), (X, np.ones(ROWS)))


def test_wrong_values_name_the_chunk() -> None:
    X, y = data()
    X[170, 2] = np.nan
    with pytest.raises(ValueError, match=r"chunk 4 of epoch 1: Input X contains NaN"):
        fit_stream(classifier(), (X, y), chunk_rows=CHUNK, shuffle=False)


def test_iterators_are_read_once() -> None:
    X, y = data()
    with pytest.raises(ValueError, match=r"epochs is 2, but source is an iterator"):
        fit_stream(classifier(), iter(parts(X, y)), epochs=2)
    used_up = iter(parts(X, y))
    with pytest.raises(ValueError, match="no rows in epoch 2"):
        fit_stream(classifier(), lambda: used_up, epochs=2)


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        (3, TypeError, "source must be a path"),
        (np.ones((3, 2)), TypeError, "source must be a path"),
        ((np.ones((3, 2)),), ValueError, "1 entries"),
        ((np.ones((3, 2)), np.ones(4)), ValueError, r"equal lengths, not \[3, 4\]"),
        ((np.ones((0, 2)), np.ones(0)), ValueError, "no rows"),
        ([], ValueError, "no rows in epoch 1"),
        ([np.ones((3, 2))], TypeError, r"chunk 1 of epoch 1 must be a tuple \(X, y\)"),
        (lambda: 3, TypeError, r"source\(\) must give an iterator"),
        ("nowhere.svm", DataError, "cannot be read"),
    ],
)
def test_wrong_sources(source: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        fit_stream(AcceleGradRegressor(), source)


def test_wrong_options() -> None:
    X, y = data()
    with pytest.raises(ValueError, match="epochs must be a whole number >= 1"):
        fit_stream(classifier(), (X, y), epochs=0)
    with pytest.raises(TypeError, match="chunk_rows"):
        fit_stream(classifier(), (X, y), chunk_rows=1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="LinearRegression has none"):
        fit_stream(LinearRegression(), (X, y))
    with pytest.raises(ValueError, match="classes are for classifiers"):
        fit_stream(AcceleGradRegressor(), (X, y), classes=[0, 1])


def test_a_wrong_line_is_named_by_its_number(tmp_path: Path) -> None:
    X, y = data()
    path = libsvm(tmp_path / "data", X, y)
    lines = path.read_text().splitlines()
    lines[170] = "1 2:x"
    path.write_text("\n".join(lines))
    with pytest.raises(DataError, match=r"line 171: the value of index 2 is 'x'"):
        fit_stream(classifier(), path, chunk_rows=30)
    rows = [f"{i},{i % 3},{i % 2}" for i in range(50)]
    rows[40] = "1,2"
    table = tmp_path / "table.csv"
    table.write_text("\n".join(["a,b,c", *rows]))
    with pytest.raises(DataError, match=r"line 42: found 2 cells"):
        fit_stream(classifier(), table, chunk_rows=8)


@pytest.mark.parametrize("ending", [".bz2", ".gz", ".xz"])
def test_damaged_compression(tmp_path: Path, ending: str) -> None:
    X, y = data()
    path = libsvm(tmp_path / f"data{ending}", X, y, COMPRESSIONS[ending])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match="compression is damaged"):
        fit_stream(classifier(), path, chunk_rows=30)
    path.write_bytes(b"1 1:2\n")
    with pytest.raises(DataError, match=f"the name says {ending}"):
        fit_stream(classifier(), path)


def test_damaged_and_unsuitable_npz(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    path.write_bytes(b"PK nothing")
    with pytest.raises(DataError, match="no npz file, or a damaged one"):
        fit_stream(AcceleGradRegressor(), path)
    np.savez(path, a=np.ones(3))
    with pytest.raises(DataError, match=r"the arrays are \['a'\]"):
        fit_stream(AcceleGradRegressor(), path)
    np.savez(path, X=np.ones((3, 2)), y=np.ones(4))
    with pytest.raises(DataError, match=r"X has 3 rows, but y has the shape \(4,\)"):
        fit_stream(AcceleGradRegressor(), path)
    np.savez(path, X=np.ones((3, 2)), y=np.array([1, "a", None], dtype=object))
    with pytest.raises(DataError, match="Python objects"):
        fit_stream(AcceleGradRegressor(), path)


def interrupted(chunks: list[Any], after: int) -> Iterator[Any]:
    yield from chunks[:after]
    raise KeyboardInterrupt


def test_ctrl_c_keeps_what_is_fitted() -> None:
    chunks = parts(*data())
    estimator = classifier()
    with pytest.warns(StreamInterruptedWarning, match=r"epoch 1 of 1, after 100 rows.*keeps"):
        done = fit_stream(estimator, interrupted(chunks, after=2))
    assert (done.rows, done.epochs, done.interrupted) == (100, 0, True)
    plain = by_hand(classifier(), chunks[:2], classes=[-1, 1])
    np.testing.assert_array_equal(estimator.coef_, plain.coef_)
    with pytest.raises(KeyboardInterrupt):
        fit_stream(classifier(), interrupted(chunks, after=0))


def test_the_bar_shows_rows_and_epochs(capsys: pytest.CaptureFixture[str]) -> None:
    fit_stream(classifier(), data(), epochs=2, chunk_rows=CHUNK, progress=True)
    shown = capsys.readouterr().err
    assert "epoch 2" in shown
    assert "460/460" in shown
    assert "row" in shown


def test_a_stream_goes_on_from_where_the_estimator_stands() -> None:
    chunks = parts(*data())
    estimator = classifier()
    fit_stream(estimator, chunks[:2], shuffle=False)
    fit_stream(estimator, chunks[2:], shuffle=False)
    plain = by_hand(classifier(), chunks, classes=[-1, 1])
    np.testing.assert_array_equal(estimator.coef_, plain.coef_)


# Memory

MEASURE = """
import json, sys
from accelegrad.sklearn import AcceleGradRegressor
from accelegrad.sklearn.base import SEEDS
from accelegrad.sklearn.stream import fit_stream

def memory(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))

def growth(source, rows):
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak is counted anew
    before = memory("VmRSS")
    estimator = AcceleGradRegressor(batch_size=100, random_state=0)
    source = tuple(source) if isinstance(source, list) else source
    fit_stream(estimator, source, chunk_rows=rows, n_features=200, rng=0)
    return memory("VmHWM") - before

small, large = json.loads(sys.argv[1])
for source in small:
    growth(source, 100)
print(json.dumps([*(growth(source, 100) for source in large), growth(large[2], 10**6)]))
"""


def large_files(folder: Path, repeats: int) -> list[Any]:
    """The same 500 rows of 200 numbers, so many times; text, which is slow, half as often."""
    folder.mkdir()
    rng = np.random.default_rng(4)
    X = rng.standard_normal((500, 200))
    y = X @ rng.standard_normal(200)
    text = libsvm(folder / "chunk", X.round(3), y).read_bytes()
    (folder / "rows").write_bytes(text * (repeats // 2))
    (folder / "rows.gz").write_bytes(gzip.compress(text, 1) * (repeats // 2))
    tall, targets = np.tile(X, (repeats, 1)), np.tile(y, repeats)
    np.save(folder / "X.npy", tall)
    np.save(folder / "y.npy", targets)
    np.savez(folder / "rows.npz", X=tall, y=targets)
    mapped = [str(folder / "X.npy"), str(folder / "y.npy")]
    return [str(folder / "rows"), str(folder / "rows.gz"), mapped, str(folder / "rows.npz")]


@pytest.mark.slow
def test_peak_memory_is_the_chunk(tmp_path: Path) -> None:
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("the peak of memory can be counted anew on Linux only")
    small, large = large_files(tmp_path / "small", 4), large_files(tmp_path / "large", 36)
    sizes = [(tmp_path / "large" / name).stat().st_size for name in ("rows", "X.npy", "rows.npz")]
    assert min(sizes) > 18e6
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, json.dumps([small, large])],
        capture_output=True,
        text=True,
        check=True,
    )
    *growth, in_one_chunk = json.loads(done.stdout)
    assert len(growth) == 4
    # A chunk of 100 rows has 0.16 MB of numbers or 0.2 MB of text.
    assert max(growth) < 14e6, growth
    assert in_one_chunk > sizes[1]


# `fit` without targets


@pytest.mark.parametrize("name", ["libsvm", "npy", "npz", "list", "function", "iterable", "arrays"])
def test_fit_without_targets_takes_a_stream(tmp_path: Path, name: str) -> None:
    source = sources(tmp_path)[name]
    fitted = classifier().fit(source, epochs=2)
    seed = int(check_random_state(classifier().random_state).randint(SEEDS))
    plain = fit_stream(classifier(), source, epochs=2, rng=seed).estimator
    np.testing.assert_array_equal(fitted.coef_, plain.coef_)
    assert fitted.objective_ == plain.objective_
    assert np.isfinite(fitted.gap_)


def test_fit_forgets_what_was_fitted_before() -> None:
    X, y = data()
    used = (
        classifier().fit(X[:, :2], np.where(y > 0, "yes", "no")).partial_fit(X[:9, :2], ["no"] * 9)
    )
    used.fit(lambda: iter(parts(X, y)))
    fresh = classifier().fit(lambda: iter(parts(X, y)))
    np.testing.assert_array_equal(used.coef_, fresh.coef_)
    np.testing.assert_array_equal(used.classes_, [-1.0, 1.0])
    assert used.n_features_in_ == WIDTH
    # Chunks of 50 rows are ceil(50 / 16) steps, the last of an epoch ceil(30 / 16). The first seven
    # count as one, of 330 rows.
    assert fresh.n_iter_ == 21 + (2 * 4 + 2) + 3 * (4 * 4 + 2)


def test_a_warm_start_of_a_stream_keeps_the_coefficients() -> None:
    X, y = data()
    warm = AcceleGradRegressor(random_state=0, warm_start=True).fit(X, y)
    exact = warm.coef_.copy()
    few = (X[:16], y[:16])
    cold = AcceleGradRegressor(random_state=0).fit(few, epochs=1)
    warm.fit(few, epochs=1)
    assert np.linalg.norm(warm.coef_ - exact) < 0.2 * np.linalg.norm(cold.coef_ - exact)
    assert warm.n_samples_seen_ == 16  # the rows behind the start do not count


def test_an_iterator_is_one_epoch_unless_more_are_wanted() -> None:
    X, y = data()
    once = AcceleGradRegressor(random_state=1).fit(iter(parts(X, y)))
    plain = by_hand(AcceleGradRegressor(random_state=1), parts(X, y))
    np.testing.assert_array_equal(once.coef_, plain.coef_)
    assert once.gap_ == np.inf
    with pytest.raises(ValueError, match="epochs is 3, but source is an iterator"):
        AcceleGradRegressor().fit((part for part in parts(X, y)), epochs=3)


@pytest.mark.parametrize(
    ("options", "given", "message"),
    [
        ({}, {"sample_weight": np.ones(ROWS)}, "sample_weight cannot be given beside a stream"),
        ({"early_stopping": True}, {}, "early_stopping must be False for a stream"),
        ({}, {"epochs": 0}, "epochs must be a whole number >= 1"),
        ({"class_weight": "balanced"}, {}, "class_weight='balanced' is not supported"),
    ],
)
def test_what_a_stream_cannot_do(options: Any, given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        classifier(**options).fit(data(), **given)


@pytest.mark.parametrize("X", [np.ones((4, 2)), [[1.0, 2.0]] * 4, ((1.0, 2.0), (3.0, 4.0))])
def test_a_table_without_targets_is_no_stream(X: Any) -> None:
    with pytest.raises(ValueError, match="requires y to be passed, but the target y is None"):
        classifier().fit(X)
    assert not is_stream(X)


def test_epochs_are_for_streams() -> None:
    X, y = data()
    with pytest.raises(ValueError, match="epochs are for streams, but X is ndarray"):
        classifier().fit(X, y, epochs=2)


def test_epochs_are_no_metadata_to_be_routed() -> None:
    assert set(classifier().get_metadata_routing().fit.requests) == {"sample_weight"}
