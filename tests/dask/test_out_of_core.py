"""Blocks that workers read from files, once."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask import delayed
from numpy.testing import assert_allclose
from sklearn.datasets import dump_svmlight_file

import accelegrad as ag
from accelegrad import sklearn as local
from accelegrad.dask import AcceleGradClassifier, RowModel, read_files

pytestmark = [pytest.mark.xdist_group("dask"), pytest.mark.usefixtures("dask_client")]

N, D = 300, 4


def plain_data():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((N, D)).round(3)
    X[200:, -1] = 0.0  # a LIBSVM shard that does not know of the last column
    return X, np.where(X @ np.arange(1, 5) + rng.standard_normal(N) > 0, 1.0, -1.0)


def parts():
    return [slice(0, 120), slice(120, 200), slice(200, N)]


def libsvm(folder, X, y):
    for number, part in enumerate(parts()):
        dump_svmlight_file(X[part], y[part], str(folder / f"{number}.libsvm"), zero_based=False)
    return read_files(folder)


def parquet(folder, X, y):
    for number, part in enumerate(parts()):
        frame = pd.DataFrame(X[part], columns=list("abcd")).assign(label=y[part])
        frame.to_parquet(folder / f"{number}.parquet")
    return read_files(str(folder / "*.parquet"), target="label", numbers=True)


def arrays(folder, X, y):
    rows = []
    for number, part in enumerate(parts()):
        rows.append((folder / f"X{number}.npy", folder / f"y{number}.npy"))
        np.save(rows[-1][0], X[part])
        np.save(rows[-1][1], y[part])
    return read_files(rows, split=2)


@pytest.mark.parametrize("make", [libsvm, parquet, arrays])
def test_files_are_read_by_the_workers(make, tmp_path):
    X, y = plain_data()
    model = RowModel(make(tmp_path, X, y), l2=0.1)
    expected = ag.LinearModel(X, y, l2=0.1)
    w = np.linspace(-1, 1, D)
    assert_allclose(model.value(w), expected.value(w), rtol=1e-12)
    assert_allclose(model.gradient(w), expected.gradient(w), rtol=1e-10)
    result = ag.minimize(model, rtol=1e-6, rng=0)
    assert result.success
    assert_allclose(result.fun, ag.minimize(expected, rtol=1e-6).fun, rtol=2e-6)


def test_collections_of_dasks_own_readers_are_read(tmp_path):
    X, y = plain_data()
    parquet(tmp_path, X, y)
    frame = dd.read_parquet(tmp_path)
    options = dict(alpha=1e-2, tol=1e-6, random_state=0)
    found = AcceleGradClassifier(**options).fit(frame[list("abcd")], frame["label"])
    expected = local.AcceleGradClassifier(**options).fit(X, y)
    assert_allclose(found.objective_, expected.objective_, rtol=2e-6)


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
