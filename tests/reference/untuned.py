"""AcceleGrad without tuning, coordinate by coordinate and number by number.

Nothing of the package is imported, and nothing is accumulated but the average: every iterate is
kept, and every sum is computed afresh from the kept lists. `x[t]` is where g_t is taken; `x`, `z`
and `r` begin with their starting values, so that `z[t]` is z_t; `y[t]` follows from x[t].
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

Vector = NDArray[np.float64]
Map = Callable[[Vector], Vector]


@dataclass
class UntunedRun:
    """Everything that a run went through."""

    x: list[Vector] = field(default_factory=list)
    y: list[Vector] = field(default_factory=list)
    z: list[Vector] = field(default_factory=list)
    g: list[Vector] = field(default_factory=list)
    r: list[float] = field(default_factory=list)
    H: list[Vector] = field(default_factory=list)  # one number in every coordinate if scalar
    reach: list[float] = field(default_factory=list)  # 2.5 r_t
    alpha: list[float] = field(default_factory=list)
    growths: list[int] = field(default_factory=list)  # steps after which the radius had grown
    settled: float = inf  # the step from which on points are averaged
    output: list[Vector] = field(default_factory=list)


def _ratio(run: UntunedRun, x0: Vector, smallest: float) -> float:
    """Return signal / noise from the steps that were taken near x0."""
    cosines = []
    for s in range(1, len(run.g)):
        if (run.r[s] < 1000 * smallest or s < 10) and s <= run.settled:
            offset = x0 - run.z[s]
            energy = sum(v * v / H for v, H in zip(run.g[s], run.H[s], strict=True) if H)
            length = float(run.H[s] @ offset**2)
            product = float(run.g[s] @ offset)
            cosines.append(product * abs(product) / (energy * length))
    if not cosines:
        return 0.0
    share = sum(cosines) / len(cosines)
    return max(0.0, share / max(1 - share, 1e-9))


def _alpha(t: int, ratio: float) -> float:
    return max(
        1.0, min(1.0 if t <= 2 else (t + 1) / 4, 10 * ratio ** (1 / 3) * (1 + ratio**2 / 1e6))
    )


def untuned_accelegrad(
    gradient: Callable[[Vector], ArrayLike],
    x0: ArrayLike,
    T: int,
    diagonal: bool = True,
    r0: float | None = None,
    rate: float = 1.0,
    project: Map | None = None,
    prox: Callable[[Vector, Vector], Vector] | None = None,
) -> UntunedRun:
    """Run T steps."""
    start = np.array(x0, dtype=np.float64)
    smallest = 1e-6 * (1 + sqrt(float(start @ start) / (start.size if diagonal else 1)))
    r0 = smallest if r0 is None else r0
    run = UntunedRun(x=[start], z=[start], r=[r0])
    h: list[float] = []
    grown_from, last_growth = r0, 0
    for t in range(T):
        x, z, r = run.x[t], run.z[t], run.r[t]
        g = np.asarray(gradient(x), dtype=np.float64)
        ratio = _ratio(run, start, smallest)
        alpha = _alpha(t, ratio)
        run.g.append(g)
        run.alpha.append(alpha)
        run.reach.append(2.5 * rate * r)
        Q = sum((run.r[s] / r) * (run.alpha[s] * run.g[s]) ** 2 for s in range(t + 1))
        H = np.sqrt(Q) if diagonal else np.full(start.size, sqrt(float(np.sum(Q))))
        run.H.append(H)
        h.append(float(H.sum()) if diagonal else float(H[0]))
        eta = np.array([run.reach[t] / v if v else 0.0 for v in H])
        y, z = x - eta * g, z - alpha * eta * g
        if prox is not None:
            y, z = prox(y, eta), prox(z, alpha * eta)
        if project is not None:
            y, z = project(y), project(z)
        run.y.append(y)
        run.z.append(z)
        run.r.append(r)
        if t < run.settled:
            N = 0.0
            for s in range(t + 1):
                slope = run.g[s]
                if prox is not None:
                    slope = (run.x[s] - run.y[s]) * run.H[s] / run.reach[s]
                N += run.alpha[s] * run.reach[s] / h[s] * float(slope @ (start - run.x[s]))
            length = sqrt(float(H @ (start - z) ** 2))
            exact = _ratio(run, start, smallest) ** 2
            travelled = sqrt(float(H @ (start - y) ** 2) / h[t])
            if length:
                suggested = 2 * N * sqrt(h[t]) / length
                if project is not None or prox is not None:
                    suggested = min(suggested, 2 * travelled)
                run.r[t + 1] = max(r, exact / (exact + 1e6) * travelled, suggested)
            if run.r[t + 1] > 1.1 * grown_from:
                grown_from, last_growth = run.r[t + 1], t + 1
                run.growths.append(t + 1)
            if t + 1 >= 2 * last_growth + 10 and run.r[t + 1] >= 1000 * smallest:
                run.settled = t
        tau = 1 / _alpha(t + 1, _ratio(run, start, smallest))
        run.x.append(tau * z + (1 - tau) * y)
        if t >= run.settled:
            points = run.y[int(run.settled) :]
            weights = np.arange(1, len(points) + 1) ** 2.0
            run.output.append(weights @ np.array(points) / weights.sum())
        else:
            run.output.append(run.x[t + 1])
    return run
