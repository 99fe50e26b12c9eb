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
