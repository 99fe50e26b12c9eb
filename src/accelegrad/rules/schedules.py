"""Weights and step sizes, written with operators only.

No branch looks at a value: Python numbers, NumPy, torch and JAX arrays all work and can be traced.
"""

from __future__ import annotations

from typing import Any

#: The torch and optax optimizers divide gradients that are larger than this or smaller than its
#: inverse by a power of two, which keeps sums of squares in the range of float32 and changes no
#: step. Chosen: entries 1e20 times smaller than the largest count, and later gradients may be 1e7
#: times larger.
LARGEST_SIZE = 2.0**20


def importance_weight(t: Any) -> Any:
    r"""AcceleGrad's :math:`\alpha_t`: 1 for t <= 2, then (t+1)/4 (eq. 2 of the paper)."""
    return (t < 3) + (t >= 3) * ((t + 1) / 4)


def adaptive_step(scale: Any, total: Any) -> Any:
    """Return scale / sqrt(total), and zero where the total (hence every gradient) is zero."""
    zero = total == 0
    # With a bare root as denominator XLA would compute a slower reciprocal root.
    # The order matters: torch makes a number times a truth value float32.
    return scale / ((total + zero) ** 0.5 + zero) * (total > 0)


def accelegrad_step(diameter: Any, gradient_bound: Any, weighted_squares: Any) -> Any:
    r""":math:`\eta_t = 2D / (G^2 + \sum_{s \le t} \alpha_s^2 \|g_s\|^2)^{1/2}` (eq. 2)."""
    return adaptive_step(2 * diameter, gradient_bound * gradient_bound + weighted_squares)


def adagrad_step(diameter: Any, squares: Any) -> Any:
    r""":math:`\eta_t = D / (2 \sum_{s \le t} \|g_s\|^2)^{1/2}` (Alg. 1)."""
    return adaptive_step(diameter, 2 * squares)


def fast_gradient_weight(smoothness: Any, total: Any) -> Any:
    """Return the positive root a of M a^2 = A + a (the universal fast gradient method)."""
    return (1 + (1 + 4 * smoothness * total) ** 0.5) / (2 * smoothness)
