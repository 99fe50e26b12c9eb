"""
A portfolio on the simplex
==========================

Find nonnegative weights that sum to one and have the smallest mean absolute deviation. The problem
is non-smooth and constrained.
"""

import matplotlib.pyplot as plt
import numpy as np

import accelegrad as ag

rng = np.random.default_rng(0)
market = rng.standard_normal((500, 1))
returns = 0.01 * (market * rng.uniform(0.5, 1.5, 30) + rng.standard_normal((500, 30)))
centred = 1e3 * (returns - returns.mean(axis=0))  # in thousandths


def deviation(weights):
    daily = centred @ weights
    return np.abs(daily).mean(), centred.T @ np.sign(daily) / len(daily)


equal = np.full(30, 1 / 30)
best = ag.minimize(deviation, equal, feasible_set=ag.Simplex(), tol=1e-4)
assert best.success
print(f"equal weights {deviation(equal)[0]:.3f}, best {best.fun:.3f}")
print(f"{best.message} No portfolio is below {best.lower_bound:.3f}.")

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
left.bar(range(30), best.x)
left.set(xlabel="asset", ylabel="weight")
for weights, name in ((equal, "equal weights"), (best.x, "best")):
    right.hist(centred @ weights, bins=40, alpha=0.5, label=name)
right.set(xlabel="daily return, centred (thousandths)")
right.legend()
plt.show()
