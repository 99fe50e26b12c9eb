"""Nothing has to be tuned: `diameter="auto"` against AcceleGrad and AdaGrad that were told D.

Four parts, each a table or more:

- exact: full gradients; calls to a relative accuracy against AcceleGrad told D = 2 ||x0 - x*||.
- guess: what guessing D costs instead, up to four decades too small or too large.
- noise: minibatches of linear models; against the best D of a grid in hindsight, and whether any
  run diverges, whatever the scale of the data and the start. By default `minimize` also scales the
  columns of a linear model, which those that are told D do not get, and which undoes a factor of
  X. So the rule is judged without that (scale=None); the default is shown beside it.
- constrained: minimisers on the boundary of a set; fitted rates, and calls to an accuracy.

Run: python benchmarks/no_tuning.py [--quick] [--out docs/tables/no-tuning.md]
[--parts exact,guess,noise,constrained] [--seeds 20] [--problems cpusmall,w8a]. The tables go to
--out, or else to the standard output; with --problems they have only the suite's problems with one
of these texts in their names. Noisy runs without a set are compiled.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import accelegrad as ag
import suite
from accelegrad import kernels
from accelegrad_lab.engine.experiment import slope
from accelegrad_lab.engine.minimum import find_minimum
from accelegrad_lab.engine.peers import loss_options
from accelegrad_lab.report.tables import number_table, put
from suite import THRESHOLDS, Problem, first_call_below

Vector = npt.NDArray[np.float64]
Calls = dict[float, float | None]

MEAN_TARGET, WORST_TARGET = 1.15, 3.0
SLOPE_TARGET = -1.9
NOISY_LIMIT = 2.0
STILL = 0.9  # a relative gap above this: the run has hardly left its start
# The automatic runs under noise: the rule in the coordinates that the others have, and the default.
RULE: dict[str, Any] = {"scale": None}
DEFAULT: dict[str, Any] = {}
GUESSED = THRESHOLDS[:2]
FACTORS = tuple(float(f"1e{power}") for power in range(-4, 5))
GRID = tuple(10 ** (half / 2) for half in range(-6, 5))
# A relative gap below this is rounding, and tells nothing about a rate.
RATE_FLOOR = 1e-11
# Where slopes are fitted: from the first calls on, and over this last share of them (two decades).
FIRST_CALLS, LATE_SHARE = 10, 0.01


class Sizes(NamedTuple):
    """How much is run."""

    budget: int = 5000  # calls
    rows: int = 500  # of a noisy problem, at most
    epochs: int = 20
    safety_epochs: int = 4
    seeds: int = 20
    tuned_seeds: int = 5
    batches: tuple[int, ...] = (1, 32)
    dimension: int = 300  # of the problems made here, on the boundary of a set
    instances: int = 3
    horizon: int = 20_000  # calls


QUICK = Sizes(500, 40, 3, 1, 2, 1, (1, 8), 40, 1, 1000)


def each(function: Callable[..., Any], problems: Sequence[Problem], *more: Any) -> list[Any]:
    """Return what a function finds on every problem, and say on the way how far that is."""
    found: list[Any] = []
    begun = time.perf_counter()
    for problem in problems:
        found.append(function(problem, *more))
        words = f"{function.__name__}: {len(found)} of {len(problems)}"
        print(f"{words}, {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
    return found


# -- exact gradients -------------------------------------------------------------------------------


class Pair(NamedTuple):
    """A problem and an accuracy: the calls with the exact D and with none; None: not reached."""

    name: str
    kind: str
    threshold: float
    exact: float | None
    auto: float | None
    budget: int  # of the automatic run

    @property
    def ratio(self) -> float | None:
        """How many times as many calls: a lower bound where only the exact D got there."""
        return None if self.exact is None else (self.auto or self.budget) / self.exact


def of_accelegrad(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options that ask for AcceleGrad where nothing else is said: it is what is studied."""
    said = "method" in options or "diameter" in options
    return dict(options) if said else {"method": "accelegrad", **options}


def calls_to(problem: Problem, thresholds: Iterable[float], budget: int, **options: Any) -> Calls:
    """Return for each accuracy the call of `minimize` that reached it, the probe's included."""

    def run(recorder: Any) -> None:
        ag.minimize(
            recorder,
            problem.x0,
            feasible_set=problem.feasible_set,
            max_iter=budget,
            **of_accelegrad(options),
        )

    return first_call_below(problem, thresholds, run, max_calls=budget)


