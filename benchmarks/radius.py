"""Why the automatic diameter is what it is: variants of what feeds the radius.

`python benchmarks/radius.py [--quick] [--seeds 3] [--out docs/tables/radius.md]` compares variants
of `DistanceFreeAcceleGrad` on the suite's problems, with exact and with noisy gradients. It is an
experiment about the rule, so the variants stand here and not in the package; the last one is the
package's own, which is checked against the package at the start. A second table is about sets: the
rule's two ways to move z, each with exact and with noisy gradients.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import accelegrad as ag
from accelegrad.models.sampling import BatchSampler
from accelegrad.rules.base import KnownEvaluation
from accelegrad.rules.distance import Known, Probe, probed, smallest_radius
from accelegrad.rules.schedules import importance_weight
from accelegrad.run.oracle import MinibatchOracle
from accelegrad_lab.bench.profile import geometric_mean
from accelegrad_lab.report.tables import put, table_lines
from no_tuning import Calls, best_tuned, calls_to, told
from suite import THRESHOLDS, Problem, first_call_below, load

BUDGET = 4000
EPOCHS = 20
MISSED = 10.0  # how many budgets a run that misses a threshold is counted as
DIVERGED = 1e30  # what a gap beyond it counts as

Column = dict[str, tuple[float, float]]  # geometric mean and worst, by name


@dataclass(frozen=True)
class Variant:
    """What feeds the radius, and how it starts."""

    name: str
    travel: str = ""  # the sequence whose distance from x0 raises it: x, y, z, average
    downhill: bool = False  # only where the value is below f(x0)
    trust: float = 0.0  # times the proven lower bound on the distance
    probe: str = "parabola"  # or "tenfold", "none"
    step: float = 2.0
    weigh: bool = True  # the output forgets what came before the radius grew


OWN = Variant("evidence x2 (our own)", trust=2.0)
VARIANTS = (
    Variant("y travelled, tenfold probe", travel="y", probe="tenfold", weigh=False),
    Variant("y travelled", travel="y", weigh=False),
    Variant("z travelled", travel="z"),
    Variant("x travelled", travel="x"),
    Variant("average travelled", travel="average"),
    Variant("y travelled, weighted output", travel="y"),
    Variant("y travelled, no probe", travel="y", probe="none"),
    Variant("y if downhill", travel="y", downhill=True),
    Variant("evidence x1", trust=1.0),
    Variant("evidence x4", trust=4.0),
    Variant("evidence x2, y if downhill", travel="y", downhill=True, trust=2.0),
    Variant("our own with the step x2", trust=2.0, step=4.0),
    Variant("our own without probe", trust=2.0, probe="none"),
    OWN,
)


class Runner:
    """AcceleGrad with a radius, one gradient at a time."""

    def __init__(self, variant: Variant, x0: Any, radius: float, start_value: float) -> None:
        self.variant, self.x0, self.r, self.f0 = variant, x0, radius, start_value
        self.x = self.y = self.z = x0
        self.t, self.squares, self.evidence = 0, 0.0, 0.0
        self.gradients, self.total, self.weight = 0 * x0, 0 * x0, 0.0

    def step(self, value: float, g: Any) -> None:
        """Take in a gradient at x."""
        v, r, x = self.variant, self.r, self.x
        alpha = importance_weight(self.t)
        self.squares += alpha * alpha * float(g @ g)
        if self.squares == 0:
            return
        eta = v.step * r / math.sqrt(self.squares)
        z = self.z - alpha * eta * g
        away = math.dist(z, self.x0)
        self.z = z if away <= 3 * r else self.x0 + (3 * r / away) * (z - self.x0)
        self.y = x - eta * g
        weight = alpha * r if v.weigh else alpha
        self.total = self.total + weight * self.y
        self.weight += weight
        self.r = max(r, self._travelled(value), self._proven(alpha * r * r, g))
        self.t += 1
        tau = 1 / importance_weight(self.t)
        self.x = tau * self.z + (1 - tau) * self.y

    def _travelled(self, value: float) -> float:
        v = self.variant
        if not v.travel or (v.downhill and not value < self.f0):
            return 0.0
        points = {"x": self.x, "y": self.y, "z": self.z, "average": self.total / self.weight}
        return math.dist(points[v.travel], self.x0)

    def _proven(self, weight: float, g: Any) -> float:
        if self.variant.trust == 0:
            return 0.0
        self.gradients = self.gradients + weight * g
        self.evidence += weight * float(g @ (self.x0 - self.x))
        norm = math.sqrt(float(self.gradients @ self.gradients))
        return self.variant.trust * self.evidence / norm if norm > 0 else 0.0


def first_radius(variant: Variant, oracle: Any, x0: Any) -> float:
    """Return r_0 by the variant's probe."""
    if variant.probe == "none":
        return float(smallest_radius(x0))
    search = parabola_search if variant.probe == "parabola" else tenfold_search
    return probed(oracle, x0, search)[0] or float(smallest_radius(x0))


