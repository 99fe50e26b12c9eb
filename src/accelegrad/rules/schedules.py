"""The weights and step sizes, written once, with operators only.

They take Python numbers, NumPy scalars, torch or JAX arrays alike: no branch looks at a value, so
that the same lines can be traced and compiled.
"""

from __future__ import annotations

from typing import Any

#: Gradients of a size between these are left as they are by the torch and optax optimizers; others
#: are divided by a power of two, found at the first of them. No step depends on their size, but
#: sums of their squares have to stay in the range of float32. Chosen: entries 1e20 times smaller
#: than the largest count, and later gradients may be 1e7 times larger.
SMALLEST_SIZE, LARGEST_SIZE = 2.0**-20, 2.0**20


def importance_weight(t: Any) -> Any:
    r"""AcceleGrad's :math:`\alpha_t`: 1 for t <= 2, then (t+1)/4 (eq. 2 of the paper)."""
    return (t < 3) + (t >= 3) * ((t + 1) / 4)


def adaptive_step(scale: Any, total: Any) -> Any:
    r"""Return scale / sqrt(total), and zero where the total is zero.

    A total of zero means that every gradient so far was zero: whatever the step, nothing moves.
    """
    zero = total == 0
    # Of a root alone as denominator XLA would make a reciprocal root, which takes it longer.
    # In this order: torch takes a number times a truth value for float32.
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
