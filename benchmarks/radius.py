"""Why the automatic diameter is what it is: variants of what feeds the radius.

`python benchmarks/radius.py [--quick] [--out docs/tables/radius.md]` compares variants of
`DistanceFreeAcceleGrad` on the suite's problems, with exact and with noisy gradients. It is an
experiment about the rule, so the variants stand here and not in the package; the last one is the
package's own, which is checked against the package at the start.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import accelegrad as ag
from accelegrad.problems.sampling import BatchSampler
from accelegrad.rules.base import KnownEvaluation
from accelegrad.rules.distance import SAMPLE_SHARE, Probe, smallest_radius
from accelegrad.rules.schedules import importance_weight
from accelegrad.solve.oracle import MinibatchOracle
from suite import Problem, load

THRESHOLDS = (1e-2, 1e-4, 1e-6)
BUDGET = 4000
MISSED = 10.0  # how many budgets a run that misses a threshold is counted as


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


class Counter:
    """Counts the calls until each threshold is met."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.calls = problem, 0
        self.first: dict[float, int] = {}

    def __call__(self, x: Any) -> KnownEvaluation:
        self.calls += 1
        value, gradient = self.problem.evaluate(x)
        gap = self.problem.relative_gap(value)
        for threshold in THRESHOLDS:
            if gap <= threshold:
                self.first.setdefault(threshold, self.calls)
        return KnownEvaluation(x, value, gradient)

    @property
    def done(self) -> bool:
        """Whether there is nothing left to count."""
        return len(self.first) == len(THRESHOLDS) or self.calls >= BUDGET


def first_radius(variant: Variant, start: Any, oracle: Any, direction: Any = None) -> float:
    """Return r_0 by the variant's probe."""
    smallest = float(smallest_radius(start.point))
    if variant.probe == "none":
        return smallest
    if direction is None:
        direction = start.gradient / math.sqrt(start.squared_norm)

    def path(reach: float) -> Any:
        return start.point - reach * direction

    if variant.probe == "parabola":
        return Probe(start, direction, oracle, path).radius(smallest)
    radius, least = smallest, start.value
    for power in range(40):
        value = oracle(path(smallest * 10.0**power)).value
        if not value < least:
            break
        radius, least = smallest * 10.0**power, value
    return radius


def exact_calls(variant: Variant, problem: Problem) -> dict[float, int]:
    """Return the calls to each threshold with full gradients."""
    oracle = Counter(problem)
    start = oracle(problem.x0)
    runner = Runner(variant, problem.x0, first_radius(variant, start, oracle), start.value)
    runner.step(start.value, start.gradient)
    while not oracle.done:
        at = oracle(runner.x)
        runner.step(at.value, at.gradient)
    return oracle.first


def told_calls(problem: Problem) -> dict[float, int]:
    """Return the same of AcceleGrad that is told D = 2 ||x0 - x*||."""
    oracle, rule = Counter(problem), ag.AcceleGrad(2 * problem.distance)
    ball = ag.Ball(problem.x0, problem.distance)
    rule = ag.AcceleGrad(2 * problem.distance, project=ball.project)
    state = rule.init(problem.x0)
    while not oracle.done:
        state = rule.step(state, oracle).state
    return oracle.first


def noisy_radius(variant: Variant, model: Any, sampler: BatchSampler) -> float:
    """Return r_0 from two samples of the rows, as the package does it."""
    x0 = np.zeros(model.n_parameters)
    guide, judge = MinibatchOracle(model, sampler).frozen()
    gradient = guide(x0).gradient
    found = first_radius(variant, judge(x0), judge, gradient / np.linalg.norm(gradient))
    return max(float(smallest_radius(x0)), SAMPLE_SHARE * found)


