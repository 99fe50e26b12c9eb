"""accelegrad: `minimize` on the function, or on the linear model."""

import numpy as np
from benchopt import BaseSolver

import accelegrad as ag


class Solver(BaseSolver):
    """What accelegrad finds within a number of iterations."""

    name = "accelegrad"
    requirements = ["pip::accelegrad"]
    sampling_strategy = "iteration"
    parameters = {"given": ["function", "model"]}

    def set_objective(self, X, y):
        """Take the problem: as a function with gradients, or as data."""
        self.start = np.zeros(X.shape[1])

        def mean_deviation(w):
            r = X @ w - y
            return np.abs(r).mean(), X.T @ np.sign(r) / len(y)

        model = ag.LinearModel(X, y, loss="absolute")
        self.problem = mean_deviation if self.given == "function" else model

    def run(self, n_iter):
        """Do so many iterations."""
        self.w = self.start
        if n_iter > 0:
            self.w = ag.minimize(self.problem, self.start, max_iter=n_iter).x

    def get_result(self):
        """Return the answer."""
        return {"w": self.w}
