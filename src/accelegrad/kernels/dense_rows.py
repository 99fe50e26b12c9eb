"""What the kernels on dense rows share."""

from __future__ import annotations

from typing import Any

from accelegrad.kernels.compile import summing


@summing
def row_product(X: Any, i: int, x: Any) -> float:
    """Return a_i.x over the features."""
    total = 0.0
    for j in range(X.shape[1]):
        total += X[i, j] * x[j]
    return total


@summing
def add_row(X: Any, i: int, c: float, g: Any) -> None:
    """Add c a_i to g."""
    for j in range(X.shape[1]):
        g[j] += c * X[i, j]


@summing
def move(z: Any, step: float, g: Any, x0: Any) -> float:
    """Move z by -step g; return its squared distance from x0."""
    total = 0.0
    for j in range(z.size):
        z[j] -= step * g[j]
    for j in range(z.size):
        total += (z[j] - x0[j]) * (z[j] - x0[j])
    return total
