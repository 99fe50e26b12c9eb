"""
Data larger than memory
=======================

``fit`` takes a file instead of rows and targets, and reads it chunk by chunk, several times.
X is never in memory as a whole, and the gap is proved as for data in memory.
"""

import tempfile
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import dump_svmlight_file
from sklearn.exceptions import ConvergenceWarning

from accelegrad.sklearn import AcceleGradClassifier

rng = np.random.default_rng(0)
X = rng.standard_normal((4000, 20))
y = X @ rng.standard_normal(20) + rng.logistic(size=4000) > 0

steps, gaps, objectives = (1, 2, 3, 4), [], []
with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
    warnings.simplefilter("ignore", ConvergenceWarning)  # the first fits stop too early
    path = Path(folder) / "rows.svm"
    dump_svmlight_file(X, y.astype(int), str(path), zero_based=False)
    for most in steps:
        model = AcceleGradClassifier(
            "log_loss", alpha=1e-3, tol=1e-8, max_iter=most, random_state=0
        )
        model.fit(path)
        objectives.append(model.objective_)
        gaps.append(model.gap_)

best = AcceleGradClassifier("log_loss", alpha=1e-3, tol=1e-10).fit(X, y).objective_
plt.semilogy(steps, gaps, "o--", label="proved: at most")
plt.semilogy(steps, np.maximum(np.array(objectives) - best, 1e-16), "o-", label="error")
plt.xlabel("steps, of about three passes over the file")
plt.xticks(steps)
plt.legend()
plt.show()
