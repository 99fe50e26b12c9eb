"""Constraints in torch and JAX: nonnegative weights, and weights that sum to one.

The first model finds the components of mixtures (nonnegative least squares). The second finds the
weights of experts whose forecasts are averaged (a simplex). All iterates and their average are
feasible, and the results agree with specialised solvers.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from scipy.optimize import minimize, nnls

from accelegrad.optax import accelegrad, eval_params
from accelegrad.torch import AcceleGrad

STEPS, BATCH = 1500, 50


def data(kind):
    """Return inputs and noisy outputs of a model whose weights satisfy the constraint."""
    rng = np.random.default_rng(1)
    A = np.abs(rng.standard_normal((500, 20)))
    weights = np.maximum(rng.standard_normal(20), 0)
    if kind == "simplex":
        weights /= weights.sum()
    return A, A @ weights + 0.1 * rng.standard_normal(500)


def start(kind):
    return np.full(20, 1 / 20) if kind == "simplex" else np.zeros(20)


def loss(w, A, b):
    return np.mean((A @ w - b) ** 2) / 2


def batches():
    rng = np.random.default_rng(0)
    return (rng.choice(500, BATCH, replace=False) for _ in range(STEPS))


def fit_with_torch(A, b, kind):
    A, b = torch.from_numpy(A), torch.from_numpy(b)
    w = torch.nn.Parameter(torch.from_numpy(start(kind)))
    optimizer = AcceleGrad([w], projection=kind)
    for rows in batches():
        optimizer.zero_grad()
        (A[rows] @ w - b[rows]).square().mean().div(2).backward()
        optimizer.step()
    with optimizer.evaluating():
        return w.detach().numpy().copy()


def fit_with_jax(A, b, kind):
    projections = {
        "nonnegative": optax.projections.projection_non_negative,
        "simplex": optax.projections.projection_simplex,
    }
    optimizer = accelegrad(projection=projections[kind])

    @jax.jit
    def step(w, state, A, b):
        gradient = jax.grad(lambda w: ((A @ w - b) ** 2).mean() / 2)(w)
        updates, state = optimizer.update(gradient, state, w)
        return optax.apply_updates(w, updates), state

    w = jnp.asarray(start(kind))
    state = optimizer.init(w)
    for rows in batches():
        w, state = step(w, state, A[rows], b[rows])
    return np.asarray(eval_params(state, w), dtype=np.float64)


def solved(A, b, kind):
    """Return the solution of a specialised solver."""
    if kind == "nonnegative":
        return nnls(A, b)[0]
    gram, moment = A.T @ A, A.T @ b
    sums_to_one = {"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda _: np.ones(20)}
    return minimize(
        lambda w: w @ gram @ w / 2 - moment @ w,
        start(kind),
        jac=lambda w: gram @ w - moment,
        bounds=[(0, None)] * 20,
        constraints=[sums_to_one],
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-12},
    ).x


def main():
    for kind in ("nonnegative", "simplex"):
        A, b = data(kind)
        least, initial = (loss(w, A, b) for w in (solved(A, b, kind), start(kind)))
        for name, fit in (("torch", fit_with_torch), ("JAX", fit_with_jax)):
            w = fit(A, b, kind)
            print(
                f"{kind:11} {name:5}  least weight {w.min():.1e}, sum {w.sum():.6f}, "
                f"{(loss(w, A, b) - least) / (initial - least):.1e} of the initial gap left"
            )


if __name__ == "__main__":
    main()
