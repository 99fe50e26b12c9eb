"""The methods' formulas, as literally as possible; the product's rules are tested against them.

Nothing of the package is imported, nothing is accumulated: every iterate is kept, and every sum is
computed afresh from the kept lists. Sources: Levy, Yurtsever and Cevher (2018), Alg. 1, Alg. 2 and
eq. (2); Nesterov (2015) as laid down in ALGORITHMS.md, section 1.

Which index is where, in every list of `Run`:

- A sequence with a starting value begins with it and has T + 1 entries, so that `y[t]` is y_t:
  z, y, v, A, L, phi; x in `universal_primal`, `universal_dual` and `subgradient` (x_0..x_T) and in
  `adagrad` (x_1..x_{T+1}).
- What belongs to a step has T entries: x in `accelegrad`, `linear_coupling` and `universal_fast`
  (the query points x_1..x_T), g (the gradient that the step used), eta, alpha, a, M, B, trials,
  average (`average[t]` is the output after t + 1 steps).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

Vector = NDArray[np.float64]
Gradient = Callable[[Vector], ArrayLike]
ValueAndGradient = Callable[[Vector], tuple[float, ArrayLike]]
Projection = Callable[[Vector], ArrayLike]


@dataclass
class Run:
    """Everything that a run went through; a list that the method does not have stays empty."""

    x: list[Vector] = field(default_factory=list)
    y: list[Vector] = field(default_factory=list)
    z: list[Vector] = field(default_factory=list)
    v: list[Vector] = field(default_factory=list)
    g: list[Vector] = field(default_factory=list)
    B: list[Vector] = field(default_factory=list)
    phi: list[Vector] = field(default_factory=list)
    average: list[Vector] = field(default_factory=list)
    eta: list[float] = field(default_factory=list)
    alpha: list[float] = field(default_factory=list)
    a: list[float] = field(default_factory=list)
    A: list[float] = field(default_factory=list)
    L: list[float] = field(default_factory=list)
    M: list[float] = field(default_factory=list)
    trials: list[int] = field(default_factory=list)


def _vector(x: ArrayLike) -> Vector:
    return np.array(x, dtype=np.float64)


def _prox(project: Projection | None, x: Vector) -> Vector:
    """P of the formulas: the projection onto K, or nothing."""
    return x.copy() if project is None else _vector(project(x.copy()))


def _evaluate(value_and_gradient: ValueAndGradient, x: Vector) -> tuple[float, Vector]:
    value, gradient = value_and_gradient(x.copy())
    return float(value), _vector(gradient)


def _average(weights: list[float], points: list[Vector]) -> Vector:
    return sum(w * p for w, p in zip(weights, points, strict=True)) / sum(weights)


def weight(t: int) -> float:
    """Return alpha_t of eq. (2)."""
    return 1.0 if t <= 2 else (t + 1) / 4


def accelegrad(
    gradient: Gradient,
    x0: ArrayLike,
    T: int,
    D: float,
    G: float = 0.0,
    project: Projection | None = None,
    project_y: bool = False,
) -> Run:
    """Alg. 2 with eq. (2), steps t = 0..T-1."""
    run = Run(z=[_vector(x0)], y=[_vector(x0)])
    for t in range(T):
        alpha = weight(t)
        tau = 1 / alpha
        x = tau * run.z[t] + (1 - tau) * run.y[t]
        g = _vector(gradient(x.copy()))
        run.alpha.append(alpha)
        run.x.append(x)
        run.g.append(g)
        total = G**2 + sum(run.alpha[s] ** 2 * (run.g[s] @ run.g[s]) for s in range(t + 1))
        eta = 2 * D / sqrt(total) if total > 0 else 0.0
        run.eta.append(eta)
        run.z.append(_prox(project, run.z[t] - alpha * eta * g))
        y = x - eta * g
        run.y.append(_prox(project, y) if project_y else y)
        run.average.append(_average(run.alpha, run.y[1:]))
    return run


def linear_coupling(
    gradient: Gradient, x0: ArrayLike, T: int, beta: float, project: Projection | None = None
) -> Run:
    """Alg. 2 with eta_t = 1/beta; the output is the last y."""
    run = Run(z=[_vector(x0)], y=[_vector(x0)])
    for t in range(T):
        alpha = weight(t)
        tau = 1 / alpha
        x = tau * run.z[t] + (1 - tau) * run.y[t]
        g = _vector(gradient(x.copy()))
        eta = 1 / beta
        run.alpha.append(alpha)
        run.x.append(x)
        run.g.append(g)
        run.eta.append(eta)
        run.z.append(_prox(project, run.z[t] - alpha * eta * g))
        run.y.append(x - eta * g)
    return run


def adagrad(
    gradient: Gradient, x0: ArrayLike, T: int, D: float, project: Projection | None = None
) -> Run:
    """Alg. 1, its x_1 being x0."""
    run = Run(x=[_vector(x0)])
    for t in range(T):
        g = _vector(gradient(run.x[t].copy()))
        run.g.append(g)
        total = 2 * sum(run.g[s] @ run.g[s] for s in range(t + 1))
        eta = D / sqrt(total) if total > 0 else 0.0
        run.eta.append(eta)
        run.average.append(_average([1.0] * (t + 1), run.x))  # before x_{t+1} is appended
        run.x.append(_prox(project, run.x[t] - eta * g))
    return run


def subgradient(
    gradient: Gradient,
    x0: ArrayLike,
    T: int,
    step_size: float,
    decay: str,
    project: Projection | None = None,
) -> Run:
    """Plain projected subgradient steps, averaged over the query points with the weights eta_t."""
    if decay not in ("sqrt", "constant"):
        raise ValueError(f"decay is 'sqrt' or 'constant', not {decay!r}")
    run = Run(x=[_vector(x0)])
    for t in range(T):
        g = _vector(gradient(run.x[t].copy()))
        eta = step_size / sqrt(t + 1) if decay == "sqrt" else step_size
        run.g.append(g)
        run.eta.append(eta)
        run.average.append(_average(run.eta, run.x))  # before x_{t+1} is appended
        run.x.append(_prox(project, run.x[t] - eta * g))
    return run


def universal_primal(
    value_and_gradient: ValueAndGradient,
    x0: ArrayLike,
    T: int,
    epsilon: float,
    L0: float = 1.0,
    project: Projection | None = None,
    max_trials: int = 100,
) -> Run:
    """Nesterov's universal primal gradient method; RuntimeError when no trial passes."""
    run = Run(x=[_vector(x0)], L=[float(L0)])
    for k in range(T):
        x = run.x[k]
        f_x, g = _evaluate(value_and_gradient, x)
        for i in range(max_trials):
            M = 2.0**i * run.L[k]
            x_plus = _prox(project, x - g / M)
            f_plus, _ = _evaluate(value_and_gradient, x_plus)
            d = x_plus - x
            if f_plus <= f_x + g @ d + M / 2 * (d @ d) + epsilon / 2:
                break
        else:
            raise RuntimeError(f"step {k}: no trial of {max_trials} passed")
        run.g.append(g)
        run.trials.append(i + 1)
        run.M.append(M)
        run.L.append(M / 2)
        run.x.append(x_plus)
        run.average.append(_average([1 / L for L in run.L[1:]], run.x[1:]))
    return run


