"""AcceleGrad with an automatic diameter, transcribed from its docstring: all iterates are kept.

Indices: lists of points begin with their value at 0, so that `y[t]` is y_t and `r[t]` is r_t; `x[t]`
is the query point of step t, the paper's x_{t+1}; `g[t]`, `G[t]` and `eta[t]` belong to step t.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import sqrt

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


@dataclass
class Run:
    """Everything that a run went through."""

    x: list[Vector] = field(default_factory=list)
    y: list[Vector] = field(default_factory=list)
    z: list[Vector] = field(default_factory=list)
    g: list[Vector] = field(default_factory=list)
    G: list[Vector] = field(default_factory=list)
    eta: list[float] = field(default_factory=list)
    r: list[float] = field(default_factory=list)
    average: list[Vector] = field(default_factory=list)


def weight(t: int) -> float:
    """Return alpha_t."""
    return 1.0 if t <= 2 else (t + 1) / 4


def distance_free_accelegrad(
    fun: Callable[[Vector], tuple[float, Vector]],
    x0: Vector,
    T: int,
    r0: float,
    *,
    cap: float = np.inf,
    step: Callable[[Vector, Vector, float], Vector] | None = None,
) -> Run:
    """Run T steps; `step(x, g, eta)` is T_eta(x, g), by default x - eta g."""
    run = Run(y=[x0], z=[x0], r=[min(r0, cap)])
    for t in range(T):
        tau = 1 / weight(t)
        x = tau * run.z[t] + (1 - tau) * run.y[t]
        g = fun(x)[1]
        if step is None:
            G = g
        else:
            h = run.eta[t - 1] if t > 0 else run.r[0] / sqrt(sum(g * g))
            G = (x - step(x, g, h)) / h
        run.x.append(x)
        run.g.append(g)
        run.G.append(G)
        c_eta = 2 if step is None else sqrt(2)
        eta = (
            c_eta
            * run.r[t]
            / sqrt(sum(weight(s) ** 2 * (run.G[s] @ run.G[s]) for s in range(t + 1)))
        )
        move = step or (lambda point, gradient, size: point - size * gradient)
        z = move(run.z[t], g, weight(t) * eta)
        if np.linalg.norm(z - x0) > 3 * run.r[t]:
            z = x0 + 3 * run.r[t] * (z - x0) / np.linalg.norm(z - x0)
        y = move(x, g, eta)
        c = [weight(s) * run.r[s] ** 2 for s in range(t + 1)]
        N = sum(c[s] * (run.G[s] @ (x0 - run.x[s])) for s in range(t + 1))
        S = sum(c[s] * run.G[s] for s in range(t + 1))
        r = max(run.r[t], 2 * N / np.linalg.norm(S))
        run.z.append(z)
        run.y.append(y)
        run.eta.append(eta)
        run.r.append(min(float(r), cap))
        w = [weight(s) * run.r[s] for s in range(t + 1)]
        run.average.append(sum(w[s] * run.y[s + 1] for s in range(t + 1)) / sum(w))
    return run
