"""Runs that are killed at random moments: resumed, each ends as the one that nobody killed.

    python tests/proofs/kills.py [--kills 300] [--seed 0]

A child process does a run with checkpoints and is killed, as often as it takes until one child gets
to the end; what that one found is compared, bit for bit, with a run that was left alone. The
estimators' streams are kept between their chunks by pickle, as joblib would.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

HERE = Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path[:] = [str(HERE.parent), *(path for path in sys.path if path != str(HERE))]

import accelegrad as ag  # noqa: E402
from accelegrad import kernels  # noqa: E402
from accelegrad.sklearn import AcceleGradClassifier, AcceleGradRegressor  # noqa: E402

#: What is compared: all that a run says but for the time it took.
FIELDS = (
    *("x", "x_average", "x_last", "x_best", "fun", "jac", "lower_bound", "gap", "certified_radius"),
    *("nit", "nfev", "njev", "rows", "status", "success", "message", "n_restarts"),
)
COLUMNS = ("iteration", "value", "gap", "step", "calls")
PAUSE = 5e-4  # seconds after each iteration, so that there is time to be killed in
KILLS_A_RUN = 4
MOST_CHILDREN = 60  # of one run; by then one gets to the end

Work = Callable[[Path], dict[str, Any]]


class Case(NamedTuple):
    """Something to be done, which keeps what it has done in a file."""

    name: str
    alone: Callable[[], dict[str, Any]]
    kept: Work


def minimised(name: str, *given: Any, mode: str = "auto", every: int = 1, **options: Any) -> Case:
    """Return a run of `minimize`."""

    def run(path: Path | None) -> dict[str, Any]:
        own = dict(options)
        if path is not None:
            # Who looks on changes nothing, and gives time to be killed in.
            own |= {"checkpoint": path, "checkpoint_every": every}
            own["callback"] = lambda _: time.sleep(PAUSE)
            own["resume"] = path if path.exists() else None
        with kernels.use(mode):
            result = ag.minimize(*given, rng=0, **own)
        told = {field: result.get(field) for field in FIELDS}
        if result.trace is not None:
            told |= {f"trace {name}": result.trace[name] for name in COLUMNS}
        return told

    return Case(name, lambda: run(None), run)


def streamed(name: str, make: Callable[[], Any], X: Any, y: Any, size: int) -> Case:
    """Return a stream of chunks through an estimator."""
    chunks = [slice(first, first + size) for first in range(0, len(y), size)]

    def learn(path: Path | None) -> dict[str, Any]:
        done, estimator = 0, make()
        if path is not None and path.exists():
            done, estimator = pickle.loads(path.read_bytes())
        for number, rows in enumerate(chunks[done:], done):
            known = {}
            if isinstance(estimator, AcceleGradClassifier):
                known["classes"] = np.unique(y)
            estimator.partial_fit(X[rows], y[rows], **known)
            if path is not None:
                fresh = path.with_suffix(".new")
                fresh.write_bytes(pickle.dumps((number + 1, estimator)))
                fresh.replace(path)
                time.sleep(PAUSE)
        return {"coef": estimator.coef_, "intercept": estimator.intercept_}

    return Case(name, lambda: learn(None), learn)


def kinked(x: Any) -> tuple[float, Any]:
    """A function of the user's own with kinks far from the start."""
    r = x - np.array([3.0, -2.0, 5.0])
    return float(np.abs(r).sum() + 0.1 * r @ r), np.sign(r) + 0.2 * r


def cases() -> list[Case]:
    """Return runs of all methods, with restarts, batches, sets and penalties; streams."""
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
    rows = [
        minimised(
            f"accelegrad-newton {name}",
            model,
            method="accelegrad-newton",
            max_iter=25,
            trace=True,
            mode=mode,
        )
        for name, model in models.items()
        for mode in ("never", "always")
    ]
    rows += [
        minimised(f"dual-ascent {name}", models[name], method="dual-ascent", max_iter=25, mode=mode)
        for name in ("logistic", "sparse")
        for mode in ("never", "always")
    ]
    rows.append(
        minimised("interior-point hinge", models["hinge"], method="interior-point", max_iter=25)
    )
    start = (kinked, np.zeros(3))
    functions = [
        minimised(name, *start, method=name, max_iter=60, tol=1e-3, every=3, trace=True)
        for name in ("accelegrad", "adagrad", "unixgrad", "diagonal", "u-dog", "a-dog", "dog")
    ]
    functions += [
        minimised(name, *start, method=name, epsilon=1e-3, diameter=20.0, max_iter=40)
        for name in ("universal", "universal-dual", "universal-fast")
    ]
    functions += [
        minimised("linear-coupling", *start, method="linear-coupling", smoothness=3.0, max_iter=40),
        minimised("subgradient", *start, method="subgradient", step_size=0.1, max_iter=40),
        minimised("set", *start, feasible_set=ag.L1Ball(2.0), max_iter=40, tol=1e-3),
        minimised("penalty", *start, penalty=ag.L1(0.1), max_iter=40, output="average"),
    ]
    policies = [
        minimised(f"restart {kind} {method}", models["logistic"], method=method, restart=kind)
        for kind, method in (("adaptive", "accelegrad"), ("adaptive", "u-dog"))
    ]
    policies += [minimised("noisy", models["logistic"], batch_size=10, max_iter=90)]
    batches = [
        minimised(
            f"batches {size} {name}",
            models[name],
            batch_size=size,
            max_iter=80,
            mode=mode,
            diameter=9.0,
        )
        for size in (1, 7)
        for name in ("logistic", "sparse")
        for mode in ("never", "always")
    ]
    three = np.digitize(targets, np.quantile(targets, [0.3, 0.6]))
    streams = [
        streamed("classifier", lambda: AcceleGradClassifier("hinge", random_state=0), X, three, 7),
        streamed("regressor", lambda: AcceleGradRegressor("huber", random_state=0), X, targets, 1),
    ]
    return [*rows, *functions, *policies, *batches, *streams]


def differences(found: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """Return what differs in a single bit."""
    return [name for name in wanted if pickle.dumps(found[name]) != pickle.dumps(wanted[name])]


def _child(work: Work, kept: Path, told: Path) -> None:
    told.write_bytes(pickle.dumps(work(kept)))


def killed(case: Case, folder: Path, rng: np.random.Generator, most: int) -> tuple[int, list[str]]:
    """Kill a run up to `most` times; return how often it was, and what differs in the end."""
    context = multiprocessing.get_context("fork")
    wanted = case.alone()
    begun = time.perf_counter()
    case.kept(folder / "whole")  # how long that takes
    whole = time.perf_counter() - begun
    kills, kept, told = 0, folder / "kept", folder / "told"
    for number in range(MOST_CHILDREN):
        child = context.Process(target=_child, args=(case.kept, kept, told))
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
