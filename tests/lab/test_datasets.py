"""Data sets: their names and descriptions, where they are found, the text generator's statistics."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import LinearSVC

from accelegrad_lab.datasets import DataError, as_binary, find, read, sparse_text

COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".bz2": bz2.compress,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
}
SMALL = b"+1 1:0.5 3:-2\n-1 2:1e-3\n"


def written(tmp_path: Path, content: bytes | str, name: str = "data") -> Path:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# Names, descriptions, labels


def test_description_of_labels(tmp_path: Path) -> None:
    text = "+1 1:1 2:0\n-1 2:1 3:1\n+1 3:4\n"
    data = read(written(tmp_path, bz2.compress(text.encode()), "few.bz2"))
    # An explicit 0 is not counted.
    assert data.description == "few: 3 x 3, 4 non-zeros (1.3 a row), labels -1: 1, +1: 2"
    assert repr(data) == f"Dataset({data.description})"
    zero_one = read(written(tmp_path, "0 1:1\n1 1:1\n0 1:2\n"))
    assert zero_one.description.endswith("labels 0: 2, 1: 1")
    text = "".join(f"{i},0,{i}.5\n" for i in range(12))
    many = read(written(tmp_path, text, "many.csv"))
    assert many.description == (
        "many: 12 x 2, 11 non-zeros (0.9 a row), 12 distinct targets from 0.5 to 11.5"
    )


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


@pytest.mark.parametrize(
    ("y", "message"),
    [([3, 3], r"two distinct labels, but it holds 1: 3\."), ([0.5, 0, -1, 0], r"3: -1, 0, 0\.5\."),
     (range(20, 0, -1), r"holds 20: 1, 2, 3, 4, 5, \.\.\.\."), ([1.0, np.nan], "finite")],
)  # fmt: skip
def test_as_binary_needs_two_labels(y: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        as_binary(list(y))


# find


@pytest.mark.parametrize("ending", ["", ".libsvm"])
def test_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    monkeypatch.setenv("ACCELEGRAD_DATA", str(tmp_path))
    assert find("a9a") is None
    written(tmp_path, SMALL, f"a9a.t{ending}")
    (tmp_path / "a9a").mkdir()
    assert find("a9a") is None
    path = written(tmp_path, SMALL, f"a9a{ending or '.bz2'}")
    assert find("a9a") == path
    assert find("a9a.t") == tmp_path / f"a9a.t{ending}"
    monkeypatch.setenv("ACCELEGRAD_DATA", "")
    assert find("a9a") is None
    monkeypatch.setenv("ACCELEGRAD_DATA", str(path))  # which is no folder
    with pytest.raises(DataError, match=f"{re.escape(str(path))}.*ACCELEGRAD_DATA"):
        find("a9a")


# The generator


def test_text_is_like_text() -> None:
    text_data = sparse_text(5000, 20000, seed=5)
    X, y = text_data.X, text_data.y
    assert isinstance(X, sp.csr_matrix)
    assert X.shape == (5000, 20000)
    assert X.has_canonical_format
    assert X.nnz / 5000 == pytest.approx(74, rel=0.03)
    assert X.data.min() > 0.0
    assert np.sqrt(X.multiply(X).sum(axis=1)) == pytest.approx(1.0, rel=1e-12)
    assert text_data.source == "sparse_text(n=5000, d=20000, nnz=74, seed=5, label_noise=0.05)"
    lengths = np.diff(X.indptr)
    # Those of RCV1: the median is 0.8 of the mean, the logs' standard deviation 0.7.
    assert 0.7 < np.median(lengths) / lengths.mean() < 0.85
    assert 0.6 < np.log(lengths).std() < 0.85
    ranked = np.sort(np.bincount(X.indices, minlength=20000))[::-1]
    ranks = np.arange(10, 1000)
    slope = np.polyfit(np.log(ranks), np.log(ranked[ranks]), 1)[0]  # Zipf's law
    assert -1.2 < slope < -0.85
    assert set(y.tolist()) == {-1.0, 1.0}
    assert abs(y.mean()) < 0.05
    learned = LinearSVC(C=1.0, random_state=0).fit(X[:4000], y[:4000])
    assert 0.85 < learned.score(X[4000:], y[4000:]) < 0.95
    clean = sparse_text(5000, 20000, seed=5, label_noise=0.0)
    assert (clean.X != X).nnz == 0
    assert np.mean(clean.y != y) == pytest.approx(0.05, abs=0.012)


@pytest.mark.parametrize(("n", "d", "nnz"), [(2, 4, 1), (200, 50, 12), (300, 400, 100)])
def test_sizes_of_text(n: int, d: int, nnz: int) -> None:
    for seed in range(2):
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
        ({"d": 100, "nnz": 26}, "nnz must be at most d / 4 = 25, but it is 26"),
        ({"seed": None}, "seed must be a whole number >= 0"),
        ({"label_noise": 0.6}, "label_noise must be at most 0.5"),
    ],
)
def test_arguments_of_text(arguments: dict[str, object], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        sparse_text(**{"seed": 0, **arguments})  # type: ignore[arg-type]
