"""Finite sums: gradient computations and seconds to an accuracy, of our methods and of others.

A unit is a gradient over all rows, or as many row gradients. Ours count when their own dual gap
proves the accuracy: "vr" is variance-reduced AcceleGrad alone, "default" what
`minimize` chooses. L-BFGS (SciPy, on our compiled gradients) and scikit-learn's SAG
and SAGA count when the accuracy is reached, measured outside of the clock. Accuracies are relative
to P(0) - P*. All on one thread, in one run: look at the ratios.

Run: OMP_NUM_THREADS=1 python benchmarks/finite_sum.py [SET ...] [--loss LOSS ...]
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize as scipy_minimize
from sklearn.linear_model import LogisticRegression

import accelegrad as ag
from accelegrad.catalogue import METHODS
from accelegrad.choose import Facts, choose
from accelegrad.lab.bench.problems import SUITE_LOSSES, sources
from accelegrad.rows import VarianceReducedAcceleGrad
from accelegrad.rows.oracles import sum_oracle
from accelegrad.rows.variance_reduced_oracle import FiniteSumOracle
from accelegrad.rules import Rule
from accelegrad.run.oracle import ModelOracle

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


def lbfgs(model: ag.LinearModel, start: float, minimum: float) -> Iterator[Mark]:
    """Go through the evaluations of SciPy's L-BFGS-B."""
    marks: list[Mark] = []
    begun = time.perf_counter()

    def evaluate(w: Any) -> tuple[float, Any]:
        value, gradient = model.value_and_gradient(w)
        accuracy = (value - minimum) / (start - minimum)
        marks.append(Mark(len(marks) + 1, time.perf_counter() - begun, accuracy))
        return value, gradient

    options = {"maxiter": MOST_STEPS, "maxfun": 2 * MOST_STEPS, "ftol": 1e-16, "gtol": 1e-14}
    x0 = np.zeros(model.n_parameters)
    scipy_minimize(evaluate, x0, jac=True, method="L-BFGS-B", options=options)
    return iter(marks)


def stochastic(solver: str, model: ag.LinearModel, start: float, minimum: float) -> Iterator[Mark]:
    """Run scikit-learn's solver with more and more epochs, each time from the start."""
    epochs, cost = 1, 1 / (model.l2 * model.n_samples)
    while epochs <= MOST_STEPS:
        peer = LogisticRegression(
            C=cost, solver=solver, tol=1e-14, max_iter=epochs, fit_intercept=False, random_state=0
        )
        begun = time.perf_counter()
        peer.fit(model.X, model.y)
        seconds = time.perf_counter() - begun
        value = model.value(peer.coef_.ravel())
        yield Mark(epochs, seconds, (value - minimum) / (start - minimum))
        if seconds > LONGEST / 4:
            return
        epochs = max(epochs + 1, round(1.4 * epochs))


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


def table(model: ag.LinearModel) -> dict[str, list[Mark | None]]:
    """Return the marks of all solvers on a model."""
    rng = np.random.default_rng(0)

    def chosen() -> tuple[Rule, ModelOracle]:
        rule = METHODS[choose(Facts(model)).name].rule()
        return rule, sum_oracle(rule, model, rng, lambda value: 1e-7 * abs(value))

    def reduced() -> tuple[Rule, ModelOracle]:
        return VarianceReducedAcceleGrad(), FiniteSumOracle(model, rng)

    smooth = np.isfinite(model.loss.curvature)
    for make in (chosen, reduced) if smooth else (chosen,):  # what is compiled or loaded first
        next(ours(model, make))
    found = {"default": reached(ours(model, chosen))}
    if not smooth:
        return found
    found["vr"] = reached(ours(model, reduced))
    start, best = model.value(np.zeros(model.n_parameters)), np.inf
    rule, oracle = chosen()
    state = rule.init(np.zeros(model.n_parameters))
    for _ in range(200):  # the minimum, beyond what is compared
        state = rule.step(state, oracle).state
        assert oracle.best is not None
        if not oracle.best.value < best - 1e-13 * best and _ % 10 == 9:
            break
        best = oracle.best.value
    found["lbfgs"] = reached(lbfgs(model, start, best))
    if model.loss.name == "logistic":
        for solver in ("sag", "saga"):
            found[solver] = reached(stochastic(solver, model, start, best))
    return found


def main() -> None:
    """Print a table a problem."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--loss", nargs="+", default=["logistic"], choices=sorted(SUITE_LOSSES))
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # too few epochs are given on purpose
    levels = " | ".join(f"{level:g}" for level in LEVELS)
    for name in given.sets:
        data = sources([name])[name](ROWS)
        for loss in given.loss:
            for strength in (1.0, 0.01):
                options: dict[str, Any] = dict(SUITE_LOSSES[loss])
                model = ag.LinearModel(data.X, data.y, loss, l2=strength / data.y.size, **options)
                print(f"\n{data.name} ({data.words}), {loss}, l2 = {strength:g}/n\n")
                print(f"| units / ms to | {levels} |\n| --- |{' --- |' * len(LEVELS)}")
                for solver, marks in table(model).items():
                    cells = (
                        "-" if m is None else f"{m.units:.0f} / {1e3 * m.seconds:.1f}"
                        for m in marks
                    )
                    print(f"| {solver} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
