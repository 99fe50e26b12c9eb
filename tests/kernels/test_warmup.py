"""Compiling ahead, and kernels on disk."""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from llvmlite.binding import get_host_cpu_name

from accelegrad import LinearModel, kernels, minimize
from accelegrad.cli.warmup import add_warmup
from accelegrad.kernels import compile as compiling
from processes import run_python

PIPES: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
TYPES = [(data, index) for data in (np.float64, np.float32) for index in (np.int32, np.int64)]


# Announced kernels


def test_all_kernels_are_announced_for_all_types() -> None:
    names = [call.name for call in compiling.all_calls()]
    assert len(set(names)) == len(names)
    for layout in [
        f"{kind} {name}" for kind in ("dense", "CSR") for name in ("float64", "float32")
    ]:
        for losses in ("logistic loss", "other losses"):
            assert f"gradient, {losses}, {layout}" in names
            assert f"gradient, {losses}, {layout}, many columns" in names
            assert f"dual ascent, {losses}, {layout}" in names
        wanted = ["steps"] if "dense" in layout else ["steps of one", "steps of several"]
        assert all(f"{name}, {layout}" in names for name in wanted)


def number_compiled() -> int:
    """Return for how many choices of types there is compiled code in this process."""
    return sum(len(kernel.signatures) for kernel in {c.kernel for c in compiling.all_calls()})


@pytest.mark.slow
def test_warming_up_leaves_nothing_to_compile() -> None:
    compiling.warmup()
    assert compiling.pending() == []
    steps: list[compiling.Progress] = []
    compiling.warmup(steps.append)
    assert not any(step.compiled for step in steps)
    compiled = number_compiled()
    X, y = np.eye(5), np.array([1.0, -1.0, 1.0, 1.0, -1.0])
    with kernels.use("always"):
        for data, index in TYPES:
            dense, whole = X.astype(data), sp.csr_array(X.astype(data))
            parts = whole.data, whole.indices.astype(index), whole.indptr.astype(index)
            for locked in (False, True):
                for array in (dense, *parts):
                    array.flags.writeable = not locked
                for matrix in (dense, sp.csr_array(parts, shape=X.shape)):
                    model = LinearModel(matrix, y, "hinge", fit_intercept=True)
                    model.value_and_gradient(np.ones(6))
                    for method in ("accelegrad", "adagrad"):
                        own = dict(method=method, batch_size=2, max_iter=5, rng=0)
                        assert minimize(model, np.zeros(6), **own).nit == 5
    assert compiled == number_compiled()


def gradient_calls() -> list[compiling.Call]:
    return [call for call in compiling.all_calls() if call.name.startswith("gradient")]


@pytest.fixture
def few_kernels(monkeypatch):
    """Leave only some of the gradient's kernels announced."""
    few = [call for call in gradient_calls() if "other" in call.name and "many" not in call.name]
    monkeypatch.setattr(compiling, "all_calls", lambda: iter(few))


@pytest.mark.usefixtures("few_kernels")
def test_progress_tells_of_each_kernel() -> None:
    steps: list[compiling.Progress] = []
    seconds = compiling.warmup(steps.append)
    assert [step.done for step in steps] == [1, 2, 3, 4]
    assert {step.total for step in steps} == {4}
    assert steps[0].name == "gradient, other losses, dense float64"
    assert 0.0 < sum(step.seconds for step in steps) <= seconds
    again: list[compiling.Progress] = []
    kernels.warmup(again.append)
    assert not any(step.compiled for step in again)
    assert kernels.pending() == []


def test_another_type_is_pending() -> None:
    call = gradient_calls()[0]
    assert call.kernel.is_pending((call.arguments[0].astype(np.int8), *call.arguments[1:]))


@pytest.mark.usefixtures("few_kernels")
def test_the_command(capsys, monkeypatch) -> None:
    parser = argparse.ArgumentParser()
    add_warmup(parser.add_subparsers())

    def run(*arguments: str) -> tuple[str, str]:
        given = parser.parse_args(["warmup", *arguments])
        assert given.run(given) == 0
        captured = capsys.readouterr()
        return captured.out, captured.err

    said, steps = run()
    assert said.startswith("Compiled: ")
    assert "[4/4] gradient, other losses, CSR float32: " in steps
    assert run("--list") == ("", "")
    assert run("--quiet") == ("", "")
    monkeypatch.setattr(
        compiling.Kernel, "is_pending", lambda kernel, given: given[0].dtype == "f4"
    )
    assert run("--list")[0].startswith("gradient, other losses, dense float32\n")
    assert run()[0].startswith("Compiled: 2. ")


