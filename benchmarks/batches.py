"""Batches that grow against batches of every fixed size: gradient computations to an accuracy.

Counted are the rows read, in epochs of all rows, probes and noise tests included, until the point
that `minimize` would return is within 1e-2, 1e-3 and 1e-4 of the minimum, relative to P(0) - P*;
medians over seeds. The size n is a run with full gradients (which returns its best point). Nothing
is told to the method, unless --method is "adagrad", which is told the diameter. Writes Markdown for
docs/tables. The sets are those of the folder that ACCELEGRAD_DATA names, or generated ones.
"""

import argparse
import math
from datetime import UTC, datetime

import numpy as np

import accelegrad as ag
from accelegrad_lab.bench.problems import problems_of, sources
from accelegrad_lab.engine.minimum import find_minimum
from accelegrad_lab.report.tables import table_line, table_lines
from suite import problem_of

LEVELS = (1e-2, 1e-3, 1e-4)
SIZES = (1, 4, 16, 64, 256, 1024, 4096)
SPACING = 1.04  # of the rows between two looks at the value
FIRST_LOOK = 0.05  # epochs
AIM = 1.3  # times the best fixed size's
LOSSES = ("logistic", "hinge", "squared", "absolute")


class Watch:
    """A callback that notes the epochs at which each accuracy was reached first."""

    def __init__(self, problem, epochs):
        self.problem, self.epochs = problem, epochs
        self.next_look = FIRST_LOOK
        self.reached = {}

    def __call__(self, intermediate_result):
        spent = intermediate_result.rows / self.problem.model.n_samples
        if spent < self.next_look:
            return
        self.next_look = SPACING * spent
        gap = self.problem.relative_gap(self.problem.model.value(intermediate_result.x))
        for level in LEVELS:
            if gap <= level:
                self.reached.setdefault(level, spent)
        if len(self.reached) == len(LEVELS) or spent >= self.epochs:
            raise StopIteration


def looks(n, size, epochs):
    """Return the iterations at which to look: evenly on a logarithmic scale of the rows."""
    if size == "auto":  # its steps are soon so long that each of them counts
        return np.unique(np.r_[1:2000, np.geomspace(2000, 1e7, 3000).astype(int)]).tolist()
    steps = epochs * n / size
    first = max(FIRST_LOOK * n / size, 1)
    count = 2 + int(math.log(max(steps / first, 1)) / math.log(SPACING))
    return np.unique(np.geomspace(first, max(steps, first), count).astype(int)).tolist()


def epochs_to_levels(problem, size, seed, epochs, options):
    """Return the epochs to each level with batches of this size, infinite where it was missed."""
    n, watch = problem.model.n_samples, Watch(problem, epochs)
    batch_size = None if size == n else size
    ag.minimize(
        problem.model,
        batch_size=batch_size,
        rng=seed,
        callback=watch,
        callback_at=looks(n, size, epochs),
        max_iter=10**9 if size == "auto" else math.ceil(epochs * n / size),
        **options,
    )
    return [watch.reached.get(level, math.inf) for level in LEVELS]


def median_epochs(problem, size, seeds, epochs, options):
    """Return the medians over seeds."""
    seeds = range(1) if size == problem.model.n_samples else range(seeds)
    found = [epochs_to_levels(problem, size, seed, epochs, options) for seed in seeds]
    return [sorted(at)[len(at) // 2] for at in zip(*found, strict=True)]


def compare(problem, seeds, epochs, options):
    """Return the lines of the table for one problem."""
    n = problem.model.n_samples
    sizes = [size for size in SIZES if size < n]
    table = [median_epochs(problem, size, seeds, epochs, options) for size in [*sizes, n, "auto"]]
    for position, level in enumerate(LEVELS):
        *fixed, auto = (medians[position] for medians in table)
        cells = [text(value) for value in fixed]
        cells[len(sizes) : len(sizes)] = [""] * (len(SIZES) - len(sizes))
        best = min(fixed)
        ratio = auto / best if math.isfinite(best) else math.nan
        verdict = "" if math.isnan(ratio) else f"{ratio:.2f}{' (missed)' if ratio > AIM else ''}"
        yield table_line([problem.name, f"{level:g}", *cells, text(auto), verdict])


def text(value):
    """Return a number of epochs for the table."""
    return f"{value:.3g}" if math.isfinite(value) else "-"


def head(given):
    """Print what the table shows."""
    command = f"python benchmarks/batches.py --sets {' '.join(given.sets)}"
    print(f"<!-- made by `{command} >> docs/tables/batches.md` -->\n")
    print(
        f"{datetime.now(UTC):%Y-%m-%d}, method {given.method}. Rows read, in epochs, to an "
        f"accuracy relative to P(0) - P*, medians of {given.seeds} seeds; '-': not "
        f"within {given.epochs:g} epochs. The last column is auto over the best fixed size; the "
        f"aim is {AIM}.\n"
    )
    heads = ["problem", "accuracy", *SIZES, "n", "auto", "ratio"]
    print("\n".join(table_lines(heads, [])))


def options_for(method, model):
    """Return what `minimize` is told: AdaGrad needs a diameter."""
    if method != "adagrad":
        return {"method": method}
    near = ag.minimize(model, method="accelegrad", tol=1e-3, max_iter=2000)
    return {"method": method, "diameter": 2 * float(np.linalg.norm(near.x))}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="*", default=["rcv1_subsets_binary"])
    parser.add_argument("--losses", nargs="*", default=LOSSES, choices=LOSSES)
    parser.add_argument("--strengths", nargs="*", type=float, default=[1.0, 0.01], help="n l2")
    parser.add_argument("--method", default="accelegrad", choices=["accelegrad", "adagrad"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=float, default=100)
    parser.add_argument("--seconds", type=float, default=200, help="for a minimum, at most")
    given = parser.parse_args()
    head(given)
    for source in sources(given.sets).values():
        data = source(0)
        for named in problems_of(data, given.losses, given.strengths):
            model = named.model(data)
            x = find_minimum(model, given.seconds).x
            problem = problem_of(named.key, "", model, np.zeros(model.n_parameters), x)
            options = options_for(given.method, model)
            for line in compare(problem, given.seeds, given.epochs, options):
                print(line, flush=True)


if __name__ == "__main__":
    main()
