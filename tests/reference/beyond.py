"""Methods beyond the paper, as literally as possible; the product's rules are tested against them.

As in `methods`: nothing of the package is imported, nothing is accumulated, every iterate is kept
and every sum is computed afresh. Sources: Kavis, Levy, Bach and Cevher (2019) for UniXGrad;
Kreisler, Ivgi, Hinder and Carmon (2024) for U-DoG and A-DoG; Ivgi, Hinder and Carmon (2023) for
DoG.

Which index is where, in every list of `Run`: a sequence with a starting value (x, y, z, r) begins
with it, so that `x[t]` is x_t; what belongs to a step (m, g, eta, eta_x, eta_y, alpha, z_tilde,
x_tilde, query, average) has an entry a step, the first step's first.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import sqrt

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Gradient = Callable[[Vector], Vector]
Projection = Callable[[Vector], Vector]
Prox = Callable[[Vector, float], Vector]


@dataclass
class Run:
    """Everything that a run went through; a list that the method does not have stays empty."""

    x: list[Vector] = field(default_factory=list)
    y: list[Vector] = field(default_factory=list)
    z: list[Vector] = field(default_factory=list)
    m: list[Vector] = field(default_factory=list)
    g: list[Vector] = field(default_factory=list)
    z_tilde: list[Vector] = field(default_factory=list)
    x_tilde: list[Vector] = field(default_factory=list)
    query: list[Vector] = field(default_factory=list)
    average: list[Vector] = field(default_factory=list)
    r: list[float] = field(default_factory=list)
    alpha: list[float] = field(default_factory=list)
    eta: list[float] = field(default_factory=list)
    eta_x: list[float] = field(default_factory=list)
    eta_y: list[float] = field(default_factory=list)


def _norm(v: Vector) -> float:
    return sqrt(float(v @ v))


def _project(x: Vector, step: float, project: Projection | None, prox: Prox | None) -> Vector:
    if prox is not None:
        x = prox(x.copy(), step)
    return x.copy() if project is None else np.array(project(x.copy()))


def _sum(weights: list[float], points: list[Vector]) -> Vector:
    """sum_k w_k p_k, zero if there is nothing to add."""
    return np.array(weights) @ np.array(points) if points else np.float64(0)


def _average(weights: list[float], points: list[Vector]) -> Vector:
    return _sum(weights, points) / sum(weights)


def _squares(alpha: list[float], vectors: list[Vector]) -> float:
    """sum_k alpha_k^2 ||v_k||^2, zero if there is nothing to add."""
    return float(np.array(alpha) ** 2 @ (np.array(vectors) ** 2).sum(1)) if vectors else 0.0


def _differences(g: list[Vector], m: list[Vector]) -> list[Vector]:
    return list(np.array(g) - np.array(m))


def _farthest(points: list[Vector], x0: Vector) -> float:
    return max(_norm(offset) for offset in np.array(points) - x0)


def _over_root(numerator: float, total: float) -> float:
    return numerator / sqrt(total) if total > 0 else 0.0


def unixgrad(
    gradient: Gradient,
    x0: Vector,
    T: int,
    D: float,
    G0: float | None = None,
    project: Projection | None = None,
    prox: Prox | None = None,
) -> Run:
    """Alg. 1 of its paper, steps t = 1..T; D is the Euclidean diameter, None for G0 is ||M_1||."""
    run = Run(y=[np.array(x0)], x=[np.array(x0)])  # x[0] is a filler: the method's x begins at 1
    for t in range(1, T + 1):
        alpha = [float(i) for i in range(t + 1)]  # alpha[i] is alpha_i
        A = sum(alpha[1:])
        z_tilde = (alpha[t] * run.y[t - 1] + _sum(alpha[1:t], run.x[1:t])) / A
        m = gradient(z_tilde.copy())
        run.m.append(m)
        scale = _norm(run.m[0]) if G0 is None else G0
        total = scale**2 + _squares(alpha[1:t], _differences(run.g, run.m[: t - 1]))
        eta = _over_root(sqrt(2) * D, total)
        run.x.append(_project(run.y[t - 1] - alpha[t] * eta * m, alpha[t] * eta, project, prox))
        x_tilde = _sum(alpha[1:], run.x[1:]) / A
        g = gradient(x_tilde.copy())
        run.g.append(g)
        run.y.append(_project(run.y[t - 1] - alpha[t] * eta * g, alpha[t] * eta, project, prox))
        run.eta.append(eta)
        run.alpha.append(alpha[t])
        run.z_tilde.append(z_tilde)
        run.x_tilde.append(x_tilde)
    return run


def u_dog(
    gradient: Gradient,
    x0: Vector,
    T: int,
    r0: float,
    project: Projection | None = None,
    prox: Prox | None = None,
) -> Run:
    """U-DoG, steps t = 0..T-1; `x_tilde[t]` is the output after t + 1 steps."""
    run = Run(x=[np.array(x0)], y=[np.array(x0)])
    for t in range(T):
        run.r.append(max(r0, _farthest(run.x, x0), _farthest(run.y, x0)))
        run.alpha.append(sum(run.r[: t + 1]) / run.r[t])
        w = [a * r for a, r in zip(run.alpha, run.r, strict=True)]
        z_tilde = (w[t] * run.y[t] + _sum(w[:t], run.x[1:])) / sum(w)
        m = gradient(z_tilde.copy())
        run.m.append(m)
        M = max(a**2 * (v @ v) for a, v in zip(run.alpha, run.m, strict=True))
        Q = _squares(run.alpha[:t], _differences(run.g, run.m[:t]))
        eta_x = _over_root(run.r[t], max(Q, M))
        step = run.alpha[t] * eta_x
        run.x.append(_project(run.y[t] - step * m, step, project, prox))
        x_tilde = _average(w, run.x[1:])
        g = gradient(x_tilde.copy())
        run.g.append(g)
        Q = _squares(run.alpha, _differences(run.g, run.m))
        eta_y = _over_root(run.r[t], max(Q, M))
        step = run.alpha[t] * eta_y
        run.y.append(_project(run.y[t] - step * g, step, project, prox))
        run.eta_x.append(eta_x)
        run.eta_y.append(eta_y)
        run.z_tilde.append(z_tilde)
        run.x_tilde.append(x_tilde)
    return run


def a_dog(
    gradient: Gradient, x0: Vector, T: int, r0: float, project: Projection | None = None
) -> Run:
    """A-DoG, steps t = 0..T-1; `query[t]` is where g_t is taken."""
    run = Run(z=[np.array(x0)], y=[np.array(x0)])
    for t in range(T):
        run.r.append(max(r0, _farthest(run.z, x0)))
        run.alpha.append(sum(run.r[k] for k in range(t + 1)) / run.r[t])
        tau = run.alpha[t] / sum(run.alpha[: t + 1])
        query = tau * run.z[t] + (1 - tau) * run.y[t]
        g = gradient(query.copy())
        run.query.append(query)
        run.g.append(g)
        eta = _over_root(run.r[t], _squares(run.alpha, run.g))
        run.eta.append(eta)
        run.z.append(_project(run.z[t] - run.alpha[t] * eta * g, 0.0, project, None))
        run.y.append(_project(query - eta * g, 0.0, project, None))
        weights = [run.alpha[k] * run.r[k] for k in range(t + 1)]
        run.average.append(_average(weights, run.y[1:]))
    return run


def dog(
    gradient: Gradient, x0: Vector, T: int, r0: float, project: Projection | None = None
) -> Run:
    """DoG, steps t = 0..T-1; `average[t]` is the average of x_0..x_t with weights r_0..r_t."""
    run = Run(x=[np.array(x0)])
    for t in range(T):
        run.r.append(max(r0, _farthest(run.x, x0)))
        g = gradient(run.x[t].copy())
        run.g.append(g)
        eta = _over_root(run.r[t], _squares([1.0] * (t + 1), run.g))
        run.eta.append(eta)
        run.average.append(_average(run.r, run.x))  # before x_{t+1} is appended
        run.x.append(_project(run.x[t] - eta * g, 0.0, project, None))
    return run
