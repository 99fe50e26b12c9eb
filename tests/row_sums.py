"""Problems for sums over rows, and their minima by trusted solvers."""

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize

from accelegrad import LinearModel
from reference.losses import minimiser_by_highs

Q, EPS, DELTA = 0.3, 0.25, 0.8
EXTRAS = {"quantile": Q, "epsilon": EPS, "delta": DELTA}
CLASSIFICATION = ["logistic", "squared_hinge", "modified_huber", "hinge"]
SMOOTH = [*CLASSIFICATION[:3], "squared", "huber", "squared_epsilon_insensitive"]
KINKED = ["hinge", "absolute", "quantile", "epsilon_insensitive"]
LOSSES = SMOOTH + KINKED
FORMS = {"C": np.ascontiguousarray, "F": np.asfortranarray, "csr": sp.csr_array}


def data(loss, n=23, d=5, seed=0, dtype=np.float64):
    """Return a matrix with zeros and an empty row, and noisy targets or labels (not separable)."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.8)
    X[3] = 0.0
    noisy = X @ rng.normal(size=d) + rng.standard_t(3, size=n) + 0.3
    labels = np.where(noisy + 2.0 * rng.normal(size=n) > 0, 1.0, -1.0)
    return X.astype(dtype), (labels if loss in CLASSIFICATION else noisy)


def weights_with_zeros(n, seed=7):
    return np.random.default_rng(seed).integers(0, 4, n).astype(float)


def model_of(loss, X, y, **options):
    return LinearModel(X, y, loss, **EXTRAS, **options)


def best(model):
    """Return the minimiser: by BFGS, or by HiGHS for a loss with kinks without an l2 term."""
    if model.loss.name not in KINKED:
        options = {"gtol": 1e-11, "maxiter": 5000}
        start = np.zeros(model.n_parameters)
        return minimize(model.value_and_gradient, start, jac=True, method="BFGS", options=options).x
    assert model.l2 == 0.0
    X = (model.X.toarray() if sp.issparse(model.X) else model.X).astype(np.float64)
    A = np.column_stack([X, np.ones(len(X))]) if model.fit_intercept else X
    parameter = {"quantile": Q, "epsilon_insensitive": EPS}.get(model.loss.name, 0.0)
    return minimiser_by_highs(model.loss.name, A, model.y, model.shares, parameter)
