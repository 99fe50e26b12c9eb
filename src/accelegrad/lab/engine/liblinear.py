"""LIBLINEAR, by way of scikit-learn: the dual solver for losses with kinks and an l2 term."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp

from accelegrad.errors import Vector
from accelegrad.problems.linear_model import LinearModel

#: The losses with kinks that it minimises.
LIBLINEAR_LOSSES = ("hinge", "absolute", "epsilon_insensitive")


def for_liblinear(X: Any) -> Any:
    """Return a matrix as LIBLINEAR takes it: a sparse one with indices of 32 bits."""
    if isinstance(X, np.ndarray) or X.indices.dtype == np.int32:
        return X
    parts = X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return sp.csr_matrix(parts, shape=X.shape)


def liblinear_minimiser(model: LinearModel, steps: int) -> Vector:
    """Return the minimiser for the hinge, the absolute or the epsilon-insensitive loss."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC, LinearSVR

    common = {
        "C": 1 / (model.l2 * model.n_samples),
        "tol": 1e-10,
        "max_iter": steps,
        "fit_intercept": False,
        "random_state": 0,
        "dual": True,
    }
    if model.loss.classification:
        solver = LinearSVC(loss="hinge", **common)
    else:
        zone = model.loss.shape.epsilon
        solver = LinearSVR(loss="epsilon_insensitive", epsilon=zone, **common)
    with warnings.catch_warnings():
        # How exact the minimum is, the caller tells by a bound beside it.
        warnings.simplefilter("ignore", ConvergenceWarning)
        solver.fit(for_liblinear(model.X), model.y)
    return np.ravel(solver.coef_).astype(np.float64)
