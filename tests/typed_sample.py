"""Users' code, as a type checker sees it: `tests/release.py` checks it with pyright.

It is never run by the tests; its types are all that matters.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

import accelegrad as ag
from accelegrad.sklearn import AcceleGradClassifier, AcceleGradRegressor
from accelegrad.torch import AcceleGrad

Vector = npt.NDArray[np.float64]


def f(x: Vector) -> tuple[float, Vector]:
    return float(np.abs(x).sum()), np.sign(x)


def minimised() -> Vector:
    result = ag.minimize(f, np.ones(3), feasible_set=ag.Box(-1.0, 2.0), tol=1e-6)
    if result.status is ag.Status.CONVERGED and result.success:
        return np.asarray(result.x)
    raise RuntimeError(result.message)


def by_a_rule(steps: int) -> Vector:
    rule = ag.AcceleGrad(diameter=4.0)
    state = rule.init(np.ones(3))
    for _ in range(steps):
        state = rule.update(state, f(rule.query(state))[1])
    return np.asarray(rule.output(state))


def modelled(X: Vector, y: Vector) -> float:
    model = ag.LinearModel(X, y, loss="hinge", l2=1e-2, fit_intercept=True)
    value, gradient = model.value_and_gradient(np.zeros(X.shape[1] + 1))
    found = ag.minimize(model, penalty=ag.L1(0.1), max_iter=10)
    return value + float(gradient @ found.x)


def fitted(X: Vector, y: Vector) -> float:
    classifier = AcceleGradClassifier("hinge", alpha=1e-3).fit(X, y)
    regressor = AcceleGradRegressor("quantile", quantile=0.9).fit(X, y)
    return float(classifier.gap_) + float(regressor.predict(X).sum())


def summed_up(X: Vector, y: Vector) -> str:
    levels = AcceleGradRegressor("quantile", quantile=[0.1, 0.9], non_crossing=True).fit(X, y)
    return str(levels.summary(top=5)) + ag.minimize(f, np.ones(3)).proved


def trained(rows: torch.Tensor) -> float:
    layer = torch.nn.Linear(3, 1)
    optimizer = AcceleGrad(layer.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        layer(rows).abs().mean().backward()
        optimizer.step()
    with optimizer.evaluating():
        return float(layer(rows).abs().mean().item())


def checked() -> bool:
    found: ag.GradientCheck = ag.check_gradient(f, np.ones(3))
    return found.ok
