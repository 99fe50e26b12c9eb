"""
No diameter to guess
====================

The paper's methods have one parameter: the diameter D of a ball that contains a minimiser. If D is
too small, the answer is wrong. If it is too large, the steps are too long. With the default,
``diameter="auto"``, the method determines D itself.
"""

import matplotlib.pyplot as plt
import numpy as np

import accelegrad as ag

rng = np.random.default_rng(1)
A = rng.standard_normal((150, 30)) * np.logspace(0, -1, 30)
b = A @ rng.standard_normal(30) + 0.1 * rng.standard_normal(150)


def f(x):
    r = A @ x - b
    return r @ r / 2, A.T @ r


x0 = np.zeros(30)
least = ag.minimize(f, x0, tol=1e-10, max_iter=5000).fun
diameters = np.logspace(-1, 4, 16)
for method, colour in (("accelegrad", "tab:blue"), ("adagrad", "tab:orange")):
    values = [ag.minimize(f, x0, method=method, diameter=D, max_iter=300).fun for D in diameters]
    plt.loglog(diameters, np.array(values) - least, "o-", color=colour, label=f"{method}, given D")
    found = ag.minimize(f, x0, method=method, max_iter=300).fun
    plt.axhline(found - least, color=colour, linestyle="--", label=f"{method}, automatic")
plt.xlabel("diameter D")
plt.ylabel("error after 300 gradients")
plt.legend()
plt.show()

# %%
# If the given D is too small, the run may detect it. The message then says so.

print(ag.minimize(f, x0, method="accelegrad", diameter=0.1, max_iter=300).message)