def told(problem: Problem, factor: float = 1.0) -> dict[str, Any]:
    """Return the options of AcceleGrad with the exact D, or that times a factor."""
    return {"method": "accelegrad", "diameter": factor * 2 * problem.distance}


def exact_pairs(problem: Problem, sizes: Sizes) -> list[Pair]:
    """Compare the automatic run with the one that is told the exact D.

    Where it needs more calls than the budget it gets up to three times those of the exact D, so
    that a miss proves a ratio beyond the target.
    """
    exact = calls_to(problem, THRESHOLDS, sizes.budget, **told(problem))
    most = max((calls for calls in exact.values() if calls is not None), default=0)
    budget = max(sizes.budget, math.ceil(WORST_TARGET * most))
    auto = calls_to(problem, THRESHOLDS, budget)
    for threshold, calls in auto.items():
        if exact[threshold] is None and calls is not None and calls > sizes.budget:
            auto[threshold] = None  # the exact D had no more than the budget either
    return [
        Pair(problem.name, problem.kind, threshold, exact[threshold], auto[threshold], budget)
        for threshold in THRESHOLDS
    ]


def exact_part(problems: list[Problem], sizes: Sizes) -> Iterator[str]:
    pairs = each(exact_pairs, problems, sizes)
    rows = [
        [found[0].name, *(cell for pair in found for cell in pair_cells(pair))] for found in pairs
    ]
    yield "## Exact gradients: calls to a relative accuracy"
    yield ""
    yield (
        'Calls of the function, the probe included: "D" is AcceleGrad told D = 2 ||x0 - x*||, '
        '"auto" `minimize(fun, x0)`, both in the coordinates as given. The accuracy is (f - f*) / '
        f'(f(x0) - f*). "-": not within {sizes.budget} calls; auto gets three times the calls of D '
        'where that is more, and a miss counts with all of these (">").'
    )
    yield ""
    columns = [f"{name} {_power(t)}" for t in THRESHOLDS for name in ("D", "auto", "ratio")]
    yield from number_table(["problem", *columns], rows)
    yield ""
    yield from exact_summary([pair for found in pairs for pair in found])


def pair_cells(pair: Pair) -> list[str]:
    missed = "-" if pair.exact is None else f">{pair.budget}"
    auto = missed if pair.auto is None else f"{pair.auto:g}"
    if pair.ratio is None:
        return ["-", auto, ""]
    return [f"{pair.exact:g}", auto, f"{'' if pair.auto else '>'}{pair.ratio:.2f}"]


def exact_summary(pairs: list[Pair]) -> Iterator[str]:
    """Say what the ratios amount to, by kind and in all, and which break the targets."""
    counted = [pair for pair in pairs if pair.ratio is not None]
    kinds = dict.fromkeys(pair.kind for pair in counted)
    groups = [(kind, [pair for pair in counted if pair.kind == kind]) for kind in kinds]
    rows = []
    for name, group in [*groups, ("all", counted)]:
        worst = max(group, key=lambda pair: pair.ratio)
        mean = geometric_mean([pair.ratio for pair in group])
        where = f"{worst.name} at {_power(worst.threshold)}"
        rows.append([name, str(len(group)), f"{mean:.2f}", f"{worst.ratio:.2f}", where])
    yield from number_table(["kind", "pairs", "geometric mean", "worst", "where"], rows)
    yield ""
    mean = geometric_mean([pair.ratio for pair in counted])
    yield f"- Geometric mean {mean:.3f}; the target is {MEAN_TARGET}: {_verdict(mean, MEAN_TARGET)}"
    worst_ratio = max(pair.ratio for pair in counted)
    yield (
        f"- Worst ratio {worst_ratio:.2f}; the target is {WORST_TARGET:g}: "
        f"{_verdict(worst_ratio, WORST_TARGET)}"
    )
    breaking = [pair for pair in counted if pair.ratio > WORST_TARGET]
    for pair in sorted(breaking, key=lambda pair: -pair.ratio):
        yield f"  - {pair.name} at {_power(pair.threshold)}: {pair.ratio:.2f}"
    alone = [p for p in pairs if p.exact is None and p.auto is not None]
    names = ", ".join(f"{pair.name} at {_power(pair.threshold)}" for pair in alone)
    listed = f" ({names})" if alone else ""
    yield f"- Reached by auto and not with the exact D: {len(alone)}{listed}"


def geometric_mean(values: Iterable[float]) -> float:
    return float(np.exp(np.mean(np.log(np.fromiter(values, dtype=np.float64)))))


# -- guessed diameters -----------------------------------------------------------------------------


