"""
Choose a feasible set
=====================

A constraint is a set with a projection. The figure shows four sets in the plane. Arrows lead from
points outside to the nearest points of the set. The gray lines are the contours of a function, and
the star is its minimiser over the set.
"""

import matplotlib.pyplot as plt
import numpy as np

import accelegrad as ag

SETS = {
    "Ball": ag.Ball(np.zeros(2), 1.0),
    "Box": ag.Box(-1.0, 1.0),
    "Simplex": ag.Simplex(1.0),
    "L1Ball": ag.L1Ball(1.0),
}


def f(x):
    away = x - [1.6, 0.6]
    return away**2 @ [1.0, 3.0] / 2, away * [1.0, 3.0]


grid = np.linspace(-2, 2, 161)
heights = np.array([[f(np.array([u, v]))[0] for u in grid] for v in grid])
angles = np.linspace(0, 2 * np.pi, 12, endpoint=False)
figure, panels = plt.subplots(1, 4, figsize=(11, 3), sharey=True, layout="constrained")
for panel, (name, feasible) in zip(panels, SETS.items(), strict=True):
    panel.contour(grid, grid, heights, levels=12, colors="tab:gray", linewidths=0.5)
    corners = [feasible.project(np.array([u, v])) for u in grid[::4] for v in grid[::4]]
    panel.plot(*np.array(corners).T, ".", color="tab:blue", markersize=2)
    for angle in angles:
        outside = 1.8 * np.array([np.cos(angle), np.sin(angle)])
        inside = feasible.project(outside)
        panel.annotate("", inside, outside, arrowprops={"arrowstyle": "->", "alpha": 0.5})
    found = ag.minimize(f, feasible.project(np.zeros(2)), feasible_set=feasible, tol=1e-8)
    assert found.success
    panel.plot(*found.x, "*", color="tab:red", markersize=12)
    panel.set(title=f"{name}: {found.fun:.3f}", aspect="equal")
plt.show()

# %%
# SciPy's arguments ``bounds=`` and linear ``constraints=`` work too.

bounded = ag.minimize(f, np.zeros(2), bounds=[(-1, 1), (0, 0.5)], tol=1e-8)
print(bounded.x.round(6), bounded.message)
