"""
Choose a batch size
===================

Small batches make fast progress at first. Large batches reach a smaller error.
"""

import matplotlib.pyplot as plt
import numpy as np

import accelegrad as ag

rng = np.random.default_rng(0)
X = rng.standard_normal((4000, 30))
y = np.where(X @ rng.standard_normal(30) + rng.logistic(size=4000) > 0, 1.0, -1.0)
model = ag.LinearModel(X, y, "logistic", l2=1e-4)
least, epochs = ag.minimize(model, tol=1e-10).fun, 5

for size in (1, 32, 512):
    steps, errors = epochs * len(y) // size, {}

    def note(intermediate_result, errors=errors):
        errors[intermediate_result.rows] = model.value(intermediate_result.x_average) - least

    at = np.unique(np.logspace(0, np.log10(steps), 80).astype(int))
    ag.minimize(model, method="accelegrad", batch_size=size, max_iter=steps, rng=0,
                callback=note, callback_at=at)  # fmt: skip
    rows = np.array([count for count in errors if count <= epochs * len(y)])
    plt.loglog(rows / len(y), [errors[count] for count in rows], label=f"batch_size={size!r}")
plt.gca().xaxis.set_minor_formatter("")
plt.xlabel("passes over the data")
plt.ylabel("error of the average")
plt.legend()
plt.show()
