"""Every method for sums over rows beside independent solvers: values and bounds enclose the minimum."""

import functools

import numpy as np
import piqp
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize as scipy_minimize

import accelegrad as ag
from accelegrad.models.losses import LOSSES
from accelegrad.proofs.fenchel import Terms
from accelegrad.solvers.curvature import DirectNewton
from toys import linear_problem

SMOOTH = [name for name, entry in LOSSES.items() if entry.smooth]
ONE_KINK = ["hinge", "absolute", "quantile"]
WEIGHTS = np.random.default_rng(8).random(200) * (np.arange(200) % 7 > 0)
DATA = {
    "dense": {},
    "csr, weights": dict(kind="csr", fit_intercept=True, sample_weight=WEIGHTS),
    "float32": dict(fit_intercept=True),
    "weak l2": dict(l2=1e-6, fit_intercept=True),
    "strong l2": dict(l2=1.0),
    "no l2": dict(l2=0.0, fit_intercept=True, rows=600),
}
METHODS = ["accelegrad-newton", "proximal-newton", "dual-ascent", "interior-point", "direct"]


def wanted(method, loss, data):
    """Return the relative gap that a method has to prove; None where it is not for the problem."""
    if method == "accelegrad-newton" and (loss in SMOOTH or data != "no l2"):
        return 1e-9 if loss in SMOOTH else 1e-4
    if data == "no l2":
        with_null_space = method == "accelegrad-newton" and loss in ("absolute", "quantile")
        return 1e-7 if with_null_space else None
    if method == "interior-point":
        return 1e-7 if loss in ONE_KINK else None
    if method == "dual-ascent":  # slow with a weak l2 term
        return None if data == "weak l2" else 1e-3
    return 1e-9 if loss in SMOOTH else (1e-3 if method == "proximal-newton" else None)


CASES = [
    (method, loss, data)
    for method in METHODS
    for loss in LOSSES
    for data in DATA
    if wanted(method, loss, data)
]


@functools.cache
def problem(loss, data):
    given = dict(density=0.4, noise=0.7, l2=1e-2, seed=7, quantile=0.8) | DATA[data]
    shape = given.pop("rows", 200), 8
    model = linear_problem(loss, given.pop("kind", "dense"), shape, **given)
    if data == "float32":
        own = dict(l2=model.l2, fit_intercept=model.fit_intercept, quantile=0.8)
        model = ag.LinearModel(model.X.astype(np.float32), model.y, loss, **own)
    return model


@functools.cache
def told(loss, data):
    model = problem(loss, data)
    if loss not in SMOOTH:
        return model.value(programme_minimum(model))
    options = {"ftol": 1e-16, "gtol": 1e-12, "maxiter": 5000}
    own = dict(jac=True, method="L-BFGS-B", options=options)
    found = scipy_minimize(model.value_and_gradient, np.zeros(model.n_parameters), **own)
    return model.value(found.x)


def programme_minimum(model):
    """Return the minimum by a quadratic programme: residuals are what is above and below a zone."""
    shape, n, size = model.loss.shape, model.n_samples, model.n_parameters
    signs = model.y if model.loss.classification else np.ones(n)
    X = sp.csr_matrix(model.X).astype(np.float64)
    X = sp.hstack([X, np.ones((n, 1))]) if model.fit_intercept else X
    one = sp.eye(n)
    ends = np.concatenate([np.zeros(2 * n), np.full(n, -shape.epsilon)])
    l2 = np.full(size, model.l2)
    l2[model.n_features :] = 0.0
    solver = piqp.SparseSolver()
    solver.settings.eps_abs = solver.settings.eps_rel = 1e-10
    costs = shape.high * model.shares, -shape.low * model.shares
    solver.setup(
        sp.diags(np.append(l2, np.zeros(3 * n)), format="csc"),
        np.concatenate([np.zeros(size), *costs, np.zeros(n)]),
        sp.hstack([sp.diags(signs) @ X, -one, one, -one], format="csc"),
        signs * model.y,
        x_l=np.concatenate([np.full(size, -np.inf), ends]),
        x_u=np.concatenate([np.full(size + 2 * n, np.inf), np.full(n, shape.epsilon)]),
    )
    solver.solve()
    return solver.result.x[:size]


@pytest.mark.parametrize(("method", "loss", "data"), CASES)
def test_value_and_bound_enclose_the_minimum(method, loss, data):
    model, rtol = problem(loss, data), wanted(method, loss, data)
    if method == "direct":
        found = DirectNewton(model).minimum(
            Terms.of(model, None, None), np.zeros(model.n_parameters), lambda value: rtol * value
        )
        x, value, bound, steps, _ = found
        assert 1 <= steps <= (1 if loss == "squared" else 60)  # whose model is exact
    else:
        run = ag.minimize(model, method=method, rtol=rtol, max_iter=3000, rng=0)
        assert run.success
        assert run.certified_radius == np.inf
        x, value, bound = run.x, run.fun, run.lower_bound
    assert value == pytest.approx(model.value(x), rel=1e-12)
    assert value - bound <= rtol * value
    # Both are computed with rounding; a bound allows for it, the other solver's value does not.
    assert bound <= told(loss, data) * (1.0 + 1e-14)
    assert told(loss, data) <= value * (1.0 + (1e-11 if loss in SMOOTH else 1e-7))
