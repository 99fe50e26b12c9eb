"""
Quantile regression on a million rows
=====================================

Quantile regression is a linear programme with one row per observation. Here it is one call, and the
result bounds the distance from the optimal objective.
"""

import time

import matplotlib.pyplot as plt
import numpy as np

from accelegrad.sklearn import AcceleGradRegressor

rng = np.random.default_rng(0)
n = 1_000_000
hour = rng.uniform(0, 24, n)
X = np.column_stack([np.cos(2 * np.pi * hour / 24), np.sin(2 * np.pi * hour / 24)])
y = 30 + 8 * X[:, 0] + 3 * X[:, 1] + (4 + 3 * X[:, 1]) * rng.standard_t(4, n)

begun = time.process_time()
high = AcceleGradRegressor("quantile", quantile=0.9, alpha=0.0).fit(X, y)
print(f"{n:,} rows: {time.process_time() - begun:.1f} s of processor time")
print(f"proved to be within {high.gap_ / high.objective_:.1e} of the best, relatively")
assert high.converged_

some = rng.choice(n, 3000, replace=False)
order = np.argsort(hour[some])
plt.plot(hour[some], y[some], ".", markersize=2, color="tab:gray")
plt.plot(hour[some][order], high.predict(X[some][order]), label="90 % quantile")
plt.ylim(0, 70)
plt.xlabel("hour")
plt.legend()
plt.show()