def parabola_search(gradient: Any, start: Any, oracle: Any) -> float:
    """Return how far the value falls along the gradient, as the package finds it."""
    direction = gradient / np.linalg.norm(gradient)
    search = Probe(start, direction, oracle, lambda reach: start.point - reach * direction)
    return search.radius(float(smallest_radius(start.point)))


def tenfold_search(gradient: Any, start: Any, oracle: Any) -> float:
    """Return the last distance at which the value still fell, ten times as far at each trial."""
    direction = gradient / np.linalg.norm(gradient)
    radius, least, reach = 0.0, start.value, float(smallest_radius(start.point))
    for _ in range(40):
        value = oracle(start.point - reach * direction).value
        if not value < least:
            break
        radius, least, reach = reach, value, 10 * reach
    return radius


def exact_calls(variant: Variant, problem: Problem) -> Calls:
    """Return the calls to each threshold with full gradients."""

    def run(recorder: Any) -> None:
        oracle = counted(recorder)
        runner = started(variant, problem, oracle)
        while True:
            at = oracle(runner.x)
            runner.step(at.value, at.gradient)

    return first_call_below(problem, THRESHOLDS, run, max_calls=BUDGET)


def counted(function: Any) -> Any:
    """Return a function of values and gradients as rules call it."""
    return lambda x: KnownEvaluation(x, *function(x))


def started(variant: Variant, problem: Problem, oracle: Any) -> Runner:
    """Return a run after its probe and its first step."""
    x0 = problem.x0
    start = oracle(x0)
    runner = Runner(variant, x0, first_radius(variant, Known(start, oracle), x0), start.value)
    runner.step(start.value, start.gradient)
    return runner


def sampler_of(problem: Problem, batch: int, seed: int) -> BatchSampler:
    return BatchSampler(problem.model.n_samples, batch, np.random.default_rng(seed))


