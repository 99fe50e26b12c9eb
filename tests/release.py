"""Build the distributions and try them as users get them.

    python tests/release.py           builds, checks what is in them, tries the wheel by itself
    python tests/release.py --full    the same, then all fast tests against the wheel in an empty
                                      environment, and each extra in one of its own

What is built ends up in dist/. The whole takes half an hour or so, the first part a minute.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: Both distributions: their folders, and those of the packages in them
PACKAGES = {
    ROOT: ROOT / "src" / "accelegrad",
    ROOT / "lab": ROOT / "lab" / "src" / "accelegrad_lab",
}

#: What has to run with each extra alone; with none of them, the plain installation
TRIED = {
    "": (
        "import accelegrad as ag, numpy as np;"
        "assert ag.minimize(lambda x: (abs(x).sum(), np.sign(x)), np.ones(3), tol=1e-6).success"
    ),
    "files": (
        "import pyarrow, pyarrow.parquet; from accelegrad.cli.main import main;"
        "rows = pyarrow.table({'size': [1.0, 2.0, 3.0], 'price': [2.0, 4.0, 6.5]});"
        "pyarrow.parquet.write_table(rows, 'rows.parquet');"
        "fit = ['fit', 'rows.parquet', '--loss', 'squared_error', '--out', 'model.agm'];"
        "assert not main(fit)"
    ),
    "torch": (
        "import torch; from accelegrad.torch import AcceleGrad;"
        "w = torch.nn.Parameter(torch.ones(3)); o = AcceleGrad([w]);"
        "w.square().sum().backward(); o.step(); o.eval()"
    ),
    "jax": (
        "import jax.numpy as jnp; from accelegrad.optax import accelegrad;"
        "o = accelegrad(); w = jnp.ones(3); o.update(2 * w, o.init(w), w)"
    ),
    "dask": (
        "import dask.array as da; from dask.distributed import Client;"
        "from accelegrad.dask import AcceleGradClassifier;"
        "client = Client(processes=False, dashboard_address=None);"
        "X = da.random.default_rng(0).standard_normal((400, 3), chunks=(100, 3));"
        "assert AcceleGradClassifier(alpha=1e-2).fit(X, X[:, 0] > 0).converged_;"
        "client.close()"
    ),
}

#: What has to run with each extra of the lab, and with none
TRIED_WITH_LAB = {
    "": (
        "import numpy as np; from accelegrad.cli.main import main;"
        "rows = np.random.default_rng(0).standard_normal((60, 4));"
        "np.savetxt('rows.csv', np.c_[rows, np.sign(rows[:, 0])], '%g', ',');"
        "assert not main(['compare', 'rows.csv', '--epochs', '3', '--out', 'report']);"
        "open('report/index.html').close()"
    ),
    "bench": (
        "import clarabel, cvxpy, skglm, statsmodels; from accelegrad.cli.main import main;"
        "few = ['--quick', '--only', 'max-linear', '--time-limit', '2', '--out', 'bench'];"
        "assert not main(['bench', '--functions', *few])"
    ),
}


def run(*command: str | Path, **options: object) -> None:
    """Run a command, and say which; end with it if it fails."""
    print("$", *command, flush=True)
    subprocess.run([str(part) for part in command], check=True, **options)  # type: ignore[call-overload]


def built(project: Path, folder: Path) -> tuple[Path, Path]:
    """Build a project's two distributions, and return the wheel and the source distribution."""
    name = PACKAGES[project].name
    for old in folder.glob(f"{name}-*"):
        old.unlink()
    build = (sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, project)
    run(*build, stdout=subprocess.DEVNULL)  # it lists every file; errors go elsewhere
    (wheel,), (source,) = folder.glob(f"{name}-*.whl"), folder.glob(f"{name}-*.tar.gz")
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, source)
    return wheel, source


def check_contents(package: Path, wheel: Path, source: Path, *more: str) -> None:
    """Compare the files in the distributions with those of the package."""
    own = {
        str(path.relative_to(package.parent))
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == own, f"the wheel differs from the package: {sorted(packed ^ own)}"
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    missing = {*(f"src/{name}" for name in own), *more} - names
    assert not missing, f"the source distribution lacks {sorted(missing)}"


def check_types(folder: Path) -> None:
    """Check users' code with pyright, where it can start (it may have to be downloaded)."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    started = subprocess.run(
        [sys.executable, "-m", "pyright", "--version"], capture_output=True, env=environment
    )
    if started.returncode:
        print("pyright cannot start here: users' types are not checked")
        return
    sample = folder / "typed_sample.py"
    sample.write_text((ROOT / "tests" / "typed_sample.py").read_text("utf-8"), "utf-8")
    run(sys.executable, "-m", "pyright", "--pythonpath", sys.executable, sample, cwd=folder)


def try_wheels(wheels: list[Path], folder: Path) -> None:
    """Put the wheels first on the path, and run the README's snippets and the command."""
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder)
    run(*pip, *wheels)
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    where = (
        "import accelegrad, accelegrad_lab;"
        "assert all(one.__file__.startswith({!r}) for one in (accelegrad, accelegrad_lab))"
    )
    readme = str(ROOT / "tests" / "docs" / "test_readme.py")
    for command in (
        ("-c", where.format(str(folder))),
        ("-m", "pytest", "-q", readme),
        ("-m", "accelegrad", "--help"),
        ("-m", "accelegrad", "reproduce", "--list"),
    ):
        run(sys.executable, *command, env=environment, cwd=folder)


def empty_environment(folder: Path, *wanted: str) -> Path:
    """Make an environment with the wheels, each with extras or without; return its Python."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted)
    return python


def try_extras(wheel: Path, lab: Path) -> None:
    tried = [((_with(wheel, extra),), code) for extra, code in TRIED.items()]
    tried += [((str(wheel), _with(lab, extra)), code) for extra, code in TRIED_WITH_LAB.items()]
    for wanted, code in tried:
        with tempfile.TemporaryDirectory() as folder:
            python = empty_environment(Path(folder), *wanted)
            run(python, "-W", "error::DeprecationWarning:accelegrad", "-c", code, cwd=folder)


def _with(wheel: Path, extra: str) -> str:
    return f"{wheel}[{extra}]" if extra else str(wheel)


def test_wheels(wheel: Path, lab: Path, source: Path) -> None:
    """Run the fast tests of the source distribution against the wheels: there is no `src` there."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wanted = _with(wheel, "test"), _with(lab, "test")
        python = empty_environment(folder / "environment", *wanted)
        with tarfile.open(source) as archive:
            archive.extractall(folder, filter="data")
        (tree,) = folder.glob("accelegrad-*")
        (tree / "src").rename(tree / "not-src")
        (tree / "lab" / "src").rename(tree / "lab" / "not-src")
        options = ("-q", "-n", "2", "--dist", "loadgroup", "-m", "not slow")
        run(python, "-m", "pytest", *options, cwd=tree)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="also all tests and all extras")
    given = parser.parse_args()
    wheel, source = built(ROOT, ROOT / "dist")
    check_contents(PACKAGES[ROOT], wheel, source, "tests/release.py", "CITATION.cff")
    lab, lab_source = built(ROOT / "lab", ROOT / "dist")
    check_contents(PACKAGES[ROOT / "lab"], lab, lab_source)
    with tempfile.TemporaryDirectory() as folder:
        try_wheels([wheel, lab], Path(folder))
        check_types(Path(folder))
    if given.full:
        try_extras(wheel, lab)
        test_wheels(wheel, lab, source)
    print("release: what is in dist/ works")


if __name__ == "__main__":
    main()
