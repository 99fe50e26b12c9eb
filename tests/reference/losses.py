"""The losses' formulas, for tests that compute an objective anew; nothing of the package is imported."""

import numpy as np
from scipy.optimize import linprog

#: Which parameter a loss has, where it has one.
PARAMETER = {
    "huber": "delta",
    "quantile": "quantile",
    "epsilon_insensitive": "epsilon",
    "squared_epsilon_insensitive": "epsilon",
}
#: Scikit-learn's names of losses that have another one here.
OTHER_NAMES = {"log_loss": "logistic", "squared_error": "squared", "absolute_error": "absolute"}


def loss_values(name, m, y, kind=np, parameter=None):
    """Return l(m, y) of the ten losses; `parameter` is the quantile, epsilon or delta.

    `kind` has `exp` and `log1p` for arrays of this precision.
    """
    if name == "logistic":
        z = y * m
        return kind.log1p(kind.exp(-abs(z))) - np.minimum(z, 0)
    if name in ("hinge", "squared_hinge", "modified_huber"):
        short = np.maximum(1 - y * m, 0)
        if name == "hinge":
            return short
        if name == "squared_hinge":
            return short * short
        return np.where(y * m >= -1, short * short, -4 * y * m)
    r = m - y
    if name == "squared":
        return r * r / 2
    if name == "absolute":
        return abs(r)
    if name == "huber":
        return np.where(abs(r) <= parameter, r * r / 2, parameter * (abs(r) - parameter / 2))
    if name == "quantile":
        return np.maximum(-parameter * r, (1 - parameter) * r)
    excess = np.maximum(abs(r) - parameter, 0)
    if name == "epsilon_insensitive":
        return excess
    assert name == "squared_epsilon_insensitive", name
    return excess * excess


def minimiser_by_highs(name, X, y, shares, parameter=0.0):
    """Return the minimiser of sum_i shares_i l(x_i w, y_i) of a loss with kinks, by HiGHS.

    None if it gives up, as it may where numbers differ by very much.
    """
    n, size = X.shape
    # t_i >= slope (m_i - y_i) - epsilon on either side; the hinge's 1 - y m is y (y - m).
    slopes = {"hinge": (-y,), "quantile": (np.full(n, 1 - parameter), np.full(n, -parameter))}
    sides = slopes.get(name, (np.ones(n), -np.ones(n)))
    width = parameter if name == "epsilon_insensitive" else 0.0
    A = np.vstack([np.column_stack([side[:, None] * X, -np.eye(n)]) for side in sides])
    b = np.concatenate([side * y + width for side in sides])
    bounds = [(None, None)] * size + [(0, None)] * n
    found = linprog(np.r_[np.zeros(size), shares], A_ub=A, b_ub=b, bounds=bounds, method="highs")
    return None if found.x is None else found.x[:size]
