"""Adaptive first-order methods of others, as their papers state them.

Each is a plain loop that asks an oracle for values and gradients until the oracle ends it.
``fun(x)`` returns value and gradient, ``prox(x, step)`` the projection or the proximal point.

References
----------
.. [1] Li, Lan (2023). A simple uniformly optimal method without line search for convex
   optimization. arXiv:2310.10082. (AC-FGM)
.. [2] Malitsky, Mishchenko (2024). Adaptive proximal gradient method for convex optimization.
   NeurIPS. (AdProxGD, the proximal form of AdGD)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NoReturn

import numpy as np

from accelegrad.errors import Vector
from accelegrad_lab.functions.formulas import Evaluate

Prox = Callable[[Vector, float], Vector]

MOST_TRIALS = 200  # of a search for a first step: it need not end on functions with kinks
ACFGM_ALPHA = 0.1  # its authors try 0, 0.1 and 0.5
ACFGM_BETA = 1.0 - math.sqrt(6.0) / 3.0  # the largest that its theorem allows


def first_length(x0: Vector, gradient: Vector) -> float:
    """Return the step size with which a first step is as long as x0, or 1."""
    slope = float(np.linalg.norm(gradient))
    return max(1.0, float(np.linalg.norm(x0))) / slope if slope > 0 else 1.0


def ac_fgm(fun: Evaluate, x0: Vector, prox: Prox, epsilon: float) -> NoReturn:
    """Run AC-FGM [1]: accelerated, with the curvature that the last two points show.

    `epsilon`, the accuracy wanted, is for functions that are not smooth.
    """
    g = fun(x0)[1]
    L, step, x_new, f_new, g_new = _first_step(fun, x0, g, prox, epsilon)
    y = x0
    step = min((1.0 - ACFGM_BETA) * step, 1.0 / (4.0 * L))
    tau_old, tau = 0.0, 1.0
    while True:
        x, f, g = x_new, f_new, g_new
        longest = min(4.0 / 3.0, (tau_old + 1.0) / tau) * step
        step = min(longest, tau / (4.0 * L)) if L > 0 else longest
        growth = 2.0 * (1.0 - ACFGM_ALPHA) * step * L / tau + ACFGM_ALPHA / 2.0
        tau_old, tau = tau, tau + growth
        z = prox(y - step * g, step)
        y = (1.0 - ACFGM_BETA) * y + ACFGM_BETA * z
        x_new = (z + tau * x) / (1.0 + tau)
        f_new, g_new = fun(x_new)
        change = g_new - g
        above = 2.0 * (f - f_new - float(g_new @ (x - x_new))) + epsilon / tau
        L = float(change @ change) / above if above > 0 else 0.0


def _first_step(
    fun: Evaluate, x0: Vector, g: Vector, prox: Prox, epsilon: float
) -> tuple[float, float, Vector, float, Vector]:
    """Return AC-FGM's first L and step size, and the point that they lead to.

    The search begins with a quarter of the curvature that a probe finds, as its authors' does.
    """
    length = first_length(x0, g)
    probe = prox(x0 - length * g, length)
    L = (_secant(fun(probe)[1] - g, probe - x0) or 1.0 / length) / 4.0
    for _ in range(MOST_TRIALS):
        step = 1.0 / (2.5 * L)
        x = prox(x0 - step * g, step)
        value, gradient = fun(x)
        change, move = gradient - g, x - x0
        if float(change @ change) / L <= L * float(move @ move) + epsilon / 2.0:
            break
        L *= 1.5
    return L, step, x, value, gradient


def _secant(change: Vector, move: Vector) -> float:
    """Return ||g+ - g|| / ||x+ - x||, zero where nothing moved."""
    length = float(np.linalg.norm(move))
    return float(np.linalg.norm(change)) / length if length > 0 else 0.0


def ad_gd(fun: Evaluate, x0: Vector, prox: Prox) -> NoReturn:
    """Run AdProxGD [2]: gradient descent with steps from the local curvature.

    The first step is searched for until its product with the curvature is in [1/sqrt 2, 2], the
    paper's (16).
    """
    x, g = x0, fun(x0)[1]
    step, growth = first_length(x0, g), 1.0 / 3.0
    for _ in range(MOST_TRIALS):
        x_new = prox(x - step * g, step)
        g_new = fun(x_new)[1]
        L = _secant(g_new - g, x_new - x)
        if math.sqrt(0.5) <= step * L <= 2.0 or L == 0.0:
            break
        step = min(1.0 / L, 10.0 * step)
    while True:
        excess = 2.0 * (step * L) ** 2 - 1.0
        longest = math.sqrt(2.0 / 3.0 + growth) * step
        following = min(longest, step / math.sqrt(excess)) if excess > 0 else longest
        growth = following / step
        step, x, g = following, x_new, g_new
        x_new = prox(x - step * g, step)
        g_new = fun(x_new)[1]
        L = _secant(g_new - g, x_new - x)
