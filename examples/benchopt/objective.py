"""Least absolute deviations: the mean of |X w - y|, and what accelegrad proves about it."""

import numpy as np
from benchopt import BaseObjective


class Objective(BaseObjective):
    """The objective that all solvers are judged by."""

    name = "Least absolute deviations"
    min_benchopt_version = "1.6"

    def set_data(self, X, y):
        """Take the data."""
        self.X, self.y = X, y

    def evaluate_result(self, w):
        """Return the value of a solver's answer."""
        return {"value": float(np.abs(self.X @ w - self.y).mean())}

    def get_one_result(self):
        """Return an answer, for benchopt's own tests."""
        return {"w": np.zeros(self.X.shape[1])}

    def get_objective(self):
        """Return what solvers get."""
        return {"X": self.X, "y": self.y}
