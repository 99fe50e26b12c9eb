"""The default method on random shapes, beside each single solver: work, seconds, proofs.

python tests/shapes.py --count 76 --seed 7
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

import accelegrad as ag
from accelegrad.solvers.row_oracle import RowOracle

LOSSES = (
    "logistic",
    "hinge",
    "squared_hinge",
    "squared",
    "absolute",
    "epsilon_insensitive",
    "huber",
)
SOLVERS = ("accelegrad-newton", "dual-ascent", "interior-point", "proximal-newton")
FEW_COLUMNS = 100  # proximal Newton is for no more


class Run(NamedTuple):
    """A run: its counted work and its seconds, infinite if it ended without a proof."""

    work: float
    seconds: float


def drawn(rng: np.random.Generator, entries: float = 1e6, rows: float = 4.3) -> ag.LinearModel:
    """Return a linear model of a random shape with an l2 term and an intercept."""
    while True:
        n, d = int(10 ** rng.uniform(2, rows)), int(10 ** rng.uniform(0.5, 3.3))
        density = 10 ** rng.uniform(-2.3, 0.0)
        if n * d * density <= entries:
            break
    if density < 0.4:
        X: Any = sp.random(n, d, density, format="csr", rng=rng, data_rvs=rng.standard_normal)
    else:
        X = rng.standard_normal((n, d))
    margins, loss = X @ rng.standard_normal(d), str(rng.choice(LOSSES))
    y = margins / (np.std(margins) or 1.0) + 0.5 * rng.standard_normal(n)
    if loss in LOSSES[:3]:
        y = np.where(y > 0.0, 1.0, -1.0)
    l2 = 10 ** rng.uniform(-5, -1.5)
    return ag.LinearModel(X, y, loss, l2=l2, fit_intercept=True)


def run(model: ag.LinearModel, method: str, max_iter: int = 1000) -> tuple[Run, Any]:
    """Minimise to a certified 1e-3."""
    made: list[Any] = []
    init = RowOracle.__init__

    def noted(self: RowOracle, *given: Any, **more: Any) -> None:
        made.append(self)
        init(self, *given, **more)

    RowOracle.__init__ = noted  # type: ignore[method-assign]
    begun = time.process_time()
    try:
        result = ag.minimize(model, method=method, rtol=1e-3, max_iter=max_iter, time_limit=20.0)
    finally:
        RowOracle.__init__ = init  # type: ignore[method-assign]
    seconds, first = time.process_time() - begun, made[0]
    work = sum(first.works) if hasattr(first, "works") else first.work
    return (Run(work, seconds) if result.success else Run(math.inf, math.inf)), result


def compared(model: ag.LinearModel) -> tuple[Run, dict[str, Run], Any]:
    """Return the default's run, those of the single solvers that can run, and the result."""
    default, result = run(model, "auto")
    single = {}
    for name in SOLVERS:
        one_kink = model.loss.has_one_kink or name != "interior-point"
        if one_kink and (name != "proximal-newton" or model.n_features <= FEW_COLUMNS):
            single[name], _ = run(model, name, 3000)
    return default, single, result


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", 1)[0])
    parser.add_argument("--count", type=int, default=76)
    parser.add_argument("--seed", type=int, default=7)
    given, ratios, unproved = parser.parse_args(), [], 0
    rng = np.random.default_rng(given.seed)
    for number in range(given.count):
        model = drawn(rng)
        default, single, result = compared(model)
        best = [min(kind) for kind in zip(*single.values(), strict=True)]
        unproved += not result.success
        if min(best) < math.inf and result.success:
            ratios.append([mine / least for mine, least in zip(default, best, strict=True)])
        shape = f"{model.loss.name:20s} {model.n_samples:6d} x {model.n_features:<5d}"
        times = " ".join(f"{name[:5]} {1e3 * one.seconds:.0f}" for name, one in single.items())
        print(f"{number:3d} {shape} {result.method:18s} {1e3 * default.seconds:7.1f} ms | {times}")
    of_work, of_time = np.array(ratios).T
    for name, one in (("work", of_work), ("seconds", of_time)):
        print(
            f"{name}: {np.exp(np.log(one).mean()):.2f} of the best single solver's in the geometric "
            f"mean, at most 2.2 times on {np.mean(one <= 2.2):.0%}, worst {one.max():.1f}"
        )
    print(f"{unproved} of {given.count} not proved")


if __name__ == "__main__":
    main()
