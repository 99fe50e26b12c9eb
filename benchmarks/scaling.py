"""Badly scaled data: one step for all coordinates, a step a coordinate, or scaled columns.

Gradient calls (probes included) until the best value seen is within 1e-2 and 1e-4 of the minimum,
relative to f(0) - f*, nothing told to any method. Prints Markdown for docs/tables. The real
data are looked for in the folder that ACCELEGRAD_DATA names; those not found are left out. Minima
are those of the lab's finder.
"""

import argparse
from datetime import UTC, datetime

import numpy as np

import accelegrad as ag
from accelegrad.files import datasets
from accelegrad.lab.bench.profile import geometric_mean
from accelegrad.lab.engine.minimum import find_minimum
from accelegrad.lab.report.tables import table_lines
from accelegrad.models.scaling import column_scaling
from accelegrad.rules.base import KnownEvaluation
from accelegrad.rules.diagonal import DistanceFreeDiagonalAcceleGrad
from accelegrad.rules.distance_free import DistanceFreeAcceleGrad
from accelegrad.rules.rescaled import Rescaled
from suite import first_call_below, problem_of

LEVELS = (1e-2, 1e-4)
ROWS = 3000  # of the larger sets
PLAIN, DIAGONAL = DistanceFreeAcceleGrad, DistanceFreeDiagonalAcceleGrad
REGRESSIONS = ("cadata", "house_16H", "cpusmall")
CLASSIFICATIONS = ("magic04", "spambase", "covtype.binary.scale")


# The rule, and what is done to the columns.
METHODS = {
    "one step": (PLAIN, None),
    "diagonal": (DIAGONAL, None),
    "scaled": (PLAIN, "scale"),
    "standardised": (PLAIN, "centre and scale"),
    "standardised diagonal": (DIAGONAL, "centre and scale"),
}


def rule_of(name, model):
    kind, columns = METHODS[name]
    if columns is None:
        return kind(probe=True)
    return Rescaled(kind(probe=True), column_scaling(model, center=columns != "scale"))


# -- problems ------------------------------------------------------------------------------------


def case(group, name, X, y, loss, *, intercept, l2=0.0):
    """Return a model as a problem that starts at zero; its kind is its group in the table."""
    model = ag.LinearModel(X, y, loss, l2=l2, fit_intercept=intercept)
    text = f"{name} {loss}" + (", intercept" if intercept else "") + (", l2=1/n" if l2 else "")
    zero = np.zeros(model.n_parameters)
    return problem_of(text, group, model, zero, find_minimum(model, exact=True).x)


def generated(group, spread, seed, n=800, d=25):
    """Correlated Gaussian columns with means, scaled by 10^U(-spread, spread)."""
    for intercept in (False, True):
        for loss in ("squared", "logistic", "absolute"):
            rng = np.random.default_rng(seed)
            mix = np.eye(d) + 0.5 * rng.standard_normal((d, d)) / np.sqrt(d)
            X = rng.standard_normal((n, d)) @ mix + intercept * rng.uniform(-2, 2, d)
            y = X @ rng.standard_normal(d) / np.sqrt(d) + 0.3 * rng.standard_normal(n)
            if loss == "logistic":
                y = np.where(y + rng.standard_normal(n) > np.median(y), 1.0, -1.0)
            X = X * 10 ** rng.uniform(-spread, spread, d)
            yield case(group, f"generated {seed}", X, y, loss, intercept=intercept)


def rows_of(name, seed=0):
    path = datasets.find(name)
    if path is None:
        return None
    data = datasets.read(path)
    chosen = np.random.default_rng(seed).permutation(data.X.shape[0])[:ROWS]
    return data.X[np.sort(chosen)], data.y[np.sort(chosen)]


def standard(X):
    deviation = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)


def real(group, prepare):
    for name in (*REGRESSIONS, *CLASSIFICATIONS):
        found = rows_of(name)
        if found is None:
            continue
        X, y = prepare(found[0].toarray()), found[1]
        for intercept in (False, True):
            if name in REGRESSIONS:
                for loss in ("squared", "absolute"):
                    yield case(group, name, X, y, loss, intercept=intercept)
            else:
                labels = datasets.as_binary(y)
                yield case(
                    group, name, X, labels, "logistic", intercept=intercept, l2=1 / len(labels)
                )


def text(group):
    found = rows_of("rcv1_vw_small")
    if found is None:
        return
    X, y = found[0], datasets.as_binary(found[1])
    for intercept in (False, True):
        for loss in ("logistic", "squared"):
            yield case(group, "rcv1_vw_small", X, y, loss, intercept=intercept, l2=1 / len(y))


def problems(seeds):
    for seed in range(seeds):
        yield from generated("badly scaled", 3.0, seed)
    yield from real("raw", lambda X: X)
    for seed in range(seeds):
        yield from generated("well scaled", 0.0, seed)
    yield from real("well scaled", standard)
    yield from text("text")


# -- running -------------------------------------------------------------------------------------


def calls_to(method, problem, budget):
    """Return the calls to each level, None where it was not reached."""
    rule = rule_of(method, problem.model)

    def run(recorder):
        state = rule.init(problem.x0)
        while True:
            state = rule.step(state, lambda x: KnownEvaluation(x, *recorder(x))).state

    return first_call_below(problem, LEVELS, run, max_calls=budget)


def show(first, rows):
    """Print a table with a column a method, row by row."""
    for line in table_lines([first, *METHODS], rows):
        print(line, flush=True)


def compare(problems, budget, calls):
    """Go through the rows of calls, and add these to `calls` by group, level and method."""
    for problem in problems:
        cells = []
        for name in METHODS:
            reached = calls_to(name, problem, budget)
            cells.append(" / ".join(str(reached[level] or f">{budget}") for level in LEVELS))
            for level in LEVELS:
                key = problem.kind, level, name
                calls.setdefault(key, []).append(reached[level] or budget)
        yield [f"{problem.kind}: {problem.name}", *cells]


def summarise(calls):
    """Go through the rows of calls relative to the best method's, in geometric mean."""
    totals = {name: [] for name in METHODS}
    for group, level in dict.fromkeys((key[0], key[1]) for key in calls):
        best = np.min([calls[group, level, name] for name in METHODS], axis=0)
        cells = []
        for name in METHODS:
            ratios = np.array(calls[group, level, name]) / best
            totals[name] += list(ratios)
            cells.append(f"{geometric_mean(ratios):.2f} ({ratios.max():.0f})")
        yield [f"{group}, {level:g}", *cells]
    means = {name: geometric_mean(ratios) for name, ratios in totals.items()}
    yield ["all", *(f"{mean:.2f}" for mean in means.values())]
    print(f"\nFewest calls over all: {min(means, key=means.__getitem__)}.")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=int, default=3000, help="gradient calls at most")
    parser.add_argument("--seeds", type=int, default=2, help="of the generated sets")
    given = parser.parse_args()
    # Centred columns without an intercept can leave nothing to gain.
    cases = [c for c in problems(given.seeds) if c.minimum < (1 - 1e-3) * c.start_value]
    print("<!-- made by `python benchmarks/scaling.py > docs/tables/scaling.md` -->\n")
    print(f"{datetime.now(UTC):%Y-%m-%d}, {len(cases)} problems.\n")
    print(f"Calls to {LEVELS[0]:g} / {LEVELS[1]:g} (at most {given.budget}):\n")
    calls = {}
    show("problem", compare(cases, given.budget, calls))
    print("\nCalls relative to the best method's on the same problem, geometric mean (worst):\n")
    show("group, level", summarise(calls))


if __name__ == "__main__":
    main()
