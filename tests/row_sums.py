"""Problems for sums over rows, and their minima by trusted solvers."""

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog, minimize

from accelegrad import LinearModel

Q, EPS, DELTA = 0.3, 0.25, 0.8
EXTRAS = {"quantile": Q, "epsilon": EPS, "delta": DELTA}
CLASSIFICATION = ["logistic", "squared_hinge", "modified_huber", "hinge"]
SMOOTH = [*CLASSIFICATION[:3], "squared", "huber", "squared_epsilon_insensitive"]
KINKED = ["hinge", "absolute", "quantile", "epsilon_insensitive"]
LOSSES = SMOOTH + KINKED
FORMS = {"C": np.ascontiguousarray, "F": np.asfortranarray, "csr": sp.csr_array}
# The pieces of each loss with kinks: slopes and values at m = 0.
PIECES = {
    "hinge": lambda t: [(0.0, 0.0), (-t, 1.0)],
    "absolute": lambda t: [(1.0, -t), (-1.0, t)],
    "quantile": lambda t: [(-Q, Q * t), (1.0 - Q, -(1.0 - Q) * t)],
    "epsilon_insensitive": lambda t: [(0.0, 0.0), (1.0, -t - EPS), (-1.0, t - EPS)],
}


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
    n, k = A.shape
    rows, limits = [], []
    for i in range(n):
        for slope, offset in PIECES[model.loss.name](float(model.y[i])):
            rows.append(np.concatenate([slope * A[i], -np.eye(n)[i]]))
            limits.append(-offset)
    costs, ends = np.concatenate([np.zeros(k), model.shares]), [(None, None)] * (k + n)
    found = linprog(costs, A_ub=np.array(rows), b_ub=limits, bounds=ends, method="highs")
    assert found.success, found.message
    assert model.value(found.x[:k]) <= found.fun * (1.0 + 1e-9)
    return found.x[:k]
