"""
Robust regression with the scikit-learn API
===========================================

The noise has heavy tails, and the columns have different units. Least absolute deviations handle
both without scaling the data, and the fit says how close it is to the optimum.
"""

import matplotlib.pyplot as plt
import numpy as np

from accelegrad.sklearn import AcceleGradRegressor

rng = np.random.default_rng(0)
scales, truth = np.array([1.0, 1e3, 1e-2, 50.0, 1.0]), np.array([3.0, -2.0, 0.0, 1.0, 0.0])
X = rng.standard_normal((500, 5)) * scales
y = X @ (truth / scales) + rng.standard_t(1.5, 500)

fits = {}
for loss in ("squared_error", "huber", "absolute_error"):
    fit = AcceleGradRegressor(loss, alpha=1e-6).fit(X, y)
    fits[loss] = fit.coef_ * scales
    print(f"{loss}: no fit is better by more than {100 * fit.gap_ / fit.objective_:.2f} %")
    assert fit.gap_ <= 1e-3 * fit.objective_

width = 0.25
for k, (loss, coefficients) in enumerate(fits.items()):
    plt.bar(np.arange(5) + (k - 1) * width, coefficients, width, label=loss)
plt.plot(np.arange(5), truth, "k_", markersize=30, label="truth")
plt.xlabel("coefficient, in units of its column")
plt.legend()
plt.show()
