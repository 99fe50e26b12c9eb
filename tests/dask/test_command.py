"""`accelegrad fit --dask`: the model file is that of a local fit, within the certified gap."""

import os

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file

from accelegrad.cli.main import main
from accelegrad.dask import command
from accelegrad.dask.command import client_of
from accelegrad.sklearn.model_file import load_model

pytestmark = pytest.mark.xdist_group("dask")


@pytest.fixture
def data(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3)).round(3)
    y = np.where(X @ [1.0, -2.0, 0.5] + rng.standard_normal(200) > 0, 2, 1)
    path = tmp_path / "rows.libsvm"
    dump_svmlight_file(X, y, str(path), zero_based=False)
    return path


@pytest.mark.slow
def test_fit_on_a_cluster_that_runs(data, tmp_path, capsys, dask_processes):
    address = dask_processes.scheduler_address
    options = ["--alpha", "1e-2", "--tol", "1e-6", "--no-progress"]
    files = [tmp_path / "there.agm", tmp_path / "here.agm"]
    assert main(["fit", str(data), "--dask", address, "--out", str(files[0]), *options]) == 0
    assert "200 x 3" in capsys.readouterr().out
    assert main(["fit", str(data), "--out", str(files[1]), *options]) == 0
    there, here = (load_model(file) for file in files)
    assert there.converged_
    assert there.objective_ - there.gap_ <= here.objective_
    assert here.objective_ - here.gap_ <= there.objective_
    # The objective is strongly convex in the weights.
    np.testing.assert_allclose(there.coef_, here.coef_, atol=2 * np.sqrt(2e-6 / 1e-2))


def environment(names):
    return [os.environ[name] for name in names]


@pytest.mark.slow
def test_fit_on_a_cluster_of_its_own_whose_workers_keep_freed_memory(data, tmp_path, monkeypatch):
    names, found = ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"], {}
    for name in names:  # Dask leaves behind what it set for another cluster of this process
        monkeypatch.delenv(name, raising=False)

    def look(cluster):
        client = client_of(cluster)
        found.update(client.run(environment, names))
        return client

    monkeypatch.setattr(command, "client_of", look)
    out = tmp_path / "model.agm"
    arguments = ["--dask", "local", "--loss", "squared_error", "--out", str(out), "--no-progress"]
    assert main(["fit", str(data), *arguments]) == 0
    assert load_model(out).converged_
    assert found
    assert min(int(size) for sizes in found.values() for size in sizes) >= 1 << 28
