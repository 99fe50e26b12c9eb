"""Data sets: their names and descriptions, where they are found, the text generator's statistics."""

import bz2
import gzip
import re

import numpy as np
import pytest
from sklearn.svm import LinearSVC

from accelegrad_lab.datasets import DataError, as_binary, find, read, sparse_text

SMALL = "+1 1:0.5 3:-2\n-1 2:1e-3\n"


def written(tmp_path, text, name="data"):
    path, content = tmp_path / name, text.encode()
    compress = {".bz2": bz2.compress, ".gz": gzip.compress}.get(path.suffix, bytes)
    path.write_bytes(compress(content))
    return path


def test_names_and_descriptions(tmp_path):
    names = {"a9a.t.bz2": "a9a.t", "a.TXT": "a", "a.svm.gz": "a", "a.b.libsvm": "a.b", "a": "a"}
    assert {name: read(written(tmp_path, SMALL, name)).name for name in names} == names
    few, many = "+1 1:1 2:0\n-1 2:1 3:1\n+1 3:4\n", "".join(f"{i},0,{i}.5\n" for i in range(12))
    for name, text, description in [
        # An explicit 0 is not counted.
        ("few.bz2", few, "few: 3 x 3, 4 non-zeros (1.3 per row), labels -1: 1, +1: 2"),
        ("zero", "0 1:1\n1 1:1\n0 1:2\n", "zero: 3 x 1, 3 non-zeros (1.0 per row), labels 0: 2, 1: 1"),
        ("many.csv", many, "many: 12 x 2, 11 non-zeros (0.9 per row), 12 distinct targets from 0.5 to 11.5"),
    ]:  # fmt: skip
        assert read(written(tmp_path, text, name)).description == description


def test_as_binary_takes_two_labels():
    np.testing.assert_array_equal(as_binary([-2.0, -3.5, -2.0]), [1.0, -1.0, 1.0])
    for y, message in [
        ([0.5, 0, -1, 0], r"two distinct labels, but it holds 3: -1, 0, 0\.5\."),
        (list(range(20, 0, -1)), r"holds 20: 1, 2, 3, 4, 5, \.\.\.\."),
        ([1.0, np.nan], "finite"),
    ]:
        with pytest.raises(ValueError, match=message):
            as_binary(y)


@pytest.mark.parametrize("ending", ["", ".libsvm"])
def test_find(tmp_path, monkeypatch, ending):
    monkeypatch.setenv("ACCELEGRAD_DATA", str(tmp_path))
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


def test_text_is_like_text():
    made = sparse_text(5000, 20000, seed=5)
    X, y = made.X, made.y
    assert X.has_canonical_format
    assert X.nnz / 5000 == pytest.approx(74, rel=0.03)
    assert np.sqrt(X.multiply(X).sum(axis=1)) == pytest.approx(1.0, rel=1e-12)
    lengths = np.diff(X.indptr)
    # Those of RCV1: the median is 0.8 of the mean, the logs' standard deviation 0.7.
    assert 0.7 < np.median(lengths) / lengths.mean() < 0.85
    assert 0.6 < np.log(lengths).std() < 0.85
    ranked = np.sort(np.bincount(X.indices, minlength=20000))[::-1]
    ranks = np.arange(10, 1000)
    slope = np.polyfit(np.log(ranks), np.log(ranked[ranks]), 1)[0]  # Zipf's law
    assert -1.2 < slope < -0.85
    assert abs(y.mean()) < 0.05
    learned = LinearSVC(C=1.0, random_state=0).fit(X[:4000], y[:4000])
    assert 0.85 < learned.score(X[4000:], y[4000:]) < 0.95
    clean = sparse_text(5000, 20000, seed=5, label_noise=0.0)
    assert (clean.X != X).nnz == 0
    assert np.mean(clean.y != y) == pytest.approx(0.05, abs=0.012)


def test_sizes_of_text():
    for n, d, nnz in [(2, 4, 1), (200, 50, 12), (300, 400, 100)]:
        X = sparse_text(n, d, nnz, seed=1).X
        assert X.shape == (n, d)
        assert X.nnz / n == pytest.approx(nnz, rel=0.05)
        assert np.diff(X.indptr).min() >= 1
        assert X.data.min() > 0.0
    for arguments, message in [
        ({"n": 1}, "n must be a whole number >= 2"),
        ({"d": 100, "nnz": 26}, "nnz must be at most d / 4 = 25, but it is 26"),
        ({"label_noise": 0.6}, "label_noise must be at most 0.5"),
    ]:
        with pytest.raises(ValueError, match=message):
            sparse_text(**{"seed": 0, **arguments})
