"""A direction by conjugate gradients as it is defined, without their recursion."""

import numpy as np


def direction(H, M, g, left):
    """Return the first iterate of conjugate gradients whose residual is small enough.

    The iterate after j products is the best point of the Krylov space of ``inv(M) H``, found here
    by solving for it.
    """
    space = [np.linalg.solve(M, g)]
    while True:
        basis, _ = np.linalg.qr(np.array(space).T)
        d = -basis @ np.linalg.solve(basis.T @ H @ basis, basis.T @ g)
        r = -g - H @ d
        if r @ np.linalg.solve(M, r) <= left**2 * (g @ np.linalg.solve(M, g)):
            return d
        space.append(np.linalg.solve(M, H @ basis[:, -1]))
