"""
What the certificate proves
===========================

Each evaluation of a convex function gives a line that lies below it, called a *cut*. The maximum of
all cuts is below the function too, so the minimum of this maximum is a lower bound on the minimum
of the function. The gap between the best value found and this bound is what a run proves.
"""

import matplotlib.pyplot as plt
import numpy as np


def f(x):
    return np.abs(x - 1) + 0.5 * x**2


def slope(x):
    return np.sign(x - 1) + x


places = np.linspace(-2, 3, 501)
figure, panels = plt.subplots(1, 3, figsize=(10, 3.2), sharey=True, layout="constrained")
for panel, count in zip(panels, (2, 3, 5), strict=True):
    tried = np.array([-1.5, 2.6, 0.1, 1.4, 0.8])[:count]
    cuts = np.array([f(x) + slope(x) * (places - x) for x in tried])
    model = cuts.max(axis=0)
    best, bound = f(tried).min(), model.min()
    panel.fill_between(places, bound, best, alpha=0.2, color="tab:blue")
    panel.plot(places, f(places), color="black", label="the function")
    panel.plot(places, cuts.T, color="tab:gray", linewidth=0.7)
    panel.plot(places, model, color="tab:orange", label="the highest cut")
    panel.plot(tried, f(tried), "o", color="black")
    panel.set(title=f"{count} gradients: gap {best - bound:.2f}", ylim=(-2.5, 4.5))
panels[0].legend(loc="upper center")
plt.show()
