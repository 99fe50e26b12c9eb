"""The command `accelegrad warmup`: compile all kernels in advance."""

from __future__ import annotations

import argparse
import contextlib
import io
import time

from accelegrad.cli import common


def add_warmup(commands: common.Commands[argparse.ArgumentParser]) -> None:
    """Add the command to the parser's commands."""
    command = common.add_command(
        commands,
        "warmup",
        _warmup,
        help="compile everything ahead",
        description="Compile all kernels for large data and keep them on disk: beside the package, "
        "or in the user's cache folder where that is read-only (NUMBA_CACHE_DIR overrides both). "
        "What is there already is not compiled again. Without this a kernel is compiled when it is "
        "first needed, which takes some seconds, once on a machine.",
        epilog="Example: accelegrad warmup",
    )
    command.add_argument("--quiet", action="store_true", help="show nothing")


def _warmup(given: argparse.Namespace) -> int:
    begun = time.perf_counter()
    if not given.quiet:
        common.warn("Compiling all kernels, which takes a minute or two, once on this machine.")
    with contextlib.redirect_stderr(io.StringIO()):  # hide the messages of each compilation
        compile_all()
    if not given.quiet:
        common.say(f"All kernels are ready, after {time.perf_counter() - begun:.1f} s.")
    return 0


def compile_all() -> None:
    """Run every kernel on a few rows of every type of data, which compiles or loads it."""
    import numpy as np
    import scipy.sparse as sp

    from accelegrad import LinearModel, kernels, minimize
    from accelegrad.kernels.rows import add_gram
    from accelegrad.sklearn import AcceleGradClassifier

    rng = np.random.default_rng(0)
    n = 400
    few, classes = rng.standard_normal((n, 3)), rng.integers(0, 3, n)
    y = np.where(classes == 0, -1.0, 1.0)
    with kernels.use("always", threads=1):
        for dtype in (np.float64, np.float32):
            sparse = sp.csr_array(few.astype(dtype))
            for loss in ("logistic", "hinge"):
                for X in (few.astype(dtype), sparse):
                    model = LinearModel(X, y, loss, l2=1.0)
                    model.value_and_gradient(np.zeros(3))
                    minimize(model, np.zeros(3), method="dual-ascent", max_iter=1)
                    minimize(model, np.zeros(3), method="accelegrad", batch_size=9, max_iter=1)
            rows, weights = kernels.read_only(np.arange(n)), kernels.read_only(np.ones(n))
            add_gram(*model.kernel_data().matrix, rows, weights, np.zeros((3, 3)))
            for targets in (y, classes):
                AcceleGradClassifier().partial_fit(sparse, targets, np.unique(targets))
