"""Why the constants of `UntunedAcceleGrad` are what they are: each of them halved or doubled.

`python benchmarks/untuned.py [--sets a9a w8a] [--batches 64 1024] [--store FILE]` prints, for each
variant and batch size, the geometric mean over sets and losses of the share of the initial gap that
is left, relative to the rule as it is. The problems are those of benchmarks/optimizers.py; with the
same store their minima are not looked for again.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

from accelegrad.rules import UntunedAcceleGrad, untuned
from accelegrad_lab.bench.profile import geometric_mean
from accelegrad_lab.report.tables import number_table
from optimizers import LENGTHS, LOSSES, RESOLUTION, SETS, Problem, Store, walked

#: By name: constants of the rule's module, and parameters of the rule.
VARIANTS: dict[str, tuple[Mapping[str, float], Mapping[str, Any]]] = {
    "as it is": ({}, {}),
    "one step for all coordinates": ({}, {"diagonal": False}),
    "steps of 1.25 radii": ({"STEP": 1.25}, {}),
    "steps of 5 radii": ({"STEP": 5.0}, {}),
    "radius: proven distance x 1": ({"TRUST": 1.0}, {}),
    "radius: proven distance x 4": ({"TRUST": 4.0}, {}),
    "acceleration / 2": ({"ACCELERATION": 5.0}, {}),
    "acceleration x 2": ({"ACCELERATION": 20.0}, {}),
    "acceleration unlimited": ({"ACCELERATION": 1e9}, {}),
    "no distance travelled": ({"EXACT": 1e9}, {}),
    "all gradients count as exact": ({"EXACT": 1e-9}, {}),
    "settled later": ({"LONGER": 4}, {}),
}


class RuleRun:
    """The rule in NumPy."""

    def __init__(self, start: Any, **parameters: Any) -> None:
        self.rule = UntunedAcceleGrad(**parameters)
        self.state = self.rule.init(start)

    def where(self) -> Any:
        """Return the point at which the next gradient is wanted."""
        return self.rule.query(self.state)

    def step(self, gradient: Any) -> None:
        self.state = self.rule.update(self.state, gradient)

    def output(self) -> Any:
        return self.rule.output(self.state)


def shares(problem: Problem, size: int) -> dict[str, float]:
    """Return what each variant leaves."""
    found = {}
    for name, (constants, parameters) in VARIANTS.items():
        with patch.dict(vars(untuned), constants):
            run, _ = walked(problem, size, RuleRun(problem.start, **parameters))
        found[name] = min(max(problem.share(run.output()), RESOLUTION), 1e9)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--batches", nargs="+", type=int, default=list(LENGTHS), choices=LENGTHS)
    parser.add_argument("--store", type=Path)
    given = parser.parse_args()
    store, found = Store(given.store, ()), {size: [] for size in given.batches}
    for name in given.sets:
        for loss in LOSSES:
            problem = Problem(name, loss, store)
            for size in given.batches:
                key = f"{name} {loss} {size} variants"
                found[size].append(store.get(key, lambda: shares(problem, size)))  # noqa: B023
    rows = []
    for variant in VARIANTS:
        cells = []
        for cases in found.values():
            ratios = [case[variant] / case["as it is"] for case in cases]
            cells.append(f"{geometric_mean(ratios):.2f} ({max(ratios):.3g})")
        rows.append([variant, *cells])
    print("Share left relative to the rule as it is: geometric mean (worst).\n")
    heads = [f"batch {size or 'all'}" for size in given.batches]
    print("\n".join(number_table(["variant", *heads], rows)))


if __name__ == "__main__":
    main()