def universal_dual(
    value_and_gradient: ValueAndGradient,
    x0: ArrayLike,
    T: int,
    epsilon: float,
    L0: float = 1.0,
    project: Projection | None = None,
    max_trials: int = 100,
) -> Run:
    """Nesterov's universal dual gradient method; RuntimeError when no trial passes.

    M is tested at x_k, whose gradient it weighs.
    """
    run = Run(x=[_vector(x0)], phi=[_vector(x0)], L=[float(L0)])
    for k in range(T):
        f, g = _evaluate(value_and_gradient, run.x[k])
        for i in range(max_trials):
            M = 2.0**i * run.L[k]
            B = _prox(project, run.x[k] - g / M)
            f_B, _ = _evaluate(value_and_gradient, B)
            d = B - run.x[k]
            if f_B <= f + g @ d + M / 2 * (d @ d) + epsilon / 2:
                break
        else:
            raise RuntimeError(f"step {k}: no trial of {max_trials} passed")
        run.g.append(g)
        run.trials.append(i + 1)
        run.M.append(M)
        run.L.append(M / 2)
        run.B.append(B)
        run.phi.append(run.x[0] - sum(run.g[s] / run.M[s] for s in range(k + 1)))
        run.x.append(_prox(project, run.phi[-1]))
        run.average.append(_average([1 / M for M in run.M], run.B))
    return run


def universal_fast(
    value_and_gradient: ValueAndGradient,
    x0: ArrayLike,
    T: int,
    epsilon: float,
    L0: float = 1.0,
    project: Projection | None = None,
    max_trials: int = 100,
) -> Run:
    """Nesterov's universal fast gradient method, output the last y; RuntimeError as above."""
    start = _vector(x0)
    run = Run(v=[_prox(project, start)], y=[_vector(x0)], A=[0.0], L=[float(L0)])
    for k in range(T):
        A, v, y = run.A[k], run.v[k], run.y[k]
        for i in range(max_trials):
            M = 2.0**i * run.L[k]
            a = (1 + sqrt(1 + 4 * M * A)) / (2 * M)
            tau = a / (A + a)
            x = tau * v + (1 - tau) * y
            f_x, g = _evaluate(value_and_gradient, x)
            x_hat = _prox(project, v - a * g)
            y_plus = tau * x_hat + (1 - tau) * y
            f_plus, _ = _evaluate(value_and_gradient, y_plus)
            d = y_plus - x
            if f_plus <= f_x + g @ d + M / 2 * (d @ d) + tau * epsilon / 2:
                break
        else:
            raise RuntimeError(f"step {k}: no trial of {max_trials} passed")
        run.x.append(x)
        run.g.append(g)
        run.a.append(a)
        run.trials.append(i + 1)
        run.M.append(M)
        run.L.append(M / 2)
        run.A.append(sum(run.a))
        run.y.append(y_plus)
        run.v.append(_prox(project, start - sum(run.a[s] * run.g[s] for s in range(k + 1))))
    return run
