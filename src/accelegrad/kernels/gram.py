"""Weighted Gram matrices of CSR rows with few entries each."""

from __future__ import annotations

from typing import Any

from accelegrad.kernels.compile import kernel


@kernel
def add_gram(data: Any, indices: Any, indptr: Any, rows: Any, weights: Any, gram: Any) -> None:
    """Add weights[k] a_i a_i' for i = rows[k], in one triangle for each pair of entries."""
    for k in range(rows.size):
        i = rows[k]
        if weights[k] == 0.0:
            continue
        for e in range(indptr[i], indptr[i + 1]):
            row, factor = indices[e], weights[k] * data[e]
            for f in range(indptr[i], e):
                # Duplicate entries of a column count twice on the diagonal.
                twice = 2.0 if indices[f] == row else 1.0
                gram[row, indices[f]] += twice * factor * data[f]
            gram[row, row] += factor * data[e]
