"""Adaptive first-order methods of others, as their papers state them.

Each is a plain loop that asks an oracle for values and gradients until the oracle ends it.
``fun(x)`` returns value and gradient, ``prox(x, step)`` the projection or the proximal point.

References
----------
.. [1] Li, Lan (2023). A simple uniformly optimal method without line search for convex
   optimization. arXiv:2310.10082. (AC-FGM)
.. [2] Rodomanov, Kavis, Wu, Antonakopoulos, Cevher (2024). Universal gradient methods for
   stochastic convex optimization. ICML. (UniFastSgd)
.. [3] Malitsky, Mishchenko (2024). Adaptive proximal gradient method for convex optimization.
   NeurIPS. (AdProxGD, the proximal form of AdGD)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NoReturn

import numpy as np

from accelegrad.errors import Vector
from accelegrad.lab.functions.problem import Evaluate

Prox = Callable[[Vector, float], Vector]

MOST_TRIALS = 30  # for AC-FGM's first step, whose search need not end on functions with kinks
FIRST_STEP = 1e-3  # AdGD's, over the size of x0; its steps may grow by 1.46 each
ACFGM_ALPHA = 0.1  # the paper's choice in its experiments
ACFGM_BETA = 1.0 - math.sqrt(6.0) / 3.0  # the largest that its theorem allows


def first_length(x0: Vector, gradient: Vector) -> float:
    """Return the step size with which a first step is as long as x0, or 1."""
    slope = float(np.linalg.norm(gradient))
    return max(1.0, float(np.linalg.norm(x0))) / slope if slope > 0 else 1.0


def ac_fgm(fun: Evaluate, x0: Vector, prox: Prox) -> NoReturn:
    """Run AC-FGM [1]: accelerated, with the curvature that the last two points show."""
    g = fun(x0)[1]
    step, z, f_new, g_new = _first_step(fun, x0, g, prox)
    x_new, x, y = z, x0, x0
    L = _secant(g_new - g, x_new - x)
    tau_old, tau = 0.0, 2.0
    step = min((1.0 - ACFGM_BETA) * step, 1.0 / (4.0 * L)) if L > 0 else (1 - ACFGM_BETA) * step
    while True:
        x, f, g = x_new, f_new, g_new
        z = prox(y - step * g, step)
        y = (1.0 - ACFGM_BETA) * y + ACFGM_BETA * z
        x_new = (z + tau * x) / (1.0 + tau)
        f_new, g_new = fun(x_new)
        L = _curvature(f, f_new, g, g_new, x - x_new)
        longest = min(4.0 / 3.0, (tau_old + 1.0) / tau) * step
        step = min(longest, tau / (4.0 * L)) if L > 0 else longest
        growth = 2.0 * (1.0 - ACFGM_ALPHA) * step * L / tau + ACFGM_ALPHA / 2.0
        tau_old, tau = tau, tau + growth


def _first_step(
    fun: Evaluate, x0: Vector, g: Vector, prox: Prox
) -> tuple[float, Vector, float, Vector]:
    """Return AC-FGM's first step size, with step * L <= 1/3, and the point that it leads to."""
    step = first_length(x0, g)
    for _ in range(MOST_TRIALS):
        z = prox(x0 - step * g, step)
        value, gradient = fun(z)
        L = _secant(gradient - g, z - x0)
        if math.isfinite(value) and step * L <= 1.0 / 3.0:
            break
        step = min(step / 2.0, 1.0 / (4.0 * L)) if math.isfinite(L) else step / 10.0
    return step, z, value, gradient


def _secant(change: Vector, move: Vector) -> float:
    """Return ||g+ - g|| / ||x+ - x||, zero where nothing moved."""
    length = float(np.linalg.norm(move))
    return float(np.linalg.norm(change)) / length if length > 0 else 0.0


def _curvature(f: float, f_new: float, g: Vector, g_new: Vector, back: Vector) -> float:
    """Return ||g+ - g||^2 / (2 (f - f+ - <g+, x - x+>)), zero where rounding leaves nothing."""
    change = g_new - g
    above = f - f_new - float(g_new @ back)
    return float(change @ change) / (2.0 * above) if above > 0 else 0.0


def uni_fast_sgd(fun: Evaluate, x0: Vector, prox: Prox, distance: float) -> NoReturn:
    """Run UniFastSgd [2], whose D is told: here the distance to a minimiser.

    H_0 makes the first step as long as D: the paper's H_0 = 0 does so in a ball of that radius.
    """
    x = v = x0
    A, k, H = 0.0, 0, 0.0
    while True:
        a = (k + 1) / 2.0
        y = (A * x + a * v) / (A + a)
        g_y = fun(y)[1]
        if k == 0:
            H = a * float(np.linalg.norm(g_y)) / distance
        v_new = prox(v - a / H * g_y, a / H)
        x_new = (A * x + a * v_new) / (A + a)
        g_x = fun(x_new)[1]
        change = float(np.linalg.norm(g_x - g_y))
        H = math.hypot(H, a / distance * change)
        x, v, A, k = x_new, v_new, A + a, k + 1


def ad_gd(fun: Evaluate, x0: Vector, prox: Prox) -> NoReturn:
    """Run AdProxGD [3]: gradient descent with steps from the local curvature."""
    x, g = x0, fun(x0)[1]
    step = FIRST_STEP * first_length(x0, g)
    growth = 1.0 / 3.0
    x_new = prox(x - step * g, step)
    while True:
        g_new = fun(x_new)[1]
        L = _secant(g_new - g, x_new - x)
        excess = 2.0 * (step * L) ** 2 - 1.0
        longest = math.sqrt(2.0 / 3.0 + growth) * step
        following = min(longest, step / math.sqrt(excess)) if excess > 0 else longest
        growth = following / step
        step, x, g = following, x_new, g_new
        x_new = prox(x - step * g, step)
