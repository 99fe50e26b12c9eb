"""The losses' formulas, for tests that compute an objective anew; nothing of the package is imported."""

import numpy as np

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