def guess_calls(problem: Problem, sizes: Sizes) -> dict[str, Calls]:
    """Return the calls with each guess of D, and with none."""
    found = {
        _factor(factor): calls_to(problem, GUESSED, sizes.budget, **told(problem, factor))
        for factor in FACTORS
    }
    return {**found, "auto": calls_to(problem, GUESSED, sizes.budget)}


class Cost(NamedTuple):
    """What a guess costs over problems: the mean ratio, a lower bound if some are not solved."""

    mean: float
    worst: float
    unsolved: float  # share


def guess_cost(runs: list[dict[str, Calls]], guess: str, threshold: float, budget: int) -> Cost:
    """Return the cost of a guess over the problems that the exact D solves."""
    solved = [run for run in runs if run[_factor(1.0)][threshold] is not None]
    ratios = [(run[guess][threshold] or budget) / run[_factor(1.0)][threshold] for run in solved]
    unsolved = sum(run[guess][threshold] is None for run in solved)
    return Cost(geometric_mean(ratios), max(ratios), unsolved / len(solved))


def guess_part(problems: list[Problem], sizes: Sizes) -> Iterator[str]:
    runs = each(guess_calls, problems, sizes)
    guesses = list(runs[0])
    rows = []
    for threshold in GUESSED:
        costs = [guess_cost(runs, guess, threshold, sizes.budget) for guess in guesses]
        bounds = [">" if cost.unsolved else "" for cost in costs]
        at = _power(threshold)
        means = [f"{b}{cost.mean:.2f}" for b, cost in zip(bounds, costs, strict=True)]
        worst = [f"{b}{cost.worst:.3g}" for b, cost in zip(bounds, costs, strict=True)]
        rows.append([f"{at}: calls, geometric mean", *means])
        rows.append([f"{at}: calls, worst", *worst])
        rows.append([f"{at}: not solved", *(f"{cost.unsolved:.0%}" for cost in costs)])
    yield "## What a wrong D costs"
    yield ""
    yield (
        "AcceleGrad told 2 ||x0 - x*|| times a factor: the calls relative to those with the exact "
        f"D, over the problems that this one solves within {sizes.budget} calls (their number at "
        + ", ".join(f"{_power(t)}: {_solved_count(runs, t)}" for t in GUESSED)
        + '). Runs that do not get there count with the whole budget, so ">" is a lower bound.'
    )
    yield ""
    yield from number_table(["D times", *guesses], rows)


def _solved_count(runs: list[dict[str, Calls]], threshold: float) -> int:
    return sum(run[_factor(1.0)][threshold] is not None for run in runs)


# -- noise -----------------------------------------------------------------------------------------


def sampled(problem: Problem, most: int) -> Problem:
    """Return a linear model's problem on at most so many of its rows, with its minimum.

    Where there are more columns than rows the coordinates are changed to an orthogonal basis of the
    rows' span: no method that adds up gradients from 0 sees a difference, but it is faster.
    A constrained problem stays as it is; those of the suite are small.
    """
    if problem.feasible_set is not None:
        return problem
    model = problem.model
    assert model is not None
    n = model.n_samples
    kept = np.sort(np.random.default_rng(0).choice(n, min(n, most), replace=False))
    X = model.X[kept]
    X = X.toarray() if not isinstance(X, np.ndarray) else X
    if not problem.x0.any():
        X = X[:, X.any(axis=0)]
        if X.shape[1] > X.shape[0]:
            X = np.linalg.qr(X.T, mode="r").T
    X = np.ascontiguousarray(X)  # what compiled epochs can read
    small = ag.LinearModel(X, model.y[kept], l2=model.l2, **_loss_and_intercept(model))
    x0 = problem.x0 if problem.x0.any() else np.zeros(small.n_parameters)
    return certified(_with_model(problem, small, x0, find_minimum(small, exact=True).x))


def _loss_and_intercept(model: ag.LinearModel) -> dict[str, Any]:
    kept = {"loss": model.loss.name, "fit_intercept": model.fit_intercept}
    return kept | loss_options(model)


def _with_model(problem: Problem, model: ag.LinearModel, x0: Vector, minimiser: Vector) -> Problem:
    minimum = model.value(minimiser)
    return dataclasses.replace(problem, fun=model, x0=x0, minimiser=minimiser, minimum=minimum)


