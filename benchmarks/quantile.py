"""Quantile regression without an l2 term: `minimize(model)` with nothing told, against LP solvers.

Two times of ours, each of all there is to do, from the arrays to the result:

- to a relative gap of 1e-4: ``minimize(model, max_iter=N)`` with the N, found in a run before, at
  which the best value is first within 1e-4 of the minimum. Nothing is measured inside the clock.
- to a certified relative gap of 1e-3: ``minimize(model, rtol=1e-3)``, which knows nothing of the
  minimum. That is a proof; the true gap, smaller, is given beside it.

The others: scikit-learn's QuantileRegressor (HiGHS on the primal program), SciPy's HiGHS on the
dual program, which has a constraint a column instead of one a row, and statsmodels' QuantReg
(iterated least squares) where it is installed; these go on to (nearly) full accuracy. The minimum
is the dual program's, checked against a primal point. Everything runs on one thread, one run after
the other: medians of five for ours, one run for the others.

Run: python benchmarks/quantile.py [--quick] [--out docs/tables/quantile.md]. The data are looked
for in the folder that ACCELEGRAD_DATA names; heavy-tailed data of the same shape take the place of
those not found. Columns and targets are standardised.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import math
import os
import platform
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.optimize import OptimizeResult, linprog
from sklearn.linear_model import QuantileRegressor
from threadpoolctl import threadpool_limits

import accelegrad as ag
from accelegrad.data import datasets
from accelegrad.lab.engine.timing import timed
from accelegrad.lab.report.tables import number_table, put

try:
    from statsmodels.regression.quantile_regression import QuantReg
except ImportError:
    QuantReg = None

Vector = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.float64]

SHAPES = {
    "cpusmall": (8192, 12),
    "cadata": (20640, 8),
    "house_16H": (22784, 16),
    "casp": (45730, 9),
}
QUANTILES = (0.5, 0.9)
ACCURACY, PROOF = 1e-4, 1e-3
ACCURACY_TARGET, PROOF_TARGET = 100.0, 30.0  # times as fast as QuantileRegressor
MOST_ITERATIONS = 20_000
QUICK_ROWS = 1000
# How far the dual program's value and that of a primal point may be apart, relative to it.
_SOLVED = 1e-9


# -- problems --------------------------------------------------------------------------------------


class Problem(NamedTuple):
    """Standardised data and a quantile."""

    name: str
    X: Matrix
    y: Vector
    quantile: float

    def value(self, w: Vector) -> float:
        """Return the mean pinball loss, written out once more; the intercept comes last."""
        residual = self.y - self.X @ w[:-1] - w[-1]
        losses = np.where(residual > 0, self.quantile * residual, (self.quantile - 1.0) * residual)
        return float(losses.mean())

    def model(self) -> ag.LinearModel:
        return ag.LinearModel(
            self.X, self.y, "quantile", quantile=self.quantile, fit_intercept=True
        )


def standardised(array: Matrix) -> Matrix:
    """Return an array with columns of mean 0 and deviation 1; constant columns become 0."""
    centred = array - array.mean(axis=0)
    deviation = centred.std(axis=0)
    result: Matrix = centred / np.where(deviation > 0, deviation, 1.0)
    return result


def stand_in(rows: int, columns: int, seed: int = 0) -> tuple[Matrix, Vector]:
    """Return correlated columns with heavy tails, and targets with noise that grows with them."""
    rng = np.random.default_rng(seed)
    mixing = np.eye(columns) + rng.standard_normal((columns, columns)) / math.sqrt(columns)
    X = rng.standard_t(4, (rows, columns)) @ mixing
    noise = rng.standard_t(3, rows) * (0.5 + 0.2 * np.abs(X[:, 0]))
    return X, X @ rng.standard_normal(columns) / math.sqrt(columns) + noise


def data(name: str, most_rows: int | None = None) -> tuple[str, Matrix, Vector]:
    """Return a set's name (marked where it is a stand-in), X and y, standardised."""
    path = datasets.find(name)
    if path is None:
        X, y = stand_in(*SHAPES[name])
        name = f"{name} (generated)"
    else:
        read = datasets.read(path)
        X, y = read.X.toarray() if sp.issparse(read.X) else read.X, read.y
    if most_rows is not None and most_rows < len(y):
        chosen = np.sort(np.random.default_rng(0).permutation(len(y))[:most_rows])
        X, y = X[chosen], y[chosen]
    return name, standardised(X), standardised(y)


def problems(quick: bool) -> Iterator[Problem]:
    for name in SHAPES:
        shown, X, y = data(name, QUICK_ROWS if quick else None)
        for quantile in QUANTILES:
            yield Problem(shown, X, y, quantile)


# -- the others ------------------------------------------------------------------------------------


class Solved(NamedTuple):
    """Seconds, and the point found."""

    seconds: float
    w: Vector


def clocked(solve: Callable[[Problem], Vector], problem: Problem) -> Solved:
    w, seconds = timed(partial(solve, problem))
    return Solved(seconds, w)


