"""
Stop and resume a run
=====================

A run writes checkpoints, is stopped, and resumes where it stopped. The result is the same, bit for
bit, as without the interruption. The file contains only numbers, so reading it runs no code.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import accelegrad as ag

rng = np.random.default_rng(0)
X = rng.standard_normal((5000, 20))
y = np.sign(X @ rng.standard_normal(20) + rng.standard_normal(5000))
model = ag.LinearModel(X, y, loss="logistic", l2=1e-3)
options = {"diameter": 10.0, "batch_size": 16, "rng": 1, "trace": True}

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "run.agc"
    stopped = ag.minimize(model, max_iter=1000, checkpoint=path, **options)
    resumed = ag.minimize(model, max_iter=3000, resume=path, **options)
at_once = ag.minimize(model, max_iter=3000, **options)
print("the same point:", np.array_equal(resumed.x, at_once.x))
assert np.array_equal(resumed.x, at_once.x)

plt.loglog(at_once.trace.iteration, at_once.trace.step, label="at once", linewidth=5, alpha=0.3)
plt.loglog(resumed.trace.iteration, resumed.trace.step, label="stopped and resumed")
plt.axvline(len(stopped.trace), color="tab:gray", linestyle=":", label="stopped here")
plt.xlabel("step")
plt.ylabel("step size")
plt.legend()
plt.show()
