"""
Which features matter
=====================

Logistic regression with an l1 penalty, on data where five of 200 features matter. Along the
regularisation path, these features enter first.
"""

import matplotlib.pyplot as plt
import numpy as np

import accelegrad as ag

rng = np.random.default_rng(0)
X = rng.standard_normal((400, 200))
margins = X[:, :5] @ np.array([3.0, -2.0, 2.0, -1.5, 1.0])
labels = np.where(margins + rng.logistic(size=400) > 0, 1.0, -1.0)
model = ag.LinearModel(X, labels, "logistic", fit_intercept=True)

strengths, path = np.logspace(-0.6, -1.7, 18), []
for strength in strengths:
    result = ag.minimize(model, penalty=ag.L1(strength), tol=1e-6)
    assert result.success
    path.append(result.x[:-1])  # the last entry is the intercept, not penalised
path = np.array(path)

for j in range(200):
    style = {"label": f"column {j}"} if j < 5 else {"color": "tab:gray", "linewidth": 0.6}
    plt.semilogx(strengths, path[:, j], **style)
plt.gca().invert_xaxis()
plt.gca().xaxis.set_minor_formatter("")
plt.xlabel("strength of the l1 term")
plt.ylabel("weight")
plt.legend()
plt.show()