def by_scikit_learn(problem: Problem) -> Vector:
    fitted = QuantileRegressor(
        quantile=problem.quantile, alpha=0, solver="highs", fit_intercept=True
    ).fit(problem.X, problem.y)
    return np.append(fitted.coef_, fitted.intercept_)


def by_dual_program(problem: Problem) -> Vector:
    """Solve max <y, s> over X's = 0, sum s = 0, q - 1 <= s <= q; its multipliers are w."""
    rows = np.column_stack([problem.X, np.ones(len(problem.y))]).T
    q = problem.quantile
    program = linprog(
        -problem.y, A_eq=rows, b_eq=np.zeros(len(rows)), bounds=(q - 1.0, q), method="highs"
    )
    if not program.success:
        raise RuntimeError(program.message)
    w: Vector = -program.eqlin.marginals
    bound = float(problem.y @ program.x) / len(problem.y)
    if not abs(problem.value(w) - bound) <= _SOLVED * bound:
        raise RuntimeError(f"the dual program's value {bound} is not that of its multipliers")
    return w


def by_statsmodels(problem: Problem) -> Vector:
    columns = np.column_stack([problem.X, np.ones(len(problem.y))])
    return np.asarray(QuantReg(problem.y, columns).fit(q=problem.quantile).params)


# -- ours ------------------------------------------------------------------------------------------


class Ours(NamedTuple):
    """The median time, the iterations, the relative gap to the minimum, and how far a proof holds.

    Seconds are infinite where the accuracy was not reached.
    """

    seconds: float
    iterations: int
    gap: float
    radius: float = math.nan


def iterations_to(problem: Problem, value: float) -> int | None:
    """Return how many iterations it takes to get that low, None if more than are allowed."""

    def stop(intermediate_result: OptimizeResult) -> None:
        if intermediate_result.fun <= value:
            raise StopIteration

    result = ag.minimize(problem.model(), max_iter=MOST_ITERATIONS, rng=0, callback=stop)
    return int(result.nit) if result.fun <= value else None


def repeated(
    problem: Problem, minimum: float, repeats: int, **options: Any
) -> tuple[Ours, OptimizeResult]:
    """Time runs that include building the model; return their median and the last result."""
    runs = [timed(lambda: ag.minimize(problem.model(), rng=0, **options)) for _ in range(repeats)]
    result = runs[-1][0]
    gap = problem.value(result.x) / minimum - 1.0
    radius = float(result.certified_radius)
    return Ours(
        statistics.median(seconds for _, seconds in runs), int(result.nit), gap, radius
    ), result


def to_accuracy(problem: Problem, minimum: float, repeats: int) -> Ours:
    iterations = iterations_to(problem, (1.0 + ACCURACY) * minimum)
    while iterations is not None and iterations <= MOST_ITERATIONS:
        ours, _ = repeated(problem, minimum, repeats, max_iter=iterations)
        if ours.gap <= ACCURACY:
            return ours
        # The search was watched by a callback, and so may have got there sooner.
        iterations += 1 + iterations // 20
    return Ours(math.inf, MOST_ITERATIONS, math.nan)


def to_proof(problem: Problem, minimum: float, repeats: int) -> Ours:
    options = {"max_iter": MOST_ITERATIONS, "rtol": PROOF}
    ours, result = repeated(problem, minimum, repeats, **options)
    if result.lower_bound > minimum * (1.0 + _SOLVED):
        raise RuntimeError(f"the lower bound {result.lower_bound} is above the minimum {minimum}")
    if result.gap > PROOF * result.fun:
        return ours._replace(seconds=math.inf)
    return ours


# -- the table -------------------------------------------------------------------------------------


class Row(NamedTuple):
    """All that was measured of a problem."""

    problem: Problem
    scikit_learn: Solved
    dual_program: Solved
    statsmodels: Solved | None
    minimum: float
    accurate: Ours
    proved: Ours

    def speedup(self, ours: Ours) -> float:
        return self.scikit_learn.seconds / ours.seconds

    def fastest_other(self) -> float:
        """Return the least time of the others."""
        others = (self.scikit_learn, self.dual_program, self.statsmodels)
        return min(other.seconds for other in others if other is not None)

    def gap(self, other: Solved) -> float:
        return max(self.problem.value(other.w) / self.minimum - 1.0, 0.0)


def measured(problem: Problem, repeats: int) -> Row:
    """Run everything on a problem."""
    dual_program = clocked(by_dual_program, problem)
    minimum = problem.value(dual_program.w)
    accurate = to_accuracy(problem, minimum, repeats)
    proved = to_proof(problem, minimum, repeats)
    statsmodels = None if QuantReg is None else clocked(by_statsmodels, problem)
    scikit_learn = clocked(by_scikit_learn, problem)
    if abs(problem.value(scikit_learn.w) - minimum) > _SOLVED * minimum:
        raise RuntimeError("QuantileRegressor and the dual program differ in the minimum")
    return Row(problem, scikit_learn, dual_program, statsmodels, minimum, accurate, proved)


def three_digits(number: float) -> str:
    if not math.isfinite(number):
        return "-"
    return f"{number:.{max(0, 2 - math.floor(math.log10(number)))}f}" if number > 0 else "0"


