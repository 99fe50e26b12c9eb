"""Check the data of a linear model and convert them to the form it uses."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from accelegrad.errors import Vector, finite_vector, real_array
from accelegrad.models.losses import Loss
from accelegrad.models.matrix import BLOCK_ENTRIES, runs


def design_matrix(given: Any, *, checked: bool = False) -> Any:
    """Return X as a dense or CSR matrix of floats; `checked` says that they are finite."""
    X: Any = given if sp.issparse(given) else real_array("X", given)
    real_array("X", np.empty(0, X.dtype))
    if X.ndim != 2:
        raise ValueError(f"X must be two-dimensional, but its shape is {X.shape}.")
    if 0 in X.shape:
        raise ValueError(
            f"X must have at least one row and one column, but its shape is {X.shape}."
        )
    dense = isinstance(X, np.ndarray)
    if not dense:
        X = X.tocsr()
        if not checked:
            check_places(X)
    if X.dtype not in (np.float32, np.float64):
        X = X.astype(np.float64)
    if dense and not (X.flags.aligned and min(X.strides) == X.itemsize):
        X = np.ascontiguousarray(X)  # NumPy would not use BLAS: one copy now saves much time later
    if not checked:
        entries = X if dense else X.data
        with np.errstate(over="ignore", invalid="ignore"):
            total = entries.sum(dtype=np.float64)
        if not np.isfinite(total):  # otherwise all entries are finite
            _refuse_bad_row(X, entries)
    return X


def check_places(X: Any) -> None:
    """Refuse CSR indices outside the matrix, where kernels would read or write."""
    if (np.diff(X.indptr) < 0).any():
        raise ValueError("X must have an indptr that does not fall, but it does.")
    columns = X.indices[: X.indptr[-1]]
    # As unsigned numbers, negative ones are the largest.
    if columns.size and columns.view(f"u{columns.itemsize}").max() >= X.shape[1]:
        raise ValueError(
            f"X must have column numbers from 0 to {X.shape[1] - 1}, but it has numbers from "
            f"{columns.min()} to {columns.max()}."
        )


def _refuse_bad_row(X: Any, entries: Any) -> None:
    for block in runs(len(entries), BLOCK_ENTRIES * len(entries) // entries.size):
        bad = np.argwhere(~np.isfinite(entries[block]))
        if bad.size:
            row = int(block.start + bad[0, 0])
            if entries is not X:
                row = int(np.searchsorted(X.indptr, row, "right")) - 1
            raise ValueError(f"X must be finite, but row {row} has an entry that is not.")


def targets(given: npt.ArrayLike, n_samples: int, loss: Loss) -> Vector:
    """Return y in float64."""
    y = finite_vector("y", given)
    if y.size != n_samples:
        raise ValueError(f"y must have one entry per row of X, {n_samples}, but it has {y.size}.")
    check_labels(y, loss)
    return y


def check_labels(y: Vector, loss: Loss) -> None:
    """Refuse targets that are not labels if the loss needs labels."""
    if loss.classification and not (np.abs(y) == 1.0).all():
        seen = np.unique(y)
        labels = ", ".join(f"{label:g}" for label in seen[:5]) + (", ..." if seen.size > 5 else "")
        raise ValueError(
            f"y must hold the labels -1 and +1 for the loss {loss.name!r}, but it holds {labels}. "
            "Labels 0 and 1 are mapped by 2 * y - 1."
        )


def checked_weights(
    given: npt.ArrayLike | None, n_samples: int, *, all_may_be_zero: bool = False
) -> Vector | None:
    """Return the sample weights in float64."""
    if given is None:
        return None
    weights = finite_vector("sample_weight", given, least=0.0)
    if weights.size != n_samples:
        raise ValueError(
            f"sample_weight must have one entry per row of X, {n_samples}, but it has "
            f"{weights.size}."
        )
    if weights.max() == 0.0 and not all_may_be_zero:
        raise ValueError("sample_weight must have an entry > 0, but all of them are 0.")
    return weights


def row_shares(weights: Vector | None, n_samples: int) -> Vector:
    """Return the rows' shares p_i, which sum to 1."""
    if weights is None:
        return np.full(n_samples, 1.0 / n_samples)
    # Divided by the largest first: the sum of huge weights would overflow.
    relative: Vector = weights / weights.max()
    relative /= relative.sum()
    return relative
