"""
Logistic regression with nonnegative coefficients
=================================================

Some effects have a known sign. ``feasible_set="nonnegative"`` makes the coefficients nonnegative,
and the gap is still proved.
"""

import matplotlib.pyplot as plt
import numpy as np

from accelegrad.sklearn import AcceleGradClassifier

rng = np.random.default_rng(0)
X = np.abs(rng.standard_normal((400, 15)))
weights = np.maximum(rng.standard_normal(15), 0)
y = X @ weights - (X @ weights).mean() + rng.logistic(size=400) > 0

free = AcceleGradClassifier(alpha=1e-3).fit(X, y)
signed = AcceleGradClassifier(alpha=1e-3, feasible_set="nonnegative").fit(X, y)
assert signed.converged_
assert signed.coef_.min() >= 0
print(f"objective {free.objective_:.4f} without the constraint, {signed.objective_:.4f} with it")

places = np.arange(15)
plt.bar(places - 0.2, free.coef_.ravel(), 0.4, label="any sign")
plt.bar(places + 0.2, signed.coef_.ravel(), 0.4, label="not negative")
plt.plot(places, weights, "k_", markersize=14, label="truth")
plt.xlabel("coefficient")
plt.legend()
plt.show()
