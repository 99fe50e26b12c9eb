"""AcceleGrad with an automatic diameter, transcribed from its docstring: all iterates are kept.

Indices: lists of points begin with their value at 0, so that `y[t]` is y_t and `r[t]` is r_t; `x[t]`
is the query point of step t, the paper's x_{t+1}; `g[t]`, `G[t]` and `eta[t]` belong to step t.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from reference.methods import weight

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


def distance_free_accelegrad(
    fun: Callable[[Vector], tuple[float, Vector]],
    x0: Vector,
    T: int,
    r0: float,
    *,
    cap: float = np.inf,
    project: Callable[[Vector], Vector] | None = None,
    prox: Callable[[Vector, float], Vector] | None = None,
    noisy: bool = False,
) -> Run:
    """Run T steps, with a feasible set, a composite term, or neither; `noisy`: the second z."""
    bent = project is not None or prox is not None
    onto = project or (lambda point: point)
    near = prox or (lambda point, step: point)
    run = Run(y=[x0], z=[x0], r=[min(r0, cap)])
    for t in range(T):
        tau = 1 / weight(t)
        x = tau * run.z[t] + (1 - tau) * run.y[t]
        run.x.append(x)
        run.g.append(fun(x)[1])
        if bent:
            h = run.r[0] / np.linalg.norm(run.g[0])
            mapping = (x0 - onto(near(x0 - h * run.g[0], h))) / h
            changes = [mapping] + [run.g[s] - run.g[s - 1] for s in range(1, t + 1)]
        else:
            changes = run.g
        eta = 2 * run.r[t] / sqrt(sum(weight(s) ** 2 * (v @ v) for s, v in enumerate(changes)))
        run.eta.append(eta)
        if bent and noisy:
            A = sum(weight(s) for s in range(t + 1))
            z = onto(near(x0 - eta * sum(weight(s) * run.g[s] for s in range(t + 1)), eta * A))
        else:
            z = onto(near(run.z[t] - weight(t) * eta * run.g[t], weight(t) * eta))
        if np.linalg.norm(z - x0) > 3 * run.r[t]:
            z = x0 + 3 * run.r[t] * (z - x0) / np.linalg.norm(z - x0)
        run.z.append(z)
        run.y.append(onto(near(x - eta * run.g[t], eta)))
        run.G.append((x - run.y[t + 1]) / eta if prox else run.g[t])
        c = [weight(s) * run.r[s] ** 2 for s in range(t + 1)]
        N = sum(c[s] * (run.G[s] @ (x0 - run.x[s])) for s in range(t + 1))
        S = sum(c[s] * run.G[s] for s in range(t + 1))
        lam = eta / run.r[t] ** 2
        u = onto(x0 - lam * S)
        rho = np.linalg.norm(u - x0)
        proven = rho + lam * (N - S @ (x0 - u)) / rho if project else N / np.linalg.norm(S)
        run.r.append(min(max(run.r[t], 2 * float(proven)), cap))
        w = [weight(s) * run.r[s] for s in range(t + 1)]
        run.average.append(sum(w[s] * run.y[s + 1] for s in range(t + 1)) / sum(w))
    return run
