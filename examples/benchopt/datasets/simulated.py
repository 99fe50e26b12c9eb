"""Rows with noise that has heavy tails."""

import numpy as np
from benchopt import BaseDataset


class Dataset(BaseDataset):
    """Generated rows."""

    name = "Simulated"
    parameters = {"n_samples, n_features": [(500, 30)], "seed": [0]}

    def get_data(self):
        """Return the rows."""
        rng = np.random.default_rng(self.seed)
        X = rng.standard_normal((self.n_samples, self.n_features))
        y = X @ rng.standard_normal(self.n_features) + rng.standard_t(2, self.n_samples)
        return {"X": X, "y": y}