def label(row: Row) -> list[str]:
    n, d = row.problem.X.shape
    return [row.problem.name, str(n), str(d), str(row.problem.quantile)]


def speed_table(rows: Sequence[Row]) -> list[str]:
    head = ["data", "rows", "columns", "quantile", "QuantileRegressor, s"]
    head += ["to 1e-4, s", "iterations", "times as fast", "certified 1e-3, s", "iterations"]
    head += ["times as fast", "true gap then", "proof holds"]
    lines = []
    for row in rows:
        everywhere = row.proved.radius == math.inf
        holds = "everywhere" if everywhere else f"within {row.proved.radius:.3g} of 0"
        cells = [*label(row), three_digits(row.scikit_learn.seconds), *_ours(row, row.accurate)]
        cells += [*_ours(row, row.proved), f"{max(row.proved.gap, 0.0):.1e}", holds]
        lines.append(cells)
    return list(number_table(head, lines))


def _ours(row: Row, ours: Ours) -> list[str]:
    return [three_digits(ours.seconds), str(ours.iterations), f"{row.speedup(ours):.0f}"]


def peer_table(rows: Sequence[Row]) -> list[str]:
    head = ["data", "rows", "columns", "quantile", "dual program, s", "its gap"]
    head += ["statsmodels, s", "its gap", "ours to 1e-4, s", "certified 1e-3, s"]
    head += ["fastest other / ours to 1e-4"]
    lines = []
    for row in rows:
        cells = label(row)
        for other in (row.dual_program, row.statsmodels):
            cells += ["-", "-"] if other is None else _other(row, other)
        cells += [three_digits(row.accurate.seconds), three_digits(row.proved.seconds)]
        lines.append([*cells, f"{row.fastest_other() / row.accurate.seconds:.1f}"])
    return list(number_table(head, lines))


def _other(row: Row, other: Solved) -> list[str]:
    gap = row.gap(other)
    return [three_digits(other.seconds), f"{gap:.0e}" if gap > 1e-12 else "0"]


def verdict(rows: Sequence[Row]) -> list[str]:
    """Say how often the targets were met, and what the faster programs say about them."""
    accurate = [row.speedup(row.accurate) for row in rows]
    proved = [row.speedup(row.proved) for row in rows]
    faster = sum(row.fastest_other() < row.accurate.seconds for row in rows)
    return [
        f"- To 1e-4: {_met(accurate, ACCURACY_TARGET)}",
        f"- Certified 1e-3: {_met(proved, PROOF_TARGET)}",
        f"- The fastest of all others took less time than ours to 1e-4 in {faster} of {len(rows)} "
        "cases, and goes on to full accuracy.",
    ]


def _met(speedups: Sequence[float], target: float) -> str:
    reached = sum(speedup >= target for speedup in speedups)
    return (
        f"{min(speedups):.0f} to {max(speedups):.0f} times as fast as QuantileRegressor; the aim "
        f"of {target:.0f} was reached in {reached} of {len(speedups)} cases."
    )


def versions() -> str:
    names = ["accelegrad", "numpy", "scipy", "scikit-learn"]
    names += [] if QuantReg is None else ["statsmodels"]
    found = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    return f"Python {platform.python_version()}, {found}"


def page(rows: Sequence[Row], command: str, repeats: int) -> str:
    date = datetime.now(UTC).date().isoformat()
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    lines = [
        "# Quantile regression",
        "",
        f"`{command}`, {date}. {versions()}. One thread of {os.cpu_count()}, load average at the "
        f"end {load}; ours: medians of {repeats} runs, the others: one run.",
        "",
        "No l2 term, with intercept; all columns and targets standardised; nothing tuned. The time "
        "of ours includes building the model. Iterations count gradients but for the few of the "
        "first probe.",
        "",
        *speed_table(rows),
        "",
        *verdict(rows),
        "",
        "QuantileRegressor gives HiGHS a program with a constraint a row. The same HiGHS solves "
        "the dual program, with a constraint a column, far sooner:",
        "",
        *peer_table(rows),
        "",
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROWS} rows, one run each")
    parser.add_argument("--out", type=Path, help="the file for the tables")
    given = parser.parse_args(arguments)
    repeats = 1 if given.quick else 5
    rows: list[Row] = []
    with threadpool_limits(limits=1):
        warm_up()
        for problem in problems(given.quick):
            rows.append(measured(problem, repeats))
            print(" ".join(speed_table(rows[-1:])[-1:]), file=sys.stderr, flush=True)
    words = sys.argv[1:] if arguments is None else arguments
    text = page(rows, " ".join(["python benchmarks/quantile.py", *words]), repeats)
    if given.out is None:
        print(text)
        return
    put(given.out, text)


def warm_up() -> None:
    """Have everything imported and loaded before the first clock starts."""
    X, y = stand_in(200, 3)
    problem = Problem("", standardised(X), standardised(y), 0.5)
    for solve in (by_scikit_learn, by_dual_program):
        solve(problem)
    if QuantReg is not None:
        clocked(by_statsmodels, problem)
    ag.minimize(problem.model(), max_iter=50, rtol=PROOF)


if __name__ == "__main__":
    main()
