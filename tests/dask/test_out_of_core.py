"""Blocks that workers read from files, once."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask import delayed
from numpy.testing import assert_allclose
from sklearn.datasets import dump_svmlight_file

import accelegrad as ag
from accelegrad.dask import RowModel, read_files

pytestmark = [pytest.mark.xdist_group("dask"), pytest.mark.usefixtures("dask_client")]

N, D = 300, 4


def plain_data():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((N, D)).round(3)
    X[200:, -1] = 0.0  # a LIBSVM shard that does not know of the last column
    return X, np.where(X @ np.arange(1, 5) + rng.standard_normal(N) > 0, 1.0, -1.0)


def parts():
    return [slice(0, 120), slice(120, 200), slice(200, N)]


@pytest.mark.parametrize("kind", ["libsvm", "parquet", "own reader", "npy"])
def test_files_are_read_by_the_workers(kind, tmp_path):
    X, y = plain_data()
    rows = []
    for number, part in enumerate(parts()):
        path = tmp_path / f"{number}.{kind}"
        if kind == "libsvm":
            dump_svmlight_file(X[part], y[part], str(path), zero_based=False)
        elif kind == "npy":
            rows.append((tmp_path / f"X{number}.npy", tmp_path / f"y{number}.npy"))
            np.save(rows[-1][0], X[part])
            np.save(rows[-1][1], y[part])
        else:
            frame = pd.DataFrame(X[part], columns=list("abcd")).assign(label=y[part])
            frame.to_parquet(path.with_suffix(".parquet"))
    if kind == "own reader":
        frame = dd.read_parquet(tmp_path)
        given = frame[list("abcd")], frame["label"]
    elif kind == "parquet":
        given = (read_files(str(tmp_path / "*.parquet"), target="label", numbers=True),)
    else:
        given = (read_files(rows or tmp_path, split=2 if rows else 1),)
    model = RowModel(*given, l2=0.1)
    expected = ag.LinearModel(X, y, l2=0.1)
    w = np.linspace(-1, 1, D)
    assert_allclose(model.value(w), expected.value(w), rtol=1e-12)
    assert_allclose(model.gradient(w), expected.gradient(w), rtol=1e-10)
    result = ag.minimize(model, rtol=1e-6, rng=0)
    assert result.success
    assert_allclose(result.fun, ag.minimize(expected, rtol=1e-6).fun, rtol=2e-6)


def counted(path, part):
    """Read a block, and note it in a file of its own."""
    import uuid

    (path / uuid.uuid4().hex).touch()
    X, y = plain_data()
    return X[part], y[part]


def test_rows_are_read_once(tmp_path):
    blocks = [delayed(counted, pure=False)(tmp_path, part) for part in parts()]
    model = RowModel(blocks, l2=0.1)
    for w in (np.zeros(D), np.ones(D), -np.ones(D)):
        model.value(w)
    assert len(list(tmp_path.iterdir())) == len(parts())


def test_files_that_are_not_there_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="at least one file"):
        read_files(tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_files([tmp_path / "nowhere.csv"])


def test_pickles_are_not_read(tmp_path):
    np.save(tmp_path / "X.npy", plain_data()[0])
    np.save(tmp_path / "y.npy", np.array([print] * N, dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="Python objects"):
        RowModel(read_files([(tmp_path / "X.npy", tmp_path / "y.npy")]), l2=0.1)
