"""Eight real sets: fitted on a cluster and in memory, each proves that the other is right."""

import os

import numpy as np
import pytest
from dask import delayed

from accelegrad import dask
from accelegrad import sklearn as local
from accelegrad_lab import datasets

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("dask"),
    pytest.mark.skipif(
        not os.environ.get("ACCELEGRAD_DATA"), reason="ACCELEGRAD_DATA names no folder of data sets"
    ),
]
SETS = {
    "a9a": dict(),
    "mushrooms": dict(),
    "phishing": dict(loss="hinge"),
    "spambase": dict(),
    "w8a": dict(class_weight="balanced"),
    "abalone": dict(loss="huber"),
    "cpusmall": dict(),
    "housing": dict(loss="absolute_error"),
}
NUMBERS = {"abalone", "cpusmall", "housing"}


@pytest.mark.parametrize("name", SETS)
def test_fits_agree_within_their_gaps(name, dask_processes_client):
    path = datasets.find(name)
    if path is None:
        pytest.skip(f"{name} is not in ACCELEGRAD_DATA")
    data = datasets.read(path)
    X, y = data.X, data.y
    kind = "AcceleGradRegressor" if name in NUMBERS else "AcceleGradClassifier"
    options = dict(alpha=1e-3, tol=1e-3, random_state=0) | SETS[name]
    blocks = [
        delayed((X[rows], y[rows])) for rows in np.array_split(np.arange(y.size), [y.size // 3])
    ]
    found = getattr(dask, kind)(**options).fit(blocks, client=dask_processes_client)
    expected = getattr(local, kind)(**options).fit(X, y)
    assert found.converged_
    assert expected.converged_
    assert found.objective_ - found.gap_ <= expected.objective_ * (1 + 1e-9)
    assert expected.objective_ - expected.gap_ <= found.objective_ * (1 + 1e-9)
    # Strongly convex in the weights: both are near the minimum, and so near one another.
    apart = np.linalg.norm(np.ravel(found.coef_ - expected.coef_))
    farthest = sum(np.sqrt(2 * fit.gap_ / options["alpha"]) for fit in (found, expected))
    assert apart <= farthest * (1 + 1e-9)