def variant_gap(variant: Variant, problem: Problem, batch: int, seed: int) -> float:
    """Return the relative gap of the output after 20 epochs."""
    model, sampler = problem.model, sampler_of(problem, batch, seed)
    radius = first_radius(variant, MinibatchOracle(model, sampler), problem.x0)
    runner = Runner(variant, problem.x0, radius, -math.inf)
    with np.errstate(all="ignore"):
        for _ in range(EPOCHS * -(-model.n_samples // batch)):
            _, g = model.batch_value_and_gradient(runner.x, sampler.next_rows())
            if not np.isfinite(g).all():
                return DIVERGED
            runner.step(math.inf if variant.downhill else -math.inf, g)
        gap = problem.relative_gap(model.value(runner.total / runner.weight))
    return min(gap, DIVERGED)


# -- comparing -------------------------------------------------------------------------------------


def exact_column(runs: Mapping[str, Callable[[Problem], Calls]], problems: list[Problem]) -> Column:
    """Return geometric mean and worst ratio of calls to those of the exact D, by name."""
    rivals = [calls_to(problem, THRESHOLDS, BUDGET, **told(problem)) for problem in problems]

    def ratios(run: Callable[[Problem], Calls]) -> Iterator[float]:
        for problem, rival in zip(problems, rivals, strict=True):
            calls = run(problem)
            for level in THRESHOLDS:
                if rival[level] is not None:
                    yield (calls[level] or MISSED * BUDGET) / rival[level]

    return column("exact", {name: ratios(run) for name, run in runs.items()})


def noisy_column(
    runs: Mapping[str, Callable[[Problem, int, int], float]],
    problems: list[Problem],
    batch: int,
    seeds: range,
) -> Column:
    """Return geometric mean and worst ratio of gaps to the best D of a grid, by name."""
    rivals = [best_tuned(problem, batch, EPOCHS, seeds).gap for problem in problems]

    def ratios(run: Callable[[Problem, int, int], float]) -> Iterator[float]:
        for problem, rival in zip(problems, rivals, strict=True):
            yield float(np.median([run(problem, batch, seed) for seed in seeds])) / rival

    return column(f"b={batch}", {name: ratios(run) for name, run in runs.items()})


def column(title: str, ratios: Mapping[str, Iterable[float]]) -> Column:
    found = {}
    for name, of_one in ratios.items():
        values = list(of_one)
        found[name] = geometric_mean(values), max(values)
        print(f"{title}: {name}: {found[name]}", file=sys.stderr, flush=True)
    return found


# -- sets ------------------------------------------------------------------------------------------

WAYS = {"projected at every step": False, "dual averaging": True}  # z, and the state's `noisy`


def set_rule(problem: Problem) -> ag.DistanceFreeAcceleGrad:
    """Return the rule for a problem with a set."""
    cap = problem.feasible_set.diameter_for(problem.x0.size)
    return ag.DistanceFreeAcceleGrad(
        probe=True,
        project=problem.feasible_set.project,
        largest_radius=cap if math.isfinite(cap) else None,
    )


def set_calls(averaging: bool, problem: Problem) -> Calls:
    """Return the calls to each threshold with full gradients."""
    rule = set_rule(problem)

    def run(recorder: Any) -> None:
        state, oracle = rule.prepared(rule.init(problem.x0), counted(recorder))
        state = state._replace(noisy=averaging)
        while True:
            state = rule.update(state, oracle(rule.query(state)).gradient)

    return first_call_below(problem, THRESHOLDS, run, max_calls=BUDGET)


def set_gap(averaging: bool, problem: Problem, batch: int, seed: int) -> float:
    """Return the relative gap of the output after 20 epochs."""
    model, sampler, rule = problem.model, sampler_of(problem, batch, seed), set_rule(problem)
    state, _ = rule.prepared(rule.init(problem.x0), MinibatchOracle(model, sampler))
    state = state._replace(noisy=averaging)
    for _ in range(EPOCHS * -(-model.n_samples // batch)):
        _, g = model.batch_value_and_gradient(rule.query(state), sampler.next_rows())
        state = rule.update(state, g)
    return problem.relative_gap(model.value(rule.output(state)))


def check_own(problem: Problem) -> None:
    """Make sure that the variant called our own is the package's rule."""
    result = ag.minimize(problem.evaluate, problem.x0, method="accelegrad", max_iter=50)
    oracle = counted(problem.evaluate)
    runner = started(OWN, problem, oracle)
    for _ in range(49):
        at = oracle(runner.x)
        runner.step(at.value, at.gradient)
    np.testing.assert_allclose(runner.y, result.x_last, rtol=1e-6, atol=1e-9)


def table(title: str, names: Iterable[str], columns: dict[str, Column]) -> str:
    """Return the Markdown."""
    rows = [[name, *(_cell(column.get(name)) for column in columns.values())] for name in names]
    return "\n".join(table_lines([title, *columns], rows))


def _cell(pair: tuple[float, float] | None) -> str:
    return "" if pair is None else f"{_short(pair[0], 2)} ({_short(pair[1], 1)})"


def _short(number: float, digits: int) -> str:
    return f"{number:.{digits}f}" if number < 1000 else f"{number:.0e}"


def main() -> None:
    """Run and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few problems, one seed")
    parser.add_argument("--seeds", type=int, default=3, help="noisy runs of a kind")
    parser.add_argument("--out", type=Path, help="a file for the table")
    given = parser.parse_args()
    problems = load(quick=given.quick)
    free = [p for p in problems if p.feasible_set is None]
    bound = [p for p in problems if p.feasible_set is not None]
    check_own(free[0])
    small = [
        p for p in free if p.model is not None and p.model.n_samples <= 1100 and not p.x0.any()
    ]
    seeds = range(given.seeds)
    if given.quick:
        free, small, bound, seeds = free[:6], small[:2], bound[:2], range(1)
    models = [problem for problem in bound if problem.model is not None]
    exact = {variant.name: partial(exact_calls, variant) for variant in VARIANTS}
    # Without values, nothing raises the radius of those that look at nothing else.
    blind = {variant.name for variant in VARIANTS if variant.downhill and variant.trust == 0}
    noisy = {v.name: partial(variant_gap, v) for v in VARIANTS if v.name not in blind}
    columns = {"exact gradients: calls": exact_column(exact, free)}
    with_set = {way: partial(set_calls, averaging) for way, averaging in WAYS.items()}
    set_columns = {"exact gradients: calls": exact_column(with_set, bound)}
    noisy_set = {way: partial(set_gap, averaging) for way, averaging in WAYS.items()}
    for batch in (32, 1):
        columns[f"b = {batch}: gap"] = noisy_column(noisy, small, batch, seeds)
        set_columns[f"b = {batch}: gap"] = noisy_column(noisy_set, models, batch, seeds)
    text = (
        f"{datetime.now(UTC):%Y-%m-%d}, `python benchmarks/radius.py`; {len(free)} problems with "
        f"full gradients, {len(small)} with minibatches (the median of {len(seeds)}). Geometric "
        "mean (and worst) ratio to AcceleGrad that is told the exact D (calls to 1e-2, 1e-4, "
        f"1e-6; a miss counts as {MISSED:g} times the {BUDGET} calls allowed), or the best D of a "
        "grid in hindsight (gap of the averaged output after 20 epochs).\n\n"
        + table("what raises the radius", [variant.name for variant in VARIANTS], columns)
        + f"\n\nThe same for the ways to move z with a set, on the {len(bound)} problems that have "
        "one (those of them that are linear models for minibatches):\n\n"
        + table("z with a set", WAYS, set_columns)
        + "\n"
    )
    print(text)
    if given.out:
        put(given.out, text)


if __name__ == "__main__":
    main()
