"""SciPy's L-BFGS-B, as it comes."""

import numpy as np
from benchopt import BaseSolver
from scipy.optimize import minimize


class Solver(BaseSolver):
    """What L-BFGS-B finds within a number of iterations."""

    name = "L-BFGS-B"
    sampling_strategy = "iteration"

    def set_objective(self, X, y):
        """Take the problem."""
        self.X, self.y = X, y

    def _mean_deviation(self, w):
        r = self.X @ w - self.y
        return np.abs(r).mean(), self.X.T @ np.sign(r) / len(self.y)

    def run(self, n_iter):
        """Do so many iterations."""
        self.w = np.zeros(self.X.shape[1])
        if n_iter > 0:
            options = {"maxiter": n_iter}
            found = minimize(
                self._mean_deviation, self.w, jac=True, method="L-BFGS-B", options=options
            )
            self.w = found.x

    def get_result(self):
        """Return the answer."""
        return {"w": self.w}
