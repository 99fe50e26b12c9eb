"""Weighted Gram matrices of CSR rows with few entries each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from accelegrad.kernels.arrays import read_only
from accelegrad.kernels.compile import Call, announces, csr_layouts, kernel
from accelegrad.kernels.steps import NO_ROWS


@kernel
def add_gram(data: Any, indices: Any, indptr: Any, rows: Any, weights: Any, gram: Any) -> None:
    """Add weights[k] a_i a_i' for i = rows[k], each pair of entries in one of its two places."""
    for k in range(rows.size):
        i = rows[k]
        if weights[k] == 0.0:
            continue
        for e in range(indptr[i], indptr[i + 1]):
            row, factor = indices[e], weights[k] * data[e]
            for f in range(indptr[i], e):
                # An entry that is stored in pieces stands twice on the diagonal.
                twice = 2.0 if indices[f] == row else 1.0
                gram[row, indices[f]] += twice * factor * data[f]
            gram[row, row] += factor * data[e]


@announces
def _calls() -> Iterator[Call]:
    """Yield a call for rows of all the types that there are kernels for."""
    for end, matrix in csr_layouts():
        arguments = (*matrix, NO_ROWS, read_only(np.empty(0)), np.zeros((1, 1)))
        yield Call(f"Gram matrix, {end}", add_gram, arguments)
