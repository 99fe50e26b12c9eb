"""AcceleGrad with a step a coordinate, coordinate by coordinate and number by number.

Nothing of the package is imported, nothing is accumulated: every iterate is kept, and every sum is
computed afresh from the kept lists. `x[t]` is the query point x_{t+1}; `y`, `z` and `r` begin with
their starting values, so that `y[t]` is y_t; `g`, `eta`, `alpha` and `average` belong to steps.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

Vector = NDArray[np.float64]
Gradient = Callable[[Vector], ArrayLike]
Bounds = tuple[list[float], list[float]]


@dataclass
class DiagonalRun:
    """Everything that a run went through."""

    x: list[list[float]] = field(default_factory=list)
    y: list[list[float]] = field(default_factory=list)
    z: list[list[float]] = field(default_factory=list)
    g: list[list[float]] = field(default_factory=list)
    r: list[list[float]] = field(default_factory=list)
    eta: list[list[float]] = field(default_factory=list)
    alpha: list[float] = field(default_factory=list)
    average: list[list[float]] = field(default_factory=list)


def _clip(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


def _average(run: DiagonalRun, j: int) -> float:
    pairs = zip(run.alpha, run.y[1:], strict=True)
    return sum(alpha * y[j] for alpha, y in pairs) / sum(run.alpha)


def diagonal_accelegrad(
    gradient: Gradient,
    x0: ArrayLike,
    T: int,
    D: list[float] | None = None,
    G: float = 0.0,
    box: Bounds | None = None,
    project_y: bool = False,
    r0: list[float] | None = None,
) -> DiagonalRun:
    """Run T steps with the widths D, or with r0 and the distance that each coordinate has come.

    A width grows where the gradients are three standard deviations from a mean of zero.
    """
    start = [float(v) for v in np.asarray(x0)]
    d = len(start)
    run = DiagonalRun(y=[start], z=[start], r=[list(r0 or D)])
    for t in range(T):
        alpha = 1.0 if t <= 2 else (t + 1) / 4
        tau = 1 / alpha
        x = [tau * run.z[t][j] + (1 - tau) * run.y[t][j] for j in range(d)]
        g = [float(v) for v in np.asarray(gradient(np.array(x)))]
        run.alpha.append(alpha)
        run.x.append(x)
        run.g.append(g)
        y, z, r, eta = [], [], [], []
        for j in range(d):
            total = G**2 + sum((run.alpha[s] * run.g[s][j]) ** 2 for s in range(t + 1))
            eta.append(2 * run.r[t][j] / sqrt(total) if total > 0 else 0.0)
            y_j = x[j] - eta[j] * g[j]
            if box is not None and project_y:
                y_j = _clip(y_j, box[0][j], box[1][j])
            y.append(y_j)
            z_j = run.z[t][j] - alpha * eta[j] * g[j]
            if r0 is None:
                r.append(run.r[0][j])
            else:
                weighted = [run.alpha[s] * run.g[s][j] for s in range(t + 1)]
                significant = abs(sum(weighted)) >= 3 * sqrt(sum(w * w for w in weighted))
                r.append(max(run.r[t][j], abs(y_j - start[j])) if significant else run.r[t][j])
                z_j = _clip(z_j, start[j] - 3 * r[j], start[j] + 3 * r[j])
            if box is not None:
                z_j = _clip(z_j, box[0][j], box[1][j])
            z.append(z_j)
        run.y.append(y)
        run.z.append(z)
        run.r.append(r)
        run.eta.append(eta)
        run.average.append([_average(run, j) for j in range(d)])
    return run
