"""
Data that stay on disk
======================

``fit_stream`` reads a file chunk by chunk, several times over. Never more than a chunk is in
memory. At the end it reads the file once more and proves how good the fit is.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import dump_svmlight_file

from accelegrad.sklearn import AcceleGradClassifier
from accelegrad.sklearn.stream import fit_stream

rng = np.random.default_rng(0)
X = rng.standard_normal((4000, 20))
y = X @ rng.standard_normal(20) + rng.logistic(size=4000) > 0

epochs, gaps, objectives = (1, 2, 4, 8), [], []
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "rows.svm"
    dump_svmlight_file(X, y.astype(int), str(path), zero_based=False)
    for count in epochs:
        model = AcceleGradClassifier("log_loss", alpha=1e-3, random_state=0)
        done = fit_stream(model, path, epochs=count, chunk_rows=500)
        objectives.append(done.estimator.objective_)
        gaps.append(done.estimator.gap_)

best = AcceleGradClassifier("log_loss", alpha=1e-3, tol=1e-8).fit(X, y).objective_
plt.semilogy(epochs, gaps, "o--", label="proved: at most")
plt.semilogy(epochs, np.array(objectives) - best, "o-", label="error")
plt.xlabel("passes over the file")
plt.legend()
plt.show()