def noisy_gap(variant: Variant | float, model: Any, minimum: float, batch: int, seed: int) -> float:
    """Return the relative gap of the output after 20 epochs; a number is a D that is told."""
    n, x = model.n_samples, np.zeros(model.n_parameters)
    start = model.value(x)
    sampler = BatchSampler(n, batch, np.random.default_rng(seed))
    steps = 20 * -(-n // batch)
    if isinstance(variant, float):
        rule = ag.AcceleGrad(variant, project=ag.Ball(x, variant / 2).project)
        state = rule.init(x)
        for _ in range(steps):
            _, g = model.batch_value_and_gradient(rule.query(state), sampler.next_rows())
            state = rule.update(state, g)
        output = rule.output(state)
    else:
        runner = Runner(variant, x, noisy_radius(variant, model, sampler), -math.inf)
        with np.errstate(all="ignore"):
            for _ in range(steps):
                _, g = model.batch_value_and_gradient(runner.x, sampler.next_rows())
                if not np.isfinite(g).all():
                    return math.inf
                runner.step(math.inf if variant.downhill else -math.inf, g)
        output = runner.total / runner.weight
    return float((model.value(output) - minimum) / (start - minimum))


def geometric_mean(ratios: list[float]) -> float:
    """Return the geometric mean."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def exact_rows(problems: list[Problem]) -> dict[str, tuple[float, float]]:
    """Return geometric mean and worst ratio of calls to those of the exact D, by variant."""
    told = [told_calls(problem) for problem in problems]
    rows = {}
    for variant in VARIANTS:
        ratios = []
        for problem, base in zip(problems, told, strict=True):
            calls = exact_calls(variant, problem)
            ratios += [
                calls.get(level, MISSED * BUDGET) / base[level]
                for level in THRESHOLDS
                if level in base
            ]
        rows[variant.name] = geometric_mean(ratios), max(ratios)
        print(f"exact: {variant.name}: {rows[variant.name]}", file=sys.stderr, flush=True)
    return rows


def noisy_rows(problems: list[Problem], batch: int, seeds: int) -> dict[str, tuple[float, float]]:
    """Return geometric mean and worst ratio of gaps to AcceleGrad with the best D of a grid."""
    best = []
    models = [(p.model, p.minimum, 2 * p.distance) for p in problems]
    for model, minimum, exact in models:
        grid = [exact * 10.0 ** (k / 2) for k in range(-4, 5)]
        best.append(
            min(
                float(np.median([noisy_gap(D, model, minimum, batch, s) for s in range(seeds)]))
                for D in grid
            )
        )
    rows = {}
    for variant in VARIANTS:
        if variant.downhill and variant.trust == 0:
            continue  # nothing raises the radius without values
        ratios = []
        for (model, minimum, _), rival in zip(models, best, strict=True):
            gaps = [noisy_gap(variant, model, minimum, batch, s) for s in range(seeds)]
            ratios.append(min(float(np.median(gaps)), 1e30) / rival)
        rows[variant.name] = geometric_mean(ratios), max(ratios)
        print(f"b={batch}: {variant.name}: {rows[variant.name]}", file=sys.stderr, flush=True)
    return rows


def check_own(problem: Problem) -> None:
    """Make sure that the variant called our own is the package's rule."""
    result = ag.minimize(problem.evaluate, problem.x0, max_iter=50)
    oracle = Counter(problem)
    start = oracle(problem.x0)
    runner = Runner(OWN, problem.x0, first_radius(OWN, start, oracle), start.value)
    runner.step(start.value, start.gradient)
    for _ in range(49):
        at = oracle(runner.x)
        runner.step(at.value, at.gradient)
    np.testing.assert_allclose(runner.y, result.x_last, rtol=1e-6, atol=1e-9)


def table(columns: dict[str, dict[str, tuple[float, float]]]) -> str:
    """Return the Markdown."""
    head = "| what raises the radius | " + " | ".join(columns) + " |"
    lines = [head, "|---" * (len(columns) + 1) + "|"]
    for variant in VARIANTS:
        cells = []
        for column in columns.values():
            pair = column.get(variant.name)
            cells.append("" if pair is None else f"{pair[0]:.2f} ({_short(pair[1])})")
        lines.append(f"| {variant.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _short(number: float) -> str:
    return f"{number:.1f}" if number < 1000 else f"{number:.0e}"


def main() -> None:
    """Run and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few problems and seeds")
    parser.add_argument("--out", type=Path, help="a file for the table")
    given = parser.parse_args()
    free = [p for p in load(quick=given.quick) if p.feasible_set is None]
    check_own(free[0])
    small = [
        p for p in free if p.model is not None and p.model.n_samples <= 1100 and not p.x0.any()
    ]
    if given.quick:
        free, small = free[:6], small[:2]
    columns = {
        "exact gradients: calls": exact_rows(free),
        "b = 1: gap": noisy_rows(small, 1, 1 if given.quick else 3),
        "b = 32: gap": noisy_rows(small, 32, 1 if given.quick else 3),
    }
    text = (
        f"<!-- made by `python benchmarks/radius.py` on {datetime.now(UTC):%Y-%m-%d} -->\n\n"
        f"{datetime.now(UTC):%Y-%m-%d}; {len(free)} problems with full gradients, {len(small)} "
        "with minibatches. Geometric mean (and worst) ratio to AcceleGrad that is told the exact D "
        "(calls to 1e-2, 1e-4, 1e-6), or the best D of a grid in hindsight (gap of the averaged "
        "output after 20 epochs).\n\n"
        f"{table(columns)}\n"
    )
    print(text)
    if given.out:
        given.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
