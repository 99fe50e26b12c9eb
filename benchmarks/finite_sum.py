"""Finite sums: gradient computations and seconds to a proved accuracy.

A unit is a gradient over all rows, or as many row gradients. A run counts when its own dual gap
proves the accuracy, relative to P(0) - P*: "default" is
what `minimize` chooses. All on one thread, in one run: look at the ratios. How long other solvers
take is what `accelegrad bench` tells.

Run: OMP_NUM_THREADS=1 python benchmarks/finite_sum.py [SET ...] [--loss LOSS ...]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import accelegrad as ag
from accelegrad.catalogue import METHODS
from accelegrad.choose import Facts, choose
from accelegrad.lab.bench.problems import SUITE_LOSSES, sources
from accelegrad.lab.report.tables import table_lines
from accelegrad.rules import Rule
from accelegrad.run.oracle import ModelOracle
from accelegrad.solvers.oracles import sum_oracle

LEVELS = (1e-2, 1e-3, 1e-4, 1e-6)
SETS = ("a9a", "mushrooms", "svmlight_reuters_acq")
ROWS = 100_000  # of larger sets, a sample
LONGEST = 20.0  # seconds of a run
MOST_STEPS = 2000


class Mark(NamedTuple):
    """How far a run was after so many units and seconds."""

    units: float
    seconds: float
    accuracy: float


def ours(model: ag.LinearModel, make: Callable[[], tuple[Rule, ModelOracle]]) -> Iterator[Mark]:
    """Go through a run of ours; its accuracy is the certified one."""
    x0 = np.zeros(model.n_parameters)
    start, bound, begun = model.value(x0), -np.inf, time.perf_counter()
    rule, oracle = make()
    state = rule.init(x0)
    for _ in range(MOST_STEPS):
        step = rule.step(state, oracle)
        at: Any = step.evaluation
        state = step.state
        known = getattr(at, "dual_value", None)
        bound = max(bound, at.model.dual_value if known is None else known)
        assert oracle.best is not None
        best, seconds = oracle.best.value, time.perf_counter() - begun
        units = (oracle.nfev + oracle.njev) / 2
        yield Mark(units, seconds, (best - bound) / max(start - best, 1e-300))
        if seconds > LONGEST:
            return


def reached(marks: Iterator[Mark]) -> list[Mark | None]:
    """Return the first mark at each level."""
    found: list[Mark | None] = [None] * len(LEVELS)
    for mark in marks:
        for k, level in enumerate(LEVELS):
            if found[k] is None and mark.accuracy <= level:
                found[k] = mark
        if found[-1] is not None:
            break
    return found


def table(model: ag.LinearModel) -> Iterator[list[str]]:
    """Go through the rows of a model's table."""
    rng = np.random.default_rng(0)

    def chosen() -> tuple[Rule, ModelOracle]:
        rule = METHODS[choose(Facts(model)).name].rule()
        return rule, sum_oracle(rule, model, rng, lambda value: 1e-7 * abs(value))

    makers = {"default": chosen}
    for make in makers.values():  # what is compiled or loaded first
        next(ours(model, make))
    for name, make in makers.items():
        marks = reached(ours(model, make))
        yield [name] + [
            "-" if m is None else f"{m.units:.0f} / {1e3 * m.seconds:.1f}" for m in marks
        ]


def main() -> None:
    """Print a table a problem."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--loss", nargs="+", default=["logistic"], choices=sorted(SUITE_LOSSES))
    given = parser.parse_args()
    head = ["units / ms to", *(f"{level:g}" for level in LEVELS)]
    for name in given.sets:
        data = sources([name])[name](ROWS)
        for loss in given.loss:
            for strength in (1.0, 0.01):
                options: dict[str, Any] = dict(SUITE_LOSSES[loss])
                model = ag.LinearModel(data.X, data.y, loss, l2=strength / data.y.size, **options)
                print(f"\n{data.name} ({data.words}), {loss}, l2 = {strength:g}/n\n")
                for line in table_lines(head, table(model)):
                    print(line, flush=True)


if __name__ == "__main__":
    main()
