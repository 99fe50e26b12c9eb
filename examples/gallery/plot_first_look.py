"""
A first look: one method for smooth and non-smooth functions
============================================================

AcceleGrad, AdaGrad, L-BFGS-B and accelegrad's default minimise a smooth function and a non-smooth
one. The default is a bundle method with AcceleGrad as a safeguard. No method knows which function
is smooth. AcceleGrad *proves* that its error lies in the shaded band.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize as scipy_minimize

import accelegrad as ag

rng = np.random.default_rng(0)
A = rng.standard_normal((200, 20)) * np.logspace(0, -1.5, 20)  # columns of different scales
b = A @ rng.standard_normal(20) + rng.standard_normal(200)


def smooth(x):
    r = A @ x - b
    return np.sqrt(1 + r**2).sum(), A.T @ (r / np.sqrt(1 + r**2))


def kinked(x):
    r = A @ x - b
    return np.abs(r).sum(), A.T @ np.sign(r)


# %%
# SciPy's L-BFGS-B keeps no trace, so the function records the lowest value after each call.


def lowest_values(fun, x0):
    lowest = []

    def recorded(x):
        value, gradient = fun(x)
        lowest.append(min(value, lowest[-1]) if lowest else value)
        return value, gradient

    scipy_minimize(recorded, x0, jac=True, method="L-BFGS-B", options={"maxiter": 300})
    return np.array(lowest)


# %%
# AcceleGrad determines its diameter itself. AdaGrad is given a suitable one.

x0, steps = np.zeros(20), 400
figure, panels = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True, layout="constrained")
for panel, fun, title in zip(panels, (smooth, kinked), ("smooth", "with kinks"), strict=True):
    minimum = ag.minimize(fun, x0, max_iter=5000).lower_bound
    runs = {
        "AcceleGrad": ag.minimize(fun, x0, method="accelegrad", max_iter=steps, trace=True),
        "AdaGrad": ag.minimize(
            fun, x0, method="adagrad", diameter=10.0, max_iter=steps, trace=True
        ),
        "the default": ag.minimize(fun, x0, tol=1e-10, trace=True),
    }
    proved = runs["AcceleGrad"].trace
    panel.fill_between(proved.calls, 1e-9, proved.gap, alpha=0.2, label="proved: at most")
    for name, run in runs.items():
        error = np.minimum.accumulate(run.trace.value) - minimum
        panel.plot(run.trace.calls, np.maximum(error, 1e-10), label=name)
    panel.plot(lowest_values(fun, x0) - minimum, label="L-BFGS-B (SciPy)")
    panel.set(title=title, yscale="log", ylim=(1e-9, 1e3), xlim=(0, steps), xlabel="gradients")
panels[0].set_ylabel("error")
figure.legend(
    *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=8
)
plt.show()

# %%
# The result says what a run proves.

result = ag.minimize(kinked, x0, tol=1e-8)
print(f"{result.method}: {result.nfev} calls, {result.message}")
assert result.success