# Kernels on disk: a part in one module, a kernel that calls it in another

PARTS = """
from accelegrad.kernels.compile import compiled
@compiled
def part(x):
    return {factor} * x
"""
KERNEL = """
from accelegrad.kernels.compile import kernel
from parts import part
@kernel
def double(x):
    return part(x[0])
"""
# Numba is loaded once; each call is in a process of its own, which has not seen the modules.
PROCESSES = """
import os, sys
import numpy as np

def begin(kind="float64"):
    read, write = os.pipe()
    if os.fork() == 0:
        sys.path.insert(0, sys.argv[1])
        import twice
        argument = np.array([21], kind)
        pending = twice.double.is_pending((argument,))
        os.write(write, f"{float(twice.double(argument))} {pending}".encode())
        os._exit(0)
    os.close(write)
    return read

def end(read):
    os.wait()
    return os.read(read, 100).decode()
"""
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "parts.py").write_text(PARTS.format(factor=2))
    (folder / "twice.py").write_text(KERNEL)
    return folder


def processes(package: Path, code: str, **variables: str) -> list[str]:
    variables = {"NUMBA_CACHE_DIR": "", **variables}
    return run_python(PROCESSES + code, str(package), **variables).splitlines()


@needs_fork
def test_a_kernel_is_kept_and_compiled_anew_when_what_it_calls_changes(package: Path) -> None:
    change = f"""
from pathlib import Path
print(end(begin()), end(begin()), sep="\\n")
folder = Path(sys.argv[1])
(folder / "parts.py").write_text({PARTS.format(factor=333)!r})
print(end(begin()), end(begin()), sep="\\n")
"""
    kept, changed = ["42.0 True", "42.0 False"], ["6993.0 True", "6993.0 False"]
    assert processes(package, change) == [*kept, *changed]


@needs_fork
@pytest.mark.parametrize("damaged", ["*.nbi", "*.nbc"])
@pytest.mark.parametrize("content", [b"", b"cut off", "of a class that is gone"])
def test_what_cannot_be_read_is_compiled_again(package: Path, damaged: str, content) -> None:
    damage = f"""
import pickle
from pathlib import Path
print(end(begin()))
(file,) = (Path(sys.argv[1]) / "__pycache__").glob("twice.double{damaged}")
whole, content = file.read_bytes(), {content!r}
if isinstance(content, str):
    version = pickle.dumps(pickle.loads(whole), -1) if file.suffix == ".nbi" else b""
    content = version + b"cparts\\nNoSuchClass\\n."
file.write_bytes(content)
print(end(begin()).split()[0], end(begin()), sep="\\n")
"""
    assert processes(package, damage) == ["42.0 True", "42.0", "42.0 False"]


@needs_fork
@needs_fork
def test_without_any_folder_kernels_are_compiled_in_each_process(package, tmp_path) -> None:
    (package / "__pycache__").write_text("in the way")
    (tmp_path / "file").write_text("in the way")
    home = {"XDG_CACHE_HOME": str(tmp_path / "file"), "HOME": str(tmp_path / "file")}
    twice = "print(end(begin())); print(end(begin()))"
    assert processes(package, twice, **home) == ["42.0 True", "42.0 True"]


@needs_fork
def test_processes_that_compile_at_the_same_time(package: Path) -> None:
    code = """
kinds = ["float64", "float32", "int64", "int8"]
for result in [begin(kind) for kind in kinds]:
    print(end(result))
for kind in kinds:
    print(end(begin(kind)).split()[0])
"""
    assert processes(package, code) == ["42.0 True"] * 4 + ["42.0"] * 4


@needs_fork
@pytest.mark.skipif(get_host_cpu_name() == "generic", reason="Numba does not know this CPU")
def test_code_for_one_cpu_is_not_used_on_another(package: Path) -> None:
    """A folder may be shared by machines; code for a newer CPU ends an older one's process."""
    once = "print(end(begin()))"
    this = get_host_cpu_name()
    found = [processes(package, once, NUMBA_CPU_NAME=cpu) for cpu in (this, "generic", this)]
    assert found == [["42.0 True"], ["42.0 True"], ["42.0 False"]]
    assert len(list((package / "__pycache__").glob("twice.double*.nbc"))) == 2


