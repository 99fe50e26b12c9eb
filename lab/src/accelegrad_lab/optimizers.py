"""The torch and optax optimizers on convex problems of real data, against tuned and untuned peers.

`python -m accelegrad_lab.optimizers [--sets a9a w8a] [--batches 64 1024] [--out FOLDER]` measures,
for each set, loss and batch size, which share of the initial gap P(0) - P* is left. Nothing is
tuned for AcceleGrad and the untuned peers; of SGD, Adam and Adagrad the best of seven step sizes
each counts, once with a constant step (last point), once with a linear decay to zero or the average
of the second half. All get the same batches, row by row, and the same NumPy gradients. The folder
holds table.md, and results.jsonl with every number: what is there already is not measured again.
Sets come from the folder that ACCELEGRAD_DATA names.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import accelegrad as ag
from accelegrad_lab.engine.rows import SCALED, SHORT_ROWS
from accelegrad_lab.engine.rows import rows_of as engine_rows
from accelegrad_lab.engine.tasks import LineFile, put
from accelegrad_lab.report.tables import geometric_mean, table_lines

ROWS, L2 = 20_000, 1e-5
SETS = (*SHORT_ROWS, "sylva")
STANDARDISED = {"magic04", "spambase"}
LOSSES = ("logistic", "hinge")
#: By batch size, zero for all rows: how many steps, or a share of an epoch for each step.
STEPS: dict[int, int] = {1: 5000, 0: 200}
EPOCHS: dict[int, int] = {64: 3, 1024: 20}
STEP_SIZES = {
    "SGD": (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0),
    "Adam": (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
    "Adagrad": (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
}
OURS = ("AcceleGrad, torch", "AcceleGrad, optax")
RESOLUTION = 1e-7  # of the initial gap: below it the minimum is not known well enough to compare
CLOSE = 1.3  # times the best tuned schedule


Shares = Mapping[str, float]  # by contestant


class Problem:
    """A linear model of some rows of a set, its minimum, and its batches."""

    def __init__(self, name: str, loss: str) -> None:
        self.X, self.y = rows_of(name)
        self.model = ag.LinearModel(self.X, self.y, loss, l2=L2)
        self.start = np.zeros(self.X.shape[1])
        self.initial = self.model.value(self.start)
        found = ag.minimize(self.model, self.start, tol=1e-8, max_iter=5000)
        if not found.gap <= RESOLUTION * self.initial:
            raise RuntimeError(f"the minimum is known up to {found.gap:g} only")
        self.least = float(found.fun)

    def share(self, w: Any) -> float:
        """Return what is left of the initial gap; infinity where that is no number."""
        with np.errstate(all="ignore"):
            left = (self.model.value(w) - self.least) / (self.initial - self.least)
        return float(left) if np.isfinite(left) else math.inf

    def steps(self, size: int) -> int:
        """Return how many steps a run with batches of this size takes."""
        return STEPS[size] if size in STEPS else EPOCHS[size] * (len(self.y) // size)

    def batches(self, size: int) -> Iterator[Any]:
        """Go through the row numbers of the batches: shuffled anew in each epoch."""
        rng, n = np.random.default_rng(0), len(self.y)
        left = self.steps(size)
        while left > 0:
            order = rng.permutation(n) if size else np.arange(n)
            for first in range(0, n - (size or n) + 1, size or n):
                yield order[first : first + (size or n)]
                left -= 1
                if not left:
                    return

    def gradient(self, w: Any, rows: Any) -> Any:
        """Return the gradient of the mean over some rows, with the l2 term."""
        X = self.X if len(rows) == len(self.y) else self.X[rows]
        slopes = self.model.loss.derivative(X @ w, self.y[rows])
        return X.T @ slopes / len(rows) + L2 * w


def rows_of(name: str) -> tuple[Any, Any]:
    """Return some rows of a set, columns without entries left out."""
    X, y = engine_rows(name + SCALED if name in STANDARDISED else name)
    order = np.random.default_rng(0).permutation(len(y))[:ROWS]
    X, y = sp.csr_matrix(X)[order], y[order]
    return X[:, np.flatnonzero(X.getnnz(axis=0))], np.where(y == y.max(), 1.0, -1.0)


# -- the frameworks ------------------------------------------------------------------------------


class TorchRun:
    """A torch optimizer that is given gradients."""

    def __init__(self, make: Callable[[Any], Any], start: Any, decay: int = 0) -> None:
        import torch

        torch.set_num_threads(1)
        self.torch, self.point = torch, torch.nn.Parameter(torch.tensor(start))
        self.optimizer = make([self.point])
        self.schedule = decay and torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda t: max(0.0, 1 - t / decay)
        )
        self._mode("train")

    def _mode(self, name: str) -> None:
        getattr(self.optimizer, name, lambda: None)()

    def where(self) -> Any:
        """Return the point at which the next gradient is wanted."""
        return self.point.detach().numpy()

    def step(self, gradient: Any) -> None:
        self.point.grad = self.torch.from_numpy(gradient)
        self.optimizer.step()
        if self.schedule:
            self.schedule.step()

    def output(self) -> Any:
        self._mode("eval")
        return self.where().copy()


class OptaxRun:
    """An optax transformation that is given gradients."""

    def __init__(self, make: Callable[[], Any], start: Any, output: Any = None) -> None:
        import jax

        jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]
        import optax

        self.transformation, self.evaluated = make(), output
        self.point = jax.numpy.asarray(start)
        self.state = self.transformation.init(self.point)

        @jax.jit
        def update(gradient: Any, state: Any, point: Any) -> Any:
            change, state = self.transformation.update(gradient, state, point)
            return optax.apply_updates(point, change), state

        self.update = update

    def where(self) -> Any:
        """Return the point at which the next gradient is wanted."""
        return np.asarray(self.point)

    def step(self, gradient: Any) -> None:
        self.point, self.state = self.update(gradient, self.state, self.point)

    def output(self) -> Any:
        point = self.point if self.evaluated is None else self.evaluated(self.state, self.point)
        return np.asarray(point)


def walked(problem: Problem, size: int, run: Any) -> tuple[Any, Any, Any]:
    """Return the run after its last step, the mean of its second half, and DoG's average.

    That is Shamir and Zhang's average with gamma = 8, as DoG's authors recommend.
    """
    steps, half, polynomial = problem.steps(size), 0.0, 0.0
    for done, rows in enumerate(problem.batches(size), 1):
        run.step(problem.gradient(run.where(), rows))
        point = run.where()
        if 2 * done > steps:
            half = half + point / (steps - steps // 2)
        polynomial = polynomial + 9 / (done + 8) * (point - polynomial)
    return run, half, polynomial


# -- what is compared ----------------------------------------------------------------------------


#: Optimizers without a step size: the framework, the module, the name, and what gives the output.
UNTUNED = {
    "AcceleGrad, torch": ("torch", "accelegrad.torch", "AcceleGrad", ""),
    "AcceleGrad, optax": ("optax", "accelegrad.optax", "accelegrad", "eval_params"),
    "AdamWScheduleFree": ("torch", "schedulefree", "AdamWScheduleFree", ""),
    "Prodigy": ("torch", "prodigyopt", "Prodigy", ""),
    "DoG": ("torch", "dog", "DoG", ""),
    "DAdaptAdam": ("torch", "dadaptation", "DAdaptAdam", ""),
    "DAdaptAdaGrad": ("torch", "dadaptation", "DAdaptAdaGrad", ""),
    "optax prodigy": ("optax", "optax.contrib", "prodigy", ""),
    "optax dadapt_adamw": ("optax", "optax.contrib", "dadapt_adamw", ""),
}


def untuned_share(problem: Problem, size: int, name: str) -> float:
    """Return what an untuned run leaves; of DoG the better of its last point and its average."""
    framework, path, made, output = UNTUNED[name]
    module = import_module(path)
    make = getattr(module, made)
    if framework == "torch":
        run: Any = TorchRun(make, problem.start)
    else:
        run = OptaxRun(make, problem.start, getattr(module, output) if output else None)
    run, _, polynomial = walked(problem, size, run)
    found = problem.share(run.output())
    return min(found, problem.share(polynomial)) if name == "DoG" else found


def tuned_shares(problem: Problem, size: int, name: str) -> dict[str, float]:
    """Return the least share with a constant step and with a schedule, over all step sizes."""
    import torch

    best = {"constant": math.inf, "schedule": math.inf}
    for step_size in STEP_SIZES[name]:

        def make(params: Any, lr: float = step_size) -> Any:
            return getattr(torch.optim, name)(params, lr=lr)

        run, half, _ = walked(problem, size, TorchRun(make, problem.start))
        best["constant"] = min(best["constant"], problem.share(run.output()))
        decayed = TorchRun(make, problem.start, decay=problem.steps(size))
        ends = problem.share(half), problem.share(walked(problem, size, decayed)[0].output())
        best["schedule"] = min(best["schedule"], *ends)
    return best


class Measured:
    """The shares that are left, by set, loss, batch size and contestant: kept line by line."""

    def __init__(self, folder: Path) -> None:
        self.file = LineFile(folder / "results.jsonl")
        settings = {"rows": ROWS, "l2": L2}
        lines = self.file.begin(settings, resume=True)
        self.known = {line["key"]: float(line["left"]) for _, line in lines}

    def keep(self, key: str, left: float) -> None:
        self.known[key] = left
        self.file.add("share", {"key": key, "left": left})

    def case(self, name: str, loss: str, size: int, problem: Callable[[], Problem]) -> Shares:
        """Return the share that each contestant leaves; measure what is missing."""
        start = f"{name} {loss} {size} "
        for contestant in UNTUNED:
            if start + contestant not in self.known:
                self.keep(start + contestant, untuned_share(problem(), size, contestant))
        for contestant in STEP_SIZES:
            if f"{start}{contestant}, constant" not in self.known:
                for kind, left in tuned_shares(problem(), size, contestant).items():
                    self.keep(f"{start}{contestant}, {kind}", left)
        own = (key for key in self.known if key.startswith(start))
        return {key.removeprefix(start): self.known[key] for key in own}


# -- the page ------------------------------------------------------------------------------------

Cases = dict[tuple[str, str, int], Shares]


def least(found: Shares, names: list[str]) -> tuple[str, float]:
    """Return the best of some contestants and what it leaves."""
    name = min(names, key=lambda each: found[each])
    return name, max(found[name], RESOLUTION)


def summary(found: Shares) -> dict[str, tuple[str, float]]:
    """Return ours, and the best of each kind of peer."""
    peers = [name for name in UNTUNED if name not in OURS]
    return {
        "torch": least(found, [OURS[0]]),
        "optax": least(found, [OURS[1]]),
        "untuned": least(found, peers),
        "constant": least(found, [f"{name}, constant" for name in STEP_SIZES]),
        "schedule": least(found, [f"{name}, schedule" for name in STEP_SIZES]),
    }


def page(cases: Cases) -> Iterator[str]:
    """Go through the lines of the page."""
    yield "# Optimizers on convex problems"
    yield ""
    yield "<!-- made by `python -m accelegrad_lab.optimizers` -->"
    yield ""
    yield (
        f"{datetime.now(UTC):%Y-%m-%d}. Share of the initial gap that is left, {ROWS:,} rows at "
        f"most, l2 = {L2:g}, one shuffle (seed 0); below {RESOLUTION:g} the minimum is not known "
        "better. Lengths: batch 1 5,000 steps, 64 three epochs, 1024 twenty, all rows 200 steps."
    )
    head = ["set, loss, batch", "torch", "optax", "best untuned peer"]
    head += ["best tuned, constant step", "best tuned schedule"]
    rows = []
    for (name, loss, size), found in cases.items():
        best = summary(found)
        cells = [f"{value:.1e}" for _, value in (best["torch"], best["optax"])]
        cells += [
            f"{value:.1e} {who.split(',')[0]}"
            for who, value in (best["untuned"], best["constant"], best["schedule"])
        ]
        rows.append([f"{name} {loss} {size or 'all'}", *cells])
    yield ""
    yield from table_lines(head, rows, numbers=True)
    yield ""
    yield from _counts(cases)


def _counts(cases: Cases) -> Iterator[str]:
    """Go through a table of how often each mark is met."""
    head = ["batch", "cases", "ahead of every untuned peer", "ahead of every constant step"]
    head += [f"within {CLOSE:g} of the best schedule", "mean ratio to peer, constant, schedule"]
    rows = []
    for size in dict.fromkeys(key[2] for key in cases):
        best = [summary(found) for key, found in cases.items() if key[2] == size]
        ratios = {
            kind: [each["torch"][1] / each[kind][1] for each in best]
            for kind in ("untuned", "constant", "schedule")
        }
        limits = {"untuned": 1, "constant": 1, "schedule": CLOSE}
        ahead = [sum(ratio <= limits[kind] for ratio in each) for kind, each in ratios.items()]
        means = ", ".join(f"{geometric_mean(each):.2f}" for each in ratios.values())
        rows.append([size or "all", len(best), *ahead, means])
    yield from table_lines(head, rows, numbers=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    sizes = [*STEPS, *EPOCHS]
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--losses", nargs="+", default=list(LOSSES), choices=LOSSES)
    parser.add_argument("--batches", nargs="+", type=int, default=sorted(sizes), choices=sizes)
    parser.add_argument("--out", type=Path, default=Path("optimizers"))
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # of peers, about their defaults
    measured = Measured(given.out)
    cases: Cases = {}
    for name in given.sets:
        for loss in given.losses:
            problem = cache(partial(Problem, name, loss))
            for size in given.batches:
                cases[name, loss, size] = measured.case(name, loss, size, problem)
                best = summary(cases[name, loss, size])
                print(name, loss, size, {kind: f"{left:.1e}" for kind, (_, left) in best.items()})
    put(given.out / "table.md", "\n".join(page(cases)) + "\n")


if __name__ == "__main__":
    main()
