"""
Choose an output
================

A run can return three points: the last iterate, the average from the theorem, or the best point
evaluated. With exact values the best point is known. With noisy values it is not, and the average
is the better choice: ``output="auto"`` takes it.
"""

import matplotlib.pyplot as plt
import numpy as np

import accelegrad as ag

rng = np.random.default_rng(0)
X = rng.standard_normal((2000, 20))
y = np.where(X @ rng.standard_normal(20) + rng.logistic(size=2000) > 0, 1.0, -1.0)
model = ag.LinearModel(X, y, "logistic", l2=1e-3)
least = ag.minimize(model, tol=1e-10).fun
steps = np.unique(np.logspace(0, 4, 50).astype(int))

figure, panels = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained")
for panel, size in zip(panels, (None, 1), strict=True):
    errors = {"last": [], "average": []}

    def note(intermediate_result, errors=errors):
        for name, found in errors.items():
            found.append(model.value(intermediate_result[f"x_{name}"]) - least)

    ag.minimize(
        model,
        method="accelegrad",
        batch_size=size,
        max_iter=int(steps[-1]),
        rng=0,
        callback=note,
        callback_at=steps,
    )
    for name, found in errors.items():
        panel.loglog(steps[: len(found)], np.maximum(found, 1e-16), label=name)
    title = "exact gradients" if size is None else "gradients of single rows"
    panel.set(title=title, xlabel="steps")
panels[0].set_ylabel("error")
panels[1].legend()
plt.show()