COMPILING = """
import sys
import numpy as np
from accelegrad.kernels.arrays import read_only
from accelegrad.kernels.gram import add_gram
print("begun", flush=True)
for dtype in sys.argv[1].split():
    entries = read_only(np.array([3.0, 4.0, 5.0], dtype))
    indices, ends = read_only(np.array([0, 1, 1], "u4")), read_only(np.array([0, 2, 3], "u4"))
    gram, weights = np.zeros((2, 2)), read_only(np.array([1.0, 2.0]))
    add_gram(entries, indices, ends, read_only(np.arange(2)), weights, gram)
    assert gram.tolist() == [[9.0, 0.0], [12.0, 66.0]], gram
print("done")
"""


def test_fresh_processes_compile_into_one_folder_while_one_is_killed(tmp_path: Path) -> None:
    kinds = ["float64", "float64", "float32", "float32 float64", "float64 float32"]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}

    def begin(kind: str) -> Any:
        command = [sys.executable, "-c", COMPILING, kind]
        return subprocess.Popen(command, env=environment, text=True, **PIPES)

    processes = [begin(kind) for kind in kinds]
    assert processes[0].stdout.readline() == "begun\n"
    time.sleep(0.5)
    processes[0].kill()
    for process in processes[1:]:
        said, errors = process.communicate()
        assert said == "begun\ndone\n", errors
    processes[0].communicate()
    last = begin("float32 float64").communicate()
    assert last == ("begun\ndone\n", "")  # nothing had to be compiled, as it would have said


# Imports


def test_importing_loads_neither_numba_nor_scikit_learn() -> None:
    code = """
import sys, accelegrad, accelegrad.cli.main
slow = {"numba", "llvmlite", "sklearn", "matplotlib", "pandas", "plotly", "torch", "jax"}
print(sorted(slow & {name.partition(".")[0] for name in sys.modules}))
"""
    assert run_python(code) == "[]"


# The first fit in a new environment

FIRST_FIT = """
import sys
import numpy as np, scipy.sparse as sp
import accelegrad as ag
from accelegrad.sklearn import AcceleGradClassifier, AcceleGradRegressor

rng = np.random.default_rng(0)

def made(rows, columns, entries=0, dtype="float64"):
    if not entries:
        return rng.standard_normal((rows, columns)).astype(dtype)
    numbers = rng.integers(0, columns, (rows, entries)).ravel()
    X = sp.csr_array((rng.random(numbers.size), numbers, np.arange(rows + 1) * entries))
    return X.astype(dtype)

def fit(X, loss, **parameters):
    slopes = X @ rng.standard_normal(X.shape[1])
    if loss in ("log_loss", "hinge", "squared_hinge"):
        AcceleGradClassifier(loss=loss, **parameters).fit(X, slopes > np.median(slopes))
    else:
        AcceleGradRegressor(loss=loss, **parameters).fit(X, slopes)
"""


def test_below_20_megabytes_gradients_compile_nothing() -> None:
    code = """
for dtype in ("float64", "float32"):
    X = made(30_000, 80, dtype=dtype)  # 19.2 and 9.6 MB
    for loss in ("log_loss", "squared_error", "huber"):
        fit(X, loss)
    fit(X, "log_loss", penalty="l1", alpha=1e-3)
    fit(X, "squared_error", feasible_set=ag.NonNegative())
few = made(800, 2000, 20)
for loss in ("log_loss", "squared_hinge", "squared_error"):
    fit(few, loss)
ag.minimize(lambda x: (float(x @ x), 2 * x), np.ones(50))
print("numba" in sys.modules)
"""
    assert run_python(FIRST_FIT + code, ACCELEGRAD_KERNELS="auto") == "False"


def test_a_first_fit_that_compiles_says_so_once(tmp_path: Path) -> None:
    code = """
from numba.core import event
begun = []
class Kernels(event.Listener):
    def on_start(self, event):
        begun.append(event.data["dispatcher"].py_func.__module__)
    def on_end(self, event):
        pass
event.register("numba:compile", Kernels())
sys.stderr = sys.stdout
text = made(1000, 3000, 30)
fit(text, "hinge")
fit(text, "log_loss")
print(len([name for name in begun if name.startswith("accelegrad.kernels")]) > 0)
"""
    folder = {"NUMBA_CACHE_DIR": str(tmp_path), "ACCELEGRAD_KERNELS": "auto"}
    first = run_python(FIRST_FIT + code, **folder).splitlines()
    assert first == [compiling.WAITING, "True"]
    assert run_python(FIRST_FIT + code, **folder) == "False"