def certified(problem: Problem) -> Problem:
    """Refuse a minimum that the model's dual does not confirm.

    The dual point that a model finds for the hinge with an l2 term is not the best one: there the
    interior-point method has to be believed, which fails aloud. A minimum of 0 needs no proof.
    """
    model, smallest = problem.model, 1e-9 * (problem.start_value - problem.minimum)
    trusted = model.loss.name == "hinge" or problem.minimum < smallest
    if not trusted and not model.dual_gap(problem.minimiser) <= smallest:
        raise RuntimeError(f"{problem!r}: the minimum on the sampled rows is not confirmed.")
    return problem


def noisy_gap(problem: Problem, batch: int, epochs: int, seed: int, **options: Any) -> float:
    """Return the relative gap of the averaged output of a run; infinite if it broke down."""
    with kernels.use("always"):
        result = ag.minimize(
            problem.model,
            problem.x0,
            feasible_set=problem.feasible_set,
            batch_size=batch,
            rng=seed,
            max_iter=epochs * -(-problem.model.n_samples // batch),
            **options,
        )
    gap = problem.relative_gap(result.fun)
    return gap if result.status == ag.Status.MAX_ITER and math.isfinite(gap) else math.inf


class Tuned(NamedTuple):
    """The best in hindsight: method, factor of the exact D, median relative gap."""

    method: str
    factor: float
    gap: float


def best_tuned(problem: Problem, batch: int, epochs: int, seeds: range) -> Tuned:
    """Return the best of AcceleGrad and AdaGrad over the grid of diameters."""
    found = []
    for method in ("accelegrad", "adagrad"):
        for factor in GRID:
            told = {"method": method, "diameter": factor * 2 * problem.distance}
            gap = median_gap(problem, batch, epochs, seeds, **told)
            found.append(Tuned(method, factor, gap))
    return min(found, key=lambda tuned: tuned.gap)


def median_gap(
    problem: Problem, batch: int, epochs: int, seeds: Iterable[int], **options: Any
) -> float:
    """Return the median over seeds of what `noisy_gap` returns."""
    gaps = [noisy_gap(problem, batch, epochs, seed, **options) for seed in seeds]
    return float(np.median(gaps))


class NoisyRow(NamedTuple):
    """A problem with a batch size: median gaps, of the best in hindsight too."""

    name: str
    batch: int
    auto: float  # the rule, in the coordinates of the tuned runs
    default: float  # with scaled columns
    best: Tuned

    @property
    def ratio(self) -> float:
        return self.auto / self.best.gap

    @property
    def default_ratio(self) -> float:
        return self.default / self.best.gap


def noisy_rows(problem: Problem, sizes: Sizes) -> list[NoisyRow]:
    """Compare on one problem, for each batch size."""
    small, found = sampled(problem, sizes.rows), []
    for batch in sizes.batches:
        auto, default = (
            median_gap(small, batch, sizes.epochs, range(sizes.seeds), **options)
            for options in (RULE, DEFAULT)
        )
        # Seeds of its own, so that no luck is shared.
        seeds = range(1000, 1000 + sizes.tuned_seeds)
        best = best_tuned(small, batch, sizes.epochs, seeds)
        found.append(NoisyRow(problem.name, batch, auto, default, best))
    return found


# The variants of a problem in which no run may diverge.
_SCALES = {"X times 1e-6": 1e-6, "X": 1.0, "X times 1e6": 1e6}
_FAR = "far start"
VARIANTS = (*_SCALES, _FAR)


def variant(problem: Problem, name: str) -> Problem:
    """Return a problem in other units, or started at 1e3 (1 + ||x*||) from the minimiser."""
    return far(problem) if name == _FAR else scaled(problem, _SCALES[name])


def scaled(problem: Problem, factor: float) -> Problem:
    """Return the problem with X times a factor, the start as it is.

    The l2 term is scaled along with it, so that the minimiser is known: it has shrunk by the
    factor. In a constrained least-squares problem y is scaled with X, and the minimiser stays.
    """
    model = problem.model
    X = model.X * factor
    if problem.feasible_set is not None:
        assert model.loss.name == "squared"
        other = ag.LinearModel(X, model.y * factor, "squared")
        return _with_model(problem, other, problem.x0, problem.minimiser)
    l2 = model.l2 * factor**2
    other = ag.LinearModel(X, model.y, l2=l2, **_loss_and_intercept(model))
    minimiser = problem.minimiser.copy()
    minimiser[: model.n_features] /= factor
    return _with_model(problem, other, problem.x0, minimiser)


def far(problem: Problem) -> Problem:
    """Return the problem started far off, or as far as the feasible set allows."""
    x = problem.minimiser
    direction = suite.unit(x.size, np.random.default_rng(1))
    x0 = x + 1e3 * (1 + float(np.linalg.norm(x))) * direction
    if problem.feasible_set is not None:
        x0 = problem.feasible_set.project(x0)
    return _with_model(problem, problem.model, x0, x)


class Danger(NamedTuple):
    """A group of runs that differ in their seeds, and the largest relative gap among them."""

    name: str
    variant: str
    batch: int
    gap: float


def safety(problem: Problem, options: dict[str, Any], sizes: Sizes) -> list[Danger]:
    """Return the largest relative gap over seeds, for each variant and batch size."""
    small, found = sampled(problem, sizes.rows), []
    for name in VARIANTS:
        moved = variant(small, name)
        for batch in sizes.batches:
            gaps = [
                noisy_gap(moved, batch, sizes.safety_epochs, seed, **options)
                for seed in range(sizes.seeds)
            ]
            found.append(Danger(problem.name, name, batch, max(gaps)))
    return found


def noise_part(problems: list[Problem], sizes: Sizes) -> Iterator[str]:
    models = [problem for problem in problems if problem.model is not None]
    yield "## Noise: against the best D in hindsight"
    yield ""
    yield (
        f"The suite's {len(models)} linear models on at most {sizes.rows} of their rows (with more "
        "columns than rows: in an orthogonal basis of the rows' span), minibatches by permutation, "
        f"{sizes.epochs} epochs: the relative gap of the averaged output. auto is "
        f"`minimize(model, x0, batch_size=b, scale=None)`, the median over {sizes.seeds} seeds "
        "(its probe looks at more rows, as a rule less than an epoch's). best is "
        f"the lowest of the medians over {sizes.tuned_seeds} seeds of AcceleGrad and AdaGrad with "
        f"D = 2 ||x0 - x*|| times {GRID[0]:g} to {GRID[-1]:g} in half decades. All of these run in "
        "the same coordinates, and the ratio is auto / best. default is without scale=None: it "
        "scales the columns of unconstrained models too, which best does not, so that its "
        "advantage or disadvantage is not the rule's alone."
    )
    yield ""
    yield from noisy_tables(each(noisy_rows, models, sizes))
    yield ""
    yield "## Noise: does a run diverge?"
    yield ""
    yield (
        f"The largest relative gap of the averaged output over {sizes.seeds} seeds after "
        f"{sizes.safety_epochs} epochs, with the data in other units (X times a factor, l2 times "
        "its square; in constrained problems y too), and from a start at a distance of "
        "1e3 (1 + ||x*||) (its projection, where there is a set). A run that ends with an error "
        "status counts as infinite. Below 1 the output is better than the start."
    )
    titles = {
        "The rule (scale=None)": RULE,
        "The default, whose scaled columns undo a factor of X": DEFAULT,
    }
    for title, options in titles.items():
        found = each(safety, models, options, sizes)
        yield ""
        yield f"{title}:"
        yield ""
        yield from safety_tables(found, sizes.seeds)


def noisy_tables(found: list[list[NoisyRow]]) -> Iterator[str]:
    batches = [row.batch for row in found[0]]
    names = ("auto", "default", "best", "with", "ratio")
    yield from number_table(
        ["problem", *(f"{name} b={batch}" for batch in batches for name in names)],
        [
            [group[0].name, *(cell for row in group for cell in _noisy_cells(row))]
            for group in found
        ],
    )
    yield ""
    for column in zip(*found, strict=True):
        yield from noisy_summary(column)


def _noisy_cells(row: NoisyRow) -> list[str]:
    how = f"{row.best.method}, {row.best.factor:.2g} D"
    gaps = (row.auto, row.default, row.best.gap)
    return [*(f"{gap:.1e}" for gap in gaps), how, f"{row.ratio:.2f}"]


def noisy_summary(rows: Sequence[NoisyRow]) -> Iterator[str]:
    """Say how far the rule is from the best in hindsight for a batch size, and the default."""
    worst = max(rows, key=lambda row: row.ratio)
    above = [row for row in rows if not row.ratio <= NOISY_LIMIT]
    yield (
        f"- b = {rows[0].batch}, auto / best: geometric mean "
        f"{geometric_mean(row.ratio for row in rows):.2f}, worst {worst.ratio:.2f} ({worst.name}), "
        f"above {NOISY_LIMIT:g}: {len(above)} of {len(rows)}"
    )
    for row in sorted(above, key=lambda row: -row.ratio):
        yield f"  - {row.name}: {row.ratio:.2f} (default {row.default_ratio:.2f})"
    worst = max(rows, key=lambda row: row.default_ratio)
    over = sum(not row.default_ratio <= NOISY_LIMIT for row in rows)
    yield (
        f"- b = {rows[0].batch}, default / best, in other coordinates: geometric mean "
        f"{geometric_mean(row.default_ratio for row in rows):.2f}, worst "
        f"{worst.default_ratio:.2f} ({worst.name}), above {NOISY_LIMIT:g}: {over} of {len(rows)}"
    )


def safety_tables(found: list[list[Danger]], seeds: int) -> Iterator[str]:
    rows = [[group[0].name, *(f"{one.gap:.2g}" for one in group)] for group in found]
    columns = list(zip(*found, strict=True))
    rows.append(["largest", *(f"{max(one.gap for one in column):.3g}" for column in columns)])
    yield from number_table(
        ["problem", *(f"{one.variant}, b={one.batch}" for one in found[0])], rows
    )
    yield ""
    groups = [one for group in found for one in group]
    worst = max(groups, key=lambda one: one.gap)
    broken = sum(math.isinf(one.gap) for one in groups)
    risen = [one for one in groups if not one.gap < 1]
    still = sum(STILL < one.gap < 1 for one in groups)
    yield (
        f"- {len(groups) * seeds} runs in {len(groups)} groups; groups with a run that broke down: "
        f"{broken}; groups with a gap of 1 or more: {len(risen)}; largest gap {worst.gap:.6g}"
    )
    yield f"- Groups with a run that hardly moved (a gap between {STILL:g} and 1): {still}"
    for one in sorted(risen, key=lambda one: -one.gap):
        yield f"  - {one.name}, {one.variant}, b = {one.batch}: {one.gap:.6g}"


# -- constraints -----------------------------------------------------------------------------------


SPECTRA = ("even", "power")


def boundary_problem(shape: str, spectrum: str, dimension: int, seed: int) -> Problem:
    """Return least squares over a set with the minimiser on its boundary, hard to resolve.

    The Hessian's eigenvectors are random. Its eigenvalues go evenly in the logarithm from 1 to 1e-9
    ("even"), so that there are directions not resolved yet at every scale, or are j^-2 ("power").
    The fitted slopes depend on that choice: both are shown.
    """
    rng = np.random.default_rng(seed)
    d = dimension
    left, right = (np.linalg.qr(rng.standard_normal((d, d)))[0] for _ in range(2))
    roots = np.logspace(0, -4.5, d) if spectrum == "even" else 1 / np.arange(1.0, d + 1)
    A = np.sqrt(d) * (left * roots) @ right.T
    vertex = np.eye(d)[0]
    if shape == "simplex":
        aim = rng.dirichlet(np.full(d, 0.05)) + 0.3 * rng.standard_normal(d) / np.sqrt(d)
        x, feasible, start = suite.simplex_least_squares(A, A @ aim, 1.0), ag.Simplex(), vertex
    elif shape == "box":
        aim, start = 2 * rng.standard_normal(d), np.zeros(d)
        x, feasible = suite.box_least_squares(A, A @ aim, -1.0, 1.0), ag.Box(-1.0, 1.0)
    else:
        aim = rng.standard_normal(d) * (rng.random(d) < 0.2)
        aim = 1.25 * aim / np.abs(aim).sum()
        x, feasible, start = suite.l1_least_squares(A, A @ aim, 1.0), ag.L1Ball(1.0), vertex
    model = ag.LinearModel(A, A @ aim, "squared")
    name = f"{shape}, {spectrum}, {seed}"
    problem = suite.problem_of(name, "constrained", model, start, x, feasible)
    return _certified_by_frank_wolfe(problem)


def _certified_by_frank_wolfe(problem: Problem) -> Problem:
    gradient = problem.evaluate(problem.minimiser)[1]
    gap = float(gradient @ problem.minimiser) - problem.feasible_set.linear_minimum(gradient)
    if not gap <= 1e-12 * (problem.start_value - problem.minimum):
        raise RuntimeError(f"{problem!r}: the minimum is only known to {gap:.1e}.")
    return problem


class Slopes(NamedTuple):
    """Of log gap over log calls: over all calls, and over the late ones, where a rate shows."""

    whole: float
    late: float  # nan where the late gaps are rounding alone


class Rate(NamedTuple):
    """What a method does on a constrained problem: fitted slopes and calls to accuracies."""

    average: Slopes
    best: Slopes
    calls: Calls


def rates(problem: Problem, sizes: Sizes) -> dict[str, Rate]:
    """Return the rates of UniXGrad and AcceleGrad told the set's diameter, and of the default."""
    diameter = problem.feasible_set.diameter_for(problem.x0.size)
    methods: dict[str, dict[str, Any]] = {
        "unixgrad": {"method": "unixgrad", "diameter": diameter},
        "auto": {},
        "accelegrad": {"method": "accelegrad", "diameter": diameter},
    }
    found = {}
    for name, options in methods.items():
        calls, *gaps = gap_curve(problem, sizes.horizon, **options).T
        average, best = (slopes(calls, one, LATE_SHARE * sizes.horizon) for one in gaps)
        reached = calls_to(problem, THRESHOLDS[1:], sizes.horizon, **options)
        found[name] = Rate(average, best, reached)
    return found


def gap_curve(problem: Problem, horizon: int, **options: Any) -> Vector:
    """Return rows of calls, relative gap of the average and of the best point, calls spread evenly.

    Even in the logarithm: a slope is then not decided by the last decade.
    """
    wanted = iter(np.geomspace(FIRST_CALLS, horizon, 60))
    aim, rows = next(wanted), []

    def callback(intermediate_result: Any) -> None:
        nonlocal aim
        calls = intermediate_result.nfev
        if calls >= aim:
            value = problem.evaluate(intermediate_result.x_average)[0]
            rows.append([calls, *map(problem.relative_gap, (value, intermediate_result.fun))])
            aim = next((one for one in wanted if one > calls), math.inf)
        if aim == math.inf:
            raise StopIteration

    ag.minimize(
        problem.evaluate,
        problem.x0,
        feasible_set=problem.feasible_set,
        max_iter=horizon,
        callback=callback,
        **of_accelegrad(options),
    )
    return np.array(rows)


def slopes(calls: Vector, gaps: Vector, late_from: float) -> Slopes:
    """Return the slopes of log gap over log calls, as far as the gaps are no rounding."""
    used = np.minimum.accumulate(gaps) > RATE_FLOOR
    x, y = calls[used], gaps[used]
    return Slopes(slope(x, y, start=0.0), slope(x, y, start=late_from))


def constrained_part(problems: list[Problem], sizes: Sizes) -> Iterator[str]:
    del problems  # this part makes its own
    made = [
        boundary_problem(shape, spectrum, sizes.dimension, seed)
        for spectrum in SPECTRA
        for shape in ("simplex", "box", "l1-ball")
        for seed in range(sizes.instances)
    ]
    found = each(rates, made, sizes)
    late = round(LATE_SHARE * sizes.horizon)
    yield "## Constraints: the rate with a minimiser on the boundary"
    yield ""
    yield (
        f"Least squares in {sizes.dimension} dimensions, the Hessian's eigenvalues evenly in the "
        'logarithm from 1 to 1e-9 ("even") or j^-2 ("power"). Each method has two slopes of log '
        f"gap over log calls: from {FIRST_CALLS} to {sizes.horizon} calls / from {late} to "
        f"{sizes.horizon}, both without gaps below {RATE_FLOOR:g}, which are rounding "
        f'("-": from {late} calls on all of them are). UniXGrad and AcceleGrad are told the set\'s '
        'diameter, auto nothing. "average" is the output that the theorems speak of, "best" the '
        "best point evaluated, which `minimize` returns. Calls to a relative accuracy within "
        f"{sizes.horizon}. The target is a slope of {SLOPE_TARGET} for the average of UniXGrad and "
        f"the point returned by auto. It is judged on the second slope alone: the first {late} "
        "calls tell how a method begins, not at what rate it goes on."
    )
    yield ""
    yield from rate_tables(made, found, sizes.horizon)


def rate_tables(
    problems: list[Problem], found: list[dict[str, Rate]], budget: int
) -> Iterator[str]:
    head = ["problem", "UniXGrad, average", "auto, average", "auto, best", "AcceleGrad, best"]
    head += [f"{name} {_power(t)}" for t in THRESHOLDS[1:] for name in ("UniXGrad", "auto", "D")]
    rows = []
    for problem, by_name in zip(problems, found, strict=True):
        unixgrad, auto, accelegrad = by_name["unixgrad"], by_name["auto"], by_name["accelegrad"]
        fitted = (unixgrad.average, auto.average, auto.best, accelegrad.best)
        calls = [
            f">{budget}" if one.calls[t] is None else f"{one.calls[t]:g}"
            for t in THRESHOLDS[1:]
            for one in (unixgrad, auto, accelegrad)
        ]
        rows.append([problem.name, *map(_slopes_cell, fitted), *calls])
    yield from number_table(head, rows)
    yield ""
    for spectrum in SPECTRA:
        chosen = [
            by_name
            for problem, by_name in zip(problems, found, strict=True)
            if f", {spectrum}, " in problem.name
        ]
        judged = {
            "UniXGrad, average": [by_name["unixgrad"].average for by_name in chosen],
            "auto, best": [by_name["auto"].best for by_name in chosen],
            "auto, average": [by_name["auto"].average for by_name in chosen],
        }
        for name, fitted in judged.items():
            yield f"- {spectrum}: {name}: {rate_summary(fitted)}"


def _slopes_cell(fitted: Slopes) -> str:
    return " / ".join("-" if math.isnan(one) else f"{one:.2f}" for one in fitted)


def rate_summary(fitted: Sequence[Slopes]) -> str:
    """Say how the slopes of some problems stand to the target, by the late ones."""
    late = [one.late for one in fitted if not math.isnan(one.late)]
    done = f", exact but for rounding by then: {len(fitted) - len(late)}"
    if not late:
        return f"no late slope{done}"
    missed = sum(one > SLOPE_TARGET for one in late)
    return (
        f"late slopes: flattest {max(late):.2f}, steepest {min(late):.2f}; flatter than "
        f"{SLOPE_TARGET}: {missed} of {len(fitted)}"
        + (done if len(late) < len(fitted) else "")
        + f" (over all calls: flattest {max(one.whole for one in fitted):.2f}, flatter: "
        f"{sum(one.whole > SLOPE_TARGET for one in fitted)})"
    )


# -- the page --------------------------------------------------------------------------------------


def _power(number: float) -> str:
    return f"1e{round(math.log10(number))}"


def _factor(number: float) -> str:
    return "1" if number == 1 else _power(number)


def _verdict(value: float, target: float) -> str:
    return "met." if value <= target else "missed."


PARTS: dict[str, Callable[[list[Problem], Sizes], Iterator[str]]] = {
    "exact": exact_part,
    "guess": guess_part,
    "noise": noise_part,
    "constrained": constrained_part,
}


def page(problems: list[Problem], parts: Sequence[str], sizes: Sizes) -> Iterator[str]:
    """Yield the lines of the page below its heading."""
    standing_in = sum("-like" in problem.name for problem in problems)
    data = "real data sets" if standing_in == 0 else f"generated data in {standing_in} of them"
    yield (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, numpy {np.__version__}, accelegrad "
        f"{ag.__version__}; {len(problems)} problems, {data}."
    )
    for part in parts:
        yield ""
        yield from PARTS[part](problems, sizes)


def _parts(text: str) -> list[str]:
    parts = text.split(",")
    if unknown := [part for part in parts if part not in PARTS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(PARTS)}")
    return parts


def chosen(problems: list[Problem], texts: Sequence[str] | None) -> list[Problem]:
    """Return the problems with one of the texts in their names; all without texts."""
    if texts is None:
        return problems
    for text in texts:
        if not any(text in problem.name for problem in problems):
            names = ", ".join(problem.name for problem in problems)
            raise SystemExit(f"--problems: {text!r} is in none of the names {names}.")
    return [problem for problem in problems if any(text in problem.name for text in texts)]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small problems, short runs")
    parser.add_argument("--out", type=Path, help="the file for the tables")
    parser.add_argument("--seeds", type=int, help="noisy runs of a kind")
    parser.add_argument(
        "--problems", type=lambda text: text.split(","), help="parts of their names, by commas"
    )
    parser.add_argument("--parts", type=_parts, default=list(PARTS), help="of " + ",".join(PARTS))
    given = parser.parse_args(arguments)
    begun = time.perf_counter()
    problems = chosen(suite.load(quick=given.quick), given.problems)
    sizes = QUICK if given.quick else Sizes()
    if given.seeds is not None:
        sizes = sizes._replace(seeds=given.seeds)
    lines = list(page(problems, given.parts, sizes))
    words = sys.argv[1:] if arguments is None else arguments
    head = ["# No tuning", "", f"`{' '.join(['python benchmarks/no_tuning.py', *words])}`"]
    foot = f"Measured in {(time.perf_counter() - begun) / 60:.1f} minutes."
    text = "\n".join([*head, "", *lines, "", foot, ""])
    if given.out is None:
        print(text)
        return
    put(given.out, text)


if __name__ == "__main__":
    main()
