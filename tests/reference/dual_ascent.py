"""Dual coordinate ascent, transcribed: every w is computed anew from all slopes.

Each coordinate is maximised numerically, on the dual function itself.
"""

import numpy as np
from scipy.optimize import minimize_scalar


def weights_of(theta, X, p, l2):
    return -sum(p[i] * theta[i] * X[i] for i in range(len(theta))) / l2


def dual(theta, X, p, l2, conjugates):
    w = weights_of(theta, X, p, l2)
    costs = sum(p[i] * conjugates[i](theta[i]) for i in range(len(theta)))
    return -costs - l2 / 2 * (w @ w)


def dual_ascent(X, p, l2, conjugates, domains, orders):
    """Return the slopes after each epoch, from zeros; domains are where conjugates are finite."""
    theta = np.zeros(len(p))
    found = []
    for order in orders:
        for i in order:

            def fall(t, i=i, now=theta):
                return -dual(np.r_[now[:i], t, now[i + 1 :]], X, p, l2, conjugates)

            best = minimize_scalar(
                fall, bounds=domains[i], method="bounded", options={"xatol": 1e-13, "maxiter": 500}
            )
            theta = np.r_[theta[:i], best.x, theta[i + 1 :]]
        found.append(theta)
    return found
