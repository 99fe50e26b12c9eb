"""Compiling ahead, and kernels on disk."""

import argparse
import os
import subprocess
import sys
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from llvmlite.binding import get_host_cpu_name

from accelegrad import LinearModel, kernels, minimize
from accelegrad.cli import warmup
from accelegrad.kernels import compile as compiling
from accelegrad.kernels import dense_steps, dual_ascent, gradient, rows, sparse_steps
from processes import run_python

MODULES = (dense_steps, dual_ascent, gradient, rows, sparse_steps)


def compiled():
    """Return for how many choices of types there is code in this process, by kernel."""
    parts = [part for module in MODULES for part in vars(module).values()]
    return {k.__name__: len(k.versions) for k in parts if isinstance(k, compiling.Kernel)}


def test_warming_up_leaves_nothing_to_compile(capsys):
    parser = argparse.ArgumentParser()
    warmup.add_warmup(parser.add_subparsers())
    given = parser.parse_args(["warmup"])
    assert given.run(given) == 0
    assert capsys.readouterr().out.startswith("All kernels are ready")
    before = compiled()
    # Two types of entries; two kinds of losses.
    wanted = {"passed": 8, "ascent": 8, "add_gram": 2}
    assert before | wanted == before
    assert all(before.values())
    X, y = np.eye(5), np.array([1.0, -1.0, 1.0, 1.0, -1.0])
    kinds = product((np.float64, np.float32), (np.int32, np.int64), (False, True))
    for data, index, locked in kinds:
        dense, whole = X.astype(data), sp.csr_array(X.astype(data))
        parts = whole.data, whole.indices.astype(index), whole.indptr.astype(index)
        for array in (dense, *parts):
            array.flags.writeable = not locked
        for matrix in (dense, sp.csr_array(parts, shape=X.shape)):
            model = LinearModel(matrix, y, "hinge", fit_intercept=True)
            with kernels.use("always"):
                model.value_and_gradient(np.ones(6))
                for method in ("accelegrad", "adagrad"):
                    own = dict(method=method, batch_size=2, max_iter=5, rng=0)
                    assert minimize(model, np.zeros(6), **own).nit == 5
    assert compiled() == before


# Kernels on disk: a part in one module, a kernel that calls it in another

PARTS = """
from accelegrad.kernels.compile import compiled
@compiled
def part(x):
    return {factor} * x
"""
KERNEL = """
from accelegrad.kernels.compile import Kernel
from parts import part
@Kernel
def double(x):
    return part(x[0])
"""
CALLS = """
import sys, numpy as np
sys.path.insert(0, sys.argv[1])
import twice
print(*(float(twice.double(np.array([21], kind))) for kind in sys.argv[2:]))
"""


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "parts.py").write_text(PARTS.format(factor=2))
    (folder / "twice.py").write_text(KERNEL)
    return folder


def started(package, *kinds, **variables):
    command = [sys.executable, "-c", CALLS, str(package), *kinds]
    given = {"env": {**os.environ, "NUMBA_CACHE_DIR": "", **variables}, "text": True}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **given)


def called(package, *kinds, **variables):
    """Return what a process of its own finds, and whether it said, once, that it compiles."""
    found, said = started(package, *kinds or ["float64"], **variables).communicate()
    assert said in ("", compiling.WAITING)
    return found.strip(), said != ""


def test_a_kernel_is_kept_and_compiled_anew_when_what_it_calls_changes(package):
    assert [called(package) for _ in range(2)] == [("42.0", True), ("42.0", False)]
    (package / "parts.py").write_text(PARTS.format(factor=333))
    assert [called(package) for _ in range(2)] == [("6993.0", True), ("6993.0", False)]
    for ending in ("nbi", "nbc"):
        for file in (package / "__pycache__").glob(f"twice.double*.{ending}"):
            file.write_bytes(b"damaged")
        assert called(package) == ("6993.0", True)
    assert called(package, "float32", "int64") == ("6993.0 6993.0", True)


def test_without_any_folder_kernels_are_compiled_in_each_process(package, tmp_path):
    (package / "__pycache__").write_text("in the way")
    (tmp_path / "file").write_text("in the way")
    home = {"XDG_CACHE_HOME": str(tmp_path / "file"), "HOME": str(tmp_path / "file")}
    assert [called(package, **home) for _ in range(2)] == [("42.0", True)] * 2


def test_processes_that_compile_at_the_same_time_while_one_is_killed(package):
    kinds = ["float64", "float32", "int64", "int8"]
    killed, *others = (started(package, kind) for kind in ("float64", *kinds))
    assert killed.stderr.read(1)  # it compiles
    killed.kill()
    killed.communicate()
    assert [process.communicate()[0].strip() for process in others] == ["42.0"] * 4
    assert [called(package, kind) for kind in kinds] == [("42.0", False)] * 4


@pytest.mark.skipif(get_host_cpu_name() == "generic", reason="Numba does not know this CPU")
def test_code_for_one_cpu_is_not_used_on_another(package):
    """A folder may be shared by machines; code for a newer CPU ends an older one's process."""
    cpus = get_host_cpu_name(), "generic", get_host_cpu_name()
    said = [called(package, NUMBA_CPU_NAME=cpu)[1] for cpu in cpus]
    assert said == [True, True, False]


def test_importing_loads_neither_numba_nor_scikit_learn():
    code = """
import sys, accelegrad, accelegrad.cli.main
slow = {"numba", "llvmlite", "sklearn", "matplotlib", "pandas", "plotly", "torch", "jax"}
print(sorted(slow & {name.partition(".")[0] for name in sys.modules}))
"""
    assert run_python(code) == "[]"


def test_only_data_from_20_megabytes_compile_gradients():
    code = """
import sys
import numpy as np, scipy.sparse as sp
import accelegrad as ag
from accelegrad.sklearn import AcceleGradClassifier, AcceleGradRegressor

rng = np.random.default_rng(0)

def fit(X, loss, **parameters):
    slopes = X @ rng.standard_normal(X.shape[1])
    if loss in ("log_loss", "squared_hinge"):
        AcceleGradClassifier(loss=loss, **parameters).fit(X, slopes > np.median(slopes))
    else:
        AcceleGradRegressor(loss=loss, **parameters).fit(X, slopes)

X = rng.standard_normal((30_000, 80))  # 19.2 MB
for loss in ("log_loss", "squared_error", "huber"):
    fit(X, loss)
fit(X.astype("float32"), "log_loss", penalty="l1", alpha=1e-3)
few = sp.random_array((800, 2000), density=0.01, rng=rng, format="csr")
for loss in ("log_loss", "squared_hinge", "squared_error"):
    fit(few, loss)
ag.minimize(lambda x: (float(x @ x), 2 * x), np.ones(50))
y = np.where(np.arange(1 << 14) % 2, 1.0, -1.0)
ag.minimize(ag.LinearModel(X[:100], y[:100], l2=0.1), batch_size=10, max_iter=3, rng=0)
large = ag.LinearModel(np.ones((1 << 14, 160)), y)  # 21 MB
assert "numba" not in sys.modules
large.value(np.zeros(160))
print("numba" in sys.modules)
"""
    assert run_python(code, ACCELEGRAD_KERNELS="auto") == "True"
    assert run_python(code, ACCELEGRAD_KERNELS="never") == "False"
