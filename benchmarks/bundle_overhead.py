"""What the bundle method costs a call beyond the function, and against CVXPY with Clarabel.

Run: python benchmarks/bundle_overhead.py [--only NAME ...] [--iterations 600] [--no-peers]. The
functions are those of the suite (`accelegrad bench --functions`) with 50 to 1000 coordinates and
neither set nor penalty; 120 cuts are kept. Times are processor time, the middle one of three runs:
a busy machine changes them little.

A call's cost is what passes between two calls of the function. It counts as that of the step which
the second call belongs to: "smooth" (L-BFGS), "model" (bundle) or "insured" (AcceleGrad). For
smooth functions SciPy's L-BFGS-B is timed likewise.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import minimize as scipy_minimize

import accelegrad as ag
from accelegrad.bundle.bundle import Bundle
from accelegrad.errors import Vector
from accelegrad_lab.functions.minima import minima
from accelegrad_lab.functions.problem import Function
from accelegrad_lab.functions.recorder import Enough
from accelegrad_lab.functions.stated import by_clarabel, has_cvxpy
from accelegrad_lab.functions.suite import SUITE

CUTS = 120
SMALLEST, LARGEST = 50, 1000
REPEATS = 3
#: What the bundle's steps are called here
STEPS = {"_search": "smooth", "_follow_model": "model", "_insure": "insured"}
#: f - f* that is wanted, relative to f(x0) - f*, and tolerances that Clarabel is given in turn
ACCURACY, TOLERANCES = 1e-4, (1e-3, 1e-5, 1e-7)
SECONDS = 20.0


class Timed:
    """A function that adds up what passes between its calls, by the kind of step."""

    def __init__(self, fun: Callable[[Vector], Any], enough: float = -np.inf) -> None:
        self.fun, self.enough = fun, enough
        self.kind = "first"
        self.between: dict[str, list[float]] = defaultdict(list)
        self.inside = 0.0
        self.calls = 0
        self.left = time.thread_time()

    def __call__(self, x: Vector) -> Any:
        """Evaluate."""
        entered = time.thread_time()
        self.between[self.kind].append(entered - self.left)
        found = self.fun(x)
        if found[0] <= self.enough:
            raise Enough
        self.calls += 1
        self.left = time.thread_time()
        self.inside += self.left - entered
        return found


def noting(timed: Timed) -> type[Bundle]:
    """Return a bundle that tells which kind of step it is about to do."""

    def told(name: str) -> Callable[..., Any]:
        method = getattr(Bundle, name)

        @functools.wraps(method)
        def step(*arguments: Any) -> Any:
            timed.kind = STEPS[name]
            return method(*arguments)

        return step

    return type("Bundle", (Bundle,), {name: told(name) for name in STEPS})


def overhead(function: Function, iterations: int) -> dict[str, tuple[float, int]]:
    """Return microseconds a call beyond the function and calls, by the kind of step."""
    timed = Timed(function.fun)
    rule = noting(timed)(bundle_size=CUTS)
    ag.minimize(timed, function.x0, method=rule, max_iter=iterations)
    all_calls = [seconds for kind in STEPS.values() for seconds in timed.between[kind]]
    found = {"all": (1e6 * statistics.mean(all_calls), len(all_calls))}
    for kind in STEPS.values():
        if timed.between[kind]:
            spent = timed.between[kind]
            found[kind] = 1e6 * statistics.mean(spent), len(spent)
    found["function"] = 1e6 * timed.inside / timed.calls, timed.calls
    return found


def scipys(function: Function, iterations: int) -> dict[str, tuple[float, int]]:
    """Return SciPy's microseconds a call beyond the function, where it is smooth."""
    timed = Timed(function.fun)
    options = {"maxiter": iterations, "ftol": 0.0, "gtol": 0.0, "maxcor": 20}
    scipy_minimize(timed, function.x0, jac=True, method="L-BFGS-B", options=options)
    spent = timed.between["first"][1:]
    return {"L-BFGS-B": (1e6 * statistics.mean(spent), len(spent))}


def seconds_of_ours(function: Function, least: float) -> float:
    """Return the seconds to the accuracy, infinite where it is not reached."""
    enough = least + ACCURACY * (function.value(function.x0) - least)
    begun = time.thread_time()
    try:
        ag.minimize(Timed(function.fun, enough), function.x0, max_iter=10**6, time_limit=SECONDS)
    except Enough:
        return time.thread_time() - begun
    return np.inf


def seconds_of_clarabel(function: Function, least: float) -> float:
    """Return the seconds of the fastest run that reaches the accuracy."""
    enough = least + ACCURACY * (function.value(function.x0) - least)
    answers = [by_clarabel(function, tolerance, SECONDS) for tolerance in TOLERANCES]
    good = [found.seconds for found in answers if found is not None and found.value <= enough]
    return min(good, default=np.inf)


def chosen(names: list[str]) -> dict[str, Function]:
    """Return the functions of the suite that are measured."""
    functions = {name: SUITE[name].build() for name in names or SUITE}
    return {
        name: function
        for name, function in functions.items()
        if SMALLEST <= function.x0.size <= LARGEST
        and function.feasible_set is None
        and function.penalty is None
    }


def middle(measure: Callable[..., Any], *arguments: Any) -> dict[str, tuple[float, int]]:
    """Return the middle one of some measurements, for each kind."""
    runs = [measure(*arguments) for _ in range(REPEATS)]
    return {
        kind: (statistics.median(run[kind][0] for run in runs), runs[0][kind][1])
        for kind in runs[0]
    }


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--iterations", type=int, default=600)
    parser.add_argument("--no-peers", action="store_true")
    given = parser.parse_args()
    functions = chosen(given.only)
    kinds = ("all", *STEPS.values(), "function", "L-BFGS-B")
    print("Microseconds a call beyond the function (calls):")
    print(f"{'function':<24}{'d':>5}" + "".join(f"{kind:>13}" for kind in kinds))
    for name, function in functions.items():
        found = middle(overhead, function, given.iterations)
        if function.smooth and not given.no_peers:
            found |= middle(scipys, function, given.iterations)
        cells = (
            f"{found[kind][0]:.0f} ({found[kind][1]})" if kind in found else "" for kind in kinds
        )
        line = f"{name:<24}{function.x0.size:>5}" + "".join(f"{cell:>13}" for cell in cells)
        print(line, flush=True)
    if given.no_peers or not has_cvxpy():
        return
    print(f"\nSeconds to {ACCURACY:g}:\n{'function':<24}{'ours':>10}{'Clarabel':>10}")
    for name, function in functions.items():
        if not function.smooth:
            least = minima()[name].value
            costs = seconds_of_ours(function, least), seconds_of_clarabel(function, least)
            print(f"{name:<24}" + "".join(f"{cost:>10.3f}" for cost in costs), flush=True)


if __name__ == "__main__":
    main()
