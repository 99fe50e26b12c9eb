"""Runs that are killed at random moments: resumed, each ends as the one that nobody killed.

    python tests/proofs/kills.py [--kills 300] [--seed 0] [NAME ...]

A child process does a run with checkpoints and is killed, as often as it takes until one child gets
to the end; what that one found is compared, bit for bit, with a run that was left alone.
"""

from __future__ import annotations

import argparse
import collections
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

HERE = Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path[:] = [str(HERE.parent), *(path for path in sys.path if path != str(HERE))]

import accelegrad as ag  # noqa: E402
from accelegrad import kernels  # noqa: E402

#: What is compared: all that a run says but for the time it took.
FIELDS = (
    *("x", "x_average", "x_last", "x_best", "fun", "jac", "lower_bound", "gap", "certified_radius"),
    *("nit", "nfev", "njev", "rows", "status", "success", "message", "n_restarts"),
)
COLUMNS = ("iteration", "value", "gap", "step", "calls")
PAUSE = 5e-4  # seconds after each iteration, so that there is time to be killed in
KILLS_A_RUN = 4
MOST_CHILDREN = 60  # of one run; by then one gets to the end


class Case(NamedTuple):
    """A run of `minimize`."""

    name: str
    given: tuple[Any, ...]
    options: dict[str, Any]
    mode: str = "auto"  # of the kernels

    def __call__(self, path: Path | None = None) -> dict[str, Any]:
        """Return what the run says; with a path it goes on from there, and keeps what it does."""
        own = {"trace": True, **self.options}
        if path is not None:
            # Who looks on changes nothing, and gives time to be killed in.
            own |= {"checkpoint": path, "checkpoint_every": 1 + len(self.name) % 3}
            own["callback"] = lambda _: time.sleep(PAUSE)
            own["resume"] = path if path.exists() else None
        with kernels.use(self.mode):
            result = ag.minimize(*self.given, rng=0, **own)
        told = {field: result.get(field) for field in FIELDS}
        return told | {f"trace {name}": result.trace[name] for name in COLUMNS}


def kinked(x: Any) -> tuple[float, Any]:
    """A function of the user's own with kinks far from the start."""
    r = x - np.array([3.0, -2.0, 5.0])
    return float(np.abs(r).sum() + 0.1 * r @ r), np.sign(r) + 0.2 * r


def cases() -> list[Case]:
    """Return runs of all methods, with restarts, batches, sets and penalties."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 6)) * 10.0 ** rng.uniform(-1, 1, 6)
    y = np.where(X @ np.ones(6) + rng.standard_normal(150) > 0, 1.0, -1.0)
    targets = X @ np.ones(6) + rng.standard_normal(150)
    sparse = sp.csr_array(X * (rng.random(X.shape) < 0.4))
    models = {
        "logistic": ag.LinearModel(X, y, l2=1e-3),
        "hinge": ag.LinearModel(X, y, "hinge", l2=1e-3, fit_intercept=True),
        "absolute, no l2": ag.LinearModel(X, targets, "absolute"),
        "sparse": ag.LinearModel(sparse, y, "squared_hinge", l2=1e-2),
    }
    found: list[Case] = []

    def add(name: str, given: Any, modes: Any = ("auto",), **options: Any) -> None:
        given = given if isinstance(given, tuple) else (given,)
        found.extend(Case(name, given, options, mode) for mode in modes)

    both = ("never", "always")
    for name, model in models.items():
        add(f"accelegrad-newton {name}", model, both, method="accelegrad-newton", max_iter=25)
    for name in ("logistic", "sparse"):
        add(f"dual-ascent {name}", models[name], both, method="dual-ascent", max_iter=25)
        for size in (1, 7):
            given = {"batch_size": size, "max_iter": 80, "diameter": 9.0}
            add(f"batches {size} {name}", models[name], both, **given)
    add("interior-point hinge", models["hinge"], method="interior-point", max_iter=25)
    add("noisy", models["logistic"], batch_size=10, max_iter=90)
    for method in ("accelegrad", "u-dog"):
        add(f"restart {method}", models["logistic"], method=method, restart="adaptive")
    start = (kinked, np.zeros(3))
    for name in ("accelegrad", "adagrad", "unixgrad", "diagonal", "u-dog", "a-dog", "dog"):
        add(name, start, method=name, max_iter=60, tol=1e-3)
    for name in ("universal", "universal-dual", "universal-fast"):
        add(name, start, method=name, epsilon=1e-3, diameter=20.0, max_iter=40)
    add("linear-coupling", start, method="linear-coupling", smoothness=3.0, max_iter=40)
    add("subgradient", start, method="subgradient", step_size=0.1, max_iter=40)
    add("set", start, feasible_set=ag.L1Ball(2.0), max_iter=40, tol=1e-3)
    add("penalty", start, penalty=ag.L1(0.1), max_iter=40, output="average")
    return found


def differences(found: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """Return what differs in a single bit."""
    return [name for name in wanted if pickle.dumps(found[name]) != pickle.dumps(wanted[name])]


def _child(case: Case, kept: Path, told: Path) -> None:
    told.write_bytes(pickle.dumps(case(kept)))


def killed(case: Case, folder: Path, rng: np.random.Generator, most: int) -> tuple[int, list[str]]:
    """Kill a run up to `most` times; return how often it was, and what differs in the end."""
    context = multiprocessing.get_context("fork")
    wanted = case()
    begun = time.perf_counter()
    case(folder / "whole")  # how long that takes
    whole = time.perf_counter() - begun
    kills, kept, told = 0, folder / "kept", folder / "told"
    for number in range(MOST_CHILDREN):
        child = context.Process(target=_child, args=(case, kept, told))
        child.start()
        child.join(
            rng.uniform(0, 0.7 * whole) if number < MOST_CHILDREN - 1 and kills < most else None
        )
        if child.is_alive():
            assert child.pid is not None
            os.kill(child.pid, signal.SIGKILL)
            child.join()
            kills += 1
            continue
        if child.exitcode == -signal.SIGKILL:  # at its very last moment
            kills += 1
            continue
        if child.exitcode != 0:
            return kills, [f"the resumed run ended with exit code {child.exitcode}"]
        break
    return kills, differences(pickle.loads(told.read_bytes()), wanted)


def main(arguments: list[str] | None = None) -> int:
    """Kill as often as asked for, over all cases in turn."""
    parser = argparse.ArgumentParser(description="Kill runs, resume them, and compare.")
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("names", nargs="*", help="only those whose name has one of these in it")
    given = parser.parse_args(arguments)
    chosen = [c for c in cases() if not given.names or any(n in c.name for n in given.names)]
    rng, count, runs, wrong = np.random.default_rng(given.seed), 0, 0, 0
    by_case: collections.Counter[str] = collections.Counter()
    while count < given.kills:
        case = chosen[runs % len(chosen)]
        with tempfile.TemporaryDirectory() as folder:
            kills, different = killed(
                case, Path(folder), rng, min(KILLS_A_RUN, given.kills - count)
            )
        count, runs = count + kills, runs + 1
        by_case[case.name] += kills
        if different:
            wrong += 1
            print(f"{case.name}: after {kills} kills these differ: {', '.join(different)}")
    print(f"{count} kills in {runs} runs of {len(by_case)} kinds, {wrong} of them ended otherwise")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
