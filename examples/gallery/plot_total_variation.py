"""
Total variation: a signal with jumps
====================================

The objective is the squared distance to noisy data plus the sum of all jumps. The second term has
one kink per pair of neighbours, and most of these kinks are active at the minimiser.
"""

import matplotlib.pyplot as plt
import numpy as np

import accelegrad as ag

rng = np.random.default_rng(3)
signal = np.repeat([0.0, 2.0, 1.0, 3.0, 0.5], 20)
noisy = signal + 0.4 * rng.standard_normal(100)


def objective(x):
    jumps = np.diff(x)
    sign = 0.8 * np.sign(jumps)
    gradient = x - noisy
    gradient[:-1] -= sign
    gradient[1:] += sign
    return ((x - noisy) ** 2).sum() / 2 + 0.8 * np.abs(jumps).sum(), gradient


result = ag.minimize(objective, noisy, tol=1e-3, max_iter=3000)
print(f"{result.nfev} gradients, {result.message}")
assert result.success

plt.plot(noisy, ".", color="tab:gray", label="data")
plt.step(range(100), signal, color="black", where="mid", label="truth")
plt.step(range(100), result.x, color="tab:blue", where="mid", label="minimiser")
plt.legend()
plt.show()
